use nigh_terms::{ObjectKey, Timestamp};

use super::*;

fn upload(key: &str, id: &str) -> UploadInfo {
    UploadInfo {
        upload: UploadId(id.into()),
        key: ObjectKey::new(key).unwrap(),
        initiated: Timestamp(0),
        checksum: None,
        checksum_type: None,
    }
}

fn names(page: (Vec<Entry>, bool)) -> (Vec<String>, bool) {
    let name = |entry| match entry {
        Entry::Upload(upload) => format!("{}#{}", upload.key, upload.upload.0),
        Entry::Prefix(prefix) => prefix,
    };
    (page.0.into_iter().map(name).collect(), page.1)
}

fn all() -> Vec<UploadInfo> {
    vec![upload("a", "1"), upload("a", "2"), upload("b/x", "3"), upload("b/y", "4"), upload("c", "5")]
}

#[test]
fn uploads_are_paged_by_key_and_upload() {
    assert_eq!(names(page(all(), "", None, "", None, 2)), (vec!["a#1".into(), "a#2".into()], true));
    let rest = page(all(), "", None, "a", Some("1"), 10);
    assert_eq!(names(rest).0, ["a#2", "b/x#3", "b/y#4", "c#5"]);
    assert_eq!(names(page(all(), "", None, "a", None, 10)).0, ["b/x#3", "b/y#4", "c#5"]);
}

#[test]
fn uploads_below_a_delimiter_become_one_prefix() {
    assert_eq!(names(page(all(), "", Some("/"), "", None, 3)), (vec!["a#1".into(), "a#2".into(), "b/".into()], true));
    assert_eq!(names(page(all(), "", Some("/"), "b/", None, 3)), (vec!["c#5".into()], false));
    assert_eq!(names(page(all()[2..4].to_vec(), "b/", Some("/"), "", None, 9)).0, ["b/x#3", "b/y#4"]);
}

#[test]
fn what_a_checksum_covers_is_asked_for_or_the_algorithm_s_own() {
    use ChecksumAlgorithm::{Crc32, Crc64Nvme};
    assert_eq!(covers(None, None).unwrap(), None);
    assert_eq!(covers(Some(Crc32), None).unwrap(), Some(Covers::Composite));
    assert_eq!(covers(Some(Crc64Nvme), None).unwrap(), Some(Covers::FullObject));
    assert_eq!(covers(Some(Crc32), Some("FULL_OBJECT")).unwrap(), Some(Covers::FullObject));
    assert!(covers(None, Some("COMPOSITE")).is_err());
    assert!(covers(Some(Crc32), Some("HALF")).is_err());
}

#[test]
fn a_completion_names_parts_with_number_and_tag() {
    let part = |number, crc32: Option<&str>| WirePart {
        part_number: Some(number),
        e_tag: Some(WireETag::Strong("e".into())),
        checksum_crc32: crc32.map(str::to_owned),
        ..WirePart::default()
    };
    let read = completed_parts(&[part(2, None), part(7, Some("AAAAAA=="))]).unwrap();
    assert_eq!((read[0].number, &read[0].checksum), (2, &None));
    assert_eq!(read[1].checksum.as_ref().unwrap().value, "AAAAAA==");
    let code = |parts: &[WirePart]| completed_parts(parts).unwrap_err().code().as_str().to_owned();
    assert_eq!(code(&[]), "MalformedXML");
    assert_eq!(code(&[WirePart::default()]), "MalformedXML");
    assert_eq!(code(&[part(0, None)]), "InvalidArgument");
    let two = WirePart { checksum_sha1: Some("x".into()), ..part(1, Some("AAAAAA==")) };
    assert_eq!(code(&[two]), "InvalidRequest");
}
