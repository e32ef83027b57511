//! The home of one shard: the ordering point of its objects, under one epoch.
//!
//! It decides what the newest version of an object is, who must be told of it, and which claims of coverage a
//! node gets; it sends every acknowledgement without waiting for a sharer. It holds no bytes and no durable
//! thing: what must last goes to the ledger and comes back at the next home's beginning.

mod peers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nigh_terms::{Epoch, Monotonic, ShardId, Token, Version};

use self::peers::{Known, Peers};
use super::message::{Attempt, FromHome, Member, ObjectName, Refusal, Reply, Request, RequestId, Stamp, ToHome, Write};
use super::rules::{Contract, Rule, Rules};
use super::sharers::Sharers;
use super::table::Table;

/// The limits of a home.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HomeLimits {
    /// After so long an invalidation that was not acknowledged is sent again.
    pub resend: Duration,
    /// After so long without an acknowledgement an incarnation is given up.
    pub give_up: Duration,
    /// An incarnation that owes so many acknowledgements is given up.
    pub owed_max: usize,
    /// So many puts of one incarnation are remembered for being asked for again; further ones are dropped until
    /// the node has settled some.
    pub puts_max: usize,
    /// So many fetches wait for one object of the store; further ones are dropped, to be asked for again.
    pub loads_max: usize,
    /// Entries of the directory beyond which the shell is asked to have some forgotten.
    pub directory_max: usize,
}

impl Default for HomeLimits {
    fn default() -> Self {
        Self {
            resend: Duration::from_millis(20),
            give_up: Duration::from_secs(10),
            owed_max: 65_536,
            puts_max: 4096,
            loads_max: 4096,
            directory_max: 16_000_000,
        }
    }
}

/// One asking of the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AppendId(pub u64);

/// What a home has the ledger keep.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LedgerRecord<O> {
    /// A write. Its record may be trimmed when the store has the write and `Settled` was said of it.
    Write {
        /// The object.
        object: O,
        /// What happens to it.
        write: Write,
        /// What the writer had seen.
        token: Arc<Token>,
        /// Who wrote.
        writer: Member,
        /// By which request.
        request: RequestId,
    },
    /// This incarnation and those before it can no longer write.
    Fence {
        /// The last of them.
        member: Member,
    },
}

/// A record found in the ledger by a new home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Replayed<O> {
    /// Its place.
    pub version: Version,
    /// What it says.
    pub record: LedgerRecord<O>,
}

/// What a new home begins with, after it has taken its epoch in the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Takeover<O> {
    /// The shard.
    pub shard: ShardId,
    /// The reign that the ledger granted.
    pub epoch: Epoch,
    /// What the ledger still has of it, in order.
    pub records: Vec<Replayed<O>>,
    /// The current sequences of all other shards: what forgotten writers can have seen.
    pub summary: Token,
}

/// What happens to a home.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HomeInput<O> {
    /// A node says something.
    Request(Request<O>),
    /// The store has been looked into, for `Load`.
    Loaded {
        /// The object.
        object: O,
        /// The version its metadata names, if any.
        version: Option<Version>,
        /// The store has none.
        absent: bool,
    },
    /// The ledger holds a record durably. To be told in the order of the versions.
    Appended {
        /// The asking.
        append: AppendId,
        /// The record's place.
        version: Version,
    },
    /// The ledger has not taken a record, nor will it.
    NotAppended {
        /// The asking.
        append: AppendId,
    },
    /// The ledger has a higher epoch: this home is deposed.
    Deposed,
    /// An incarnation is suspected or gone: it is refused from now on.
    GiveUp(Member),
    /// As `GiveUp`, durably, so that the node's invocations may be declared ended: answered by `Fenced`.
    Fence(Member),
    /// The store holds the object's `version`.
    Pushed {
        /// The object.
        object: O,
        /// What was pushed.
        version: Version,
    },
    /// The directory's entry of an object whose newest version the store has is to go.
    Forget(O),
    /// Time has passed.
    Tick,
}

/// What a home wants done.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HomeOutput<O> {
    /// Send this.
    Send(Reply<O>),
    /// Append this, under the home's epoch; answer by `Appended`, `NotAppended` or `Deposed`.
    Append {
        /// To be answered with.
        append: AppendId,
        /// What.
        record: LedgerRecord<O>,
    },
    /// Look an object up in the store; answer by `Loaded`.
    Load(O),
    /// The incarnation is fenced: every put of it that has happened is at most `through`.
    Fenced {
        /// Which.
        member: Member,
        /// The home's newest version then.
        through: Version,
    },
    /// The ledger could not keep a fence; ask again.
    NotFenced(Member),
    /// The incarnation has been given up for its silence or its debts: membership is to know.
    GaveUp(Member),
    /// The write of this version will not be asked for again.
    Settled(Version),
    /// The directory is over its limit: have entries forgotten.
    Crowded,
    /// This home is no longer the shard's; it will answer nothing.
    Retired,
}

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
enum Appending<O> {
    Write { object: O, write: Write, token: Arc<Token>, writer: Member, request: RequestId },
    Fence(Member),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Waiting {
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
    appending: BTreeMap<AppendId, Appending<O>>,
    appends: AppendId,
    loading: BTreeMap<O, Vec<Waiting>>,
    retired: bool,
}

impl<O: ObjectName, R: Rules> Home<O, R> {
    /// A home that has taken its epoch.
    #[must_use]
    pub fn begin(takeover: Takeover<O>, limits: HomeLimits, rules: R) -> Self {
        let Takeover { shard, epoch, records, summary } = takeover;
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
            retired: false,
        };
        for Replayed { version, record } in records {
            home.replay(version, record);
        }
        home
    }

    fn replay(&mut self, version: Version, record: LedgerRecord<O>) {
        match record {
            LedgerRecord::Write { object, write, token, writer, request } => {
                let stamp = self.stamp(version, &token);
                let others = stamp.others.clone();
                let entry = Entry { version, others, absent: write == Write::Delete, ..Entry::default() };
                self.directory.insert(object, entry);
                if let Some(peer) = self.peers.admit(writer, Monotonic::default(), &self.rules) {
                    peer.note(request, Known::Written(stamp));
                }
            }
            LedgerRecord::Fence { member } => {
                self.peers.give_up(member);
            }
        }
    }

    /// The newest version that this home has applied.
    #[must_use]
    pub const fn newest(&self) -> Version {
        self.newest
    }

    /// This home's reign.
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

    /// The newest version of `object`, and whether it is a tombstone; none if only the store knows.
    #[must_use]
    pub fn version_of(&self, object: &O) -> Option<(Version, bool)> {
        self.directory.get(object).map(|entry| (entry.version, entry.absent))
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
            HomeInput::Loaded { object, version, absent } => self.loaded(now, object, version, absent, out),
            HomeInput::Appended { append, version } => self.appended(now, append, version, out),
            HomeInput::NotAppended { append } => self.not_appended(append, out),
            HomeInput::Deposed => self.retire(out),
            HomeInput::GiveUp(member) => {
                self.peers.give_up(member);
            }
            HomeInput::Fence(member) => {
                self.peers.give_up(member);
                self.append(Appending::Fence(member), out);
            }
            HomeInput::Pushed { object, version } => {
                if let Some(entry) = self.directory.get_mut(&object).filter(|entry| entry.version == version) {
                    entry.pushed = true;
                }
            }
            HomeInput::Forget(object) => self.forget(now, &object, out),
            HomeInput::Tick => self.tick(now, out),
        }
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
                let waiting = Waiting { from, attempt, shared };
                if self.directory.get(&object).is_some() {
                    self.answer(now, &object, waiting, out);
                } else if let Some(others) = self.loading.get_mut(&object) {
                    if others.len() < self.limits.loads_max {
                        others.push(waiting);
                    }
                } else {
                    out.push(HomeOutput::Load(object.clone()));
                    self.loading.insert(object, vec![waiting]);
                }
            }
            ToHome::Put { request, object, write, token, settled } => {
                if epoch < self.epoch {
                    // It may have been sent in a reign whose answered puts are forgotten. The node learns of
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
                    Some(Known::Appending) => return,
                    Some(Known::Written(stamp)) => {
                        FromHome::Written { request, stamp: stamp.clone(), cover: peer.cover(newest) }
                    }
                    Some(Known::NotTaken) => {
                        FromHome::Refused { request: Some(request), reason: Refusal::NotTaken, through: newest }
                    }
                    // As if it had been lost: it will come again.
                    None if peer.puts() >= self.limits.puts_max => return,
                    None => {
                        peer.note(request, Known::Appending);
                        self.append(Appending::Write { object, write, token, writer: from, request }, out);
                        return;
                    }
                };
                self.send(from, answer, out);
            }
            ToHome::Applied { .. } => {}
        }
    }

    fn is_appending(&self, from: Member, wanted: RequestId) -> bool {
        self.appending
            .values()
            .any(|one| matches!(one, Appending::Write { writer, request, .. } if *writer == from && *request == wanted))
    }

    fn append(&mut self, what: Appending<O>, out: &mut Vec<HomeOutput<O>>) {
        self.appends.0 += 1;
        let record = match &what {
            Appending::Write { object, write, token, writer, request } => LedgerRecord::Write {
                object: object.clone(),
                write: *write,
                token: Arc::clone(token),
                writer: *writer,
                request: *request,
            },
            Appending::Fence(member) => LedgerRecord::Fence { member: *member },
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
            Appending::Fence(member) => out.push(HomeOutput::Fenced { member, through: version }),
            Appending::Write { object, write, token, writer, request } => {
                let stamp = self.stamp(version, &token);
                self.apply(now, &object, write, &stamp, writer, out);
                let answer = match self.peers.living(writer) {
                    Some(peer) => {
                        peer.note(request, Known::Written(stamp.clone()));
                        FromHome::Written { request, stamp, cover: peer.cover(version) }
                    }
                    None => {
                        out.push(HomeOutput::Settled(version));
                        FromHome::Refused { request: Some(request), reason: Refusal::GivenUp, through: version }
                    }
                };
                self.send(writer, answer, out);
            }
        }
    }

    fn not_appended(&mut self, append: AppendId, out: &mut Vec<HomeOutput<O>>) {
        match self.appending.remove(&append) {
            Some(Appending::Write { writer, request, .. }) => {
                if let Some(peer) = self.peers.living(writer) {
                    peer.note(request, Known::NotTaken);
                }
                let (request, through) = (Some(request), self.newest);
                self.send(writer, FromHome::Refused { request, reason: Refusal::NotTaken, through }, out);
            }
            Some(Appending::Fence(member)) => out.push(HomeOutput::NotFenced(member)),
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
        let entry = self.directory.get_or_insert_with(object, Entry::default);
        let sharers = match (write, own) {
            (Write::Put, Some(own)) => Sharers::only(own),
            (Write::Put | Write::Delete, _) => Sharers::default(),
        };
        let before = std::mem::take(entry);
        let Stamp { version, others } = stamp.clone();
        *entry = Entry { version, others, sharers, absent: write == Write::Delete, ..Entry::default() };
        self.tell(now, object, &before.sharers, own, (version, false), out);
        self.mind_the_limit(out);
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

    fn loaded(
        &mut self,
        now: Monotonic,
        object: O,
        version: Option<Version>,
        absent: bool,
        out: &mut Vec<HomeOutput<O>>,
    ) {
        let Some(waiting) = self.loading.remove(&object) else { return };
        // A write that was applied meanwhile is newer than what the store was found to have.
        if self.directory.get(&object).is_none() {
            let version = version.filter(|version| !absent && *version > Version::OUTSIDE).unwrap_or(self.forgotten);
            let entry = Entry { version, absent, pushed: true, summarised: true, ..Entry::default() };
            self.directory.insert(object.clone(), entry);
            self.mind_the_limit(out);
        }
        for one in waiting {
            self.answer(now, &object, one, out);
        }
    }

    /// Answers a fetch of an object that the directory knows; who may keep the answer becomes a sharer.
    fn answer(&mut self, now: Monotonic, object: &O, waiting: Waiting, out: &mut Vec<HomeOutput<O>>) {
        let Waiting { from, attempt, shared } = waiting;
        let Some((sharer, cover)) =
            self.peers.admit(from, now, &self.rules).map(|peer| (peer.sharer, peer.cover(self.newest)))
        else {
            return;
        };
        let Some(entry) = self.directory.get_mut(object) else { return };
        if shared {
            entry.sharers.add(sharer, |one| self.peers.lives(one));
        }
        let others = if entry.summarised { self.summary.clone() } else { entry.others.clone() };
        let stamp = Stamp { version: entry.version, others };
        let (object, absent) = (object.clone(), entry.absent);
        self.send(from, FromHome::Found { attempt, object, stamp, absent, cover }, out);
    }

    fn forget(&mut self, now: Monotonic, object: &O, out: &mut Vec<HomeOutput<O>>) {
        if !self.directory.get(object).is_some_and(|entry| entry.pushed) {
            return;
        }
        let Some(entry) = self.directory.remove(object) else { return };
        if let Some(others) = entry.others.filter(|_| self.rules.hold(Rule::Summary)) {
            Arc::make_mut(self.summary.get_or_insert_default()).join(&others);
        }
        self.forgotten = self.forgotten.max(entry.version);
        self.tell(now, object, &entry.sharers, None, (entry.version, true), out);
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

#[cfg(test)]
mod tests {
    use nigh_terms::{Incarnation, Sequence};

    use super::*;
    use crate::protocol::{Counter, Cover, NodeNumber};

    const SHARD: ShardId = ShardId(0);
    const NOW: Monotonic = Monotonic(0);

    const fn version(epoch: u64, sequence: u64) -> Version {
        Version { epoch: Epoch(epoch), sequence: Sequence(sequence) }
    }

    const fn member(node: u32, incarnation: u64) -> Member {
        Member { node: NodeNumber(node), incarnation: Incarnation(incarnation) }
    }

    fn home(epoch: u64, records: Vec<Replayed<&'static str>>, limits: HomeLimits) -> Home<&'static str> {
        let takeover = Takeover { shard: SHARD, epoch: Epoch(epoch), records, summary: Token::empty() };
        Home::begin(takeover, limits, Contract)
    }

    fn step(home: &mut Home<&'static str>, input: HomeInput<&'static str>) -> Vec<HomeOutput<&'static str>> {
        let mut out = Vec::new();
        home.step(NOW, input, &mut out);
        out
    }

    fn says(from: Member, body: ToHome<&'static str>) -> HomeInput<&'static str> {
        HomeInput::Request(Request { from, epoch: Epoch(1), body })
    }

    fn fetch(home: &mut Home<&'static str>, from: Member, object: &'static str) -> Vec<HomeOutput<&'static str>> {
        let attempt = Attempt { request: RequestId(0), number: 0 };
        step(home, says(from, ToHome::Fetch { attempt, object, shared: true }))
    }

    fn put(from: Member, request: u64, settled: u64) -> HomeInput<&'static str> {
        let token = Arc::new(Token::empty());
        let (request, settled) = (RequestId(request), RequestId(settled));
        says(from, ToHome::Put { request, object: "x", write: Write::Put, token, settled })
    }

    fn write(
        home: &mut Home<&'static str>,
        from: Member,
        request: u64,
        sequence: u64,
    ) -> Vec<HomeOutput<&'static str>> {
        let asked = step(home, put(from, request, request));
        let Some(HomeOutput::Append { append, .. }) = asked.last() else { panic!("{asked:?}") };
        step(home, HomeInput::Appended { append: *append, version: version(1, sequence) })
    }

    fn bodies<'a>(out: &'a [HomeOutput<&'static str>]) -> Vec<(Member, &'a FromHome<&'static str>)> {
        let sent = out.iter().filter_map(|output| match output {
            HomeOutput::Send(reply) => Some((reply.to, &reply.body)),
            _ => None,
        });
        sent.collect()
    }

    #[test]
    fn a_directory_entry_takes_at_most_128_bytes() {
        // The table is at least 7/16 full after it has grown, and has one byte a slot of its own.
        let worst = (size_of::<Entry>() + 1) * 16 / 7;
        assert!(worst <= 128, "{} bytes an entry, {worst} in the worst case", size_of::<Entry>());
    }

    #[test]
    fn a_put_is_acknowledged_at_once_and_invalidates_every_other_sharer() {
        let mut home = home(1, Vec::new(), HomeLimits::default());
        for node in 1..=5 {
            assert!(matches!(fetch(&mut home, member(node, 1), "x")[..], [HomeOutput::Load("x")]) || node > 1);
        }
        let found = step(&mut home, HomeInput::Loaded { object: "x", version: None, absent: false });
        assert_eq!(bodies(&found).len(), 5, "one look into the store serves all");
        let out = write(&mut home, member(1, 1), 7, 1);
        let told = bodies(&out);
        for node in 2..=5 {
            let invalidated = told.iter().any(|(to, body)| {
                *to == member(node, 1)
                    && matches!(body, FromHome::Invalidate { counter: Counter(1), object: "x", recall: false, .. })
            });
            assert!(invalidated, "{node}: {told:?}");
        }
        assert!(matches!(told.last(), Some((to, FromHome::Written { .. })) if *to == member(1, 1)));
        assert_eq!(home.pending(&"x").len(), 4);
        assert!(write(&mut home, member(1, 1), 8, 2).len() == 2, "those who were told are not told again");
        step(&mut home, says(member(2, 1), ToHome::Applied { counter: Counter(1) }));
        assert_eq!(home.pending(&"x"), [member(3, 1), member(4, 1), member(5, 1)]);
        assert_eq!(home.version_of(&"x"), Some((version(1, 2), false)));
    }

    #[test]
    fn a_put_asked_for_again_is_one_put() {
        let mut home = home(1, Vec::new(), HomeLimits::default());
        let first = write(&mut home, member(1, 1), 3, 1);
        let again = step(&mut home, put(member(1, 1), 3, 3));
        assert_eq!(bodies(&again), bodies(&first), "the same answer");
        let later = step(&mut home, put(member(1, 1), 4, 4));
        assert!(
            matches!(later[..], [HomeOutput::Settled(settled), HomeOutput::Append { .. }] if settled == version(1, 1))
        );
        assert_eq!(step(&mut home, put(member(1, 1), 3, 3)), [], "an old message of a settled put");
        assert_eq!(step(&mut home, put(member(1, 1), 4, 4)), [], "the ledger has been asked");
    }

    #[test]
    fn a_new_home_knows_the_puts_of_the_ledger_and_fences_the_old() {
        let mut old = home(1, Vec::new(), HomeLimits::default());
        let asked = step(&mut old, put(member(1, 1), 3, 3));
        let Some(HomeOutput::Append { record, .. }) = asked.into_iter().next() else { panic!() };
        let fence = LedgerRecord::Fence { member: member(2, 4) };
        let records = [(1, record), (2, fence)].map(|(at, record)| Replayed { version: version(1, at), record });
        let mut new = home(2, records.to_vec(), HomeLimits::default());
        assert_eq!(new.version_of(&"x"), Some((version(1, 1), false)));
        let learns = step(&mut new, put(member(1, 1), 3, 3));
        assert!(matches!(bodies(&learns)[..], [(_, FromHome::Covers { .. })]), "it was sent in the old reign");
        let token = Arc::new(Token::empty());
        let (request, settled) = (RequestId(3), RequestId(3));
        let body = ToHome::Put { request, object: "x", write: Write::Put, token, settled };
        let again = step(&mut new, HomeInput::Request(Request { from: member(1, 1), epoch: Epoch(2), body }));
        let Some((_, FromHome::Written { stamp, .. })) = bodies(&again).first().copied() else { panic!("{again:?}") };
        assert_eq!(stamp.version, version(1, 1));
        let refused = fetch(&mut new, member(2, 4), "x");
        assert!(matches!(bodies(&refused)[..], [(_, FromHome::Refused { reason: Refusal::GivenUp, .. })]));
        let ask = Request { from: member(1, 1), epoch: Epoch(2), body: ToHome::Ask { need: version(2, 1) } };
        assert_eq!(step(&mut old, HomeInput::Request(ask)), [HomeOutput::Retired]);
        assert!(old.is_retired() && fetch(&mut old, member(1, 1), "x").is_empty());
    }

    #[test]
    fn a_silent_or_indebted_incarnation_is_given_up_for_ever_and_the_next_is_welcome() {
        let limits = HomeLimits { owed_max: 1, ..HomeLimits::default() };
        let mut home = home(1, Vec::new(), limits);
        let mut sequence = 0;
        let mut write = |home: &mut Home<&'static str>| {
            sequence += 1;
            write(home, member(1, 1), sequence, sequence)
        };
        write(&mut home);
        fetch(&mut home, member(2, 1), "x");
        write(&mut home);
        fetch(&mut home, member(2, 1), "x");
        assert!(write(&mut home).contains(&HomeOutput::GaveUp(member(2, 1))), "it owes two");
        assert!(matches!(bodies(&fetch(&mut home, member(2, 1), "x"))[..], [(_, FromHome::Refused { .. })]));
        assert!(matches!(bodies(&fetch(&mut home, member(2, 2), "x"))[..], [(_, FromHome::Found { .. })]));
        write(&mut home);
        let mut out = Vec::new();
        home.step(Monotonic(limits.resend.as_nanos() as u64), HomeInput::Tick, &mut out);
        assert!(matches!(bodies(&out)[..], [(_, FromHome::Invalidate { counter: Counter(1), .. })]), "sent again");
        out.clear();
        home.step(Monotonic(limits.give_up.as_nanos() as u64), HomeInput::Tick, &mut out);
        assert_eq!(out, [HomeOutput::GaveUp(member(2, 2))]);
    }

    #[test]
    fn a_fence_is_in_the_ledger_before_it_is_told_and_no_put_comes_after_it() {
        let mut home = home(1, Vec::new(), HomeLimits::default());
        let accepted = step(&mut home, put(member(1, 1), 1, 1));
        let Some(HomeOutput::Append { append: earlier, .. }) = accepted.last() else { panic!() };
        let asked = step(&mut home, HomeInput::Fence(member(1, 1)));
        let [HomeOutput::Append { append, record: LedgerRecord::Fence { .. } }] = asked[..] else {
            panic!("{asked:?}")
        };
        assert_eq!(step(&mut home, put(member(1, 1), 1, 1)), [], "the put accepted before is answered by the ledger");
        let refused = step(&mut home, put(member(1, 1), 2, 1));
        assert!(matches!(bodies(&refused)[..], [(_, FromHome::Refused { request: Some(RequestId(2)), .. })]));
        let late = step(&mut home, HomeInput::Appended { append: *earlier, version: version(1, 1) });
        let told = bodies(&late);
        let refused = matches!(told[..], [(_, FromHome::Refused { through, .. })] if *through == version(1, 1));
        assert!(refused, "{told:?}");
        let fenced = step(&mut home, HomeInput::Appended { append, version: version(1, 2) });
        assert_eq!(fenced, [HomeOutput::Fenced { member: member(1, 1), through: version(1, 2) }]);
    }

    #[test]
    fn a_forgotten_object_is_recalled_and_counts_as_no_older_than_it_was() {
        let mut home = home(1, Vec::new(), HomeLimits::default());
        write(&mut home, member(1, 1), 1, 5);
        step(&mut home, HomeInput::Forget("x"));
        assert_eq!(home.objects(), 1, "the store does not have it");
        step(&mut home, HomeInput::Pushed { object: "x", version: version(1, 5) });
        let out = step(&mut home, HomeInput::Forget("x"));
        assert!(matches!(bodies(&out)[..], [(_, FromHome::Invalidate { recall: true, .. })]));
        assert_eq!(home.objects(), 0);
        fetch(&mut home, member(2, 1), "x");
        step(&mut home, HomeInput::Loaded { object: "x", version: None, absent: true });
        assert_eq!(home.version_of(&"x"), Some((version(1, 5), true)));
    }

    #[test]
    fn a_home_told_of_records_out_of_order_answers_nothing_more() {
        let mut home = home(1, Vec::new(), HomeLimits::default());
        write(&mut home, member(1, 1), 1, 5);
        let asked = step(&mut home, put(member(1, 1), 2, 2));
        let Some(HomeOutput::Append { append, .. }) = asked.last() else { panic!() };
        let out = step(&mut home, HomeInput::Appended { append: *append, version: version(1, 4) });
        assert_eq!(out, [HomeOutput::Retired]);
    }

    #[test]
    fn a_claim_names_all_that_was_sent_and_all_that_was_applied() {
        let mut home = home(1, Vec::new(), HomeLimits::default());
        write(&mut home, member(1, 1), 1, 1);
        fetch(&mut home, member(2, 1), "x");
        write(&mut home, member(1, 1), 2, 2);
        let out = step(&mut home, says(member(2, 1), ToHome::Ask { need: version(1, 2) }));
        let cover = Cover { counter: Counter(1), through: version(1, 2) };
        assert_eq!(bodies(&out), [(member(2, 1), &FromHome::Covers { cover })]);
    }
}
