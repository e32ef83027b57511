//! A day of applications in virtual time, with the node's own learning, judgement of prefetches, and eviction; the store is a time
//! for each fetch.

use std::collections::HashMap;

use nigh_data::NamePrint;
use nigh_data::ObjectId;
use nigh_data::fetch_us;
use nigh_objects::eviction::{DEFAULT_DOUBTFUL, Order, Origin, S3Fifo};
use nigh_schedule::activation::touched::TouchedObject;
use nigh_schedule::inputs::application_objects::{ApplicationObjects, FinishedRun, Names};
use nigh_schedule::inputs::payload_walk::PayloadWalk;
use nigh_schedule::inputs::prefetch::{PrefetchUse, Prefetches};
use nigh_terms::{BucketName, FunctionName, Monotonic, Namespace, ObjectKey};

use super::applications::{Application, Object, RunObjects, Start};
use crate::LabError;
use crate::instrument::made_up::name;
use crate::instrument::simulated_copies::SimulatedCopies;

/// Objects that are fetched at a time, as in the node.
const LANES: usize = 4;
/// From a function's end to the beginning of the next.
const HAND_ON_US: f64 = 2_000.0;

#[derive(Clone, Debug, Default)]
pub(super) struct Day {
    /// Reads of following functions, without parts of the same run.
    pub(super) reads: u64,
    /// The reads among these that did not wait.
    pub(super) hits: u64,
    /// The wait of each, milliseconds.
    pub(super) waits_ms: Vec<f64>,
    /// The wait of the first read of each following function, milliseconds.
    pub(super) first_waits_ms: Vec<f64>,
    pub(super) store_bytes: u64,
    pub(super) prefetch: PrefetchUse,
}

struct Player<'a> {
    namespace: Namespace,
    bucket: BucketName,
    copies: SimulatedCopies<S3Fifo>,
    /// When the objects on their way will be cached, microseconds.
    arrives: HashMap<u64, f64>,
    learned: ApplicationObjects,
    prefetches: Prefetches,
    prewarms: bool,
    day: &'a mut Day,
}

fn at(us: f64) -> Monotonic {
    Monotonic::default().after(std::time::Duration::from_micros(us as u64))
}

impl Player<'_> {
    fn print(&self, key: &ObjectKey) -> NamePrint {
        let (namespace, bucket) = (self.namespace.clone(), self.bucket.clone());
        NamePrint::of(&ObjectId { namespace, bucket, key: key.clone() })
    }

    /// Reads an object at `now`. Returns the wait.
    fn read(&mut self, object: &Object, now: f64) -> f64 {
        let print = self.print(&object.key).0;
        if self.copies.touch(print) {
            return self.arrives.remove(&print).map_or(0.0, |there| (there - now).max(0.0));
        }
        self.day.store_bytes += object.bytes;
        self.copies.insert(print, object.bytes, Origin::Read, |_| ());
        fetch_us(object.bytes)
    }

    fn touched(&self, object: &Object, wrote: bool) -> TouchedObject {
        TouchedObject { bucket: self.bucket.clone(), key: object.key.clone(), bytes: object.bytes, wrote }
    }

    /// Prefetches the objects that will probably be read.
    fn prewarm(&mut self, application: &Application, names: &Names, now: f64) {
        let first = (self.namespace.clone(), application.functions[0].clone());
        let expected = self.learned.reads_after(&first.1, names);
        if expected.is_empty() || !self.prefetches.may(&first, at(now)) {
            return;
        }
        let mut lanes = [now; LANES];
        for one in expected {
            let print = self.print(&one.key);
            if self.copies.has(print.0) || !self.copies.takes_guests() {
                continue;
            }
            if self.copies.insert(print.0, one.bytes, Origin::Read, |_| ()) {
                let free = (0..LANES).min_by(|one, other| lanes[*one].total_cmp(&lanes[*other])).unwrap_or(0);
                lanes[free] += fetch_us(one.bytes);
                self.arrives.insert(print.0, lanes[free]);
                self.day.store_bytes += one.bytes;
                self.prefetches.brought(&first, print, one.bytes, at(now));
            }
        }
    }

    fn ended(&mut self, function: &FunctionName, walk: &PayloadWalk, touched: &[TouchedObject], now: f64) {
        for one in touched.iter().filter(|one| !one.wrote) {
            self.prefetches.read(NamePrint::of(&one.object(&self.namespace)));
        }
        self.prefetches.settle(at(now));
        // Payloads name objects of the one bucket.
        let named: Vec<NamePrint> = walk.objects.iter().map(|named| self.print(&named.key)).collect();
        let (namespace, names) = (&self.namespace, &Names::of(walk));
        self.learned.ended(&FinishedRun { namespace, function, names, named: &named, touched });
    }

    fn follow(&mut self, function: &FunctionName, part: &Object, reads: &[Object], now: f64) -> f64 {
        let mut now = now + HAND_ON_US;
        now += self.read(part, now);
        let mut touched = vec![self.touched(part, false)];
        for (place, object) in reads.iter().enumerate() {
            let wait = self.read(object, now);
            now += wait;
            self.day.reads += 1;
            self.day.hits += u64::from(wait == 0.0);
            self.day.waits_ms.push(wait / 1e3);
            if place == 0 {
                self.day.first_waits_ms.push(wait / 1e3);
            }
            touched.push(self.touched(object, false));
        }
        self.ended(function, &PayloadWalk::default(), &touched, now);
        now
    }

    fn run(&mut self, application: &Application, start: &Start, objects: &RunObjects) {
        let mut now = start.at_s * 1e6;
        self.copies.advance(start.at_s);
        let walk = PayloadWalk::of(objects.payload.as_bytes());
        if self.prewarms {
            self.prewarm(application, &Names::of(&walk), now);
        }
        now += self.read(&objects.input, now) + application.work_us;
        self.copies.insert(self.print(&objects.part.key).0, objects.part.bytes, Origin::Written, |_| ());
        let touched = [self.touched(&objects.input, false), self.touched(&objects.part, true)];
        self.ended(&application.functions[0], &walk, &touched, now);
        // Both read the part: this shows that they follow the first function.
        now = self.follow(&application.functions[1], &objects.part, &objects.second, now) + application.work_us;
        self.follow(&application.functions[2], &objects.part, &objects.third, now);
    }
}

/// Plays the day in a cache of `budget` bytes.
pub(super) fn play(
    applications: &[Application],
    starts: &[Start],
    budget: u64,
    prewarms: bool,
) -> Result<Day, LabError> {
    let mut day = Day::default();
    let mut player = Player {
        namespace: name("tenant")?,
        bucket: name("objects")?,
        copies: SimulatedCopies::new(Order::new(S3Fifo::default(), DEFAULT_DOUBTFUL), budget),
        arrives: HashMap::new(),
        learned: ApplicationObjects::default(),
        prefetches: Prefetches::default(),
        prewarms,
        day: &mut day,
    };
    for start in starts {
        let application = &applications[start.application];
        player.run(application, start, &application.objects(start)?);
    }
    // Prefetched objects that nobody has read by the end are wasted.
    player.prefetches.settle(at(starts.last().map_or(0.0, |last| last.at_s * 1e6 + 600e6)));
    player.day.prefetch = player.prefetches.all();
    Ok(day)
}
