//! What happens to a copy that a shrink drops. Pure.
//!
//! OFC (EuroSys 2021, section 6.4) moves a hot object to the backup that has its bytes already, for that moves none.
//! Here the home knows who else has a current copy: one of them becomes the object's *holder*, whom the home asks
//! before it asks the store. Where there is none, an object that was read more than once is brought into the memory of
//! another node; any other is dropped, for the store has it.
//!
//! The memory itself is free before any of this begins: whoever needs it waits for nothing here.

use nigh_data::NamePrint;
use nigh_protocol::{Member, NodeNumber};
use nigh_terms::Version;
use serde::{Deserialize, Serialize};

/// Bytes that one shrink may have brought elsewhere: what a link of 10 Gbit/s carries in a tenth of a second.
pub(crate) const COPIED_MAX_BYTES: u64 = 128 << 20;

/// What a home answers about a copy that was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HolderElection {
    /// This node has a current copy, and is the holder from now on.
    At(NodeNumber),
    /// Nobody else has one.
    Nobody,
    /// The dropped copy was not of the newest version.
    Stale,
}

/// What becomes of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Another holds it: nothing moves.
    ReElected(NodeNumber),
    /// Another node is to bring it into its memory.
    Copied,
    /// It is in the store, or not worth anything.
    Dropped,
}

/// A copy that was dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenUp {
    pub(crate) bytes: u64,
    /// It was read more than once.
    pub(crate) is_hot: bool,
}

/// Who becomes the holder of an object at `version`, which `from` gives up: the home's own process if it has a copy,
/// else one of those whom the directory names. Objects are spread over them by their names.
pub(crate) fn elect(
    object: NamePrint,
    (given_up, from): (Version, Member),
    newest: Option<Version>,
    own_copy: Option<(Version, NodeNumber)>,
    sharers: &[Member],
) -> HolderElection {
    if newest.is_some_and(|newest| newest != given_up) {
        return HolderElection::Stale;
    }
    if let Some((_, me)) = own_copy.filter(|(version, me)| *version == given_up && *me != from.node) {
        return HolderElection::At(me);
    }
    // Without an entry in the directory nobody's copy is known to be current.
    let others: Vec<&Member> = sharers.iter().filter(|sharer| sharer.node != from.node && newest.is_some()).collect();
    match others.len() {
        0 => HolderElection::Nobody,
        count => HolderElection::At(others[(object.0 % count as u64) as usize].node),
    }
}

/// What becomes of a copy of which the home has said so, where `copied_bytes` are to be brought elsewhere already.
pub(crate) fn fate(given_up: &GivenUp, elected: HolderElection, copied_bytes: u64) -> Fate {
    match elected {
        HolderElection::At(node) => Fate::ReElected(node),
        HolderElection::Nobody if given_up.is_hot && copied_bytes + given_up.bytes <= COPIED_MAX_BYTES => Fate::Copied,
        HolderElection::Nobody | HolderElection::Stale => Fate::Dropped,
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Incarnation, Sequence};

    use super::*;

    fn version(sequence: u64) -> Version {
        Version { epoch: Epoch(1), sequence: Sequence(sequence) }
    }

    fn member(node: u32) -> Member {
        Member { node: NodeNumber(node), incarnation: Incarnation(1) }
    }

    fn elected(newest: Option<u64>, own: Option<u64>, sharers: &[u32]) -> HolderElection {
        let own = own.map(|own| (version(own), NodeNumber(9)));
        let sharers: Vec<Member> = sharers.iter().copied().map(member).collect();
        elect(NamePrint(5), (version(3), member(1)), newest.map(version), own, &sharers)
    }

    #[test]
    fn the_holder_is_one_with_a_current_copy_and_never_who_gives_it_up() {
        assert_eq!(
            elected(Some(3), Some(3), &[1, 2]),
            HolderElection::At(NodeNumber(9)),
            "the home itself: no further message"
        );
        assert_eq!(elected(Some(3), Some(2), &[1, 2]), HolderElection::At(NodeNumber(2)));
        assert_eq!(elected(Some(3), None, &[1]), HolderElection::Nobody);
        assert_eq!(elected(Some(4), Some(4), &[2]), HolderElection::Stale);
        assert_eq!(elected(None, None, &[2]), HolderElection::Nobody, "the directory has forgotten it");
        let of: Vec<HolderElection> = (0..2)
            .map(|print| {
                let sharers = [member(2), member(3)];
                elect(NamePrint(print), (version(3), member(1)), Some(version(3)), None, &sharers)
            })
            .collect();
        assert_eq!(of, [HolderElection::At(NodeNumber(2)), HolderElection::At(NodeNumber(3))], "spread over them");
    }

    #[test]
    fn only_what_is_hot_is_copied_and_not_more_than_may_be() {
        let hot = GivenUp { bytes: 1 << 20, is_hot: true };
        let cold = GivenUp { is_hot: false, ..hot };
        assert_eq!(
            fate(&cold, HolderElection::At(NodeNumber(2)), 0),
            Fate::ReElected(NodeNumber(2)),
            "that costs nothing"
        );
        assert_eq!(
            (fate(&hot, HolderElection::Nobody, 0), fate(&cold, HolderElection::Nobody, 0)),
            (Fate::Copied, Fate::Dropped)
        );
        assert_eq!(fate(&hot, HolderElection::Nobody, COPIED_MAX_BYTES), Fate::Dropped);
        assert_eq!(fate(&hot, HolderElection::Stale, 0), Fate::Dropped);
    }
}
