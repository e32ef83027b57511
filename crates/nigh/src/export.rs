//! `nigh export`: writes what is deployed here in the form of another tool.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use nigh_node::client::{AdminClient, LambdaClient, ScheduleName};
use nigh_terms::{FunctionName, Namespace};
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::context::Globals;
use crate::error::CliError;
use crate::functions::attached::{Attached, Buckets};
use crate::output;
use crate::sam::{self, AsyncSettings, LayerRef, Stack, StackCode, StackFunction, StackLayer, StackSchedule};
use crate::schedules;

/// The template's file.
const TEMPLATE: &str = "template.yaml";
/// The folders of archives beside it.
const CODE: &str = "code";
const LAYERS: &str = "layers";

/// Subcommands of `nigh export`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh export sam --folder out                    template.yaml, and the archives of all code
  nigh export sam resize report --folder out      two functions alone
  nigh import out                                 what the template describes, again or on another node")]
pub(crate) enum ExportCommand {
    /// Write functions as a template of AWS SAM, with the archives of their code and layers
    ///
    /// The template has their settings, environment, URLs, reserved concurrency, schedules and triggers, and the buckets of
    /// these. Objects are not written
    Sam(SamArgs),
}

/// Options of `nigh export sam`.
#[derive(Args)]
pub(crate) struct SamArgs {
    /// The functions' names [default: all]
    names: Vec<FunctionName>,
    /// The folder to write template.yaml, code/ and layers/ into [default: the folder here]
    #[arg(long, default_value = ".", hide_default_value = true)]
    folder: PathBuf,
    /// Replace a template.yaml that is there
    #[arg(long)]
    force: bool,
}

/// Exports.
pub(crate) async fn run(command: ExportCommand, globals: &Globals) -> Result<(), CliError> {
    let ExportCommand::Sam(args) = command;
    let template = args.folder.join(TEMPLATE);
    if template.exists() && !args.force {
        let shown = template.display();
        return Err(CliError::Usage(format!(
            "{shown} is there already; --force replaces it, --folder names another place"
        )));
    }
    let (lambda, admin, namespace) = (globals.lambda().await?, globals.admin()?, globals.namespace().await?);
    let Some(buckets) = Buckets::find(globals).await? else {
        let local = "--endpoint names a Lambda door only, and an export needs the node; run it where the node runs";
        return Err(CliError::Usage(local.to_owned()));
    };
    let export = Export { folder: &args.folder, lambda, admin, namespace, buckets };
    let configurations = export.chosen(&args.names).await?;
    let mut layers = BTreeMap::new();
    let mut stack = Stack::default();
    for configuration in &configurations {
        stack.functions.push(Box::pin(export.function(configuration, &mut layers, globals)).await?);
    }
    stack.layers = layers.into_values().flatten().collect();
    let named = stack.functions.iter().flat_map(|function| &function.triggers).map(|trigger| trigger.bucket.clone());
    stack.buckets = named.collect();
    stack.buckets.sort();
    stack.buckets.dedup();
    write(&template, sam::write(&stack).as_bytes())?;
    let (functions, layers) = (stack.functions.len(), stack.layers.len());
    if globals.json {
        return output::json(&json!({ "template": template, "functions": functions, "layers": layers }));
    }
    let counted = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (functions, layers) = (counted(functions, "function"), counted(layers, "layer"));
    output::line(format_args!("wrote {}: {functions}, {layers}", template.display()))
}

/// Where functions come from and where they go.
struct Export<'a> {
    folder: &'a Path,
    lambda: LambdaClient,
    admin: AdminClient,
    namespace: Namespace,
    buckets: Buckets,
}

/// Layers by their ARNs; none where a function has a version that was deleted.
type Layers = BTreeMap<String, Option<StackLayer>>;

impl Export<'_> {
    /// The configurations of the functions of these names, or of all that Lambda could have.
    async fn chosen(&self, names: &[FunctionName]) -> Result<Vec<Value>, CliError> {
        if names.is_empty() {
            let mut all = self.lambda.list().await?;
            // Runtimes of OpenWhisk's actions, such as nodejs:20, are none of Lambda's.
            all.retain(|function| !text(function, "Runtime").contains(':'));
            return Ok(all);
        }
        let mut chosen = Vec::new();
        for name in names {
            chosen.push(self.lambda.get(name).await?);
        }
        Ok(chosen)
    }

    /// A function, with its code written beside the template.
    async fn function(
        &self,
        configuration: &Value,
        layers: &mut Layers,
        globals: &Globals,
    ) -> Result<StackFunction, CliError> {
        let name = FunctionName::new(text(configuration, "FunctionName"))
            .map_err(|error| CliError::Failed(format!("the node's answer is not understood: {error}")))?;
        let archive = PathBuf::from(CODE).join(format!("{name}.zip"));
        let namespace = &self.namespace;
        self.fetch(&format!("/functions/{namespace}/{name}/code"), &self.folder.join(&archive)).await?;
        let attached = Attached::find(&name, &self.lambda, Some(&self.buckets), globals).await?;
        let reserved = self.lambda.find(&name).await?.and_then(|found| found.reserved);
        let mut function = described(configuration, name, archive, &attached, reserved);
        for schedule in attached.schedule_names() {
            function.schedules.push(self.schedule(schedule, globals).await?);
        }
        for layer in configuration["Layers"].as_array().into_iter().flatten() {
            let arn = text(layer, "Arn");
            let own = match layers.get(arn) {
                Some(known) => known.is_some(),
                None => {
                    let found = self.layer(arn).await?;
                    layers.entry(arn.to_owned()).or_insert(found).is_some()
                }
            };
            function.layers.push(if own { LayerRef::Own(arn.to_owned()) } else { LayerRef::Arn(arn.to_owned()) });
        }
        Ok(function)
    }

    async fn schedule(&self, name: &str, globals: &Globals) -> Result<StackSchedule, CliError> {
        let named = ScheduleName::new(name).map_err(|error| CliError::Failed(error.to_string()))?;
        let found = schedules::client(globals).await?.get(&named).await?;
        Ok(schedule_of(name, &found))
    }

    /// A layer version, with its archive written; none if the version was deleted.
    async fn layer(&self, arn: &str) -> Result<Option<StackLayer>, CliError> {
        let Some(version) = self.lambda.layer_version(arn).await? else { return Ok(None) };
        let words = arn.split_once(":layer:").map_or(arn, |(_, words)| words);
        let (name, number) = words.split_once(':').unwrap_or((words, "1"));
        let Ok(name) = FunctionName::new(name) else { return Ok(None) };
        let archive = PathBuf::from(LAYERS).join(format!("{name}-{number}.zip"));
        let namespace = &self.namespace;
        self.fetch(&format!("/layers/{namespace}/{name}/{number}/code"), &self.folder.join(&archive)).await?;
        let known = |field: &str| Some(text(&version, field)).filter(|text| !text.is_empty()).map(str::to_owned);
        let runtimes = version["CompatibleRuntimes"].as_array().into_iter().flatten();
        Ok(Some(StackLayer {
            logical: arn.to_owned(),
            description: known("Description"),
            runtimes: runtimes.filter_map(Value::as_str).map(str::to_owned).collect(),
            license: known("LicenseInfo"),
            name,
            code: archive,
        }))
    }

    /// Writes what the node answers at `from` to the file `to`.
    async fn fetch(&self, from: &str, to: &Path) -> Result<(), CliError> {
        let mut file = scratch(to)?;
        let mut pieces = self.admin.pieces(from).await?;
        while let Some(piece) = pieces.next().await? {
            file.write_all(&piece).map_err(CliError::local(to.display()))?;
        }
        keep(file, to)
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The function of a stack that a deployed one is, without its schedules and layers.
fn described(
    configuration: &Value,
    name: FunctionName,
    archive: PathBuf,
    attached: &Attached,
    reserved: Option<u64>,
) -> StackFunction {
    let known = |field: &str| Some(text(configuration, field)).filter(|text| !text.is_empty()).map(str::to_owned);
    let variables = configuration["Environment"]["Variables"].as_object().into_iter().flatten();
    let logical = name.to_string();
    StackFunction {
        runtime: known("Runtime"),
        handler: known("Handler"),
        memory_mib: configuration["MemorySize"].as_u64(),
        timeout_s: configuration["Timeout"].as_u64(),
        tmp_mib: configuration["EphemeralStorage"]["Size"].as_u64(),
        description: known("Description"),
        environment: variables.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect(),
        reserved,
        url: attached.url.as_ref().map(|(_, access)| *access),
        triggers: attached.triggers.clone(),
        events: attached.events.as_ref().map(async_settings),
        ..StackFunction::new(&logical, name, StackCode::Path(archive))
    }
}

fn schedule_of(name: &str, schedule: &Value) -> StackSchedule {
    let known = |value: &Value| value.as_str().map(str::to_owned);
    StackSchedule {
        name: name.to_owned(),
        expression: text(schedule, "ScheduleExpression").to_owned(),
        timezone: known(&schedule["ScheduleExpressionTimezone"]).filter(|zone| zone != "UTC"),
        input: known(&schedule["Target"]["Input"]),
        description: known(&schedule["Description"]),
        enabled: text(schedule, "State") == "ENABLED",
    }
}

fn async_settings(config: &Value) -> AsyncSettings {
    let end = |end: &str| config["DestinationConfig"][end]["Destination"].as_str().map(str::to_owned);
    AsyncSettings {
        retries: config["MaximumRetryAttempts"].as_u64(),
        age_s: config["MaximumEventAgeInSeconds"].as_u64(),
        on_success: end("OnSuccess"),
        on_failure: end("OnFailure"),
    }
}

/// A file beside `to`, in its folder, which is made if it is not there. It is its owner's alone, as variables in a template
/// may be secrets.
fn scratch(to: &Path) -> Result<NamedTempFile, CliError> {
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(CliError::local(folder.display()))?;
    NamedTempFile::new_in(folder).map_err(CliError::local(folder.display()))
}

/// Gives the file its name.
fn keep(file: NamedTempFile, to: &Path) -> Result<(), CliError> {
    file.persist(to).map(drop).map_err(|error| CliError::local(to.display())(error.error))
}

fn write(to: &Path, bytes: &[u8]) -> Result<(), CliError> {
    let mut file = scratch(to)?;
    file.write_all(bytes).map_err(CliError::local(to.display()))?;
    keep(file, to)
}

#[cfg(test)]
mod tests {
    use crate::deploy::UrlAccess;

    use super::*;

    #[test]
    fn a_deployed_function_is_one_of_a_stack() {
        let configuration = json!({
            "FunctionName": "hello", "Runtime": "python3.11", "Handler": "main.handle", "MemorySize": 256, "Timeout": 30,
            "Description": "", "EphemeralStorage": { "Size": 512 }, "Environment": { "Variables": { "A": "1" } },
        });
        let attached = Attached {
            url: Some(("http://x/".to_owned(), UrlAccess::Public)),
            events: Some(
                json!({ "MaximumRetryAttempts": 0, "DestinationConfig": { "OnSuccess": {}, "OnFailure": {} } }),
            ),
            ..Attached::default()
        };
        let name = FunctionName::new("hello").unwrap();
        let function = described(&configuration, name, "code/hello.zip".into(), &attached, Some(2));
        assert_eq!((function.memory_mib, function.timeout_s, function.tmp_mib), (Some(256), Some(30), Some(512)));
        assert_eq!((function.description, function.reserved, function.url), (None, Some(2), Some(UrlAccess::Public)));
        assert_eq!(function.environment["A"], "1");
        let events = AsyncSettings { retries: Some(0), ..AsyncSettings::default() };
        assert_eq!(function.events, Some(events));
    }

    #[test]
    fn a_schedule_in_utc_names_no_zone() {
        let schedule = schedule_of(
            "often",
            &json!({
                "ScheduleExpression": "rate(1 hour)", "ScheduleExpressionTimezone": "UTC", "State": "DISABLED",
                "Target": { "Arn": "arn", "Input": "{}" },
            }),
        );
        assert_eq!((schedule.timezone, schedule.input.as_deref(), schedule.enabled), (None, Some("{}"), false));
    }

    #[test]
    fn a_file_is_written_whole_into_a_folder_that_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b/template.yaml");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }
}
