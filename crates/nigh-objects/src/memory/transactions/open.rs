//! The transactions that clients have begun here: what each has seen, and what it will write. Pure.
//!
//! Nobody else sees any of it before the commit. Everything is bounded: the objects and bytes of one transaction, those
//! of all, and the time that one may take.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_protocol::{NodeNumber, TransactionId};
use nigh_terms::{Monotonic, Principal};

use super::TRANSACTION_BYTES_MAX;
use super::commit::CommittedTransaction;
use crate::transaction_part::{ObservedObject, PartBecomes};

/// How long a transaction may take from its begin to its commit.
const LASTS: Duration = Duration::from_secs(60);
/// How long the outcome of a transaction is remembered, for repeated commits.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The most objects of one transaction: with all their metadata they fit the head of a call.
const OBJECTS_MAX: usize = 64;
/// The most transactions that are begun or remembered.
const OPEN_MAX: usize = 4096;
/// The most bytes of waiting writes in all transactions.
const ALL_BYTES_MAX: u64 = 256 << 20;

/// A transaction's name for clients; it contains the node that keeps the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionName {
    /// The node that keeps the transaction.
    pub(super) node: NodeNumber,
    /// The transaction's id.
    pub(super) id: TransactionId,
}

impl fmt::Display for TransactionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:032x}", self.node.0, self.id.0)
    }
}

impl FromStr for TransactionName {
    type Err = ObjectError;

    fn from_str(text: &str) -> Result<Self, ObjectError> {
        let parts = text.split_once('-').filter(|(_, id)| id.len() == 32);
        let name = parts.and_then(|(node, id)| {
            let id = TransactionId(u128::from_str_radix(id, 16).ok()?);
            Some(Self { node: NodeNumber(node.parse().ok()?), id })
        });
        name.ok_or_else(|| {
            ObjectError::InvalidArgument("the name of a transaction is the one that its begin gave".to_owned())
        })
    }
}

/// A transaction that has begun.
#[derive(Clone, Copy, Debug)]
pub struct NewTransaction {
    /// The transaction's name.
    pub name: TransactionName,
    /// How long the transaction may take.
    pub lasts: Duration,
}

/// A write that waits for the commit.
#[derive(Clone, Debug)]
pub(super) struct StagedWrite {
    pub(super) becomes: PartBecomes,
    pub(super) bytes: Bytes,
}

/// The state of a transaction.
#[derive(Debug)]
enum State {
    Open,
    /// The commit is under way, or its outcome is unknown.
    Committing,
    Ended(Result<Arc<CommittedTransaction>, ObjectError>),
}

/// A transaction that was begun here.
#[derive(Debug)]
struct Transaction {
    who: Principal,
    until: Monotonic,
    reads: BTreeMap<ObjectId, ObservedObject>,
    writes: BTreeMap<ObjectId, StagedWrite>,
    bytes: u64,
    state: State,
}

/// What a commit must do.
pub(super) enum Commit {
    /// Ask the homes to commit.
    Begin { reads: BTreeMap<ObjectId, ObservedObject>, writes: BTreeMap<ObjectId, StagedWrite> },
    /// Ask for the outcome: the commit was begun before, and the outcome is not known here.
    Ask,
    /// Answer with this outcome.
    Ended(Result<Arc<CommittedTransaction>, ObjectError>),
}

/// All transactions that were begun here.
#[derive(Debug, Default)]
pub(super) struct OpenTransactions {
    all: HashMap<TransactionId, Transaction>,
    bytes: u64,
}

impl OpenTransactions {
    /// Begins a transaction.
    pub(super) fn begin(
        &mut self,
        now: Monotonic,
        name: TransactionName,
        who: &Principal,
    ) -> Result<NewTransaction, ObjectError> {
        self.sweep(now);
        if self.all.len() >= OPEN_MAX {
            return Err(ObjectError::SlowDown("too many transactions are open"));
        }
        let transaction = Transaction {
            who: who.clone(),
            until: now.after(LASTS),
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            bytes: 0,
            state: State::Open,
        };
        self.all.insert(name.id, transaction);
        Ok(NewTransaction { name, lasts: LASTS })
    }

    /// Forgets the transactions whose time is over.
    fn sweep(&mut self, now: Monotonic) {
        let over: Vec<TransactionId> = {
            let is_over = |one: &Transaction| one.until <= now && !matches!(one.state, State::Committing);
            self.all.iter().filter(|(_, one)| is_over(one)).map(|(id, _)| *id).collect()
        };
        for id in over {
            self.forget(id);
        }
    }

    fn forget(&mut self, id: TransactionId) {
        if let Some(gone) = self.all.remove(&id) {
            self.bytes -= gone.bytes;
        }
    }

    fn of(&mut self, now: Monotonic, name: TransactionName, who: &Principal) -> Result<&mut Transaction, ObjectError> {
        self.sweep(now);
        let found = self.all.get_mut(&name.id);
        let is_theirs =
            |one: &&mut Transaction| (&one.who.namespace, one.who.invocation) == (&who.namespace, who.invocation);
        found.filter(is_theirs).ok_or_else(|| ObjectError::NoSuchTransaction(name.to_string()))
    }

    fn open(
        &mut self,
        now: Monotonic,
        name: TransactionName,
        who: &Principal,
    ) -> Result<&mut Transaction, ObjectError> {
        let one = self.of(now, name, who)?;
        match &one.state {
            State::Open => Ok(one),
            State::Committing => Err(ObjectError::InvalidRequest("the transaction is being committed".to_owned())),
            State::Ended(_) => Err(ObjectError::NoSuchTransaction(name.to_string())),
        }
    }

    /// The write of an object that waits for the commit, if there is one.
    pub(super) fn staged(
        &mut self,
        now: Monotonic,
        name: TransactionName,
        who: &Principal,
        object: &ObjectId,
    ) -> Result<Option<StagedWrite>, ObjectError> {
        Ok(self.open(now, name, who)?.writes.get(object).cloned())
    }

    /// Records that the transaction is shown an object, or that there is none.
    pub(super) fn sees(
        &mut self,
        now: Monotonic,
        name: TransactionName,
        who: &Principal,
        object: &ObjectId,
        meta: Option<&ObjectMeta>,
    ) -> Result<(), ObjectError> {
        let one = self.open(now, name, who)?;
        if let Some(seen) = one.reads.get(object) {
            // The transaction was shown two versions, so it can never be committed.
            let conflict = || ObjectError::TransactionConflict(vec![format!("{}/{}", object.bucket, object.key)]);
            return if seen.holds(meta) { Ok(()) } else { Err(conflict()) };
        }
        one.has_room_for(object)?;
        one.reads.insert(object.clone(), ObservedObject::of(meta));
        Ok(())
    }

    /// Adds a write of an object.
    pub(super) fn stage(
        &mut self,
        now: Monotonic,
        name: TransactionName,
        who: &Principal,
        object: &ObjectId,
        staged: StagedWrite,
    ) -> Result<(), ObjectError> {
        let all = self.bytes;
        let one = self.open(now, name, who)?;
        one.has_room_for(object)?;
        let before = one.writes.get(object).map_or(0, |before| before.bytes.len() as u64);
        let added = staged.bytes.len() as u64;
        if one.bytes - before + added > TRANSACTION_BYTES_MAX {
            return Err(ObjectError::EntityTooLarge { limit: TRANSACTION_BYTES_MAX });
        }
        if all - before + added > ALL_BYTES_MAX {
            return Err(ObjectError::SlowDown("the transactions that are open are to write too much"));
        }
        one.bytes = one.bytes - before + added;
        one.writes.insert(object.clone(), staged);
        self.bytes = all - before + added;
        Ok(())
    }

    /// Begins the commit; only the first caller carries it out.
    pub(super) fn commit(
        &mut self,
        now: Monotonic,
        name: TransactionName,
        who: &Principal,
    ) -> Result<Commit, ObjectError> {
        let one = self.of(now, name, who)?;
        Ok(match &one.state {
            State::Ended(ended) => Commit::Ended(ended.clone()),
            State::Committing => Commit::Ask,
            State::Open => {
                one.state = State::Committing;
                one.until = now.after(REMEMBERED);
                Commit::Begin { reads: std::mem::take(&mut one.reads), writes: std::mem::take(&mut one.writes) }
            }
        })
    }

    /// Records the outcome of a commit.
    pub(super) fn ended(
        &mut self,
        now: Monotonic,
        id: TransactionId,
        ended: Result<Arc<CommittedTransaction>, ObjectError>,
    ) {
        if let Some(one) = self.all.get_mut(&id) {
            self.bytes -= std::mem::take(&mut one.bytes);
            one.until = now.after(REMEMBERED);
            one.state = State::Ended(ended);
        }
    }

    /// Abandons the transaction, if it is not being committed.
    pub(super) fn abort(&mut self, now: Monotonic, name: TransactionName, who: &Principal) -> Result<(), ObjectError> {
        self.open(now, name, who)?;
        self.forget(name.id);
        Ok(())
    }
}

impl Transaction {
    fn has_room_for(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let is_known = self.reads.contains_key(object) || self.writes.contains_key(object);
        let new = self.writes.keys().filter(|object| !self.reads.contains_key(*object)).count();
        if is_known || self.reads.len() + new < OBJECTS_MAX {
            return Ok(());
        }
        Err(ObjectError::InvalidRequest(format!("a transaction has at most {OBJECTS_MAX} objects")))
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Namespace, ObjectKey, Timestamp};

    use super::*;
    use crate::transaction_part::NewObject;
    use nigh_data::{Attributes, ETag, Tags};

    const NAME: TransactionName = TransactionName { node: NodeNumber(3), id: TransactionId(0xabc) };

    fn object(key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    fn staged(bytes: usize) -> StagedWrite {
        let becomes = PartBecomes::Put(Box::new(NewObject {
            attributes: Attributes::default(),
            tags: Tags::new(),
            size: bytes as u64,
            etag: ETag("e".to_owned()),
            checksum: None,
            modified: Timestamp(1),
        }));
        StagedWrite { becomes, bytes: vec![0; bytes].into() }
    }

    fn begun() -> (OpenTransactions, Principal, Monotonic) {
        let (mut open, who, now) =
            (OpenTransactions::default(), Principal::outside(Namespace::new("n").unwrap()), Monotonic::default());
        open.begin(now, NAME, &who).unwrap();
        (open, who, now)
    }

    #[test]
    fn a_name_is_read_back_and_names_its_node() {
        let text = NAME.to_string();
        assert_eq!(text, "3-00000000000000000000000000000abc");
        assert_eq!(text.parse::<TransactionName>().unwrap(), NAME);
        for bad in ["", "3", "3-abc", "x-00000000000000000000000000000abc", "3-0000000000000000000000000000xabc"] {
            assert!(bad.parse::<TransactionName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn one_is_its_owner_s_and_ends_with_its_time() {
        let (mut open, who, now) = begun();
        let other = Principal::outside(Namespace::new("other").unwrap());
        let refused = open.staged(now, NAME, &other, &object("a")).unwrap_err();
        assert!(matches!(refused, ObjectError::NoSuchTransaction(_)));
        open.stage(now, NAME, &who, &object("a"), staged(3)).unwrap();
        let late = now.after(LASTS);
        assert!(matches!(open.commit(late, NAME, &who), Err(ObjectError::NoSuchTransaction(_))));
        assert_eq!((open.all.len(), open.bytes), (0, 0));
    }

    #[test]
    fn what_it_is_to_write_is_bounded_and_what_is_replaced_counts_no_more() {
        let (mut open, who, now) = begun();
        let whole = TRANSACTION_BYTES_MAX as usize;
        open.stage(now, NAME, &who, &object("a"), staged(whole)).unwrap();
        let refused = open.stage(now, NAME, &who, &object("b"), staged(1)).unwrap_err();
        assert!(matches!(refused, ObjectError::EntityTooLarge { .. }));
        open.stage(now, NAME, &who, &object("a"), staged(1)).unwrap();
        open.stage(now, NAME, &who, &object("b"), staged(1)).unwrap();
        assert_eq!(open.bytes, 2);
        for n in 2..OBJECTS_MAX {
            open.sees(now, NAME, &who, &object(&n.to_string()), None).unwrap();
        }
        open.sees(now, NAME, &who, &object("a"), None).unwrap();
        assert!(matches!(open.sees(now, NAME, &who, &object("more"), None), Err(ObjectError::InvalidRequest(_))));
        open.abort(now, NAME, &who).unwrap();
        assert_eq!((open.all.len(), open.bytes), (0, 0));
    }

    #[test]
    fn a_commit_is_one_however_often_it_is_asked_for() {
        let (mut open, who, now) = begun();
        open.stage(now, NAME, &who, &object("a"), staged(3)).unwrap();
        assert!(matches!(open.commit(now, NAME, &who).unwrap(), Commit::Begin { .. }));
        assert!(matches!(open.commit(now, NAME, &who).unwrap(), Commit::Ask));
        assert!(open.stage(now, NAME, &who, &object("a"), staged(3)).is_err());
        assert!(open.abort(now, NAME, &who).is_err());
        open.ended(now, NAME.id, Err(ObjectError::TransactionConflict(Vec::new())));
        let ended = open.commit(now, NAME, &who).unwrap();
        assert!(matches!(ended, Commit::Ended(Err(ObjectError::TransactionConflict(_)))));
        assert_eq!(open.bytes, 0);
    }
}
