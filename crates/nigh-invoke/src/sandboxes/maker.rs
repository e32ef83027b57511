//! Makes a sandbox: from its start until it asks for its first input, or until it is known why it never will.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use nigh_engine::AccessKeys;
use nigh_functions::function::{Function, FunctionSource, Runtime};
use nigh_functions::function_arn::function_arn;
use nigh_functions::function_caching;
use nigh_llc::resctrl::Members;
use nigh_sandbox::booked_memory::BookedMemory;
use nigh_sandbox::data_door::{DataDoor, DataListeners, HeldMemory};
use nigh_sandbox::log_capture::LogCapture;
use nigh_sandbox::runtime_api::{InitOutcome, RuntimeApi};
use nigh_sandbox::runtime_command::{SandboxIdentity, runtime_command};
use nigh_sandbox::sandbox::{LogSink, SandboxEnd, SandboxEngine, SandboxError, SandboxSpec, StartedSandbox};
use nigh_schedule::activation::{SandboxStart, Steps};
use nigh_schedule::sandbox_pool::{ColdReason, SandboxEndReason};
use nigh_terms::{Admission, ByteSize, Clock, InvocationId, SandboxId};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::{ColdStart, HeldPrewarmed, Sandboxes, StartGuard};
use super::cold_start::{Init, init_limit};
use super::failed_start::{FailedInit, FailedStart, InitFailure};
use super::live_sandbox::{LiveSandbox, SETTLE_WAIT, SandboxKey, SandboxParts};
use crate::invocation::InvokeError;
use crate::invocation::broken_program::BrokenProgram;
use crate::invocation::gate::{Entrance, GatePass, InvocationGate};
use crate::invocation::phase_accountant::PhaseAccountant;
use crate::invoker_settings::InvokerSettings;
use crate::node_memory::NodeMemory;

/// How long a program that has reported a failed initialisation may take to exit by itself.
const EXIT_WAIT: Duration = Duration::from_secs(1);

/// Makes the sandboxes of a node.
pub(crate) struct SandboxMaker {
    pub(crate) settings: InvokerSettings,
    pub(crate) functions: Arc<dyn FunctionSource>,
    pub(crate) engine: Arc<dyn SandboxEngine>,
    pub(crate) data_door: Arc<dyn DataDoor>,
    pub(crate) keys: AccessKeys,
    pub(crate) gate: Arc<dyn InvocationGate>,
    pub(crate) accountant: Arc<PhaseAccountant>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) memory: NodeMemory,
}

/// Whether the function says that its reads are cached.
pub(crate) fn admission_of(function: &Function) -> Admission {
    // An earlier Nigh accepted words that the doors refuse now: such a word says nothing.
    function_caching::admission(&function.environment).unwrap_or_default()
}

/// Why no sandbox runs a function's program.
enum NotStarted {
    /// The node cannot make one, or may not.
    Refused(InvokeError),
    /// The kernel cannot execute the function's program.
    Program { program: BrokenProgram, log: Arc<LogCapture>, granted: ByteSize },
}

impl From<InvokeError> for NotStarted {
    fn from(error: InvokeError) -> Self {
        Self::Refused(error)
    }
}

fn internal(error: impl std::fmt::Display) -> InvokeError {
    tracing::error!(%error, "a sandbox cannot be made");
    InvokeError::Internal(error.to_string())
}

impl SandboxMaker {
    /// Makes a sandbox for whoever waits for one of its function. If the sandbox cannot be made, the invocation that asked
    /// for it is told.
    pub(crate) async fn make(&self, start: ColdStart) {
        let ColdStart { guard: mut making, function, entrance, ticket, stem, in_the_way, reason } = start;
        in_the_way.end().await;
        match self.made(&mut making, &function, &entrance, stem, reason).await {
            Ok(took) => making.ready(took).await,
            Err(failed) => {
                let why = match &failed {
                    FailedStart::Refused(error) => error.to_string(),
                    FailedStart::Init(_) => "it did not ask for its input".to_owned(),
                };
                // If nobody is told, the function's next invocation fails the same way, and that one has a record.
                if !self.sandboxes.start_failed(ticket, failed) {
                    tracing::debug!(why, function = %function.name, "a sandbox that nobody waits for could not be made");
                }
                making.end().await;
            }
        }
    }

    /// Starts a sandbox and waits until it asks for its input. Returns how long that took.
    async fn made(
        &self,
        making: &mut StartGuard,
        function: &Arc<Function>,
        entrance: &Entrance,
        stem: Option<HeldPrewarmed>,
        reason: ColdReason,
    ) -> Result<Duration, FailedStart> {
        let began = self.clock.monotonic();
        let init_id = InvocationId::now();
        let run = GatePass::begin(&self.gate, &function.namespace, init_id, entrance).await;
        let run = run.map_err(|refusal| FailedStart::Refused(refusal.into()))?;
        self.accountant.begin(init_id, began);
        let (live, initialised, steps) = match self.start_sandbox(function, init_id, stem).await {
            Ok(started) => started,
            Err(failed) => {
                let calls = self.accountant.finish(init_id);
                let took = self.clock.monotonic().since(began);
                let init = Init { began, took, calls, steps: Steps::default(), reason };
                return Err(match failed {
                    NotStarted::Refused(error) => FailedStart::Refused(error),
                    NotStarted::Program { program, log, granted } => {
                        let advice = program.advice();
                        tracing::info!(function = %function.name, advice, "a function's program cannot be executed");
                        log.say(&advice);
                        let (sandbox, cause) = (None, InitFailure::Program(program));
                        let token = run.end(SETTLE_WAIT).await;
                        let failed = FailedInit { sandbox, log, granted, grown: 0, init, token, peak: None, cause };
                        FailedStart::Init(Box::new(failed))
                    }
                });
            }
        };
        making.is(&live);
        self.watch(&live);
        metrics::counter!("nigh_cold_starts_total", "reason" => reason.label()).increment(1);
        if steps.start == SandboxStart::Prewarmed {
            metrics::counter!("nigh_prewarmed_starts_total").increment(1);
        }
        let limit = self.settings.init_timeout.max(function.timeout);
        let end = initialised_within(limit, initialised, live.sandbox.tasks()).await;
        self.accountant.ended(init_id, self.clock.monotonic());
        live.key.act_for(None);
        let (token, _said) = live.settle(run).await;
        let took = self.clock.monotonic().since(began);
        let is_ahead = reason == ColdReason::Ahead;
        let init = Init { began, took, calls: self.accountant.finish(init_id), steps, reason };
        if matches!(end, Some(InitOutcome::Ready)) {
            metrics::histogram!("nigh_sandbox_init_duration_seconds").record(took.as_secs_f64());
            if is_ahead {
                metrics::counter!("nigh_sandboxes_ahead_total").increment(1);
            } else {
                *live.made.lock() = Some(init);
            }
            live.memory.was_made(took);
            return Ok(took);
        }
        let peak = live.sandbox.memory().peak().ok();
        if matches!(end, Some(InitOutcome::Failed { .. })) {
            // It reads the answer to its report first: if the connection broke before, a runtime client would print an
            // error of its own into the function's log.
            let _exited = tokio::time::timeout(EXIT_WAIT, live.sandbox.ended()).await;
        }
        live.runtime.end(SandboxEnd::Destroyed);
        live.sandbox.flush_log().await;
        Err(FailedStart::Init(Box::new(FailedInit {
            sandbox: Some(live.id),
            log: Arc::clone(&live.log),
            granted: live.memory.first().memory,
            grown: live.memory.end_run().grown,
            init,
            token,
            peak,
            cause: end.map_or(InitFailure::TimedOut(limit), InitFailure::Ended),
        })))
    }

    async fn start_sandbox(
        &self,
        function: &Arc<Function>,
        init_id: InvocationId,
        stem: Option<HeldPrewarmed>,
    ) -> Result<(Arc<LiveSandbox>, oneshot::Receiver<InitOutcome>, Steps), NotStarted> {
        let id = SandboxId::random();
        let memory = self.memory.admit(id, function.memory).await?;
        let (key_id, secret) = self.keys.issue_sandbox(function.namespace.clone(), function.name.clone(), id);
        self.keys.set_admission(&key_id, admission_of(function));
        let key = Arc::new(SandboxKey::new(self.keys.clone(), key_id));
        let identity = SandboxIdentity { id, key: key.id(), secret: &secret, made: self.clock.wall() };
        let network = self.settings.network.check(&function.namespace, &function.environment);
        let network = network.map_err(InvokeError::from)?;
        let command = runtime_command(function, &self.settings.runtime, &identity).map_err(internal)?;
        let function_arn = function_arn(&self.settings.runtime.region, &function.name);
        let function_arn = HeaderValue::from_str(&function_arn).map_err(internal)?;
        let log = Arc::new(match function.runtime {
            Runtime::Python { .. } => LogCapture::of_python_client(self.settings.log_max),
            _ => LogCapture::new(self.settings.log_max),
        });
        let until = CancellationToken::new();
        let revoked = Arc::clone(&key);
        let (runtime, initialised) = RuntimeApi::new(Arc::clone(&self.clock), Box::new(move || revoked.act_for(None)));

        key.act_for(Some(init_id));
        let spec = SandboxSpec {
            id,
            command: command.command,
            environment: command.environment,
            code: self.functions.code_folder(function).await,
            layers: self.functions.layers_folder(function).await.map_err(internal)?,
            runtime_folders: command.folders,
            grant: memory.first(),
            tmp: function.ephemeral_storage,
            pids_max: self.settings.pids_max,
            network,
            log: Arc::clone(&log) as Arc<dyn LogSink>,
        };
        let started = match stem {
            // The memory of the pre-warmed sandbox is freed once the new sandbox has taken it over.
            Some(HeldPrewarmed { stem, memory: _held }) => self.engine.start_from(stem, spec).await,
            None => self.engine.start(spec).await,
        };
        let started = started.map_err(|error| match error {
            SandboxError::Entrypoint { program: path, fault, reason, .. } => NotStarted::Program {
                program: BrokenProgram { path, fault, reason },
                log: Arc::clone(&log),
                granted: memory.first().memory,
            },
            other => NotStarted::Refused(internal(other)),
        });
        let StartedSandbox { sandbox, runtime: runtime_listener, data, fast, steps } = started?;
        runtime.serve(runtime_listener, until.clone());
        let booked = Arc::new(BookedMemory::new(&sandbox, memory.first()));
        memory.attach(&sandbox, Arc::clone(&booked));
        let pays = booked as Arc<dyn HeldMemory>;
        self.data_door.serve(DataListeners { http: data, fast }, key.id().clone(), pays, until.clone());
        let parts =
            SandboxParts { function: Arc::clone(function), function_arn, sandbox, runtime, log, key, until, memory };
        Ok((Arc::new(LiveSandbox::new(parts)), initialised, steps))
    }

    /// Tells the Runtime API when the sandbox ends by itself, and ends what is left of the sandbox if it was idle.
    fn watch(&self, live: &Arc<LiveSandbox>) {
        let (live, sandboxes) = (Arc::clone(live), Arc::clone(&self.sandboxes));
        tokio::spawn(async move {
            let end = live.sandbox.ended().await;
            live.runtime.ended(end).await;
            if let Some(lease) = sandboxes.take_idle(&live, &SandboxEndReason::Died) {
                lease.end().await;
            }
        });
    }
}

/// How an initialisation ends; `None` if it takes longer than `limit`. Time in which its tasks wait for a processor does not
/// count (`init_limit`).
async fn initialised_within(
    limit: Duration,
    mut initialised: oneshot::Receiver<InitOutcome>,
    tasks: Option<Members>,
) -> Option<InitOutcome> {
    let began = Instant::now();
    let mut until = limit;
    loop {
        match tokio::time::timeout_at(began + until, &mut initialised).await {
            Ok(end) => return Some(end.unwrap_or(InitOutcome::Ended(SandboxEnd::Destroyed))),
            Err(_) if init_limit(limit, tasks.as_ref()) > until => until = init_limit(limit, tasks.as_ref()),
            Err(_) => return None,
        }
    }
}
