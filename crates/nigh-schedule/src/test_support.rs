//! Activation records for the tests of other crates.

#![expect(clippy::unwrap_used, reason = "tests end by panicking")]

use nigh_terms::{ByteSize, FunctionName, InvocationId, Namespace, Timestamp, Token};

use crate::activation::{Activation, MakingTimes, MemoryUse, Outcome, Phases, SandboxStart};

/// The record of an invocation with this outcome.
///
/// # Panics
/// If `namespace` or `function` is no such name.
#[must_use]
pub fn activation(namespace: &str, function: &str, outcome: Outcome) -> Activation {
    Activation {
        id: InvocationId::now(),
        attempt: 1,
        namespace: Namespace::new(namespace).unwrap(),
        function: FunctionName::new(function).unwrap(),
        code_sha256: "code".to_owned(),
        sandbox: None,
        cold: true,
        sandbox_start: Some(SandboxStart::Cold),
        start: Timestamp(1),
        wait_us: 2,
        init_us: 3,
        making: MakingTimes::default(),
        init_data_calls: Vec::new(),
        duration_us: 4,
        phases: Phases::default(),
        data_calls: Vec::new(),
        data_calls_omitted: 0,
        hits: 0,
        misses: 0,
        booked: ByteSize::mib(128),
        granted: ByteSize::mib(128),
        peak_memory: None,
        predicted_memory: None,
        memory: MemoryUse::default(),
        outcome,
        exceeded: None,
        stack_trace: Vec::new(),
        handlers: Vec::new(),
        packages: Vec::new(),
        notes: Vec::new(),
        placement: String::new(),
        trace_id: None,
        token: Token::empty(),
        log: String::new(),
        log_omitted: 0,
    }
}
