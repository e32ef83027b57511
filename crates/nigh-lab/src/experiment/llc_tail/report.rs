//! The experiment's report: as data, and as tables for a terminal.

use std::fmt::Write;

use comfy_table::{Table, presets};
use nigh_terms::Ways;
use serde::Serialize;

use super::findings::{BestTail, GuardResult, LargerIsWorse, Reach, SLO_US};
use super::server_machine::SimulatedMachine;
use super::sweep::Row;
use crate::instrument::machine::Machine;

/// The paper's figures.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Paper {
    source: &'static str,
    pub(super) small_ratio: f64,
    pub(super) large_ratio: f64,
    note: &'static str,
}

pub(super) const PAPER: Paper = Paper {
    source: "CPU Cache Partitioning for Networked Systems (CMU poster)",
    small_ratio: 5.3,
    large_ratio: 1.8,
    note: "maxima over an axis that the poster does not state; machine, ways and loads are not on it either",
};

/// One working set.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SetReport {
    pub(super) working_set: String,
    /// Of the whole cache.
    pub(super) cache_ways: Ways,
    pub(super) items_bytes: u64,
    pub(super) index_bytes: u64,
    /// Lines a request that leave the store's core.
    pub(super) lines_per_request: f64,
    pub(super) rows: Vec<Row>,
    pub(super) best: Option<BestTail>,
    /// The same on the paper's axis alone, without the loads close to what no CAT serves.
    pub(super) best_on_axis: Option<BestTail>,
    pub(super) paper_ratio: Option<f64>,
    pub(super) reaches: Vec<Reach>,
    pub(super) larger_is_worse: Option<LargerIsWorse>,
    pub(super) guard: Vec<GuardResult>,
}

/// All that a run says.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TailReport {
    pub(super) machine: Machine,
    pub(super) paper: Paper,
    pub(super) simulated: SimulatedMachine,
    pub(super) quick: bool,
    pub(super) slo_us: f64,
    pub(super) seconds: f64,
    pub(super) sets: Vec<SetReport>,
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

pub(super) fn micros(value: f64) -> String {
    format!("{value:.1}")
}

/// The loads whose columns a table shows: about eight of them.
pub(super) fn shown(count: usize) -> impl Iterator<Item = usize> {
    let step = count.div_ceil(8).max(1);
    (0..count).filter(move |at| (count - 1 - at).is_multiple_of(step))
}

impl SetReport {
    fn table(&self) -> Table {
        let loads: Vec<f64> = self.rows[0].points.iter().map(|point| point.load_mops).collect();
        let mut table = Table::new();
        let mut header = vec!["p99.9 us at Mops".to_owned()];
        header.extend(shown(loads.len()).map(|at| format!("{:.2}", loads[at])));
        header.extend([format!("Mops in {SLO_US:.0} us"), "batch loss".to_owned()]);
        table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
        for (row, reach) in self.rows.iter().zip(&self.reaches) {
            let mut cells = vec![row.configuration.to_string()];
            cells.extend(shown(loads.len()).map(|at| micros(row.points[at].p999_us)));
            cells.push(reach.mops.map_or_else(|| "none".to_owned(), |mops| format!("{mops:.2}")));
            let losses: Vec<f64> = row.points.iter().filter_map(|point| point.batch_loss).collect();
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            cells.push(if losses.is_empty() { String::new() } else { percent(mean) });
            table.add_row(cells);
        }
        table
    }

    /// What the table shows, in sentences.
    pub(super) fn sentences(&self) -> Vec<String> {
        let mut said = Vec::new();
        match &self.best {
            Some(best) => said.push(format!(
                "Best point: {:.2} Mops, {} of {} ways: p99.9 {} us against {} us without CAT, {:.1}x shorter ({:.1}x without \
                 the network's part; no contention: {} us).{}",
                best.load_mops,
                best.ways,
                self.cache_ways,
                micros(best.partitioned_us),
                micros(best.no_cat_us),
                best.ratio,
                best.ratio_in_server,
                micros(best.no_contention_us),
                self.paper_ratio.map_or_else(String::new, |ratio| format!(" The paper: up to {ratio}x.")),
            )),
            None => said.push("No load is served without CAT: no ratio is given.".to_owned()),
        }
        if let Some(best) = &self.best_on_axis {
            said.push(format!(
                "On the paper's axis alone: {:.1}x at {:.1} Mops. The ratio grows without bound as the load nears what the store \
                 serves without CAT; the ring's length and the network's part bound it.",
                best.ratio, best.load_mops
            ));
        }
        if let Some(worse) = &self.larger_is_worse {
            said.push(format!(
                "Larger is worse: at {:.2} Mops {} ways give {} us, {} ways {} us; the store's lines come from memory for {} \
                 and {}, the memory is busy for {} and {} of the time.",
                worse.load_mops,
                worse.smaller,
                micros(worse.smaller_us),
                worse.larger,
                micros(worse.larger_us),
                percent(worse.smaller_misses),
                percent(worse.larger_misses),
                percent(worse.smaller_memory_load),
                percent(worse.larger_memory_load),
            ));
        } else {
            said.push("No larger partition is worse by a tenth than a smaller one.".to_owned());
        }
        for guard in &self.guard {
            let run = &guard.run;
            let sizes: Vec<String> = run.sizes.iter().map(ToString::to_string).collect();
            said.push(format!(
                "Guard ({}: {} us at {:.2} Mops): {} ways by {}{}; p99.9 {} us, {:.2} times no contention ({:.2} at most up to \
                 this load), batch loss {}{}.",
                guard.objective,
                micros(run.limit_us),
                run.load_mops,
                run.ways,
                sizes.join(", "),
                run.windows.map_or_else(|| ", not at rest".to_owned(), |windows| format!(" in {windows} windows")),
                micros(guard.tail_us),
                guard.over_no_contention,
                guard.over_no_contention_up_to_here,
                percent(guard.batch_loss),
                if run.met { "" } else { "; the objective is out of reach" },
            ));
        }
        said
    }
}

impl TailReport {
    /// The report for a terminal.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for set in &self.sets {
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "Working set {}: {:.2} lines a request leave the store's core (simulated)\n{}\n{}\n",
                set.working_set,
                set.lines_per_request,
                set.table(),
                set.sentences().join("\n")
            );
        }
        let machine = &self.machine;
        let _ = write!(
            text,
            "{} x {}, load {}, Linux {}, {}; {:.0} s",
            machine.cores, machine.cpu, machine.load, machine.kernel, machine.date, self.seconds
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shows_the_highest_load_and_at_most_eight() {
        for count in [1, 4, 8, 9, 20] {
            let columns: Vec<usize> = shown(count).collect();
            assert!(columns.len() <= 8 && columns.last() == Some(&(count - 1)), "{columns:?}");
        }
    }
}
