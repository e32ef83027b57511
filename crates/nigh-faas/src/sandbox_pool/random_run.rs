//! A node's life at random against the pool: the property beside its unit tests.

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_terms::{ByteSize, Monotonic};
use rand::{Rng as _, SeedableRng as _};

use super::tests::{LIMITS, ask, book_ahead, pool, sized};
use super::{Admission, Answer, PoolLimits, PoolUse, SandboxPool, Ticket};
use crate::function::Function;

const STEM: ByteSize = ByteSize::mib(100);

/// What a random run of a node does to the pool, and what is really there.
#[derive(Default)]
struct Machine {
    next: u32,
    running: Vec<(u32, Arc<Function>)>,
    /// Admitted to room that these still fill.
    evicting: Vec<(Vec<u32>, Arc<Function>)>,
    /// Being made ahead.
    ahead: Vec<(u32, Arc<Function>)>,
    booked: BTreeMap<u32, ByteSize>,
}

impl Machine {
    fn admitted(&mut self, admission: Admission<u32>, function: &Arc<Function>) {
        match admission {
            Admission::Warm(sandbox) => self.running.push((sandbox, Arc::clone(function))),
            Admission::Cold => self.made(function),
            Admission::Evict(victims) => self.evicting.push((victims, Arc::clone(function))),
        }
    }

    fn runs(&self, function: &Function) -> usize {
        let running = self.running.iter().filter(|(_, one)| one.name == function.name).count();
        running + self.evicting.iter().filter(|(_, one)| one.name == function.name).count()
    }

    fn booked(&mut self, function: &Arc<Function>) -> (u32, Arc<Function>) {
        self.next += 1;
        self.booked.insert(self.next, function.memory);
        (self.next, Arc::clone(function))
    }

    fn made(&mut self, function: &Arc<Function>) {
        let made = self.booked(function);
        self.running.push(made);
    }

    /// The first that is made ahead comes to be, or does not.
    fn ahead_over(&mut self, pool: &mut SandboxPool<u32>, is_made: bool, now: Monotonic) {
        let (sandbox, function) = self.ahead.remove(0);
        if is_made {
            assert_eq!(pool.give_back(sandbox, Arc::clone(&function), now), None);
        } else {
            self.end(pool, sandbox);
        }
        pool.ahead_over(&function);
    }

    fn end(&mut self, pool: &mut SandboxPool<u32>, sandbox: u32) {
        pool.release(self.booked.remove(&sandbox).unwrap());
    }
}

#[test]
fn whatever_happens_the_limits_hold_and_the_books_come_out_even() {
    for seed in 0..300 {
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let mut pool = pool(PoolLimits { waiting_max: 5, ..LIMITS });
        let mut machine = Machine::default();
        let mut waiting: Vec<(Ticket, Arc<Function>)> = Vec::new();
        let functions = [sized("a", 128), sized("b", 192), sized("c", 300), sized("d", 512)];
        for step in 0..400u64 {
            let now = Monotonic(step * 1_000_000_000);
            match random.random_range(0..16) {
                10..12 => drop(pool.book_stem(STEM)),
                12 if pool.in_use().stems > 0 => pool.release_stem(STEM),
                13 => {
                    let function = &functions[random.random_range(0..functions.len())];
                    if book_ahead(&mut pool, function) {
                        let booked = machine.booked(function);
                        machine.ahead.push(booked);
                    }
                }
                14 if !machine.ahead.is_empty() => machine.ahead_over(&mut pool, random.random_bool(0.7), now),
                15 if !waiting.is_empty() => drop(pool.insist(waiting[0].0)),
                0..4 => {
                    let function = &functions[random.random_range(0..functions.len())];
                    match ask(&mut pool, function) {
                        Answer::Admitted(admission) => machine.admitted(admission, function),
                        Answer::Waiting(ticket, _) => waiting.push((ticket, Arc::clone(function))),
                        Answer::Refused(_) | Answer::Closed => assert!(pool.in_use().waiting >= 5),
                        Answer::OverReserved(reserved) => {
                            let comes = waiting.iter().filter(|(_, one)| one.name == function.name).count();
                            assert!(machine.runs(function) + comes >= reserved, "seed {seed}");
                        }
                    }
                }
                4..6 if !machine.running.is_empty() => {
                    let (sandbox, function) = machine.running.remove(0);
                    pool.finished(&function);
                    assert_eq!(pool.give_back(sandbox, function, now), None);
                }
                6 if !machine.running.is_empty() => {
                    let (sandbox, function) = machine.running.pop().unwrap();
                    pool.finished(&function);
                    machine.end(&mut pool, sandbox);
                }
                7 if !machine.evicting.is_empty() => {
                    let (victims, function) = machine.evicting.remove(0);
                    victims.into_iter().for_each(|victim| machine.end(&mut pool, victim));
                    machine.made(&function);
                }
                8 if step % 7 == 0 => {
                    // As many for `a` as run at most beside the others' share, or none of its own.
                    let reserved = [None, Some(0), Some(1), Some(2)][random.random_range(0..4)];
                    pool.set_reserved(&functions[0].namespace, &functions[0].name, reserved);
                }
                9 if !waiting.is_empty() => assert!(pool.leave(waiting.pop().unwrap().0).is_some()),
                _ => {
                    for sandbox in pool.take_expired(now, |_| false) {
                        machine.end(&mut pool, sandbox);
                    }
                }
            }
            for (ticket, admission) in pool.serve_waiting() {
                let at = waiting.iter().position(|(one, _)| *one == ticket).unwrap();
                let (_, function) = waiting.remove(at);
                machine.admitted(admission, &function);
            }
            (0..pool.stems_in_the_way(STEM)).for_each(|_| pool.release_stem(STEM));
            let stems = pool.in_use();
            let real = machine.booked.values().copied().sum::<ByteSize>() + stems.prewarmed;
            assert!(real <= LIMITS.memory_max && stems.prewarmed.bytes() == stems.stems as u64 * STEM.bytes());
            assert!(machine.booked.len() + stems.stems <= LIMITS.sandboxes_max, "seed {seed}");
            assert!(machine.booked.values().copied().sum::<ByteSize>() <= LIMITS.memory_max, "seed {seed}");
            assert!(machine.booked.len() <= LIMITS.sandboxes_max, "seed {seed}");
            assert!(pool.in_use().running <= LIMITS.invocations_max, "seed {seed}");
            // Nobody waits while there is nothing to wait for, but for a turn that is reserved for nobody.
            let nothing_runs = [machine.running.len(), machine.evicting.len(), machine.ahead.len()] == [0; 3];
            let waits = waiting.iter().any(|(_, function)| function.name != functions[0].name);
            assert!(!nothing_runs || !waits, "seed {seed}");
        }
        while !machine.ahead.is_empty() {
            machine.ahead_over(&mut pool, false, Monotonic(0));
        }
        for (victims, function) in std::mem::take(&mut machine.evicting) {
            victims.into_iter().for_each(|victim| machine.end(&mut pool, victim));
            machine.made(&function);
        }
        for (sandbox, function) in std::mem::take(&mut machine.running) {
            pool.finished(&function);
            machine.end(&mut pool, sandbox);
        }
        (0..pool.in_use().stems).for_each(|_| pool.release_stem(STEM));
        for sandbox in pool.close() {
            machine.end(&mut pool, sandbox);
        }
        assert_eq!(pool.in_use(), PoolUse::default(), "seed {seed}");
    }
}
