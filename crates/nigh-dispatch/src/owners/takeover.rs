//! How a controller takes a namespace over.
//!
//! The homes' versions include whatever ended under the former owner and was told to anybody: if a node did not know the new
//! term when an invocation ended there, the announcement came later, and the homes are read after the announcement.
//!
//! The homes may be read late: those of a dead node are read when others have taken its shards. Writers outside need not wait
//! for that. Once the term is announced, no node takes a dispatch of the former owner; so this controller takes their tokens
//! and keeps them beside what it reads. A token that comes while the homes are read may be newer than what some of them have
//! answered, so it must be kept. If this controller dies, the next one reads the homes after the write.

use bytes::Bytes;
use futures::StreamExt as _;
use nigh_engine::{NodeRole, PresentMember};
use nigh_invoke::invocation::InvokeError;
use nigh_protocol::Member;
use nigh_rpc::Method;
use nigh_terms::{Monotonic, Namespace, invariant};
use tokio::time::Instant;

use super::ownership::{OWNERS_TABLE, Ownership, OwnershipState};
use super::{CALL_WITHIN, Owner, PAUSE, address};
use crate::controller::OwnedNamespace;
use crate::dispatcher_state::DispatcherState;
use crate::wire::{ANNOUNCE, AnnounceHead, decode, encode};

/// The most abandoned namespaces that are taken over at a time, unasked.
const TAKEN_AT_ONCE: usize = 8;

impl DispatcherState {
    /// Takes over the namespaces whose owner is dead and that this controller is to take. Nobody need ask for them first, so the
    /// first writer or caller does not wait for that.
    pub(crate) async fn take_abandoned(&self) {
        let found = match self.parts.registry.list(OWNERS_TABLE, "").await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "the namespaces of a dead dispatch owner are not known; each is taken over when it is asked for");
                return;
            }
        };
        let abandoned = found.into_iter().filter_map(|(name, found)| {
            // Whoever asks for the namespace of an unreadable document is told so.
            let (namespace, document) = (Namespace::new(&name).ok()?, Ownership::decode(&found.value).ok()?);
            let is_open = matches!(self.standing(Some(&document)), OwnershipState::Open { abandoned: true, .. });
            (is_open && self.rank(&namespace) == Some(0)).then_some(namespace)
        });
        let abandoned: Vec<Namespace> = abandoned.collect();
        futures::stream::iter(abandoned)
            .for_each_concurrent(TAKEN_AT_ONCE, |namespace| async move {
                if let Err(error) = self.owner(&namespace, self.now().after(self.settings.wait)).await {
                    tracing::debug!(%namespace, %error, "an abandoned namespace is taken over when it is asked for");
                }
            })
            .await;
    }

    /// What must be done before the first dispatch of a term. None if another controller has taken the namespace meanwhile.
    pub(super) async fn begin(
        &self,
        namespace: &Namespace,
        term: u64,
        deadline: Monotonic,
    ) -> Result<Option<Owner>, InvokeError> {
        self.announce(namespace, term, deadline).await?;
        tracing::debug!(target: "failover", step = "owner_announced", %namespace, term);
        // From here on no node takes a dispatch of the former owner, so this controller takes tokens.
        let keeps = self.controller.lock().takes_over(namespace, term);
        self.announced.notify_waiters();
        let newest = self.parts.homes.newest_of_all().await;
        let newest = newest.map_err(|error| {
            InvokeError::TooManyRequests(format!("a new dispatch owner cannot read the homes yet: {error}"))
        })?;
        tracing::debug!(target: "failover", step = "owner_began", %namespace, term);
        let mut owned = OwnedNamespace::new(term, &newest);
        let mut controller = self.controller.lock();
        match controller.end_takeover(namespace, term) {
            // Handed over while the homes were read: it may be newer than what one of them has reported.
            Some(kept) => owned.see(&kept),
            None if keeps => return Ok(None),
            None => {}
        }
        let before = controller.placing.owned.insert(namespace.clone(), owned).map(|before| before.term);
        drop(controller);
        // Each claim writes a higher term, and one task a namespace claims: a term never goes down.
        invariant!(before < Some(term), "{namespace} is owned in term {term} after {before:?}");
        tracing::info!(%namespace, term, "this controller dispatches the namespace");
        metrics::counter!("nigh_dispatch_takeovers_total").increment(1);
        self.elsewhere.lock().remove(namespace);
        Ok(Some(Owner::Me(term)))
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
    pub(crate) async fn small<T: serde::de::DeserializeOwned>(
        &self,
        to: &PresentMember,
        method: &'static Method,
        head: &[u8],
    ) -> Result<T, String> {
        let (by, address) = (Instant::now() + CALL_WITHIN, address(to));
        let call = self.parts.peers.call(&address, method, head, Bytes::new(), by);
        let answer = tokio::select! {
            answer = call => answer.map_err(|error| error.to_string())?,
            () = self.until_gone(to) => return Err(format!("{} is a member no more", to.node)),
        };
        decode(&answer.head)
    }

    /// Returns when `member` is a member no more: nothing need be awaited from it.
    async fn until_gone(&self, member: &PresentMember) {
        let mut present = self.parts.present.clone();
        let is_it = |one: &PresentMember| (&one.node, one.incarnation) == (&member.node, member.incarnation);
        let gone = present.wait_for(|present| !present.iter().any(is_it)).await.is_ok();
        if !gone {
            // The members are told no more: this process ends.
            std::future::pending::<()>().await;
        }
    }
}
