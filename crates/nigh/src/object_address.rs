//! The address of an object: `nigh://bucket/key`, or a local path.

use std::path::PathBuf;
use std::str::FromStr;

use nigh_terms::{BucketName, ObjectKey};

/// How an object's address begins.
const SCHEME: &str = "nigh://";

/// A bucket, with a key or a prefix of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectAddress {
    /// The bucket.
    pub(crate) bucket: BucketName,
    /// What stands behind it; empty for the whole bucket.
    pub(crate) rest: String,
}

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A file or folder of this machine; `-` is standard input or output.
    Local(PathBuf),
    /// In a bucket.
    Remote(ObjectAddress),
}

impl FromStr for ObjectAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // People type `s3://` by habit.
        let path = text.strip_prefix(SCHEME).or_else(|| text.strip_prefix("s3://"));
        let path = path.ok_or_else(|| format!("{text:?} is not an object's address; write {SCHEME}bucket/key"))?;
        let (bucket, rest) = path.split_once('/').unwrap_or((path, ""));
        let bucket = BucketName::new(bucket).map_err(|error| error.to_string())?;
        Ok(Self { bucket, rest: rest.to_owned() })
    }
}

/// An address where no file can stand: `bucket/key` means `nigh://bucket/key`.
pub(crate) fn anywhere(text: &str) -> Result<ObjectAddress, String> {
    if text.contains("://") { text.parse() } else { format!("{SCHEME}{text}").parse() }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") { text.parse().map(Self::Remote) } else { Ok(Self::Local(PathBuf::from(text))) }
    }
}

impl ObjectAddress {
    /// The key that is named.
    pub(crate) fn key(&self) -> Result<ObjectKey, String> {
        ObjectKey::new(&self.rest).map_err(|error| format!("{SCHEME}{}/{}: {error}", self.bucket, self.rest))
    }

    /// The key of `name` below this address: it is taken for a folder.
    pub(crate) fn below(&self, name: &str) -> Result<ObjectKey, String> {
        let slash = if self.rest.is_empty() || self.rest.ends_with('/') { "" } else { "/" };
        ObjectKey::new(&format!("{}{slash}{name}", self.rest)).map_err(|error| error.to_string())
    }

    /// True if it names a bucket or a folder rather than an object.
    pub(crate) fn is_folder(&self) -> bool {
        self.rest.is_empty() || self.rest.ends_with('/')
    }
}

/// The local name of a key below a folder, unless it would lead out of it.
pub(crate) fn local_name(key_below: &str) -> Result<PathBuf, String> {
    let safe = !key_below.is_empty()
        && !key_below.contains('\0')
        && key_below.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    if safe {
        Ok(PathBuf::from(key_below))
    } else {
        Err(format!(
            "{key_below:?} is not a safe name for a local file; copy this object alone, with a name for the file"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_names_a_bucket_and_a_key() {
        let address: ObjectAddress = "nigh://pictures/a/b.png".parse().unwrap();
        assert_eq!((address.bucket.as_str(), address.rest.as_str()), ("pictures", "a/b.png"));
        assert_eq!(address.below("c").unwrap().as_str(), "a/b.png/c");
        let bucket: ObjectAddress = "s3://pictures".parse().unwrap();
        assert!(bucket.is_folder() && bucket.key().is_err());
        assert_eq!(bucket.below("c").unwrap().as_str(), "c");
        assert!("nigh://A".parse::<ObjectAddress>().is_err());
        assert!("pictures/a".parse::<ObjectAddress>().is_err());
        assert_eq!("pictures/a".parse(), Ok(Place::Local("pictures/a".into())));
        assert!("http://x/y".parse::<Place>().is_err());
    }

    #[test]
    fn where_no_file_can_stand_a_bucket_needs_no_scheme() {
        assert_eq!(anywhere("pictures/a/b.png"), "nigh://pictures/a/b.png".parse());
        assert_eq!(anywhere("s3://pictures"), anywhere("pictures"));
        for wrong in ["", "/etc/passwd", "./a", "http://x/y", "No"] {
            assert!(anywhere(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_key_cannot_lead_out_of_the_folder() {
        assert_eq!(local_name("a/b").unwrap(), PathBuf::from("a/b"));
        for bad in ["../x", "a/../../x", "/etc/passwd", "a//b", "", "a/", "./a", "a\0b"] {
            assert!(local_name(bad).is_err(), "{bad:?}");
        }
    }
}
