//! A world to explore: its nodes and homes, what runs on them, and which faults happen, all bounded.

use nigh_protocol::{NodeNumber, Rule, Rules};
use nigh_terms::{Epoch, ShardId};

use crate::ghost::Object;

/// The first epoch of each home.
pub(crate) const FIRST_REIGN: Epoch = Epoch(1);

/// All rules, or all but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MutatedRules(pub Option<Rule>);

impl Rules for MutatedRules {
    fn hold(&self, rule: Rule) -> bool {
        self.0 != Some(rule)
    }
}

/// One operation of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reads an object.
    Get(Object),
    /// Writes it.
    Put(Object),
    /// Deletes it.
    Delete(Object),
    /// Notices that it was written outside.
    Notice(Object),
    /// Calls another invocation, which may be dispatched from then on.
    Call(u8),
}

/// How a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The scheduler dispatches it, whenever.
    Client,
    /// The scheduler dispatches it when the program of this number has ended.
    After(u8),
    /// Another program calls it.
    Called,
    /// A client at a node's door, not an invocation.
    Outside,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// How it starts.
    pub origin: Origin,
    /// The nodes that it may run on, one bit each.
    pub nodes: u8,
    /// What it does.
    pub steps: &'static [Step],
}

/// The most occurrences of each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Messages lost.
    pub drops: u8,
    /// Messages doubled.
    pub doubles: u8,
    /// Copies evicted.
    pub evictions: u8,
    /// Nodes that crash.
    pub node_crashes: u8,
    /// Homes replaced.
    pub failovers: u8,
    /// Schedulers that crash.
    pub scheduler_crashes: u8,
    /// Live incarnations that a home declares dead.
    pub suspicions: u8,
    /// Invocations killed.
    pub kills: u8,
    /// Entries forgotten by a home.
    pub forgets: u8,
    /// Dispatches that wait too long at a gate.
    pub timeouts: u8,
}

/// A bounded world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// Its name.
    pub name: &'static str,
    /// What it is about.
    pub about: &'static str,
    /// How many nodes.
    pub nodes: u8,
    /// How many homes: object `o` is at home `o % homes`.
    pub homes: u8,
    /// What runs.
    pub programs: Vec<Program>,
    /// The cached copies at the start: (node, object).
    pub warm: &'static [(u8, Object)],
    /// What strikes.
    pub faults: Faults,
    /// The store is written behind the ledger, and read apart from what reads it.
    pub pushes: bool,
    /// The ledger and the home that called it are separate: each may stop while the other continues.
    pub slow_ledger: bool,
    /// Homes that were replaced go on as if they were not.
    pub zombies: bool,
    /// Nodes that crash come back.
    pub restarts: bool,
    /// Outstanding requests may be repeated even if the request or its response is still on its way.
    pub impatient: bool,
    /// The home of each shard is in the process of the node of its number.
    pub residents: bool,
    /// The one rule that is left out.
    pub without: MutatedRules,
}

impl Configuration {
    /// A world without faults, in which `programs` run.
    #[must_use]
    pub fn new(name: &'static str, about: &'static str, nodes: u8, homes: u8, programs: Vec<Program>) -> Self {
        Self {
            name,
            about,
            nodes,
            homes,
            programs,
            warm: &[],
            faults: Faults::default(),
            pushes: false,
            slow_ledger: false,
            zombies: false,
            restarts: false,
            impatient: false,
            residents: false,
            without: MutatedRules(None),
        }
    }

    /// True if what the scheduler and a node say to each other can be on its way when one of them is lost. Where
    /// neither can be, a late arrival is no different from a late departure.
    #[must_use]
    pub const fn scheduler_is_far(&self) -> bool {
        let Faults { node_crashes, scheduler_crashes, suspicions, .. } = self.faults;
        node_crashes + scheduler_crashes + suspicions > 0
    }

    /// Whether this node and the home of this shard, in its first epoch, are one process.
    #[must_use]
    pub fn is_resident(&self, node: NodeNumber, shard: ShardId, epoch: Epoch) -> bool {
        self.residents && node.0 == u32::from(shard.0) && epoch == FIRST_REIGN
    }

    /// Whether acknowledgements of invalidations matter: something may be resent or declared dead.
    #[must_use]
    pub const fn repeats(&self) -> bool {
        let Faults { drops, node_crashes, failovers, scheduler_crashes, suspicions, .. } = self.faults;
        drops + node_crashes + failovers + scheduler_crashes + suspicions > 0
    }
}

/// A program that clients dispatch, to any of `nodes`.
#[must_use]
pub(crate) const fn invoked(nodes: u8, steps: &'static [Step]) -> Program {
    Program { origin: Origin::Client, nodes, steps }
}

/// A program that begins as `origin` says.
#[must_use]
pub(crate) const fn begun(origin: Origin, nodes: u8, steps: &'static [Step]) -> Program {
    Program { origin, nodes, steps }
}
