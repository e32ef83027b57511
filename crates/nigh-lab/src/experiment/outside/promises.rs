//! What is promised beside outside writers, by what guards Nigh's copies and by the write mode: the counts of a verdict
//! that must be zero. SEMANTICS.md has the same as a table. Pure.

use super::verdict::Verdict;
use super::{Guard, Mode, Setting};

/// The counts that break a promise of `setting`, each with what it counts.
pub(super) fn broken(setting: Setting, verdict: &Verdict) -> Vec<(&'static str, u64)> {
    let Setting { mode, guard, .. } = setting;
    let is_guarded = guard != Guard::None;
    let is_at_once = matches!(mode, Mode::Through | Mode::Shadow);
    let tells_of_each = match guard {
        Guard::Middleware | Guard::Events | Guard::Freshness => true,
        Guard::Shared | Guard::None => false,
    };
    // While a lazy write waits, the store does not have it: who removes the object there removes nothing of it. A service
    // sends no event of that, and the next look at the store shows no trace.
    let stale_nigh = match (mode, guard) {
        (Mode::Ephemeral, _) => 0,
        // Nor does it of what others put and removed between two looks, or while a push or the put's event was on its way.
        (Mode::Lazy, Guard::Events | Guard::Freshness) => {
            verdict.stale_nigh_reads - verdict.past_nothing - verdict.past_deletions
        }
        (Mode::Through | Mode::Shadow | Mode::Lazy, _) => verdict.stale_nigh_reads,
    };
    let undone = match (mode, guard) {
        (Mode::Lazy, Guard::Events) => verdict.undone_deletions - verdict.undone_of_nothing - verdict.undone_of_a_put,
        (Mode::Lazy, Guard::Freshness) | (Mode::Ephemeral, _) => 0,
        (Mode::Through | Mode::Shadow | Mode::Lazy, _) => verdict.undone_deletions,
    };
    let promised = [
        (true, "objects are of no one write", verdict.mixed),
        (is_guarded, "outside writes are lost", verdict.lost_outside_writes),
        (is_guarded && mode != Mode::Ephemeral, "writes of Nigh are lost", verdict.lost_nigh_writes),
        (is_guarded && is_at_once, "outside reads are old", verdict.stale_outside_reads),
        (tells_of_each, "reads through Nigh are old", stale_nigh),
        (tells_of_each, "deletions are undone", undone),
    ];
    promised
        .into_iter()
        .filter(|(is_promised, _, count)| *is_promised && *count > 0)
        .map(|(_, what, count)| (what, count))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Store;
    use super::*;

    fn broken_in(mode: Mode, guard: Guard, verdict: &Verdict) -> usize {
        broken(Setting { store: Store::Minio, mode, guard }, verdict).len()
    }

    #[test]
    fn a_lazy_mode_excuses_what_no_notice_and_no_look_can_tell_and_nothing_else() {
        let of_nothing = Verdict {
            stale_nigh_reads: 2,
            past_nothing: 2,
            undone_deletions: 1,
            undone_of_nothing: 1,
            stale_outside_reads: 3,
            ..Verdict::default()
        };
        assert_eq!(broken_in(Mode::Lazy, Guard::Events, &of_nothing), 0);
        assert_eq!(broken_in(Mode::Lazy, Guard::Freshness, &of_nothing), 0);
        assert_eq!(broken_in(Mode::Lazy, Guard::Middleware, &of_nothing), 2, "the middleware tells before each write");
        assert_eq!(broken_in(Mode::Through, Guard::Events, &of_nothing), 3);
        let of_a_put = Verdict {
            stale_nigh_reads: 2,
            past_deletions: 2,
            undone_deletions: 1,
            undone_of_a_put: 1,
            ..Verdict::default()
        };
        assert_eq!(broken_in(Mode::Lazy, Guard::Events, &of_a_put), 0);
        assert_eq!(broken_in(Mode::Lazy, Guard::Middleware, &of_a_put), 2);
        assert_eq!(broken_in(Mode::Lazy, Guard::Freshness, &of_a_put), 0);
        let old = Verdict { stale_nigh_reads: 1, ..Verdict::default() };
        let lost = Verdict { lost_outside_writes: 1, lost_nigh_writes: 1, ..Verdict::default() };
        for (mode, guard, expected) in [
            (Mode::Lazy, Guard::Events, (1, 2)),
            (Mode::Lazy, Guard::Freshness, (1, 2)),
            (Mode::Lazy, Guard::Shared, (0, 2)),
            (Mode::Ephemeral, Guard::Shared, (0, 1)),
            (Mode::Lazy, Guard::None, (0, 0)),
        ] {
            assert_eq!((broken_in(mode, guard, &old), broken_in(mode, guard, &lost)), expected, "{mode:?} {guard:?}");
        }
        assert_eq!(broken_in(Mode::Lazy, Guard::None, &Verdict { mixed: 1, ..Verdict::default() }), 1);
    }
}
