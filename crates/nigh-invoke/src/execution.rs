//! One invocation in its sandbox, from the input to the record.

use std::sync::Arc;
use std::time::Duration;

use nigh_engine::AccessKeys;
use nigh_functions::function::FunctionSource;
use nigh_sandbox::log_capture::{LogCapture, ReportLine};
use nigh_sandbox::runtime_api::{Dispatch, Reply};
use nigh_schedule::activation::idempotence::runs_again;
use nigh_schedule::activation::touched::TouchedObject;
use nigh_schedule::activation::{Activation, DataCallRecord, MakingTimes, MemoryUse, Outcome, SandboxStart};
use nigh_schedule::memory::grant::Grant;
use nigh_terms::{Admission, ByteSize, Clock, InvocationId, Monotonic, SandboxId, Timestamp, Token};

use crate::activation_log::ActivationLog;
use crate::call::{Attempt, Call};
use crate::hooks::{InvocationHook, Run};
use crate::invocation::code_look::CodeLook;
use crate::invocation::gate::{GatePass, InvocationGate};
use crate::invocation::phase_accountant::{DataCalls, PhaseAccountant};
use crate::invocation::verdict::{Verdict, timeout_message};
use crate::invocation::{InvocationResult, InvokeError, RunTimes};
use crate::node_memory::{BegunRun, NodeMemory};
use crate::sandboxes::admission::Lease;
use crate::sandboxes::cold_start::Init;
use crate::sandboxes::failed_start::FailedInit;
use crate::sandboxes::live_sandbox::LiveSandbox;
use crate::sandboxes::maker::admission_of;

/// Runs invocations in sandboxes that they have been given.
pub(crate) struct Executor {
    pub(crate) keys: AccessKeys,
    pub(crate) functions: Arc<dyn FunctionSource>,
    pub(crate) gate: Arc<dyn InvocationGate>,
    pub(crate) accountant: Arc<PhaseAccountant>,
    pub(crate) activations: ActivationLog,
    pub(crate) hooks: Vec<Arc<dyn InvocationHook>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) memory: NodeMemory,
}

/// What the handler did with the input.
struct HandlerRun {
    /// None if the sandbox ended before it took the input.
    verdict: Option<Verdict>,
    began: Monotonic,
    ended: Monotonic,
    /// The sandbox can run another invocation.
    lives: bool,
}

/// What the hooks decided before a run.
struct PreparedRun {
    grant: Grant,
    admission: Admission,
    /// The memory that a model predicts.
    predicted: Option<ByteSize>,
    notes: Vec<String>,
}

/// What was measured while the handler ran.
struct RunMeasurements {
    duration: Duration,
    granted: ByteSize,
    predicted: Option<ByteSize>,
    peak: Option<ByteSize>,
    memory: MemoryUse,
    /// What the invocation had seen at its end.
    token: Token,
    notes: Vec<String>,
}

impl Executor {
    /// Runs `call` in the sandbox of `lease`. An error if the gate refuses: then nothing has run.
    pub(crate) async fn execute(&self, call: &Call, lease: Lease, init: Option<&Init>) -> Result<Attempt, InvokeError> {
        let Some(live) = lease.live().cloned() else { return Ok(Attempt::NotTaken) };
        let pass = match GatePass::begin(&self.gate, &call.function.namespace, call.id, &call.entrance).await {
            Ok(pass) => pass,
            Err(refusal) => {
                lease.give_back(false).await;
                return Err(refusal.into());
            }
        };
        let PreparedRun { grant, admission, predicted, mut notes } = self.before_run(call, &live, init);
        let Some(begun) = wake(&live, grant).await else {
            self.not_run(call.id);
            lease.end().await;
            return Ok(Attempt::NotTaken);
        };
        let handled = self.run_handler(call, &live, admission).await;
        notes.extend(self.has_run(call.id));
        let (peak, memory) = self.measure_memory(call, &live, begun, &handled, &mut notes);
        live.sandbox.flush_log().await;
        // The end is told when the invocation can have no further effect.
        let (token, note) = live.settle(pass).await;
        notes.extend(note);
        let HandlerRun { verdict, began, ended, lives } = handled;
        let (duration, granted) = (ended.since(began), begun.granted);

        let repeats =
            call.earlier.is_empty() && verdict.as_ref().is_some_and(|verdict| fell_short(call, verdict, &memory));
        let lease = if lives { Some(lease) } else { end(lease).await };
        let attempt = match verdict {
            Some(verdict) if !repeats => {
                let measured = RunMeasurements { duration, granted, predicted, peak, memory, token, notes };
                let calls = self.accountant.finish(call.id);
                let ran = (Some(live.id), &*live.log);
                let look = CodeLook::at(&*self.functions, &call.function, &verdict).await;
                Attempt::Done(Box::new(self.conclude(call, ran, init, measured, calls, (verdict, look))))
            }
            _ => {
                self.discard(call, &live, duration, peak);
                if repeats { self.again(call, granted) } else { Attempt::NotTaken }
            }
        };
        if let Some(lease) = lease {
            lease.give_back(true).await;
        }
        Ok(attempt)
    }

    /// Concludes an invocation whose sandbox could not be initialised.
    pub(crate) async fn conclude_failed(&self, call: &Call, failed: FailedInit) -> InvocationResult {
        let verdict = failed.verdict(call.id);
        let look = CodeLook::at(&*self.functions, &call.function, &verdict).await;
        let FailedInit { sandbox, log, granted, grown, init, token, peak, .. } = failed;
        let memory = MemoryUse { grown, ..MemoryUse::default() };
        let (duration, notes) = (Duration::ZERO, Vec::new());
        let measured = RunMeasurements { duration, granted, predicted: None, peak, memory, token, notes };
        log.start(call.id);
        self.conclude(call, (sandbox, &*log), Some(&init), measured, DataCalls::default(), (verdict, look))
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
            let words =
                |hook: &Arc<dyn InvocationHook>| Some(format!("{}: {}", hook.name(), hook.ahead(&mut run, after)?));
            let words: Vec<String> = self.hooks.iter().filter_map(words).collect();
            let prepared = live.memory.prepare(run.grant);
            metrics::counter!("nigh_invocations_prepared_total").increment(1);
            format!("{prepared} of memory; {}", words.join("; "))
        };
        live.prepare(decide).await;
    }

    /// Asks the hooks.
    fn before_run(&self, call: &Call, live: &LiveSandbox, init: Option<&Init>) -> PreparedRun {
        let mut run = Run {
            tasks: live.sandbox.tasks(),
            start: init.map_or(SandboxStart::Warm, |init| init.steps.start),
            used_before: init.is_none().then(|| live.sandbox.memory().used().ok()).flatten(),
            admission: admission_of(&call.function),
            ..Run::new(call.id, &call.function, &call.payload, live.id)
        };
        let mut notes = call.earlier.clone();
        for hook in &self.hooks {
            notes.extend(hook.before_run(&mut run).map(|note| format!("{}: {note}", hook.name())));
        }
        notes.extend(live.take_prepared().map(|what| format!("prepared: {what}")));
        let grant = if call.earlier.is_empty() { run.grant } else { Grant::full(call.function.memory) };
        PreparedRun { grant, admission: run.admission, predicted: run.predicted, notes }
    }

    /// Gives the input to the handler and waits until it answers, fails, or its time is over.
    async fn run_handler(&self, call: &Call, live: &LiveSandbox, admission: Admission) -> HandlerRun {
        self.keys.set_admission(live.key.id(), admission);
        // Where the kernel cannot begin a new measurement, the peak is that of all runs so far: never too small.
        let _ = live.sandbox.memory().reset_peak();
        live.sandbox.begin_run();
        live.log.start(call.id);

        let trace = call.trace.handler(call.id);
        let began = self.clock.monotonic();
        self.accountant.begin(call.id, began);
        live.key.act_for(Some(call.id));
        let timeout = call.function.timeout;
        let dispatched = live.runtime.dispatch(Dispatch {
            id: call.id,
            deadline: Timestamp(self.clock.wall().millis() + timeout.as_millis() as u64),
            function_arn: live.function_arn.clone(),
            client_context: call.client_context.clone(),
            trace: trace.context(),
            payload: call.payload.clone(),
        });
        let replied = match dispatched {
            None => None,
            Some(replied) => Some(tokio::time::timeout(timeout, replied).await),
        };
        let (verdict, ended, lives) = match replied {
            None | Some(Ok(Err(_))) => (None, began, false),
            Some(Ok(Ok(replied))) => match replied.reply {
                Reply::Ended { taken: false, .. } => (None, replied.at, false),
                reply => {
                    let lives = !matches!(reply, Reply::Ended { .. });
                    (Some(Verdict::of_reply(call.id, reply)), replied.at, lives)
                }
            },
            Some(Err(_)) => {
                // Before the calls under way are cancelled: they are what the handler waited for.
                self.accountant.ended(call.id, began.after(timeout));
                let date = self.clock.wall().rfc3339();
                live.log.say(&format!("{date} {} {}", call.id, timeout_message(timeout)));
                (Some(Verdict::timed_out(call.id, timeout)), began.after(timeout), false)
            }
        };
        live.key.act_for(None);
        HandlerRun { verdict, began, ended, lives }
    }

    /// Tells the hooks that the handler has ended: what they note.
    fn has_run(&self, id: InvocationId) -> Vec<String> {
        self.hooks.iter().filter_map(|hook| Some(format!("{}: {}", hook.name(), hook.has_run(id)?))).collect()
    }

    /// Tells the hooks that nothing ran, or that the run will be repeated.
    fn not_run(&self, id: InvocationId) {
        self.hooks.iter().rev().for_each(|hook| hook.not_run(id));
    }

    /// The peak of a run and how its memory behaved.
    fn measure_memory(
        &self,
        call: &Call,
        live: &LiveSandbox,
        begun: BegunRun,
        handled: &HandlerRun,
        notes: &mut Vec<String>,
    ) -> (Option<ByteSize>, MemoryUse) {
        let (memory, booked) = (live.sandbox.memory(), call.function.memory);
        let peak = memory.peak().ok();
        let held = live.memory.end_run();
        let is_killed = handled.verdict.as_ref().is_some_and(|verdict| verdict.outcome == Outcome::OutOfMemory);
        // The kernel may have killed it for a request of several pages at once.
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
        if handled.lives
            && let Some(killed) = live.new_oom_kills()
        {
            notes.push(format!("memory: the kernel ended {killed} processes of the handler for want of it"));
        }
        (peak, memory_use)
    }

    /// Forgets a run that has no record.
    fn discard(&self, call: &Call, live: &LiveSandbox, duration: Duration, peak: Option<ByteSize>) {
        drop(self.accountant.finish(call.id));
        live.log.finish(call.id, &ReportLine { duration, booked: call.function.memory, peak, init: None, trace: None });
        self.not_run(call.id);
    }

    /// The run came to its limit and failed: it is repeated.
    fn again(&self, call: &Call, granted: ByteSize) -> Attempt {
        self.memory.retried();
        let booked = call.function.memory;
        Attempt::Again(format!(
            "memory: a first run came to its limit, {granted} of {booked} granted, and failed; the function says that it is \
             idempotent, and was run again with all that it booked"
        ))
    }

    /// Makes the record and the caller's answer of an invocation that has ended. `sandbox` is none if the function's
    /// program never ran.
    fn conclude(
        &self,
        call: &Call,
        (sandbox, log): (Option<SandboxId>, &LogCapture),
        init: Option<&Init>,
        measured: RunMeasurements,
        calls: DataCalls,
        (verdict, look): (Verdict, CodeLook),
    ) -> InvocationResult {
        let RunMeasurements { duration, granted, predicted, peak, memory, token, notes } = measured;
        let (booked, init_took, trace) = (call.function.memory, init.map(|init| init.took), call.trace.recorded());
        let report = ReportLine { duration, booked, peak, init: init_took, trace };
        let log = log.finish(call.id, &report);
        let exceeded = verdict.exceeded(&call.function);
        let Verdict { outcome, payload, function_error, stack_trace, .. } = verdict;
        let run = RunTimes {
            wait_us: call.wait.as_micros() as u64,
            init_us: init.map(|init| init.took.as_micros() as u64),
            duration_us: duration.as_micros() as u64,
            log_omitted: log.omitted,
        };
        let activation = Activation {
            id: call.id,
            attempt: call.attempt,
            namespace: call.function.namespace.clone(),
            function: call.function.name.clone(),
            code_sha256: call.function.code_sha256.clone(),
            sandbox,
            cold: init.is_some(),
            sandbox_start: Some(init.map_or(SandboxStart::Warm, |init| init.steps.start)),
            start: call.start,
            wait_us: run.wait_us,
            init_us: run.init_us.unwrap_or(0),
            making: init.map_or_else(MakingTimes::default, |init| init.steps.into()),
            init_data_calls: init.map_or_else(Vec::<DataCallRecord>::new, |init| init.calls.listed.clone()),
            duration_us: run.duration_us,
            phases: calls.phases(run.duration_us),
            data_calls: calls.listed,
            data_calls_omitted: calls.omitted,
            hits: calls.hits,
            misses: calls.misses,
            booked: call.function.memory,
            granted,
            peak_memory: peak,
            predicted_memory: predicted,
            memory,
            outcome,
            exceeded,
            stack_trace,
            handlers: look.handlers,
            packages: look.packages,
            notes,
            placement: call.placement.clone(),
            trace_id: call.trace.id(),
            token: token.clone(),
            log: log.text(),
            log_omitted: log.omitted,
        };
        let touched = TouchedObject::of(&activation.data_calls);
        call.trace.concluded(&activation, init);
        self.hooks.iter().rev().for_each(|hook| hook.after_run(&activation));
        self.activations.append(activation);
        InvocationResult { id: call.id, payload, function_error, log: log.bytes, run, token, touched }
    }
}

/// Sets the memory of a run and wakes its sandbox, which stays frozen until it has its memory. None if it does not wake.
async fn wake(live: &LiveSandbox, grant: Grant) -> Option<BegunRun> {
    let waking = live.take_up().await;
    let begun = live.memory.begin_run(grant).await;
    if let Err(error) = waking.thaw().await {
        tracing::warn!(%error, sandbox = %live.id, "a warm sandbox does not wake; another is taken");
        return None;
    }
    Some(begun)
}

/// True if the run failed at a limit below what its function booked, and the function may run again.
fn fell_short(call: &Call, verdict: &Verdict, memory: &MemoryUse) -> bool {
    runs_again(&call.function.environment, &verdict.outcome, memory.came_short && !memory.reached_booked)
}

/// Ends the sandbox of a lease: there is none to give back.
async fn end(lease: Lease) -> Option<Lease> {
    lease.end().await;
    None
}
