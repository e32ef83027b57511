//! Deploys a stack: its buckets and layers, then each function as `nigh deploy` does, then what refers to functions.
//!
//! All functions are prepared before the first one is changed. If one would be refused, the buckets and layer versions made
//! for them are removed again, and nothing is deployed. Each function is then deployed whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nigh_node::client::{ClientError, LambdaClient, NETWORK_VARIABLE, NewLayer, S3Client};
use nigh_node::endpoints::EndpointsError;
use nigh_terms::{BucketName, ByteSize, FunctionName};
use serde::Serialize;
use serde_json::Value;

use super::{code, documents};
use crate::context::Globals;
use crate::deploy::{self, DeployRequest, FunctionDescription, Prepared, Reserve, TakenBack, Trigger, TriggerChange};
use crate::error::CliError;
use crate::output;
use crate::sam::{LayerRef, LeftOut, Stack, StackFunction, StackLayer};
use crate::schedules;

/// A stack, and how it is deployed.
pub(super) struct Deployment<'a> {
    pub(super) stack: &'a Stack,
    /// The template's folder.
    pub(super) folder: &'a Path,
    /// The value of `--network`.
    pub(super) network: Option<&'a str>,
}

/// What was done.
#[derive(Debug, Default, Serialize)]
pub(super) struct Imported {
    pub(super) buckets: Vec<ImportedBucket>,
    pub(super) layers: Vec<ImportedLayer>,
    pub(super) functions: Vec<ImportedFunction>,
    pub(super) left_out: Vec<LeftOut>,
}

/// A bucket of the stack.
#[derive(Debug, Serialize)]
pub(super) struct ImportedBucket {
    pub(super) name: BucketName,
    pub(super) is_new: bool,
}

/// A layer of the stack.
#[derive(Debug, Serialize)]
pub(super) struct ImportedLayer {
    /// Of its version.
    pub(super) arn: String,
    pub(super) is_new: bool,
    #[serde(skip)]
    logical: String,
    #[serde(skip)]
    name: FunctionName,
    #[serde(skip)]
    version: u64,
}

/// A function of the stack.
#[derive(Debug, Serialize)]
pub(super) struct ImportedFunction {
    pub(super) name: FunctionName,
    /// `deployed`, `updated`, or `unchanged`.
    pub(super) done: &'static str,
    pub(super) url: Option<String>,
}

/// A function that would be taken as it is.
struct ReadyFunction<'a> {
    function: &'a StackFunction,
    prepared: Prepared,
}

impl Deployment<'_> {
    /// Deploys the stack.
    ///
    /// # Errors
    /// The first refusal. If it is one of a function that was to be deployed after others, it says which are.
    pub(super) async fn run(&self, globals: &Globals) -> Result<Imported, CliError> {
        self.check_schedules()?;
        self.check_runtimes(globals).await?;
        let (lambda, s3) = (globals.lambda().await?, globals.s3().await?);
        let mut done = Imported { left_out: self.stack.left_out.clone(), ..Imported::default() };
        let ready = match Box::pin(self.prepare(&lambda, &s3, &mut done, globals)).await {
            Ok(ready) => ready,
            Err(error) => {
                let left = undo(&done, &lambda, &s3).await;
                return Err(nothing_deployed(error, &left));
            }
        };
        for one in &ready {
            match Box::pin(deployed(one, globals)).await {
                Ok(function) => done.functions.push(function),
                Err(error) => return Err(partly_deployed(&done, &one.function.name, &error)),
            }
        }
        // These name functions, which are all there now.
        for function in &self.stack.functions {
            let attached = async {
                if let Some(events) = &function.events {
                    lambda.set_event_config(&function.name, &documents::event_config(events)).await?;
                }
                give_schedules(function, &lambda, globals).await
            };
            attached.await.map_err(|error| partly_deployed(&done, &function.name, &error))?;
        }
        Ok(done)
    }

    /// Makes what functions need, and prepares all functions.
    async fn prepare<'s>(
        &'s self,
        lambda: &LambdaClient,
        s3: &S3Client,
        done: &mut Imported,
        globals: &Globals,
    ) -> Result<Vec<ReadyFunction<'s>>, CliError> {
        let there = s3.list_buckets().await?;
        for name in &self.stack.buckets {
            let is_new = !there.iter().any(|bucket| bucket.name == name.as_str());
            if is_new {
                s3.create_bucket(name).await?;
            }
            done.buckets.push(ImportedBucket { name: name.clone(), is_new });
        }
        for layer in &self.stack.layers {
            done.layers.push(self.publish(layer, lambda).await?);
        }
        let mut ready = Vec::new();
        for function in &self.stack.functions {
            let arns = layer_arns(function, &done.layers);
            let wanted = self.description(function, Some(arns), function.triggers.clone());
            ready.push(self.ready(function, wanted, globals).await?);
        }
        Ok(ready)
    }

    /// Says what deploying would change, as far as a node that runs can tell. Changes nothing.
    ///
    /// # Errors
    /// The first refusal.
    pub(super) async fn try_out(&self, globals: &Globals) -> Result<(), CliError> {
        self.check_schedules()?;
        let s3 = match globals.s3().await {
            Ok(s3) => s3,
            Err(CliError::Endpoints(EndpointsError::NotRunning(_))) => {
                output::remark("no node runs here, so what it would refuse is not known");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        self.check_runtimes(globals).await?;
        let there = s3.list_buckets().await?;
        for function in &self.stack.functions {
            // What the import makes first is not there yet.
            let is_there = |trigger: &&Trigger| there.iter().any(|bucket| bucket.name == trigger.bucket.as_str());
            let triggers = function.triggers.iter().filter(is_there).cloned().collect();
            let ready = self.ready(function, self.description(function, None, triggers), globals).await?;
            let plan = &ready.prepared.plan;
            deploy::plan_lines(plan, &std::io::stdout()).into_iter().try_for_each(output::line)?;
        }
        Ok(())
    }

    /// The function as `nigh deploy` takes it.
    fn description(
        &self,
        function: &StackFunction,
        layers: Option<Vec<String>>,
        triggers: Vec<Trigger>,
    ) -> FunctionDescription {
        let network = self.network.iter().map(|word| (NETWORK_VARIABLE.to_owned(), (*word).to_owned()));
        FunctionDescription {
            runtime: function.runtime.clone(),
            handler: function.handler.clone(),
            memory: function.memory_mib.map(ByteSize::mib),
            timeout_s: function.timeout_s,
            tmp: function.tmp_mib.map(ByteSize::mib),
            description: function.description.clone(),
            layers,
            environment: Some(function.environment.clone()),
            variables: network.collect(),
            reserved: function.reserved.map(|count| Reserve(Some(count))),
            url: function.url,
            triggers: TriggerChange { wanted: triggers, taken_back: TakenBack::Own },
            schedule: None,
        }
    }

    async fn ready<'s>(
        &self,
        function: &'s StackFunction,
        wanted: FunctionDescription,
        globals: &Globals,
    ) -> Result<ReadyFunction<'s>, CliError> {
        let ready = code::of_function(function, self.folder)?;
        let (name, source) = (function.name.clone(), Some(ready.source.clone()));
        let request = DeployRequest { name, wanted, source, workflow: None };
        let prepared = Box::pin(request.prepare(globals)).await.map_err(|error| named(&function.name, error))?;
        Ok(ReadyFunction { function, prepared })
    }

    /// Publishes a layer, unless a version of it has this code.
    async fn publish(&self, layer: &StackLayer, lambda: &LambdaClient) -> Result<ImportedLayer, CliError> {
        let code = code::of_layer(layer, self.folder)?;
        let (there, sha256) = (lambda.layer_versions(&layer.name).await?, code.sha256());
        let same = there.into_iter().find(|version| layer_sha256(version) == Some(sha256.as_str()));
        let is_new = same.is_none();
        let version = match same {
            Some(version) => version,
            None => {
                let new = NewLayer {
                    description: layer.description.clone(),
                    runtimes: layer.runtimes.clone(),
                    license: layer.license.clone(),
                };
                lambda.publish_layer(&layer.name, &new, &code).await?
            }
        };
        Ok(ImportedLayer {
            arn: version["LayerVersionArn"].as_str().unwrap_or_default().to_owned(),
            is_new,
            logical: layer.logical.clone(),
            name: layer.name.clone(),
            version: version["Version"].as_u64().unwrap_or_default(),
        })
    }

    /// Checks, before anything is changed, that the node has all runtimes.
    async fn check_runtimes(&self, globals: &Globals) -> Result<(), CliError> {
        let Some(there) = deploy::runtimes(globals).await? else { return Ok(()) };
        match missing_runtime(self.stack, &there.names) {
            Some(why) => Err(CliError::Usage(why)),
            None => Ok(()),
        }
    }

    /// Checks all schedules before anything is changed.
    fn check_schedules(&self) -> Result<(), CliError> {
        for function in &self.stack.functions {
            for schedule in &function.schedules {
                documents::check(schedule)
                    .map_err(|why| CliError::Usage(format!("{}: schedule {}: {why}", function.name, schedule.name)))?;
            }
        }
        Ok(())
    }
}

/// Says which runtimes the node does not have, and what to do; none if it has all. A name without a version stands
/// for one that the node has.
fn missing_runtime(stack: &Stack, there: &[String]) -> Option<String> {
    let is_there = |runtime: &&str| ["python", "nodejs"].contains(runtime) || there.iter().any(|one| one == runtime);
    let missing: BTreeSet<&str> = stack.functions.iter().filter_map(|function| function.runtime.as_deref()).collect();
    let missing: Vec<&str> = missing.into_iter().filter(|runtime| !is_there(runtime)).collect();
    if missing.is_empty() {
        return None;
    }
    let (missing, there) = (missing.join(" and "), there.join(", "));
    Some(format!(
        "this node has no runtime {missing}; it has {there}. `--runtime NAME` runs the functions of its language by it"
    ))
}

/// Deploys a function that is ready.
async fn deployed(ready: &ReadyFunction<'_>, globals: &Globals) -> Result<ImportedFunction, CliError> {
    let plan = &ready.prepared.plan;
    if !globals.json && !plan.is_empty() {
        deploy::plan_lines(plan, &std::io::stderr()).into_iter().for_each(output::remark);
    }
    let url = ready.prepared.apply(globals).await?.url;
    let done = match (plan.is_new, plan.is_empty()) {
        (true, _) => "deployed",
        (false, false) => "updated",
        (false, true) => "unchanged",
    };
    Ok(ImportedFunction { name: plan.name.clone(), done, url })
}

/// Gives the function its schedules; one of the same name is replaced.
async fn give_schedules(function: &StackFunction, lambda: &LambdaClient, globals: &Globals) -> Result<(), CliError> {
    if function.schedules.is_empty() {
        return Ok(());
    }
    let arn = lambda.get(&function.name).await?["FunctionArn"].as_str().unwrap_or_default().to_owned();
    let client = schedules::client(globals).await?;
    for schedule in &function.schedules {
        let name = documents::name(schedule).map_err(CliError::Usage)?;
        client.put(&name, &documents::schedule(schedule, &arn)).await?;
    }
    Ok(())
}

fn layer_sha256(version: &Value) -> Option<&str> {
    version["Content"]["CodeSha256"].as_str()
}

/// The ARNs of a function's layers, in order.
fn layer_arns(function: &StackFunction, published: &[ImportedLayer]) -> Vec<String> {
    let own: BTreeMap<&str, &str> =
        published.iter().map(|layer| (layer.logical.as_str(), layer.arn.as_str())).collect();
    let arns = function.layers.iter().map(|layer| match layer {
        LayerRef::Own(logical) => own.get(logical.as_str()).copied().unwrap_or(logical.as_str()).to_owned(),
        LayerRef::Arn(arn) => arn.clone(),
    });
    arns.collect()
}

/// Removes what was made for functions that are not deployed. Returns why something could not be removed.
async fn undo(done: &Imported, lambda: &LambdaClient, s3: &S3Client) -> Vec<ClientError> {
    let mut left = Vec::new();
    for layer in done.layers.iter().filter(|layer| layer.is_new) {
        left.extend(lambda.delete_layer(&layer.name, layer.version).await.err());
    }
    for bucket in done.buckets.iter().filter(|bucket| bucket.is_new) {
        left.extend(s3.delete_bucket(&bucket.name).await.err());
    }
    left
}

/// The error of one function, with its name.
fn named(name: &FunctionName, error: CliError) -> CliError {
    match error {
        CliError::Usage(why) => CliError::Usage(format!("{name}: {why}")),
        CliError::Failed(why) => CliError::Failed(format!("{name}: {why}")),
        CliError::Client(ClientError::Refused { status, code, message }) => {
            ClientError::Refused { status, code, message: format!("{name}: {message}") }.into()
        }
        other => other,
    }
}

fn nothing_deployed(error: CliError, left: &[ClientError]) -> CliError {
    if left.is_empty() {
        return error;
    }
    let left: Vec<String> = left.iter().map(ToString::to_string).collect();
    CliError::Failed(format!("{error}; what was made for it could not be removed: {}", left.join("; ")))
}

fn partly_deployed(done: &Imported, name: &FunctionName, error: &CliError) -> CliError {
    let names: Vec<&str> = done.functions.iter().map(|function| function.name.as_str()).collect();
    let before = if names.is_empty() { String::new() } else { format!("; deployed before it: {}", names.join(", ")) };
    CliError::Failed(format!("{name}: {error}{before}; run the command again once this is mended"))
}

#[cfg(test)]
mod tests;
