//! Arrays of numpy: rows, fields of a row and bytes of an item, out of the header's Python literal (NEP 1).

use super::facts::Facts;
use super::window::{ObjectHead, Stop};

/// Bytes of a header that are read.
const HEADER_MAX: u64 = 4096;

/// `{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }`
pub(super) fn npy(object: &ObjectHead<'_>, facts: &mut Facts) -> Result<(), Stop> {
    let (from, length) = match object.byte(6)? {
        1 => (10, object.le16(8)?),
        _ => (12, object.le32(8)?),
    };
    let header = object.bytes(from, length.min(HEADER_MAX).min(object.size.saturating_sub(from)))?;
    let header = std::str::from_utf8(header).map_err(|_| Stop::Nonsense)?;
    let behind = |name: &str| header.split_once(name).map(|(_, rest)| rest.trim_start_matches([':', ' ']));
    let shape = behind("'shape'").and_then(|rest| rest.strip_prefix('(')?.split_once(')')).ok_or(Stop::Nonsense)?.0;
    let sides: Vec<f64> =
        shape.split(',').filter_map(|side| side.trim().parse::<u64>().ok()).map(|n| n as f64).collect();
    facts.word("in_format", "npy");
    facts.number("in_rows", sides.first().copied().unwrap_or(1.0));
    facts.number("in_fields", sides.iter().skip(1).product());
    let kind = behind("'descr'").and_then(|rest| rest.strip_prefix('\'')?.split_once('\'')).map(|(kind, _)| kind);
    // One that is no plain number, as a record, begins with a bracket.
    let Some(kind) = kind else { return Ok(()) };
    let digits = kind.trim_start_matches(|c: char| !c.is_ascii_digit());
    let Ok(size) = digits.parse::<u32>() else { return Ok(()) };
    // Texts are counted in characters of four bytes.
    let size = f64::from(size) * if kind.contains('U') { 4.0 } else { 1.0 };
    facts.number("in_itemsize", size);
    facts.number("in_decoded_bytes", sides.iter().product::<f64>() * size);
    Ok(())
}
