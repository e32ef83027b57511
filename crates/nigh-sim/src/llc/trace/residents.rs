//! A guess at what the second level holds, so that an eviction can be written as a small number.
//!
//! A cache evicts only lines that it was given, and its sets are small: most evicted lines are among the last few
//! misses of their set, and often the oldest. Writer and reader keep the same lists, so a line in a list is named by
//! its index. A wrong guess costs bytes, never correctness, because each line can be written in full.

use std::collections::VecDeque;

use super::LlcAccess;
use super::format::is_eviction;

/// Sets and ways of the guess: those of a second level of 1 MiB. A part of the format, whatever caches a trace has.
const SETS: u64 = 1024;
const WAYS: usize = 16;

/// The lines that each set was given and has not evicted, the oldest first.
pub(super) struct Residents {
    sets: Vec<VecDeque<u64>>,
}

impl Residents {
    pub(super) fn new() -> Self {
        Self { sets: vec![VecDeque::with_capacity(WAYS); SETS as usize] }
    }

    fn set(&mut self, line: u64) -> &mut VecDeque<u64> {
        &mut self.sets[(line % SETS) as usize]
    }

    /// The place of `line` in the set of `neighbour`, if it is there.
    pub(super) fn place(&mut self, neighbour: u64, line: u64) -> Option<u64> {
        self.set(neighbour).iter().position(|&other| other == line).map(|place| place as u64)
    }

    /// The line at `place` in the set of `neighbour`.
    pub(super) fn line(&mut self, neighbour: u64, place: u64) -> Option<u64> {
        self.set(neighbour).get(usize::try_from(place).ok()?).copied()
    }

    /// Takes note of an access.
    pub(super) fn see(&mut self, access: &LlcAccess) {
        let line = access.line;
        let set = self.set(line);
        if let Some(place) = set.iter().position(|&other| other == line) {
            set.remove(place);
        }
        if !is_eviction(access.kind) {
            if set.len() == WAYS {
                set.pop_front();
            }
            set.push_back(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::llc::AccessKind;

    #[test]
    fn a_line_is_found_at_its_age_until_it_is_given_up_or_crowded_out() {
        let mut residents = Residents::new();
        let see = |residents: &mut Residents, number: u64, kind| {
            residents.see(&LlcAccess { line: 5 + number * SETS, instructions: 0, kind });
        };
        for number in 0..3 {
            see(&mut residents, number, AccessKind::Load);
        }
        assert_eq!(residents.place(5, 5 + SETS), Some(1));
        assert_eq!(residents.line(5, 1), Some(5 + SETS));
        see(&mut residents, 0, AccessKind::DirtyEviction);
        assert_eq!((residents.place(5, 5), residents.place(5, 5 + SETS)), (None, Some(0)));
        for number in 10..10 + WAYS as u64 {
            see(&mut residents, number, AccessKind::Store);
        }
        assert_eq!((residents.place(5, 5 + SETS), residents.place(5, 5 + 10 * SETS)), (None, Some(0)));
        assert_eq!((residents.place(6, 6), residents.line(5, WAYS as u64)), (None, None));
    }
}
