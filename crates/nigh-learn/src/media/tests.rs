//! Real files of the functions' inputs where `make deps` has brought them, and headers made here, whole, cut and wrong.

use std::path::Path;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::feature::FeatureValue;
use crate::skipped::skip;

/// The first bytes that are given to a look.
const HEAD: u64 = 16 * 1024;
/// Looks at an object at most.
const ROUNDS: usize = 4;

/// Looks as a recorder does: at the beginning, and at what is wished for. Gives the row, and the bytes that were read.
fn looked_at(bytes: &[u8], name: &str) -> (FeatureRow, u64) {
    let size = bytes.len() as u64;
    let mut given: Vec<Range<u64>> = std::iter::once(0..size.min(HEAD)).collect();
    let mut row = FeatureRow::default();
    for _ in 0..ROUNDS {
        let windows: Vec<Window<'_>> = given
            .iter()
            .map(|range| Window { from: range.start, bytes: &bytes[range.start as usize..range.end as usize] })
            .collect();
        let seen = look(&ObjectHead { size, windows: &windows, name, content_type: "" });
        row = seen.row;
        match seen.wants {
            Some(range) => {
                assert!(range.start < range.end && range.end <= size && range.end - range.start <= WANTED_BYTES_MAX);
                assert!(!given.contains(&range), "{name} asks again for {range:?}");
                given.push(range);
            }
            None => break,
        }
    }
    (row, given.iter().map(|range| range.end - range.start).sum())
}

fn row(bytes: &[u8], name: &str) -> FeatureRow {
    looked_at(bytes, name).0
}

fn number(row: &FeatureRow, name: &str) -> Option<f64> {
    match row.get(name) {
        Some(FeatureValue::Number(number)) => Some(*number),
        _ => None,
    }
}

fn word<'r>(row: &'r FeatureRow, name: &str) -> &'r str {
    match row.get(name) {
        Some(FeatureValue::Word(word)) => word,
        _ => "",
    }
}

#[track_caller]
fn has(row: &FeatureRow, numbers: &[(&str, f64)]) {
    for (name, wanted) in numbers {
        assert_eq!(number(row, name), Some(*wanted), "{name} of {row:?}");
    }
}

fn png(width: u32, height: u32, depth: u8, colour: u8) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR".to_vec();
    bytes.extend(width.to_be_bytes());
    bytes.extend(height.to_be_bytes());
    bytes.extend([depth, colour, 0, 0, 0, 0, 0, 0, 0]);
    bytes.extend(b"\0\0\0\x04IDATdata\0\0\0\0");
    bytes
}

fn jpeg(width: u16, height: u16, channels: u8) -> Vec<u8> {
    let mut bytes = b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0".to_vec();
    // What a camera says, longer than the first bytes that are read.
    for _ in 0..2 {
        bytes.extend(b"\xff\xe1\x40\0");
        bytes.extend([7; 0x3ffe]);
    }
    bytes.extend(b"\xff\xc2\0\x11\x08");
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.push(channels);
    bytes.extend([0; 9]);
    bytes
}

fn gif(frames: usize) -> Vec<u8> {
    let mut bytes = b"GIF89a\x40\0\x30\0\x80\0\0".to_vec();
    bytes.extend([0; 6]);
    for _ in 0..frames {
        bytes.extend(b"\x21\xf9\x04\0\0\0\0\0");
        bytes.extend(b"\x2c\0\0\0\0\x40\0\x30\0\0\x02");
        bytes.push(200);
        bytes.extend([1; 200]);
        bytes.push(0);
    }
    bytes.push(0x3b);
    bytes
}

fn wav(channels: u16, rate: u32, depth: u16, frames: u32) -> Vec<u8> {
    let align = channels * depth / 8;
    let mut bytes = b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0\x01\0".to_vec();
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend((rate * u32::from(align)).to_le_bytes());
    bytes.extend(align.to_le_bytes());
    bytes.extend(depth.to_le_bytes());
    bytes.extend(b"LIST\x03\0\0\0abc\0data");
    bytes.extend((frames * u32::from(align)).to_le_bytes());
    bytes.resize(bytes.len() + (frames * u32::from(align)) as usize, 0);
    bytes
}

/// A box of MP4.
fn boxed(name: &[u8; 4], inside: &[u8]) -> Vec<u8> {
    [&((inside.len() as u32) + 8).to_be_bytes()[..], name, inside].concat()
}

/// A film whose header stands behind its pictures, as cameras write it, with a table of samples longer than is read.
fn mp4() -> Vec<u8> {
    let mut track_header = vec![0; 76];
    track_header.extend([0x02, 0x80, 0, 0, 0x01, 0x68, 0, 0]);
    let mut media_header = vec![0; 12];
    media_header.extend(25_u32.to_be_bytes());
    media_header.extend(250_u32.to_be_bytes());
    media_header.extend([0; 4]);
    let handler = [&[0; 8][..], b"vide", &[0; 12]].concat();
    let description = [&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8][..], b"avc1"].concat();
    let times = vec![0; 100_000];
    let sizes = [&[0; 8][..], &250_u32.to_be_bytes()].concat();
    let table = [boxed(b"stsd", &description), boxed(b"stts", &times), boxed(b"stsz", &sizes)].concat();
    let information = boxed(b"minf", &boxed(b"stbl", &table));
    let media = [boxed(b"mdhd", &media_header), boxed(b"hdlr", &handler), information].concat();
    let track = [boxed(b"tkhd", &track_header), boxed(b"mdia", &media)].concat();
    let movie = [boxed(b"mvhd", &[0; 100]), boxed(b"trak", &track)].concat();
    [boxed(b"ftyp", b"isom\0\0\0\0"), boxed(b"mdat", &vec![9; 300_000]), boxed(b"moov", &movie)].concat()
}

fn matroska() -> Vec<u8> {
    let element = |id: &[u8], inside: &[u8]| [id, &[0x80 | inside.len() as u8], inside].concat();
    let pictures = [element(&[0xb0], &[0x02, 0x80]), element(&[0xba], &[0x01, 0x68])].concat();
    let track = [
        element(&[0x83], &[1]),
        element(&[0x86], b"V_VP9"),
        element(&[0x23, 0xe3, 0x83], &40_000_000_u32.to_be_bytes()),
        element(&[0xe0], &pictures),
    ]
    .concat();
    let information = element(&[0x44, 0x89], &2000_f64.to_be_bytes());
    let mut bytes = element(&[0x1a, 0x45, 0xdf, 0xa3], &element(&[0x42, 0x82], b"webm"));
    bytes.extend([0x18, 0x53, 0x80, 0x67, 0x01, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    bytes.extend(element(&[0x15, 0x49, 0xa9, 0x66], &information));
    bytes.extend(element(&[0x16, 0x54, 0xae, 0x6b], &element(&[0xae], &track)));
    bytes.extend(element(&[0x1f, 0x43, 0xb6, 0x75], &[0; 50]));
    bytes
}

fn tar(entries: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..entries {
        let mut header = [0; 512];
        header[..4].copy_from_slice(b"file");
        header[124..135].copy_from_slice(b"00000001000");
        header[257..262].copy_from_slice(b"ustar");
        bytes.extend(header);
        bytes.extend([b'x'; 512]);
    }
    bytes.extend([0; 1024]);
    bytes
}

fn zip_of(entries: usize) -> Vec<u8> {
    use std::io::Write as _;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for at in 0..entries {
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        writer.start_file(format!("file-{at}"), options).unwrap();
        writer.write_all(&[b'x'; 1000]).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn pictures_tell_their_pixels_channels_depth_and_frames() {
    let picture = row(&png(640, 480, 16, 6), "a.png");
    has(&picture, &[("in_width", 640.0), ("in_height", 480.0), ("in_channels", 4.0), ("in_depth", 16.0)]);
    has(&picture, &[("in_frames", 1.0), ("in_decoded_bytes", 640.0 * 480.0 * 8.0)]);
    assert_eq!(word(&picture, "in_format"), "png");
    let picture = row(&jpeg(4000, 3000, 3), "a.jpg");
    assert_eq!(word(&picture, "in_format"), "jpeg");
    has(&picture, &[("in_width", 4000.0), ("in_height", 3000.0), ("in_channels", 3.0), ("in_depth", 8.0)]);
    let picture = row(&gif(3), "a.gif");
    has(&picture, &[("in_width", 64.0), ("in_height", 48.0), ("in_channels", 1.0), ("in_frames", 3.0)]);
    // More than is read: in proportion.
    let frames = number(&row(&gif(20_000), "a.gif"), "in_frames").unwrap();
    assert!((19_000.0..21_000.0).contains(&frames), "{frames}");
    let mut bitmap = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x10\0\0\0\xf8\xff\xff\xff\x01\0\x20\0".to_vec();
    bitmap.resize(200, 0);
    has(&row(&bitmap, ""), &[("in_width", 16.0), ("in_height", 8.0), ("in_channels", 4.0)]);
    let webp = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x10\0\0\0\x7f\x02\0\xdf\x01\0";
    has(&row(webp, ""), &[("in_width", 640.0), ("in_height", 480.0), ("in_channels", 4.0), ("in_frames", 1.0)]);
    let tiff = b"II*\0\x08\0\0\0\x03\0\0\x01\x03\0\x01\0\0\0\x20\0\0\0\x01\x01\x03\0\x01\0\0\0\x10\0\0\0\
        \x15\x01\x03\0\x01\0\0\0\x03\0\0\0\0\0\0\0";
    has(&row(tiff, ""), &[("in_width", 32.0), ("in_height", 16.0), ("in_channels", 3.0), ("in_frames", 1.0)]);
    let other = row(b"qoif\0\0\x01\0\0\0\0\x80\x04\0", "a.qoi");
    has(&other, &[("in_width", 256.0), ("in_height", 128.0)]);
    assert_eq!(word(&other, "in_format"), "qoi");
}

#[test]
fn sounds_and_films_tell_their_time_rate_and_codec() {
    let sound = row(&wav(2, 44_100, 16, 88_200), "a.wav");
    has(&sound, &[("in_duration", 2.0), ("in_samplerate", 44_100.0), ("in_channels", 2.0), ("in_frames", 88_200.0)]);
    has(&sound, &[("in_depth", 16.0), ("in_decoded_bytes", 352_800.0)]);
    assert_eq!((word(&sound, "in_format"), word(&sound, "in_codec")), ("wav", "pcm"));
    let mut flac = b"fLaC\x80\0\0\x22\x10\0\x10\0\0\0\0\0\0\0".to_vec();
    // 44,100 a second, two channels, 16 bits, 441,000 samples.
    flac.extend((44_100_u64 << 44 | 1 << 41 | 15 << 36 | 441_000).to_be_bytes());
    flac.extend([0; 16]);
    flac.extend([0xff; 5000]);
    let sound = row(&flac, "a.flac");
    has(&sound, &[("in_duration", 10.0), ("in_samplerate", 44_100.0), ("in_channels", 2.0), ("in_frames", 441_000.0)]);
    let (film, read) = looked_at(&mp4(), "a.mp4");
    has(&film, &[("in_width", 640.0), ("in_height", 360.0), ("in_duration", 10.0), ("in_frames", 250.0)]);
    has(&film, &[("in_fps", 25.0)]);
    assert_eq!((word(&film, "in_format"), word(&film, "in_codec")), ("mp4", "h264"));
    assert!(read < 250_000, "{read} of 400,000 bytes were read");
    let film = row(&matroska(), "a.webm");
    has(
        &film,
        &[("in_width", 640.0), ("in_height", 360.0), ("in_duration", 2.0), ("in_frames", 50.0), ("in_fps", 25.0)],
    );
    assert_eq!((word(&film, "in_format"), word(&film, "in_codec")), ("webm", "vp9"));
    let mut film = b"YUV4MPEG2 W16 H8 F25:1 C420jpeg\n".to_vec();
    film.resize(film.len() + 50 * (16 * 8 * 3 / 2 + 6), 0);
    has(&row(&film, "a.y4m"), &[("in_width", 16.0), ("in_height", 8.0), ("in_frames", 50.0), ("in_duration", 2.0)]);
}

#[test]
fn archives_tell_their_entries_and_what_they_say_they_unpack_to() {
    has(&row(&zip_of(7), "a.zip"), &[("in_entries", 7.0), ("in_decoded_bytes", 7000.0)]);
    has(&row(&tar(5), "a.tar"), &[("in_entries", 5.0), ("in_decoded_bytes", 2560.0)]);
    let entries = number(&row(&tar(5000), "a.tar"), "in_entries").unwrap();
    assert!((4900.0..5100.0).contains(&entries), "{entries}");
    let mut gzip = b"\x1f\x8b\x08".to_vec();
    gzip.resize(100_000, 0);
    gzip.extend(123_456_u32.to_le_bytes());
    has(&row(&gzip, "a.gz"), &[("in_decoded_bytes", 123_456.0)]);
    has(&row(b"\x28\xb5\x2f\xfd\xa0\0\0\x10\0more of it", ""), &[("in_decoded_bytes", f64::from(1 << 20))]);
}

#[test]
fn a_bomb_is_taken_at_its_word_and_never_unpacked() {
    // Four bytes that promise four gigabytes.
    let (row, read) = looked_at(b"\x1f\x8b\x08\0\xff\xff\xff\xff", "bomb.gz");
    has(&row, &[("in_decoded_bytes", f64::from(u32::MAX))]);
    assert_eq!(read, 8);
    // A picture of 2^62 pixels, in sixty bytes.
    let row = self::row(&png(1 << 31, 1 << 31, 8, 2), "bomb.png");
    has(&row, &[("in_width", 2_147_483_648.0)]);
    assert_eq!(number(&row, "in_decoded_bytes"), None, "more than any row holds");
}

#[test]
fn texts_tell_lines_words_rows_and_fields() {
    let text = row(b"one two\nthree\nfour", "a.txt");
    has(&text, &[("in_lines", 3.0), ("in_words", 4.0)]);
    assert_eq!(word(&text, "in_format"), "text");
    let table = row("a;b;\"c;d\"\n1;2;3\n".repeat(10_000).as_bytes(), "a.CSV");
    has(&table, &[("in_fields", 3.0)]);
    let rows = number(&table, "in_rows").unwrap();
    assert!((19_900.0..20_100.0).contains(&rows), "{rows}");
    has(&row(br#"[{"a": 1, "b": [1,2,3]}, {"a": "x,y"} , {}]"#, ""), &[("in_rows", 3.0), ("in_fields", 2.0)]);
    has(&row(br#"{"a": 1, "b": {"c": 2, "d": 3}, "e": "}"}"#, "a.json"), &[("in_fields", 3.0)]);
    has(&row(b"{\"a\":1,\"b\":2}\n{\"a\":3}\n", "a.jsonl"), &[("in_rows", 2.0), ("in_fields", 2.0)]);
    let array = b"\x93NUMPY\x01\0\x46\0{'descr': '<f8', 'fortran_order': False, 'shape': (746, 12), }          \n";
    let mut array = array.to_vec();
    array.resize(8000, 0);
    has(&row(&array, ""), &[("in_rows", 746.0), ("in_fields", 12.0), ("in_itemsize", 8.0)]);
    has(&row(&array, ""), &[("in_decoded_bytes", 746.0 * 12.0 * 8.0)]);
}

#[test]
fn what_is_of_no_known_kind_tells_nothing_and_is_not_looked_at() {
    for bytes in [&b"\0\0\0\0\0\0\0\0\0\0"[..], b"", b"\xde\xad\xbe\xef\x01\x02", b"P6\x01\x02"] {
        assert!(!is_readable(bytes), "{bytes:?}");
        assert!(row(bytes, "a.png").is_empty());
    }
    assert!(is_readable(b"a text") && is_readable(&png(1, 1, 8, 2)));
}

/// Every feature is an object's: a word, or a finite number.
fn is_sound(row: &FeatureRow) -> bool {
    row.iter().all(|(name, value)| {
        let is_value = match value {
            FeatureValue::Number(number) => number.is_finite(),
            FeatureValue::Word(_) => true,
        };
        is_value && name.as_str().starts_with("in_")
    })
}

/// All kinds of object that are made here.
fn samples() -> Vec<Vec<u8>> {
    vec![
        png(640, 480, 8, 2),
        jpeg(640, 480, 3),
        gif(4),
        wav(2, 8000, 16, 100),
        mp4(),
        matroska(),
        tar(3),
        zip_of(3),
        b"a,b\n1,2\n".repeat(20),
        b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x12\0\0\0\x7f\x02\0\xdf\x01\0ANMF\x02\0\0\0ab".to_vec(),
    ]
}

#[test]
fn a_header_that_is_cut_at_any_byte_is_read_without_harm() {
    for sample in samples() {
        for length in (0..sample.len().min(700)).chain(sample.len().saturating_sub(200)..sample.len()) {
            let (row, read) = looked_at(&sample[..length], "cut");
            assert!(is_sound(&row), "cut at {length}: {row:?}");
            assert!(read <= HEAD + ROUNDS as u64 * WANTED_BYTES_MAX, "cut at {length}: {read} bytes");
        }
    }
}

proptest! {
    #[test]
    fn whatever_bytes_are_changed_a_look_ends_and_its_features_are_numbers_or_words(
        which in 0..10_usize,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        near in 0..400_usize,
    ) {
        let mut sample = samples().swap_remove(which);
        let reach = sample.len().min(near + 12);
        for (at, byte) in changes {
            let at = at.index(reach);
            sample[at] = byte;
        }
        let (row, _) = looked_at(&sample, "changed");
        prop_assert!(is_sound(&row), "{row:?}");
    }
}

#[expect(clippy::disallowed_methods, reason = "the inputs are files")]
#[test]
fn the_inputs_of_the_sample_functions_are_read_as_their_manifest_has_them() {
    let inputs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/inputs");
    let Ok(manifest) = std::fs::read(inputs.join("MANIFEST.json")) else {
        let test = "the_inputs_of_the_sample_functions_are_read_as_their_manifest_has_them";
        return skip(test, format_args!("{} has no inputs; `make deps` brings them", inputs.display()));
    };
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let mut compared = 0;
    for input in manifest["inputs"].as_array().unwrap() {
        let path = input["path"].as_str().unwrap();
        let Ok(bytes) = std::fs::read(inputs.join(path)) else { continue };
        let (row, read) = looked_at(&bytes, path);
        assert!(!row.is_empty(), "{path} tells nothing");
        assert!(read <= HEAD + 3 * WANTED_BYTES_MAX, "{path}: {read} bytes");
        let names = [
            ("width", "in_width"),
            ("height", "in_height"),
            ("seconds", "in_duration"),
            ("rate", "in_samplerate"),
            ("channels", "in_channels"),
            ("fps", "in_fps"),
            ("rows", "in_rows"),
            ("columns", "in_fields"),
        ];
        for (theirs, ours) in names {
            let Some(wanted) = input["features"][theirs].as_f64() else { continue };
            let got = number(&row, ours);
            // The manifest has times to the hundredth of a second; rows of a long table are taken in proportion.
            let near = got.is_some_and(|got| (got - wanted).abs() <= 0.05 * wanted.max(1.0));
            assert!(near, "{path}: {ours} is {got:?}, the manifest has {wanted}");
            compared += 1;
        }
    }
    println!("{compared} numbers compared");
    assert!(compared > 50);
}
