//! What works on a node and what does not, in words.

use nigh_data::large_folios_are_offered;
use nigh_invoke::node_memory::NodeMemory;
use nigh_sandbox::runtime_command::PythonRuntime;
use nigh_sandbox::sandbox::SandboxEngine;
use nigh_schedule::prewarm::PrewarmSettings;
use nigh_terms::ByteSize;

use super::memory_shares::MemoryShares;
use crate::config::{Network, PrewarmMode, Settings, Switch};
use crate::outside_door::OutsideSecrets;
use crate::status::Level;

/// The level that says how sandboxes are kept apart.
pub(super) const ISOLATION: &str = "isolation";
/// The one about the way out to the network.
pub(super) const NETWORK: &str = "network";

/// How sandboxes are kept apart, and whether more can be made now.
pub(super) fn isolation(engine: &dyn SandboxEngine) -> Level {
    let (kind, isolation) = (engine.kind(), engine.isolation());
    let detail = match engine.trouble() {
        None => format!("{kind}: {isolation}"),
        Some(trouble) => format!("no new sandbox can begin: {trouble}; those that run go on ({kind}: {isolation})"),
    };
    Level { name: ISOLATION.to_owned(), on: engine.trouble().is_none(), detail }
}

/// Whether functions that ask get a way out to the network; nothing, where the operator has not said that they may.
pub(super) fn network(settings: &Settings, engine: &dyn SandboxEngine) -> Option<Level> {
    if settings.functions.network == Network::None {
        return None;
    }
    let (on, detail) = match engine.outbound() {
        Ok(line) => (true, format!("for functions that ask, by {line}")),
        Err(why) => (false, format!("functions.network is \"permitted\", and no function can have it: {why}")),
    };
    Some(Level { name: NETWORK.to_owned(), on, detail })
}

/// Which Python functions get, or why none.
pub(super) fn python(python: &Result<PythonRuntime, String>) -> Level {
    let detail = match python {
        Ok(found) => format!("python3.{} at {}", found.minor, found.interpreter.display()),
        Err(why) => why.clone(),
    };
    Level { name: "python".to_owned(), on: python.is_ok(), detail }
}

/// Whether sandboxes are prewarmed, and how.
pub(super) fn prewarming(settings: &Settings, engine: &dyn SandboxEngine) -> Level {
    let functions = &settings.functions;
    let (on, detail) = match engine.makes_stems() {
        _ if functions.prewarm == PrewarmMode::Off => (false, "functions.prewarm is off".to_owned()),
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

/// Whether objects come without HTTP, and what may be held by that.
pub(super) fn fast_path(settings: &Settings) -> Level {
    let (on, detail) = match settings.s3.fast_path {
        Switch::Off => (false, "s3.fast_path is off".to_owned()),
        Switch::On => {
            let held = settings.cache.held_max;
            (true, format!("{held} may be held by a key, or by a sandbox within what it booked; further bytes by copy"))
        }
    };
    Level { name: "fast path".to_owned(), on, detail }
}

/// Who can tell this node of others; nothing, where no door is open for that.
pub(super) fn outside(settings: &Settings, secrets: &OutsideSecrets) -> Option<Level> {
    let address = settings.outside.listen?;
    let detail = format!("at {address}, for {}", secrets.words());
    Some(Level { name: "outside".to_owned(), on: true, detail })
}

/// Whether sandboxes and the cache share their memory, and how strictly.
pub(super) fn memory(settings: &Settings, memory: &NodeMemory) -> Level {
    let (booked, own) = (settings.functions.memory, settings.cache.bytes);
    let detail = match settings.memory.grants {
        Switch::Off => format!("memory.grants is off: {booked} for sandboxes, {own} for the cache, and neither lends"),
        Switch::On => {
            let held = if memory.parks() {
                "held to their grants"
            } else if settings.memory.park == Switch::Off {
                "held to what they booked on cgroup v1, as memory.park is off"
            } else {
                "held to what they booked on cgroup v1: no thread may run before others (CAP_SYS_NICE)"
            };
            let MemoryShares { slack, lent_max, .. } = MemoryShares::of(settings);
            format!(
                "{booked} for sandboxes and {own} for the cache, which has what these do not use and lends them up to {lent_max} \
                 more; {} to {} are kept free; sandboxes are {held}",
                slack.min, slack.max
            )
        }
    };
    Level { name: "memory".to_owned(), on: settings.memory.grants == Switch::On, detail }
}

/// How much memory objects have of the node's own.
pub(super) fn cache(settings: &Settings) -> Level {
    let (bytes, object_max) = (settings.cache.bytes, settings.cache.object_max);
    let folios = if large_folios_are_offered() { ", in large folios" } else { "" };
    let detail = format!("{bytes} of memory for objects of up to {object_max}{folios}");
    Level { name: "cache".to_owned(), on: bytes > ByteSize::ZERO, detail }
}
