//! The worlds that are explored in the long run only.

use crate::catalogue::{A, AB, B, C, NONE, READ, READ_BOTH, REWRITE, WRITE, WRITE_BOTH, X, Y, world};
use crate::configuration::{Configuration, Faults, Step, invoked};

/// The worlds of the long run. The last three have never been explored completely.
#[must_use]
pub fn long_configurations() -> Vec<Configuration> {
    vec![
        Configuration {
            slow_ledger: true,
            zombies: true,
            ..world(
                "zombie-tokens-and-ledger",
                "one of two homes is replaced with writes in the ledger, and goes on; tokens of both reigns meet it",
                (2, 2),
                vec![invoked(A, WRITE_BOTH), invoked(B, READ_BOTH)],
                &[(1, X)],
                Faults { failovers: 1, ..NONE },
            )
        },
        Configuration {
            zombies: true,
            ..world(
                "zombie-third-node",
                "two homes, of which one is replaced and goes on; what one wrote another built on, and a third sees both",
                (3, 2),
                vec![invoked(A, WRITE), invoked(C, &[Step::Get(X), Step::Put(Y)]), invoked(B, READ_BOTH)],
                &[(1, X)],
                Faults { failovers: 1, ..NONE },
            )
        },
        world(
            "successors-and-readers",
            "three schedulers one after another, and three invocations",
            (2, 1),
            vec![invoked(AB, WRITE), invoked(B, REWRITE), invoked(AB, READ)],
            &[(1, X)],
            Faults { scheduler_crashes: 2, ..NONE },
        ),
        world(
            "two-homes-and-writers",
            "two homes, three invocations on either node, of which two write",
            (2, 2),
            vec![invoked(AB, WRITE_BOTH), invoked(AB, READ_BOTH), invoked(AB, REWRITE)],
            &[(0, X), (1, X)],
            NONE,
        ),
        world(
            "two-homes",
            "two homes, three invocations on either node",
            (2, 2),
            vec![invoked(AB, WRITE_BOTH), invoked(AB, READ_BOTH), invoked(AB, READ)],
            &[(0, X), (1, X)],
            NONE,
        ),
        world(
            "three-writers",
            "three invocations on either node write one object, and two of them have read it",
            (2, 1),
            vec![invoked(AB, WRITE), invoked(AB, REWRITE), invoked(AB, REWRITE)],
            &[(0, X), (1, X)],
            NONE,
        ),
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
    ]
}
