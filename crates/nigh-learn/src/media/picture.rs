//! Pictures: width, height, channels, depth and frames, out of headers alone.
//!
//! Channels are those that are stored, as Pillow's modes count them: one where pixels name colours of a palette. Frames
//! of a GIF or a WebP are counted as far as bytes are at hand, and taken in proportion beyond.

use super::facts::{Facts, Picture};
use super::window::{ObjectHead, Stop};

/// Chunks, segments or blocks that are passed at most on the way to what is looked for.
const STEPS_MAX: usize = 4096;
/// Directories of a TIFF, and entries of one, that are looked at.
const DIRECTORIES_MAX: u64 = 1000;
const ENTRIES_MAX: u64 = 512;
/// Frames after which their mean size stands for the rest.
const COUNTED_FRAMES: u64 = 4;

fn checked<'f>(picture: Picture<'f>, facts: &mut Facts) -> Result<(), Stop> {
    if picture.width == 0 || picture.height == 0 || picture.channels == 0 {
        return Err(Stop::Nonsense);
    }
    facts.picture(&picture);
    Ok(())
}

/// PNG, third edition, 5 and 11; an animated one says its frames before the first picture (acTL).
pub(super) fn png(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    if object.bytes(12, 4)? != b"IHDR" {
        return Err(Stop::Nonsense);
    }
    let (width, height) = (object.be32(16)?, object.be32(20)?);
    let [depth, colour] = object.array(24)?;
    let channels = match colour {
        0 | 3 => 1,
        2 => 3,
        4 => 2,
        6 => 4,
        _ => return Err(Stop::Nonsense),
    };
    checked(Picture { format: "png", width, height, channels, depth: depth.into() }, facts)?;
    let mut at = 33;
    for _ in 0..STEPS_MAX {
        let length = object.be32(at)?;
        match &object.array(at + 4)? {
            b"acTL" => {
                facts.frames(object.be32(at + 8)?.max(1) as f64);
                return Ok(());
            }
            b"IDAT" | b"IEND" => return Ok(()),
            _ => at += 12 + length,
        }
    }
    Ok(())
}

/// ITU-T T.81, annex B: the segments up to the frame's.
pub(super) fn jpeg(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let mut at = 2;
    for _ in 0..STEPS_MAX {
        let [mark, marker] = object.array(at)?;
        if mark != 0xff {
            return Err(Stop::Nonsense);
        }
        match marker {
            0xff => at += 1,
            // Marks without a segment.
            0x01 | 0xd0..=0xd7 => at += 2,
            // The picture's data or its end, before a frame.
            0xd9 | 0xda => return Err(Stop::Nonsense),
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                let (height, width) = (object.be16(at + 5)?, object.be16(at + 7)?);
                let (depth, channels) = (object.byte(at + 4)?.into(), object.byte(at + 9)?.into());
                return checked(Picture { format: "jpeg", width, height, channels, depth }, facts);
            }
            _ => at += 2 + object.be16(at + 2)?,
        }
    }
    Err(Stop::Nonsense)
}

/// Says how many frames there are, of which `counted` end before `at`: what is not at hand is taken in proportion.
fn estimated(object: &ObjectHead<'_>, facts: &mut Facts, counted: u64, at: u64) {
    let frames = if counted == 0 { 1.0 } else { (counted as f64 * object.size as f64 / at.max(1) as f64).round() };
    facts.frames(frames.max(counted as f64));
}

/// GIF 89a, 18 to 26.
pub(super) fn gif(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let table = |flags: u8| if flags & 0x80 == 0 { 0 } else { 3 << ((flags & 7) + 1) };
    let (width, height) = (object.le16(6)?, object.le16(8)?);
    checked(Picture { format: "gif", width, height, channels: 1, depth: 8 }, facts)?;
    let (mut at, mut frames) = (13 + table(object.byte(10)?), 0);
    // All but the steps: each may have many blocks.
    let skip_blocks = |mut at: u64| loop {
        let length = object.byte(at)?;
        at += 1 + u64::from(length);
        if length == 0 {
            return Ok(at);
        }
    };
    for _ in 0..STEPS_MAX {
        let behind = match object.byte(at) {
            Ok(0x2c) => object.byte(at + 9).and_then(|flags| skip_blocks(at + 11 + table(flags))),
            Ok(0x21) => skip_blocks(at + 2),
            // The end, or what is no GIF any more: readers show what came before.
            Ok(_) | Err(Stop::Nonsense) => {
                facts.frames((frames as f64).max(1.0));
                return Ok(());
            }
            Err(wants) => Err(wants),
        };
        match behind {
            Ok(behind) => {
                frames += u64::from(object.byte(at)? == 0x2c);
                at = behind;
            }
            Err(stop) => {
                estimated(object, facts, frames, at);
                return if frames >= COUNTED_FRAMES { Ok(()) } else { Err(stop) };
            }
        }
    }
    estimated(object, facts, frames, at);
    Ok(())
}

/// The WebP container (RFC 9649, 2).
pub(super) fn webp(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    const ALPHA: u8 = 0x10;
    const ANIMATED: u8 = 0x02;
    let picture = |width, height, alpha: bool| {
        let channels = if alpha { 4 } else { 3 };
        Picture { format: "webp", width, height, channels, depth: 8 }
    };
    match &object.array(12)? {
        b"VP8 " => {
            let (width, height) = (object.le16(26)? & 0x3fff, object.le16(28)? & 0x3fff);
            checked(picture(width, height, false), facts)
        }
        b"VP8L" => {
            let bits = object.le32(21)?;
            checked(picture((bits & 0x3fff) + 1, (bits >> 14 & 0x3fff) + 1, bits >> 28 & 1 == 1), facts)
        }
        b"VP8X" => {
            let flags = object.byte(20)?;
            let (width, height) = (object.le32(24)? & 0xff_ffff, object.le32(26)? >> 8);
            checked(picture(width + 1, height + 1, flags & ALPHA != 0), facts)?;
            if flags & ANIMATED == 0 {
                return Ok(());
            }
            let (mut at, mut frames) = (12, 0);
            for _ in 0..STEPS_MAX {
                let header = object.array::<4>(at).and_then(|name| Ok((name, object.le32(at + 4)?)));
                let (name, length) = match header {
                    Ok(header) => header,
                    Err(Stop::Wants(range)) => {
                        estimated(object, facts, frames, at);
                        return if frames >= COUNTED_FRAMES { Ok(()) } else { Err(Stop::Wants(range)) };
                    }
                    Err(Stop::Nonsense) => break,
                };
                frames += u64::from(&name == b"ANMF");
                at += 8 + length + (length & 1);
            }
            facts.frames((frames as f64).max(1.0));
            Ok(())
        }
        _ => Err(Stop::Nonsense),
    }
}

/// Windows bitmaps: BITMAPCOREHEADER, and BITMAPINFOHEADER with those that begin as it does.
pub(super) fn bmp(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let (width, height, bits) = match object.le32(14)? {
        12 => (object.le16(18)?, object.le16(20)?, object.le16(24)?),
        // Lines from above have a negative height.
        40.. => {
            let number = |at| object.array(at).map(i32::from_le_bytes);
            (number(18)?.unsigned_abs().into(), number(22)?.unsigned_abs().into(), object.le16(28)?)
        }
        _ => return Err(Stop::Nonsense),
    };
    let channels = match bits {
        1..=8 => 1,
        16 | 24 => 3,
        32 => 4,
        _ => return Err(Stop::Nonsense),
    };
    checked(Picture { format: "bmp", width, height, channels, depth: 8.min(bits) }, facts)
}

/// TIFF 6.0, 2: the fields of the first directory; further ones are further pictures.
pub(super) fn tiff(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    const SHORT: u64 = 3;
    let is_little = object.bytes(0, 2)? == b"II";
    let short = |at| if is_little { object.le16(at) } else { object.be16(at) };
    let long = |at| if is_little { object.le32(at) } else { object.be32(at) };
    let mut directory = long(4)?;
    let mut frames = 0;
    while directory != 0 && frames < DIRECTORIES_MAX {
        let entries = short(directory)?;
        if frames == 0 {
            let mut picture = Picture { format: "tiff", width: 0, height: 0, channels: 1, depth: 1 };
            for entry in 0..entries.min(ENTRIES_MAX) {
                let at = directory + 2 + 12 * entry;
                let (tag, kind, count) = (short(at)?, short(at + 2)?, long(at + 4)?);
                let value = if kind == SHORT { short(at + 8)? } else { long(at + 8)? };
                match tag {
                    256 => picture.width = value,
                    257 => picture.height = value,
                    // More than two stand elsewhere; they are alike.
                    258 if count > 2 => picture.depth = short(long(at + 8)?)?,
                    258 => picture.depth = value,
                    277 => picture.channels = value,
                    _ => {}
                }
            }
            checked(picture, facts)?;
        }
        frames += 1;
        facts.frames(frames as f64);
        directory = long(directory + 2 + 12 * entries)?;
    }
    Ok(())
}

/// The rest, of which width and height are told.
pub(super) fn other(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let mut reader = object.reader();
    if let Ok(kind) = imagesize::reader_type(&mut reader) {
        // Its name is that of the container; what it holds is told behind it.
        let name = format!("{kind:?}").to_ascii_lowercase();
        let name = if name.contains("av1") { "avif" } else { name.split('(').next().unwrap_or_default() };
        facts.word("in_format", name);
        if let Ok(size) = kind.reader_size(&mut reader)
            && size.width > 0
            && size.height > 0
        {
            facts.dimensions(size.width as u64, size.height as u64);
        }
    }
    reader.end()
}
