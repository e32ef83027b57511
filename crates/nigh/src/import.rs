//! `nigh import`: deploys what a template of another tool describes.

mod code;
mod deployment;
mod documents;
mod listing;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use nigh_node::client::{NONE, OUTBOUND};

use self::deployment::Deployment;
use crate::context::Globals;
use crate::error::CliError;
use crate::output;
use crate::sam::{self, Inputs, Stack};

/// The names of templates, by which one is found in a folder.
const NAMES: [&str; 7] = [
    "template.yaml",
    "template.yml",
    "template.json",
    "sam.yaml",
    "cloudformation.yaml",
    "serverless.yml",
    "serverless.yaml",
];

/// Options of `nigh import`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh import template.yaml --dry-run          what would be deployed, and what would be left out
  nigh import template.yaml --parameter Stage=prod --runtime python3.11
  nigh import . --only resize
  nigh import .aws-sam/build/template.yaml     what `sam build` has built
  nigh import serverless.yml --parameter stage=prod

It takes functions with their settings, layers, URLs, reserved concurrency, schedules and objects that trigger them, and
the buckets that these name. What Nigh does not have is left out and listed with the reason.
A name that a function needs of something left out, such as a table, is given by --parameter too. Running it again
deploys what has changed.")]
pub(crate) struct ImportArgs {
    /// The template of AWS SAM or CloudFormation, a serverless.yml, or the folder with one
    template: PathBuf,
    /// Show what would be deployed and what is left out, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Only this function, by its name or its name in the template; may be repeated
    #[arg(long = "only", value_name = "FUNCTION")]
    only: Vec<String>,
    /// The value of a parameter of the template, or of an option of serverless.yml, or the name of something left out; may
    /// be repeated
    #[arg(long = "parameter", value_name = "NAME=VALUE")]
    parameters: Vec<String>,
    /// Run functions of this language by this runtime, whatever version the template names: python3.11
    #[arg(long, value_name = "RUNTIME")]
    runtime: Option<String>,
    /// Whether the functions may connect to other machines, as they may on Lambda [default: none, unless the template
    /// sets NIGH_NETWORK]
    #[arg(long, value_name = "outbound|none", value_parser = [OUTBOUND, NONE])]
    network: Option<String>,
}

/// Imports.
pub(crate) async fn run(args: ImportArgs, globals: &Globals) -> Result<(), CliError> {
    if globals.endpoint.is_some() {
        let both = "--endpoint names one door, and an import needs S3 and Lambda; run it where the node runs";
        return Err(CliError::Usage(both.to_owned()));
    }
    let path = template_of(&args.template)?;
    let stack = args.stack(&path, globals)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    code::check(&stack, folder)?;
    let deployment = Deployment { stack: &stack, folder, network: args.network.as_deref() };
    if args.dry_run {
        if globals.json {
            return output::json(&stack);
        }
        listing::stack(&stack)?;
        return deployment.try_out(globals).await;
    }
    let done = deployment.run(globals).await?;
    if globals.json { output::json(&done) } else { listing::done(&done, &stack) }
}

/// The template itself, if its folder is named.
fn template_of(given: &Path) -> Result<PathBuf, CliError> {
    if !given.is_dir() {
        return Ok(given.to_owned());
    }
    let found = NAMES.iter().map(|name| given.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| {
        let folder = given.display();
        CliError::Usage(format!("{folder} has no template.yaml and no serverless.yml; name the template's file"))
    })
}

impl ImportArgs {
    /// What the template at `path` describes, as far as it is asked for.
    fn stack(&self, path: &Path, globals: &Globals) -> Result<Stack, CliError> {
        let text = std::fs::read_to_string(path).map_err(CliError::local(path.display()))?;
        let variables = std::env::vars_os();
        let variables = variables.filter_map(|(name, value)| name.into_string().ok().zip(value.into_string().ok()));
        let inputs = Inputs {
            parameters: parameters(&self.parameters)?,
            region: globals.configuration(Vec::new())?.settings.region,
            environment: variables.collect(),
        };
        let shown = path.display();
        let stack = sam::read(&text, &inputs).map_err(|error| CliError::Usage(format!("{shown}: {error}")))?;
        let all = stack.functions.iter().map(|function| function.name.to_string()).collect::<Vec<_>>().join(", ");
        let chosen = stack.only(&self.only).map_err(|unknown| {
            CliError::Usage(format!("--only {unknown}: {shown} has no such function; it has {all}"))
        });
        let mut stack = chosen?;
        if stack.functions.is_empty() && stack.layers.is_empty() && !self.dry_run {
            let nothing = format!("{shown} has no function that can be deployed here; --dry-run says why");
            return Err(CliError::Usage(nothing));
        }
        if let Some(runtime) = &self.runtime {
            for function in &mut stack.functions {
                let is_same = function.runtime.as_deref().is_some_and(|now| language(now) == language(runtime));
                function.runtime = if is_same { Some(runtime.clone()) } else { function.runtime.take() };
            }
        }
        Ok(stack)
    }
}

/// `python` of `python3.12`.
fn language(runtime: &str) -> &str {
    runtime.split(|letter: char| !letter.is_ascii_alphabetic()).next().unwrap_or(runtime)
}

fn parameters(given: &[String]) -> Result<BTreeMap<String, String>, CliError> {
    let pairs = given.iter().map(|text| match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(CliError::Usage(format!("--parameter {text}: write NAME=VALUE"))),
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_is_the_runtime_without_its_version() {
        assert_eq!(
            ["python3.12", "nodejs20.x", "provided.al2023", "python"].map(language),
            ["python", "nodejs", "provided", "python"]
        );
    }

    #[test]
    fn parameters_are_pairs() {
        let given = |text: &str| parameters(&[text.to_owned()]);
        assert_eq!(given("A=b=c").unwrap()["A"], "b=c");
        assert!(given("A").is_err() && given("=b").is_err());
    }

    #[test]
    fn a_folder_s_template_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert!(template_of(folder.path()).unwrap_err().to_string().contains("name the template's file"));
        std::fs::write(folder.path().join("serverless.yml"), "").unwrap();
        assert!(template_of(folder.path()).unwrap().ends_with("serverless.yml"));
        std::fs::write(folder.path().join("template.yaml"), "").unwrap();
        assert!(template_of(folder.path()).unwrap().ends_with("template.yaml"));
        assert_eq!(template_of(Path::new("other.yaml")).unwrap(), Path::new("other.yaml"));
    }
}
