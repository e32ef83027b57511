//! What stands in an invocation's path before and after the handler: features, prediction, CLOS.
//!
//! Hooks run in order before, in reverse after. Every invocation has one `after_run`, whatever its end; a `before_run`
//! whose sandbox ended before it took the input has `not_run` instead, and another follows.

use std::cell::OnceCell;

use nigh_functions::function::Function;
use nigh_llc::resctrl::Members;
use nigh_schedule::activation::Activation;
use nigh_schedule::activation::SandboxStart;
use nigh_schedule::grant::Grant;
use nigh_schedule::payload_walk::PayloadWalk;
use nigh_schedule::vacancy::Vacancy;
use nigh_terms::{Admission, ByteSize, InvocationId, SandboxId};

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
    /// What it was when it was wanted.
    pub start: SandboxStart,
    /// What it uses now, if it has run before and that can be measured.
    pub used_before: Option<ByteSize>,
    /// What the input says, once somebody has asked.
    pub walk: OnceCell<PayloadWalk>,
    /// The memory it will have; a hook may lower or raise it within what is booked.
    pub grant: Grant,
    /// Whether what it reads is brought into the cache for it: what its function says, until a hook says otherwise.
    pub admission: Admission,
}

impl<'a> Run<'a> {
    /// A run in a new sandbox of which nothing else is known: with all that is booked, cached for.
    #[must_use]
    pub const fn new(invocation: InvocationId, function: &'a Function, payload: &'a [u8], sandbox: SandboxId) -> Self {
        Self {
            invocation,
            function,
            payload,
            sandbox,
            tasks: None,
            start: SandboxStart::Cold,
            used_before: None,
            walk: OnceCell::new(),
            grant: Grant::full(function.memory),
            admission: Admission::Always,
        }
    }

    /// What the input says: it is walked through once, whoever asks.
    pub fn walk(&self) -> &PayloadWalk {
        self.walk.get_or_init(|| PayloadWalk::of(self.payload))
    }
}

/// A station in the invocation's path. It must take microseconds: it is on the path.
pub trait InvocationHook: Send + Sync {
    /// Its name, for explanations.
    fn name(&self) -> &'static str;
    /// Before the sandbox gets the input. What it returns goes into the activation's explanation.
    fn before_run(&self, run: &mut Run<'_>) -> Option<String>;
    /// A run like this one may come soon, in this sandbox, which has none: what it will need is decided as far as it is known,
    /// and what takes time is done, as if `after` had ended. `before_run` decides again. Not on the path.
    fn ahead(&self, _run: &mut Run<'_>, _after: Option<InvocationId>) -> Option<String> {
        None
    }
    /// The handler has ended. What it returns goes into the activation's explanation: what changed since `before_run`.
    fn has_run(&self, _: InvocationId) -> Option<String> {
        None
    }
    /// After the end, with what was measured.
    fn after_run(&self, activation: &Activation);
    /// Adds to what is said of the node's room what this station knows of it.
    fn room(&self, _: &mut Vacancy) {}
    /// The sandbox ended before it took the input: nothing has run, and another is tried.
    fn not_run(&self, _: InvocationId) {}
}
