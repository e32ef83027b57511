//! The emulated mount as a tree of directories and files. One list of entries serves look-ups, reads, writes and
//! listings.

use rustix::io::Errno;

use super::groups::MON_GROUPS;
use super::info::InfoOf;
use super::monitor::{Event, Scope};
use super::state::{CommandResult, GroupAt, State};

/// Longest single write, in bytes (PAGE_SIZE).
const WRITE_MAX: usize = 4096;

/// A directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dir {
    /// A group; control group 0 is the mount's root.
    Group(GroupAt),
    MonGroups(usize),
    MonData(GroupAt),
    /// `mon_L3_<id>`.
    MonDomain(GroupAt, u32),
    /// `mon_sub_L3_<node>` of an L3.
    MonNode(GroupAt, u32),
    Info,
    InfoOf(InfoOf),
}

/// A file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum File {
    Group(GroupAt, &'static str),
    Counter(GroupAt, Scope, Event),
    Status,
    Info(InfoOf, &'static str),
}

impl File {
    pub(super) fn is_info(&self) -> bool {
        matches!(self, Self::Status | Self::Info(..))
    }
}

/// Whatever a path names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Dir(Dir),
    File(File),
}

const ROOT: Dir = Dir::Group(GroupAt { ctrl: 0, mon: None });

impl State {
    /// Everything in a directory.
    pub(super) fn entries(&self, dir: Dir) -> Vec<(String, Node)> {
        match dir {
            Dir::Group(at) => self.group_entries(at),
            Dir::MonGroups(ctrl) => {
                let groups = self.groups[ctrl].mon.iter().enumerate();
                let dirs =
                    groups.map(|(mon, group)| (group.name.clone(), Dir::Group(GroupAt { ctrl, mon: Some(mon) })));
                dirs.map(|(name, dir)| (name, Node::Dir(dir))).collect()
            }
            Dir::MonData(at) => {
                let domains = self.monitored().into_keys();
                domains.map(|id| (format!("mon_L3_{id:02}"), Node::Dir(Dir::MonDomain(at, id)))).collect()
            }
            Dir::MonDomain(at, id) => {
                let nodes = self.monitored().remove(&id).unwrap_or_default();
                let scope = if nodes.is_empty() { Scope::One(id) } else { Scope::Sum(id) };
                let mut entries = self.counter_files(at, scope);
                let dirs = nodes.into_iter().map(|node| (format!("mon_sub_L3_{node:02}"), Dir::MonNode(at, node)));
                entries.extend(dirs.map(|(name, dir)| (name, Node::Dir(dir))));
                entries
            }
            Dir::MonNode(at, node) => self.counter_files(at, Scope::One(node)),
            Dir::Info => {
                let status = ("last_cmd_status".to_owned(), Node::File(File::Status));
                let dirs = self.info_dirs().into_iter().map(|(name, of)| (name, Node::Dir(Dir::InfoOf(of))));
                dirs.chain([status]).collect()
            }
            Dir::InfoOf(of) => {
                let files = self.info_files(of).into_iter();
                files.map(|file| (file.to_owned(), Node::File(File::Info(of, file)))).collect()
            }
        }
    }

    fn counter_files(&self, at: GroupAt, scope: Scope) -> Vec<(String, Node)> {
        let events = self.events().into_iter();
        events.map(|event| (event.file().to_owned(), Node::File(File::Counter(at, scope, event)))).collect()
    }

    fn group_entries(&self, at: GroupAt) -> Vec<(String, Node)> {
        let mut files = vec!["tasks", "cpus", "cpus_list"];
        let debug = self.options().debug;
        if at.mon.is_none() && (self.allocates() || at.ctrl == 0) {
            files.extend(["schemata", "mode", "size"]);
            if debug {
                files.push("ctrl_hw_id");
            }
            if self.options().mba_mbps && self.is_new_kernel() {
                files.push("mba_MBps_event");
            }
        }
        if debug && self.monitors() {
            files.push("mon_hw_id");
        }
        let files = files.into_iter().map(|file| (file.to_owned(), Node::File(File::Group(at, file))));
        let mut entries: Vec<_> = files.collect();
        let mut dir = |name: &str, dir| entries.push((name.to_owned(), Node::Dir(dir)));
        if self.monitors() {
            dir("mon_data", Dir::MonData(at));
            if at.mon.is_none() {
                dir(MON_GROUPS, Dir::MonGroups(at.ctrl));
            }
        }
        if at == (GroupAt { ctrl: 0, mon: None }) {
            dir("info", Dir::Info);
            for (ctrl, group) in self.groups.iter().enumerate().skip(1) {
                dir(&group.name, Dir::Group(GroupAt { ctrl, mon: None }));
            }
        }
        entries
    }

    /// An entry of a directory by name.
    pub(super) fn child(&self, node: &Node, name: &str) -> Option<Node> {
        let Node::Dir(dir) = node else { return None };
        self.entries(*dir).into_iter().find(|(entry, _)| entry == name).map(|(_, node)| node)
    }

    /// What a path names.
    pub(super) fn resolve(&self, path: &str) -> CommandResult<Node> {
        if self.mount.is_none() {
            // The bare directory below the mount point, where nothing is.
            return if path.is_empty() { Ok(Node::Dir(ROOT)) } else { Err(Errno::NOENT) };
        }
        let mut node = Node::Dir(ROOT);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            if matches!(node, Node::File(_)) {
                return Err(Errno::NOTDIR);
            }
            node = self.child(&node, name).ok_or(Errno::NOENT)?;
        }
        Ok(node)
    }

    /// A path's directory, which must exist, and its last name.
    pub(super) fn split<'a>(&self, path: &'a str) -> CommandResult<(Dir, &'a str)> {
        if self.mount.is_none() {
            // sysfs keeps the mount point empty: nothing is found or made in it.
            return Err(Errno::NOENT);
        }
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        match self.resolve(parent)? {
            _ if name.is_empty() => Err(Errno::NOENT),
            Node::Dir(dir) => Ok((dir, name)),
            Node::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// The names in a directory, sorted, directories marked.
    pub(super) fn list(&self, path: &str) -> CommandResult<Vec<String>> {
        match self.resolve(path)? {
            Node::Dir(_) if self.mount.is_none() => Ok(Vec::new()),
            Node::Dir(dir) => {
                let entries = self.entries(dir).into_iter();
                let mut names: Vec<_> =
                    entries.map(|(name, node)| if matches!(node, Node::Dir(_)) { name + "/" } else { name }).collect();
                names.sort();
                Ok(names)
            }
            Node::File(_) => Err(Errno::NOTDIR),
        }
    }

    /// The text of a file.
    pub(super) fn read(&mut self, path: &str) -> CommandResult<String> {
        match self.resolve(path)? {
            Node::Dir(_) => Err(Errno::ISDIR),
            Node::File(File::Status) => Ok(self.status()),
            Node::File(File::Info(of, file)) => self.show_info(of, file),
            Node::File(File::Counter(at, scope, event)) => self.show_counter(at, scope, event),
            Node::File(File::Group(at, file)) => Ok(match file {
                "tasks" => self.show_tasks(at),
                "cpus" => self.show_cpus(at, false),
                "cpus_list" => self.show_cpus(at, true),
                "schemata" => self.show_schemata(at.ctrl),
                "mode" => self.show_mode(at.ctrl),
                "size" => self.show_size(at.ctrl),
                "mba_MBps_event" => format!("{}\n", self.groups[at.ctrl].mbps_event),
                "ctrl_hw_id" => format!("{}\n", self.ids(at).0),
                "mon_hw_id" => format!("{}\n", self.ids(at).1),
                _ => return Err(Errno::NOENT),
            }),
        }
    }

    /// One write(2), one command.
    pub(super) fn write(&mut self, path: &str, text: &str) -> CommandResult<()> {
        let node = self.resolve(path)?;
        let file = match node {
            Node::Dir(_) => return Err(Errno::ISDIR),
            Node::File(File::Status | File::Counter(..) | File::Group(_, "size" | "ctrl_hw_id" | "mon_hw_id")) => {
                return Err(Errno::ACCESS);
            }
            Node::File(file) => file,
        };
        if text.len() > WRITE_MAX {
            return Err(Errno::TOOBIG);
        }
        match file {
            File::Info(of, file) => self.write_info(of, file, text),
            File::Group(at, "tasks") => self.write_tasks(at, text),
            File::Group(at, "cpus") => self.write_cpus(at, text, false),
            File::Group(at, "cpus_list") => self.write_cpus(at, text, true),
            File::Group(at, "schemata") => self.write_schemata(at, text),
            File::Group(at, "mode") => self.write_mode(at.ctrl, text),
            File::Group(at, "mba_MBps_event") => self.write_mbps_event(at.ctrl, text),
            File::Group(..) | File::Counter(..) | File::Status => Err(Errno::ACCESS),
        }
    }

    fn write_mbps_event(&mut self, ctrl: usize, text: &str) -> CommandResult<()> {
        let Some(text) = text.strip_suffix('\n') else { return Err(Errno::INVAL) };
        self.clear_status();
        let counted = |event: &Event| event.file() == text && *event != Event::Occupancy;
        match self.events().into_iter().find(counted) {
            Some(event) => {
                self.groups[ctrl].mbps_event = event.file();
                Ok(())
            }
            None => self.refuse(Errno::INVAL, &format!("Unsupported event id '{text}'\n")),
        }
    }
}
