//! Parses untrusted bytes as a trace. The result is a trace that could have been written, or an error that says what is
//! wrong; memory stays within the limits of `format`.

use std::io::Read;

use nigh_terms::ByteSize;
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

use super::format::{
    CRC_BYTES, IN_FULL, LINE_MAX, MAGIC, MAGIC_NAME, RECORDS_MAX, TEXT_BYTES_MAX, TRACE_BYTES_MAX, TraceError,
    WINDOW_BYTES_MAX, ZSTD_MAGIC, at_most, check_instructions, crc32, is_eviction, kind_of,
};
use super::residents::Residents;
use super::varint::{take, unfold};
use super::{LlcAccess, PrivateCaches, Sampling, Trace, TraceHeader};

impl Trace {
    /// The trace in `file`, compressed by zstd or not.
    ///
    /// # Errors
    /// If it is none, is damaged, or is beyond a limit of the format.
    pub fn decode(file: &[u8]) -> Result<Self, TraceError> {
        if file.starts_with(&ZSTD_MAGIC) { decode_plain(&decompress(file)?) } else { decode_plain(file) }
    }
}

fn decompress(mut file: &[u8]) -> Result<Vec<u8>, TraceError> {
    let mut decoder = FrameDecoder::new();
    decoder.set_max_window_size(WINDOW_BYTES_MAX);
    let stream = StreamingDecoder::new_with_decoder(&mut file, decoder)
        .map_err(|error| TraceError::Compression(error.to_string()))?;
    let mut plain = Vec::new();
    // One byte more than may be tells a trace at the limit from one above it.
    let limit = TRACE_BYTES_MAX as u64;
    let size = stream.take(limit + 1).read_to_end(&mut plain);
    at_most("size in bytes", size.map_err(|error| TraceError::Compression(error.to_string()))? as u64, limit)?;
    if !file.is_empty() {
        return Err(TraceError::Trailing(file.len()));
    }
    Ok(plain)
}

fn decode_plain(plain: &[u8]) -> Result<Trace, TraceError> {
    let Some(body) = plain.strip_prefix(&MAGIC) else {
        return Err(match plain.strip_prefix(MAGIC_NAME) {
            Some([digit @ b'2'..=b'9', ..]) => TraceError::Newer(*digit),
            _ => TraceError::NotATrace,
        });
    };
    at_most("size in bytes", plain.len() as u64, TRACE_BYTES_MAX as u64)?;
    let (mut rest, crc) = body.split_last_chunk::<CRC_BYTES>().ok_or(TraceError::Malformed("checksum"))?;
    let (stored, computed) = (u32::from_le_bytes(*crc), crc32(&plain[..plain.len() - CRC_BYTES]));
    if stored != computed {
        return Err(TraceError::Checksum { stored, computed });
    }
    let header = take_header(&mut rest)?;
    let accesses = take_accesses(&mut rest, &header)?;
    if !rest.is_empty() {
        return Err(TraceError::Trailing(rest.len()));
    }
    Ok(Trace { header, accesses })
}

fn number(rest: &mut &[u8], what: &'static str) -> Result<u64, TraceError> {
    take(rest).ok_or(TraceError::Malformed(what))
}

fn small_number(rest: &mut &[u8], what: &'static str) -> Result<u32, TraceError> {
    number(rest, what)?.try_into().map_err(|_| TraceError::Malformed(what))
}

fn bytes<'a>(rest: &mut &'a [u8], count: usize, what: &'static str) -> Result<&'a [u8], TraceError> {
    let (taken, left) = rest.split_at_checked(count).ok_or(TraceError::Malformed(what))?;
    *rest = left;
    Ok(taken)
}

fn text(rest: &mut &[u8], what: &'static str) -> Result<String, TraceError> {
    let length = at_most("text in bytes", number(rest, what)?, TEXT_BYTES_MAX as u64)?;
    let text = std::str::from_utf8(bytes(rest, length as usize, what)?);
    Ok(text.map_err(|_| TraceError::Malformed(what))?.to_owned())
}

fn take_header(rest: &mut &[u8]) -> Result<TraceHeader, TraceError> {
    let one_in = number(rest, "sampling")?;
    let sampling = u32::try_from(one_in).ok().and_then(Sampling::one_in).ok_or(TraceError::Sampling(one_in))?;
    let filter = PrivateCaches {
        l1: ByteSize(number(rest, "filter")?),
        l1_ways: small_number(rest, "filter")?,
        l2: ByteSize(number(rest, "filter")?),
        l2_ways: small_number(rest, "filter")?,
    };
    let input_bytes = ByteSize(number(rest, "input's size")?);
    let instructions = number(rest, "instructions")?;
    let whole_instructions = number(rest, "whole instructions")?;
    let function = text(rest, "function")?;
    let input = text(rest, "input")?;
    Ok(TraceHeader { function, input, input_bytes, instructions, whole_instructions, sampling, filter })
}

fn take_accesses(rest: &mut &[u8], header: &TraceHeader) -> Result<Vec<LlcAccess>, TraceError> {
    let count = at_most("number of accesses", number(rest, "number of accesses")?, RECORDS_MAX as u64)? as usize;
    // Before anything is reserved: so many accesses have so many kinds at least.
    let kinds = bytes(rest, count, "kinds")?;
    let mut accesses = Vec::with_capacity(count);
    for &code in kinds {
        let kind = kind_of(code).ok_or(TraceError::Malformed("kinds"))?;
        accesses.push(LlcAccess { line: 0, instructions: 0, kind });
    }
    take_lines(rest, header.sampling, &mut accesses)?;
    let mut counted = 0;
    for evictions in [false, true] {
        for access in accesses.iter_mut().filter(|access| is_eviction(access.kind) == evictions) {
            access.instructions = small_number(rest, "instructions")?;
            counted += u64::from(access.instructions);
        }
    }
    check_instructions(counted, header.instructions, header.whole_instructions)?;
    Ok(accesses)
}

fn take_lines(rest: &mut &[u8], sampling: Sampling, accesses: &mut [LlcAccess]) -> Result<(), TraceError> {
    let mut before = 0;
    for access in accesses.iter_mut().filter(|access| !is_eviction(access.kind)) {
        access.line = line_at(before, number(rest, "lines")?)?;
        before = access.line;
    }
    let mut residents = Residents::new();
    before = 0;
    for (index, access) in accesses.iter_mut().enumerate() {
        if is_eviction(access.kind) {
            access.line = match number(rest, "evicted lines")? {
                IN_FULL => {
                    let line = line_at(before, number(rest, "evicted lines")?)?;
                    // A line has one form: the short one wherever there is one.
                    if residents.place(before, line).is_some() {
                        return Err(TraceError::Malformed("evicted lines"));
                    }
                    line
                }
                place => residents.line(before, place - 1).ok_or(TraceError::Malformed("evicted lines"))?,
            };
        }
        if !sampling.keeps(access.line) {
            return Err(TraceError::NotKept { index, line: access.line, sampling });
        }
        residents.see(access);
        before = access.line;
    }
    Ok(())
}

/// The line that lies a folded difference behind another.
fn line_at(before: u64, folded: u64) -> Result<u64, TraceError> {
    at_most("line", before.wrapping_add_signed(unfold(folded)), LINE_MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::super::examples;
    use super::super::format::seal;
    use super::*;

    const BLUR: &[u8] = include_bytes!("../../../../../data/llc-traces/blur-124k.trace.zst");

    fn compressed(plain: &[u8]) -> Vec<u8> {
        compress_to_vec(plain, CompressionLevel::Fastest)
    }

    proptest! {
        #[test]
        fn a_compressed_trace_is_the_same_trace(trace in examples::trace()) {
            prop_assert_eq!(Trace::decode(&compressed(&trace.encode().unwrap())), Ok(trace));
        }

        #[test]
        fn a_trace_that_is_cut_or_has_a_bit_changed_is_refused(
            trace in examples::trace(), at: prop::sample::Index, bit in 0u32..8
        ) {
            let mut file = trace.encode().unwrap();
            let at = at.index(file.len());
            prop_assert!(Trace::decode(&file[..at]).is_err());
            file[at] ^= 1 << bit;
            prop_assert!(Trace::decode(&file).is_err());
        }

        #[test]
        fn whatever_stands_between_magic_and_checksum_is_an_error_or_what_is_written_again(
            trace in examples::trace(), at: prop::sample::Index, bytes in prop::collection::vec(any::<u8>(), 0..12)
        ) {
            let mut file = trace.encode().unwrap();
            file.truncate(file.len() - CRC_BYTES);
            let at = MAGIC.len() + at.index(file.len() - MAGIC.len());
            let end = file.len().min(at + bytes.len());
            file.splice(at..end, bytes);
            seal(&mut file);
            if let Ok(read) = Trace::decode(&file) {
                prop_assert_eq!(read.encode(), Ok(file));
            }
        }

        #[test]
        fn whatever_follows_the_magic_of_zstd_is_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Trace::decode(&[&ZSTD_MAGIC[..], &bytes].concat()).is_err());
        }
    }

    #[test]
    fn a_recorded_trace_is_read_whole() {
        let trace = Trace::decode(BLUR).unwrap();
        assert_eq!((trace.header.function.as_str(), trace.header.sampling), ("blur", Sampling::ALL));
        assert_eq!(trace.header.filter, PrivateCaches::XEON_4210R);
        assert!((trace.header.share() - 1.0).abs() < f64::EPSILON);
        assert!(trace.accesses.len() > 10_000, "{}", trace.accesses.len());
    }

    #[test]
    fn a_recorded_trace_that_is_cut_is_refused_wherever_it_is() {
        for end in (0..BLUR.len()).step_by(997) {
            assert!(Trace::decode(&BLUR[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn bytes_after_the_frame_and_after_the_last_access_are_refused() {
        assert_eq!(Trace::decode(&[BLUR, b"x"].concat()), Err(TraceError::Trailing(1)));
        let mut plain = Trace::decode(BLUR).unwrap().encode().unwrap();
        plain.truncate(plain.len() - CRC_BYTES);
        plain.extend([0, 0]);
        seal(&mut plain);
        assert_eq!(Trace::decode(&plain), Err(TraceError::Trailing(2)));
    }

    #[test]
    fn a_small_file_that_unpacks_beyond_the_limit_is_refused() {
        // One frame with the largest blocks there are, each one byte repeated.
        const BLOCK_BYTES: usize = 128 << 10;
        let block = |last: u32| (last | 1 << 1 | (BLOCK_BYTES as u32) << 3).to_le_bytes();
        let window_of_a_mebibyte = 10 << 3;
        let mut bomb = [&ZSTD_MAGIC[..], &[0, window_of_a_mebibyte]].concat();
        for number in 0..=TRACE_BYTES_MAX / BLOCK_BYTES {
            let last = number == TRACE_BYTES_MAX / BLOCK_BYTES;
            bomb.extend(&block(last.into())[..3]);
            bomb.push(0);
        }
        assert!(bomb.len() < 10_000);
        let expected = TraceError::Above {
            what: "size in bytes",
            value: TRACE_BYTES_MAX as u64 + 1,
            limit: TRACE_BYTES_MAX as u64,
        };
        assert_eq!(Trace::decode(&bomb), Err(expected));
    }

    #[test]
    fn a_number_of_accesses_that_the_file_cannot_hold_reserves_no_memory() {
        let mut file = Vec::from(MAGIC);
        file.extend([1, 0, 0, 0, 0, 0, 1, 1, 0, 0]);
        super::super::varint::put(&mut file, RECORDS_MAX as u64);
        seal(&mut file);
        assert_eq!(Trace::decode(&file), Err(TraceError::Malformed("kinds")));
    }

    #[test]
    fn bytes_that_begin_as_no_trace_are_told_apart_from_a_damaged_one() {
        assert_eq!(Trace::decode(b"RIFF"), Err(TraceError::NotATrace));
        assert_eq!(Trace::decode(b""), Err(TraceError::NotATrace));
        assert_eq!(Trace::decode(&compressed(b"RIFF")), Err(TraceError::NotATrace));
        assert_eq!(Trace::decode(&MAGIC), Err(TraceError::Malformed("checksum")));
        let newer = Trace::decode(b"NIGHLLC2 and whatever it brings").unwrap_err();
        assert_eq!(newer, TraceError::Newer(b'2'));
        assert!(newer.to_string().contains("format 2"), "{newer}");
    }
}
