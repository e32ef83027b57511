//! Which shard an object is of: one home orders all writes of a shard.
//!
//! The number of shards is a cluster's for ever, as versions and tokens name shards. A node alone has one.

use std::num::NonZeroU16;

use nigh_data::NamePrint;
use nigh_data::ObjectId;
use nigh_terms::ShardId;

/// How many shards there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards(NonZeroU16);

impl Shards {
    /// Of a node alone.
    pub const ONE: Self = Self(NonZeroU16::MIN);

    /// So many.
    #[must_use]
    pub const fn new(count: NonZeroU16) -> Self {
        Self(count)
    }

    /// How many.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.0.get()
    }

    /// Each of them.
    pub fn all(self) -> impl Iterator<Item = ShardId> {
        (0..self.count()).map(ShardId)
    }

    /// That of `object`: by the CRC-64/NVME of its full name, the same at every node and in every build.
    #[must_use]
    pub fn of(self, object: &ObjectId) -> ShardId {
        if self == Self::ONE {
            return ShardId(0);
        }
        let share = u128::from(NamePrint::of(object).0) * u128::from(self.count());
        ShardId((share >> 64) as u16)
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Namespace, ObjectKey};

    use super::*;

    fn object(key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("tenant").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    #[test]
    fn objects_spread_over_the_shards_and_stay_where_they_are() {
        let shards = Shards::new(NonZeroU16::new(32).unwrap());
        let mut counts = [0_u32; 32];
        for key in 0..32_000 {
            counts[usize::from(shards.of(&object(&key.to_string())).0)] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(Shards::ONE.of(&object("a")), ShardId(0));
        // Stored versions name shards: these never change.
        let of = |key| shards.of(&object(key)).0;
        assert_eq!([of("a"), of("b"), of("a/b.txt")], [3, 19, 3]);
    }
}
