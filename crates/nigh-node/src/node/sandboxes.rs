//! The sandbox engine, by the settings, and the runtimes that its sandboxes start.

use std::sync::Arc;

use nigh_functions::function_network::NetworkPermission;
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_sandbox::cgroup::cpuset::Cpusets;
use nigh_sandbox::runtime_command::RuntimeSettings;
use nigh_sandbox::sandbox::local::{EngineSettings, LocalEngine};
use nigh_sandbox::sandbox::{OutboundSettings, SandboxEngine};

use super::foundation::Foundation;
use super::{NodeError, levels};
use crate::action_runtimes::{self, ActionRuntimes};
use crate::cluster::ClusterEngine;
use crate::config::{LlcBind, Network, Settings, Switch};
use crate::http_adapter;
use crate::python::{self, FoundPythons};
use crate::python_client;
use crate::python_library;
use crate::status::Level;

/// The number of user ids for sandboxes, from `functions.uid_base` on.
const UIDS: u32 = 32_768;

/// The user that parses objects' headers: the first after those of sandboxes.
pub(super) fn parser_user(settings: &Settings) -> u32 {
    settings.functions.uid_base.saturating_add(UIDS)
}

pub(super) struct Sandboxes {
    pub(super) engine: Arc<LocalEngine>,
    /// Which functions may have an outbound network.
    pub(super) network: NetworkPermission,
    /// The interpreters; the error is why there is none.
    pythons: Result<FoundPythons, String>,
}

impl Sandboxes {
    /// Opens the engine, and ends sandboxes that an earlier incarnation of this node left.
    pub(super) async fn open(
        foundation: &Foundation,
        instance: &str,
        levels: &mut Vec<Level>,
    ) -> Result<Self, NodeError> {
        let settings = &foundation.settings;
        let engine = Arc::new(LocalEngine::open(engine_settings(settings, instance)).await?);
        let swept = engine.sweep().await?;
        if swept > 0 {
            tracing::info!(swept, "ended sandboxes that an earlier life of this node left");
        }
        levels.push(levels::isolation(&*engine));
        levels.extend(foundation.cluster.as_ref().map(ClusterEngine::level));
        let pythons = python::find_all(&settings.functions.python, &settings.functions.runtime_folders.0).await;
        let pythons = pythons.map_err(|error| error.to_string());
        levels.push(levels::python(&pythons));
        levels.push(levels::prewarming(settings, &*engine, pythons.is_ok()));
        levels.push(levels::fast_path(settings));
        levels.extend(levels::network(settings, &*engine));
        let network = network_permission(settings, &*engine);
        Ok(Self { engine, network, pythons })
    }

    /// Writes the runtimes' programs into the state folder. Returns the runtimes that functions can name, and how to
    /// start them.
    pub(super) async fn install_runtimes(
        &self,
        foundation: &Foundation,
        levels: &mut Vec<Level>,
    ) -> (RuntimeCatalog, RuntimeSettings) {
        let (settings, folder) = (&foundation.settings, foundation.paths.functions());
        let pythons = match &self.pythons {
            Ok(found) => {
                let (pythons, trouble) = python_client::lend(&folder.join("runtime-python-client"), found).await;
                levels.extend(trouble);
                pythons
            }
            Err(_) => Vec::new(),
        };
        let mut catalog = RuntimeCatalog::new(pythons.iter().map(|python| python.minor));
        if let Err(why) = &self.pythons {
            catalog = catalog.without_python_because(why.clone());
        }
        let (level, http_adapter) = http_adapter::install(&folder.join("runtime-http"));
        levels.push(level);
        if http_adapter.is_some() {
            catalog = catalog.with_http_adapter().with_native();
        }
        let ActionRuntimes { level, launchers, nodes } =
            action_runtimes::open(&folder.join("runtime-actions"), &settings.functions.node).await;
        levels.push(level);
        let catalog = catalog.with_nodes(nodes.iter().map(|node| node.major));
        let has_fast_path = settings.s3.fast_path == Switch::On && settings.functions.fast_path == Switch::On;
        let python_library = match pythons.split_first() {
            Some((python, others)) if has_fast_path => {
                let (level, library) = python_library::install(&folder.join("runtime-python"), python, others).await;
                levels.push(level);
                library
            }
            _ => None,
        };
        let region = settings.region.clone();
        (catalog, RuntimeSettings { region, pythons, http_adapter, python_library, nodes, launchers })
    }
}

/// The engine's settings for the node that is called `instance`.
pub(crate) fn engine_settings(settings: &Settings, instance: &str) -> EngineSettings {
    let functions = &settings.functions;
    EngineSettings {
        choice: functions.engine,
        runc: functions.runc.clone(),
        init: functions.sandbox_program.clone(),
        uids: functions.uid_base..functions.uid_base.saturating_add(UIDS),
        trust_functions: functions.trust_functions,
        fast_path: settings.s3.fast_path == Switch::On,
        cpusets: match settings.llc.bind {
            LlcBind::Cpus => Cpusets::OneEach,
            LlcBind::Tasks => Cpusets::Unused,
        },
        outbound: (functions.network == Network::Permitted).then(|| OutboundSettings {
            tool: functions.network_tool.clone(),
            resolvers: functions.network_resolvers.0.clone(),
        }),
        ..EngineSettings::new(instance, &settings.state)
    }
}

fn network_permission(settings: &Settings, engine: &dyn SandboxEngine) -> NetworkPermission {
    match settings.functions.network {
        Network::None => NetworkPermission::default(),
        Network::Permitted => {
            let namespaces = settings.functions.network_namespaces.0.iter().cloned().collect();
            NetworkPermission::new(engine.outbound().map(drop), namespaces)
        }
    }
}
