//! The faults of a storm: their kinds, their times, and how often each occurred.

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Messages are lost.
    MessageLost,
    /// Messages arrive twice, the second one late.
    MessageDoubled,
    /// Messages are late, so that messages sent seconds later overtake them.
    MessageLate,
    /// Two groups of machines cannot reach each other.
    Partition,
    /// One group cannot reach the other, which can reach it.
    OneWayPartition,
    /// A machine pauses, and handles all received messages when it continues.
    Pause,
    /// A clock jumps ahead.
    ClockJump,
    /// A clock runs up to a tenth too fast or too slowly.
    ClockSkew,
    /// A node crashes, with the homes in it, and starts again.
    NodeCrash,
    /// A home crashes and is replaced.
    HomeCrash,
    /// A home is replaced and continues as a former home.
    ZombieHome,
    /// A scheduler crashes, and its successor takes over.
    SchedulerCrash,
    /// A home declares a live node dead.
    Suspicion,
    /// A live node is taken for lost: it is fenced, and its invocations are declared ended.
    FalseLoss,
    /// An invocation is killed.
    Kill,
    /// Copies are evicted.
    Eviction,
    /// A home forgets some of its forgettable objects.
    Forgetting,
    /// The ledger crashes; a prefix of the unsynced records survives.
    LedgerTorn,
    /// The ledger's answers are lost.
    LedgerSilent,
    /// The ledger has no room.
    LedgerFull,
    /// The store refuses calls and executes nothing.
    StoreRefuses,
    /// The store executes a call and does not respond.
    StoreSilent,
    /// The store does not respond, and executes the call seconds later.
    StoreLate,
    /// The store is down.
    StoreDown,
    /// Somebody outside writes into the store.
    OutsideWrite,
    /// The ledger executes requests to append seconds later, or answers them seconds after it has executed them. The
    /// home may have been replaced by then.
    LedgerLate,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 26] = [
        Self::MessageLost,
        Self::MessageDoubled,
        Self::MessageLate,
        Self::Partition,
        Self::OneWayPartition,
        Self::Pause,
        Self::ClockJump,
        Self::ClockSkew,
        Self::NodeCrash,
        Self::HomeCrash,
        Self::ZombieHome,
        Self::SchedulerCrash,
        Self::Suspicion,
        Self::FalseLoss,
        Self::Kill,
        Self::Eviction,
        Self::Forgetting,
        Self::LedgerTorn,
        Self::LedgerSilent,
        Self::LedgerFull,
        Self::StoreRefuses,
        Self::StoreSilent,
        Self::StoreLate,
        Self::StoreDown,
        Self::OutsideWrite,
        Self::LedgerLate,
    ];

    /// The kind's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MessageLost => "message-lost",
            Self::MessageDoubled => "message-doubled",
            Self::MessageLate => "message-late",
            Self::Partition => "partition",
            Self::OneWayPartition => "one-way-partition",
            Self::Pause => "pause",
            Self::ClockJump => "clock-jump",
            Self::ClockSkew => "clock-skew",
            Self::NodeCrash => "node-crash",
            Self::HomeCrash => "home-crash",
            Self::ZombieHome => "zombie-home",
            Self::SchedulerCrash => "scheduler-crash",
            Self::Suspicion => "suspicion",
            Self::FalseLoss => "false-loss",
            Self::Kill => "kill",
            Self::Eviction => "eviction",
            Self::Forgetting => "forgetting",
            Self::LedgerTorn => "ledger-torn",
            Self::LedgerSilent => "ledger-silent",
            Self::LedgerFull => "ledger-full",
            Self::StoreRefuses => "store-refuses",
            Self::StoreSilent => "store-silent",
            Self::StoreLate => "store-late",
            Self::StoreDown => "store-down",
            Self::OutsideWrite => "outside-write",
            Self::LedgerLate => "ledger-late",
        }
    }
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins, in milliseconds of the storm's time.
    pub at_ms: u64,
    /// The fault's duration in milliseconds; 0 for an instant fault.
    pub lasts_ms: u64,
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The fault's target and strength, drawn with the plan.
    pub pick: u64,
}

/// The count of each kind of fault: each lost message, each crashed node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Strikes([u64; FaultKind::ALL.len()]);

impl Strikes {
    /// Counts one fault of `kind`.
    pub(super) const fn add(&mut self, kind: FaultKind) {
        self.0[kind as usize] += 1;
    }

    /// Adds all counts of `other`.
    pub fn join(&mut self, other: &Self) {
        for (sum, more) in self.0.iter_mut().zip(other.0) {
            *sum += more;
        }
    }

    /// The sum over all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The count of each kind.
    pub fn iter(&self) -> impl Iterator<Item = (FaultKind, u64)> + '_ {
        FaultKind::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_place_and_name() {
        let mut strikes = Strikes::default();
        FaultKind::ALL.iter().for_each(|kind| strikes.add(*kind));
        assert!(strikes.iter().all(|(_, count)| count == 1), "{strikes:?}");
        let names: std::collections::BTreeSet<&str> = FaultKind::ALL.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), FaultKind::ALL.len());
    }
}
