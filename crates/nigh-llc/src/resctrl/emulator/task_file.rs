//! `tasks`, `cpus`, `cpus_list` and `/proc/<pid>/cpu_resctrl_groups` in the emulator.
//!
//! Source: fs/resctrl/rdtgroup.c of the kernel, by behaviour.

use std::collections::BTreeSet;

use rustix::io::Errno;

use super::number;
use super::process::Thread;
use super::state::{CommandResult, GroupAt, State};
use crate::resctrl::cpu_list::CpuList;

impl State {
    fn in_group(&self, thread: &Thread, at: GroupAt) -> bool {
        match at.mon {
            None => thread.closid == self.groups[at.ctrl].closid,
            Some(_) => self.monitors() && thread.rmid == self.ids(at).1,
        }
    }

    pub(super) fn show_tasks(&self, at: GroupAt) -> String {
        let members = self.processes.in_order().filter(|thread| self.in_group(thread, at));
        members.map(|thread| format!("{}\n", thread.tid)).collect()
    }

    /// Takes a write of `tasks`: one id, or on newer kernels several between commas; those before an error stay.
    pub(super) fn write_tasks(&mut self, at: GroupAt, text: &str) -> CommandResult<()> {
        if !self.is_new_kernel() {
            let id = number::signed32(number::strim(text), 0).ok().filter(|id| *id >= 0);
            let Some(id) = id else { return Err(Errno::INVAL) };
            self.clear_status();
            return self.move_task(at, id as u32);
        }
        self.clear_status();
        let mut rest = Some(text);
        while let Some(line) = rest.filter(|line| !line.is_empty() && !line.starts_with('\n')) {
            let (part, after) = line.split_once(',').map_or((line, None), |(part, after)| (part, Some(after)));
            rest = after;
            let part = number::strim(part);
            let Ok(id) = number::signed32(part, 0) else {
                return self.refuse(Errno::INVAL, &format!("Task list parsing error pid {part}\n"));
            };
            let Ok(tid) = u32::try_from(id) else {
                return self.refuse(Errno::INVAL, &format!("Invalid pid {id}\n"));
            };
            if let Err(errno) = self.move_task(at, tid) {
                return self.refuse(errno, &format!("Error while processing task {id}\n"));
            }
        }
        Ok(())
    }

    fn move_task(&mut self, at: GroupAt, tid: u32) -> CommandResult<()> {
        let wanted = if tid == 0 { self.processes.writer_tid } else { tid };
        let Some(thread) = self.processes.find(wanted).cloned() else {
            return self.refuse(Errno::SRCH, &format!("No task {tid}\n"));
        };
        let writer = self.processes.writer_uid;
        if writer != 0 && writer != thread.uid {
            return self.refuse(Errno::PERM, &format!("No permission to move task {}\n", thread.tid));
        }
        let ids = self.ids(at);
        if (thread.closid, thread.rmid) == ids {
            return Ok(());
        }
        if at.mon.is_some() && thread.closid != ids.0 {
            return self.refuse(Errno::INVAL, "Can't move task to different control group\n");
        }
        self.processes.place(thread.tid, ids);
        Ok(())
    }

    fn cpus_of(&self, at: GroupAt) -> &BTreeSet<u32> {
        let group = &self.groups[at.ctrl];
        at.mon.map_or(&group.cpus, |mon| &group.mon[mon].cpus)
    }

    pub(super) fn show_cpus(&self, at: GroupAt, list: bool) -> String {
        let cpus = self.cpus_of(at);
        let bits = self.machine.cpus.iter().map(|cpu| cpu.cpu + 1).max().unwrap_or(1);
        if list { CpuList(cpus.clone()).to_string() + "\n" } else { number::print_cpu_mask(cpus, bits) + "\n" }
    }

    /// Takes a write of `cpus` or `cpus_list`.
    pub(super) fn write_cpus(&mut self, at: GroupAt, text: &str, list: bool) -> CommandResult<()> {
        self.clear_status_if_new();
        let bits = self.machine.cpu_mask_bits;
        let parsed = if list { number::cpu_list(text, bits) } else { number::cpu_mask(text, bits) };
        let new = match parsed {
            Ok(new) => new,
            Err(errno) => return self.refuse(errno, "Bad CPU list/mask\n"),
        };
        if !new.is_subset(&self.online) {
            return self.refuse(Errno::INVAL, "Can only assign online CPUs\n");
        }
        match at.mon {
            None => self.assign_to_ctrl(at.ctrl, new),
            Some(mon) => self.assign_to_mon(at.ctrl, mon, new),
        }
    }

    fn assign_to_ctrl(&mut self, ctrl: usize, new: BTreeSet<u32>) -> CommandResult<()> {
        let dropped: Vec<u32> = self.groups[ctrl].cpus.difference(&new).copied().collect();
        if ctrl == 0 && !dropped.is_empty() {
            return self.refuse(Errno::INVAL, "Can't drop CPUs from default group\n");
        }
        self.groups[0].cpus.extend(dropped);
        let added: BTreeSet<u32> = new.difference(&self.groups[ctrl].cpus).copied().collect();
        for (_, group) in self.groups.iter_mut().enumerate().filter(|(at, _)| *at != ctrl) {
            let lost: BTreeSet<u32> = group.cpus.intersection(&added).copied().collect();
            group.cpus.retain(|cpu| !lost.contains(cpu));
            if !lost.is_empty() {
                group.mon.iter_mut().for_each(|mon| mon.cpus.retain(|cpu| group.cpus.contains(cpu)));
            }
        }
        self.groups[ctrl].cpus = new;
        self.groups[ctrl].mon.iter_mut().for_each(|mon| mon.cpus.clear());
        Ok(())
    }

    fn assign_to_mon(&mut self, ctrl: usize, mon: usize, new: BTreeSet<u32>) -> CommandResult<()> {
        if !new.is_subset(&self.groups[ctrl].cpus) {
            return self.refuse(Errno::INVAL, "Can only add CPUs to mongroup that belong to parent\n");
        }
        let dropped: Vec<u32> = self.groups[ctrl].mon[mon].cpus.difference(&new).copied().collect();
        self.groups[ctrl].cpus.extend(dropped);
        let added: BTreeSet<u32> = new.difference(&self.groups[ctrl].mon[mon].cpus).copied().collect();
        for (at, sibling) in self.groups[ctrl].mon.iter_mut().enumerate() {
            if at != mon {
                sibling.cpus.retain(|cpu| !added.contains(cpu));
            }
        }
        self.groups[ctrl].mon[mon].cpus = new;
        Ok(())
    }

    /// The text of `/proc/<tid>/cpu_resctrl_groups`.
    pub(super) fn show_groups_of(&self, tid: u32) -> CommandResult<String> {
        let thread = self.processes.find(tid).ok_or(Errno::SRCH)?;
        if self.mount.is_none() {
            return Ok("res:\nmon:\n".to_owned());
        }
        let group = self.groups.iter().find(|group| group.closid == thread.closid).ok_or(Errno::NOENT)?;
        let root = if group.name.is_empty() { "/" } else { "" };
        let mon = group.mon.iter().find(|mon| mon.rmid == thread.rmid).map_or("", |mon| &mon.name);
        Ok(format!("res:{root}{}\nmon:{mon}\n", group.name))
    }
}
