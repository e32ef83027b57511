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
use serde::{Deserialize, Serialize};

/// Sandboxes known at a time, counted or not; one more is not counted while it lives.
const KNOWN_MAX: usize = 4096;
/// Most sandboxes counted, however many monitoring ids a machine has: each is read every second.
const COUNTED_MAX: usize = 256;

/// Why there is no figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
mod tests {
    use std::time::Duration;

    use nigh_terms::ByteSize;

    use super::*;
    use nigh_functions::test_support::function;

    const SECOND: u64 = 1_000_000_000;

    fn tasks(name: &str) -> Members {
        Members::Cgroup(name.into())
    }

    fn readings(occupancy: Counter, local: u64) -> Readings {
        let counters =
            DomainCounters { occupancy: Some(occupancy), total: None, local: Some(Counter::Bytes(ByteSize(local))) };
        BTreeMap::from([(CacheDomain(0), counters)])
    }

    fn bytes(bytes: u64) -> Counter {
        Counter::Bytes(ByteSize(bytes))
    }

    fn monitored(renamed: bool) -> BindResult {
        BindResult { monitored: true, renamed, ..BindResult::default() }
    }

    /// One counted sandbox of `f` in class 3, and its place.
    fn counted() -> (CountedSandboxes, CountedPlace) {
        let mut counted = CountedSandboxes::new(2);
        counted.watch(&tasks("a"), SandboxId::random(), &function("f"));
        assert_eq!(counted.monitor_of(&tasks("a")), None, "its group does not stand yet");
        counted.moved(&tasks("a"), ClosId(3), &BindResult::default());
        let place = counted.unmade().remove(0);
        assert!(place.clos == ClosId(3) && counted.is_unmade(&place));
        counted.moved(&place.tasks, ClosId(3), &monitored(false));
        assert_eq!(counted.standing(), std::slice::from_ref(&place));
        (counted, place)
    }

    #[test]
    fn two_readings_a_second_apart_are_bytes_a_second() {
        let (mut counted, place) = counted();
        counted.take(&place, Monotonic(SECOND), readings(bytes(4096), 1000));
        let first = counted.by_function().remove(0);
        assert_eq!(first.occupancy_bytes, UseFigure::Figure(4096));
        assert_eq!(first.local_bytes_per_s, UseFigure::Word(NoFigure::NotYet));
        counted.take(&place, Monotonic(3 * SECOND), readings(bytes(0), 5000));
        let second = counted.by_function().remove(0);
        assert_eq!((second.occupancy_bytes, second.local_bytes_per_s), (UseFigure::Figure(0), UseFigure::Figure(2000)));
        assert_eq!(second.total_bytes_per_s, UseFigure::Word(NoFigure::NotCounted));
        assert_eq!(Monotonic(3 * SECOND).since(Monotonic(SECOND)), Duration::from_secs(2));
    }

    #[test]
    fn sandboxes_of_one_function_are_summed_and_a_word_stands_only_where_no_figure_does() {
        let (mut counted, first) = counted();
        counted.watch(&tasks("b"), SandboxId::random(), &function("f"));
        let second = counted.unmade().remove(0);
        counted.moved(&second.tasks, second.clos, &monitored(false));
        counted.take(&first, Monotonic(1), readings(Counter::Unavailable, 1));
        assert_eq!(counted.by_function()[0].occupancy_bytes, UseFigure::Word(NoFigure::Unavailable));
        counted.take(&second, Monotonic(1), readings(bytes(70), 1));
        let all = counted.by_function();
        assert_eq!((all.len(), all[0].sandboxes, all[0].occupancy_bytes), (1, 2, UseFigure::Figure(70)));
    }

    #[test]
    fn a_sandbox_beyond_the_limit_waits_until_another_has_ended() {
        let (mut counted, first) = counted();
        for name in ["b", "c"] {
            counted.watch(&tasks(name), SandboxId::random(), &function("g"));
        }
        let second = counted.unmade();
        assert_eq!(second.len(), 1, "two at most, and one stands");
        counted.moved(&second[0].tasks, second[0].clos, &monitored(false));
        assert!(counted.unmade().is_empty());
        let g = counted.by_function().remove(1);
        assert_eq!((g.sandboxes, g.counted), (2, 1));
        counted.forget(&first.tasks);
        assert_eq!(counted.unmade().len(), 1);
    }

    #[test]
    fn a_renamed_group_counts_on_and_a_new_one_from_anew() {
        for (renamed, expected) in [(true, UseFigure::Figure(100)), (false, UseFigure::Word(NoFigure::NotYet))] {
            let (mut counted, place) = counted();
            counted.take(&place, Monotonic(SECOND), readings(bytes(1), 100));
            assert!(counted.monitor_of(&place.tasks).is_some());
            counted.moved(&place.tasks, ClosId(5), &monitored(renamed));
            // What was read in the class that it left says nothing.
            counted.take(&place, Monotonic(2 * SECOND), readings(bytes(9), 900));
            assert_eq!(counted.by_function()[0].occupancy_bytes, UseFigure::Figure(1));
            let there = counted.standing().remove(0);
            counted.take(&there, Monotonic(2 * SECOND), readings(bytes(2), 200));
            assert_eq!(counted.by_function()[0].local_bytes_per_s, expected);
        }
    }

    #[test]
    fn who_was_in_a_class_that_is_gone_gets_a_new_group_in_the_default_class() {
        let (mut counted, place) = counted();
        counted.removed(|clos| clos == ClosId(3));
        assert_eq!(counted.unmade(), [CountedPlace { clos: ClosId::DEFAULT, ..place.clone() }]);
        counted.astray(&place.tasks);
        assert!(counted.unmade().is_empty() && counted.standing().is_empty(), "nobody knows where it is");
        assert_eq!(counted.forget(&place.tasks), Some(place.monitor));
        assert!(counted.by_function().is_empty());
    }

    #[test]
    fn a_figure_is_a_number_in_json_and_a_word_a_text() {
        let figures = [UseFigure::Figure(7), UseFigure::Word(NoFigure::Unavailable), UseFigure::Word(NoFigure::NotYet)];
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(text, r#"[7,"Unavailable","not yet"]"#);
        assert_eq!(serde_json::from_str::<Vec<UseFigure>>(&text).unwrap(), figures);
    }
}
