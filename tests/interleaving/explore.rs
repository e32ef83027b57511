//! Runs a scenario under many schedules of its threads and tasks (shuttle), one after the other on one thread of the
//! system, each until it ends, panics or stands still.
//!
//! Included by the unit tests of the crates whose locks are `sync::Mutex`: those are shuttle's while a scenario is explored,
//! and the usual ones in every other test. A schedule changes hands at locks, conditions and awaits; it does not see
//! weaker orderings of atomics.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Where the choice of schedules begins: the same ones each time.
const SEED: u64 = 20_260_131;
/// A schedule of more steps runs in circles.
const STEPS_MAX: usize = 200_000;
/// Unoptimised futures take room.
const STACK_BYTES: usize = 4 << 20;
/// Schedules of each kind in a round.
const ROUND: usize = 20;
/// Changes of hands by chance in a schedule whose tasks run as long as they can.
const CHANGES: usize = 3;
/// Explores so many schedules in place of those that a test asks for.
const SCHEDULES: &str = "NIGH_TEST_SCHEDULES";

thread_local! {
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread explores a scenario.
pub(crate) fn is_exploring() -> bool {
    EXPLORING.get()
}

/// Runs `scenario` under so many schedules, in whole rounds: half of them choose anew at each point who goes on; the others
/// let one task run as long as it can, which finds what needs another to stand still for long. What it panicked with
/// under the first that it did not survive.
pub(crate) fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    let asked = std::env::var(SCHEDULES).ok().and_then(|text| text.parse().ok());
    let explored = std::thread::spawn(move || {
        EXPLORING.set(true);
        let mut config = Config::new();
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
        config.stack_size = STACK_BYTES;
        let scenario = Arc::new(scenario);
        for round in 0..asked.unwrap_or(schedules).div_ceil(2 * ROUND) as u64 {
            let chosen: [Box<dyn Scheduler + Send>; 2] = [
                Box::new(RandomScheduler::new_from_seed(SEED + round, ROUND)),
                Box::new(PctScheduler::new_from_seed(SEED + round, CHANGES, ROUND)),
            ];
            for scheduler in chosen {
                let scenario = Arc::clone(&scenario);
                Runner::new(scheduler, config.clone()).run(move || scenario());
            }
        }
    });
    explored.join().map_err(|panic| words(&*panic))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}
