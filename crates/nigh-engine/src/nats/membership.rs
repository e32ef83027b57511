//! Membership in a cluster: each node keeps an entry, which goes if it is not written anew.
//!
//! The revision at which an entry was made is the node's incarnation. It is renewed on condition that it is as this life
//! left it: a life whose entry has gone, or is another's, is over, and must join again. That is no safety rule: homes
//! refuse incarnations, whatever is known here.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use nigh_terms::{Clock, Incarnation, NodeId};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::documents::{Documents, FoundDocument, NotWritten};
use super::roster::Roster;
use super::{Cluster, ClusterError};
use crate::{Members, Membership, RegistryError};

/// An entry that is not written anew for so long is gone.
pub const TTL: Duration = Duration::from_secs(3);
const RENEWED_EVERY: Duration = Duration::from_secs(1);
/// How often it is looked whose time is over.
const LOOKED_EVERY: Duration = Duration::from_millis(250);
/// Attempts to make the entry while others write it.
const JOINS_MAX: usize = 16;

/// This node's entry.
struct Entry {
    subject: String,
    /// Where it stands; none once it is this life's no longer.
    place: Option<u64>,
}

/// One life of a node in a cluster.
pub struct NatsMembership {
    node: NodeId,
    incarnation: Incarnation,
    documents: Documents,
    entry: Arc<Mutex<Entry>>,
    members: watch::Receiver<Members>,
    tasks: [JoinHandle<()>; 2],
}

impl std::fmt::Debug for NatsMembership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NatsMembership({}, {})", self.node, self.incarnation)
    }
}

impl NatsMembership {
    /// Begins a new life of `node`; one that still seems to live is over then.
    ///
    /// # Errors
    /// If the servers do not answer.
    pub async fn join(cluster: Cluster, node: NodeId, clock: Arc<dyn Clock>) -> Result<Self, ClusterError> {
        let documents = Documents::open(cluster, "members", TTL).await?;
        let subject = documents.subject(&[&node.0])?;
        let place = enter(&documents, &subject).await?;
        let incarnation = Incarnation(place);
        let entry = Arc::new(Mutex::new(Entry { subject, place: Some(place) }));
        let (said, members) = watch::channel(vec![(node.clone(), incarnation)]);
        let heard = documents.watch(&[])?;
        let (this, kept) = ((node.clone(), incarnation), Arc::clone(&entry));
        let tasks = [
            tokio::spawn(renew(documents.clone(), incarnation, Arc::clone(&entry))),
            tokio::spawn(listen(heard, clock, said, this, kept)),
        ];
        Ok(Self { node, incarnation, documents, entry, members, tasks })
    }

    /// Ends this life; others hear of it at once.
    ///
    /// # Errors
    /// If the servers do not answer: they hear of it when its time is over.
    pub async fn leave(self) -> Result<(), ClusterError> {
        let mut entry = self.entry.lock().await;
        let Some(place) = entry.place.take() else { return Ok(()) };
        match self.documents.write(&entry.subject, None, place).await {
            Ok(_) | Err(NotWritten::Conflict) => Ok(()),
            Err(NotWritten::Other(error)) => Err(error),
        }
    }
}

impl Drop for NatsMembership {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[async_trait]
impl Membership for NatsMembership {
    fn node(&self) -> &NodeId {
        &self.node
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    async fn alive(&self) -> Result<Members, RegistryError> {
        Ok(self.members.borrow().clone())
    }

    fn watch(&self) -> watch::Receiver<Members> {
        self.members.clone()
    }
}

/// Makes the entry of a new life: its place.
async fn enter(documents: &Documents, subject: &str) -> Result<u64, ClusterError> {
    for _ in 0..JOINS_MAX {
        let before = documents.get(subject).await?.map_or(0, |found| found.place);
        match documents.write(subject, Some(&0_u64.to_le_bytes()), before).await {
            Ok(place) => return Ok(place),
            Err(NotWritten::Conflict) => {}
            Err(NotWritten::Other(error)) => return Err(error),
        }
    }
    let reason = "its entry changes all the time: another node has this name".to_owned();
    Err(ClusterError::Unreachable { what: "join as", of: subject.to_owned(), reason })
}

/// Writes the entry anew until it is not this life's any more.
async fn renew(documents: Documents, incarnation: Incarnation, entry: Arc<Mutex<Entry>>) {
    let mut ticks = interval(RENEWED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let mut entry = entry.lock().await;
        let Some(place) = entry.place else { return };
        match documents.write(&entry.subject, Some(&incarnation.0.to_le_bytes()), place).await {
            Ok(renewed) => entry.place = Some(renewed),
            Err(NotWritten::Conflict) => {
                tracing::warn!(%incarnation, "this node's time as a member is over; it must join again");
                entry.place = None;
            }
            Err(NotWritten::Other(error)) => tracing::warn!(%error, "this node's membership could not be renewed"),
        }
    }
}

/// Says who lives, from what is heard of entries.
async fn listen(
    mut heard: tokio::sync::mpsc::Receiver<(String, FoundDocument)>,
    clock: Arc<dyn Clock>,
    said: watch::Sender<Members>,
    (node, incarnation): (NodeId, Incarnation),
    entry: Arc<Mutex<Entry>>,
) {
    let mut roster = Roster::default();
    roster.heard(node.clone(), incarnation, incarnation.0, clock.monotonic());
    loop {
        match timeout(LOOKED_EVERY, heard.recv()).await {
            Ok(None) => return,
            Ok(Some((name, FoundDocument { place, value, .. }))) => match value.as_deref().map(<[u8; 8]>::try_from) {
                Some(Ok(bytes)) => {
                    // In the entry that begins a life its own place is the incarnation.
                    let told = u64::from_le_bytes(bytes);
                    let life = Incarnation(if told == 0 { place } else { told });
                    roster.heard(NodeId(name), life, place, clock.monotonic());
                }
                Some(Err(_)) => tracing::error!(node = name, "a member's entry is none of ours"),
                None => roster.left(&NodeId(name), place),
            },
            Err(_) => {}
        }
        let mut alive = roster.alive(clock.monotonic(), TTL);
        if entry.try_lock().is_ok_and(|entry| entry.place.is_none()) {
            alive.retain(|member| *member != (node.clone(), incarnation));
        }
        said.send_if_modified(|members| {
            let changed = *members != alive;
            *members = alive;
            changed
        });
    }
}
