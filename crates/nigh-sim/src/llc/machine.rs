//! Many cores that share one last-level cache and one memory, each replaying a job's trace, in the order of their
//! times.
//!
//! The core with the earliest next request goes next (the lower number on a tie), so the order of requests at the cache
//! is the order of simulated time: equal inputs and seeds give equal reports. A job's start binds it to a class of
//! service through a [`Binder`] of the caller; nothing here decides about classes. Not modelled: the operating system,
//! coherence, and moves of jobs between cores.

use nigh_terms::ClosId;

use super::address_space::{AddressSpace, FrameAllocator, PhysicalLine};
use super::cache::{MaskError, WayPartitionedCache};
use super::core_timing::CoreTiming;
use super::job::{Binder, Classes, Job, JobId, JobReport, Passes, check_class};
use super::machine_config::{MachineConfig, MachineError, check_jobs};
use super::memory::MemoryQueue;
use super::sim_time::SimTime;

/// Nothing happens on this core until it gets a job.
const NEVER: u64 = u64::MAX;

/// What a simulation gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineReport {
    /// By job.
    pub jobs: Vec<JobReport>,
    /// When the last timed job ended.
    pub ended: SimTime,
    /// How long the memory was occupied.
    pub memory_busy: SimTime,
}

/// Runs `jobs` to their end.
pub fn simulate(
    config: &MachineConfig,
    jobs: &[Job<'_>],
    binder: &mut dyn Binder,
) -> Result<MachineReport, MachineError> {
    Machine::new(config, jobs, binder)?.run()
}

/// A job on its core.
struct RunningJob<'t> {
    id: JobId,
    job: Job<'t>,
    space: AddressSpace,
    clos: ClosId,
    /// The index of the next access in the trace; the length of the trace at the end of a pass.
    position: usize,
    /// The physical line of the access at `position`, computed in advance so that the host can prefetch its cache set.
    next_line: Option<PhysicalLine>,
    report: JobReport,
}

struct Machine<'t, 'b> {
    config: MachineConfig,
    jobs: &'t [Job<'t>],
    /// Jobs not yet started, the first to arrive last.
    waiting: Vec<JobId>,
    binder: &'b mut dyn Binder,
    cache: WayPartitionedCache,
    memory: MemoryQueue,
    frames: FrameAllocator,
    /// By core: when its next access, or the end of its pass, is due.
    due: Vec<u64>,
    cores: Vec<Option<RunningJob<'t>>>,
    bound: Vec<Option<ClosId>>,
    timed_jobs_left: usize,
    reports: Vec<Option<JobReport>>,
}

impl<'t, 'b> Machine<'t, 'b> {
    fn new(config: &MachineConfig, jobs: &'t [Job<'t>], binder: &'b mut dyn Binder) -> Result<Self, MachineError> {
        check_jobs(config, jobs)?;
        let mut waiting: Vec<JobId> = (0..jobs.len() as u32).map(JobId).collect();
        waiting.sort_by_key(|id| std::cmp::Reverse((jobs[id.0 as usize].arrival, *id)));
        let cores = usize::from(config.cores);
        Ok(Self {
            config: *config,
            jobs,
            waiting,
            binder,
            cache: WayPartitionedCache::new(config.geometry, config.policy),
            memory: MemoryQueue::new(config.memory, u64::from(config.rate.one_in())),
            frames: FrameAllocator::new(config.seed),
            due: vec![NEVER; cores],
            cores: (0..cores).map(|_| None).collect(),
            bound: vec![None; jobs.len()],
            timed_jobs_left: jobs.iter().filter(|job| matches!(job.passes, Passes::Times(_))).count(),
            reports: vec![None; jobs.len()],
        })
    }

    fn run(mut self) -> Result<MachineReport, MachineError> {
        let mut now = SimTime::ZERO;
        while self.timed_jobs_left > 0 {
            let (core, due) = self.earliest(None);
            let free = self.cores.iter().position(Option::is_none);
            let arrival = self.waiting.last().map(|id| self.jobs[id.0 as usize].arrival.millicycles());
            if let (Some(free), Some(arrival)) = (free, arrival)
                && arrival.max(now.millicycles()) < due
            {
                now = SimTime::from_millicycles(arrival.max(now.millicycles()));
                self.start_next(free, now)?;
                continue;
            }
            if due == NEVER {
                return Err(MachineError::OutOfTime);
            }
            // Up to whatever comes next elsewhere, this core runs on undisturbed.
            let (other, other_due) = self.earliest(Some(core));
            let until = (other_due, other).min((if free.is_some() { arrival.unwrap_or(NEVER) } else { NEVER }, 0));
            now = SimTime::from_millicycles(self.advance(core, until)?);
        }
        self.finish(now)
    }

    /// The core that is due first, leaving one out.
    fn earliest(&self, without: Option<usize>) -> (usize, u64) {
        let mut earliest = (0, NEVER);
        for (core, &due) in self.due.iter().enumerate() {
            if due < earliest.1 && Some(core) != without {
                earliest = (core, due);
            }
        }
        earliest
    }

    /// Gives the job that arrived first a free core.
    fn start_next(&mut self, core: usize, now: SimTime) -> Result<(), MachineError> {
        let Some(id) = self.waiting.pop() else { return Ok(()) };
        let job = self.jobs[id.0 as usize];
        let space = self.frames.allocate(job.trace.pages())?;
        let clos = self.tell(id, |binder, classes| {
            let clos = binder.start(id, now, classes)?;
            check_class(clos).map(|()| clos)
        })?;
        self.bound[id.0 as usize] = Some(clos);
        let report = JobReport::started(core as u16, now);
        let mut running = RunningJob { id, job, space, clos, position: 0, next_line: None, report };
        self.due[core] = now.millicycles().saturating_add(running.look_ahead(&self.config.timing, &self.cache));
        self.cores[core] = Some(running);
        Ok(())
    }

    /// Calls the binder and applies its changes.
    fn tell<R>(
        &mut self,
        job: JobId,
        act: impl FnOnce(&mut dyn Binder, &mut Classes<'_>) -> Result<R, MaskError>,
    ) -> Result<R, MachineError> {
        let mut classes = Classes { cache: &mut self.cache, bound: &mut self.bound, changed: false };
        let result = act(self.binder, &mut classes).map_err(|reason| MachineError::Refused { job, reason })?;
        if classes.changed {
            for running in self.cores.iter_mut().flatten() {
                running.clos = self.bound[running.id.0 as usize].unwrap_or(running.clos);
            }
        }
        Ok(result)
    }

    /// Runs one core until its next event lies at or after `until` (time, core), or its pass ends. Gives the time
    /// reached.
    fn advance(&mut self, core: usize, until: (u64, usize)) -> Result<u64, MachineError> {
        let Some(running) = &mut self.cores[core] else { return Ok(self.due[core]) };
        let weight = u64::from(self.config.rate.one_in());
        let accesses = running.job.trace.accesses();
        let mut now = self.due[core];
        while let Some(access) = accesses.get(running.position) {
            let mut stall = 0;
            if let Some(line) = running.next_line {
                if self.cache.access(running.clos, line).is_hit() {
                    running.report.requests.hits += weight;
                    stall = self.config.timing.hit().millicycles() * weight;
                } else {
                    running.report.requests.misses += weight;
                    let wait = self.memory.request(SimTime::from_millicycles(now)).millicycles();
                    let waited = running.report.memory_wait.millicycles() + wait;
                    running.report.memory_wait = SimTime::from_millicycles(waited);
                    stall = self.config.timing.miss(access.is_neighbour()).millicycles() * weight + wait;
                }
            }
            running.report.instructions += access.instructions();
            running.position += 1;
            let ahead = running.look_ahead(&self.config.timing, &self.cache);
            let due = now.saturating_add(stall).saturating_add(ahead);
            self.due[core] = due;
            if (due, core) >= until {
                return Ok(now);
            }
            now = due;
        }
        self.end_pass(core, SimTime::from_millicycles(now))?;
        Ok(now)
    }

    /// A pass is over: the next one, or the end of the job.
    fn end_pass(&mut self, core: usize, now: SimTime) -> Result<(), MachineError> {
        let Some(running) = &mut self.cores[core] else { return Ok(()) };
        running.report.instructions += running.job.trace.tail_instructions();
        running.report.passes = running.report.passes.saturating_add(1);
        let ended = matches!(running.job.passes, Passes::Times(times) if running.report.passes == times.get());
        if !ended {
            running.position = 0;
            self.due[core] = now.millicycles().saturating_add(running.look_ahead(&self.config.timing, &self.cache));
            return Ok(());
        }
        let id = running.id;
        self.reports[id.0 as usize] = Some(JobReport { ended: now, ..running.report });
        self.cores[core] = None;
        self.due[core] = NEVER;
        self.bound[id.0 as usize] = None;
        self.timed_jobs_left -= 1;
        self.tell(id, |binder, classes| binder.end(id, now, classes))
    }

    /// All timed jobs have ended: the others are cut off, and jobs that never got a core report no work.
    fn finish(mut self, now: SimTime) -> Result<MachineReport, MachineError> {
        for running in self.cores.iter().flatten() {
            self.reports[running.id.0 as usize] = Some(JobReport { ended: now, ..running.report });
        }
        let never_started = JobReport::started(0, now);
        let jobs = self.reports.iter().map(|report| report.unwrap_or(never_started)).collect();
        Ok(MachineReport { jobs, ended: now, memory_busy: self.memory.busy() })
    }
}

impl RunningJob<'_> {
    /// The time until the next access or the end of the pass, in thousandths of a cycle; its set is asked for
    /// meanwhile.
    #[inline]
    fn look_ahead(&mut self, timing: &CoreTiming, cache: &WayPartitionedCache) -> u64 {
        let Some(access) = self.job.trace.accesses().get(self.position) else {
            self.next_line = None;
            return timing.computing(self.job.trace.tail_instructions()).millicycles();
        };
        self.next_line = if access.is_pause() { None } else { Some(self.space.physical(access.line())) };
        if let Some(line) = self.next_line {
            cache.prefetch(line);
        }
        timing.computing(access.instructions()).millicycles()
    }
}
