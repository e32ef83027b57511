//! The inputs that functions are profiled on. The seed, the pool and a number decide each. Pure.
//!
//! Sizes spread over three orders of magnitude, small ones as often as large ones. Some drawn properties are in no header
//! (`content`, `progressive`, `spoken`, `vocabulary`, `distinct`): memory depends on them, and they are no features, as nobody
//! knows them before the run. `make_inputs.py` makes the files.

use nigh_learn::hash_bytes;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;

/// Inputs of a pool.
pub(super) const INPUTS: u32 = 240;

/// JPEG as often as all others together.
const PICTURE_FORMATS: [&str; 10] = ["jpeg", "jpeg", "jpeg", "jpeg", "jpeg", "png", "webp", "tiff", "bmp", "gif"];
/// Million pixels of the smallest picture, and of the largest by format: larger ones take long to make and to store.
const PICTURE_LEAST: f64 = 0.01;
const JPEG_MOST: f64 = 24.0;
const PLAIN_MOST: f64 = 8.0;
const PACKED_MOST: f64 = 4.0;
/// Width and height of films.
const SCREENS: [(u32, u32); 7] =
    [(192, 108), (320, 180), (426, 240), (640, 360), (854, 480), (1280, 720), (1920, 1080)];
/// Pixels of all frames of a film together.
const FILM_PIXELS_MOST: u32 = 32_000_000;

/// Inputs of a kind, of which functions draw theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Pool {
    /// Photographs and drawings, in six formats.
    Pictures,
    /// WAV.
    Waves,
    /// Music in four formats.
    Sounds,
    /// Sound like speech.
    Speech,
    /// Films in MP4.
    Films,
    /// Text.
    Texts,
    /// CSV.
    Tables,
    /// Lists of JSON objects.
    Records,
    /// .npy of two dimensions.
    Matrices,
}

/// What is in a file.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum Content {
    Picture { width: u32, height: u32, channels: u8, format: &'static str, content: &'static str, progressive: bool },
    Sound { duration: f64, samplerate: u32, channels: u8, format: &'static str, spoken: bool },
    Film { width: u32, height: u32, frames: u32, rate: u32, codec: &'static str },
    Text { bytes: u32, vocabulary: u32 },
    Table { rows: u32, fields: u32, format: &'static str, distinct: u32 },
    Matrix { rows: u32, fields: u32, item: &'static str },
}

/// One input, to be made.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct MadeUp {
    /// The unique name: the pool, the number in the pool, the format.
    #[serde(skip)]
    pub(super) id: String,
    /// Decides what the content looks like.
    seed: u64,
    #[serde(flatten)]
    pub(super) content: Content,
}

impl Pool {
    /// The folder of its inputs.
    const fn name(self) -> &'static str {
        match self {
            Self::Pictures => "picture",
            Self::Waves => "wave",
            Self::Sounds => "sound",
            Self::Speech => "speech",
            Self::Films => "film",
            Self::Texts => "text",
            Self::Tables => "table",
            Self::Records => "records",
            Self::Matrices => "matrix",
        }
    }

    /// The features in the headers of its inputs.
    pub(super) const fn features(self) -> &'static [&'static str] {
        match self {
            Self::Pictures => &["in_width", "in_height", "in_channels", "in_format"],
            Self::Waves | Self::Sounds | Self::Speech => &["in_duration", "in_samplerate", "in_channels", "in_format"],
            Self::Films => &["in_width", "in_height", "in_frames", "in_duration", "in_rate", "in_codec"],
            Self::Texts => &["in_lines"],
            Self::Tables | Self::Records => &["in_rows", "in_fields"],
            Self::Matrices => &["in_rows", "in_fields", "in_itemsize"],
        }
    }

    /// The pool's input of this number.
    pub(super) fn input(self, seed: u64, number: u32) -> MadeUp {
        let seed = hash_bytes(format!("{seed} {} {number}", self.name()).as_bytes());
        let mut random = StdRng::seed_from_u64(seed);
        let content = self.draw(&mut random);
        MadeUp { id: format!("{}/{number:04}.{}", self.name(), content.suffix()), seed, content }
    }

    fn draw(self, random: &mut StdRng) -> Content {
        match self {
            Self::Pictures => picture(random),
            Self::Waves => sound(random, (0.1, 240.0), &["wav"], false),
            Self::Sounds => sound(random, (0.1, 60.0), &["wav", "flac", "mp3", "ogg"], false),
            Self::Speech => sound(random, (0.2, 3.0), &["wav", "flac", "mp3"], true),
            Self::Films => film(random),
            Self::Texts => Content::Text {
                bytes: spread(random, 1e3, 8e6).round() as u32,
                vocabulary: spread(random, 100.0, 50_000.0).round() as u32,
            },
            Self::Tables => table(random, 6e5, "csv"),
            Self::Records => table(random, 4e5, "json"),
            Self::Matrices => {
                let side = spread(random, 8.0, 1700.0);
                let shape = if random.random_bool(0.3) { spread(random, 0.3, 3.0) } else { 1.0 };
                Content::Matrix {
                    rows: side.round() as u32,
                    fields: (side * shape).round().max(1.0) as u32,
                    item: one_of(random, &["float64", "float64", "float32", "int32", "int16"]),
                }
            }
        }
    }
}

impl Content {
    /// The end of its file's name.
    const fn suffix(&self) -> &'static str {
        match self {
            Self::Picture { format, .. } | Self::Sound { format, .. } | Self::Table { format, .. } => format,
            Self::Film { .. } => "mp4",
            Self::Text { .. } => "txt",
            Self::Matrix { .. } => "npy",
        }
    }

    /// The amount of content: million pixels of all frames, seconds of sound, million letters, million cells.
    pub(super) fn amount(&self) -> f64 {
        let millions = |one: u32, other: u32| f64::from(one) * f64::from(other) / 1e6;
        match *self {
            Self::Picture { width, height, .. } => millions(width, height),
            Self::Sound { duration, .. } => duration,
            Self::Film { width, height, frames, .. } => millions(width, height) * f64::from(frames),
            Self::Text { bytes, .. } => f64::from(bytes) / 1e6,
            Self::Table { rows, fields, .. } | Self::Matrix { rows, fields, .. } => millions(rows, fields),
        }
    }
}

/// A number between two, small as often as large: evenly by its logarithm.
pub(super) fn spread(random: &mut StdRng, least: f64, most: f64) -> f64 {
    least * (most / least).powf(random.random::<f64>())
}

pub(super) fn one_of<T: Copy>(random: &mut StdRng, all: &[T]) -> T {
    all[random.random_range(0..all.len())]
}

fn picture(random: &mut StdRng) -> Content {
    let format = one_of(random, &PICTURE_FORMATS);
    let (most, channels): (f64, &[u8]) = match format {
        "jpeg" => (JPEG_MOST, &[3, 3, 3, 3, 1]),
        "tiff" | "bmp" => (PLAIN_MOST, &[3, 3, 1]),
        "png" => (PACKED_MOST, &[3, 4, 1]),
        "webp" => (PACKED_MOST, &[3, 4]),
        _ => (PACKED_MOST, &[3]),
    };
    let pixels = spread(random, PICTURE_LEAST, most) * 1e6;
    let shape = spread(random, 0.5, 2.0);
    Content::Picture {
        width: (pixels * shape).sqrt().round() as u32,
        height: (pixels / shape).sqrt().round() as u32,
        channels: one_of(random, channels),
        format,
        content: one_of(random, &["grainy", "grainy", "smooth", "busy", "flat"]),
        progressive: random.random_bool(0.2),
    }
}

fn sound(random: &mut StdRng, (least, most): (f64, f64), formats: &[&'static str], spoken: bool) -> Content {
    Content::Sound {
        duration: (spread(random, least, most) * 100.0).round() / 100.0,
        samplerate: one_of(random, &[8000, 16_000, 22_050, 44_100, 44_100, 48_000]),
        channels: one_of(random, &[1, 2]),
        format: one_of(random, formats),
        spoken,
    }
}

fn film(random: &mut StdRng) -> Content {
    let (width, height) = one_of(random, &SCREENS);
    let frames = spread(random, 3.0, 150.0).round() as u32;
    Content::Film {
        width,
        height,
        frames: frames.min(FILM_PIXELS_MOST / (width * height)),
        rate: one_of(random, &[15, 24, 25, 30]),
        codec: one_of(random, &["h264", "h264", "mpeg4"]),
    }
}

fn table(random: &mut StdRng, cells_most: f64, format: &'static str) -> Content {
    let fields = random.random_range(2..=24_u32);
    let rows = spread(random, 60.0, cells_most) / f64::from(fields);
    let distinct = spread(random, 3.0, 5000.0).round() as u32;
    Content::Table { rows: rows.round().max(1.0) as u32, fields, format, distinct }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOLS: [Pool; 9] = [
        Pool::Pictures,
        Pool::Waves,
        Pool::Sounds,
        Pool::Speech,
        Pool::Films,
        Pool::Texts,
        Pool::Tables,
        Pool::Records,
        Pool::Matrices,
    ];

    #[test]
    fn the_same_seed_makes_the_same_inputs_and_another_makes_others() {
        for pool in POOLS {
            let all = |seed| (0..INPUTS).map(|number| pool.input(seed, number)).collect::<Vec<_>>();
            assert_eq!(all(1), all(1));
            assert_ne!(all(1), all(2), "{pool:?}");
            let mut names: Vec<String> = all(1).into_iter().map(|input| input.id).collect();
            names.dedup();
            assert_eq!(names.len(), INPUTS as usize);
        }
    }

    #[test]
    fn sizes_spread_over_orders_of_magnitude() {
        for pool in POOLS {
            let amounts = (0..INPUTS).map(|number| pool.input(1, number).content.amount());
            let (least, most) = amounts.fold((f64::MAX, 0.0_f64), |(low, high), one| (low.min(one), high.max(one)));
            assert!(most / least > if pool == Pool::Speech { 8.0 } else { 200.0 }, "{pool:?}: {least} to {most}");
        }
    }

    #[test]
    fn films_have_even_sides_and_bounded_pixels() {
        for number in 0..INPUTS {
            let Content::Film { width, height, frames, .. } = Pool::Films.input(1, number).content else { panic!() };
            assert!(width % 2 == 0 && height % 2 == 0 && frames > 0);
            assert!(width * height * frames <= FILM_PIXELS_MOST);
        }
    }
}
