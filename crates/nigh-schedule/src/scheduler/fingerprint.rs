//! Names of nodes, functions and objects as 64 bits: the same on every machine and in every version.
//!
//! FNV-1a over the parts, each ended by a byte that no text has, then mixed (SplitMix64's finish) because FNV's high
//! bits are poor. Two names may have one fingerprint, so it serves for hints and for spreading, never for identity.

/// A name's fingerprint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;
/// A byte that UTF-8 never has: it distinguishes ("ab", "c") from ("a", "bc").
const END: u8 = 0xff;

/// Spreads every bit of `value` over the whole result.
pub(super) const fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

impl Fingerprint {
    /// The fingerprint of a name of several parts.
    #[must_use]
    pub fn of(parts: &[&str]) -> Self {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
        let part = |hash: u64, part: &&str| part.bytes().chain([END]).fold(hash, step);
        Self(mixed(parts.iter().fold(OFFSET, part)))
    }

    /// The rank of the node with this name for a function: the node with the highest rank comes first. When a node
    /// joins or leaves, only functions move that have this node first.
    #[must_use]
    pub const fn affinity(self, function: Self) -> u64 {
        mixed(self.0 ^ function.0.rotate_left(32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_kept_apart_and_fingerprints_do_not_change_with_versions() {
        assert_ne!(Fingerprint::of(&["ab", "c"]), Fingerprint::of(&["a", "bc"]));
        // The value of the first build: nodes of different versions must agree.
        assert_eq!(Fingerprint::of(&["tenant", "blur"]), Fingerprint(196_304_817_832_943_925));
    }

    #[test]
    fn functions_spread_evenly_and_only_those_of_a_leaving_node_move() {
        let nodes: Vec<Fingerprint> = (0..10).map(|node| Fingerprint::of(&[&format!("node-{node}")])).collect();
        let first = |function: Fingerprint, nodes: &[Fingerprint]| {
            *nodes.iter().max_by_key(|node| node.affinity(function)).unwrap()
        };
        let mut at = [0; 10];
        for number in 0..10_000 {
            let function = Fingerprint::of(&["tenant", &format!("function-{number}")]);
            let all = first(function, &nodes);
            at[nodes.iter().position(|node| *node == all).unwrap()] += 1;
            let without_last = first(function, &nodes[..9]);
            assert!(all == nodes[9] || all == without_last, "it moved though its node stayed");
        }
        assert!(at.iter().all(|count| (900..1100).contains(count)), "{at:?}");
    }
}
