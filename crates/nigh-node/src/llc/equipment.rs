//! The machine's classes of service, by the settings: how invocations are bound, and the memory bandwidth of
//! insensitive functions. A setting that this machine cannot apply fails the start, with the reason.

use nigh_llc::CacheShape;
use nigh_llc::resctrl::{Probe, Resctrl};
use nigh_sandbox::cgroup::cpuset::SandboxCpus;
use nigh_ways::{ResctrlClasses, SizingModelsError, cache_shape};
use thiserror::Error;

use crate::config::{LlcBind, LlcSettings};

/// Why the cache cannot be opened.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each message says what the fields hold")]
pub enum LlcError {
    #[error(transparent)]
    Models(#[from] SizingModelsError),
    #[error("setting llc.insensitive_bandwidth = {value}: {reason}; leave it unset for no limit")]
    Bandwidth { value: u32, reason: String },
    #[error("setting llc.bind = \"cpus\": sandboxes cannot have a core each: {0}; \"tasks\" needs no cores")]
    Cpus(String),
}

/// The machine's classes; the error is why it has none.
pub(super) type Classes = Result<(CacheShape, ResctrlClasses), String>;

/// This machine's classes, by the settings. `cpus` confines its sandboxes.
///
/// # Errors
/// If the machine cannot apply a setting.
pub(super) fn classes(settings: &LlcSettings, cpus: Result<SandboxCpus, String>) -> Result<Classes, LlcError> {
    let found = Resctrl::open_kernel().and_then(|resctrl| {
        let probe = resctrl.probe()?;
        Ok((resctrl, probe))
    });
    equipped(found.map_err(|unavailable| unavailable.to_string()), settings, cpus)
}

fn equipped(
    found: Result<(Resctrl, Probe), String>,
    settings: &LlcSettings,
    cpus: Result<SandboxCpus, String>,
) -> Result<Classes, LlcError> {
    let cpus = match settings.bind {
        LlcBind::Tasks => None,
        LlcBind::Cpus => Some(cpus.map_err(LlcError::Cpus)?),
    };
    let bandwidth = |value, reason: String| LlcError::Bandwidth { value, reason };
    let (resctrl, probe) = match (found, settings.insensitive_bandwidth) {
        (Ok(found), _) => found,
        (Err(reason), Some(value)) => return Err(bandwidth(value, reason)),
        (Err(reason), None) => return Ok(Err(reason)),
    };
    let mut classes = ResctrlClasses::new(resctrl, &probe);
    if let Err(error) = classes.drop_earlier_counts() {
        tracing::warn!(
            error,
            "monitoring groups of an earlier life cannot be removed; the use of fewer sandboxes is counted"
        );
    }
    if let Some(value) = settings.insensitive_bandwidth {
        classes = classes
            .with_insensitive_bandwidth(value, &probe)
            .map_err(|refusal| bandwidth(value, refusal.to_string()))?;
    }
    if let Some(cpus) = cpus {
        classes = classes.by_cores(cpus);
    }
    let shape = cache_shape(&probe).ok_or_else(|| "resctrl has no L3 cache allocation on this machine".to_owned());
    Ok(shape.map(|shape| (shape, classes)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nigh_llc::resctrl::emulator::{Dialect, Emulator, MachineConfig};

    use super::*;
    use crate::config::LlcPolicy;

    fn settings(bind: LlcBind, insensitive_bandwidth: Option<u32>) -> LlcSettings {
        LlcSettings { policy: LlcPolicy::Nigh, insensitive_ways: None, profile: true, bind, insensitive_bandwidth }
    }

    fn machine(config: MachineConfig) -> Result<(Resctrl, Probe), String> {
        let emulator = Emulator::new(config);
        let resctrl = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator)).unwrap();
        let probe = resctrl.probe().unwrap();
        Ok((resctrl, probe))
    }

    fn no_cpus() -> Result<SandboxCpus, String> {
        Err("the kernel has no such v1 tree mounted".to_owned())
    }

    #[test]
    fn what_the_machine_cannot_follow_is_refused_with_the_setting_and_the_reason() {
        let silver = || machine(MachineConfig::silver_4210r(Dialect::Linux7));
        let refused = |found, settings: &LlcSettings| equipped(found, settings, no_cpus()).err().unwrap().to_string();
        let reason = refused(silver(), &settings(LlcBind::Cpus, None));
        assert!(reason.contains("llc.bind") && reason.contains("no such v1 tree"), "{reason}");
        let reason = refused(silver(), &settings(LlcBind::Tasks, Some(33)));
        assert!(reason.contains("llc.insensitive_bandwidth = 33") && reason.contains("steps of 10"), "{reason}");
        let without = machine(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 1, 2));
        let reason = refused(without, &settings(LlcBind::Tasks, Some(30)));
        assert!(reason.contains("cannot limit memory bandwidth"), "{reason}");
        let reason = refused(Err("resctrl is not mounted".to_owned()), &settings(LlcBind::Tasks, Some(30)));
        assert!(reason.contains("not mounted"), "{reason}");
    }

    #[test]
    fn what_it_can_follow_gives_classes_and_a_machine_without_any_says_why() {
        let silver = machine(MachineConfig::silver_4210r(Dialect::Linux6_1));
        let classes = equipped(silver, &settings(LlcBind::Tasks, Some(30)), no_cpus()).unwrap();
        assert_eq!(classes.ok().unwrap().0.classes, 8);
        let none = equipped(Err("not mounted".to_owned()), &settings(LlcBind::Tasks, None), no_cpus()).unwrap();
        assert_eq!(none.err().unwrap(), "not mounted");
    }
}
