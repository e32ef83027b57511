//! Sets of CPUs as the kernel lists them (`0-3,8`), and which CPUs share which last-level cache.
//!
//! Source: cpuset(7), "List format"; Documentation/ABI/testing/sysfs-devices-system-cpu (`cache/index*`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::path::Path;
use std::str::FromStr;

use nigh_terms::CacheDomain;

/// Greatest CPU number a list may hold: beyond what Linux can be built for.
pub const CPU_MAX: u32 = 65_535;
/// Where the kernel tells of CPUs and their caches.
pub const CPU_ROOT: &str = "/sys/devices/system/cpu";

/// A set of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuList(pub BTreeSet<u32>);

/// Why a text is no list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no list of CPUs such as 0-3,8")]
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

/// The CPUs of every last-level cache, from a directory such as [`CPU_ROOT`]. CPUs off line, or whose cache has no
/// id, are left out.
pub fn l3_domains(cpu_root: &Path) -> io::Result<BTreeMap<CacheDomain, CpuList>> {
    let mut domains: BTreeMap<CacheDomain, CpuList> = BTreeMap::new();
    for entry in fs::read_dir(cpu_root)?.flatten() {
        let name = entry.file_name();
        let digits = name.to_str().and_then(|name| name.strip_prefix("cpu"));
        let Some(cpu) = digits.and_then(|digits| digits.parse().ok()) else { continue };
        let Ok(caches) = fs::read_dir(entry.path().join("cache")) else { continue };
        for cache in caches.flatten() {
            let number = |file: &str| fs::read_to_string(cache.path().join(file)).ok()?.trim().parse::<u32>().ok();
            if let (Some(3), Some(id)) = (number("level"), number("id")) {
                domains.entry(CacheDomain(id)).or_default().0.insert(cpu);
            }
        }
    }
    Ok(domains)
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

    #[test]
    fn cpus_are_grouped_by_their_l3() {
        let root = tempfile::tempdir().unwrap();
        for cpu in 0..4 {
            for (index, level, id) in [(0, 1, cpu), (3, 3, cpu / 2)] {
                let cache = root.path().join(format!("cpu{cpu}/cache/index{index}"));
                fs::create_dir_all(&cache).unwrap();
                fs::write(cache.join("level"), format!("{level}\n")).unwrap();
                fs::write(cache.join("id"), format!("{id}\n")).unwrap();
            }
        }
        fs::create_dir_all(root.path().join("cpufreq")).unwrap();
        let domains = l3_domains(root.path()).unwrap();
        assert_eq!(domains[&CacheDomain(1)].to_string(), "2-3");
        assert_eq!(domains.len(), 2);
    }

    proptest! {
        #[test]
        fn a_printed_list_reads_back_the_same(cpus in proptest::collection::btree_set(0u32..300, 0..40)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }
    }
}
