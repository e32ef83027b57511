//! Explains where an invocation's time went: its record as intervals. Pure.
//!
//! Time counts from the request: waiting for a sandbox, initialising a new one, then the handler with each of its data
//! calls. Phases are OFC's extract, transform and load (section 2.1).

use std::borrow::Cow;

use nigh_data::DataOperation;
use nigh_schedule::activation::cost::Cost;
use nigh_schedule::activation::{Activation, DataCallRecord, Outcome, Phases};
use nigh_ways::NOT_BOUND_HERE;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a call was served that gave nothing.
const FAILED: &str = "failed";

/// The kind of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Waiting for memory or a sandbox.
    Wait,
    /// Making and initialising a sandbox.
    Init,
    /// Running the handler.
    Run,
    /// A data call that reads.
    Read,
    /// A data call that writes.
    Write,
}

/// An interval of the invocation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// The kind of the interval.
    pub kind: StepKind,
    /// Microseconds from the request to its begin.
    pub at_us: u64,
    /// The interval's length in microseconds.
    pub took_us: u64,
    /// The object, and how the call was served.
    pub what: String,
    /// Bytes read or written.
    pub bytes: u64,
}

/// The shares of the handler's time, in percent; they add up to 100 unless it took no time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Shares {
    /// Time in which a read was under way.
    pub extract: f64,
    /// Time in which no call was under way.
    pub transform: f64,
    /// Time in which only writes were under way.
    pub load: f64,
}

/// An invocation, explained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explanation {
    /// The invocation's record.
    pub activation: Activation,
    /// The time from the request to the response, in microseconds.
    pub total_us: u64,
    /// The intervals, in the order of their beginnings.
    pub steps: Vec<Step>,
    /// The shares of the handler's time.
    pub shares: Shares,
    /// The percentage of the reads that was served from memory; none if nothing was read.
    pub hit_percent: Option<f64>,
    /// The peak as a percentage of the booked memory; none if not measured.
    pub memory_percent: Option<f64>,
    /// The cost for the function's owner, and what the invocation used.
    pub cost: Cost,
}

/// Explains `activation`.
#[must_use]
pub fn explain(activation: Activation) -> Explanation {
    let handler_at = activation.wait_us + activation.init_us;
    let mut steps = Vec::new();
    let mut add = |kind, at_us, took_us, what: String, bytes| steps.push(Step { kind, at_us, took_us, what, bytes });
    if activation.wait_us > 0 {
        add(StepKind::Wait, 0, activation.wait_us, "waiting for a sandbox".to_owned(), 0);
    }
    if activation.init_us > 0 {
        add(StepKind::Init, activation.wait_us, activation.init_us, "making and initialising a sandbox".to_owned(), 0);
    }
    for call in &activation.init_data_calls {
        add(kind_of(call), activation.wait_us + call.began_us, call.took_us, words(call), call.bytes);
    }
    add(StepKind::Run, handler_at, activation.duration_us, outcome_words(&activation.outcome), 0);
    for call in &activation.data_calls {
        add(kind_of(call), handler_at + call.began_us, call.took_us, words(call), call.bytes);
    }
    // The sort is stable, so of intervals with the same beginning the outer stays before the inner.
    steps.sort_by_key(|step| step.at_us);

    let reads = activation.hits + activation.misses;
    let hit_percent = (reads > 0).then(|| percent(activation.hits, reads));
    let memory_percent = activation
        .peak_memory
        .filter(|_| activation.booked.bytes() > 0)
        .map(|peak| percent(peak.bytes(), activation.booked.bytes()));
    Explanation {
        total_us: handler_at + activation.duration_us,
        steps,
        shares: shares(&activation.phases),
        hit_percent,
        memory_percent,
        cost: Cost::of(&activation),
        activation,
    }
}

/// `outcome` in words.
#[must_use]
pub fn outcome_words(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answered => "answered".to_owned(),
        Outcome::HandlerError { error_type, message } => format!("handler raised {error_type}: {message}"),
        Outcome::InitError { error_type, message } => format!("could not initialise: {error_type}: {message}"),
        Outcome::TimedOut => "timed out".to_owned(),
        Outcome::OutOfMemory => "out of memory".to_owned(),
        Outcome::Crashed { reason } => reason.clone(),
        Outcome::Stopped => "stopped: the node was ending".to_owned(),
    }
}

fn kind_of(call: &DataCallRecord) -> StepKind {
    let writes = matches!(call.served.as_str(), "write" | "delete") || call.under_way == Some(DataOperation::Write);
    if writes { StepKind::Write } else { StepKind::Read }
}

fn words(call: &DataCallRecord) -> String {
    let what = object_words(call);
    match call.under_way.filter(|_| call.served == FAILED) {
        Some(DataOperation::Read) => format!("unfinished read of {what}"),
        Some(DataOperation::Write) => format!("unfinished write of {what}"),
        Some(DataOperation::Metadata) => format!("unfinished question about {what}"),
        None => format!("{} {what}", call.served),
    }
}

/// The object of a data call, or its bucket.
#[must_use]
pub fn object_words(call: &DataCallRecord) -> String {
    match &call.key {
        Some(key) => format!("{}/{key}", call.bucket),
        None => call.bucket.clone(),
    }
}

/// `note` as a line of an explanation. For a decision on cache ways that this machine cannot carry out, only the need.
#[must_use]
pub fn note_words(note: &str) -> Cow<'_, str> {
    match note.strip_suffix(NOT_BOUND_HERE) {
        Some(decided) => {
            let need = decided.split_once("; ").map_or(decided, |(need, _)| need);
            Cow::Owned(format!("{need}; this machine cannot give ways (`nigh llc explain`)"))
        }
        None => Cow::Borrowed(note),
    }
}

/// The shares of `phases`.
#[must_use]
pub fn shares(phases: &Phases) -> Shares {
    let total = phases.extract_us + phases.transform_us + phases.load_us;
    if total == 0 {
        return Shares::default();
    }
    Shares {
        extract: percent(phases.extract_us, total),
        transform: percent(phases.transform_us, total),
        load: percent(phases.load_us, total),
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole as f64
}

#[cfg(test)]
pub(crate) mod tests {
    use nigh_schedule::activation::SandboxStart;
    use nigh_schedule::activation::{MakingTimes, MemoryUse};
    use nigh_terms::{ByteSize, FunctionName, InvocationId, Namespace, Timestamp, Token};

    use super::*;

    /// A cold invocation that reads one object, computes, and writes one.
    pub(crate) fn activation() -> Activation {
        let call = |served: &str, began_us, took_us| DataCallRecord {
            served: served.to_owned(),
            bucket: "pictures".to_owned(),
            key: Some("a.png".to_owned()),
            bytes: 1000,
            began_us,
            took_us,
            under_way: None,
        };
        Activation {
            id: InvocationId::now(),
            attempt: 1,
            namespace: Namespace::new("default").unwrap(),
            function: FunctionName::new("blur").unwrap(),
            code_sha256: "code".to_owned(),
            sandbox: None,
            cold: true,
            sandbox_start: Some(SandboxStart::Cold),
            start: Timestamp(1),
            wait_us: 10,
            init_us: 90,
            making: MakingTimes::default(),
            init_data_calls: Vec::new(),
            duration_us: 400,
            phases: Phases { extract_us: 100, transform_us: 200, load_us: 100 },
            data_calls: vec![call("write", 300, 100), call("hit", 0, 100)],
            data_calls_omitted: 0,
            hits: 1,
            misses: 0,
            booked: ByteSize::mib(256),
            granted: ByteSize::mib(256),
            peak_memory: Some(ByteSize::mib(64)),
            predicted_memory: None,
            memory: MemoryUse::default(),
            outcome: Outcome::Answered,
            exceeded: None,
            stack_trace: Vec::new(),
            handlers: Vec::new(),
            packages: Vec::new(),
            notes: vec!["features: 2".to_owned()],
            placement: "cold".to_owned(),
            trace_id: None,
            token: Token::empty(),
            log: String::new(),
            log_omitted: 0,
        }
    }

    #[test]
    fn the_steps_stand_in_the_order_of_time_and_end_with_the_answer() {
        let explained = explain(activation());
        let order: Vec<_> = explained.steps.iter().map(|step| (step.kind, step.at_us)).collect();
        assert_eq!(
            order,
            [
                (StepKind::Wait, 0),
                (StepKind::Init, 10),
                (StepKind::Run, 100),
                (StepKind::Read, 100),
                (StepKind::Write, 400),
            ]
        );
        assert_eq!(explained.total_us, 500);
        assert!(explained.steps.iter().all(|step| step.at_us + step.took_us <= explained.total_us));
        assert_eq!(explained.shares, Shares { extract: 25.0, transform: 50.0, load: 25.0 });
        assert_eq!(explained.hit_percent, Some(100.0));
        assert_eq!(explained.memory_percent, Some(25.0));
    }

    #[test]
    fn a_call_that_was_under_way_at_the_end_is_told_by_what_it_was_to_do() {
        let [write, hit]: [DataCallRecord; 2] = activation().data_calls.try_into().unwrap();
        let unfinished = |call: &DataCallRecord, operation| DataCallRecord {
            served: FAILED.to_owned(),
            under_way: Some(operation),
            ..call.clone()
        };
        let read = unfinished(&hit, DataOperation::Read);
        assert_eq!((words(&read), kind_of(&read)), ("unfinished read of pictures/a.png".to_owned(), StepKind::Read));
        let put = unfinished(&write, DataOperation::Write);
        assert_eq!((words(&put), kind_of(&put)), ("unfinished write of pictures/a.png".to_owned(), StepKind::Write));
        let late = DataCallRecord { under_way: Some(DataOperation::Write), ..write };
        assert_eq!(words(&late), "write pictures/a.png");
    }

    #[test]
    fn a_decision_that_cannot_be_carried_out_is_told_in_short() {
        let need = "cache ways: 97.7 KiB of data need 2 ways (sensitive)";
        let decided = format!("{need}; class 3 (mask 0x3): the least load");
        assert_eq!(note_words(&decided), decided);
        let short = note_words(&format!("{decided}{NOT_BOUND_HERE}")).into_owned();
        assert!(short.starts_with(need) && !short.contains("mask"), "{short}");
    }

    #[test]
    fn a_run_that_the_node_ended_reads_as_stopped_and_a_crash_as_what_the_process_did() {
        assert!(outcome_words(&Outcome::Stopped).starts_with("stopped"));
        let crashed = Outcome::Crashed { reason: "exited with status 3".to_owned() };
        assert_eq!(outcome_words(&crashed), "exited with status 3");
    }

    #[test]
    fn nothing_read_and_no_time_taken_divide_nothing_by_nothing() {
        let empty = Activation {
            duration_us: 0,
            phases: Phases::default(),
            data_calls: Vec::new(),
            hits: 0,
            peak_memory: None,
            memory: MemoryUse::default(),
            ..activation()
        };
        let explained = explain(empty);
        assert_eq!(explained.shares, Shares::default());
        assert_eq!((explained.hit_percent, explained.memory_percent), (None, None));
    }
}
