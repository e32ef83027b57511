//! What a transaction is at one shard: what it has seen there and what it writes; and the form in which a ledger keeps
//! that. Pure.
//!
//! The record says in its `about` what it is; its body is the length of a head (4 bytes, little-endian), the head, and
//! the bytes of the objects in their order. Both texts are JSON, so that people can read them.

use bytes::Bytes;
use nigh_data::{Attributes, Checksum, ETag, ObjectId, ObjectMeta, Tags};
use nigh_engine::{Change, Record, RequestId};
use nigh_protocol::{TransactionId, TransactionRecord};
use nigh_terms::{BucketName, Namespace, ObjectKey, Principal, Timestamp, Token, Version};
use serde::{Deserialize, Serialize};

/// The form that this build writes.
const FORMAT: u32 = 1;
/// The names of a transaction's record, which is no object's.
const TRANSACTIONS: (&str, &str) = ("nigh", "transactions");

/// What a transaction has been shown of an object: as it was, or that there was none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ObservedObject(Option<Box<ObjectMeta>>);

impl ObservedObject {
    /// An object as it was shown, or none.
    pub(crate) fn of(meta: Option<&ObjectMeta>) -> Self {
        Self(meta.map(|meta| Box::new(ObjectMeta { token: Token::empty(), ..meta.clone() })))
    }

    /// Whether it is so still. Homes name one and the same object by newer versions when they have forgotten it: what a
    /// reader can tell apart counts.
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

/// What a transaction makes of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PartBecomes {
    Put(Box<NewObject>),
    Gone,
}

/// What is known of an object that a transaction is to write.
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
    /// The same as it is shown before it has a version.
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
    /// How many bytes the object has then.
    pub(crate) fn size(&self) -> u64 {
        match &self.becomes {
            PartBecomes::Put(new) => new.size,
            PartBecomes::Gone => 0,
        }
    }
}

/// A transaction at one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) transaction: TransactionId,
    /// On whose behalf, and what they had seen.
    pub(crate) who: Principal,
    pub(crate) token: Token,
    /// What it has been shown; a record keeps none of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) reads: Vec<(ObjectId, ObservedObject)>,
    pub(crate) writes: Vec<PartWrite>,
}

impl Part {
    /// All of its objects, in their order, each once.
    pub(crate) fn objects(&self) -> Vec<ObjectId> {
        let reads = self.reads.iter().map(|(object, _)| object);
        let mut objects: Vec<ObjectId> = reads.chain(self.writes.iter().map(|write| &write.object)).cloned().collect();
        objects.sort_unstable();
        objects.dedup();
        objects
    }

    /// The bytes of all objects that it writes.
    pub(crate) fn bytes(&self) -> u64 {
        self.writes.iter().map(PartWrite::size).sum()
    }

    /// The bytes of each write, of those of all.
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

/// The ledger's record of a part, and the body that goes with it.
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

/// What a record is.
pub(crate) fn decode_about(about: &[u8]) -> Result<(TransactionId, TransactionRecord), String> {
    let about: PartDescription = serde_json::from_slice(about).map_err(|error| error.to_string())?;
    if about.format > FORMAT {
        return Err(format!("its format is {}, and this build reads up to {FORMAT}", about.format));
    }
    let id = u128::from_str_radix(&about.transaction, 16).map_err(|error| error.to_string())?;
    Ok((TransactionId(id), about.record))
}

/// What its body holds.
pub(crate) fn decode_body(mut body: Bytes) -> Result<(Part, Vec<Bytes>), String> {
    let length = body.get(..4).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
    let length = length.ok_or("it has no head")? as usize;
    let mut rest = body.split_off(4);
    if rest.len() < length {
        return Err(format!("its head has {length} bytes, {} are there", rest.len()));
    }
    let part: Part = serde_json::from_slice(&rest.split_to(length)).map_err(|error| error.to_string())?;
    let bytes = part.split(rest).ok_or("its bytes are not those of its objects")?;
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
