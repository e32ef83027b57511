//! An invocation's need from its record, as a training row or nothing. Pure.
//!
//! The peak is the need if the handler returned and no limit was reached. An invocation that reached its limit or
//! failed needed at least its peak: a row is learned only if the peak exceeds the prediction. The kernel reclaims page
//! cache under pressure, so page cache is no need. But a function without any would read its files again and again, so
//! up to [`PAGE_CACHE_ROOM`] of page cache counts as need.

use nigh_learn::{FeatureRow, PhaseTimes, TrainingRow};
use nigh_schedule::activation::{Activation, Outcome};
use nigh_terms::ByteSize;

/// Page cache that a grant has room for, if runs were seen to use it.
pub(super) const PAGE_CACHE_ROOM: ByteSize = ByteSize::mib(32);
/// The training row of `activation`, for which the model predicted `said`; none if there is nothing to learn.
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
    // A failure before the handler ran gives no row.
    if !answered && said.is_none() && activation.outcome != Outcome::OutOfMemory {
        return None;
    }
    let input = features.fingerprint();
    let times = times.filter(|_| answered);
    Some(TrainingRow { features, peak, touched_limit, page_cache, missed: false, input, times })
}

/// Whether the invocation may have needed more than it used. If its limit was raised, it had what it needed.
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
