//! Features as they are found, each checked: what a header states and no row can hold is left out.

use crate::feature::FeatureRow;

/// What is found so far.
#[derive(Default)]
pub(super) struct Facts {
    row: FeatureRow,
    /// Bytes of one frame of a picture, decoded.
    frame_bytes: f64,
}

/// A picture's first frame.
pub(super) struct Picture<'f> {
    pub(super) format: &'f str,
    pub(super) width: u64,
    pub(super) height: u64,
    /// Numbers a pixel, as they are stored: one with a palette.
    pub(super) channels: u64,
    /// Bits of such a number.
    pub(super) depth: u64,
}

/// A sound.
pub(super) struct Sound<'f> {
    pub(super) format: &'f str,
    pub(super) codec: &'f str,
    pub(super) channels: u64,
    /// Samples of each channel a second.
    pub(super) rate: u64,
    pub(super) seconds: f64,
    /// Bits of a sample; none where the codec has no such thing.
    pub(super) depth: Option<u64>,
}

/// A film's pictures.
#[derive(Default)]
pub(super) struct Film<'f> {
    pub(super) format: &'f str,
    pub(super) codec: &'f str,
    pub(super) width: u64,
    pub(super) height: u64,
    pub(super) seconds: f64,
    /// None where the header does not say.
    pub(super) frames: Option<f64>,
}

/// Whole bytes of so many bits.
const fn bytes_of(bits: u64) -> u64 {
    bits.div_ceil(8)
}

impl Facts {
    pub(super) fn into_row(self) -> FeatureRow {
        self.row
    }

    /// A number; one that is none is no fact.
    pub(super) fn number(&mut self, name: &str, value: f64) {
        let _left_out = self.row.set_number(name, value);
    }

    pub(super) fn count(&mut self, name: &str, value: u64) {
        self.number(name, value as f64);
    }

    pub(super) fn word(&mut self, name: &str, value: &str) {
        let _left_out = self.row.set_word(name, value);
    }

    /// What is known of a picture before its frames are counted.
    pub(super) fn picture(&mut self, picture: &Picture<'_>) {
        let Picture { format, width, height, channels, depth } = *picture;
        self.word("in_format", format);
        self.dimensions(width, height);
        self.count("in_channels", channels);
        self.count("in_depth", depth);
        self.frame_bytes = width as f64 * height as f64 * channels as f64 * bytes_of(depth) as f64;
        self.frames(1.0);
    }

    pub(super) fn dimensions(&mut self, width: u64, height: u64) {
        self.count("in_width", width);
        self.count("in_height", height);
    }

    /// How many frames a picture has.
    pub(super) fn frames(&mut self, frames: f64) {
        self.number("in_frames", frames);
        self.number("in_decoded_bytes", self.frame_bytes * frames);
    }

    pub(super) fn sound(&mut self, sound: &Sound<'_>) {
        /// What codecs without a depth of their own are decoded to.
        const USUAL_DEPTH: u64 = 16;
        let Sound { format, codec, channels, rate, seconds, depth } = *sound;
        let frames = (seconds * rate as f64).round();
        self.word("in_format", format);
        self.word("in_codec", codec);
        self.count("in_channels", channels);
        self.count("in_samplerate", rate);
        self.number("in_duration", seconds);
        self.number("in_frames", frames);
        if let Some(depth) = depth {
            self.count("in_depth", depth);
        }
        self.number("in_decoded_bytes", frames * (channels * bytes_of(depth.unwrap_or(USUAL_DEPTH))) as f64);
    }

    pub(super) fn film(&mut self, film: &Film<'_>) {
        let Film { format, codec, width, height, seconds, frames } = *film;
        self.word("in_format", format);
        self.word("in_codec", codec);
        self.dimensions(width, height);
        self.number("in_duration", seconds);
        let Some(frames) = frames else { return };
        self.number("in_frames", frames);
        if seconds > 0.0 {
            self.number("in_fps", frames / seconds);
        }
        // Three bytes a pixel.
        self.number("in_decoded_bytes", width as f64 * height as f64 * 3.0 * frames);
    }
}
