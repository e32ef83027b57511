//! What nodes ask of a home: fetches, puts and covers; and the ledger's answers about puts.

use std::sync::Arc;

use nigh_terms::{Epoch, Monotonic, Version};

use super::super::message::{FromHome, Member, ObjectName, Refusal, RequestId, ToHome};
use super::super::rules::{Rule, Rules};
use super::peers::PutState;
use super::{AppendId, Home, HomeOutput, LedgerRecord, PendingAppend, WaitingFetch};

impl<O: ObjectName, R: Rules> Home<O, R> {
    pub(super) fn request(
        &mut self,
        now: Monotonic,
        from: Member,
        epoch: Epoch,
        body: ToHome<O>,
        out: &mut Vec<HomeOutput<O>>,
    ) {
        if let ToHome::Applied { counter } = body {
            if epoch == self.epoch {
                self.peers.acknowledge(now, from, counter);
            }
            return;
        }
        let newest = self.newest;
        let Some(peer) = self.peers.admit(from, now, &self.rules) else {
            let put = match body {
                // The put waits for the ledger already; the ledger's answer answers both.
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
                    // The put may be of an epoch whose answered puts are forgotten. The node learns this epoch from the
                    // answer, and sends again what it still wants.
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
                    // Dropped, as if it had been lost: the node sends it again.
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

    pub(super) fn is_appending(&self, from: Member, wanted: RequestId) -> bool {
        self.appending.values().any(
            |one| matches!(one, PendingAppend::Write { writer, request, .. } if *writer == from && *request == wanted),
        )
    }

    pub(super) fn append(&mut self, what: PendingAppend<O>, out: &mut Vec<HomeOutput<O>>) {
        self.appends.number += 1;
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

    pub(super) fn appended(
        &mut self,
        now: Monotonic,
        append: AppendId,
        version: Version,
        out: &mut Vec<HomeOutput<O>>,
    ) {
        let Some(what) = self.appending.remove(&append) else { return };
        if version.epoch != self.epoch || version <= self.newest {
            // The home has claimed coverage without this version, so none of its claims can be trusted any more.
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

    pub(super) fn not_appended(&mut self, append: AppendId, out: &mut Vec<HomeOutput<O>>) {
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
}
