//! The notes of a request: the operation, how the reading of the body ended, and the digest of a document.
//!
//! `s3s` does not pass these on to the code around it, so the notes travel in the request's extensions. Reads of
//! objects, which are the most frequent requests, have no notes.

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
    /// The body is not known to be bad.
    Whole = 0,
    /// The client sent no byte for too long.
    Stalled = 1,
    /// The connection or its framing broke.
    Broken = 2,
    /// The body's aws-chunked encoding is malformed.
    Malformed = 3,
    /// The body has a signed chunk above the limit.
    ChunkTooLarge = 4,
    /// The body is a document above the limit.
    DocumentTooLarge = 5,
    /// The invocation that sent the body has ended.
    InvocationEnded = 6,
}

/// The notes of one request.
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
    /// Records the operation that the request is for.
    pub(crate) fn set_operation(&self, operation: Operation) {
        // A request is routed once, and a second routing would give the same operation.
        let _ = self.operation.set(operation);
    }

    /// The operation that the request is for; `Unknown` until it is recorded.
    pub(crate) fn operation(&self) -> Operation {
        self.operation.get().copied().unwrap_or(Operation::Unknown)
    }

    /// Records how the body ended.
    pub(crate) fn set_fate(&self, fate: Fate) {
        self.fate.store(fate as u8, Ordering::Release);
    }

    /// How the body ended, or `Whole` so far.
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

    /// Records that the body is a document; `digest` is computed over it.
    pub(crate) fn set_digest(&self, digest: Digest) {
        *self.digest() = Some(digest);
    }

    /// Adds the next bytes of the document to its digest.
    pub(crate) fn update_digest(&self, bytes: &[u8]) {
        if let Some(digest) = self.digest().as_mut() {
            digest.update(bytes);
        }
    }

    /// Takes the digest of the document out. None if the request has no body, or if the body is not a document.
    pub(crate) fn take_digest(&self) -> Option<Digest> {
        self.digest().take()
    }

    /// Records that a handler has the request: a document, if there is one, was read and parsed.
    pub(crate) fn set_handled(&self) {
        self.handled.store(true, Ordering::Release);
    }

    /// Records that the request may act. The call counts as in progress as long as the request or its body holds these
    /// notes.
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

    /// The request's call. None until the request may act.
    pub(crate) fn call(&self) -> Option<&CallGuard> {
        self.call.get()
    }

    /// Returns true if a handler has received the request.
    pub(crate) fn handled(&self) -> bool {
        self.handled.load(Ordering::Acquire)
    }
}
