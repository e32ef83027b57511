//! The race: clients of the node and of the store on the same keys, a few at a time.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::clients::{Client, ClientEndpoint};
use super::verdict::{Moment, OutsideFinding, OutsideRead, Write};
use super::world::World;
use super::{BUCKET, Mode};
use crate::LabError;
use crate::experiment::client_calls::element;
use crate::instrument::parallel::joined;
use crate::instrument::platform::until_pushed;

const CLIENTS: u64 = 2;
/// Keys that are raced for at a time, and for how long.
const KEYS: u64 = 4;
const WINDOW: Duration = Duration::from_millis(500);
/// Of objects, bytes beside their head.
const BYTES_MAX: usize = 40_000;
/// How long the end is waited for: nothing waits for the store any more.
const QUIET_WITHIN: Duration = Duration::from_secs(60);
/// Of a refusal's text.
const REFUSAL_MAX: usize = 300;
const LOOK_EVERY: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct History {
    pub(super) writes: Vec<Write>,
    pub(super) reads: Vec<OutsideRead>,
    /// Writes of which the bucket has a version under another key.
    pub(super) kept_apart: HashSet<u64>,
    pub(super) refused: u64,
    pub(super) refusal: Option<String>,
}

impl History {
    fn refuse(&mut self, what: &str, why: &str) {
        self.refused += 1;
        self.refusal.get_or_insert_with(|| format!("{what}: {}", why.chars().take(REFUSAL_MAX).collect::<String>()));
    }
}

/// Races for `length`, waits until nothing waits, and reads every key on both sides.
pub(super) fn race(world: &World, length: Duration, seed: u64) -> Result<History, LabError> {
    let (begun, ids) = (Instant::now(), AtomicU64::new(1));
    let run = |number: u64, by_nigh: bool| {
        let asked = if by_nigh { &world.nigh } else { &world.store };
        let draw =
            StdRng::seed_from_u64(seed ^ (2 * number + u64::from(by_nigh) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Racer { asked, by_nigh, draw, begun, ids: &ids }.run(length)
    };
    let all = std::thread::scope(|scope| {
        let run = &run;
        let racers = (0..CLIENTS).flat_map(|number| [(number, true), (number, false)]);
        let threads: Vec<_> = racers.map(|(number, by_nigh)| scope.spawn(move || run(number, by_nigh))).collect();
        joined(threads)
    })?;
    let mut history = History::default();
    for part in all {
        let History { writes, reads, refused, refusal, .. } = part;
        history.writes.extend(writes);
        history.reads.extend(reads);
        history.refused += refused;
        history.refusal = history.refusal.take().or(refusal);
    }
    if world.mode != Mode::Ephemeral {
        world.handle.block_on(until_pushed(&world.node.endpoints.admin_socket, QUIET_WITHIN))?;
    }
    look(world, begun, &mut history)?;
    Ok(history)
}

struct Racer<'a> {
    asked: &'a ClientEndpoint,
    by_nigh: bool,
    draw: StdRng,
    begun: Instant,
    ids: &'a AtomicU64,
}

fn now(begun: Instant) -> Moment {
    begun.elapsed().as_nanos() as Moment
}

impl Racer<'_> {
    fn run(mut self, length: Duration) -> Result<History, LabError> {
        let mut client = self.asked.client();
        let mut history = History::default();
        while self.begun.elapsed() < length {
            let window = self.begun.elapsed().as_millis() as u64 / WINDOW.as_millis() as u64;
            let key = format!("k{}", window * KEYS + self.draw.random_range(0..KEYS));
            let (what, bytes) = (self.draw.random_range(0..100), self.draw.random_range(0..BYTES_MAX));
            let begin = now(self.begun);
            if what >= 35 {
                match client.get(&key)? {
                    Ok(seen) => {
                        let (by_nigh, end) = (self.by_nigh, now(self.begun));
                        history.reads.push(OutsideRead { key, by_nigh, begin, end, seen, last: false });
                    }
                    Err(why) => history.refuse(&format!("a read of {key}, by Nigh: {}", self.by_nigh), &why),
                }
                continue;
            }
            let (id, deletes) = (self.ids.fetch_add(1, Ordering::Relaxed), what < 7);
            let found = match deletes && !self.by_nigh {
                true => self.look_before(&mut client, &key, &mut history)?,
                false => None,
            };
            let begin = now(self.begun);
            let done = if deletes { client.delete(&key)? } else { client.put(&key, id, bytes)? };
            let acknowledged = done.is_ok().then(|| now(self.begun));
            if let Err(why) = done {
                history.refuse(&format!("a write of {key}, by Nigh: {}", self.by_nigh), &why);
            }
            history.writes.push(Write { id, key, by_nigh: self.by_nigh, deletes, begin, acknowledged, found });
        }
        Ok(history)
    }

    /// Reads what is about to be deleted. Returns when the read began, if there was an object.
    fn look_before(
        &self,
        client: &mut Client<'_>,
        key: &str,
        history: &mut History,
    ) -> Result<Option<Moment>, LabError> {
        let begin = now(self.begun);
        match client.get(key)? {
            Ok(seen) => {
                let found = (seen != OutsideFinding::Absent).then_some(begin);
                let (by_nigh, end) = (self.by_nigh, now(self.begun));
                history.reads.push(OutsideRead { key: key.to_owned(), by_nigh, begin, end, seen, last: false });
                Ok(found)
            }
            Err(why) => {
                history.refuse(&format!("a read of {key}, by Nigh: {}", self.by_nigh), &why);
                Ok(None)
            }
        }
    }
}

/// Reads every key on both sides, and what is kept apart.
fn look(world: &World, begun: Instant, history: &mut History) -> Result<(), LabError> {
    let keys: HashSet<&str> = history.writes.iter().map(|write| write.key.as_str()).collect();
    let mut keys: Vec<String> = keys.into_iter().map(str::to_owned).collect();
    keys.sort_unstable();
    let (mut outside, mut nigh) = (world.store.client(), world.nigh.client());
    for key in keys {
        for (client, by_nigh) in [(&mut outside, false), (&mut nigh, true)] {
            let since = Instant::now();
            let (begin, seen) = loop {
                let begin = now(begun);
                match client.get(&key)? {
                    Ok(seen) => break (begin, seen),
                    Err(reason) if since.elapsed() > QUIET_WITHIN => {
                        return Err(LabError::Request {
                            what: format!("{key}, by Nigh: {by_nigh}, in the end"),
                            reason,
                        });
                    }
                    Err(_) => std::thread::sleep(LOOK_EVERY),
                }
            };
            let end = now(begun);
            history.reads.push(OutsideRead { key: key.clone(), by_nigh, begin, end, seen, last: true });
        }
    }
    let mut after = String::new();
    loop {
        let path = format!("/{BUCKET}?list-type=2&start-after={after}");
        let failed = |reason| LabError::Request { what: format!("listing {BUCKET}"), reason };
        let page = world.ask_nigh(&Method::GET, &path, b"")?.body().map_err(failed)?.unwrap_or_default();
        let page = String::from_utf8_lossy(&page);
        let listed: Vec<&str> = page.split("<Contents>").skip(1).filter_map(|entry| element(entry, "Key")).collect();
        for key in listed.iter().filter(|key| key.contains(".nigh-conflict-")) {
            if let Ok(OutsideFinding::Write(id)) = nigh.get(key)? {
                history.kept_apart.insert(id);
            }
        }
        match listed.last() {
            Some(last) if listed.len() == 1000 => after = (*last).to_owned(),
            _ => return Ok(()),
        }
    }
}
