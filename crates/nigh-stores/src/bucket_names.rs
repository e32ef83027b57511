//! The names of buckets on a store that several namespaces share. Pure.
//!
//! Each namespace has its own prefix of bucket names and reaches no other's: a prefix that begins with another one is
//! rejected.

use std::collections::BTreeMap;

use nigh_data::ObjectError;
use nigh_terms::{BucketName, Namespace};
use thiserror::Error;

/// Two namespaces could have the same bucket on the store.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "buckets of {one} ({one_prefix:?}) and of {other} ({other_prefix:?}) could be the same; give prefixes of which none \
     begins with another"
)]
#[expect(missing_docs, reason = "the message says what the fields hold")]
pub struct PrefixesMeet {
    pub one: Namespace,
    pub one_prefix: String,
    pub other: Namespace,
    pub other_prefix: String,
}

/// For each namespace, the prefix of its buckets' names. Other namespaces have no buckets.
#[derive(Clone, Debug)]
pub(crate) struct BucketNames(BTreeMap<Namespace, String>);

impl BucketNames {
    /// # Errors
    /// If one prefix begins with another.
    pub(crate) fn new(prefixes: &BTreeMap<Namespace, String>) -> Result<Self, PrefixesMeet> {
        for (one, one_prefix) in prefixes {
            for (other, other_prefix) in prefixes {
                if one != other && other_prefix.starts_with(one_prefix.as_str()) {
                    return Err(PrefixesMeet {
                        one: one.clone(),
                        one_prefix: one_prefix.clone(),
                        other: other.clone(),
                        other_prefix: other_prefix.clone(),
                    });
                }
            }
        }
        Ok(Self(prefixes.clone()))
    }

    /// The prefix of `namespace`. None if the namespace may have no buckets.
    pub(crate) fn prefix(&self, namespace: &Namespace) -> Option<&str> {
        self.0.get(namespace).map(String::as_str)
    }

    /// The bucket's name on the store. A namespace without a prefix has no buckets, which is an error.
    pub(crate) fn on_store(&self, namespace: &Namespace, bucket: &BucketName) -> Result<String, ObjectError> {
        let prefix = self.prefix(namespace).ok_or_else(|| ObjectError::NoSuchBucket(bucket.clone()))?;
        let name = format!("{prefix}{bucket}");
        BucketName::new(&name).map_err(|error| {
            ObjectError::InvalidArgument(format!("{error}; the store puts {prefix:?} before each bucket's name"))
        })?;
        Ok(name)
    }

    /// The namespace and the bucket that the store calls `name`. None if the bucket belongs to no namespace.
    pub(crate) fn of_store(&self, name: &str) -> Option<(Namespace, BucketName)> {
        // No prefix begins with another one, so at most one prefix matches.
        let (namespace, rest) =
            self.0.iter().find_map(|(namespace, prefix)| Some((namespace, name.strip_prefix(prefix.as_str())?)))?;
        Some((namespace.clone(), BucketName::new(rest).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(prefixes: &[(&str, &str)]) -> Result<BucketNames, PrefixesMeet> {
        let prefix = |(name, prefix): &(&str, &str)| (Namespace::new(name).unwrap(), (*prefix).to_owned());
        BucketNames::new(&prefixes.iter().map(prefix).collect())
    }

    #[test]
    fn namespaces_whose_buckets_could_be_the_same_are_refused() {
        for meet in [[("a", ""), ("b", "b-")], [("a", "x"), ("b", "x")], [("a", "t-1"), ("b", "t-")]] {
            assert!(names(&meet).is_err(), "{meet:?}");
        }
        let names = names(&[("a", "ta-"), ("b", "tb-")]).unwrap();
        let bucket = |name: &str| BucketName::new(name).unwrap();
        let of = |namespace: &str, name: &str| names.on_store(&Namespace::new(namespace).unwrap(), &bucket(name));
        assert_eq!(of("a", "xyz").unwrap(), "ta-xyz");
        let back = names.of_store("ta-xyz").map(|(namespace, bucket)| (namespace.as_str().to_owned(), bucket));
        assert_eq!(back, Some(("a".to_owned(), bucket("xyz"))));
        assert!(names.of_store("xyz").is_none() && names.of_store("ta-").is_none());
        assert!(matches!(of("c", "xyz"), Err(ObjectError::NoSuchBucket(_))));
        assert!(matches!(of("a", &"x".repeat(63)), Err(ObjectError::InvalidArgument(_))));
    }
}
