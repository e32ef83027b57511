//! The steps of programs, the versions that they see, and the observer's checks.

use std::sync::Arc;

use nigh_protocol::{PutFailure, ReadDecision, RequestId, Rule, Rules as _, Stamp, Write};
use nigh_terms::Version;

use crate::configuration::{Configuration, Origin, Step};
use crate::ghost::{LoggedWrite, Object, Op, Promise};
use crate::world::{FIRST, NOW, STEPS_MAX, World, shard_of};
use crate::world_parts::Phase;

impl World {
    pub(crate) fn landed(
        &mut self,
        config: &Configuration,
        node: u8,
        request: RequestId,
        object: Object,
        stamp: &Stamp,
        value: Option<Op>,
    ) {
        let Some(life) = self.life_mut(node) else { return };
        let waiting: Vec<u8> =
            life.readers.iter().filter(|(fetch, _)| *fetch == request).map(|(_, who)| *who).collect();
        life.readers.retain(|(fetch, _)| *fetch != request);
        for program in waiting {
            if self.invocations[usize::from(program)].waits == Some(request) {
                self.has_read(config, node, program, object, stamp, value);
            }
        }
    }

    /// A program sees a version, and the observer checks it.
    pub(crate) fn has_read(
        &mut self,
        config: &Configuration,
        node: u8,
        program: u8,
        object: Object,
        stamp: &Stamp,
        value: Option<Op>,
    ) {
        let shown = self.ghost.shown_by(object, stamp.version).copied();
        let expected = match shown {
            None => Some(FIRST),
            Some(LoggedWrite { delete, op, .. }) => (!delete).then_some(op),
        };
        if value != expected {
            self.breaks(Promise::P2);
        }
        let invocation = &mut self.invocations[usize::from(program)];
        // A later version of the shard may stand for the object: the write that was shown counts.
        let version = shown.map_or(Version::OUTSIDE, |shown| shown.version);
        let broken = invocation.seen.broken_by(object, version);
        invocation.seen.chain.see(object, version);
        if let Some(LoggedWrite { op, .. }) = shown {
            invocation.seen.causes.join(&self.ghost.knowledge(op));
        }
        invocation.waits = None;
        invocation.at += 1;
        if let Some(broken) = broken {
            self.breaks(broken);
        }
        let shard = shard_of(config, object);
        if let Some(life) = self.life_mut(node) {
            life.gate.has_read(program, shard, stamp);
        }
    }

    pub(crate) fn wrote(
        &mut self,
        config: &Configuration,
        node: u8,
        request: RequestId,
        outcome: Result<Stamp, PutFailure>,
    ) {
        let Some(life) = self.life_mut(node) else { return };
        let Some(at) = life.writers.iter().position(|(put, ..)| *put == request) else { return };
        let (_, program, op) = life.writers.remove(at);
        let Some(&(Step::Put(object) | Step::Delete(object) | Step::Notice(object))) =
            config.programs[usize::from(program)].steps.get(usize::from(op % STEPS_MAX))
        else {
            return;
        };
        let shard = shard_of(config, object);
        let mut told = Vec::new();
        life.gate.has_put(program, shard, outcome.as_ref().map_err(|failure| *failure), &mut told);
        let mut unordered = false;
        let outside = config.programs[usize::from(program)].origin == Origin::Outside;
        let invocation = &mut self.invocations[usize::from(program)];
        if let Ok(stamp) = &outcome {
            unordered = stamp.version <= invocation.seen.all().of(object);
            invocation.seen.chain.see(object, stamp.version);
            self.ghost.acknowledged.see(object, stamp.version);
            if outside {
                stamp.join_into(shard, &mut invocation.token);
            }
        }
        if invocation.waits == Some(request) {
            invocation.waits = None;
            invocation.at += 1;
        }
        if unordered {
            self.breaks(Promise::P3);
        }
        for output in told {
            self.tell(config, node, output);
        }
    }

    /// A program takes its next step at its node.
    pub(crate) fn step(&mut self, config: &Configuration, program: u8) {
        let Phase::Running(me) = self.invocations[usize::from(program)].phase else { return };
        let node = me.node.0 as u8;
        let outside = config.programs[usize::from(program)].origin == Origin::Outside;
        let at = self.invocations[usize::from(program)].at;
        match config.programs[usize::from(program)].steps.get(usize::from(at)) {
            Some(&Step::Get(object)) => self.get(config, node, program, object, outside),
            Some(&Step::Put(object)) => self.put(config, node, program, object, Write::Put),
            Some(&Step::Delete(object)) => self.put(config, node, program, object, Write::Delete),
            Some(&Step::Notice(object)) => self.put(config, node, program, object, Write::Outside),
            Some(&Step::Call(child)) => {
                let token = self.life(me).and_then(|life| life.gate.token(program)).cloned().unwrap_or_default();
                if let Some(frontier) = &mut self.frontier {
                    frontier.see(&token);
                }
                let caller = &mut self.invocations[usize::from(program)];
                caller.at += 1;
                let seen = caller.seen;
                self.ghost.ended.chain.join(&seen.chain);
                self.ghost.ended.causes.join(&seen.causes);
                self.invocations[usize::from(child)].phase = Phase::Idle;
            }
            None if outside => {
                let wrote =
                    config.programs[usize::from(program)].steps.iter().any(|step| !matches!(step, Step::Get(_)));
                let invocation = &mut self.invocations[usize::from(program)];
                invocation.phase = if wrote { Phase::Unacknowledged } else { Phase::Over };
                invocation.ended = !wrote;
            }
            None => {
                self.invocations[usize::from(program)].phase = Phase::Leaving(me);
                self.with_gate(config, node, |gate, _, _, told| gate.ends(program, told));
            }
        }
    }

    fn get(&mut self, config: &Configuration, node: u8, program: u8, object: Object, outside: bool) {
        let checked = outside && config.without.hold(Rule::OutsideAsksHome);
        let shard = shard_of(config, object);
        let mut out = Vec::new();
        let Some(life) = self.life_mut(node) else { return };
        match life.cache.read(NOW, shard, &object, checked, &mut out) {
            ReadDecision::Hit(copy) => self.has_read(config, node, program, object, &copy.stamp, Some(copy.value)),
            ReadDecision::Shared(request) | ReadDecision::Private(request) => {
                // Recorded before anything is sent, because a home in this node answers at once.
                life.readers.push((request, program));
                self.invocations[usize::from(program)].waits = Some(request);
            }
        }
        self.carry_out(config, node, out, false);
    }

    fn put(&mut self, config: &Configuration, node: u8, program: u8, object: Object, write: Write) {
        let op = program * STEPS_MAX + self.invocations[usize::from(program)].at;
        self.ghost.begins(op, self.invocations[usize::from(program)].seen.all());
        let shard = shard_of(config, object);
        let mut out = Vec::new();
        let Some(life) = self.life_mut(node) else { return };
        let token = Arc::new(life.gate.token(program).cloned().unwrap_or_default());
        let request = life.cache.write(NOW, shard, &object, write, token, &mut out);
        life.gate.begins_put(program);
        life.writers.push((request, program, op));
        self.invocations[usize::from(program)].waits = Some(request);
        self.carry_out(config, node, out, false);
    }

    /// A put from outside is acknowledged.
    pub(crate) fn acknowledge(&mut self, config: &Configuration, program: u8) {
        let token = self.invocations[usize::from(program)].token.clone();
        let keeps = self.keeps_tokens(config);
        if let Some(frontier) = self.frontier.as_mut().filter(|_| keeps) {
            frontier.see(&token);
        }
        self.invocations[usize::from(program)].phase = Phase::Over;
        self.end(program);
    }

    /// The observer records an end.
    pub(crate) fn end(&mut self, program: u8) {
        let invocation = &mut self.invocations[usize::from(program)];
        if invocation.ended {
            return;
        }
        invocation.ended = true;
        let ghost = &mut *self.ghost;
        for happened in ghost.log.iter().filter(|one| one.op / STEPS_MAX == program) {
            ghost.ended.ended.see(happened.object, happened.version);
        }
        // Nobody has learned what a lost invocation has read.
        if matches!(invocation.phase, Phase::Leaving(_)) {
            self.ghost.ended.chain.join(&invocation.seen.chain);
            self.ghost.ended.causes.join(&invocation.seen.causes);
        }
    }
}
