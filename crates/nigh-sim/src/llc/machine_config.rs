//! The configuration of a simulated machine, and the reasons to refuse a list of jobs.

use thiserror::Error;

use super::address_space::{OutOfFrames, PAGE_LINES};
use super::cache::MaskError;
use super::core_timing::CoreTiming;
use super::geometry::LlcGeometry;
use super::job::{Job, JobId, Passes};
use super::memory::MemoryTiming;
use super::replacement::ReplacementPolicy;
use super::replay_trace::ReplayTrace;
use super::sample_rate::SampleRate;
use super::sim_time::SimTime;

/// The most cores of a machine.
pub const CORES_MAX: u16 = 256;
/// The most jobs of one simulation.
pub const JOBS_MAX: usize = 1 << 20;

/// The latest arrival: half the range of simulated time.
pub const ARRIVAL_MAX: SimTime = SimTime::from_millicycles(u64::MAX / 2);

/// A machine, and the seed of everything random about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MachineConfig {
    /// The last-level cache; sampled traces use some of its sets.
    pub geometry: LlcGeometry,
    /// How it chooses a victim.
    pub policy: ReplacementPolicy,
    /// Cores, from 1 to [`CORES_MAX`].
    pub cores: u16,
    /// The costs on each core.
    pub timing: CoreTiming,
    /// The memory they share.
    pub memory: MemoryTiming,
    /// The sample of lines in all traces; all must be of the same sets.
    pub rate: SampleRate,
    /// Decides where the jobs' pages lie.
    pub seed: u64,
}

impl MachineConfig {
    /// One socket of the CASY paper: Xeon Silver 4210R, ten cores, whole traces.
    pub const XEON_SILVER_4210R: Self = Self {
        geometry: LlcGeometry::XEON_SILVER_4210R,
        policy: ReplacementPolicy::Lru,
        cores: 10,
        timing: CoreTiming::CASCADE_LAKE,
        memory: MemoryTiming::SIX_CHANNELS,
        rate: SampleRate::ALL,
        seed: 0,
    };
}

/// Why a simulation cannot run.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MachineError {
    /// No core, or too many.
    #[error("a machine cannot have {cores} cores: give 1 to {CORES_MAX}")]
    Cores {
        /// What was asked for.
        cores: u16,
    },
    /// Too many jobs.
    #[error("{jobs} jobs are too many: at most {JOBS_MAX} run in one simulation")]
    TooManyJobs {
        /// What was asked for.
        jobs: usize,
    },
    /// A trace sampled at another rate than the machine.
    #[error(
        "job {job}: its trace holds 1 line in {trace}, the machine is set for 1 in {machine}; \
         sample all traces alike (ReplayTrace::sampled) and set the machine's rate"
    )]
    Rate {
        /// Whose trace.
        job: JobId,
        /// What it holds.
        trace: SampleRate,
        /// What was expected.
        machine: SampleRate,
    },
    /// Neighbour misses are to be told apart, and the trace cannot.
    #[error(
        "job {job}: its trace was sampled when recorded and cannot tell neighbour lines; \
         leave neighbour_miss_cycles out or record it whole"
    )]
    NeighboursUnknown {
        /// Whose trace.
        job: JobId,
    },
    /// Every job waits for another to end.
    #[error("every job is to run while others do, so none would end; give one of them a number of passes")]
    Endless,
    /// Jobs that never end by themselves would hold every core.
    #[error("{jobs} jobs are to run while others do, on {cores} cores: leave at least one core to the others")]
    NoCoreLeft {
        /// Jobs that run while others do.
        jobs: usize,
        /// Cores.
        cores: u16,
    },
    /// A trace without any instruction would never let time pass.
    #[error("job {job}: its trace holds no instruction")]
    EmptyTrace {
        /// Whose trace.
        job: JobId,
    },
    /// Instructions that take no time would never let time pass.
    #[error("base_cpi_milli is 0: no time would pass; give the thousandths of a cycle that an instruction takes")]
    NoTimePasses,
    /// An arrival that leaves no time for the job.
    #[error("job {job} arrives at {arrival}, later than {ARRIVAL_MAX}")]
    ArrivesTooLate {
        /// Who.
        job: JobId,
        /// When.
        arrival: SimTime,
    },
    /// Simulated time has an end.
    #[error("the jobs still left would run past the end of simulated time; shorten their traces or passes")]
    OutOfTime,
    /// A line's place in its page does not tell which sets a sample keeps.
    #[error(
        "a slice of {sets} sets cannot be sampled by a line's place in its page; it needs {PAGE_LINES} sets or whole traces"
    )]
    TooFewSetsToSample {
        /// Sets of a slice.
        sets: u32,
    },
    /// The jobs touch more memory than there is.
    #[error(transparent)]
    Frames(#[from] OutOfFrames),
    /// The binder asked for an invalid mask or class.
    #[error("the policy of job {job} asked for a mask or class that the cache rejects: {reason}")]
    Refused {
        /// Whose start or end it was.
        job: JobId,
        /// The cache's reason.
        reason: MaskError,
    },
}

/// Refuses what cannot be simulated before anything runs.
pub(super) fn check_jobs(config: &MachineConfig, jobs: &[Job<'_>]) -> Result<(), MachineError> {
    if config.cores == 0 || config.cores > CORES_MAX {
        return Err(MachineError::Cores { cores: config.cores });
    }
    if config.timing.base_cpi_milli == 0 {
        return Err(MachineError::NoTimePasses);
    }
    if jobs.len() > JOBS_MAX {
        return Err(MachineError::TooManyJobs { jobs: jobs.len() });
    }
    for (id, job) in (0..).map(JobId).zip(jobs) {
        check_trace(config, id, job.trace)?;
        if job.arrival > ARRIVAL_MAX {
            return Err(MachineError::ArrivesTooLate { job: id, arrival: job.arrival });
        }
    }
    let endless = jobs.iter().filter(|job| job.passes == Passes::WhileOthersRun).count();
    if endless > 0 && endless == jobs.len() {
        return Err(MachineError::Endless);
    }
    if endless >= usize::from(config.cores) {
        return Err(MachineError::NoCoreLeft { jobs: endless, cores: config.cores });
    }
    Ok(())
}

/// Refuses a trace that does not fit the machine.
pub(super) fn check_trace(config: &MachineConfig, job: JobId, trace: &ReplayTrace) -> Result<(), MachineError> {
    if trace.rate() != config.rate {
        return Err(MachineError::Rate { job, trace: trace.rate(), machine: config.rate });
    }
    let sets = config.geometry.sets_per_slice();
    if config.rate != SampleRate::ALL && sets < PAGE_LINES {
        return Err(MachineError::TooFewSetsToSample { sets });
    }
    if config.timing.needs_neighbours() && !trace.knows_neighbours() {
        return Err(MachineError::NeighboursUnknown { job });
    }
    if trace.instructions() == 0 {
        return Err(MachineError::EmptyTrace { job });
    }
    Ok(())
}
