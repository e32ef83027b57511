//! Makes inputs to profile a function, for an owner without examples: of a kind and about a size, always the same.
//!
//! The content is meaningless, but the format is right, and the inputs compress about as real ones do. So the work of a
//! function that decodes them grows with their size as with real ones. Kinds whose work depends on the content (speech,
//! video) are not made. Pure.

mod picture;
mod sound;
mod words;

use std::fmt;
use std::str::FromStr;

use nigh_terms::ByteSize;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use thiserror::Error;

/// The smallest input that is made: below it, what every file of the kind begins with is most of it.
pub const SAMPLE_BYTES_MIN: ByteSize = ByteSize::kib(1);
/// The largest: it is made in memory.
pub const SAMPLE_BYTES_MAX: ByteSize = ByteSize::mib(256);

/// The seed of the inputs; constant.
const SEED: u64 = 0x6e69_6768;

/// A kind of input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleKind {
    /// A picture in three colours, compressed as a photograph is: a PNG, its size right within a few percent.
    Png,
    /// Chords with noise, 16 bits, two channels, 44.1 kHz: a WAV.
    Wav,
    /// Made-up words, as frequent as words are, in lines.
    Text,
    /// Bytes that do not compress.
    Bytes,
}

/// Every kind, by its name.
const KINDS: [(&str, SampleKind); 4] =
    [("png", SampleKind::Png), ("wav", SampleKind::Wav), ("text", SampleKind::Text), ("bytes", SampleKind::Bytes)];

/// Why an input cannot be made.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SampleError {
    /// A kind that is not made.
    #[error(
        "inputs of the kind {kind:?} cannot be made up: {because}; png, wav, text and bytes can. Hint: put real ones of \
         several sizes into a bucket, and name them with --event"
    )]
    NoSuchKind {
        /// What was asked for.
        kind: String,
        /// Why not.
        because: &'static str,
    },
    /// A size that is not made.
    #[error("an input of {size} cannot be generated: give {SAMPLE_BYTES_MIN} to {SAMPLE_BYTES_MAX}")]
    Size {
        /// What was asked for.
        size: ByteSize,
    },
}

impl FromStr for SampleKind {
    type Err = SampleError;
    fn from_str(text: &str) -> Result<Self, SampleError> {
        let known = KINDS.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind);
        known.ok_or_else(|| SampleError::NoSuchKind {
            kind: text.to_owned(),
            because: match text {
                "video" | "mp4" | "mkv" | "webm" => "it takes an encoder, which Nigh does not bring",
                "speech" => "what a recogniser does hangs on what is said, and tones say nothing",
                "jpg" | "jpeg" | "mp3" | "ogg" | "pdf" => "it takes an encoder, which Nigh does not bring",
                _ => "nobody wrote down how",
            },
        })
    }
}

impl fmt::Display for SampleKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS.iter().find(|(_, kind)| kind == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_default())
    }
}

impl SampleKind {
    /// The extension of its files.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Wav => "wav",
            Self::Text => "txt",
            Self::Bytes => "bin",
        }
    }

    /// Its media type.
    #[must_use]
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Wav => "audio/wav",
            Self::Text => "text/plain",
            Self::Bytes => "application/octet-stream",
        }
    }

    /// An input of this kind and about this size.
    ///
    /// # Errors
    /// If the size is outside the limits.
    pub fn make(self, size: ByteSize) -> Result<Vec<u8>, SampleError> {
        if !(SAMPLE_BYTES_MIN..=SAMPLE_BYTES_MAX).contains(&size) {
            return Err(SampleError::Size { size });
        }
        let bytes = size.0 as usize;
        let mut random = StdRng::seed_from_u64(SEED);
        Ok(match self {
            Self::Png => picture::png(bytes, SEED),
            Self::Wav => sound::wav(bytes, &mut random),
            Self::Text => words::text(bytes, &mut random),
            Self::Bytes => {
                let mut made = vec![0; bytes];
                random.fill(&mut made[..]);
                made
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_made_in_about_the_size_asked_for_and_always_the_same() {
        for (name, kind) in KINDS {
            assert_eq!((name.parse(), kind.to_string().as_str()), (Ok(kind), name));
            for kib in [1, 10, 100, 700] {
                let made = kind.make(ByteSize::kib(kib)).unwrap();
                let off = made.len() as f64 / (kib * 1024) as f64 - 1.0;
                let within = if kind == SampleKind::Png { 0.06 } else { 0.004 };
                assert!(off.abs() <= within, "{name} of {kib} KiB has {} bytes", made.len());
            }
            assert_eq!(kind.make(ByteSize::kib(3)), kind.make(ByteSize::kib(3)), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_made_up_is_refused_with_what_can() {
        for kind in ["video", "speech", "jpg", "poem"] {
            let refused = kind.parse::<SampleKind>().unwrap_err().to_string();
            assert!(refused.contains("png, wav, text and bytes") && refused.contains("--event"), "{refused}");
        }
        for size in [ByteSize(0), ByteSize(1023), ByteSize::gib(1)] {
            assert_eq!(SampleKind::Text.make(size), Err(SampleError::Size { size }));
        }
    }
}
