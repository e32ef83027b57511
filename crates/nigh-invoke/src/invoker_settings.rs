//! How a node runs functions: limits and times.

use std::time::Duration;

use nigh_functions::function_network::NetworkPermission;
use nigh_sandbox::runtime_command::RuntimeSettings;
use nigh_schedule::keep_alive::KeepAlive;
use nigh_schedule::prewarm::PrewarmSettings;
use nigh_schedule::sandbox_pool::PoolLimits;
use nigh_terms::ByteSize;

/// How a node runs functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvokerSettings {
    /// What all functions are told, and the installed interpreters.
    pub runtime: RuntimeSettings,
    /// What the sandboxes may take.
    pub limits: PoolLimits,
    /// How long idle sandboxes live.
    pub keep_alive: KeepAlive,
    /// How long after its answer a sandbox is frozen.
    pub freeze_grace: Duration,
    /// How long a sandbox may initialise; at least its function's own time-out.
    pub init_timeout: Duration,
    /// How much of an invocation's log is kept.
    pub log_max: ByteSize,
    /// Processes and threads that a sandbox may have (Lambda quotas: 1,024).
    pub pids_max: u32,
    /// How sandboxes are pre-warmed; None: they are not.
    pub prewarm: Option<PrewarmSettings>,
    /// Which functions may have an outbound network.
    pub network: NetworkPermission,
}

impl InvokerSettings {
    /// Lambda's limits and this project's defaults, without pre-warming and network, for sandboxes that book at most `memory_max`.
    #[must_use]
    pub fn new(runtime: RuntimeSettings, memory_max: ByteSize) -> Self {
        Self {
            runtime,
            limits: PoolLimits {
                memory_max,
                processors: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
                ..PoolLimits::LAMBDA
            },
            keep_alive: KeepAlive::default(),
            freeze_grace: Duration::from_millis(50),
            init_timeout: Duration::from_secs(10),
            log_max: ByteSize::kib(64),
            pids_max: 1024,
            prewarm: None,
            network: NetworkPermission::default(),
        }
    }
}
