//! Runs a scenario under many schedules of its threads and tasks (shuttle), one after the other on one thread of the
//! system, each until it ends, panics or stands still.
//!
//! Included by the unit tests of the crates whose locks are `sync::Mutex`: those are shuttle's while a scenario is explored,
//! and the usual ones in every other test. A schedule changes hands at locks, conditions and awaits; it does not see
//! weaker orderings of atomics.

use std::any::Any;
use std::cell::Cell;

use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Where the choice of schedules begins: the same ones each time.
const SEED: u64 = 20_260_131;
/// A schedule of more steps runs in circles.
const STEPS_MAX: usize = 200_000;
/// Unoptimised futures take room.
const STACK_BYTES: usize = 4 << 20;
/// Explores so many schedules in place of those that a test asks for.
const SCHEDULES: &str = "NIGH_TEST_SCHEDULES";

thread_local! {
    static EXPLORING: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread explores a scenario.
pub(crate) fn is_exploring() -> bool {
    EXPLORING.get()
}

/// Runs `scenario` under so many schedules. What it panicked with under the first that it did not survive.
pub(crate) fn explore(schedules: usize, scenario: impl Fn() + Send + Sync + 'static) -> Result<(), String> {
    let asked = std::env::var(SCHEDULES).ok().and_then(|text| text.parse().ok());
    let explored = std::thread::spawn(move || {
        EXPLORING.set(true);
        let mut config = Config::new();
        config.failure_persistence = FailurePersistence::None;
        config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
        config.stack_size = STACK_BYTES;
        let scheduler = RandomScheduler::new_from_seed(SEED, asked.unwrap_or(schedules));
        Runner::new(scheduler, config).run(scenario);
    });
    explored.join().map_err(|panic| words(&*panic))
}

fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
}
