//! Executions of a cluster: the dispatch owner of a namespace runs its executions, under its owner epoch (`term`).
//!
//! Their histories are on the cluster's servers. An owner takes the histories of its namespace, which fences the former
//! owner, replays them and continues; it asks the nodes for the outcomes of tasks. It dispatches only under its own
//! epoch, which nodes refuse once there is a higher one. The ownership document of a namespace says that the namespace
//! has executions: when its owner has expired, another controller takes the namespace by itself (`owner_command`,
//! pure).

mod owner_command;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use futures::future::join_all;
use nigh_dispatch::{AskedStates, Dispatcher, OWNERS_TABLE, Owner, Ownership, OwnershipState};
use nigh_engine::{PresentMember, Registry, RegistryChange, RegistryError, SharedHistories};
use nigh_invoke::invocation::InvokeError;
use nigh_terms::Namespace;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::{OnceCell, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::owner_command::{OwnerCommand, owner_command};
use crate::executions::{ExecutionError, ExecutionLimits, ExecutionParts, Executions};

/// How often namespaces that have lost their owner are looked for.
const LOOKED_EVERY: Duration = Duration::from_millis(250);

/// The parts for the executions of the namespaces that this process owns.
pub struct OwnedParts {
    /// Owns namespaces, and runs tasks.
    pub dispatcher: Dispatcher,
    /// Stores the histories of executions.
    pub histories: Arc<dyn SharedHistories>,
    /// Has the ownership documents.
    pub registry: Arc<dyn Registry>,
    /// The members that are present.
    pub present: watch::Receiver<Vec<PresentMember>>,
    /// The parts of each namespace's executions. Each namespace has its own histories, invocations and end.
    pub like: ExecutionParts,
    /// The limits of each namespace.
    pub limits: ExecutionLimits,
}

/// The process that runs the executions of a namespace.
pub enum ExecutionsLocation {
    /// This process runs the executions.
    Here(Executions),
    /// Another process runs the executions.
    There(PresentMember),
}

/// Why the request fails now.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum OwnedError {
    #[error("the dispatch owner of the namespace could not be determined: {0}")]
    Owner(#[from] InvokeError),
    #[error("the histories of the namespace could not be opened: {0}")]
    Histories(#[from] RegistryError),
    #[error(transparent)]
    Executions(#[from] ExecutionError),
    #[error("another process owns the executions of the namespace")]
    NotOwner,
    #[error("the dispatch owner of the namespace does not answer: {0}")]
    Silent(String),
}

/// The executions of a namespace, under one owner epoch.
struct Tenure {
    term: u64,
    executions: OnceCell<Executions>,
    over: CancellationToken,
}

struct OwnedExecutionsState {
    parts: OwnedParts,
    tenures: Mutex<HashMap<Namespace, Arc<Tenure>>>,
    /// Namespaces whose executions are being taken or started.
    busy: Mutex<HashSet<Namespace>>,
    closed: CancellationToken,
}

/// The executions of this process's namespaces. A clone is another handle to them.
#[derive(Clone)]
pub struct OwnedExecutions(Arc<OwnedExecutionsState>);

impl OwnedExecutions {
    /// Runs none yet; `look_after` starts those that others have left.
    #[must_use]
    pub fn new(parts: OwnedParts) -> Self {
        let (tenures, busy, closed) = (Mutex::default(), Mutex::default(), CancellationToken::new());
        Self(Arc::new(OwnedExecutionsState { parts, tenures, busy, closed }))
    }

    /// The process that runs the executions of `namespace`. This process takes them if no process has them, and it may.
    ///
    /// # Errors
    /// Why that is unknown now.
    #[boxed]
    pub async fn at(&self, namespace: &Namespace) -> Result<ExecutionsLocation, OwnedError> {
        match self.0.parts.dispatcher.owner_of(namespace).await? {
            Owner::Me(term) => Ok(ExecutionsLocation::Here(self.0.led(namespace, term).await?)),
            Owner::Other(owner) => Ok(ExecutionsLocation::There(owner)),
        }
    }

    /// The process that `at` has named does not run the executions of `namespace`, or does not answer: `at` finds out anew.
    pub fn not_there(&self, namespace: &Namespace) {
        self.0.parts.dispatcher.not_owner(namespace);
    }

    /// Sends a request to `owner`. Returns the status and the body of its answer.
    ///
    /// # Errors
    /// If it does not answer, or is no longer the owner.
    #[boxed]
    pub async fn ask(
        &self,
        owner: &PresentMember,
        asked: &AskedStates,
        body: Bytes,
    ) -> Result<(u16, Bytes), OwnedError> {
        let answered = self.0.parts.dispatcher.ask_states(owner, asked, body).await.map_err(OwnedError::Silent)?;
        answered.ok_or(OwnedError::NotOwner)
    }

    /// Runs the executions of namespaces that this process owns or must take, until `close`.
    ///
    /// # Errors
    /// If the owners of namespaces cannot be followed.
    #[boxed]
    pub async fn look_after(self) -> Result<(), RegistryError> {
        let OwnedExecutionsState { parts, closed, .. } = &*self.0;
        let mut changes = parts.registry.watch(OWNERS_TABLE).await?;
        let mut present = parts.present.clone();
        let mut owners: HashMap<Namespace, Ownership> = HashMap::new();
        let mut open_since: HashMap<Namespace, Instant> = HashMap::new();
        loop {
            tokio::select! {
                () = closed.cancelled() => return Ok(()),
                change = changes.recv() => {
                    let Some(RegistryChange { key, now }) = change else { return Ok(()) };
                    let Ok(namespace) = Namespace::new(&key) else { continue };
                    match now.map(|now| Ownership::decode(&now.value)).transpose() {
                        Ok(Some(owner)) => drop(owners.insert(namespace, owner)),
                        Ok(None) => drop(owners.remove(&namespace)),
                        Err(why) => tracing::error!(%namespace, why, "it cannot be read who owns the namespace"),
                    }
                }
                // The sender lives as long as the process.
                Ok(()) = present.changed() => {}
                () = tokio::time::sleep(LOOKED_EVERY) => {}
            }
            for (namespace, owner) in owners.iter().filter(|(_, owner)| owner.executes) {
                let standing = parts.dispatcher.standing(owner);
                let open = match standing {
                    OwnershipState::Open { .. } => {
                        let since = open_since.entry(namespace.clone()).or_insert_with(Instant::now);
                        Some((parts.dispatcher.rank(namespace), since.elapsed()))
                    }
                    OwnershipState::Mine(_) | OwnershipState::Theirs(_) => {
                        open_since.remove(namespace);
                        None
                    }
                };
                let (rank, open_for) = open.unwrap_or_default();
                match owner_command(&standing, rank, open_for) {
                    OwnerCommand::Lead(term) if self.0.leads(namespace, term) => {}
                    OwnerCommand::Lead(_) | OwnerCommand::Take => self.take_up(namespace),
                    OwnerCommand::LetGo => self.0.let_go(namespace, owner.term),
                }
            }
        }
    }

    /// Starts the executions of `namespace`, in the background. After a failure the next look tries again.
    fn take_up(&self, namespace: &Namespace) {
        if !self.0.busy.lock().insert(namespace.clone()) {
            return;
        }
        let (this, namespace) = (self.clone(), namespace.clone());
        tokio::spawn(async move {
            if let Err(error) = this.at(&namespace).await {
                tracing::warn!(%namespace, %error, "executions wait for an owner");
            }
            this.0.busy.lock().remove(&namespace);
        });
    }

    /// Takes no more namespaces, lets running tasks end, and stops all executions: they continue in another process, or after a
    /// restart of this node. Await it before the dispatcher leaves.
    #[boxed]
    pub async fn close(&self) {
        self.0.closed.cancel();
        let led = |tenure: &Arc<Tenure>| tenure.executions.get().map(Executions::close);
        let closing: Vec<_> = self.0.tenures.lock().values().filter_map(led).collect();
        join_all(closing).await;
        for (_, tenure) in self.0.tenures.lock().drain() {
            tenure.over.cancel();
        }
    }
}

impl OwnedExecutionsState {
    fn leads(&self, namespace: &Namespace, term: u64) -> bool {
        let tenures = self.tenures.lock();
        let tenure = tenures.get(namespace).filter(|tenure| tenure.term == term && !tenure.over.is_cancelled());
        tenure.is_some_and(|tenure| tenure.executions.initialized())
    }

    /// Stops the executions of a namespace that another process owns in `term`, or no process.
    fn let_go(&self, namespace: &Namespace, term: u64) {
        let mut tenures = self.tenures.lock();
        // A tenure of a later epoch stays: this notice is older.
        if tenures.get(namespace).is_some_and(|tenure| tenure.term <= term)
            && let Some(tenure) = tenures.remove(namespace)
        {
            tenure.over.cancel();
            self.parts.dispatcher.forget(namespace, tenure.term);
        }
    }

    /// The executions of a namespace that this process owns in `term`.
    async fn led(&self, namespace: &Namespace, term: u64) -> Result<Executions, OwnedError> {
        let tenure = {
            let mut tenures = self.tenures.lock();
            let known =
                tenures.get(namespace).filter(|known| known.term == term && !known.over.is_cancelled()).cloned();
            if known.is_none() && self.closed.is_cancelled() {
                return Err(ExecutionError::ShuttingDown.into());
            }
            known.unwrap_or_else(|| {
                let (executions, over) = (OnceCell::new(), CancellationToken::new());
                let tenure = Arc::new(Tenure { term, executions, over });
                if let Some(before) = tenures.insert(namespace.clone(), Arc::clone(&tenure)) {
                    before.over.cancel();
                }
                tenure
            })
        };
        let opened = tenure.executions.get_or_try_init(|| self.open(namespace, &tenure)).await;
        if opened.is_err() {
            // The next tenure opens the executions again.
            tenure.over.cancel();
        }
        opened.cloned()
    }

    async fn open(&self, namespace: &Namespace, Tenure { term, over, .. }: &Tenure) -> Result<Executions, OwnedError> {
        let OwnedParts { dispatcher, histories, like, limits, .. } = &self.parts;
        if !dispatcher.will_execute(namespace, *term).await? {
            return Err(OwnedError::NotOwner);
        }
        let taken = histories.take(namespace, *term).await;
        if let Err(RegistryError::Conflict { .. }) = &taken {
            dispatcher.forget(namespace, *term);
        }
        let (histories, until, over) = (taken?, over.clone(), over.clone());
        let lost = Arc::clone(&histories);
        tokio::spawn(async move {
            if until.run_until_cancelled(lost.lost()).await.is_some() {
                until.cancel();
            }
        });
        let invoke = Arc::new(dispatcher.in_term(*term, over.clone()));
        let parts = ExecutionParts { histories, invoke, over, ..like.clone() };
        tracing::info!(%namespace, term, "this process owns the executions of the namespace");
        Ok(Executions::open(parts, *limits).await?)
    }
}
