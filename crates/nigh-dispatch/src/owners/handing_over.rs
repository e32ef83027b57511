//! Tokens that must be known to a namespace's next dispatch, and how they reach its owner.

use std::time::Duration;

use nigh_data::ObjectError;
use nigh_terms::{Monotonic, Namespace, Token};

use super::ownership::OwnershipState;
use super::{CALL_WITHIN, Owner, PAUSE};
use crate::dispatcher_state::DispatcherState;
use crate::wire::{HAND_OVER, HandOverAnswer, HandOverHead, encode};

/// How long a writer outside may wait until an owner knows of its write.
const HAND_OVER_WITHIN: Duration = Duration::from_secs(15);

impl DispatcherState {
    /// An invocation of `term` has ended and had seen `token`. Returns when the next dispatch will carry the token, by whichever
    /// owner. `settled`: when the run ended there was no later owner.
    pub(crate) async fn joined(&self, namespace: &Namespace, term: u64, token: &Token, settled: bool) {
        let is_mine = self.controller.lock().see(namespace, Some(term), token);
        if settled && is_mine {
            return;
        }
        self.until_handed_over(namespace, token).await;
    }

    /// As `hand_over`, however long it takes.
    pub(crate) async fn until_handed_over(&self, namespace: &Namespace, token: &Token) {
        while let Err(error) = self.hand_over(namespace, token).await {
            tracing::warn!(%namespace, %error, "the end of an invocation is held back: its token does not reach the dispatch owner");
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns when the next dispatch of `namespace` will carry `token`, by whichever owner. The registry is asked each time: a
    /// former owner may not know yet that its epoch is over.
    pub(crate) async fn hand_over(&self, namespace: &Namespace, token: &Token) -> Result<(), ObjectError> {
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
                return self.take_token(namespace, token, deadline).await;
            }
            OwnershipState::Theirs(owner) => Some(owner),
        };
        let Some(to) = to else { return Err("the cluster has no controller".to_owned()) };
        let head = HandOverHead { namespace: namespace.clone(), token: token.clone() };
        self.small(&to, &HAND_OVER, &encode(&head)).await
    }

    /// Another process hands a token over: taken if this process owns the namespace now, or becomes its owner.
    pub(crate) async fn handed_over(&self, HandOverHead { namespace, token }: HandOverHead) -> HandOverAnswer {
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
                self.take_token(&namespace, &token, deadline).await.unwrap_or(HandOverAnswer::NotOwner)
            }
        }
    }

    /// Keeps `token` for the next dispatch of `namespace`, which this process owns or is to own: at once if it has announced its
    /// term, else when it has.
    async fn take_token(
        &self,
        namespace: &Namespace,
        token: &Token,
        deadline: Monotonic,
    ) -> Result<HandOverAnswer, String> {
        if self.controller.lock().keep(namespace, token) {
            return Ok(HandOverAnswer::Taken);
        }
        let Some(inner) = self.itself.upgrade() else { return Ok(HandOverAnswer::NotOwner) };
        let of = namespace.clone();
        // A task of its own: the takeover goes on when the token is taken.
        let mut takeover = tokio::spawn(async move { inner.owner(&of, deadline).await });
        loop {
            // Begun before the look, so that no announcement is missed.
            let announced = self.announced.notified();
            if self.controller.lock().keep(namespace, token) {
                return Ok(HandOverAnswer::Taken);
            }
            tokio::select! {
                () = announced => {}
                owner = &mut takeover => {
                    let owner = owner.map_err(|lost| lost.to_string())?.map_err(|error| error.to_string())?;
                    let is_mine = matches!(owner, Owner::Me(term) if self.controller.lock().see(namespace, Some(term), token));
                    return Ok(if is_mine { HandOverAnswer::Taken } else { HandOverAnswer::NotOwner });
                }
            }
        }
    }
}
