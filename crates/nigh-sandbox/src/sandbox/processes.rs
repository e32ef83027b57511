//! The two processes of a sandbox, as seen from Nigh: the keeper, and the init that becomes the command.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Stdio;

use rustix::pipe::{PipeFlags, pipe_with};
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use super::control::{Control, Listeners};
use super::launch::{InitMessage, Launch, Order, Prepare, encode};
use super::step_failure::StepFailure;

/// Keeper and init, with the socket to talk to them.
#[derive(Debug)]
pub(super) struct SandboxProcesses<L> {
    pub(super) keeper: Child,
    pub(super) control: Control,
    pub(super) output: Receiver,
    pub(super) listeners: L,
    /// The process id of the init, if a container runtime made it.
    pub(super) process: Option<u32>,
    /// Its own network namespace, if it has one. Closed when the command starts.
    pub(super) network: Option<OwnedFd>,
}

impl SandboxProcesses<()> {
    /// Starts `nigh-sandbox` and waits until the isolation is complete.
    pub(super) async fn prepare(init: &Path, prepare: &Prepare) -> Result<Self, StepFailure> {
        let message = encode(prepare).map_err(|error| StepFailure::at("describe it", error))?;
        let (ours, theirs) = Control::pair().map_err(|error| StepFailure::at("make a socket", error))?;
        // One pipe for both outputs keeps the order of lines.
        let pipe = || -> io::Result<_> {
            let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
            Ok((Receiver::from_owned_fd(read)?, write.try_clone()?, write))
        };
        let (output, copy, write) = pipe().map_err(|error| StepFailure::at("make a pipe", error))?;
        let keeper = spawn(init, theirs, copy, write)
            .map_err(|error| StepFailure::at(&format!("start {}", init.display()), error))?;
        let mut control = ours;
        control.send(&message).await.map_err(|error| StepFailure::at("describe it", error))?;
        let mut process = None;
        let mut ready = false;
        // The two messages come in either order.
        while !ready || (prepare.container.is_some() && process.is_none()) {
            match next(&mut control).await? {
                InitMessage::Ready => ready = true,
                InitMessage::Contained { process: number } => process = Some(number),
                other => return Err(unexpected(&other)),
            }
        }
        let network = control.take_descriptors().pop();
        Ok(Self { keeper, control, output, listeners: (), process, network })
    }

    /// Tells the init to start the command and waits until the command runs.
    pub(super) async fn launch(mut self, launch: Launch) -> Result<SandboxProcesses<Listeners>, StepFailure> {
        self.order(&Order::Launch(launch)).await?;
        self.runs().await?;
        let listeners =
            self.control.take_listeners().map_err(|error| StepFailure::at("take the listeners over", error))?;
        let Self { keeper, control, output, listeners: (), process, network: _ } = self;
        Ok(SandboxProcesses { keeper, control, output, listeners, process, network: None })
    }

    /// Tells the init to do everything that needs no command, and to end.
    pub(super) async fn probe(mut self, launch: Launch) -> Result<(), StepFailure> {
        self.order(&Order::Launch(launch)).await?;
        self.runs().await?;
        self.control.end();
        self.keeper.wait().await.map(drop).map_err(|error| StepFailure::at("wait for its end", error))
    }

    pub(super) async fn order(&mut self, order: &Order) -> Result<(), StepFailure> {
        let message = encode(order).map_err(|error| StepFailure::at("describe it", error))?;
        self.control.send(&message).await.map_err(|error| StepFailure::at("describe it", error))
    }

    async fn runs(&mut self) -> Result<(), StepFailure> {
        match next(&mut self.control).await? {
            InitMessage::Running => Ok(()),
            other => Err(unexpected(&other)),
        }
    }
}

fn spawn(init: &Path, control: OwnedFd, stdout: OwnedFd, stderr: OwnedFd) -> io::Result<Child> {
    Command::new(init)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(control))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        // Ctrl-C at Nigh's terminal must reach only Nigh.
        .process_group(0)
        .spawn()
}

/// The next message of keeper or init. A failure that they report is the error.
pub(super) async fn next(control: &mut Control) -> Result<InitMessage, StepFailure> {
    match control.report().await {
        Ok(Some(InitMessage::Failed { step, reason })) => Err(StepFailure { step, reason, program: None }),
        Ok(Some(InitMessage::NotExecuted { step, reason, fault })) => {
            Err(StepFailure { step, reason, program: Some(fault) })
        }
        Ok(Some(report)) => Ok(report),
        Ok(None) => Err(StepFailure::at("start it", "nigh-sandbox ended without a message")),
        Err(error) => Err(StepFailure::at("start it", error)),
    }
}

pub(super) fn unexpected(report: &InitMessage) -> StepFailure {
    StepFailure::at("start it", format!("unexpected message {report:?}"))
}
