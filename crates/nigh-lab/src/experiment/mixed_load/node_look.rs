//! A node's memory during the load, by its status, which is read again and again.
//!
//! Fields of `memory` that a status lacks are none: a node that lends no memory has none of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nigh_node::gb_seconds;
use nigh_terms::ByteSize;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::LabError;
use crate::instrument::platform::admin_api;

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(200);
/// Counts in `memory` that only rise.
pub(super) const COUNTS: [&str; 8] =
    ["grown", "yielded", "refused", "idle_ended", "killed", "retried", "scale_up", "scale_down"];

/// What a node shows at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeLook {
    /// Milliseconds of the load.
    pub(super) at_ms: u64,
    /// What cached objects may take.
    pub(super) cache_bytes: u64,
    /// What they take.
    pub(super) kept_bytes: u64,
    /// What idle sandboxes book.
    pub(super) idle_booked_bytes: u64,
    /// What the cache has of what sandboxes book and do not use; none where the node does not say.
    pub(super) lent_bytes: Option<u64>,
}

impl NodeLook {
    fn read(status: &Value, at_ms: u64) -> Self {
        let of = |section: &str, field: &str| status[section][field].as_u64();
        Self {
            at_ms,
            cache_bytes: of("memory", "cache").or(of("cache", "budget")).unwrap_or(0),
            kept_bytes: of("cache", "kept").unwrap_or(0),
            idle_booked_bytes: of("sandboxes", "idle_booked").unwrap_or(0),
            lent_bytes: of("memory", "cache_takes"),
        }
    }
}

/// The counts that the node has.
fn counts(status: &Value) -> BTreeMap<String, u64> {
    let of = |name: &&str| Some(((*name).to_owned(), status["memory"][*name].as_u64()?));
    COUNTS.iter().filter_map(of).collect()
}

/// What was seen while one stretch of the load was played.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct StretchObservation {
    pub(super) looks: Vec<NodeLook>,
    /// The rise of each count.
    pub(super) counts: BTreeMap<String, u64>,
}

/// Reads the status of the node behind `admin` until `over`; the stretch begins at `from_s` of the load.
pub(super) fn watch(admin: &Path, from_s: f64, over: &AtomicBool) -> Result<StretchObservation, LabError> {
    let begin = Instant::now();
    let status = || admin_api::<Value>(admin, "/status");
    let before = counts(&status()?);
    let mut looks = Vec::new();
    while !over.load(Ordering::Acquire) {
        let at_ms = ((from_s + begin.elapsed().as_secs_f64()) * 1e3) as u64;
        looks.push(NodeLook::read(&status()?, at_ms));
        std::thread::sleep(PAUSE);
    }
    let after = counts(&status()?);
    let rise = |(name, count): (String, u64)| {
        let known = before.get(&name).copied().unwrap_or(0);
        (name, count.saturating_sub(known))
    };
    Ok(StretchObservation { looks, counts: after.into_iter().map(rise).collect() })
}

/// How often the cache's size rose and fell from one look to the next: a lower bound of all changes.
pub(super) fn scalings(looks: &[NodeLook]) -> (u64, u64) {
    let pairs = || looks.windows(2).map(|pair| (pair[0].cache_bytes, pair[1].cache_bytes));
    let count = |is: fn(&u64, &u64) -> bool| pairs().filter(|(before, after)| is(before, after)).count() as u64;
    (count(|before, after| after > before), count(|before, after| after < before))
}

/// GB-seconds of `bytes` up to each look. A pause between two stretches does not count.
pub(super) fn added_up(looks: &[NodeLook], bytes: impl Fn(&NodeLook) -> u64) -> Vec<(f64, f64)> {
    let mut total = 0.0;
    let mut points = Vec::with_capacity(looks.len());
    for (at, look) in looks.iter().enumerate() {
        let since = at.checked_sub(1).and_then(|before| looks.get(before)).map_or(0, |before| {
            let passed = look.at_ms.saturating_sub(before.at_ms);
            if passed > 10 * PAUSE.as_millis() as u64 { 0 } else { passed }
        });
        total += gb_seconds(ByteSize(bytes(look)), since as f64 / 1e3);
        points.push((look.at_ms as f64 / 6e4, total));
    }
    points
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn look(at_ms: u64, cache_bytes: u64, idle_booked_bytes: u64) -> NodeLook {
        let status = json!({
            "cache": { "budget": cache_bytes, "kept": 1 },
            "sandboxes": { "booked": 9, "idle_booked": idle_booked_bytes },
        });
        NodeLook::read(&status, at_ms)
    }

    #[test]
    fn a_node_that_lends_memory_is_read_by_its_own_figures_and_another_by_its_cache() {
        let plain = look(0, 7, 5);
        assert_eq!((plain.cache_bytes, plain.idle_booked_bytes, plain.lent_bytes), (7, 5, None));
        let status = json!({
            "cache": { "budget": 7 },
            "memory": { "cache": 70, "granted": 3, "cache_takes": 63, "grown": 2, "killed": 0 },
        });
        let lends = NodeLook::read(&status, 0);
        assert_eq!((lends.cache_bytes, lends.lent_bytes), (70, Some(63)));
        assert_eq!(counts(&status), BTreeMap::from([("grown".to_owned(), 2), ("killed".to_owned(), 0)]));
        assert!(counts(&json!({})).is_empty());
    }

    #[test]
    fn the_caches_size_rises_and_falls_between_looks() {
        let looks = [look(0, 5, 0), look(1, 7, 0), look(2, 7, 0), look(3, 6, 0), look(4, 9, 0)];
        assert_eq!(scalings(&looks), (2, 1));
        assert_eq!(scalings(&[]), (0, 0));
    }

    #[test]
    fn gigabytes_add_up_over_seconds_and_pauses_count_nothing() {
        let gib = 1 << 30;
        let looks = [look(0, 0, gib), look(500, 0, gib), look(1000, 0, 2 * gib), look(60_000, 0, gib)];
        let points = added_up(&looks, |look| look.idle_booked_bytes);
        assert_eq!(points.iter().map(|(_, total)| *total).collect::<Vec<_>>(), [0.0, 0.5, 1.5, 1.5]);
        assert_eq!(points[3].0, 1.0, "minutes");
    }
}
