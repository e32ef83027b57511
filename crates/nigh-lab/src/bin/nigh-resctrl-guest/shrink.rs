//! The shortest list of commands that still shows a difference: delta debugging by leaving commands out.
//!
//! Source: Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (ddmin, complements only).

/// Runs tried for one difference; the shortest list until then is good enough.
pub(crate) const TRIALS_MAX: usize = 150;

/// Leaves out of `list` what `still_fails` does not need: in halves, then quarters, down to single items.
pub(crate) fn shrink<T: Clone>(list: Vec<T>, mut still_fails: impl FnMut(&[T]) -> bool) -> Vec<T> {
    let mut shortest = list;
    let mut chunk = shortest.len().div_ceil(2);
    let mut trials = 0;
    while chunk > 0 {
        let mut at = 0;
        let mut dropped = false;
        while at < shortest.len() {
            if trials == TRIALS_MAX {
                return shortest;
            }
            trials += 1;
            let mut without = shortest.clone();
            without.drain(at..(at + chunk).min(shortest.len()));
            if still_fails(&without) {
                shortest = without;
                dropped = true;
            } else {
                at += chunk;
            }
        }
        // Single items are tried again as long as one goes: leaving out a later one may free an earlier one.
        if chunk > 1 || !dropped {
            chunk /= 2;
        }
    }
    shortest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_failure_does_not_need_is_left_out() {
        let needs = |list: &[u32]| list.contains(&3) && list.contains(&17) && list.contains(&40);
        assert_eq!(shrink((0..50).collect(), needs), [3, 17, 40]);
    }

    #[test]
    fn an_item_that_only_a_later_one_needed_goes_too() {
        // 1 must stay as long as 2 is there; 2 itself is not needed.
        let fails = |list: &[u32]| list.contains(&9) && (!list.contains(&2) || list.contains(&1));
        assert_eq!(shrink(vec![1, 2, 9], fails), [9]);
    }

    #[test]
    fn the_search_ends_although_every_trial_succeeds_or_fails() {
        assert!(shrink((0..64).collect::<Vec<u32>>(), |_all| true).is_empty());
        let mut runs = 0;
        let all = shrink((0..1000).collect::<Vec<u32>>(), |_all| {
            runs += 1;
            false
        });
        assert_eq!((all.len(), runs), (1000, TRIALS_MAX));
    }
}
