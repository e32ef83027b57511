//! Reads occupancy and bandwidth of each function's sandboxes once a second.
//!
//! An invocation only looks its sandbox up: the sampler makes, reads and removes monitoring groups. A sandbox that
//! changes its class takes its group along, by one rename if the kernel can do that. When monitoring ids run out, a
//! sandbox is not counted, a metric counts the case, and the sampler tries again.

use std::sync::Arc;

use nigh_invoke::hooks::{InvocationHook, Run};
use nigh_llc::resctrl::{Members, TaskTarget};
use nigh_schedule::activation::Activation;
use nigh_terms::{InvocationId, Monotonic};

use super::cache_use::{CountedPlace, FunctionUse};
use super::class_groups::group;
use super::resctrl_classes::ResctrlClasses;

/// Registers each new sandbox for counting. It comes before [`super::CacheWays`].
pub struct CacheUseHook(pub Arc<ResctrlClasses>);

impl InvocationHook for CacheUseHook {
    fn name(&self) -> &'static str {
        "cache use"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        if let Some(tasks) = &run.tasks {
            let mut counted = self.0.groups.counted.lock();
            if counted.can_count() {
                counted.watch(tasks, run.sandbox, run.function);
            }
        }
        None
    }

    fn after_run(&self, _: &Activation) {}

    fn not_run(&self, _: InvocationId) {}
}

fn target(place: &CountedPlace) -> TaskTarget {
    TaskTarget { group: group(place.clos), monitor: Some(place.monitor.clone()) }
}

impl ResctrlClasses {
    /// Removes the monitoring groups that an earlier process left, to free their ids.
    ///
    /// # Errors
    /// The system's reason. The node removes the rest at its end.
    pub fn drop_earlier_counts(&self) -> Result<usize, String> {
        self.groups.resctrl.remove_monitors().map_err(|error| error.to_string())
    }

    /// Whether this machine can count.
    #[must_use]
    pub fn counts_use(&self) -> bool {
        self.groups.counted.lock().can_count()
    }

    /// Whether any sandbox is registered.
    #[must_use]
    pub fn has_sandboxes(&self) -> bool {
        self.by_core.as_ref().is_some_and(|by_core| by_core.has_sandboxes()) || !self.groups.counted.lock().is_empty()
    }

    /// Each function's use of the cache at the last reading.
    #[must_use]
    pub fn use_by_function(&self) -> Vec<FunctionUse> {
        self.groups.counted.lock().by_function()
    }

    /// Forgets ended sandboxes, makes missing monitoring groups, and reads all counters. Called every second. Makes
    /// several blocking system calls for each sandbox. `now` gives the time of each reading.
    pub fn sample_use(&self, now: impl Fn() -> Monotonic) {
        if let Some(by_core) = &self.by_core {
            by_core.forget_ended(|tasks| self.has_ended(tasks));
        }
        self.drop_ended();
        self.make_missing();
        let standing = self.groups.counted.lock().standing();
        // Without the lock: `take` ignores the reading if the sandbox has moved meanwhile.
        for place in standing {
            match self.groups.resctrl.counters(&target(&place)) {
                Ok(readings) => self.groups.counted.lock().take(&place, now(), readings),
                Err(error) => {
                    tracing::debug!(%error, tasks = %place.tasks, "a sandbox's use of the cache cannot be read")
                }
            }
        }
    }

    /// A sandbox whose state cannot be read counts as alive until the next call.
    fn has_ended(&self, tasks: &Members) -> bool {
        self.groups.resctrl.has_ended(tasks).unwrap_or(false)
    }

    fn drop_ended(&self) {
        let all = self.groups.counted.lock().all();
        for tasks in all.into_iter().filter(|tasks| self.has_ended(tasks)) {
            let Some(monitor) = self.groups.counted.lock().forget(&tasks) else { continue };
            if let Err(error) = self.groups.resctrl.remove_monitor(&monitor) {
                tracing::warn!(%error, %monitor, "the monitoring group of an ended sandbox stays until the node ends");
            }
        }
    }

    fn make_missing(&self) {
        let unmade = self.groups.counted.lock().unmade();
        for place in unmade {
            // The lock keeps others from moving the sandbox meanwhile.
            let mut counted = self.groups.counted.lock();
            if !counted.is_unmade(&place) {
                continue;
            }
            match self.groups.resctrl.bind_tasks(&place.tasks, &target(&place)) {
                Ok(bound) if bound.monitored => counted.moved(&place.tasks, place.clos, &bound),
                Ok(_no_id_left) => {
                    metrics::counter!("nigh_llc_monitor_ids_short_total").increment(1);
                    return;
                }
                Err(error) => {
                    counted.astray(&place.tasks);
                    tracing::debug!(%error, tasks = %place.tasks, "a sandbox's use of the cache is not counted");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_llc::resctrl::emulator::{Dialect, Emulator, Event, Fault, MachineConfig, MonitoringConfig, Reading};
    use nigh_llc::resctrl::{ProcessRef, Resctrl, ResctrlFs, TaskView, Tid};
    use nigh_llc::{CasyRequest, ClosLayout};
    use nigh_terms::{ClosId, SandboxId, Ways};

    use super::*;
    use crate::cache_use::{NoFigure, UseFigure};
    use crate::{ClosBinder, WayAllocation, cache_shape};
    use nigh_functions::test_support::function;

    const SECOND: u64 = 1_000_000_000;

    struct Machine {
        emulator: Emulator,
        classes: Arc<ResctrlClasses>,
        layout: ClosLayout,
    }

    fn machine(dialect: Dialect, rmids: u32) -> Machine {
        let monitoring = Some(MonitoringConfig::all_events(rmids));
        let emulator = Emulator::new(MachineConfig { monitoring, ..MachineConfig::silver_4210r(dialect) });
        let resctrl = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator.clone())).unwrap();
        let probe = resctrl.probe().unwrap();
        let classes = Arc::new(ResctrlClasses::new(resctrl, &probe));
        let layout = ClosLayout::casy(&CasyRequest::of(cache_shape(&probe).unwrap(), Ways(3))).unwrap();
        classes.lay_out(&layout).unwrap();
        Machine { emulator, classes, layout }
    }

    impl Machine {
        /// A new sandbox of `f` that is about to run, in the default class.
        fn sandbox(&self, pid: u32) -> Members {
            self.emulator.inject(Fault::Spawn { pid, uid: 7 });
            let started = self.emulator.started(Tid(pid)).unwrap();
            let tasks = Members::Tree(ProcessRef { pid: Tid(pid), started });
            let deployed = function("f");
            let run = Run::new(InvocationId::now(), &deployed, b"{}", SandboxId::random());
            CacheUseHook(Arc::clone(&self.classes)).before_run(&mut Run { tasks: Some(tasks.clone()), ..run });
            tasks
        }

        fn sample(&self, second: u64) {
            self.classes.sample_use(|| Monotonic(second * SECOND));
        }

        /// The group below which the sandbox's monitoring group stands, and its path.
        fn place(&self, pid: u32) -> (String, String) {
            let text = self.emulator.cpu_resctrl_groups(pid).unwrap();
            let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
            let (group, monitor) = (field("res:"), field("mon:"));
            let below = if group == "/" { String::new() } else { format!("{group}/") };
            (group, format!("{below}mon_groups/{monitor}"))
        }
    }

    #[test]
    fn a_sandbox_is_counted_from_class_to_class_until_it_ends() {
        for dialect in [Dialect::Linux6_1, Dialect::Linux7] {
            let machine = machine(dialect, 144);
            let tasks = machine.sandbox(100);
            machine.sample(0);
            let (group, monitor) = machine.place(100);
            assert_eq!(group, "/");
            for (event, bytes) in [(Event::Occupancy, 1 << 20), (Event::LocalBytes, 0)] {
                machine.emulator.set_counter(&monitor, 0, event, Reading::Value(bytes)).unwrap();
            }
            machine.sample(1);
            // Its group goes with it into its class.
            ClosBinder::bind(&*machine.classes, &tasks, ClosId(5)).unwrap();
            let (group, monitor) = machine.place(100);
            assert_eq!(group, "nigh-clos-5");
            machine.emulator.set_counter(&monitor, 0, Event::LocalBytes, Reading::Value(3 << 20)).unwrap();
            machine.emulator.set_counter(&monitor, 0, Event::TotalBytes, Reading::Unavailable).unwrap();
            machine.sample(2);
            machine.sample(3);
            let used = machine.classes.use_by_function().remove(0);
            assert_eq!((used.sandboxes, used.counted), (1, 1));
            assert_eq!(used.local_bytes_per_s, UseFigure::Figure(0), "nothing moved between the last two readings");
            assert_eq!(used.total_bytes_per_s, UseFigure::Word(NoFigure::Unavailable));

            machine.emulator.inject(Fault::Exit { tid: 100 });
            machine.sample(4);
            assert!(machine.classes.use_by_function().is_empty());
            assert_eq!(machine.emulator.list("nigh-clos-5/mon_groups").unwrap(), Vec::<String>::new());
        }
    }

    #[test]
    fn a_kernel_that_renames_counts_on_and_bandwidth_is_bytes_over_seconds() {
        let machine = machine(Dialect::Linux7, 144);
        let tasks = machine.sandbox(100);
        machine.sample(0);
        let (_, monitor) = machine.place(100);
        machine.emulator.set_counter(&monitor, 0, Event::LocalBytes, Reading::Value(1000)).unwrap();
        machine.sample(1);
        ClosBinder::bind(&*machine.classes, &tasks, ClosId(5)).unwrap();
        let (_, monitor) = machine.place(100);
        machine.emulator.set_counter(&monitor, 0, Event::LocalBytes, Reading::Value(5000)).unwrap();
        machine.sample(3);
        let local = machine.classes.use_by_function()[0].local_bytes_per_s;
        assert_eq!(
            local,
            if cfg!(target_arch = "x86_64") { UseFigure::Figure(2000) } else { UseFigure::Word(NoFigure::NotYet) }
        );
    }

    #[test]
    fn where_ids_run_out_classes_come_first_and_the_sandbox_is_counted_later() {
        // Ten ids: the root's, seven classes', two left. One of those may be used.
        let machine = machine(Dialect::Linux7, 10);
        for pid in [100, 200] {
            machine.sandbox(pid);
        }
        machine.sample(0);
        let used = machine.classes.use_by_function().remove(0);
        assert_eq!((used.sandboxes, used.counted), (2, 1));
        // Others take the last id, and a profile all classes: the layout comes back all the same.
        machine.emulator.make_group("mon_groups/theirs").unwrap();
        machine.classes.allocate(Ways(4)).unwrap();
        machine.classes.lay_out(&machine.layout).unwrap();
        for pid in [100, 200] {
            machine.emulator.inject(Fault::Exit { tid: pid });
        }
        machine.sample(1);
        machine.emulator.make_group("mon_groups/theirs-too").unwrap();
        let tasks = machine.sandbox(300);
        machine.sample(2);
        assert_eq!(machine.classes.use_by_function()[0].counted, 0, "no id is left");
        ClosBinder::bind(&*machine.classes, &tasks, ClosId(5)).unwrap();
        machine.emulator.remove_group("mon_groups/theirs").unwrap();
        machine.sample(3);
        assert_eq!(machine.classes.use_by_function()[0].counted, 1);
        assert_eq!(machine.place(300).0, "nigh-clos-5");
    }

    #[test]
    fn a_start_frees_the_ids_of_a_life_that_crashed() {
        let machine = machine(Dialect::Linux7, 144);
        let tasks = machine.sandbox(100);
        ClosBinder::bind(&*machine.classes, &tasks, ClosId(5)).unwrap();
        machine.sandbox(200);
        machine.sample(0);
        machine.emulator.make_group("mon_groups/theirs").unwrap();
        assert_eq!(machine.classes.drop_earlier_counts(), Ok(2));
        assert_eq!(machine.place(100).0, "nigh-clos-5", "it stays in its class");
        assert_eq!(machine.emulator.list("mon_groups").unwrap(), ["theirs/"]);
    }

    #[test]
    fn who_loses_its_class_to_another_layout_is_counted_in_the_default_class() {
        let machine = machine(Dialect::Linux7, 144);
        let tasks = machine.sandbox(100);
        ClosBinder::bind(&*machine.classes, &tasks, ClosId(5)).unwrap();
        machine.sample(0);
        assert_eq!(machine.place(100).0, "nigh-clos-5");
        machine.classes.allocate(Ways(11)).unwrap();
        machine.sample(1);
        assert_eq!(machine.place(100).0, "/");
        assert_eq!(machine.classes.use_by_function()[0].counted, 1);
    }

    #[test]
    fn a_machine_without_monitoring_counts_nothing() {
        let emulator = Emulator::new(MachineConfig::cat_only(Dialect::Linux7, 11, 8, 1, 2));
        let resctrl = Resctrl::open(Arc::new(emulator.clone()), Arc::new(emulator)).unwrap();
        let probe = resctrl.probe().unwrap();
        assert!(!ResctrlClasses::new(resctrl, &probe).counts_use());
    }
}
