//! The answers of uploads completed lately: a client that did not get its answer asks again and gets the same.
//!
//! The answers are in memory and limited in number. After a restart, or when newer ones have replaced the answer, the
//! upload no longer exists for the client.

use std::collections::VecDeque;

use nigh_data::{CompletedPart, ObjectId, PutDone, UploadId};
use nigh_terms::{BucketName, Namespace};
use sha2::{Digest, Sha256};

/// The most answers remembered; the oldest goes first.
const COMPLETED_MAX: usize = 1000;

/// A hash of a list of parts: the list itself may have 10,000 entries.
type Print = [u8; 32];

#[derive(Debug)]
struct CompletionAnswer {
    upload: UploadId,
    object: ObjectId,
    parts: Print,
    done: PutDone,
}

/// The remembered answers, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct CompletedUploads(VecDeque<CompletionAnswer>);

fn print_of(parts: &[CompletedPart]) -> Print {
    let mut digest = Sha256::new();
    for CompletedPart { number, etag, checksum } in parts {
        let checksum = checksum.as_ref().map(|checksum| (checksum.algorithm, checksum.value.as_str()));
        // `Debug` quotes the texts, so that no two lists give the same bytes.
        digest.update(format!("{number} {:?} {checksum:?};", etag.0));
    }
    digest.finalize().into()
}

impl CompletedUploads {
    /// Remembers the answer to an upload's completion.
    pub(crate) fn keep(&mut self, upload: &UploadId, object: &ObjectId, parts: &[CompletedPart], done: &PutDone) {
        if self.0.len() >= COMPLETED_MAX {
            self.0.pop_front();
        }
        let parts = print_of(parts);
        self.0.push_back(CompletionAnswer {
            upload: upload.clone(),
            object: object.clone(),
            parts,
            done: done.clone(),
        });
    }

    /// The answer that `upload` was given, if it was completed as `object` with the same `parts`.
    pub(crate) fn find(&self, upload: &UploadId, object: &ObjectId, parts: &[CompletedPart]) -> Option<PutDone> {
        let answer = self.0.iter().find(|answer| answer.upload == *upload && answer.object == *object)?;
        (answer.parts == print_of(parts)).then(|| answer.done.clone())
    }

    /// Forgets the answers of a bucket that was removed.
    pub(crate) fn forget(&mut self, namespace: &Namespace, bucket: &BucketName) {
        self.0.retain(|answer| answer.object.namespace != *namespace || answer.object.bucket != *bucket);
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{ObjectKey, Timestamp, Token, Version};

    use super::*;
    use nigh_data::ETag;

    fn object(key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    fn done() -> PutDone {
        PutDone {
            etag: ETag("e".to_owned()),
            size: 1,
            modified: Timestamp(0),
            checksum: None,
            version: Version::OUTSIDE,
            token: Token::empty(),
        }
    }

    fn part(number: u32, etag: &str) -> CompletedPart {
        CompletedPart { number, etag: ETag(etag.to_owned()), checksum: None }
    }

    #[test]
    fn an_answer_is_given_again_for_the_same_upload_object_and_parts_only() {
        let (mut completed, upload) = (CompletedUploads::default(), UploadId("u".to_owned()));
        let parts = [part(1, "a"), part(2, "b")];
        completed.keep(&upload, &object("k"), &parts, &done());
        assert_eq!(completed.find(&upload, &object("k"), &parts), Some(done()));
        assert_eq!(completed.find(&upload, &object("k"), &parts[..1]), None);
        assert_eq!(completed.find(&upload, &object("k"), &[part(1, "a"), part(2, "c")]), None);
        assert_eq!(completed.find(&upload, &object("other"), &parts), None);
        assert_eq!(completed.find(&UploadId("v".to_owned()), &object("k"), &parts), None);
        let of = object("k");
        completed.forget(&of.namespace, &BucketName::new("other").unwrap());
        assert!(completed.find(&upload, &of, &parts).is_some());
        completed.forget(&of.namespace, &of.bucket);
        assert!(completed.find(&upload, &of, &parts).is_none());
    }

    #[test]
    fn the_number_of_answers_kept_is_limited() {
        let mut completed = CompletedUploads::default();
        let upload = |n: usize| UploadId(n.to_string());
        for n in 0..=COMPLETED_MAX {
            completed.keep(&upload(n), &object("k"), &[], &done());
        }
        assert_eq!(completed.0.len(), COMPLETED_MAX);
        assert!(completed.find(&upload(0), &object("k"), &[]).is_none());
        assert!(completed.find(&upload(COMPLETED_MAX), &object("k"), &[]).is_some());
    }
}
