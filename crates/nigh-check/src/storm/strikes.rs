//! Injects the faults: the effect of each on the cluster, and the end of those that last.

use nigh_protocol::{CopyStore as _, HomeInput, Member};
use nigh_terms::ShardId;

use super::clock::MS;
use super::fault::{Fault, FaultKind};
use super::node::{Node, host};
use super::observer::Author;
use super::packet::{Event, HomeProcess, Host};
use super::store::{StoreCall, StoredObject};
use super::world::Storm;
use crate::ghost::Object;

/// The farthest that a clock jumps ahead, in milliseconds.
const JUMP_MAX: u64 = 2_000;

impl Storm {
    fn one_of<T: Copy>(all: &[T], pick: u64) -> Option<T> {
        let at = (pick >> 16).checked_rem(all.len() as u64)?;
        all.get(at as usize).copied()
    }

    fn living(&self) -> Vec<Member> {
        self.nodes.iter().filter_map(|node| node.life.as_ref()).map(|life| life.me).collect()
    }

    /// The machine of a node or of a home, chosen by `pick`.
    fn some_host(&self, pick: u64) -> Option<Host> {
        let nodes = self.nodes.iter().map(|node| host(node.me));
        let homes = self.seats.iter().map(|seat| seat.host);
        Self::one_of(&nodes.chain(homes).collect::<Vec<Host>>(), pick)
    }

    /// Injects the fault with this index in the plan.
    pub(super) fn strike(&mut self, index: usize) {
        let Fault { lasts_ms, kind, pick, .. } = self.plan.faults[index];
        let shard = ShardId((pick % u64::from(self.plan.shards)) as u16);
        self.note(|| format!("strikes: {}", kind.name()));
        let struck = match kind {
            FaultKind::MessageLost
            | FaultKind::MessageDoubled
            | FaultKind::MessageLate
            | FaultKind::Partition
            | FaultKind::OneWayPartition
            | FaultKind::LedgerSilent
            | FaultKind::LedgerFull
            | FaultKind::LedgerLate
            | FaultKind::StoreRefuses
            | FaultKind::StoreSilent
            | FaultKind::StoreLate
            | FaultKind::StoreDown => {
                // Faults of messages are counted for each message.
                self.active.push(index);
                self.after(lasts_ms * MS, Event::Relieve(index));
                return;
            }
            FaultKind::Pause => self.some_host(pick).map(|host| self.pause(host, lasts_ms)).is_some(),
            FaultKind::ClockJump => self.some_host(pick).map(|host| self.jump(host, pick)).is_some(),
            FaultKind::ClockSkew => self.some_host(pick).map(|host| self.skew(host, pick, index, lasts_ms)).is_some(),
            FaultKind::NodeCrash => {
                let living = self.living();
                let dies = if living.len() > 1 { Self::one_of(&living, pick) } else { None };
                dies.map(|me| self.crash(me, pick)).is_some()
            }
            FaultKind::HomeCrash => self.crash_home(shard),
            FaultKind::ZombieHome => {
                let stands = self.seat_of(self.map[usize::from(shard.0)].0).is_some();
                if stands {
                    self.take_over(shard);
                }
                stands
            }
            FaultKind::SchedulerCrash => {
                self.succeed_scheduler((pick % u64::from(self.plan.namespaces)) as u8);
                true
            }
            FaultKind::Suspicion => self.suspect(shard, pick),
            FaultKind::FalseLoss => Self::one_of(&self.living(), pick).map(|me| self.lose(me)).is_some(),
            FaultKind::Kill => self.kill(pick),
            FaultKind::Eviction => self.evict(pick),
            FaultKind::Forgetting => {
                let at = self.map[usize::from(shard.0)].0;
                let any = self.seat_of(at).is_some_and(|seat| !seat.home.forgettable(1).is_empty());
                self.forget_some(at, usize::MAX);
                any
            }
            FaultKind::LedgerTorn => self.tear_ledger(shard, lasts_ms),
            FaultKind::OutsideWrite => {
                Self::one_of(&self.plan.theirs(), pick).map(|object| self.outsider_writes(object)).is_some()
            }
        };
        if struck {
            self.strikes.add(kind);
        }
    }

    /// A lasting fault ends.
    pub(super) fn relieve(&mut self, index: usize) {
        self.active.retain(|active| *active != index);
        let Fault { kind, .. } = self.plan.faults[index];
        self.note(|| format!("is over: {}", kind.name()));
        if kind == FaultKind::ClockSkew {
            let now = self.now;
            self.clocks.iter_mut().for_each(|clock| clock.run(now, 0));
        }
    }

    fn pause(&mut self, host: Host, ms: u64) {
        let paused = &mut self.paused[usize::from(host)];
        *paused = (*paused).max(self.now + ms * MS);
    }

    fn jump(&mut self, host: Host, pick: u64) {
        let now = self.now;
        self.clocks[usize::from(host)].jump(now, pick % JUMP_MAX * MS);
    }

    fn skew(&mut self, host: Host, pick: u64, index: usize, lasts_ms: u64) {
        let now = self.now;
        self.clocks[usize::from(host)].run(now, (pick % 200_000) as i64 - 100_000);
        self.after(lasts_ms * MS, Event::Relieve(index));
    }

    fn crash(&mut self, me: Member, pick: u64) {
        self.nodes[usize::from(host(me))].life = None;
        self.clients_fail(me);
        let homes: Vec<HomeProcess> =
            self.seats.iter().filter(|seat| seat.host == host(me)).map(|seat| seat.at).collect();
        for at in homes {
            self.unseat(at);
        }
        self.after((300 + pick % 1_700) * MS, Event::Lost(me));
        self.after((50 + (pick >> 32) % 4_000) * MS, Event::Join(host(me)));
    }

    fn crash_home(&mut self, shard: ShardId) -> bool {
        let at = self.map[usize::from(shard.0)].0;
        // A home in a node dies with the node.
        let alone = self.seat_of(at).is_some_and(|seat| seat.resident.is_none());
        if alone {
            self.unseat(at);
        }
        alone
    }

    fn suspect(&mut self, shard: ShardId, pick: u64) -> bool {
        let at = self.map[usize::from(shard.0)].0;
        let (Some(me), true) = (Self::one_of(&self.living(), pick), self.seat_of(at).is_some()) else { return false };
        self.run_home(at, HomeInput::GiveUp(me), None);
        true
    }

    /// The engine reports an incarnation as lost. If it is alive, it learns that.
    pub(super) fn lose(&mut self, me: Member) {
        self.lost.insert(me);
        let wait = self.chance.between(100, 2_000) * MS;
        if self.life(me).is_some() {
            self.after(wait, Event::Join(host(me)));
        }
    }

    /// A node begins a new incarnation, if its last one is dead or lost.
    pub(super) fn join(&mut self, number: u8) {
        let me = self.nodes[usize::from(number)].me;
        if self.life(me).is_some_and(|life| !life.leaving) && !self.lost.contains(&me) {
            return;
        }
        self.clients_fail(me);
        self.lost.insert(me);
        let next = Member { incarnation: me.incarnation.next(), ..me };
        self.nodes[usize::from(number)] = Node::begin(&self.plan, self.without(), next);
        for shard in (0..self.plan.shards).map(ShardId) {
            self.hear_map(number, shard);
        }
        self.after(MS, Event::TickNode(next));
    }

    fn kill(&mut self, pick: u64) -> bool {
        let runs = self.nodes.iter().filter_map(|node| node.life.as_ref());
        let runs: Vec<(Member, Author)> =
            runs.flat_map(|life| life.runs.keys().map(|attempt| (life.me, *attempt))).collect();
        let Some((me, attempt)) = Self::one_of(&runs, pick) else { return false };
        self.leave(me, attempt);
        true
    }

    fn evict(&mut self, pick: u64) -> bool {
        let Some(me) = Self::one_of(&self.living(), pick) else { return false };
        let objects = 0..self.plan.objects;
        let Some(life) = self.life_mut(me) else { return false };
        let kept: Vec<Object> = objects.filter(|object| life.cache.copies().version(object).is_some()).collect();
        let Some(object) = Self::one_of(&kept, pick.rotate_left(7)) else { return false };
        life.cache.copies_mut().remove(&object);
        true
    }

    fn tear_ledger(&mut self, shard: ShardId, lasts_ms: u64) -> bool {
        let unsynced = self.ledgers[usize::from(shard.0)].unsynced();
        let most = self.chance.below(unsynced as u32 + 1) as usize;
        self.sync(shard, most, false);
        let until = self.now + lasts_ms * MS;
        let ledger = &mut self.ledgers[usize::from(shard.0)];
        ledger.tear();
        ledger.down_until = ledger.down_until.max(until);
        true
    }

    /// Somebody outside writes into the store, and a node learns it later.
    pub(super) fn outsider_writes(&mut self, object: Object) {
        let op = self.observer.outsider_wrote(object);
        let stored = StoredObject { op, version: nigh_terms::Version::OUTSIDE };
        self.store.carry_out(&StoreCall::Put(object, stored), |_, _, _| true);
        let (node, wait) = (self.chance.below(u32::from(self.plan.nodes)) as u8, self.chance.between(1, 3_000) * MS);
        self.after(wait, Event::Notice(node, object, op));
    }
}
