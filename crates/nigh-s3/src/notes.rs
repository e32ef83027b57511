//! What is learnt of one request on its way through `s3s`: its operation, how the reading of its body ended, and
//! the digest of a document.
//!
//! `s3s` gives none of them to the code around it; the notes travel in the request's extensions. Reads of objects, the
//! hot path, have none.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nigh_data::Digest;
use nigh_engine::CallGuard;
use nigh_http::shares::Share;

use crate::telemetry::Operation;

/// How the reading of a request's body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fate {
    /// Nothing is wrong with it so far.
    Whole = 0,
    /// The client sent nothing, or too little, for too long.
    Stalled = 1,
    /// The connection or its framing broke.
    Broken = 2,
    /// Its aws-chunked encoding is broken.
    Malformed = 3,
    /// It has a signed chunk above the limit.
    ChunkTooLarge = 4,
    /// It is a document above the limit.
    DocumentTooLarge = 5,
    /// The invocation that sent it has ended.
    InvocationEnded = 6,
}

/// The notes.
#[derive(Debug, Default)]
pub(crate) struct RequestNotes {
    operation: OnceLock<Operation>,
    fate: AtomicU8,
    handled: AtomicBool,
    call: OnceLock<CallGuard>,
    share: OnceLock<Share>,
    digest: Mutex<Option<Digest>>,
}

impl RequestNotes {
    /// The request is this operation.
    pub(crate) fn set_operation(&self, operation: Operation) {
        // A request is routed once; a second attempt would say the same.
        let _ = self.operation.set(operation);
    }

    /// What the request turned out to be.
    pub(crate) fn operation(&self) -> Operation {
        self.operation.get().copied().unwrap_or(Operation::Unknown)
    }

    /// The body ended so.
    pub(crate) fn set_fate(&self, fate: Fate) {
        self.fate.store(fate as u8, Ordering::Release);
    }

    /// How the body ended.
    pub(crate) fn fate(&self) -> Fate {
        match self.fate.load(Ordering::Acquire) {
            1 => Fate::Stalled,
            2 => Fate::Broken,
            3 => Fate::Malformed,
            4 => Fate::ChunkTooLarge,
            5 => Fate::DocumentTooLarge,
            6 => Fate::InvocationEnded,
            _ => Fate::Whole,
        }
    }

    fn digest(&self) -> MutexGuard<'_, Option<Digest>> {
        self.digest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body is a document: `digest` is to be taken of it.
    pub(crate) fn set_digest(&self, digest: Digest) {
        *self.digest() = Some(digest);
    }

    /// The next bytes of the document have come.
    pub(crate) fn update_digest(&self, bytes: &[u8]) {
        if let Some(digest) = self.digest().as_mut() {
            digest.update(bytes);
        }
    }

    /// The digest of the document, once it was read; none if it has no bytes.
    pub(crate) fn take_digest(&self) -> Option<Digest> {
        self.digest().take()
    }

    /// A handler has the request: its body, if it is a document, was read and understood.
    pub(crate) fn set_handled(&self) {
        self.handled.store(true, Ordering::Release);
    }

    /// The request may act: the call is under way as long as these notes are held, by the request and by its body.
    pub(crate) fn set_call(&self, call: CallGuard) {
        // A request is handled once.
        let _ = self.call.set(call);
    }

    /// The request has a share of the door as long as these notes are held.
    pub(crate) fn set_share(&self, share: Option<Share>) {
        if let Some(share) = share {
            // A request is routed once.
            let _ = self.share.set(share);
        }
    }

    /// The call, once the request may act.
    pub(crate) fn call(&self) -> Option<&CallGuard> {
        self.call.get()
    }

    /// Whether a handler got the request.
    pub(crate) fn handled(&self) -> bool {
        self.handled.load(Ordering::Acquire)
    }
}
