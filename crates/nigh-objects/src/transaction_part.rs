//! A transaction's part at one shard: what it has seen there and what it writes; and the form of that in the ledger.
//! Pure.
//!
//! The record's `about` says that it is a transaction's. Its body is the length of a head (4 bytes, little-endian), the
//! head, and the bytes of the objects in order. Both texts are JSON, so that people can read them.

use bytes::Bytes;
use nigh_data::{Attributes, Checksum, ETag, ObjectId, ObjectMeta, Tags};
use nigh_engine::{Change, Record, RequestId};
use nigh_protocol::{TransactionId, TransactionRecord};
use nigh_terms::{BucketName, Namespace, ObjectKey, Principal, Timestamp, Token, Version};
use serde::{Deserialize, Serialize};

/// The format version that this build writes.
const FORMAT: u32 = 1;
/// The bucket and key of a transaction's record, which is no object's.
const TRANSACTIONS: (&str, &str) = ("nigh", "transactions");

/// What a transaction was shown of an object: its metadata, or none if there was no object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObservedObject(Option<Box<ObjectMeta>>);

impl ObservedObject {
    /// The object as it was shown; none if there was none.
    pub(crate) fn of(meta: Option<&ObjectMeta>) -> Self {
        Self(meta.map(|meta| Box::new(ObjectMeta { token: Token::empty(), ..meta.clone() })))
    }

    /// True if the object is unchanged. A home that has forgotten an object may give it a newer version, so only what a
    /// reader can tell apart is compared.
    pub(crate) fn holds(&self, now: Option<&ObjectMeta>) -> bool {
        match (&self.0, now) {
            (None, None) => true,
            (Some(seen), Some(now)) if seen.version == now.version => true,
            (Some(seen), Some(now)) => {
                let shown =
                    |meta: &ObjectMeta| ObjectMeta { version: Version::OUTSIDE, token: Token::empty(), ..meta.clone() };
                shown(seen) == shown(now)
            }
            _ => false,
        }
    }
}

/// What a transaction does to an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PartBecomes {
    Put(Box<NewObject>),
    Gone,
}

/// The metadata of an object that a transaction will write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewObject {
    pub(crate) attributes: Attributes,
    pub(crate) tags: Tags,
    pub(crate) size: u64,
    pub(crate) etag: ETag,
    pub(crate) checksum: Option<Checksum>,
    pub(crate) modified: Timestamp,
}

impl NewObject {
    /// The metadata as it is shown before it has a version.
    pub(crate) fn meta(&self) -> ObjectMeta {
        ObjectMeta {
            size: self.size,
            etag: self.etag.clone(),
            modified: self.modified,
            attributes: self.attributes.clone(),
            tags: self.tags.clone(),
            checksums: self.checksum.clone().into_iter().collect(),
            parts: Vec::new(),
            version: Version::OUTSIDE,
            token: Token::empty(),
        }
    }
}

/// A write of a transaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PartWrite {
    pub(crate) object: ObjectId,
    pub(crate) becomes: PartBecomes,
}

impl PartWrite {
    /// The object's bytes after the write; 0 after a deletion.
    pub(crate) fn size(&self) -> u64 {
        match &self.becomes {
            PartBecomes::Put(new) => new.size,
            PartBecomes::Gone => 0,
        }
    }
}

/// The part of a transaction at one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) transaction: TransactionId,
    /// The writer, with the token of what it has seen.
    pub(crate) who: Principal,
    pub(crate) token: Token,
    /// What the transaction was shown; not in the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reads: Vec<(ObjectId, ObservedObject)>,
    pub(crate) writes: Vec<PartWrite>,
}

impl Part {
    /// The part's objects, in order, each once.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        let reads = self.reads.iter().map(|(object, _)| object);
        let mut objects: Vec<ObjectId> = reads.chain(self.writes.iter().map(|write| &write.object)).cloned().collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// The sum of the bytes that the part writes.
    pub(crate) fn bytes(&self) -> u64 {
        self.writes.iter().map(PartWrite::size).sum()
    }

    /// Splits the bytes of all writes into the bytes of each; none if they do not fit.
    pub(crate) fn split(&self, mut all: Bytes) -> Option<Vec<Bytes>> {
        let split = |write: &PartWrite| {
            let size = usize::try_from(write.size()).ok().filter(|size| *size <= all.len())?;
            Some(all.split_to(size))
        };
        let bytes = self.writes.iter().map(split).collect::<Option<Vec<_>>>()?;
        all.is_empty().then_some(bytes)
    }
}

#[derive(Serialize, Deserialize)]
struct PartDescription {
    format: u32,
    transaction: String,
    record: TransactionRecord,
}

/// Encodes a part: the ledger's record and its body.
pub(crate) fn encode(record: &TransactionRecord, part: &Part, bytes: &[Bytes]) -> Result<(Record, Vec<u8>), String> {
    let text = |error: serde_json::Error| error.to_string();
    let id = format!("{:032x}", part.transaction.0);
    let about = PartDescription { format: FORMAT, transaction: id.clone(), record: record.clone() };
    let about = serde_json::to_vec(&about).map_err(text)?.into();
    let head = serde_json::to_vec(&Part { reads: Vec::new(), ..part.clone() }).map_err(text)?;
    let length = u32::try_from(head.len()).map_err(|error| error.to_string())?;
    let mut body = length.to_le_bytes().to_vec();
    body.extend_from_slice(&head);
    bytes.iter().for_each(|bytes| body.extend_from_slice(bytes));
    let (namespace, bucket) = TRANSACTIONS;
    let namespace = Namespace::new(namespace).map_err(|error| error.to_string())?;
    let bucket = BucketName::new(bucket).map_err(|error| error.to_string())?;
    let key = ObjectKey::new(&id).map_err(|error| error.to_string())?;
    let request = RequestId(uuid::Uuid::new_v4().as_u128());
    Ok((Record { request, namespace, bucket, key, change: Change::Transaction { about } }, body))
}

/// Decodes the `about` of a record.
pub(crate) fn decode_about(about: &[u8]) -> Result<(TransactionId, TransactionRecord), String> {
    let about: PartDescription = serde_json::from_slice(about).map_err(|error| error.to_string())?;
    if about.format > FORMAT {
        return Err(format!(
            "its format is {}, and this build reads up to {FORMAT}; start the newer nigh that wrote it",
            about.format
        ));
    }
    let id = u128::from_str_radix(&about.transaction, 16).map_err(|error| error.to_string())?;
    Ok((TransactionId(id), about.record))
}

/// Decodes the body of a record.
pub(crate) fn decode_body(mut body: Bytes) -> Result<(Part, Vec<Bytes>), String> {
    let length = body.get(..4).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
    let length = length.ok_or("it has no head")? as usize;
    let mut rest = body.split_off(4);
    if rest.len() < length {
        return Err(format!("its head has {length} bytes, {} are there", rest.len()));
    }
    let part: Part = serde_json::from_slice(&rest.split_to(length)).map_err(|error| error.to_string())?;
    let bytes = part.split(rest).ok_or("its body is longer or shorter than its objects together")?;
    Ok((part, bytes))
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence, ShardId};

    use super::*;

    fn part() -> Part {
        let object = |key: &str| ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        };
        let put = PartBecomes::Put(Box::new(NewObject {
            attributes: Attributes::default(),
            tags: Tags::new(),
            size: 3,
            etag: ETag("e".to_owned()),
            checksum: None,
            modified: Timestamp(7),
        }));
        let gone = PartWrite { object: object("a"), becomes: PartBecomes::Gone };
        Part {
            transaction: TransactionId(0xabc),
            who: Principal::outside(Namespace::new("n").unwrap()),
            token: Token::empty(),
            reads: vec![(object("a"), ObservedObject::of(None)), (object("c"), ObservedObject::of(None))],
            writes: vec![PartWrite { object: object("b"), becomes: put }, gone],
        }
    }

    #[test]
    fn a_part_is_read_back_without_what_it_had_seen() {
        let record = TransactionRecord::Decided { participants: [ShardId(3)].into() };
        let bytes = [Bytes::from_static(b"xyz"), Bytes::new()];
        let (kept, body) = encode(&record, &part(), &bytes).unwrap();
        assert_eq!(decode_about(kept.change.about()), Ok((TransactionId(0xabc), record)));
        let (read, read_bytes) = decode_body(body.clone().into()).unwrap();
        assert_eq!((read, read_bytes), (Part { reads: Vec::new(), ..part() }, bytes.to_vec()));
        assert!(decode_body(Bytes::copy_from_slice(&body[..body.len() - 1])).is_err());
        assert!(decode_body(Bytes::from_static(&[9, 0, 0, 0, b'{'])).is_err());
        assert!(decode_about(br#"{"format":2,"transaction":"1","record":{"prepared":{"decider":0}}}"#).is_err());
    }

    #[test]
    fn its_objects_are_named_once_and_in_their_order() {
        let names: Vec<String> = part().objects().iter().map(|object| object.key.to_string()).collect();
        assert_eq!(names, ["a", "b", "c"]);
    }

    #[test]
    fn what_was_seen_holds_while_a_reader_would_be_shown_the_same() {
        let version = |sequence| Version { epoch: Epoch(1), sequence: Sequence(sequence) };
        let meta = |sequence, etag: &str| ObjectMeta {
            size: 1,
            etag: ETag(etag.to_owned()),
            modified: Timestamp(5),
            attributes: Attributes::default(),
            tags: Tags::new(),
            checksums: Vec::new(),
            parts: Vec::new(),
            version: version(sequence),
            token: Token::empty(),
        };
        let seen = ObservedObject::of(Some(&meta(1, "a")));
        assert!(seen.holds(Some(&meta(1, "a"))) && seen.holds(Some(&meta(2, "a"))));
        assert!(
            !seen.holds(Some(&meta(2, "b")))
                && !seen.holds(None)
                && !ObservedObject::of(None).holds(Some(&meta(1, "a")))
        );
        assert!(ObservedObject::of(None).holds(None));
    }
}
