//! `nigh metrics`.

use std::collections::BTreeMap;

use nigh_node::client::ClientError;
use serde::Serialize;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// One value of a metric.
#[derive(Debug, PartialEq, Serialize)]
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    /// JSON's null where the meter says NaN or infinity.
    value: f64,
}

/// Prints the running node's metrics, as Prometheus text or as a list of values.
pub(crate) async fn run(globals: &Globals) -> Result<(), CliError> {
    let text = globals.admin()?.text("/metrics").await?;
    if !globals.json {
        return output::bytes(&text);
    }
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let samples: Option<Vec<_>> = lines.map(sample).collect();
    match samples {
        Some(samples) => output::json(&samples),
        None => Err(ClientError::Answer {
            endpoint: "the admin API".to_owned(),
            reason: "its meters are not in Prometheus' text format".to_owned(),
        }
        .into()),
    }
}

/// A line of Prometheus' text exposition format 0.0.4 without a timestamp: `name{label="value"} 1`.
fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match series.split_once('{') {
        Some((name, rest)) => (name, labels(rest.strip_suffix('}')?)?),
        None => (series, BTreeMap::new()),
    };
    Some(Sample { name: name.to_owned(), labels, value })
}

/// `a="x",b="y"`, where a value has a backslash before a backslash, a quote and the n of a newline.
fn labels(mut text: &str) -> Option<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = rest.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        all.insert(name.to_owned(), value);
        let rest = &rest[end + 1..];
        text = rest.strip_prefix(',').unwrap_or(rest);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_prometheus_text_is_a_name_its_labels_and_a_value() {
        let plain = sample("process_threads 9").unwrap();
        assert_eq!((plain.name.as_str(), plain.labels.len(), plain.value), ("process_threads", 0, 9.0));
        let labelled = sample(r#"a_bucket{le="+Inf",path="say \"hi\", {b}\n\\"} 1.5e3"#).unwrap();
        assert_eq!((labelled.name.as_str(), labelled.value), ("a_bucket", 1500.0));
        assert_eq!(labelled.labels["le"], "+Inf");
        assert_eq!(labelled.labels["path"], "say \"hi\", {b}\n\\");
        assert_eq!(sample("a{b=\"c} 1"), None);
        assert_eq!(sample("a b"), None);
    }
}
