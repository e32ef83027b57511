//! The present groups: which are Nigh's (by the prefix of their name), which are foreign, and their values.
//!
//! After a crash Nigh finds its groups by their names alone. Foreign groups are never changed.

use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::fs::ResctrlFs;
use super::schemata::Schemata;
use super::task_view::is_gone;

/// The prefix of the names of Nigh's groups.
pub const OWNED_PREFIX: &str = "nigh-";
/// Longest group name, in bytes; the kernel's own limit is 255.
pub const NAME_MAX: usize = 64;
/// Directories at the root that are not groups.
const NO_GROUPS: [&str; 3] = ["info", "mon_data", "mon_groups"];

/// The name of one of Nigh's groups: the prefix, then lower-case letters, digits and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct GroupName(String);

/// Why a text is no name for a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is no name for a group: it must be {OWNED_PREFIX}, then letters a-z, digits or hyphens, {NAME_MAX} bytes at most"
)]
pub struct GroupNameError {
    name: String,
}

impl GroupName {
    /// Checks a whole name, prefix included.
    pub fn new(name: impl Into<String>) -> Result<Self, GroupNameError> {
        let name = name.into();
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let rest = name.strip_prefix(OWNED_PREFIX).filter(|rest| !rest.is_empty() && rest.chars().all(allowed));
        if rest.is_some() && name.len() <= NAME_MAX { Ok(Self(name)) } else { Err(GroupNameError { name }) }
    }

    /// The name, which is its path below the mount too.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of one of its files.
    pub fn file(&self, file: &str) -> String {
        format!("{}/{file}", self.0)
    }

    /// The path of one of its monitoring groups.
    pub fn monitor(&self, name: &GroupName) -> String {
        format!("{}/mon_groups/{name}", self.0)
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for GroupName {
    type Error = GroupNameError;

    fn try_from(name: String) -> Result<Self, GroupNameError> {
        Self::new(name)
    }
}

impl From<GroupName> for String {
    fn from(name: GroupName) -> Self {
        name.0
    }
}

/// Whether others may use a group's ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupMode {
    /// They may.
    Shareable,
    /// They may not.
    Exclusive,
    /// Its ways are locked, or about to be.
    PseudoLocked,
}

/// A control group as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveGroup {
    /// Its directory; empty for the root.
    pub name: String,
    /// Its mode.
    pub mode: GroupMode,
    /// Its values.
    pub schemata: Schemata,
}

impl LiveGroup {
    /// Its name if it is Nigh's.
    pub fn owned(&self) -> Option<GroupName> {
        GroupName::new(self.name.as_str()).ok()
    }

    /// Its name in messages.
    pub fn title(&self) -> &str {
        if self.name.is_empty() { "the default group" } else { &self.name }
    }
}

/// All present control groups, the root separately.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveState {
    /// The default class.
    pub root: LiveGroup,
    /// Every other group, by name.
    pub groups: Vec<LiveGroup>,
}

impl LiveState {
    /// Reads all groups. A group that is removed meanwhile is left out.
    pub(super) fn read(fs: &dyn ResctrlFs) -> io::Result<Self> {
        let mut groups = Vec::new();
        for name in fs.list("")? {
            let Some(name) = name.strip_suffix('/').filter(|name| !NO_GROUPS.contains(name)) else { continue };
            match read_group(fs, name) {
                Ok(group) => groups.push(group),
                Err(error)
                    if is_gone(&error) || error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self { root: read_group(fs, "")?, groups })
    }

    /// One of Nigh's groups.
    pub fn owned(&self, name: &GroupName) -> Option<&LiveGroup> {
        self.groups.iter().find(|group| group.name == name.as_str())
    }

    /// The names of Nigh's groups.
    pub fn owned_names(&self) -> Vec<GroupName> {
        self.groups.iter().filter_map(LiveGroup::owned).collect()
    }

    /// The names of others' groups.
    pub fn foreign_names(&self) -> Vec<String> {
        self.groups.iter().filter(|group| group.owned().is_none()).map(|group| group.name.clone()).collect()
    }
}

fn read_group(fs: &dyn ResctrlFs, name: &str) -> io::Result<LiveGroup> {
    let path = |file: &str| if name.is_empty() { file.to_owned() } else { format!("{name}/{file}") };
    let mode = match fs.read(&path("mode"))?.trim() {
        "shareable" => GroupMode::Shareable,
        "exclusive" => GroupMode::Exclusive,
        _ => GroupMode::PseudoLocked,
    };
    let schemata = Schemata::parse(&fs.read(&path("schemata"))?);
    let schemata = schemata.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok(LiveGroup { name: name.to_owned(), mode, schemata })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::emulator::{Dialect, Emulator, MachineConfig};

    #[test]
    fn only_names_with_the_prefix_are_ours() {
        assert_eq!(GroupName::new("nigh-cs-3").unwrap().file("tasks"), "nigh-cs-3/tasks");
        for wrong in ["nigh-", "cs-3", "nigh-A", "nigh-a/b", "nigh-a\n", "nigh-..", &format!("nigh-{}", "a".repeat(60))]
        {
            assert!(GroupName::new(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_group_is_read_with_its_owner() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux6_1));
        emulator.make_group("nigh-a").unwrap();
        emulator.make_group("theirs").unwrap();
        let live = LiveState::read(&emulator).unwrap();
        assert_eq!(live.owned_names(), [GroupName::new("nigh-a").unwrap()]);
        assert_eq!(live.foreign_names(), ["theirs"]);
        assert_eq!(live.root.title(), "the default group");
    }
}
