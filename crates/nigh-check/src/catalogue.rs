//! The worlds that are explored.

use crate::configuration::{Configuration, Faults, Origin, Program, Step, begun, invoked};

/// Sets of nodes that a program may run on, one bit each.
pub(crate) const A: u8 = 0b001;
pub(crate) const B: u8 = 0b010;
pub(crate) const C: u8 = 0b100;
pub(crate) const AB: u8 = A | B;

/// The numbers of objects. With two homes, each has one object.
pub(crate) const X: u8 = 0;
pub(crate) const Y: u8 = 1;

pub(crate) const READ: &[Step] = &[Step::Get(X)];
pub(crate) const WRITE: &[Step] = &[Step::Put(X)];
pub(crate) const REWRITE: &[Step] = &[Step::Get(X), Step::Put(X)];
pub(crate) const WRITE_BOTH: &[Step] = &[Step::Put(X), Step::Put(Y)];
pub(crate) const READ_BOTH: &[Step] = &[Step::Get(Y), Step::Get(X)];

/// No faults; the base of worlds with some.
pub(crate) const NONE: Faults = Faults {
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

pub(crate) fn world(
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
        Configuration {
            pushes: true,
            ..world(
                "forgetting-and-failover",
                "the home is replaced when what it pushed may be forgotten, and a look into the store is under way",
                plain,
                vec![invoked(A, WRITE), invoked(B, REWRITE)],
                &[(1, X)],
                Faults { failovers: 1, forgets: 1, ..NONE },
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
        Configuration {
            residents: true,
            pushes: true,
            ..world(
                "resident",
                "a home within a node, without entries for what nobody else has; what is pushed is forgotten",
                plain,
                vec![invoked(AB, WRITE), invoked(AB, REWRITE)],
                &[(0, X), (1, X)],
                Faults { evictions: 1, forgets: 1, ..NONE },
            )
        },
        Configuration {
            residents: true,
            pushes: true,
            ..world(
                "resident-loads",
                "looks into the store under way while the object is deleted, written, pushed and forgotten",
                plain,
                vec![
                    invoked(A, &[Step::Delete(X)]),
                    begun(Origin::After(0), AB, READ),
                    begun(Origin::After(0), AB, WRITE),
                ],
                &[],
                NONE,
            )
        },
        Configuration {
            residents: true,
            pushes: true,
            ..world(
                "two-residents",
                "two homes within two nodes; each forgets what it has pushed",
                (2, 2),
                vec![invoked(A, WRITE_BOTH), invoked(B, READ_BOTH), invoked(AB, READ)],
                &[(1, X)],
                NONE,
            )
        },
        Configuration {
            residents: true,
            pushes: true,
            ..world(
                "outside-change",
                "somebody else writes an object in the store, and a node finds out",
                plain,
                vec![invoked(AB, &[Step::Notice(X)]), invoked(AB, REWRITE), invoked(B, READ)],
                &[(0, X), (1, X)],
                NONE,
            )
        },
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
        world(
            "successors",
            "three schedulers one after another; what the earlier ones sent, and what was told to them, is still on its way",
            plain,
            vec![invoked(AB, WRITE), invoked(B, REWRITE)],
            &[(1, X)],
            Faults { scheduler_crashes: 2, ..NONE },
        ),
        world(
            "successors-outside",
            "three schedulers one after another, and a client at a door that hands its put over to one of them",
            plain,
            vec![invoked(A, WRITE), begun(Origin::Outside, B, WRITE), invoked(B, READ)],
            &[(1, X)],
            Faults { scheduler_crashes: 2, ..NONE },
        ),
        Configuration {
            former_schedulers: true,
            ..world(
                "former-scheduler",
                "a scheduler that does not know of its successors dispatches, while they take the token of a client's put",
                plain,
                vec![begun(Origin::Outside, A, WRITE), invoked(B, READ), invoked(B, READ)],
                &[(1, X)],
                Faults { scheduler_crashes: 2, ..NONE },
            )
        },
        Configuration {
            former_schedulers: true,
            ..world(
                "former-scheduler-homes",
                "a client hands its put over between two reads of homes by a scheduler that has just begun",
                (2, 2),
                vec![begun(Origin::Outside, A, WRITE), invoked(B, READ_BOTH)],
                &[(1, X), (1, Y)],
                Faults { scheduler_crashes: 2, ..NONE },
            )
        },
        Configuration {
            slow_ledger: true,
            zombies: true,
            ..world(
                "two-replacements",
                "the home is replaced twice with writes in the ledger, and both that were go on as if they were not",
                plain,
                vec![invoked(A, WRITE), invoked(B, READ)],
                &[(1, X)],
                Faults { failovers: 2, ..NONE },
            )
        },
        Configuration {
            slow_ledger: true,
            zombies: true,
            ..world(
                "zombie-writes",
                "a home that was replaced goes on, and what one wrote another reads and writes over",
                plain,
                vec![invoked(A, WRITE), invoked(B, REWRITE)],
                &[(1, X)],
                Faults { failovers: 1, ..NONE },
            )
        },
        Configuration {
            zombies: true,
            ..world(
                "zombie-tokens",
                "two homes are replaced, or one twice; tokens of all reigns meet the homes that go on",
                (2, 2),
                vec![invoked(A, WRITE_BOTH), invoked(B, READ_BOTH)],
                &[(1, X)],
                Faults { failovers: 2, ..NONE },
            )
        },
    ]
}
