//! What the experiment reads by S3 calls: objects and listings.

use http::Method;

use super::body::{self, CONTENT_HEADER, WRITE_HEADER};
use super::history::ReadFinding;
use crate::LabError;
use crate::experiment::client_calls::{CallOutcome, Caller, element};
use crate::instrument::http_load::header;

/// What is at `path`; none if that is not told.
pub(crate) fn get(caller: &mut Caller<'_>, path: &str) -> Result<Result<ReadFinding, String>, LabError> {
    Ok(match caller.call(&Method::GET, path, &[], b"")? {
        CallOutcome::Done { head, body } => {
            Ok(body::seen(header(&head, WRITE_HEADER), header(&head, CONTENT_HEADER), &body))
        }
        other => other.body().map(|_| ReadFinding::Absent),
    })
}

/// The keys of a bucket of at most a thousand, with their sizes.
pub(crate) fn list(caller: &mut Caller<'_>, bucket: &str) -> Result<Result<Vec<(String, usize)>, String>, LabError> {
    let listed = caller.call(&Method::GET, &format!("/{bucket}?list-type=2"), &[], b"")?.body();
    let page = listed.and_then(|page| page.ok_or_else(|| "404".to_owned()));
    Ok(page.map(|page| entries(&String::from_utf8_lossy(&page))))
}

/// Keys and sizes in a page of a listing; the experiment's keys need no escapes.
fn entries(page: &str) -> Vec<(String, usize)> {
    let entry = |text: &str| Some((element(text, "Key")?.to_owned(), element(text, "Size")?.parse().ok()?));
    page.split("<Contents>").skip(1).filter_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_gives_keys_and_sizes() {
        let page = "<ListBucketResult><Contents><Key>own/0</Key><Size>7</Size></Contents>\
                    <Contents><Key>shared/1</Key><ETag>x</ETag><Size>0</Size></Contents></ListBucketResult>";
        assert_eq!(entries(page), [("own/0".to_owned(), 7), ("shared/1".to_owned(), 0)]);
        assert_eq!(entries("<ListBucketResult></ListBucketResult>"), []);
    }
}
