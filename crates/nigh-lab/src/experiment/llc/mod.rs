//! Experiments of the last-level cache: CASY's figures and tables, from recorded functions on a simulated machine.
//!
//! The simulator knows neither a prefetcher nor the kernel; what it and the recordings leave out is said beside each
//! figure.

mod chart;
mod contention;
mod paper;
mod prediction;
mod real_contention;
mod scenarios;
mod sensitivity;
pub(crate) mod sizing;
pub(crate) mod trace_library;
mod ways;

pub(crate) use self::contention::ContentionArgs;
pub(crate) use self::prediction::PredictionArgs;
pub(crate) use self::scenarios::ScenariosArgs;
pub(crate) use self::sensitivity::SensitivityArgs;
pub(crate) use self::ways::WaysArgs;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use crate::LabError;

/// Prints a report as JSON, or as what `text` makes of it with a line about the machine below.
#[expect(clippy::print_stdout, reason = "the report is the command's output")]
pub(crate) fn print_report(report: &impl Serialize, text: impl FnOnce() -> String, json: bool) -> Result<(), LabError> {
    if json {
        let text = serde_json::to_string_pretty(report).map_err(|error| LabError::file("report", &error))?;
        println!("{text}");
    } else {
        println!("{}", text());
    }
    Ok(())
}

/// Does `work` on all items, on as many threads as there are processors, the first items first; results in their order.
fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, LabError> + Sync,
) -> Result<Vec<R>, LabError> {
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let result = work(item);
                    done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
