//! What stands in an invocation's path before and after the handler: features, prediction, CLOS.
//!
//! Hooks run in order before, in reverse after. Every invocation has one `after_run`, whatever its end; a `before_run`
//! whose sandbox ended before it took the input has `not_run` instead, and another follows.

use nigh_llc::resctrl::Members;
use nigh_terms::{InvocationId, SandboxId};

use crate::activation::Activation;
use crate::function::Function;
use crate::grant::Grant;

/// An invocation that is about to run.
#[derive(Debug)]
pub struct Run<'a> {
    /// The invocation.
    pub invocation: InvocationId,
    /// Its function.
    pub function: &'a Function,
    /// Its input.
    pub payload: &'a [u8],
    /// The sandbox chosen.
    pub sandbox: SandboxId,
    /// Its tasks, where its engine knows them.
    pub tasks: Option<Members>,
    /// The memory it will have; a hook may lower or raise it within what is booked.
    pub grant: Grant,
    /// Whether what it reads is brought into the cache for it: what its function says, until a hook says otherwise.
    pub benefits: bool,
}

/// A station in the invocation's path. It must take microseconds: it is on the path.
pub trait InvocationHook: Send + Sync {
    /// Its name, for explanations.
    fn name(&self) -> &'static str;
    /// Before the sandbox gets the input. What it returns goes into the activation's explanation.
    fn before_run(&self, run: &mut Run<'_>) -> Option<String>;
    /// After the end, with what was measured.
    fn after_run(&self, activation: &Activation);
    /// The sandbox ended before it took the input: nothing has run, and another is tried.
    fn not_run(&self, _: InvocationId) {}
}
