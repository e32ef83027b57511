//! One node's cache, message by message.

use nigh_terms::{Incarnation, Sequence};

use super::*;
use crate::{Attempt, Copy, Counter, Cover, FromHome, NodeNumber, Refusal, Reply};

const SHARD: ShardId = ShardId(0);
const OTHER: ShardId = ShardId(1);
const NOW: Monotonic = Monotonic(0);
const ME: Member = Member { node: NodeNumber(1), incarnation: Incarnation(1) };

type Cache = NodeCache<&'static str, u32>;
type Outputs = Vec<CacheOutput<&'static str, u32>>;

const fn version(epoch: u64, sequence: u64) -> Version {
    Version { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

const fn cover(counter: u64, sequence: u64) -> Cover {
    Cover { counter: Counter(counter), through: version(1, sequence) }
}

const fn stamp(sequence: u64) -> Stamp {
    Stamp { version: version(1, sequence), others: None }
}

fn cache() -> Cache {
    let mut cache = Cache::new(ME, CacheLimits::default(), Contract);
    cache.meet(NOW, SHARD, Epoch(1), &mut Vec::new());
    cache.meet(NOW, OTHER, Epoch(1), &mut Vec::new());
    cache
}

fn read(cache: &mut Cache) -> (ReadDecision<u32>, Outputs) {
    let mut out = Vec::new();
    (cache.read(NOW, SHARD, &"x", false, &mut out), out)
}

fn shared(cache: &mut Cache) -> RequestId {
    match read(cache).0 {
        ReadDecision::Shared(request) => request,
        other => panic!("{other:?}"),
    }
}

fn write(cache: &mut Cache) -> RequestId {
    cache.write(NOW, SHARD, &"x", Write::Put, Arc::new(Token::empty()), &mut Vec::new())
}

fn hear(cache: &mut Cache, body: FromHome<&'static str>, value: Option<u32>) -> Outputs {
    let mut out = Vec::new();
    cache.receive(NOW, Reply { shard: SHARD, epoch: Epoch(1), to: ME, body }, value, &mut out);
    out
}

fn found(request: RequestId, number: u32, stamp: Stamp, cover: Cover) -> FromHome<&'static str> {
    FromHome::Found { attempt: Attempt { request, number }, object: "x", stamp, absent: false, cover }
}

fn invalidate(counter: u64, sequence: u64) -> FromHome<&'static str> {
    let version = version(1, sequence);
    FromHome::Invalidate { counter: Counter(counter), object: "x", version, recall: false }
}

fn landed(out: &Outputs) -> Vec<(Version, Option<u32>, bool)> {
    let landed = out.iter().filter_map(|output| match output {
        CacheOutput::Landed { stamp, value, kept, .. } => Some((stamp.version, *value, *kept)),
        _ => None,
    });
    landed.collect()
}

#[test]
fn reads_share_one_fetch_and_hit_after_it() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    let (joined, sent) = read(&mut cache);
    assert_eq!((joined, sent), (ReadDecision::Shared(fetch), Vec::new()));
    let out = hear(&mut cache, found(fetch, 0, stamp(1), cover(0, 1)), Some(7));
    assert_eq!(landed(&out), [(version(1, 1), Some(7), true)]);
    assert_eq!(
        read(&mut cache),
        (ReadDecision::Hit(Copy { stamp: stamp(1), value: 7 }), Vec::new()),
        "a hit asks nobody"
    );
    assert!(cache.requests.is_empty() && cache.work.is_empty(), "nothing is left of the fetch");
    assert_eq!(cache.copies_mut().remove(&"x"), Some(7));
    assert!(matches!(read(&mut cache).0, ReadDecision::Shared(_)));
}

#[test]
fn an_answer_below_the_floor_is_asked_for_again_and_its_doubles_count_for_nothing() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    hear(&mut cache, invalidate(1, 2), None);
    let out = hear(&mut cache, found(fetch, 0, stamp(1), cover(0, 1)), Some(7));
    assert!(landed(&out).is_empty() && out.contains(&CacheOutput::Dropped(7)));
    assert!(
        matches!(out.last(), Some(CacheOutput::Send(_, Request { body: ToHome::Fetch { attempt, .. }, .. })) if attempt.number == 1)
    );
    let out = hear(&mut cache, found(fetch, 0, stamp(2), cover(1, 2)), Some(8));
    assert_eq!(landed(&out), [], "an answer to the first asking");
    let out = hear(&mut cache, found(fetch, 1, stamp(2), cover(1, 2)), Some(9));
    assert_eq!(landed(&out), [(version(1, 2), Some(9), true)]);
    assert_eq!(hear(&mut cache, found(fetch, 1, stamp(2), cover(1, 2)), Some(9)), [CacheOutput::Dropped(9)]);
}

#[test]
fn a_fetch_begun_before_a_write_is_neither_joined_nor_kept_after_it() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    let put = write(&mut cache);
    assert!(
        matches!(read(&mut cache).0, ReadDecision::Private(other) if other != fetch),
        "reads go past while it lasts"
    );
    let written = FromHome::Written { request: put, stamp: stamp(2), cover: cover(0, 2) };
    let out = hear(&mut cache, written, Some(8));
    assert!(matches!(out.last(), Some(CacheOutput::Wrote { kept: true, .. })));
    let out = hear(&mut cache, found(fetch, 0, stamp(1), cover(0, 1)), Some(7));
    assert_eq!(landed(&out), []);
    assert_eq!(read(&mut cache).0, ReadDecision::Hit(Copy { stamp: stamp(2), value: 8 }));
}

#[test]
fn who_is_given_up_by_one_home_asks_no_other_again_for_a_put() {
    let mut cache = cache();
    write(&mut cache);
    let refused = FromHome::Refused { request: None, reason: Refusal::GivenUp, through: version(1, 1) };
    let reply = Reply { shard: OTHER, epoch: Epoch(1), to: ME, body: refused };
    let mut out = Vec::new();
    cache.receive(NOW, reply, None, &mut out);
    assert_eq!(out, [CacheOutput::Rejoin]);
    out.clear();
    cache.tick(Monotonic(u64::MAX), &mut out);
    cache.meet(NOW, SHARD, Epoch(2), &mut out);
    assert!(!out.iter().any(|output| matches!(output, CacheOutput::Send(..))), "{out:?}");
}

#[test]
fn an_acknowledgement_that_a_newer_write_overtook_leaves_no_copy() {
    let mut cache = cache();
    let put = write(&mut cache);
    hear(&mut cache, invalidate(1, 3), None);
    let written = FromHome::Written { request: put, stamp: stamp(2), cover: cover(0, 2) };
    let out = hear(&mut cache, written, Some(8));
    assert!(out.contains(&CacheOutput::Dropped(8)));
    assert!(matches!(out.last(), Some(CacheOutput::Wrote { outcome: Ok(_), kept: false, .. })));
    assert!(cache.copies().version(&"x").is_none());
}

#[test]
fn a_write_of_an_earlier_epoch_leaves_no_copy_when_its_successor_acknowledges_it() {
    let mut cache = cache();
    let put = write(&mut cache);
    cache.meet(NOW, SHARD, Epoch(2), &mut Vec::new());
    let cover = Cover { counter: Counter(0), through: version(2, 0) };
    let body = FromHome::Written { request: put, stamp: stamp(2), cover };
    let mut out = Vec::new();
    cache.receive(NOW, Reply { shard: SHARD, epoch: Epoch(2), to: ME, body }, Some(8), &mut out);
    assert!(matches!(out.last(), Some(CacheOutput::Wrote { outcome: Ok(_), kept: false, .. })), "{out:?}");
    assert!(
        cache.copies().version(&"x").is_none(),
        "the new home has no sharer of it, and tells nobody of the next write"
    );
}

#[test]
fn what_is_not_covered_waits_for_the_invalidations_before_it() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    let out = hear(&mut cache, found(fetch, 0, stamp(4), cover(2, 4)), Some(7));
    assert_eq!(landed(&out), []);
    hear(
        &mut cache,
        FromHome::Invalidate { counter: Counter(2), object: "y", version: version(1, 3), recall: false },
        None,
    );
    let y = FromHome::Invalidate { counter: Counter(1), object: "z", version: version(1, 2), recall: false };
    assert_eq!(landed(&hear(&mut cache, y, None)), [(version(1, 4), Some(7), true)]);
}

#[test]
fn a_request_without_an_answer_is_sent_again_ever_more_rarely_and_at_once_in_a_new_epoch() {
    let mut cache = cache();
    let CacheLimits { resend, resend_max, .. } = CacheLimits::default();
    let is_sent = |out: &Outputs| out.iter().any(|output| matches!(output, CacheOutput::Send(SHARD, _)));
    let mut begun = Vec::new();
    let _ = cache.write(NOW, SHARD, &"x", Write::Put, Arc::new(Token::empty()), &mut begun);
    assert!(is_sent(&begun));
    let mut sent = Vec::new();
    for tick in 1..=500 {
        let mut out = Vec::new();
        cache.tick(NOW.after(resend / 10 * tick), &mut out);
        if is_sent(&out) {
            sent.push(resend / 10 * tick);
        }
    }
    let pauses: Vec<Duration> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!((sent[0], &pauses[..3]), (resend, &[resend * 2, resend * 4, resend * 8][..]));
    assert_eq!((pauses[2], pauses.iter().max()), (resend_max, Some(&resend_max)));
    let (met, mut out) = (NOW.after(resend * 51), Vec::new());
    cache.meet(met, SHARD, Epoch(2), &mut out);
    assert!(is_sent(&out), "the next home is asked at once");
    let mut again = Vec::new();
    cache.tick(met.after(resend), &mut again);
    assert!(is_sent(&again), "and soon again");
}

#[test]
fn what_a_version_says_of_other_shards_is_asked_of_their_homes() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    let mut token = Token::empty();
    token.see(OTHER, version(1, 9));
    let stamp = Stamp { version: version(1, 1), others: Some(Arc::new(token)) };
    let out = hear(&mut cache, found(fetch, 0, stamp, cover(0, 1)), Some(7));
    let asks = |out: &Outputs| {
        out.iter()
            .filter(|output| matches!(output, CacheOutput::Send(OTHER, Request { body: ToHome::Ask { .. }, .. })))
            .count()
    };
    assert_eq!((landed(&out).len(), asks(&out)), (0, 1));
    let mut again = Vec::new();
    cache.tick(Monotonic(CacheLimits::default().resend.as_nanos() as u64), &mut again);
    assert_eq!(asks(&again), 1, "a question that is not answered is asked again");
    let mut out = Vec::new();
    let body = FromHome::Covers { cover: cover(0, 9) };
    cache.receive(NOW, Reply { shard: OTHER, epoch: Epoch(1), to: ME, body }, None, &mut out);
    assert_eq!(landed(&out), [(version(1, 1), Some(7), true)]);
}

#[test]
fn what_waits_for_a_version_of_an_old_epoch_is_shown_when_the_shard_map_names_a_new_one() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    let mut token = Token::empty();
    token.see(OTHER, version(1, 9));
    let stamp = Stamp { version: version(1, 1), others: Some(Arc::new(token)) };
    assert_eq!(landed(&hear(&mut cache, found(fetch, 0, stamp, cover(0, 1)), Some(7))), []);
    let mut out = Vec::new();
    cache.meet(NOW, OTHER, Epoch(2), &mut out);
    assert_eq!(landed(&out), [(version(1, 1), Some(7), true)]);
}

#[test]
fn a_higher_epoch_drops_the_copies_and_asks_again_for_what_is_outstanding() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    hear(&mut cache, found(fetch, 0, stamp(1), cover(0, 1)), Some(7));
    let put = cache.write(NOW, SHARD, &"y", Write::Put, Arc::new(Token::empty()), &mut Vec::new());
    let mut out = Vec::new();
    cache.meet(NOW, SHARD, Epoch(2), &mut out);
    assert!(out.contains(&CacheOutput::Dropped(7)));
    assert!(
        matches!(out.last(), Some(CacheOutput::Send(_, Request { epoch: Epoch(2), body: ToHome::Put { request, .. }, .. })) if *request == put)
    );
    let late = FromHome::Written { request: put, stamp: stamp(2), cover: cover(0, 2) };
    assert_eq!(hear(&mut cache, late, Some(8)), [CacheOutput::Dropped(8)], "the old home no longer counts");
}

#[test]
fn a_recalled_copy_goes_and_what_is_on_its_way_is_not_kept() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    let recall = FromHome::Invalidate { counter: Counter(1), object: "x", version: version(1, 1), recall: true };
    hear(&mut cache, recall, None);
    assert!(matches!(read(&mut cache).0, ReadDecision::Shared(other) if other != fetch));
    let out = hear(&mut cache, found(fetch, 0, stamp(1), cover(0, 1)), Some(7));
    assert_eq!(landed(&out), [(version(1, 1), Some(7), false)]);
    assert!(cache.copies().version(&"x").is_none());
}

#[test]
fn a_new_home_that_counts_an_object_as_older_than_the_last_one_did_is_believed() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    // The last home had forgotten the object, and found it again: as old as all that it had forgotten.
    let recall = FromHome::Invalidate { counter: Counter(1), object: "x", version: version(1, 9), recall: true };
    hear(&mut cache, recall, None);
    let later = shared(&mut cache);
    cache.meet(NOW, SHARD, Epoch(2), &mut Vec::new());
    // The next one has the object's own version from the ledger.
    let mut hear = |request, value| {
        let cover = Cover { counter: Counter(0), through: version(2, 0) };
        let (body, mut out) = (found(request, 1, stamp(5), cover), Vec::new());
        cache.receive(NOW, Reply { shard: SHARD, epoch: Epoch(2), to: ME, body }, Some(value), &mut out);
        landed(&out)
    };
    assert_eq!(hear(fetch, 7), [(version(1, 5), Some(7), false)]);
    assert_eq!(hear(later, 8), [(version(1, 5), Some(8), true)]);
    assert!(cache.requests.is_empty() && cache.work.is_empty());
}

#[test]
fn a_node_that_was_given_up_learns_it_and_hears_nothing_more() {
    let mut cache = cache();
    let put = write(&mut cache);
    let through = version(1, 5);
    let refused = FromHome::Refused { request: Some(put), reason: Refusal::GivenUp, through };
    let out = hear(&mut cache, refused, None);
    assert!(matches!(
        out[..],
        [CacheOutput::Wrote { outcome: Err(PutFailure::GivenUp { .. }), .. }, CacheOutput::Rejoin]
    ));
    assert!(cache.is_given_up());
    assert_eq!(hear(&mut cache, FromHome::Covers { cover: cover(0, 9) }, None), []);
}

#[test]
fn a_fetch_whose_bytes_cannot_be_had_leaves_nothing_behind() {
    let mut cache = cache();
    let fetch = shared(&mut cache);
    assert_eq!(cache.give_up_fetch(fetch), None);
    assert!(cache.requests.is_empty() && cache.work.is_empty());
    assert!(matches!(read(&mut cache).0, ReadDecision::Shared(other) if other != fetch));
}
