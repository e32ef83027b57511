//! One connection: which key it acts for, what it may request, and which segments it may fill.
//!
//! A session decides the answer to a request; `filling` has the segments that the client fills, `server` the sockets.
//! Every operation resolves its principal anew (`AccessKeys::admit`), so that a sandbox between invocations is refused
//! here as over HTTP.

mod filling;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderMap, StatusCode};
use nigh_data::PutRequest;
use nigh_engine::{AccessKeys, Action, CallGuard};
use nigh_terms::{AccessKeyId, Principal};
use parking_lot::Mutex;
use s3s::{Body, S3Error, S3ErrorCode, S3Result};
use sha2::Sha256;
use tokio::sync::Semaphore;

use self::filling::FillingSegment;
use super::held::Handle;
use super::holdings::Holdings;
use super::questions::{Description, PutHeaderOutcome, Question, of_put, of_read};
use super::replies::{Reply, may_fit};
use super::wire::{BY_COPY, Hello, Put, ReadRequest, Request};
use crate::auth::secret_here;
use crate::error::{invalid_request, invocation_ended, s3_error};
use crate::handlers::{bucket_name, object_key};
use crate::read::{Reads, answer};
use crate::telemetry::{Operation, Telemetry};

/// Objects and answers smaller than this are sent in the packet itself.
pub(super) const INLINE_BELOW: u64 = 64 * 1024;
/// The most segments that one connection may fill at a time.
const LOANS_MAX: usize = 16;
/// The most reported releases that may wait until they are checked.
const RELEASED_MAX: usize = 64;
/// The text before the nonce in the message that proves a key.
const PROOF: &[u8] = b"nigh fast path 1\n";

/// Finds the segments that a key holds.
pub(super) type FindHoldings = Arc<dyn Fn(&AccessKeyId) -> Arc<Holdings> + Send + Sync>;

/// The state that all sessions of a listener share.
#[derive(Clone)]
pub(super) struct Ground {
    pub(super) reads: Arc<Reads>,
    pub(super) keys: AccessKeys,
    pub(super) telemetry: Arc<Telemetry>,
    /// In a sandbox, the only key that is accepted.
    pub(super) only: Option<AccessKeyId>,
    pub(super) holdings: FindHoldings,
    /// A segment that is not committed within this time is taken back.
    pub(super) loan: Duration,
}

/// A key that the client has proved, and what it holds.
struct AuthenticatedKey {
    key: AccessKeyId,
    holdings: Arc<Holdings>,
}

/// One connection's state.
pub(super) struct Session {
    ground: Ground,
    nonce: String,
    known: OnceLock<AuthenticatedKey>,
    loans: Mutex<HashMap<Handle, FillingSegment>>,
    loans_left: Arc<Semaphore>,
    /// Segments that the client reports as released and that are not checked yet.
    released: Mutex<Vec<Handle>>,
}

/// What is to be done about a request.
pub(super) enum RequestAction {
    /// Do nothing.
    Nothing,
    /// Send this reply.
    Reply(Reply),
    /// Send this reply, and end the connection.
    End(Reply),
    /// Send the result of this, which continues even if the client hangs up.
    Later(BoxFuture<'static, Reply>),
}

impl Session {
    /// A session whose client has been sent `nonce`.
    pub(super) fn new(ground: Ground, nonce: String) -> Self {
        Self {
            ground,
            nonce,
            known: OnceLock::new(),
            loans: Mutex::default(),
            loans_left: Arc::new(Semaphore::new(LOANS_MAX)),
            released: Mutex::default(),
        }
    }

    /// Returns true if the client has proved a key.
    pub(super) fn is_known(&self) -> bool {
        self.known.get().is_some()
    }

    /// The segments that the key holds, if the client has proved one.
    pub(super) fn holdings(&self) -> Option<&Arc<Holdings>> {
        self.known.get().map(|known| &known.holdings)
    }

    /// Asks the kernel whether the segments that the client reports as released are free. Call this when no request is
    /// waiting, so that a get that reports a release does not wait for the check.
    pub(super) fn look_at_released(&self) {
        let released = std::mem::take(&mut *self.released.lock());
        if let Some(holdings) = self.holdings() {
            for handle in released {
                holdings.look_at(handle);
            }
        }
    }

    /// Records released segments, and checks them at once if there are many.
    fn note_released(&self, handles: &[u64]) {
        for handles in handles.chunks(RELEASED_MAX) {
            let waiting = {
                let mut released = self.released.lock();
                released.extend(handles.iter().copied().map(Handle));
                released.len()
            };
            if waiting >= RELEASED_MAX {
                self.look_at_released();
            }
        }
    }

    /// Begins to serve a request.
    pub(super) fn take(self: &Arc<Self>, request: Request) -> RequestAction {
        if !self.is_known() {
            return match request {
                Request::Hello(hello) => self.greet(hello),
                _ => RequestAction::End(Reply::farewell(
                    StatusCode::FORBIDDEN,
                    "AccessDenied",
                    "the first request is HELLO".to_owned(),
                )),
            };
        }
        match request {
            Request::Hello(_) => RequestAction::End(Reply::farewell(
                StatusCode::BAD_REQUEST,
                "MalformedPacket",
                "HELLO was said already".to_owned(),
            )),
            Request::Release(named) => {
                self.note_released(&[named.handle]);
                RequestAction::Nothing
            }
            Request::Abandon(named) => {
                let loan = self.loans.lock().remove(&Handle(named.handle));
                drop(loan);
                RequestAction::Nothing
            }
            Request::Get(read) => {
                self.note_released(&read.released);
                self.later(Operation::GetObject, Arc::clone(self).get(read))
            }
            Request::Head(read) => {
                self.note_released(&read.released);
                self.later(Operation::HeadObject, Arc::clone(self).head(read))
            }
            Request::Put(put, bytes) => {
                self.ground.telemetry.bytes_in().increment(bytes.len() as u64);
                self.later(Operation::PutObject, Arc::clone(self).put(put, bytes))
            }
            Request::Create(create) => self.later(Operation::PutObject, Arc::clone(self).create(create)),
            Request::Commit(commit) => self.later(Operation::PutObject, Arc::clone(self).commit(commit)),
        }
    }

    /// Checks the proof of a key.
    fn greet(&self, hello: Hello) -> RequestAction {
        let denied = |code: &str, message: &str| {
            RequestAction::End(Reply::farewell(StatusCode::FORBIDDEN, code, message.to_owned()))
        };
        let key = AccessKeyId::new(hello.access_key);
        let Some(secret) = secret_here(&self.ground.keys, &key, self.ground.only.as_ref()) else {
            return denied(
                "InvalidAccessKeyId",
                "the access key does not exist, or not at this door, is disabled or has expired, or died with its sandbox",
            );
        };
        let proves = Hmac::<Sha256>::new_from_slice(secret.reveal().as_bytes()).is_ok_and(|mac| {
            let mac = mac.chain_update(PROOF).chain_update(self.nonce.as_bytes());
            unhex(&hello.mac).is_some_and(|claimed| mac.verify_slice(&claimed).is_ok())
        });
        if !proves {
            return denied("SignatureDoesNotMatch", "the mac is not that of the key's secret and the nonce");
        }
        let holdings = (self.ground.holdings)(&key);
        // Requests are taken one after another: nobody else has set it.
        let _was_unset = self.known.set(AuthenticatedKey { key, holdings });
        RequestAction::Reply(Reply::well())
    }

    /// Answers later, and counts the call in the S3 door's metrics.
    fn later(
        &self,
        operation: Operation,
        work: impl Future<Output = S3Result<Reply>> + Send + 'static,
    ) -> RequestAction {
        let (telemetry, began) = (Arc::clone(&self.ground.telemetry), Instant::now());
        RequestAction::Later(
            async move {
                let reply = work.await.unwrap_or_else(|error| Reply::error(&error)).named();
                telemetry.answered(operation, reply.status(), reply.length(), began.elapsed());
                reply
            }
            .boxed(),
        )
    }

    fn known(&self) -> S3Result<&AuthenticatedKey> {
        self.known.get().ok_or_else(|| S3Error::new(S3ErrorCode::AccessDenied))
    }

    /// The principal that the key belongs to now. Hold the guard until the call can have no more effect.
    fn enter(&self) -> S3Result<(Principal, CallGuard)> {
        self.ground.reads.handlers().principal_of(&self.known()?.key)
    }

    /// The same for a request that is about to do `action`, which is checked and counted.
    fn admit(&self, action: Action<'_>) -> S3Result<(Principal, CallGuard)> {
        self.ground.reads.handlers().admit(&self.known()?.key, action)
    }

    async fn get(self: Arc<Self>, read: ReadRequest) -> S3Result<Reply> {
        let (who, call) = self.admit(Action::ReadBucket(&read.bucket))?;
        while_it_lasts(&call, self.fetch(&who, read)).await
    }

    async fn fetch(&self, who: &Principal, read: ReadRequest) -> S3Result<Reply> {
        let (bucket, key) = (bucket_name(&read.bucket)?, object_key(&read.key)?);
        let Question { wanted, if_range, with_checksum } = of_read(read)?;
        let asked = self.ground.reads.get(who, &bucket, &key, wanted, if_range.as_deref()).await;
        let (got, range) = match asked {
            Err(error) => return unchanged(error),
            Ok(found) => found,
        };
        let range = range.map(|spec| (spec, got.range.clone()));
        let answered = answer(&got.meta, range, with_checksum, Vec::new(), Body::empty());
        let (status, headers) = (answered.status.unwrap_or(StatusCode::OK), answered.headers);
        let length = got.range.end - got.range.start;
        let flags = if got.meta.size >= INLINE_BELOW { BY_COPY } else { 0 };
        if length < INLINE_BELOW {
            return Ok(Reply::with_body(status, headers, taken(got.body).await?, flags));
        }
        let Some(slice) = got.body.as_segment().cloned() else { return Ok(Reply::use_http()) };
        let holdings = &self.known()?.holdings;
        let handed_out = holdings.hand_out(slice.segment()).or_else(|| {
            // Over the cap, the segments that were reported as released are checked first.
            self.look_at_released();
            holdings.hand_out(slice.segment())
        });
        if let Some(handed_out) = handed_out {
            // The read's event counts its bytes, whichever way they go.
            taken(got.body).await?;
            let offset = slice.range().start as u64;
            return Ok(Reply::with_segment((status, headers), handed_out, offset, length));
        }
        if may_fit(length) {
            return Ok(Reply::with_body(status, headers, taken(got.body).await?, BY_COPY));
        }
        Ok(Reply::use_http())
    }

    async fn head(self: Arc<Self>, read: ReadRequest) -> S3Result<Reply> {
        let (who, call) = self.admit(Action::ReadBucket(&read.bucket))?;
        while_it_lasts(&call, async {
            let (bucket, key) = (bucket_name(&read.bucket)?, object_key(&read.key)?);
            let Question { wanted, if_range, with_checksum } = of_read(read)?;
            match self.ground.reads.head(&who, &bucket, &key, wanted, if_range.as_deref()).await {
                Err(error) => unchanged(error),
                Ok((meta, range)) => {
                    let range = range.map(|spec| (spec, crate::conditions::resolve(spec, &meta)));
                    let answered = answer(&meta, range, with_checksum, Vec::new(), Body::empty());
                    Ok(Reply::answer(answered.status.unwrap_or(StatusCode::OK), answered.headers, None))
                }
            }
        })
        .await
    }

    async fn put(self: Arc<Self>, put: Put, bytes: Vec<u8>) -> S3Result<Reply> {
        let length = bytes.len() as u64;
        if length >= INLINE_BELOW {
            return Err(invalid_request("a body in a packet is below 64 KiB; use CREATE and COMMIT, or HTTP"));
        }
        let (who, _until_the_end) = self.admit(Action::Store { bucket: &put.bucket, bytes: length })?;
        let (bucket, key) = (bucket_name(&put.bucket)?, object_key(&put.key)?);
        let PutHeaderOutcome::As(description) = of_put(&put.headers, length)? else { return Ok(Reply::use_http()) };
        let Description { attributes, tags, conditions, md5, checksum, request } = *description;
        let body = futures::stream::iter([Ok(Bytes::from(bytes))]).boxed();
        let put = PutRequest { attributes, tags, conditions, body, length: Some(length), md5, checksum, request };
        let done = self.ground.reads.handlers().memory().put(&who, &bucket, &key, put).await.map_err(s3_error)?;
        Ok(Reply::put(&done))
    }
}

/// Runs a read until its invocation ends: a read has no effect, so the end does not wait for it.
async fn while_it_lasts(call: &CallGuard, read: impl Future<Output = S3Result<Reply>>) -> S3Result<Reply> {
    match call.cancelled() {
        None => read.await,
        Some(ended) => tokio::select! {
            biased;
            answer = read => answer,
            () = ended => Err(invocation_ended()),
        },
    }
}

/// Turns "not modified" into a reply: it is not an error here.
fn unchanged(error: S3Error) -> S3Result<Reply> {
    if error.status_code() == Some(StatusCode::NOT_MODIFIED) {
        let headers: HeaderMap = error.headers().cloned().unwrap_or_default();
        return Ok(Reply::answer(StatusCode::NOT_MODIFIED, headers, Some(0)));
    }
    Err(error)
}

/// All bytes of a body, without a copy if they are in memory. The read has ended when this returns.
async fn taken(mut body: nigh_data::Body) -> S3Result<Bytes> {
    let first = body.next().await.transpose().map_err(s3_error)?.unwrap_or_default();
    let Some(second) = body.next().await.transpose().map_err(s3_error)? else { return Ok(first) };
    let mut all = [first, second].concat();
    while let Some(next) = body.next().await.transpose().map_err(s3_error)? {
        all.extend_from_slice(&next);
    }
    Ok(all.into())
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}
