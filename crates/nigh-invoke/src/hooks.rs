//! Code before and after each run: features, predictions, classes of service.
//!
//! Hooks run in order before the run and in reverse after it. Every invocation has one `after_run`, however it ends. If its
//! sandbox ended before it took the input, or the run is repeated, `not_run` follows `before_run` instead, and another
//! `before_run` follows that.

pub mod meter;
pub mod prefetch;

use std::cell::OnceCell;

use nigh_functions::function::Function;
use nigh_llc::resctrl::Members;
use nigh_schedule::activation::{Activation, SandboxStart};
use nigh_schedule::inputs::payload_walk::PayloadWalk;
use nigh_schedule::memory::grant::Grant;
use nigh_schedule::scheduler::vacancy::Vacancy;
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
    /// What the sandbox was when the invocation got it.
    pub start: SandboxStart,
    /// The memory that the sandbox uses now, if it has run before and its use can be read.
    pub used_before: Option<ByteSize>,
    /// What the input says, once a hook has asked.
    pub walk: OnceCell<PayloadWalk>,
    /// The memory of the run; a hook may lower or raise it within what is booked.
    pub grant: Grant,
    /// The memory that a model predicts for it, whether or not that is granted.
    pub predicted: Option<ByteSize>,
    /// Whether objects that it fetches are cached: what its function says, until a hook says otherwise.
    pub admission: Admission,
}

impl<'a> Run<'a> {
    /// A run in a new sandbox, granted all that is booked, whose fetched objects are cached.
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
            predicted: None,
            admission: Admission::Always,
        }
    }

    /// What the input says: it is walked through once, however many hooks ask.
    pub fn walk(&self) -> &PayloadWalk {
        self.walk.get_or_init(|| PayloadWalk::of(self.payload))
    }
}

/// A hook. Each call must take microseconds: it delays the invocation.
pub trait InvocationHook: Send + Sync {
    /// The name of the hook, for explanations.
    fn name(&self) -> &'static str;
    /// Called before the sandbox gets the input. The returned note goes into the activation.
    fn before_run(&self, run: &mut Run<'_>) -> Option<String>;
    /// A run like this one may come soon in this idle sandbox: the hook decides what it will need, as far as that is known, and does
    /// what takes time, as if `after` had ended. `before_run` decides again. This call delays no invocation.
    fn ahead(&self, _run: &mut Run<'_>, _after: Option<InvocationId>) -> Option<String> {
        None
    }
    /// Called when the handler has ended. The returned note, what changed since `before_run`, goes into the activation.
    fn has_run(&self, _: InvocationId) -> Option<String> {
        None
    }
    /// Called after the end, with what was measured.
    fn after_run(&self, activation: &Activation);
    /// Adds to the node's free capacity what this hook knows of it.
    fn room(&self, _: &mut Vacancy) {}
    /// Nothing has run, or the run will be repeated.
    fn not_run(&self, _: InvocationId) {}
}
