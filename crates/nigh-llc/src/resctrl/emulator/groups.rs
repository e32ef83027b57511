//! Making, removing and renaming groups in the emulator, and the mask a new group starts with.
//!
//! Source: fs/resctrl/rdtgroup.c of the kernel, by behaviour.

use rustix::io::Errno;

use super::schemata_file::first_run;
use super::state::{CommandResult, Group, GroupAt, Mode, MonGroup, Resource, Schema, State};
use super::tree::{Dir, Node};

/// Longest name of a file, in bytes (NAME_MAX).
const NAME_MAX: usize = 255;
/// The directory that holds a control group's monitoring groups.
pub(super) const MON_GROUPS: &str = "mon_groups";

impl State {
    /// mkdir(2).
    pub(super) fn make(&mut self, path: &str) -> CommandResult<()> {
        let (parent, name) = self.split(path)?;
        if name.len() > NAME_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        // The kernel looks the name up first, so resctrl's own message never appears.
        if self.child(&Node::Dir(parent), name).is_some() {
            return Err(Errno::EXIST);
        }
        if name.contains('\n') {
            return Err(Errno::INVAL);
        }
        let new = self.is_new_kernel();
        match parent {
            Dir::Group(GroupAt { ctrl: 0, mon: None }) if self.allocates() => self.make_ctrl(name),
            Dir::MonGroups(ctrl) if name != MON_GROUPS => self.make_mon(ctrl, name),
            Dir::Info | Dir::InfoOf(_) if new && self.monitors() => Err(Errno::NODEV),
            _ => {
                if self.monitors() {
                    self.clear_status_if_new();
                }
                Err(Errno::PERM)
            }
        }
    }

    fn make_ctrl(&mut self, name: &str) -> CommandResult<()> {
        self.clear_status_if_new();
        // Which id runs out first depends on the kernel.
        let (closid, rmid) = if self.is_new_kernel() {
            let closid = self.alloc_closid()?;
            let rmid = self.alloc_rmid().inspect_err(|_errno| self.closid_used[closid as usize] = false)?;
            (closid, rmid)
        } else {
            let rmid = self.alloc_rmid()?;
            let closid = self.alloc_closid().inspect_err(|_errno| self.free_rmid(rmid))?;
            (closid, rmid)
        };
        if let Err(errno) = self.init_values(closid) {
            self.closid_used[closid as usize] = false;
            self.free_rmid(rmid);
            return Err(errno);
        }
        self.groups.push(Group {
            name: name.to_owned(),
            closid,
            rmid,
            mode: Mode::Shareable,
            cpus: Default::default(),
            mon: Vec::new(),
            mbps_event: self.default_mbps_event(),
        });
        Ok(())
    }

    fn make_mon(&mut self, ctrl: usize, name: &str) -> CommandResult<()> {
        self.clear_status_if_new();
        let rmid = self.alloc_rmid()?;
        self.groups[ctrl].mon.push(MonGroup { name: name.to_owned(), rmid, cpus: Default::default() });
        Ok(())
    }

    fn alloc_closid(&mut self) -> CommandResult<u32> {
        match self.closid_used.iter().position(|used| !used) {
            Some(free) => {
                self.closid_used[free] = true;
                Ok(free as u32)
            }
            None => self.refuse(Errno::NOSPC, "Out of CLOSIDs\n"),
        }
    }

    /// Gives a new class its first values. Nothing changes if a domain has no room.
    fn init_values(&mut self, closid: u32) -> CommandResult<()> {
        for at in 0..self.schemas.len() {
            let schema = &self.schemas[at];
            let values: CommandResult<Vec<(u32, u32)>> = match schema.is_cache() {
                true => self.first_masks(&schema.clone(), closid),
                false => Ok(schema.values.keys().map(|&id| (id, self.default_value(schema))).collect()),
            };
            for (id, value) in values? {
                if let Some(values) = self.schemas[at].values.get_mut(&id) {
                    values[closid as usize] = value;
                }
            }
        }
        Ok(())
    }

    /// Per domain, the mask a new class starts with: all that is shareable or unused, cut to its lowest run unless the
    /// kernel is new enough to know that masks may have holes here (seen on 7.2; 6.1 always cuts).
    pub(super) fn first_masks(&mut self, schema: &Schema, closid: u32) -> CommandResult<Vec<(u32, u32)>> {
        let hardware = self.cache(schema.resource).map_or(0, |cache| cache.shareable);
        let min_bits = self.cache(schema.resource).map_or(0, |cache| cache.min_bits);
        let holes = self.is_new_kernel() && self.cache(schema.resource).is_some_and(|cache| self.sparse(cache));
        let full = self.full_mask(schema.resource);
        let peer = self.peer(schema).cloned();
        let mut masks = Vec::new();
        for (&id, values) in &schema.values {
            let (mut used, mut shareable) = (hardware, hardware);
            for other in (0..schema.closids).filter(|&other| other != closid && self.closid_in_use(other)) {
                let peers = peer.as_ref().and_then(|peer| peer.values.get(&id)).map_or(0, |peer| peer[other as usize]);
                let value = values[other as usize] | peers;
                used |= value;
                if self.mode_of(other) == Some(Mode::Shareable) {
                    shareable |= value;
                }
            }
            let usable = shareable | full & !used;
            let mask = if holes { usable } else { first_run(usable) };
            if mask.count_ones() < min_bits {
                let text = format!("No space on {}:{id}\n", schema.name);
                return self.refuse(Errno::NOSPC, &text);
            }
            masks.push((id, mask));
        }
        Ok(masks)
    }

    /// rmdir(2). The status stays as it was.
    pub(super) fn remove(&mut self, path: &str) -> CommandResult<()> {
        match self.resolve(path)? {
            Node::File(_) => Err(Errno::NOTDIR),
            Node::Dir(Dir::Group(GroupAt { ctrl: 0, mon: None })) => Err(Errno::BUSY),
            Node::Dir(Dir::Group(GroupAt { ctrl, mon: None })) => {
                self.remove_ctrl(ctrl);
                Ok(())
            }
            Node::Dir(Dir::Group(GroupAt { ctrl, mon: Some(mon) })) => {
                self.remove_mon(ctrl, mon);
                Ok(())
            }
            Node::Dir(_) => Err(Errno::PERM),
        }
    }

    fn remove_ctrl(&mut self, ctrl: usize) {
        let group = self.groups.remove(ctrl);
        let root = (0, self.groups[0].rmid);
        self.processes.place_all(|thread| thread.closid == group.closid, root);
        self.groups[0].cpus.extend(group.cpus);
        self.closid_used[group.closid as usize] = false;
        self.free_rmid(group.rmid);
        for mon in group.mon {
            self.free_rmid(mon.rmid);
        }
    }

    fn remove_mon(&mut self, ctrl: usize, mon: usize) {
        let removed = self.groups[ctrl].mon.remove(mon);
        let parent = self.ids(GroupAt { ctrl, mon: None });
        self.processes.place_all(|thread| thread.rmid == removed.rmid, parent);
        self.groups[ctrl].cpus.extend(removed.cpus);
        self.free_rmid(removed.rmid);
    }

    /// rename(2): only a monitoring group, into a `mon_groups`; its tasks follow into the class of the new parent.
    pub(super) fn rename(&mut self, from: &str, to: &str) -> CommandResult<()> {
        let source = self.resolve(from)?;
        let (parent, name) = self.split(to)?;
        let target = self.child(&Node::Dir(parent), name);
        match (&source, &target) {
            // The kernel's VFS refuses before resctrl is called.
            (Node::Dir(_), _) if to.strip_prefix(from).is_some_and(|below| below.starts_with('/')) => {
                return Err(Errno::INVAL);
            }
            _ if from.strip_prefix(to).is_some_and(|below| below.starts_with('/')) => return Err(Errno::NOTEMPTY),
            (Node::Dir(_), Some(Node::File(_))) => return Err(Errno::NOTDIR),
            (Node::File(_), Some(Node::Dir(_))) => return Err(Errno::ISDIR),
            (source, Some(target)) if source == target => return Ok(()),
            _ => {}
        }
        if !self.is_new_kernel() {
            return Err(Errno::PERM);
        }
        let in_info = |dir: &Dir| matches!(dir, Dir::Info | Dir::InfoOf(_));
        let source_in_info = match &source {
            Node::Dir(dir) => in_info(dir),
            Node::File(file) => file.is_info(),
        };
        if source_in_info || in_info(&parent) {
            return Err(Errno::NOENT);
        }
        self.clear_status();
        let (ctrl, mon) = match source {
            Node::File(_) => return self.refuse(Errno::PERM, "Source and destination must be directories"),
            Node::Dir(Dir::Group(GroupAt { ctrl, mon: Some(mon) })) => (ctrl, mon),
            Node::Dir(_) => return self.refuse(Errno::PERM, "Source must be a MON group\n"),
        };
        let Dir::MonGroups(new_ctrl) = parent else {
            return self.refuse(Errno::PERM, "Destination must be a mon_groups subdirectory\n");
        };
        if name == MON_GROUPS {
            return self.refuse(Errno::PERM, "Destination must be a mon_groups subdirectory\n");
        }
        if !self.groups[ctrl].mon[mon].cpus.is_empty() && ctrl != new_ctrl {
            return self.refuse(Errno::PERM, "Cannot move a MON group that monitors CPUs\n");
        }
        if target.is_some() {
            return Err(Errno::EXIST);
        }
        self.groups[ctrl].mon[mon].name = name.to_owned();
        if ctrl != new_ctrl {
            let moved = self.groups[ctrl].mon.remove(mon);
            let ids = (self.groups[new_ctrl].closid, moved.rmid);
            self.processes.place_all(|thread| thread.rmid == moved.rmid, ids);
            self.groups[new_ctrl].mon.push(moved);
        }
        Ok(())
    }

    /// The class that I/O traffic takes: the L3's highest.
    pub(super) fn io_alloc_closid(&self) -> Option<u32> {
        let l3 = self.cache(Resource::L3).filter(|l3| l3.io_alloc)?;
        Some(l3.closids / if self.options().cdp { 2 } else { 1 } - 1)
    }
}
