//! The rules of the contract, each with a name, so that a test can leave one out and prove that it is needed.
//!
//! Machines ask `Rules` before they apply a rule. In production that is `Contract`, a type without fields that always
//! says yes, so that the question costs nothing. The model checker has a type that leaves one rule out, and must then
//! find a counterexample.

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
    /// A fetched copy that is older than an own write or an applied invalidation is neither cached nor served.
    Floor,
    /// A read that joined a fetch is not served a copy below the floor.
    ServeFloor,
    /// The copy of an own write is cached only if it is not below the floor.
    AckFloor,
    /// A reply counts only for the request and the attempt that it answers.
    MatchReplies,
    /// A node shows a version only when the node covers the version's token.
    CoverBeforeShow,
    /// A version's token holds the version itself.
    OwnNumber,
    /// A version's token holds what its writer had seen.
    WriterToken,
    /// A home that forgets a version's token adds the token to its summary.
    Summary,
    /// A home rejects every request of an incarnation that it has declared dead.
    RefuseGivenUp,
    /// A home that meets a newer incarnation forgets the older one first.
    NewIncarnation,
    /// A home that forgets the sharers of an object recalls their copies.
    Recall,
    /// The local node, which is in no entry's sharers, is told of each write of another node.
    TellResident,
    /// An object's entry is not forgotten while the object is looked up in the store.
    LoadHolds,
    /// A write from outside is a version like any other: the sharers are told.
    OutsideIsTold,
    /// A put that is sent twice is one put.
    RequestIds,
    /// A home takes no put that was sent in an earlier epoch: the put's answer may be forgotten.
    PutsOfThisEpoch,
    /// The end of an invocation carries the token of all that the invocation read and wrote.
    EndsCarryReads,
    /// The end of an invocation waits until the outcome of each of its puts is known.
    FateOfPuts,
    /// The invocations of a lost node are declared ended only when each home has fenced the node.
    FenceBeforeDeclare,
    /// A scheduler that starts reads every home's epoch and sequence before its first dispatch.
    RestartBarrier,
    /// A put of a client is acknowledged when the scheduler has the put's token.
    HandOver,
    /// A scheduler that follows another takes clients' tokens only when no node takes dispatches of the other any more.
    AnnounceFirst,
    /// A scheduler that starts keeps the tokens that it takes while it reads the homes.
    KeepHandedOver,
    /// A get of a client asks the home, whatever copy the node has.
    OutsideAsksHome,
}

/// Which rules hold.
pub trait Rules: Clone + Debug + Eq + Hash {
    /// True if `rule` holds.
    fn hold(&self, rule: Rule) -> bool;
}

/// Every rule holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Contract;

impl Rules for Contract {
    #[inline(always)]
    fn hold(&self, _rule: Rule) -> bool {
        true
    }
}
