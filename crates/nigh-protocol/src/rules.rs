//! The rules of the contract by name, so that each can be taken away and be seen to be missed.
//!
//! Machines ask `Rules` before they apply one. In production that is `Contract`, a type without a value that
//! always says yes: the question costs nothing and cannot be answered otherwise. The model checker brings a type
//! of its own that leaves one rule out, and must then find a counterexample.

use std::fmt::Debug;
use std::hash::Hash;

/// One rule of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// A dispatch begins only when the node covers its token.
    Gate,
    /// A dispatch begins only on the incarnation it names.
    NamedIncarnation,
    /// A claim counts when all invalidations up to its counter have been applied, not the highest alone.
    ContiguousPrefix,
    /// A version of a higher epoch is not covered by sequences of a lower one.
    EpochInTokens,
    /// A higher epoch drops the copies of the lower ones.
    EpochFlush,
    /// A fetched copy older than an own write or an applied invalidation is neither kept nor served.
    Floor,
    /// Those who joined a fetch are not served a copy below the floor.
    ServeFloor,
    /// The copy of an own write is kept only if it is not below the floor.
    AckFloor,
    /// A reply counts only for the request and attempt it answers.
    MatchReplies,
    /// What reveals a version is shown only when the node covers the version's token.
    CoverBeforeShow,
    /// A version's token holds the version itself.
    OwnNumber,
    /// A version's token holds what its writer had seen.
    WriterToken,
    /// A version's token is forgotten into the summary only.
    Summary,
    /// A home refuses every request of an incarnation that it gave up.
    RefuseGivenUp,
    /// A home that meets a newer incarnation forgets the older one first.
    NewIncarnation,
    /// A home that forgets who has copies recalls them.
    Recall,
    /// The node in whose process a home is, of whose copies no entry speaks, is told of each write of another.
    TellResident,
    /// What is known of an object is not forgotten while a look into the store for it is under way.
    LoadHolds,
    /// What somebody else has written is a version like any other: those who have copies are told.
    OutsideIsTold,
    /// A put asked for again is one put.
    RequestIds,
    /// A put sent in an earlier epoch is not taken: its answer may be forgotten.
    PutsOfThisEpoch,
    /// The end of an invocation carries what it read, not only what it wrote.
    EndsCarryReads,
    /// An end waits for the fate of each put.
    FateOfPuts,
    /// The invocations of a lost node are declared ended only when each home has fenced it.
    FenceBeforeDeclare,
    /// A scheduler that starts reads every home's epoch and sequence before its first dispatch.
    RestartBarrier,
    /// A put from outside is acknowledged when its token is with the scheduler.
    HandOver,
    /// A get from outside asks the home, whatever copy the node has.
    OutsideAsksHome,
}

/// Which rules hold.
pub trait Rules: Clone + Debug + Eq + Hash {
    /// True if `rule` holds.
    fn hold(&self, rule: Rule) -> bool;
}

/// All of them, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contract;

impl Rules for Contract {
    #[inline(always)]
    fn hold(&self, _rule: Rule) -> bool {
        true
    }
}
