//! Whether the paper's figures 8 and 9 agree: a bound on what any model of parts that add up can reproduce.
//!
//! With gets G, puts P and computing C, parts of the baseline's time, figure 9 says what each configuration leaves of G and
//! of P, and figure 8 what it leaves of the whole. Two bars (RDMA+Faa$T and Apta) give G and P; the third (CXL uncached) then
//! follows, and can be compared with what is drawn.

use nigh_sim::fabric::System;
use serde_json::{Value, json};

use super::paper;

/// What a configuration takes away: of gets, of puts, of the whole.
fn saved(workflow: &str, system: System) -> Option<[f64; 3]> {
    let [gets, puts] = paper::operations(workflow, system)?;
    Some([1.0 - gets, 1.0 - puts, 1.0 - 1.0 / paper::speedup(workflow, system)?])
}

/// Each workflow's parts by the paper's own bars, of the baseline's time. A part below nothing: no such parts exist.
pub(super) fn rows() -> Vec<Value> {
    let row = |workflow: &'static str| {
        let [gets, _, whole] = saved(workflow, System::RdmaFaast)?;
        let get_share = whole / gets;
        let [gets, puts, whole] = saved(workflow, System::Apta)?;
        let put_share = (whole - gets * get_share) / puts;
        let [gets, puts, _] = saved(workflow, System::CxlUncached)?;
        // CXL uncached's speed-up that follows, and figure 8's.
        let follows = 1.0 / (1.0 - gets * get_share - puts * put_share);
        let drawn = paper::speedup(workflow, System::CxlUncached)?;
        Some(json!({
            "workflow": workflow,
            "get_share": get_share,
            "put_share": put_share,
            "follows": follows,
            "drawn": drawn,
            "gap": follows / drawn - 1.0,
        }))
    };
    paper::WORKFLOWS.into_iter().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_figures_agree_for_the_calibrating_workflows_and_not_for_all_others() {
        let rows = rows();
        for row in &rows {
            let of = |field: &str| row[field].as_f64().unwrap();
            let agrees = of("put_share") >= 0.0 && of("gap").abs() < 0.05;
            let calibrating = paper::CALIBRATION.contains(&row["workflow"].as_str().unwrap());
            assert_eq!(agrees, calibrating, "{row:?}");
        }
        // FINRA by hand: G = (1 - 1 / 2.005) / (1 - 0.314).
        let of = |field: &str| rows[2][field].as_f64().unwrap();
        assert!((of("get_share") - 0.7307).abs() < 1e-3 && of("put_share") < 0.0);
    }
}
