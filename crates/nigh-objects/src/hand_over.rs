//! What happens to a copy that a shrink drops. Pure.
//!
//! OFC (EuroSys 2021, section 6.4) moves a hot object to the backup that has its bytes already, because that moves no
//! bytes. Here the home knows who else has a current copy: one of them becomes the object's *holder*, whom the home
//! asks before it asks the store. If there is none, an object that was read more than once is fetched into the memory
//! of another node; any other is dropped, because the store has it.
//!
//! The memory is freed before any of this begins: whoever needs it does not wait for the hand-over.

use nigh_data::NamePrint;
use nigh_protocol::{Member, NodeNumber};
use nigh_terms::Version;
use serde::{Deserialize, Serialize};

/// The most bytes of one shrink that other nodes fetch: what a link of 10 Gbit/s carries in a tenth of a second.
pub(crate) const COPIED_MAX_BYTES: u64 = 128 << 20;

/// A home's answer about a dropped copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum HolderElection {
    /// This node has a current copy, and is the holder from now on.
    At(NodeNumber),
    /// No other node has a copy.
    Nobody,
    /// The dropped copy was not of the newest version.
    Stale,
}

/// What happens to a dropped copy's object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// This node is the holder; no bytes move.
    ReElected(NodeNumber),
    /// Another node fetches the object into its memory.
    Copied,
    /// Nothing: the object is in the store, or not worth a fetch.
    Dropped,
}

/// A copy that was dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenUp {
    pub(crate) bytes: u64,
    /// True if it was read more than once.
    pub(crate) is_hot: bool,
}

/// Elects the holder of an object at `version`, which `from` has dropped: the home's own process if it has a copy, else
/// one of the sharers in the directory. The objects' names spread the objects over the sharers.
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
    // Without an entry in the directory no copy is known to be current.
    let others: Vec<&Member> = sharers.iter().filter(|sharer| sharer.node != from.node && newest.is_some()).collect();
    match others.len() {
        0 => HolderElection::Nobody,
        count => HolderElection::At(others[(object.0 % count as u64) as usize].node),
    }
}

/// Decides what happens to a dropped copy after the home's answer, if `copied_bytes` are to be fetched elsewhere
/// already.
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
