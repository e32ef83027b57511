//! Intel's own tool as a second reader: what `pqos --iface=os -s` says of groups must be what was written.
//!
//! It knows groups by the names COS1, COS2, ... alone.

use std::collections::BTreeMap;
use std::io;
use std::process::Command;

const PQOS: &str = "pqos";

/// The L3 masks by cache domain and class.
pub(crate) type Masks = BTreeMap<(u32, u32), u32>;

/// Asks the tool.
pub(crate) fn masks() -> io::Result<Masks> {
    let output = Command::new(PQOS).args(["--iface=os", "-s"]).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(io::Error::other(format!("{PQOS}: {}: {said} {complaint}", output.status)));
    }
    Ok(read(&said))
}

/// Reads `L3CA COS1 => MASK 0xf` lines, each below the headline of its socket.
fn read(said: &str) -> Masks {
    let mut masks = Masks::new();
    let mut domain = None;
    for line in said.lines().map(str::trim) {
        if let Some((_, place)) = line.split_once("definitions for ") {
            domain = place.trim_end_matches(':').rsplit(' ').next().and_then(|id| id.parse().ok());
        } else if let (Some(domain), Some(rest)) = (domain, line.strip_prefix("L3CA COS"))
            && let Some((class, mask)) = rest.split_once(" => MASK 0x")
            && let (Ok(class), Ok(mask)) = (class.parse(), u32::from_str_radix(mask, 16))
        {
            masks.insert((domain, class), mask);
        }
    }
    masks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_are_read_by_domain_and_class() {
        let said = "NOTE:  Mixed use\nL3CA/MBA COS definitions for Socket 0:\n    L3CA COS0 => MASK 0x7ff\n    \
                    L3CA COS1 => MASK 0xf\n    MBA COS0 => 100% available\nL3CA/MBA COS definitions for Socket 1:\n    \
                    L3CA COS1 => MASK 0x1f\nCore information for socket 0:\n    Core 0, L2ID 0, L3ID 0 => COS0\n";
        assert_eq!(read(said), Masks::from([((0, 0), 0x7ff), ((0, 1), 0xf), ((1, 1), 0x1f)]));
    }
}
