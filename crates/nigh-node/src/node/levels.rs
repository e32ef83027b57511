//! The features of a node, one line each for the status.

use nigh_data::large_folios_are_offered;
use nigh_invoke::node_memory::NodeMemory;
use nigh_sandbox::sandbox::SandboxEngine;
use nigh_schedule::prewarm::PrewarmSettings;
use nigh_terms::ByteSize;

use super::memory_shares::MemoryShares;
use crate::config::{Network, PrewarmMode, Settings, Switch};
use crate::outside_door::OutsideSecrets;
use crate::python::FoundPythons;
use crate::status::Level;

/// The level of isolation.
pub(super) const ISOLATION: &str = "isolation";
/// The level of the outbound network.
pub(super) const NETWORK: &str = "network";

/// How sandboxes are isolated, and whether new ones can start now.
pub(super) fn isolation(engine: &dyn SandboxEngine) -> Level {
    let (kind, isolation) = (engine.kind(), engine.isolation());
    let detail = match engine.trouble() {
        None => format!("{kind}: {isolation}"),
        Some(trouble) => format!("no new sandbox can start: {trouble}; running ones go on ({kind}: {isolation})"),
    };
    Level { name: ISOLATION.to_owned(), on: engine.trouble().is_none(), detail }
}

/// Whether functions that ask get an outbound network; none if the settings do not permit it.
pub(super) fn network(settings: &Settings, engine: &dyn SandboxEngine) -> Option<Level> {
    if settings.functions.network == Network::None {
        return None;
    }
    let (on, detail) = match engine.outbound() {
        Ok(line) => (true, format!("for functions that ask, by {line}")),
        Err(why) => (false, format!("functions.network is \"permitted\", but no function can have a network: {why}")),
    };
    Some(Level { name: NETWORK.to_owned(), on, detail })
}

/// Which Pythons functions get, the default first, or why none.
pub(super) fn python(pythons: &Result<FoundPythons, String>) -> Level {
    let detail = match pythons {
        Ok(found) => found.all().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        Err(why) => why.clone(),
    };
    Level { name: "python".to_owned(), on: pythons.is_ok(), detail }
}

/// Whether sandboxes are pre-warmed, and how. Python is the only runtime that is.
pub(super) fn prewarming(settings: &Settings, engine: &dyn SandboxEngine, has_python: bool) -> Level {
    let functions = &settings.functions;
    let (on, detail) = match engine.makes_prewarmed() {
        _ if functions.prewarm == PrewarmMode::Off => (false, "functions.prewarm is off".to_owned()),
        _ if !has_python => (false, "it needs Python, which is off".to_owned()),
        Err(why) => (false, why),
        Ok(()) => {
            let imports = functions.prewarm_imports.0.join(", ");
            let memory = MemoryShares::of(settings).prewarm_memory;
            let most =
                PrewarmSettings { memory_max: memory, stems_max: functions.prewarm_max, imports: Vec::new() }.most();
            (true, format!("up to {most} sandboxes in {memory}, with {imports} imported"))
        }
    };
    Level { name: "prewarming".to_owned(), on, detail }
}

/// Whether the fast path is on, and the most bytes that clients may hold.
pub(super) fn fast_path(settings: &Settings) -> Level {
    let (on, detail) = match settings.s3.fast_path {
        Switch::Off => (false, "s3.fast_path is off".to_owned()),
        Switch::On => {
            let held = settings.cache.held_max;
            (true, format!("a key may hold {held}, and so may a sandbox within its booking; further bytes are copied"))
        }
    };
    Level { name: "fast path".to_owned(), on, detail }
}

/// Which stores can report outside writes to this node; none if that door is closed.
pub(super) fn outside(settings: &Settings, secrets: &OutsideSecrets) -> Option<Level> {
    let address = settings.outside.listen?;
    let detail = format!("at {address}, for {}", secrets.words());
    Some(Level { name: "outside".to_owned(), on: true, detail })
}

/// Whether sandboxes and the cache share memory, and how strictly sandboxes are limited.
pub(super) fn memory(settings: &Settings, memory: &NodeMemory) -> Level {
    let (booked, own) = (settings.functions.memory, settings.cache.bytes);
    let detail = match settings.memory.grants {
        Switch::Off => format!("memory.grants is off: {booked} for sandboxes, {own} for the cache, not shared"),
        Switch::On => {
            let held = if memory.parks() {
                "limited to their grants"
            } else if settings.memory.park == Switch::Off {
                "limited to their bookings on cgroup v1, because memory.park is off"
            } else {
                "limited to their bookings on cgroup v1, because Nigh cannot raise a thread's priority (CAP_SYS_NICE)"
            };
            let MemoryShares { slack, lent_max, .. } = MemoryShares::of(settings);
            format!(
                "{booked} for sandboxes and {own} for the cache, which uses what sandboxes leave and lends them up to {lent_max}; \
                 slack {} to {}; sandboxes are {held}",
                slack.min, slack.max
            )
        }
    };
    Level { name: "memory".to_owned(), on: settings.memory.grants == Switch::On, detail }
}

/// The memory of the cache. Warns if, with the functions', it is more than the machine has, which is `machine`.
pub(super) fn cache(settings: &Settings, machine: ByteSize) -> Level {
    let (bytes, object_max) = (settings.cache.bytes, settings.cache.object_max);
    let folios = if large_folios_are_offered() { ", in large folios" } else { "" };
    let mut detail = format!("{bytes} of memory for objects of up to {object_max}{folios}");
    let asked = ByteSize(settings.functions.memory.bytes().saturating_add(bytes.bytes()));
    if asked > machine {
        tracing::warn!(
            "functions.memory and cache.bytes are {asked} together, and this machine has {machine}: the kernel kills \
             processes when they use it; `nigh up --cache SIZE` takes less"
        );
        detail.push_str(&format!("; with functions.memory that is more than the machine's {machine}"));
    }
    Level { name: "cache".to_owned(), on: bytes > ByteSize::ZERO, detail }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::machine::Machine;

    #[test]
    fn a_cache_that_the_machine_has_no_memory_for_is_told() {
        let machine = Machine { hostname: "here".to_owned(), memory: ByteSize::gib(8), cpus: 2 };
        let mut settings = Settings::defaults(Path::new("/state"), &machine);
        assert!(!cache(&settings, machine.memory).detail.contains("more than"));
        settings.cache.bytes = ByteSize::gib(10_000);
        let told = cache(&settings, machine.memory);
        assert!(told.on && told.detail.contains("more than the machine's 8 GiB"), "{}", told.detail);
    }
}
