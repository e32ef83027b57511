//! Transfers of an object: streamed in pieces, or in round trips of lines, with a put's log before its bytes.
//!
//! Each server's link is one for all its functions, in each direction; the memory server's channel is one for all
//! servers.

use super::engine::{Engine, Event};
use super::hardware::LINE_BYTES;
use super::jitter::{Jitter, JitteredPart};
use super::picos::Picos;
use super::system::{Coherence, Granularity};
use super::workflow::ObjectId;

/// Pieces of a stream: how often others that share a link or the memory get their turn.
const PIECE_BYTES: u64 = 16_384;

impl Engine<'_> {
    /// With a varying pace, what fills the link for one latency: the published simulator adds a latency for each of
    /// these.
    fn piece_bytes(&self) -> u64 {
        match self.run.jitter {
            Some(Jitter { part: JitteredPart::MessagesAndStreams, .. }) => {
                let link = self.transport.link;
                let lines = link.bytes_per_second as u128 * u128::from(link.one_way.get()) / 1_000_000_000_000;
                (lines as u64 / LINE_BYTES).max(1) * LINE_BYTES
            }
            _ => PIECE_BYTES,
        }
    }

    /// The channel's next turn of so many bytes: when it begins, and when it ends.
    fn memory(&mut self, bytes: u64) -> (Picos, Picos) {
        let begins = self.memory_free.max(self.now);
        self.memory_free = begins + Picos::of_bytes(bytes, self.run.hardware.memory_bytes_per_second);
        (begins, self.memory_free)
    }

    pub(super) fn begin_get(&mut self, function: usize, object: ObjectId) {
        let node = self.node(function);
        if let Some(waiting) = node.fetching.get_mut(&object) {
            return waiting.push(function);
        }
        let is_here = self.keeps_copies() && self.node(function).copy(object).is_some();
        if is_here && self.coherence == Coherence::VersionCheck {
            self.traffic.questions += 1;
            let there = self.transport.per_operation + self.message();
            self.at(self.now + there, Event::VersionAtHome(function));
        } else if is_here {
            self.count_hit(function, object);
            self.at(self.now + self.run.hardware.hit, Event::StepEnds(function));
        } else {
            self.fetch(function, object, self.transport.per_operation);
        }
    }

    fn count_hit(&mut self, function: usize, object: ObjectId) {
        let bytes = self.run.workflow.bytes(object);
        self.tasks[function].hit_bytes += bytes;
        self.traffic.hit_bytes += bytes;
        self.traffic.read_bytes += bytes;
    }

    pub(super) fn version_at_home(&mut self, function: usize) {
        let Some(object) = self.object(function) else { return };
        let version = self.home.version(object);
        let back = self.run.hardware.controller + self.message();
        self.at(self.now + back, Event::VersionTold(function, version));
    }

    pub(super) fn version_told(&mut self, function: usize, version: u64) {
        let Some(object) = self.object(function) else { return };
        if self.node(function).copy(object) == Some(version) {
            self.count_hit(function, object);
            self.end_step(function);
        } else {
            self.fetch(function, object, Picos::ZERO);
        }
    }

    fn fetch(&mut self, function: usize, object: ObjectId, software: Picos) {
        if self.keeps_copies() {
            self.node(function).fetching.insert(object, Vec::new());
        }
        let bytes = self.run.workflow.bytes(object);
        self.tasks[function].missed_bytes += bytes;
        self.tasks[function].left = bytes;
        let there = match self.transport.granularity {
            Granularity::Object => self.message(),
            // Each request for lines makes the way by itself.
            Granularity::Line => Picos::ZERO,
        };
        self.at(self.now + software + there, Event::GetAtHome(function));
    }

    pub(super) fn get_at_home(&mut self, function: usize) {
        let Some(object) = self.object(function) else { return };
        let server = self.server(function);
        if self.keeps_copies() {
            self.home.add_sharer(object, server);
        }
        let (version, cover) = (self.home.version(object), self.home.cover(server));
        let task = &mut self.tasks[function];
        (task.version, task.cover) = (version, cover);
        match self.transport.granularity {
            Granularity::Object => {
                let first = self.now + self.look_ups() + self.run.hardware.memory_access;
                let header = self.transport.on_link(self.transport.header_bytes);
                let node = self.node(function);
                node.down_free = node.down_free.max(first) + header;
                self.at(first, Event::GetPiece(function));
            }
            Granularity::Line => self.at(self.now, Event::GetLines(function)),
        }
    }

    pub(super) fn get_piece(&mut self, function: usize) {
        let bytes = self.tasks[function].left.min(self.piece_bytes());
        let (begins, read) = self.memory(bytes);
        let pace = self.transport.on_link(bytes);
        let pace = self.latencies.stream(pace);
        let node = self.node(function);
        let sends = node.down_free.max(begins);
        let sent = (sends + pace).max(read);
        node.down_free = sent;
        self.traffic.sent_bytes += bytes;
        self.tasks[function].left -= bytes;
        if self.tasks[function].left > 0 {
            // One piece ahead of the link.
            self.at(read.max(sends), Event::GetPiece(function));
        } else {
            let arrives = sent + self.latencies.message(self.transport.one_way());
            self.at(arrives, Event::Got(function));
        }
    }

    /// As many lines as may be outstanding, when the server's other functions leave them.
    pub(super) fn get_lines(&mut self, function: usize) {
        let free = self.node(function).down_free;
        if free > self.now {
            return self.at(free, Event::GetLines(function));
        }
        let bytes = self.tasks[function].left.min(self.run.hardware.outstanding_lines * LINE_BYTES);
        let there = self.message();
        // Taken until its answer is known.
        self.node(function).down_free = self.now + there + there;
        self.at(self.now + there + self.run.hardware.controller, Event::LinesAtHome(function, self.now, bytes));
    }

    pub(super) fn lines_at_home(&mut self, function: usize, since: Picos, bytes: u64) {
        let (begins, _) = self.memory(bytes);
        let first_line = begins + self.run.hardware.memory_access + self.message();
        let on_link = self.transport.on_link(bytes);
        self.traffic.sent_bytes += bytes;
        self.tasks[function].left -= bytes;
        if self.tasks[function].left > 0 {
            // A line that arrives makes room for the next request: the pace is the slower of round trip and link.
            let next = first_line.max(since + on_link);
            self.node(function).down_free = next;
            self.at(next, Event::GetLines(function));
        } else {
            let last_line = first_line + on_link;
            self.node(function).down_free = last_line;
            self.at(last_line, Event::Got(function));
        }
    }

    pub(super) fn got(&mut self, function: usize) {
        let Some(object) = self.object(function) else { return };
        let bytes = self.run.workflow.bytes(object);
        self.traffic.received_bytes += bytes;
        self.traffic.read_bytes += bytes;
        if !self.keeps_copies() {
            return self.end_step(function);
        }
        let version = self.tasks[function].version;
        let cover = self.tasks[function].cover;
        let node = self.node(function);
        node.install(object, version);
        let joined = node.fetching.remove(&object).unwrap_or_default();
        for other in joined {
            self.count_hit(other, object);
            self.tasks[other].cover = cover;
            self.show(other);
        }
        self.show(function);
    }

    pub(super) fn begin_put(&mut self, function: usize, object: ObjectId) {
        self.node(function).drop_copy(object);
        self.tasks[function].passes = match self.transport.granularity {
            Granularity::Line => 2,
            Granularity::Object => 1,
        };
        self.at(self.now + self.transport.per_operation, Event::Logged(function));
    }

    pub(super) fn begin_pass(&mut self, function: usize) {
        let Some(object) = self.object(function) else { return };
        let bytes = self.run.workflow.bytes(object);
        let latency = self.message();
        let task = &mut self.tasks[function];
        (task.left, task.arriving, task.latency) = (bytes, bytes, latency);
        task.passes -= 1;
        self.at(self.now, Event::PutPiece(function));
    }

    pub(super) fn put_piece(&mut self, function: usize) {
        let bytes = self.tasks[function].left.min(self.piece_bytes());
        let pace = self.transport.on_link(bytes);
        let pace = self.latencies.stream(pace);
        let now = self.now;
        let node = self.node(function);
        let sends = node.up_free.max(now);
        let sent = sends + pace;
        node.up_free = sent;
        self.traffic.written_bytes += bytes;
        let task = &mut self.tasks[function];
        task.left -= bytes;
        let (latency, left) = (task.latency, task.left);
        self.at(sends + latency, Event::PieceAtHome(function, sent + latency, bytes));
        if left > 0 {
            self.at(sent, Event::PutPiece(function));
        }
    }

    pub(super) fn piece_at_home(&mut self, function: usize, ends: Picos, bytes: u64) {
        let (_, written) = self.memory(bytes);
        self.traffic.stored_bytes += bytes;
        let task = &mut self.tasks[function];
        task.arriving -= bytes;
        if task.arriving == 0 {
            let done = written.max(ends) + self.look_ups();
            self.at(done, Event::PassEnds(function));
        }
    }

    pub(super) fn pass_ends(&mut self, function: usize) {
        if self.tasks[function].passes > 0 {
            let back = self.message();
            self.at(self.now + back, Event::Logged(function));
        } else {
            self.commit(function);
        }
    }

    pub(super) fn put_acknowledged(&mut self, function: usize) {
        let Some(object) = self.object(function) else { return };
        if self.keeps_copies() {
            let (version, cover) = (self.tasks[function].version, self.tasks[function].cover);
            let node = self.node(function);
            node.install(object, version);
            node.cover(cover);
        }
        self.end_step(function);
    }
}
