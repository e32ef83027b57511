//! The home of one shard: the ordering point of its objects, under one epoch.
//!
//! A home decides what the newest version of an object is, which sharers are told of it, and what a node has to apply
//! to cover it. It sends every acknowledgement without waiting for a sharer. It holds no bytes and nothing durable: the
//! ledger keeps its records, and the next home begins with them.

mod directory;
mod peers;
mod requests;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_terms::{Epoch, Monotonic, ShardId, Token, Version};

use self::peers::{Peers, PutState};
pub use self::terms::{AppendId, HomeInput, HomeLimits, HomeOutput, LedgerRecord, ReplayedRecord, Takeover};
use super::message::{Attempt, FromHome, Member, ObjectName, Reply, Request, RequestId, Stamp, Write};
use super::rules::{Contract, Rule, Rules};
use super::sharers::Sharers;
use super::table::Table;

/// What the home knows of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    version: Version,
    others: Option<Arc<Token>>,
    sharers: Sharers,
    /// The version is a tombstone: there is no object.
    absent: bool,
    /// The store has this version.
    pushed: bool,
    /// The summary contains `others`.
    summarised: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum PendingAppend<O> {
    Write { object: O, write: Write, token: Arc<Token>, writer: Member, request: RequestId },
    Fence(Member),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct WaitingFetch {
    from: Member,
    attempt: Attempt,
    shared: bool,
}

/// The home of one shard, under one epoch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Home<O: Eq + std::hash::Hash, R = Contract> {
    rules: R,
    limits: HomeLimits,
    shard: ShardId,
    epoch: Epoch,
    /// The newest version that was applied. All before it were applied too.
    newest: Version,
    /// The version that an object without an entry gets: no older than any version that was forgotten.
    forgotten: Version,
    summary: Option<Arc<Token>>,
    directory: Table<O, Entry>,
    peers: Peers<O>,
    appending: BTreeMap<AppendId, PendingAppend<O>>,
    appends: AppendId,
    loading: BTreeMap<O, Vec<WaitingFetch>>,
    resident: Option<Member>,
    retired: bool,
}

impl<O: ObjectName, R: Rules> Home<O, R> {
    /// A home that has taken its epoch in the ledger.
    #[must_use]
    pub fn begin(takeover: Takeover<O>, limits: HomeLimits, rules: R) -> Self {
        let Takeover { shard, epoch, records, summary, resident } = takeover;
        let first = Version { epoch, ..Version::default() };
        let mut home = Self {
            summary: (rules.hold(Rule::Summary) && !summary.is_empty()).then(|| Arc::new(summary)),
            rules,
            limits,
            shard,
            epoch,
            newest: first,
            forgotten: first,
            directory: Table::default(),
            peers: Peers::default(),
            appending: BTreeMap::new(),
            appends: AppendId { epoch, number: 0 },
            loading: BTreeMap::new(),
            resident,
            retired: false,
        };
        for ReplayedRecord { version, record } in records {
            home.replay(version, record);
        }
        if let Some(resident) = resident {
            home.peers.admit(resident, Monotonic::default(), &home.rules);
        }
        home
    }

    fn replay(&mut self, version: Version, record: LedgerRecord<O>) {
        match record {
            LedgerRecord::Write { object, write, token, writer, request } => {
                let stamp = self.stamp(version, &token);
                let others = stamp.others.clone();
                let (absent, pushed) = (write == Write::Delete, write == Write::Outside);
                let entry = Entry { version, others, absent, pushed, ..Entry::default() };
                self.directory.insert(object, entry);
                match self.peers.admit(writer, Monotonic::default(), &self.rules) {
                    Some(peer) => peer.note(request, PutState::Written(stamp)),
                    None => self.peers.orphan(writer, version),
                }
            }
            LedgerRecord::Fence { member } => {
                self.peers.give_up(member);
                self.peers.fence(member);
            }
        }
    }

    /// The newest version that this home has applied.
    #[must_use]
    pub const fn newest(&self) -> Version {
        self.newest
    }

    /// This home's epoch.
    #[must_use]
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// True if this is a former home, which answers nothing.
    #[must_use]
    pub const fn is_retired(&self) -> bool {
        self.retired
    }

    /// The number of entries in the directory.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.directory.len()
    }

    /// Objects whose entries may be forgotten, at most `most`.
    #[must_use]
    pub fn forgettable(&self, most: usize) -> Vec<O> {
        let mut objects = self.directory.keys_where(|entry| entry.pushed);
        objects.truncate(most);
        objects
    }

    /// The newest version of `object`, and whether it is a tombstone; none if only the store knows.
    #[must_use]
    pub fn version_of(&self, object: &O) -> Option<(Version, bool)> {
        self.directory.get(object).map(|entry| (entry.version, entry.absent))
    }

    /// The sharers of the newest version of `object`, without the local node.
    #[must_use]
    pub fn sharers(&self, object: &O) -> Vec<Member> {
        let sharers = self.directory.get(object).map_or(&[][..], |entry| entry.sharers.as_slice());
        sharers.iter().filter_map(|sharer| self.peers.member(*sharer)).collect()
    }

    /// True if the home does not remember this put of `from` as under way, answered or settled.
    #[must_use]
    pub fn is_new(&self, from: Member, request: RequestId) -> bool {
        self.peers.find(from).is_none_or(|peer| peer.known(request).is_none() && !peer.is_settled(request))
    }

    /// The nodes that were sent an invalidation of `object` and have not acknowledged it.
    #[must_use]
    pub fn pending(&self, object: &O) -> Vec<Member> {
        self.peers.pending(object)
    }

    /// The number of invalidations that were sent and not acknowledged.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.peers.owed()
    }

    /// Takes one input in.
    pub fn step(&mut self, now: Monotonic, input: HomeInput<O>, out: &mut Vec<HomeOutput<O>>) {
        if self.retired {
            return;
        }
        match input {
            HomeInput::Request(request) if request.epoch > self.epoch => self.retire(out),
            HomeInput::Request(Request { from, epoch, body }) => self.request(now, from, epoch, body, out),
            HomeInput::Loaded { object, absent } => self.loaded(now, object, absent, out),
            HomeInput::NotLoaded(object) => {
                self.loading.remove(&object);
                self.drop_if_idle(&object);
            }
            HomeInput::Appended { append, version } => self.appended(now, append, version, out),
            HomeInput::NotAppended { append } => self.not_appended(append, out),
            HomeInput::Deposed => self.retire(out),
            HomeInput::GiveUp(member) => {
                self.peers.give_up(member);
            }
            HomeInput::Fence(member) => {
                self.peers.give_up(member);
                // A fence that is requested again before the ledger has answered is not appended twice.
                if !self.appending.values().any(|one| *one == PendingAppend::Fence(member)) {
                    self.append(PendingAppend::Fence(member), out);
                }
            }
            HomeInput::Pushed { object, version } => {
                if let Some(entry) = self.directory.get_mut(&object).filter(|entry| entry.version == version) {
                    entry.pushed = true;
                    self.drop_if_idle(&object);
                }
            }
            HomeInput::Forget(object) => self.forget(now, &object, out),
            HomeInput::Tick => self.tick(now, out),
        }
        out.extend(self.peers.take_settled().into_iter().map(HomeOutput::Settled));
    }

    fn retire(&mut self, out: &mut Vec<HomeOutput<O>>) {
        self.retired = true;
        out.push(HomeOutput::Retired);
    }

    fn is_resident(&self, member: Member) -> bool {
        self.resident == Some(member)
    }

    fn give_up(&mut self, member: Member, out: &mut Vec<HomeOutput<O>>) {
        if self.peers.give_up(member) {
            out.push(HomeOutput::GaveUp(member));
        }
    }

    fn tick(&mut self, now: Monotonic, out: &mut Vec<HomeOutput<O>>) {
        for member in self.peers.silent(now, self.limits.give_up) {
            self.give_up(member, out);
        }
        let (shard, epoch) = (self.shard, self.epoch);
        self.peers.overdue(now, self.limits.resend, |to, body| {
            out.push(HomeOutput::Send(Reply { shard, epoch, to, body }));
        });
    }

    fn stamp(&self, version: Version, token: &Token) -> Stamp {
        if self.rules.hold(Rule::WriterToken) {
            Stamp::new(self.shard, version, token)
        } else {
            Stamp { version, others: None }
        }
    }

    fn send(&self, to: Member, body: FromHome<O>, out: &mut Vec<HomeOutput<O>>) {
        out.push(HomeOutput::Send(Reply { shard: self.shard, epoch: self.epoch, to, body }));
    }
}
