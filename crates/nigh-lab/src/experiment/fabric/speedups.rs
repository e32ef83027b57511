//! Figures 8 and 9: each workflow under each configuration, beside the paper.

use nigh_sim::fabric::{Hardware, Outcome, Run, System, Workflow, simulate, workflows};
use serde::Serialize;
use serde_json::{Value, json};

use super::calibration::{TimesByScale, micros};
use super::paper;
use crate::instrument::stats::geometric_mean;

/// A workflow at the scale of computing that was fitted.
pub(super) struct FittedWorkflow {
    pub(super) workflow: Workflow,
    pub(super) scale: f64,
    /// The scales fitted without one configuration, in the order of [`paper::SYSTEMS`].
    held_out: [f64; 5],
}

/// One workflow under one configuration.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SpeedupRow {
    pub(super) workflow: &'static str,
    /// `calibration`: choices were made on it; `test`: none was.
    pub(super) set: &'static str,
    pub(super) configuration: &'static str,
    pub(super) time_us: f64,
    /// Times faster than RDMA without copies.
    pub(super) speedup: f64,
    /// Figure 8's.
    pub(super) paper: Option<f64>,
    /// `speedup` over `paper`, less one.
    pub(super) error: Option<f64>,
    /// `speedup` with the scale of computing fitted to the other configurations alone.
    pub(super) held_out: Option<f64>,
    pub(super) held_out_error: Option<f64>,
    /// The sum of gets over RDMA's, and figure 9's.
    pub(super) gets: f64,
    pub(super) gets_paper: Option<f64>,
    /// The sum of puts over RDMA's, and figure 9's.
    pub(super) puts: f64,
    pub(super) puts_paper: Option<f64>,
}

/// The geometric mean of the six.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GeomeanRow {
    pub(super) configuration: &'static str,
    pub(super) speedup: f64,
    pub(super) paper: Option<f64>,
    pub(super) error: Option<f64>,
    pub(super) held_out: Option<f64>,
    pub(super) held_out_error: Option<f64>,
    /// The error over the four workflows on which nothing was chosen, held out.
    pub(super) test_error: Option<f64>,
}

fn set_of(workflow: &str) -> &'static str {
    if paper::CALIBRATION.contains(&workflow) { "calibration" } else { "test" }
}

fn error(ours: f64, paper: f64) -> f64 {
    ours / paper - 1.0
}

impl FittedWorkflow {
    /// The six workflows, their computing fitted by runs at `points` scales.
    pub(super) fn all(hardware: &Hardware, points: usize) -> Vec<Self> {
        let fit = |workflow: Workflow| {
            let times = TimesByScale::measure(&workflow, hardware, points);
            let held_out = paper::SYSTEMS.map(|system| times.fit(Some(system)));
            Self { scale: times.fit(None), held_out, workflow }
        };
        workflows().into_iter().map(fit).collect()
    }

    pub(super) fn run<'a>(&'a self, system: System, hardware: &'a Hardware) -> Run<'a> {
        Run { compute_scale: self.scale, ..Run::plain(&self.workflow, system, hardware) }
    }

    /// Times faster than the baseline at a scale.
    fn speedup_at(&self, system: System, hardware: &Hardware, scale: f64) -> f64 {
        let time = |system| micros(&Run { compute_scale: scale, ..self.run(system, hardware) });
        time(System::Rdma) / time(system)
    }

    /// Times faster than the baseline at the scale that was fitted.
    pub(super) fn speedup(&self, system: System, hardware: &Hardware) -> f64 {
        self.speedup_at(system, hardware, self.scale)
    }

    fn row(&self, baseline: &Outcome, system: System, hardware: &Hardware) -> SpeedupRow {
        let outcome = simulate(&self.run(system, hardware));
        let micros = |outcome: &Outcome| outcome.time.map_or(f64::NAN, |time| time.micros());
        let speedup = micros(baseline) / micros(&outcome);
        let name = self.workflow.name;
        let published = paper::speedup(name, system);
        let place = paper::SYSTEMS.iter().position(|one| *one == system);
        let held_out = place.map(|place| self.speedup_at(system, hardware, self.held_out[place]));
        let operations = paper::operations(name, system);
        SpeedupRow {
            workflow: name,
            set: set_of(name),
            configuration: system.name(),
            time_us: micros(&outcome),
            speedup,
            paper: published,
            error: published.map(|published| error(speedup, published)),
            held_out,
            held_out_error: held_out.zip(published).map(|(held_out, published)| error(held_out, published)),
            gets: outcome.get_time().micros() / baseline.get_time().micros(),
            gets_paper: operations.map(|[gets, _]| gets),
            puts: outcome.put_time().micros() / baseline.put_time().micros(),
            puts_paper: operations.map(|[_, puts]| puts),
        }
    }
}

/// Every workflow under every configuration.
pub(super) fn rows(fitted: &[FittedWorkflow], hardware: &Hardware) -> Vec<SpeedupRow> {
    let of = |one: &FittedWorkflow| {
        let baseline = simulate(&one.run(System::Rdma, hardware));
        System::COMPARED.map(|system| one.row(&baseline, system, hardware))
    };
    fitted.iter().flat_map(of).collect()
}

/// The geometric means, by configuration.
pub(super) fn geomeans(rows: &[SpeedupRow]) -> Vec<GeomeanRow> {
    let of = |system: System| {
        let rows: Vec<&SpeedupRow> = rows.iter().filter(|row| row.configuration == system.name()).collect();
        let speedup = geometric_mean(rows.iter().map(|row| row.speedup));
        let published = paper::geomean(system);
        let held_out = published.map(|_| geometric_mean(rows.iter().filter_map(|row| row.held_out)));
        let tested = rows.iter().filter(|row| row.set == "test");
        let errors = tested.filter_map(|row| row.held_out_error.map(|error| 1.0 + error));
        GeomeanRow {
            configuration: system.name(),
            speedup,
            paper: published,
            error: published.map(|published| error(speedup, published)),
            held_out,
            held_out_error: held_out.zip(published).map(|(held_out, published)| error(held_out, published)),
            test_error: published.map(|_| geometric_mean(errors) - 1.0),
        }
    };
    System::COMPARED.map(of).into()
}

/// The scale of the calibrating workflows put on the others, as if the paper had drawn nothing of these. GEMM is left out:
/// what it computes was not measured apart from what it writes.
pub(super) fn blind(fitted: &[FittedWorkflow], hardware: &Hardware) -> Vec<Value> {
    let calibrating = fitted.iter().filter(|one| set_of(one.workflow.name) == "calibration");
    let scale = geometric_mean(calibrating.map(|one| one.scale));
    let tested = fitted.iter().filter(|one| set_of(one.workflow.name) == "test" && one.workflow.name != "gemm");
    let row = |one: &FittedWorkflow, system: System| {
        let published = paper::speedup(one.workflow.name, system)?;
        let speedup = one.speedup_at(system, hardware, scale);
        Some(json!({
            "workflow": one.workflow.name,
            "configuration": system.name(),
            "speedup": speedup,
            "paper": published,
            "error": error(speedup, published),
        }))
    };
    tested.flat_map(|one| paper::SYSTEMS.into_iter().filter_map(move |system| row(one, system))).collect()
}

/// What was fitted: the scale of the computing measured in plain Python, and the part of RDMA's time that no network could save.
pub(super) fn compute(fitted: &[FittedWorkflow], hardware: &Hardware) -> Vec<Value> {
    let of = |one: &FittedWorkflow| {
        let whole = one.run(System::Rdma, hardware);
        let network = micros(&Run { compute_scale: 0.0, ..whole });
        json!({
            "workflow": one.workflow.name,
            "set": set_of(one.workflow.name),
            "scale": one.scale,
            "compute_share": 1.0 - network / micros(&whole),
        })
    };
    fitted.iter().map(of).collect()
}
