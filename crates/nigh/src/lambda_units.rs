//! Sizes and times as Lambda's users write them: memory in MB, which Lambda counts as MiB, and time-outs in seconds. Pure.
//!
//! Lambda's API has plain numbers: `MemorySize: 512`, `Timeout: 30`. So `512`, `512MB` and `512 MiB` are the same memory,
//! and `30` and `30 s` the same time.

use nigh_node::config::Span;
use nigh_terms::ByteSize;

/// Lambda's names of sizes, with their MiB.
const SIZES: [(&str, u64); 5] = [("", 1), ("M", 1), ("MB", 1), ("G", 1024), ("GB", 1024)];

/// A size of memory or of `/tmp`.
///
/// # Errors
/// If the text is no size, with the way to write one.
pub(crate) fn memory(text: &str) -> Result<ByteSize, String> {
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, unit) = (&trimmed[..split], trimmed[split..].trim());
    let refused = || format!("{text:?} is not a size; write MB as Lambda does, for example 512 or 512MB, or 1GB");
    let number: u64 = digits.parse().map_err(|_| refused())?;
    if let Some((_, mib)) = SIZES.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)) {
        let bytes = number.checked_mul(mib << 20).ok_or_else(refused)?;
        return Ok(ByteSize(bytes));
    }
    trimmed.parse().map_err(|_| refused())
}

/// A time-out in whole seconds.
///
/// # Errors
/// If the text is no time in whole seconds, with the way to write one.
pub(crate) fn seconds(text: &str) -> Result<u64, String> {
    let trimmed = text.trim();
    if let Ok(seconds) = trimmed.parse() {
        return Ok(seconds);
    }
    let refused = || format!("{text:?} is not a time in whole seconds; write 30 or 30s, or 2min");
    let span: Span = trimmed.parse().map_err(|_| refused())?;
    let time = span.duration();
    if time.subsec_nanos() == 0 { Ok(time.as_secs()) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_lambdas_unit_and_mb_is_what_lambda_calls_so() {
        for text in ["512", "512MB", "512 MB", "512mb", "512M", "512MiB", "512 MiB", " 512 "] {
            assert_eq!(memory(text), Ok(ByteSize::mib(512)), "{text}");
        }
        assert_eq!(memory("1GB"), Ok(ByteSize::gib(1)));
        assert_eq!(memory("1 GiB"), Ok(ByteSize::gib(1)));
        for text in ["", "MB", "-1", "1.5GB", "5 apples", "99999999999999999999"] {
            let refused = memory(text).unwrap_err();
            assert!(refused.contains("512MB") && refused.contains(&format!("{text:?}")), "{refused}");
        }
    }

    #[test]
    fn a_time_out_is_in_whole_seconds() {
        for (text, expected) in [("30", 30), ("30s", 30), ("30 s", 30), ("2min", 120), ("2 min", 120), ("1 h", 3600)] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "1500 ms", "1.5", "soon", "-1"] {
            assert!(seconds(text).unwrap_err().contains("30s"), "{text}");
        }
    }
}
