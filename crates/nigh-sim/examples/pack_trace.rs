//! Makes a trace of what the recorder wrote: `pack_trace HEADER.json RAW OUT`. Used by experiments/llc-traces/record.py.

use std::error::Error;
use std::fs;

use nigh_sim::llc::{PrivateCaches, Sampling, Trace, TraceHeader};
use nigh_terms::ByteSize;
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [header, raw, out] = &arguments[..] else {
        return Err("what to read and write is missing. Hint: pack_trace HEADER.json RAW OUT".into());
    };
    let header: Value = serde_json::from_slice(&fs::read(header)?)?;
    let number = |name: &str| header[name].as_u64().ok_or_else(|| format!("the header's {name} is no number"));
    let text = |name: &str| header[name].as_str().map(str::to_owned).ok_or(format!("the header's {name} is no text"));
    let header = TraceHeader {
        function: text("function")?,
        input: text("input")?,
        input_bytes: ByteSize(number("input_bytes")?),
        instructions: number("instructions")?,
        whole_instructions: number("whole_instructions")?,
        sampling: Sampling::one_in(number("sampling")?.try_into()?).ok_or("there is no such sampling")?,
        filter: PrivateCaches::XEON_4210R,
    };
    fs::write(out, Trace::from_raw(header, &fs::read(raw)?)?.encode()?)?;
    Ok(())
}
