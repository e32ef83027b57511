//! A trace as bytes, uncompressed: the layout of `format`, whose limits hold here too, so that whatever is written can
//! be read.

use super::format::{
    IN_FULL, LINE_MAX, MAGIC, RECORDS_MAX, TEXT_BYTES_MAX, TRACE_BYTES_MAX, TraceError, at_most, check_instructions,
    is_eviction, kind_code, seal,
};
use super::residents::Residents;
use super::varint::{fold, put};
use super::{Trace, TraceHeader};

impl Trace {
    /// The bytes of this trace, not yet compressed.
    ///
    /// # Errors
    /// If the trace is beyond a limit of the format or inconsistent in itself.
    pub fn encode(&self) -> Result<Vec<u8>, TraceError> {
        at_most("number of accesses", self.accesses.len() as u64, RECORDS_MAX as u64)?;
        let mut out = MAGIC.to_vec();
        put_header(&mut out, &self.header)?;
        put(&mut out, self.accesses.len() as u64);
        out.extend(self.accesses.iter().map(|access| kind_code(access.kind)));
        put_lines(&mut out, self)?;
        let mut counted = 0;
        for evictions in [false, true] {
            for access in self.accesses.iter().filter(|access| is_eviction(access.kind) == evictions) {
                counted += u64::from(access.instructions);
                put(&mut out, u64::from(access.instructions));
            }
        }
        check_instructions(counted, self.header.instructions, self.header.whole_instructions)?;
        seal(&mut out);
        at_most("size in bytes", out.len() as u64, TRACE_BYTES_MAX as u64)?;
        Ok(out)
    }
}

fn put_lines(out: &mut Vec<u8>, trace: &Trace) -> Result<(), TraceError> {
    let sampling = trace.header.sampling;
    let mut before = 0;
    for (index, access) in trace.accesses.iter().enumerate() {
        let line = at_most("line", access.line, LINE_MAX)?;
        if !sampling.keeps(line) {
            return Err(TraceError::NotKept { index, line, sampling });
        }
        if !is_eviction(access.kind) {
            put(out, difference(before, line));
            before = line;
        }
    }
    let mut residents = Residents::new();
    before = 0;
    for access in &trace.accesses {
        if is_eviction(access.kind) {
            if let Some(place) = residents.place(before, access.line) {
                put(out, place + 1);
            } else {
                put(out, IN_FULL);
                put(out, difference(before, access.line));
            }
        }
        residents.see(access);
        before = access.line;
    }
    Ok(())
}

/// How far `line` lies behind `before`, folded. Lines have 58 bits, so that it fits.
const fn difference(before: u64, line: u64) -> u64 {
    fold(line as i64 - before as i64)
}

fn put_header(out: &mut Vec<u8>, header: &TraceHeader) -> Result<(), TraceError> {
    let filter = header.filter;
    put(out, u64::from(header.sampling.number()));
    put(out, filter.l1.bytes());
    put(out, u64::from(filter.l1_ways));
    put(out, filter.l2.bytes());
    put(out, u64::from(filter.l2_ways));
    put(out, header.input_bytes.bytes());
    put(out, header.instructions);
    put(out, header.whole_instructions);
    for text in [&header.function, &header.input] {
        put(out, at_most("text in bytes", text.len() as u64, TEXT_BYTES_MAX as u64)?);
        out.extend(text.as_bytes());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::examples;
    use super::*;
    use crate::llc::{AccessKind, LlcAccess};

    proptest! {
        #[test]
        fn what_is_written_is_read_again(trace in examples::trace()) {
            prop_assert_eq!(Trace::decode(&trace.encode().unwrap()), Ok(trace));
        }

        #[test]
        fn what_the_header_excludes_is_not_written(trace in examples::trace(), line in 0..=LINE_MAX) {
            let mut trace = trace;
            trace.accesses.push(LlcAccess { line, instructions: 0, kind: AccessKind::Load });
            prop_assert_eq!(trace.encode().is_ok(), trace.header.sampling.keeps(line));
            trace.header.input = "x".repeat(TEXT_BYTES_MAX + 1);
            let too_long = matches!(trace.encode(), Err(TraceError::Above { what: "text in bytes", .. }));
            prop_assert!(too_long);
            trace.header.input.clear();
            trace.header.whole_instructions = trace.header.instructions - 1;
            prop_assert!(trace.encode().is_err());
        }
    }
}
