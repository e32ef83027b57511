//! The text of all metrics: in Prometheus' text format 0.0.4, or as OpenMetrics 1.0 for clients that accept it. Pure.
//!
//! The recorder writes the text format alone, and without what the node reads when it is asked. So its text is taken apart
//! into families, which are written anew: each once, described, and in a fixed order.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::families::{Kind, meaning};

/// A form of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Prometheus' text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// What a request's `Accept` prefers; the text format if it accepts both alike, or says nothing of either.
    pub(super) fn accepted(accept: Option<&str>) -> Self {
        let (mut text, mut open_metrics) = (0.0_f32, 0.0_f32);
        for range in accept.unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0_f32, None);
            for (name, value) in parts.filter_map(|part| part.split_once('=')) {
                match name {
                    "q" => quality = value.parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim_matches('"')),
                    _ => {}
                }
            }
            match (kind.as_str(), version) {
                ("application/openmetrics-text", None | Some("1.0.0")) => open_metrics = quality.max(open_metrics),
                ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", _) => text = quality.max(text),
                _ => {}
            }
        }
        if open_metrics > text { Self::OpenMetrics } else { Self::Text }
    }

    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A value that the node reads when it is asked for its metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    name: &'static str,
    labels: Vec<(&'static str, String)>,
    value: SampleValue,
}

#[derive(Clone, Debug, PartialEq)]
enum SampleValue {
    Number(f64),
    Histogram(SampledHistogram),
}

/// How values are distributed.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledHistogram {
    /// Each bound, and how many values are at most so large.
    pub buckets: Vec<(f64, u64)>,
    /// How many values there are.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl Sample {
    /// A counter or gauge.
    #[must_use]
    pub const fn number(name: &'static str, value: f64) -> Self {
        Self { name, labels: Vec::new(), value: SampleValue::Number(value) }
    }

    /// A histogram.
    #[must_use]
    pub const fn histogram(name: &'static str, histogram: SampledHistogram) -> Self {
        Self { name, labels: Vec::new(), value: SampleValue::Histogram(histogram) }
    }

    /// The same with a further label.
    #[must_use]
    pub fn with(mut self, label: &'static str, value: impl Into<String>) -> Self {
        self.labels.push((label, value.into()));
        self
    }

    fn lines(&self) -> Vec<String> {
        let line = |suffix: &str, bound: Option<String>, value: String| {
            let own = self.labels.iter().map(|(name, value)| (*name, value.as_str()));
            let all: Vec<String> = own
                .chain(bound.as_deref().map(|bound| ("le", bound)))
                .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                .collect();
            let labels = if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) };
            format!("{}{suffix}{labels} {value}", self.name)
        };
        match &self.value {
            SampleValue::Number(value) => vec![line("", None, value.to_string())],
            SampleValue::Histogram(SampledHistogram { buckets, count, sum }) => {
                let bounded = buckets.iter().map(|(bound, count)| (bound.to_string(), *count));
                let all = bounded.chain([("+Inf".to_owned(), *count)]);
                let buckets = all.map(|(bound, count)| line("_bucket", Some(bound), count.to_string()));
                let totals = [line("_sum", None, sum.to_string()), line("_count", None, count.to_string())];
                buckets.chain(totals).collect()
            }
        }
    }
}

/// A label's value between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// The lines of each family's samples.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Exposition(BTreeMap<String, Vec<String>>);

impl Exposition {
    /// The families of a text in Prometheus' format.
    pub(super) fn of_text(text: &str) -> Self {
        let (mut all, mut family) = (Self::default(), "");
        for line in text.lines() {
            if let Some(of_type) = line.strip_prefix("# TYPE ") {
                family = of_type.split(' ').next().unwrap_or_default();
            } else if !line.is_empty() && !line.starts_with('#') {
                all.0.entry(family.to_owned()).or_default().push(line.to_owned());
            }
        }
        all
    }

    pub(super) fn add(&mut self, sample: &Sample) {
        self.0.entry(sample.name.to_owned()).or_default().extend(sample.lines());
    }

    pub(super) fn write(&self, format: Format) -> String {
        let mut text = String::new();
        for (name, lines) in &self.0 {
            let kind = Kind::of(name);
            let (family, kind_name) = match format {
                Format::Text => (name.as_str(), kind.in_text()),
                Format::OpenMetrics => (kind.family(name), kind.as_str()),
            };
            // Writing to a String cannot fail.
            if let Some(meaning) = meaning(name) {
                let _ = writeln!(text, "# HELP {family} {meaning}");
            }
            let _ = writeln!(text, "# TYPE {family} {kind_name}");
            if let (Format::OpenMetrics, Some(unit)) = (format, unit_of(family)) {
                let _ = writeln!(text, "# UNIT {family} {unit}");
            }
            for line in lines {
                match (format, kind) {
                    (Format::OpenMetrics, Kind::Histogram) => text.push_str(&with_canonical_bound(line)),
                    _ => text.push_str(line),
                }
                text.push('\n');
            }
        }
        if format == Format::OpenMetrics {
            text.push_str("# EOF\n");
        }
        text
    }
}

/// The unit in a family's name.
fn unit_of(family: &str) -> Option<&'static str> {
    ["seconds", "bytes"].into_iter().find(|unit| family.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')))
}

/// The line with its bound, its last label, in the only form that OpenMetrics allows: `1.0`, `5e-05`.
fn with_canonical_bound(line: &str) -> String {
    let bound = line.rsplit_once("le=\"").and_then(|(head, rest)| Some((head, rest.split_once('"')?)));
    match bound.and_then(|(head, (bound, tail))| Some((head, bound.parse::<f64>().ok()?, tail))) {
        Some((head, bound, tail)) if bound.is_finite() => format!("{head}le=\"{}\"{tail}", canonical(bound)),
        _ => line.to_owned(),
    }
}

/// A number as Go and Python write it.
fn canonical(bound: f64) -> String {
    /// Smaller numbers have an exponent.
    const PLAIN_MIN: f64 = 1e-4;
    if bound >= PLAIN_MIN || bound <= 0.0 {
        return format!("{bound:?}");
    }
    let text = format!("{bound:e}");
    match text.split_once("e-") {
        Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
        None => text,
    }
}

#[cfg(test)]
mod tests;
