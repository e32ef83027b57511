//! The steps of a takeover, from the nodes' logs: lines of the tracing target `failover`, as JSON.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use serde_json::Value;

use crate::LabError;
use crate::instrument::error::Tried;

/// The settings by which a node logs its steps.
pub(super) const SETTINGS: [&str; 2] = ["log.level=info,failover=debug", "log.format=json"];
/// Bytes of a log that are read at once.
const READ_MAX: u64 = 64 << 20;

/// The steps of a shard's takeover, in their order. The first is of the node that takes it.
pub(super) const SHARD_STEPS: [&str; 9] =
    ["expired", "begun", "claimed", "opened", "epoch", "read", "took", "summary", "served"];
/// The steps of a namespace's takeover, in their order.
pub(super) const OWNER_STEPS: [&str; 3] = ["owner_claimed", "owner_announced", "owner_began"];

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct StepLine {
    /// The node that logged it.
    pub(super) node: usize,
    /// Milliseconds since 1970.
    pub(super) at: f64,
    pub(super) step: String,
    pub(super) shard: Option<u16>,
    /// The node that the step is about.
    pub(super) about: Option<String>,
}

/// The log files of all nodes, and how far each was read.
#[derive(Debug)]
pub(super) struct NodeLogs {
    files: Vec<(PathBuf, u64)>,
    pub(super) lines: Vec<StepLine>,
}

impl NodeLogs {
    pub(super) fn new(files: Vec<PathBuf>) -> Self {
        Self { files: files.into_iter().map(|file| (file, 0)).collect(), lines: Vec::new() }
    }

    /// Reads what the nodes have logged since the last call.
    pub(super) fn read(&mut self) -> Result<(), LabError> {
        for (node, (path, from)) in self.files.iter_mut().enumerate() {
            let mut file = File::open(&*path).at(&*path)?;
            file.seek(SeekFrom::Start(*from)).at(&*path)?;
            let mut text = Vec::new();
            file.take(READ_MAX).read_to_end(&mut text).at(&*path)?;
            // The last line may not be whole yet.
            let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            *from += whole as u64;
            self.lines.extend(text[..whole].split(|byte| *byte == b'\n').filter_map(|line| line_of(node, line)));
        }
        Ok(())
    }

    /// The node that owns a namespace's dispatch, as it was logged last.
    pub(super) fn owner(&self) -> Option<usize> {
        let began = self.lines.iter().filter(|line| line.step == "owner_began");
        began.max_by(|one, other| one.at.total_cmp(&other.at)).map(|line| line.node)
    }

    /// Milliseconds from the moment `blow` to each step by which a node other than `failed` took `shard`; empty if none did.
    pub(super) fn shard_steps(&self, shard: u16, (failed, name): (usize, &str), blow: f64) -> BTreeMap<String, f64> {
        let of_shard = |line: &&StepLine| line.at >= blow && line.node != failed && line.shard == Some(shard);
        let served = self.lines.iter().filter(of_shard).find(|line| line.step == "served");
        let Some(served) = served else { return BTreeMap::new() };
        let last = |step: &str| {
            let is_of = |line: &&StepLine| match step {
                "expired" => line.about.as_deref() == Some(name),
                _ => line.shard == Some(shard),
            };
            self.last_until(step, served, blow, is_of)
        };
        SHARD_STEPS.iter().filter_map(|step| Some(((*step).to_owned(), last(step)?))).collect()
    }

    /// Milliseconds from `blow` to the last line of `step` at the node of `end`, up to `end`.
    fn last_until(&self, step: &str, end: &StepLine, blow: f64, is_of: impl Fn(&&StepLine) -> bool) -> Option<f64> {
        let at_node = |line: &&StepLine| line.node == end.node && line.at >= blow && line.at <= end.at;
        let found = self.lines.iter().filter(at_node).rfind(|line| line.step == step && is_of(line));
        found.map(|line| line.at - blow)
    }

    /// Milliseconds from the moment `blow` to each step by which a node other than `failed` took the namespace; empty if none
    /// did.
    pub(super) fn owner_steps(&self, (failed, name): (usize, &str), blow: f64) -> BTreeMap<String, f64> {
        let since = |line: &&StepLine| line.at >= blow && line.node != failed;
        let began = self.lines.iter().filter(since).find(|line| line.step == "owner_began");
        let Some(began) = began else { return BTreeMap::new() };
        let is_of = |line: &&StepLine| line.step != "expired" || line.about.as_deref() == Some(name);
        let last = |step: &str| self.last_until(step, began, blow, is_of);
        let steps = ["expired"].into_iter().chain(OWNER_STEPS);
        steps.filter_map(|step| Some((step.to_owned(), last(step)?))).collect()
    }

    /// How often `step` was logged since `blow` by another node than `failed`.
    pub(super) fn count(&self, step: &str, failed: usize, blow: f64) -> usize {
        self.lines.iter().filter(|line| line.at >= blow && line.node != failed && line.step == step).count()
    }
}

/// A line of the log, if it is a step.
fn line_of(node: usize, line: &[u8]) -> Option<StepLine> {
    let line: Value = serde_json::from_slice(line).ok()?;
    if line["target"] != "failover" {
        return None;
    }
    let fields = &line["fields"];
    Some(StepLine {
        node,
        at: milliseconds_of(line["timestamp"].as_str()?)?,
        step: fields["step"].as_str()?.to_owned(),
        shard: fields["shard"].as_str().and_then(|shard| shard.parse().ok()),
        about: fields["node"].as_str().map(str::to_owned),
    })
}

/// Milliseconds since 1970 of a date like `2026-11-26T06:05:55.123456Z`.
fn milliseconds_of(date: &str) -> Option<f64> {
    let (day, time) = date.strip_suffix('Z')?.split_once('T')?;
    let mut day = day.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (day.next()??, day.next()??, day.next()??);
    let mut time = time.splitn(3, ':').map(|part| part.parse::<f64>().ok());
    let (hours, minutes, seconds) = (time.next()??, time.next()??, time.next()??);
    // The year is counted from March, so that the day of the leap year is its last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days = days + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some((((days * 24) as f64 + hours) * 60.0 + minutes) * 60_000.0 + seconds * 1000.0)
}

#[cfg(test)]
mod tests {
    use nigh_terms::Timestamp;

    use super::*;

    #[test]
    fn dates_are_read_as_they_are_written() {
        for ms in [0_u64, 951_782_399_999, 951_827_696_789, 1_700_000_000_120, 1_798_761_599_001] {
            let date = Timestamp(ms).rfc3339();
            assert_eq!(milliseconds_of(&date).map(|read| read.round() as u64), Some(ms), "{date}");
        }
        assert_eq!(milliseconds_of("2026-11-26"), None);
    }

    fn line(node: usize, at: f64, step: &str, shard: Option<u16>) -> StepLine {
        let about = (step == "expired").then(|| "node-1".to_owned());
        StepLine { node, at, step: step.to_owned(), shard, about }
    }

    #[test]
    fn the_steps_are_those_of_the_node_that_serves_the_shard_then() {
        let mut logs = NodeLogs::new(Vec::new());
        logs.lines = vec![
            line(2, 90.0, "served", Some(3)),
            line(1, 110.0, "expired", None),
            line(2, 120.0, "expired", None),
            line(1, 125.0, "claimed", Some(3)),
            line(2, 130.0, "claimed", Some(3)),
            line(2, 140.0, "claimed", Some(3)),
            line(2, 150.0, "served", Some(3)),
            line(2, 160.0, "claimed", Some(3)),
            line(1, 131.0, "owner_claimed", None),
            line(1, 133.0, "owner_began", None),
        ];
        let steps = logs.shard_steps(3, (0, "node-1"), 100.0);
        let expected = [("claimed", 40.0), ("expired", 20.0), ("served", 50.0)];
        assert_eq!(steps, expected.map(|(step, at)| (step.to_owned(), at)).into());
        assert!(logs.shard_steps(4, (0, "node-1"), 100.0).is_empty());
        let steps = logs.owner_steps((0, "node-1"), 100.0);
        assert_eq!(steps["expired"], 10.0);
        assert_eq!((steps["owner_claimed"], steps["owner_began"], logs.owner()), (31.0, 33.0, Some(1)));
        assert_eq!(logs.count("claimed", 2, 100.0), 1);
    }

    #[test]
    fn a_line_that_is_no_step_is_passed_over() {
        let text = br#"{"timestamp":"1970-01-01T00:00:01.5Z","level":"DEBUG","fields":{"step":"took","shard":"7"},"target":"failover"}"#;
        assert_eq!(line_of(1, text), Some(line(1, 1500.0, "took", Some(7))));
        assert_eq!(line_of(1, &text[..40]), None);
        assert_eq!(line_of(1, br#"{"timestamp":"1970-01-01T00:00:01Z","fields":{"step":"x"},"target":"nigh"}"#), None);
    }
}
