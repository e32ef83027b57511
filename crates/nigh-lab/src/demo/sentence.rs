//! What the demonstration showed, in one sentence whose words are chosen by what was measured, and a line for each function
//! that got slower. Pure.

use super::report::{Change, Comparison, DemoReport, comparisons};
use super::table::milliseconds;

/// A function whose direct time is work for this share or more has little that could get faster.
const MOSTLY_WORK: f64 = 0.8;
/// The work of a sandboxed function costs more processor time from this ratio on.
const COSTS_MORE: f64 = 1.02;
const GIB: f64 = (1_u64 << 30) as f64;

/// A sentence for a run with one side alone.
pub(super) const NO_COMPARISON: &str = "There is no second store to compare with, so no improvement is claimed.";

/// `one`, `one and two`, `one, two and three`.
fn listed(items: &[String]) -> String {
    match items {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// `97 %`, or `84 to 98 %`.
fn percents(shares: &[f64]) -> String {
    let of = |share: f64| format!("{:.0}", share * 100.0);
    let (low, high) = shares.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &one| (low.min(one), high.max(one)));
    if of(low) == of(high) { format!("{} %", of(high)) } else { format!("{} to {} %", of(low), of(high)) }
}

fn name(comparison: &Comparison<'_>) -> String {
    comparison.nigh.function.clone()
}

/// The share of a function's direct time that is work.
fn work(comparison: &Comparison<'_>) -> f64 {
    comparison.direct.map_or(f64::NAN, |direct| direct.transform)
}

/// `run as before`, with the reason that the measured shares give.
fn unchanged(functions: &[Comparison<'_>]) -> Vec<String> {
    let (mostly_work, others): (Vec<Comparison<'_>>, Vec<Comparison<'_>>) =
        functions.iter().copied().partition(|one| work(one) >= MOSTLY_WORK);
    let mut parts = Vec::new();
    let verb = |count: usize| if count == 1 { "runs" } else { "run" };
    if !mostly_work.is_empty() {
        let names: Vec<String> = mostly_work.iter().map(name).collect();
        let shares: Vec<f64> = mostly_work.iter().map(work).collect();
        let their = if names.len() == 1 { "its" } else { "their" };
        parts.push(format!(
            "{} {} as before, because {} of {their} time is work, not data",
            listed(&names),
            verb(names.len()),
            percents(&shares)
        ));
    }
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(name).collect();
        parts.push(format!(
            "of {} the runs show no difference, though {} of the time is data",
            listed(&names),
            percents(&others.iter().map(|one| 1.0 - work(one)).collect::<Vec<_>>())
        ));
    }
    parts
}

/// What got how much faster, what did not and why, how much booked memory became cache, and what it cost.
pub(super) fn sentence(report: &DemoReport) -> String {
    let all = comparisons(&report.summaries);
    let compared: Vec<Comparison<'_>> = all.iter().copied().filter(|one| one.change().is_some()).collect();
    if compared.is_empty() {
        return NO_COMPARISON.to_owned();
    }
    let of = |change: Change| -> Vec<Comparison<'_>> {
        compared.iter().copied().filter(|one| one.change() == Some(change)).collect()
    };
    let ratio = |one: &Comparison<'_>| one.nigh.ratio_to_direct.unwrap_or(f64::NAN);
    let mut parts = Vec::new();

    let mut faster = of(Change::Faster);
    faster.sort_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let times = faster.iter().enumerate().map(|(at, one)| {
        let times = format!("{:.1} times", 1.0 / ratio(one));
        if at == 0 { format!("{} runs {times} as fast", name(one)) } else { format!("{} {times}", name(one)) }
    });
    parts.push(match listed(&times.collect::<Vec<_>>()) {
        none if none.is_empty() => "no function runs measurably faster".to_owned(),
        faster => faster,
    });
    parts.extend(unchanged(&of(Change::NotShown)));
    let varied: Vec<String> = of(Change::WorkVaried).iter().map(name).collect();
    if !varied.is_empty() {
        let took = "took less time, but mostly in the work, which is no gain of Nigh's";
        parts.push(format!("{} {took}", listed(&varied)));
    }
    let slower = of(Change::Slower);
    if !slower.is_empty() {
        let times = slower
            .iter()
            .enumerate()
            .map(|(at, one)| format!("{}{} {:.2} times", name(one), if at == 0 { " takes" } else { "" }, ratio(one)));
        parts.push(format!("{} as long, for the reason below", listed(&times.collect::<Vec<_>>())));
    }
    if let Some(memory) = report.memory {
        let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB);
        let (cache, booked) = (gib(memory.cache_bytes()), gib(memory.booked_bytes));
        parts.push(format!("{cache} of the {booked} that functions booked became cache"));
    }
    parts.push(cost(report, &compared));
    format!("Through Nigh {}.", parts.join("; "))
}

/// What it cost: Nigh's own processor time, and that of the functions' work.
fn cost(report: &DemoReport, compared: &[Comparison<'_>]) -> String {
    let own = format!("it costs {} ms of Nigh's processor time an invocation", milliseconds(report.node_processor_ms));
    let ratios: Vec<f64> = compared.iter().filter_map(|one| one.nigh.processor_ratio_to_direct).collect();
    let Some(most) = ratios.iter().copied().reduce(f64::max) else { return own };
    let least = ratios.iter().copied().fold(most, f64::min);
    let work = if format!("{least:.2}") == format!("{most:.2}") {
        format!("{most:.2}")
    } else {
        format!("{least:.2} to {most:.2}")
    };
    format!("{own}, and the functions take {work} of their direct processor time")
}

/// Why each function that got slower did, as far as the measurement tells.
pub(super) fn explanations(report: &DemoReport) -> Vec<String> {
    let all = comparisons(&report.summaries);
    all.iter().filter(|one| one.change() == Some(Change::Slower)).filter_map(explanation).collect()
}

fn explanation(slower: &Comparison<'_>) -> Option<String> {
    let Comparison { direct, nigh } = *slower;
    let direct = direct?;
    let more_work = nigh.phases_ms.transform - direct.phases_ms.transform;
    let more_objects = nigh.objects_ms() - direct.objects_ms();
    let ratio = nigh.ratio_to_direct.unwrap_or(f64::NAN);
    let processor = nigh.processor_ratio_to_direct;
    let reason = if more_objects > more_work {
        let [through_nigh, directly] = [nigh, direct].map(|one| milliseconds(one.objects_ms()));
        format!("its objects took {through_nigh} ms instead of {directly}")
    } else {
        let longer = format!("its work took {} ms longer", milliseconds(more_work));
        match processor {
            Some(processor) if processor >= COSTS_MORE => {
                format!("{longer} and {processor:.2} times the processor time: that is the sandbox's cost")
            }
            Some(processor) => format!(
                "{longer} in {processor:.2} of the processor time: it waited for processors, of which a sandbox gets its fair \
                 share and no more, while without one a function with several threads takes what others leave or need"
            ),
            None => longer,
        }
    };
    Some(format!("{} took {ratio:.2} times as long: {reason}.", nigh.function))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::report::tests::{made_up, report};
    use crate::demo::report::{BookedMemory, Side, Summary};

    fn faster(name: &str, ratio: f64) -> Vec<Summary> {
        made_up(name, [40.0, 20.0, 40.0], [40.0 * ratio, 20.0 * ratio, 40.0 * ratio], [ratio - 0.02, ratio + 0.02])
    }

    #[test]
    fn the_sentence_says_what_got_faster_what_did_not_and_why_the_memory_and_the_cost() {
        let work = made_up("speech", [10.0, 980.0, 10.0], [1.0, 985.0, 1.0], [0.97, 1.02]);
        let all = [faster("effect", 0.4), work, faster("thumbnail", 0.25)].concat();
        assert_eq!(
            sentence(&report(all)),
            "Through Nigh thumbnail runs 4.0 times as fast and effect 2.5 times; speech runs as before, because 98 % of its \
             time is work, not data; 3.0 GiB of the 4.0 GiB that functions booked became cache; it costs 3.3 ms of Nigh's \
             processor time an invocation, and the functions take 1.00 of their direct processor time."
        );
    }

    #[test]
    fn nothing_is_claimed_that_was_not_shown() {
        let mut nigh = faster("f", 0.5);
        nigh.retain(|one| one.side == Side::Nigh);
        nigh[0].ratio_low = None;
        nigh[0].ratio_high = None;
        assert_eq!(sentence(&report(nigh)), NO_COMPARISON);

        // Half of its time is data, and still it is not faster: work is no reason.
        let data = made_up("wordcount", [25.0, 50.0, 25.0], [25.0, 50.0, 24.0], [0.95, 1.05]);
        let mut none = report(data);
        none.memory = None;
        let told = sentence(&none);
        assert!(
            told.starts_with("Through Nigh no function runs measurably faster; of wordcount the runs show no"),
            "{told}"
        );
        assert!(told.contains("though 50 % of the time is data") && !told.contains("cache"), "{told}");
    }

    #[test]
    fn time_that_the_work_saved_is_no_gain() {
        let told = sentence(&report(made_up("sepia", [14.0, 240.0, 24.0], [2.0, 180.0, 5.0], [0.6, 0.9])));
        assert!(
            told.contains("no function runs measurably faster; sepia took less time, but mostly in the work"),
            "{told}"
        );
    }

    #[test]
    fn several_functions_of_work_are_told_with_the_range_of_their_shares_and_the_costs_with_theirs() {
        let mut speech = made_up("speech", [10.0, 980.0, 10.0], [1.0, 985.0, 1.0], [0.97, 1.02]);
        speech[1].processor_ratio_to_direct = Some(0.88);
        let resize = made_up("resize", [50.0, 900.0, 50.0], [10.0, 970.0, 10.0], [0.97, 1.02]);
        let told = sentence(&report([speech, resize].concat()));
        assert!(told.contains("speech and resize run as before, because 90 to 98 % of their time is work"), "{told}");
        assert!(told.contains("take 0.88 to 1.00 of their"), "{told}");
    }

    #[test]
    fn a_function_that_got_slower_is_told_with_the_reason_that_was_measured() {
        let reason = |nigh: [f64; 3], processor: Option<f64>| {
            let mut summaries = made_up("resize", [20.0, 900.0, 30.0], nigh, [1.01, 1.09]);
            summaries[1].processor_ratio_to_direct = processor;
            let report = report(summaries);
            let told = sentence(&report);
            assert!(told.contains("resize takes 1.") && told.contains("for the reason below"), "{told}");
            explanations(&report).pop().unwrap()
        };
        let waited = reason([5.0, 990.0, 5.0], Some(1.0));
        assert!(
            waited.starts_with("resize took 1.05 times as long: its work took 90.0 ms longer in 1.00 of"),
            "{waited}"
        );
        let cost = reason([5.0, 990.0, 5.0], Some(1.1));
        assert!(cost.contains("1.10 times the processor time") && cost.contains("sandbox's cost"), "{cost}");
        let objects = reason([120.0, 900.0, 40.0], Some(1.0));
        assert!(objects.ends_with("its objects took 160 ms instead of 50.0."), "{objects}");
        assert!(reason([5.0, 990.0, 5.0], None).ends_with("its work took 90.0 ms longer."));
        assert!(explanations(&report(faster("f", 0.5))).is_empty());
    }

    #[test]
    fn the_memory_is_that_of_the_report() {
        let mut report = report(faster("f", 0.5));
        report.memory = Some(BookedMemory { booked_bytes: 5 << 29, granted_bytes: 5 << 29 });
        assert!(sentence(&report).contains("0.0 GiB of the 2.5 GiB"));
    }
}
