//! The lines of `nigh dev`: text for people, one JSON object a line for programs.

use std::io::{IsTerminal, stdout};

use nigh_terms::ByteSize;

use super::session::{Answer, Deployment, Ended, Line, Memory};
use crate::error::CliError;
use crate::failure;
use crate::output::{self, Colour, coloured_for, duration};
use crate::printable;

/// The keys, as `?` shows them.
const KEYS: [&str; 6] = [
    "i  invoke with the event",
    "e  edit the event ($VISUAL, $EDITOR or vi)",
    "a  try each save, or not",
    "d  deploy all again",
    "q  end (also Ctrl-C)",
    "?  this list",
];

/// Prints a line on standard output.
pub(super) fn print(line: &Line, as_json: bool) -> Result<(), CliError> {
    if as_json {
        return output::line(serde_json::to_string(line)?);
    }
    lines(line).into_iter().try_for_each(|(colour, text)| {
        let text = printable::shown(&stdout(), &text);
        match colour {
            Some(colour) => output::line(coloured_for(&stdout(), colour, &text)),
            None => output::line(text),
        }
    })
}

/// The text of a line, each with its colour.
fn lines(line: &Line) -> Vec<(Option<Colour>, String)> {
    let one = |colour: Option<Colour>, text: String| vec![(colour, text)];
    match line {
        Line::Saved { files } => one(Some(Colour::Dim), format!("saved {}", files.join(", "))),
        Line::Deployed(deployment) => deployed(deployment),
        Line::NotDeployed { error, earlier_runs } => {
            let end = if *earlier_runs { " (the code deployed before runs on)" } else { "" };
            one(Some(Colour::Red), format!("not deployed: {error}{end}"))
        }
        Line::Answer(answer) => answered(answer),
        Line::Ended(ended) => self::ended(ended),
        Line::Error { error } => one(Some(Colour::Red), error.clone()),
        Line::Remark { text } => one(Some(Colour::Dim), text.clone()),
        Line::Help => KEYS.iter().map(|key| (None, format!("  {key}"))).collect(),
    }
}

fn deployed(Deployment { changes, url, took_us }: &Deployment) -> Vec<(Option<Colour>, String)> {
    let took = duration(*took_us);
    let head = if changes.is_empty() { format!("unchanged, {took}") } else { format!("deployed in {took}") };
    let changes = changes.iter().map(|change| (None, change.clone()));
    let url = url.iter().map(|url| (None, format!("  {url}")));
    [(Some(Colour::Green), head)].into_iter().chain(changes).chain(url).collect()
}

fn answered(Answer { text, failed, took_us, .. }: &Answer) -> Vec<(Option<Colour>, String)> {
    let took = duration(*took_us);
    if *failed {
        // Why is told when its end is.
        return vec![(Some(Colour::Red), format!("error after {took}"))];
    }
    let lines = printable::lines(text.trim_end()).map(|line| (None, format!("  {line}")));
    [(Some(Colour::Green), format!("answer after {took}"))].into_iter().chain(lines).collect()
}

/// The lines of its log; of a failed invocation those that the function itself printed, since `failure` has the others.
pub(super) fn output_lines(ended: &Ended) -> impl Iterator<Item = &str> {
    let has_failure = ended.failure.is_some();
    printable::lines(ended.log.trim_end()).filter(move |line| !has_failure || failure::is_of_function(line))
}

fn ended(ended: &Ended) -> Vec<(Option<Colour>, String)> {
    let log = output_lines(ended).filter(|line| !line.is_empty());
    let mut all: Vec<_> = log.map(|line| (Some(Colour::Dim), format!("  | {line}"))).collect();
    if ended.log_omitted > 0 {
        all.insert(0, (None, format!("  | ... {} more bytes were printed and are not stored", ended.log_omitted)));
    }
    let failure = ended.failure.iter().flat_map(|text| text.lines()).enumerate();
    all.extend(failure.map(|(at, line)| ((at == 0).then_some(Colour::Red), line.to_owned())));
    all.push((ended.failed.then_some(Colour::Red), facts(ended)));
    all
}

/// How an invocation went, in one line.
pub(super) fn facts(ended: &Ended) -> String {
    // Where the failure is told, its words are not repeated.
    let outcome = if ended.failure.is_some() { "failed".to_owned() } else { ended.outcome.replace('\n', " ") };
    let mut facts = vec![format!("{outcome} in {}", duration(ended.duration_us))];
    facts.extend(ended.start.map(|start| match start {
        "warm" => "warm".to_owned(),
        start => format!("{start} start {}", duration(ended.init_us)),
    }));
    facts.extend(ended.memory.as_ref().map(memory_words));
    if ended.reads.1 > 0 {
        facts.push(format!("{} of {} reads from memory", ended.reads.0, ended.reads.1));
    }
    facts.join("; ")
}

/// `used 41 MiB, predicted 64 MiB, booked 128 MiB`.
fn memory_words(Memory { used, granted, booked }: &Memory) -> String {
    let used = used.map_or("memory not measured".to_owned(), |used| format!("used {}", ByteSize(used)));
    let predicted =
        if granted < booked { format!("predicted {}", ByteSize(*granted)) } else { "not predicted yet".to_owned() };
    format!("{used}, {predicted}, booked {}", ByteSize(*booked))
}

/// True if both standard streams are a terminal: keys are read.
pub(super) fn has_keys() -> bool {
    std::io::stdin().is_terminal() && stdout().is_terminal()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &Line) -> Vec<String> {
        lines(line).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn an_invocation_shows_its_log_and_where_its_time_and_memory_went() {
        let ended = Ended {
            outcome: "answered".to_owned(),
            start: Some("prewarmed"),
            init_us: 28_000,
            duration_us: 4_000,
            memory: Some(Memory { used: Some(41 << 20), granted: 64 << 20, booked: 128 << 20 }),
            reads: (1, 2),
            log: "greeting Ada\n\n".to_owned(),
            ..Ended::default()
        };
        assert_eq!(
            texts(&Line::Ended(ended.clone())),
            [
                "  | greeting Ada",
                "answered in 4.0 ms; prewarmed start 28.0 ms; used 41 MiB, predicted 64 MiB, booked 128 MiB; 1 of 2 reads \
                 from memory",
            ]
        );
        let memory = Some(Memory { used: None, granted: 128 << 20, booked: 128 << 20 });
        let warm = Ended { start: Some("warm"), memory, reads: (0, 0), ..ended };
        assert_eq!(facts(&warm), "answered in 4.0 ms; warm; memory not measured, not predicted yet, booked 128 MiB");
    }

    #[test]
    fn an_answer_is_shown_as_it_came_and_a_failure_by_its_end() {
        let answer = Answer { id: String::new(), text: "{\"a\": 1}".to_owned(), failed: false, took_us: 1_000 };
        assert_eq!(texts(&Line::Answer(answer.clone())), ["answer after 1.0 ms", "  {\"a\": 1}"]);
        let failed = Answer { failed: true, ..answer };
        assert_eq!(texts(&Line::Answer(failed)), ["error after 1.0 ms"]);
    }

    #[test]
    fn a_failure_is_told_in_place_of_the_traceback_in_the_log() {
        let log =
            "mine\n[ERROR] Runtime.UserCodeSyntaxError: no\rTraceback (most recent call last):\r\u{a0}\u{a0}File\n";
        let ended = Ended {
            failed: true,
            failure: Some("main.py:3: syntax error: invalid syntax\n  main.py:3  def handle(:".to_owned()),
            outcome: "could not initialise: Runtime.UserCodeSyntaxError: no".to_owned(),
            log: log.to_owned(),
            ..Ended::default()
        };
        assert_eq!(
            texts(&Line::Ended(ended.clone())),
            ["  | mine", "main.py:3: syntax error: invalid syntax", "  main.py:3  def handle(:", "failed in 0 us"]
        );
        // Without a record there is the log alone.
        let unknown = texts(&Line::Ended(Ended { failure: None, ..ended }));
        assert!(unknown.iter().any(|line| line.contains("Traceback")), "{unknown:?}");
        assert!(unknown.last().unwrap().starts_with("could not initialise: "), "{unknown:?}");
    }

    #[test]
    fn a_deployment_shows_what_changed_and_a_failure_what_runs() {
        let changes = vec!["  ~ code  1 KiB".to_owned()];
        let deployed = Line::Deployed(Deployment { changes, url: Some("http://x/".to_owned()), took_us: 84_000 });
        assert_eq!(texts(&deployed), ["deployed in 84.0 ms", "  ~ code  1 KiB", "  http://x/"]);
        let same = Line::Deployed(Deployment { changes: Vec::new(), url: None, took_us: 2_000 });
        assert_eq!(texts(&same), ["unchanged, 2.0 ms"]);
        let failed = Line::NotDeployed { error: "no".to_owned(), earlier_runs: true };
        assert_eq!(texts(&failed), ["not deployed: no (the code deployed before runs on)"]);
    }

    #[test]
    fn a_program_gets_an_object_a_line() {
        let line = Line::Deployed(Deployment { changes: Vec::new(), url: None, took_us: 5 });
        let json = serde_json::to_value(&line).unwrap();
        assert_eq!(json, serde_json::json!({ "event": "deployed", "changes": [], "took_us": 5 }));
        let saved = serde_json::to_value(Line::Saved { files: vec!["main.py".to_owned()] }).unwrap();
        assert_eq!(saved, serde_json::json!({ "event": "saved", "files": ["main.py"] }));
    }
}
