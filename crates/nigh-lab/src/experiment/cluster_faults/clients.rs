//! Clients at the S3 doors: puts, gets, deletes, conditional puts and listings of the same few objects, each by the door
//! that it draws. What has no answer is written down as such, and never asked again.
//!
//! The objects have generations: with each blow clients go on to the next, so that the history of an object is short enough
//! for a search through all its orders. What must stay right over many faults is seen by the objects of `long_lived`,
//! which these clients read too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use nigh_check::history::{Operation, OperationResult, Value};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::record::{Record, now, read, write};
use super::values::{body_of, value_of};
use super::world::Doors;
use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, element};
use crate::instrument::http_load::header;

pub(super) const BUCKET: &str = "faults";
/// Objects of a generation, which all clients of a part share.
pub(super) const OBJECTS: usize = 20;
pub(super) const PATIENCE: Duration = Duration::from_secs(8);
/// Between two requests of one client, at most.
const PAUSE_MAX_MS: u64 = 120;
/// The share of requests that go to another door than the client's own.
const ROAMS: f64 = 0.3;

/// What the door says of a write that it did not take, and of one that its store did not get (`nigh-s3`).
const NOT_DONE: [&str; 2] = ["the write was not taken", "nothing was changed there"];

fn folder(part: u32, generation: u32) -> String {
    format!("part-{part}/{generation:03}")
}

pub(super) fn key(part: u32, generation: u32, number: usize) -> String {
    format!("{}/{number:02}", folder(part, generation))
}

fn path(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}

/// The status of an answer that is no success.
fn refused_as(answer: &CallOutcome, status: &str) -> bool {
    matches!(answer, CallOutcome::Refused(text) if text.starts_with(&format!("HTTP/1.1 {status}")))
}

/// What the system says of a connection that was not made: it refuses, or there is no answer.
const NOT_CONNECTED: [&str; 2] = ["Connection refused", "connection timed out"];

/// Whether it is certain that a write was not done, nor will be: its answer says so, or there was nothing to send it on.
/// Such a write is counted and is no operation.
pub(super) fn was_not_done(record: &Record, answer: &CallOutcome) -> bool {
    match answer {
        CallOutcome::Refused(text) if NOT_DONE.iter().any(|words| text.contains(words)) => record.refused(),
        CallOutcome::Broken(text) if NOT_CONNECTED.iter().any(|words| text.starts_with(words)) => record.not_sent(),
        _ => return false,
    }
    true
}

fn tag_of(head: &str) -> Option<&str> {
    header(head, "etag")
}

pub(super) struct Client<'a> {
    /// One for each node's door.
    callers: Vec<Caller<'a>>,
    record: &'a Record,
    part: u32,
    /// Objects of all generations, which others write.
    long_lived: &'a [String],
    home: usize,
    draw: StdRng,
    /// The generation that it uses,
    generation: u32,
    /// and what it saw last of each object of that, with the entity tag.
    seen: Vec<Option<(Value, String)>>,
}

impl<'a> Client<'a> {
    pub(super) fn new(
        doors: &'a Doors,
        (record, long_lived): (&'a Record, &'a [String]),
        part: u32,
        number: usize,
        seed: u64,
    ) -> Self {
        let callers = doors.callers(PATIENCE);
        let home = number % callers.len();
        let draw = StdRng::seed_from_u64(seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let generation = record.generation();
        Self { callers, record, part, long_lived, home, draw, generation, seen: vec![None; OBJECTS] }
    }

    pub(super) fn live(&mut self, stop: &AtomicBool) -> Result<(), LabError> {
        while !stop.load(Ordering::Relaxed) {
            self.step()?;
            std::thread::sleep(Duration::from_millis(self.draw.random_range(0..PAUSE_MAX_MS)));
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), LabError> {
        let doors = self.callers.len();
        let door = if self.draw.random_bool(ROAMS) { self.draw.random_range(0..doors) } else { self.home };
        let object = self.draw.random_range(0..OBJECTS);
        let generation = self.record.generation();
        if generation != self.generation {
            (self.generation, self.seen) = (generation, vec![None; OBJECTS]);
        }
        match self.draw.random_range(0..100) {
            0..5 => self.get_long_lived(door),
            5..50 => self.get(door, object),
            50..75 => self.put(door, object, OperationResult::Anything),
            75..80 => self.delete(door, object),
            80..87 => self.put(door, object, OperationResult::Is(None)),
            87..95 => match self.seen[object] {
                Some((value, _)) => self.put(door, object, OperationResult::Is(Some(value))),
                None => self.get(door, object),
            },
            _ => self.list(door),
        }
    }

    fn get(&mut self, door: usize, object: usize) -> Result<(), LabError> {
        let key = key(self.part, self.generation, object);
        if let Some((operation, tag)) = look(&mut self.callers[door], self.record, &key)? {
            if let OperationResult::Is(Some(value)) = operation.found {
                self.seen[object] = tag.map(|tag| (value, tag));
            }
            self.record.add(operation);
        }
        Ok(())
    }

    fn get_long_lived(&mut self, door: usize) -> Result<(), LabError> {
        if self.long_lived.is_empty() {
            return Ok(());
        }
        let key = &self.long_lived[self.draw.random_range(0..self.long_lived.len())];
        if let Some((operation, _)) = look(&mut self.callers[door], self.record, key)? {
            self.record.add(operation);
        }
        Ok(())
    }

    fn put(&mut self, door: usize, object: usize, found: OperationResult) -> Result<(), LabError> {
        let (key, value) = (key(self.part, self.generation, object), self.record.value());
        let tag = self.seen[object].as_ref().map(|(_, tag)| tag.clone()).unwrap_or_default();
        let condition = match found {
            OperationResult::Is(None) => vec![("if-none-match", "*".to_owned())],
            OperationResult::Is(Some(_)) => vec![("if-match", tag)],
            OperationResult::Anything | OperationResult::IsNot(_) => Vec::new(),
        };
        let begin = now();
        let answer = self.callers[door].call(&Method::PUT, &path(&key), &condition, &body_of(value))?;
        let end = now();
        let not_done = |found| Operation { made: None, ..write(&key, None, begin, Some(end), found, None) };
        let operation = match (&answer, found) {
            (CallOutcome::Done { head, .. }, _) => {
                if let Some(tag) = tag_of(head) {
                    self.record.tagged(tag, value);
                    self.seen[object] = Some((value, tag.to_owned()));
                }
                write(&key, None, begin, Some(end), found, Some(value))
            }
            (answer, OperationResult::Is(state)) if refused_as(answer, "412") => {
                not_done(OperationResult::IsNot(state))
            }
            // A condition on an object that is not there.
            (CallOutcome::Absent, OperationResult::Is(Some(_))) => not_done(OperationResult::Is(None)),
            (answer, _) if was_not_done(self.record, answer) => return Ok(()),
            _ => write(&key, None, begin, None, found, Some(value)),
        };
        self.record.add(operation);
        Ok(())
    }

    fn delete(&mut self, door: usize, object: usize) -> Result<(), LabError> {
        let key = key(self.part, self.generation, object);
        let begin = now();
        let answer = self.callers[door].call(&Method::DELETE, &path(&key), &[], b"")?;
        if was_not_done(self.record, &answer) {
            return Ok(());
        }
        let end = matches!(answer, CallOutcome::Done { .. }).then(now);
        self.record.add(write(&key, None, begin, end, OperationResult::Anything, None));
        Ok(())
    }

    /// A listing shows a state of each object.
    fn list(&mut self, door: usize) -> Result<(), LabError> {
        let prefix = folder(self.part, self.generation).replace('/', "%2F");
        let target = format!("/{BUCKET}?list-type=2&prefix={prefix}%2F");
        let begin = now();
        let answer = self.callers[door].call(&Method::GET, &target, &[], b"")?;
        let CallOutcome::Done { body, .. } = answer else { return Ok(()) };
        let (end, page) = (now(), String::from_utf8_lossy(&body).into_owned());
        let listed: Vec<(&str, String)> = page
            .split("<Contents>")
            .skip(1)
            .filter_map(|entry| Some((element(entry, "Key")?, element(entry, "ETag")?.replace("&quot;", "\""))))
            .collect();
        for object in 0..OBJECTS {
            let key = key(self.part, self.generation, object);
            let state = match listed.iter().find(|(listed, _)| *listed == key) {
                None => None,
                // A tag that nobody was told is of a write without an answer, or of an invocation.
                Some((_, tag)) => match self.record.by_tag(tag) {
                    Some(value) => Some(value),
                    None => continue,
                },
            };
            self.record.listed(read(&key, None, begin, end, state));
        }
        Ok(())
    }
}

/// Gets one object: what was seen, if it was told, with the entity tag.
pub(super) fn look(
    caller: &mut Caller<'_>,
    record: &Record,
    key: &str,
) -> Result<Option<(Operation, Option<String>)>, LabError> {
    let begin = now();
    let answer = caller.call(&Method::GET, &path(key), &[], b"")?;
    let end = now();
    Ok(match answer {
        CallOutcome::Done { head, body } => match value_of(&body) {
            Some(value) => {
                let tag = tag_of(&head).map(str::to_owned);
                tag.iter().for_each(|tag| record.tagged(tag, value));
                Some((read(key, None, begin, end, Some(value)), tag))
            }
            None => {
                record.mixed(&format!("{key}: {} bytes that are of no one write", body.len()));
                None
            }
        },
        CallOutcome::Absent => Some((read(key, None, begin, end, None), None)),
        CallOutcome::Refused(_) | CallOutcome::Broken(_) => None,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;
    use crate::instrument::http_load::Connection;

    #[test]
    fn a_write_without_a_connection_or_refused_as_not_taken_was_not_done() {
        let record = Record::default();
        let refused = |body: &str| CallOutcome::Refused(format!("HTTP/1.1 503 Service Unavailable {body}"));
        assert!(was_not_done(&record, &refused("<Message>the write was not taken; write again later</Message>")));
        assert!(!was_not_done(&record, &refused("<Message>busy: the home does not answer</Message>")));
        // A port where nobody listens any more.
        let server = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let error = Connection::open(server).err().unwrap();
        assert!(was_not_done(&record, &CallOutcome::Broken(error.to_string())), "{error}");
        for broken in
            ["Connection reset by peer (os error 104)", "Connection timed out (os error 110)", "unexpected end of file"]
        {
            assert!(!was_not_done(&record, &CallOutcome::Broken(broken.to_owned())), "{broken}");
        }
        let recorded = record.take();
        assert_eq!((recorded.refused, recorded.not_sent), (1, 1));
    }
}
