//! The one number a workflow that neither paper nor sources give: how fast its functions compute.
//!
//! It is the scale of the measured computing at which the speed-ups lie nearest to figure 8's bars, by the squares of
//! their logarithms. To judge a configuration it is fitted without that configuration's bar ("held out").

use nigh_sim::fabric::{Hardware, Run, System, Workflow, simulate};

use super::paper;

/// The scales between which the fit searches.
const SCALE_LEAST: f64 = 1e-4;
const SCALE_MOST: f64 = 1.0;
/// Candidates between them, evenly by the logarithm.
const CANDIDATES: usize = 4000;

/// A workflow's times by the scale of its computing.
pub(super) struct TimesByScale {
    workflow: &'static str,
    scales: Vec<f64>,
    /// Microseconds at each scale: the baseline's, and those of [`paper::SYSTEMS`].
    times: Vec<(System, Vec<f64>)>,
}

fn at(share: f64) -> f64 {
    SCALE_LEAST * (SCALE_MOST / SCALE_LEAST).powf(share)
}

/// Microseconds; the runs of this experiment without failures end.
pub(super) fn micros(run: &Run<'_>) -> f64 {
    simulate(run).time.map_or(f64::NAN, |time| time.micros())
}

impl TimesByScale {
    /// Runs the workflow at `points` scales.
    pub(super) fn measure(workflow: &Workflow, hardware: &Hardware, points: usize) -> Self {
        let scales: Vec<f64> = (0..points).map(|point| at(point as f64 / (points - 1) as f64)).collect();
        let of = |system| {
            let run = Run::plain(workflow, system, hardware);
            scales.iter().map(|scale| micros(&Run { compute_scale: *scale, ..run })).collect()
        };
        let systems = [System::Rdma].into_iter().chain(paper::SYSTEMS);
        Self { workflow: workflow.name, times: systems.map(|system| (system, of(system))).collect(), scales }
    }

    /// Between two scales times are straight lines, but where another function becomes the slowest of its stage.
    fn time(&self, times: &[f64], scale: f64) -> f64 {
        let right = self.scales.partition_point(|one| *one < scale).clamp(1, self.scales.len() - 1);
        let (low, high) = (self.scales[right - 1], self.scales[right]);
        let share = (scale - low) / (high - low);
        times[right - 1] + (times[right] - times[right - 1]) * share
    }

    fn distance(&self, scale: f64, without: Option<System>) -> f64 {
        let Some((_, baseline)) = self.times.first() else { return f64::INFINITY };
        let baseline = self.time(baseline, scale);
        let judged = self.times.iter().filter(|(system, _)| Some(*system) != without);
        let errors = judged.filter_map(|(system, times)| {
            let published = paper::speedup(self.workflow, *system)?;
            Some((baseline / self.time(times, scale) / published).ln().powi(2))
        });
        errors.sum()
    }

    /// The scale nearest to figure 8, `without` one configuration.
    pub(super) fn fit(&self, without: Option<System>) -> f64 {
        let candidates = (0..CANDIDATES).map(|one| at(one as f64 / (CANDIDATES - 1) as f64));
        let nearest = candidates.min_by(|a, b| self.distance(*a, without).total_cmp(&self.distance(*b, without)));
        nearest.unwrap_or(SCALE_MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_that_is_held_out_does_not_move_the_fit() {
        // Two systems: twice as fast without computing, and not at all; figure 8 has 1.289 and 1.634 for sentiment.
        let scales = vec![0.1, 1.0];
        let times = vec![
            (System::Rdma, vec![200.0, 1100.0]),
            (System::RdmaFaast, vec![100.0, 1000.0]),
            (System::FastRdmaFaast, vec![200.0, 1100.0]),
        ];
        let fit = |times| {
            let table = TimesByScale { workflow: "sentiment", scales: scales.clone(), times };
            table.fit(Some(System::FastRdmaFaast))
        };
        let with = fit(times.clone());
        // 1.289 = (100 + 1000 s) / (1000 s).
        assert!((with - 100.0 / 289.0).abs() < 0.001, "{with}");
        let mut other = times;
        other[2].1 = vec![1.0, 2.0];
        assert_eq!(with, fit(other));
    }
}
