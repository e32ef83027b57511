//! What one measurement is taken under, and which are taken. Pure.

use std::fmt;
use std::str::FromStr;

use nigh_terms::ByteSize;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

pub(super) const BOOKED: ByteSize = ByteSize::mib(256);
/// Nodes of a cluster, where there is more than one: as many as `nigh cluster up` starts.
pub(super) const CLUSTER_NODES: u8 = 3;
const MEMORY_MIN: ByteSize = ByteSize::gib(1);
const MEMORY_MAX: ByteSize = ByteSize::gib(16);
const FUNCTIONS_MAX: u32 = 50;
const CALLERS_MAX: u32 = 200;

const MIXED: &str = "mixed";

/// Nodes, memory in GiB, functions, whether callers change functions, and the callers of each cell.
type Group = (u8, u64, u32, bool, &'static [u32]);

/// Not every combination: each group has a cell with room for all callers or nearly so, and one with many more.
const GRID: [Group; 19] = [
    (1, 1, 1, false, &[3, 8, 64]),
    (1, 1, 3, false, &[3, 6, 16]),
    (1, 1, 8, false, &[8, 64]),
    (1, 1, 50, false, &[16, 200]),
    (1, 2, 1, false, &[1, 3, 8, 64]),
    (1, 2, 3, false, &[3, 6, 8, 16, 64, 200]),
    (1, 2, 3, true, &[3, 6, 8, 16, 64]),
    (1, 2, 8, false, &[8, 64]),
    (1, 2, 50, false, &[16, 64]),
    (1, 4, 3, false, &[3, 16, 64]),
    (1, 4, 8, true, &[8, 64]),
    (1, 4, 50, false, &[16, 64]),
    (1, 16, 1, false, &[1, 8, 64]),
    (1, 16, 8, false, &[8, 64]),
    (1, 16, 50, false, &[16, 64, 200]),
    (1, 16, 50, true, &[64, 200]),
    (CLUSTER_NODES, 2, 3, false, &[3, 64]),
    (CLUSTER_NODES, 2, 8, false, &[8, 64]),
    (CLUSTER_NODES, 2, 8, true, &[8, 64]),
];
/// Three functions with room for eight sandboxes: from a caller a function to eight times what there is room for.
const QUICK: [Group; 2] = [(1, 2, 3, false, &[3, 6, 8, 16, 64]), (1, 2, 3, true, &[3, 6, 8, 16, 64])];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cell {
    pub(super) nodes: u8,
    /// `functions.memory` of each node.
    #[serde(rename = "memory_bytes")]
    pub(super) memory: ByteSize,
    pub(super) functions: u32,
    pub(super) callers: u32,
    /// True if each call is of a function drawn anew, evenly; else caller `i` always invokes function `i % functions`.
    pub(super) mixed: bool,
}

impl Cell {
    /// Sandboxes that the memory of all nodes has room for.
    pub(super) const fn rooms(&self) -> u64 {
        self.nodes as u64 * (self.memory.bytes() / BOOKED.bytes())
    }

    /// True if each caller can have a sandbox of its own.
    pub(super) const fn has_room_for_all(&self) -> bool {
        self.callers as u64 <= self.rooms()
    }

    /// The sandboxes that there are at most at a time.
    pub(super) fn sandboxes_max(&self) -> u64 {
        self.rooms().min(u64::from(self.callers))
    }

    /// True if the two differ in nothing but callers.
    pub(super) fn is_in_group_of(&self, other: &Self) -> bool {
        Self { callers: other.callers, ..*self } == *other
    }

    /// The function that call number `call` of a caller invokes: in every run of the cell the same.
    pub(super) fn function_of(&self, caller: u32, call: u32) -> u32 {
        if self.mixed {
            let seed = u64::from(caller) << u32::BITS | u64::from(call);
            return StdRng::seed_from_u64(seed).random_range(0..self.functions);
        }
        caller % self.functions
    }

    /// The node at whose door a caller calls. Callers that keep to one function are spread over all nodes.
    pub(super) fn door_of(&self, caller: u32) -> usize {
        (caller / self.functions + caller % self.functions) as usize % usize::from(self.nodes)
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.nodes, self.memory, self.functions, self.callers)?;
        if self.mixed { write!(f, ",{MIXED}") } else { Ok(()) }
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let shape = || {
            format!(
                "{text:?} is not a cell; write nodes, memory, functions and callers: 1,2GiB,3,16 or 1,2GiB,3,16,{MIXED}"
            )
        };
        let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
        let mixed = parts.pop_if(|part| *part == MIXED).is_some();
        let [nodes, memory, functions, callers] = parts[..] else { return Err(shape()) };
        let number = |part: &str| part.parse::<u32>().map_err(|_| shape());
        let (nodes, functions, callers) = (number(nodes)?, number(functions)?, number(callers)?);
        let memory: ByteSize = memory.parse().map_err(|_| shape())?;
        let nodes = match nodes {
            1 => 1,
            _ if nodes == u32::from(CLUSTER_NODES) => CLUSTER_NODES,
            _ => return Err(format!("{nodes} nodes: expected 1 or {CLUSTER_NODES}")),
        };
        if !(MEMORY_MIN..=MEMORY_MAX).contains(&memory) {
            return Err(format!("{memory} of memory: expected {MEMORY_MIN} to {MEMORY_MAX}"));
        }
        for (what, is, max) in [("functions", functions, FUNCTIONS_MAX), ("callers", callers, CALLERS_MAX)] {
            if !(1..=max).contains(&is) {
                return Err(format!("{is} {what}: expected 1 to {max}"));
            }
        }
        Ok(Self { nodes, memory, functions, callers, mixed })
    }
}

pub(super) fn grid() -> Vec<Cell> {
    cells(&GRID)
}

pub(super) fn quick() -> Vec<Cell> {
    cells(&QUICK)
}

fn cells(groups: &[Group]) -> Vec<Cell> {
    let of_group = |&(nodes, gib, functions, mixed, callers): &Group| {
        let memory = ByteSize::gib(gib);
        callers.iter().map(move |&callers| Cell { nodes, memory, functions, callers, mixed })
    };
    groups.iter().flat_map(of_group).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cell_of_the_grid_is_one_that_a_user_may_name_and_is_there_once() {
        let grid = grid();
        let names: BTreeSet<String> = grid.iter().map(Cell::to_string).collect();
        assert_eq!(names.len(), grid.len());
        for cell in grid.iter().chain(&quick()) {
            assert_eq!(cell.to_string().parse(), Ok(*cell));
            assert!(cell.callers >= cell.functions || cell.functions == FUNCTIONS_MAX && cell.callers >= 16, "{cell}");
        }
        let of_cluster = grid.iter().filter(|cell| cell.nodes == CLUSTER_NODES).count();
        assert_eq!((of_cluster, grid.len() - of_cluster), (6, 46));
        assert!(quick().iter().all(|cell| grid.contains(cell)), "a quick run measures cells of the whole one");
    }

    #[test]
    fn a_group_has_cells_to_compare_and_more_callers_than_rooms_somewhere() {
        let grid = grid();
        for cell in &grid {
            let compared = |other: &&Cell| cell.is_in_group_of(other) && other.callers >= 2;
            assert!(grid.iter().filter(compared).count() >= 2, "{cell}");
        }
        assert!(grid.iter().any(|cell| !cell.has_room_for_all()) && grid.iter().any(Cell::has_room_for_all));
    }

    #[test]
    fn room_is_counted_in_sandboxes_of_all_nodes() {
        let one: Cell = "1,2GiB,3,8".parse().unwrap();
        assert_eq!((one.rooms(), one.sandboxes_max()), (8, 8));
        assert!(one.has_room_for_all() && !Cell { callers: 9, ..one }.has_room_for_all());
        assert!(Cell { nodes: 3, callers: 24, ..one }.has_room_for_all());
        assert_eq!(Cell { callers: 5, ..one }.sandboxes_max(), 5);
    }

    #[test]
    fn the_callers_of_each_function_call_at_every_door() {
        for functions in 1..=FUNCTIONS_MAX {
            let cell = Cell { nodes: 3, memory: MEMORY_MIN, functions, callers: 3 * functions, mixed: false };
            for function in 0..functions {
                let own = (0..cell.callers).filter(|caller| cell.function_of(*caller, 7) == function);
                let doors: BTreeSet<usize> = own.map(|caller| cell.door_of(caller)).collect();
                assert_eq!(doors, BTreeSet::from([0, 1, 2]), "function {function} of {functions}");
            }
        }
    }

    #[test]
    fn callers_of_a_mixed_cell_draw_functions_evenly_and_the_same_each_time() {
        let cell: Cell = "1,2GiB,3,6,mixed".parse().unwrap();
        let draw = || (0..cell.callers).flat_map(|caller| (0..500).map(move |call| cell.function_of(caller, call)));
        for function in 0..3 {
            let count = draw().filter(|drawn| *drawn == function).count();
            assert!((900..1100).contains(&count), "function {function}: {count} of 3000");
        }
        assert!(draw().eq(draw()));
        assert!(!cell.is_in_group_of(&Cell { mixed: false, ..cell }));
    }

    #[test]
    fn what_is_no_cell_is_refused_with_what_is_expected() {
        for (text, expected) in [
            ("1,2GiB,3", "1,2GiB,3,16"),
            ("1,2GiB,3,4,often", "1,2GiB,3,16,mixed"),
            ("1,much,3,4", "1,2GiB,3,16"),
            ("2,2GiB,3,4", "expected 1 or 3"),
            ("1,512MiB,3,4", "expected 1 GiB to 16 GiB"),
            ("1,2GiB,0,4", "expected 1 to 50"),
            ("1,2GiB,3,201", "expected 1 to 200"),
        ] {
            let refused = text.parse::<Cell>().unwrap_err();
            assert!(refused.contains(expected), "{text}: {refused}");
        }
    }
}
