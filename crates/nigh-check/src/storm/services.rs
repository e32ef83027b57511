//! Ledgers and store as machines of the cluster: the homes' requests to them, and the effect of faults on the answers.

use nigh_protocol::Write;
use nigh_terms::{ShardId, Version};

use super::clock::MS;
use super::fault::FaultKind;
use super::ledger::{AppendReply, Turn};
use super::packet::{Event, HomeProcess, Host, Packet, STORE, Ticket};
use super::store::{StoreAnswer, StoreCall};
use super::world::Storm;
use crate::ghost::Object;

impl Storm {
    /// A request to append arrives at the ledger.
    pub(super) fn append_arrives(&mut self, at: HomeProcess, place: usize, asked: Turn) {
        match self.ledger_delay() {
            Some(wait) => self.after(wait, Event::Append(at, place, asked)),
            None => self.ledger_append(at, place, asked),
        }
    }

    /// The time in nanoseconds by which the ledger is late with one request or answer; none if it is not.
    fn ledger_delay(&mut self) -> Option<u64> {
        self.lasting(FaultKind::LedgerLate)?;
        self.chance.chance(300).then(|| {
            self.strikes.add(FaultKind::LedgerLate);
            self.chance.between(20, 6_000) * MS
        })
    }

    /// The ledger executes a request to append.
    pub(super) fn ledger_append(&mut self, at: HomeProcess, place: usize, asked: Turn) {
        let (here, append) = (Self::ledger_host(at.shard), asked.append);
        let is_full = self.lasting(FaultKind::LedgerFull).is_some() && self.chance.chance(500);
        let ledger = &mut self.ledgers[usize::from(at.shard.0)];
        if ledger.down_until > self.now {
            return;
        }
        let answer = match ledger.append(at.epoch, place, asked, is_full) {
            AppendReply::Early => return,
            AppendReply::Waits => {
                let wait = self.chance.between(300, 3_000) * 1_000;
                return self.after(wait, Event::Sync(at.shard));
            }
            AppendReply::Fenced => Packet::Deposed { at },
            AppendReply::Before(version) => Packet::Appended { at, append, version: Some(version) },
            AppendReply::Refused => {
                self.strikes.add(FaultKind::LedgerFull);
                Packet::Appended { at, append, version: None }
            }
        };
        self.answer_seat(here, at, answer);
    }

    /// A home tells the ledger what it may trim. A former home may be wrong, since its responses may have been ignored.
    pub(super) fn ledger_trim(&mut self, at: HomeProcess, stored: Vec<Version>, settled: Vec<Version>) {
        let ledger = &mut self.ledgers[usize::from(at.shard.0)];
        if ledger.down_until > self.now {
            return;
        }
        let stands = ledger.epoch == at.epoch;
        if stands {
            ledger.trim(&stored, &settled);
        }
        let answer = if stands { Packet::Trimmed { at, stored, settled } } else { Packet::Deposed { at } };
        self.answer_seat(Self::ledger_host(at.shard), at, answer);
    }

    /// Syncs the first `most` written records of the ledger.
    pub(super) fn sync(&mut self, shard: ShardId, most: usize, answers: bool) {
        let ledger = &mut self.ledgers[usize::from(shard.0)];
        if ledger.down_until > self.now {
            return;
        }
        let at = HomeProcess { shard, epoch: ledger.epoch };
        for item in ledger.sync(most) {
            let (version, append) = (item.replayed.version, item.append);
            if let (Some(object), Some(write), Some(op)) = (item.object(), item.write(), item.op) {
                self.observer.happens(object, version, op, write == Write::Delete);
            }
            if !answers {
                continue;
            }
            if self.lasting(FaultKind::LedgerSilent).is_some() && self.chance.chance(400) {
                self.strikes.add(FaultKind::LedgerSilent);
                continue;
            }
            let answer = Packet::Appended { at, append, version: Some(version) };
            match self.ledger_delay() {
                Some(wait) => self.after(wait, Event::Answer(at, answer)),
                None => self.answer_seat(Self::ledger_host(shard), at, answer),
            }
        }
    }

    /// A home asks whether its epoch is valid.
    pub(super) fn ledger_stand(&mut self, at: HomeProcess, ticket: Ticket) {
        let (here, ledger) = (Self::ledger_host(at.shard), &self.ledgers[usize::from(at.shard.0)]);
        if ledger.down_until > self.now {
            return;
        }
        let stands = ledger.epoch == at.epoch;
        let packet = if stands { Packet::Stands { at, ticket } } else { Packet::Deposed { at } };
        self.answer_seat(here, at, packet);
    }

    /// Delivers an answer of the store or a ledger to a home, wherever the home is now.
    pub(super) fn answer_seat(&mut self, from: Host, at: HomeProcess, packet: Packet) {
        if let Some(host) = self.seat_of(at).map(|seat| seat.host) {
            self.send(from, host, packet);
        }
    }

    /// A home sends a call to the store.
    pub(super) fn store_asked(&mut self, at: HomeProcess, ticket: Ticket, call: &StoreCall) {
        let refuses = self.lasting(FaultKind::StoreRefuses).is_some() && self.chance.chance(500);
        let (down, kind) = match self.lasting(FaultKind::StoreDown) {
            Some(_) => (true, FaultKind::StoreDown),
            None => (refuses, FaultKind::StoreRefuses),
        };
        if down {
            self.strikes.add(kind);
            return self.answer_seat(STORE, at, Packet::StoreSays { at, ticket, answer: StoreAnswer::Refused });
        }
        if call.writes() && self.lasting(FaultKind::StoreLate).is_some() && self.chance.chance(400) {
            self.strikes.add(FaultKind::StoreLate);
            let wait = self.chance.between(100, 8_000) * MS;
            return self.after(wait, Event::Land(call.clone()));
        }
        let answer = self.store_does(call);
        if self.lasting(FaultKind::StoreSilent).is_some() && self.chance.chance(400) {
            self.strikes.add(FaultKind::StoreSilent);
            return;
        }
        self.answer_seat(STORE, at, Packet::StoreSays { at, ticket, answer });
    }

    /// The store executes an unanswered call.
    pub(super) fn land(&mut self, call: &StoreCall) {
        self.store_does(call);
    }

    fn store_does(&mut self, call: &StoreCall) -> StoreAnswer {
        let Self { store, plan, .. } = self;
        let is_in =
            |object: Object, namespace, shard| plan.namespace_of(object) == namespace && plan.shard_of(object) == shard;
        store.carry_out(call, is_in)
    }
}
