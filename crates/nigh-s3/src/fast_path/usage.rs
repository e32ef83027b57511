//! Counts what the fast path does and holds, over all its listeners.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use http::StatusCode;
use metrics::{Counter, Gauge, counter, gauge};
use nigh_terms::AccessKeyId;
use parking_lot::Mutex;

use super::held::HeldMax;
use super::holdings::{Holdings, Payer, Totals};
use super::replies::Reply;
use super::wire::BY_COPY;

/// What the fast path does and holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FastPathUsage {
    /// Number of open connections.
    pub connections: u64,
    /// Number of holders (sandboxes, and keys outside sandboxes) that hold something or are connected.
    pub holders: u64,
    /// The node's memory that the holders hold, in bytes.
    pub held_bytes: u64,
    /// Number of segments that the holders hold.
    pub held_segments: u64,
    /// Number of holders whose last request for memory found no room.
    pub over: u64,
    /// Number of answers since the start that gave a segment.
    pub segments: u64,
    /// Number of answers since the start that gave a small object's bytes in the packet.
    pub inline: u64,
    /// Number of answers since the start that gave a large object's bytes in the packet.
    pub copies: u64,
    /// Number of answers since the start that told the client to use HTTP.
    pub for_http: u64,
}

/// A counter that can be read, and that also counts for the meter.
struct CountedMeter {
    meter: Counter,
    number: AtomicU64,
}

impl CountedMeter {
    const fn new(meter: Counter) -> Self {
        Self { meter, number: AtomicU64::new(0) }
    }

    fn add(&self) {
        self.meter.increment(1);
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

/// The counts of the fast path, in addition to the requests that the S3 door counts.
pub(super) struct Meters {
    segments: CountedMeter,
    inline: CountedMeter,
    by_copy: CountedMeter,
    for_http: CountedMeter,
    connections: Gauge,
    connected: AtomicU64,
    held: Gauge,
    over: Gauge,
    listeners: Mutex<Vec<Weak<Holders>>>,
}

impl Meters {
    pub(super) fn new() -> Self {
        let answers = |way| CountedMeter::new(counter!("nigh_fast_path_answers_total", "way" => way));
        Self {
            segments: answers("segment"),
            inline: answers("inline"),
            by_copy: answers("copy"),
            for_http: answers("http"),
            connections: gauge!("nigh_fast_path_connections"),
            connected: AtomicU64::new(0),
            held: gauge!("nigh_fast_path_held_bytes"),
            over: gauge!("nigh_fast_path_holders_over"),
            listeners: Mutex::default(),
        }
    }

    pub(super) fn answered(&self, reply: &Reply) {
        if reply.descriptor.is_some() {
            self.segments.add();
        } else if reply.status() == StatusCode::TEMPORARY_REDIRECT {
            self.for_http.add();
        } else if reply.flags & BY_COPY != 0 {
            self.by_copy.add();
        } else if !reply.body.is_empty() {
            self.inline.add();
        }
    }

    pub(super) fn connected(&self) {
        self.connections.increment(1);
        self.connected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn disconnected(&self) {
        self.connections.decrement(1);
        self.connected.fetch_sub(1, Ordering::Relaxed);
    }

    /// Includes the holders of a new listener in the usage for as long as they live.
    pub(super) fn listens(&self, holders: &Arc<Holders>) {
        let mut listeners = self.listeners.lock();
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(holders));
    }

    pub(super) fn usage(&self) -> FastPathUsage {
        let listeners: Vec<_> = self.listeners.lock().iter().filter_map(Weak::upgrade).collect();
        let all = listeners.iter().flat_map(|holders| holders.all()).map(|holdings| holdings.totals());
        let none = FastPathUsage {
            connections: self.connected.load(Ordering::Relaxed),
            segments: self.segments.number(),
            inline: self.inline.number(),
            copies: self.by_copy.number(),
            for_http: self.for_http.number(),
            ..FastPathUsage::default()
        };
        all.fold(none, |usage, Totals { bytes, segments, is_over }| FastPathUsage {
            holders: usage.holders + 1,
            held_bytes: usage.held_bytes + bytes,
            held_segments: usage.held_segments + segments as u64,
            over: usage.over + u64::from(is_over),
            ..usage
        })
    }
}

/// The holdings of each key that one listener has seen.
pub(super) struct Holders {
    max: HeldMax,
    /// Pays for what the keys hold. None outside sandboxes.
    payer: Option<Arc<dyn Payer>>,
    by_key: Mutex<HashMap<AccessKeyId, Arc<Holdings>>>,
}

impl Holders {
    pub(super) fn new(max: HeldMax, payer: Option<Arc<dyn Payer>>) -> Arc<Self> {
        Arc::new(Self { max, payer, by_key: Mutex::default() })
    }

    pub(super) fn of(&self, key: &AccessKeyId) -> Arc<Holdings> {
        let new = || Holdings::new(self.max, self.payer.clone());
        Arc::clone(self.by_key.lock().entry(key.clone()).or_insert_with(new))
    }

    fn all(&self) -> Vec<Arc<Holdings>> {
        self.by_key.lock().values().cloned().collect()
    }

    /// Checks some segments of each holder, and forgets holders that hold nothing and are not connected. Returns the
    /// bytes that still count, and the number of holders over their cap.
    fn look_around(&self) -> (u64, u64) {
        let all = self.all();
        let sums = all.iter().fold((0, 0), |(bytes, over), holdings| {
            holdings.look_around();
            let totals = holdings.totals();
            (bytes + totals.bytes, over + u64::from(totals.is_over))
        });
        drop(all);
        self.by_key.lock().retain(|_, holdings| Arc::strong_count(holdings) > 1 || holdings.totals().segments > 0);
        sums
    }
}

/// The part of the gauges that one listener contributes; several listeners share the gauges.
pub(super) struct Share<'m> {
    meters: &'m Meters,
    told: (u64, u64),
}

impl<'m> Share<'m> {
    pub(super) const fn new(meters: &'m Meters) -> Self {
        Self { meters, told: (0, 0) }
    }

    /// Checks some segments of `holders`, and updates the gauges.
    pub(super) fn look_around(&mut self, holders: &Holders) {
        self.tell(holders.look_around());
    }

    fn tell(&mut self, now: (u64, u64)) {
        self.meters.held.increment(now.0 as f64 - self.told.0 as f64);
        self.meters.over.increment(now.1 as f64 - self.told.1 as f64);
        self.told = now;
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.tell((0, 0));
    }
}
