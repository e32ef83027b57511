//! Parses numbers and lists as the kernel does: `kstrto*`, `strim`, CPU masks and lists. Pure.
//!
//! Source: lib/kstrtox.c and lib/bitmap-str.c of the kernel, by behaviour.

use std::collections::BTreeSet;

use rustix::io::Errno;

/// What the kernel takes as white space.
fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}

/// The text without white space around it.
pub(super) fn strim(text: &str) -> &str {
    text.trim_matches(is_space)
}

/// An unsigned number: `+` and one final newline allowed, no other white space; base 0 looks at the prefix.
pub(super) fn unsigned(text: &str, base: u32) -> Result<u64, Errno> {
    let text = text.strip_prefix('+').unwrap_or(text);
    let text = text.strip_suffix('\n').unwrap_or(text);
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (digits, base) = match (base, hex) {
        (16, Some(rest)) => (rest, 16),
        (0, Some(rest)) if rest.starts_with(|c: char| c.is_ascii_hexdigit()) => (rest, 16),
        (0, _) if text.len() > 1 && text.starts_with('0') => (text, 8),
        (0, _) => (text, 10),
        (base, _) => (text, base),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return Err(Errno::INVAL);
    }
    u64::from_str_radix(digits, base).map_err(|_overflow| Errno::RANGE)
}

/// A 32-bit unsigned number.
pub(super) fn unsigned32(text: &str, base: u32) -> Result<u32, Errno> {
    u32::try_from(unsigned(text, base)?).map_err(|_wide| Errno::RANGE)
}

/// A 32-bit signed number.
pub(super) fn signed32(text: &str, base: u32) -> Result<i32, Errno> {
    match text.strip_prefix('-') {
        Some(rest) if !rest.starts_with(['+', '-']) => {
            let magnitude = i64::try_from(unsigned(rest, base)?).map_err(|_wide| Errno::RANGE)?;
            i32::try_from(-magnitude).map_err(|_wide| Errno::RANGE)
        }
        Some(_) => Err(Errno::INVAL),
        None => i32::try_from(unsigned(text, base)?).map_err(|_wide| Errno::RANGE),
    }
}

/// A truth value as `kstrtobool` reads it: by the first one or two letters.
pub(super) fn boolean(text: &str) -> Result<bool, Errno> {
    let mut letters = text.chars().map(|c| c.to_ascii_lowercase());
    match (letters.next(), letters.next()) {
        (Some('y' | 't' | '1'), _) | (Some('o'), Some('n')) => Ok(true),
        (Some('n' | 'f' | '0'), _) | (Some('o'), Some('f')) => Ok(false),
        _ => Err(Errno::INVAL),
    }
}

/// CPUs as a hexadecimal mask: groups of at most 8 digits between commas or blanks; only the first line counts. Parsed
/// from its end as in lib/bitmap.c, so the rightmost error is reported.
pub(super) fn cpu_mask(text: &str, bits: u32) -> Result<BTreeSet<u32>, Errno> {
    let line = text.split('\n').next().unwrap_or_default();
    let mut cpus = BTreeSet::new();
    let groups = line.rsplit(|c| is_space(c) || c == ',').filter(|digits| !digits.is_empty());
    for (group, digits) in (0..).zip(groups) {
        if group == bits.div_ceil(32) {
            return Err(Errno::OVERFLOW);
        }
        for (place, digit) in digits.chars().rev().enumerate() {
            let digit = digit.to_digit(16).ok_or(Errno::INVAL)?;
            if place == 8 {
                return Err(Errno::OVERFLOW);
            }
            let first = group * 32 + place as u32 * 4;
            cpus.extend((0..4).filter(|bit| digit >> bit & 1 == 1).map(|bit| first + bit));
        }
    }
    if cpus.last().is_some_and(|&last| last >= bits) {
        return Err(Errno::OVERFLOW);
    }
    Ok(cpus)
}

/// CPUs by a list of numbers and ranges (`0-3,5,8-15:2/4,N,all`); only the first line counts.
pub(super) fn cpu_list(text: &str, bits: u32) -> Result<BTreeSet<u32>, Errno> {
    let line = text.split('\n').next().unwrap_or_default();
    let mut cpus = BTreeSet::new();
    for region in line.split(|c| is_space(c) || c == ',').filter(|region| !region.is_empty()) {
        let (range, pattern) = match region.split_once(':') {
            Some((range, pattern)) => (range, Some(pattern)),
            None => (region, None),
        };
        let (first, last) = if range.eq_ignore_ascii_case("all") {
            (0, bits - 1)
        } else {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            (cpu_number(first, bits)?, cpu_number(last, bits)?)
        };
        let (used, group) = match pattern {
            Some(pattern) => {
                let (used, group) = pattern.split_once('/').ok_or(Errno::INVAL)?;
                (cpu_number(used, bits)?, cpu_number(group, bits)?)
            }
            None => (last.saturating_sub(first) + 1, last.saturating_sub(first) + 1),
        };
        if first > last || group == 0 || used > group {
            return Err(Errno::INVAL);
        }
        if last >= bits {
            return Err(Errno::RANGE);
        }
        cpus.extend((first..=last).filter(|cpu| (cpu - first) % group < used));
    }
    Ok(cpus)
}

fn cpu_number(text: &str, bits: u32) -> Result<u32, Errno> {
    if text == "N" {
        return Ok(bits - 1);
    }
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_digit()) {
        return Err(Errno::INVAL);
    }
    text.parse().map_err(|_wide| Errno::OVERFLOW)
}

/// CPUs as the kernel prints a mask of `bits` bits: groups of 32 bits, the first as short as it can be.
pub(super) fn print_cpu_mask(cpus: &BTreeSet<u32>, bits: u32) -> String {
    let groups = bits.div_ceil(32).max(1);
    let words = (0..groups).rev().map(|group| {
        let word = (0..32).filter(|bit| cpus.contains(&(group * 32 + bit))).fold(0u32, |word, bit| word | 1 << bit);
        let shown = if group == groups - 1 && !bits.is_multiple_of(32) { bits % 32 } else { 32 };
        format!("{word:0width$x}", width = shown.div_ceil(4) as usize)
    });
    words.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_the_kernel_reads_them() {
        assert_eq!(unsigned("0x7ff", 16), Ok(0x7ff));
        assert_eq!(unsigned("+7ff\n", 16), Ok(0x7ff));
        assert_eq!(unsigned(" 7", 16), Err(Errno::INVAL));
        assert_eq!(unsigned("", 16), Err(Errno::INVAL));
        assert_eq!(unsigned("ffffffffffffffff1", 16), Err(Errno::RANGE));
        assert_eq!(unsigned("010", 0), Ok(8));
        assert_eq!(unsigned("0x", 0), Err(Errno::INVAL));
        assert_eq!(signed32("-1", 0), Ok(-1));
        assert_eq!(signed32("--1", 0), Err(Errno::INVAL));
        assert_eq!(signed32("2147483648", 0), Err(Errno::RANGE));
        assert_eq!(boolean("off"), Ok(false));
        assert_eq!(boolean("1\n"), Ok(true));
    }

    #[test]
    fn cpu_sets_are_read_and_printed_as_the_kernel_does() {
        let set = cpu_list("0-3,5\n", 64).unwrap();
        assert_eq!(print_cpu_mask(&set, 10), "02f");
        assert_eq!(print_cpu_mask(&set, 64), "00000000,0000002f");
        assert_eq!(cpu_mask("2f", 10).unwrap(), set);
        assert_eq!(cpu_mask("1,00000000", 64).unwrap(), BTreeSet::from([32]));
        assert_eq!(cpu_mask("1,, 1", 64).unwrap(), BTreeSet::from([0, 32]));
        assert_eq!(cpu_mask("1 2", 10), Err(Errno::OVERFLOW));
        assert_eq!(cpu_list("8", 8), Err(Errno::RANGE));
        assert_eq!(cpu_list("3-1", 8), Err(Errno::INVAL));
        assert_eq!(cpu_list("0-7:1/4", 8).unwrap(), BTreeSet::from([0, 4]));
        assert_eq!(cpu_list("all", 3).unwrap(), BTreeSet::from([0, 1, 2]));
        assert_eq!(cpu_mask("100000000", 64), Err(Errno::OVERFLOW));
    }
}
