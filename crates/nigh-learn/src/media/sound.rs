//! Sounds: seconds, samples a second, channels, codec and depth.

use lofty::config::{ParseOptions, ParsingMode};
use lofty::file::{AudioFile as _, FileType, TaggedFileExt as _};
use lofty::probe::Probe;

use super::facts::{Facts, Sound};
use super::window::{ObjectHead, Stop};

/// Chunks that are passed at most on the way to the samples.
const CHUNKS_MAX: usize = 256;
/// The format that names another behind the usual fields (WAVE_FORMAT_EXTENSIBLE).
const EXTENSIBLE: u64 = 0xfffe;

/// RIFF WAVE: `fmt ` says what the samples are, `data` how many bytes they take.
pub(super) fn wav(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let (mut at, mut said) = (12, None);
    for _ in 0..CHUNKS_MAX {
        let (name, length) = (object.array::<4>(at)?, object.le32(at + 4)?);
        let inside = at + 8;
        match (&name, said) {
            (b"fmt ", _) => {
                let tag = match object.le16(inside)? {
                    EXTENSIBLE if length >= 26 => object.le16(inside + 24)?,
                    tag => tag,
                };
                let (channels, rate) = (object.le16(inside + 2)?, object.le32(inside + 4)?);
                said = Some((tag, channels, rate, object.le32(inside + 8)?, object.le16(inside + 14)?));
            }
            (b"data", Some((tag, channels, rate, bytes_a_second, depth))) => {
                if bytes_a_second == 0 || rate == 0 || channels == 0 {
                    return Err(Stop::Nonsense);
                }
                // The header of a file that was written as a stream has no true length.
                let bytes = length.min(object.size.saturating_sub(inside));
                let codec = match tag {
                    1 => "pcm",
                    3 => "float",
                    6 => "alaw",
                    7 => "mulaw",
                    0x02 | 0x11 => "adpcm",
                    0x55 => "mp3",
                    _ => "other",
                };
                let seconds = bytes as f64 / bytes_a_second as f64;
                let depth = (depth > 0).then_some(depth);
                facts.sound(&Sound { format: "wav", codec, channels, rate, seconds, depth });
                return Ok(());
            }
            _ => {}
        }
        at = inside + length + (length & 1);
    }
    Err(Stop::Nonsense)
}

/// The format and the codec in words.
const fn words(kind: FileType) -> (&'static str, &'static str) {
    match kind {
        FileType::Aac => ("aac", "aac"),
        FileType::Aiff => ("aiff", "pcm"),
        FileType::Ape => ("ape", "ape"),
        FileType::Flac => ("flac", "flac"),
        FileType::Mpeg => ("mp3", "mp3"),
        FileType::Mp4 => ("m4a", "mp4a"),
        FileType::Opus => ("ogg", "opus"),
        FileType::Vorbis => ("ogg", "vorbis"),
        FileType::Speex => ("ogg", "speex"),
        FileType::WavPack => ("wavpack", "wavpack"),
        _ => ("sound", "other"),
    }
}

/// What `lofty` makes of it, without its tags and covers.
pub(super) fn other(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let mut reader = object.reader();
    let options = ParseOptions::new().read_tags(false).read_cover_art(false).parsing_mode(ParsingMode::Relaxed);
    if let Ok(probe) = Probe::new(&mut reader).options(options).guess_file_type()
        && let Ok(file) = probe.read()
    {
        let ((format, codec), properties) = (words(file.file_type()), file.properties());
        if let (Some(rate), Some(channels)) = (properties.sample_rate(), properties.channels()) {
            facts.sound(&Sound {
                format,
                codec,
                channels: channels.into(),
                rate: rate.into(),
                seconds: properties.duration().as_secs_f64(),
                depth: properties.bit_depth().filter(|depth| *depth > 0).map(u64::from),
            });
        }
    }
    reader.end()
}
