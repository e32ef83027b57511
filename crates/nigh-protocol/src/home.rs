//! The home of one shard: the ordering point of its objects, under one epoch.
//!
//! It decides what the newest version of an object is, who must be told of it, and which claims of coverage a
//! node gets; it sends every acknowledgement without waiting for a sharer. It holds no bytes and no durable
//! thing: what must last goes to the ledger and comes back at the next home's beginning.

mod peers;
mod terms;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use nigh_terms::{Epoch, Monotonic, ShardId, Token, Version, invariant};

use self::peers::{Peers, PutState};
pub use self::terms::{AppendId, HomeInput, HomeLimits, HomeOutput, LedgerRecord, ReplayedRecord, Takeover};
use super::message::{Attempt, FromHome, Member, ObjectName, Refusal, Reply, Request, RequestId, Stamp, ToHome, Write};
use super::rules::{Contract, Rule, Rules};
use super::sharers::Sharers;
use super::table::Table;

/// What is known of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Entry {
    version: Version,
    others: Option<Arc<Token>>,
    sharers: Sharers,
    /// There is no object: the version is a tombstone's.
    absent: bool,
    /// The store has it.
    pushed: bool,
    /// Its own token is part of the summary.
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
    /// The newest version applied: all before it are too.
    newest: Version,
    /// What an object without a version of its own counts as: no older than any that was forgotten.
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
    /// A home that has taken its epoch.
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
            appends: AppendId::default(),
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

    /// True if it answers nothing any more.
    #[must_use]
    pub const fn is_retired(&self) -> bool {
        self.retired
    }

    /// How many objects the directory knows.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.directory.len()
    }

    /// Objects that may be forgotten, up to so many.
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

    /// The living nodes that have been given `object` as it is now, the resident not among them.
    #[must_use]
    pub fn sharers(&self, object: &O) -> Vec<Member> {
        let sharers = self.directory.get(object).map_or(&[][..], |entry| entry.sharers.as_slice());
        sharers.iter().filter_map(|sharer| self.peers.member(*sharer)).collect()
    }

    /// True if this put of `from` is not remembered: neither under way, nor answered, nor settled.
    #[must_use]
    pub fn is_new(&self, from: Member, request: RequestId) -> bool {
        self.peers.find(from).is_none_or(|peer| peer.known(request).is_none() && !peer.is_settled(request))
    }

    /// The nodes that have been told of a newer version of `object` and have not said that they know.
    #[must_use]
    pub fn pending(&self, object: &O) -> Vec<Member> {
        self.peers.pending(object)
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
                // Asked again before the ledger has answered, it is one fence.
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

    fn request(&mut self, now: Monotonic, from: Member, epoch: Epoch, body: ToHome<O>, out: &mut Vec<HomeOutput<O>>) {
        if let ToHome::Applied { counter } = body {
            if epoch == self.epoch {
                self.peers.acknowledge(now, from, counter);
            }
            return;
        }
        let newest = self.newest;
        let Some(peer) = self.peers.admit(from, now, &self.rules) else {
            let put = match body {
                // What was accepted before is answered when the ledger has answered.
                ToHome::Put { request, .. } if self.is_appending(from, request) => return,
                ToHome::Put { request, .. } => Some(request),
                ToHome::Fetch { .. } | ToHome::Ask { .. } | ToHome::Applied { .. } => None,
            };
            self.send(from, FromHome::Refused { request: put, reason: Refusal::GivenUp, through: newest }, out);
            return;
        };
        match body {
            ToHome::Ask { .. } => {
                let cover = peer.cover(newest);
                self.send(from, FromHome::Covers { cover }, out);
            }
            ToHome::Fetch { attempt, object, shared } => {
                let waiting = WaitingFetch { from, attempt, shared };
                if self.directory.get(&object).is_some() {
                    self.answer(now, &object, waiting, out);
                } else if let Some(others) = self.loading.get_mut(&object) {
                    if others.len() < self.limits.loads_max && !others.contains(&waiting) {
                        others.push(waiting);
                    }
                } else {
                    out.push(HomeOutput::Load(object.clone()));
                    self.loading.insert(object, vec![waiting]);
                }
            }
            ToHome::Put { request, object, write, token, settled } => {
                if epoch < self.epoch && self.rules.hold(Rule::PutsOfThisEpoch) {
                    // It may have been sent in an epoch whose answered puts are forgotten. The node learns of
                    // this one, and sends what it still wants again.
                    let cover = peer.cover(newest);
                    self.send(from, FromHome::Covers { cover }, out);
                    return;
                }
                peer.settle(settled, |version| out.push(HomeOutput::Settled(version)));
                let recognise = self.rules.hold(Rule::RequestIds);
                if recognise && peer.is_settled(request) {
                    return;
                }
                let answer = match peer.known(request).filter(|_| recognise) {
                    Some(PutState::Appending) => return,
                    Some(PutState::Written(stamp)) => {
                        FromHome::Written { request, stamp: stamp.clone(), cover: peer.cover(newest) }
                    }
                    Some(PutState::NotTaken) => {
                        FromHome::Refused { request: Some(request), reason: Refusal::NotTaken, through: newest }
                    }
                    // As if it had been lost: it will come again.
                    None if peer.puts() >= self.limits.puts_max && !peer.is_first(request) => return,
                    None => {
                        peer.note(request, PutState::Appending);
                        self.append(PendingAppend::Write { object, write, token, writer: from, request }, out);
                        return;
                    }
                };
                self.send(from, answer, out);
            }
            ToHome::Applied { .. } => {}
        }
    }

    fn is_appending(&self, from: Member, wanted: RequestId) -> bool {
        self.appending.values().any(
            |one| matches!(one, PendingAppend::Write { writer, request, .. } if *writer == from && *request == wanted),
        )
    }

    fn append(&mut self, what: PendingAppend<O>, out: &mut Vec<HomeOutput<O>>) {
        self.appends.0 += 1;
        let record = match &what {
            PendingAppend::Write { object, write, token, writer, request } => LedgerRecord::Write {
                object: object.clone(),
                write: *write,
                token: Arc::clone(token),
                writer: *writer,
                request: *request,
            },
            PendingAppend::Fence(member) => LedgerRecord::Fence { member: *member },
        };
        self.appending.insert(self.appends, what);
        out.push(HomeOutput::Append { append: self.appends, record });
    }

    fn appended(&mut self, now: Monotonic, append: AppendId, version: Version, out: &mut Vec<HomeOutput<O>>) {
        let Some(what) = self.appending.remove(&append) else { return };
        if version.epoch != self.epoch || version <= self.newest {
            // A claim "all up to here" has been made without this one: nothing of this home may be trusted.
            return self.retire(out);
        }
        self.newest = version;
        match what {
            PendingAppend::Fence(member) => {
                self.peers.fence(member);
                out.push(HomeOutput::Fenced { member, through: version });
            }
            PendingAppend::Write { object, write, token, writer, request } => {
                let stamp = self.stamp(version, &token);
                self.apply(now, &object, write, &stamp, writer, out);
                let is_resident = self.is_resident(writer);
                let answer = match self.peers.living(writer) {
                    Some(peer) => {
                        if is_resident {
                            peer.forget(request);
                            out.push(HomeOutput::Settled(version));
                        } else {
                            peer.note(request, PutState::Written(stamp.clone()));
                        }
                        FromHome::Written { request, stamp, cover: peer.cover(version) }
                    }
                    None => {
                        self.peers.orphan(writer, version);
                        FromHome::Refused { request: Some(request), reason: Refusal::GivenUp, through: version }
                    }
                };
                self.send(writer, answer, out);
            }
        }
    }

    fn not_appended(&mut self, append: AppendId, out: &mut Vec<HomeOutput<O>>) {
        match self.appending.remove(&append) {
            Some(PendingAppend::Write { writer, request, .. }) => {
                let is_resident = self.is_resident(writer);
                match self.peers.living(writer) {
                    Some(peer) if is_resident => peer.forget(request),
                    Some(peer) => peer.note(request, PutState::NotTaken),
                    None => {}
                }
                let (request, through) = (Some(request), self.newest);
                self.send(writer, FromHome::Refused { request, reason: Refusal::NotTaken, through }, out);
            }
            Some(PendingAppend::Fence(member)) => out.push(HomeOutput::NotFenced(member)),
            None => {}
        }
    }

    /// Makes a version the newest of its object, and tells those who have an older copy. The writer knows.
    fn apply(
        &mut self,
        now: Monotonic,
        object: &O,
        write: Write,
        stamp: &Stamp,
        writer: Member,
        out: &mut Vec<HomeOutput<O>>,
    ) {
        let own = self.peers.living(writer).map(|peer| peer.sharer);
        let is_resident = self.is_resident(writer);
        let entry = self.directory.get_or_insert_with(object, Entry::default);
        let sharers = match (write, own) {
            (Write::Put, Some(own)) if !is_resident => Sharers::only(own),
            (Write::Put | Write::Delete | Write::Outside, _) => Sharers::default(),
        };
        let before = std::mem::take(entry);
        let Stamp { version, others } = stamp.clone();
        let (absent, pushed) = (write == Write::Delete, write == Write::Outside);
        *entry = Entry { version, others, sharers, absent, pushed, ..Entry::default() };
        if !pushed || self.rules.hold(Rule::OutsideIsTold) {
            self.tell(now, object, &before.sharers, own, (version, false), out);
            if !is_resident {
                self.tell_resident(now, object, version, out);
            }
        }
        self.drop_if_idle(object);
        self.mind_the_limit(out);
    }

    fn is_resident(&self, member: Member) -> bool {
        self.resident == Some(member)
    }

    /// The resident may have a copy of anything.
    fn tell_resident(&mut self, now: Monotonic, object: &O, version: Version, out: &mut Vec<HomeOutput<O>>) {
        let Some(resident) = self.resident.filter(|_| self.rules.hold(Rule::TellResident)) else { return };
        if let Some(sharer) = self.peers.living(resident).map(|peer| peer.sharer) {
            self.tell(now, object, &Sharers::only(sharer), None, (version, false), out);
        }
    }

    /// What the store has, and nobody but the resident, needs no entry.
    fn drop_if_idle(&mut self, object: &O) {
        if self.resident.is_none() || self.is_held_by_load(object) {
            return;
        }
        let lives = |sharer: &super::sharers::SharerId| self.peers.lives(*sharer);
        let idle = |entry: &Entry| entry.pushed && !entry.sharers.as_slice().iter().any(lives);
        if self.directory.get(object).is_some_and(idle)
            && let Some(entry) = self.directory.remove(object)
        {
            self.forgotten(entry.version, entry.others);
        }
    }

    /// What a look into the store has found may be older than the entry.
    fn is_held_by_load(&self, object: &O) -> bool {
        self.loading.contains_key(object) && self.rules.hold(Rule::LoadHolds)
    }

    /// There is no entry of this version any more.
    fn forgotten(&mut self, version: Version, others: Option<Arc<Token>>) {
        self.check_known(version);
        if let Some(others) = others.filter(|_| self.rules.hold(Rule::Summary)) {
            Arc::make_mut(self.summary.get_or_insert_default()).join(&others);
        }
        self.forgotten = self.forgotten.max(version);
    }

    fn tell(
        &mut self,
        now: Monotonic,
        object: &O,
        sharers: &Sharers,
        except: Option<super::sharers::SharerId>,
        (version, recall): (Version, bool),
        out: &mut Vec<HomeOutput<O>>,
    ) {
        for &sharer in sharers.as_slice() {
            if Some(sharer) == except {
                continue;
            }
            let Some((to, body, owed)) = self.peers.invalidate(now, sharer, object, version, recall) else { continue };
            if owed > self.limits.owed_max {
                self.give_up(to, out);
            } else {
                self.send(to, body, out);
            }
        }
    }

    fn give_up(&mut self, member: Member, out: &mut Vec<HomeOutput<O>>) {
        if self.peers.give_up(member) {
            out.push(HomeOutput::GaveUp(member));
        }
    }

    fn loaded(&mut self, now: Monotonic, object: O, absent: bool, out: &mut Vec<HomeOutput<O>>) {
        let Some(waiting) = self.loading.remove(&object) else { return };
        // A write that was applied meanwhile is newer than what the store was found to have.
        if self.directory.get(&object).is_none() {
            let entry = Entry { version: self.forgotten, absent, pushed: true, summarised: true, ..Entry::default() };
            self.directory.insert(object.clone(), entry);
        }
        for one in waiting {
            self.answer(now, &object, one, out);
        }
        self.drop_if_idle(&object);
        self.mind_the_limit(out);
    }

    /// Answers a fetch of an object that the directory knows; who may keep the answer becomes a sharer.
    fn answer(&mut self, now: Monotonic, object: &O, waiting: WaitingFetch, out: &mut Vec<HomeOutput<O>>) {
        let WaitingFetch { from, attempt, shared } = waiting;
        let Some((sharer, cover)) =
            self.peers.admit(from, now, &self.rules).map(|peer| (peer.sharer, peer.cover(self.newest)))
        else {
            return;
        };
        let Some(entry) = self.directory.get_mut(object) else { return };
        let version = entry.version;
        if shared && self.resident != Some(from) {
            entry.sharers.add(sharer, |one| self.peers.lives(one));
        }
        let others = if entry.summarised { self.summary.clone() } else { entry.others.clone() };
        let stamp = Stamp { version, others };
        let (object, absent) = (object.clone(), entry.absent);
        self.check_known(version);
        self.send(from, FromHome::Found { attempt, object, stamp, absent, cover }, out);
    }

    fn forget(&mut self, now: Monotonic, object: &O, out: &mut Vec<HomeOutput<O>>) {
        if !self.directory.get(object).is_some_and(|entry| entry.pushed) || self.is_held_by_load(object) {
            return;
        }
        let Some(entry) = self.directory.remove(object) else { return };
        self.forgotten(entry.version, entry.others);
        if self.rules.hold(Rule::Recall) {
            self.tell(now, object, &entry.sharers, None, (entry.version, true), out);
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

    /// The cover that goes with an answer ends at `newest`: a reader of a newer version would never be told to wait.
    fn check_known(&self, version: Version) {
        let (shard, newest) = (self.shard, self.newest);
        invariant!(version <= newest, "the home of {shard} has an entry of {version}, newer than its newest {newest}");
    }

    fn mind_the_limit(&self, out: &mut Vec<HomeOutput<O>>) {
        if self.directory.len() > self.limits.directory_max {
            out.push(HomeOutput::Crowded);
        }
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
