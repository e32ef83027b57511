//! Sets the size of the insensitive chunk. CASY sets it once by hand; here it follows the load.
//!
//! Each window reports the load in ways needed. The wanted split gives each chunk its share of the cache, and the
//! insensitive chunk at least one mask if an insensitive function ran. The split changes only after several windows in
//! a row wanted the same direction, and then to the nearest of the wanted splits: a layout change evicts lines, so it
//! must pay.

use nigh_terms::Ways;
use serde::{Deserialize, Serialize};

use crate::clos_layout::CacheShape;

/// The average load of one window, in ways needed.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Demand {
    /// Of insensitive functions.
    pub insensitive: f64,
    /// Of sensitive functions.
    pub sensitive: f64,
}

/// When the split changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitRules {
    /// The windows in a row that must want a change.
    pub hold_windows: u8,
    /// Ways by which what is wanted must differ from what is.
    pub difference_min: Ways,
    /// The most ways the insensitive may get: they gain nothing from them.
    pub insensitive_max: Ways,
}

impl SplitRules {
    /// Rules for a cache: three windows, one way's difference, at most a third for the insensitive (the figure's 3 of
    /// 11).
    #[must_use]
    pub const fn of(shape: &CacheShape) -> Self {
        Self { hold_windows: 3, difference_min: Ways(1), insensitive_max: Ways(shape.ways.0 / 3) }
    }
}

/// The decision after a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SplitDecision {
    /// The split fits the load.
    Keep,
    /// Another split fits better, but not for enough windows yet.
    Wait {
        /// The split that this window wanted.
        wanted: Ways,
        /// Windows that wanted this direction, this one included.
        windows: u8,
    },
    /// Change to this many insensitive ways.
    Change {
        /// The ways before.
        from: Ways,
        /// The ways from now on.
        to: Ways,
    },
}

/// The present split, and the windows that want another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkSplit {
    insensitive: Ways,
    wish: Option<Wish>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Wish {
    grow: bool,
    nearest: Ways,
    windows: u8,
}

impl ChunkSplit {
    /// Starts with this many ways for the insensitive.
    #[must_use]
    pub const fn new(insensitive: Ways) -> Self {
        Self { insensitive, wish: None }
    }

    /// The ways of the insensitive chunk.
    #[must_use]
    pub const fn insensitive(&self) -> Ways {
        self.insensitive
    }

    /// Takes a window.
    pub fn observe(&mut self, demand: &Demand, shape: &CacheShape, rules: &SplitRules) -> SplitDecision {
        let Some(wanted) = wanted(demand, shape, rules) else {
            // Nothing ran: no change, and the windows before no longer count.
            self.wish = None;
            return SplitDecision::Keep;
        };
        if wanted.0.abs_diff(self.insensitive.0) < rules.difference_min.0.max(1) {
            self.wish = None;
            return SplitDecision::Keep;
        }
        let grow = wanted > self.insensitive;
        let wish = match self.wish {
            Some(wish) if wish.grow == grow => Wish {
                nearest: if grow { wish.nearest.min(wanted) } else { wish.nearest.max(wanted) },
                windows: wish.windows.saturating_add(1),
                grow,
            },
            _ => Wish { grow, nearest: wanted, windows: 1 },
        };
        if wish.windows < rules.hold_windows {
            self.wish = Some(wish);
            return SplitDecision::Wait { wanted, windows: wish.windows };
        }
        let from = std::mem::replace(&mut self.insensitive, wish.nearest);
        self.wish = None;
        SplitDecision::Change { from, to: wish.nearest }
    }
}

/// The split that a window wants, in whole masks; `None` if nothing ran.
fn wanted(demand: &Demand, shape: &CacheShape, rules: &SplitRules) -> Option<Ways> {
    let total = demand.insensitive + demand.sensitive;
    // False for NaN, too.
    if !(total > 0.0 && total.is_finite()) {
        return None;
    }
    let mask = f64::from(shape.min_ways.0.max(1));
    let share = f64::from(shape.ways.0) * demand.insensitive / total;
    let masks = (share / mask).round();
    let some = if demand.insensitive > 0.0 { 1.0 } else { 0.0 };
    let most = (f64::from(rules.insensitive_max.0) / mask).floor().max(some);
    Some(Ways((masks.clamp(some, most) * mask) as u8))
}

#[cfg(test)]
mod tests {
    use nigh_terms::WayMask;

    use super::*;

    const SHAPE: CacheShape =
        CacheShape { ways: Ways(11), classes: 8, min_ways: Ways(1), shareable: WayMask::from_bits(0x600) };

    fn run(split: &mut ChunkSplit, insensitive: f64, sensitive: f64) -> SplitDecision {
        split.observe(&Demand { insensitive, sensitive }, &SHAPE, &SplitRules::of(&SHAPE))
    }

    #[test]
    fn the_split_changes_after_three_windows_in_a_row() {
        let mut split = ChunkSplit::new(Ways(3));
        assert_eq!(run(&mut split, 1.0, 20.0), SplitDecision::Wait { wanted: Ways(1), windows: 1 });
        assert_eq!(run(&mut split, 3.0, 13.0), SplitDecision::Wait { wanted: Ways(2), windows: 2 });
        assert_eq!(run(&mut split, 1.0, 20.0), SplitDecision::Change { from: Ways(3), to: Ways(2) });
        assert_eq!(split.insensitive(), Ways(2));
    }

    #[test]
    fn a_load_that_swings_changes_nothing() {
        let mut split = ChunkSplit::new(Ways(2));
        for _ in 0..20 {
            assert!(matches!(run(&mut split, 1.0, 20.0), SplitDecision::Wait { windows: 1, .. }));
            assert!(matches!(run(&mut split, 9.0, 9.0), SplitDecision::Wait { windows: 1, .. }));
        }
        assert_eq!(split.insensitive(), Ways(2));
    }

    #[test]
    fn an_idle_window_ends_the_wish() {
        let mut split = ChunkSplit::new(Ways(2));
        for _ in 0..2 {
            run(&mut split, 9.0, 9.0);
        }
        assert_eq!(run(&mut split, 0.0, 0.0), SplitDecision::Keep);
        assert!(matches!(run(&mut split, 9.0, 9.0), SplitDecision::Wait { windows: 1, .. }));
        assert_eq!(run(&mut split, f64::NAN, 1.0), SplitDecision::Keep);
    }

    #[test]
    fn the_insensitive_get_a_third_at_most_and_whole_masks() {
        let rules = SplitRules::of(&SHAPE);
        let all = Demand { insensitive: 50.0, sensitive: 0.0 };
        assert_eq!(wanted(&all, &SHAPE, &rules), Some(Ways(3)));
        let pairs = CacheShape { min_ways: Ways(2), ..SHAPE };
        assert_eq!(wanted(&all, &pairs, &rules), Some(Ways(2)));
        let none = Demand { insensitive: 0.0, sensitive: 4.0 };
        assert_eq!(wanted(&none, &SHAPE, &rules), Some(Ways(0)));
    }
}
