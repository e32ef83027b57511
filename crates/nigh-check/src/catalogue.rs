//! The worlds that are explored, and for each rule one in which it is missed.

use nigh_objects::protocol::Rule;

use crate::configuration::{Configuration, Faults, Origin, Program, Step, Without, begun, invoked};

/// Nodes that a program may run on.
const A: u8 = 0b001;
const B: u8 = 0b010;
const C: u8 = 0b100;
const AB: u8 = A | B;

/// Objects; the second is at the second home where there are two.
const X: u8 = 0;
const Y: u8 = 1;

const READ: &[Step] = &[Step::Get(X)];
const WRITE: &[Step] = &[Step::Put(X)];
const REWRITE: &[Step] = &[Step::Get(X), Step::Put(X)];
const WRITE_BOTH: &[Step] = &[Step::Put(X), Step::Put(Y)];
const READ_BOTH: &[Step] = &[Step::Get(Y), Step::Get(X)];

/// No faults, to be filled in.
const NONE: Faults = Faults {
    drops: 0,
    doubles: 0,
    evictions: 0,
    node_crashes: 0,
    failovers: 0,
    scheduler_crashes: 0,
    suspicions: 0,
    kills: 0,
    forgets: 0,
    timeouts: 0,
};

fn world(
    name: &'static str,
    about: &'static str,
    (nodes, homes): (u8, u8),
    programs: Vec<Program>,
    warm: &'static [(u8, u8)],
    faults: Faults,
) -> Configuration {
    Configuration { warm, faults, ..Configuration::new(name, about, nodes, homes, programs) }
}

/// The worlds whose whole space is explored in every run.
#[must_use]
pub fn configurations() -> Vec<Configuration> {
    let plain = (2, 1);
    vec![
        world(
            "reordering",
            "three invocations on two nodes, messages in any order",
            plain,
            vec![invoked(AB, WRITE), invoked(AB, READ), invoked(AB, REWRITE)],
            &[(0, X), (1, X)],
            NONE,
        ),
        world(
            "coalescing",
            "two readers of one node share fetches with nothing kept at first, a writer beside and abroad",
            plain,
            vec![invoked(A, READ), invoked(A, READ), invoked(AB, WRITE)],
            &[],
            NONE,
        ),
        world(
            "loss",
            "one message lost and one doubled",
            plain,
            vec![invoked(A, WRITE), invoked(B, READ)],
            &[(1, X)],
            Faults { drops: 1, doubles: 1, ..NONE },
        ),
        world(
            "eviction",
            "copies evicted at any moment",
            plain,
            vec![invoked(A, WRITE), invoked(B, REWRITE)],
            &[(0, X), (1, X)],
            Faults { evictions: 2, timeouts: 1, ..NONE },
        ),
        world(
            "two-objects",
            "invalidations of two objects overtake each other",
            plain,
            vec![invoked(A, WRITE_BOTH), invoked(B, READ_BOTH)],
            &[(1, X), (1, Y)],
            NONE,
        ),
        world(
            "scheduler",
            "the scheduler crashes; its successor reads the home first",
            plain,
            vec![invoked(AB, WRITE), invoked(B, REWRITE)],
            &[(1, X)],
            Faults { scheduler_crashes: 1, ..NONE },
        ),
        Configuration {
            restarts: true,
            ..world(
                "node-crash",
                "a node crashes with whatever it did, and begins a new incarnation",
                plain,
                vec![invoked(A, WRITE), invoked(AB, READ)],
                &[(0, X), (1, X)],
                Faults { node_crashes: 1, ..NONE },
            )
        },
        Configuration {
            slow_ledger: true,
            ..world(
                "lost-node",
                "a node is lost for good; its invocations are declared ended",
                plain,
                vec![invoked(A, WRITE), invoked(B, REWRITE)],
                &[(0, X), (1, X)],
                Faults { node_crashes: 1, ..NONE },
            )
        },
        world(
            "suspicion",
            "the home gives a live node up; it finds out and begins a new incarnation",
            plain,
            vec![invoked(A, WRITE), invoked(B, READ), invoked(B, READ)],
            &[(1, X)],
            Faults { suspicions: 1, ..NONE },
        ),
        Configuration {
            slow_ledger: true,
            ..world(
                "failover",
                "the home is replaced with writes in the ledger",
                plain,
                vec![invoked(A, WRITE), invoked(B, READ)],
                &[(1, X)],
                Faults { failovers: 1, ..NONE },
            )
        },
        Configuration {
            slow_ledger: true,
            ..world(
                "kill",
                "an invocation is killed with its put under way",
                plain,
                vec![invoked(A, WRITE), invoked(B, READ), invoked(AB, READ)],
                &[(0, X), (1, X)],
                Faults { kills: 1, ..NONE },
            )
        },
        world(
            "outside",
            "puts and gets at the doors beside an invocation",
            plain,
            vec![begun(Origin::Outside, A, WRITE), begun(Origin::Outside, B, READ), invoked(AB, REWRITE)],
            &[(0, X), (1, X)],
            NONE,
        ),
        Configuration {
            pushes: true,
            ..world(
                "deletes",
                "an object is deleted and written again, pushed, and its tombstone forgotten",
                plain,
                vec![invoked(A, &[Step::Delete(X)]), invoked(B, REWRITE)],
                &[(1, X)],
                Faults { forgets: 1, ..NONE },
            )
        },
        Configuration {
            pushes: true,
            ..world(
                "forgetting",
                "two homes; what is pushed may be forgotten, its token with it",
                (2, 2),
                vec![invoked(A, WRITE_BOTH), invoked(B, READ_BOTH)],
                &[(1, X)],
                Faults { forgets: 1, ..NONE },
            )
        },
        world(
            "third-node",
            "two homes; what one wrote another read and built on, and a third sees both",
            (3, 2),
            vec![invoked(A, WRITE), invoked(C, &[Step::Get(X), Step::Put(Y)]), invoked(B, READ_BOTH)],
            &[(1, X)],
            NONE,
        ),
        world(
            "chain",
            "an invocation calls another in its midst",
            plain,
            vec![
                invoked(A, &[Step::Put(X), Step::Call(1), Step::Get(X)]),
                begun(Origin::Called, AB, READ),
                begun(Origin::After(1), AB, READ),
            ],
            &[(0, X), (1, X)],
            NONE,
        ),
    ]
}

/// Worlds for the long run.
#[must_use]
pub fn long_configurations() -> Vec<Configuration> {
    vec![
        Configuration {
            slow_ledger: true,
            zombies: true,
            impatient: true,
            ..world(
                "zombie",
                "the home that was replaced goes on as if it were not",
                (2, 1),
                vec![invoked(A, WRITE), invoked(B, READ)],
                &[(1, X)],
                Faults { failovers: 1, ..NONE },
            )
        },
        Configuration {
            restarts: true,
            impatient: true,
            ..world(
                "suspicion-and-crash",
                "a node is given up alive, and one crashes",
                (2, 1),
                vec![invoked(A, WRITE), invoked(B, READ), invoked(AB, READ)],
                &[(0, X), (1, X)],
                Faults { suspicions: 1, node_crashes: 1, ..NONE },
            )
        },
        Configuration {
            slow_ledger: true,
            pushes: true,
            ..world(
                "failover-and-store",
                "the home is replaced with writes in the ledger and in the store, and something is lost",
                (2, 1),
                vec![invoked(A, WRITE), invoked(B, REWRITE)],
                &[(1, X)],
                Faults { failovers: 1, drops: 1, forgets: 1, ..NONE },
            )
        },
        world(
            "two-homes",
            "two homes, three invocations on either node",
            (2, 2),
            vec![invoked(AB, WRITE_BOTH), invoked(AB, READ_BOTH), invoked(AB, READ)],
            &[(0, X), (1, X)],
            NONE,
        ),
    ]
}

/// How a missing rule shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// By a broken promise.
    Promise,
    /// By work that cannot be finished.
    Stuck,
}

/// A rule, and a world in which it is missed.
#[derive(Clone, Debug)]
pub struct Weakening {
    /// The rule.
    pub rule: Rule,
    /// What goes wrong without it.
    pub about: &'static str,
    /// How it shows.
    pub shows: Missed,
    /// The world, with the rule left out.
    pub configuration: Configuration,
}

/// Every rule left out, in turn.
#[must_use]
pub fn weakenings() -> Vec<Weakening> {
    let (one, two) = ((2, 1), (2, 2));
    let pair = || vec![invoked(A, WRITE), invoked(B, READ)];
    let both = || vec![invoked(A, WRITE_BOTH), invoked(B, READ_BOTH)];
    let at_b: &'static [(u8, u8)] = &[(1, X)];
    let without = |rule, shows, about, configuration| Weakening {
        rule,
        about,
        shows,
        configuration: Configuration { without: Without(Some(rule)), ..configuration },
    };
    let world = |size, programs, warm, faults| world("", "", size, programs, warm, faults);
    vec![
        without(
            Rule::Gate,
            Missed::Promise,
            "the next invocation runs where an invalidation is still on its way",
            world(one, pair(), at_b, NONE),
        ),
        without(
            Rule::NamedIncarnation,
            Missed::Promise,
            "a dispatch that was declared ended with its node begins on the next incarnation",
            Configuration {
                restarts: true,
                ..world((1, 1), vec![invoked(A, WRITE)], &[], Faults { node_crashes: 1, ..NONE })
            },
        ),
        without(
            Rule::ContiguousPrefix,
            Missed::Promise,
            "the second invalidation overtakes the first and opens the gate",
            world(one, vec![invoked(A, WRITE_BOTH), invoked(B, READ)], &[(1, X), (1, Y)], NONE),
        ),
        without(
            Rule::EpochInTokens,
            Missed::Promise,
            "the first write of a new reign counts as covered by the first of the old one",
            world(
                one,
                vec![invoked(B, WRITE), begun(Origin::After(0), A, WRITE), begun(Origin::After(1), B, READ)],
                &[],
                Faults { failovers: 1, ..NONE },
            ),
        ),
        without(
            Rule::EpochFlush,
            Missed::Promise,
            "the new home knows of no sharer and invalidates nobody",
            world(one, pair(), at_b, Faults { failovers: 1, ..NONE }),
        ),
        without(
            Rule::Floor,
            Missed::Promise,
            "the answer of a fetch begun before an own write replaces what was written",
            world((1, 1), vec![invoked(A, READ), invoked(A, WRITE), invoked(A, READ)], &[], NONE),
        ),
        without(
            Rule::ServeFloor,
            Missed::Promise,
            "a new invocation joins a fetch that the home answered before the write",
            world(one, vec![invoked(B, READ), invoked(A, WRITE), invoked(B, READ)], &[], NONE),
        ),
        without(
            Rule::AckFloor,
            Missed::Promise,
            "the acknowledgement of an own write arrives after a newer one's invalidation, and is kept",
            world(one, vec![invoked(B, WRITE), invoked(A, WRITE), invoked(B, READ)], &[], NONE),
        ),
        without(
            Rule::MatchReplies,
            Missed::Promise,
            "the doubled answer of a fetch arrives after the invalidation, and is kept",
            world(one, vec![invoked(B, READ), invoked(A, WRITE), invoked(B, READ)], &[], Faults { doubles: 1, ..NONE }),
        ),
        without(
            Rule::CoverBeforeShow,
            Missed::Promise,
            "the newer object is shown while the older one's invalidation is on its way",
            world(one, both(), at_b, NONE),
        ),
        without(
            Rule::OwnNumber,
            Missed::Promise,
            "what a third node built on a write is shown without the write",
            world(
                (3, 2),
                vec![invoked(A, WRITE), invoked(C, &[Step::Get(X), Step::Put(Y)]), invoked(B, READ_BOTH)],
                at_b,
                NONE,
            ),
        ),
        without(
            Rule::WriterToken,
            Missed::Promise,
            "with two homes, a version says nothing of what its writer wrote at the other",
            world(two, both(), at_b, NONE),
        ),
        without(
            Rule::Summary,
            Missed::Promise,
            "a version that was pushed and forgotten says nothing of its writer",
            Configuration { pushes: true, ..world(two, both(), at_b, Faults { forgets: 1, ..NONE }) },
        ),
        without(
            Rule::RefuseGivenUp,
            Missed::Promise,
            "a node that was given up asks, and is told that it has caught up",
            world(one, pair(), at_b, Faults { suspicions: 1, ..NONE }),
        ),
        without(
            Rule::NewIncarnation,
            Missed::Stuck,
            "the new incarnation waits for invalidations that are sent to the old one",
            Configuration { restarts: true, ..world(one, pair(), at_b, Faults { node_crashes: 1, ..NONE }) },
        ),
        without(
            Rule::RequestIds,
            Missed::Promise,
            "a doubled put takes place twice",
            world((1, 1), vec![invoked(A, WRITE)], &[], Faults { doubles: 1, ..NONE }),
        ),
        without(
            Rule::EndsCarryReads,
            Missed::Promise,
            "what one invocation read, the next does not find",
            world(one, vec![invoked(A, WRITE), invoked(A, READ), invoked(B, READ)], at_b, NONE),
        ),
        without(
            Rule::FateOfPuts,
            Missed::Promise,
            "a put takes place after its invocation was told as killed",
            Configuration {
                slow_ledger: true,
                ..world((1, 1), vec![invoked(A, WRITE)], &[], Faults { kills: 1, ..NONE })
            },
        ),
        without(
            Rule::FenceBeforeDeclare,
            Missed::Promise,
            "a put on its way lands after its node was declared lost",
            world((1, 1), vec![invoked(A, WRITE)], &[], Faults { node_crashes: 1, ..NONE }),
        ),
        without(
            Rule::RestartBarrier,
            Missed::Promise,
            "the scheduler's successor knows nothing and dispatches",
            world(one, pair(), at_b, Faults { scheduler_crashes: 1, ..NONE }),
        ),
        without(
            Rule::HandOver,
            Missed::Promise,
            "a put from outside is acknowledged, and the next dispatch does not know of it",
            world(one, vec![begun(Origin::Outside, A, WRITE), invoked(B, READ)], at_b, NONE),
        ),
        without(
            Rule::OutsideAsksHome,
            Missed::Promise,
            "a get from outside is served by a copy that is about to be invalidated",
            world(one, vec![begun(Origin::Outside, A, WRITE), begun(Origin::Outside, B, READ)], at_b, NONE),
        ),
    ]
}
