//! This machine's facts, for defaults and the status.

use std::path::{Path, PathBuf};

use nigh_terms::ByteSize;

/// The facts of this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The host name.
    pub hostname: String,
    /// The memory that this process may use: the machine's, or its container's if that is less.
    pub memory: ByteSize,
    /// The number of processors that this process may use.
    pub cpus: usize,
    /// The Python interpreter found first in `PATH`; `python3` if there is none.
    pub python: PathBuf,
}

/// The files with a container's memory limit, as seen from inside: cgroup v2, then v1.
const CONTAINER_LIMITS: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
/// The memory that is assumed if the kernel gives no figure: small defaults do no harm.
const MEMORY_UNKNOWN: ByteSize = ByteSize::gib(1);

impl Machine {
    /// Reads the facts from the kernel.
    #[must_use]
    pub fn probe() -> Self {
        let limits = CONTAINER_LIMITS.iter().filter_map(|path| std::fs::read_to_string(path).ok());
        let total = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| memory_total(&text));
        let memory = limits
            .filter_map(|text| text.trim().parse().ok().map(ByteSize))
            .chain(total)
            .min()
            .unwrap_or(MEMORY_UNKNOWN);
        Self {
            hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            memory,
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            python: find_in_path("python3").unwrap_or_else(|| PathBuf::from("python3")),
        }
    }
}

fn memory_total(meminfo: &str) -> Option<ByteSize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok().map(ByteSize::kib)
}

fn find_in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::EXEC_OK).is_ok() && file.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_total_is_read() {
        let meminfo = "MemTotal:        8141236 kB\nMemFree:  1 kB\n";
        assert_eq!(memory_total(meminfo), Some(ByteSize::kib(8_141_236)));
        assert_eq!(memory_total("nothing"), None);
    }

    #[test]
    fn this_machine_has_memory_and_a_processor() {
        let machine = Machine::probe();
        assert!(machine.memory > ByteSize::mib(64) && machine.cpus > 0 && !machine.hostname.is_empty());
    }
}
