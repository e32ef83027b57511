//! A home's requests to the store and the ledger other than appends: look-ups, bytes, listings, pushes, and checks of
//! its epoch.
//!
//! A result from the store counts only if the ledger confirms the home's epoch afterwards, because the store may show
//! the next home's writes. The same holds for fetches that ask the home even if there is a copy, and for the right to
//! push.

use nigh_data::{ETag, ListedObject};
use nigh_objects::behind::{
    Base, NextPush, ObjectState, PagePart, Push, Side, StoreState, UnpushedWrite, merge, waiting,
};
use nigh_protocol::{FromHome, HomeInput, Member, Reply};
use nigh_terms::{Monotonic, ObjectKey, Timestamp, Version};

use super::Duty;
use super::observer::Op;
use super::packet::{HomeProcess, ListId, ListPart, Packet, STORE, Ticket};
use super::seat::SIZE;
use super::store::{StoreAnswer, StoreCall, StoredObject};
use super::world::Storm;
use crate::ghost::Object;

/// How long a home waits for an answer; then it continues without.
const PATIENCE: std::time::Duration = std::time::Duration::from_millis(1_500);
/// The most pushes under way at a time.
const PUSHES_MAX: usize = 4;
/// From this part of the limit on, unpushed writes are pushed before they are due.
const HURRY: f64 = 0.5;
/// The most objects of a page.
const PAGE: usize = 3;

/// A request that continues when its answer arrives.
#[derive(Clone, Debug)]
pub(super) enum PendingQuestion {
    Look(Object),
    LookStands(Object, bool),
    Bytes(Reply<Object>, Option<(Version, bool)>),
    Answer(Reply<Object>, Option<Op>, Option<Option<(Version, bool)>>),
    List(Member, ListId, u8, Box<Page>),
    ListStands(Member, ListId, Vec<Object>),
    PushStands(Box<Push>),
    PushLook(Box<Push>),
    Push(Box<Push>),
    Heartbeat,
}

/// A listing under way: its objects so far, and the unpushed ones when the store was asked.
#[derive(Clone, Debug)]
pub(super) struct Page {
    present: Vec<Object>,
    waiting: Side<(ObjectKey, Option<ListedObject>)>,
}

fn op_of(etag: &ETag) -> Option<Op> {
    etag.0.parse().ok().map(Op)
}

impl Storm {
    fn ask_store(&mut self, at: HomeProcess, ask: PendingQuestion, call: StoreCall) {
        let ticket = self.ticket(at, ask);
        if let Some(from) = self.seat_of(at).map(|seat| seat.host) {
            self.send(from, STORE, Packet::AskStore { at, ticket, call });
        }
    }

    /// Asks the ledger whether the home's epoch is valid. Continues at once if that duty is left out.
    fn ask_standing(&mut self, at: HomeProcess, duty: Option<Duty>, ask: PendingQuestion) {
        if duty.is_some_and(|duty| self.left_out.leaves_out(duty)) {
            return self.standing(at, ask);
        }
        let ticket = self.ticket(at, ask);
        if let Some(from) = self.seat_of(at).map(|seat| seat.host) {
            self.send(from, Self::ledger_host(at.shard), Packet::Stand { at, ticket });
        }
    }

    fn ticket(&mut self, at: HomeProcess, ask: PendingQuestion) -> Ticket {
        let ticket = self.next_ticket();
        let now = self.seat_of(at).map(|seat| self.clock(seat.host)).unwrap_or_default();
        if let Some(seat) = self.seat_mut(at) {
            seat.tickets.insert(ticket, (now, ask));
        }
        ticket
    }

    pub(super) fn stands(&mut self, at: HomeProcess, ticket: Ticket) {
        let now = self.seat_of(at).map(|seat| self.clock(seat.host)).unwrap_or_default();
        let Some(seat) = self.seat_mut(at) else { return };
        seat.heard = now;
        if let Some((_, ask)) = seat.tickets.remove(&ticket) {
            self.standing(at, ask);
        }
    }

    /// The home's epoch is valid, so what waited for that continues.
    fn standing(&mut self, at: HomeProcess, ask: PendingQuestion) {
        match ask {
            PendingQuestion::LookStands(object, absent) => {
                self.run_home(at, HomeInput::Loaded { object, absent }, None)
            }
            PendingQuestion::Answer(reply, op, noted) => {
                let FromHome::Found { object, .. } = &reply.body else { return };
                let known = self.seat_of(at).map(|seat| seat.home.version_of(object));
                if noted.is_none() || noted == known {
                    self.deliver(at, reply, op);
                }
            }
            PendingQuestion::ListStands(to, list, present) => {
                let Some(seat) = self.seat_of(at) else { return };
                let mut seen = seat.seen.clone();
                seen.see(at.shard, seat.home.newest());
                let (from, part) = (seat.host, ListPart { present, seen });
                self.send(from, super::node::host(to), Packet::Listed { at, to, list, part });
            }
            PendingQuestion::PushStands(push) if push.attempts.is_empty() => self.push(at, push),
            PendingQuestion::PushStands(push) => {
                let object = self.object_of(&push);
                self.ask_store(at, PendingQuestion::PushLook(push), StoreCall::Read(object));
            }
            PendingQuestion::Look(_)
            | PendingQuestion::Bytes(..)
            | PendingQuestion::List(..)
            | PendingQuestion::PushLook(_)
            | PendingQuestion::Push(_)
            | PendingQuestion::Heartbeat => {}
        }
    }

    /// Asks the store for an object that the home does not know.
    pub(super) fn look_up(&mut self, at: HomeProcess, object: Object) {
        let waits = self.seat_of(at).and_then(|seat| seat.dirty.get(&self.names[usize::from(object)]));
        match waits.map(|newest| newest.becomes == ObjectState::Gone) {
            Some(absent) => self.run_home(at, HomeInput::Loaded { object, absent }, None),
            None => self.ask_store(at, PendingQuestion::Look(object), StoreCall::Read(object)),
        }
    }

    /// Fetches the bytes that belong to a home's answer, from an unpushed write or from the store.
    pub(super) fn bring(&mut self, at: HomeProcess, reply: Reply<Object>) {
        let FromHome::Found { attempt, object, stamp, absent, .. } = &reply.body else { return };
        let (attempt, object, version, absent) = (*attempt, *object, stamp.version, *absent);
        let name = &self.names[usize::from(object)];
        let Some(seat) = self.seats.iter_mut().find(|seat| seat.at == at) else { return };
        let checked = seat.checked.remove(&(reply.to, attempt));
        let op = match seat.dirty.get(name) {
            _ if absent => None,
            Some(UnpushedWrite { version: newest, becomes: ObjectState::Put(meta), .. }) if *newest <= version => {
                op_of(&meta.etag)
            }
            // The store has a newer state than the result, so it is asked again.
            Some(_) => return,
            None => {
                let noted = seat.home.version_of(&object);
                if checked {
                    seat.checked.insert((reply.to, attempt));
                }
                return self.ask_store(at, PendingQuestion::Bytes(reply, noted), StoreCall::Read(object));
            }
        };
        if checked {
            self.ask_standing(at, Some(Duty::CheckedAnswerStands), PendingQuestion::Answer(reply, op, None));
        } else {
            self.deliver(at, reply, op);
        }
    }

    /// A node asks for a listing.
    pub(super) fn home_lists(&mut self, at: HomeProcess, from: Member, list: ListId, namespace: u8) {
        if self.seat_of(at).is_some() {
            self.list_page(at, (from, list, namespace), Vec::new(), None);
        }
    }

    fn list_page(
        &mut self,
        at: HomeProcess,
        (from, list, namespace): (Member, ListId, u8),
        present: Vec<Object>,
        after: Option<Object>,
    ) {
        let in_it =
            |object: &Object| self.plan.namespace_of(*object) == namespace && self.plan.shard_of(*object) == at.shard.0;
        let Some(bucket) = (0..self.plan.objects).find(in_it).map(|object| &self.names[usize::from(object)]) else {
            return self.ask_standing(at, None, PendingQuestion::ListStands(from, list, present));
        };
        let behind = after.map(|after| self.names[usize::from(after)].key.as_str());
        let Some(seat) = self.seat_of(at) else { return };
        let waits = waiting(&seat.dirty, (&bucket.namespace, &bucket.bucket), "", behind, PAGE);
        let page = Box::new(Page { present, waiting: waits });
        let call = StoreCall::List { namespace, shard: at.shard.0, after, limit: PAGE };
        self.ask_store(at, PendingQuestion::List(from, list, namespace, page), call);
    }

    /// The store has answered.
    pub(super) fn store_says(&mut self, at: HomeProcess, ticket: Ticket, answer: StoreAnswer) {
        let Some((_, ask)) = self.seat_mut(at).and_then(|seat| seat.tickets.remove(&ticket)) else { return };
        match (ask, answer) {
            (PendingQuestion::Look(object), StoreAnswer::Holds(held)) => {
                self.ask_standing(at, Some(Duty::LookStands), PendingQuestion::LookStands(object, held.is_none()));
            }
            (PendingQuestion::Bytes(reply, noted), StoreAnswer::Holds(held)) => {
                let FromHome::Found { stamp, attempt, .. } = &reply.body else { return };
                let (version, checked) = (stamp.version, (reply.to, *attempt));
                let was_checked = self.seat_mut(at).is_some_and(|seat| seat.checked.remove(&checked));
                let duty = if was_checked { Duty::CheckedAnswerStands } else { Duty::LookStands };
                if let Some(StoredObject { op, .. }) = held.filter(|held| held.version <= version) {
                    self.ask_standing(at, Some(duty), PendingQuestion::Answer(reply, Some(op), Some(noted)));
                }
            }
            (PendingQuestion::List(from, list, namespace, page), StoreAnswer::Listed(listed)) => {
                self.merge_page(at, (from, list, namespace), *page, &listed);
            }
            (PendingQuestion::PushLook(push), StoreAnswer::Holds(held)) => {
                let holds = held.map_or(Base::Absent, |held| Base::Holds(ETag(held.op.0.to_string())));
                match push.sees(holds, held.map(|held| held.version)) {
                    StoreState::Done(holds) | StoreState::Newer(holds) => self.has_pushed(at, &push, holds),
                    StoreState::Ours(_) | StoreState::Others(_) => self.push(at, push),
                }
            }
            (PendingQuestion::Push(push), StoreAnswer::Done) => {
                let leaves = push.becomes.leaves();
                self.has_pushed(at, &push, leaves);
            }
            (ask, _) => self.unanswered(at, ask, false),
        }
    }

    fn merge_page(
        &mut self,
        at: HomeProcess,
        asked: (Member, ListId, u8),
        Page { mut present, waiting }: Page,
        listed: &[(Object, Op)],
    ) {
        let entries = listed.iter().map(|(object, op)| ListedObject {
            key: self.names[usize::from(*object)].key.clone(),
            size: SIZE,
            etag: ETag(op.0.to_string()),
            modified: Timestamp(0),
        });
        let stored = Side { entries: entries.collect(), more: listed.len() >= PAGE };
        let PagePart { listed, next } = merge(stored, waiting);
        let number = |key: &ObjectKey| self.names.iter().position(|name| name.key == *key).map(|at| at as Object);
        present.extend(listed.iter().filter_map(|one| number(&one.key)));
        match next.as_ref().and_then(number) {
            Some(after) => self.list_page(at, asked, present, Some(after)),
            None => {
                self.ask_standing(at, Some(Duty::LookStands), PendingQuestion::ListStands(asked.0, asked.1, present))
            }
        }
    }

    /// There was no answer, or a refusal. `attempted` is true if the request may have been executed, or may still be.
    fn unanswered(&mut self, at: HomeProcess, ask: PendingQuestion, attempted: bool) {
        match ask {
            PendingQuestion::Look(object) | PendingQuestion::LookStands(object, _) => {
                self.run_home(at, HomeInput::NotLoaded(object), None)
            }
            PendingQuestion::PushStands(push) | PendingQuestion::PushLook(push) => {
                self.has_not_pushed(at, &push, false)
            }
            PendingQuestion::Push(push) => self.has_not_pushed(at, &push, attempted),
            // Waiting readers ask again.
            PendingQuestion::Bytes(..)
            | PendingQuestion::Answer(..)
            | PendingQuestion::List(..)
            | PendingQuestion::ListStands(..)
            | PendingQuestion::Heartbeat => {}
        }
    }

    pub(super) fn give_up_tickets(&mut self, at: HomeProcess, now: Monotonic) {
        let Some(seat) = self.seat_mut(at) else { return };
        let late = seat.tickets.iter().filter(|(_, (since, _))| now.since(*since) >= PATIENCE);
        let late: Vec<Ticket> = late.map(|(ticket, _)| *ticket).collect();
        for ticket in late {
            if let Some((_, ask)) = self.seat_mut(at).and_then(|seat| seat.tickets.remove(&ticket)) {
                self.unanswered(at, ask, true);
            }
        }
    }

    /// A home that has long had no answer from the ledger asks whether its epoch is valid.
    pub(super) fn beat(&mut self, at: HomeProcess, now: Monotonic) {
        let heartbeat = self.plan.heartbeat;
        let Some(seat) = self.seat_mut(at) else { return };
        if now.since(seat.heard) >= heartbeat {
            seat.heard = now;
            self.ask_standing(at, None, PendingQuestion::Heartbeat);
        }
    }

    /// Begins the pushes that are due.
    pub(super) fn push_what_is_due(&mut self, at: HomeProcess) {
        let now = self.seat_of(at).map(|seat| self.clock(seat.host)).unwrap_or_default();
        while let Some(seat) = self.seat_mut(at).filter(|seat| seat.pushing < PUSHES_MAX) {
            let hurry = seat.dirty.fullness() >= HURRY;
            let NextPush::Push(push) = seat.dirty.next(now, hurry) else { return };
            seat.pushing += 1;
            self.ask_standing(at, Some(Duty::PushStands), PendingQuestion::PushStands(push));
        }
    }

    fn object_of(&self, push: &Push) -> Object {
        self.names.iter().position(|name| *name == push.object).unwrap_or_default() as Object
    }

    fn push(&mut self, at: HomeProcess, push: Box<Push>) {
        let object = self.object_of(&push);
        let call = match &push.becomes {
            ObjectState::Put(meta) => {
                op_of(&meta.etag).map(|op| StoreCall::Put(object, StoredObject { op, version: push.version }))
            }
            ObjectState::Gone | ObjectState::Lost => Some(StoreCall::Delete(object)),
        };
        if let Some(call) = call {
            self.ask_store(at, PendingQuestion::Push(push), call);
        }
    }

    fn has_pushed(&mut self, at: HomeProcess, push: &Push, holds: Base) {
        let (object, version) = (self.object_of(push), push.version);
        self.run_home(at, HomeInput::Pushed { object, version }, None);
        let now = self.seat_of(at).map(|seat| self.clock(seat.host)).unwrap_or_default();
        if let Some(seat) = self.seat_mut(at) {
            seat.pushing -= 1;
            seat.stored.extend(seat.dirty.pushed(&push.object, version, holds, now));
        }
    }

    fn has_not_pushed(&mut self, at: HomeProcess, push: &Push, attempted: bool) {
        let now = self.seat_of(at).map(|seat| self.clock(seat.host)).unwrap_or_default();
        let attempted = attempted.then(|| push.becomes.leaves());
        if let Some(seat) = self.seat_mut(at) {
            seat.pushing -= 1;
            seat.stored.extend(seat.dirty.failed(&push.object, push.version, attempted, None, now));
        }
    }
}
