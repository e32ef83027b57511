//! Reads the features of inputs from objects' headers: format, pixels, seconds, rows, entries.
//!
//! Pure: takes some bytes of an object, returns features or asks for further bytes, so that the caller reads the header
//! and never the whole object. Nothing is decoded or unpacked: sizes are taken from the header. The bytes are
//! untrusted: they are parsed within limits, in a process that can do no harm. Formats: PNG, JPEG, GIF, BMP, WebP and
//! TIFF here, further pictures by `imagesize`; WAV here, further sound by `lofty`; MP4, Matroska, AVI and Y4M here,
//! because libraries need the complete tables; zip by `zip`.

mod archive;
mod facts;
mod film;
mod kind;
mod matrix;
mod picture;
mod sound;
mod text;
mod window;

use std::ops::Range;

pub use kind::{KIND_BYTES, is_readable};
pub use window::{ObjectHead, Window};

use facts::Facts;
use kind::Kind;
use window::Stop;

use crate::feature::FeatureRow;

/// Bytes that are wished for at a time at most.
pub const WANTED_BYTES_MAX: u64 = 64 * 1024;

/// The result of a look at an object's bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// The features so far, as `in_...`; empty for an unknown format.
    pub row: FeatureRow,
    /// The bytes that would give more features: at most [`WANTED_BYTES_MAX`], all of them missing so far.
    pub wants: Option<Range<u64>>,
}

/// Looks at the available bytes of an object.
#[must_use]
pub fn look(object: &ObjectHead<'_>) -> Look {
    let mut facts = Facts::default();
    let wants = match read(object, &mut facts) {
        Err(Stop::Wants(range)) => object.wish(&range),
        Ok(()) | Err(Stop::Nonsense) => None,
    };
    Look { row: facts.into_row(), wants }
}

fn read(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    match Kind::of(object.beginning()) {
        Kind::Png => picture::png(object, facts),
        Kind::Jpeg => picture::jpeg(object, facts),
        Kind::Gif => picture::gif(object, facts),
        Kind::Bmp => picture::bmp(object, facts),
        Kind::Webp => picture::webp(object, facts),
        Kind::Tiff => picture::tiff(object, facts),
        Kind::OtherPicture => picture::other(object, facts),
        Kind::Wav => sound::wav(object, facts),
        Kind::OtherSound => sound::other(object, facts),
        Kind::Mp4 if film::mp4(object, facts)? => Ok(()),
        Kind::Mp4 => sound::other(object, facts),
        Kind::Matroska => film::matroska(object, facts),
        Kind::Avi => film::avi(object, facts),
        Kind::Y4m => film::y4m(object, facts),
        Kind::Zip => archive::zip(object, facts),
        Kind::Tar => archive::tar(object, facts),
        Kind::Gzip => archive::gzip(object, facts),
        Kind::Zstd => archive::zstd(object, facts),
        Kind::Named(format) => {
            facts.word("in_format", format);
            Ok(())
        }
        Kind::Npy => matrix::npy(object, facts),
        Kind::Text => text::text(object, facts),
        Kind::Unknown => Ok(()),
    }
}

#[cfg(test)]
mod tests;
