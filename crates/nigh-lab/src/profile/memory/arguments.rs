//! The functions that are profiled, what their arguments may be, and about how long they compute. Pure.
//!
//! Estimates of work, in seconds of one processor of 2020, keep runs short: they decide which inputs come with which arguments,
//! and are no result.

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Value, json};

use super::inputs::{Content, Pool, one_of, spread};
use super::plan::Arguments;

/// What an argument may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Range {
    /// A number, small as often as large.
    Spread(f64, f64),
    /// A number, all equally often.
    Even(f64, f64),
    /// A whole number, small as often as large, a multiple of the last.
    Whole(f64, f64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
}

/// An argument's name, and what it may be.
type Argument = (&'static str, Range);

/// A function of `functions/` that is profiled.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProfiledFunction {
    pub(super) name: &'static str,
    pub(super) pool: Pool,
    pub(super) arguments: &'static [Argument],
    /// Estimated seconds of processor; infinite where the function would refuse the arguments.
    pub(super) work_s: fn(&Content, &Arguments) -> f64,
}

const SIDE: Argument = ("side", Range::Whole(16.0, 2000.0, 1));

const fn profiled(
    name: &'static str,
    pool: Pool,
    arguments: &'static [Argument],
    work_s: fn(&Content, &Arguments) -> f64,
) -> ProfiledFunction {
    ProfiledFunction { name, pool, arguments, work_s }
}

/// All of them, by name.
pub(super) const PROFILED: [ProfiledFunction; 26] = [
    profiled(
        "audio_compress",
        Pool::Sounds,
        &[("codec", Range::Word(&["mp3", "opus", "aac", "flac"])), ("bitrate_kbps", Range::Whole(32.0, 320.0, 8))],
        |content, drawn| {
            let Content::Sound { duration, channels, .. } = *content else { return f64::INFINITY };
            // libopus refuses these.
            if word(drawn, "codec") == "opus" && number(drawn, "bitrate_kbps") > 256.0 * f64::from(channels) {
                return f64::INFINITY;
            }
            duration * of_word(drawn, "codec", &[("flac", 0.006), ("mp3", 0.02)], 0.05)
        },
    ),
    profiled("blur", Pool::Pictures, &[("sigma", Range::Spread(0.3, 20.0))], |content, _| 0.45 * content.amount()),
    profiled(
        "compress",
        Pool::Texts,
        &[("format", Range::Word(&["gzip", "bz2", "xz"])), ("level", Range::Whole(1.0, 9.0, 1))],
        |content, drawn| content.amount() * of_word(drawn, "format", &[("gzip", 0.05), ("bz2", 0.1)], 0.6),
    ),
    profiled("csv_summary", Pool::Tables, &[], |content, _| 3.5 * content.amount()),
    profiled("csv_to_json", Pool::Tables, &[], |content, _| 2.1 * content.amount()),
    profiled(
        "effect",
        Pool::Waves,
        &[("delay_s", Range::Spread(0.01, 2.0)), ("decay", Range::Even(0.0, 0.95))],
        |content, _| 0.003 * content.amount(),
    ),
    profiled("html_page", Pool::Records, &[], |content, _| 6.5 * content.amount()),
    profiled("json_to_csv", Pool::Records, &[], |content, _| 1.8 * content.amount()),
    profiled(
        "matrix_product",
        Pool::Matrices,
        &[("operation", Range::Word(&["gram", "power"])), ("exponent", Range::Whole(2.0, 64.0, 1))],
        |content, drawn| {
            let Content::Matrix { rows, fields, .. } = *content else { return f64::INFINITY };
            let product = f64::from(rows) * f64::from(fields) * f64::from(fields) / 3e10;
            match word(drawn, "operation") {
                "gram" => product,
                // Only a square matrix has powers; each doubling of the exponent is one product, or two.
                _ if rows == fields => product * 1.5 * number(drawn, "exponent").log2(),
                _ => f64::INFINITY,
            }
        },
    ),
    profiled("pdf_report", Pool::Records, &[], |content, _| 7.0 * content.amount()),
    profiled("resize", Pool::Films, &[("height", Range::Whole(90.0, 1080.0, 2))], |content, drawn| {
        let Content::Film { height, .. } = *content else { return f64::INFINITY };
        let scale = number(drawn, "height") / f64::from(height);
        0.04 + content.amount() * (0.005 + 0.018 * scale * scale)
    }),
    profiled("sepia", Pool::Pictures, &[], |content, _| 0.4 * content.amount()),
    profiled("speech", Pool::Speech, &[], |content, _| 0.45 * content.amount()),
    profiled("text_summary", Pool::Texts, &[("sentences", Range::Whole(1.0, 1000.0, 1))], |content, _| {
        0.2 * content.amount()
    }),
    profiled("thumbnail", Pool::Pictures, &[SIDE], |content, _| 0.01 + 0.02 * content.amount()),
    profiled("video_grayscale", Pool::Films, &[("quality", Range::Whole(1.0, 51.0, 1))], |content, _| {
        0.03 + 0.026 * content.amount()
    }),
    profiled("wand_blur", Pool::Pictures, &[("sigma", Range::Spread(0.3, 8.0))], |content, drawn| {
        content.amount() * (0.06 + 0.04 * number(drawn, "sigma") + written(content))
    }),
    profiled(
        "wand_convert",
        Pool::Pictures,
        &[("format", Range::Word(&["png", "jpeg", "webp", "tiff", "bmp", "gif"]))],
        |content, drawn| content.amount() * (0.04 + encoding(word(drawn, "format"))),
    ),
    profiled(
        "wand_denoise",
        Pool::Pictures,
        &[("method", Range::Word(&["despeckle", "despeckle", "median"])), ("size", Range::Whole(1.0, 4.0, 1))],
        |content, drawn| {
            let median = 0.08 * number(drawn, "size") * number(drawn, "size");
            content.amount() * (of_word(drawn, "method", &[("despeckle", 0.17)], median) + written(content))
        },
    ),
    profiled("wand_edge", Pool::Pictures, &[("radius", Range::Spread(0.5, 6.0))], |content, drawn| {
        let radius = number(drawn, "radius");
        content.amount() * (0.05 + 0.01 * radius * radius + written(content))
    }),
    profiled("wand_resize", Pool::Pictures, &[("width", Range::Whole(32.0, 3000.0, 1))], |content, drawn| {
        let Content::Picture { width, height, .. } = *content else { return f64::INFINITY };
        let scaled = number(drawn, "width").powi(2) * f64::from(height) / f64::from(width) / 1e6;
        0.03 * content.amount() + scaled * (0.06 + written(content))
    }),
    profiled("wand_rotate", Pool::Pictures, &[("angle", Range::Even(-180.0, 180.0))], |content, _| {
        content.amount() * (0.27 + written(content))
    }),
    profiled("wand_sepia", Pool::Pictures, &[("threshold", Range::Even(0.0, 1.0))], |content, _| {
        content.amount() * (0.1 + written(content))
    }),
    profiled("wand_sharpen", Pool::Pictures, &[("sigma", Range::Spread(0.3, 3.0))], |content, _| {
        content.amount() * (0.65 + written(content))
    }),
    profiled("wand_thumbnail", Pool::Pictures, &[SIDE], |content, _| 0.02 + content.amount() * 0.03),
    profiled("wordcount", Pool::Texts, &[("top", Range::Whole(1.0, 10_000.0, 1))], |content, _| {
        0.09 * content.amount()
    }),
];

impl ProfiledFunction {
    /// Draws a value for each of the function's arguments.
    pub(super) fn draw(&self, random: &mut StdRng) -> Arguments {
        self.arguments.iter().map(|&(name, range)| (name, range.draw(random))).collect()
    }
}

impl Range {
    fn draw(self, random: &mut StdRng) -> Value {
        let short = |number: f64| json!((number * 1000.0).round() / 1000.0);
        match self {
            Self::Spread(least, most) => short(spread(random, least, most)),
            Self::Even(least, most) => short(random.random_range(least..=most)),
            Self::Whole(least, most, step) => {
                let steps = (spread(random, least, most) / step as f64).round() as u64;
                json!((steps * step).clamp(least as u64, most as u64))
            }
            Self::Word(all) => json!(one_of(random, all)),
        }
    }
}

fn number(drawn: &Arguments, name: &str) -> f64 {
    drawn.get(name).and_then(Value::as_f64).unwrap_or_default()
}

fn word<'a>(drawn: &'a Arguments, name: &str) -> &'a str {
    drawn.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The seconds listed for the word that was drawn, or `others`.
fn of_word(drawn: &Arguments, name: &str, listed: &[(&str, f64)], others: f64) -> f64 {
    listed.iter().find(|(known, _)| *known == word(drawn, name)).map_or(others, |(_, seconds)| *seconds)
}

/// Seconds that ImageMagick takes to write a million pixels.
fn encoding(format: &str) -> f64 {
    match format {
        "gif" => 0.5,
        "png" => 0.3,
        "webp" => 0.13,
        "jpeg" => 0.03,
        _ => 0.015,
    }
}

/// Seconds that ImageMagick takes to write a million pixels in the picture's own format.
fn written(content: &Content) -> f64 {
    match content {
        Content::Picture { format, .. } => encoding(format),
        _ => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use rand::SeedableRng;

    use super::*;

    #[test]
    fn the_profiled_functions_are_those_of_the_project_with_arguments_that_they_have() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions");
        let mut known = BTreeMap::new();
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            if let Ok(text) = std::fs::read_to_string(entry.path().join("function.toml")) {
                let table: toml::Table = text.parse().unwrap();
                let arguments = table.get("arguments").and_then(|arguments| arguments.as_table()).cloned();
                known.insert(table["name"].as_str().unwrap().to_owned(), arguments.unwrap_or_default());
            }
        }
        let names: Vec<&str> = PROFILED.iter().map(|function| function.name).collect();
        assert_eq!(names, known.keys().map(String::as_str).collect::<Vec<_>>());
        for function in &PROFILED {
            for (name, _) in function.arguments {
                assert!(known[function.name].contains_key(*name), "{} {name}", function.name);
            }
        }
    }

    #[test]
    fn drawn_numbers_are_in_their_range_and_multiples_of_their_step() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..500 {
            let height = Range::Whole(90.0, 1080.0, 2).draw(&mut random).as_u64().unwrap();
            assert!((90..=1080).contains(&height) && height.is_multiple_of(2), "{height}");
            let sigma = Range::Spread(0.3, 20.0).draw(&mut random).as_f64().unwrap();
            assert!((0.3..=20.0).contains(&sigma), "{sigma}");
        }
    }
}
