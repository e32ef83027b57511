//! The hook that places each invocation into a class of service before it runs, and tells how.

use std::fmt::Write as _;

use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_llc::{PlacementDecision, Prediction, TrainedRange};
use nigh_schedule::activation::Activation;
use nigh_schedule::scheduler::vacancy::Vacancy;
use nigh_terms::{ByteSize, InvocationId};

use super::CacheWays;
use super::cache_ways::{Binding, NotPredicted};

impl std::fmt::Display for NotPredicted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoProfile(_) => "no profile of this version of its code",
            Self::NoSize => "the size of its data is not known",
            Self::OtherFeatures => "its model needs more than a size",
        })
    }
}

/// How the words of a decision end on a machine without classes.
pub const NOT_BOUND_HERE: &str = "; not bound, this machine cannot";

/// The decision in words, as `nigh llc explain` shows it.
fn words(
    prediction: &Result<(ByteSize, Prediction), NotPredicted>,
    placed: &PlacementDecision,
    binding: &Binding,
) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = match prediction {
        Ok((size, prediction)) => {
            let beyond = match prediction.range {
                TrainedRange::Trained => "",
                TrainedRange::Extrapolated => ", beyond the profiled sizes",
            };
            let (ways, class) = (prediction.predicted.ways, prediction.predicted.class);
            write!(text, "{size} of data need {ways} ways ({class}{beyond}); ")
        }
        Err(reason) => write!(text, "no prediction, {reason}; "),
    };
    let _ = write!(text, "class {} (mask {}): {}", placed.clos, placed.mask, placed.because);
    let _ = match binding {
        Binding::Bound | Binding::Unchanged => Ok(()),
        Binding::Absent => write!(text, "{NOT_BOUND_HERE}"),
        Binding::Suspended => write!(text, "; not bound, a profile has the cache to itself"),
        Binding::Failed(reason) => write!(text, "; not bound: {reason}"),
    };
    text
}

impl InvocationHook for CacheWays {
    fn name(&self) -> &'static str {
        "cache ways"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        let prediction = self.predict(run);
        self.want_profile(run, &prediction);
        let placed = self.place(prediction.as_ref().ok(), run)?;
        if let Ok((_, prediction)) = &prediction {
            self.books.lock().needed(run.function, prediction.predicted);
        }
        let binding = self.bind(run, placed.clos);
        if let Binding::Failed(reason) = &binding {
            metrics::counter!("nigh_llc_bind_failures_total").increment(1);
            tracing::warn!(function = %run.function.name, reason, "a sandbox was not bound to its class of service");
        }
        Some(words(&prediction, &placed, &binding))
    }

    fn ahead(&self, run: &mut Run<'_>, after: Option<InvocationId>) -> Option<String> {
        let prediction = self.predict(run).ok()?;
        let placed = self.place_ahead(&prediction, after);
        let binding = self.bind_ahead(run, placed.clos);
        Some(words(&Ok(prediction), &placed, &binding))
    }

    fn has_run(&self, invocation: InvocationId) -> Option<String> {
        // Without a binder no sandbox was moved.
        self.parts.binder.as_ref()?;
        let books = self.books.lock();
        books.running.get(&invocation)?.class.words()
    }

    fn after_run(&self, activation: &Activation) {
        self.release(activation.id);
    }

    fn room(&self, vacancy: &mut Vacancy) {
        let books = self.books.lock();
        vacancy.ways_free = books.ways_free().0;
        for warm in &mut vacancy.warm {
            warm.ways = books.ways_needed(&warm.namespace, &warm.function);
        }
    }

    fn not_run(&self, invocation: InvocationId) {
        self.release(invocation);
    }
}
