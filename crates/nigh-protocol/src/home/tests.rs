//! One home, input by input.

use std::time::Duration;

use nigh_terms::{Incarnation, Sequence};

use super::*;
use crate::{Counter, Cover, NodeNumber, Refusal, ToHome};

const SHARD: ShardId = ShardId(0);
const NOW: Monotonic = Monotonic(0);

const fn version(epoch: u64, sequence: u64) -> Version {
    Version { epoch: Epoch(epoch), sequence: Sequence(sequence) }
}

const fn member(node: u32, incarnation: u64) -> Member {
    Member { node: NodeNumber(node), incarnation: Incarnation(incarnation) }
}

fn home(epoch: u64, records: Vec<ReplayedRecord<&'static str>>, limits: HomeLimits) -> Home<&'static str> {
    let takeover = Takeover { shard: SHARD, epoch: Epoch(epoch), records, summary: Token::empty(), resident: None };
    Home::begin(takeover, limits, Contract)
}

fn step(home: &mut Home<&'static str>, input: HomeInput<&'static str>) -> Vec<HomeOutput<&'static str>> {
    let mut out = Vec::new();
    home.step(NOW, input, &mut out);
    out
}

fn says(from: Member, body: ToHome<&'static str>) -> HomeInput<&'static str> {
    HomeInput::Request(Request { from, epoch: Epoch(1), body })
}

fn fetch(home: &mut Home<&'static str>, from: Member, object: &'static str) -> Vec<HomeOutput<&'static str>> {
    let attempt = Attempt { request: RequestId(0), number: 0 };
    step(home, says(from, ToHome::Fetch { attempt, object, shared: true }))
}

fn put(from: Member, request: u64, settled: u64) -> HomeInput<&'static str> {
    let token = Arc::new(Token::empty());
    let (request, settled) = (RequestId(request), RequestId(settled));
    says(from, ToHome::Put { request, object: "x", write: Write::Put, token, settled })
}

fn write(home: &mut Home<&'static str>, from: Member, request: u64, sequence: u64) -> Vec<HomeOutput<&'static str>> {
    let asked = step(home, put(from, request, request));
    let Some(HomeOutput::Append { append, .. }) = asked.last() else { panic!("{asked:?}") };
    step(home, HomeInput::Appended { append: *append, version: version(1, sequence) })
}

fn bodies<'a>(out: &'a [HomeOutput<&'static str>]) -> Vec<(Member, &'a FromHome<&'static str>)> {
    let sent = out.iter().filter_map(|output| match output {
        HomeOutput::Send(reply) => Some((reply.to, &reply.body)),
        _ => None,
    });
    sent.collect()
}

#[test]
fn a_directory_entry_takes_at_most_128_bytes() {
    // The table is at least 7/16 full after it has grown, and has one byte a slot of its own.
    let worst = (size_of::<Entry>() + 1) * 16 / 7;
    assert!(worst <= 128, "{} bytes an entry, {worst} in the worst case", size_of::<Entry>());
}

#[test]
fn a_put_is_acknowledged_at_once_and_invalidates_every_other_sharer() {
    let mut home = home(1, Vec::new(), HomeLimits::default());
    for node in 1..=5 {
        assert!(matches!(fetch(&mut home, member(node, 1), "x")[..], [HomeOutput::Load("x")]) || node > 1);
    }
    let found = step(&mut home, HomeInput::Loaded { object: "x", absent: false });
    assert_eq!(bodies(&found).len(), 5, "one look into the store serves all");
    let out = write(&mut home, member(1, 1), 7, 1);
    let told = bodies(&out);
    for node in 2..=5 {
        let invalidated = told.iter().any(|(to, body)| {
            *to == member(node, 1)
                && matches!(body, FromHome::Invalidate { counter: Counter(1), object: "x", recall: false, .. })
        });
        assert!(invalidated, "{node}: {told:?}");
    }
    assert!(matches!(told.last(), Some((to, FromHome::Written { .. })) if *to == member(1, 1)));
    assert_eq!(home.pending(&"x").len(), 4);
    assert_eq!(write(&mut home, member(1, 1), 8, 2).len(), 1, "those who were told are not told again");
    step(&mut home, says(member(2, 1), ToHome::Applied { counter: Counter(1) }));
    assert_eq!(home.pending(&"x"), [member(3, 1), member(4, 1), member(5, 1)]);
    assert_eq!(home.version_of(&"x"), Some((version(1, 2), false)));
}

#[test]
fn a_put_asked_for_again_is_one_put() {
    let mut home = home(1, Vec::new(), HomeLimits::default());
    let first = write(&mut home, member(1, 1), 3, 1);
    let again = step(&mut home, put(member(1, 1), 3, 3));
    assert_eq!(bodies(&again), bodies(&first), "the same answer");
    let later = step(&mut home, put(member(1, 1), 4, 4));
    assert!(matches!(later[..], [HomeOutput::Settled(settled), HomeOutput::Append { .. }] if settled == version(1, 1)));
    assert_eq!(step(&mut home, put(member(1, 1), 3, 3)), [], "an old message of a settled put");
    assert_eq!(step(&mut home, put(member(1, 1), 4, 4)), [], "the ledger has been asked");
}

#[test]
fn a_new_home_knows_the_puts_of_the_ledger_and_fences_the_old() {
    let mut old = home(1, Vec::new(), HomeLimits::default());
    let asked = step(&mut old, put(member(1, 1), 3, 3));
    let Some(HomeOutput::Append { record, .. }) = asked.into_iter().next() else { panic!() };
    let fence = LedgerRecord::Fence { member: member(2, 4) };
    let records = [(1, record), (2, fence)].map(|(at, record)| ReplayedRecord { version: version(1, at), record });
    let mut new = home(2, records.to_vec(), HomeLimits::default());
    assert_eq!(new.version_of(&"x"), Some((version(1, 1), false)));
    let learns = step(&mut new, put(member(1, 1), 3, 3));
    assert!(matches!(bodies(&learns)[..], [(_, FromHome::Covers { .. })]), "it was sent in the old epoch");
    let token = Arc::new(Token::empty());
    let (request, settled) = (RequestId(3), RequestId(3));
    let body = ToHome::Put { request, object: "x", write: Write::Put, token, settled };
    let again = step(&mut new, HomeInput::Request(Request { from: member(1, 1), epoch: Epoch(2), body }));
    let Some((_, FromHome::Written { stamp, .. })) = bodies(&again).first().copied() else { panic!("{again:?}") };
    assert_eq!(stamp.version, version(1, 1));
    let refused = fetch(&mut new, member(2, 4), "x");
    assert!(matches!(bodies(&refused)[..], [(_, FromHome::Refused { reason: Refusal::GivenUp, .. })]));
    let ask = Request { from: member(1, 1), epoch: Epoch(2), body: ToHome::Ask { need: version(2, 1) } };
    assert_eq!(step(&mut old, HomeInput::Request(ask)), [HomeOutput::Retired]);
    assert!(old.is_retired() && fetch(&mut old, member(1, 1), "x").is_empty());
}

#[test]
fn a_silent_or_indebted_incarnation_is_given_up_for_ever_and_the_next_is_welcome() {
    let limits = HomeLimits { owed_max: 1, ..HomeLimits::default() };
    let mut home = home(1, Vec::new(), limits);
    let mut sequence = 0;
    let mut write = |home: &mut Home<&'static str>| {
        sequence += 1;
        write(home, member(1, 1), sequence, sequence)
    };
    write(&mut home);
    fetch(&mut home, member(2, 1), "x");
    write(&mut home);
    fetch(&mut home, member(2, 1), "x");
    assert!(write(&mut home).contains(&HomeOutput::GaveUp(member(2, 1))), "it owes two");
    assert!(matches!(bodies(&fetch(&mut home, member(2, 1), "x"))[..], [(_, FromHome::Refused { .. })]));
    assert!(matches!(bodies(&fetch(&mut home, member(2, 2), "x"))[..], [(_, FromHome::Found { .. })]));
    write(&mut home);
    let mut out = Vec::new();
    home.step(Monotonic(limits.resend.as_nanos() as u64), HomeInput::Tick, &mut out);
    assert!(matches!(bodies(&out)[..], [(_, FromHome::Invalidate { counter: Counter(1), .. })]), "sent again");
    out.clear();
    home.step(Monotonic(limits.give_up.as_nanos() as u64), HomeInput::Tick, &mut out);
    assert_eq!(out, [HomeOutput::GaveUp(member(2, 2))]);
}

#[test]
fn a_silent_node_is_sent_its_invalidations_ever_more_rarely() {
    let limits = HomeLimits::default();
    let mut home = home(1, Vec::new(), limits);
    write(&mut home, member(1, 1), 1, 1);
    fetch(&mut home, member(2, 1), "x");
    write(&mut home, member(1, 1), 2, 2);
    let mut sent = Vec::new();
    for tick in 1..400 {
        let (now, mut out) = (limits.resend * tick, Vec::new());
        home.step(Monotonic(now.as_nanos() as u64), HomeInput::Tick, &mut out);
        if matches!(bodies(&out)[..], [(_, FromHome::Invalidate { .. })]) {
            sent.push(now);
        }
    }
    let pauses: Vec<Duration> = sent.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!((sent[0], pauses[0]), (limits.resend, limits.resend));
    assert!(pauses.is_sorted() && sent.len() < 40, "{pauses:?}");
    let longest = *pauses.last().unwrap();
    assert!(longest > Duration::from_secs(1) && longest < limits.give_up / 3, "{longest:?}");
}

#[test]
fn a_fence_is_in_the_ledger_before_it_is_told_and_no_put_comes_after_it() {
    let mut home = home(1, Vec::new(), HomeLimits::default());
    let accepted = step(&mut home, put(member(1, 1), 1, 1));
    let Some(HomeOutput::Append { append: earlier, .. }) = accepted.last() else { panic!() };
    let asked = step(&mut home, HomeInput::Fence(member(1, 1)));
    let [HomeOutput::Append { append, record: LedgerRecord::Fence { .. } }] = asked[..] else { panic!("{asked:?}") };
    assert_eq!(step(&mut home, put(member(1, 1), 1, 1)), [], "the put accepted before is answered by the ledger");
    let refused = step(&mut home, put(member(1, 1), 2, 1));
    assert!(matches!(bodies(&refused)[..], [(_, FromHome::Refused { request: Some(RequestId(2)), .. })]));
    let late = step(&mut home, HomeInput::Appended { append: *earlier, version: version(1, 1) });
    let told = bodies(&late);
    let refused = matches!(told[..], [(_, FromHome::Refused { through, .. })] if *through == version(1, 1));
    assert!(refused, "{told:?}");
    let fenced = step(&mut home, HomeInput::Appended { append, version: version(1, 2) });
    let told = HomeOutput::Fenced { member: member(1, 1), through: version(1, 2) };
    assert_eq!(fenced, [told, HomeOutput::Settled(version(1, 1))]);
}

#[test]
fn a_put_of_one_given_up_is_kept_in_the_ledger_until_the_next_home_could_not_take_it_again() {
    let settled = |out: &[HomeOutput<&'static str>]| -> Vec<Version> {
        let of = |output: &HomeOutput<&'static str>| match output {
            HomeOutput::Settled(version) => Some(*version),
            _ => None,
        };
        out.iter().filter_map(of).collect()
    };
    let given_up = || {
        let mut home = home(1, Vec::new(), HomeLimits::default());
        write(&mut home, member(1, 1), 1, 1);
        let asked = step(&mut home, put(member(1, 1), 2, 1));
        let Some(HomeOutput::Append { append, .. }) = asked.last() else { panic!("{asked:?}") };
        let mut out = step(&mut home, HomeInput::GiveUp(member(1, 1)));
        out.extend(step(&mut home, HomeInput::Appended { append: *append, version: version(1, 2) }));
        assert_eq!(settled(&out), [], "a home that begins now knows nothing of the giving up");
        home
    };
    let mut home = given_up();
    let next = fetch(&mut home, member(1, 2), "x");
    assert_eq!(settled(&next), [version(1, 1), version(1, 2)], "the node has a new incarnation: the old one is dead");
    let mut home = given_up();
    let asked = step(&mut home, HomeInput::Fence(member(1, 1)));
    let [HomeOutput::Append { append, .. }] = asked[..] else { panic!("{asked:?}") };
    let fenced = step(&mut home, HomeInput::Appended { append, version: version(1, 3) });
    assert_eq!(settled(&fenced), [version(1, 1), version(1, 2)], "the next home is fenced too");
}

#[test]
fn the_first_put_without_an_answer_is_taken_however_many_are_remembered() {
    let mut home = home(1, Vec::new(), HomeLimits { puts_max: 1, ..HomeLimits::default() });
    let asked = step(&mut home, put(member(1, 1), 5, 4));
    let Some(HomeOutput::Append { append, .. }) = asked.last() else { panic!("{asked:?}") };
    step(&mut home, HomeInput::Appended { append: *append, version: version(1, 1) });
    assert_eq!(step(&mut home, put(member(1, 1), 6, 4)), [], "one is remembered, and 4 has no answer");
    let first = step(&mut home, put(member(1, 1), 4, 4));
    assert!(matches!(first[..], [HomeOutput::Append { .. }]), "nothing can be settled before it: {first:?}");
}

#[test]
fn what_somebody_else_wrote_is_in_the_store_for_the_next_home_too() {
    let (object, write, token) = ("x", Write::Outside, Arc::new(Token::empty()));
    let record = LedgerRecord::Write { object, write, token, writer: member(1, 1), request: RequestId(1) };
    let mut home = home(2, vec![ReplayedRecord { version: version(1, 1), record }], HomeLimits::default());
    assert_eq!(home.forgettable(9), ["x"]);
    step(&mut home, HomeInput::Forget("x"));
    assert_eq!(home.objects(), 0);
}

#[test]
fn a_forgotten_object_is_recalled_and_counts_as_no_older_than_it_was() {
    let mut home = home(1, Vec::new(), HomeLimits::default());
    write(&mut home, member(1, 1), 1, 5);
    step(&mut home, HomeInput::Forget("x"));
    assert_eq!(home.objects(), 1, "the store does not have it");
    step(&mut home, HomeInput::Pushed { object: "x", version: version(1, 5) });
    let out = step(&mut home, HomeInput::Forget("x"));
    assert!(matches!(bodies(&out)[..], [(_, FromHome::Invalidate { recall: true, .. })]));
    assert_eq!(home.objects(), 0);
    fetch(&mut home, member(2, 1), "x");
    step(&mut home, HomeInput::Loaded { object: "x", absent: true });
    assert_eq!(home.version_of(&"x"), Some((version(1, 5), true)));
}

#[test]
fn a_home_told_of_records_out_of_order_answers_nothing_more() {
    let mut home = home(1, Vec::new(), HomeLimits::default());
    write(&mut home, member(1, 1), 1, 5);
    let asked = step(&mut home, put(member(1, 1), 2, 2));
    let Some(HomeOutput::Append { append, .. }) = asked.last() else { panic!() };
    let out = step(&mut home, HomeInput::Appended { append: *append, version: version(1, 4) });
    assert_eq!(out, [HomeOutput::Retired]);
}

#[test]
fn a_claim_names_all_that_was_sent_and_all_that_was_applied() {
    let mut home = home(1, Vec::new(), HomeLimits::default());
    write(&mut home, member(1, 1), 1, 1);
    fetch(&mut home, member(2, 1), "x");
    write(&mut home, member(1, 1), 2, 2);
    let out = step(&mut home, says(member(2, 1), ToHome::Ask { need: version(1, 2) }));
    let cover = Cover { counter: Counter(1), through: version(1, 2) };
    assert_eq!(bodies(&out), [(member(2, 1), &FromHome::Covers { cover })]);
}

#[test]
fn what_the_ledger_answers_to_an_earlier_home_decides_no_put_of_this_one() {
    let append_of = |epoch: u64| {
        let mut home = home(epoch, Vec::new(), HomeLimits::default());
        let asked = step(&mut home, put(member(1, 1), 1, 1));
        // The first put of epoch 2 only teaches the node that epoch.
        let token = Arc::new(Token::empty());
        let (request, settled) = (RequestId(1), RequestId(1));
        let body = ToHome::Put { request, object: "x", write: Write::Put, token, settled };
        let again = HomeInput::Request(Request { from: member(1, 1), epoch: Epoch(epoch), body });
        let asked = if epoch == 1 { asked } else { step(&mut home, again) };
        let Some(HomeOutput::Append { append, .. }) = asked.last() else { panic!("{asked:?}") };
        (*append, home)
    };
    let ((earlier, _), (append, mut home)) = (append_of(1), append_of(2));
    assert_eq!(step(&mut home, HomeInput::NotAppended { append: earlier }), []);
    assert_eq!(step(&mut home, HomeInput::Appended { append: earlier, version: version(2, 1) }), []);
    let written = step(&mut home, HomeInput::Appended { append, version: version(2, 2) });
    assert!(matches!(bodies(&written)[..], [(_, FromHome::Written { .. })]), "{written:?}");
}

#[test]
fn an_invalidation_is_owed_until_the_sharer_has_applied_it() {
    let mut home = home(1, Vec::new(), HomeLimits::default());
    write(&mut home, member(1, 1), 1, 1);
    fetch(&mut home, member(2, 1), "x");
    fetch(&mut home, member(3, 1), "x");
    assert_eq!(home.owed(), 0);
    write(&mut home, member(1, 1), 2, 2);
    assert_eq!(home.owed(), 2);
    step(&mut home, says(member(2, 1), ToHome::Applied { counter: Counter(1) }));
    assert_eq!((home.owed(), home.pending(&"x")), (1, vec![member(3, 1)]));
}
