//! A latency histogram that a service exports as Prometheus text, and the latencies of the time between two scrapes.
//!
//! Prometheus histograms are cumulative in two ways: each bucket counts all latencies below its bound, and all since
//! the service started (Prometheus' "Exposition formats", text version 0.0.4). So two scrapes are subtracted, and each
//! bucket from the next. A latency counts with its bucket's bound; above the last bound it has no value. The text comes
//! over the network, so parsing is pure and bounded, and rejects whatever it does not understand.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;

use crate::latency_histogram::LatencyHistogram;

/// Bytes of one scrape.
pub const SCRAPE_BYTES_MAX: usize = 16 << 20;
/// Bounds of a histogram, and label sets of one that are added up.
const BUCKETS_MAX: usize = 4096;
/// Labels of one sample.
const LABELS_MAX: usize = 64;
/// Histograms that an error names.
const NAMED_MAX: usize = 20;

/// The label that holds a bucket's bound, and the bound of the last bucket.
const BOUND: &str = "le";
const INFINITY: u64 = u64::MAX;

/// Names by whose end the unit of a metric is known (Prometheus' naming practices name seconds; others are seen).
const UNITS: [(&str, f64); 6] = [
    ("_seconds", 1.0),
    ("_milliseconds", 1e-3),
    ("_ms", 1e-3),
    ("_microseconds", 1e-6),
    ("_us", 1e-6),
    ("_nanoseconds", 1e-9),
];

/// Why a text gives no histogram.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ExportError {
    /// More than is read.
    #[error("the exported text has {bytes} bytes, at most {SCRAPE_BYTES_MAX} are read; export the histogram alone")]
    TooLarge {
        /// How many.
        bytes: usize,
    },
    /// A line that is no sample.
    #[error("line {line} of the exported text is no Prometheus sample: {reason}")]
    BadLine {
        /// Which, from 1 on.
        line: usize,
        /// What is wrong.
        reason: &'static str,
    },
    /// The text does not name a histogram.
    #[error("{text:?} chooses no histogram ({reason}): write NAME or NAME{{label=\"value\"}}")]
    BadChoice {
        /// What was given.
        text: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The histogram is not in the text, or several are and none was chosen.
    #[error("there is no histogram {wanted} in the exported text; it has: {there}")]
    NoHistogram {
        /// What was asked for.
        wanted: String,
        /// The histograms in the text.
        there: String,
    },
    /// Several to choose from.
    #[error("the exported text has several histograms; choose one with --metric: {there}")]
    Several {
        /// Their names.
        there: String,
    },
    /// The unit of the numbers is unknown.
    #[error("the unit of {name} is not known: its name ends in none of _seconds, _milliseconds, _microseconds, ...")]
    NoUnit {
        /// The histogram.
        name: String,
    },
    /// A later bound that counts fewer.
    #[error(
        "the buckets of {name} are not cumulative: its samples have different bounds or were never a histogram; choose \
         samples by their labels: --metric '{name}{{label=\"value\"}}'"
    )]
    NotCumulative {
        /// The histogram.
        name: String,
    },
    /// Too many bounds.
    #[error("the histogram {name} has more than {BUCKETS_MAX} bounds")]
    TooManyBuckets {
        /// The histogram.
        name: String,
    },
    /// The histogram has no bucket at infinity, so longer latencies are not counted.
    #[error("the histogram {name} has no bucket le=\"+Inf\", so that its longest latencies are missing")]
    NoInfinity {
        /// The histogram.
        name: String,
    },
    /// The two texts are not of one histogram.
    #[error("the two scrapes of {name} have different bounds; was the service replaced?")]
    OtherBounds {
        /// The histogram.
        name: String,
    },
    /// Counts went down: the service has restarted.
    #[error("the counts of {name} went down between two scrapes: the service has restarted, and the window is lost")]
    Restarted {
        /// The histogram.
        name: String,
    },
}

/// Chooses a histogram by its name and labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HistogramChoice {
    /// The name without `_bucket`; if empty, the only histogram in the text.
    pub name: Option<String>,
    /// Labels with their values; samples that carry them and others are added up.
    pub labels: Vec<(String, String)>,
}

/// The counts since the service's start, by bound.
#[derive(Debug, Clone, PartialEq)]
pub struct ExportedHistogram {
    name: String,
    /// Bounds in nanoseconds, rising, and how many were at most so long; the last bound is infinity.
    counts: Vec<(u64, u64)>,
}

/// Labels with their values.
type Labels<'a> = Vec<(&'a str, String)>;

/// A sample's name, labels and value.
struct Sample<'a> {
    line: usize,
    name: &'a str,
    labels: Labels<'a>,
    value: f64,
}

impl HistogramChoice {
    /// `NAME`, or `NAME{label="value",...}`.
    ///
    /// # Errors
    /// If it is neither.
    pub fn parse(text: &str) -> Result<Self, ExportError> {
        let bad = |reason| ExportError::BadChoice { text: text.to_owned(), reason };
        let (name, rest) = take_name(text).map_err(bad)?;
        let (labels, rest) = take_labels(rest).map_err(bad)?;
        if !rest.trim().is_empty() {
            return Err(bad("something follows its labels"));
        }
        let name = name.strip_suffix("_bucket").unwrap_or(name).to_owned();
        Ok(Self {
            name: Some(name),
            labels: labels.into_iter().map(|(label, value)| (label.to_owned(), value)).collect(),
        })
    }

    fn wants(&self, sample: &Sample<'_>) -> bool {
        self.labels.iter().all(|(label, value)| sample.labels.iter().any(|(name, is)| name == label && is == value))
    }
}

impl ExportedHistogram {
    /// The histogram of a scrape that is chosen; samples of it that differ in labels are added up.
    ///
    /// # Errors
    /// If the text is not valid, or does not have exactly one such histogram with a known unit.
    pub fn parse(text: &str, choice: &HistogramChoice) -> Result<Self, ExportError> {
        if text.len() > SCRAPE_BYTES_MAX {
            return Err(ExportError::TooLarge { bytes: text.len() });
        }
        let mut found: BTreeMap<&str, Vec<Sample<'_>>> = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let sample = Sample::parse(line, at + 1).map_err(|reason| ExportError::BadLine { line: at + 1, reason })?;
            if let Some(name) = sample.name.strip_suffix("_bucket")
                && sample.labels.iter().any(|(label, _)| *label == BOUND)
            {
                found.entry(name).or_default().push(sample);
            }
        }
        let there = || joined(found.keys().copied());
        let name = match (&choice.name, found.len()) {
            (Some(name), _) => name.as_str(),
            (None, 1) => found.keys().next().copied().unwrap_or_default(),
            (None, 0) => return Err(ExportError::NoHistogram { wanted: "with buckets".to_owned(), there: there() }),
            (None, _) => return Err(ExportError::Several { there: there() }),
        };
        let samples = found.get(name).map_or(&[][..], Vec::as_slice);
        let mut samples = samples.iter().filter(|sample| choice.wants(sample)).peekable();
        if samples.peek().is_none() {
            return Err(ExportError::NoHistogram { wanted: name.to_owned(), there: there() });
        }
        Self::add_up(name, samples)
    }

    fn add_up<'a>(name: &str, samples: impl Iterator<Item = &'a Sample<'a>>) -> Result<Self, ExportError> {
        let name_of = || name.to_owned();
        let unit = UNITS.iter().find(|(end, _)| name.ends_with(end)).map(|(_, seconds)| seconds);
        let unit = unit.ok_or_else(|| ExportError::NoUnit { name: name_of() })?;
        let mut counts = BTreeMap::<u64, u64>::new();
        for sample in samples {
            let bad = |reason| ExportError::BadLine { line: sample.line, reason };
            let bound = sample.labels.iter().find(|(label, _)| *label == BOUND).and_then(|(_, le)| nanos(le, *unit));
            let bound = bound.ok_or_else(|| bad("its le is no bound"))?;
            if sample.value.is_nan() || sample.value < 0.0 {
                return Err(bad("its value is no count"));
            }
            let count = counts.entry(bound).or_default();
            // Counts saturate at 2^64.
            *count = count.saturating_add(sample.value as u64);
            if counts.len() > BUCKETS_MAX {
                return Err(ExportError::TooManyBuckets { name: name_of() });
            }
        }
        if !counts.contains_key(&INFINITY) {
            return Err(ExportError::NoInfinity { name: name_of() });
        }
        if !counts.values().is_sorted() {
            return Err(ExportError::NotCumulative { name: name_of() });
        }
        Ok(Self { name: name_of(), counts: counts.into_iter().collect() })
    }

    /// The longest finite bound; `None` if there is only infinity.
    #[must_use]
    pub fn longest_bound(&self) -> Option<Duration> {
        self.counts.iter().rev().map(|(bound, _)| *bound).find(|&bound| bound != INFINITY).map(Duration::from_nanos)
    }

    /// The latencies that were counted after `earlier`, an earlier scrape of the same histogram. Each is taken to be as
    /// long as its bucket's bound; beyond the last bound, longer than anything.
    ///
    /// # Errors
    /// If the service has restarted in between or has other bounds.
    pub fn since(&self, earlier: &Self) -> Result<LatencyHistogram, ExportError> {
        let bounds = |histogram: &Self| histogram.counts.iter().map(|(bound, _)| *bound).collect::<Vec<_>>();
        if bounds(self) != bounds(earlier) {
            return Err(ExportError::OtherBounds { name: self.name.clone() });
        }
        let mut latencies = LatencyHistogram::default();
        let mut shorter = 0;
        for (&(bound, now), &(_, before)) in self.counts.iter().zip(&earlier.counts) {
            let added = now.checked_sub(before).ok_or_else(|| ExportError::Restarted { name: self.name.clone() })?;
            // A scrape need not be of one instant: a bucket may know of less than the one before it.
            let here = added.saturating_sub(shorter);
            shorter = shorter.max(added);
            if bound == INFINITY {
                latencies.record_many(Duration::MAX, here);
            } else {
                latencies.record_at_most(Duration::from_nanos(bound), here);
            }
        }
        Ok(latencies)
    }
}

/// A bound in nanoseconds; below 1 ns it is 0.
fn nanos(le: &str, unit: f64) -> Option<u64> {
    let bound: f64 = le.trim().parse().ok()?;
    match bound {
        _ if bound == f64::INFINITY => Some(INFINITY),
        // Longer bounds saturate just below infinity, which stays distinct.
        _ if bound.is_finite() && bound >= 0.0 => Some(((bound * unit * 1e9).round() as u64).min(INFINITY - 1)),
        _ => None,
    }
}

fn joined<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let all: Vec<_> = names.take(NAMED_MAX).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

impl<'a> Sample<'a> {
    /// `name{label="value",...} value [timestamp]`, and what OpenMetrics puts behind a `#`.
    fn parse(text: &'a str, line: usize) -> Result<Self, &'static str> {
        let (name, rest) = take_name(text)?;
        let (labels, rest) = take_labels(rest)?;
        let rest = rest.split_once(" #").map_or(rest, |(before, _)| before);
        let mut fields = rest.split_ascii_whitespace();
        let value = fields.next().and_then(|value| value.parse().ok()).ok_or("it has no value that is a number")?;
        if fields.next().is_some_and(|timestamp| timestamp.parse::<f64>().is_err()) || fields.next().is_some() {
            return Err("something follows its value");
        }
        Ok(Self { line, name, labels, value })
    }
}

fn take_name(text: &str) -> Result<(&str, &str), &'static str> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    let (name, rest) = text.split_at(text.find(|c| !is_name(c)).unwrap_or(text.len()));
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return Err("it does not begin with a metric's name");
    }
    Ok((name, rest))
}

/// The labels in braces, if any, and the rest of the line.
fn take_labels(text: &str) -> Result<(Labels<'_>, &str), &'static str> {
    let mut labels = Vec::new();
    let Some(mut rest) = text.trim_start().strip_prefix('{') else { return Ok((labels, text)) };
    loop {
        rest = rest.trim_start();
        if let Some(after) = rest.strip_prefix('}') {
            return Ok((labels, after));
        }
        if labels.len() >= LABELS_MAX {
            return Err("it has too many labels");
        }
        let (name, after) = take_name(rest).map_err(|_| "a label has no name")?;
        let after = after.trim_start().strip_prefix('=').ok_or("a label has no value")?;
        let after = after.trim_start().strip_prefix('"').ok_or("a label's value has no quotes")?;
        let (value, after) = take_quoted(after).ok_or("a label's value does not end")?;
        labels.push((name, value));
        rest = after.trim_start();
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None if rest.starts_with('}') => {}
            None => return Err("its labels do not end"),
        }
    }
}

/// The text up to the closing quotes, its escapes undone, and what follows.
fn take_quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                escaped => value.push(escaped),
            },
            _ => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests;
