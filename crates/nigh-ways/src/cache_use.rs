//! Counts the cache use of sandboxes and sums it by function. Pure.
//!
//! A counted sandbox has its own monitoring group below its class's group; the group follows the sandbox from class to
//! class. Monitoring ids are scarce, so at most a fixed number of sandboxes have one. Further sandboxes run uncounted
//! until one of those has ended. A counter gives a figure or a word (Documentation/filesystems/resctrl.rst,
//! "mon_data"); a word is shown as such, never as zero.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use nigh_functions::function::Function;
use nigh_llc::resctrl::{BindResult, Counter, DomainCounters, GroupName, Members, Probe, bandwidth};
use nigh_terms::{CacheDomain, ClosId, FunctionName, Monotonic, Namespace, SandboxId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sandboxes known at a time, counted or not; one more is not counted while it lives.
const KNOWN_MAX: usize = 4096;
/// Most sandboxes counted, however many monitoring ids a machine has: each is read every second.
const COUNTED_MAX: usize = 256;

/// Why there is no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum NoFigure {
    /// This machine does not count the event.
    #[serde(rename = "not counted")]
    NotCounted,
    /// A rate needs another reading.
    #[serde(rename = "not yet")]
    NotYet,
    /// No counter is assigned to the event.
    Unassigned,
    /// The hardware has no figure now.
    Unavailable,
    /// The hardware reports an error.
    Error,
}

impl fmt::Display for NoFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotCounted => "not counted",
            Self::NotYet => "not yet",
            Self::Unassigned => "Unassigned",
            Self::Unavailable => "Unavailable",
            Self::Error => "Error",
        })
    }
}

/// A counter's figure, or the word instead of it; in JSON a number or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum UseFigure {
    /// Bytes, or bytes a second.
    Figure(u64),
    /// Why not.
    Word(NoFigure),
}

impl From<Option<Counter>> for UseFigure {
    fn from(counter: Option<Counter>) -> Self {
        match counter {
            Some(Counter::Bytes(size)) => Self::Figure(size.bytes()),
            Some(Counter::Unavailable) => Self::Word(NoFigure::Unavailable),
            Some(Counter::Unassigned) => Self::Word(NoFigure::Unassigned),
            Some(Counter::Error) => Self::Word(NoFigure::Error),
            None => Self::Word(NoFigure::NotCounted),
        }
    }
}

impl UseFigure {
    /// The sum of the figures in `parts`, as the kernel sums a class's groups. A word only if there is no figure: the
    /// most informative one.
    fn sum(parts: impl Iterator<Item = Self>) -> Self {
        let (mut sum, mut word) = (None, NoFigure::NotCounted);
        for part in parts {
            match part {
                Self::Figure(figure) => sum = Some(sum.unwrap_or(0_u64).saturating_add(figure)),
                Self::Word(other) => word = word.max(other),
            }
        }
        sum.map_or(Self::Word(word), Self::Figure)
    }
}

/// A function's use of the cache, over all its counted sandboxes and all caches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FunctionUse {
    /// Whose.
    pub namespace: Namespace,
    /// Which.
    pub function: FunctionName,
    /// Its sandboxes.
    pub sandboxes: usize,
    /// The sandboxes with a monitoring group.
    pub counted: usize,
    /// Bytes in the cache.
    pub occupancy_bytes: UseFigure,
    /// Bytes a second to and from this node's memory.
    pub local_bytes_per_s: UseFigure,
    /// Bytes a second to and from all memory.
    pub total_bytes_per_s: UseFigure,
}

/// The most sandboxes that are counted on a machine: half of the ids that the classes leave, since a freed id is
/// reusable only when its lines have left the cache. 0 if the machine cannot count.
pub(super) fn counted_max(probe: &Probe) -> usize {
    let Some(monitoring) = &probe.monitoring else { return 0 };
    let left = (monitoring.rmids as usize).saturating_sub(probe.closids.total);
    (left / 2).min(COUNTED_MAX)
}

/// All counters of one sandbox.
pub(super) type Readings = BTreeMap<CacheDomain, DomainCounters>;

/// The sandboxes, counted and waiting to be.
pub(super) struct CountedSandboxes {
    max: usize,
    sandboxes: HashMap<Members, MonitoredSandbox>,
    /// Some sandbox was not taken in: one that is new here may have been moved before.
    overflowed: bool,
}

struct MonitoredSandbox {
    namespace: Namespace,
    function: FunctionName,
    monitor: GroupName,
    /// Its class; none if that is not known.
    clos: Option<ClosId>,
    /// Whether its monitoring group exists below that class.
    stands: bool,
    last: Option<(Monotonic, Readings)>,
    figures: Figures,
}

#[derive(Clone, Copy)]
struct Figures {
    occupancy: UseFigure,
    local: UseFigure,
    total: UseFigure,
}

const NOT_YET: Figures = Figures {
    occupancy: UseFigure::Word(NoFigure::NotYet),
    local: UseFigure::Word(NoFigure::NotYet),
    total: UseFigure::Word(NoFigure::NotYet),
};

/// A counted sandbox's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CountedPlace {
    pub(super) tasks: Members,
    pub(super) clos: ClosId,
    pub(super) monitor: GroupName,
}

impl CountedSandboxes {
    /// No sandbox, and at most `max` counted ones.
    pub(super) fn new(max: usize) -> Self {
        Self { max, sandboxes: HashMap::new(), overflowed: false }
    }

    /// Whether anything can be counted at all.
    pub(super) const fn can_count(&self) -> bool {
        self.max > 0
    }

    /// Whether no sandbox is known.
    pub(super) fn is_empty(&self) -> bool {
        self.sandboxes.is_empty()
    }

    /// Registers a sandbox at its first invocation, before it is put into a class.
    pub(super) fn watch(&mut self, tasks: &Members, sandbox: SandboxId, function: &Function) {
        if self.sandboxes.contains_key(tasks) {
            return;
        }
        if self.sandboxes.len() >= KNOWN_MAX {
            self.overflowed = true;
            return;
        }
        let Ok(monitor) = GroupName::new(format!("nigh-box-{sandbox}")) else { return };
        let (namespace, function) = (function.namespace.clone(), function.name.clone());
        // A sandbox is born in the default class.
        let clos = (!self.overflowed).then_some(ClosId::DEFAULT);
        let counted =
            MonitoredSandbox { namespace, function, monitor, clos, stands: false, last: None, figures: NOT_YET };
        self.sandboxes.insert(tasks.clone(), counted);
    }

    /// The monitoring group that moves with the sandbox. A sandbox without one gets it later from the sampler.
    pub(super) fn monitor_of(&self, tasks: &Members) -> Option<GroupName> {
        let counted = self.sandboxes.get(tasks)?;
        counted.stands.then(|| counted.monitor.clone())
    }

    /// A sandbox was moved to a class, with the monitoring group that it had.
    pub(super) fn moved(&mut self, tasks: &Members, clos: ClosId, bound: &BindResult) {
        let Some(counted) = self.sandboxes.get_mut(tasks) else { return };
        // A new monitoring id starts at zero; a renamed group keeps its id.
        if counted.clos != Some(clos) && !bound.renamed {
            counted.last = None;
        }
        counted.clos = Some(clos);
        counted.stands = bound.monitored;
    }

    /// A move failed: the sandbox's class is unknown.
    pub(super) fn astray(&mut self, tasks: &Members) {
        if let Some(counted) = self.sandboxes.get_mut(tasks) {
            (counted.clos, counted.stands, counted.last) = (None, false, None);
        }
    }

    /// Classes were removed with their monitoring groups. Their sandboxes are in the default class.
    pub(super) fn removed(&mut self, is_gone: impl Fn(ClosId) -> bool) {
        for counted in self.sandboxes.values_mut().filter(|counted| counted.clos.is_some_and(&is_gone)) {
            (counted.clos, counted.stands, counted.last) = (Some(ClosId::DEFAULT), false, None);
        }
    }

    /// Sandboxes that need a monitoring group, up to the limit.
    pub(super) fn unmade(&self) -> Vec<CountedPlace> {
        let mut unmade = self.places(false);
        let standing = self.sandboxes.values().filter(|counted| counted.stands).count();
        unmade.truncate(self.max.saturating_sub(standing));
        unmade
    }

    /// Whether a sandbox is still registered and has no monitoring group.
    pub(super) fn is_unmade(&self, place: &CountedPlace) -> bool {
        self.sandboxes.get(&place.tasks).is_some_and(|counted| !counted.stands && counted.clos == Some(place.clos))
    }

    /// Sandboxes that can be read.
    pub(super) fn standing(&self) -> Vec<CountedPlace> {
        self.places(true)
    }

    fn places(&self, stands: bool) -> Vec<CountedPlace> {
        let wanted = self.sandboxes.iter().filter(|(_, counted)| counted.stands == stands);
        let place = |(tasks, counted): (&Members, &MonitoredSandbox)| {
            Some(CountedPlace { tasks: tasks.clone(), clos: counted.clos?, monitor: counted.monitor.clone() })
        };
        wanted.filter_map(place).collect()
    }

    /// All sandboxes.
    pub(super) fn all(&self) -> Vec<Members> {
        self.sandboxes.keys().cloned().collect()
    }

    /// Forgets an ended sandbox. Returns the name of its monitoring group, which may still exist.
    pub(super) fn forget(&mut self, tasks: &Members) -> Option<GroupName> {
        self.sandboxes.remove(tasks).map(|counted| counted.monitor)
    }

    /// Takes a reading. A reading of a class that the sandbox has left is ignored.
    pub(super) fn take(&mut self, of: &CountedPlace, at: Monotonic, now: Readings) {
        let Some(counted) = self.sandboxes.get_mut(&of.tasks) else { return };
        if !counted.stands || counted.clos != Some(of.clos) {
            return;
        }
        let occupancy = UseFigure::sum(now.values().map(|counters| counters.occupancy.into()));
        let last = counted.last.take();
        let rate = |event: fn(&DomainCounters) -> Option<Counter>| {
            UseFigure::sum(now.iter().map(|(domain, counters)| {
                let before = last.as_ref().and_then(|(since, before)| Some((*since, event(before.get(domain)?))));
                rate(before, at, event(counters))
            }))
        };
        counted.figures =
            Figures { occupancy, local: rate(|counters| counters.local), total: rate(|counters| counters.total) };
        counted.last = Some((at, now));
    }

    /// The cache use of each function, by name.
    pub(super) fn by_function(&self) -> Vec<FunctionUse> {
        let mut functions: BTreeMap<(&Namespace, &FunctionName), Vec<&MonitoredSandbox>> = BTreeMap::new();
        for counted in self.sandboxes.values() {
            functions.entry((&counted.namespace, &counted.function)).or_default().push(counted);
        }
        let of_function = |((namespace, function), all): ((&Namespace, &FunctionName), Vec<&MonitoredSandbox>)| {
            let standing = || all.iter().filter(|counted| counted.stands);
            let sum =
                |part: fn(&Figures) -> UseFigure| UseFigure::sum(standing().map(|counted| part(&counted.figures)));
            FunctionUse {
                namespace: namespace.clone(),
                function: function.clone(),
                sandboxes: all.len(),
                counted: standing().count(),
                occupancy_bytes: sum(|figures| figures.occupancy),
                local_bytes_per_s: sum(|figures| figures.local),
                total_bytes_per_s: sum(|figures| figures.total),
            }
        };
        functions.into_iter().map(of_function).collect()
    }
}

/// Bytes a second of a growing counter; the counter's own word if it has one.
fn rate(before: Option<(Monotonic, Option<Counter>)>, at: Monotonic, now: Option<Counter>) -> UseFigure {
    let UseFigure::Figure(_) = UseFigure::from(now) else { return now.into() };
    let rate = before.and_then(|(since, before)| bandwidth(before, now, at.since(since)));
    rate.map_or(UseFigure::Word(NoFigure::NotYet), |rate| UseFigure::Figure(rate.round() as u64))
}

#[cfg(test)]
mod tests;
