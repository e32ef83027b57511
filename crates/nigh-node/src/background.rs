//! What a node does beside its requests, until it is told to stop.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nigh_terms::SystemClock;
use tokio_util::sync::CancellationToken;

use crate::llc::Llc;
use crate::profiling::FunctionProfiler;
use crate::telemetry::Telemetry;

/// How often histograms are folded.
const UPKEEP_EVERY: Duration = Duration::from_secs(5);
/// The window of load after which the classes of service may change.
const FOLLOW_LOAD_EVERY: Duration = Duration::from_secs(10);
/// The classes of service are fitted to what runs this often at most,
const FIT_CLASSES_EVERY: Duration = Duration::from_millis(20);
/// and rest for so many times as long as it took: for a twentieth of one core at most.
const FIT_CLASSES_REST: u32 = 19;
/// How often functions' use of the cache is read.
const SAMPLE_USE_EVERY: Duration = Duration::from_secs(1);

/// Lets the classes of service follow the load, and profiles in the background what wants a profile.
pub(crate) async fn follow_load(llc: Arc<Llc>, profiling: Arc<FunctionProfiler>, stop: CancellationToken) {
    let mut tick = tokio::time::interval(FOLLOW_LOAD_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {
                let followed = {
                    let llc = Arc::clone(&llc);
                    tokio::task::spawn_blocking(move || llc.follow_load()).await
                };
                if let Err(error) = followed {
                    tracing::error!(%error, "following the load of the cache ways failed");
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = llc.profile_wanted(&profiling) => {}
                }
            }
        }
    }
}

/// Fits the classes of service to what runs, for a bounded part of the time.
pub(crate) async fn fit_classes(llc: Arc<Llc>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = llc.changed() => {}
        }
        let began = Instant::now();
        let fitted = {
            let llc = Arc::clone(&llc);
            tokio::task::spawn_blocking(move || llc.refit()).await
        };
        if let Err(error) = fitted {
            tracing::error!(%error, "fitting the classes of service failed");
        }
        let pause = FIT_CLASSES_EVERY.max(began.elapsed() * FIT_CLASSES_REST);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Reads functions' use of the cache while there is any.
pub(crate) async fn sample_cache_use(llc: Arc<Llc>, clock: Arc<SystemClock>, stop: CancellationToken) {
    let mut tick = tokio::time::interval(SAMPLE_USE_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => {
                if !llc.wants_sampling() {
                    continue;
                }
                let (llc, clock) = (Arc::clone(&llc), Arc::clone(&clock));
                let sampled = tokio::task::spawn_blocking(move || llc.sample_use(&*clock)).await;
                if let Err(error) = sampled {
                    tracing::error!(%error, "reading the use of the cache failed");
                }
            }
        }
    }
}

/// Keeps the meters in order.
pub(crate) async fn upkeep(telemetry: Telemetry, stop: CancellationToken) {
    let mut tick = tokio::time::interval(UPKEEP_EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tick.tick() => telemetry.upkeep(),
        }
    }
}
