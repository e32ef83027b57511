//! A picture: soft shapes of two scales with a little grain, as a PNG (W3C recommendation "Portable Network Graphics",
//! third edition) of eight bits in three colours, every row filtered by its left neighbours.

use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};

const SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";
/// Eight bits, true colour, deflate, the five basic filters, not interlaced.
const FORMAT: [u8; 5] = [8, 2, 0, 0, 0];
const FILTER_SUB: u8 = 1;
const COLOURS: usize = 3;

/// Bytes that a pixel takes here, about: where the search for the right number of pixels begins.
const BYTES_PER_PIXEL: f64 = 1.6;
/// The tolerance of the size, and the number of tries.
const SIZE_TOLERANCE: f64 = 0.02;
const TRIES_MAX: usize = 6;

/// Pixels from one support of the shapes to the next, and how far they rise and fall.
const SHAPES: [(u32, i64); 2] = [(64, 90), (16, 24)];
/// The grain: what of a photograph does not compress. Each colour is up to so much off.
const GRAIN: u64 = 9;

/// A picture of about `bytes` bytes.
pub(super) fn png(bytes: usize, seed: u64) -> Vec<u8> {
    let mut pixels = bytes as f64 / BYTES_PER_PIXEL;
    let mut best: Option<Vec<u8>> = None;
    let off = |made: &[u8]| (made.len() as f64 / bytes as f64 - 1.0).abs();
    for _ in 0..TRIES_MAX {
        // Four to three, as cameras have it.
        let width = (pixels * 4.0 / 3.0).sqrt().round().max(1.0);
        let height = (pixels / width).round().max(1.0);
        let made = encoded(width as u32, height as u32, seed);
        pixels = width * height * bytes as f64 / made.len() as f64;
        if best.as_ref().is_none_or(|best| off(&made) < off(best)) {
            best = Some(made);
        }
        if best.as_ref().is_some_and(|best| off(best) <= SIZE_TOLERANCE) {
            break;
        }
    }
    best.unwrap_or_default()
}

fn encoded(width: u32, height: u32, seed: u64) -> Vec<u8> {
    let mut data = ZlibEncoder::new(Vec::new(), Compression::default());
    let mut row = vec![0; 1 + width as usize * COLOURS];
    row[0] = FILTER_SUB;
    for y in 0..height {
        let mut left = [0; COLOURS];
        for (x, pixel) in (0..).zip(row[1..].chunks_exact_mut(COLOURS)) {
            let colours = colours(x, y, seed);
            for (at, filtered) in pixel.iter_mut().enumerate() {
                *filtered = colours[at].wrapping_sub(left[at]);
            }
            left = colours;
        }
        // Writing to memory cannot fail.
        let _ = data.write_all(&row);
    }
    let data = data.finish().unwrap_or_default();
    let size = [width.to_be_bytes(), height.to_be_bytes()].concat();
    let mut file = SIGNATURE.to_vec();
    for (name, content) in [(b"IHDR", [&size[..], &FORMAT].concat()), (b"IDAT", data), (b"IEND", Vec::new())] {
        let mut crc = Crc::new();
        crc.update(name);
        crc.update(&content);
        file.extend((content.len() as u32).to_be_bytes());
        file.extend(name);
        file.extend(content);
        file.extend(crc.sum().to_be_bytes());
    }
    file
}

fn colours(x: u32, y: u32, seed: u64) -> [u8; COLOURS] {
    let light: i64 = SHAPES.iter().map(|&(step, height)| shape(x, y, step, seed) * height / 256).sum();
    let warmth = shape(x, y, SHAPES[0].0, !seed) / 8;
    let grain = mixed(u64::from(x) << 32 | u64::from(y), seed);
    let colour = |tint: i64, bits: u32| {
        let grain = ((grain >> bits) % GRAIN) as i64 - GRAIN as i64 / 2;
        (128 + light + tint + grain).clamp(0, 255) as u8
    };
    [colour(warmth, 0), colour(0, 20), colour(-warmth, 40)]
}

/// A soft shape, -128 to 128: values at the corners of squares of `step` pixels, and what lies between.
fn shape(x: u32, y: u32, step: u32, seed: u64) -> i64 {
    let corner =
        |x: u32, y: u32| (mixed(u64::from(x) << 32 | u64::from(y) ^ u64::from(step) << 24, seed) % 257) as i64 - 128;
    let (across, down, step_of) = (i64::from(x % step), i64::from(y % step), i64::from(step));
    let (x, y) = (x / step, y / step);
    let between = |first: i64, second: i64, part: i64| first + (second - first) * part / step_of;
    let above = between(corner(x, y), corner(x + 1, y), across);
    let below = between(corner(x, y + 1), corner(x + 1, y + 1), across);
    between(above, below, down)
}

/// Numbers that look random, one of each place (SplitMix64's finaliser).
const fn mixed(place: u64, seed: u64) -> u64 {
    let mut z = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::ZlibDecoder;

    use super::*;

    #[test]
    fn a_picture_is_a_png_of_the_rows_that_its_head_names() {
        let file = png(40_000, 7);
        assert_eq!(file[..8], SIGNATURE);
        let number = |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().unwrap());
        assert_eq!((&file[12..16], number(8)), (&b"IHDR"[..], 13));
        let (width, height) = (number(16), number(20));
        let (data, length) = (41, number(33) as usize);
        assert_eq!(&file[37..41], b"IDAT");
        let mut crc = Crc::new();
        crc.update(&file[37..data + length]);
        assert_eq!(crc.sum(), number(data + length));
        assert_eq!(&file[file.len() - 8..file.len() - 4], b"IEND");
        let mut rows = Vec::new();
        ZlibDecoder::new(&file[data..data + length]).read_to_end(&mut rows).unwrap();
        assert_eq!(rows.len(), height as usize * (1 + width as usize * 3));
        let bytes_per_pixel = file.len() as f64 / f64::from(width * height);
        assert!((1.0..3.0).contains(&bytes_per_pixel), "a photograph's: {bytes_per_pixel}");
    }
}
