//! Whether a request's conditions hold (RFC 9110 section 13.2.2, as S3 does it).
//!
//! Dates are compared in whole seconds: that is all HTTP can say.

use crate::{ETag, ObjectError, ObjectId, ObjectMeta, ReadConditions, WriteConditions};

fn names(etags: &[ETag], etag: &ETag) -> bool {
    etags.iter().any(|one| one.0 == "*" || one == etag)
}

/// Whether an object that is there may be read.
///
/// # Errors
/// `PreconditionFailed`, or `NotModified` if the reader has it already.
pub fn check_read(conditions: &ReadConditions, meta: &ObjectMeta) -> Result<(), ObjectError> {
    let modified = meta.modified.whole_second();
    if let Some(etags) = &conditions.if_match {
        if !names(etags, &meta.etag) {
            return Err(ObjectError::PreconditionFailed("If-Match"));
        }
    } else if conditions.if_unmodified_since.is_some_and(|date| modified > date) {
        return Err(ObjectError::PreconditionFailed("If-Unmodified-Since"));
    }
    let unchanged = match &conditions.if_none_match {
        Some(etags) => names(etags, &meta.etag),
        None => conditions.if_modified_since.is_some_and(|date| modified <= date),
    };
    if unchanged {
        return Err(ObjectError::NotModified { etag: meta.etag.clone(), modified: meta.modified });
    }
    Ok(())
}

/// A failed read condition as it is said of a copy's source, where nothing can be "not modified".
pub fn source_error(error: ObjectError) -> ObjectError {
    match error {
        ObjectError::NotModified { .. } => ObjectError::PreconditionFailed("x-amz-copy-source-if"),
        other => other,
    }
}

/// Whether an object may be written or deleted over what is there now.
///
/// # Errors
/// `PreconditionFailed`, or `NoSuchKey` if there is nothing to match.
pub fn check_write(
    conditions: &WriteConditions,
    object: &ObjectId,
    current: Option<&ObjectMeta>,
) -> Result<(), ObjectError> {
    if conditions.if_absent && current.is_some() {
        return Err(ObjectError::PreconditionFailed("If-None-Match"));
    }
    match (&conditions.if_match, current) {
        (None, _) => Ok(()),
        (Some(_), None) => Err(ObjectError::NoSuchKey(object.key.clone())),
        (Some(etag), Some(meta)) if etag.0 == "*" || *etag == meta.etag => Ok(()),
        (Some(_), Some(_)) => Err(ObjectError::PreconditionFailed("If-Match")),
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Namespace, ObjectKey, Timestamp};
    use proptest::prelude::*;

    use super::*;

    fn meta(etag: &str, modified: u64) -> ObjectMeta {
        ObjectMeta {
            size: 0,
            etag: ETag(etag.to_owned()),
            modified: Timestamp(modified),
            attributes: crate::Attributes::default(),
            tags: crate::Tags::new(),
            checksums: Vec::new(),
            parts: Vec::new(),
            version: nigh_terms::Version::OUTSIDE,
            token: nigh_terms::Token::empty(),
        }
    }

    fn status(conditions: &ReadConditions, meta: &ObjectMeta) -> u16 {
        match check_read(conditions, meta) {
            Ok(()) => 200,
            Err(ObjectError::NotModified { .. }) => 304,
            Err(ObjectError::PreconditionFailed(_)) => 412,
            Err(other) => panic!("{other}"),
        }
    }

    fn etags(text: &[&str]) -> Option<Vec<ETag>> {
        Some(text.iter().map(|text| ETag((*text).to_owned())).collect())
    }

    #[test]
    fn a_match_outweighs_a_date() {
        let object = meta("a", 5_500);
        let later = ReadConditions {
            if_match: etags(&["a"]),
            if_unmodified_since: Some(Timestamp(1_000)),
            ..ReadConditions::default()
        };
        assert_eq!(status(&later, &object), 200);
        let changed = ReadConditions {
            if_none_match: etags(&["b"]),
            if_modified_since: Some(Timestamp(9_000)),
            ..ReadConditions::default()
        };
        assert_eq!(status(&changed, &object), 200);
        let same = ReadConditions {
            if_none_match: etags(&["a"]),
            if_modified_since: Some(Timestamp(1_000)),
            ..ReadConditions::default()
        };
        assert_eq!(status(&same, &object), 304);
    }

    #[test]
    fn a_date_is_compared_by_its_whole_second() {
        let object = meta("a", 5_999);
        let since = |date| ReadConditions { if_modified_since: Some(Timestamp(date)), ..ReadConditions::default() };
        assert_eq!([status(&since(5_000), &object), status(&since(4_000), &object)], [304, 200]);
        let until = |date| ReadConditions { if_unmodified_since: Some(Timestamp(date)), ..ReadConditions::default() };
        assert_eq!([status(&until(5_000), &object), status(&until(4_000), &object)], [200, 412]);
    }

    #[test]
    fn a_write_is_refused_over_what_its_conditions_exclude() {
        let object = ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new("k").unwrap(),
        };
        let there = meta("a", 0);
        let check = |conditions: &WriteConditions, current| check_write(conditions, &object, current);
        let absent = WriteConditions { if_absent: true, if_match: None };
        assert!(check(&absent, None).is_ok());
        assert!(matches!(check(&absent, Some(&there)), Err(ObjectError::PreconditionFailed(_))));
        let matches = |etag: &str| WriteConditions { if_absent: false, if_match: Some(ETag(etag.to_owned())) };
        assert!(check(&matches("a"), Some(&there)).is_ok() && check(&matches("*"), Some(&there)).is_ok());
        assert!(matches!(check(&matches("b"), Some(&there)), Err(ObjectError::PreconditionFailed(_))));
        assert!(matches!(check(&matches("*"), None), Err(ObjectError::NoSuchKey(_))));
    }

    proptest! {
        /// The table of RFC 9110 section 13.2.2, step by step.
        #[test]
        fn the_steps_of_the_rfc_are_followed(
            matches in prop::option::of(any::<bool>()),
            unmodified in prop::option::of(any::<bool>()),
            none_matches in prop::option::of(any::<bool>()),
            modified in prop::option::of(any::<bool>()),
        ) {
            let object = meta("a", 5_000);
            let conditions = ReadConditions {
                if_match: matches.and_then(|holds| etags(&["x", if holds { "a" } else { "y" }])),
                if_unmodified_since: unmodified.map(|holds| Timestamp(if holds { 5_000 } else { 4_000 })),
                if_none_match: none_matches.and_then(|holds| etags(&[if holds { "y" } else { "a" }])),
                if_modified_since: modified.map(|holds| Timestamp(if holds { 4_000 } else { 5_000 })),
            };
            let expected = match (matches, unmodified, none_matches, modified) {
                (Some(false), ..) | (None, Some(false), ..) => 412,
                (_, _, Some(false), _) | (_, _, None, Some(false)) => 304,
                _ => 200,
            };
            prop_assert_eq!(status(&conditions, &object), expected);
        }
    }
}
