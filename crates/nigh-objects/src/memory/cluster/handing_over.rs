//! Hand-over: what happens to the copies that a shrink drops. This file makes the calls; `hand_over` decides.
//!
//! The copies have left this node when it begins. One question to each home finds out which other node has them; a hot
//! object that no node has is fetched into the memory of a node with room. One task does all of this in the background,
//! and drops what exceeds its limits.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use futures::StreamExt;
use futures::future::join_all;
use nigh_data::NamePrint;
use nigh_data::segment::Segment;
use nigh_data::{GetRequest, ObjectError, ObjectId, ObjectMeta};
use nigh_protocol::NodeNumber;
use nigh_rpc::{Body, BodyError};
use nigh_terms::{Admission, ByteSize, Version};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::segment_of;
use super::wire::{BRING, Bring, HELD, HeldCopyRequest, LET_GO, LetGo, Letter, POST};
use crate::hand_over::{Fate, GivenUp, HolderElection, elect, fate};
use crate::memory::ShrinkResult;
use crate::memory::reads::ReadSource;
use crate::memory::{ObjectMemory, ObjectMemoryState};
use crate::sync::Mutex;

/// The most names in one question to a home. With the longest keys they fit a head.
const NAMES_AT_ONCE: usize = 512;
/// The most questions to one home at a time.
const QUESTIONS_AT_ONCE: usize = 4;
/// The most dropped copies that are handed over at a time; beyond it the least hot are not.
const GIVEN_UP_MAX: usize = 65_536;
/// The most shrinks whose copies wait for hand-over; the copies of further ones are dropped.
pub(in crate::memory) const SHRINKS_WAITING: usize = 16;
/// The most nodes that are asked to take copies, one after the other.
const TAKERS_MAX: usize = 3;
/// The most objects that are fetched into memory at a time.
const BROUGHT_AT_ONCE: usize = 4;
/// The most objects of one `bring` call.
const BROUGHT_MAX: usize = 512;
/// How long a node may take to fetch the objects of one call into its memory.
const BRING_WITHIN: Duration = Duration::from_secs(10);
/// How long a holder may take to give an object; then the store is asked.
const HELD_WITHIN: Duration = Duration::from_secs(1);
/// The most objects whose holders are remembered; with one more all are forgotten.
const HOLDERS_MAX: usize = 65_536;

/// A copy that a node has dropped.
#[derive(Clone, Debug)]
pub(in crate::memory) struct LeftCopy {
    pub(in crate::memory) object: ObjectId,
    pub(in crate::memory) version: Version,
    pub(in crate::memory) what: GivenUp,
}

/// What happened to the copies that a node has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandedOver {
    /// Number of objects that another node holds now; no bytes moved.
    pub reelected: u64,
    /// Size of these objects, in bytes.
    pub reelected_bytes: u64,
    /// Number of objects that were fetched into another node's memory.
    pub copied: u64,
    /// Size of these objects, in bytes.
    pub copied_bytes: u64,
    /// Number of objects that are only in the store.
    pub dropped: u64,
    /// The time until every home had answered which other node has the copies.
    pub elected_in: Duration,
}

/// The holders of objects that were handed over, as the homes here know them. They are hints.
#[derive(Debug, Default)]
pub(in crate::memory) struct Holders(Mutex<HashMap<ObjectId, NodeNumber>>);

impl Holders {
    fn set(&self, object: &ObjectId, holder: Option<NodeNumber>) {
        let mut holders = self.0.lock();
        match holder {
            None => drop(holders.remove(object)),
            Some(node) => {
                if holders.len() >= HOLDERS_MAX && !holders.contains_key(object) {
                    holders.clear();
                }
                holders.insert(object.clone(), node);
            }
        }
    }

    fn of(&self, object: &ObjectId) -> Option<NodeNumber> {
        self.0.lock().get(object).copied()
    }
}

/// Hands over the copies that shrinks drop, until the memory is dropped.
pub(in crate::memory) async fn hand_over_all(inner: Weak<ObjectMemoryState>, mut left: mpsc::Receiver<Vec<LeftCopy>>) {
    while let Some(copies) = left.recv().await {
        let Some(inner) = inner.upgrade() else { return };
        let done = inner.hand_over_copies(copies).await;
        tracing::debug!(?done, "dropped copies are handed over");
    }
}

impl ObjectMemory {
    /// Fetches these objects into this memory, one after the other, as long as no copy that was read more than once
    /// would be evicted for the next. Returns for each object the bytes that were fetched; 0 if it was cached already,
    /// or could not be had.
    #[boxed]
    pub async fn bring(&self, objects: &[ObjectId]) -> Vec<u64> {
        let brought = self.0.bring_each(objects.iter().take(BROUGHT_MAX).cloned().collect());
        timeout(BRING_WITHIN, brought).await.unwrap_or_default()
    }

    /// Counts the copies of these objects as read once more.
    pub fn use_copies(&self, objects: &[ObjectId]) {
        self.0.holds(objects);
    }

    /// Brings objects into the memory of another node, as `bring` does here.
    ///
    /// # Errors
    /// Why that node has not answered.
    #[boxed]
    pub async fn bring_at(&self, node: NodeNumber, objects: &[ObjectId]) -> Result<Vec<u64>, String> {
        if self.0.me.is_some_and(|me| me.node == node) {
            return Ok(self.bring(objects).await);
        }
        self.0.bring_there_at(node, objects.to_vec()).await
    }

    /// Shrinks the cache as `shrink` does, but returns only when the dropped copies are handed over.
    #[boxed]
    pub async fn shrink_and_hand_over(&self, bytes: ByteSize) -> (ShrinkResult, HandedOver) {
        let (shrunk, left) = self.shrink_naming(bytes);
        (shrunk, self.0.hand_over_copies(left).await)
    }
}

impl ObjectMemoryState {
    /// Tells the homes what this node has dropped, and has other nodes fetch hot objects that no node has.
    async fn hand_over_copies(self: &Arc<Self>, mut copies: Vec<LeftCopy>) -> HandedOver {
        let mut done = HandedOver::default();
        if copies.len() > GIVEN_UP_MAX {
            // The hot copies first.
            copies.sort_by_key(|copy| !copy.what.is_hot);
            done.dropped += (copies.len() - GIVEN_UP_MAX) as u64;
            copies.truncate(GIVEN_UP_MAX);
        }
        let mut by_home: BTreeMap<Option<NodeNumber>, Vec<LeftCopy>> = BTreeMap::new();
        for copy in copies {
            let shard = self.coherence.shards.of(&copy.object);
            let away = self.neighbours.as_ref().filter(|_| !self.coherence.is_home(shard));
            by_home.entry(away.and_then(|neighbours| neighbours.home_of(shard))).or_default().push(copy);
        }
        let asked = by_home.into_iter().map(|(home, copies)| self.elected(home, copies));
        let mut to_copy = Vec::new();
        let mut copied_bytes = 0;
        let begun = Instant::now();
        let answers = join_all(asked).await;
        done.elected_in = begun.elapsed();
        for (copy, elected) in answers.into_iter().flatten() {
            match fate(&copy.what, elected, copied_bytes) {
                Fate::ReElected(_) => {
                    done.reelected += 1;
                    done.reelected_bytes += copy.what.bytes;
                }
                Fate::Copied => {
                    copied_bytes += copy.what.bytes;
                    to_copy.push(copy.object);
                }
                Fate::Dropped => done.dropped += 1,
            }
        }
        while !to_copy.is_empty() {
            let rest = to_copy.split_off(to_copy.len().min(BROUGHT_MAX));
            let objects = std::mem::replace(&mut to_copy, rest);
            let asked = objects.len();
            let brought = self.brought_by_others(objects).await;
            let copied = brought.iter().filter(|bytes| **bytes > 0).count();
            done.copied += copied as u64;
            done.copied_bytes += brought.iter().sum::<u64>();
            done.dropped += (asked - copied) as u64;
        }
        let count = |fate: &'static str, objects: u64| {
            metrics::counter!("nigh_objects_handed_over_total", "fate" => fate).increment(objects);
        };
        count("reelected", done.reelected);
        count("copied", done.copied);
        count("dropped", done.dropped);
        done
    }

    /// The answers of the homes at `home`, or here if none, about dropped copies.
    async fn elected(&self, home: Option<NodeNumber>, copies: Vec<LeftCopy>) -> Vec<(LeftCopy, HolderElection)> {
        let Some(me) = self.me else { return Vec::new() };
        let names = |copies: &[LeftCopy]| {
            let copies = copies.iter().map(|copy| (copy.object.clone(), copy.version)).collect();
            LetGo { from: me, copies }
        };
        let (Some(home), Some(neighbours)) = (home, &self.neighbours) else {
            let elected = self.elect_here(names(&copies));
            return copies.into_iter().zip(elected).collect();
        };
        let chunks: Vec<Vec<LeftCopy>> = copies.chunks(NAMES_AT_ONCE).map(<[LeftCopy]>::to_vec).collect();
        let asked = futures::stream::iter(chunks).map(|copies| async move {
            let asked = neighbours.ask::<Vec<HolderElection>>(home, &LET_GO, &names(&copies), Body::empty()).await;
            let elected = asked.map(|(elected, _)| elected).unwrap_or_else(|why| {
                tracing::debug!(home = home.0, ?why, "a home has not said which nodes hold the dropped copies");
                Vec::new()
            });
            copies.into_iter().zip(elected).collect::<Vec<_>>()
        });
        let elected: Vec<Vec<(LeftCopy, HolderElection)>> = asked.buffer_unordered(QUESTIONS_AT_ONCE).collect().await;
        elected.into_iter().flatten().collect()
    }
}

impl ObjectMemoryState {
    /// Elects holders of the copies that a node has dropped, at the homes here.
    pub(super) fn elect_here(&self, let_go: LetGo) -> Vec<HolderElection> {
        let LetGo { from, copies } = let_go;
        let mut held_by: BTreeMap<NodeNumber, Vec<ObjectId>> = BTreeMap::new();
        let mut elect_one = |(object, version): (ObjectId, Version)| {
            let (newest, sharers) = self.coherence.sharers(&object);
            let own = self.me.and_then(|me| Some((self.shelf().peek(&object)?.meta.version(), me.node)));
            let elected = elect(NamePrint::of(&object), (version, from), newest, own, &sharers);
            let holder = match elected {
                HolderElection::At(node) => Some(node),
                HolderElection::Nobody | HolderElection::Stale => None,
            };
            self.holders.set(&object, holder.filter(|node| self.me.is_none_or(|me| me.node != *node)));
            if let Some(node) = holder {
                held_by.entry(node).or_default().push(object);
            }
            elected
        };
        let elected = copies.into_iter().map(&mut elect_one).collect();
        for (node, objects) in held_by {
            match &self.neighbours {
                Some(neighbours) if self.me.is_none_or(|me| me.node != node) => {
                    let neighbours = Arc::clone(neighbours);
                    // The message is a hint: if it is lost, the holder's copy is not counted as read.
                    crate::sync::spawn(async move {
                        let letter = [Letter::Holds(objects)];
                        let _told = neighbours.ask::<()>(node, &POST, &letter, Body::empty()).await;
                    });
                }
                _ => self.holds(&objects),
            }
        }
        elected
    }

    /// This node has become the holder of these objects: counts their copies as read.
    pub(super) fn holds(&self, objects: &[ObjectId]) {
        for object in objects {
            self.shelf().used(object);
        }
    }

    /// A cached copy of exactly this version.
    pub(super) fn copy_held(&self, held: &HeldCopyRequest) -> Option<(ObjectMeta, Segment)> {
        let kept = self.shelf().peek(&held.object).filter(|kept| kept.meta.version() == held.version).cloned()?;
        Some((ObjectMeta::clone(&*kept.meta.unpack()), kept.segment?))
    }

    /// The bytes of an object from its holder, if the home is here and knows this version. None if there is no holder,
    /// or no room for the bytes.
    pub(in crate::memory) async fn from_holder(
        self: &Arc<Self>,
        object: &ObjectId,
        version: Option<Version>,
    ) -> Option<(ObjectMeta, Segment)> {
        let (node, version) = (self.holders.of(object)?, version?);
        let held = timeout(HELD_WITHIN, self.ask_holder(node, object, version)).await.ok().flatten();
        let outcome = if held.is_some() { "held" } else { "gone" };
        metrics::counter!("nigh_holders_asked_total", "outcome" => outcome).increment(1);
        if held.is_none() {
            self.holders.set(object, None);
        }
        held
    }

    async fn ask_holder(
        self: &Arc<Self>,
        node: NodeNumber,
        object: &ObjectId,
        version: Version,
    ) -> Option<(ObjectMeta, Segment)> {
        let held = HeldCopyRequest { object: object.clone(), version };
        let asked = self.neighbours.as_ref()?.ask::<Option<ObjectMeta>>(node, &HELD, &held, Body::empty()).await;
        let (meta, mut body) = asked.ok()?;
        let meta = meta.filter(|meta| meta.version == version && meta.size == body.len())?;
        let _room = self.reserve(self.account.cost(meta.size))?;
        let broken = |error: BodyError| ObjectError::AtHome(error.to_string());
        let segment = segment_of(&self.account, &mut body, meta.size, broken).await.ok()?;
        Some((meta, segment))
    }

    /// See `ObjectMemory::bring`.
    pub(super) async fn bring_each(self: &Arc<Self>, objects: Vec<ObjectId>) -> Vec<u64> {
        let brought = futures::stream::iter(objects).map(|object| async move {
            if self.shelf().peek(&object).is_some() || !self.shelf().takes_guests() {
                return 0;
            }
            match self.read_of(&object, &GetRequest::default(), Admission::Always).await {
                Ok(read) if matches!(read.source, ReadSource::Segment(_)) => read.meta.size,
                Ok(_) => 0,
                Err(error) => {
                    tracing::debug!(%object, %error, "an object was not brought into memory");
                    0
                }
            }
        });
        brought.buffered(BROUGHT_AT_ONCE).collect().await
    }

    async fn bring_there_at(&self, node: NodeNumber, mut objects: Vec<ObjectId>) -> Result<Vec<u64>, String> {
        let neighbours = self.neighbours.as_ref().ok_or("a node alone")?;
        objects.truncate(BROUGHT_MAX);
        let bring = Bring { objects };
        let asked = neighbours.ask::<Vec<u64>>(node, &BRING, &bring, Body::empty()).await;
        asked.map(|(brought, _)| brought).map_err(|why| format!("{why:?}"))
    }

    /// Lets some node with room fetch these objects.
    async fn brought_by_others(&self, objects: Vec<ObjectId>) -> Vec<u64> {
        let (Some(neighbours), Some(first)) = (&self.neighbours, objects.first()) else { return Vec::new() };
        let mut nodes: Vec<NodeNumber> = neighbours.known();
        nodes.retain(|node| self.me.is_none_or(|me| me.node != *node));
        if nodes.is_empty() {
            return Vec::new();
        }
        // The first node asked depends on the object's name, so that it is not always the same.
        let begin = (NamePrint::of(first).0 % nodes.len() as u64) as usize;
        nodes.rotate_left(begin);
        for node in nodes.into_iter().take(TAKERS_MAX) {
            match self.bring_there_at(node, objects.clone()).await {
                Ok(brought) if brought.iter().any(|bytes| *bytes > 0) => return brought,
                Ok(_) => {}
                Err(why) => tracing::debug!(node = node.0, %why, "a node has not taken copies"),
            }
        }
        Vec::new()
    }
}
