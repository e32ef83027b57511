//! What the tasks of a dispatcher share: its parts, its settings, what it keeps, and the invocations on their way.

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_data::ObjectError;
use nigh_engine::{Namespaces, PresentMember, Registry};
use nigh_functions::function::FunctionSource;
use nigh_invoke::applications::Applications;
use nigh_invoke::invocation::gate::InvocationGate;
use nigh_invoke::invocation::{InvocationResult, InvokeError, InvokeRequest};
use nigh_objects::ObjectMemory;
use nigh_protocol::Member;
use nigh_rpc::Peers;
use nigh_schedule::scheduler::Weights;
use nigh_schedule::scheduler::dispatch_queue::DispatchLimits;
use nigh_terms::{Clock, InvocationId, Monotonic, Namespace, NodeId, Token};
use parking_lot::Mutex;
use tokio::sync::{Notify, OnceCell, watch};

use crate::controller::ControllerState;
use crate::controller::cluster_view::FunctionKey;
use crate::kept_runs::KeptRuns;
use crate::wire::AskedStates;

/// The homes of a cluster's shards, as a controller asks them.
#[async_trait]
pub trait DispatchHomes: Send + Sync {
    /// The newest version of each home, under its present epoch or a later one. An owner must read them before its first
    /// dispatch.
    ///
    /// # Errors
    /// Which home does not answer.
    async fn newest_of_all(&self) -> Result<Token, ObjectError>;

    /// Has every home fence `member`. Returns the newest version of each.
    ///
    /// # Errors
    /// Which home does not answer; ask again.
    async fn fence(&self, member: Member) -> Result<Token, ObjectError>;
}

/// How a controller dispatches.
#[derive(Clone, Copy, Debug)]
pub struct DispatchSettings {
    /// How many invocations may wait for a node.
    pub queue: DispatchLimits,
    /// How long an invocation may wait for an owner and a node.
    pub wait: Duration,
    /// How nodes are weighed.
    pub weights: Weights,
    /// How long a cold start is expected to take.
    pub cold_start: Duration,
}

impl Default for DispatchSettings {
    fn default() -> Self {
        Self {
            queue: DispatchLimits::default(),
            wait: Duration::from_secs(20),
            weights: Weights::default(),
            cold_start: Duration::from_millis(20),
        }
    }
}

/// What a dispatcher needs.
pub struct DispatcherParts {
    /// This node.
    pub node: NodeId,
    /// This incarnation of it.
    pub me: Member,
    /// It may own namespaces: it has the role `controller`.
    pub owns: bool,
    /// Where functions are found.
    pub functions: Arc<dyn FunctionSource>,
    /// The gate of the invocations that run here; None where none run.
    pub gate: Option<Arc<dyn InvocationGate>>,
    /// The homes of the cluster.
    pub homes: Arc<dyn DispatchHomes>,
    /// Where owners are registered.
    pub registry: Arc<dyn Registry>,
    /// What is learned of the objects that invocations read.
    pub applications: Applications,
    /// Prefetches objects into nodes' memories; None where that is off.
    pub memory: Option<ObjectMemory>,
    /// Calls other processes, with as many connections to a node as it may run invocations for this process.
    pub peers: Peers,
    /// The present members.
    pub present: watch::Receiver<Vec<PresentMember>>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Answers requests of the Step Functions API for the namespaces that this process owns.
#[async_trait]
pub trait AnswerStates: Send + Sync {
    /// The status and the body of the answer; nothing if another process owns the namespace.
    async fn answer(&self, asked: AskedStates, body: Bytes) -> Option<(u16, Bytes)>;
}

type Fence = Arc<OnceCell<Token>>;

/// What the tasks of a dispatcher share.
pub(super) struct DispatcherState {
    /// For tasks that go on when their caller has gone.
    pub(super) itself: Weak<Self>,
    pub(super) parts: DispatcherParts,
    pub(super) settings: DispatchSettings,
    pub(super) controller: Mutex<ControllerState>,
    /// Owners in other processes, as they were known last.
    pub(super) elsewhere: Mutex<HashMap<Namespace, PresentMember>>,
    /// Held while a task finds out who owns a namespace: one task a namespace.
    pub(super) asking: Mutex<HashMap<Namespace, Arc<tokio::sync::Mutex<()>>>>,
    pub(super) leaving: AtomicBool,
    pub(super) fences: Mutex<HashMap<Member, Fence>>,
    /// Invocations that other processes have handed to this one.
    pub(super) handed: Mutex<KeptRuns>,
    /// Answers requests of the Step Functions API.
    pub(super) states: OnceLock<Weak<dyn AnswerStates>>,
    /// The quotas of namespaces.
    pub(super) quotas: OnceLock<Namespaces>,
    /// When a sandbox was made ahead for a function, as long as that is recent.
    pub(super) made_ahead: Mutex<HashMap<FunctionKey, Monotonic>>,
    pub(super) room: Notify,
    /// Notified when this process has announced its term of a namespace.
    pub(super) announced: Notify,
}

/// An invocation on its way.
pub(super) struct Task {
    pub(super) namespace: Namespace,
    pub(super) request: InvokeRequest,
    pub(super) id: InvocationId,
    pub(super) attempt: u32,
    pub(super) deadline: Monotonic,
    pub(super) by: DispatchAuthority,
}

/// Who may dispatch a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DispatchAuthority {
    /// Any owner of its namespace.
    Anybody,
    /// This process: another process handed the task to it.
    ThisProcess,
    /// This process, and only in this term.
    Term(u64),
}

impl DispatchAuthority {
    pub(super) fn allows(self, term: u64) -> bool {
        !matches!(self, Self::Term(only) if only != term)
    }
}

/// How a task ends.
pub(super) enum Outcome {
    Ended(InvocationResult),
    /// Another process owns the namespace; nothing was done.
    NotOwner,
}

/// How a task ends, or why nothing of it ran.
pub(super) type DispatchResult = Result<Outcome, InvokeError>;

impl DispatcherState {
    pub(super) fn new(itself: Weak<Self>, parts: DispatcherParts, settings: DispatchSettings) -> Self {
        Self {
            itself,
            parts,
            settings,
            controller: Mutex::new(ControllerState::new(settings.weights, settings.cold_start, settings.queue)),
            elsewhere: Mutex::default(),
            asking: Mutex::default(),
            leaving: AtomicBool::new(false),
            fences: Mutex::default(),
            handed: Mutex::default(),
            states: OnceLock::new(),
            quotas: OnceLock::new(),
            made_ahead: Mutex::default(),
            room: Notify::new(),
            announced: Notify::new(),
        }
    }

    pub(super) fn now(&self) -> Monotonic {
        self.parts.clock.monotonic()
    }
}
