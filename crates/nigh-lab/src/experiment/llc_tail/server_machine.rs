//! The simulated server: cores, caches, clock and memory.
//!
//! The report does not name its processor. Its published harness runs one contender less than a socket has cores, fifteen
//! on the poster, and counts ways from twenty: a Broadwell-EP of sixteen cores, which was sold with two clocks. The lower
//! clock is simulated. Cycles to last level and memory, and the usable part of the memory's peak (78 %), are chosen, not
//! measured.

use nigh_sim::llc::{CoreTiming, LlcGeometry};
use nigh_terms::{WayMask, Ways};
use serde::Serialize;

use super::simulated_server::{MULTIPLY_ADDS_PER_CYCLE, NETWORK, REQUEST_CYCLES, RING};

/// All cores share the last level; the store has the first.
pub(super) const CORES: usize = 16;
/// Training threads: the other cores.
pub(super) const BATCH_THREADS: usize = CORES - 1;
pub(super) const HERTZ: f64 = 2.1e9;
pub(super) const GEOMETRY: LlcGeometry = LlcGeometry::BROADWELL_EP_16;
/// Ways that the device writes to: the two highest.
pub(super) const DEVICE_WAYS: WayMask = WayMask::from_bits(0xc_0000);
pub(super) const CLASSES: u8 = 16;
pub(super) const TIMING: CoreTiming = CoreTiming::BROADWELL_EP;
/// What the memory delivers.
pub(super) const MEMORY_GB_PER_S: f64 = 60.0;
/// The store's partitions: up to ten, as in the harness, and the largest that is clear of the device's ways.
pub(super) const PARTITIONS: [Ways; 11] =
    [Ways(1), Ways(2), Ways(3), Ways(4), Ways(5), Ways(6), Ways(7), Ways(8), Ways(9), Ways(10), Ways(18)];

#[derive(Clone, Debug, Serialize)]
pub(super) struct SimulatedMachine {
    cores: usize,
    gigahertz: f64,
    llc: &'static str,
    policy: &'static str,
    device_ways: WayMask,
    second_level: &'static str,
    memory_gb_per_s: f64,
    llc_hit_cycles: u32,
    memory_cycles_more: u32,
    request_cycles: u64,
    network_us: f64,
    ring: usize,
    batch_multiply_adds_per_cycle: u64,
}

pub(super) const SIMULATED_MACHINE: SimulatedMachine = SimulatedMachine {
    cores: CORES,
    gigahertz: HERTZ / 1e9,
    llc: "Broadwell-EP: 20 ways of 2 MiB, shared by all cores",
    policy: "LRU",
    device_ways: DEVICE_WAYS,
    second_level: "256 KiB of 8 ways for each core",
    memory_gb_per_s: MEMORY_GB_PER_S,
    llc_hit_cycles: TIMING.hit_cycles,
    memory_cycles_more: TIMING.miss_cycles,
    request_cycles: REQUEST_CYCLES,
    network_us: NETWORK.as_micros() as f64,
    ring: RING,
    batch_multiply_adds_per_cycle: MULTIPLY_ADDS_PER_CYCLE,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_fit_and_devices_write_to_the_two_highest_ways() {
        let ways = GEOMETRY.ways();
        assert_eq!(DEVICE_WAYS, WayMask::contiguous(ways.0 - 2, Ways(2)));
        assert!(PARTITIONS.is_sorted() && PARTITIONS.iter().all(|&size| size < ways));
        assert_eq!(BATCH_THREADS, 15, "the poster's");
    }
}
