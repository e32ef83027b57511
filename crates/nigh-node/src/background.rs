//! Work beside the requests, until the node stops.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_terms::SystemClock;
use tokio::time::{Interval, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use crate::llc::Llc;
use crate::profiling::FunctionProfiler;
use crate::telemetry::Telemetry;

/// How often histograms are folded, which frees their single values.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// The window of load after which the classes of service may change.
const FOLLOW_LOAD_EVERY: Duration = Duration::from_secs(10);
/// The least time between two fits of the classes of service to the running invocations.
const FIT_CLASSES_EVERY: Duration = Duration::from_millis(20);
/// The pause after a fit, as a multiple of the fit's duration: fits take at most a twentieth of one core.
const FIT_CLASSES_REST: u32 = 19;
/// How often functions' use of the last-level cache is read.
const SAMPLE_USE_EVERY: Duration = Duration::from_secs(1);

/// Lets the classes of service follow the load, and profiles functions that have no model yet.
pub(crate) async fn follow_load(llc: Arc<Llc>, profiling: Arc<FunctionProfiler>, stop: CancellationToken) {
    let mut ticks = every(FOLLOW_LOAD_EVERY);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        off_runtime("following the load of the cache ways failed", &llc, |llc| llc.follow_load()).await;
        stop.run_until_cancelled(llc.profile_wanted(&profiling)).await;
    }
}

/// Fits the classes of service to the running invocations.
pub(crate) async fn fit_classes(llc: Arc<Llc>, stop: CancellationToken) {
    while stop.run_until_cancelled(llc.changed()).await.is_some() {
        let began = Instant::now();
        off_runtime("fitting the classes of service failed", &llc, |llc| llc.refit()).await;
        let pause = FIT_CLASSES_EVERY.max(began.elapsed() * FIT_CLASSES_REST);
        stop.run_until_cancelled(tokio::time::sleep(pause)).await;
    }
}

/// Reads functions' use of the last-level cache while some function uses it.
pub(crate) async fn sample_cache_use(llc: Arc<Llc>, clock: Arc<SystemClock>, stop: CancellationToken) {
    let mut ticks = every(SAMPLE_USE_EVERY);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        if llc.wants_sampling() {
            let clock = Arc::clone(&clock);
            off_runtime("reading the use of the cache failed", &llc, move |llc| llc.sample_use(&*clock)).await;
        }
    }
}

/// Folds histograms.
pub(crate) async fn upkeep(telemetry: Telemetry, stop: CancellationToken) {
    let mut ticks = every(UPKEEP_EVERY);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        telemetry.upkeep();
    }
}

fn every(period: Duration) -> Interval {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Runs `work`, which blocks, on a thread of its own. A panic there is logged as `failed`.
async fn off_runtime(failed: &str, llc: &Arc<Llc>, work: impl FnOnce(&Llc) + Send + 'static) {
    let llc = Arc::clone(llc);
    if let Err(error) = tokio::task::spawn_blocking(move || work(&llc)).await {
        tracing::error!(%error, "{failed}");
    }
}
