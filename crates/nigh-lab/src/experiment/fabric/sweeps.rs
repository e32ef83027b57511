//! One thing varied at a time: object size, sharers, servers, bandwidth, latency.

use nigh_sim::fabric::{Hardware, Link, Picos, Run, System, Workflow, gets_at_once, one_get, one_put};
use serde_json::{Value, json};

use super::calibration::micros;
use super::paper;
use super::speedups::FittedWorkflow;
use crate::instrument::stats::geometric_mean;

const SIZES: [u64; 8] = [64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20, 64 << 20];
const SHARERS: [u8; 6] = [0, 1, 3, 7, 15, 31];
const SERVERS: [u8; 5] = [1, 2, 3, 8, 16];
/// The object of the sweeps by sharers and by servers.
const OBJECT_BYTES: u64 = 1 << 20;

fn time(workflow: &Workflow, system: System, hardware: &Hardware) -> f64 {
    micros(&Run::plain(workflow, system, hardware))
}

/// A get that finds no copy, and a put without sharers.
pub(super) fn by_size(hardware: &Hardware) -> Vec<Value> {
    let row = |bytes: u64, system: System| {
        json!({
            "bytes": bytes,
            "configuration": system.name(),
            "get_us": time(&one_get(bytes), system, hardware),
            "put_us": time(&one_put(bytes, 0), system, hardware),
        })
    };
    SIZES.into_iter().flat_map(|bytes| System::COMPARED.map(|system| row(bytes, system))).collect()
}

pub(super) fn by_sharers(hardware: &Hardware) -> Vec<Value> {
    let row = |sharers: u8, system: System| {
        let put_us = time(&one_put(OBJECT_BYTES, sharers), system, hardware);
        json!({ "sharers": sharers, "configuration": system.name(), "put_us": put_us })
    };
    let systems = [System::CxlCached, System::Apta, System::Nigh];
    SHARERS.into_iter().flat_map(|sharers| systems.map(|system| row(sharers, system))).collect()
}

/// Each server reads an object of its own of 1 MiB.
pub(super) fn by_servers(hardware: &Hardware) -> Vec<Value> {
    let row = |servers: u8, system: System| {
        let all_read_us = time(&gets_at_once(OBJECT_BYTES, servers), system, hardware);
        let gigabytes = f64::from(servers) * OBJECT_BYTES as f64 / 1e9;
        json!({
            "servers": servers,
            "configuration": system.name(),
            "all_read_us": all_read_us,
            "gigabytes_per_second": gigabytes / (all_read_us / 1e6),
        })
    };
    let systems = [System::Rdma, System::CxlUncached, System::Apta, System::Nigh];
    SERVERS.into_iter().flat_map(|servers| systems.map(|system| row(servers, system))).collect()
}

/// Figure 10: speed-ups by the link, gigabits a second or nanoseconds. Geometric means over the baseline, whose network stays.
fn by_link(
    fitted: &[FittedWorkflow],
    hardware: &Hardware,
    figure: &[(f64, f64)],
    link: impl Fn(f64) -> Link,
) -> Vec<Value> {
    let row = |&(value, published): &(f64, f64)| {
        let hardware = Hardware { cxl: link(value), ..*hardware };
        let mean = |system| geometric_mean(fitted.iter().map(|one| one.speedup(system, &hardware)));
        let (apta, nigh) = (mean(System::Apta), mean(System::Nigh));
        json!({ "value": value, "apta": apta, "nigh": nigh, "paper": published, "error": apta / published - 1.0 })
    };
    figure.iter().map(row).collect()
}

pub(super) fn by_bandwidth(fitted: &[FittedWorkflow], hardware: &Hardware) -> Vec<Value> {
    by_link(fitted, hardware, &paper::BY_BANDWIDTH, |gigabits| Link {
        bytes_per_second: (gigabits * 1e9 / 8.0) as u64,
        ..hardware.cxl
    })
}

pub(super) fn by_latency(fitted: &[FittedWorkflow], hardware: &Hardware) -> Vec<Value> {
    by_link(fitted, hardware, &paper::BY_LATENCY, |nanos| Link {
        one_way: Picos::from_nanos(nanos as u64),
        ..hardware.cxl
    })
}

/// A get and a put by lines over one by objects: geometric means over all objects of the workflows.
pub(super) fn lines_over_objects(fitted: &[FittedWorkflow], hardware: &Hardware) -> [f64; 2] {
    let ratio = |operation: &dyn Fn(u64) -> Workflow| {
        let sizes = fitted.iter().flat_map(|one| one.workflow.objects.iter().map(|object| object.bytes));
        let of = |bytes: u64| {
            let operation = operation(bytes);
            time(&operation, System::CxlUncached, hardware) / time(&operation, System::Apta, hardware)
        };
        geometric_mean(sizes.map(of))
    };
    [ratio(&one_get), ratio(&|bytes| one_put(bytes, 0))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_servers_are_bound_by_the_memory_and_few_by_their_links() {
        let rows = by_servers(&Hardware::APTA);
        let is = |row: &&Value, servers: u8| row["servers"] == servers && row["configuration"] == "Apta";
        let of = |servers| rows.iter().find(|row| is(row, servers)).unwrap()["gigabytes_per_second"].as_f64().unwrap();
        assert!(of(1) > 9.5 && of(1) < 10.0);
        assert!(of(16) > 18.0 && of(16) < 19.2);
    }
}
