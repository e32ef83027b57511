//! One invocation in its sandbox, from the input to the record.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use nigh_engine::AccessKeys;
use nigh_functions::function::{Function, FunctionSource};
use nigh_functions::function_caching;
use nigh_sandbox::data_door::DataDoor;
use nigh_sandbox::log_capture::ReportLine;
use nigh_sandbox::runtime_api::{Dispatch, Reply};
use nigh_sandbox::sandbox::{SandboxEnd, SandboxEngine};
use nigh_schedule::activation::SandboxStart;
use nigh_schedule::activation::{Activation, DataCallRecord, MakingTimes, MemoryUse, Outcome};
use nigh_schedule::grant::Grant;
use nigh_schedule::idempotence::runs_again;
use nigh_schedule::touched::TouchedObject;
use nigh_terms::{Admission, ByteSize, Clock, InvocationId, Timestamp, Token};

use crate::activation_log::ActivationLog;
use crate::admission::{Lease, Sandboxes};
use crate::cold_start::Init;
use crate::gate::{Entrance, GatePass, InvocationGate};
use crate::hooks::{InvocationHook, Run};
use crate::invocation::{InvocationResult, InvokeError, RunTimes};
use crate::invoker_settings::InvokerSettings;
use crate::live_sandbox::LiveSandbox;
use crate::making::FailedInit;
use crate::node_memory::NodeMemory;
use crate::phase_accountant::{DataCalls, PhaseAccountant};
use crate::verdict::{Verdict, timeout_message};

/// What invocations run on.
pub(crate) struct Executor {
    pub(crate) settings: InvokerSettings,
    pub(crate) functions: Arc<dyn FunctionSource>,
    pub(crate) engine: Arc<dyn SandboxEngine>,
    pub(crate) data_door: Arc<dyn DataDoor>,
    pub(crate) keys: AccessKeys,
    pub(crate) gate: Arc<dyn InvocationGate>,
    pub(crate) accountant: Arc<PhaseAccountant>,
    pub(crate) activations: ActivationLog,
    pub(crate) hooks: Vec<Arc<dyn InvocationHook>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) memory: NodeMemory,
}

/// An invocation on its way.
pub(crate) struct Call {
    pub(crate) id: InvocationId,
    /// Which attempt of an event, from 1.
    pub(crate) attempt: u32,
    pub(crate) function: Arc<Function>,
    pub(crate) payload: Bytes,
    pub(crate) client_context: Option<HeaderValue>,
    pub(crate) entrance: Entrance,
    /// When it was asked for.
    pub(crate) start: Timestamp,
    /// Until a sandbox had it.
    pub(crate) wait: Duration,
    /// Why this sandbox.
    pub(crate) placement: String,
    /// What is to be said of runs before this one. If there was one, this one gets all that it booked.
    pub(crate) earlier: Vec<String>,
}

/// What came out of an attempt to run.
pub(crate) enum Attempt {
    /// It ran to its end.
    Done(Box<InvocationResult>),
    /// The sandbox ended before it took the input: nothing has run.
    NotTaken,
    /// It failed, perhaps for want of memory that it had booked, and may run again: what is to be said of that.
    Again(String),
}

/// What was measured while it ran.
struct RunMeasurements {
    duration: Duration,
    granted: ByteSize,
    peak: Option<ByteSize>,
    memory: MemoryUse,
    calls: DataCalls,
    /// What it had seen.
    token: Token,
    notes: Vec<String>,
}

impl Executor {
    /// How an invocation ends whose sandbox could not be initialised.
    pub(crate) fn conclude_failed(&self, call: &Call, failed: FailedInit) -> InvocationResult {
        let verdict = failed.verdict(call.id);
        let FailedInit { live, init, token, peak, .. } = failed;
        let measured = RunMeasurements {
            duration: Duration::ZERO,
            granted: live.memory.first().memory,
            peak,
            memory: MemoryUse { grown: live.memory.end_run().grown, ..MemoryUse::default() },
            calls: DataCalls::default(),
            token,
            notes: Vec::new(),
        };
        live.log.start(call.id);
        self.conclude(call, &live, Some(&init), measured, verdict, true)
    }

    /// Makes ready what an invocation of `live`'s function with this input will need when `after` has ended.
    pub(crate) async fn prepare(&self, live: &LiveSandbox, payload: &[u8], after: Option<InvocationId>) {
        let decide = || {
            let mut run = Run {
                tasks: live.sandbox.tasks(),
                start: SandboxStart::Warm,
                used_before: live.sandbox.memory().used().ok(),
                ..Run::new(InvocationId::now(), &live.function, payload, live.id)
            };
            let stations = self.hooks.iter();
            let words = stations.filter_map(|hook| Some(format!("{}: {}", hook.name(), hook.ahead(&mut run, after)?)));
            let words: Vec<String> = words.collect();
            let kept = live.memory.prepare(run.grant);
            metrics::counter!("nigh_invocations_prepared_total").increment(1);
            format!("{kept} of memory; {}", words.join("; "))
        };
        live.prepare(decide).await;
    }

    /// Runs `call` in the sandbox of `lease`, which is thawed when it has its memory. An error if it may not begin: nothing has run.
    pub(crate) async fn execute(&self, call: &Call, lease: Lease, init: Option<&Init>) -> Result<Attempt, InvokeError> {
        let Some(live) = lease.live().cloned() else { return Ok(Attempt::NotTaken) };
        let entered = match GatePass::begin(&self.gate, &call.function.namespace, call.id, &call.entrance).await {
            Ok(entered) => entered,
            Err(refusal) => {
                lease.give_back(false).await;
                return Err(refusal.into());
            }
        };
        let memory = live.sandbox.memory();
        let mut run = Run {
            tasks: live.sandbox.tasks(),
            start: init.map_or(SandboxStart::Warm, |init| init.steps.start),
            used_before: init.is_none().then(|| memory.used().ok()).flatten(),
            admission: admission_of(&call.function),
            ..Run::new(call.id, &call.function, &call.payload, live.id)
        };
        let notes = self
            .hooks
            .iter()
            .filter_map(|hook| hook.before_run(&mut run).map(|note| format!("{}: {note}", hook.name())));
        let prepared = live.take_prepared().map(|what| format!("prepared: {what}"));
        let mut notes: Vec<String> = call.earlier.iter().cloned().chain(notes).chain(prepared).collect();
        let booked = call.function.memory;
        // It stands still until it has its memory.
        let waking = live.take_up().await;
        let begun = live.memory.begin_run(if call.earlier.is_empty() { run.grant } else { Grant::full(booked) }).await;
        if let Err(error) = waking.thaw().await {
            tracing::warn!(%error, sandbox = %live.id, "a warm sandbox does not wake; another is taken");
            self.hooks.iter().rev().for_each(|hook| hook.not_run(call.id));
            lease.end().await;
            return Ok(Attempt::NotTaken);
        }
        self.keys.set_admission(live.key.id(), run.admission);
        // Where the kernel cannot begin a new measurement the peak is that of all runs so far: never too small.
        let _ = memory.reset_peak();
        live.sandbox.begin_run();
        live.log.start(call.id);

        let began = self.clock.monotonic();
        self.accountant.begin(call.id, began);
        live.key.act_for(Some(call.id));
        let timeout = call.function.timeout;
        let dispatched = live.runtime.dispatch(Dispatch {
            id: call.id,
            deadline: Timestamp(self.clock.wall().millis() + timeout.as_millis() as u64),
            function_arn: live.function_arn.clone(),
            client_context: call.client_context.clone(),
            payload: call.payload.clone(),
        });
        let (verdict, ended, lives) = match dispatched {
            None => (None, began, false),
            Some(replied) => match tokio::time::timeout(timeout, replied).await {
                Ok(Ok(replied)) => match replied.reply {
                    Reply::Ended { taken: false, .. } => (None, replied.at, false),
                    reply @ Reply::Ended { .. } => (Some(Verdict::of_reply(call.id, reply)), replied.at, false),
                    reply => (Some(Verdict::of_reply(call.id, reply)), replied.at, true),
                },
                Ok(Err(_)) => (None, began, false),
                Err(_) => {
                    let date = self.clock.wall().rfc3339();
                    live.log.say(&format!("{date} {} {}", call.id, timeout_message(timeout)));
                    (Some(Verdict::timed_out(call.id, timeout)), began.after(timeout), false)
                }
            },
        };
        live.key.act_for(None);
        let changed = self.hooks.iter().filter_map(|hook| Some(format!("{}: {}", hook.name(), hook.has_run(call.id)?)));
        notes.extend(changed);
        let peak = memory.peak().ok();
        let held = live.memory.end_run();
        let is_killed = verdict.as_ref().is_some_and(|verdict| verdict.outcome == Outcome::OutOfMemory);
        // What it is killed for may be several pages at once.
        let lacks = if is_killed { ByteSize::mib(1) } else { ByteSize::ZERO };
        let memory_use = MemoryUse {
            page_cache: memory.page_cache().ok(),
            grown: held.grown,
            reached_booked: peak.is_some_and(|peak| peak + lacks >= booked) || (is_killed && !held.came_short),
            came_short: held.came_short,
            step_us: begun.step.as_micros() as u64,
            waited_us: begun.waited.as_micros() as u64,
        };
        if is_killed {
            self.memory.killed();
            let advice = if memory_use.reached_booked {
                format!("memory: it needed more than the {booked} that it booked; book {} or more", booked + booked)
            } else {
                "memory: the kernel ended it for want of memory, though it had not come to all that it booked"
                    .to_owned()
            };
            live.log.say(&advice);
            notes.push(advice);
        }
        if lives && let Some(killed) = live.new_oom_kills() {
            notes.push(format!("memory: the kernel ended {killed} processes of the handler for want of it"));
        }
        live.sandbox.flush_log().await;
        // An end is told when nothing of the invocation can happen any more.
        let (token, note) = live.settle(entered).await;
        notes.extend(note);
        let duration = ended.since(began);
        if let Some(failed) = &verdict
            && call.earlier.is_empty()
            && runs_again(&call.function.environment, &failed.outcome, held.came_short && !memory_use.reached_booked)
        {
            drop(self.accountant.finish(call.id));
            live.log.finish(call.id, &ReportLine { duration, booked, peak, init: None });
            self.hooks.iter().rev().for_each(|hook| hook.not_run(call.id));
            self.memory.retried();
            if lives {
                lease.give_back(true).await;
            } else {
                lease.end().await;
            }
            let granted = begun.granted;
            return Ok(Attempt::Again(format!(
                "memory: a first run came to its limit, {granted} of {booked} granted, and failed; the function says that \
                 it is idempotent, and was run again with all that it booked"
            )));
        }
        let granted = begun.granted;
        let measured = |calls| RunMeasurements { duration, granted, peak, memory: memory_use, calls, token, notes };
        if lives {
            let (calls, verdict) = (self.accountant.finish(call.id), verdict.unwrap_or_else(|| lost(call.id)));
            let invoked = self.conclude(call, &live, init, measured(calls), verdict, true);
            lease.give_back(true).await;
            return Ok(Attempt::Done(Box::new(invoked)));
        }
        lease.end().await;
        let calls = self.accountant.finish(call.id);
        let is_recorded = verdict.is_some();
        let verdict = verdict.unwrap_or_else(|| lost(call.id));
        let invoked = self.conclude(call, &live, init, measured(calls), verdict, is_recorded);
        Ok(if is_recorded { Attempt::Done(Box::new(invoked)) } else { Attempt::NotTaken })
    }

    /// Makes the record and the caller's answer of an invocation that has ended.
    fn conclude(
        &self,
        call: &Call,
        live: &LiveSandbox,
        init: Option<&Init>,
        measured: RunMeasurements,
        verdict: Verdict,
        is_recorded: bool,
    ) -> InvocationResult {
        let RunMeasurements { duration, granted, peak, memory, calls, token, notes } = measured;
        let report = ReportLine { duration, booked: call.function.memory, peak, init: init.map(|init| init.took) };
        let log = live.log.finish(call.id, &report);
        let Verdict { outcome, payload, function_error } = verdict;
        let duration_us = duration.as_micros() as u64;
        let activation = Activation {
            id: call.id,
            attempt: call.attempt,
            namespace: call.function.namespace.clone(),
            function: call.function.name.clone(),
            code_sha256: call.function.code_sha256.clone(),
            sandbox: Some(live.id),
            cold: init.is_some(),
            sandbox_start: Some(init.map_or(SandboxStart::Warm, |init| init.steps.start)),
            start: call.start,
            wait_us: call.wait.as_micros() as u64,
            init_us: init.map_or(0, |init| init.took.as_micros() as u64),
            making: init.map_or_else(MakingTimes::default, |init| init.steps.into()),
            init_data_calls: init.map_or_else(Vec::<DataCallRecord>::new, |init| init.calls.listed.clone()),
            duration_us,
            phases: calls.phases(duration_us),
            data_calls: calls.listed,
            data_calls_omitted: calls.omitted,
            hits: calls.hits,
            misses: calls.misses,
            booked: call.function.memory,
            granted,
            peak_memory: peak,
            memory,
            outcome,
            notes,
            placement: call.placement.clone(),
            token: token.clone(),
            log: log.text(),
            log_omitted: log.omitted,
        };
        let touched = TouchedObject::of(&activation.data_calls);
        for hook in self.hooks.iter().rev() {
            if is_recorded {
                hook.after_run(&activation);
            } else {
                hook.not_run(call.id);
            }
        }
        if is_recorded {
            self.activations.append(activation);
        }
        let run = RunTimes {
            wait_us: call.wait.as_micros() as u64,
            init_us: init.map(|init| init.took.as_micros() as u64),
            duration_us,
            log_omitted: log.omitted,
        };
        InvocationResult { id: call.id, payload, function_error, log: log.bytes, run, token, touched }
    }
}

/// Whether what `function` reads is cached, by its own word.
pub(crate) fn admission_of(function: &Function) -> Admission {
    // A word that the door would refuse now is of an earlier Nigh's function: it says nothing.
    function_caching::admission(&function.environment).unwrap_or_default()
}

/// For a sandbox that went away without a word.
pub(crate) fn lost(id: InvocationId) -> Verdict {
    Verdict::of_reply(id, Reply::Ended { end: SandboxEnd::Destroyed, taken: false })
}
