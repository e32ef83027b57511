//! A workflow: functions on servers, stage by stage, each a list of gets, computing and puts.

use super::hardware::Hardware;
use super::jitter::Jitter;
use super::system::System;

/// A compute server, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Server(pub u8);

/// An object: its index in its workflow's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u16);

/// An object, and the servers that have a copy before the workflow begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its size.
    pub bytes: u64,
    /// The servers that have a copy, if the protocol keeps copies at all.
    pub cached_at: Vec<Server>,
}

/// What a function does next.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// Reads an object whole.
    Get(ObjectId),
    /// Computes for so many microseconds, times the run's scale.
    Compute(f64),
    /// Writes an object whole.
    Put(ObjectId),
}

/// One invocation.
#[derive(Debug, Clone, PartialEq)]
pub struct Function {
    /// The function's name in the paper.
    pub name: &'static str,
    /// The server that runs it.
    pub server: Server,
    /// It begins when every function of lower stages has ended.
    pub stage: u8,
    /// The steps, one after the other.
    pub steps: Vec<Step>,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Workflow {
    /// The workflow's name in the paper.
    pub name: &'static str,
    /// The objects, indexed by [`ObjectId`].
    pub objects: Vec<Object>,
    /// The functions, in any order; their stages decide when they run.
    pub functions: Vec<Function>,
}

impl Workflow {
    /// An object's size.
    pub fn bytes(&self, object: ObjectId) -> u64 {
        self.objects[usize::from(object.0)].bytes
    }

    /// The number of servers up to the highest one that the workflow names, at least one.
    pub(super) fn servers(&self) -> usize {
        let run = self.functions.iter().map(|function| function.server);
        let cached = self.objects.iter().flat_map(|object| object.cached_at.iter().copied());
        run.chain(cached).map(|server| usize::from(server.0) + 1).max().unwrap_or(1)
    }
}

/// The loss of a server: from the beginning of `stage` it does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The server that is lost.
    pub server: Server,
    /// The stage with whose beginning it is lost.
    pub stage: u8,
}

/// All that a run depends on.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// The workflow to run.
    pub workflow: &'a Workflow,
    /// The protocol that it runs under.
    pub system: System,
    /// The hardware that it runs on.
    pub hardware: &'a Hardware,
    /// The factor by which all computing is scaled.
    pub compute_scale: f64,
    /// Whether latencies vary.
    pub jitter: Option<Jitter>,
    /// The random seed.
    pub seed: u64,
    /// The servers that are lost during the run.
    pub failures: &'a [Failure],
}

impl<'a> Run<'a> {
    /// Without jitter and failures, with computing as the workflow has it.
    pub const fn plain(workflow: &'a Workflow, system: System, hardware: &'a Hardware) -> Self {
        Self { workflow, system, hardware, compute_scale: 1.0, jitter: None, seed: 0, failures: &[] }
    }
}
