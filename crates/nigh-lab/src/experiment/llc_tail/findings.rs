//! What a sweep shows: the best point against no CAT, loads within the objective, where larger is worse, what the guard gave.
//! Pure.

use nigh_terms::Ways;
use serde::Serialize;

use super::sweep::{Configuration, GuardRun, Point, Row};

/// The paper's line: 99.9 % of the requests within 70 us.
pub(super) const SLO_US: f64 = 70.0;
/// A point that drops more than this part of its requests is overloaded: its tail is the ring's length.
const OVERLOADED: f64 = 0.001;
/// A larger partition is called worse from this ratio of tails on; below, it may be chance.
const WORSE: f64 = 1.1;

impl Point {
    const fn is_stable(&self) -> bool {
        self.dropped <= OVERLOADED
    }
}

/// The load and partition whose tail is shortest against no CAT; only loads that no CAT serves without dropping.
#[derive(Clone, Debug, Serialize)]
pub(super) struct BestTail {
    pub(super) load_mops: f64,
    pub(super) ways: Ways,
    pub(super) no_cat_us: f64,
    pub(super) partitioned_us: f64,
    pub(super) no_contention_us: f64,
    pub(super) ratio: f64,
    /// Without the network's constant part.
    pub(super) ratio_in_server: f64,
}

/// The highest load that a configuration serves within the objective, all lower ones too; none if not the lowest.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Reach {
    pub(super) configuration: Configuration,
    pub(super) mops: Option<f64>,
}

/// A larger partition with a longer tail.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LargerIsWorse {
    pub(super) load_mops: f64,
    pub(super) smaller: Ways,
    pub(super) larger: Ways,
    pub(super) smaller_us: f64,
    pub(super) larger_us: f64,
    /// What the store's lines met at each: the part from memory, and how busy that was.
    pub(super) smaller_misses: f64,
    pub(super) larger_misses: f64,
    pub(super) smaller_memory_load: f64,
    pub(super) larger_memory_load: f64,
}

/// What the guard's choice gave, read from the sweep.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GuardResult {
    pub(super) objective: &'static str,
    pub(super) run: GuardRun,
    pub(super) tail_us: f64,
    /// Over the tail without contention at the same load.
    pub(super) over_no_contention: f64,
    /// The greatest such ratio at this and all lower loads.
    pub(super) over_no_contention_up_to_here: f64,
    pub(super) batch_loss: f64,
    /// The greatest loss at this and all lower loads.
    pub(super) batch_loss_up_to_here: f64,
}

pub(super) fn row_of(rows: &[Row], configuration: Configuration) -> Option<&Row> {
    rows.iter().find(|row| row.configuration == configuration)
}

pub(super) fn partitions(rows: &[Row]) -> impl Iterator<Item = (Ways, &Row)> {
    rows.iter().filter_map(|row| match row.configuration {
        Configuration::Partition(ways) => Some((ways, row)),
        Configuration::NoContention | Configuration::NoCat => None,
    })
}

/// The best point of the sweep among some loads (Mops); none if no CAT is overloaded at each of them.
pub(super) fn best(rows: &[Row], network_us: f64, among: impl Fn(f64) -> bool) -> Option<BestTail> {
    let (alone, shared) = (row_of(rows, Configuration::NoContention)?, row_of(rows, Configuration::NoCat)?);
    let candidates = partitions(rows).flat_map(|(ways, row)| {
        let points = row.points.iter().zip(&shared.points).zip(&alone.points);
        points.filter(|((_, shared), _)| shared.is_stable() && among(shared.load_mops)).map(
            move |((own, shared), alone)| BestTail {
                load_mops: own.load_mops,
                ways,
                no_cat_us: shared.p999_us,
                partitioned_us: own.p999_us,
                no_contention_us: alone.p999_us,
                ratio: shared.p999_us / own.p999_us,
                ratio_in_server: (shared.p999_us - network_us) / (own.p999_us - network_us),
            },
        )
    });
    candidates.max_by(|a, b| a.ratio.total_cmp(&b.ratio))
}

pub(super) fn reaches(rows: &[Row]) -> Vec<Reach> {
    let reach = |row: &Row| {
        let within = row.points.iter().take_while(|point| point.is_stable() && point.p999_us <= SLO_US);
        Reach { configuration: row.configuration, mops: within.last().map(|point| point.load_mops) }
    };
    rows.iter().map(reach).collect()
}

/// The pair of partitions with the greatest ratio of tails the wrong way round, at a load that the smaller one serves.
pub(super) fn larger_is_worse(rows: &[Row]) -> Option<LargerIsWorse> {
    let mut worst: Option<LargerIsWorse> = None;
    for (smaller, few) in partitions(rows) {
        for (larger, many) in partitions(rows).filter(|(larger, _)| *larger > smaller) {
            for (few, many) in few.points.iter().zip(&many.points).filter(|(few, _)| few.is_stable()) {
                let ratio = many.p999_us / few.p999_us;
                if ratio >= worst.as_ref().map_or(WORSE, |worst| worst.larger_us / worst.smaller_us) {
                    worst = Some(LargerIsWorse {
                        load_mops: few.load_mops,
                        smaller,
                        larger,
                        smaller_us: few.p999_us,
                        larger_us: many.p999_us,
                        smaller_misses: few.misses,
                        larger_misses: many.misses,
                        smaller_memory_load: few.memory_load,
                        larger_memory_load: many.memory_load,
                    });
                }
            }
        }
    }
    worst
}

/// What the guard's choice gave at its load and below; none if the sweep has no such partition.
pub(super) fn guard_result(rows: &[Row], objective: &'static str, run: GuardRun) -> Option<GuardResult> {
    let (alone, own) = (row_of(rows, Configuration::NoContention)?, row_of(rows, Configuration::Partition(run.ways))?);
    let here = own.points.iter().position(|point| point.load_mops >= run.load_mops - 1e-9)?;
    let over = |at: usize| own.points[at].p999_us / alone.points[at].p999_us;
    let loss = |at: usize| own.points[at].batch_loss.unwrap_or(0.0);
    Some(GuardResult {
        objective,
        tail_us: own.points[here].p999_us,
        over_no_contention: over(here),
        over_no_contention_up_to_here: (0..=here).map(over).fold(0.0, f64::max),
        batch_loss: loss(here),
        batch_loss_up_to_here: (0..=here).map(loss).fold(f64::NEG_INFINITY, f64::max),
        run,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A row of tails (us) at 1, 2, ... Mops; 1000 us and more drop requests.
    fn row(configuration: Configuration, tails: &[f64]) -> Row {
        let point = |(at, &tail): (usize, &f64)| Point {
            load_mops: (at + 1) as f64,
            p50_us: 10.0,
            p95_us: 11.0,
            p99_us: 12.0,
            p999_us: tail,
            dropped: if tail >= 1000.0 { 0.2 } else { 0.0 },
            service_ns: 200.0,
            misses: 0.1,
            memory_load: 0.5,
            batch_progress: 0.5,
            batch_loss: matches!(configuration, Configuration::Partition(_)).then_some(0.02 * (at + 1) as f64),
        };
        Row { configuration, points: tails.iter().enumerate().map(point).collect() }
    }

    pub(in super::super) fn rows() -> Vec<Row> {
        vec![
            row(Configuration::NoContention, &[11.0, 12.0, 14.0]),
            row(Configuration::NoCat, &[14.0, 60.0, 2000.0]),
            row(Configuration::Partition(Ways(1)), &[13.0, 30.0, 1500.0]),
            row(Configuration::Partition(Ways(2)), &[11.0, 12.0, 15.0]),
            row(Configuration::Partition(Ways(9)), &[11.0, 15.0, 45.0]),
        ]
    }

    #[test]
    fn the_best_point_is_one_that_no_cat_serves() {
        let best = best(&rows(), 10.0, |_| true).unwrap();
        assert_eq!((best.load_mops, best.ways, best.ratio), (2.0, Ways(2), 5.0));
        assert_eq!(best.ratio_in_server, 25.0);
        assert_eq!(super::best(&rows(), 10.0, |mops| mops < 1.5).unwrap().load_mops, 1.0);
        assert!(super::best(&rows(), 10.0, |mops| mops > 2.5).is_none(), "no CAT drops there");
    }

    #[test]
    fn the_reach_ends_before_the_first_load_that_misses() {
        let reaches: Vec<_> = reaches(&rows()).into_iter().map(|reach| reach.mops).collect();
        assert_eq!(reaches, [Some(3.0), Some(2.0), Some(2.0), Some(3.0), Some(3.0)]);
    }

    #[test]
    fn a_larger_partition_that_is_worse_is_named() {
        let worse = larger_is_worse(&rows()).unwrap();
        assert_eq!((worse.load_mops, worse.smaller, worse.larger), (3.0, Ways(2), Ways(9)));
        assert!(larger_is_worse(&rows()[..4]).is_none());
    }

    #[test]
    fn the_guards_choice_is_read_at_its_load_and_below() {
        let run = GuardRun {
            limit_us: 13.2,
            slack: 0.95,
            load_mops: 2.0,
            sizes: vec![Ways(5), Ways(2)],
            ways: Ways(2),
            windows: Some(20),
            met: true,
        };
        let result = guard_result(&rows(), "x", run).unwrap();
        assert_eq!((result.tail_us, result.over_no_contention, result.batch_loss), (12.0, 1.0, 0.04));
        assert_eq!(result.batch_loss_up_to_here, 0.04);
    }
}
