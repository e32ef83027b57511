//! The basis of the conformance cases: the mount's figures, the cases' own groups, and the comparison of answers.

use std::fmt;
use std::io;

use rustix::io::Errno;

use super::super::fs::ResctrlFs;
use super::super::task_view::{TaskView, Tid};
use super::limbo::{self, LIMBO_WAIT_MAX, is_limbo};

/// The group every case finds made.
pub(super) const GROUP: &str = "nigh-conformance-a";
/// A second one, for cases that make it.
pub(super) const OTHER: &str = "nigh-conformance-b";
/// What all names of these groups begin with.
pub(super) const PREFIX: &str = "nigh-conformance-";

/// Why a case ended early.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The machine lacks what the case needs.
    NotApplicable(String),
    /// An answer was not as expected.
    Failed(String),
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotApplicable(reason) | Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// A command.
#[derive(Debug, Clone, Copy)]
pub(super) enum Op<'a> {
    Make(&'a str),
    Remove(&'a str),
    Write(&'a str, &'a str),
    Rename(&'a str, &'a str),
}

/// The figures of a cache that can be allocated.
#[derive(Debug, Clone)]
pub(super) struct Cache {
    /// As `schemata` names it.
    pub(super) name: String,
    pub(super) full: u32,
    pub(super) min_bits: u32,
    pub(super) shareable: u32,
    pub(super) sparse: bool,
    /// Its first domain.
    pub(super) domain: u32,
}

/// The mount under test.
pub(super) struct Bench<'a> {
    pub(super) fs: &'a dyn ResctrlFs,
    pub(super) tasks: &'a dyn TaskView,
    pub(super) task: Tid,
    cache: Option<Cache>,
    /// Whether the kernel is of the newer kind (6.7 on, told by `sparse_masks`).
    pub(super) new: bool,
    pub(super) monitors: bool,
}

impl<'a> Bench<'a> {
    pub(super) fn new(fs: &'a dyn ResctrlFs, tasks: &'a dyn TaskView, task: Tid) -> io::Result<Self> {
        if fs.mount_options()?.is_none() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "resctrl is not mounted"));
        }
        let info = fs.list("info")?;
        let mut bench =
            Self { fs, tasks, task, cache: None, new: false, monitors: info.iter().any(|name| name == "L3_MON/") };
        let caches = ["L3/", "L3CODE/", "L2/", "L2CODE/"];
        if let Some(name) = caches.into_iter().find(|name| info.iter().any(|there| there == name)) {
            let name = name.trim_end_matches('/');
            let sparse = fs.read(&format!("info/{name}/sparse_masks"));
            bench.new = sparse.is_ok();
            let number = |file: &str, radix| -> io::Result<u32> {
                let text = fs.read(&format!("info/{name}/{file}"))?;
                u32::from_str_radix(text.trim(), radix).map_err(io::Error::other)
            };
            let domain = bench.values("", name)?.first().map_or(0, |&(domain, _)| domain);
            bench.cache = Some(Cache {
                name: name.to_owned(),
                full: number("cbm_mask", 16)?,
                min_bits: number("min_cbm_bits", 10)?,
                shareable: number("shareable_bits", 16)?,
                sparse: sparse.is_ok_and(|text| text.trim() == "1"),
                domain,
            });
        }
        Ok(bench)
    }

    /// The cache, or the case does not apply.
    pub(super) fn cache(&self) -> Result<&Cache, Stop> {
        self.cache.as_ref().ok_or_else(|| Stop::NotApplicable("no cache can be allocated".to_owned()))
    }

    pub(super) fn need(&self, there: bool, what: &str) -> Result<(), Stop> {
        if there { Ok(()) } else { Err(Stop::NotApplicable(what.to_owned())) }
    }

    /// A file's path in a group (`""` is the root).
    pub(super) fn file(&self, group: &str, file: &str) -> String {
        if group.is_empty() { file.to_owned() } else { format!("{group}/{file}") }
    }

    /// A group's values of a schema by domain, as text.
    pub(super) fn values(&self, group: &str, schema: &str) -> io::Result<Vec<(u32, String)>> {
        let text = self.fs.read(&self.file(group, "schemata"))?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(schema)?.strip_prefix(':'));
        let values = line.unwrap_or_default().split(';').filter_map(|part| part.split_once('='));
        Ok(values.filter_map(|(id, value)| Some((id.parse().ok()?, value.trim().to_owned()))).collect())
    }

    /// A group's mask in the cache's first domain.
    pub(super) fn mask(&self, group: &str) -> Result<u32, Stop> {
        let cache = self.cache()?;
        let values = self.values(group, &cache.name)?;
        let value = values.into_iter().find(|(domain, _)| *domain == cache.domain).map(|(_, value)| value);
        let mask = value.and_then(|value| u32::from_str_radix(&value, 16).ok());
        mask.ok_or_else(|| Stop::Failed(format!("no {} mask in the schemata of {group:?}", cache.name)))
    }

    /// A line of `schemata` for the cache's first domain.
    pub(super) fn line(&self, mask: u32) -> Result<String, Stop> {
        let cache = self.cache()?;
        Ok(format!("{}:{}={mask:x}\n", cache.name, cache.domain))
    }

    /// Lines of `schemata` for every domain of the cache, both halves under CDP.
    pub(super) fn line_everywhere(&self, mask: u32) -> Result<String, Stop> {
        let name = &self.cache()?.name;
        let halves = name.strip_suffix("CODE").map(|whole| format!("{whole}DATA"));
        let mut text = String::new();
        for name in [Some(name.clone()), halves].into_iter().flatten() {
            let domains = self.values("", &name)?.into_iter().map(|(domain, _)| format!("{domain}={mask:x}"));
            text += &format!("{name}:{}\n", domains.collect::<Vec<_>>().join(";"));
        }
        Ok(text)
    }

    pub(super) fn status(&self) -> io::Result<String> {
        self.fs.read("info/last_cmd_status")
    }

    /// Runs a command with the status cleared before it: on older kernels not every command clears it.
    fn run(&self, op: Op<'_>) -> Result<io::Result<()>, Stop> {
        let clear = || -> io::Result<()> {
            let own = self.file(GROUP, "schemata");
            self.fs.write(&own, &self.fs.read(&own)?)
        };
        clear()?;
        Ok(match op {
            Op::Make(path) => limbo::make_group(self.fs, path, clear),
            Op::Remove(path) => self.fs.remove_group(path),
            Op::Write(path, text) => self.fs.write(path, text),
            Op::Rename(from, to) => self.fs.rename_group(from, to),
        })
    }

    /// The command must succeed, with the status `ok`.
    pub(super) fn accepted(&self, op: Op<'_>) -> Result<(), Stop> {
        if let Err(error) = self.run(op)? {
            return Err(Stop::Failed(format!("{op:?}: {error}; status {:?}", self.status()?)));
        }
        self.expect(&format!("status after {op:?}"), &self.status()?, &"ok\n".to_owned())
    }

    /// The command must fail with this errno and status.
    pub(super) fn refused(&self, op: Op<'_>, errno: Errno, status: &str) -> Result<(), Stop> {
        let answer = self.run(op)?;
        let raw = answer.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw_os_error);
        self.expect(&format!("errno of {op:?}"), &raw, &Some(errno))?;
        self.expect(&format!("status after {op:?}"), &self.status()?, &status.to_owned())
    }

    pub(super) fn expect<T: PartialEq + fmt::Debug>(&self, what: &str, got: &T, wanted: &T) -> Result<(), Stop> {
        if got == wanted { Ok(()) } else { Err(Stop::Failed(format!("{what}: got {got:?}, expected {wanted:?}"))) }
    }

    /// Makes the group that every case finds.
    pub(super) fn set_up(&self) -> Result<(), Stop> {
        match limbo::make_group(self.fs, GROUP, || Ok(())) {
            Err(error) if is_limbo(&error) => {
                Err(Stop::NotApplicable(format!("monitoring ids stay in limbo for more than {LIMBO_WAIT_MAX:?}")))
            }
            Ok(()) => Ok(()),
            Err(error) if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) => {
                Err(Stop::NotApplicable("no class of service is free".to_owned()))
            }
            Err(error) => Err(Stop::Failed(format!("making {GROUP}: {error}"))),
        }
    }

    /// Removes every group of these cases; the task goes back to the root with them.
    pub(super) fn tear_down(&self) -> Result<(), Stop> {
        if self.monitors {
            for mon in self.fs.list("mon_groups")?.iter().filter(|name| name.starts_with(PREFIX)) {
                self.fs.remove_group(&format!("mon_groups/{}", mon.trim_end_matches('/')))?;
            }
        }
        for name in self.fs.list("")?.iter().filter(|name| name.starts_with(PREFIX)) {
            self.fs.remove_group(name.trim_end_matches('/'))?;
        }
        Ok(())
    }

    /// The state that must be the same before and after: each group's schemata, mode and CPUs.
    pub(super) fn snapshot(&self) -> io::Result<Vec<(String, String)>> {
        let mut seen = Vec::new();
        let groups = self.fs.list("")?;
        let own = ["info/", "mon_data/", "mon_groups/"];
        let named = groups.iter().filter(|name| name.ends_with('/') && !own.contains(&name.as_str()));
        for group in [""].into_iter().chain(named.map(|name| name.trim_end_matches('/'))) {
            for file in ["schemata", "mode", "cpus_list"] {
                let path = self.file(group, file);
                let text = self.fs.read(&path)?;
                seen.push((path, text));
            }
        }
        Ok(seen)
    }
}
