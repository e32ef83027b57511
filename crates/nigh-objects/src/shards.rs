//! The shard of an object: one home orders all writes of a shard.
//!
//! A cluster never changes its number of shards, because versions and tokens name shards. A node that is alone has one.

use std::num::NonZeroU16;

use nigh_data::NamePrint;
use nigh_data::ObjectId;
use nigh_terms::ShardId;

/// The number of shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards(NonZeroU16);

impl Shards {
    /// The one shard of a node that is alone.
    pub const ONE: Self = Self(NonZeroU16::MIN);

    /// A number of `count` shards.
    #[must_use]
    pub const fn new(count: NonZeroU16) -> Self {
        Self(count)
    }

    /// The number.
    #[must_use]
    pub const fn count(self) -> u16 {
        self.0.get()
    }

    /// The ids of all shards.
    pub fn all(self) -> impl Iterator<Item = ShardId> {
        (0..self.count()).map(ShardId)
    }

    /// The shard of `object`: by the CRC-64/NVME of its full name, the same at every node and in every build.
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
        // Stored versions name shards, so these shards must never change.
        let of = |key| shards.of(&object(key)).0;
        assert_eq!([of("a"), of("b"), of("a/b.txt")], [3, 19, 3]);
    }
}
