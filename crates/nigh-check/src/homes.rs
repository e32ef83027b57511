//! The shell of the homes: their ledger, their store, their outputs, and their replacement.

use nigh_protocol::{
    FromHome, Home, HomeInput, HomeOutput, LedgerRecord, Member, ReplayedRecord, Reply, Takeover, Write,
};
use nigh_terms::{Epoch, Sequence, ShardId, Token, Version};

use crate::configuration::Configuration;
use crate::fingerprint::Part;
use crate::ghost::{LoggedWrite, OBJECTS_MAX, Object, Op, Promise};
use crate::network::Packet;
use crate::world::{FIRST, HOME_LIMITS, NOW, STEPS_MAX, World, shard_of};
use crate::world_parts::{Item, Phase, StoredState};

impl Item {
    /// True if the record is a write of `object`.
    fn writes(&self, object: Object) -> bool {
        matches!(self.replayed.record, LedgerRecord::Write { object: written, .. } if written == object)
    }
}

impl World {
    /// The ledger appends a record unless its home is a former one.
    pub(crate) fn append(
        &mut self,
        shard: ShardId,
        epoch: Epoch,
        record: LedgerRecord<Object>,
        op: Op,
    ) -> Option<Version> {
        let ledger = &mut self.ledgers[usize::from(shard.0)];
        if ledger.epoch != epoch {
            return None;
        }
        ledger.next = ledger.next.next();
        let version = Version { epoch, sequence: ledger.next };
        if let LedgerRecord::Write { object, write, .. } = &record {
            let (object, delete) = (*object, *write == Write::Delete);
            if self.ghost.happens(LoggedWrite { object, version, op, delete }) {
                self.breaks(Promise::P3);
            }
            if self.invocations[usize::from(op / STEPS_MAX)].ended {
                self.breaks(Promise::P1);
            }
        }
        let outside = match &record {
            LedgerRecord::Write { object, write: Write::Outside, .. } => Some(*object),
            LedgerRecord::Write { .. } | LedgerRecord::Fence { .. } => None,
        };
        if let Some(object) = outside {
            self.store[usize::from(object)] = StoredState { version, op, absent: false };
        }
        let item = Item { replayed: ReplayedRecord { version, record }, op, pushed: outside.is_some(), settled: false };
        self.ledgers[usize::from(shard.0)].items.push(item);
        Some(version)
    }

    /// Gives an input to the home of `epoch` and carries out the outputs.
    pub(crate) fn run_home(
        &mut self,
        config: &Configuration,
        shard: ShardId,
        epoch: Epoch,
        input: HomeInput<Object>,
        bytes: Option<Op>,
    ) {
        let again = matches!(input, HomeInput::Tick);
        let seat = &mut self.seats[usize::from(shard.0)];
        let mut homes = std::iter::once(&mut seat.home).chain(&mut seat.zombies);
        let Some(home) = homes.find(|home| home.epoch() == epoch) else { return };
        let mut out = Vec::new();
        home.step(NOW, input, &mut out);
        for output in out {
            match output {
                HomeOutput::Send(reply) => self.reply(config, reply, again),
                HomeOutput::Append { append, record } if config.slow_ledger => {
                    self.network.send(Packet::Append(shard, epoch, append, record, bytes));
                }
                HomeOutput::Append { append, record } => {
                    let version = self.append(shard, epoch, record, bytes.unwrap_or(FIRST));
                    let input = version.map_or(HomeInput::Deposed, |version| HomeInput::Appended { append, version });
                    self.run_home(config, shard, epoch, input, None);
                }
                HomeOutput::Load(object) if config.pushes => self.network.send(Packet::Load(shard, epoch, object)),
                HomeOutput::Load(object) => {
                    let absent = self.store[usize::from(object)].absent;
                    let input = HomeInput::Loaded { object, absent };
                    self.run_home(config, shard, epoch, input, None);
                }
                HomeOutput::Fenced { member, through } => self.fenced(member, shard, through),
                HomeOutput::GaveUp(member) => self.suspect(member),
                HomeOutput::Settled(version) => {
                    self.change_items(shard, |item| item.settled |= item.replayed.version == version);
                }
                HomeOutput::Retired => {
                    if epoch < self.ledgers[usize::from(shard.0)].epoch {
                        self.seats[usize::from(shard.0)].zombies.retain(|zombie| zombie.epoch() != epoch);
                    }
                }
                HomeOutput::NotFenced(_) | HomeOutput::Crowded => {}
            }
        }
    }

    /// Changes records, and trims the unneeded ones; of one object, the older before the newer.
    pub(crate) fn change_items(&mut self, shard: ShardId, change: impl FnMut(&mut Item)) {
        let items = &mut self.ledgers[usize::from(shard.0)].items;
        items.iter_mut().for_each(change);
        let mut kept: Vec<Object> = Vec::new();
        items.retain(|item| {
            let older_stays = kept.iter().any(|object| item.writes(*object));
            let stays = !(item.pushed && item.settled) || older_stays;
            if let LedgerRecord::Write { object, .. } = item.replayed.record
                && stays
            {
                kept.push(object);
            }
            stays
        });
    }

    fn reply(&mut self, config: &Configuration, reply: Reply<Object>, again: bool) {
        let bytes = match &reply.body {
            FromHome::Found { object, stamp, absent: false, .. } => {
                let items = self.ledgers[usize::from(reply.shard.0)].items.iter();
                let written = items.filter(|item| item.writes(*object) && item.replayed.version <= stamp.version);
                let written = written.max_by_key(|item| item.replayed.version);
                let stored = self.store[usize::from(*object)];
                match written {
                    Some(item) if item.replayed.version >= stored.version => Some(item.op),
                    Some(_) | None if stored.version <= stamp.version && !stored.absent => Some(stored.op),
                    // The home does not have the bytes in this version, and does not send others.
                    Some(_) | None => return,
                }
            }
            _ => None,
        };
        let resident = config.is_resident(reply.to.node, reply.shard, reply.epoch);
        let packet = Packet::ToNode(reply, bytes);
        if resident {
            self.arrive(config, packet, None);
        } else if again {
            self.network.send_again(packet)
        } else {
            self.network.send(packet)
        }
    }

    /// A home has fenced a lost node. When every home has, the node's invocations count as ended.
    pub(crate) fn fenced(&mut self, member: Member, shard: ShardId, through: Version) {
        if self.frontier.as_mut().is_some_and(|frontier| frontier.fenced(member, shard, through)) {
            for program in 0..self.invocations.len() as u8 {
                let phase = self.invocations[usize::from(program)].phase;
                if matches!(phase, Phase::Sent(at) | Phase::Running(at) | Phase::Leaving(at) if at == member) {
                    self.declare(program);
                }
            }
        }
    }

    /// Declares an invocation of a lost node ended; the node may not know.
    fn declare(&mut self, program: u8) {
        let invocation = &mut self.invocations[usize::from(program)];
        let phase = invocation.phase;
        invocation.phase = Phase::Over;
        self.end(program);
        self.invocations[usize::from(program)].phase = phase;
    }

    /// A new home takes a shard.
    pub(crate) fn fail_over(&mut self, config: &Configuration, shard: ShardId) {
        let others = (0..u16::from(config.homes)).map(ShardId).filter(|other| *other != shard);
        let mut summary = Token::empty();
        for other in others {
            summary.see(other, self.seats[usize::from(other.0)].home.newest());
        }
        let ledger = &mut self.ledgers[usize::from(shard.0)];
        let deposed = ledger.epoch;
        ledger.epoch = ledger.epoch.next();
        ledger.next = Sequence(0);
        let (epoch, records) = (ledger.epoch, ledger.items.iter().map(|item| item.replayed.clone()).collect());
        let takeover = Takeover { shard, epoch, records, summary, resident: None };
        let home = Home::begin(takeover, HOME_LIMITS, config.without);
        let seat = &mut self.seats[usize::from(shard.0)];
        let before = std::mem::replace(&mut seat.home, Part::new(home));
        if config.zombies {
            seat.zombies.push(before);
        } else {
            self.network.lose(|packet| match packet {
                Packet::Append(of, at, ..)
                | Packet::Appended(of, at, ..)
                | Packet::Load(of, at, ..)
                | Packet::Loaded(of, at, ..) => *of == shard && *at == deposed,
                _ => false,
            });
        }
        self.disturbed = true;
        self.check_nothing_is_lost(config);
    }

    /// Checks that each acknowledged write is known to its home or in the store.
    fn check_nothing_is_lost(&mut self, config: &Configuration) {
        for object in 0..OBJECTS_MAX as u8 {
            let home = &self.seats[usize::from(shard_of(config, object).0)].home;
            let known = home.version_of(&object).map_or(Version::OUTSIDE, |(version, _)| version);
            if known.max(self.store[usize::from(object)].version) < self.ghost.acknowledged.of(object) {
                self.breaks(Promise::P5);
            }
        }
    }

    /// Pushes the newest write of `object` that its home has applied.
    pub(crate) fn push(&mut self, config: &Configuration, object: Object) {
        let shard = shard_of(config, object);
        let Some((version, absent)) = self.unpushed(config, object) else { return };
        let items = &self.ledgers[usize::from(shard.0)].items;
        let op = items.iter().find(|item| item.replayed.version == version).map_or(FIRST, |item| item.op);
        self.store[usize::from(object)] = StoredState { version, op, absent };
        let epoch = self.seats[usize::from(shard.0)].home.epoch();
        self.run_home(config, shard, epoch, HomeInput::Pushed { object, version }, None);
        self.change_items(shard, |item| {
            item.pushed |= item.writes(object) && item.replayed.version <= version;
        });
    }

    /// The unpushed version of `object`, and whether it is a tombstone; none if the store has the newest.
    pub(crate) fn unpushed(&self, config: &Configuration, object: Object) -> Option<(Version, bool)> {
        let shard = shard_of(config, object);
        let known = self.seats[usize::from(shard.0)].home.version_of(&object)?;
        let items = &self.ledgers[usize::from(shard.0)].items;
        items.iter().any(|item| item.replayed.version == known.0 && !item.pushed).then_some(known)
    }
}
