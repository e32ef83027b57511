//! `nigh deploy`.

mod apply;
mod code_listing;
mod description;
mod doors;
mod inferred;
mod plan;
mod project;
mod project_file;
mod python_names;
mod python_syntax;
mod request;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use clap::Args;
use nigh_node::client::{IDEMPOTENT_VARIABLE, NETWORK_VARIABLE, NONE, OUTBOUND};
use nigh_terms::{ByteSize, FunctionName};
use serde_json::{Value, json};

use self::plan::Mark;
use crate::archive::FileChoice;
use crate::context::Globals;
use crate::error::CliError;
use crate::lambda_units;
use crate::output::{self, Colour, coloured_for};
use crate::printable;
use crate::schedules::{ScheduleArgs, ScheduleChange};

pub(crate) use self::description::{FunctionDescription, Reserve, TakenBack, Trigger, TriggerChange, UrlAccess};
pub(crate) use self::plan::Plan;
pub(crate) use self::project::Project;
pub(crate) use self::project_file::PROJECT_FILE;
pub(crate) use self::request::{CodeSource, DeployRequest, Prepared, runtimes};

/// Options of `nigh deploy`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh deploy                                     the folder here, as its nigh.toml says (`nigh init` makes one)
  nigh deploy --dry-run                           shows what would change, and changes nothing
  nigh deploy blur --folder functions/blur --memory 512 --timeout 30
  nigh deploy tool --zip tool.zip --runtime provided.al2023 --env LEVEL=2 --env MODE=fast
  nigh deploy blur --timeout 2min                 an existing function: only this setting changes
  nigh deploy blur --trigger pictures/in/ --reserved 4 --url iam
  nigh deploy blur --trigger none                 takes its triggers back
  nigh deploy report --cron '0 9 ? * MON-FRI *' --timezone Europe/Berlin
  nigh deploy report --every none                 takes its schedule back
  nigh deploy fetch --network outbound            where the node permits it (functions.network)

A folder is packed without .git, __pycache__ and the like. What its requirements.txt, pyproject.toml or package.json
lists is installed; a go.mod or Cargo.toml is built to `bootstrap`, the program that `provided` runtimes run.
Runtime and handler of a new function are inferred from its files, where they show them.
What is given replaces what the function has: its code, its settings, or both. All or nothing: if one part would be
refused, nothing is deployed.")]
pub(crate) struct DeployArgs {
    /// The function's name, which is also that of its folder if `nigh init` made one here [default: as nigh.toml says]
    name: Option<FunctionName>,
    /// The folder with the function's code, or its one file [default without a name: the folder here]
    #[arg(long, conflicts_with = "zip")]
    folder: Option<PathBuf>,
    /// The zip archive with the function's code
    #[arg(long, requires = "name")]
    zip: Option<PathBuf>,
    /// What the runtime calls: module.function for Python [default for a new function: the one that its files show]
    #[arg(long)]
    handler: Option<String>,
    /// The runtime: python3.x, nodejs22.x, provided.al2023; `python` is the node's default, `nodejs` its newest [default
    /// for a new function: by its files]
    #[arg(long)]
    runtime: Option<String>,
    /// The function's booking: the memory that it may use, in MB as Lambda counts them, for example 512 or 1GB
    #[arg(long, value_name = "SIZE", value_parser = lambda_units::memory)]
    memory: Option<ByteSize>,
    /// How long one invocation may run, in seconds, for example 30 or 2min
    #[arg(long, value_name = "TIME", value_parser = lambda_units::seconds)]
    timeout: Option<u64>,
    /// The size of the function's /tmp, in MB, for example 1024 or 1GB
    #[arg(long, value_name = "SIZE", value_parser = lambda_units::memory)]
    tmp: Option<ByteSize>,
    /// An environment variable of the function; may be repeated; replaces all variables that it had
    #[arg(long = "env", value_name = "NAME=VALUE")]
    environment: Vec<String>,
    /// Whether the function may connect to other machines (sets NIGH_NETWORK and keeps the other variables)
    #[arg(long, value_name = "outbound|none", value_parser = [OUTBOUND, NONE])]
    network: Option<String>,
    /// Whether the function may run twice for one invocation; if so, Nigh runs it again after a crash (sets
    /// NIGH_IDEMPOTENT and keeps the other variables)
    #[arg(long, value_name = "true|false", action = clap::ArgAction::Set)]
    idempotent: Option<bool>,
    /// A description for people to read
    #[arg(long)]
    description: Option<String>,
    /// The ARN of a layer version; may be repeated, in order; replaces all layers that the function had
    #[arg(long = "layer", value_name = "ARN")]
    layers: Vec<String>,
    /// The function's reserved concurrency: how many of its invocations may run at once; `none` removes the reservation
    #[arg(long, value_name = "COUNT|none", value_parser = Reserve::parse)]
    reserved: Option<Reserve>,
    /// Give the function a URL: for callers who sign with a key of its namespace (iam), or for anybody (public); `none`
    /// takes it away
    #[arg(long, value_name = "iam|public|none", value_parser = UrlAccess::parse)]
    url: Option<UrlAccess>,
    /// Invoke the function for each new object of BUCKET whose key begins with PREFIX; may be repeated; `none` takes back
    /// the triggers that are not given beside it
    #[arg(long = "trigger", value_name = "BUCKET[/PREFIX]|none", value_parser = trigger)]
    triggers: Vec<String>,
    #[command(flatten)]
    schedule: ScheduleArgs,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// Checks the value of one `--trigger`.
fn trigger(text: &str) -> Result<String, String> {
    TriggerChange::parse(&[text.to_owned()]).map(|_| text.to_owned())
}

impl DeployArgs {
    /// What the flags say of the function.
    fn description(&self) -> Result<FunctionDescription, CliError> {
        let provided = self.runtime.as_deref().is_some_and(|runtime| runtime.starts_with("provided"));
        let handler = self.handler.clone().or_else(|| provided.then(|| "bootstrap".to_owned()));
        let network = self.network.iter().map(|word| (NETWORK_VARIABLE.to_owned(), word.clone()));
        let idempotent = self.idempotent.iter().map(|word| (IDEMPOTENT_VARIABLE.to_owned(), word.to_string()));
        Ok(FunctionDescription {
            runtime: self.runtime.clone(),
            handler,
            memory: self.memory,
            timeout_s: self.timeout,
            tmp: self.tmp,
            description: self.description.clone(),
            layers: (!self.layers.is_empty()).then(|| self.layers.clone()),
            environment: environment(&self.environment)?,
            variables: network.chain(idempotent).collect(),
            reserved: self.reserved,
            url: self.url,
            triggers: TriggerChange::parse(&self.triggers).map_err(CliError::Usage)?,
            schedule: self.schedule.change()?,
        })
    }

    /// What is asked for: the project of a folder, or what the flags name.
    fn request(&self) -> Result<DeployRequest, CliError> {
        let above = self.description()?;
        let Some(name) = self.name.clone() else {
            let folder = self.folder.as_deref().unwrap_or(Path::new("."));
            return Ok(DeployRequest::of_project(&Project::open(folder)?, above));
        };
        let project = match (&self.folder, &self.zip) {
            (Some(folder), _) => Project::find(folder)?,
            (None, Some(_)) => None,
            // `nigh init hello; nigh deploy hello`
            (None, None) => Project::find(Path::new(name.as_str()))?.filter(|project| project.name == name),
        };
        if let Some(project) = project {
            return Ok(DeployRequest { name, ..DeployRequest::of_project(&project, above) });
        }
        let files = |folder: &PathBuf| CodeSource::Files { path: folder.clone(), choice: FileChoice::default() };
        let source = self.zip.clone().map(CodeSource::Zip).or_else(|| self.folder.as_ref().map(files));
        if source.is_none() && above.is_empty() {
            let nothing = "nothing to deploy: name the code with --folder or --zip, or a setting to change";
            return Err(CliError::Usage(nothing.to_owned()));
        }
        Ok(DeployRequest { name, wanted: above, source, workflow: None })
    }
}

fn environment(given: &[String]) -> Result<Option<BTreeMap<String, String>>, CliError> {
    if given.is_empty() {
        return Ok(None);
    }
    let pairs = given.iter().map(|text| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(CliError::Usage(format!("--env {text}: write NAME=VALUE"))),
    });
    pairs.collect::<Result<_, _>>().map(Some)
}

/// The lines of a plan, coloured for `stream`.
pub(crate) fn plan_lines(plan: &Plan, stream: &impl IsTerminal) -> Vec<String> {
    let coloured = plan.lines().map(|(mark, line)| {
        let colour = match mark {
            Mark::Add => Colour::Green,
            Mark::Change => Colour::Yellow,
            Mark::Remove => Colour::Red,
        };
        coloured_for(stream, colour, &line)
    });
    [plan.headline()].into_iter().chain(coloured).collect()
}

/// Deploys.
pub(crate) async fn run(args: DeployArgs, globals: &Globals) -> Result<(), CliError> {
    let prepared = args.request()?.prepare(globals).await?;
    let plan = &prepared.plan;
    for warning in prepared.warnings(globals).await? {
        if globals.json {
            output::remark(json!({ "warning": warning }));
        } else {
            let line = format!("warning: {}", printable::shown(&std::io::stderr(), &warning));
            output::remark(coloured_for(&std::io::stderr(), Colour::Yellow, &line));
        }
    }
    if args.dry_run {
        if globals.json {
            return output::json(&json!({ "function": plan.name, "new": plan.is_new, "changes": plan.changes }));
        }
        return plan_lines(plan, &std::io::stdout()).into_iter().try_for_each(output::line);
    }
    if !globals.json && !plan.is_empty() {
        plan_lines(plan, &std::io::stderr()).into_iter().for_each(output::remark);
    }
    let done = prepared.apply(globals).await?;
    let mut function = done.function;
    let scheduled = plan.schedule.as_ref().and_then(ScheduleChange::words);
    if globals.json {
        if let Some(url) = done.url {
            function["FunctionUrl"] = url.into();
        }
        if let Some(words) = scheduled {
            function["Schedule"] = words.into();
        }
        return output::json(&function);
    }
    if let Some(url) = done.url {
        output::line(url)?;
    }
    output::line(summary(plan, &function))?;
    match scheduled {
        Some(words) => output::line(format_args!("schedule: {words}; `nigh schedules ls` shows when it runs")),
        None => Ok(()),
    }
}

/// The function in one line.
fn summary(plan: &Plan, function: &Value) -> String {
    let done = match (plan.is_new, plan.is_empty()) {
        (true, _) => "deployed",
        (false, false) => "updated",
        (false, true) => "unchanged",
    };
    let text = |field: &str| function[field].as_str().unwrap_or("?");
    let number = |field: &str| function[field].as_u64().unwrap_or_default();
    format!(
        "{done} {}: {}, handler {}, {} of memory, {} s, {} of code",
        plan.name,
        text("Runtime"),
        text("Handler"),
        ByteSize::mib(number("MemorySize")),
        number("Timeout"),
        ByteSize(number("CodeSize")),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Deploy {
        #[command(flatten)]
        args: DeployArgs,
    }

    fn described(words: &[&str]) -> Result<FunctionDescription, CliError> {
        Deploy::parse_from([&["deploy", "f", "--folder", "."], words].concat()).args.description()
    }

    #[test]
    fn sizes_and_times_become_lambdas_units() {
        let words = ["--memory", "512MiB", "--timeout", "2 min", "--tmp", "1 GiB", "--env", "A=b=c"];
        let change = described(&words).unwrap().settings();
        assert_eq!((change.memory_mib, change.timeout_s, change.ephemeral_mib), (Some(512), Some(120), Some(1024)));
        assert_eq!(change.environment.unwrap()["A"], "b=c");
        assert_eq!(change.runtime, None);
    }

    #[test]
    fn a_number_without_a_unit_is_what_it_is_for_lambda() {
        let change = described(&["--memory", "512", "--timeout", "30", "--tmp", "1024MB"]).unwrap().settings();
        assert_eq!((change.memory_mib, change.timeout_s, change.ephemeral_mib), (Some(512), Some(30), Some(1024)));
        for flag in ["--memory", "--tmp"] {
            let refused = Deploy::try_parse_from(["deploy", "f", flag, "lots"]).err().unwrap().to_string();
            assert!(refused.contains("512MB"), "{refused}");
        }
        let refused = Deploy::try_parse_from(["deploy", "f", "--timeout", "1500 ms"]).err().unwrap().to_string();
        assert!(refused.contains("whole seconds"), "{refused}");
    }

    #[test]
    fn a_network_is_asked_for_by_its_variable_alone() {
        let change = described(&["--network", "outbound"]).unwrap();
        assert_eq!(change.variables, [(NETWORK_VARIABLE.to_owned(), "outbound".to_owned())].into());
        assert_eq!(change.environment, None);
        assert!(Deploy::try_parse_from(["deploy", "f", "--network", "all"]).is_err());
    }

    #[test]
    fn a_function_is_said_to_be_idempotent_or_not() {
        for word in ["true", "false"] {
            let change = described(&["--idempotent", word]).unwrap();
            assert_eq!(change.variables, [(IDEMPOTENT_VARIABLE.to_owned(), word.to_owned())].into());
        }
        assert!(Deploy::try_parse_from(["deploy", "f", "--idempotent", "perhaps"]).is_err());
    }

    #[test]
    fn triggers_and_urls_are_given_and_taken_back() {
        let change = described(&["--trigger", "none", "--trigger", "pictures/in/", "--url", "none"]).unwrap();
        assert_eq!((change.triggers.wanted.len(), change.url), (1, Some(UrlAccess::None)));
        for wrong in [["--trigger", "No"], ["--trigger", "/in"], ["--url", "all"], ["--reserved", "-1"]] {
            assert!(Deploy::try_parse_from([&["deploy", "f"], &wrong[..]].concat()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_provided_function_needs_no_handler_and_a_bad_variable_is_refused() {
        assert_eq!(described(&["--runtime", "provided.al2023"]).unwrap().handler.as_deref(), Some("bootstrap"));
        assert!(described(&["--env", "=x"]).is_err());
        assert!(Deploy::parse_from(["deploy", "f"]).args.description().unwrap().is_empty());
        assert!(Deploy::try_parse_from(["deploy", "../f", "--folder", "."]).is_err());
        assert!(Deploy::try_parse_from(["deploy", "--zip", "f.zip"]).is_err());
    }

    #[test]
    fn a_folder_with_a_description_gives_the_name_and_flags_win_over_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let asked = |words: &[&str]| Deploy::parse_from([&["deploy"], words].concat()).args.request();
        assert!(asked(&["f"]).unwrap_err().to_string().contains("--folder or --zip"));
        assert!(asked(&["--folder", path]).unwrap_err().to_string().contains("nigh init NAME"));
        let plain = asked(&["f", "--folder", path]).unwrap();
        assert!(plain.wanted.is_empty() && plain.name.as_str() == "f");

        let text = "[function]\nname = \"hello\"\nmemory = 256\ntimeout = 7\nworkflow = \"w.json\"\n";
        std::fs::write(folder.path().join("nigh.toml"), text).unwrap();
        let project = asked(&["--folder", path, "--memory", "512"]).unwrap();
        assert_eq!((project.name.as_str(), project.wanted.memory), ("hello", Some(ByteSize::mib(512))));
        assert_eq!((project.wanted.timeout_s, project.workflow), (Some(7), Some(folder.path().join("w.json"))));
        assert_eq!(asked(&["other", "--folder", path]).unwrap().name.as_str(), "other");
    }
}
