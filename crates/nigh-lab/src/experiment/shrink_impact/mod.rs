//! `nigh experiment shrink-impact`: OFC's figure 8. The cost for a function whose sandbox grows when the cache must shrink.
//!
//! `wand_sepia`, warm, has 64 MB and needs 84 to 152 MB for the inputs it gets. Before each run its limit is raised: with
//! the memory free already (the base, without cost), with unused memory of the cache, and with evicted copies; and once with a
//! headroom before the run and the rest during it, as a node does it. The cache is the node's own code (`ObjectMemory`) in this
//! process, filled; the function is the real one in a cgroup, and reads its input from a node. Nothing migrates: the store has
//! all objects whose copies Nigh evicts.

mod memory_group;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use http::Method;
use nigh_terms::ByteSize;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use serde::Serialize;
use serde_json::{Value, json};

use self::memory_group::{MemoryGroup, python_inside};
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::made_up::FilledMemory;
use crate::instrument::node_under_test::{NodeUnderTest, python, settings};
use crate::instrument::peer::bare_runtime::BareRuntime;
use crate::instrument::progress;
use crate::instrument::report::name_of;
use crate::instrument::report_text::tell;
use crate::instrument::s3_door::S3Door;
use crate::instrument::sample_function::{MEASURED_HANDLER, SampleFunction, read_input};
use crate::instrument::stats::Sample;
use crate::load::run::InvocationTimes;

const FUNCTION: &str = "wand_sepia";
const BUCKET: &str = "shrink-impact";
/// Of one picture, small to large: they need as much memory as the paper's.
const SIZES: [&str; 6] = ["1k", "16k", "128k", "256k", "512k", "1024k"];
/// The limit of the warm sandbox before (OpenWhisk's least, in the paper).
const FROM: ByteSize = ByteSize::mib(64);
/// The least limit that it is raised to, as in the paper.
const TO_LEAST: ByteSize = ByteSize::mib(84);
/// It gets so much before the run, where the rest comes during the run.
const HEADROOM: ByteSize = ByteSize::mib(16);
/// Needs are rounded up to a multiple of this.
const STEP: u64 = 4 << 20;
/// The cache, and its objects.
const CACHE: ByteSize = ByteSize::mib(256);
const OBJECT: u64 = 1 << 20;
const OBJECTS: u64 = CACHE.bytes() / OBJECT;
/// Times that the function runs before its runs count.
const WARM_UPS: usize = 3;
const SEED: u64 = 8;
/// The target: growth may take so much of the function's time.
const OVERHEAD_MAX: f64 = 0.02;
/// The most that it took in OFC's paper.
const OFC_OVERHEAD: f64 = 0.504;

#[derive(Clone, Debug, Args)]
pub(super) struct ShrinkImpactArgs {
    /// How many rounds each size has; each round runs every scenario once
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Run only two sizes and three rounds
    #[arg(long)]
    quick: bool,
}

/// Where the memory comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Scenario {
    /// The memory is free already. The paper's baseline.
    Base,
    /// The cache gives up unused memory. The paper's first.
    Unused,
    /// The cache evicts as much as is needed. The paper's third; its second, migration, does not exist here.
    Evicted,
    /// The same during the run; before it, the function gets a headroom of the node's slack. This is what a node does.
    EvictedBeside,
}

impl Scenario {
    const ALL: [Self; 4] = [Self::Base, Self::Unused, Self::Evicted, Self::EvictedBeside];
}

#[derive(Clone, Copy, Debug, Default)]
struct GrowthRun {
    /// The function's wait before it began.
    before_us: f64,
    /// The shrink of the cache.
    scaling_us: f64,
    /// The write of the limit.
    limit_us: f64,
    /// The handler.
    run_ms: f64,
}

#[derive(Debug, Serialize)]
struct ShrinkImpactReport {
    machine: Machine,
    conditions: [&'static str; 4],
    rounds: u16,
    /// The most of any size, as a node does it: `evicted_beside`.
    overhead: f64,
    /// The most of any size, with all of it before the run: `evicted`.
    overhead_before: f64,
    overhead_asked: f64,
    met: bool,
    /// OFC's paper, for the smallest input.
    ofc_overhead: f64,
    /// Runs that did not answer.
    failed: usize,
    /// By input and scenario.
    rows: Vec<Value>,
}

const CONDITIONS: [&str; 4] = [
    "the handler's time is measured in its own process; growing ends before it begins, but for `evicted beside`, where it gets \
     16 MB before and the rest while it runs",
    "the function is a process in a cgroup of its own, under the vendor's runtime client; its input is in a node's memory",
    "the cache that gives way is the node's code in this process: 256 MiB, of objects of 1 MiB, none of them held",
    "a limit that the kernel does not lower to 64 MB counts as it is: `from_mb`",
];

impl ShrinkImpactArgs {
    pub(super) async fn run(self, machine: Machine, json: bool) -> Result<(), LabError> {
        let rounds = if self.quick { 3 } else { self.rounds };
        let sizes = if self.quick { &SIZES[1..3] } else { &SIZES[..] };
        let project = std::env::current_dir().at(".")?;
        let mut stage = Stage::set(&project, sizes).await?;
        let progress = progress::bar((sizes.len() * usize::from(rounds)) as u64);
        let mut random = StdRng::seed_from_u64(SEED);
        let (mut rows, mut failed) = (Vec::new(), 0);
        for &size in sizes {
            progress.set_message(size);
            let need = stage.need(size).await?;
            let mut from = ByteSize::ZERO;
            let mut runs: Vec<(Scenario, GrowthRun)> = Vec::new();
            for _ in 0..rounds {
                let mut order = Scenario::ALL;
                order.shuffle(&mut random);
                for scenario in order {
                    let least = stage.back_to_least()?;
                    from = from.max(least);
                    stage.fill().await?;
                    match stage.grow_and_run(scenario, size, least, need) {
                        Ok(grown) => runs.push((scenario, grown)),
                        Err(error) => {
                            progress.println(error.to_string());
                            failed += 1;
                            stage.start_function()?;
                            stage.need(size).await?;
                        }
                    }
                }
                progress.inc(1);
            }
            rows.extend(rows_of(size, from, need, &runs));
        }
        progress.finish_and_clear();
        let most = |scenario: Scenario| {
            let of_scenario = rows.iter().filter(|row| row["scenario"] == name_of(&scenario).as_str());
            of_scenario.filter_map(|row| row["overhead"].as_f64()).fold(0.0, f64::max)
        };
        let overhead = most(Scenario::EvictedBeside);
        let report = ShrinkImpactReport {
            machine,
            conditions: CONDITIONS,
            rounds,
            overhead,
            overhead_before: most(Scenario::Evicted),
            overhead_asked: OVERHEAD_MAX,
            met: overhead <= OVERHEAD_MAX && failed == 0,
            ofc_overhead: OFC_OVERHEAD,
            failed,
            rows,
        };
        tell(&report, json)
    }
}

/// The rows of one size: medians by scenario.
fn rows_of(input: &'static str, from: ByteSize, to: ByteSize, runs: &[(Scenario, GrowthRun)]) -> Vec<Value> {
    let of = |scenario: Scenario| -> Vec<GrowthRun> {
        runs.iter().filter(|(which, _)| *which == scenario).map(|(_, run)| *run).collect()
    };
    let base = of(Scenario::Base);
    let base_ms = Sample::of(&base, |run| run.run_ms).median();
    let row = |scenario: Scenario| {
        let runs = of(scenario);
        let scaling = Sample::of(&runs, |run| run.scaling_us);
        // Each round has one run of each, so that they stand in the same order.
        let whole = |run: &GrowthRun| run.before_us / 1e3 + run.run_ms;
        let ratios = runs.iter().zip(&base).map(|(run, base)| whole(run) / base.run_ms - 1.0);
        let slower = Sample::new(ratios.collect()).median_estimate(SEED);
        json!({
            "input": input,
            "scenario": scenario,
            "runs": runs.len(),
            // What the sandbox had, and was raised to.
            "from_mb": from.mib_ceil(),
            "to_mb": to.mib_ceil(),
            "scaling_us": scaling.median(),
            "scaling_p95_us": scaling.percentile(0.95),
            "limit_us": Sample::of(&runs, |run| run.limit_us).median(),
            "run_ms": Sample::of(&runs, |run| run.run_ms).median(),
            // The function's wait before it began, of the base's time.
            "overhead": Sample::of(&runs, |run| run.before_us).median() / 1e3 / base_ms,
            // The wait and the handler over the base, less one, with its 95 % interval. The machine's noise is in it.
            "slower": slower.value,
            "slower_low": slower.low,
            "slower_high": slower.high,
        })
    };
    Scenario::ALL.into_iter().map(row).collect()
}

/// The function, its memory, and the cache.
struct Stage {
    runtime: BareRuntime,
    group: MemoryGroup,
    function: SampleFunction,
    /// A cache filled wholly, and one filled to a half.
    full: FilledMemory,
    half: FilledMemory,
    node: NodeUnderTest,
    /// The program that is Python in the group.
    program: PathBuf,
    code: PathBuf,
    _work: tempfile::TempDir,
}

impl Stage {
    async fn set(project: &Path, sizes: &[&str]) -> Result<Self, LabError> {
        let python = python()?;
        let function = SampleFunction::find(&SampleFunction::read_all(&project.join("functions"))?, FUNCTION)?.clone();
        let work = tempfile::tempdir().at(std::env::temp_dir())?;
        let group = MemoryGroup::make(&format!("nigh-shrink-impact-{}", std::process::id()))?;
        let node = NodeUnderTest::start(work.path(), &settings(None, &python))?;
        let door = S3Door { signer: node.signer("s3"), address: node.s3()? };
        door.send(Method::PUT, &format!("/{BUCKET}"), b"").await?;
        for size in sizes {
            let body = read_input(&project.join(".deps/inputs/images"), &format!("hubble-{size}.jpg"))?;
            door.send(Method::PUT, &format!("/{BUCKET}/{size}"), &body).await?;
        }
        let (program, code) = (work.path().join("python"), work.path().join("code"));
        function.measured(&code, None)?;
        python_inside(&group, &python, &program)?;
        // Incoming bodies may take only a part of the budget: the caches are filled first, and their budget is lowered then.
        let room = ByteSize(4 * CACHE.bytes());
        let (full, half) = (FilledMemory::begin(OBJECT, room).await?, FilledMemory::begin(OBJECT, room).await?);
        let runtime = start(&program, &code, &node)?;
        Ok(Self { runtime, group, function, full, half, node, program, code, _work: work })
    }

    /// Starts the function again, with all the memory it may need.
    fn start_function(&mut self) -> Result<(), LabError> {
        self.group.set_limit(CACHE)?;
        self.runtime = start(&self.program, &self.code, &self.node)?;
        Ok(())
    }

    /// Runs the function on this size with enough memory. Returns its need, rounded up.
    async fn need(&mut self, size: &str) -> Result<ByteSize, LabError> {
        self.group.set_limit(CACHE)?;
        let mut most = ByteSize::ZERO;
        for _ in 0..WARM_UPS {
            self.group.reset_peak()?;
            self.invoke(size)?;
            most = self.group.peak()?;
        }
        Ok(ByteSize(most.bytes().next_multiple_of(STEP)).max(TO_LEAST))
    }

    /// Lowers the function's limit to 64 MB, or to the least that the kernel takes. Returns the limit.
    fn back_to_least(&self) -> Result<ByteSize, LabError> {
        let used = self.group.used()?;
        let mut least = FROM;
        // Tries one more megabyte each time; it ends above the memory in use.
        while let Err(error) = self.group.set_limit(least) {
            if least > used {
                return Err(error);
            }
            least = ByteSize(least.bytes() + (1 << 20));
        }
        Ok(least)
    }

    /// Fills one cache wholly, and the other to a half.
    async fn fill(&self) -> Result<(), LabError> {
        for (filled, objects) in [(&self.full, OBJECTS), (&self.half, OBJECTS / 2)] {
            filled.memory.set_cache_budget(ByteSize(4 * CACHE.bytes()));
            filled.read(0..objects).await?;
            filled.memory.set_cache_budget(CACHE);
        }
        Ok(())
    }

    fn grow_and_run(
        &mut self,
        scenario: Scenario,
        size: &str,
        from: ByteSize,
        to: ByteSize,
    ) -> Result<GrowthRun, LabError> {
        let more = to.saturating_sub(from);
        let timed = |work: &mut dyn FnMut() -> Result<(), LabError>| {
            let begin = Instant::now();
            work().map(|()| begin.elapsed())
        };
        let group = &self.group;
        let (full, half) = (&self.full, &self.half);
        let grow = || -> Result<(Duration, Duration), LabError> {
            let cache = match scenario {
                Scenario::Base => None,
                Scenario::Unused => Some(&half.memory),
                Scenario::Evicted | Scenario::EvictedBeside => Some(&full.memory),
            };
            let scaling = timed(&mut || {
                let Some(memory) = cache else { return Ok(()) };
                let left = CACHE.saturating_sub(more);
                memory.set_cache_budget(left);
                let beyond = memory.usage().living.saturating_sub(left);
                if beyond > ByteSize::ZERO && memory.shrink(beyond).freed < beyond {
                    return Err(LabError::Node(format!("the cache did not release {beyond}")));
                }
                Ok(())
            })?;
            let limit = timed(&mut || group.set_limit(to))?;
            Ok((scaling, limit))
        };
        let event = self.function.event_of(BUCKET, size, "out/sepia");
        let runtime = &mut self.runtime;
        let mut headroom = Duration::ZERO;
        let (grown, answered) = if scenario == Scenario::EvictedBeside {
            let first = ByteSize(from.bytes() + HEADROOM.bytes()).min(to);
            headroom = timed(&mut || group.set_limit(first))?;
            std::thread::scope(|scope| {
                let beside = scope.spawn(grow);
                let answered = invoke(runtime, &event, size);
                let panicked = |_| Err(LabError::Node("growing ended early".to_owned()));
                (beside.join().unwrap_or_else(panicked), answered)
            })
        } else {
            (grow(), invoke(runtime, &event, size))
        };
        let ((scaling, limit), answered) = (grown?, answered?);
        let us = |took: Duration| took.as_secs_f64() * 1e6;
        let before = match scenario {
            // The memory is free already: nobody waits for the write.
            Scenario::Base => return Ok(GrowthRun { run_ms: answered.total_ms, ..GrowthRun::default() }),
            Scenario::Unused | Scenario::Evicted => scaling + limit,
            Scenario::EvictedBeside => headroom,
        };
        let [before_us, scaling_us, limit_us] = [before, scaling, limit].map(us);
        Ok(GrowthRun { before_us, scaling_us, limit_us, run_ms: answered.total_ms })
    }

    fn invoke(&mut self, size: &str) -> Result<InvocationTimes, LabError> {
        invoke(&mut self.runtime, &self.function.event_of(BUCKET, size, "out/sepia"), size)
    }
}

fn start(program: &Path, code: &Path, node: &NodeUnderTest) -> Result<BareRuntime, LabError> {
    Ok(BareRuntime::start(program, code, MEASURED_HANDLER, &node.s3_access().environment())?)
}

fn invoke(runtime: &mut BareRuntime, event: &[u8], size: &str) -> Result<InvocationTimes, LabError> {
    let failed = |reason: String| LabError::Function { function: FUNCTION.to_owned(), input: size.to_owned(), reason };
    let answer = runtime.invoke(event).map_err(|error| failed(error.to_string()))?;
    if !answer.succeeded {
        return Err(failed(String::from_utf8_lossy(&answer.payload).into_owned()));
    }
    InvocationTimes::read(&answer.payload).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_what_is_waited_for_before_the_run_and_slower_is_the_whole() {
        let grown = |before_us, run_ms| GrowthRun { before_us, scaling_us: 190.0, limit_us: 10.0, run_ms };
        let runs = [
            (Scenario::Base, GrowthRun { run_ms: 20.0, ..GrowthRun::default() }),
            (Scenario::Unused, grown(10.0, 20.0)),
            (Scenario::Evicted, grown(200.0, 21.0)),
            (Scenario::EvictedBeside, grown(10.0, 21.0)),
        ];
        let rows = rows_of("1k", FROM, TO_LEAST, &runs);
        let near = |at: usize, field: &str, expected: f64| (rows[at][field].as_f64().unwrap() - expected).abs() < 1e-9;
        assert!(near(0, "overhead", 0.0) && near(1, "overhead", 0.0005) && near(2, "overhead", 0.01));
        assert!(near(2, "slower", 0.06) && near(3, "slower", 0.0505) && near(3, "overhead", 0.0005));
        assert!(rows[2]["from_mb"] == 64 && rows[2]["to_mb"] == 84);
    }
}
