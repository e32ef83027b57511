//! Films: seconds, frames a second, width, height and codec of their first pictures' track.
//!
//! The containers are walked by their boxes; a box that is not needed is passed by its length, so that the tables of a
//! film of hours cost no more than those of a second.

use super::facts::{Facts, Film, Sound};
use super::window::{ObjectHead, Stop};

/// Boxes that are looked at on one level at most.
const BOXES_MAX: usize = 1024;
/// Bytes of the first line of Y4M.
const LINE_MAX: u64 = 256;

/// What a codec is called in a word, by its four characters or its name in Matroska.
fn codec_word(name: &str) -> String {
    let lower = name.trim().to_ascii_lowercase();
    let known: &[(&[&str], &str)] = &[
        (&["avc1", "avc3", "h264", "x264", "v_mpeg4/iso/avc"], "h264"),
        (&["hvc1", "hev1", "hevc", "v_mpegh/iso/hevc"], "hevc"),
        (&["av01", "v_av1"], "av1"),
        (&["vp08", "v_vp8"], "vp8"),
        (&["vp09", "v_vp9"], "vp9"),
        (&["mp4v", "xvid", "divx", "dx50", "fmp4", "v_mpeg4/iso/asp"], "mpeg4"),
        (&["jpeg", "mjpa", "mjpb", "mjpg", "v_mjpeg"], "mjpeg"),
        (&["apch", "apcn", "apcs", "apco", "ap4h", "v_prores"], "prores"),
    ];
    let found = known.iter().find(|(names, _)| names.contains(&lower.as_str()));
    found.map_or_else(
        || lower.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect(),
        |(_, word)| (*word).to_owned(),
    )
}

/// A box of MP4: its name, and where what is in it begins and ends.
struct Mp4Box {
    name: [u8; 4],
    inside: u64,
    end: u64,
}

/// What is found of a track.
#[derive(Default)]
struct Track {
    is_pictures: bool,
    codec: String,
    width: u64,
    height: u64,
    timescale: u64,
    duration: u64,
    samples: u64,
}

impl Mp4Box {
    /// ISO/IEC 14496-12, 4.2.
    fn at(object: &ObjectHead<'_>, at: u64, limit: u64) -> Result<Self, Stop> {
        let (length, name) = (object.be32(at)?, object.array(at + 4)?);
        let (inside, length) = match length {
            0 => (at + 8, limit - at),
            1 => (at + 16, object.be64(at + 8)?),
            length => (at + 8, length),
        };
        let end = at.checked_add(length).filter(|end| *end >= inside).ok_or(Stop::Nonsense)?;
        Ok(Self { name, inside, end: end.min(limit) })
    }
}

impl Track {
    /// Reads the boxes from `at` to `end`.
    fn read(&mut self, object: &ObjectHead<'_>, mut at: u64, end: u64) -> Result<(), Stop> {
        for _ in 0..BOXES_MAX {
            if at >= end {
                break;
            }
            let found = Mp4Box::at(object, at, end)?;
            let inside = found.inside;
            match &found.name {
                b"mdia" | b"minf" | b"stbl" => self.read(object, inside, found.end)?,
                b"tkhd" => {
                    let is_long = object.byte(inside)? == 1;
                    let at = inside + if is_long { 88 } else { 76 };
                    (self.width, self.height) = (object.be32(at)? >> 16, object.be32(at + 4)? >> 16);
                }
                b"mdhd" => {
                    (self.timescale, self.duration) = match object.byte(inside)? {
                        1 => (object.be32(inside + 20)?, object.be64(inside + 24)?),
                        _ => (object.be32(inside + 12)?, object.be32(inside + 16)?),
                    };
                }
                b"hdlr" => self.is_pictures = object.bytes(inside + 8, 4)? == b"vide",
                b"stsd" => self.codec = codec_word(&String::from_utf8_lossy(object.bytes(inside + 12, 4)?)),
                b"stsz" => self.samples = object.be32(inside + 8)?,
                _ => {}
            }
            at = found.end;
        }
        Ok(())
    }

    fn tell(&self, format: &str, facts: &mut Facts) {
        facts.film(&Film {
            format,
            codec: &self.codec,
            width: self.width,
            height: self.height,
            seconds: if self.timescale == 0 { 0.0 } else { self.duration as f64 / self.timescale as f64 },
            frames: (self.samples > 0).then_some(self.samples as f64),
        });
    }
}

/// MP4 and QuickTime; false if there is no track of pictures in it.
pub(super) fn mp4(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<bool, Stop> {
    let format = if object.bytes(8, 4)? == b"qt  " { "mov" } else { "mp4" };
    let mut at = 0;
    for _ in 0..BOXES_MAX {
        if at >= object.size {
            break;
        }
        let found = Mp4Box::at(object, at, object.size)?;
        if &found.name == b"moov" {
            return movie(object, &found, format, facts);
        }
        at = found.end;
    }
    Err(Stop::Nonsense)
}

fn movie(object: &ObjectHead<'_>, movie: &Mp4Box, format: &str, facts: &mut Facts) -> Result<bool, Stop> {
    let mut at = movie.inside;
    for _ in 0..BOXES_MAX {
        if at >= movie.end {
            break;
        }
        let found = Mp4Box::at(object, at, movie.end)?;
        if &found.name == b"trak" {
            let mut track = Track::default();
            let read = track.read(object, found.inside, found.end);
            // What is known so far stands, also if the rest is never seen.
            if track.is_pictures && track.width > 0 && track.height > 0 {
                track.tell(format, facts);
                return read.map(|()| true);
            }
            read?;
        }
        at = found.end;
    }
    Ok(false)
}

/// What is found in Matroska.
struct Segment {
    format: &'static str,
    /// Nanoseconds of a tick.
    scale: u64,
    /// Ticks.
    duration: f64,
    kind: u64,
    codec: String,
    width: u64,
    height: u64,
    /// Nanoseconds.
    frame: u64,
    rate: f64,
    channels: u64,
    told: bool,
}

/// Where what was found stands among others.
enum WalkEnd {
    All,
    /// The pictures themselves begin: the header is over.
    Header,
}

/// A number of EBML (RFC 8794, 4) and its length; as an identifier, which keeps its mark, or as a length.
fn ebml_number(object: &ObjectHead<'_>, at: u64, keeps_mark: bool) -> Result<(Option<u64>, u64), Stop> {
    let first = object.byte(at)?;
    let length = u64::from(first.leading_zeros()) + 1;
    if length > 8 {
        return Err(Stop::Nonsense);
    }
    let all = object.bytes(at, length)?.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let mask = (1 << (7 * length)) - 1;
    // All ones is a length that nobody knew.
    let value = if keeps_mark { Some(all) } else { Some(all & mask).filter(|value| *value != mask) };
    Ok((value, length))
}

impl Segment {
    fn unsigned(object: &ObjectHead<'_>, at: u64, length: u64) -> Result<u64, Stop> {
        if length > 8 {
            return Err(Stop::Nonsense);
        }
        Ok(object.bytes(at, length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn float(object: &ObjectHead<'_>, at: u64, length: u64) -> Result<f64, Stop> {
        match length {
            4 => object.array(at).map(|bytes| f32::from_be_bytes(bytes).into()),
            8 => object.array(at).map(f64::from_be_bytes),
            _ => Err(Stop::Nonsense),
        }
    }

    /// RFC 9559, 5: the elements from `at` to `end`.
    fn read(&mut self, object: &ObjectHead<'_>, mut at: u64, end: u64, facts: &mut Facts) -> Result<WalkEnd, Stop> {
        for _ in 0..BOXES_MAX {
            if at >= end {
                break;
            }
            let (id, id_length) = ebml_number(object, at, true)?;
            let (length, length_length) = ebml_number(object, at + id_length, false)?;
            let inside = at + id_length + length_length;
            let behind = length.map_or(end, |length| inside.saturating_add(length).min(end));
            let length = behind - inside.min(behind);
            match id.unwrap_or_default() {
                // The header, the segment, its information and tracks; pictures' and sound's own.
                0x1a45_dfa3 | 0x1853_8067 | 0x1549_a966 | 0x1654_ae6b | 0xe0 | 0xe1 => {
                    if let WalkEnd::Header = self.read(object, inside, behind, facts)? {
                        return Ok(WalkEnd::Header);
                    }
                }
                0x1f43_b675 => return Ok(WalkEnd::Header),
                0xae => {
                    (self.kind, self.codec, self.frame) = (0, String::new(), 0);
                    self.read(object, inside, behind, facts)?;
                    self.tell(facts);
                }
                0x4282 if object.bytes(inside, length.min(4))? == b"webm" => self.format = "webm",
                0x2a_d7b1 => self.scale = Self::unsigned(object, inside, length)?,
                0x4489 => self.duration = Self::float(object, inside, length)?,
                0x83 => self.kind = Self::unsigned(object, inside, length)?,
                0x86 => self.codec = codec_word(&String::from_utf8_lossy(object.bytes(inside, length.min(64))?)),
                0x23_e383 => self.frame = Self::unsigned(object, inside, length)?,
                0xb0 => self.width = Self::unsigned(object, inside, length)?,
                0xba => self.height = Self::unsigned(object, inside, length)?,
                0xb5 => self.rate = Self::float(object, inside, length)?,
                0x9f => self.channels = Self::unsigned(object, inside, length)?,
                _ => {}
            }
            at = behind;
        }
        Ok(WalkEnd::All)
    }

    /// Tells of the track that was read, if it is the first one, or the first with pictures.
    fn tell(&mut self, facts: &mut Facts) {
        const PICTURES: u64 = 1;
        const SOUND: u64 = 2;
        let seconds = self.duration * self.scale as f64 / 1e9;
        match self.kind {
            PICTURES if !self.told => {
                self.told = true;
                let frames = (self.frame > 0).then(|| (seconds * 1e9 / self.frame as f64).round());
                facts.film(&Film {
                    format: self.format,
                    codec: &self.codec,
                    width: self.width,
                    height: self.height,
                    seconds,
                    frames,
                });
            }
            SOUND if !self.told && self.rate >= 1.0 => {
                let codec = self.codec.trim_start_matches("a_");
                let (channels, rate) = (self.channels.max(1), self.rate as u64);
                facts.sound(&Sound { format: self.format, codec, channels, rate, seconds, depth: None });
            }
            _ => {}
        }
    }
}

/// Matroska and WebM, up to the first cluster.
pub(super) fn matroska(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let mut segment = Segment {
        format: "matroska",
        scale: 1_000_000,
        duration: 0.0,
        kind: 0,
        codec: String::new(),
        width: 0,
        height: 0,
        frame: 0,
        rate: 0.0,
        channels: 0,
        told: false,
    };
    segment.read(object, 0, object.size, facts).map(drop)
}

/// AVI 1.0: its main header, and the codec of the first stream if that is of pictures.
pub(super) fn avi(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    if object.bytes(20, 8)? != b"hdrlavih" {
        return Err(Stop::Nonsense);
    }
    let (micros, frames) = (object.le32(32)?, object.le32(48)?);
    let (width, height) = (object.le32(64)?, object.le32(68)?);
    let codec = match object.bytes(88, 28) {
        Ok(stream) if &stream[12..16] == b"strh" && &stream[20..24] == b"vids" => {
            codec_word(&String::from_utf8_lossy(&stream[24..28]))
        }
        _ => "other".to_owned(),
    };
    let seconds = micros as f64 * frames as f64 / 1e6;
    facts.film(&Film { format: "avi", codec: &codec, width, height, seconds, frames: Some(frames as f64) });
    Ok(())
}

/// YUV4MPEG2: a line of words, then frames of one length.
pub(super) fn y4m(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    const FRAME_LINE: u64 = 6;
    let beginning = object.bytes(0, object.size.min(LINE_MAX))?;
    let end = beginning.iter().position(|byte| *byte == b'\n').ok_or(Stop::Nonsense)?;
    let line = std::str::from_utf8(&beginning[..end]).map_err(|_| Stop::Nonsense)?;
    let word = |letter: char| line.split(' ').skip(1).find_map(|word| word.strip_prefix(letter));
    let number = |letter| word(letter).and_then(|text| text.parse::<u32>().ok()).map(u64::from).ok_or(Stop::Nonsense);
    let (width, height) = (number('W')?, number('H')?);
    let (fps, of) = word('F').and_then(|rate| rate.split_once(':')).ok_or(Stop::Nonsense)?;
    let (fps, of) = (fps.parse::<f64>().unwrap_or(0.0), of.parse::<f64>().unwrap_or(0.0));
    let colours = word('C').unwrap_or("420");
    let samples = match colours.get(..3) {
        Some("422") => 2.0,
        Some("444") => 3.0,
        Some("mon") => 1.0,
        _ => 1.5,
    };
    let bytes = if colours.contains("p1") { 2.0 } else { 1.0 };
    let frame = width as f64 * height as f64 * samples * bytes + FRAME_LINE as f64;
    let frames = ((object.size - end as u64 - 1) as f64 / frame).floor();
    let seconds = if fps > 0.0 && of > 0.0 { frames * of / fps } else { 0.0 };
    facts.film(&Film { format: "y4m", codec: "raw", width, height, seconds, frames: Some(frames) });
    Ok(())
}
