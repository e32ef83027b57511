//! The work: the clients' requests, the steps of invocations, and the progress of each.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use nigh_protocol::{Dispatch, Member, ReadDecision, Rule, Stamp, Write};
use nigh_terms::{ShardId, Token};

use super::clock::MS;
use super::dice::Dice;
use super::node::{CacheOutputs, ChildAnswer, Run, host};
use super::observer::{Author, Op};
use super::packet::{Event, Packet, Reader, Requester, Writer};
use super::plan::Plan;
use super::world::Storm;
use crate::ghost::Object;

/// The next step of an invocation.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Get(Object),
    Put(Object),
    Delete(Object),
    List,
    Pause(u64),
    Call(Rc<[Step]>),
}

/// A client that has one request under way at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Actor {
    pub(super) namespace: u8,
    /// True if it is a client at the nodes' doors; if not, it invokes functions.
    is_outside: bool,
    pub(super) waits: bool,
    /// The node whose door it uses now; none if it waits for none.
    at: Option<Member>,
}

impl Actor {
    pub(super) const fn new(namespace: u8, is_outside: bool) -> Self {
        Self { namespace, is_outside, waits: false, at: None }
    }
}

/// The end of a request: the node that reported it, if any, and its token.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) callee: Option<Author>,
    pub(super) token: Token,
}

/// A request for an invocation.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) namespace: u8,
    pub(super) program: Rc<[Step]>,
    pub(super) parent: Option<(Author, Member, u32)>,
    pub(super) actor: Option<u8>,
    pub(super) node: Option<u8>,
    pub(super) idempotent: bool,
    pub(super) outcome: Option<Outcome>,
}

/// A request sent to a node.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) request: usize,
    pub(super) namespace: u8,
    pub(super) dispatch: Dispatch,
    pub(super) over: bool,
}

/// The work of a storm.
pub(super) struct Work {
    dice: Dice,
    pub(super) actors: Vec<Actor>,
    pub(super) requests: Vec<Request>,
    pub(super) attempts: BTreeMap<Author, Attempt>,
    /// The open attempts of each namespace.
    pub(super) outstanding: Vec<BTreeSet<Author>>,
    /// The waiting requests of each namespace.
    pub(super) ready: Vec<Vec<usize>>,
    pub(super) calls: BTreeMap<(Author, u32), usize>,
}

impl Work {
    pub(super) fn new(plan: &Plan) -> Self {
        let namespaces = usize::from(plan.namespaces);
        Self {
            dice: Dice::new(plan.seed, 4),
            actors: Vec::new(),
            requests: Vec::new(),
            attempts: BTreeMap::new(),
            outstanding: vec![BTreeSet::new(); namespaces],
            ready: vec![Vec::new(); namespaces],
            calls: BTreeMap::new(),
        }
    }

    pub(super) fn namespace_of(&self, attempt: Author) -> u8 {
        self.attempts.get(&attempt).map_or(0, |attempt| attempt.namespace)
    }

    /// The attempts that are not over, with their members.
    pub(super) fn under_way(&self, namespace: u8) -> Vec<(Author, Member)> {
        let of_it = self.outstanding[usize::from(namespace)].iter();
        of_it.filter_map(|attempt| Some((*attempt, self.attempts.get(attempt)?.dispatch.to))).collect()
    }

    /// The members with attempts that are not over.
    pub(super) fn members(&self, namespace: u8) -> BTreeSet<Member> {
        self.under_way(namespace).into_iter().map(|(_, to)| to).collect()
    }

    /// Ends an attempt; none if it was over.
    pub(super) fn finish_attempt(&mut self, attempt: Author) -> Option<(usize, u8)> {
        let one = self.attempts.get_mut(&attempt).filter(|one| !one.over)?;
        one.over = true;
        self.outstanding[usize::from(one.namespace)].remove(&attempt);
        Some((one.request, one.namespace))
    }

    fn program_of(&self, attempt: Author) -> Option<&Rc<[Step]>> {
        Some(&self.requests[self.attempts.get(&attempt)?.request].program)
    }

    /// Creates the request that `parent` calls in step `place`.
    pub(super) fn call(&mut self, parent: Author, from: Member, place: u32) -> Option<usize> {
        let Some(Step::Call(program)) = self.program_of(parent)?.get(place as usize) else { return None };
        let (program, namespace) = (Rc::clone(program), self.namespace_of(parent));
        let idempotent = self.dice.chance(500);
        let parent_of = Some((parent, from, place));
        self.requests.push(Request {
            namespace,
            program,
            parent: parent_of,
            actor: None,
            node: None,
            idempotent,
            outcome: None,
        });
        self.calls.insert((parent, place), self.requests.len() - 1);
        Some(self.requests.len() - 1)
    }

    /// The steps of an invocation: one in three builds on what it reads, or reads twice; the others are random.
    fn program(&mut self, plan: &Plan, namespace: u8, deep: u32) -> Rc<[Step]> {
        let objects = plan.objects_of(namespace);
        let (Some(cause), Some(effect)) = (self.dice.pick(&objects), self.dice.pick(&objects)) else {
            return Rc::new([]);
        };
        let put = |object| if plan.is_theirs(object) { Step::Get(object) } else { Step::Put(object) };
        let pause = Step::Pause(self.dice.between(1, 400));
        match self.dice.below(12) {
            0 => Rc::new([put(cause), put(effect), pause]),
            1 => Rc::new([Step::Get(cause), put(effect)]),
            2 => Rc::new([Step::Get(cause), pause, Step::Get(effect), Step::Get(cause)]),
            3 => Rc::new([put(cause), pause, put(effect)]),
            _ => (0..=self.dice.below(4)).filter_map(|_| self.any_step(plan, namespace, deep, &objects)).collect(),
        }
    }

    fn any_step(&mut self, plan: &Plan, namespace: u8, deep: u32, objects: &[Object]) -> Option<Step> {
        let object = self.dice.pick(objects)?;
        let theirs = plan.is_theirs(object);
        Some(match self.dice.below(20) {
            0..7 => Step::Get(object),
            7..13 if !theirs => Step::Put(object),
            13..15 if !theirs => Step::Delete(object),
            15 => Step::List,
            16 => Step::Pause(self.dice.between(1, 800)),
            17..19 if deep > 0 => Step::Call(self.program(plan, namespace, deep - 1)),
            _ => Step::Get(object),
        })
    }
}

impl Storm {
    /// A client begins an operation.
    pub(super) fn act(&mut self, number: u8) {
        if self.over || self.now > self.plan.storm_ms * MS {
            return;
        }
        let Actor { namespace, is_outside, .. } = self.work.actors[usize::from(number)];
        if !is_outside {
            let program = self.work.program(&self.plan, namespace, 2);
            let idempotent = self.work.dice.chance(500);
            self.work.actors[usize::from(number)].waits = true;
            return self.ask_to_invoke(namespace, program, Some(number), None, idempotent);
        }
        let living: Vec<Member> = self
            .nodes
            .iter()
            .filter_map(|node| node.life.as_ref())
            .filter(|life| !life.leaving && self.paused[usize::from(host(life.me))] <= self.now)
            .map(|life| life.me)
            .collect();
        let objects = self.plan.objects_of(namespace);
        let (Some(me), Some(object)) = (self.work.dice.pick(&living), self.work.dice.pick(&objects)) else {
            return self.after(100 * MS, Event::Act(number));
        };
        self.work.actors[usize::from(number)] =
            Actor { waits: true, at: Some(me), ..self.work.actors[usize::from(number)] };
        let author = self.observer.author(namespace, true);
        let who = Requester::Client(number, author);
        let theirs = self.plan.is_theirs(object);
        match self.work.dice.below(10) {
            0..4 if !theirs => self.begin_put(me, who, object, Write::Put),
            4 if !theirs => self.begin_put(me, who, object, Write::Delete),
            5 => self.begin_list(me, who, namespace),
            _ => self.begin_get(me, who, object),
        }
    }

    pub(super) fn ask_to_invoke(
        &mut self,
        namespace: u8,
        program: Rc<[Step]>,
        actor: Option<u8>,
        node: Option<u8>,
        idempotent: bool,
    ) {
        let request = Request { namespace, program, parent: None, actor, node, idempotent, outcome: None };
        self.work.requests.push(request);
        self.work.ready[usize::from(namespace)].push(self.work.requests.len() - 1);
        self.dispatch_ready(namespace);
    }

    /// A client has its response, or will never have one.
    pub(super) fn client_done(&mut self, number: u8) {
        let actor = &mut self.work.actors[usize::from(number)];
        if std::mem::replace(&mut actor.waits, false) {
            actor.at = None;
            let wait = self.work.dice.between(1, self.plan.think_ms) * MS;
            self.after(wait, Event::Act(number));
        }
    }

    /// Clients at the door of this member fail, because the member is gone.
    pub(super) fn clients_fail(&mut self, me: Member) {
        let there: Vec<u8> = (0u8..)
            .zip(&self.work.actors)
            .filter(|(_, actor)| actor.at == Some(me))
            .map(|(number, _)| number)
            .collect();
        for number in there {
            self.client_done(number);
        }
    }

    /// An attempt takes its next step.
    pub(super) fn step(&mut self, attempt: Author, me: Member) {
        let Some(run) = self.life(me).and_then(|life| life.runs.get(&attempt)).copied() else { return };
        if run.waits {
            return;
        }
        let step = self.work.program_of(attempt).and_then(|program| program.get(run.at)).cloned();
        if let Some(run) = self.life_mut(me).and_then(|life| life.runs.get_mut(&attempt)) {
            run.waits = true;
        }
        let who = Requester::Attempt(attempt);
        match step {
            None => self.leave(me, attempt),
            Some(Step::Get(object)) => self.begin_get(me, who, object),
            Some(Step::Put(object)) => self.begin_put(me, who, object, Write::Put),
            Some(Step::Delete(object)) => self.begin_put(me, who, object, Write::Delete),
            Some(Step::List) => self.begin_list(me, who, self.work.namespace_of(attempt)),
            Some(Step::Call(_)) => self.call_again(me, attempt, run.at),
            Some(Step::Pause(ms)) => {
                self.resume(me, attempt);
                self.after(ms * MS, Event::Step(attempt, me));
            }
        }
    }

    /// An attempt is over, or killed, at its node.
    pub(super) fn leave(&mut self, me: Member, attempt: Author) {
        let mut told = Vec::new();
        if let Some(life) = self.life_mut(me) {
            life.runs.remove(&attempt);
            life.gate.ends(attempt, &mut told);
        }
        self.tell(me, told);
    }

    fn resume(&mut self, me: Member, attempt: Author) -> bool {
        let run = self.life_mut(me).and_then(|life| life.runs.get_mut(&attempt)).filter(|run| run.waits);
        let goes_on = run.is_some();
        if let Some(Run { at, waits }) = run {
            (*at, *waits) = (*at + 1, false);
        }
        goes_on
    }

    /// What an attempt waited for has arrived.
    pub(super) fn goes_on(&mut self, me: Member, attempt: Author) {
        if self.resume(me, attempt) {
            let wait = if self.work.dice.chance(800) {
                self.work.dice.between(10, 3_000)
            } else {
                self.work.dice.between(3_000, 200_000)
            };
            self.after(wait * 1_000, Event::Step(attempt, me));
        }
    }

    /// Reports an attempt's call to the scheduler, if the attempt waits for it.
    pub(super) fn call_again(&mut self, me: Member, attempt: Author, place: usize) {
        let calls = self.work.program_of(attempt).and_then(|program| program.get(place));
        if !matches!(calls, Some(Step::Call(_))) {
            return;
        }
        let token = self.life(me).and_then(|life| life.gate.token(attempt)).cloned().unwrap_or_default();
        let namespace = self.work.namespace_of(attempt);
        self.tell_scheduler(me, namespace, Packet::Call { parent: attempt, from: me, place: place as u32, token });
    }

    /// The answer of a call arrives at the caller's node, which shows it when it covers it.
    pub(super) fn answered(&mut self, parent: Author, to: Member, place: u32, callee: Option<Author>, token: Token) {
        let Some(life) = self.life_mut(to) else { return };
        let waits = life.runs.get(&parent).is_some_and(|run| run.waits && run.at == place as usize);
        if waits && !life.answers.iter().any(|answer| answer.parent == parent) {
            life.answers.push(ChildAnswer { parent, place: place as usize, callee, token });
            self.look_at_what_waits(to);
        }
    }

    fn begin_get(&mut self, me: Member, who: Requester, object: Object) {
        let checked = matches!(who, Requester::Client(..)) && self.holds(Rule::OutsideAsksHome);
        let (now, shard) = (self.clock(host(me)), ShardId(self.plan.shard_of(object)));
        let mut out = CacheOutputs::new();
        let Some(life) = self.life_mut(me) else { return };
        match life.cache.read(now, shard, &object, checked, &mut out) {
            ReadDecision::Hit(copy) => self.shown(me, who, object, &copy.stamp, Some(copy.value)),
            // Recorded before anything is sent, because a home in this node answers at once.
            ReadDecision::Shared(request) | ReadDecision::Private(request) => {
                life.readers.push(Reader { request, who })
            }
        }
        self.carry_out(me, out);
    }

    pub(super) fn begin_put(&mut self, me: Member, who: Requester, object: Object, write: Write) {
        let (Requester::Attempt(author) | Requester::Client(_, author)) = who else { return };
        let op = self.observer.begins(author, object);
        self.write(me, who, object, op, write);
    }

    /// A node learns of an outside write.
    pub(super) fn notice(&mut self, node: u8, object: Object, op: Op) {
        match self.nodes[usize::from(node)].life.as_ref().map(|life| life.me) {
            Some(me) => self.write(me, Requester::Notice, object, op, Write::Outside),
            // A repeated report goes to another node.
            None => self.after(200 * MS, Event::Notice((node + 1) % self.plan.nodes, object, op)),
        }
    }

    fn write(&mut self, me: Member, who: Requester, object: Object, op: Op, write: Write) {
        let (now, shard) = (self.clock(host(me)), ShardId(self.plan.shard_of(object)));
        let mut out = CacheOutputs::new();
        let Some(life) = self.life_mut(me) else { return };
        let token = match who {
            Requester::Attempt(attempt) => life.gate.token(attempt).cloned().unwrap_or_default(),
            Requester::Client(..) | Requester::Notice => Token::empty(),
        };
        let request = life.cache.write(now, shard, &object, write, Arc::new(token), &mut out);
        if let Requester::Attempt(attempt) = who {
            life.gate.begins_put(attempt);
        }
        life.writers.insert(request, Writer { who, object, op, delete: write == Write::Delete });
        self.carry_out(me, out);
    }

    /// An author sees a version.
    pub(super) fn shown(&mut self, me: Member, who: Requester, object: Object, stamp: &Stamp, value: Option<Op>) {
        let shard = ShardId(self.plan.shard_of(object));
        match who {
            Requester::Attempt(attempt) => {
                let Some(life) = self.life_mut(me) else { return };
                // A killed attempt sees nothing.
                if life.runs.contains_key(&attempt) {
                    life.gate.has_read(attempt, shard, stamp);
                    self.operations += 1;
                    self.observer.reads(attempt, object, stamp.version, value);
                    self.goes_on(me, attempt);
                }
            }
            Requester::Client(client, author) => {
                self.operations += 1;
                self.observer.reads(author, object, stamp.version, value);
                self.client_done(client);
            }
            Requester::Notice => {}
        }
    }
}
