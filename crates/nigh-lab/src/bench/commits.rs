//! Commits as `journal` and `ledger` measure them: the same record and the same body, by any ledger.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use nigh_engine::{Body, Change, INLINE_MAX_BYTES, Ledger, LedgerError, PIECE_MAX_BYTES, Record, RequestId};
use nigh_terms::{BucketName, NameError, Namespace, ObjectKey, ShardId};

use crate::LabError;
use crate::instrument::made_up::failed;

pub(super) const SHARD: ShardId = ShardId(0);
/// Writers of the measurement with many, and the bytes of each body.
pub(super) const WRITERS: usize = 64;
pub(super) const TOGETHER_BYTES: usize = 1 << 10;
/// About as many bytes as an object's metadata takes.
const ABOUT_BYTES: usize = 200;
const KEYS: u128 = 997;

fn record(request: u128) -> Result<Record, LabError> {
    let bad = |error: NameError| failed("a name", &error);
    Ok(Record {
        request: RequestId(request),
        namespace: Namespace::new("bench").map_err(bad)?,
        bucket: BucketName::new("bench-bucket").map_err(bad)?,
        key: ObjectKey::new(&format!("object-{}", request % KEYS)).map_err(bad)?,
        change: Change::Put { about: Bytes::from(vec![b'a'; ABOUT_BYTES]) },
    })
}

/// How long a durable write of `body` takes; then the ledger is told that the store has it. `at_once` pieces of a large body
/// are on their way together.
pub(super) async fn commit(
    ledger: &impl Ledger,
    request: u128,
    body: &Bytes,
    at_once: usize,
) -> Result<Duration, LabError> {
    let record = record(request)?;
    let refused = |error: LedgerError| failed("a commit", &error);
    let begun = Instant::now();
    let body = if body.len() <= INLINE_MAX_BYTES {
        Body::Inline(body.clone())
    } else {
        let pieces = (0..body.len()).step_by(PIECE_MAX_BYTES).map(|at| {
            let piece = body.slice(at..body.len().min(at + PIECE_MAX_BYTES));
            ledger.stage(SHARD, piece)
        });
        Body::Staged(stream::iter(pieces).buffered(at_once).try_collect().await.map_err(refused)?)
    };
    let appended = ledger.append(SHARD, record, body).await.map_err(refused)?;
    let took = begun.elapsed();
    ledger.stored(SHARD, appended.version).await.map_err(refused)?;
    Ok(took)
}
