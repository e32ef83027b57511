//! Recognises the kind of an object's data by its first bytes.
//!
//! It compares a few bytes and parses nothing, so it is safe anywhere. Data of an unknown kind, as most random or
//! encrypted data, is not looked at further.

/// First bytes that tell the kind.
pub const KIND_BYTES: usize = 512;

/// A kind of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Png,
    Jpeg,
    Gif,
    Bmp,
    Webp,
    Tiff,
    /// One of those that `imagesize` reads.
    OtherPicture,
    Wav,
    /// One of those that `lofty` reads.
    OtherSound,
    Mp4,
    Matroska,
    Avi,
    Y4m,
    Zip,
    Tar,
    Gzip,
    Zstd,
    Npy,
    Text,
    /// A format with no features but its name.
    Named(&'static str),
    Unknown,
}

/// First bytes, and the kind that has them.
const BEGINNINGS: [(&[u8], Kind); 35] = [
    (b"\x89PNG\r\n\x1a\n", Kind::Png),
    (b"\xff\xd8\xff", Kind::Jpeg),
    (b"GIF87a", Kind::Gif),
    (b"GIF89a", Kind::Gif),
    (b"II*\0", Kind::Tiff),
    (b"MM\0*", Kind::Tiff),
    (b"8BPS", Kind::OtherPicture),
    (b"qoif", Kind::OtherPicture),
    (b"DDS ", Kind::OtherPicture),
    (b"\x76\x2f\x31\x01", Kind::OtherPicture),
    (b"farbfeld", Kind::OtherPicture),
    (b"#?RADIANCE", Kind::OtherPicture),
    (b"\0\0\0\x0cJXL ", Kind::OtherPicture),
    (b"\xff\x0a", Kind::OtherPicture),
    (b"\0\0\x01\0", Kind::OtherPicture),
    (b"P4", Kind::OtherPicture),
    (b"P5", Kind::OtherPicture),
    (b"P6", Kind::OtherPicture),
    (b"fLaC", Kind::OtherSound),
    (b"OggS", Kind::OtherSound),
    (b"ID3", Kind::OtherSound),
    (b"MAC ", Kind::OtherSound),
    (b"wvpk", Kind::OtherSound),
    (b"\x1aE\xdf\xa3", Kind::Matroska),
    (b"YUV4MPEG2 ", Kind::Y4m),
    (b"PK\x03\x04", Kind::Zip),
    (b"PK\x05\x06", Kind::Zip),
    (b"\x1f\x8b", Kind::Gzip),
    (b"\x28\xb5\x2f\xfd", Kind::Zstd),
    (b"\x93NUMPY", Kind::Npy),
    (b"BZh", Kind::Named("bzip2")),
    (b"\xfd7zXZ\0", Kind::Named("xz")),
    (b"7z\xbc\xaf\x27\x1c", Kind::Named("7z")),
    (b"%PDF-", Kind::Named("pdf")),
    (b"\x89HDF\r\n\x1a\n", Kind::Named("hdf5")),
];
/// Brands of pictures in the container of MP4 (ISO/IEC 23008-12; AVIF).
const PICTURE_BRANDS: [&[u8]; 7] = [b"avif", b"avis", b"heic", b"heix", b"heim", b"hevc", b"mif1"];

impl Kind {
    /// The kind of an object that begins so.
    pub(super) fn of(beginning: &[u8]) -> Self {
        let beginning = &beginning[..beginning.len().min(KIND_BYTES)];
        if let Some((_, kind)) = BEGINNINGS.iter().find(|(first, _)| beginning.starts_with(first)) {
            return match kind {
                // Two letters are not enough: a blank follows them.
                Self::OtherPicture
                    if beginning[0] == b'P' && !beginning.get(2).is_some_and(u8::is_ascii_whitespace) =>
                {
                    Self::text_or_unknown(beginning)
                }
                kind => *kind,
            };
        }
        let at = |from: usize, length: usize| beginning.get(from..from + length).unwrap_or_default();
        match (at(0, 4), at(8, 4)) {
            (b"RIFF", b"WEBP") => Self::Webp,
            (b"RIFF", b"AVI ") => Self::Avi,
            (b"RIFF", b"WAVE") => Self::Wav,
            (b"FORM", b"AIFF" | b"AIFC") => Self::OtherSound,
            (_, brand) if at(4, 4) == b"ftyp" && PICTURE_BRANDS.contains(&brand) => Self::OtherPicture,
            _ if at(4, 4) == b"ftyp" => Self::Mp4,
            _ if at(257, 5) == b"ustar" => Self::Tar,
            // The second number of a bitmap's header is nought.
            _ if at(0, 2) == b"BM" && at(6, 4) == [0; 4] => Self::Bmp,
            _ if is_mpeg_audio(beginning) => Self::OtherSound,
            _ => Self::text_or_unknown(beginning),
        }
    }

    fn text_or_unknown(beginning: &[u8]) -> Self {
        if is_text(beginning) { Self::Text } else { Self::Unknown }
    }
}

/// Whether an object with this beginning has features besides its size.
#[must_use]
pub fn is_readable(beginning: &[u8]) -> bool {
    Kind::of(beginning) != Kind::Unknown
}

/// The header of a frame of MPEG audio (ISO/IEC 11172-3, 2.4.1.3) or ADTS: a mark, and values that are not reserved.
fn is_mpeg_audio(beginning: &[u8]) -> bool {
    let &[first, second, third, ..] = beginning else { return false };
    if first != 0xff || second & 0xe0 != 0xe0 {
        return false;
    }
    let (version, layer) = (second >> 3 & 3, second >> 1 & 3);
    let is_adts = second & 0xf6 == 0xf0;
    is_adts || (version != 1 && layer != 0 && third >> 4 != 15 && third >> 4 != 0 && third >> 2 & 3 != 3)
}

/// Text in UTF-8, without the control characters that text does not have.
fn is_text(beginning: &[u8]) -> bool {
    let whole = match std::str::from_utf8(beginning) {
        Ok(_) => true,
        // It may be cut within a character.
        Err(error) => error.error_len().is_none() && beginning.len() == KIND_BYTES,
    };
    let is_odd = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    whole && !beginning.is_empty() && !beginning.iter().any(is_odd)
}
