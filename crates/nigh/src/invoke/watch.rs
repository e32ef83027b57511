//! `nigh invoke --watch`: invokes again whenever the input's file or the function changes.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use nigh_terms::FunctionName;

use super::{InvokeArgs, invoke};
use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// How often the file and the function are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// What an invocation depends on, as it was seen last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Watched {
    /// Time and length of the input's file; none if there is no file, or not at this moment.
    file: Option<(SystemTime, u64)>,
    /// Lambda's revision of the function, which each change of code or settings replaces.
    revision: Option<String>,
}

impl Watched {
    /// What has changed since `earlier`, in words; none if nothing has. An editor may take a file away for a moment, and a
    /// node may not answer: that is no change.
    fn change_since(&self, earlier: &Self, function: &FunctionName) -> Option<String> {
        let file = self.file.is_some() && self.file != earlier.file;
        let revision = self.revision.is_some() && self.revision != earlier.revision;
        match (file, revision) {
            (true, true) => Some(format!("the input and {function} changed")),
            (true, false) => Some("the input changed".to_owned()),
            (false, true) => Some(format!("{function} changed")),
            (false, false) => None,
        }
    }

    /// What stays known of `earlier` where nothing is seen now.
    fn over(self, earlier: Self) -> Self {
        Self { file: self.file.or(earlier.file), revision: self.revision.or(earlier.revision) }
    }
}

/// Invokes, and again at each change, until it is interrupted. Failures are printed.
pub(super) async fn watch(args: &InvokeArgs, globals: &Globals) -> Result<ExitCode, CliError> {
    if args.file.is_none() && args.payload == "-" {
        return Err(CliError::Usage(
            "--watch reads the input again each time: give a file, not standard input".to_owned(),
        ));
    }
    // What is wrong from the beginning is told as without --watch.
    globals.lambda().await?.get(&args.name).await.map_err(CliError::of_function(&args.name))?;
    let mut seen = look(args, globals).await;
    loop {
        if let Err(error) = invoke(args, globals).await {
            output::complain(&error);
        }
        output::remark("nigh: waiting for changes; Ctrl-C ends this");
        let change = loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = look(args, globals).await;
            let change = now.change_since(&seen, &args.name);
            seen = now.over(seen);
            if let Some(change) = change {
                break change;
            }
        };
        output::remark(format_args!("nigh: {change}"));
    }
}

async fn look(args: &InvokeArgs, globals: &Globals) -> Watched {
    let function = match globals.lambda().await {
        Ok(door) => door.get(&args.name).await.ok(),
        Err(_) => None,
    };
    let revision = function.and_then(|function| Some(function.get("RevisionId")?.as_str()?.to_owned()));
    Watched { file: args.input_file().and_then(stamp), revision }
}

fn stamp(file: &Path) -> Option<(SystemTime, u64)> {
    let found = std::fs::metadata(file).ok()?;
    Some((found.modified().ok()?, found.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_named_and_what_is_away_for_a_moment_has_not_changed() {
        let function = FunctionName::new("blur").unwrap();
        let at = |seconds: u64, revision: &str| Watched {
            file: Some((SystemTime::UNIX_EPOCH + Duration::from_secs(seconds), 1)),
            revision: Some(revision.to_owned()),
        };
        let first = at(1, "a");
        assert_eq!(at(1, "a").change_since(&first, &function), None);
        assert_eq!(at(2, "a").change_since(&first, &function).as_deref(), Some("the input changed"));
        assert_eq!(at(1, "b").change_since(&first, &function).as_deref(), Some("blur changed"));
        assert_eq!(at(2, "b").change_since(&first, &function).as_deref(), Some("the input and blur changed"));
        let away = Watched::default();
        assert_eq!(away.change_since(&first, &function), None);
        assert_eq!(away.over(first.clone()), first, "it is compared with what was there before");
    }
}
