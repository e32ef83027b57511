//! The capabilities of this machine's resctrl, without the part that others use. Only reads.
//!
//! Source: Documentation/filesystems/resctrl.rst, "Info directory".

use std::collections::BTreeMap;
use std::io;

use nigh_terms::{CacheDomain, WayMask, Ways};

use super::fs::{MountOptions, ResctrlFs};
use super::groups::{GroupName, LiveState};
use super::schemata::Resource;

/// A cache that can be allocated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheInfo {
    /// Whether code and data have masks of their own (then every mask is written to both).
    pub cdp: bool,
    /// All its ways.
    pub full: WayMask,
    /// Least ways of a mask.
    pub min_ways: Ways,
    /// Classes of service, the root's included.
    pub closids: u32,
    /// Ways that hardware uses too (DDIO).
    pub shareable: WayMask,
    /// Whether masks may have holes; `None` where the kernel does not say (before 6.7).
    pub sparse: Option<bool>,
    /// Whether I/O traffic holds a class of its own now.
    pub io_class: bool,
    /// Its domains on line.
    pub domains: Vec<CacheDomain>,
}

impl CacheInfo {
    /// The resources that `schemata` names for it, given that of the undivided cache.
    pub fn resources(&self, whole: &Resource) -> Vec<Resource> {
        match (self.cdp, whole) {
            (true, Resource::L2) => vec![Resource::L2Code, Resource::L2Data],
            (true, _) => vec![Resource::L3Code, Resource::L3Data],
            (false, whole) => vec![whole.clone()],
        }
    }

    /// Why a mask is invalid for this cache; `None` if it is valid.
    pub fn wrong(&self, mask: WayMask) -> Option<String> {
        if mask.is_empty() {
            return Some("it holds no way".to_owned());
        }
        if !self.full.covers(mask) {
            return Some(format!("the cache has the ways {}", self.full));
        }
        if !mask.is_contiguous() && self.sparse != Some(true) {
            return Some("its ways are not neighbours".to_owned());
        }
        // The kernel counts the first run of a mask with holes.
        let first_run = (mask.bits() >> mask.bits().trailing_zeros()).trailing_ones();
        (first_run < u32::from(self.min_ways.0)).then(|| format!("a mask needs {} neighbouring ways", self.min_ways))
    }
}

/// The unit of a bandwidth value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BandwidthUnit {
    /// Percent of the throttle's scale (Intel).
    Percent,
    /// MiB/s, held by the kernel's software controller (mounted with `mba_MBps`).
    MebibytesPerSecond,
    /// Units of 1/8 GB/s (AMD).
    EighthGigabytesPerSecond,
}

impl std::fmt::Display for BandwidthUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Percent => "percent",
            Self::MebibytesPerSecond => "MiB/s",
            Self::EighthGigabytesPerSecond => "eighths of a GB/s",
        })
    }
}

/// A memory bandwidth control.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BandwidthInfo {
    /// Classes of service.
    pub closids: u32,
    /// Unit of its values.
    pub unit: BandwidthUnit,
    /// Least value.
    pub min: u32,
    /// Step; the kernel rounds up to it.
    pub step: u32,
    /// Whether the scale is linear.
    pub linear: bool,
    /// Its domains on line.
    pub domains: Vec<CacheDomain>,
}

/// L3 monitoring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MonitoringInfo {
    /// Monitoring ids, the root's included.
    pub rmids: u32,
    /// The events, by their file's name.
    pub events: Vec<String>,
    /// Occupancy in bytes below which a freed id is used again.
    pub max_threshold_occupancy: u64,
    /// L3s that sub-NUMA clustering splits, each with its number of nodes.
    pub sub_numa: BTreeMap<CacheDomain, usize>,
}

/// Who holds the classes of service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosBudget {
    /// All class ids: the least count of all resources.
    pub total: usize,
    /// Held by others' groups, which are named.
    pub foreign: Vec<String>,
    /// Held by Nigh's groups.
    pub owned: Vec<GroupName>,
    /// Held for I/O traffic.
    pub io: usize,
}

impl ClosBudget {
    /// Classes Nigh can have: all but the root's, others' and the I/O class.
    pub fn available(&self) -> usize {
        self.total.saturating_sub(1 + self.foreign.len() + self.io)
    }

    /// Classes nobody holds.
    pub fn free(&self) -> usize {
        self.available().saturating_sub(self.owned.len())
    }
}

/// The properties of the mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// How it is mounted.
    pub options: MountOptions,
    /// The L3.
    pub l3: Option<CacheInfo>,
    /// The L2.
    pub l2: Option<CacheInfo>,
    /// Memory bandwidth.
    pub mb: Option<BandwidthInfo>,
    /// Slow memory bandwidth (AMD).
    pub smba: Option<BandwidthInfo>,
    /// Monitoring.
    pub monitoring: Option<MonitoringInfo>,
    /// Resources in `info/` this driver does not know.
    pub unknown: Vec<String>,
    /// Who holds the classes.
    pub closids: ClosBudget,
}

impl Probe {
    /// Reads everything. `Ok(None)` if resctrl is not mounted (any more).
    pub(super) fn read(fs: &dyn ResctrlFs, live: &LiveState) -> io::Result<Option<Self>> {
        let Some(options) = fs.mount_options()? else { return Ok(None) };
        let names = fs.list("info")?;
        let names: Vec<&str> = names.iter().filter_map(|name| name.strip_suffix('/')).collect();
        let has = |name: &str| names.contains(&name);
        let cache = |whole: &str, resource: Resource| -> io::Result<Option<CacheInfo>> {
            let halves = format!("{whole}CODE");
            match (has(whole), has(&halves)) {
                (true, _) => read_cache(fs, whole, false, live.root.schemata.domains(&resource).collect()).map(Some),
                (_, true) => {
                    let code = Resource::parse(&halves);
                    read_cache(fs, &halves, true, live.root.schemata.domains(&code).collect()).map(Some)
                }
                _ => Ok(None),
            }
        };
        let bandwidth = |name: &str| -> io::Result<Option<BandwidthInfo>> {
            let resource = Resource::parse(name);
            let software = options.mba_mbps && resource == Resource::Mb;
            let domains = live.root.schemata.domains(&resource).collect();
            if has(name) { read_bandwidth(fs, name, software, domains).map(Some) } else { Ok(None) }
        };
        let (l3, l2) = (cache("L3", Resource::L3)?, cache("L2", Resource::L2)?);
        let (mb, smba) = (bandwidth("MB")?, bandwidth("SMBA")?);
        let monitoring = if has("L3_MON") { Some(read_monitoring(fs)?) } else { None };
        let caches = l3.iter().chain(&l2);
        let counts = caches.clone().map(|cache| cache.closids).chain(mb.iter().chain(&smba).map(|mb| mb.closids));
        let closids = ClosBudget {
            total: counts.min().unwrap_or(1) as usize,
            foreign: live.foreign_names(),
            owned: live.owned_names(),
            io: usize::from(caches.clone().any(|cache| cache.io_class)),
        };
        let known = |name: &str| name == "L3_MON" || !matches!(Resource::parse(name), Resource::Other(_));
        let unknown = names.iter().filter(|name| !known(name)).map(|name| (*name).to_owned()).collect();
        Ok(Some(Self { options, l3, l2, mb, smba, monitoring, unknown, closids }))
    }
}

/// Reads one number of a file below `info/`.
fn number(fs: &dyn ResctrlFs, path: &str, radix: u32) -> io::Result<u64> {
    let text = fs.read(path)?;
    u64::from_str_radix(text.trim(), radix)
        .map_err(|_not| io::Error::new(io::ErrorKind::InvalidData, format!("{path} holds {text:?}, no number")))
}

/// As [`number`], for one that must fit 32 bits.
fn number32(fs: &dyn ResctrlFs, path: &str, radix: u32) -> io::Result<u32> {
    let wide = number(fs, path, radix)?;
    u32::try_from(wide).map_err(|_wide| io::Error::new(io::ErrorKind::InvalidData, format!("{path} holds {wide}")))
}

/// A file's text, or `None` where the kernel has no such file.
fn optional(fs: &dyn ResctrlFs, path: &str) -> io::Result<Option<String>> {
    match fs.read(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_cache(fs: &dyn ResctrlFs, name: &str, cdp: bool, domains: Vec<CacheDomain>) -> io::Result<CacheInfo> {
    let path = |file: &str| format!("info/{name}/{file}");
    let min = number32(fs, &path("min_cbm_bits"), 10)?;
    Ok(CacheInfo {
        cdp,
        full: WayMask::from_bits(number32(fs, &path("cbm_mask"), 16)?),
        // AMD reports 0. A class without ways is useless, so the least here is one way.
        min_ways: Ways(min.clamp(1, 32) as u8),
        closids: number32(fs, &path("num_closids"), 10)?,
        shareable: WayMask::from_bits(number32(fs, &path("shareable_bits"), 16)?),
        sparse: optional(fs, &path("sparse_masks"))?.map(|text| text == "1"),
        io_class: optional(fs, &path("io_alloc"))?.is_some_and(|text| text == "enabled"),
        domains,
    })
}

fn read_bandwidth(
    fs: &dyn ResctrlFs,
    name: &str,
    software: bool,
    domains: Vec<CacheDomain>,
) -> io::Result<BandwidthInfo> {
    let path = |file: &str| format!("info/{name}/{file}");
    let (min, linear) = (number32(fs, &path("min_bandwidth"), 10)?, number(fs, &path("delay_linear"), 10)? == 1);
    let unit = match (software, min) {
        (true, _) => BandwidthUnit::MebibytesPerSecond,
        // Intel's least percentage is never 0, AMD's least value always.
        (false, 0) => BandwidthUnit::EighthGigabytesPerSecond,
        (false, _) => BandwidthUnit::Percent,
    };
    Ok(BandwidthInfo {
        closids: number32(fs, &path("num_closids"), 10)?,
        unit,
        min,
        step: number32(fs, &path("bandwidth_gran"), 10)?.max(1),
        linear,
        domains,
    })
}

fn read_monitoring(fs: &dyn ResctrlFs) -> io::Result<MonitoringInfo> {
    let features = fs.read("info/L3_MON/mon_features")?;
    let events = features.lines().filter(|line| !line.ends_with("_config")).map(str::to_owned).collect();
    let mut sub_numa = BTreeMap::new();
    for name in fs.list("mon_data")? {
        let id = name.strip_prefix("mon_L3_").and_then(|id| id.trim_end_matches('/').parse().ok());
        let Some(id) = id.map(CacheDomain) else { continue };
        let below = fs.list(&format!("mon_data/{}", name.trim_end_matches('/')))?;
        let nodes = below.iter().filter(|name| name.starts_with("mon_sub_L3_")).count();
        if nodes > 0 {
            sub_numa.insert(id, nodes);
        }
    }
    Ok(MonitoringInfo {
        rmids: number32(fs, "info/L3_MON/num_rmids", 10)?,
        events,
        max_threshold_occupancy: number(fs, "info/L3_MON/max_threshold_occupancy", 10)?,
        sub_numa,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::emulator::{Dialect, Emulator, Fault, MachineConfig, MonitoringConfig};

    fn probe(emulator: &Emulator) -> Probe {
        Probe::read(emulator, &LiveState::read(emulator).unwrap()).unwrap().unwrap()
    }

    #[test]
    fn the_papers_processor_leaves_seven_classes_beside_the_default() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux6_1));
        emulator.make_group("theirs").unwrap();
        let probe = probe(&emulator);
        assert_eq!((probe.closids.total, probe.closids.available(), probe.closids.free()), (8, 6, 6));
        assert_eq!(probe.closids.foreign, ["theirs"]);
        let l3 = probe.l3.unwrap();
        assert_eq!((l3.full.count(), l3.shareable.bits(), l3.sparse, l3.cdp), (Ways(11), 0x600, None, false));
        assert_eq!(probe.mb.unwrap().unit, BandwidthUnit::Percent);
        assert_eq!(probe.monitoring.unwrap().events.len(), 3);
    }

    #[test]
    fn a_remount_with_options_changes_what_there_is() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7));
        emulator.inject(Fault::Remount(MountOptions { cdp: true, mba_mbps: true, ..MountOptions::default() }));
        let probe = probe(&emulator);
        let l3 = probe.l3.unwrap();
        assert_eq!((l3.cdp, l3.closids), (true, 8));
        assert_eq!(l3.resources(&Resource::L3), [Resource::L3Code, Resource::L3Data]);
        assert_eq!(probe.mb.unwrap().unit, BandwidthUnit::MebibytesPerSecond);
    }

    #[test]
    fn amds_units_and_the_io_class_are_seen() {
        let emulator = Emulator::new(MachineConfig::epyc(Dialect::Linux7));
        emulator.write("info/L3/io_alloc", "1\n").unwrap();
        let probe = probe(&emulator);
        let l3 = probe.l3.unwrap();
        assert_eq!((l3.sparse, l3.io_class, l3.min_ways), (Some(true), true, Ways(1)));
        assert_eq!(probe.closids.available(), 14);
        assert_eq!(probe.mb.unwrap().unit, BandwidthUnit::EighthGigabytesPerSecond);
        assert!(probe.smba.is_some());
    }

    #[test]
    fn sub_numa_domains_are_counted() {
        let mut machine = MachineConfig::silver_4210r(Dialect::Linux7);
        machine.monitoring = Some(MonitoringConfig { sub_numa: true, ..MonitoringConfig::all_events(64) });
        machine.cpus.iter_mut().for_each(|cpu| cpu.node = cpu.cpu / 5);
        let probe = probe(&Emulator::new(machine));
        assert_eq!(probe.monitoring.unwrap().sub_numa, BTreeMap::from([(CacheDomain(0), 2)]));
    }

    #[test]
    fn an_offline_domain_is_not_there() {
        let emulator = Emulator::new(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 2, 1));
        emulator.inject(Fault::CpuOffline(1));
        assert_eq!(probe(&emulator).l3.unwrap().domains, [CacheDomain(0)]);
        emulator.inject(Fault::Unmount);
        let live = LiveState::read(&Emulator::new(MachineConfig::epyc(Dialect::Linux7))).unwrap();
        assert_eq!(Probe::read(&emulator, &live).unwrap(), None);
    }
}
