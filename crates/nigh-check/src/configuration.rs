//! A bounded world to explore: its nodes and homes, the programs, and the faults.

use nigh_protocol::{NodeNumber, Rule, Rules};
use nigh_terms::{Epoch, ShardId};

use crate::ghost::Object;

/// The first epoch of each home.
pub(crate) const FIRST_EPOCH: Epoch = Epoch(1);

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
    /// Writes an object.
    Put(Object),
    /// Deletes an object.
    Delete(Object),
    /// Learns of an outside write of an object.
    Notice(Object),
    /// Calls another invocation, which may be dispatched from then on.
    Call(u8),
}

/// How a program starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The scheduler may dispatch the program at any time.
    Client,
    /// The scheduler may dispatch the program after the program with this number has ended.
    After(u8),
    /// Another program calls this program.
    Called,
    /// A client at a node's door, not an invocation.
    Outside,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// How the program starts.
    pub origin: Origin,
    /// The nodes that it may run on, one bit each.
    pub nodes: u8,
    /// The operations, in order.
    pub steps: &'static [Step],
}

/// The most occurrences of each fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Number of lost messages.
    pub drops: u8,
    /// Number of doubled messages.
    pub doubles: u8,
    /// Number of evicted copies.
    pub evictions: u8,
    /// Number of node crashes.
    pub node_crashes: u8,
    /// Number of replaced homes.
    pub failovers: u8,
    /// Number of scheduler crashes.
    pub scheduler_crashes: u8,
    /// Number of live incarnations that a home declares dead.
    pub suspicions: u8,
    /// Number of killed invocations.
    pub kills: u8,
    /// Number of entries that a home forgets.
    pub forgets: u8,
    /// Number of dispatches that wait too long at a gate.
    pub timeouts: u8,
}

/// A bounded world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The world's name.
    pub name: &'static str,
    /// What the world tests.
    pub about: &'static str,
    /// Number of nodes.
    pub nodes: u8,
    /// Number of homes: object `o` is at home `o % homes`.
    pub homes: u8,
    /// The programs that run.
    pub programs: Vec<Program>,
    /// The cached copies at the start: (node, object).
    pub warm: &'static [(u8, Object)],
    /// The most faults of each kind.
    pub faults: Faults,
    /// True if the store is written after the ledger, and a read of the store is an event of its own.
    pub pushes: bool,
    /// True if the ledger and the home that called it are separate: each may stop while the other continues.
    pub slow_ledger: bool,
    /// True if a replaced home may continue as a former home.
    pub zombies: bool,
    /// True if a scheduler that was followed by another may continue until the other has announced itself.
    pub former_schedulers: bool,
    /// True if crashed nodes start again.
    pub restarts: bool,
    /// True if unanswered requests may be repeated even if the request or its response is still on its way.
    pub impatient: bool,
    /// True if the home of each shard is in the process of the node with its number.
    pub residents: bool,
    /// The rules, perhaps without one.
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
            former_schedulers: false,
            restarts: false,
            impatient: false,
            residents: false,
            without: MutatedRules(None),
        }
    }

    /// True if a message between the scheduler and a node can be on its way when one of them is lost. If neither can be
    /// lost, a late arrival is no different from a late departure.
    #[must_use]
    pub const fn scheduler_is_far(&self) -> bool {
        let Faults { node_crashes, scheduler_crashes, suspicions, .. } = self.faults;
        node_crashes + scheduler_crashes + suspicions > 0
    }

    /// True if this node and the home of this shard, in its first epoch, are one process.
    #[must_use]
    pub fn is_resident(&self, node: NodeNumber, shard: ShardId, epoch: Epoch) -> bool {
        self.residents && node.0 == u32::from(shard.0) && epoch == FIRST_EPOCH
    }

    /// True if acknowledgements of invalidations matter, because something may be resent or declared dead.
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

/// A program that starts as `origin` says.
#[must_use]
pub(crate) const fn begun(origin: Origin, nodes: u8, steps: &'static [Step]) -> Program {
    Program { origin, nodes, steps }
}
