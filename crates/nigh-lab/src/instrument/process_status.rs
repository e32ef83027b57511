//! What the kernel tells of a process: its memory and its open descriptors (proc(5)).

use crate::LabError;
use crate::instrument::error::Tried;

/// The bytes of a process that proc_pid_status(5) has by this name.
pub(crate) fn memory_of(pid: u32, name: &str) -> Result<u64, LabError> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).at(&path)?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib = line.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| LabError::file(path, &format!("it has no {name}")))
}

/// How many descriptors a process has open.
pub(crate) fn descriptors_of(pid: u32) -> Result<u64, LabError> {
    let path = format!("/proc/{pid}/fd");
    Ok(std::fs::read_dir(&path).at(&path)?.count() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_descriptors_and_one_that_is_not_there_has_none() {
        let pid = std::process::id();
        assert!(memory_of(pid, "VmRSS").unwrap() > 1 << 20);
        assert!(memory_of(pid, "VmNothing").unwrap_err().to_string().contains("VmNothing"));
        let file = tempfile::tempfile().unwrap();
        assert!(descriptors_of(pid).unwrap() > 3);
        drop(file);
        assert!(descriptors_of(u32::MAX).is_err());
    }
}
