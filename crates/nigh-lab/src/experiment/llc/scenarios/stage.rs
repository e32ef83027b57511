//! One scenario on the simulated machine: its invocations with their traces and what the models say of each, run under a
//! policy or under fixed classes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use nigh_llc::{
    CacheShape, CasyRequest, ChosenLayout, ClosLayout, MixEntry, MixError, Need, Placement, SharingProfile,
    SizingModel, Ticket, Tolerance, UnknownNeed, WayLoads, choose_layout, fit_layout,
};
use nigh_sim::llc::{
    Binder, Classes, Job, JobId, MachineConfig, MaskError, Passes, ReplayTrace, SampleRate, SimTime, simulate,
};
use nigh_terms::{ClosId, Monotonic, WayMask, Ways};

use super::super::failed;
use super::plan::{Plan, Scenario};
use super::refit_binder::{FittedLayouts, RefitBinder};
use crate::LabError;
use crate::instrument::cache_sizing::{self, HERTZ, LINES_PER_WAY};
use crate::instrument::trace_library::TraceLibrary;

pub(super) struct Kind {
    pub(super) acronym: String,
    pub(super) trace: ReplayTrace,
    pub(super) passes: NonZeroU32,
    pub(super) need: Need,
    /// Seconds of an invocation alone on the whole cache, warm; and with one way.
    pub(super) alone_s: f64,
    pub(super) alone_one_way_s: f64,
    pub(super) predicted: nigh_llc::Prediction,
}

/// What every scenario needs: the machine, table IV's functions and the models.
pub(super) struct Stage {
    pub(super) plan: Plan,
    pub(super) shape: CacheShape,
    pub(super) kinds: Vec<Kind>,
    config: MachineConfig,
}

impl Stage {
    pub(super) fn set(plan: Plan, library: &TraceLibrary) -> Result<Self, LabError> {
        let rate = SampleRate::new(plan.load.sampling).map_err(|error| failed("load.sampling", &error))?;
        let config = MachineConfig { rate, ..MachineConfig::XEON_SILVER_4210R };
        let shape = CacheShape {
            ways: config.geometry.ways(),
            classes: plan.machine.classes,
            min_ways: Ways(1),
            shareable: WayMask::from_bits(plan.machine.shareable),
        };
        let mut models = BTreeMap::new();
        for (function, recordings) in &plan.training {
            let rows = recordings.iter().map(|name| cache_sizing::profiled(library.input(name)?, &config.timing));
            let rows = rows.collect::<Result<Vec<_>, _>>()?;
            models.insert(function.as_str(), cache_sizing::learn(function, rows.into_iter())?);
        }
        let mut kinds = Vec::new();
        for (acronym, recording) in &plan.functions {
            kinds.push(Kind::new(acronym, recording, &plan, library, &models, &config)?);
        }
        Ok(Self { plan, shape, kinds, config })
    }

    pub(super) fn play(&self, scenario: &Scenario) -> Play<'_> {
        let at = |acronym: &str| self.kinds.iter().position(|kind| kind.acronym == acronym);
        let invocations: Vec<usize> = self.plan.drawn(scenario).into_iter().filter_map(at).collect();
        let counts = (0..self.kinds.len()).map(|kind| invocations.iter().filter(|&&drawn| drawn == kind).count());
        let counts: Vec<usize> = counts.collect();
        Play { stage: self, scenario: scenario.clone(), invocations, counts }
    }

    pub(super) fn casy_layout(&self) -> Result<Arc<ClosLayout>, LabError> {
        let request = CasyRequest::of(self.shape, Ways(self.plan.machine.casy_insensitive));
        ClosLayout::casy(&request).map(Arc::new).map_err(|error| failed("CASY's layout", &error))
    }
}

impl Kind {
    fn new(
        acronym: &str,
        recording: &str,
        plan: &Plan,
        library: &TraceLibrary,
        models: &BTreeMap<&str, SizingModel>,
        config: &MachineConfig,
    ) -> Result<Self, LabError> {
        let input = library.input(recording)?;
        let length = plan.load.seconds_alone;
        // Instructions of that length by the recording's own time with all ways.
        let whole_s = cache_sizing::counted_curves(input, &config.timing)?.times.best().as_secs_f64();
        let part = (length / whole_s).min(1.0);
        let trace = library.trace(input, plan.load.sampling, (input.instructions as f64 * part) as u64)?;
        let passes = NonZeroU32::new((length / whole_s).round() as u32).unwrap_or(NonZeroU32::MIN);
        let curves = cache_sizing::simulated_curves(recording, &trace, config)?;
        let seconds = |ways| curves.times.micros(ways) / 1e6 * f64::from(passes.get());
        let unlearned =
            || failed(acronym, &"no model was trained for its function, or it lacks the feature it goes by");
        let model = models.get(input.function.as_str()).ok_or_else(unlearned)?;
        let predicted = model
            .predict(&cache_sizing::version(&input.function), &cache_sizing::sizing_input(input))
            .ok_or_else(unlearned)?;
        let sharing = predicted
            .curves
            .as_ref()
            .map(|curves| SharingProfile::new(&curves.misses, &curves.times, LINES_PER_WAY).map(Arc::new));
        let sharing = sharing.transpose().map_err(|error| failed(acronym, &error))?;
        Ok(Self {
            acronym: acronym.to_owned(),
            trace,
            passes,
            need: Need { predicted: Some(predicted.predicted), sharing, at: Monotonic(0) },
            alone_s: seconds(config.geometry.ways()),
            alone_one_way_s: seconds(Ways(1)),
            predicted,
        })
    }
}

/// One scenario, drawn.
pub(super) struct Play<'s> {
    pub(super) stage: &'s Stage,
    pub(super) scenario: Scenario,
    /// By invocation: its kind, by index.
    pub(super) invocations: Vec<usize>,
    /// By kind: invocations.
    pub(super) counts: Vec<usize>,
}

/// Classes, and the one that each invocation of a kind runs in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct FixedClasses {
    /// By class, the default first.
    pub(super) masks: Vec<WayMask>,
    /// By kind.
    pub(super) classes: Vec<ClosId>,
}

impl Play<'_> {
    /// Seconds of every invocation in one repetition.
    pub(super) fn run(&self, repetition: usize, binder: &mut dyn Binder) -> Result<Vec<f64>, LabError> {
        let arrivals = self.stage.plan.arrivals(&self.scenario, repetition);
        let job = |(&drawn, arrival): (&usize, SimTime)| {
            let kind = &self.stage.kinds[drawn];
            Job { trace: &kind.trace, arrival, passes: Passes::Times(kind.passes) }
        };
        let jobs: Vec<_> = self.invocations.iter().zip(arrivals).map(job).collect();
        let config = MachineConfig {
            // Nobody waits for a core: only the cache and the memory are shared.
            cores: self.invocations.len() as u16,
            seed: self.stage.plan.seed(&self.scenario, repetition),
            ..self.stage.config
        };
        let report = simulate(&config, &jobs, binder).map_err(|error| failed(&self.scenario.name, &error))?;
        Ok(report.jobs.iter().map(|job| job.time().seconds(HERTZ)).collect())
    }

    pub(super) fn run_policy(
        &self,
        repetition: usize,
        policy: &dyn Placement,
        layout: Arc<ClosLayout>,
    ) -> Result<Vec<f64>, LabError> {
        let needs: Vec<&Need> = self.invocations.iter().map(|&kind| &self.stage.kinds[kind].need).collect();
        let unknown = UnknownNeed::mean_of_table_3(self.stage.shape.ways);
        let (loads, tickets) = (WayLoads::new(layout, unknown), vec![None; needs.len()]);
        self.run(repetition, &mut PolicyBinder { policy, loads, needs, tickets, masked: false })
    }

    pub(super) fn run_fixed(&self, repetition: usize, fixed: &FixedClasses) -> Result<Vec<f64>, LabError> {
        let mut masked = false;
        self.run(repetition, &mut |job: JobId, _: SimTime, classes: &mut Classes<'_>| {
            if !std::mem::replace(&mut masked, true) {
                set_masks(classes, fixed.masks.iter().copied())?;
            }
            Ok(fixed.classes[self.invocations[job.0 as usize]])
        })
    }

    /// Seconds of every invocation under Nigh, and how many it moved while they ran.
    pub(super) fn run_refitted(
        &self,
        repetition: usize,
        guard: Tolerance,
        fitted: &FittedLayouts,
    ) -> Result<(Vec<f64>, u64), LabError> {
        let profiles = self.stage.kinds.iter().map(|kind| kind.need.sharing.clone()).collect();
        let (shape, kinds) = (self.stage.shape, &self.invocations[..]);
        let mut binder = RefitBinder { shape, guard, profiles, kinds, running: Vec::new(), fitted, moves: 0 };
        let seconds = self.run(repetition, &mut binder)?;
        Ok((seconds, binder.moves))
    }

    pub(super) fn present(&self) -> impl Iterator<Item = usize> {
        (0..self.counts.len()).filter(|&kind| self.counts[kind] > 0)
    }

    /// The seconds of one kind's invocations, of all runs.
    pub(super) fn seconds_of(&self, runs: &[Vec<f64>], kind: usize) -> Vec<f64> {
        let mine = |run: &Vec<f64>| {
            let times = run.iter().zip(&self.invocations).filter(|(_, of)| **of == kind);
            times.map(|(time, _)| *time).collect::<Vec<_>>()
        };
        runs.iter().flat_map(mine).collect()
    }

    /// What the models propose while all run at once, and the kinds it is for: disjoint clusters, and classes that may
    /// overlap.
    pub(super) fn proposed(&self, guard: Tolerance) -> Result<(Vec<usize>, [ChosenLayout; 2]), LabError> {
        let refused = |error: MixError| failed(&self.scenario.name, &error);
        let (present, mix) = self.mix()?;
        let clusters = choose_layout(&mix, &self.stage.shape, guard).map_err(refused)?;
        let overlapping = fit_layout(&mix, None, &self.stage.shape, guard).map_err(refused)?;
        Ok((present, [clusters, overlapping]))
    }

    /// Fixed classes to start a search from.
    pub(super) fn proposals(&self) -> Result<Vec<FixedClasses>, LabError> {
        let free = Tolerance(f64::from(u8::MAX));
        let mut found = Vec::new();
        for guard in [Tolerance::ONE_PERCENT, free] {
            let (present, both) = self.proposed(guard)?;
            for chosen in both {
                let mut classes = vec![ClosId::DEFAULT; self.stage.kinds.len()];
                for (&kind, class) in present.iter().zip(chosen.classes) {
                    classes[kind] = class;
                }
                let proposal =
                    FixedClasses { masks: chosen.layout.classes().iter().map(|class| class.mask).collect(), classes };
                if !found.contains(&proposal) {
                    found.push(proposal);
                }
            }
        }
        Ok(found)
    }

    fn mix(&self) -> Result<(Vec<usize>, Vec<MixEntry>), LabError> {
        let present: Vec<usize> = self.present().collect();
        let entry = |&kind: &usize| {
            let profile = self.stage.kinds[kind].need.sharing.clone()?;
            Some(MixEntry { profile, running: self.counts[kind] as f32 })
        };
        let mix: Option<Vec<_>> = present.iter().map(entry).collect();
        let mix = mix.ok_or_else(|| failed(&self.scenario.name, &"a model without curves"))?;
        Ok((present, mix))
    }
}

fn set_masks(classes: &mut Classes<'_>, masks: impl Iterator<Item = WayMask>) -> Result<(), MaskError> {
    (0..).map(ClosId).zip(masks).try_for_each(|(clos, mask)| classes.set_mask(clos, mask))
}

/// Asks a placement for each invocation's class when it starts, and books it until it ends.
struct PolicyBinder<'p> {
    policy: &'p dyn Placement,
    loads: WayLoads,
    needs: Vec<&'p Need>,
    tickets: Vec<Option<Ticket>>,
    masked: bool,
}

impl Binder for PolicyBinder<'_> {
    fn start(&mut self, job: JobId, now: SimTime, classes: &mut Classes<'_>) -> Result<ClosId, MaskError> {
        if !std::mem::replace(&mut self.masked, true) {
            set_masks(classes, self.loads.layout().classes().iter().map(|class| class.mask))?;
        }
        let at = Monotonic((now.seconds(HERTZ) * 1e9) as u64);
        let need = Need { at, ..self.needs[job.0 as usize].clone() };
        let placed = self.policy.place(&self.loads, &need);
        // A scenario has fewer invocations than the books take.
        self.tickets[job.0 as usize] = self.loads.commit(placed.clos, need).ok();
        Ok(placed.clos)
    }

    fn end(&mut self, job: JobId, _: SimTime, _: &mut Classes<'_>) -> Result<(), MaskError> {
        if let Some(ticket) = self.tickets[job.0 as usize].take() {
            let released = self.loads.release(ticket);
            debug_assert!(released.is_ok(), "{released:?}");
        }
        Ok(())
    }
}
