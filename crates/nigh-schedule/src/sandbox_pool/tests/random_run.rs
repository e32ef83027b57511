//! The pool under random events, and under more load than fits: its properties.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_functions::function::Function;
use nigh_terms::{ByteSize, Monotonic};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use super::super::{BUSY_SHARE, Command, PoolAnswer, PoolLimits, PoolUse, SAVED_MAX_S, SandboxPool, StartId, Ticket};
use super::{LIMITS, pool, sized};

const STEP: Duration = Duration::from_millis(10);
const PREWARMED: ByteSize = ByteSize::mib(100);
/// The memory of each frozen sandbox.
const HELD: ByteSize = ByteSize::mib(30);

/// A sandbox as the simulated node has it.
#[derive(Clone, Debug, PartialEq)]
enum SimulatedSandbox {
    Runs { until: u64 },
    Idle { since: u64 },
    Rests,
    Ends { until: u64 },
}

/// A step that waits until these sandboxes are gone.
enum DelayedStep {
    Run(u32),
    Make(StartId, Arc<Function>, u64),
}

/// A node in steps of 10 ms: it carries out the pool's commands, and knows the true state.
struct Node {
    pool: SandboxPool<u32>,
    limits: PoolLimits,
    now: u64,
    next: u32,
    /// The steps that a run takes, and that a start takes.
    run: u64,
    start: u64,
    sandboxes: BTreeMap<u32, (Arc<Function>, SimulatedSandbox)>,
    making: Vec<(StartId, Arc<Function>, u64)>,
    blocked: Vec<(Vec<u32>, DelayedStep)>,
    came: BTreeMap<Ticket, (u64, String)>,
    refused_of: BTreeMap<String, u64>,
    /// The idle processors that the pool is told; None if it must estimate them.
    idle_processors: Option<f64>,
    served: BTreeMap<String, u64>,
    refused: u64,
    starts: u64,
    longest_wait: u64,
}

impl Node {
    fn new(limits: PoolLimits, run: u64, start: u64) -> Self {
        Self {
            pool: pool(limits),
            limits: PoolLimits { processors: limits.processors.max(2), ..limits },
            now: 0,
            next: 0,
            run,
            start,
            sandboxes: BTreeMap::new(),
            making: Vec::new(),
            blocked: Vec::new(),
            came: BTreeMap::new(),
            refused_of: BTreeMap::new(),
            idle_processors: None,
            served: BTreeMap::new(),
            refused: 0,
            starts: 0,
            longest_wait: 0,
        }
    }

    fn at(&self) -> Monotonic {
        Monotonic::default().after(STEP * u32::try_from(self.now).unwrap())
    }

    fn ask(&mut self, function: &Arc<Function>) -> bool {
        match self.pool.ask(function, self.at()) {
            PoolAnswer::Waiting(ticket) => self.came.insert(ticket, (self.now, function.name.to_string())).is_none(),
            PoolAnswer::Refused(_) | PoolAnswer::OverReserved(_) | PoolAnswer::Closed => {
                self.refused += 1;
                false
            }
        }
    }

    fn end(&mut self, sandbox: u32) {
        let until = self.now + 2;
        if let Some((_, real)) = self.sandboxes.get_mut(&sandbox) {
            assert!(!matches!(real, SimulatedSandbox::Runs { .. }), "one that runs is ended for another");
            *real = SimulatedSandbox::Ends { until };
        }
    }

    fn obey(&mut self) {
        if let Some(idle) = self.idle_processors {
            self.pool.set_idle_processors(idle, self.at());
        }
        for command in self.pool.serve(self.at()) {
            match command {
                Command::Run { ticket, sandbox, after } => {
                    let waited = self.now - self.came.remove(&ticket).expect("it waited").0;
                    self.longest_wait = self.longest_wait.max(waited);
                    after.iter().for_each(|one| self.end(*one));
                    let (_, real) = self.sandboxes.get_mut(&sandbox).expect("it is there");
                    assert!(matches!(real, SimulatedSandbox::Idle { .. } | SimulatedSandbox::Rests), "{real:?}");
                    // The run waits until those sandboxes are gone.
                    self.blocked.push((after, DelayedStep::Run(sandbox)));
                }
                Command::Start(start) => {
                    self.starts += 1;
                    start.after.iter().for_each(|one| self.end(*one));
                    self.blocked.push((start.after, DelayedStep::Make(start.id, start.function, self.start)));
                }
                Command::Freeze(sandbox) => self.freeze(sandbox),
                Command::Refuse { ticket, .. } => {
                    let (came, function) = self.came.remove(&ticket).expect("it waited");
                    assert!(STEP * u32::try_from(self.now - came).unwrap() >= self.limits.wait_max);
                    *self.refused_of.entry(function).or_default() += 1;
                    self.refused += 1;
                }
            }
        }
        for (after, then) in std::mem::take(&mut self.blocked) {
            if after.iter().any(|one| self.sandboxes.contains_key(one)) {
                self.blocked.push((after, then));
                continue;
            }
            match then {
                DelayedStep::Run(sandbox) => {
                    let until = self.now + self.run;
                    if let Some((_, real)) = self.sandboxes.get_mut(&sandbox) {
                        *real = SimulatedSandbox::Runs { until };
                    }
                }
                DelayedStep::Make(id, function, took) => self.making.push((id, function, self.now + took)),
            }
        }
    }

    fn freeze(&mut self, sandbox: u32) {
        if let Some((_, real)) = self.sandboxes.get_mut(&sandbox)
            && matches!(real, SimulatedSandbox::Idle { .. })
            && !self.blocked.iter().any(|(_, then)| matches!(then, DelayedStep::Run(one) if *one == sandbox))
        {
            *real = SimulatedSandbox::Rests;
            self.pool.rests(&sandbox, HELD);
        }
    }

    fn step(&mut self) {
        self.now += 1;
        let (now, at) = (self.now, self.at());
        let made: Vec<_> = self.making.extract_if(.., |(_, _, until)| *until <= now).collect();
        for (id, function, _) in made {
            self.next += 1;
            self.sandboxes.insert(self.next, (function, SimulatedSandbox::Idle { since: now }));
            let took = STEP * u32::try_from(self.start).unwrap();
            assert_eq!(self.pool.started(id, self.next, took, at), None);
        }
        for (sandbox, (function, real)) in self.sandboxes.clone() {
            match real {
                SimulatedSandbox::Runs { until } if until <= now => {
                    self.pool.finished(&function);
                    let took = STEP * u32::try_from(self.run).unwrap();
                    assert_eq!(self.pool.give_back(sandbox, Some(took), at), None);
                    *self.served.entry(function.name.to_string()).or_default() += 1;
                    self.sandboxes.insert(sandbox, (function, SimulatedSandbox::Idle { since: now }));
                }
                SimulatedSandbox::Idle { since } if since + 5 <= now => self.freeze(sandbox),
                SimulatedSandbox::Ends { until } if until <= now => {
                    self.sandboxes.remove(&sandbox);
                    self.pool.gone(&sandbox);
                }
                _ => {}
            }
        }
        self.obey();
        self.is_lawful();
    }

    /// Checks that the true state is within the limits.
    fn is_lawful(&self) {
        let of = |function: &Function, real: &SimulatedSandbox| match real {
            SimulatedSandbox::Rests | SimulatedSandbox::Ends { .. } => HELD.min(function.memory),
            SimulatedSandbox::Runs { .. } | SimulatedSandbox::Idle { .. } => function.memory,
        };
        let making: ByteSize = self.making.iter().map(|(_, function, _)| function.memory).sum();
        let busy = self
            .sandboxes
            .values()
            .filter(|(_, real)| matches!(real, SimulatedSandbox::Runs { .. } | SimulatedSandbox::Idle { .. }));
        let busy: ByteSize = busy.map(|(function, _)| function.memory).sum();
        let all: ByteSize = self.sandboxes.values().map(|(function, real)| of(function, real)).sum();
        assert!(busy + making <= self.limits.memory(), "at {}: {busy} {making}", self.now);
        assert!(all + making <= self.limits.memory(), "at {}: {all} {making}", self.now);
        assert!(self.sandboxes.len() + self.making.len() <= self.limits.sandboxes_max);
        assert!(self.making.len() <= self.limits.processors);
        assert!(self.pool.in_use().running <= self.limits.invocations_max);
    }

    fn served_in_all(&self) -> u64 {
        self.served.values().sum()
    }

    /// Runs until nobody waits and nothing runs.
    fn finish(&mut self) {
        let idle = |node: &Self| {
            let runs = node
                .sandboxes
                .values()
                .any(|(_, real)| matches!(real, SimulatedSandbox::Runs { .. } | SimulatedSandbox::Ends { .. }));
            node.came.is_empty() && !runs && node.making.is_empty() && node.blocked.is_empty()
        };
        (0..2_000).take_while(|_| !idle(self)).count();
        for _ in 0..2_000 {
            if idle(self) {
                return;
            }
            self.step();
        }
        panic!("somebody waits for ever: {:?}", self.came);
    }
}

fn functions(sizes: &[u64]) -> Vec<Arc<Function>> {
    sizes.iter().enumerate().map(|(number, mib)| sized(&format!("f{number}"), *mib)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_comes_the_limits_hold_nobody_waits_for_ever_and_the_books_come_out_even(
        seed in any::<u64>(), rate in 0.02f64..1.5, run in 1u64..60, start in 1u64..60,
    ) {
        let mut random = StdRng::seed_from_u64(seed);
        let limits = PoolLimits { waiting_max: 30, wait_max: Duration::from_secs(3), ..LIMITS };
        let mut node = Node::new(limits, run, start);
        let functions = functions(&[64, 128, 192, 300, 512]);
        for step in 0..600 {
            if random.random_bool(rate.min(1.0)) {
                node.ask(&functions[random.random_range(0..functions.len())]);
            }
            match random.random_range(0..40) {
                0 => drop(node.pool.book_prewarmed(PREWARMED)),
                1 if node.pool.in_use().stems > 0 => node.pool.release_prewarmed(PREWARMED),
                2 => {
                    // For one function, as many as may run beside the others' reservations; or no reservation.
                    let reserved = [None, Some(0), Some(1), Some(2)][random.random_range(0..4)];
                    node.pool.set_reserved(&functions[0].namespace, &functions[0].name, reserved);
                }
                3 if step % 7 == 0 => {
                    let at = node.at();
                    let taken = node.pool.take_expired(at, |function| function.name == functions[1].name);
                    taken.into_iter().for_each(|(one, _)| node.end(one));
                }
                _ => {}
            }
            node.step();
            (0..node.pool.prewarmed_in_the_way(PREWARMED)).for_each(|_| node.pool.release_prewarmed(PREWARMED));
            let prewarmed = node.pool.in_use().prewarmed;
            prop_assert!(node.pool.in_use().booked + prewarmed <= limits.memory_max);
        }
        node.pool.set_reserved(&functions[0].namespace, &functions[0].name, None);
        node.finish();
        prop_assert!(node.longest_wait <= 301, "{} steps", node.longest_wait);
        (0..node.pool.in_use().stems).for_each(|_| node.pool.release_prewarmed(PREWARMED));
        let idle = node.pool.close();
        idle.iter().for_each(|one| node.pool.gone(one));
        prop_assert_eq!(node.pool.in_use(), PoolUse::default());
    }

    /// More functions than fit, each with callers that invoke again as soon as they are answered: the starts that end
    /// sandboxes which are needed again take no more than their budget, so the sandboxes work for nine tenths of the
    /// time.
    #[test]
    fn a_node_that_is_asked_for_more_than_fits_slows_down_and_does_not_thrash(
        seed in any::<u64>(), count in 2usize..20, callers in 1usize..60, run in 1u64..10, start in 5u64..50,
    ) {
        // Room for eight busy sandboxes, and none for frozen ones beside them.
        let limits = PoolLimits {
            sandboxes_max: 8,
            memory_max: ByteSize::mib(8 * 64),
            invocations_max: 64,
            waiting_max: 1000,
            ..LIMITS
        };
        let mut random = StdRng::seed_from_u64(seed);
        let mut node = Node::new(limits, run, start);
        node.idle_processors = Some(0.0);
        let functions = functions(&vec![64; count]);
        let steps = 3_000;
        for _ in 0..steps {
            while node.came.len() + node.pool.in_use().running < callers {
                let function = Arc::clone(&functions[random.random_range(0..functions.len())]);
                if !node.ask(&function) {
                    break;
                }
            }
            node.step();
        }
        let seconds = STEP.as_secs_f64() * f64::from(steps);
        let budget = limits.processors.max(2) as f64 * (SAVED_MAX_S + BUSY_SHARE * seconds);
        let a_start = STEP.as_secs_f64() * start as f64;
        // The first start of each function, before its duration was measured, and starts in free memory, are not paid.
        let bound = budget / a_start.min(0.25) + count as f64 + 8.0;
        prop_assert!((node.starts as f64) <= bound, "{} starts, {bound} allowed", node.starts);
        prop_assert!(node.served_in_all() > 0);
    }
}

/// Twice as many functions as fit, each invoked all the time: the room changes hands, and no function is left out.
#[test]
fn every_function_has_its_time_though_not_all_fit() {
    let limits = PoolLimits {
        sandboxes_max: 6,
        memory_max: ByteSize::mib(6 * 64),
        invocations_max: 64,
        waiting_max: 1000,
        ..LIMITS
    };
    let mut node = Node::new(limits, 2, 20);
    node.idle_processors = Some(0.0);
    let functions = functions(&[64; 12]);
    let mut asked = [0u64; 12];
    for _ in 0..20_000 {
        for (of, function) in functions.iter().enumerate() {
            let ended = node.served.get(function.name.as_str()).copied().unwrap_or(0);
            let refused = node.refused_of.get(function.name.as_str()).copied().unwrap_or(0);
            if asked[of] < ended + refused + 2 {
                asked[of] += u64::from(node.ask(function));
            }
        }
        node.step();
    }
    let least = functions.iter().map(|one| node.served.get(one.name.as_str()).copied().unwrap_or(0)).min();
    // Alone, each function would be served 10,000 times.
    assert!(least >= Some(500), "{:?}", node.served);
    let lost = node.starts as f64 * 0.2 / (200.0 * 2.0);
    assert!(lost < 0.12, "{} starts of 0.2 s in 200 s of two processors", node.starts);
}

/// If every caller's sandbox has room, each function starts at most once for each of its callers, and never again.
#[test]
fn below_the_room_nothing_starts_twice() {
    for callers in [3, 6, 8] {
        let limits = PoolLimits {
            sandboxes_max: 64,
            memory_max: ByteSize::mib(8 * 256),
            invocations_max: 64,
            waiting_max: 1000,
            ..LIMITS
        };
        let mut node = Node::new(limits, 2, 30);
        let functions = functions(&[256; 3]);
        let mut busy = [0; 3];
        for step in 0..6_000u64 {
            for caller in 0..callers {
                let of = caller % 3;
                let served = node.served.get(&format!("f{of}")).copied().unwrap_or(0);
                if busy[of] < served + (callers as u64 - of as u64).div_ceil(3) {
                    busy[of] += u64::from(node.ask(&functions[of]));
                }
            }
            node.step();
            assert!(step < 1_000 || node.starts <= callers as u64, "{} starts", node.starts);
        }
        assert_eq!(node.refused, 0, "{:?}", node.refused_of);
        assert!(node.served_in_all() > 6_000 / 2, "{} served", node.served_in_all());
    }
}

/// Callers that draw a function for each call meet others of it from time to time: soon there are sandboxes for that.
#[test]
fn who_waits_a_little_again_and_again_gets_a_further_sandbox() {
    let limits = PoolLimits {
        sandboxes_max: 64,
        memory_max: ByteSize::mib(8 * 256),
        invocations_max: 64,
        waiting_max: 1000,
        ..LIMITS
    };
    let mut node = Node::new(limits, 2, 30);
    let mut random = StdRng::seed_from_u64(7);
    let functions = functions(&[256; 3]);
    for _ in 0..3_000 {
        node.idle_processors = Some(1.0);
        while node.came.len() + node.pool.in_use().running < 3 {
            node.ask(&functions[random.random_range(0..3)]);
        }
        node.step();
    }
    assert!(node.starts >= 6, "{} starts", node.starts);
    assert!(node.served_in_all() > 3_000 * 3 / 3 * 9 / 10, "{} served", node.served_in_all());
}

/// Two functions share evenly what both fill, whoever invokes more.
#[test]
fn who_calls_more_gets_no_more_than_a_share() {
    let limits = PoolLimits {
        sandboxes_max: 2,
        memory_max: ByteSize::mib(128),
        invocations_max: 1,
        waiting_max: 1000,
        ..LIMITS
    };
    let mut node = Node::new(limits, 2, 10);
    let functions = functions(&[64; 2]);
    let mut asked = [0u64; 2];
    for _ in 0..3_000 {
        for (of, callers) in [(0, 40u64), (1, 2)] {
            let served = node.served.get(&format!("f{of}")).copied().unwrap_or(0);
            if asked[of] < served + callers {
                asked[of] += u64::from(node.ask(&functions[of]));
            }
        }
        node.step();
    }
    let [one, other] = ["f0", "f1"].map(|name| node.served[name] as f64);
    assert!((one / other - 1.0).abs() < 0.1, "{one} {other}");
}

/// Two namespaces that both want more than there is share it by their weights.
#[test]
fn a_namespace_with_three_shares_has_three_times_the_time() {
    let limits = PoolLimits {
        sandboxes_max: 2,
        memory_max: ByteSize::mib(128),
        invocations_max: 1,
        waiting_max: 1000,
        ..LIMITS
    };
    let mut node = Node::new(limits, 2, 10);
    let own = functions(&[64; 2]);
    let other = Arc::new(Function { namespace: "other".parse().unwrap(), ..(*own[1]).clone() });
    let functions = [Arc::clone(&own[0]), other];
    node.pool.set_share(functions[1].namespace.clone(), 3);
    let mut asked = [0u64; 2];
    let mut begin = BTreeMap::new();
    for step in 0..3_000 {
        // Until then turns depended on a guess of how long runs take.
        if step == 1_000 {
            begin = node.served.clone();
        }
        for (of, function) in functions.iter().enumerate() {
            let served = node.served.get(function.name.as_str()).copied().unwrap_or(0);
            let refused = node.refused_of.get(function.name.as_str()).copied().unwrap_or(0);
            if asked[of] < served + refused + 20 {
                asked[of] += u64::from(node.ask(function));
            }
        }
        node.step();
    }
    let [one, three] = ["f0", "f1"].map(|name| (node.served[name] - begin[name]) as f64);
    assert!((three / one - 3.0).abs() < 0.3, "{one} {three}");
}
