//! What an invocation needed, from its record: a row to learn from, or none. Pure.
//!
//! A peak is a need where the handler answered and nothing held it back. One that came to its limit, or ended in any other
//! way, needed at least its peak: it is learned from only where that is more than was foretold. Page cache is given back
//! under pressure and is no need, but a function without any would read its files again and again: so much of it as
//! [`PAGE_CACHE_ROOM`] counts as need, the rest does not.

use nigh_learn::{FeatureRow, PhaseTimes, TrainingRow};
use nigh_schedule::activation::{Activation, Outcome};
use nigh_terms::ByteSize;

/// Page cache that a grant has room for, if runs were seen to use it.
pub(super) const PAGE_CACHE_ROOM: ByteSize = ByteSize::mib(32);
/// The row that `activation` gives, of which the model said `said`; none if nothing is to be learned from it.
pub(super) fn row(
    activation: &Activation,
    features: FeatureRow,
    times: Option<PhaseTimes>,
    said: Option<ByteSize>,
) -> Option<TrainingRow> {
    let measured = activation.peak_memory?;
    let page_cache = activation.memory.page_cache.unwrap_or(ByteSize::ZERO);
    let peak = measured.saturating_sub(page_cache.saturating_sub(PAGE_CACHE_ROOM));
    let answered = activation.outcome == Outcome::Answered;
    let touched_limit = !answered || held_back(activation);
    if touched_limit && said.is_some_and(|said| said >= peak) {
        return None;
    }
    // What failed before it could need anything tells nothing.
    if !answered && said.is_none() && activation.outcome != Outcome::OutOfMemory {
        return None;
    }
    let input = features.fingerprint();
    let times = times.filter(|_| answered);
    Some(TrainingRow { features, peak, touched_limit, page_cache, missed: false, input, times })
}

/// True if there is reason to think that it would have used more. One whose limit was raised had what it needed.
fn held_back(activation: &Activation) -> bool {
    let memory = &activation.memory;
    let at_grant = memory.came_short && memory.grown == 0;
    memory.reached_booked || at_grant || activation.outcome == Outcome::OutOfMemory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory_sizing::tests::activation;
    use nigh_schedule::activation::MemoryUse;

    fn of(activation: &Activation, said: Option<u64>) -> Option<TrainingRow> {
        row(activation, FeatureRow::default(), None, said.map(ByteSize::mib))
    }

    fn ended(peak: u64, outcome: Outcome) -> Activation {
        Activation { peak_memory: Some(ByteSize::mib(peak)), outcome, ..activation() }
    }

    #[test]
    fn a_peak_is_a_need_where_the_handler_answered_within_its_limits() {
        let row = of(&ended(40, Outcome::Answered), Some(100)).unwrap();
        assert_eq!((row.peak, row.touched_limit), (ByteSize::mib(40), false));
        assert_eq!(of(&Activation { peak_memory: None, ..activation() }, None), None);
    }

    #[test]
    fn what_came_to_its_limit_or_failed_is_a_lower_bound_and_counts_where_it_is_more_than_was_said() {
        let booked = Activation {
            memory: MemoryUse { reached_booked: true, ..MemoryUse::default() },
            ..ended(128, Outcome::Answered)
        };
        assert!(of(&booked, None).unwrap().touched_limit);
        assert_eq!(of(&booked, Some(200)), None);
        let short = MemoryUse { came_short: true, ..MemoryUse::default() };
        let granted = Activation { granted: ByteSize::mib(64), memory: short, ..ended(64, Outcome::Answered) };
        assert!(of(&granted, Some(60)).unwrap().touched_limit);
        assert_eq!(of(&granted, Some(64)), None);
        let within = Activation { memory: MemoryUse::default(), ..granted.clone() };
        assert!(!of(&within, Some(64)).unwrap().touched_limit, "its limit is a headroom above its grant");
        let grown = Activation { memory: MemoryUse { grown: 1, ..short }, ..granted };
        assert!(!of(&grown, Some(60)).unwrap().touched_limit, "it had what it needed in the end");
        assert!(of(&ended(128, Outcome::OutOfMemory), None).unwrap().touched_limit);
        assert_eq!(of(&ended(40, Outcome::TimedOut), None), None);
        assert_eq!(of(&ended(40, Outcome::TimedOut), Some(50)), None);
        assert!(of(&ended(60, Outcome::TimedOut), Some(50)).unwrap().touched_limit);
    }

    #[test]
    fn page_cache_is_no_need_beyond_its_room() {
        let with = |page_cache| {
            let memory = MemoryUse { page_cache: Some(ByteSize::mib(page_cache)), ..MemoryUse::default() };
            of(&Activation { memory, ..ended(100, Outcome::Answered) }, None).unwrap()
        };
        assert_eq!(with(10).peak, ByteSize::mib(100));
        assert_eq!(with(72).peak, ByteSize::mib(60));
        assert_eq!(with(72).page_cache, ByteSize::mib(72));
    }
}
