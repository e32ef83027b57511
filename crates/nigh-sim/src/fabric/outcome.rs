//! The result of a run.

use super::picos::Picos;
use super::workflow::{ObjectId, Server};

/// The parts of a function's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FunctionTimes {
    /// Until its server may run it.
    pub dispatch: Picos,
    /// In gets.
    pub get: Picos,
    /// Computing.
    pub compute: Picos,
    /// In puts.
    pub put: Picos,
}

impl FunctionTimes {
    /// Gets and puts over the whole time; nothing for a function without time.
    pub fn communication(&self) -> f64 {
        let data = self.get + self.put;
        data.micros() / (data + self.compute).micros().max(f64::MIN_POSITIVE)
    }
}

/// What went over the links and what was met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Bytes of objects that the memory server sent.
    pub sent_bytes: u64,
    /// Bytes of objects that compute servers received.
    pub received_bytes: u64,
    /// Bytes of objects that functions were given by gets.
    pub read_bytes: u64,
    /// Those of them that were at the server.
    pub hit_bytes: u64,
    /// Bytes that compute servers sent with puts, a log's among them.
    pub written_bytes: u64,
    /// Bytes that arrived at the memory server with puts.
    pub stored_bytes: u64,
    /// Functions whose gets hit for more bytes than they miss, and the others that get.
    pub hits: u32,
    /// See `hits`.
    pub misses: u32,
    /// Functions that put and invalidate nobody.
    pub puts_alone: u32,
    /// Functions that put and invalidate a sharer.
    pub puts_invalidating: u32,
    /// Requests for a cover (Nigh), or for versions alone (Faa$t).
    pub questions: u32,
    /// Invalidations sent.
    pub invalidations: u32,
}

/// A function that is blocked: all events have happened and it still waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockedFunction {
    /// Its place in the workflow's list.
    pub function: usize,
    /// Where it runs.
    pub server: Server,
    /// What it puts; none if it was never dispatched or gets.
    pub putting: Option<ObjectId>,
}

/// A run's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Until the last function ended; none if one is blocked.
    pub time: Option<Picos>,
    /// By function.
    pub functions: Vec<FunctionTimes>,
    /// Who is blocked.
    pub blocked: Vec<BlockedFunction>,
    /// What went over the links.
    pub traffic: Traffic,
}

impl Outcome {
    /// The sum of all functions' gets.
    pub fn get_time(&self) -> Picos {
        self.functions.iter().map(|times| times.get).sum()
    }

    /// The sum of all functions' puts.
    pub fn put_time(&self) -> Picos {
        self.functions.iter().map(|times| times.put).sum()
    }
}
