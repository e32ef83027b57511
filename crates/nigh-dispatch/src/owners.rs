//! Finding, becoming and telling the owner of a namespace.
//!
//! A new owner, in this order, writes the document, announces its term to every node that runs functions, reads the newest
//! version of every home, and dispatches. The homes' versions include whatever ended under the former owner and was told to
//! anybody: if a node did not know the new term when an invocation ended there, the announcement came later, and the homes
//! are read after the announcement.

pub(crate) mod ownership;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use nigh_data::ObjectError;
use nigh_engine::{NodeRole, PresentMember, RegistryError, Revision};
use nigh_invoke::invocation::InvokeError;
use nigh_protocol::Member;
use nigh_rpc::{Method, PeerAddress};
use nigh_schedule::scheduler::Fingerprint;
use nigh_terms::{Monotonic, Namespace, NodeId, Token, invariant};
use tokio::time::Instant;

use self::ownership::{OWNERS_TABLE, Ownership, OwnershipState, standing};
use crate::controller::OwnedNamespace;
use crate::dispatcher_state::DispatcherState;
use crate::wire::{ANNOUNCE, AnnounceHead, HAND_OVER, HandOverAnswer, HandOverHead, decode, encode};

/// The pause between two attempts.
pub(super) const PAUSE: Duration = Duration::from_millis(25);
/// The time limit of one small call.
const CALL_WITHIN: Duration = Duration::from_secs(2);
/// How long a writer outside may wait until an owner knows of its write.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(15);
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
        let own = self.controller.lock().term(namespace);
        if let Some(term) = own.filter(|term| standing != OwnershipState::Mine(*term)) {
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
            return self.begin(namespace, term, deadline).await;
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

    /// What must be done before the first dispatch of a term.
    async fn begin(&self, namespace: &Namespace, term: u64, deadline: Monotonic) -> Result<Owner, InvokeError> {
        self.announce(namespace, term, deadline).await?;
        tracing::debug!(target: "failover", step = "owner_announced", %namespace, term);
        let newest = self.parts.homes.newest_of_all().await;
        let newest =
            newest.map_err(|error| InvokeError::TooManyRequests(format!("before the first dispatch: {error}")))?;
        tracing::debug!(target: "failover", step = "owner_began", %namespace, term);
        tracing::info!(%namespace, term, "this controller dispatches the namespace");
        metrics::counter!("nigh_dispatch_takeovers_total").increment(1);
        self.elsewhere.lock().remove(namespace);
        let owned = OwnedNamespace::new(term, &newest);
        let before = self.controller.lock().placing.owned.insert(namespace.clone(), owned).map(|before| before.term);
        // Each claim writes a higher term, and one task a namespace claims: a term never goes down.
        invariant!(before < Some(term), "{namespace} is owned in term {term} after {before:?}");
        Ok(Owner::Me(term))
    }

    /// Announces the term to every member that runs functions.
    async fn announce(&self, namespace: &Namespace, term: u64, deadline: Monotonic) -> Result<(), InvokeError> {
        let mut told: Vec<Member> = Vec::new();
        loop {
            let of = |one: &PresentMember| Member { node: one.presence.number, incarnation: one.incarnation };
            let open: Vec<PresentMember> = {
                let present = self.parts.present.borrow();
                present.iter().filter(|one| one.has(NodeRole::Run) && !told.contains(&of(one))).cloned().collect()
            };
            if open.is_empty() {
                return Ok(());
            }
            let calls = open.iter().map(|one| async move {
                let head = AnnounceHead { namespace: namespace.clone(), term, to: of(one) };
                self.small::<()>(one, &ANNOUNCE, &encode(&head)).await.map(|()| of(one))
            });
            let answers = futures::future::join_all(calls).await;
            let mut silent = None;
            for answer in answers {
                match answer {
                    Ok(member) => told.push(member),
                    Err(why) => silent = Some(why),
                }
            }
            if let Some(why) = silent {
                if self.now() >= deadline {
                    let why = format!("a node does not answer the announcement of the new dispatch owner: {why}");
                    return Err(InvokeError::TooManyRequests(why));
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }

    /// A call whose answer is a head alone.
    pub(super) async fn small<T: serde::de::DeserializeOwned>(
        &self,
        to: &PresentMember,
        method: &'static Method,
        head: &[u8],
    ) -> Result<T, String> {
        let by = Instant::now() + CALL_WITHIN;
        let answer = self.parts.peers.call(&address(to), method, head, Bytes::new(), by).await;
        decode(&answer.map_err(|error| error.to_string())?.head)
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

    /// An invocation of `term` has ended and had seen `token`. Returns when the next dispatch will carry the token, by whichever
    /// owner. `settled`: when the run ended there was no later owner.
    pub(super) async fn joined(&self, namespace: &Namespace, term: u64, token: &Token, settled: bool) {
        let is_mine = self.controller.lock().see(namespace, Some(term), token);
        if settled && is_mine {
            return;
        }
        self.until_handed_over(namespace, token).await;
    }

    /// As `hand_over`, however long it takes.
    pub(super) async fn until_handed_over(&self, namespace: &Namespace, token: &Token) {
        while let Err(error) = self.hand_over(namespace, token).await {
            tracing::warn!(%namespace, %error, "the end of an invocation is held back: its token does not reach the dispatch owner");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns when the next dispatch of `namespace` will carry `token`, by whichever owner. The registry is asked each time: a
    /// former owner may not know yet that its epoch is over.
    pub(super) async fn hand_over(&self, namespace: &Namespace, token: &Token) -> Result<(), ObjectError> {
        let deadline = self.now().after(HAND_OVER_WITHIN);
        let mut last = String::from("nobody dispatches the namespace");
        loop {
            match self.hand_over_once(namespace, token, deadline).await {
                Ok(HandOverAnswer::Taken) => return Ok(()),
                Ok(HandOverAnswer::NotOwner) => {}
                Err(why) => last = why,
            }
            if self.now() >= deadline {
                return Err(ObjectError::Busy(format!(
                    "the dispatch owner of the namespace does not take the token: {last}"
                )));
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    async fn hand_over_once(
        &self,
        namespace: &Namespace,
        token: &Token,
        deadline: Monotonic,
    ) -> Result<HandOverAnswer, String> {
        let found = self.document(namespace).await.map_err(|error| error.to_string())?;
        let to = match self.true_standing(namespace, found.as_ref().map(|(document, _)| document)) {
            // An owner that begins after this reads the homes, which have the write.
            OwnershipState::Open { abandoned: false, .. } => return Ok(HandOverAnswer::Taken),
            OwnershipState::Open { abandoned: true, .. } if !self.may_own() => self.controller_for(namespace),
            OwnershipState::Mine(_) | OwnershipState::Open { .. } => {
                return match self.owner(namespace, deadline).await {
                    Ok(Owner::Me(term)) if self.controller.lock().see(namespace, Some(term), token) => {
                        Ok(HandOverAnswer::Taken)
                    }
                    Ok(_) => Ok(HandOverAnswer::NotOwner),
                    Err(error) => Err(error.to_string()),
                };
            }
            OwnershipState::Theirs(owner) => Some(owner),
        };
        let Some(to) = to else { return Err("the cluster has no controller".to_owned()) };
        let head = HandOverHead { namespace: namespace.clone(), token: token.clone() };
        self.small(&to, &HAND_OVER, &encode(&head)).await
    }

    /// Another process hands a token over: taken if this process owns the namespace now, or becomes its owner.
    pub(super) async fn handed_over(&self, HandOverHead { namespace, token }: HandOverHead) -> HandOverAnswer {
        let found = match self.document(&namespace).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%namespace, %error, "the registry cannot tell who dispatches the namespace");
                return HandOverAnswer::NotOwner;
            }
        };
        match self.true_standing(&namespace, found.as_ref().map(|(document, _)| document)) {
            OwnershipState::Open { abandoned: false, .. } => HandOverAnswer::Taken,
            OwnershipState::Theirs(_) => HandOverAnswer::NotOwner,
            OwnershipState::Mine(_) | OwnershipState::Open { .. } if !self.parts.owns => HandOverAnswer::NotOwner,
            OwnershipState::Mine(_) | OwnershipState::Open { .. } => {
                let deadline = self.now().after(CALL_WITHIN);
                match self.owner(&namespace, deadline).await {
                    Ok(Owner::Me(term)) if self.controller.lock().see(&namespace, Some(term), &token) => {
                        HandOverAnswer::Taken
                    }
                    _ => HandOverAnswer::NotOwner,
                }
            }
        }
    }
}
