//! What an object's header says of the data in it: format, pixels, seconds, rows, entries; the features of inputs.
//!
//! Pure: some bytes of an object come in, features go out, or the wish for further bytes, so that whoever has the object
//! reads its header and never the whole. Nothing is decoded or unpacked: a size that a header states is taken as stated.
//! What the bytes say is the tenant's and may be anything: it is read within bounds, and run where it can do no harm.
//! Formats: PNG, JPEG, GIF, BMP, WebP, TIFF here, further pictures by `imagesize`; WAV here, further sound by `lofty`;
//! MP4, Matroska, AVI and Y4M here, as those who read them want all of their tables; zip by `zip`.

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

/// What a look at an object's bytes has given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Look {
    /// What is known so far, as `in_...`; empty for what is no format known here.
    pub row: FeatureRow,
    /// Bytes that would tell more, at most [`WANTED_BYTES_MAX`] and none of those that were there.
    pub wants: Option<Range<u64>>,
}

/// Looks at the bytes of an object that are at hand.
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
