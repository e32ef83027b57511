//! A workflow: functions on servers, stage by stage, each a list of gets, computing and puts.

use super::hardware::Hardware;
use super::jitter::Jitter;
use super::system::System;

/// A compute server, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Server(pub u8);

/// An object: its place in its workflow's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u16);

/// An object, and who has a copy before the workflow begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its size.
    pub bytes: u64,
    /// Who has a copy, where copies are kept at all.
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
    /// As the paper names it.
    pub name: &'static str,
    /// Where it is scheduled.
    pub server: Server,
    /// It begins when every function of lower stages has ended.
    pub stage: u8,
    /// One after the other.
    pub steps: Vec<Step>,
}

/// A workflow.
#[derive(Debug, Clone, PartialEq)]
pub struct Workflow {
    /// As the paper names it.
    pub name: &'static str,
    /// By [`ObjectId`].
    pub objects: Vec<Object>,
    /// In any order; stages decide.
    pub functions: Vec<Function>,
}

impl Workflow {
    /// An object's size.
    pub fn bytes(&self, object: ObjectId) -> u64 {
        self.objects[usize::from(object.0)].bytes
    }

    /// Servers that are named, at least one.
    pub(super) fn servers(&self) -> usize {
        let run = self.functions.iter().map(|function| function.server);
        let cached = self.objects.iter().flat_map(|object| object.cached_at.iter().copied());
        run.chain(cached).map(|server| usize::from(server.0) + 1).max().unwrap_or(1)
    }
}

/// A server that is lost: from when a stage begins it answers nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// Who.
    pub server: Server,
    /// When.
    pub stage: u8,
}

/// All that a run depends on.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    /// What runs.
    pub workflow: &'a Workflow,
    /// Under which protocol.
    pub system: System,
    /// On what.
    pub hardware: &'a Hardware,
    /// Factor of all computing.
    pub compute_scale: f64,
    /// Whether latencies vary.
    pub jitter: Option<Jitter>,
    /// Decides what is drawn.
    pub seed: u64,
    /// Servers that are lost on the way.
    pub failures: &'a [Failure],
}

impl<'a> Run<'a> {
    /// Without jitter and failures, with computing as the workflow has it.
    pub const fn plain(workflow: &'a Workflow, system: System, hardware: &'a Hardware) -> Self {
        Self { workflow, system, hardware, compute_scale: 1.0, jitter: None, seed: 0, failures: &[] }
    }
}
