//! Metrics of calls and connections.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use parking_lot::RwLock;

use crate::error::{CallError, Fate};
use crate::method::Method;

/// The side that counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }
}

/// The meters of one side.
pub(crate) struct Meters {
    side: Side,
    methods: RwLock<HashMap<u16, Arc<OfMethod>>>,
    connections: Gauge,
}

struct OfMethod {
    answered: Counter,
    refused: Counter,
    not_sent: Counter,
    unknown: Counter,
    called_bytes: Counter,
    answered_bytes: Counter,
    seconds: Histogram,
}

/// An open connection; counted until it is dropped.
pub(crate) struct OpenConnection(Gauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.decrement(1);
    }
}

/// A call under way. Dropped without an outcome, it counts as unknown.
pub(crate) struct Watch {
    method: Arc<OfMethod>,
    begun: Instant,
    told: bool,
}

impl Meters {
    pub(crate) fn new(side: Side) -> Self {
        let connections = gauge!("nigh_rpc_connections", "side" => side.name());
        Self { side, methods: RwLock::default(), connections }
    }

    pub(crate) fn opened(&self) -> OpenConnection {
        self.connections.increment(1);
        OpenConnection(self.connections.clone())
    }

    pub(crate) fn call(&self, method: &Method) -> Watch {
        let known = self.methods.read().get(&method.number).cloned();
        let method = known.unwrap_or_else(|| {
            let made = || Arc::new(OfMethod::new(self.side.name(), method.name));
            Arc::clone(self.methods.write().entry(method.number).or_insert_with(made))
        });
        Watch { method, begun: Instant::now(), told: false }
    }
}

impl OfMethod {
    fn new(side: &'static str, method: &'static str) -> Self {
        let calls =
            |outcome| counter!("nigh_rpc_calls_total", "side" => side, "method" => method, "outcome" => outcome);
        let bytes = |of| counter!("nigh_rpc_bytes_total", "side" => side, "method" => method, "of" => of);
        Self {
            answered: calls("answered"),
            refused: calls("refused"),
            not_sent: calls("not_sent"),
            unknown: calls("unknown"),
            called_bytes: bytes("calls"),
            answered_bytes: bytes("answers"),
            seconds: histogram!("nigh_rpc_call_duration_seconds", "side" => side, "method" => method),
        }
    }
}

impl Watch {
    pub(crate) fn answered(mut self, called_bytes: u64, answered_bytes: u64) {
        self.told = true;
        self.method.answered.increment(1);
        self.method.called_bytes.increment(called_bytes);
        self.method.answered_bytes.increment(answered_bytes);
        self.method.seconds.record(self.begun.elapsed());
    }

    pub(crate) fn refused(mut self) {
        self.told = true;
        self.method.refused.increment(1);
    }

    pub(crate) fn failed(mut self, error: &CallError) {
        self.told = true;
        let meter = match (error, error.fate()) {
            (CallError::Refused { .. }, _) => &self.method.refused,
            (_, Fate::NotSent) => &self.method.not_sent,
            (_, Fate::Unknown) => &self.method.unknown,
        };
        meter.increment(1);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if !self.told {
            self.method.unknown.increment(1);
        }
    }
}
