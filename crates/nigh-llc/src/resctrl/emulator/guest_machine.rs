//! The machines that patched kernels are made to see: two sockets of one CPU, with caches of the size that QEMU gives
//! them.
//!
//! The processor's reports and the emulator's configuration both come from here, so that the two can be compared.

use super::machine::{BandwidthConfig, CacheConfig, Dialect, MachineConfig, MonitoringConfig, Vendor};

/// QEMU's caches of an Intel processor without cache description.
const L3_BYTES: u32 = 16 << 20;
const L2_BYTES: u32 = 4 << 20;
/// More ids than all cases free in a second, which is how long one stays in limbo; and bytes a counted unit, so few
/// that an id's share of the cache, the occupancy below which it leaves limbo, does not round to 0: it would never
/// leave.
const RMIDS: u32 = 2048;
const RMID_SCALE: u32 = 4096;

/// A machine of this kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestMachine {
    /// The paper's servers: 11 ways, two of them shared with devices, 8 classes, CDP, bandwidth in percent, and all
    /// counters. It has enough monitoring ids that a test never waits for one.
    CascadeLake,
    /// A newer part: masks with holes, ways shared with devices at both ends, an L2 to share out, fewer classes than
    /// groups; and six monitoring ids without occupancy, hence without limbo: they run out, always at the same step.
    SparseWithL2,
}

impl GuestMachine {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::CascadeLake, Self::SparseWithL2];

    /// Its name on command lines.
    pub fn name(self) -> &'static str {
        match self {
            Self::CascadeLake => "cascade-lake",
            Self::SparseWithL2 => "sparse-with-l2",
        }
    }

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|machine| machine.name() == name)
    }

    /// The emulator's configuration, with a kernel of this dialect.
    pub fn config(self, dialect: Dialect) -> MachineConfig {
        let cpus = MachineConfig::cpus(2, 1);
        let common = |l3| MachineConfig {
            dialect,
            vendor: Vendor::Intel,
            l3: Some(l3),
            l2: None,
            mb: None,
            smba: None,
            monitoring: None,
            cpu_mask_bits: cpus.len() as u32,
            cpus: cpus.clone(),
        };
        match self {
            Self::CascadeLake => MachineConfig {
                mb: Some(BandwidthConfig::intel(8)),
                monitoring: Some(MonitoringConfig { scale: RMID_SCALE, ..MonitoringConfig::all_events(RMIDS) }),
                ..common(CacheConfig { shareable: 0x600, cdp: true, bytes: L3_BYTES, ..CacheConfig::intel(11, 8) })
            },
            Self::SparseWithL2 => MachineConfig {
                l2: Some(CacheConfig { sparse: true, bytes: L2_BYTES, ..CacheConfig::intel(8, 6) }),
                monitoring: Some(MonitoringConfig { occupancy: false, ..MonitoringConfig::all_events(6) }),
                ..common(CacheConfig { shareable: 0x8001, sparse: true, bytes: L3_BYTES, ..CacheConfig::intel(16, 6) })
            },
        }
    }
}
