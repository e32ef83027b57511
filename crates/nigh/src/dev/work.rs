//! What `nigh dev` does at the node: deploy, try, and follow the function's invocations.

use std::path::Path;
use std::time::Instant;

use bytes::Bytes;
use nigh_node::admin::LogEntry;
use nigh_node::client::AdminClient;
use nigh_node::{Activation, Outcome, SandboxStart};
use nigh_terms::{ByteSize, FunctionName, Namespace};
use serde_json::Value;
use tokio::sync::mpsc;

use super::session::{Answer, Deployment, Ended, Event, Memory, Scope};
use crate::context::Globals;
use crate::deploy::{DeployRequest, Project};
use crate::error::CliError;
use crate::failure;
use crate::invoke;

/// Deploys the project in `folder`, whose file is read anew. `began` is when the save was seen.
pub(super) async fn deploy(
    folder: &Path,
    scope: Scope,
    began: Instant,
    globals: &Globals,
) -> Result<Deployment, CliError> {
    let project = Project::open(folder)?;
    let request = match scope {
        Scope::All => DeployRequest::of_project(&project, Default::default()),
        Scope::Code => DeployRequest::of_code(&project),
    };
    let prepared = request.prepare(globals).await?;
    let done = prepared.apply(globals).await?;
    let changes = prepared.plan.lines().map(|(_, line)| line).collect();
    let url = done.url.filter(|_| scope == Scope::All);
    Ok(Deployment { changes, url, took_us: began.elapsed().as_micros() as u64 })
}

/// Invokes the function with `event`.
pub(super) async fn try_out(name: &FunctionName, event: Bytes, globals: &Globals) -> Result<Answer, CliError> {
    let began = Instant::now();
    let reply = globals.lambda().await?.invoke(name, event, false).await?;
    Ok(Answer {
        id: reply.id,
        text: String::from_utf8_lossy(&reply.payload).into_owned(),
        failed: reply.function_error.is_some(),
        took_us: began.elapsed().as_micros() as u64,
    })
}

/// The event for trials: what the command line gives, else the project's file.
pub(super) fn event(given: Option<&str>, project: &Project) -> Result<Bytes, CliError> {
    match given {
        Some("-") => Err(CliError::Usage("--event: write the JSON itself, or @FILE".to_owned())),
        Some(given) => invoke::payload(given),
        None => {
            let file = project.event();
            if !file.exists() {
                let shown = file.display();
                let how = format!("there is no event: write {shown}, or give --event '{{\"key\": \"value\"}}'");
                return Err(CliError::Usage(how));
            }
            invoke::payload(&format!("@{}", file.display()))
        }
    }
}

/// Sends each invocation of the function that ends from now on, until nobody listens or the node ends.
pub(super) async fn follow(
    admin: &AdminClient,
    namespace: &Namespace,
    name: &FunctionName,
    events: &mpsc::Sender<Event>,
) -> Result<(), CliError> {
    let path = format!("/logs?namespace={namespace}&function={name}&limit=0&follow=true");
    let mut lines = admin.lines(&path).await?;
    while let Some(entry) = lines.next::<LogEntry>().await? {
        // A record that is gone already leaves its log.
        let record = admin.get::<Activation>(&format!("/activations/{}", entry.id)).await.ok();
        let ended = told(entry, record.as_ref(), &Value::Null);
        if events.send(Event::Ended(Box::new(ended))).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// The invocation that was answered so.
pub(super) async fn ended(answer: &Answer, admin: &AdminClient) -> Result<Ended, CliError> {
    let record: Activation = admin.get(&format!("/activations/{}", answer.id)).await?;
    // Of a failed one: the error object.
    let error: Value = serde_json::from_str(&answer.text).unwrap_or_default();
    Ok(told(LogEntry::from(&record), Some(&record), &error))
}

/// What is told of an ended invocation. `error` is the error object that its caller got, or null.
fn told(entry: LogEntry, record: Option<&Activation>, error: &Value) -> Ended {
    let failed = record.filter(|record| record.outcome != Outcome::Answered);
    // Its output is told beside it.
    let failure = failed.map(|record| failure::shown(record, error, "", failure::width(), false));
    let start = record.map(|record| match (record.cold, record.sandbox_start) {
        (false, _) => "warm",
        (true, Some(SandboxStart::Prewarmed)) => "prewarmed",
        (true, _) => "cold",
    });
    Ended {
        id: entry.id.to_string(),
        failed: record.map_or(entry.outcome != "answered", |_| failed.is_some()),
        failure,
        outcome: entry.outcome,
        start,
        init_us: record.map_or(0, |record| record.init_us),
        duration_us: entry.duration_us,
        memory: record.map(|record| Memory {
            used: record.peak_memory.map(ByteSize::bytes),
            granted: record.granted.bytes(),
            booked: record.booked.bytes(),
        }),
        reads: record.map_or((0, 0), |record| (record.hits, record.hits + record.misses)),
        log: entry.log,
        log_omitted: entry.log_omitted,
    }
}
