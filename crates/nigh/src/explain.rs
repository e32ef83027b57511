//! `nigh explain`: one invocation on a line of time.

use clap::Args;
use nigh_node::explain::{Explanation, Shares, Step, StepKind, note_words, outcome_words};
use nigh_node::{Activation, Cost, Outcome, SandboxStart};
use serde_json::Value;

use crate::activations::date_start;
use crate::chosen_invocation;
use crate::context::Globals;
use crate::error::CliError;
use crate::failure;
use crate::output::{self, Colour, coloured, duration};
use crate::printable;

/// Columns of the line of time.
const WIDTH: usize = 48;
/// Data calls shown; the others are counted.
const STEPS_MAX: usize = 40;

/// Options of `nigh explain`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh explain                    the last invocation
  nigh explain 01a20ebd-7c31      the only one whose id begins so

In a cluster any node explains what ran on any member.")]
pub(crate) struct ExplainArgs {
    /// The invocation's id or the beginning of it, from `nigh activations` or `nigh invoke` [default: the last invocation]
    id: Option<String>,
    /// If it failed: show its whole stack trace and log
    #[arg(long, short)]
    verbose: bool,
}

/// Explains.
pub(crate) async fn run(args: ExplainArgs, globals: &Globals) -> Result<(), CliError> {
    if globals.json {
        let mut explained: Value = chosen_invocation::explained(args.id.as_deref(), globals).await?;
        if let Some(record) = explained.get_mut("activation") {
            date_start(record);
        }
        return output::json(&explained);
    }
    let explained: Explanation = chosen_invocation::explained(args.id.as_deref(), globals).await?;
    output::line(render(&explained, args.verbose))
}

/// How the invocation ended; if it failed, why, first of all.
fn outcome(one: &Activation, verbose: bool) -> String {
    let words = match one.outcome {
        Outcome::Answered => outcome_words(&one.outcome),
        _ => {
            // Without `verbose` the last line says where its log is.
            let log = if verbose { one.log.as_str() } else { "" };
            failure::shown(one, &Value::Null, log, failure::width().saturating_sub(2), verbose)
        }
    };
    words.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

fn start_words(one: &Activation) -> String {
    match (one.cold, one.sandbox_start) {
        (false, _) => "warm sandbox".to_owned(),
        (true, Some(SandboxStart::Prewarmed)) => format!("prewarmed start {}", duration(one.init_us)),
        (true, _) => format!("cold start {}", duration(one.init_us)),
    }
}

fn render(explained: &Explanation, verbose: bool) -> String {
    let shown = |text: &str| printable::shown(&std::io::stdout(), text).into_owned();
    let one = &explained.activation;
    let mut lines = vec![format!("{} of {}, {}", one.id, one.function, output::when(one.start))];
    lines.extend(outcome(one, verbose).lines().map(shown));
    lines.extend([
        format!(
            "  {} in all: waited {}, {}, ran {}",
            duration(explained.total_us),
            duration(one.wait_us),
            start_words(one),
            duration(one.duration_us)
        ),
        String::new(),
    ]);
    for step in explained.steps.iter().take(STEPS_MAX) {
        lines.push(format!(
            "  {} {:>9}  {}{}",
            bar(step, explained.total_us),
            duration(step.took_us),
            shown(&step.what),
            if step.bytes > 0 { format!(", {}", nigh_terms::ByteSize(step.bytes)) } else { String::new() }
        ));
    }
    let unseen = explained.steps.len().saturating_sub(STEPS_MAX) as u64 + one.data_calls_omitted;
    if unseen > 0 {
        lines.push(format!("  ... and {unseen} more data calls"));
    }
    lines.push(legend(&explained.steps));
    lines.push(String::new());
    lines.push(format!("  {}", shares_bar(&explained.shares)));
    if let Some(hits) = explained.hit_percent {
        lines.push(format!("  {hits:.0} % of {} reads from memory", one.hits + one.misses));
    }
    lines.push(match (one.peak_memory, explained.memory_percent) {
        (Some(peak), Some(percent)) => {
            format!("  memory: peak {peak}, {percent:.0} % of {} booked; {} granted", one.booked, one.granted)
        }
        _ => {
            format!("  memory: {} booked, {} granted; this machine does not measure the peak", one.booked, one.granted)
        }
    });
    if one.memory.grown > 0 {
        lines.push(format!("  memory: grew {} times during the run", one.memory.grown));
    }
    lines.push(cost_words(&explained.cost));
    if !one.placement.is_empty() {
        lines.push(format!("  placed: {}", one.placement));
    }
    if let Some(trace) = &one.trace_id {
        lines.push(format!("  trace: {trace}"));
    }
    lines.extend(one.notes.iter().map(|note| format!("  note: {}", shown(&note_words(note)))));
    if !one.log.is_empty() {
        lines.push(format!("  log: `nigh logs {} --id {}` prints {} bytes", one.function, one.id, one.log.len()));
    }
    lines.join("\n")
}

/// The billed cost, and the part of it that was used.
fn cost_words(cost: &Cost) -> String {
    let billed = format!("  cost: {:.4} GB-s billed", cost.billed_gb_s);
    match (cost.used_gb_s, cost.used_percent()) {
        (Some(used), Some(percent)) => format!("{billed}, {used:.4} GB-s ({percent:.0} %) used at the peak"),
        _ => billed,
    }
}

/// The step on a line that shows the whole time; at least one column wide.
fn bar(step: &Step, total_us: u64) -> String {
    let column = |us: u64| (us as u128 * WIDTH as u128 / u128::from(total_us.max(1))) as usize;
    let from = column(step.at_us).min(WIDTH - 1);
    let to = column(step.at_us + step.took_us).clamp(from + 1, WIDTH);
    let (glyph, colour, _) = drawn(step.kind);
    format!("{}{}{}", " ".repeat(from), coloured(colour, &glyph.repeat(to - from)), " ".repeat(WIDTH - to))
}

/// The character, colour and name of a kind of step.
const fn drawn(kind: StepKind) -> (&'static str, Colour, &'static str) {
    match kind {
        StepKind::Wait => ("·", Colour::Dim, "waiting"),
        StepKind::Init => ("░", Colour::Yellow, "starting a sandbox"),
        StepKind::Run => ("─", Colour::Dim, "the handler"),
        StepKind::Read => ("█", Colour::Blue, "reading"),
        StepKind::Write => ("▓", Colour::Green, "writing"),
    }
}

/// The legend of the characters and words that occur.
fn legend(steps: &[Step]) -> String {
    let kinds = [StepKind::Wait, StepKind::Init, StepKind::Run, StepKind::Read, StepKind::Write];
    let there = kinds.into_iter().filter(|kind| steps.iter().any(|step| step.kind == *kind));
    let bars = there.map(drawn).map(|(glyph, colour, what)| format!("{} {what}", coloured(colour, glyph)));
    let mut words = Vec::new();
    for (served, meaning) in [
        ("hit ", "hit: read from memory"),
        ("miss ", "miss: read from the store, in memory from then on"),
        ("past ", "past: read from the store past the memory, as too large for it or a part only"),
    ] {
        if steps.iter().any(|step| step.kind == StepKind::Read && step.what.starts_with(served)) {
            words.push(meaning);
        }
    }
    let bars = bars.collect::<Vec<_>>().join("   ");
    if words.is_empty() { format!("  {bars}") } else { format!("  {bars}\n  {}", words.join("\n  ")) }
}

/// Extract, transform and load on one line.
fn shares_bar(shares: &Shares) -> String {
    let extract = (shares.extract / 100.0 * WIDTH as f64).round() as usize;
    let load = ((shares.load / 100.0 * WIDTH as f64).round() as usize).min(WIDTH - extract.min(WIDTH));
    let none = shares.extract + shares.transform + shares.load == 0.0;
    let transform = if none { 0 } else { WIDTH - extract.min(WIDTH) - load };
    format!(
        "{}{}{}  extract {:.0} %, transform {:.0} %, load {:.0} %",
        coloured(Colour::Blue, &"█".repeat(extract.min(WIDTH))),
        coloured(Colour::Dim, &"─".repeat(transform)),
        coloured(Colour::Green, &"▓".repeat(load)),
        shares.extract,
        shares.transform,
        shares.load
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(at_us: u64, took_us: u64) -> Step {
        Step { kind: StepKind::Read, at_us, took_us, what: String::new(), bytes: 0 }
    }

    #[test]
    fn a_bar_has_its_place_its_length_and_always_the_same_width() {
        let places = |at, took, total| {
            let bar = bar(&step(at, took), total);
            assert_eq!(bar.chars().count(), WIDTH);
            (bar.chars().position(|c| c == '█').unwrap(), bar.chars().filter(|c| *c == '█').count())
        };
        assert_eq!(places(0, 100, 100), (0, WIDTH));
        assert_eq!(places(50, 50, 100), (WIDTH / 2, WIDTH / 2));
        assert_eq!(places(99, 0, 100), (WIDTH - 1, 1));
        assert_eq!(places(100, 0, 100), (WIDTH - 1, 1));
        assert_eq!(places(0, 0, 0), (0, 1));
    }

    #[test]
    fn the_legend_explains_what_is_drawn_and_nothing_else() {
        let past = Step { what: "past data/in".to_owned(), ..step(0, 1) };
        let text = legend(&[past, Step { kind: StepKind::Run, ..step(0, 1) }]);
        for word in ["─ the handler", "█ reading", "past: "] {
            assert!(text.contains(word), "{text}");
        }
        assert!(!text.contains("writing") && !text.contains("miss: "), "{text}");
    }

    #[test]
    fn what_is_billed_is_told_with_what_was_used_of_it() {
        let cost = Cost { billed_gb_s: 0.5, used_gb_s: Some(0.125) };
        assert_eq!(cost_words(&cost), "  cost: 0.5000 GB-s billed, 0.1250 GB-s (25 %) used at the peak");
        assert_eq!(cost_words(&Cost { used_gb_s: None, ..cost }), "  cost: 0.5000 GB-s billed");
    }

    #[test]
    fn the_shares_fill_the_line() {
        let drawn = shares_bar(&Shares { extract: 25.0, transform: 50.0, load: 25.0 });
        assert_eq!(drawn.chars().filter(|c| "█─▓".contains(*c)).count(), WIDTH);
        let rounded = shares_bar(&Shares { extract: 49.5, transform: 1.0, load: 49.5 });
        assert_eq!(rounded.chars().filter(|c| "█─▓".contains(*c)).count(), WIDTH);
        assert!(!shares_bar(&Shares::default()).contains('█'));
    }
}
