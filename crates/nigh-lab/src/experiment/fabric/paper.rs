//! What Apta's paper (DSN 2023) prints: its figures read off the vector drawings, and the numbers of its text.

use nigh_sim::fabric::System;

/// The workflows, in the figures' order.
pub(super) const WORKFLOWS: [&str; 6] = ["phi", "sentiment", "finra", "video", "image", "gemm"];

/// The two on which choices were made; the others test them.
pub(super) const CALIBRATION: [&str; 2] = ["sentiment", "image"];

/// Figure 8's configurations beside its baseline, [`System::Rdma`].
pub(super) const SYSTEMS: [System; 5] =
    [System::RdmaFaast, System::FastRdmaFaast, System::FastRdmaApta, System::CxlUncached, System::Apta];

/// Figure 8: times faster than the baseline, by workflow and configuration.
const SPEEDUPS: [[f64; 5]; 6] = [
    [1.018, 1.031, 1.233, 1.135, 1.464],
    [1.289, 1.634, 1.985, 1.936, 2.422],
    [2.005, 2.024, 2.136, 2.014, 2.357],
    [1.194, 1.218, 1.291, 1.261, 1.402],
    [1.426, 1.493, 1.847, 1.687, 1.953],
    [1.072, 1.263, 1.393, 1.242, 1.722],
];

const GEOMEANS: [f64; 5] = [1.299, 1.409, 1.609, 1.506, 1.845];

/// Figure 9's configurations.
pub(super) const OPERATION_SYSTEMS: [System; 3] = [System::RdmaFaast, System::CxlUncached, System::Apta];

/// Figure 9, left: the time of gets over the baseline's.
const GETS: [[f64; 3]; 6] = [
    [0.532, 0.422, 0.068],
    [0.477, 0.191, 0.055],
    [0.314, 0.272, 0.156],
    [0.611, 0.275, 0.129],
    [0.263, 0.171, 0.046],
    [0.457, 0.319, 0.116],
];

/// Figure 9, right: the time of puts over the baseline's.
const PUTS: [[f64; 3]; 6] = [
    [1.0, 0.31, 0.153],
    [1.0, 0.251, 0.125],
    [1.0, 0.314, 0.157],
    [1.0, 0.503, 0.252],
    [1.0, 0.429, 0.215],
    [1.0, 0.395, 0.199],
];

/// Section IV-C, result 3: Apta over CXL with copies, geometric mean; not drawn.
pub(super) const APTA_OVER_CACHED: f64 = 1.10;
/// Result 4: Apta's standard deviation of the execution time over CXL's with copies, mean of the workflows.
pub(super) const DEVIATION_OVER_CACHED: f64 = 0.68;
/// Section II-C: a get, and a put, by lines over one by objects.
pub(super) const LINES_OVER_OBJECTS: [f64; 2] = [1.32, 1.89];
/// Section II-A: part of the time that goes to gets and puts, mean of its nine functions: S3, RDMA, memory server.
pub(super) const COMMUNICATION: [(System, f64); 3] =
    [(System::S3, 0.96), (System::Rdma, 0.51), (System::MemoryServer, 0.13)];

/// Figure 10a: gigabits a second, and Apta's speed-up (geometric mean).
pub(super) const BY_BANDWIDTH: [(f64, f64); 5] =
    [(40.0, 1.811), (80.0, 1.844), (100.0, 1.856), (150.0, 1.873), (200.0, 1.882)];
/// Figure 10b: nanoseconds one way, and the same. At 500 ns it shows 1.880 where figures 8 and 10a show 1.845.
pub(super) const BY_LATENCY: [(f64, f64); 5] =
    [(200.0, 1.875), (300.0, 1.878), (400.0, 1.879), (500.0, 1.880), (600.0, 1.882)];

fn place<const N: usize>(systems: [System; N], system: System) -> Option<usize> {
    systems.iter().position(|one| *one == system)
}

fn row(workflow: &str) -> Option<usize> {
    WORKFLOWS.iter().position(|name| *name == workflow)
}

/// Figure 8; none for what it does not show.
pub(super) fn speedup(workflow: &str, system: System) -> Option<f64> {
    Some(SPEEDUPS[row(workflow)?][place(SYSTEMS, system)?])
}

/// Figure 8's last group.
pub(super) fn geomean(system: System) -> Option<f64> {
    Some(GEOMEANS[place(SYSTEMS, system)?])
}

/// Figure 9: gets and puts over the baseline's.
pub(super) fn operations(workflow: &str, system: System) -> Option<[f64; 2]> {
    let (row, place) = (row(workflow)?, place(OPERATION_SYSTEMS, system)?);
    Some([GETS[row][place], PUTS[row][place]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_geometric_means_are_those_of_its_bars() {
        for system in SYSTEMS {
            let product: f64 = WORKFLOWS.iter().filter_map(|name| speedup(name, system)).product();
            let mean = product.powf(1.0 / 6.0);
            assert!((mean - geomean(system).unwrap()).abs() < 0.002, "{}: {mean}", system.name());
        }
    }
}
