//! The servers that the experiment simulates: cores, caches, clock and memory.
//!
//! The report does not name its processor. Its published harness runs one contender less than a socket has cores, fifteen
//! on the poster, and counts ways from twenty: a Broadwell-EP of sixteen cores, of which there are two clocks; the lower
//! one is taken. The other server has CASY's last level, so that one cache stands under both experiments. Cycles to last
//! level and memory, and the part of the memory's peak that can be had (78 %), are chosen, not measured.

use clap::ValueEnum;
use nigh_sim::llc::{CoreTiming, GeometryError, LlcGeometry, PrivateHierarchy};
use nigh_terms::{WayMask, Ways};

/// Which server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ServerName {
    /// 16 cores of 256 KiB, 20 ways of 2 MiB: as the report's harness counts them
    #[default]
    Broadwell,
    /// 16 cores of 1 MiB, 11 ways of 1.25 MiB: the last level of CASY's processor
    CascadeLake,
}

/// A server.
#[derive(Debug)]
pub(super) struct ServerMachine {
    /// In words.
    pub(super) llc: &'static str,
    pub(super) second_level: &'static str,
    /// All share the last level; the store has the first.
    pub(super) cores: usize,
    /// Cycles a second.
    pub(super) hertz: f64,
    pub(super) geometry: LlcGeometry,
    /// Ways that the device writes to: the two highest.
    pub(super) device_ways: WayMask,
    /// Classes of service.
    pub(super) classes: u8,
    pub(super) timing: CoreTiming,
    /// What the memory delivers if nothing else is said.
    pub(super) memory_gb_per_s: f64,
    /// A core's own caches, empty.
    pub(super) private_caches: fn() -> Result<PrivateHierarchy, GeometryError>,
    /// The store's partitions in a whole sweep.
    pub(super) partitions: &'static [Ways],
}

const BROADWELL: ServerMachine = ServerMachine {
    llc: "Broadwell-EP: 20 ways of 2 MiB, shared by all cores",
    second_level: "256 KiB of 8 ways for each core",
    cores: 16,
    hertz: 2.1e9,
    geometry: LlcGeometry::BROADWELL_EP_16,
    device_ways: WayMask::from_bits(0xc_0000),
    classes: 16,
    timing: CoreTiming::BROADWELL_EP,
    memory_gb_per_s: 60.0,
    private_caches: PrivateHierarchy::broadwell,
    // To ten as the harness goes, and the most that are clear of the device's.
    partitions: &[Ways(1), Ways(2), Ways(3), Ways(4), Ways(5), Ways(6), Ways(7), Ways(8), Ways(9), Ways(10), Ways(18)],
};

const CASCADE_LAKE: ServerMachine = ServerMachine {
    llc: "Xeon Silver 4210R: 11 ways of 1.25 MiB, shared by all cores",
    second_level: "1 MiB of 16 ways for each core",
    cores: 16,
    hertz: 2.4e9,
    geometry: LlcGeometry::XEON_SILVER_4210R,
    device_ways: WayMask::from_bits(0x600),
    classes: 8,
    timing: CoreTiming::CASCADE_LAKE,
    memory_gb_per_s: 90.0,
    private_caches: PrivateHierarchy::cascade_lake,
    partitions: &[Ways(1), Ways(2), Ways(3), Ways(4), Ways(5), Ways(6), Ways(7), Ways(8), Ways(9), Ways(10)],
};

impl ServerName {
    /// The server of this name.
    pub(super) const fn machine(self) -> &'static ServerMachine {
        match self {
            Self::Broadwell => &BROADWELL,
            Self::CascadeLake => &CASCADE_LAKE,
        }
    }
}

impl ServerMachine {
    /// Training threads: the other cores.
    pub(super) const fn batch_threads(&self) -> usize {
        self.cores - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_fit_and_devices_write_to_the_two_highest_ways() {
        for name in ServerName::value_variants() {
            let machine = name.machine();
            let ways = machine.geometry.ways();
            assert_eq!(machine.device_ways, WayMask::contiguous(ways.0 - 2, Ways(2)), "{name:?}");
            assert!(machine.partitions.is_sorted() && machine.partitions.iter().all(|&size| size < ways), "{name:?}");
            assert_eq!(machine.batch_threads(), 15, "the poster's");
        }
    }
}
