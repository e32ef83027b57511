//! For each rule, a world that notices its absence.

use nigh_protocol::Rule;

use crate::catalogue::{A, B, C, NONE, READ, READ_BOTH, WRITE, WRITE_BOTH, X, Y, world};
use crate::configuration::{Configuration, Faults, MutatedRules, Origin, Step, begun, invoked};

/// How a mutation is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MutationSymptom {
    /// A promise is broken.
    Promise,
    /// Work cannot be finished.
    Stuck,
}

/// A rule, and a world that notices its absence.
#[derive(Clone, Debug)]
pub struct Weakening {
    /// The rule.
    pub rule: Rule,
    /// What goes wrong without it.
    pub about: &'static str,
    /// How the world notices that the rule is absent.
    pub shows: MutationSymptom,
    /// The world, with the rule left out.
    pub configuration: Configuration,
}

/// Each rule left out in turn.
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
        configuration: Configuration { without: MutatedRules(Some(rule)), ..configuration },
    };
    let world = |size, programs, warm, faults| world("", "", size, programs, warm, faults);
    vec![
        without(
            Rule::Gate,
            MutationSymptom::Promise,
            "the next invocation runs where an invalidation is still on its way",
            world(one, pair(), at_b, NONE),
        ),
        without(
            Rule::NamedIncarnation,
            MutationSymptom::Promise,
            "a dispatch that was declared ended with its node begins on the next incarnation",
            Configuration {
                restarts: true,
                ..world((1, 1), vec![invoked(A, WRITE)], &[], Faults { node_crashes: 1, ..NONE })
            },
        ),
        without(
            Rule::ContiguousPrefix,
            MutationSymptom::Promise,
            "the second invalidation overtakes the first and opens the gate",
            world(one, vec![invoked(A, WRITE_BOTH), invoked(B, READ)], &[(1, X), (1, Y)], NONE),
        ),
        without(
            Rule::EpochInTokens,
            MutationSymptom::Promise,
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
            MutationSymptom::Promise,
            "the new home knows of no sharer and invalidates nobody",
            world(one, pair(), at_b, Faults { failovers: 1, ..NONE }),
        ),
        without(
            Rule::Floor,
            MutationSymptom::Promise,
            "the answer of a fetch begun before an own write replaces what was written",
            world((1, 1), vec![invoked(A, READ), invoked(A, WRITE), invoked(A, READ)], &[], NONE),
        ),
        without(
            Rule::ServeFloor,
            MutationSymptom::Promise,
            "a new invocation joins a fetch that the home answered before the write",
            world(one, vec![invoked(B, READ), invoked(A, WRITE), invoked(B, READ)], &[], NONE),
        ),
        without(
            Rule::AckFloor,
            MutationSymptom::Promise,
            "the acknowledgement of an own write arrives after a newer one's invalidation, and is kept",
            world(one, vec![invoked(B, WRITE), invoked(A, WRITE), invoked(B, READ)], &[], NONE),
        ),
        without(
            Rule::MatchReplies,
            MutationSymptom::Promise,
            "the doubled answer of a fetch arrives after the invalidation, and is kept",
            world(one, vec![invoked(B, READ), invoked(A, WRITE), invoked(B, READ)], &[], Faults { doubles: 1, ..NONE }),
        ),
        without(
            Rule::CoverBeforeShow,
            MutationSymptom::Promise,
            "the newer object is shown while the older one's invalidation is on its way",
            world(one, both(), at_b, NONE),
        ),
        without(
            Rule::OwnNumber,
            MutationSymptom::Promise,
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
            MutationSymptom::Promise,
            "with two homes, a version says nothing of what its writer wrote at the other",
            world(two, both(), at_b, NONE),
        ),
        without(
            Rule::Summary,
            MutationSymptom::Promise,
            "a version that was pushed and forgotten says nothing of its writer",
            Configuration { pushes: true, ..world(two, both(), at_b, Faults { forgets: 1, ..NONE }) },
        ),
        without(
            Rule::RefuseGivenUp,
            MutationSymptom::Promise,
            "a put of a node that was given up lands after its invocation was declared ended",
            world(one, pair(), at_b, Faults { suspicions: 1, ..NONE }),
        ),
        without(
            Rule::NewIncarnation,
            MutationSymptom::Stuck,
            "the new incarnation waits for invalidations that are sent to the old one",
            Configuration { restarts: true, ..world(one, pair(), at_b, Faults { node_crashes: 1, ..NONE }) },
        ),
        without(
            Rule::RequestIds,
            MutationSymptom::Promise,
            "a doubled put takes place twice",
            world((1, 1), vec![invoked(A, WRITE)], &[], Faults { doubles: 1, ..NONE }),
        ),
        without(
            Rule::PutsOfThisEpoch,
            MutationSymptom::Promise,
            "a doubled put of the old reign takes place again, for its record was trimmed",
            Configuration {
                pushes: true,
                ..world(
                    (1, 1),
                    vec![invoked(A, &[Step::Put(X), Step::Put(Y)])],
                    &[],
                    Faults { doubles: 1, failovers: 1, ..NONE },
                )
            },
        ),
        without(
            Rule::Recall,
            MutationSymptom::Promise,
            "a home has forgotten a sharer and does not tell it of the next write",
            Configuration { pushes: true, ..world(one, pair(), at_b, Faults { forgets: 1, ..NONE }) },
        ),
        without(
            Rule::TellResident,
            MutationSymptom::Promise,
            "the node in which the home is keeps a copy that another has written over",
            Configuration { residents: true, ..world(one, vec![invoked(B, WRITE), invoked(A, READ)], &[(0, X)], NONE) },
        ),
        without(
            Rule::LoadHolds,
            MutationSymptom::Promise,
            "a look into the store found nothing; the object was written, pushed and forgotten, and is said to be absent",
            Configuration {
                residents: true,
                pushes: true,
                ..world(
                    (1, 1),
                    vec![
                        invoked(A, &[Step::Delete(X)]),
                        begun(Origin::After(0), A, READ),
                        begun(Origin::After(0), A, WRITE),
                    ],
                    &[],
                    NONE,
                )
            },
        ),
        without(
            Rule::OutsideIsTold,
            MutationSymptom::Promise,
            "one node drops its copy of what somebody else has written, and another shows its own",
            world(one, vec![invoked(A, &[Step::Notice(X)]), invoked(B, READ)], at_b, NONE),
        ),
        without(
            Rule::EndsCarryReads,
            MutationSymptom::Promise,
            "what one invocation read, the next does not find",
            world(one, vec![invoked(A, WRITE), invoked(A, READ), invoked(B, READ)], at_b, NONE),
        ),
        without(
            Rule::FateOfPuts,
            MutationSymptom::Promise,
            "a put takes place after its invocation was told as killed",
            Configuration {
                slow_ledger: true,
                ..world((1, 1), vec![invoked(A, WRITE)], &[], Faults { kills: 1, ..NONE })
            },
        ),
        without(
            Rule::FenceBeforeDeclare,
            MutationSymptom::Promise,
            "a put on its way lands after its node was declared lost",
            world((1, 1), vec![invoked(A, WRITE)], &[], Faults { node_crashes: 1, ..NONE }),
        ),
        without(
            Rule::RestartBarrier,
            MutationSymptom::Promise,
            "the scheduler's successor knows nothing and dispatches",
            world(one, pair(), at_b, Faults { scheduler_crashes: 1, ..NONE }),
        ),
        without(
            Rule::HandOver,
            MutationSymptom::Promise,
            "a put from outside is acknowledged, and the next dispatch does not know of it",
            world(one, vec![begun(Origin::Outside, A, WRITE), invoked(B, READ)], at_b, NONE),
        ),
        without(
            Rule::AnnounceFirst,
            MutationSymptom::Promise,
            "a put from outside is acknowledged, and the scheduler before, which does not know of it, dispatches",
            Configuration {
                former_schedulers: true,
                ..world(
                    one,
                    vec![begun(Origin::Outside, A, WRITE), invoked(B, READ)],
                    at_b,
                    Faults { scheduler_crashes: 1, ..NONE },
                )
            },
        ),
        without(
            Rule::KeepHandedOver,
            MutationSymptom::Promise,
            "a put from outside is acknowledged after its home was read and before the last home is",
            world(
                two,
                vec![begun(Origin::Outside, A, WRITE), invoked(B, READ)],
                at_b,
                Faults { scheduler_crashes: 1, ..NONE },
            ),
        ),
        without(
            Rule::OutsideAsksHome,
            MutationSymptom::Promise,
            "a get from outside is served by a copy that is about to be invalidated",
            world(one, vec![begun(Origin::Outside, A, WRITE), begun(Origin::Outside, B, READ)], at_b, NONE),
        ),
    ]
}
