//! How a home takes a shard: it writes an epoch record on condition that the last epoch record is the one that it
//! knows, and only then reads the stream. After that record no home of an earlier epoch can append; the record's place
//! is the new epoch.

use std::path::Path;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use async_nats::header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_EXPECTED_STREAM, NATS_MESSAGE_ID};
use bytes::Bytes;
use nigh_terms::{Epoch, Incarnation, NodeId, ShardId};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::envelope::{Content, EpochRecord, FORMAT, Frame, Record, decode, encode};
use super::link::NotPublished;
use super::recovery::{Outcome, Recovery};
use super::settings::LedgerSettings;
use super::witness::{HighWaterMark, Witness};
use super::{Cluster, ClusterError};
use crate::journal::DamageKind;

/// The most messages that are read at a time.
const READ_AT_ONCE: u64 = 64;
/// How often a missing message is asked for again: the server that answered may have been the leader only before.
const ASKED_AGAIN: usize = 5;
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);
/// The bytes of a message in a stream beside its subject and payload: the stream's record head, and the headers.
const HEADERS_BYTES: usize = 256;

/// A home that takes a shard, and its right to do so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The id of the shard.
    pub shard: ShardId,
    /// The revision of the shard's entry in the map of homes, which grows from home to home. A home with a lower claim
    /// gives way.
    pub claim: u64,
    /// The node that is the home.
    pub node: NodeId,
    /// The home's incarnation.
    pub incarnation: Incarnation,
}

/// A shard that was taken.
pub(super) struct ShardTakeover {
    pub(super) epoch: Epoch,
    pub(super) outcome: Outcome,
    pub(super) witness: Witness,
    pub(super) messages: usize,
    pub(super) bytes: u64,
}

/// The bytes that a message takes in its stream.
pub(super) fn room_of(subject: &str, message: usize) -> u64 {
    (HEADERS_BYTES + subject.len() + message) as u64
}

/// Takes the shard of `claim`.
pub(super) async fn take(
    cluster: &Cluster,
    settings: &LedgerSettings,
    claim: &Claim,
) -> Result<ShardTakeover, ClusterError> {
    let names = cluster.settings();
    let stream = names.ledger_stream(claim.shard);
    let wanted = names.ledger_config(claim.shard, settings.stream_bytes(), settings.first_place.max(1));
    let (witness, reached) = Witness::open(cluster.clone(), claim.shard).await?;
    let found = cluster.stream_as(&wanted, reached.is_none()).await?;
    let went_back = |stream, found, HighWaterMark { place: known, .. }| ClusterError::WentBack { stream, found, known };
    if let Some(reached) = reached.filter(|reached| reached.went_back_to > 0) {
        return Err(went_back(stream, reached.went_back_to, reached));
    }
    let step = |step: &str| tracing::debug!(target: "failover", step, shard = %claim.shard);
    step("opened");
    let epoch = take_epoch(cluster, &stream, claim).await?;
    step("epoch");
    if let Some(reached) = reached.filter(|reached| epoch.0 <= reached.place) {
        witness.went_back(epoch.0).await?;
        return Err(went_back(stream, epoch.0, reached));
    }
    let recovery = Recovery::new(claim.shard, &stream, found.first_sequence.unwrap_or(1).max(1));
    // The mark and the journal do not depend on each other.
    let told = witness.tell(epoch.0);
    let ((), (recovery, messages, bytes)) =
        futures::try_join!(told, read(cluster, &stream, claim.shard, epoch.0, recovery))?;
    step("read");
    let outcome = recovery.finish(epoch.0);
    if let Some(first) = outcome.damage.first() {
        match &settings.keep_damaged {
            None => {
                let first = Box::new(first.clone());
                return Err(ClusterError::Damaged { stream, first, damage: outcome.damage });
            }
            Some(folder) => keep(cluster, &stream, folder, &outcome).await?,
        }
    }
    Ok(ShardTakeover { epoch, outcome, witness, messages, bytes })
}

/// Writes an epoch record. Returns its place, which is the epoch.
async fn take_epoch(cluster: &Cluster, stream: &str, claim: &Claim) -> Result<Epoch, ClusterError> {
    let [subject, _] = cluster.settings().ledger_subjects(claim.shard);
    let nonce = rand::random();
    let Claim { shard, claim: own, node, incarnation, .. } = claim.clone();
    let frame = Frame { shard, epoch: Epoch(0), number: 0, trimmed: 0 };
    let taking = Content::Epoch(EpochRecord { claim: own, nonce, incarnation, node });
    let message = encode(&frame, &[Record { content: taking, body: Bytes::new() }]);
    let begun = Instant::now();
    loop {
        let mut last_place = 0;
        if let Some((place, last)) = cluster.last_message(stream, &subject).await? {
            last_place = place;
            // An unreadable epoch record had no higher claim that anybody knows of.
            if let Some(Ok(Content::Epoch(last))) = decode(shard, &last).pop().map(|found| found.map(|one| one.content))
            {
                if last.nonce == nonce {
                    return Ok(Epoch(place));
                }
                if last.claim > own {
                    return Err(ClusterError::Superseded { shard, home: last.node, claim: last.claim });
                }
            }
        }
        let mut headers = HeaderMap::new();
        headers.insert(NATS_MESSAGE_ID, format!("{stream}.{nonce:016x}"));
        headers.insert(NATS_EXPECTED_STREAM, stream);
        headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, last_place.to_string());
        let reason = match cluster.publish_once(&subject, &headers, &message).await {
            Ok(place) => return Ok(Epoch(place)),
            Err(NotPublished::Condition) => "others take it at the same time".to_owned(),
            Err(NotPublished::Full) => "its stream has no room".to_owned(),
            Err(NotPublished::NotTaken(reason) | NotPublished::Unknown(reason) | NotPublished::Refused(reason)) => {
                reason
            }
        };
        if begun.elapsed() > cluster.settings().answer_within {
            return Err(cluster.unreachable("take the shard of", stream)(&reason));
        }
        // The server cannot decide while an earlier home's append is under way, which ends soon.
        sleep(Duration::from_millis(2 + u64::from(rand::random::<u8>() / 8))).await;
    }
}

/// Reads a stream backwards, from the epoch record at its end to the place where it was trimmed.
async fn read(
    cluster: &Cluster,
    stream: &str,
    shard: ShardId,
    end: u64,
    mut recovery: Recovery,
) -> Result<(Recovery, usize, u64), ClusterError> {
    let [_, subject] = cluster.settings().ledger_subjects(shard);
    let (mut messages, mut bytes) = (0, 0);
    let mut left: Vec<u64> = Vec::new();
    let (mut from, mut asked_again) = (end + 1, 0);
    loop {
        let first = recovery.trimmed();
        if from > first {
            let to = from;
            from = to.saturating_sub(READ_AT_ONCE).max(first);
            left.extend(from..to);
        } else {
            left = recovery.missing(end);
            if left.is_empty() || asked_again == ASKED_AGAIN {
                return Ok((recovery, messages, bytes));
            }
            asked_again += 1;
            sleep(ASK_AGAIN_AFTER).await;
        }
        while !left.is_empty() {
            let mut reads = JoinSet::new();
            for place in left.drain(..left.len().min(READ_AT_ONCE as usize)) {
                let (cluster, stream) = (cluster.clone(), stream.to_owned());
                reads.spawn(async move { (place, cluster.message(&stream, place).await) });
            }
            for (place, message) in reads.join_all().await {
                let Some(message) = message? else { continue };
                let room = room_of(&subject, message.len());
                (messages, bytes) = (messages + 1, bytes + message.len() as u64);
                recovery.take(place, room, &message).map_err(|found| ClusterError::Newer {
                    stream: stream.to_owned(),
                    found,
                    known: FORMAT,
                })?;
            }
        }
    }
}

/// Copies the damaged messages into files, before the stream is trimmed.
async fn keep(cluster: &Cluster, stream: &str, folder: &Path, outcome: &Outcome) -> Result<(), ClusterError> {
    for damage in outcome.damage.iter().filter(|damage| damage.kind != DamageKind::Missing) {
        let Some(message) = cluster.message(stream, damage.offset).await? else { continue };
        let path = folder.join(format!("damaged-{stream}-{}.message", damage.offset));
        let folder = folder.to_owned();
        let kept = path.clone();
        let written = tokio::task::spawn_blocking(move || {
            std::fs::create_dir_all(&folder)?;
            std::fs::write(&kept, &message)
        });
        written
            .await
            .unwrap_or_else(|join| Err(std::io::Error::other(join)))
            .map_err(|source| ClusterError::Keep { path, source })?;
    }
    Ok(())
}
