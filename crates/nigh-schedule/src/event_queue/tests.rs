//! Each rule of the queue by itself, and random sequences of all events of a node.

use std::collections::HashSet;

use nigh_functions::event_config::Destination;
use nigh_terms::Timestamp;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

/// A queue with a clock that the test moves, and one policy for all functions.
struct Scene {
    queue: EventQueue,
    now: ClockReading,
    policy: EventPolicy,
}

impl Scene {
    fn new() -> Self {
        Self::limited(QueueLimits { events_max: 5, running_max: 2, dead_max: 2, ..QueueLimits::default() })
    }

    fn limited(limits: QueueLimits) -> Self {
        let now = ClockReading { monotonic: Monotonic(0), wall: Timestamp(1_700_000_000_000) };
        Self { queue: EventQueue::new(limits), now, policy: EventPolicy::of(None, None) }
    }

    fn pass(&mut self, time: Duration) {
        self.now.monotonic = self.now.monotonic.after(time);
        self.now.wall = Timestamp(self.now.wall.millis() + time.as_millis() as u64);
    }

    fn accept(&mut self, namespace: &str, function: &str) -> Result<InvocationId, QueueFull> {
        let id = InvocationId::now();
        self.queue.admit(id, facts(namespace, function, self.now), self.now)?;
        self.queue.stored(id, self.now);
        Ok(id)
    }

    fn next(&mut self) -> Vec<Command> {
        let policy = self.policy.clone();
        self.queue.next(self.now, |_, _| Some(policy.clone()))
    }

    /// The events that begin now.
    fn started(&mut self) -> Vec<(InvocationId, u32)> {
        let of = |command| match command {
            Command::Run { id, attempt, .. } => (id, attempt),
            other => panic!("{other:?}"),
        };
        self.next().into_iter().map(of).collect()
    }

    fn ended(&mut self, id: InvocationId, end: RunEnd) -> Option<Command> {
        let policy = self.policy.clone();
        self.queue.ended(id, end, Some(&policy), self.now)
    }

    fn wait_s(&self) -> Option<u64> {
        self.queue.wake_at(self.now.monotonic).map(|at| at.since(self.now.monotonic).as_secs())
    }
}

fn facts(namespace: &str, function: &str, now: ClockReading) -> EventFacts {
    EventFacts {
        namespace: Namespace::new(namespace).unwrap(),
        function: FunctionName::new(function).unwrap(),
        bytes: ByteSize(10),
        accepted: now.wall,
    }
}

fn letter(id: InvocationId, facts: EventFacts) -> DeadLetter {
    let died = facts.accepted;
    DeadLetter { id, facts, attempts: 3, reason: "RetriesExhausted".to_owned(), died, remains: RemainingWork::Event }
}

fn finished(command: Option<Command>) -> (Condition, Fate, u32) {
    match command {
        Some(Command::Finish { condition, fate, attempts, .. }) => (condition, fate, attempts),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_undecided_event_takes_its_room_and_runs_only_when_it_is_confirmed() {
    let mut scene = Scene::limited(QueueLimits { events_max: 2, running_max: 2, ..QueueLimits::default() });
    let (run, not) = (InvocationId::now(), InvocationId::now());
    for id in [run, not] {
        scene.queue.restore_proposed(id, facts("a", "f", scene.now), scene.now);
    }
    let namespace = Namespace::new("a").unwrap();
    assert!(scene.queue.has(&namespace, run) && !scene.queue.has(&namespace, InvocationId::now()));
    scene.pass(HOUR);
    assert!(scene.started().is_empty());
    assert!(scene.accept("a", "f").is_err(), "there is no room beside the two");
    assert!(!scene.queue.drop_event(&namespace, run));
    scene.queue.stored(run, scene.now);
    scene.queue.not_stored(not);
    assert_eq!(scene.started(), [(run, 1)]);
    assert!(scene.accept("a", "f").is_ok());
}

#[test]
fn a_functions_error_is_retried_after_one_and_two_minutes_and_then_the_event_is_done() {
    let mut scene = Scene::new();
    let id = scene.accept("a", "f").unwrap();
    for (attempt, wait) in [(1, 60), (2, 120)] {
        assert_eq!(scene.started(), [(id, attempt)]);
        assert_eq!(scene.ended(id, RunEnd::Failed), None);
        assert_eq!(scene.wait_s(), Some(wait));
        assert_eq!(scene.next(), []);
        scene.pass(Duration::from_secs(wait));
    }
    assert_eq!(scene.started(), [(id, 3)]);
    let done = scene.ended(id, RunEnd::Failed);
    assert_eq!(finished(done), (Condition::RetriesExhausted, Fate::Bury, 3));
    assert_eq!(scene.wait_s(), None);
}

#[test]
fn throttles_and_faults_are_retried_with_a_wait_that_doubles_and_count_as_no_attempt() {
    let mut scene = Scene::new();
    let id = scene.accept("a", "f").unwrap();
    for wait in [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300] {
        assert_eq!(scene.started(), [(id, 1)]);
        let end = if wait % 3 == 0 { RunEnd::Fault } else { RunEnd::Throttled };
        assert_eq!(scene.ended(id, end), None);
        assert_eq!(scene.wait_s(), Some(wait));
        scene.pass(Duration::from_secs(wait));
    }
}

#[test]
fn an_event_that_is_too_old_is_done_at_that_moment() {
    let mut scene = Scene::new();
    scene.policy.age_max = Duration::from_secs(90);
    let id = scene.accept("a", "f").unwrap();
    scene.started();
    scene.ended(id, RunEnd::Failed);
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.started(), [(id, 2)]);
    scene.ended(id, RunEnd::Failed);
    assert_eq!(scene.wait_s(), Some(30));
    scene.pass(Duration::from_secs(30));
    let done = scene.next().pop();
    assert_eq!(finished(done), (Condition::EventAgeExceeded, Fate::Bury, 2));
}

#[test]
fn a_jump_of_the_date_lets_nothing_expire_and_a_restart_counts_the_time_that_passed() {
    let mut scene = Scene::new();
    let id = scene.accept("a", "f").unwrap();
    scene.now.wall = Timestamp(scene.now.wall.millis() + 48 * 3_600_000);
    assert_eq!(scene.started(), [(id, 1)]);
    assert_eq!(scene.ended(id, RunEnd::Throttled), None);
    scene.now.wall = Timestamp(0);
    scene.pass(Duration::from_secs(1));
    assert_eq!(scene.started(), [(id, 1)]);

    // Restarts: after 5 hours, after 7, and with a date before the event was accepted.
    for (hours, expires) in [(5, false), (7, true), (-5, false)] {
        let mut scene = Scene::new();
        let facts = facts("a", "f", scene.now);
        scene.now.wall = Timestamp(scene.now.wall.millis().saturating_add_signed(hours * 3_600_000));
        scene.queue.restore(id, facts, 0, scene.now);
        let command = scene.next().pop().unwrap();
        assert_eq!(matches!(command, Command::Finish { .. }), expires, "{hours} h: {command:?}");
    }
}

#[test]
fn a_crash_in_the_midst_of_a_run_counts_as_an_attempt() {
    let mut scene = Scene::new();
    scene.policy.retries_max = 1;
    let (again, lost) = (InvocationId::now(), InvocationId::now());
    scene.queue.restore(again, facts("a", "f", scene.now), 1, scene.now);
    scene.queue.restore(lost, facts("a", "f", scene.now), 2, scene.now);
    let commands = scene.next();
    assert!(matches!(&commands[0], Command::Run { id, attempt: 2, .. } if *id == again), "{commands:?}");
    let done = commands.into_iter().nth(1);
    assert_eq!(finished(done), (Condition::RetriesExhausted, Fate::Bury, 2));
}

#[test]
fn a_success_is_forgotten_and_both_ends_go_to_their_destinations() {
    let mut scene = Scene::new();
    let next = Destination::Function(FunctionName::new("next").unwrap());
    let bucket = Destination::Bucket(nigh_terms::BucketName::new("failures").unwrap());
    let id = scene.accept("a", "f").unwrap();
    scene.started();
    let done = scene.ended(id, RunEnd::Answered);
    assert_eq!(finished(done), (Condition::Success, Fate::Forget, 1));
    scene.queue.forgotten(id);
    scene.policy = EventPolicy { retries_max: 0, ..scene.policy };
    scene.policy.on_success = Some(next.clone());
    scene.policy.on_failure = Some(bucket.clone());
    for (end, to) in [(RunEnd::Answered, next), (RunEnd::Failed, bucket)] {
        let id = scene.accept("a", "f").unwrap();
        scene.started();
        let done = scene.ended(id, end);
        assert_eq!(finished(done).1, Fate::Deliver(to.clone()));
        scene.queue.to_deliver(id, to, scene.now);
        assert!(matches!(scene.next().as_slice(), [Command::Deliver { .. }]));
        scene.queue.delivered(id);
    }
    assert_eq!(scene.queue.totals(), (0, 0));
}

#[test]
fn a_record_that_is_not_taken_is_tried_five_times_and_then_given_up() {
    let mut scene = Scene::new();
    let id = InvocationId::now();
    let to = Destination::Function(FunctionName::new("gone").unwrap());
    scene.queue.restore_delivery(id, facts("a", "f", scene.now), to, scene.now);
    for wait in [1, 2, 4, 8] {
        assert_eq!(scene.next().len(), 1);
        assert_eq!(scene.queue.not_delivered(id, "no such function", scene.now), None);
        assert_eq!(scene.wait_s(), Some(wait));
        scene.pass(Duration::from_secs(wait));
    }
    assert_eq!(scene.next().len(), 1);
    let given_up = scene.queue.not_delivered(id, "no such function", scene.now);
    assert!(matches!(given_up, Some(Command::GiveUp { reason, .. }) if reason == "no such function"));
}

#[test]
fn a_full_queue_refuses_one_namespace_and_not_the_other() {
    let mut scene = Scene::new();
    for _ in 0..5 {
        scene.accept("a", "f").unwrap();
    }
    assert_eq!(scene.accept("a", "g"), Err(QueueFull::Events(5)));
    scene.accept("b", "f").unwrap();
    let mut scene = Scene::limited(QueueLimits { bytes_max: ByteSize(15), ..QueueLimits::default() });
    scene.accept("a", "f").unwrap();
    assert_eq!(scene.accept("a", "f"), Err(QueueFull::Bytes(ByteSize(10))));
}

#[test]
fn a_full_line_holds_neither_another_function_nor_another_namespace_up() {
    let mut scene = Scene::limited(QueueLimits { running_max: 3, ..QueueLimits::default() });
    let first: Vec<_> = (0..9).map(|_| scene.accept("a", "f").unwrap()).collect();
    let other = scene.accept("a", "g").unwrap();
    let others = scene.accept("b", "f").unwrap();
    let started: HashSet<_> = scene.started().into_iter().map(|(id, _)| id).collect();
    assert_eq!(started, HashSet::from([first[0], other, others]));
    assert_eq!(scene.next(), []);
    // An event that is due and cannot run is no reason to wake.
    assert_eq!(scene.wait_s(), None);
}

#[test]
fn no_more_run_than_are_reserved_and_with_none_reserved_they_fail_at_once() {
    let mut scene = Scene::limited(QueueLimits::default());
    scene.policy.reserved = Some(2);
    for _ in 0..4 {
        scene.accept("a", "f").unwrap();
    }
    assert_eq!(scene.started().len(), 2);
    scene.policy.reserved = Some(0);
    let ends = scene.next();
    assert_eq!(ends.len(), 2);
    for end in ends {
        assert_eq!(finished(Some(end)), (Condition::ZeroReservedConcurrency, Fate::Bury, 0));
    }
}

#[test]
fn the_events_of_a_deleted_function_are_done() {
    let mut scene = Scene::new();
    scene.accept("a", "f").unwrap();
    let done = scene.queue.next(scene.now, |_, _| None).pop();
    assert_eq!(finished(done), (Condition::FunctionDeleted, Fate::Bury, 0));
}

#[test]
fn dead_letters_are_bounded_can_be_revived_and_dropped() {
    let mut scene = Scene::new();
    let tenant = Namespace::new("a").unwrap();
    let ids: Vec<_> = (0..3).map(|_| scene.accept("a", "f").unwrap()).collect();
    let gone: Vec<_> = ids.iter().flat_map(|id| scene.queue.buried(letter(*id, facts("a", "f", scene.now)))).collect();
    assert_eq!(gone, [ids[0]]);
    let listed: Vec<_> = scene.queue.dead_letters(&tenant).iter().map(|letter| letter.id).collect();
    assert_eq!(listed, [ids[2], ids[1]]);
    assert_eq!(scene.queue.dead_letter(&Namespace::new("b").unwrap(), ids[1]), None);

    scene.pass(24 * HOUR);
    let revived = scene.queue.revive(&tenant, ids[1], scene.now).unwrap().unwrap();
    assert_eq!(revived.facts.accepted, scene.now.wall);
    scene.queue.stored(ids[1], scene.now);
    assert_eq!(scene.started(), [(ids[1], 1)]);
    assert!(!scene.queue.drop_event(&tenant, ids[1]), "a running event was dropped");
    assert!(scene.queue.drop_event(&tenant, ids[2]));
    assert!(!scene.queue.drop_event(&tenant, ids[2]));
    assert_eq!(scene.queue.totals(), (1, 0));
}

#[test]
fn whatever_happens_every_event_comes_to_one_end_and_the_books_come_out_even() {
    for seed in 0..200 {
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let mut scene =
            Scene::limited(QueueLimits { events_max: 20, running_max: 4, dead_max: 100, ..QueueLimits::default() });
        let mut running: Vec<InvocationId> = Vec::new();
        let (mut accepted, mut done) = (HashSet::new(), HashSet::new());
        for step in 0..2000 {
            let is_last = step >= 600;
            match random.random_range(0..10) {
                0..3 if !is_last => {
                    let (namespace, function) =
                        (["a", "b", "c"][random.random_range(0..3)], ["f", "g"][random.random_range(0..2)]);
                    accepted.extend(scene.accept(namespace, function));
                }
                3..8 if !running.is_empty() => {
                    let id = running.swap_remove(random.random_range(0..running.len()));
                    let end = match random.random_range(0..4) {
                        0 => RunEnd::Failed,
                        1 if !is_last => RunEnd::Throttled,
                        2 if !is_last => RunEnd::Fault,
                        _ => RunEnd::Answered,
                    };
                    if let Some(Command::Finish { id, fate, facts, .. }) = scene.ended(id, end) {
                        assert!(done.insert(id), "seed {seed}: two ends of one event");
                        match fate {
                            Fate::Forget => scene.queue.forgotten(id),
                            Fate::Bury => assert!(scene.queue.buried(letter(id, facts)).is_empty()),
                            Fate::Deliver(_) => panic!("nobody asked for that"),
                        }
                    }
                }
                _ => scene.pass(Duration::from_secs(random.random_range(0..100))),
            }
            for command in scene.next() {
                match command {
                    Command::Run { id, .. } => {
                        assert!(!running.contains(&id) && !done.contains(&id), "seed {seed}");
                        running.push(id);
                    }
                    Command::Finish { id, facts, .. } => {
                        assert!(done.insert(id), "seed {seed}");
                        assert!(scene.queue.buried(letter(id, facts)).is_empty());
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert!(running.len() <= 4, "seed {seed}");
        }
        assert_eq!(done, accepted, "seed {seed}");
        assert_eq!(scene.queue.totals().0, 0, "seed {seed}");
        assert!(scene.queue.lines.is_empty() && scene.queue.loads.is_empty() && scene.queue.running == 0);
    }
}
