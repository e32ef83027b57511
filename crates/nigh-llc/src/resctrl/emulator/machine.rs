//! The machine an emulated mount runs on: which resources the processor has, how its CPUs share caches, and which
//! kernel answers. Plain data; the presets are machines that exist.
//!
//! Source: the figures the kernel takes from CPUID leaves 0x10 and 0xf (Intel SDM vol. 3, 19.17 to 19.19).

/// The emulated kernel's texts and abilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// Linux 6.1: zero-padded masks, one task per write, no rename, status kept over mkdir, rmdir and cpus writes.
    Linux6_1,
    /// Linux 7: unpadded masks, comma lists in `tasks`, rename of monitoring groups, `sparse_masks`, `debug`.
    Linux7,
}

/// The vendor of the processor. The two differ in the meaning of masks and bandwidth values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// Throttling in percent; empty masks refused.
    Intel,
    /// Bandwidth in units of 1/8 GB/s; sparse and empty masks allowed.
    Amd,
}

/// A cache whose ways can be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Length of a mask, in ways (1 to 32).
    pub ways: u8,
    /// Classes of service, the root's included (halved under CDP).
    pub closids: u32,
    /// Least ones in a mask (0 on AMD, 2 on Haswell, else 1).
    pub min_bits: u32,
    /// Ways that the hardware uses itself (DDIO), as a mask.
    pub shareable: u32,
    /// Whether the processor takes masks with holes.
    pub sparse: bool,
    /// Whether code and data can have masks of their own.
    pub cdp: bool,
    /// Whether I/O traffic can have a class of its own (AMD).
    pub io_alloc: bool,
    /// Size of one such cache, in bytes.
    pub bytes: u32,
}

/// A memory bandwidth control (MBA or AMD's SMBA).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandwidthConfig {
    /// Classes of service.
    pub closids: u32,
    /// Least value.
    pub min: u32,
    /// Greatest value, and the default.
    pub max: u32,
    /// Step; values are rounded up to it.
    pub gran: u32,
    /// Whether the scale is linear.
    pub linear: bool,
    /// Text of `thread_throttle_mode`, absent where the processor does not say.
    pub throttle: Option<&'static str>,
}

/// Cache and bandwidth monitoring of the L3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitoringConfig {
    /// Monitoring ids, the root's included.
    pub rmids: u32,
    /// `llc_occupancy`.
    pub occupancy: bool,
    /// `mbm_total_bytes`.
    pub total: bool,
    /// `mbm_local_bytes`.
    pub local: bool,
    /// Whether the bandwidth events can be configured (AMD BMEC).
    pub configurable: bool,
    /// Whether sub-NUMA clustering splits each L3 into one monitoring domain per node.
    pub sub_numa: bool,
    /// Bytes of one occupancy unit.
    pub scale: u32,
    /// Whether a freed id leaves limbo as soon as its occupancy allows, as after the kernel's worker, which runs every
    /// second; if not, only `Emulator::run_limbo_worker` frees it.
    pub limbo_drains_at_once: bool,
}

/// One CPU and the caches it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuConfig {
    /// Its number.
    pub cpu: u32,
    /// Id of its L3.
    pub l3: u32,
    /// Id of its L2.
    pub l2: u32,
    /// Its NUMA node (the monitoring domain under sub-NUMA clustering).
    pub node: u32,
}

/// A whole machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineConfig {
    /// Kernel.
    pub dialect: Dialect,
    /// Processor's maker.
    pub vendor: Vendor,
    /// L3 allocation.
    pub l3: Option<CacheConfig>,
    /// L2 allocation.
    pub l2: Option<CacheConfig>,
    /// Memory bandwidth allocation.
    pub mb: Option<BandwidthConfig>,
    /// Slow memory bandwidth allocation (AMD, Linux 7).
    pub smba: Option<BandwidthConfig>,
    /// L3 monitoring.
    pub monitoring: Option<MonitoringConfig>,
    /// CPUs, all online at start.
    pub cpus: Vec<CpuConfig>,
    /// Bits a CPU list may name before the kernel answers ERANGE (`nr_cpumask_bits`).
    pub cpu_mask_bits: u32,
}

impl CacheConfig {
    /// An Intel L3 of `ways` ways and `closids` classes, 1.25 MiB a way.
    pub fn intel(ways: u8, closids: u32) -> Self {
        Self {
            ways,
            closids,
            min_bits: 1,
            shareable: 0,
            sparse: false,
            cdp: false,
            io_alloc: false,
            bytes: u32::from(ways) * 1_310_720,
        }
    }
}

impl BandwidthConfig {
    /// Intel's throttling in percent, in steps of ten.
    pub fn intel(closids: u32) -> Self {
        Self { closids, min: 10, max: 100, gran: 10, linear: true, throttle: Some("max") }
    }

    /// AMD's limit in units of 1/8 GB/s; 2048 is unlimited.
    pub fn amd(closids: u32) -> Self {
        Self { closids, min: 0, max: 2048, gran: 1, linear: false, throttle: None }
    }
}

impl MonitoringConfig {
    /// All three L3 events with `rmids` ids.
    pub fn all_events(rmids: u32) -> Self {
        Self {
            rmids,
            occupancy: true,
            total: true,
            local: true,
            configurable: false,
            sub_numa: false,
            scale: 65_536,
            limbo_drains_at_once: true,
        }
    }
}

impl MachineConfig {
    /// CASY's processor, a Xeon Silver 4210R: 11 ways, 8 classes, ways 9 and 10 shared with I/O, one L3, ten cores.
    pub fn silver_4210r(dialect: Dialect) -> Self {
        let l3 = CacheConfig { shareable: 0x600, cdp: true, ..CacheConfig::intel(11, 16) };
        Self {
            dialect,
            vendor: Vendor::Intel,
            l3: Some(l3),
            l2: None,
            mb: Some(BandwidthConfig::intel(8)),
            smba: None,
            monitoring: Some(MonitoringConfig::all_events(144)),
            cpus: Self::cpus(1, 10),
            cpu_mask_bits: 10,
        }
    }

    /// The smallest machine with CAT: L3 masks alone, no bandwidth control, no monitoring.
    pub fn cat_only(dialect: Dialect, ways: u8, closids: u32, l3s: u32, cpus_each: u32) -> Self {
        Self {
            dialect,
            vendor: Vendor::Intel,
            l3: Some(CacheConfig::intel(ways, closids)),
            l2: None,
            mb: None,
            smba: None,
            monitoring: None,
            cpus: Self::cpus(l3s, cpus_each),
            cpu_mask_bits: l3s * cpus_each,
        }
    }

    /// An EPYC of two L3s: 16 ways with holes allowed, bandwidth in AMD's unit, configurable events.
    pub fn epyc(dialect: Dialect) -> Self {
        let l3 = CacheConfig { min_bits: 0, sparse: true, cdp: true, io_alloc: true, ..CacheConfig::intel(16, 16) };
        Self {
            dialect,
            vendor: Vendor::Amd,
            l3: Some(l3),
            l2: None,
            mb: Some(BandwidthConfig::amd(16)),
            smba: Some(BandwidthConfig::amd(16)),
            monitoring: Some(MonitoringConfig { configurable: true, ..MonitoringConfig::all_events(256) }),
            cpus: Self::cpus(2, 8),
            cpu_mask_bits: 16,
        }
    }

    /// `l3s` caches of `each` CPUs, numbered through; an L2 and a node per L3.
    pub fn cpus(l3s: u32, each: u32) -> Vec<CpuConfig> {
        (0..l3s * each).map(|cpu| CpuConfig { cpu, l3: cpu / each, l2: cpu, node: cpu / each }).collect()
    }
}
