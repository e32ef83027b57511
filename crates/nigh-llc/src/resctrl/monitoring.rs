//! Occupancy and bandwidth of a group, per L3, where the hardware counts them.
//!
//! A counter gives a figure or a word; a word is kept and never counts as zero. Under sub-NUMA clustering the files in
//! the L3's directory are the kernel's sums over its nodes.
//!
//! Source: Documentation/filesystems/resctrl.rst, "mon_data".

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use nigh_terms::{ByteSize, CacheDomain};

use super::fs::ResctrlFs;

/// The value of a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// A figure.
    Bytes(ByteSize),
    /// The hardware has no figure yet.
    Unavailable,
    /// The hardware reports an error.
    Error,
    /// No counter is assigned to the event.
    Unassigned,
}

impl Counter {
    /// Parses a counter's text; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "Unavailable" => Some(Self::Unavailable),
            "Error" => Some(Self::Error),
            "Unassigned" => Some(Self::Unassigned),
            figure => figure.parse().ok().map(ByteSize).map(Self::Bytes),
        }
    }

    /// The figure, if there is one.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Bytes(size) => Some(size.bytes()),
            Self::Unavailable | Self::Error | Self::Unassigned => None,
        }
    }
}

/// One L3's counters; `None` for an event this machine does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DomainCounters {
    /// Bytes in the cache now.
    pub occupancy: Option<Counter>,
    /// Bytes to and from memory, since some start.
    pub total: Option<Counter>,
    /// Bytes to and from this node's memory, since some start.
    pub local: Option<Counter>,
}

/// Bytes moved between the L3s and memory so far, by everything in a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryTraffic {
    /// Traffic with each L3's own memory; `None` if an L3 has no figure.
    pub local: Option<ByteSize>,
    /// Traffic with all memory; `None` if an L3 has no figure.
    pub total: Option<ByteSize>,
}

impl MemoryTraffic {
    /// The sum over all L3s.
    pub(super) fn of(domains: &BTreeMap<CacheDomain, DomainCounters>) -> Self {
        let sum = |event: fn(&DomainCounters) -> Option<Counter>| {
            let figures = domains.values().map(|counters| event(counters)?.bytes());
            figures.sum::<Option<u64>>().filter(|_| !domains.is_empty()).map(ByteSize)
        };
        Self { local: sum(|counters| counters.local), total: sum(|counters| counters.total) }
    }

    /// The traffic since an earlier reading: the local bytes if they were counted all the time, else all; `None` if
    /// neither was.
    #[must_use]
    pub fn since(self, before: Self) -> Option<ByteSize> {
        let grown = |before: Option<ByteSize>, now: Option<ByteSize>| now?.0.checked_sub(before?.0).map(ByteSize);
        grown(before.local, self.local).or_else(|| grown(before.total, self.total))
    }
}

/// Bytes a second between two readings of a growing counter; `None` when it did not count all the time between.
pub fn bandwidth(before: Option<Counter>, after: Option<Counter>, between: Duration) -> Option<f64> {
    let bytes = after?.bytes()?.checked_sub(before?.bytes()?)?;
    (!between.is_zero()).then(|| bytes as f64 / between.as_secs_f64())
}

/// Reads the counters of a group's directory (`""` is the root).
pub(super) fn read(fs: &dyn ResctrlFs, group: &str) -> io::Result<BTreeMap<CacheDomain, DomainCounters>> {
    let data = if group.is_empty() { "mon_data".to_owned() } else { format!("{group}/mon_data") };
    let mut domains = BTreeMap::new();
    for name in fs.list(&data)? {
        let name = name.trim_end_matches('/');
        // Newer kernels also count energy per package here.
        let Some(id) = name.strip_prefix("mon_L3_").and_then(|id| id.parse().ok()) else { continue };
        let counter = |event: &str| -> io::Result<Option<Counter>> {
            match fs.read(&format!("{data}/{name}/{event}")) {
                Ok(text) => Ok(Counter::parse(&text)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let counters = DomainCounters {
            occupancy: counter("llc_occupancy")?,
            total: counter("mbm_total_bytes")?,
            local: counter("mbm_local_bytes")?,
        };
        domains.insert(CacheDomain(id), counters);
    }
    Ok(domains)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::emulator::{Dialect, Emulator, Event, MachineConfig, MonitoringConfig, Reading};

    #[test]
    fn figures_and_words_are_told_apart() {
        let emulator = Emulator::new(MachineConfig::epyc(Dialect::Linux7));
        emulator.make_group("nigh-a").unwrap();
        emulator.set_counter("nigh-a", 0, Event::Occupancy, Reading::Value(4096)).unwrap();
        emulator.set_counter("nigh-a", 0, Event::TotalBytes, Reading::Unavailable).unwrap();
        emulator.set_counter("nigh-a", 1, Event::LocalBytes, Reading::Error).unwrap();
        emulator.set_counter("nigh-a", 1, Event::TotalBytes, Reading::Unassigned).unwrap();
        let read = read(&emulator, "nigh-a").unwrap();
        let first = read[&CacheDomain(0)];
        assert_eq!((first.occupancy, first.total), (Some(Counter::Bytes(ByteSize(4096))), Some(Counter::Unavailable)));
        let second = read[&CacheDomain(1)];
        assert_eq!((second.local, second.total), (Some(Counter::Error), Some(Counter::Unassigned)));
        assert_eq!(Counter::parse("garbage"), None);
    }

    #[test]
    fn sub_numa_nodes_are_summed_and_missing_events_are_none() {
        let mut machine = MachineConfig::silver_4210r(Dialect::Linux7);
        let monitoring = MonitoringConfig::all_events(64);
        machine.monitoring = Some(MonitoringConfig { sub_numa: true, total: false, ..monitoring });
        machine.cpus.iter_mut().for_each(|cpu| cpu.node = cpu.cpu / 5);
        let emulator = Emulator::new(machine);
        emulator.set_counter("", 0, Event::Occupancy, Reading::Value(10)).unwrap();
        emulator.set_counter("", 1, Event::Occupancy, Reading::Value(5)).unwrap();
        let read = read(&emulator, "").unwrap();
        assert_eq!(read[&CacheDomain(0)].occupancy, Some(Counter::Bytes(ByteSize(15))));
        assert_eq!(read[&CacheDomain(0)].total, None);
        assert_eq!(read.len(), 1);
    }

    #[test]
    fn traffic_is_local_where_that_is_counted_everywhere_and_all_the_time() {
        let emulator = Emulator::new(MachineConfig::epyc(Dialect::Linux7));
        let set = |domain, event, reading| emulator.set_counter("", domain, event, reading).unwrap();
        let traffic = || MemoryTraffic::of(&read(&emulator, "").unwrap());
        let before = traffic();
        assert_eq!(before, MemoryTraffic { local: Some(ByteSize(0)), total: Some(ByteSize(0)) });
        set(0, Event::LocalBytes, Reading::Value(640));
        set(1, Event::LocalBytes, Reading::Value(64));
        set(1, Event::TotalBytes, Reading::Value(1280));
        assert_eq!(traffic().since(before), Some(ByteSize(704)));
        assert_eq!(before.since(traffic()), None, "counted from anew");
        set(0, Event::LocalBytes, Reading::Unavailable);
        assert_eq!(traffic().since(before), Some(ByteSize(1280)));
        set(0, Event::TotalBytes, Reading::Unassigned);
        assert_eq!(traffic().since(before), None);
        assert_eq!(MemoryTraffic::of(&BTreeMap::new()), MemoryTraffic::default());
    }

    #[test]
    fn bandwidth_needs_two_figures_that_grow() {
        let (a, b) = (Some(Counter::Bytes(ByteSize(100))), Some(Counter::Bytes(ByteSize(300))));
        assert_eq!(bandwidth(a, b, Duration::from_secs(2)), Some(100.0));
        assert_eq!(bandwidth(b, a, Duration::from_secs(2)), None);
        assert_eq!(bandwidth(a, Some(Counter::Unavailable), Duration::from_secs(2)), None);
        assert_eq!(bandwidth(a, b, Duration::ZERO), None);
    }
}
