//! The emulated kernel's state: schemas with their values, groups, ids, the status text. Pure; no lock, no clock.
//!
//! Source: fs/resctrl/rdtgroup.c of the kernel, by behaviour.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rustix::io::Errno;

use super::machine::{CacheConfig, Dialect, MachineConfig, Vendor};
use super::monitor::Counters;
use super::process::Processes;
use crate::resctrl::fs::MountOptions;

/// The result of a command inside the emulator.
pub(super) type CommandResult<T> = Result<T, Errno>;

/// Room of the kernel's status text, its final NUL included.
const STATUS_BYTES: usize = 512;

/// A resource whose use can be allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Resource {
    L3,
    L2,
    Mb,
    Smba,
}

/// The half of a cache that a schema sets under CDP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheHalf {
    Whole,
    Code,
    Data,
}

/// One line of `schemata`.
#[derive(Debug, Clone)]
pub(super) struct Schema {
    pub(super) name: String,
    pub(super) resource: Resource,
    pub(super) half: CacheHalf,
    pub(super) closids: u32,
    /// Per domain, the value of every class.
    pub(super) values: BTreeMap<u32, Vec<u32>>,
}

impl Schema {
    pub(super) fn is_cache(&self) -> bool {
        matches!(self.resource, Resource::L3 | Resource::L2)
    }
}

/// Whether others may use a group's ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Shareable,
    Exclusive,
}

/// A monitoring group.
#[derive(Debug, Clone)]
pub(super) struct MonGroup {
    pub(super) name: String,
    pub(super) rmid: u32,
    pub(super) cpus: BTreeSet<u32>,
}

/// A control group.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Empty for the root.
    pub(super) name: String,
    pub(super) closid: u32,
    pub(super) rmid: u32,
    pub(super) mode: Mode,
    pub(super) cpus: BTreeSet<u32>,
    pub(super) mon: Vec<MonGroup>,
    pub(super) mbps_event: &'static str,
}

/// A group by position: a control group, or one of its monitoring groups. Positions hold during one command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupAt {
    pub(super) ctrl: usize,
    pub(super) mon: Option<usize>,
}

/// The state of the emulated kernel.
#[derive(Debug)]
pub(super) struct State {
    pub(super) machine: MachineConfig,
    pub(super) mount: Option<MountOptions>,
    status: String,
    pub(super) schemas: Vec<Schema>,
    /// The root first.
    pub(super) groups: Vec<Group>,
    pub(super) closid_used: Vec<bool>,
    pub(super) rmid_free: VecDeque<u32>,
    pub(super) rmid_limbo: Vec<u32>,
    pub(super) threshold: u32,
    pub(super) online: BTreeSet<u32>,
    pub(super) processes: Processes,
    pub(super) counters: Counters,
    pub(super) io_alloc: bool,
}

impl State {
    pub(super) fn new(machine: MachineConfig) -> Self {
        let online = machine.cpus.iter().map(|cpu| cpu.cpu).collect();
        let mut state = Self {
            counters: Counters::new(&machine),
            machine,
            mount: None,
            status: String::new(),
            schemas: Vec::new(),
            groups: Vec::new(),
            closid_used: Vec::new(),
            rmid_free: VecDeque::new(),
            rmid_limbo: Vec::new(),
            threshold: 0,
            online,
            processes: Processes::default(),
            io_alloc: false,
        };
        state.threshold = state.threshold_at_boot();
        state.reset();
        state
    }

    /// Mounts, as `mount -t resctrl` does.
    pub(super) fn mount(&mut self, options: MountOptions) -> CommandResult<()> {
        if self.mount.is_some() {
            return Err(Errno::BUSY);
        }
        let new = self.machine.dialect == Dialect::Linux7;
        let capable = |cache: &Option<CacheConfig>| cache.as_ref().is_some_and(|cache| cache.cdp);
        if options.cdp && !capable(&self.machine.l3) || options.cdpl2 && !capable(&self.machine.l2) {
            return Err(Errno::INVAL);
        }
        let bandwidth_counted = self.machine.monitoring.as_ref().is_some_and(|m| (m.total || m.local) && !m.sub_numa);
        let linear = self.machine.mb.as_ref().is_some_and(|mb| mb.linear);
        if options.mba_mbps && !(bandwidth_counted && linear) || options.debug && !new {
            return Err(Errno::INVAL);
        }
        if self.machine.l3.is_none() && self.machine.l2.is_none() && self.machine.mb.is_none() && !self.monitors() {
            return Err(Errno::NODEV);
        }
        self.mount = Some(options);
        self.reset();
        self.clear_status();
        Ok(())
    }

    /// Unmounts: every group gone, every value at its default, every task in the root.
    pub(super) fn unmount(&mut self) -> CommandResult<()> {
        if self.mount.take().is_none() {
            return Err(Errno::INVAL);
        }
        self.reset();
        Ok(())
    }

    /// The options in force; the defaults while not mounted.
    pub(super) fn options(&self) -> MountOptions {
        self.mount.unwrap_or_default()
    }

    pub(super) fn monitors(&self) -> bool {
        self.machine.monitoring.is_some()
    }

    pub(super) fn allocates(&self) -> bool {
        !self.schemas.is_empty()
    }

    pub(super) fn is_new_kernel(&self) -> bool {
        self.machine.dialect == Dialect::Linux7
    }

    fn reset(&mut self) {
        self.schemas = self.fresh_schemas();
        let closids = self.schemas.iter().map(|schema| schema.closids).min().unwrap_or(1);
        self.closid_used = vec![false; closids as usize];
        self.closid_used[0] = true;
        let rmids = self.machine.monitoring.as_ref().map_or(1, |monitoring| monitoring.rmids);
        self.rmid_free = (1..rmids).collect();
        self.rmid_limbo.clear();
        self.io_alloc = false;
        let event = self.default_mbps_event();
        self.groups = vec![Group {
            name: String::new(),
            closid: 0,
            rmid: 0,
            mode: Mode::Shareable,
            cpus: self.online.clone(),
            mon: Vec::new(),
            mbps_event: event,
        }];
        self.processes.move_all_to_root();
    }

    pub(super) fn default_mbps_event(&self) -> &'static str {
        match &self.machine.monitoring {
            Some(monitoring) if monitoring.local => "mbm_local_bytes",
            _ => "mbm_total_bytes",
        }
    }

    /// The schemas in the order `schemata` shows them: the reverse of their registration.
    fn fresh_schemas(&self) -> Vec<Schema> {
        let options = self.options();
        let mut registered = Vec::new();
        let mut add = |name: &str, resource, half, closids| {
            registered.push(Schema { name: name.to_owned(), resource, half, closids, values: BTreeMap::new() });
        };
        for (name, resource, config, cdp) in
            [("L3", Resource::L3, &self.machine.l3, options.cdp), ("L2", Resource::L2, &self.machine.l2, options.cdpl2)]
        {
            match config {
                Some(cache) if cdp => {
                    add(&format!("{name}CODE"), resource, CacheHalf::Code, cache.closids / 2);
                    add(&format!("{name}DATA"), resource, CacheHalf::Data, cache.closids / 2);
                }
                Some(cache) => add(name, resource, CacheHalf::Whole, cache.closids),
                None => {}
            }
        }
        if let Some(mb) = &self.machine.mb {
            add("MB", Resource::Mb, CacheHalf::Whole, mb.closids);
        }
        if let Some(smba) = self.machine.smba.as_ref().filter(|_smba| self.is_new_kernel()) {
            add("SMBA", Resource::Smba, CacheHalf::Whole, smba.closids);
        }
        registered.reverse();
        for schema in &mut registered {
            let default = self.default_value(schema);
            let values =
                self.domains(schema.resource).into_iter().map(|id| (id, vec![default; schema.closids as usize]));
            schema.values = values.collect();
        }
        registered
    }

    /// A schema's first value.
    pub(super) fn default_value(&self, schema: &Schema) -> u32 {
        match schema.resource {
            Resource::Mb if self.options().mba_mbps => u32::MAX,
            Resource::Mb => self.machine.mb.as_ref().map_or(0, |mb| mb.max),
            Resource::Smba => self.machine.smba.as_ref().map_or(0, |smba| smba.max),
            Resource::L3 | Resource::L2 => self.full_mask(schema.resource),
        }
    }

    /// A cache's figures.
    pub(super) fn cache(&self, resource: Resource) -> Option<&CacheConfig> {
        match resource {
            Resource::L3 => self.machine.l3.as_ref(),
            Resource::L2 => self.machine.l2.as_ref(),
            Resource::Mb | Resource::Smba => None,
        }
    }

    pub(super) fn full_mask(&self, resource: Resource) -> u32 {
        self.cache(resource).map_or(0, |cache| u32::MAX >> (32 - u32::from(cache.ways.clamp(1, 32))))
    }

    /// Whether a cache takes masks with holes: AMD always, Intel by the processor's word and a kernel that asks it.
    pub(super) fn sparse(&self, cache: &CacheConfig) -> bool {
        match self.machine.vendor {
            Vendor::Amd => true,
            Vendor::Intel => cache.sparse && self.is_new_kernel(),
        }
    }

    /// The domains of a resource with a CPU online, ascending.
    pub(super) fn domains(&self, resource: Resource) -> BTreeSet<u32> {
        let online = self.machine.cpus.iter().filter(|cpu| self.online.contains(&cpu.cpu));
        online.map(|cpu| if resource == Resource::L2 { cpu.l2 } else { cpu.l3 }).collect()
    }

    /// The other half's schema under CDP.
    pub(super) fn peer<'a>(&'a self, schema: &Schema) -> Option<&'a Schema> {
        if schema.half == CacheHalf::Whole {
            return None;
        }
        self.schemas.iter().find(|other| other.resource == schema.resource && other.half != schema.half)
    }

    /// The mode of the group with a class; none if no group has it.
    pub(super) fn mode_of(&self, closid: u32) -> Option<Mode> {
        self.groups.iter().find(|group| group.closid == closid).map(|group| group.mode)
    }

    pub(super) fn clear_status(&mut self) {
        self.status.clear();
    }

    /// Clears the status where only newer kernels do.
    pub(super) fn clear_status_if_new(&mut self) {
        if self.is_new_kernel() {
            self.clear_status();
        }
    }

    /// Appends to the status; what does not fit is cut off.
    pub(super) fn say(&mut self, text: &str) {
        let room = (STATUS_BYTES - 1).saturating_sub(self.status.len());
        let cut = (0..=room.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        self.status.push_str(&text[..cut]);
    }

    /// Sets the status and refuses.
    pub(super) fn refuse<T>(&mut self, errno: Errno, text: &str) -> CommandResult<T> {
        self.say(text);
        Err(errno)
    }

    /// The text of `last_cmd_status`.
    pub(super) fn status(&self) -> String {
        if self.status.is_empty() { "ok\n".to_owned() } else { self.status.clone() }
    }

    /// The closid and rmid of a group's tasks.
    pub(super) fn ids(&self, at: GroupAt) -> (u32, u32) {
        let group = &self.groups[at.ctrl];
        (group.closid, at.mon.map_or(group.rmid, |mon| group.mon[mon].rmid))
    }

    /// Takes a CPU offline or online, with the effects on groups and domains.
    pub(super) fn set_cpu_online(&mut self, cpu: u32, online: bool) {
        if self.machine.cpus.iter().all(|known| known.cpu != cpu) || self.online.contains(&cpu) == online {
            return;
        }
        if online {
            self.online.insert(cpu);
            self.groups[0].cpus.insert(cpu);
        } else {
            self.online.remove(&cpu);
            for group in &mut self.groups {
                group.cpus.remove(&cpu);
                group.mon.iter_mut().for_each(|mon| _ = mon.cpus.remove(&cpu));
            }
        }
        for at in 0..self.schemas.len() {
            let live = self.domains(self.schemas[at].resource);
            let default = self.default_value(&self.schemas[at]);
            let schema = &mut self.schemas[at];
            let closids = schema.closids as usize;
            schema.values.retain(|id, _| live.contains(id));
            for id in live {
                schema.values.entry(id).or_insert_with(|| vec![default; closids]);
            }
        }
    }
}
