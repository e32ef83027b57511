//! Membership in a cluster: each node renews a lease, which is an entry that expires.
//!
//! The revision at which an entry was created is the node's incarnation. A renewal requires the entry as this incarnation
//! left it: if another incarnation has the entry, this one has ended and must join again. If the entry has only expired, as
//! all do when the servers are away for long, the node creates it again; other members may have taken its shards
//! meanwhile. Safety does not depend on this: homes reject incarnations by themselves.
//!
//! A process that joins under the name of a living member is refused (`member_entry`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use nigh_terms::{Clock, Incarnation, Monotonic, NodeId};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::documents::{Documents, FoundDocument, NotWritten};
use super::member_entry::{INCARNATION_BYTES, JOINS_MAX, enter, incarnation_of};
use super::refusal::Refusals;
use super::roster::{Roster, SUSPECTED_AFTER};
use super::{Cluster, ClusterError};
use crate::{Members, Membership, Presence, PresentMember, RegistryError};

/// An entry that is not renewed for this long expires.
pub const TTL: Duration = Duration::from_secs(3);
const RENEWED_EVERY: Duration = Duration::from_secs(1);
/// How often expired members are looked for at least.
const LOOKED_EVERY: Duration = Duration::from_millis(250);
/// A timer's step: a member is looked for when its lease has ended, not at its last moment.
const TIMER_STEP: Duration = Duration::from_millis(1);

/// This node's entry.
struct Entry {
    subject: String,
    /// The entry's place; none once it is another incarnation's.
    place: Option<u64>,
}

/// One incarnation of a node in a cluster.
pub struct NatsMembership {
    node: NodeId,
    incarnation: Incarnation,
    documents: Documents,
    entry: Arc<Mutex<Entry>>,
    members: watch::Receiver<Members>,
    present: watch::Receiver<Vec<PresentMember>>,
    told: watch::Sender<Arc<[u8]>>,
    heard: Arc<AtomicU64>,
    tasks: [JoinHandle<()>; 2],
}

/// The members, once as names and incarnations and once with their presences, and the last write of an entry that they
/// include.
struct MemberChannels {
    heard: Arc<AtomicU64>,
    members: watch::Sender<Members>,
    present: watch::Sender<Vec<PresentMember>>,
}

impl std::fmt::Debug for NatsMembership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NatsMembership({}, {})", self.node, self.incarnation)
    }
}

impl NatsMembership {
    /// Begins a new incarnation of `node` with `presence`. `former` is an incarnation that the caller knows to have ended,
    /// because it was this process's own predecessor; another one that has not ended is waited for. When it returns all
    /// members with an entry are known; those that do not renew it expire later.
    ///
    /// # Errors
    /// If another process with this name renews its membership, or the servers do not answer.
    #[boxed]
    pub async fn join(
        cluster: Cluster,
        node: NodeId,
        former: Option<Incarnation>,
        presence: &Presence,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClusterError> {
        let documents = Documents::open(cluster, "members", TTL).await?;
        let subject = documents.subject(&[&node.0])?;
        let told = encoded(presence);
        let place = enter(&documents, &node, &subject, &value_of(0, &told), former).await?;
        let incarnation = Incarnation(place);
        let own = PresentMember { node: node.clone(), incarnation, presence: presence.clone() };
        let (mut roster, heard_up_to) = (Roster::default(), Arc::new(AtomicU64::new(place)));
        for (name, found) in documents.list(&[]).await? {
            hear(&mut roster, name, found, clock.monotonic());
        }
        // This incarnation is a member, even if the server does not know it yet.
        roster.heard(own.clone(), place, clock.monotonic());
        let entry = Arc::new(Mutex::new(Entry { subject, place: Some(place) }));
        let alive = roster.alive(clock.monotonic(), TTL);
        let (say_members, members) = watch::channel(names(&alive));
        let (say_present, present) = watch::channel(alive);
        let said = MemberChannels { heard: Arc::clone(&heard_up_to), members: say_members, present: say_present };
        let heard = documents.watch(&[])?;
        let (told, telling) = watch::channel(told);
        let tasks = [
            tokio::spawn(renew(documents.clone(), incarnation, telling, Arc::clone(&entry))),
            tokio::spawn(listen(heard, clock, said, (node.clone(), incarnation), roster, Arc::clone(&entry))),
        ];
        Ok(Self { node, incarnation, documents, entry, members, present, told, heard: heard_up_to, tasks })
    }

    /// All members with their presences, as they change; this node is one of them, unless its membership has ended.
    #[must_use]
    pub fn present(&self) -> watch::Receiver<Vec<PresentMember>> {
        self.present.clone()
    }

    /// True if this process would know an incarnation, because it began before the newest known write of any member.
    #[must_use]
    pub fn can_know_of(&self, incarnation: Incarnation) -> bool {
        incarnation.0 <= self.heard.load(Ordering::Acquire)
    }

    /// Replaces this node's presence; the other members learn it soon.
    pub fn tell(&self, presence: &Presence) {
        self.told.send_replace(encoded(presence));
    }

    /// Ends this membership; the other members learn it at once.
    ///
    /// # Errors
    /// If the servers do not answer: then the entry expires later.
    #[boxed]
    pub async fn leave(&self) -> Result<(), ClusterError> {
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

fn encoded(presence: &Presence) -> Arc<[u8]> {
    // This cannot fail: numbers, texts and a list always have a JSON form.
    serde_json::to_vec(presence).unwrap_or_default().into()
}

/// An entry's value: the incarnation, then the presence.
fn value_of(incarnation: u64, told: &[u8]) -> Vec<u8> {
    [&incarnation.to_le_bytes()[..], told].concat()
}

fn names(present: &[PresentMember]) -> Members {
    present.iter().map(|member| (member.node.clone(), member.incarnation)).collect()
}

/// Renews the entry until it is another incarnation's.
async fn renew(
    documents: Documents,
    Incarnation(life): Incarnation,
    mut told: watch::Receiver<Arc<[u8]>>,
    entry: Arc<Mutex<Entry>>,
) {
    let mut ticks = interval(RENEWED_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            changed = told.changed() => if changed.is_err() { return },
        }
        let value = value_of(life, &told.borrow_and_update().clone());
        let mut entry = entry.lock().await;
        let Some(place) = entry.place else { return };
        match documents.write(&entry.subject, Some(&value), place).await {
            Ok(renewed) => entry.place = Some(renewed),
            Err(NotWritten::Conflict) => match again(&documents, &entry.subject, life, &value).await {
                Ok(Some(place)) => entry.place = Some(place),
                Ok(None) => {
                    tracing::warn!(incarnation = life, "this node's membership has ended; the node must join again");
                    entry.place = None;
                }
                Err(error) => tracing::warn!(%error, "this node's membership could not be renewed"),
            },
            Err(NotWritten::Other(error)) => tracing::warn!(%error, "this node's membership could not be renewed"),
        }
    }
}

/// Creates the expired entry of an incarnation again. Returns its place; none if another incarnation has the entry.
async fn again(documents: &Documents, subject: &str, life: u64, value: &[u8]) -> Result<Option<u64>, ClusterError> {
    for _ in 0..JOINS_MAX {
        if let Some(FoundDocument { place, value: found }) = documents.get(subject).await? {
            let of = found.as_deref().and_then(|found| incarnation_of(place, found));
            return Ok((of == Some(Incarnation(life))).then_some(place));
        }
        match documents.write(subject, Some(value), 0).await {
            Ok(place) => {
                tracing::warn!(incarnation = life, "this node had expired and is a member again");
                return Ok(Some(place));
            }
            Err(NotWritten::Conflict) => {}
            Err(NotWritten::Other(error)) => return Err(error),
        }
    }
    Ok(None)
}

/// Takes in a change of an entry.
fn hear(roster: &mut Roster, name: String, FoundDocument { place, value }: FoundDocument, at: Monotonic) {
    let Some(value) = value else { return roster.left(&NodeId(name), place) };
    let read = match incarnation_of(place, &value).zip(value.get(INCARNATION_BYTES..)) {
        Some((incarnation, told)) => Presence::decode(told).map(|presence| (incarnation, presence)),
        None => Err("it is shorter than an incarnation".to_owned()),
    };
    match read {
        Ok((incarnation, presence)) => {
            roster.heard(PresentMember { node: NodeId(name), incarnation, presence }, place, at);
        }
        Err(reason) => tracing::error!(node = name, reason, "a member's entry cannot be read"),
    }
}

/// Computes the members from the changes of entries.
async fn listen(
    mut heard: tokio::sync::mpsc::Receiver<(String, FoundDocument)>,
    clock: Arc<dyn Clock>,
    said: MemberChannels,
    (node, incarnation): (NodeId, Incarnation),
    mut roster: Roster,
    entry: Arc<Mutex<Entry>>,
) {
    let (mut told_up_to, mut was_away, mut refusals) = (0, false, Refusals::default());
    loop {
        let now = clock.monotonic();
        // The next look is at the moment when a member may expire, or is to be asked.
        let next = [TTL, SUSPECTED_AFTER].into_iter().filter_map(|span| roster.next_silence(now, span)).min();
        let next = next.map_or(LOOKED_EVERY, |next| next + TIMER_STEP).min(LOOKED_EVERY);
        tokio::select! {
            found = heard.recv() => match found {
                None => return,
                Some((name, found)) => {
                    told_up_to = told_up_to.max(found.place);
                    hear(&mut roster, name, found, clock.monotonic());
                }
            },
            refusing = refusals.next() => {
                tracing::debug!(target: "failover", step = "refused", node = %refusing.node);
                roster.refused(&refusing);
            }
            () = sleep(next) => {}
        }
        let now = clock.monotonic();
        // A node that does not receive its own entry has lost its servers, which says nothing about other members.
        let is_away = roster.is_late(&node, now, TTL);
        if was_away && !is_away {
            tracing::debug!(target: "failover", step = "servers_back", %node);
            roster.all_heard(now);
        }
        was_away = is_away;
        let mut alive = if is_away { roster.all() } else { roster.alive(now, TTL) };
        if !is_away {
            refusals.ask(roster.suspects(now, &node));
        }
        for (node, silence) in roster.take_expired() {
            tracing::debug!(target: "failover", step = "expired", %node, silent_ms = silence.as_millis() as u64);
        }
        if entry.try_lock().is_ok_and(|entry| entry.place.is_none()) {
            alive.retain(|member| (&member.node, member.incarnation) != (&node, incarnation));
        }
        let members = names(&alive);
        said.members.send_if_modified(|known| {
            let changed = *known != members;
            *known = members;
            changed
        });
        said.present.send_if_modified(|known| {
            let changed = *known != alive;
            *known = alive;
            changed
        });
        // Set after the members that it stands for.
        said.heard.fetch_max(told_up_to, Ordering::Release);
    }
}
