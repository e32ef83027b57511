//! The lines of `nigh dev`: text for people, one JSON object a line for programs.

use std::io::{IsTerminal, stdout};

use nigh_terms::ByteSize;
use serde_json::Value;

use super::session::{Answer, Deployment, Ended, Line, Memory};
use crate::error::CliError;
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
    let (colour, word) = if *failed { (Colour::Red, "error") } else { (Colour::Green, "answer") };
    let mut all = vec![(Some(colour), format!("{word} after {}", duration(*took_us)))];
    all.extend(pretty(text, *failed).into_iter().map(|line| (None, line)));
    all
}

/// An answer as lines: Lambda's error with its traceback, another JSON document as it came.
fn pretty(text: &str, failed: bool) -> Vec<String> {
    let parsed: Option<Value> = serde_json::from_str(text).ok().filter(|_| failed);
    let Some(error) = parsed.filter(|error| error["errorMessage"].is_string()) else {
        return printable::lines(text.trim_end()).map(|line| format!("  {line}")).collect();
    };
    let field = |name: &str| error[name].as_str().unwrap_or_default();
    let head = format!("  {}: {}", field("errorType"), field("errorMessage"));
    let trace = error["stackTrace"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let trace = trace.flat_map(str::lines).filter(|line| !line.trim().is_empty()).map(|line| format!("  {line}"));
    [head].into_iter().chain(trace).collect()
}

fn ended(ended: &Ended) -> Vec<(Option<Colour>, String)> {
    let log = printable::lines(ended.log.trim_end()).filter(|line| !line.is_empty());
    let mut all: Vec<_> = log.map(|line| (Some(Colour::Dim), format!("  | {line}"))).collect();
    if ended.log_omitted > 0 {
        all.insert(0, (None, format!("  | ... {} more bytes were printed and are not stored", ended.log_omitted)));
    }
    all.push((ended.failed.then_some(Colour::Red), facts(ended)));
    all
}

/// How an invocation went, in one line.
pub(super) fn facts(ended: &Ended) -> String {
    let mut facts = vec![format!("{} in {}", ended.outcome.replace('\n', " "), duration(ended.duration_us))];
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
    fn an_error_shows_its_traceback_as_lines() {
        let text =
            r#"{"errorMessage": "no", "errorType": "KeyError", "stackTrace": ["  File \"main.py\", line 4\n    x\n"]}"#;
        let answer = Answer { id: String::new(), text: text.to_owned(), failed: true, took_us: 1_000 };
        assert_eq!(
            texts(&Line::Answer(answer.clone())),
            ["error after 1.0 ms", "  KeyError: no", "    File \"main.py\", line 4", "      x"]
        );
        let plain = Answer { text: "{\"a\": 1}".to_owned(), failed: false, ..answer };
        assert_eq!(texts(&Line::Answer(plain)), ["answer after 1.0 ms", "  {\"a\": 1}"]);
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
