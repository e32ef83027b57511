//! Sets of CPUs as the kernel lists them (`0-3,8`). Source: cpuset(7), "List format".

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The greatest CPU number of a list; more than Linux supports.
pub const CPU_MAX: u32 = 65_535;
/// A set of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuList(pub BTreeSet<u32>);

/// The text is not a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a list of CPUs; write one like 0-3,8")]
pub struct CpuListError {
    text: String,
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let wrong = || CpuListError { text: text.chars().take(200).collect() };
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |digits: &str| digits.parse().ok().filter(|&cpu: &u32| cpu <= CPU_MAX).ok_or_else(wrong);
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(wrong());
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        for &cpu in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => ranges.push((cpu, cpu)),
            }
        }
        for (at, (first, last)) in ranges.into_iter().enumerate() {
            let comma = if at == 0 { "" } else { "," };
            if first == last { write!(f, "{comma}{first}")? } else { write!(f, "{comma}{first}-{last}")? }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_with_a_wrong_part_is_refused() {
        for text in ["a", "3-1", "1-", "-", "99999999", "0-4294967295"] {
            assert!(text.parse::<CpuList>().is_err(), "{text}");
        }
        assert_eq!("\n".parse::<CpuList>().unwrap(), CpuList::default());
    }

    proptest! {
        #[test]
        fn a_printed_list_reads_back_the_same(cpus in proptest::collection::btree_set(0u32..300, 0..40)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }
    }
}
