//! The simulated machine against a plain model of itself, and what its jobs can rely on.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

use std::num::NonZeroU32;

use nigh_sim::llc::{
    AccessKind, AddressSpace, Binder, Classes, CoreTiming, FrameAllocator, Job, JobId, LlcAccess, LlcGeometry,
    MachineConfig, MachineError, MachineReport, MaskError, MemoryTiming, PagedLine, Passes, ReplacementPolicy,
    ReplayTrace, SampleRate, SimTime, SplitMix64, Warmth, WayPartitionedCache, alone_by_ways, simulate,
};
use nigh_terms::{ClosId, WayMask, Ways};
use proptest::prelude::*;

const SMALL: MachineConfig = MachineConfig {
    geometry: match LlcGeometry::new(2, 64, Ways(8)) {
        Ok(geometry) => geometry,
        Err(_) => panic!("a constant of a valid shape"),
    },
    cores: 3,
    memory: MemoryTiming { line_millicycles: 30_000 },
    ..MachineConfig::XEON_SILVER_4210R
};

/// `count` requests, half of them to `hot` lines and the others to twice as many, `gap` instructions apart on average.
fn stream(seed: u64, count: usize, hot: u32, gap: u32) -> Vec<LlcAccess> {
    let mut random = SplitMix64::new(seed);
    let mut access = || {
        let lines = if random.below(2) == 0 { hot } else { 3 * hot };
        let line = u64::from(random.below(lines));
        LlcAccess { line, instructions: random.below(2 * gap) + 1, kind: AccessKind::Load }
    };
    (0..count).map(|_| access()).collect()
}

fn trace(accesses: &[LlcAccess]) -> ReplayTrace {
    ReplayTrace::new(accesses.iter().copied(), 500, SampleRate::ALL).unwrap()
}

fn once(trace: &ReplayTrace, arrival: u64) -> Job<'_> {
    Job { trace, arrival: SimTime::from_cycles(arrival), passes: Passes::ONCE }
}

fn default_class(_: JobId, _: SimTime, _: &mut Classes<'_>) -> Result<ClosId, MaskError> {
    Ok(ClosId::DEFAULT)
}

/// The class of each job by its number, with the masks given at its start.
fn in_masks(masks: Vec<WayMask>) -> impl Binder {
    move |job: JobId, _: SimTime, classes: &mut Classes<'_>| {
        let class = ClosId(job.0 as u8);
        classes.set_mask(class, masks[job.0 as usize])?;
        Ok(class)
    }
}

/// One core of the plain model.
struct PlainCore {
    job: usize,
    next: usize,
    due: u64,
    started: u64,
    space: AddressSpace,
    pages: Vec<u64>,
}

/// Every event one by one: the earliest core, the lowest on a tie, a core before an arrival. Gives start, end, hits of
/// each job that runs once, in the class of its own number.
fn plain_machine(config: &MachineConfig, jobs: &[(u64, Vec<LlcAccess>)], masks: &[WayMask]) -> Vec<(u64, u64, u64)> {
    let mut cache = WayPartitionedCache::new(config.geometry, config.policy);
    let mut frames = FrameAllocator::new(config.seed);
    let mut cores: Vec<Option<PlainCore>> = (0..config.cores).map(|_| None).collect();
    let mut queue: Vec<usize> = (0..jobs.len()).collect();
    queue.sort_by_key(|&job| jobs[job].0);
    let mut done = vec![(0, 0, 0); jobs.len()];
    let (mut now, mut memory_free) = (0, 0);
    let cpi = u64::from(config.timing.base_cpi_milli);
    loop {
        let earliest = (0..cores.len()).filter_map(|core| cores[core].as_ref().map(|held| (held.due, core))).min();
        let free = cores.iter().position(Option::is_none);
        if let (Some(free), Some(&job)) = (free, queue.first()) {
            let start = now.max(jobs[job].0 * 1000);
            if earliest.is_none_or(|(due, _)| start < due) {
                queue.remove(0);
                now = start;
                let pages = ReplayTrace::new(jobs[job].1.iter().copied(), 0, SampleRate::ALL).unwrap();
                let space = frames.allocate(pages.pages()).unwrap();
                cache.set_mask(ClosId(job as u8), masks[job]).unwrap();
                let due = now + jobs[job].1.first().map_or(500, |access| u64::from(access.instructions)) * cpi;
                let pages = pages.virtual_pages().to_vec();
                cores[free] = Some(PlainCore { job, next: 0, due, started: now, space, pages });
                continue;
            }
        }
        let Some((due, index)) = earliest else { return done };
        now = due;
        let core = cores[index].as_mut().unwrap();
        let accesses = &jobs[core.job].1;
        if core.next == accesses.len() {
            (done[core.job].0, done[core.job].1) = (core.started, now);
            cores[index] = None;
            continue;
        }
        let line = accesses[core.next].line;
        let page = core.pages.iter().position(|&page| page == line / 64).unwrap() as u32;
        let physical = core.space.physical(PagedLine::new(page, (line % 64) as u32));
        let mut stall = u64::from(config.timing.hit_cycles) * 1000;
        if cache.access(ClosId(core.job as u8), physical).is_hit() {
            done[core.job].2 += 1;
        } else {
            let turn = now.max(memory_free);
            memory_free = turn + u64::from(config.memory.line_millicycles);
            stall += u64::from(config.timing.miss_cycles) * 1000 + turn - now;
        }
        core.next += 1;
        let gap = accesses.get(core.next).map_or(500, |access| u64::from(access.instructions));
        core.due = now + stall + gap * cpi;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn jobs_start_hit_and_end_as_in_the_plain_model(
        shapes in prop::collection::vec((0u64..60_000, 0usize..300, 1u32..1500, 1u32..300, 1u32..256), 1..9),
        cores in 1u16..5,
        seed: u64,
    ) {
        let config = MachineConfig { cores, seed, ..SMALL };
        let plain: Vec<_> =
            shapes.iter().zip(0..).map(|(shape, seed)| (shape.0, stream(seed, shape.1, shape.2, shape.3))).collect();
        let masks: Vec<_> = shapes.iter().map(|shape| WayMask::from_bits(shape.4)).collect();
        let traces: Vec<_> = plain.iter().map(|(_, accesses)| trace(accesses)).collect();
        let jobs: Vec<_> = traces.iter().zip(&shapes).map(|(trace, shape)| once(trace, shape.0)).collect();
        let report = simulate(&config, &jobs, &mut in_masks(masks.clone())).unwrap();
        let seen: Vec<_> = report
            .jobs
            .iter()
            .map(|job| (job.started.millicycles(), job.ended.millicycles(), job.requests.hits))
            .collect();
        prop_assert_eq!(seen, plain_machine(&config, &plain, &masks));
        for (job, trace) in report.jobs.iter().zip(&traces) {
            prop_assert_eq!((job.instructions, job.requests.accesses()), (trace.instructions(), trace.requests()));
        }
    }
}

#[test]
fn a_job_alone_takes_the_time_of_the_sweep_at_its_number_of_ways() {
    let accesses: Vec<_> = stream(1, 4000, 900, 50).into_iter().chain((0..3000).map(|step| load(step / 2))).collect();
    let trace = trace(&accesses);
    for policy in [ReplacementPolicy::Lru, ReplacementPolicy::TreePlru, ReplacementPolicy::Srrip] {
        for timing in [CoreTiming::CASCADE_LAKE, CoreTiming::CASCADE_LAKE_PREFETCHING] {
            let config = MachineConfig { policy, timing, seed: 5, ..SMALL };
            let sweep = alone_by_ways(&config, &trace, Warmth::Cold).unwrap();
            assert_eq!(sweep.len(), 8);
            for run in sweep {
                let mask = WayMask::contiguous(0, run.ways);
                let report = simulate(&config, &[once(&trace, 77)], &mut in_masks(vec![mask])).unwrap();
                assert_eq!(
                    (report.jobs[0].time(), report.jobs[0].requests.misses),
                    (run.time, run.misses),
                    "{policy:?}"
                );
            }
        }
    }
}

fn load(line: u64) -> LlcAccess {
    LlcAccess { line, instructions: 20, kind: AccessKind::Load }
}

#[test]
fn a_warm_run_misses_what_the_second_of_two_runs_misses() {
    let trace = trace(&stream(2, 4000, 300, 50));
    let config = MachineConfig { seed: 8, ..SMALL };
    let (cold, warm) =
        [Warmth::Cold, Warmth::Warm].map(|warmth| alone_by_ways(&config, &trace, warmth).unwrap()).into();
    let twice = Job { passes: Passes::Times(NonZeroU32::new(2).unwrap()), ..once(&trace, 0) };
    for (cold, warm) in cold.iter().zip(&warm) {
        let mask = WayMask::contiguous(8 - cold.ways.0, cold.ways);
        let report = simulate(&config, &[twice], &mut in_masks(vec![mask])).unwrap();
        assert_eq!(report.jobs[0].requests.misses, cold.misses + warm.misses);
        assert_eq!(report.jobs[0].passes, 2);
    }
    assert!(warm[7].misses < cold[7].misses);
}

#[test]
fn equal_seeds_give_equal_reports_and_another_seed_other_conflicts() {
    let traces: Vec<_> = (0..5).map(|seed| trace(&stream(seed, 2000, 400, 40))).collect();
    let jobs: Vec<_> = traces.iter().zip(0..).map(|(trace, index)| once(trace, index * 1000)).collect();
    let run = |seed| simulate(&MachineConfig { seed, ..SMALL }, &jobs, &mut default_class).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_job_in_ways_of_its_own_is_not_slowed_by_a_thrashing_neighbour() {
    let (sensitive, thrashing) = (trace(&stream(1, 6000, 120, 100)), trace(&stream(2, 60_000, 20_000, 10)));
    // Plenty of memory: only the cache is shared.
    let config = MachineConfig { memory: MemoryTiming { line_millicycles: 1 }, ..SMALL };
    let jobs = [once(&sensitive, 0), Job { passes: Passes::WhileOthersRun, ..once(&thrashing, 0) }];
    let run = |masks: [u32; 2]| {
        let masks = masks.map(WayMask::from_bits).to_vec();
        simulate(&config, &jobs, &mut in_masks(masks)).unwrap()
    };
    let (apart, shared) = (run([0x7f, 0x80]), run([0xff, 0xff]));
    let alone = alone_by_ways(&config, &sensitive, Warmth::Cold).unwrap();
    assert_eq!(apart.jobs[0].requests.misses, alone[6].misses);
    assert!(2 * shared.jobs[0].requests.misses > 3 * apart.jobs[0].requests.misses, "{shared:?} {apart:?}");
    assert!(shared.jobs[0].time() > apart.jobs[0].time());
    // The neighbour stops with the other: it is cut short where its only timed companion ends.
    assert_eq!(apart.jobs[1].ended, apart.jobs[0].ended);
    assert!(apart.jobs[1].requests.accesses() > 0);
}

/// Gives the first job the whole cache until the second starts, and again when the second has ended.
struct Yielding;

impl Binder for Yielding {
    fn start(&mut self, job: JobId, _: SimTime, classes: &mut Classes<'_>) -> Result<ClosId, MaskError> {
        if job == JobId(0) {
            return Ok(ClosId(1));
        }
        classes.set_mask(ClosId(2), WayMask::from_bits(0x01))?;
        classes.set_mask(ClosId(3), WayMask::from_bits(0xfe))?;
        assert_eq!(classes.class_of(JobId(0)), Some(ClosId(1)));
        assert!(classes.rebind(JobId(0), ClosId(2))?);
        assert!(!classes.rebind(JobId(2), ClosId(2))?, "job 2 does not run yet");
        Ok(ClosId(3))
    }

    fn end(&mut self, job: JobId, _: SimTime, classes: &mut Classes<'_>) -> Result<(), MaskError> {
        if job == JobId(1) {
            classes.rebind(JobId(0), ClosId(1))?;
        }
        Ok(())
    }
}

#[test]
fn a_running_job_can_be_moved_to_another_class_when_others_start_and_end() {
    let (long, short) = (trace(&stream(1, 20_000, 150, 100)), trace(&stream(2, 3000, 150, 100)));
    let late = SimTime::from_cycles(u64::from(u32::MAX));
    let jobs = [once(&long, 0), once(&short, 100_000), Job { arrival: late, ..once(&short, 0) }];
    let run = |binder: &mut dyn Binder| simulate(&SMALL, &jobs[..2], binder).unwrap().jobs[0].requests.misses;
    let (undisturbed, yielding) = (run(&mut in_masks(vec![WayMask::from_bits(0xff); 2])), run(&mut Yielding));
    let squeezed = run(&mut in_masks(vec![WayMask::from_bits(0x01), WayMask::from_bits(0xfe)]));
    assert!(undisturbed < yielding && yielding < squeezed, "{undisturbed} {yielding} {squeezed}");
}

#[test]
fn jobs_beyond_the_cores_wait_in_order_of_arrival() {
    let trace = trace(&stream(1, 500, 100, 100));
    let jobs = [once(&trace, 30), once(&trace, 10), once(&trace, 20)];
    let config = MachineConfig { cores: 1, ..SMALL };
    let MachineReport { jobs, ended, .. } = simulate(&config, &jobs, &mut default_class).unwrap();
    assert_eq!(jobs[1].started, SimTime::from_cycles(10));
    assert_eq!((jobs[2].started, jobs[0].started, jobs[0].ended), (jobs[1].ended, jobs[2].ended, ended));
}

#[test]
fn a_sampled_run_takes_nearly_the_time_of_the_whole_one() {
    let geometry = LlcGeometry::new(2, 512, Ways(8)).unwrap();
    let whole: Vec<_> = (0..3).map(|seed| trace(&stream(seed, 60_000, 2500, 60))).collect();
    let rate = SampleRate::new(8).unwrap();
    let sampled: Vec<_> = whole.iter().map(|trace| trace.sampled(rate, |line| line * 29 % 64 < 8).unwrap()).collect();
    let run = |traces: &[ReplayTrace], rate| {
        let jobs: Vec<_> = traces.iter().map(|trace| once(trace, 0)).collect();
        simulate(&MachineConfig { geometry, rate, ..SMALL }, &jobs, &mut default_class).unwrap()
    };
    let (exact, estimate) = (run(&whole, SampleRate::ALL), run(&sampled, rate));
    for (exact, estimate) in exact.jobs.iter().zip(&estimate.jobs) {
        assert_eq!(exact.instructions, estimate.instructions);
        let error = estimate.time().cycles() / exact.time().cycles() - 1.0;
        assert!(error.abs() < 0.02, "{error}: {exact:?} {estimate:?}");
        assert!(exact.memory_wait > SimTime::ZERO && estimate.memory_wait > SimTime::ZERO);
    }
}

#[test]
fn what_cannot_be_simulated_is_refused_before_it_runs() {
    let (whole, half) = (trace(&[load(1), load(2)]), SampleRate::new(2).unwrap());
    let recorded = ReplayTrace::new([load(1), load(2)], 0, half).unwrap();
    let empty = ReplayTrace::new([], 0, SampleRate::ALL).unwrap();
    let refused = |config: MachineConfig, job: Job<'_>| simulate(&config, &[job], &mut default_class).unwrap_err();
    let (job, id) = (once(&whole, 0), JobId(0));
    assert_eq!(refused(MachineConfig { cores: 0, ..SMALL }, job), MachineError::Cores { cores: 0 });
    let rate = MachineError::Rate { job: id, trace: half, machine: SampleRate::ALL };
    assert_eq!(refused(SMALL, once(&recorded, 0)), rate);
    let prefetching = MachineConfig { timing: CoreTiming::CASCADE_LAKE_PREFETCHING, rate: half, ..SMALL };
    assert_eq!(refused(prefetching, once(&recorded, 0)), MachineError::NeighboursUnknown { job: id });
    let geometry = LlcGeometry::new(1, 32, Ways(4)).unwrap();
    let few = MachineError::TooFewSetsToSample { sets: 32 };
    assert_eq!(refused(MachineConfig { geometry, rate: half, ..SMALL }, once(&recorded, 0)), few);
    assert_eq!(refused(SMALL, once(&empty, 0)), MachineError::EmptyTrace { job: id });
    assert_eq!(refused(SMALL, Job { passes: Passes::WhileOthersRun, ..job }), MachineError::Endless);
    let background = Job { passes: Passes::WhileOthersRun, ..job };
    let taken = simulate(&MachineConfig { cores: 1, ..SMALL }, &[background, job], &mut default_class);
    assert_eq!(taken, Err(MachineError::NoCoreLeft { jobs: 1, cores: 1 }));
    let arrival = SimTime::from_millicycles(u64::MAX);
    assert_eq!(refused(SMALL, Job { arrival, ..job }), MachineError::ArrivesTooLate { job: id, arrival });
    let timeless = CoreTiming { base_cpi_milli: 0, ..CoreTiming::CASCADE_LAKE };
    assert_eq!(refused(MachineConfig { timing: timeless, ..SMALL }, job), MachineError::NoTimePasses);
    let endless = ReplayTrace::new([load(1)], u64::MAX / 2, SampleRate::ALL).unwrap();
    assert_eq!(refused(SMALL, once(&endless, 0)), MachineError::OutOfTime);
    let mut wrong = |_: JobId, _: SimTime, _: &mut Classes<'_>| Ok(ClosId(99));
    let reason = MaskError::NoSuchClos { clos: ClosId(99) };
    assert_eq!(simulate(&SMALL, &[job], &mut wrong), Err(MachineError::Refused { job: id, reason }));
    assert_eq!(simulate(&SMALL, &[], &mut default_class).map(|report| report.jobs.len()), Ok(0));
}
