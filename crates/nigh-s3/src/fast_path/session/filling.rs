//! Segments that a client fills: lent to it, sealed when it commits, and taken back when it does not in time.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use nigh_data::ObjectError;
use nigh_engine::Action;
use nigh_objects::{SealOutcome, SegmentPut};
use s3s::{S3Error, S3ErrorCode, S3Result};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::task::AbortOnDropHandle;

use super::Session;
use crate::error::s3_error;
use crate::fast_path::held::Handle;
use crate::fast_path::holdings::Loan;
use crate::fast_path::questions::{Description, PutHeaderOutcome, of_put};
use crate::fast_path::replies::Reply;
use crate::fast_path::wire::{Commit, Create};
use crate::handlers::{bucket_name, object_key};

/// The pause before sealing is tried again while a client still maps the segment for writing, and the number of tries.
const SEAL_PAUSE: Duration = Duration::from_millis(5);
const SEAL_TRIES: u32 = 20;

/// A segment that the client is filling.
pub(super) struct FillingSegment {
    loan: Loan,
    /// One of the connection's `LOANS_MAX` permits.
    place: OwnedSemaphorePermit,
    /// Takes the segment back when its time is over.
    _end: AbortOnDropHandle<()>,
}

fn refused(code: &'static str, message: &str) -> S3Error {
    let mut error = S3Error::with_message(S3ErrorCode::Custom(code.into()), message.to_owned());
    error.set_status_code(StatusCode::CONFLICT);
    error
}

fn too_much(what: &'static str) -> S3Error {
    s3_error(ObjectError::SlowDown(what))
}

impl Session {
    /// Makes a segment of the wanted length, and lends it to the client.
    pub(super) async fn create(self: Arc<Self>, create: Create) -> S3Result<Reply> {
        let (_, _until_the_end) = self.enter()?;
        let holdings = &self.known()?.holdings;
        let place = Arc::clone(&self.loans_left)
            .try_acquire_owned()
            .map_err(|_| too_much("16 segments are being filled on this connection; commit or abandon one"))?;
        self.look_at_released();
        let over = || too_much("what may be held is (cache.held_max, and in a sandbox what it booked); release some");
        if !holdings.has_room(create.length) {
            return Err(over());
        }
        let memory = self.ground.reads.handlers().memory();
        let Some(open) = memory.open_segment(create.length).await.map_err(s3_error)? else {
            return Ok(Reply::use_http());
        };
        let descriptor = open.hand_out().map_err(|error| {
            tracing::warn!(%error, "a segment to be filled is not handed out");
            too_much("the node has no descriptor left")
        })?;
        let loan = holdings.lend(open).ok_or_else(over)?;
        let handle = loan.handle();
        self.lend(loan, place);
        Ok(Reply::lent(descriptor, handle, create.length))
    }

    /// Lends a segment, and takes it back if the client does not commit it in time, so that an uncommitted segment does
    /// not occupy the memory for writes for ever.
    fn lend(self: &Arc<Self>, loan: Loan, place: OwnedSemaphorePermit) {
        let (handle, session, patience) = (loan.handle(), Arc::downgrade(self), self.ground.loan);
        let end = tokio::spawn(async move {
            tokio::time::sleep(patience).await;
            let overdue = session.upgrade().and_then(|session| session.loans.lock().remove(&handle));
            drop(overdue);
        });
        self.loans.lock().insert(handle, FillingSegment { loan, place, _end: AbortOnDropHandle::new(end) });
    }

    /// Seals a segment that the client has filled, and puts it as an object.
    pub(super) async fn commit(self: Arc<Self>, commit: Commit) -> S3Result<Reply> {
        let (who, _until_the_end) = self.enter()?;
        let handle = Handle(commit.handle);
        let FillingSegment { mut loan, place, .. } = self.loans.lock().remove(&handle).ok_or_else(|| {
            refused(
                "NoSuchHandle",
                "this connection fills no segment of that handle; one not committed in time is taken back",
            )
        })?;
        let (bucket, key) = (bucket_name(&commit.bucket)?, object_key(&commit.key)?);
        let length = loan.open().map_or(0, |open| open.length());
        let (_, _until_the_end) = self.admit(Action::Store { bucket: bucket.as_str(), bytes: length })?;
        let PutHeaderOutcome::As(description) = of_put(&commit.headers, length)? else { return Ok(Reply::use_http()) };
        let mut tries = 0;
        let sealed = loop {
            let Some(open) = loan.take() else { return Err(S3Error::new(S3ErrorCode::InternalError)) };
            match open.seal().map_err(s3_error)? {
                SealOutcome::Sealed(sealed) => break sealed,
                SealOutcome::Refused(remains) => {
                    loan.given_up(remains);
                    return Err(refused("SegmentRefused", "its client has closed the segment for the node's seal"));
                }
                SealOutcome::Busy(open) => {
                    loan.put_back(open);
                    tries += 1;
                    if tries > SEAL_TRIES {
                        self.lend(loan, place);
                        return Err(refused(
                            "SegmentBusy",
                            "the segment is mapped for writing; unmap it and commit again",
                        ));
                    }
                    tokio::time::sleep(SEAL_PAUSE).await;
                }
            }
        };
        loan.sealed(sealed.segment().clone());
        drop(place);
        self.ground.telemetry.bytes_in().increment(length);
        let Description { attributes, tags, conditions, md5, checksum, request } = *description;
        let put = SegmentPut { attributes, tags, conditions, md5, checksum, request };
        let memory = self.ground.reads.handlers().memory();
        let done = memory.put_segment(&who, &bucket, &key, sealed, put).await.map_err(s3_error)?;
        Ok(Reply::put(&done))
    }
}
