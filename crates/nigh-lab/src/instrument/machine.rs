//! The machine a figure was taken on.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use nigh_terms::{ByteSize, Clock, SystemClock};
use serde::Serialize;

use crate::instrument::peer::Peer;
use crate::instrument::tree::Tree;

/// What a reader needs to know to weigh a figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    /// The processor's name.
    pub cpu: String,
    /// Processors this process may run on.
    pub cores: usize,
    /// Caches of the first processor, smallest first: `L1d 32 KiB, L2 512 KiB, L3 32 MiB of 16`, where "of" is how many
    /// processors share it, if more than one do. Empty where the kernel does not tell.
    pub caches: String,
    /// Memory in GiB.
    pub memory_gib: f64,
    /// The kernel's release.
    pub kernel: String,
    /// What runs the machine, if it is virtual and says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// How the processors' frequency is governed, where that can be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The kernel gives large folios to the memory of objects.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub large_folios: bool,
    /// Load average of the last minute when the run began.
    pub load: f64,
    /// When, UTC.
    pub date: String,
    /// The command that prints the figure.
    pub command: String,
    /// The commit that the command was run in, short; `unknown` outside a clone.
    pub commit: String,
    /// The tree was not as that commit has it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dirty: bool,
    /// Nigh's version.
    pub nigh: &'static str,
    /// Versions of the peers that took part.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub peers: BTreeMap<String, String>,
}

impl Machine {
    /// Reads this machine; `command` is what was run.
    pub(crate) fn read(command: String) -> Self {
        let file = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let processor = file("/proc/cpuinfo");
        let memory = memory("MemTotal").bytes() as f64;
        let tree = Tree::read();
        Self {
            cpu: field(&processor, "model name"),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            caches: caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
            memory_gib: (memory / (1_u64 << 30) as f64 * 10.0).round() / 10.0,
            kernel: file("/proc/sys/kernel/osrelease").trim().to_owned(),
            hypervisor: hypervisor(&processor, Path::new("/sys")),
            governor: line(Path::new("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")),
            large_folios: nigh_data::large_folios_are_offered(),
            load: file("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or_default(),
            date: SystemClock::new().wall().rfc3339(),
            command,
            commit: tree.commit.clone(),
            dirty: tree.dirty,
            nigh: env!("CARGO_PKG_VERSION"),
            peers: BTreeMap::new(),
        }
    }

    /// Reads this machine for the command that this process is: `nigh` and its arguments, wherever the program lies.
    pub(crate) fn of_this_command() -> Self {
        let arguments = std::env::args().skip(1);
        Self::read(std::iter::once("nigh".to_owned()).chain(arguments).collect::<Vec<_>>().join(" "))
    }

    /// Notes that `peer` took part.
    pub(crate) fn add_peer(&mut self, peer: &dyn Peer) {
        self.peers.insert(peer.name().to_owned(), peer.version());
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} x {}", self.cores, self.cpu)?;
        if !self.caches.is_empty() {
            write!(f, " ({})", self.caches)?;
        }
        write!(f, ", {} GiB, load {}, Linux {}", self.memory_gib, self.load, self.kernel)?;
        for (what, known) in [("on", &self.hypervisor), ("governor", &self.governor)] {
            if let Some(known) = known {
                write!(f, ", {what} {known}")?;
            }
        }
        write!(f, ", {}, commit {}", self.date, self.commit)?;
        if self.dirty {
            write!(f, " with changes")?;
        }
        for (peer, version) in &self.peers {
            write!(f, ", {peer} {version}")?;
        }
        Ok(())
    }
}

/// The memory that programs may take now.
pub(crate) fn memory_available() -> ByteSize {
    memory("MemAvailable")
}

/// A line of the kernel's account of memory (proc(5)).
fn memory(name: &str) -> ByteSize {
    let account = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = field(&account, name).split(' ').next().and_then(|kib| kib.parse().ok());
    ByteSize::kib(kib.unwrap_or_default())
}

fn field(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(name));
    line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

/// The content of a file of one line; none if the file is absent or empty.
fn line(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The caches described in a processor's folder of sysfs (Documentation/ABI/testing/sysfs-devices-system-cpu).
fn caches(folder: &Path) -> String {
    let describe = |index: usize| {
        let read = |name: &str| line(&folder.join(format!("index{index}")).join(name));
        let (level, kind, size) = (read("level")?, read("type")?, read("size")?);
        let kind = match kind.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        let kib: u64 = size.trim_end_matches('K').parse().ok()?;
        let size =
            if kib >= 1024 && kib.is_multiple_of(1024) { format!("{} MiB", kib >> 10) } else { format!("{kib} KiB") };
        let sharers = read("shared_cpu_map")
            .map_or(1, |map| map.chars().filter_map(|digit| digit.to_digit(16)).map(u32::count_ones).sum());
        let shared = if sharers > 1 { format!(" of {sharers}") } else { String::new() };
        Some(format!("L{level}{kind} {size}{shared}"))
    };
    (0..).map_while(describe).collect::<Vec<_>>().join(", ")
}

/// The name that a virtual machine's firmware or kernel gives of what runs it.
fn hypervisor(processor: &str, sysfs: &Path) -> Option<String> {
    let virtual_machine = field(processor, "flags").split(' ').any(|flag| flag == "hypervisor");
    if !virtual_machine {
        return None;
    }
    let names = ["hypervisor/type", "class/dmi/id/sys_vendor", "class/dmi/id/product_name"];
    let names: Vec<String> = names.iter().filter_map(|name| line(&sysfs.join(name))).collect();
    Some(if names.is_empty() { "a hypervisor without a name".to_owned() } else { names.join(" ") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caches_are_told_by_level_kind_size_and_sharers() {
        let folder = tempfile::tempdir().unwrap();
        let caches_of =
            [("1", "Data", "32K", "1"), ("2", "Unified", "512K", "3"), ("3", "Unified", "32768K", "ff,000000ff")];
        for (index, (level, kind, size, map)) in caches_of.iter().enumerate() {
            let cache = folder.path().join(format!("index{index}"));
            std::fs::create_dir(&cache).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size), ("shared_cpu_map", map)] {
                std::fs::write(cache.join(name), format!("{text}\n")).unwrap();
            }
        }
        assert_eq!(caches(folder.path()), "L1d 32 KiB, L2 512 KiB of 2, L3 32 MiB of 16");
        assert_eq!(caches(&folder.path().join("index0")), "");
    }

    #[test]
    fn a_virtual_machine_says_so_with_or_without_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let processor = "model name\t: X\nflags\t\t: fpu hypervisor lm\n";
        assert_eq!(hypervisor("flags\t: fpu lm\n", folder.path()), None);
        assert_eq!(hypervisor(processor, folder.path()).unwrap(), "a hypervisor without a name");
        std::fs::create_dir_all(folder.path().join("class/dmi/id")).unwrap();
        std::fs::write(folder.path().join("class/dmi/id/sys_vendor"), "QEMU\n").unwrap();
        assert_eq!(hypervisor(processor, folder.path()).unwrap(), "QEMU");
    }

    #[test]
    fn the_line_about_a_machine_names_what_took_part() {
        let mut machine = Machine::read("nigh experiment x".to_owned());
        machine.peers.insert("Redis".to_owned(), "7.0.15".to_owned());
        machine.governor = Some("performance".to_owned());
        let line = machine.to_string();
        for part in [machine.kernel.as_str(), "governor performance", "Redis 7.0.15", &machine.date] {
            assert!(line.contains(part), "{line}");
        }
    }
}
