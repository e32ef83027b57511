//! Monitoring in the emulator: counters that tests set, ids in limbo, and what `mon_data` shows.
//!
//! Source: fs/resctrl/monitor.c of the kernel, by behaviour.

use std::collections::BTreeMap;

use rustix::io::Errno;

use super::machine::MachineConfig;
use super::number;
use super::state::{CommandResult, GroupAt, State};

/// What a counter answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// A figure, in bytes.
    Value(u64),
    /// The hardware has no value yet.
    Unavailable,
    /// As `Unavailable`, for one read; then zero.
    UnavailableOnce,
    /// The hardware reports an error.
    Error,
    /// No counter is assigned to the event.
    Unassigned,
}

/// An event that can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// Bytes in the cache.
    Occupancy,
    /// Bytes moved to and from memory.
    TotalBytes,
    /// Bytes moved to and from this node's memory.
    LocalBytes,
}

impl Event {
    /// The name of its file.
    pub fn file(self) -> &'static str {
        match self {
            Self::Occupancy => "llc_occupancy",
            Self::TotalBytes => "mbm_total_bytes",
            Self::LocalBytes => "mbm_local_bytes",
        }
    }
}

/// The part of the machine that a file in `mon_data` counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// One monitoring domain.
    One(u32),
    /// All nodes of an L3 under sub-NUMA clustering.
    Sum(u32),
}

/// All counters, and which traffic the bandwidth events count.
#[derive(Debug)]
pub(super) struct Counters {
    readings: BTreeMap<(u32, u32, Event), Reading>,
    /// Per domain and event, the mask of traffic kinds (BMEC).
    configured: BTreeMap<(u32, Event), u32>,
}

/// Traffic kinds that exist (AMD).
const ALL_TRAFFIC: u32 = 0x7f;
/// Traffic kinds of `mbm_local_bytes` at boot.
const LOCAL_TRAFFIC: u32 = 0x15;

impl Counters {
    pub(super) fn new(machine: &MachineConfig) -> Self {
        let domains = machine.cpus.iter().map(|cpu| cpu.l3);
        let configured = domains
            .flat_map(|id| [((id, Event::TotalBytes), ALL_TRAFFIC), ((id, Event::LocalBytes), LOCAL_TRAFFIC)])
            .collect();
        Self { readings: BTreeMap::new(), configured }
    }

    pub(super) fn set(&mut self, rmid: u32, domain: u32, event: Event, reading: Reading) {
        self.readings.insert((rmid, domain, event), reading);
    }

    fn read(&mut self, rmid: u32, domain: u32, event: Event) -> Reading {
        let reading = self.readings.get(&(rmid, domain, event)).copied().unwrap_or(Reading::Value(0));
        if reading == Reading::UnavailableOnce {
            self.set(rmid, domain, event, Reading::Value(0));
        }
        reading
    }
}

impl State {
    /// The events this machine counts.
    pub(super) fn events(&self) -> Vec<Event> {
        let Some(monitoring) = &self.machine.monitoring else { return Vec::new() };
        let all = [
            (monitoring.occupancy, Event::Occupancy),
            (monitoring.total, Event::TotalBytes),
            (monitoring.local, Event::LocalBytes),
        ];
        all.into_iter().filter_map(|(there, event)| there.then_some(event)).collect()
    }

    /// Whether the bandwidth events can be configured; Linux 6.1 does not know how.
    pub(super) fn events_configurable(&self) -> bool {
        self.is_new_kernel() && self.machine.monitoring.as_ref().is_some_and(|monitoring| monitoring.configurable)
    }

    fn sub_numa(&self) -> bool {
        self.is_new_kernel() && self.machine.monitoring.as_ref().is_some_and(|monitoring| monitoring.sub_numa)
    }

    /// Per L3 online, its monitoring domains; the second part is empty without sub-NUMA clustering.
    pub(super) fn monitored(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut monitored: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        if self.monitors() {
            for cpu in self.machine.cpus.iter().filter(|cpu| self.online.contains(&cpu.cpu)) {
                let nodes = monitored.entry(cpu.l3).or_default();
                if self.sub_numa() && !nodes.contains(&cpu.node) {
                    nodes.push(cpu.node);
                }
            }
        }
        monitored
    }

    /// The text of one counter's file.
    pub(super) fn show_counter(&mut self, at: GroupAt, scope: Scope, event: Event) -> CommandResult<String> {
        let domains = match scope {
            Scope::One(id) => vec![id],
            Scope::Sum(l3) => self.monitored().remove(&l3).ok_or(Errno::NOENT)?,
        };
        let group = &self.groups[at.ctrl];
        let rmids = match at.mon {
            Some(mon) => vec![group.mon[mon].rmid],
            None => [group.rmid].into_iter().chain(group.mon.iter().map(|mon| mon.rmid)).collect(),
        };
        let mut sum = None;
        let mut failure = "";
        for rmid in rmids {
            for &domain in &domains {
                match self.counters.read(rmid, domain, event) {
                    Reading::Value(value) => sum = Some(sum.unwrap_or(0) + value),
                    Reading::Unavailable | Reading::UnavailableOnce => failure = "Unavailable\n",
                    Reading::Error => failure = "Error\n",
                    Reading::Unassigned => failure = "Unassigned\n",
                }
            }
        }
        Ok(sum.map_or(failure.to_owned(), |sum: u64| format!("{sum}\n")))
    }

    /// Takes the least recently used free id.
    pub(super) fn alloc_rmid(&mut self) -> CommandResult<u32> {
        if !self.monitors() {
            return Ok(0);
        }
        match self.rmid_free.pop_front() {
            Some(rmid) => Ok(rmid),
            None => {
                let errno = if self.rmid_limbo.is_empty() { Errno::NOSPC } else { Errno::BUSY };
                self.refuse(errno, "Out of RMIDs\n")
            }
        }
    }

    /// Frees an id, which stays in limbo while its lines are in a cache.
    pub(super) fn free_rmid(&mut self, rmid: u32) {
        let Some(monitoring) = &self.machine.monitoring else { return };
        if rmid == 0 {
            return;
        }
        let (occupancy, at_once) = (monitoring.occupancy, monitoring.limbo_drains_at_once);
        if occupancy {
            self.rmid_limbo.push(rmid);
            if at_once {
                self.run_limbo_worker();
            }
        } else {
            self.rmid_free.push_back(rmid);
        }
    }

    /// Frees the ids in limbo whose lines have left every cache.
    pub(super) fn run_limbo_worker(&mut self) {
        let domains: Vec<u32> = self.monitored().into_keys().collect();
        for rmid in std::mem::take(&mut self.rmid_limbo) {
            let busy = domains.iter().any(|&domain| match self.counters.read(rmid, domain, Event::Occupancy) {
                Reading::Value(bytes) => bytes > u64::from(self.threshold),
                _unreadable => true,
            });
            if busy { self.rmid_limbo.push(rmid) } else { self.rmid_free.push_back(rmid) }
        }
    }

    /// Greatest `max_threshold_occupancy`, in bytes: the whole cache.
    fn threshold_limit(&self) -> u32 {
        self.machine.l3.as_ref().map_or(0, |l3| l3.bytes)
    }

    pub(super) fn threshold_at_boot(&self) -> u32 {
        self.machine.monitoring.as_ref().map_or(0, |monitoring| {
            let share = self.threshold_limit() / monitoring.rmids.max(1);
            share - share % monitoring.scale.max(1)
        })
    }

    /// Takes a write of `max_threshold_occupancy`.
    pub(super) fn write_threshold(&mut self, text: &str) -> CommandResult<()> {
        let bytes = number::unsigned32(text, 0)?;
        if bytes > self.threshold_limit() {
            return Err(Errno::INVAL);
        }
        let scale = self.machine.monitoring.as_ref().map_or(1, |monitoring| monitoring.scale.max(1));
        self.threshold = bytes - bytes % scale;
        Ok(())
    }

    /// The text of `mbm_*_bytes_config`.
    pub(super) fn show_event_config(&self, event: Event) -> String {
        let shown = self.monitored().into_keys().map(|id| {
            let kinds = self.counters.configured.get(&(id, event)).copied().unwrap_or_default();
            format!("{id}=0x{kinds:02x}")
        });
        shown.collect::<Vec<_>>().join(";") + "\n"
    }

    /// Takes a write of `mbm_*_bytes_config`.
    pub(super) fn write_event_config(&mut self, event: Event, text: &str) -> CommandResult<()> {
        let Some(text) = text.strip_suffix('\n') else { return Err(Errno::INVAL) };
        self.clear_status();
        let mut rest = Some(text);
        while let Some(line) = rest.filter(|line| !line.is_empty()) {
            let (part, after) = line.split_once(';').map_or((line, None), |(part, after)| (part, Some(after)));
            rest = after;
            let (id, kinds) = number::strim(part)
                .split_once('=')
                .map_or((number::strim(part), None), |(id, kinds)| (id, Some(kinds)));
            let Ok(id) = number::unsigned(id, 10) else {
                return self.refuse(Errno::INVAL, "Missing '=' or non-numeric domain id\n");
            };
            let Some(kinds) = kinds.and_then(|kinds| number::unsigned(kinds, 16).ok()) else {
                return self.refuse(Errno::INVAL, "Non-numeric event configuration value\n");
            };
            if kinds & u64::from(ALL_TRAFFIC) != kinds {
                let text = format!("Invalid event configuration: max valid mask is 0x{ALL_TRAFFIC:02x}\n");
                return self.refuse(Errno::INVAL, &text);
            }
            let known = u32::try_from(id).ok().filter(|id| self.monitored().contains_key(id));
            let Some(id) = known else { return Err(Errno::INVAL) };
            if self.counters.configured.insert((id, event), kinds as u32) != Some(kinds as u32) {
                let rmids = self.machine.monitoring.as_ref().map_or(0, |monitoring| monitoring.rmids);
                for rmid in 0..rmids {
                    self.counters.set(rmid, id, Event::TotalBytes, Reading::UnavailableOnce);
                    self.counters.set(rmid, id, Event::LocalBytes, Reading::UnavailableOnce);
                }
            }
        }
        Ok(())
    }
}
