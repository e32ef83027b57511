//! Drops, irrevocably, all privileges that a function does not need. Follows capabilities(7) and credentials(7).

use nigh_sandbox::sandbox::launch::IsolationLevel;
use rustix::fs::{Gid, Uid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, set_capabilities, set_no_new_privs, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

use crate::failure::{Failure, Step as _};
use crate::sys;

/// The most open files of a process; Lambda's limit.
const OPEN_FILES_MAX: u64 = 1024;
/// Higher than the number of capabilities of any kernel.
const CAPABILITIES_MAX: u32 = 64;

/// Bounds what the kernel lets the command use; a bound that is tighter already stays.
pub(crate) fn limit(processes_max: Option<u64>) -> Result<(), Failure> {
    let bounds =
        [(Resource::Core, Some(0)), (Resource::Nofile, Some(OPEN_FILES_MAX)), (Resource::Nproc, processes_max)];
    for (resource, bound) in bounds {
        let Some(bound) = bound else { continue };
        let bound = getrlimit(resource).maximum.map_or(bound, |maximum| maximum.min(bound));
        let both = Rlimit { current: Some(bound), maximum: Some(bound) };
        setrlimit(resource, both).step(format_args!("limit {resource:?}"))?;
    }
    Ok(())
}

/// Becomes the sandbox's user and drops all capabilities; no program started later can win one.
pub(crate) fn drop_all(level: IsolationLevel) -> Result<(), Failure> {
    set_no_new_privs(true).step("forbid new privileges")?;
    // A container starts without capabilities.
    if matches!(level, IsolationLevel::None | IsolationLevel::Container { .. }) {
        return Ok(());
    }
    // Fails in kernels built without keys.
    let _without_keys = sys::new_session_keyring();
    clear_ambient_capability_set().step("clear the ambient capabilities")?;
    for capability in 0..CAPABILITIES_MAX {
        if !sys::forget_capability(capability).step(format_args!("forget capability {capability}"))? {
            break;
        }
    }
    if let Some(uid) = level.uid() {
        let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(uid));
        set_thread_groups(&[]).step("leave all groups")?;
        set_thread_res_gid(gid, gid, gid).step("become the sandbox's group")?;
        set_thread_res_uid(uid, uid, uid).step("become the sandbox's user")?;
    }
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, sets).step("drop the capabilities")
}
