//! One client of the node under test: it writes, reads, copies, deletes and completes uploads as its seed says, and
//! records what it did and saw. A call without a success is repeated under the same name, as SDKs do, or given up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::body::{CONTENT_HEADER, Content, WRITE_HEADER, write_name};
use super::fast_calls::{FastCaller, FastDoor};
use super::history::{Moment, Place, ReadRecord, Write, WriteId};
use super::s3_calls::get;
use super::{BUCKET, CLIENTS};
use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, Door, element};

/// By which AWS SDKs name all attempts of one call.
const INVOCATION: &str = "amz-sdk-invocation-id";
const COPY_SOURCE: &str = "x-amz-copy-source";
const DIRECTIVE: &str = "x-amz-metadata-directive";
const SHARED_KEYS: u32 = 12;
/// Keys that one client writes: it knows what they are, and copies them.
const OWN_KEYS: u32 = 3;
/// S3's smallest part but the last.
const PART_MIN: usize = 5 << 20;
/// Attempts of a call whose key others write too; then it is given up.
const ATTEMPTS_MAX: u32 = 20;
/// The share of puts and gets that go by the fast path.
const FAST: f64 = 0.4;
/// Between attempts, and after an answer that the node is busy or gone.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) fn keys() -> Vec<String> {
    let own = (0..CLIENTS).flat_map(|client| (0..OWN_KEYS).map(move |n| own_key(client, n)));
    (0..SHARED_KEYS).map(shared_key).chain(own).collect()
}

fn shared_key(n: u32) -> String {
    format!("shared/{n}")
}

fn own_key(client: u32, n: u32) -> String {
    format!("own/{client}/{n}")
}

pub(crate) fn path(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}

struct Ways<'a> {
    http: Caller<'a>,
    fast: Option<FastCaller<'a>>,
}

/// A call that changes something, ready to be sent again.
struct Change {
    method: Method,
    path: String,
    /// Of a put: its first attempt, and some of the others, go by the fast path.
    fast: Option<String>,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
    /// Of the client's writes, those that it makes.
    writes: Vec<usize>,
    /// Nobody else writes its key: it is repeated until it is done, so that the client knows what the key is.
    own: bool,
    attempts: u32,
}

impl Change {
    /// A change by HTTP of a key that others write too.
    const fn new(
        method: Method,
        path: String,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
        writes: Vec<usize>,
    ) -> Self {
        Self { method, path, fast: None, headers, body, writes, own: false, attempts: 0 }
    }
}

/// A client and all that it has done, over all lives of the node.
pub(crate) struct Client {
    number: u32,
    draw: StdRng,
    begun: Instant,
    pub(crate) writes: Vec<Write>,
    pub(crate) reads: Vec<ReadRecord>,
    pub(crate) by_fast_path: u64,
    /// To be repeated before anything else.
    pending: Option<Change>,
    /// What its own keys are, where that is certain.
    own: Vec<Option<Content>>,
    /// The share of uploads beside the usual ones.
    uploads: f64,
    /// Many writes are large.
    large: bool,
}

impl Client {
    pub(crate) fn new(number: u32, seed: u64, begun: Instant) -> Self {
        let draw = StdRng::seed_from_u64(seed ^ u64::from(number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let own = vec![None; OWN_KEYS as usize];
        let (writes, reads) = (Vec::new(), Vec::new());
        Self { number, draw, begun, writes, reads, by_fast_path: 0, pending: None, own, uploads: 0.0, large: false }
    }

    /// More uploads, and larger writes, than usual.
    pub(crate) const fn set_habits(&mut self, uploads: f64, large: bool) {
        (self.uploads, self.large) = (uploads, large);
    }

    fn now(&self) -> Moment {
        self.begun.elapsed().as_nanos() as Moment
    }

    /// Calls one after another until `stop`. `remembers`: a call that was done and is repeated is not done again, in
    /// the life of the node that is; it is tried only if so.
    pub(crate) fn live(
        &mut self,
        (door, fast): (&Door, Option<&FastDoor>),
        remembers: bool,
        stop: &AtomicBool,
    ) -> Result<(), LabError> {
        let mut ways = Ways { http: Caller::new(door), fast: fast.map(FastCaller::new) };
        while !stop.load(Ordering::Relaxed) {
            let done = match self.pending.take() {
                Some(change) => self.send(&mut ways, change)?,
                None => self.step(&mut ways, remembers)?,
            };
            if !done {
                std::thread::sleep(PAUSE);
            }
        }
        Ok(())
    }

    /// Nothing that has no answer happens after `moment`, but for what is yet to be repeated.
    pub(crate) fn give_up(&mut self, moment: Moment) {
        let pending = self.pending.as_ref().map_or(&[][..], |change| &change.writes);
        for (at, write) in self.writes.iter_mut().enumerate() {
            if write.acknowledged.is_none() && !pending.contains(&at) {
                write.given_up.get_or_insert(moment);
            }
        }
    }

    fn step(&mut self, ways: &mut Ways<'_>, remembers: bool) -> Result<bool, LabError> {
        let shared = shared_key(self.draw.random_range(0..SHARED_KEYS));
        let own = self.draw.random_range(0..OWN_KEYS);
        if self.uploads > 0.0 && self.draw.random_bool(self.uploads) {
            return self.upload(ways, shared);
        }
        match self.draw.random_range(0..100) {
            0..34 => {
                let change = self.put(shared, false);
                self.send(ways, change)
            }
            34..44 => self.put_own(ways, own),
            44..52 => self.copy(ways, own, shared),
            52..60 => self.delete(ways, &shared),
            60..63 => self.delete_objects(ways),
            63..68 => self.upload(ways, shared),
            68..71 if remembers => self.repeat(ways, own),
            71..75 => self.read(ways, own_key(self.number, own)),
            _ => self.read(ways, shared),
        }
    }

    fn size(&mut self) -> usize {
        if self.large && self.draw.random_bool(0.5) {
            return self.draw.random_range(512 << 10..=2 << 20);
        }
        match self.draw.random_range(0..100) {
            0..5 => 0,
            5..55 => self.draw.random_range(1..4 << 10),
            55..85 => self.draw.random_range(4 << 10..64 << 10),
            85..97 => self.draw.random_range(64 << 10..512 << 10),
            _ => self.draw.random_range(512 << 10..=2 << 20),
        }
    }

    /// Records a write that begins now: its place, its name, and what it makes of the key.
    fn begin(&mut self, key: &str, content: impl FnOnce(WriteId) -> Option<Content>) -> usize {
        let id = WriteId { client: self.number, sequence: self.writes.len() as u64 };
        let (key, begin) = (key.to_owned(), self.now());
        self.writes.push(Write { id, key, content: content(id), begin, acknowledged: None, given_up: None });
        self.writes.len() - 1
    }

    fn begin_new(&mut self, key: &str, bytes: usize) -> (usize, Content) {
        let content = |id: WriteId| Content { key: key.to_owned(), client: id.client, sequence: id.sequence, bytes };
        let at = self.begin(key, |id| Some(content(id)));
        (at, content(self.writes[at].id))
    }

    fn names(&self, at: usize, content: &Content) -> Vec<(&'static str, String)> {
        vec![(WRITE_HEADER, write_name(self.writes[at].id)), (CONTENT_HEADER, content.name())]
    }

    fn invocation(&mut self) -> (&'static str, String) {
        (INVOCATION, format!("{:032x}", self.draw.random::<u128>()))
    }

    fn put(&mut self, key: String, own: bool) -> Change {
        let bytes = self.size();
        let (at, content) = self.begin_new(&key, bytes);
        let mut headers = self.names(at, &content);
        headers.push(self.invocation());
        let change = Change::new(Method::PUT, path(&key), headers, content.body(), vec![at]);
        Change { fast: self.draw.random_bool(FAST).then_some(key), own, ..change }
    }

    fn put_own(&mut self, ways: &mut Ways<'_>, n: u32) -> Result<bool, LabError> {
        let change = self.put(own_key(self.number, n), true);
        let content = self.writes[change.writes[0]].content.clone();
        let done = self.send(ways, change)?;
        self.own[n as usize] = content.filter(|_| done);
        Ok(done)
    }

    fn copy(&mut self, ways: &mut Ways<'_>, n: u32, to: String) -> Result<bool, LabError> {
        let Some(content) = self.own[n as usize].clone() else { return self.read(ways, to) };
        let at = self.begin(&to, |_| Some(content.clone()));
        let mut headers = self.names(at, &content);
        headers.extend([
            (COPY_SOURCE, path(&own_key(self.number, n))),
            (DIRECTIVE, "REPLACE".to_owned()),
            self.invocation(),
        ]);
        self.send(ways, Change::new(Method::PUT, path(&to), headers, Vec::new(), vec![at]))
    }

    fn delete(&mut self, ways: &mut Ways<'_>, key: &str) -> Result<bool, LabError> {
        let at = self.begin(key, |_| None);
        let headers = vec![self.invocation()];
        self.send(ways, Change::new(Method::DELETE, path(key), headers, Vec::new(), vec![at]))
    }

    fn delete_objects(&mut self, ways: &mut Ways<'_>) -> Result<bool, LabError> {
        let first = self.draw.random_range(0..SHARED_KEYS);
        let keys: Vec<String> = (0..3).map(|n| shared_key((first + n) % SHARED_KEYS)).collect();
        let writes = keys.iter().map(|key| self.begin(key, |_| None)).collect();
        let objects: String = keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
        let body = format!("<Delete>{objects}</Delete>").into_bytes();
        let headers = vec![self.invocation()];
        self.send(ways, Change::new(Method::POST, format!("/{BUCKET}?delete="), headers, body, writes))
    }

    /// One part, or, seldom, two. Only the completion is a write; it is not repeated, since an upload that was
    /// completed is gone.
    fn upload(&mut self, ways: &mut Ways<'_>, key: String) -> Result<bool, LabError> {
        let tail = self.size();
        let parts = if self.draw.random_range(0..8) == 0 { vec![PART_MIN, tail.max(1)] } else { vec![tail] };
        let (at, content) = self.begin_new(&key, parts.iter().sum());
        let names = self.names(at, &content);
        let Some(made) = done(ways.http.call(&Method::POST, &format!("{}?uploads=", path(&key)), &names, b"")?) else {
            return Ok(false);
        };
        let text = String::from_utf8_lossy(&made.1).into_owned();
        let Some(upload) = element(&text, "UploadId") else { return Ok(false) };
        let (body, mut from, mut listed) = (content.body(), 0, String::new());
        for (n, length) in parts.iter().enumerate() {
            let target = format!("{}?partNumber={}&uploadId={upload}", path(&key), n + 1);
            let Some((head, _)) = done(ways.http.call(&Method::PUT, &target, &[], &body[from..from + length])?) else {
                return Ok(false);
            };
            from += length;
            let tag = crate::instrument::http_load::header(&head, "etag").unwrap_or_default();
            listed.push_str(&format!("<Part><PartNumber>{}</PartNumber><ETag>{tag}</ETag></Part>", n + 1));
        }
        let complete = format!("<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>");
        let target = format!("{}?uploadId={upload}", path(&key));
        let headers = [self.invocation()];
        let done = done(ways.http.call(&Method::POST, &target, &headers, complete.as_bytes())?).is_some();
        if done {
            self.writes[at].acknowledged = Some(self.now());
        }
        Ok(done)
    }

    /// Two writes of an own key, and the first again, as from a client that missed its answer: the second stays.
    fn repeat(&mut self, ways: &mut Ways<'_>, n: u32) -> Result<bool, LabError> {
        let first = self.put(own_key(self.number, n), true);
        let (method, path, body) = (first.method.clone(), first.path.clone(), first.body.clone());
        let headers = first.headers.clone();
        self.own[n as usize] = None;
        if !self.send(ways, first)? || !self.put_own(ways, n)? {
            return Ok(false);
        }
        ways.http.call(&method, &path, &headers, &body)?;
        self.read(ways, own_key(self.number, n))
    }

    fn read(&mut self, ways: &mut Ways<'_>, key: String) -> Result<bool, LabError> {
        let by_fast_path = self.draw.random_bool(FAST);
        let begin = self.now();
        let seen = ways.fast.as_mut().filter(|_| by_fast_path).and_then(|fast| fast.get(&key));
        let Ok(seen) = seen.map_or_else(|| get(&mut ways.http, &path(&key)), Ok)? else { return Ok(false) };
        self.reads.push(ReadRecord { key, begin, end: self.now(), seen, place: Place::Load });
        Ok(true)
    }

    /// Sends a change; without a success it may be repeated later, by the other way too: as a client does that finds the
    /// fast path broken.
    fn send(&mut self, ways: &mut Ways<'_>, mut change: Change) -> Result<bool, LabError> {
        let key = change.fast.as_ref().filter(|_| change.attempts == 0 || self.draw.random_bool(0.5));
        let by_fast_path = match (key, &mut ways.fast) {
            (Some(key), Some(fast)) => fast.put(key, &change.headers, &change.body),
            _ => None,
        };
        let fast_acknowledged = matches!(by_fast_path, Some(CallOutcome::Done { .. }));
        let answer = match by_fast_path {
            Some(answer) => answer,
            None => ways.http.call(&change.method, &change.path, &change.headers, &change.body)?,
        };
        if done(answer).is_some() {
            let now = self.now();
            for at in &change.writes {
                self.writes[*at].acknowledged = Some(now);
            }
            self.by_fast_path += u64::from(fast_acknowledged);
            return Ok(true);
        }
        change.attempts += 1;
        if change.own || (change.attempts < ATTEMPTS_MAX && (change.attempts > 1 || self.draw.random_bool(0.7))) {
            self.pending = Some(change);
        }
        Ok(false)
    }
}

fn done(answer: CallOutcome) -> Option<(String, Vec<u8>)> {
    match answer {
        CallOutcome::Done { head, body } => Some((head, body)),
        CallOutcome::Absent | CallOutcome::Refused(_) | CallOutcome::Broken(_) => None,
    }
}
