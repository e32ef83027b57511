//! The worlds in which the two files are run, and their expected results.
//!
//! Each rule is left out in the smallest world that was found to notice.

use super::{ExpectedVerdict, MurphiModel, MurphiSource};

type Constants = &'static [(&'static str, u32)];

fn world(name: &'static str, about: &'static str, constants: Constants) -> MurphiModel {
    let (source, expected) = (MurphiSource::Nigh, ExpectedVerdict::Holds);
    MurphiModel { name, about, source, size: &[], constants, omitted: None, expected, long: false }
}

fn without(rule: &'static str, breaks: &'static str, about: &'static str, constants: Constants) -> MurphiModel {
    MurphiModel { omitted: Some(rule), expected: ExpectedVerdict::Breaks(breaks), ..world(rule, about, constants) }
}

fn apta(name: &'static str, expected: ExpectedVerdict, about: &'static str, constants: Constants) -> MurphiModel {
    MurphiModel { source: MurphiSource::Apta, expected, ..world(name, about, constants) }
}

fn long(models: Vec<MurphiModel>) -> Vec<MurphiModel> {
    models.into_iter().map(|model| MurphiModel { long: true, ..model }).collect()
}

/// Every model: the worlds of the contract, each of its rules left out, and Apta's rules.
#[must_use]
pub fn murphi_models() -> Vec<MurphiModel> {
    [
        published(),
        small(),
        long(larger()),
        long(two_objects()),
        long(two_homes()),
        long(calls_and_parts()),
        long(incarnations_and_epochs()),
    ]
    .concat()
}

/// Apta's rules as published, with counterexamples, and corrected.
fn published() -> Vec<MurphiModel> {
    vec![
        apta("apta", ExpectedVerdict::Holds, "as published: no data, no crash, all puts alike", &[]),
        apta(
            "apta-tracked",
            ExpectedVerdict::Breaks("tracked"),
            "an acknowledgement overtakes the invalidation of an entry that was replaced: a copy that nobody knows of",
            &[("TRACKED", 1)],
        ),
        apta(
            "apta-data",
            ExpectedVerdict::Breaks("data"),
            "and that copy stays older than the memory",
            &[("PUTS", 2), ("DATA", 1)],
        ),
        apta(
            "apta-data-one-channel",
            ExpectedVerdict::Holds,
            "with data, if all that goes to a server goes by one queue",
            &[("PUTS", 2), ("DATA", 1), ("TRACKED", 1), ("ONE_CHANNEL", 1)],
        ),
        apta(
            "apta-crash",
            ExpectedVerdict::Breaks("answered"),
            "a server dies that owes an acknowledgement, and others wait for ever",
            &[("CRASHES", 1)],
        ),
        apta(
            "apta-crash-mended",
            ExpectedVerdict::Holds,
            "and with a crash, if puts are taken meanwhile and what a dead server owes is struck off",
            &[("PUTS", 2), ("DATA", 1), ("CRASHES", 1), ("ONE_CHANNEL", 1), ("PENDING_SETS", 1), ("FENCES", 1)],
        ),
    ]
}

/// Worlds of one home and one object, with one step in each invocation.
fn small() -> Vec<MurphiModel> {
    vec![
        world("one-object", "three invocations of one step on two nodes", &[("STEPS", 1)]),
        without("GATE", "P1", "begins before its node has caught up", &[("STEPS", 1)]),
        without("WRITE_TAKES_COPY", "P1", "a write leaves the copy from before", &[("STEPS", 1)]),
        without("ACK_FLOOR", "P1", "an own write's late acknowledgement is kept", &[("STEPS", 1)]),
        without("ENDS_CARRY_READS", "P4", "the next does not find what the last has read", &[("STEPS", 1)]),
        without(
            "REQUEST_IDS",
            "P3",
            "a doubled put takes place twice",
            &[("STEPS", 1), ("WRITES", 1), ("DUPLICATES", 1)],
        ),
        without(
            "FATE_OF_PUTS",
            "P1",
            "a put lands after its end was told",
            &[("STEPS", 1), ("WRITES", 1), ("KILLS", 1)],
        ),
        without(
            "RESTART_BARRIER",
            "P1",
            "the scheduler's successor knows nothing",
            &[("STEPS", 1), ("WRITES", 1), ("SCHEDULER_CRASHES", 1)],
        ),
        without(
            "HAND_OVER",
            "P1",
            "a put from outside is not known to the next dispatch",
            &[("STEPS", 1), ("WRITES", 1), ("OUTSIDE_WRITES", 1)],
        ),
        without(
            "OUTSIDE_ASKS_HOME",
            "P1",
            "a get from outside is served by an old copy",
            &[("STEPS", 1), ("WRITES", 1), ("OUTSIDE_READS", 1)],
        ),
        without("SERVE_FLOOR", "P1", "an invocation joins a fetch from before the write", &[("STEPS", 1), ("WARM", 0)]),
    ]
}

/// The same worlds in larger sizes, for searches that may take long.
fn larger() -> Vec<MurphiModel> {
    vec![
        world("one-object-two-steps", "three invocations of two steps on two nodes", &[]),
        without(
            "RECALL",
            "P1",
            "a home forgets a sharer and does not tell it",
            &[("STEPS", 1), ("PUSHES", 1), ("FORGETS", 1)],
        ),
        without("FLOOR", "P1", "a fetch from before the write is kept", &[("STEPS", 1), ("WARM", 0)]),
        without(
            "SHARE_ON_FETCH",
            "P1",
            "who fetches to keep is not told of the next write",
            &[("STEPS", 1), ("WARM", 0)],
        ),
        without(
            "ASK",
            "L2",
            "who was sent nothing never learns that it has caught up",
            &[("STEPS", 1), ("WRITES", 1), ("WARM", 0), ("FINISH", 1)],
        ),
        without(
            "MATCH_REPLIES",
            "P4",
            "the doubled answer of an earlier fetch is kept",
            &[("STEPS", 1), ("READ_ONLY", 1), ("DUPLICATES", 1)],
        ),
        without(
            "FORGOTTEN_MARK",
            "P2",
            "what a home has forgotten is found in the store under a version that is too old",
            &[("STEPS", 1), ("PUSHES", 1), ("FORGETS", 1)],
        ),
        without(
            "RESEND",
            "L2",
            "an invalidation that was lost is waited for for ever",
            &[("STEPS", 1), ("WRITES", 1), ("LOSSES", 1), ("FINISH", 1)],
        ),
    ]
}

/// Two objects of one home.
fn two_objects() -> Vec<MurphiModel> {
    vec![
        world(
            "two-objects",
            "two invocations of two steps, two objects, one home",
            &[("OBJECTS", 2), ("INVOCATIONS", 2)],
        ),
        without(
            "CONTIGUOUS_PREFIX",
            "P1",
            "the second invalidation overtakes the first",
            &[("OBJECTS", 2), ("INVOCATIONS", 2)],
        ),
    ]
}

/// Two homes with one object each.
fn two_homes() -> Vec<MurphiModel> {
    vec![
        world(
            "two-homes",
            "two invocations of two steps, two objects, two homes",
            &[("SHARDS", 2), ("OBJECTS", 2), ("INVOCATIONS", 2)],
        ),
        without(
            "COVER_BEFORE_SHOW",
            "P6",
            "the newer object is shown while the older one's invalidation is on its way",
            &[("SHARDS", 2), ("OBJECTS", 2), ("INVOCATIONS", 2)],
        ),
        without(
            "WRITER_TOKEN",
            "P6",
            "a version says nothing of what its writer wrote at the other home",
            &[("SHARDS", 2), ("OBJECTS", 2), ("INVOCATIONS", 2)],
        ),
        without(
            "SUMMARY",
            "P6",
            "a version that was pushed and forgotten says nothing of its writer",
            &[("SHARDS", 2), ("OBJECTS", 2), ("INVOCATIONS", 2), ("PUSHES", 1), ("FORGETS", 1)],
        ),
        without(
            "OWN_NUMBER",
            "P4",
            "a version's token does not name the version: who has read it may be shown an older one",
            &[("SHARDS", 2), ("OBJECTS", 2)],
        ),
    ]
}

/// Invocations that call others, and objects that are fetched by two requests.
fn calls_and_parts() -> Vec<MurphiModel> {
    let size: Constants = &[("INVOCATIONS", 2), ("PARTS", 2)];
    let of = |rule, breaks, about, constants| MurphiModel { size, ..without(rule, breaks, about, constants) };
    vec![
        of("CALLS_CARRY", "P4", "who is called does not find what its caller has seen", &[("WRITES", 1), ("CALLS", 1)]),
        of(
            "ANSWERS_CARRY",
            "P4",
            "a caller does not find what the one it called has seen",
            &[("WRITES", 1), ("CALLS", 1)],
        ),
        of("PIN_PARTS", "P2", "the parts of one read are of two writes", &[("STEPS", 1), ("WARM", 0)]),
    ]
}

/// A home that is replaced, and nodes that are lost and start again.
fn incarnations_and_epochs() -> Vec<MurphiModel> {
    let of = |rule, breaks, about, constants| {
        let size: &[(&str, u32)] = &[("EPOCHS", 2), ("INCARNATIONS", 2), ("STEPS", 1)];
        MurphiModel { size, ..without(rule, breaks, about, constants) }
    };
    let crash: Constants = &[("WRITES", 1), ("CRASHES", 1)];
    let suspicion: Constants = &[("WRITES", 1), ("SUSPICIONS", 1)];
    let replaced: Constants = &[("WRITES", 1), ("REPLACED", 1)];
    let holds = |name, about, constants| MurphiModel {
        name,
        omitted: None,
        expected: ExpectedVerdict::Holds,
        ..of("", "", about, constants)
    };
    vec![
        holds("crash", "three invocations of one step, a write, a node that crashes and comes back", crash),
        holds(
            "replacement",
            "three invocations of one step, a write, a home that is replaced and goes on, and what is pushed is trimmed",
            &[("WRITES", 1), ("REPLACED", 1), ("PUSHES", 1), ("TRIMS", 1)],
        ),
        of("NAMED_INCARNATION", "P1", "a dispatch that was declared ended begins in the next life", crash),
        of("FENCE_FIRST", "P1", "a put lands after its node was declared lost", crash),
        of("READ_AFTER_FENCE", "P1", "what a lost node wrote is not known to the next dispatch", crash),
        of(
            "NEVER_WAIT",
            "L1",
            "a put waits for a sharer that is dead",
            &[("WRITES", 1), ("CRASHES", 1), ("FINISH", 1)],
        ),
        of("REFUSE_GIVEN_UP", "P1", "who was given up asks, and is told that it has caught up", suspicion),
        of("REFUSE_PUTS", "P1", "a put of one that was given up lands after its end was declared", suspicion),
        of("END_AT_REJOIN", "P1", "what ran before goes on in the next life", suspicion),
        of("EPOCH_FLUSH", "P1", "the new home knows of no sharer", replaced),
        of("DURABLE_FIRST", "P5", "a put is acknowledged and not in the ledger", replaced),
        of("LEDGER_FENCE", "P5", "a home that was replaced acknowledges a put", replaced),
        of(
            "CHECK_EPOCH",
            "P1",
            "a home that was replaced answers a get from outside",
            &[("WRITES", 1), ("REPLACED", 1), ("OUTSIDE_READS", 1)],
        ),
        of("NEWEST_EPOCH", "P1", "a node hears a home of an older reign", &[("REPLACED", 1)]),
        of(
            "PUTS_OF_THIS_EPOCH",
            "P3",
            "a doubled put of the old reign takes place again",
            &[("WRITES", 1), ("REPLACED", 1), ("DUPLICATES", 1), ("PUSHES", 1), ("TRIMS", 1)],
        ),
        of(
            "TRIM_PUSHED",
            "P5",
            "a record goes before the store has the write",
            &[("WRITES", 1), ("REPLACED", 1), ("TRIMS", 1)],
        ),
        of(
            "TRIM_SETTLED",
            "P3",
            "a put is asked for again whose record was trimmed",
            &[("WRITES", 1), ("REPLACED", 1), ("PUSHES", 1), ("TRIMS", 1)],
        ),
        of(
            "FENCES_LAST",
            "P1",
            "the next home takes a put of one that was given up",
            &[("WRITES", 1), ("REPLACED", 1), ("SUSPICIONS", 1)],
        ),
    ]
}
