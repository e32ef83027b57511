//! The same commands to the kernel and to the emulator, step by step: what each answers, what it says of it, and the
//! whole tree after it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use nigh_llc::resctrl::{MountOptions, ResctrlFs};
use serde::Serialize;

use crate::command::Command;
use crate::shrink::shrink;
use crate::threads::{Threads, own_tid};

/// Threads at the begin of each list of commands.
const THREADS: usize = 3;
/// Steps after which the trees are compared, while no difference is known: it is the slowest part. When one is, they
/// are compared after every step, so that the list ends where the difference begins.
const STEPS_BETWEEN_TREES: usize = 10;
/// Names of files in which the two may differ. `mon_hw_id` shows a monitoring id: which one a group gets depends on
/// when the kernel's worker last looked at freed ones (once a second), and on all mounts before.
const VARYING: [&str; 1] = ["mon_hw_id"];
/// Files of which a difference of trees tells.
const FILES_TOLD_MAX: usize = 6;

/// One of the two that are compared.
pub(crate) trait Side {
    /// Its mount.
    fn fs(&self) -> &dyn ResctrlFs;
    /// Makes a group, once monitoring ids that were freed may be used again.
    fn make_group(&self, path: &str) -> io::Result<()>;
    /// Mounts afresh: no group, every value at its default.
    fn remount(&self, options: MountOptions) -> io::Result<()>;
    /// Learns that thread `of` started thread `tid`.
    fn forked(&self, of: u32, tid: u32);
    /// Learns that thread `tid` is gone.
    fn ended(&self, tid: u32);
    /// What `/proc/<tid>/cpu_resctrl_groups` shows.
    fn placement(&self, tid: u32) -> io::Result<String>;
}

/// Where the two differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Mismatch {
    /// What was compared.
    pub(crate) what: String,
    /// The shortest list of commands found that shows it, the last one being where.
    pub(crate) commands: Vec<String>,
    /// What the kernel shows.
    pub(crate) kernel: String,
    /// What the emulator shows, or what was expected.
    pub(crate) expected: String,
}

/// Runs `commands` after a fresh mount on both; the first difference, by the shortest list that has one.
pub(crate) fn difference(
    kernel: &dyn Side,
    emulator: &dyn Side,
    options: MountOptions,
    commands: &[Command],
) -> io::Result<Option<Mismatch>> {
    let first = |list: &[Command], every| first_difference(kernel, emulator, options, list, every);
    let Some((at, mismatch)) = first(commands, STEPS_BETWEEN_TREES)? else { return Ok(None) };
    let mut failed = None;
    let shortest = shrink(commands[..=at].to_vec(), |list| {
        first(list, 1)
            .unwrap_or_else(|error| {
                failed = Some(error);
                None
            })
            .is_some()
    });
    if let Some(error) = failed {
        return Err(error);
    }
    // A difference that does not come again is told with the whole list.
    Ok(Some(first(&shortest, 1)?.map_or(mismatch, |(_, shortest)| shortest)))
}

/// The first step after which the two differ; trees are compared at every `every`-th step and the last.
fn first_difference(
    kernel: &dyn Side,
    emulator: &dyn Side,
    options: MountOptions,
    commands: &[Command],
    every: usize,
) -> io::Result<Option<(usize, Mismatch)>> {
    let sides = [kernel, emulator];
    let mut threads = Threads::start(THREADS)?;
    kernel.remount(options)?;
    emulator.remount(options)?;
    for tid in threads.tids() {
        sides.iter().for_each(|side| side.forked(own_tid(), tid));
    }
    let mut found = None;
    for (at, command) in commands.iter().enumerate() {
        let [theirs, ours] = step(command, &mut threads, sides)?;
        let (what, theirs, ours) = if theirs != ours {
            ("answer and status", theirs, ours)
        } else if (at + 1) % every != 0 && at + 1 != commands.len() {
            continue;
        } else {
            let known: BTreeSet<u32> = threads.tids().chain([own_tid()]).collect();
            let [theirs, ours] = sides.map(|side| tree(side, &known));
            if theirs == ours {
                continue;
            }
            let (theirs, ours) = only_differences(&theirs, &ours);
            ("tree", theirs, ours)
        };
        let commands = commands[..=at].iter().map(Command::to_string).collect();
        found = Some((at, Mismatch { what: what.to_owned(), commands, kernel: theirs, expected: ours }));
        break;
    }
    for tid in threads.tids() {
        sides.iter().for_each(|side| side.ended(tid));
    }
    Ok(found)
}

/// Does one command on both: the answers with the status texts after them.
fn step(command: &Command, threads: &mut Threads, sides: [&dyn Side; 2]) -> io::Result<[String; 2]> {
    match command {
        Command::Fork(place) => {
            if let Some((of, tid)) = threads.fork(*place as usize)? {
                sides.iter().for_each(|side| side.forked(of, tid));
            }
        }
        Command::End(place) => {
            if let Some(tid) = threads.end(*place as usize)? {
                sides.iter().for_each(|side| side.ended(tid));
            }
        }
        _ => {}
    }
    let known: BTreeSet<u32> = threads.tids().chain([own_tid()]).collect();
    Ok(sides.map(|side| {
        let fs = side.fs();
        let answer = match command {
            Command::Make(path) => told(side.make_group(path).map(|()| String::new())),
            Command::Remove(path) => told(fs.remove_group(path).map(|()| String::new())),
            Command::Rename(from, to) => told(fs.rename_group(from, to).map(|()| String::new())),
            Command::Write { path, text } => told(fs.write(path, &threads.fill_in(text)).map(|()| String::new())),
            Command::Read(path) => shown(fs, path, &known),
            Command::Fork(_) | Command::End(_) => String::new(),
        };
        format!("{answer}; status {:?}", told(fs.read("info/last_cmd_status")))
    }))
}

/// An answer as text; of an error its number, whoever made it.
fn told(answer: io::Result<String>) -> String {
    match answer {
        Ok(text) => format!("ok {text}"),
        Err(error) => match error.raw_os_error() {
            Some(errno) => format!("errno {errno}"),
            None => format!("no errno: {error}"),
        },
    }
}

/// What a file shows; of `tasks` only the threads that both sides know, in order.
fn shown(fs: &dyn ResctrlFs, path: &str, known: &BTreeSet<u32>) -> String {
    let text = fs.read(path);
    if path != "tasks" && !path.ends_with("/tasks") {
        return told(text);
    }
    told(text.map(|text| {
        let listed: BTreeSet<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        listed.intersection(known).map(|tid| format!("{tid}\n")).collect()
    }))
}

/// Every folder and file with what it shows, and every thread with its groups.
fn tree(side: &dyn Side, known: &BTreeSet<u32>) -> BTreeMap<String, String> {
    let fs = side.fs();
    let mut seen = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let names = match fs.list(&folder) {
            Ok(names) => names,
            Err(error) => {
                seen.insert(format!("{folder}/"), told(Err(error)));
                continue;
            }
        };
        for name in names {
            let path = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            match path.strip_suffix('/') {
                Some(inner) => {
                    seen.insert(path.clone(), String::new());
                    folders.push(inner.to_owned());
                }
                None if VARYING.iter().any(|name| path.ends_with(name)) => {}
                None => _ = seen.insert(path.clone(), shown(fs, &path, known)),
            }
        }
    }
    for tid in known {
        seen.insert(format!("/proc/{tid}/cpu_resctrl_groups"), told(side.placement(*tid)));
    }
    seen
}

/// The lines in which two trees differ.
fn only_differences(theirs: &BTreeMap<String, String>, ours: &BTreeMap<String, String>) -> (String, String) {
    let differ: Vec<&String> = theirs
        .keys()
        .chain(ours.keys().filter(|path| !theirs.contains_key(*path)))
        .filter(|path| theirs.get(*path) != ours.get(*path))
        .take(FILES_TOLD_MAX)
        .collect();
    let told = |tree: &BTreeMap<String, String>| {
        let line = |path: &&String| match tree.get(*path) {
            Some(text) => format!("{path}: {text:?}"),
            None => format!("{path}: not there"),
        };
        differ.iter().map(line).collect::<Vec<_>>().join("\n")
    };
    (told(theirs), told(ours))
}

#[cfg(test)]
mod tests {
    use nigh_llc::resctrl::emulator::{Dialect, GuestMachine, MachineConfig};

    use super::*;
    use crate::command::commands;
    use crate::draw::Draw;
    use crate::sides::EmulatedSide;

    fn found(kernel: MachineConfig, emulator: MachineConfig, commands: &[Command]) -> Option<Mismatch> {
        difference(&EmulatedSide::new(kernel), &EmulatedSide::new(emulator), MountOptions::default(), commands).unwrap()
    }

    #[test]
    fn equal_machines_differ_nowhere() {
        for machine in GuestMachine::ALL {
            let machine = machine.config(Dialect::Linux7);
            let drawn = commands(&mut Draw::new(1), &machine, MountOptions::default(), 100);
            assert_eq!(found(machine.clone(), machine, &drawn), None);
        }
    }

    #[test]
    fn a_difference_of_answers_is_told_by_its_shortest_list() {
        // Linux tells a CPU it cannot have from one that is only off line; nothing else shows which it is.
        let machine = GuestMachine::CascadeLake.config(Dialect::Linux7);
        let more = MachineConfig { cpu_mask_bits: 3, ..machine.clone() };
        let mut list: Vec<Command> = (0..20).map(|_each| Command::Read("schemata".to_owned())).collect();
        list.insert(3, Command::Make("a".to_owned()));
        list.insert(12, Command::Write { path: "a/cpus_list".to_owned(), text: "2".to_owned() });
        let found = found(machine, more, &list).unwrap();
        assert_eq!(found.commands, ["mkdir \"a\"", "write a/cpus_list \"2\""]);
        assert_eq!(found.what, "answer and status");
        assert!(found.expected.contains("Can only assign online CPUs"), "{found:?}");
    }

    #[test]
    fn a_difference_that_only_the_tree_shows_is_found() {
        let machine = GuestMachine::CascadeLake.config(Dialect::Linux7);
        let mut coarser = machine.clone();
        coarser.mb.iter_mut().for_each(|mb| mb.gran = 20);
        let write = |text: &str| Command::Write { path: "schemata".to_owned(), text: text.to_owned() };
        let found = found(machine, coarser, &[write("L3:0=f\n"), write("MB:0=30\n"), write("L3:0=7ff\n")]).unwrap();
        assert_eq!(found.what, "tree");
        assert!(found.kernel.contains("info/MB/bandwidth_gran"), "{found:?}");
    }
}
