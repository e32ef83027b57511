//! Writes of other nodes to the homes here. A write goes on when its caller has gone.

use std::sync::Arc;

use futures::StreamExt;
use nigh_data::digest::TagDigest;
use nigh_data::{ByteStream, ObjectError, ObjectId};
use nigh_engine::{LedgerError, RequestId};
use nigh_protocol::ToHome;
use nigh_rpc::Call;
use nigh_terms::{ShardId, Version};

use crate::memory::ObjectMemoryState;
use crate::memory::cluster::segment_of;
use crate::memory::cluster::wire::{WireError, Write, WriteEffect, WriteReply};
use crate::memory::draft::{Content, Draft};
use crate::memory::foreign::ForeignWrite;
use crate::memory::intake::BodyClaims;
use crate::memory::write_ticket::WriteSource;
use crate::write_back::WriteMode;

impl ObjectMemoryState {
    /// Carries out another node's write.
    pub(super) async fn serve_write(
        self: &Arc<Self>,
        write: Write,
        mut call: Call<'_>,
    ) -> Result<WriteReply, WireError> {
        let ToHome::Put { object, .. } = &write.request.body else {
            return Err(WireError::InvalidRequest("a write that writes nothing".to_owned()));
        };
        let object = object.clone();
        let shard = self.home_here(&object, Some(write.request.from)).await?;
        let content = match &write.becomes {
            WriteEffect::Put(new) => Some(self.take_body(&mut call, new.size).await?),
            WriteEffect::Gone { .. } | WriteEffect::Tagged { .. } | WriteEffect::Outside => None,
        };
        let home = match self.uses.leaves(shard) {
            true => None,
            false => self.use_home(shard).await,
        };
        let home = home.ok_or(WireError::Elsewhere)?;
        let inner = Arc::clone(self);
        // The write goes on when the caller hangs up; its answer waits until the caller sends the write again.
        let served = crate::sync::spawn(nigh_trace::follow(async move {
            let _home = home;
            inner.write_for(shard, object, write, content).await
        }));
        served.await.map_err(|error| WireError::Failed(error.to_string()))
    }

    /// Receives the bytes of another node's write. That node has checked them.
    async fn take_body(self: &Arc<Self>, call: &mut Call<'_>, size: u64) -> Result<Content, WireError> {
        let broken = |error: nigh_rpc::BodyError| WireError::Busy(error.to_string());
        if call.body.len() != size {
            return Err(WireError::InvalidRequest(format!("{size} bytes were announced, {} come", call.body.len())));
        }
        let room =
            if size <= self.limits.cached_object.bytes() { self.reserve_share(self.account.cost(size)) } else { None };
        if let Some(room) = room {
            let segment = segment_of(&self.account, &mut call.body, size, broken).await?;
            return Ok(Content::Memory(segment, room));
        }
        let (pieces, stream) = tokio::sync::mpsc::channel(4);
        let limit = self.limits.object.bytes();
        let expected =
            BodyClaims { length: Some(size), md5: None, checksum: None, tag: TagDigest::Md5, limit, journal: None };
        let taken = self.stage_in_spool(stream_of(stream), expected);
        let sent = async move {
            while let Some(piece) = call.body.next().await.map_err(broken)? {
                if pieces.send(Ok(piece)).await.is_err() {
                    break;
                }
            }
            Ok::<(), WireError>(())
        };
        let ((file, ..), ()) = futures::try_join!(async { taken.await.map_err(WireError::from) }, sent)?;
        Ok(Content::File(file))
    }

    async fn write_for(
        self: &Arc<Self>,
        shard: ShardId,
        object: ObjectId,
        write: Write,
        content: Option<Content>,
    ) -> WriteReply {
        let Write { request, who, id, becomes } = write;
        let id = id.map(RequestId);
        let nothing = |newest| WriteReply { reply: None, outcome: Ok(None), newest, uncached: false };
        let ToHome::Put { request: number, .. } = &request.body else { return nothing(Version::OUTSIDE) };
        let (from, number) = (request.from, *number);
        let Ok(turn) = self.order.turn(&object).await else { return nothing(Version::OUTSIDE) };
        let epoch = self.coherence.epoch_here(shard);
        let is_new = || self.coherence.is_new_write(shard, from, number);
        let outcome = if is_new() {
            let source = WriteSource::Foreign(request.clone());
            let written = match becomes {
                WriteEffect::Put(head) => {
                    let Some(content) = content else { return nothing(Version::OUTSIDE) };
                    let journal = match (&content, self.goes_to_journal(&object, &head.tags)) {
                        (Content::Memory(segment, _), Some(shard)) => self.stage_segment(shard, segment).await,
                        _ => Ok(None),
                    };
                    match journal {
                        Err(error) => Err(error),
                        Ok(journal) => {
                            let draft = Draft { object: object.clone(), head: *head, content, journal, request: id };
                            self.put_here(&turn, who, source, draft).await.map(|(stamp, _)| stamp.version)
                        }
                    }
                }
                WriteEffect::Gone { conditions } => {
                    let deleted = self.delete_here(&turn, who, source, &object, &conditions, id).await;
                    deleted.map(|stamp| stamp.version)
                }
                WriteEffect::Tagged { tags } => {
                    let tagged = self.tag_here(&turn, source, &object, &tags).await;
                    tagged.map(|stamp| stamp.map_or(Version::OUTSIDE, |stamp| stamp.version))
                }
                WriteEffect::Outside => {
                    self.back.push_soon(&object);
                    self.written_by_others(&object);
                    Ok(Version::OUTSIDE)
                }
            };
            if let Err(ObjectError::Ledger(LedgerError::Fenced { .. } | LedgerError::Failed(_))) = &written {
                // The next home knows the outcome.
                if let Some(epoch) = epoch {
                    self.depose(shard, epoch);
                }
                return nothing(Version::OUTSIDE);
            }
            written.map(Some).map_err(WireError::from)
        } else if self.back.newest_waiting(&object).is_some_and(|newest| newest.mode == WriteMode::Through) {
            // The first answer may have been that the store had not taken the write yet.
            self.back.flush(&object).await.map(|()| None).map_err(WireError::from)
        } else {
            Ok(None)
        };
        let newest = self.coherence.newest(shard);
        let reply = match self.coherence.foreign_write(self.now(), &object, request) {
            ForeignWrite::Answer(reply) => Some(reply),
            // The home does not know the write: it was refused before, or was made under another name.
            ForeignWrite::Append(append, answered) => {
                let dropped = self.coherence.not_appended(self.now(), shard, append);
                self.settle(dropped);
                answered.borrow().clone()
            }
            ForeignWrite::Nothing => None,
        };
        let uncached = self.is_written_outside(&object);
        drop(turn);
        WriteReply { reply, outcome, newest, uncached }
    }
}

/// The pieces of a channel as a stream.
fn stream_of(pieces: tokio::sync::mpsc::Receiver<Result<bytes::Bytes, ObjectError>>) -> ByteStream {
    futures::stream::unfold(pieces, |mut pieces| async move { Some((pieces.recv().await?, pieces)) }).boxed()
}
