//! The jobs of a simulated machine, and their results.

use std::fmt;
use std::num::NonZeroU32;

use nigh_terms::{ClosId, WayMask};

use super::cache::{MaskError, Tally, WayPartitionedCache};
use super::replay_trace::ReplayTrace;
use super::sim_time::SimTime;

/// A job of one simulation: its place in the list that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The repetitions of a job's trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Passes {
    /// So many times, one after the other in the same address space.
    Times(NonZeroU32),
    /// Again and again until every job of the other kind has ended; what it did until then is reported.
    WhileOthersRun,
}

impl Passes {
    /// Once.
    pub const ONCE: Self = Self::Times(NonZeroU32::MIN);
}

/// One run of a trace on a core of its own.
#[derive(Debug, Clone, Copy)]
pub struct Job<'t> {
    /// What it does.
    pub trace: &'t ReplayTrace,
    /// When it may start; it waits, first come first served, while every core is taken.
    pub arrival: SimTime,
    /// How often.
    pub passes: Passes,
}

/// The result of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobReport {
    /// The core it ran on; 0 for one that got no core before the others had ended.
    pub core: u16,
    /// When it got the core; its arrival or later.
    pub started: SimTime,
    /// When its last pass ended, or the simulation if it ran while others did.
    pub ended: SimTime,
    /// Whole passes.
    pub passes: u32,
    /// Instructions, those of a pass cut short included.
    pub instructions: u64,
    /// Its requests to the last level; those of a sampled trace times what each stands for.
    pub requests: Tally,
    /// The time that it waited for the busy memory.
    pub memory_wait: SimTime,
}

impl JobReport {
    /// A job that got its core at `now` and has done nothing yet.
    pub(super) const fn started(core: u16, now: SimTime) -> Self {
        Self {
            core,
            started: now,
            ended: now,
            passes: 0,
            instructions: 0,
            requests: Tally { hits: 0, misses: 0 },
            memory_wait: SimTime::ZERO,
        }
    }

    /// How long it ran.
    pub const fn time(&self) -> SimTime {
        self.ended.since(self.started)
    }
}

/// The machine's classes of service as its policy sees and changes them.
pub struct Classes<'m> {
    pub(super) cache: &'m mut WayPartitionedCache,
    /// By job; none unless it runs.
    pub(super) bound: &'m mut [Option<ClosId>],
    pub(super) changed: bool,
}

impl Classes<'_> {
    /// The ways that `clos` may fill.
    ///
    /// # Panics
    /// When `clos` is not below [`super::CLOS_MAX`].
    pub const fn mask(&self, clos: ClosId) -> WayMask {
        self.cache.mask(clos)
    }

    /// Changes a class's mask; its jobs fill by the new one at once.
    pub const fn set_mask(&mut self, clos: ClosId, mask: WayMask) -> Result<(), MaskError> {
        self.cache.set_mask(clos, mask)
    }

    /// The class of a running job; none if it does not run.
    pub fn class_of(&self, job: JobId) -> Option<ClosId> {
        self.bound.get(job.0 as usize).copied().flatten()
    }

    /// Puts a running job into another class; whether it runs.
    pub fn rebind(&mut self, job: JobId, clos: ClosId) -> Result<bool, MaskError> {
        check_class(clos)?;
        match self.bound.get_mut(job.0 as usize) {
            Some(Some(class)) => {
                *class = clos;
                self.changed = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }
}

/// Refuses a class that the cache does not have.
pub(super) const fn check_class(clos: ClosId) -> Result<(), MaskError> {
    if clos.0 < super::cache::CLOS_MAX { Ok(()) } else { Err(MaskError::NoSuchClos { clos }) }
}

/// Decides, from outside the simulator, which class of service a job runs in. A closure is one that only acts on
/// starts.
pub trait Binder {
    /// `job` gets a core at `now`; the class it runs in. Masks and other jobs may be changed on the occasion.
    fn start(&mut self, job: JobId, now: SimTime, classes: &mut Classes<'_>) -> Result<ClosId, MaskError>;

    /// `job` has ended at `now`.
    fn end(&mut self, job: JobId, now: SimTime, classes: &mut Classes<'_>) -> Result<(), MaskError> {
        let _ = (job, now, classes);
        Ok(())
    }
}

impl<F: FnMut(JobId, SimTime, &mut Classes<'_>) -> Result<ClosId, MaskError>> Binder for F {
    fn start(&mut self, job: JobId, now: SimTime, classes: &mut Classes<'_>) -> Result<ClosId, MaskError> {
        self(job, now, classes)
    }
}
