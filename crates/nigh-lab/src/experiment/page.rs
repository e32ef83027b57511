//! `nigh experiment page`: the page of a running node, open for half an hour in a real browser while functions run. It must ask
//! no other host, break no rule of its policy or of accessibility, and not grow.
//!
//! `scripts/test-page.sh` starts the node and the browser; this reads what the browser found.

use std::path::Path;
use std::process::{Command, Stdio};

use clap::Args;
use serde::Serialize;
use serde_json::Value;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::machine::Machine;
use crate::instrument::programs;
use crate::instrument::report::print_report;

/// In the checkout.
const SCRIPT: &str = "scripts/test-page.sh";

#[derive(Clone, Debug, Args)]
pub(super) struct PageArgs {
    /// How long the first view stays open, in minutes
    #[arg(long, default_value_t = 30.0)]
    minutes: f64,
}

#[derive(Debug, Serialize)]
struct PageReport {
    machine: Machine,
    /// Views that were shown: each on each screen.
    views: u64,
    /// Rules of accessibility that a view breaks (axe: WCAG 2.1 A and AA).
    violations: usize,
    foreign_requests: usize,
    csp_reports: usize,
    /// Faults of scripts, dialogs that markup opened, and views that were not shown.
    errors: usize,
    /// The heap and the document after `minutes`, as a part of what they were.
    heap_growth: Option<f64>,
    nodes_growth: Option<f64>,
    /// Processor time, of one core.
    cpu_percent: Option<f64>,
    minutes: f64,
}

impl PageReport {
    /// Of the browser's findings; none if `text` has none.
    fn read(machine: Machine, text: &str) -> Option<Self> {
        let found = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok()?.as_object().cloned())?;
        let count = |name: &str| found.get(name).and_then(Value::as_array).map_or(0, Vec::len);
        let number = |name: &str| found.get(name).and_then(Value::as_f64);
        Some(Self {
            machine,
            views: found.get("views")?.as_u64()?,
            violations: count("violations"),
            foreign_requests: count("foreign_requests"),
            csp_reports: count("csp_reports"),
            errors: count("errors") + count("dialogs"),
            heap_growth: number("heap_growth"),
            nodes_growth: number("nodes_growth"),
            cpu_percent: number("cpu_percent"),
            minutes: number("minutes").unwrap_or_default(),
        })
    }

    const fn faults(&self) -> usize {
        self.violations + self.foreign_requests + self.csp_reports + self.errors
    }

    fn text(&self) -> String {
        let Self { views, violations, foreign_requests, csp_reports, errors, minutes, .. } = self;
        let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2}"));
        format!(
            "{views} views shown: {violations} violations, {foreign_requests} foreign requests, {csp_reports} reports of the \
             policy, {errors} errors\nafter {minutes} min: heap × {}, document × {}, {} % of a core",
            shown(self.heap_growth),
            shown(self.nodes_growth),
            shown(self.cpu_percent),
        )
    }
}

impl PageArgs {
    pub(super) fn run(&self, machine: Machine, json: bool) -> Result<(), LabError> {
        if !Path::new(SCRIPT).is_file() {
            return Err(LabError::Missing {
                missing: SCRIPT.to_owned(),
                hint: "run this in Nigh's checkout, after `make deps`",
            });
        }
        let output = Command::new(SCRIPT)
            .args(["--minutes", &self.minutes.to_string()])
            .env("NIGH_TEST_NIGH", programs::nigh()?)
            .stderr(Stdio::inherit())
            .output()
            .at(SCRIPT)?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Some(report) = PageReport::read(machine, &text) else {
            return Err(LabError::Request {
                what: SCRIPT.to_owned(),
                reason: format!("it shows no view; it printed: {}", text.trim()),
            });
        };
        print_report(&report, || report.text(), json)?;
        match report.faults() {
            0 if output.status.success() => Ok(()),
            faults => Err(LabError::Found(format!("the page has {faults} faults"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_browsers_findings_are_counted() {
        let machine = Machine::of_this_command();
        let line = r#"{"views":39,"violations":[{"id":"a"}],"foreign_requests":[],"csp_reports":["x"],"dialogs":[],
            "errors":["e","f"],"heap_growth":1.01,"nodes_growth":1,"cpu_percent":2.5,"minutes":0.5}"#;
        let text = format!("...\n{}\nOK\n", line.replace('\n', ""));
        let report = PageReport::read(machine.clone(), &text).unwrap();
        assert_eq!((report.views, report.violations, report.csp_reports, report.errors), (39, 1, 1, 2));
        assert_eq!((report.heap_growth, report.faults()), (Some(1.01), 4));
        assert!(report.text().contains("39 views shown"), "{}", report.text());
        assert!(PageReport::read(machine, concat!("SKIP", "PED: PageTest: there is no Chromium\nOK")).is_none());
    }
}
