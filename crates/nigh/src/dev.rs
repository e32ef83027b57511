//! `nigh dev`: deploys a function's folder at each save, and shows what its invocations do.
//!
//! `session` decides; here its actions are carried out, each on a task of its own, and what comes of them are the next
//! events. A node is started if none runs. Without a terminal there are lines only; `--once` is for scripts.

pub(crate) mod keys;
mod own_node;
mod screen;
mod session;
mod watcher;
mod work;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::keys::KeyTerminal;
use self::own_node::OwnNode;
use self::session::{Action, Event, Line, Scope, Session};
use crate::context::Globals;
use crate::deploy::{PROJECT_FILE, Project};
use crate::end_signals::EndSignals;
use crate::error::CliError;
use crate::failure;
use crate::output;
use crate::printable;

/// The exit code of a command that a signal ended.
const INTERRUPTED: u8 = 130;
/// Events that wait to be handled; then their senders wait.
const EVENTS_MAX: usize = 256;

/// Options of `nigh dev`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh dev                              in a folder that `nigh init` made
  nigh dev hello --invoke               each save is deployed and tried
  nigh dev --once                       for scripts: the answer on standard output, the exit code 1 if it failed

Keys: i invokes with the event, e edits it, a tries each save, d deploys all again, ? lists them, q ends.
If no node runs, one is started, which ends with this command; its log is dev.log in the state folder.")]
pub(crate) struct DevArgs {
    /// The function's folder, with its nigh.toml
    #[arg(default_value = ".")]
    folder: PathBuf,
    /// The event for trials as JSON: the text itself, or @FILE [default: the file event.json in the folder]
    #[arg(long, value_name = "JSON")]
    event: Option<String>,
    /// Invoke with the event after each deployment
    #[arg(long)]
    invoke: bool,
    /// Deploy, invoke once with the event, print its log and answer, and end
    #[arg(long)]
    once: bool,
}

/// Develops.
pub(crate) async fn run(args: DevArgs, globals: &Globals) -> Result<ExitCode, CliError> {
    let project = Project::open(&args.folder)?;
    if globals.endpoint.is_some() {
        let why =
            "nigh dev works with a node on this machine: leave out --endpoint, or use `nigh deploy` and `nigh invoke`";
        return Err(CliError::Usage(why.to_owned()));
    }
    // For scripts a missing event is an error before anything is done.
    let event = if args.once { Some(work::event(args.event.as_deref(), &project)?) } else { None };
    let file = project.folder.join(PROJECT_FILE);
    // Handled from here on: the node that is started ends with this process.
    let mut signals = EndSignals::handle().map_err(CliError::local("handling signals"))?;
    let mut own = tokio::select! {
        own = OwnNode::ensure(globals, project.file.has_node_settings.then_some(file.as_path())) => own?,
        () = signals.end() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    let ended = match event {
        Some(event) => tokio::select! {
            ended = Box::pin(once(event, &project, globals)) => ended,
            () = signals.end() => Ok(ExitCode::from(INTERRUPTED)),
        },
        None => Box::pin(develop(&args, &project, own.as_ref(), &mut signals, globals)).await,
    };
    if let Some(own) = &mut own {
        tokio::select! {
            () = own.end(globals) => {}
            // Dropped, the node is killed, which loses nothing that it has acknowledged.
            () = signals.end_at_once() => {}
        }
    }
    ended
}

/// Deploys and invokes once.
async fn once(event: Bytes, project: &Project, globals: &Globals) -> Result<ExitCode, CliError> {
    let deployment = work::deploy(&project.folder, Scope::All, Instant::now(), globals).await?;
    let answer = work::try_out(&project.name, event, globals).await?;
    let ended = work::ended(&answer, &globals.admin()?).await?;
    let code = if answer.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
    if globals.json {
        let text = serde_json::from_str(&answer.text).unwrap_or_else(|_| Value::from(answer.text.clone()));
        output::json(&json!({ "deployed": deployment, "answer": text, "failed": answer.failed, "ended": ended }))?;
        return Ok(code);
    }
    for change in &deployment.changes {
        output::remark(change);
    }
    for line in screen::output_lines(&ended) {
        output::remark(printable::shown(&stderr(), line));
    }
    // On a terminal the failure stands in place of the answer, as with `nigh invoke`.
    if ended.failure.is_none() || !stdout().is_terminal() {
        output::line(printable::shown(&stdout(), &answer.text))?;
    }
    if let Some(failure) = &ended.failure {
        failure::print(failure);
    }
    output::remark(format_args!("nigh: {}", printable::shown(&stderr(), &screen::facts(&ended))));
    Ok(code)
}

/// The tasks that carry out actions, and what they share.
struct Tasks<'a> {
    args: &'a DevArgs,
    project: &'a Project,
    globals: &'a Globals,
    events: mpsc::Sender<Event>,
    terminal: Option<KeyTerminal>,
    /// When the last save was seen.
    saved: Instant,
}

/// Deploys at each save until the user ends it.
async fn develop(
    args: &DevArgs,
    project: &Project,
    own: Option<&OwnNode>,
    signals: &mut EndSignals,
    globals: &Globals,
) -> Result<ExitCode, CliError> {
    let (sender, mut events) = mpsc::channel(EVENTS_MAX);
    watch_folder(project, sender.clone());
    follow_invocations(project, sender.clone(), globals).await?;
    let terminal = if screen::has_keys() {
        let keys = sender.clone();
        let opened = KeyTerminal::open(move |key| keys.blocking_send(Event::Key(key)).is_ok());
        Some(opened.map_err(CliError::local("the terminal"))?)
    } else {
        None
    };
    greet(project, own, terminal.is_some(), globals.json)?;
    let mut tasks = Tasks { args, project, globals, events: sender, terminal, saved: Instant::now() };
    let (mut session, mut actions) = Session::begin(args.invoke);
    loop {
        for action in actions {
            match action {
                Action::Print(line) => screen::print(&line, globals.json)?,
                Action::Deploy(scope) => tasks.deploy(scope),
                Action::Invoke => tasks.invoke(),
                Action::Edit => tasks.edit().await,
                Action::Quit => return Ok(ExitCode::SUCCESS),
                Action::Fail(why) => return Err(CliError::Failed(why)),
            }
        }
        let event = tokio::select! {
            event = events.recv() => event,
            () = signals.end() => None,
        };
        let Some(event) = event else { return Ok(ExitCode::SUCCESS) };
        if matches!(event, Event::Saved { .. }) {
            tasks.saved = Instant::now();
        }
        actions = session.handle(event);
    }
}

/// The first line: what happens here.
fn greet(project: &Project, own: Option<&OwnNode>, has_keys: bool, as_json: bool) -> Result<(), CliError> {
    let node = match own {
        Some(own) => format!("; a node was started, its log is {}", own.log().display()),
        None => String::new(),
    };
    let keys = if has_keys { "; ? lists the keys" } else { "" };
    let text = format!("{} is deployed from {} at each save{node}{keys}", project.name, project.folder.display());
    screen::print(&Line::Remark { text }, as_json)
}

/// Sends an event for each save, from a thread of its own.
fn watch_folder(project: &Project, events: mpsc::Sender<Event>) {
    let folder = project.folder.clone();
    // A changed event is no change of the function.
    let event = project.event();
    let event = event.strip_prefix(&folder).map(|name| name.to_string_lossy().into_owned());
    let ignored: BTreeSet<String> = event.into_iter().collect();
    // Looked at before the first deployment, which takes what is saved until it packs.
    let now = watcher::Snapshot::of(&folder, &ignored);
    std::thread::spawn(move || {
        watcher::watch(&folder, &ignored, now, |files| {
            let settings = files.iter().any(|file| file == PROJECT_FILE);
            events.blocking_send(Event::Saved { files, settings }).is_ok()
        });
    });
}

/// Sends an event for each invocation that ends, and one if the node does.
async fn follow_invocations(project: &Project, events: mpsc::Sender<Event>, globals: &Globals) -> Result<(), CliError> {
    let (admin, namespace, name) = (globals.admin()?, globals.namespace().await?, project.name.clone());
    tokio::spawn(async move {
        let why = match work::follow(&admin, &namespace, &name, &events).await {
            Ok(()) => "the node has ended".to_owned(),
            Err(error) => format!("the node has ended: {error}"),
        };
        // It fails only if the session has ended.
        let _ = events.send(Event::NodeLost(why)).await;
    });
    Ok(())
}

impl Tasks<'_> {
    fn deploy(&self, scope: Scope) {
        let (folder, began) = (self.project.folder.clone(), self.saved);
        let (globals, events) = (self.globals.clone(), self.events.clone());
        tokio::spawn(Box::pin(async move {
            let deployed = work::deploy(&folder, scope, began, &globals).await;
            // It fails only if the session has ended.
            let _ = events.send(Event::Deployed(deployed.map_err(|error| error.to_string()))).await;
        }));
    }

    fn invoke(&self) {
        let (project, globals, events) = (self.project.clone(), self.globals.clone(), self.events.clone());
        let given = self.args.event.clone();
        tokio::spawn(Box::pin(async move {
            let answered = match work::event(given.as_deref(), &project) {
                Ok(event) => work::try_out(&project.name, event, &globals).await,
                Err(error) => Err(error),
            };
            // It fails only if the session has ended.
            let _ = events.send(Event::Answered(answered.map_err(|error| error.to_string()))).await;
        }));
    }

    /// Opens the event in the user's editor, which has the terminal meanwhile: events wait.
    async fn edit(&self) {
        let edited = match (&self.args.event, &self.terminal) {
            (Some(_), _) => Err("the event is given by --event; without it, event.json is edited".to_owned()),
            (None, None) => Err("there is no terminal to edit at".to_owned()),
            (None, Some(terminal)) => edit(terminal, &self.project.event()).await,
        };
        let events = self.events.clone();
        tokio::spawn(async move { events.send(Event::Edited(edited)).await });
    }
}

async fn edit(terminal: &KeyTerminal, file: &Path) -> Result<(), String> {
    let named =
        ["VISUAL", "EDITOR"].into_iter().find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let editor = named.unwrap_or_else(|| "vi".to_owned());
    match terminal.edit(&editor, file).await {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{editor}: {status}")),
        Err(error) => Err(format!("{editor}: {error}")),
    }
}
