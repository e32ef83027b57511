//! The last-level cache: how fast the simulator is, how true its sampled curves are, what a placement and a change of layout
//! cost.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use nigh_llc::resctrl::emulator::{Dialect, Emulator, MachineConfig};
use nigh_llc::resctrl::{GroupName, Resctrl, WantedGroup, WantedLayout};
use nigh_llc::{
    CacheShape, CasyRequest, ClosLayout, MixEntry, Need, Placement, PredictedNeed, SharedPlacement, SharingProfile,
    Tolerance, UnknownNeed, WayLoads, fit_layout,
};
use nigh_sim::llc::{CoreTiming, FrameAllocator, LlcGeometry, SampledCurve, StackDistances, mix_cache, mix_requests};
use nigh_terms::{CacheDomain, Monotonic, WayMask, Ways};
use serde::Serialize;

use super::llc_binding::{self, BindingTimes};
use crate::LabError;
use crate::instrument::cache_sizing::{self, LINES_PER_WAY};
use crate::instrument::machine::Machine;
use crate::instrument::stats::Sample;
use crate::instrument::trace_library::TraceLibrary;

const REQUESTS: usize = 4_000_000;
const RUNNING: usize = 10;
const PLACEMENTS: u32 = 2_000;
const CHANGES: usize = 200;
/// Lines that the sampled curve follows at most.
const FOLLOWED: usize = 16_384;
/// Recordings whose curves are taken exactly and by sample: whole ones, as a sample of a sample tells nothing.
const CURVES: [&str; 3] = ["blur-361k", "blur-699k", "blur-1.4m"];
const PLACED: [&str; 4] = ["effect-26m", "blur-1.4m", "speech-79m", "resize-61m"];
/// What classes are fitted to: the functions of CASY's table IV.
const FITTED: [&str; 8] =
    ["blur-4.6m", "blur-6.4m", "blur-9.5m", "resize-31m", "resize-61m", "resize-127m", "speech-79m", "effect-100m"];
const FITS: u32 = 50;
/// The Xeon Silver 4210R, as its kernel reports it.
const SHAPE: CacheShape =
    CacheShape { ways: Ways(11), classes: 8, min_ways: Ways(1), shareable: WayMask::from_bits(0x600) };

#[derive(Clone, Debug, Args)]
pub(super) struct LlcLength {
    /// How many rounds each measurement has; the report shows their median
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// The folder with the recorded memory traces
    #[arg(long, default_value = "data/llc-traces")]
    traces: PathBuf,
}

#[derive(Debug, Serialize)]
pub(super) struct LlcReport {
    machine: Machine,
    /// Last level alone, LRU, eight overlapping masks, trace in memory, one core.
    sim_accesses_per_s: f64,
    /// The greatest mean absolute error of a sampled miss-ratio curve against the exact one.
    curve_error: f64,
    curve_errors: BTreeMap<String, f64>,
    /// Microseconds of a placement by Nigh's own policy beside ten that run; CASY's layout of eight classes.
    place_us: f64,
    /// Milliseconds of fitting the classes to eight kinds of function that run.
    fit_ms: f64,
    /// Milliseconds of a change of seven classes' ways on the emulated kernel.
    apply_ms: f64,
    /// A process put into another class on this machine's own kernel; none where it has no CAT.
    #[serde(skip_serializing_if = "Option::is_none")]
    binding: Option<BindingTimes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    binding_skipped: Option<String>,
}

pub(super) fn run(length: &LlcLength, machine: Machine) -> Result<LlcReport, LabError> {
    let rounds = length.rounds.max(1);
    let library = TraceLibrary::open(&length.traces)?;
    let curve_errors = curve_errors(&library)?;
    let (binding, binding_skipped) = match llc_binding::measure() {
        Ok(times) => (Some(times), None),
        Err(reason) => (None, Some(reason)),
    };
    Ok(LlcReport {
        machine,
        sim_accesses_per_s: simulator(rounds),
        curve_error: curve_errors.values().copied().fold(0.0, f64::max),
        curve_errors,
        place_us: placement(&library, rounds)?,
        fit_ms: fit(&library, rounds)?,
        apply_ms: layout_change()?,
        binding,
        binding_skipped,
    })
}

fn failed(what: &str, reason: &dyn std::fmt::Display) -> LabError {
    LabError::Simulation { what: what.to_owned(), reason: reason.to_string() }
}

fn simulator(rounds: usize) -> f64 {
    let requests = mix_requests(1, REQUESTS);
    let mut cache = mix_cache();
    // The first round fills the cache.
    black_box(cache.replay(&requests));
    let round = |_| {
        let begun = Instant::now();
        black_box(cache.replay(black_box(&requests)));
        REQUESTS as f64 / begun.elapsed().as_secs_f64()
    };
    Sample::new((0..rounds).map(round).collect()).median()
}

fn curve_errors(library: &TraceLibrary) -> Result<BTreeMap<String, f64>, LabError> {
    let mut errors = BTreeMap::new();
    for name in CURVES {
        let trace = library.recorded_trace(library.input(name)?)?;
        let space = FrameAllocator::new(1).allocate(trace.pages()).map_err(|error| failed(name, &error))?;
        let geometry = LlcGeometry::XEON_SILVER_4210R;
        let (mut exact, mut sampled) = (StackDistances::new(geometry), SampledCurve::bounded(geometry, FOLLOWED));
        for line in trace.lines() {
            let line = space.physical(line);
            exact.access(line);
            sampled.access(line);
        }
        errors.insert(name.to_owned(), sampled.curve().mean_absolute_error(&exact.curve()));
    }
    Ok(errors)
}

fn profiled(library: &TraceLibrary, name: &str) -> Result<(PredictedNeed, Arc<SharingProfile>), LabError> {
    let row = cache_sizing::profiled(library.input(name)?, &CoreTiming::CASCADE_LAKE)?;
    let curves = row.curves.ok_or_else(|| failed(name, &"its profile has no curves"))?;
    let sharing = SharingProfile::new(&curves.misses, &curves.times, LINES_PER_WAY);
    Ok((PredictedNeed { ways: row.ways, class: row.class }, Arc::new(sharing.map_err(|error| failed(name, &error))?)))
}

fn fit(library: &TraceLibrary, rounds: usize) -> Result<f64, LabError> {
    let mut mix = Vec::new();
    for name in FITTED {
        let (_, profile) = profiled(library, name)?;
        mix.push(MixEntry { profile, running: 1.0 });
    }
    let round = |_| {
        let begun = Instant::now();
        for _ in 0..FITS {
            let fitted = fit_layout(black_box(&mix), None, &SHAPE, Tolerance::ONE_PERCENT);
            black_box(fitted.map_err(|error| failed("fitting classes", &error))?);
        }
        Ok(begun.elapsed().as_secs_f64() * 1e3 / f64::from(FITS))
    };
    Ok(Sample::new((0..rounds).map(round).collect::<Result<_, LabError>>()?).median())
}

fn placement(library: &TraceLibrary, rounds: usize) -> Result<f64, LabError> {
    let mut needs = Vec::new();
    for name in PLACED {
        let (predicted, sharing) = profiled(library, name)?;
        needs.push(Need { predicted: Some(predicted), sharing: Some(sharing), at: Monotonic(0) });
    }
    let layout = ClosLayout::casy(&CasyRequest::of(SHAPE, Ways(3))).map_err(|error| failed("CASY's layout", &error))?;
    let mut loads = WayLoads::new(Arc::new(layout), UnknownNeed::mean_of_table_3(SHAPE.ways));
    let policy = SharedPlacement::new(LINES_PER_WAY);
    for at in 0..RUNNING {
        let need = needs[at % needs.len()].clone();
        let placed = policy.place(&loads, &need);
        loads.commit(placed.clos, need).map_err(|error| failed("the books", &error))?;
    }
    let round = |_| {
        let begun = Instant::now();
        for at in 0..PLACEMENTS {
            black_box(policy.place(black_box(&loads), &needs[at as usize % needs.len()]));
        }
        begun.elapsed().as_secs_f64() * 1e6 / f64::from(PLACEMENTS)
    };
    Ok(Sample::new((0..rounds).map(round).collect()).median())
}

fn layout_change() -> Result<f64, LabError> {
    let broken = |reason: &dyn std::fmt::Display| failed("a change of layout on the emulated kernel", reason);
    let wanted = |ways: u8| {
        let groups = (0..7).map(|number| {
            Ok(WantedGroup {
                name: GroupName::new(format!("nigh-{number}")).map_err(|error| broken(&error))?,
                masks: BTreeMap::from([(CacheDomain(0), WayMask::contiguous(number, Ways(ways)))]),
                bandwidth: BTreeMap::new(),
            })
        });
        Ok::<_, LabError>(WantedLayout { groups: groups.collect::<Result<_, LabError>>()? })
    };
    let layouts = [wanted(2)?, wanted(4)?];
    let emulator = Arc::new(Emulator::new(MachineConfig::silver_4210r(Dialect::Linux7)));
    let resctrl = Resctrl::open(emulator.clone(), emulator).map_err(|error| broken(&error))?;
    resctrl.apply(&layouts[1]).map_err(|error| broken(&error))?;
    let mut times: Vec<Duration> = Vec::new();
    for change in 0..CHANGES {
        let begun = Instant::now();
        resctrl.apply(&layouts[change % 2]).map_err(|error| broken(&error))?;
        times.push(begun.elapsed());
    }
    Ok(Sample::new(times.iter().map(|time| time.as_secs_f64() * 1e3).collect()).median())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn sampled_curves_are_within_one_percent_and_a_layout_changes() {
        let library = TraceLibrary::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/llc-traces")).unwrap();
        let errors = curve_errors(&library).unwrap();
        assert!(errors.len() == CURVES.len() && errors.values().all(|error| *error <= 0.01), "{errors:?}");
        assert!(layout_change().unwrap() > 0.0);
        assert!(placement(&library, 1).unwrap() > 0.0);
        assert!(fit(&library, 1).unwrap() > 0.0);
    }
}
