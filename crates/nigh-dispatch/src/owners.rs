//! Finding and becoming the owner of a namespace.
//!
//! A new owner, in this order, writes the document, announces its term to every node that runs functions, reads the newest
//! version of every home, and dispatches (`takeover`). Tokens are handed to it meanwhile (`handing_over`).

mod handing_over;
pub(crate) mod ownership;
mod takeover;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nigh_engine::{NodeRole, PresentMember, RegistryError, Revision};
use nigh_invoke::invocation::InvokeError;
use nigh_rpc::PeerAddress;
use nigh_schedule::scheduler::Fingerprint;
use nigh_terms::{Monotonic, Namespace, NodeId};

use self::ownership::{OWNERS_TABLE, Ownership, OwnershipState, standing};
use crate::dispatcher_state::DispatcherState;

/// The pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(25);
/// The time limit of one small call. It ends earlier if the node called is a member no more.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// Namespaces that one controller owns, or knows the owners of, at most.
const NAMESPACES_MAX: usize = 65_536;

/// Who owns a namespace.
pub enum Owner {
    /// This process, in this term.
    Me(u64),
    /// Another member; or nobody, and this member is to take it.
    Other(PresentMember),
}

fn failed(error: &RegistryError) -> InvokeError {
    InvokeError::TooManyRequests(format!(
        "the registry cannot tell who dispatches the namespace: {error}; invoke again later"
    ))
}

/// The address of a member, in its present incarnation.
pub(super) fn address(member: &PresentMember) -> PeerAddress {
    PeerAddress {
        name: member.node.0.as_str().into(),
        address: member.presence.address.as_str().into(),
        incarnation: Some(member.incarnation.0),
    }
}

impl DispatcherState {
    pub(super) fn living(&self, lives: impl Fn(&PresentMember) -> bool) -> Option<PresentMember> {
        self.parts.present.borrow().iter().find(|member| lives(member)).cloned()
    }

    fn known_owner(&self, namespace: &Namespace) -> Option<Owner> {
        if let Some(term) = self.controller.lock().term(namespace) {
            return Some(Owner::Me(term));
        }
        let known = self.elsewhere.lock().get(namespace).cloned()?;
        // It must be the same incarnation; its address may have changed.
        let is_it = |member: &PresentMember| (&member.node, member.incarnation) == (&known.node, known.incarnation);
        self.living(is_it).map(Owner::Other)
    }

    /// The known owner does not own the namespace.
    pub(super) fn not_owner(&self, namespace: &Namespace) {
        self.elsewhere.lock().remove(namespace);
    }

    /// This process does not own `namespace` in `term` any more.
    pub(super) fn forget(&self, namespace: &Namespace, term: u64) {
        let mut controller = self.controller.lock();
        controller.end_takeover(namespace, term);
        if controller.term(namespace) == Some(term) {
            tracing::info!(%namespace, term, "another controller dispatches the namespace");
            controller.placing.owned.remove(namespace);
            // Invocations that wait here go to the new owner.
            controller.pump(self.now());
        }
    }

    /// Who owns `namespace`. This process becomes its owner if there is none and it may.
    pub(super) async fn owner(&self, namespace: &Namespace, deadline: Monotonic) -> Result<Owner, InvokeError> {
        if let Some(known) = self.known_owner(namespace) {
            return Ok(known);
        }
        let turn = Arc::clone(self.asking.lock().entry(namespace.clone()).or_default());
        let asked = {
            let _turn = turn.lock().await;
            match self.known_owner(namespace) {
                Some(known) => Ok(known),
                None => self.ask_owner(namespace, deadline).await,
            }
        };
        drop(turn);
        self.asking.lock().retain(|_, turn| Arc::strong_count(turn) > 1);
        asked
    }

    async fn document(&self, namespace: &Namespace) -> Result<Option<(Ownership, Revision)>, RegistryError> {
        let found = self.parts.registry.get(OWNERS_TABLE, namespace.as_str()).await?;
        let Some(found) = found else { return Ok(None) };
        let read = Ownership::decode(&found.value);
        let document = read.map_err(|why| RegistryError::Storage(format!("{OWNERS_TABLE}/{namespace}: {why}")))?;
        Ok(Some((document, found.revision)))
    }

    pub(super) fn standing(&self, document: Option<&Ownership>) -> OwnershipState {
        standing(document, (&self.parts.node, self.parts.me.incarnation), &self.parts.present.borrow())
    }

    /// As `standing`. If this process believed that it owns the namespace and does not, it stops dispatching.
    fn true_standing(&self, namespace: &Namespace, document: Option<&Ownership>) -> OwnershipState {
        let standing = self.standing(document);
        let (own, taking) = {
            let controller = self.controller.lock();
            (controller.term(namespace), controller.takeover(namespace))
        };
        // A document of an earlier term was read before this process wrote its own.
        let taking = taking.filter(|term| document.is_some_and(|document| document.term >= *term));
        for term in own.into_iter().chain(taking).filter(|term| standing != OwnershipState::Mine(*term)) {
            self.forget(namespace, term);
        }
        standing
    }

    async fn ask_owner(&self, namespace: &Namespace, deadline: Monotonic) -> Result<Owner, InvokeError> {
        loop {
            let found = self.document(namespace).await.map_err(|error| failed(&error))?;
            let term = match self.standing(found.as_ref().map(|(document, _)| document)) {
                OwnershipState::Mine(term) => term,
                OwnershipState::Theirs(owner) => return Ok(self.learn_owner(namespace, owner)),
                OwnershipState::Open { term, .. } if self.may_own() => match self.claim(namespace, term, found).await {
                    Ok(()) => term,
                    Err(RegistryError::Conflict { .. }) => continue,
                    Err(error) => return Err(failed(&error)),
                },
                OwnershipState::Open { .. } => match self.controller_for(namespace) {
                    Some(controller) => return Ok(Owner::Other(controller)),
                    None if self.now() < deadline => {
                        tokio::time::sleep(PAUSE).await;
                        continue;
                    }
                    None => {
                        let why = "the cluster has no controller; start a node with the role controller";
                        return Err(InvokeError::TooManyRequests(why.to_owned()));
                    }
                },
            };
            if let Some(owner) = self.begin(namespace, term, deadline).await? {
                return Ok(owner);
            }
            if self.now() >= deadline {
                let why =
                    "other controllers become the dispatch owner of the namespace one after another; invoke again";
                return Err(InvokeError::TooManyRequests(why.to_owned()));
            }
        }
    }

    fn may_own(&self) -> bool {
        let full = || self.controller.lock().placing.owned.len() >= NAMESPACES_MAX;
        self.parts.owns && !self.leaving.load(Ordering::SeqCst) && !full()
    }

    fn learn_owner(&self, namespace: &Namespace, owner: PresentMember) -> Owner {
        let mut elsewhere = self.elsewhere.lock();
        if elsewhere.len() >= NAMESPACES_MAX {
            elsewhere.clear();
        }
        elsewhere.insert(namespace.clone(), owner.clone());
        Owner::Other(owner)
    }

    /// Who is to take a namespace without an owner: all processes that know the same members choose the same controller.
    fn controller_for(&self, namespace: &Namespace) -> Option<PresentMember> {
        let (present, of) = (self.parts.present.borrow(), Fingerprint::of(&[namespace.as_str()]));
        let controllers = present.iter().filter(|one| one.has(NodeRole::Controller) && one.node != self.parts.node);
        controllers.max_by_key(|one| Fingerprint::of(&[&one.node.0]).affinity(of)).cloned()
    }

    async fn claim(
        &self,
        namespace: &Namespace,
        term: u64,
        found: Option<(Ownership, Revision)>,
    ) -> Result<(), RegistryError> {
        let executes = found.as_ref().is_some_and(|(document, _)| document.executes);
        let document = Ownership::of(&self.parts.node, self.parts.me.incarnation, term).executing(executes);
        self.write(namespace, &document, found.map(|(_, revision)| revision)).await?;
        tracing::debug!(target: "failover", step = "owner_claimed", %namespace, term);
        Ok(())
    }

    /// Says in the document that the namespace has executions. False if this process does not own it in `term`.
    pub(super) async fn will_execute(&self, namespace: &Namespace, term: u64) -> Result<bool, RegistryError> {
        loop {
            let Some((document, revision)) = self.document(namespace).await? else { return Ok(false) };
            if self.true_standing(namespace, Some(&document)) != OwnershipState::Mine(term) {
                return Ok(false);
            }
            if document.executes {
                return Ok(true);
            }
            let document = document.executing(true);
            match self.write(namespace, &document, Some(revision)).await {
                Ok(()) => return Ok(true),
                // Another process took the namespace, or this process has just written the document.
                Err(RegistryError::Conflict { .. }) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The rank of this process among the controllers that may take a namespace without an owner: the first is to take it.
    pub(super) fn rank(&self, namespace: &Namespace) -> Option<usize> {
        if !self.may_own() {
            return None;
        }
        let (present, of) = (self.parts.present.borrow(), Fingerprint::of(&[namespace.as_str()]));
        let affinity = |node: &NodeId| Fingerprint::of(&[&node.0]).affinity(of);
        let own = affinity(&self.parts.node);
        let others = present.iter().filter(|one| one.has(NodeRole::Controller) && one.node != self.parts.node);
        Some(others.filter(|one| affinity(&one.node) > own).count())
    }

    async fn write(
        &self,
        namespace: &Namespace,
        document: &Ownership,
        revision: Option<Revision>,
    ) -> Result<(), RegistryError> {
        let bytes = serde_json::to_vec(document).map_err(|error| RegistryError::Storage(error.to_string()))?;
        self.parts.registry.put(OWNERS_TABLE, namespace.as_str(), bytes, revision).await.map(drop)
    }

    /// Releases `namespace`, if this process owns it.
    pub(super) async fn let_go(&self, namespace: &Namespace) -> Result<(), RegistryError> {
        let found = self.document(namespace).await?;
        if let Some((document, revision)) = found
            && let OwnershipState::Mine(term) = self.standing(Some(&document))
        {
            self.forget(namespace, term);
            self.write(namespace, &document.freed(), Some(revision)).await?;
        }
        Ok(())
    }
}
