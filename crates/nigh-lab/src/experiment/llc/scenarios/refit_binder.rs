//! Nigh's policy on the simulated machine: whenever an invocation starts or ends, the classes are fitted to what runs then.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use nigh_llc::{CacheShape, ChosenLayout, MixEntry, SharingProfile, Tolerance, fit_layout};
use nigh_sim::llc::{Binder, Classes, JobId, MaskError, SimTime};
use nigh_terms::ClosId;

/// Cached layouts. The key is the number of running functions of each kind; a fit depends on nothing else.
pub(super) type FittedLayouts = Mutex<HashMap<Vec<u8>, Option<ChosenLayout>>>;

pub(super) struct RefitBinder<'p> {
    pub(super) shape: CacheShape,
    pub(super) guard: Tolerance,
    /// The profile of each kind of function; none for a kind without curves.
    pub(super) profiles: Vec<Option<Arc<SharingProfile>>>,
    /// The kind of each job.
    pub(super) kinds: &'p [usize],
    pub(super) running: Vec<JobId>,
    pub(super) fitted: &'p FittedLayouts,
    /// How many times a running invocation was moved to another class.
    pub(super) moves: u64,
}

impl RefitBinder<'_> {
    /// Fits the classes to the running functions. Returns the class of each kind.
    fn refit(&mut self, classes: &mut Classes<'_>) -> Result<Vec<ClosId>, MaskError> {
        let mut counts = vec![0_u8; self.profiles.len()];
        for job in &self.running {
            counts[self.kinds[job.0 as usize]] += 1;
        }
        let present: Vec<usize> =
            (0..counts.len()).filter(|&kind| counts[kind] > 0 && self.profiles[kind].is_some()).collect();
        let fit = || {
            let entry = |&kind: &usize| {
                Some(MixEntry { profile: self.profiles[kind].clone()?, running: f32::from(counts[kind]) })
            };
            let mix: Vec<_> = present.iter().filter_map(entry).collect();
            fit_layout(&mix, None, &self.shape, self.guard).ok()
        };
        let known = self.fitted.lock().unwrap_or_else(PoisonError::into_inner).get(&counts).cloned();
        let chosen = known.unwrap_or_else(|| {
            let chosen = fit();
            self.fitted.lock().unwrap_or_else(PoisonError::into_inner).insert(counts.clone(), chosen.clone());
            chosen
        });
        let mut of_kind = vec![ClosId::DEFAULT; counts.len()];
        if let Some(chosen) = chosen {
            for class in chosen.layout.classes() {
                classes.set_mask(class.id, class.mask)?;
            }
            for (&kind, &class) in present.iter().zip(&chosen.classes) {
                of_kind[kind] = class;
            }
        }
        for &job in &self.running {
            let class = of_kind[self.kinds[job.0 as usize]];
            if classes.class_of(job).is_some_and(|now| now != class) {
                classes.rebind(job, class)?;
                self.moves += 1;
            }
        }
        Ok(of_kind)
    }
}

impl Binder for RefitBinder<'_> {
    fn start(&mut self, job: JobId, _: SimTime, classes: &mut Classes<'_>) -> Result<ClosId, MaskError> {
        self.running.push(job);
        let of_kind = self.refit(classes)?;
        Ok(of_kind[self.kinds[job.0 as usize]])
    }

    fn end(&mut self, job: JobId, _: SimTime, classes: &mut Classes<'_>) -> Result<(), MaskError> {
        self.running.retain(|&other| other != job);
        if self.running.is_empty() { Ok(()) } else { self.refit(classes).map(|_| ()) }
    }
}
