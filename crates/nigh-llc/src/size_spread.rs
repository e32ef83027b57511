//! Chooses masks of as many different sizes as possible over a chunk of ways, with each way in a bounded number of
//! masks.
//!
//! One mask is the whole chunk. The others are in rows above it: a row is as long as the chunk, and its masks do not
//! overlap. So with `d` rows a way is in at most `d + 1` masks. Among equally many sizes the most even spread wins
//! (least sum of squared gaps). Laminar masks nest or are disjoint; overlapping masks may cross, and give more sizes.

use nigh_terms::Ways;
use serde::{Deserialize, Serialize};

/// Whether masks may cross each other's borders.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nesting {
    /// Any two masks are disjoint or nested: a small class's function never shares half of a large class.
    #[default]
    Laminar,
    /// Any two may share some ways.
    Overlapping,
}

/// Neighbouring ways within the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    /// The lowest way, counted from the chunk's.
    pub(crate) first: u8,
    /// How many.
    pub(crate) size: Ways,
}

/// The most sets of sizes that are tried. At most some tens of milliseconds; reached only with caches of more than 24
/// ways and many classes.
const SETS_MAX: usize = 200_000;

/// At most `count` runs over `chunk` ways, of different sizes not below `least`, from small to large; the last is the
/// whole chunk. An empty chunk has none.
pub(crate) fn spread(chunk: Ways, least: Ways, count: usize, sharing_max: u8, nesting: Nesting) -> Vec<Run> {
    if chunk.0 == 0 || count == 0 {
        return Vec::new();
    }
    let rows = usize::from(sharing_max) - 1;
    let sizes_below = usize::from(chunk.0.saturating_sub(least.0));
    let mut runs = Vec::new();
    for others in (1..=sizes_below.min(count - 1)).rev() {
        let mut search = Search { chunk: chunk.0, rows, nesting, sets: 0, best: None };
        search.extend(&mut Vec::with_capacity(others), others, least.0, 0, 0);
        if let Some((_, found)) = search.best {
            runs = found;
            break;
        }
    }
    runs.sort_by_key(|run| run.size);
    runs.push(Run { first: 0, size: chunk });
    runs
}

struct Search {
    chunk: u8,
    rows: usize,
    nesting: Nesting,
    sets: usize,
    best: Option<(u32, Vec<Run>)>,
}

impl Search {
    /// Adds `missing` more sizes of at least `least` to those chosen, whose gaps cost `cost` and which use `used` ways.
    fn extend(&mut self, chosen: &mut Vec<u8>, missing: usize, least: u8, cost: u32, used: usize) {
        let last = chosen.last().copied().unwrap_or(0);
        let rest = f64::from(self.chunk - last);
        let at_best = f64::from(cost) + rest * rest / (missing + 1) as f64;
        if self.best.as_ref().is_some_and(|(best, _)| at_best >= f64::from(*best)) || self.sets >= SETS_MAX {
            return;
        }
        let gap = |from: u8, to: u8| u32::from(to - from).pow(2);
        if missing == 0 {
            self.sets += 1;
            if let Some(runs) = pack(chosen, self.chunk, self.rows, self.nesting) {
                self.best = Some((cost + gap(last, self.chunk), runs));
            }
            return;
        }
        // Each further size is larger by at least one.
        let later = missing - 1;
        let room = self.rows * usize::from(self.chunk);
        let greatest = self.chunk - 1 - later as u8;
        let fits = |&size: &u8| used + (0..=later).map(|more| usize::from(size) + more).sum::<usize>() <= room;
        let mut sizes: Vec<u8> = (least..=greatest).take_while(fits).collect();
        // The even step first, so that the bound prunes early.
        let even = f64::from(last) + rest / (missing + 1) as f64;
        sizes.sort_by(|left, right| (f64::from(*left) - even).abs().total_cmp(&(f64::from(*right) - even).abs()));
        for size in sizes {
            chosen.push(size);
            self.extend(chosen, later, size + 1, cost + gap(last, size), used + usize::from(size));
            chosen.pop();
        }
    }
}

/// A run that can have further runs above it.
struct Shelf {
    run: Run,
    used: u8,
    /// The rows left above it.
    rows_above: usize,
}

/// Places ascending sizes in the rows above the chunk; none if they do not fit.
fn pack(sizes: &[u8], chunk: u8, rows: usize, nesting: Nesting) -> Option<Vec<Run>> {
    let whole = Run { first: 0, size: Ways(chunk) };
    let mut shelves: Vec<Shelf> = match nesting {
        Nesting::Laminar => vec![Shelf { run: whole, used: 0, rows_above: rows }],
        Nesting::Overlapping => (0..rows).map(|_| Shelf { run: whole, used: 0, rows_above: 1 }).collect(),
    };
    let bases = shelves.len();
    place(sizes, &mut shelves, nesting == Nesting::Laminar)
        .then(|| shelves.into_iter().skip(bases).map(|shelf| shelf.run).collect())
}

/// Tries the largest size on each shelf that it fits, the lowest first, and backtracks if the rest does not fit.
fn place(sizes: &[u8], shelves: &mut Vec<Shelf>, nested: bool) -> bool {
    let Some((&size, smaller)) = sizes.split_last() else { return true };
    for at in 0..shelves.len() {
        let Shelf { run, used, rows_above } = shelves[at];
        if rows_above == 0 || run.size.0 - used < size {
            continue;
        }
        shelves[at].used += size;
        let rows_above = if nested { rows_above - 1 } else { 0 };
        shelves.push(Shelf { run: Run { first: run.first + used, size: Ways(size) }, used: 0, rows_above });
        if place(smaller, shelves, nested) {
            return true;
        }
        shelves.pop();
        shelves[at].used -= size;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(chunk: u8, count: usize, sharing_max: u8, nesting: Nesting) -> Vec<u8> {
        spread(Ways(chunk), Ways(2), count, sharing_max, nesting).iter().map(|run| run.size.0).collect()
    }

    #[test]
    fn four_classes_over_eight_ways_are_even() {
        assert_eq!(sizes(8, 4, 3, Nesting::Laminar), [2, 4, 6, 8]);
        assert_eq!(sizes(8, 1, 3, Nesting::Laminar), [8]);
        assert_eq!(sizes(2, 4, 3, Nesting::Laminar), [2]);
        assert_eq!(sizes(0, 4, 3, Nesting::Laminar), [0_u8; 0]);
    }

    #[test]
    fn without_sharing_only_the_chunk_is_left() {
        assert_eq!(sizes(8, 4, 1, Nesting::Laminar), [8]);
    }

    #[test]
    fn as_many_sizes_as_the_sharing_allows() {
        // Sixteen ways, two rows above the chunk: 32 ways hold 2 to 7 (27), not 2 to 8 (35).
        assert_eq!(sizes(16, 11, 3, Nesting::Overlapping).len(), 7);
        let laminar = sizes(16, 11, 3, Nesting::Laminar);
        assert!(laminar.len() <= 7 && laminar.len() >= 6, "{laminar:?}");
    }

    #[test]
    fn crossing_borders_packs_what_nesting_cannot() {
        // Two rows of five ways: 4 beside nothing, then 2 + 3. Nested, 3 fits in 4, but 2 neither in the gap of one way
        // that 4 leaves nor beside 3 within 4.
        assert_eq!(sizes(5, 4, 3, Nesting::Overlapping), [2, 3, 4, 5]);
        assert_eq!(sizes(5, 4, 3, Nesting::Laminar).len(), 3);
    }
}
