//! One invocation of a load: when it was due, its answer, and the platform's record of it.

use nigh_node::{Activation, Cost, gb_seconds};
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};

use super::arrivals::Arrival;

/// One invocation, as its caller saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) arrival: Arrival,
    /// From when it was due until it was sent; all clients were busy.
    pub(crate) late_ms: f64,
    /// From when it was due to its answer.
    pub(crate) response_ms: f64,
    /// What it answered, or why it failed.
    pub(crate) answered: Result<InvocationTimes, String>,
}

/// What a measured handler returns, and what its platform adds. Milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct InvocationTimes {
    /// The invocation's id, where a platform has a record of it.
    pub(crate) id: Option<String>,
    /// The handler, from its first line to its last.
    pub(crate) total_ms: f64,
    pub(crate) extract_ms: f64,
    pub(crate) load_ms: f64,
    /// Processor time of the handler's process.
    pub(crate) cpu_ms: f64,
    /// A sandbox or process was started for it.
    pub(crate) cold: bool,
    /// The most memory it used, where that is known.
    pub(crate) peak: Option<ByteSize>,
    pub(crate) billed_gb_s: Option<f64>,
    pub(crate) used_gb_s: Option<f64>,
    /// What the platform's own record says.
    pub(crate) record: Option<PlatformRecord>,
}

/// Some fields of the platform's record of an invocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlatformRecord {
    /// Reads that were served from memory,
    pub(crate) hits: u64,
    /// and reads that were not.
    pub(crate) misses: u64,
    /// How often its memory was raised while it ran.
    pub(crate) grown: u64,
    /// The invocation needed more than one attempt.
    pub(crate) retried: bool,
}

/// What `measured.py` returns.
#[derive(Deserialize)]
struct HandlerTimes {
    total_us: f64,
    extract_us: f64,
    load_us: f64,
    cpu_us: f64,
}

impl InvocationTimes {
    /// Reads the times in a measured handler's answer.
    pub(crate) fn read(payload: &[u8]) -> Result<Self, String> {
        let measured: HandlerTimes = serde_json::from_slice(payload)
            .map_err(|error| format!("{error}: {}", String::from_utf8_lossy(&payload[..payload.len().min(300)])))?;
        let [total_ms, extract_ms, load_ms, cpu_ms] =
            [measured.total_us, measured.extract_us, measured.load_us, measured.cpu_us].map(|us| us / 1e3);
        Ok(Self { total_ms, extract_ms, load_ms, cpu_ms, ..Self::default() })
    }

    /// Adds the figures of Lambda's REPORT line at the end of `log`.
    pub(crate) fn with_report(mut self, log: &str) -> Self {
        let Some(report) = log.lines().rev().find(|line| line.starts_with("REPORT ")) else { return self };
        let field = |name: &str| {
            let field = report.split('\t').find_map(|field| field.strip_prefix(name)?.strip_prefix(": "));
            field.and_then(|value| value.split(' ').next()?.parse::<f64>().ok())
        };
        let memory = |name: &str| field(name).map(|mb| ByteSize::mib(mb as u64));
        self.cold = field("Init Duration").is_some();
        self.peak = memory("Max Memory Used");
        self.billed_gb_s =
            memory("Memory Size").zip(field("Billed Duration")).map(|(booked, ms)| gb_seconds(booked, ms / 1e3));
        self.used_gb_s = self.peak.zip(field("Duration")).map(|(peak, ms)| gb_seconds(peak, ms / 1e3));
        self
    }

    /// Time of the client's calls: what a store without cost would save.
    pub(crate) fn data_ms(&self) -> f64 {
        self.extract_ms + self.load_ms
    }

    pub(crate) fn transform_ms(&self) -> f64 {
        (self.total_ms - self.data_ms()).max(0.0)
    }
}

impl Run {
    /// Takes over the figures of the platform's record, if `activation` is this invocation's.
    pub(crate) fn take_record(&mut self, activation: &Activation) {
        let Ok(answered) = &mut self.answered else { return };
        if answered.id.as_deref() != Some(activation.id.to_string().as_str()) {
            return;
        }
        let cost = Cost::of(activation);
        answered.billed_gb_s = Some(cost.billed_gb_s);
        answered.used_gb_s = cost.used_gb_s.or(answered.used_gb_s);
        answered.peak = activation.peak_memory.or(answered.peak);
        answered.record = Some(PlatformRecord {
            hits: activation.hits,
            misses: activation.misses,
            grown: activation.memory.grown.into(),
            retried: activation.attempt > 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_line_tells_of_memory_cost_and_cold_starts() {
        let answer = br#"{"total_us": 2000.0, "extract_us": 500.0, "load_us": 250.0, "cpu_us": 100}"#;
        let log = "START RequestId: 1\nREPORT of mine\nEND RequestId: 1\nREPORT RequestId: 1\tDuration: 1500.50 ms\t\
                   Billed Duration: 2000 ms\tMemory Size: 512 MB\tMax Memory Used: 256 MB\tInit Duration: 40.00 ms\n";
        let answered = InvocationTimes::read(answer).unwrap().with_report(log);
        assert!(answered.cold);
        assert_eq!(answered.peak, Some(ByteSize::mib(256)));
        assert_eq!(answered.billed_gb_s, Some(1.0));
        assert!((answered.used_gb_s.unwrap() - 0.375_125).abs() < 1e-9);
        assert_eq!((answered.data_ms(), answered.transform_ms()), (0.75, 1.25));
        assert!(!InvocationTimes::read(answer).unwrap().with_report("no report").cold);
        assert!(InvocationTimes::read(b"{}").unwrap_err().contains("total_us"));
    }
}
