//! Who may hold a copy of one object: a few in place, many in a list.

/// A home's own short name for one incarnation; never reused under one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct SharerId(pub(super) u32);

/// This many sharers need no allocation.
const FEW: usize = 3;

/// A set of sharers, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Sharers {
    Few(u8, [SharerId; FEW]),
    #[expect(clippy::box_collection, reason = "a directory entry pays for this variant's size a million times")]
    Many(Box<Vec<SharerId>>),
}

impl Default for Sharers {
    fn default() -> Self {
        Self::Few(0, [SharerId(0); FEW])
    }
}

impl Sharers {
    pub(super) fn only(sharer: SharerId) -> Self {
        Self::Few(1, [sharer, SharerId(0), SharerId(0)])
    }

    pub(super) fn as_slice(&self) -> &[SharerId] {
        match self {
            Self::Few(count, few) => &few[..usize::from(*count)],
            Self::Many(many) => many,
        }
    }

    /// Adds one. Sharers that `lives` says are gone are removed when the list would grow, so that it does not grow for
    /// ever.
    pub(super) fn add(&mut self, sharer: SharerId, lives: impl Fn(SharerId) -> bool) {
        let Err(at) = self.as_slice().binary_search(&sharer) else { return };
        match self {
            Self::Few(count, few) if usize::from(*count) < FEW => {
                few.copy_within(at..usize::from(*count), at + 1);
                few[at] = sharer;
                *count += 1;
            }
            Self::Few(_, few) => {
                let mut living: Vec<SharerId> = few.iter().copied().filter(|one| lives(*one)).collect();
                living.push(sharer);
                living.sort_unstable();
                *self = Self::from_sorted(living);
            }
            Self::Many(many) => {
                if many.len() == many.capacity() {
                    many.retain(|one| lives(*one));
                }
                let at = many.partition_point(|one| *one < sharer);
                many.insert(at, sharer);
            }
        }
    }

    fn from_sorted(sorted: Vec<SharerId>) -> Self {
        if sorted.len() > FEW {
            return Self::Many(Box::new(sorted));
        }
        let mut few = [SharerId(0); FEW];
        few[..sorted.len()].copy_from_slice(&sorted);
        Self::Few(sorted.len() as u8, few)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_set_holds_every_living_sharer_once_and_in_order(
            added in prop::collection::vec(0u32..40, 0..60),
            dead in prop::collection::btree_set(0u32..40, 0..40),
        ) {
            let mut sharers = Sharers::default();
            let mut model = BTreeSet::new();
            for name in added {
                sharers.add(SharerId(name), |one| !dead.contains(&one.0));
                model.insert(name);
            }
            let held: Vec<u32> = sharers.as_slice().iter().map(|one| one.0).collect();
            prop_assert!(held.is_sorted_by(|a, b| a < b));
            prop_assert!(held.iter().all(|name| model.contains(name)));
            prop_assert!(model.iter().all(|name| dead.contains(name) || held.contains(name)));
        }
    }
}
