//! How a bucket's keys become one page of a listing: the roll-up of common prefixes (ListObjectsV2).
//!
//! This module decides which keys to ask the store for next and what the page says; it never asks. A common prefix is
//! entered once and then skipped: the next question goes behind all its keys, so that a page costs what it
//! shows, however many keys a prefix hides.

use crate::{ListPage, ListRequest, ListedObject};

/// Keys asked for at a time, at most.
const BATCH_MAX: usize = 1000;
/// Keys asked for at a time, at least, while prefixes are being skipped.
const BATCH_MIN: usize = 16;

/// The store's next keys are wanted: up to `limit` behind `after`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Keys behind this one; all if absent.
    pub after: Option<String>,
    /// At most so many.
    pub limit: usize,
}

/// A page in the making.
#[derive(Debug)]
pub struct RollUp {
    request: ListRequest,
    page: ListPage,
    /// The last entry of the page.
    last: Option<String>,
    after: Option<String>,
    batch: usize,
}

/// Sorts behind every key that begins with `prefix`, but for keys that go on with this character; those are
/// met again and skipped one by one.
fn behind(prefix: &str) -> String {
    format!("{prefix}{}", char::MAX)
}

impl RollUp {
    /// A page for `request`, and what to ask first; nothing if an empty page was asked for.
    pub fn begin(request: ListRequest) -> (Self, Option<Question>) {
        let mut after = request.start_after.clone();
        // A prefix that holds `start_after`, or is it, does not sort behind it: all its keys are passed over.
        if let Some(start) = &request.start_after
            && let Some(prefix) = common_prefix(&request, start)
        {
            after = Some(behind(prefix));
        }
        let batch = request.limit.saturating_add(1).min(BATCH_MAX);
        let roll_up = Self { request, page: ListPage::default(), last: None, after, batch };
        let question = (roll_up.request.limit > 0).then(|| roll_up.question());
        (roll_up, question)
    }

    fn question(&self) -> Question {
        Question { after: self.after.clone(), limit: self.batch }
    }

    fn entries(&self) -> usize {
        self.page.objects.len() + self.page.common_prefixes.len()
    }

    /// Takes the store's answer to the last question. Gives the next one, or nothing when the page is complete.
    pub fn answer(&mut self, listed: Vec<ListedObject>) -> Option<Question> {
        let at_end = listed.len() < self.batch;
        let mut skipped = 0;
        for object in listed {
            let prefix = common_prefix(&self.request, object.key.as_str()).map(str::to_owned);
            self.after = Some(object.key.as_str().to_owned());
            if let Some(prefix) = &prefix
                && (self.page.common_prefixes.last() == Some(prefix)
                    || self.request.start_after.as_ref().is_some_and(|start| prefix <= start))
            {
                skipped += 1;
                self.after = Some(behind(prefix)).max(self.after.take());
                continue;
            }
            if self.entries() == self.request.limit {
                self.page.next.clone_from(&self.last);
                return None;
            }
            match prefix {
                Some(prefix) => {
                    self.last = Some(prefix.clone());
                    self.after = Some(behind(&prefix)).max(self.after.take());
                    self.page.common_prefixes.push(prefix);
                }
                None => {
                    self.last.clone_from(&self.after);
                    self.page.objects.push(object);
                }
            }
        }
        if at_end {
            return None;
        }
        self.batch =
            if skipped * 2 > self.batch { (self.batch / 4).max(BATCH_MIN) } else { (self.batch * 2).min(BATCH_MAX) };
        Some(self.question())
    }

    /// The page; complete once there is no further question.
    pub fn page(self) -> ListPage {
        self.page
    }
}

/// The part of `key` up to the first delimiter behind the prefix, delimiter included.
fn common_prefix<'key>(request: &ListRequest, key: &'key str) -> Option<&'key str> {
    let delimiter = request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
    let rest = key.strip_prefix(request.prefix.as_str())?;
    let end = request.prefix.len() + rest.find(delimiter)? + delimiter.len();
    key.get(..end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nigh_terms::{ObjectKey, Timestamp};
    use proptest::prelude::*;

    use super::*;
    use crate::ETag;

    /// Answers as a store would, counting the keys it gives.
    fn run(keys: &BTreeSet<String>, request: &ListRequest) -> (ListPage, usize) {
        let (mut page, mut question) = RollUp::begin(request.clone());
        let mut given = 0;
        while let Some(Question { after, limit }) = question {
            assert!(limit > 0 && limit <= BATCH_MAX);
            let listed: Vec<ListedObject> = keys
                .iter()
                .filter(|key| key.starts_with(&request.prefix) && after.as_ref().is_none_or(|after| *key > after))
                .take(limit)
                .map(|key| ListedObject {
                    key: ObjectKey::new(key).unwrap(),
                    size: 0,
                    etag: ETag(String::new()),
                    modified: Timestamp(0),
                })
                .collect();
            given += listed.len();
            question = page.answer(listed);
        }
        (page.page(), given)
    }

    /// Every entry of the whole listing, in order.
    fn model(keys: &BTreeSet<String>, request: &ListRequest) -> Vec<String> {
        let mut entries: Vec<String> = Vec::new();
        for key in keys.iter().filter(|key| key.starts_with(&request.prefix)) {
            let rest = &key[request.prefix.len()..];
            let entry = match request.delimiter.as_deref().filter(|d| !d.is_empty()).and_then(|d| rest.split_once(d)) {
                Some((head, _)) => {
                    format!("{}{head}{}", request.prefix, request.delimiter.as_deref().unwrap_or_default())
                }
                None => key.clone(),
            };
            if request.start_after.as_ref().is_none_or(|start| &entry > start) && entries.last() != Some(&entry) {
                entries.push(entry);
            }
        }
        entries
    }

    fn entries(page: &ListPage) -> Vec<String> {
        let mut entries: Vec<String> = page.objects.iter().map(|listed| listed.key.as_str().to_owned()).collect();
        entries.extend(page.common_prefixes.iter().cloned());
        entries.sort();
        entries
    }

    #[test]
    fn a_prefix_with_many_keys_costs_little() {
        let mut keys: BTreeSet<String> = (0..50_000).map(|n| format!("many/{n:05}")).collect();
        keys.insert("last".to_owned());
        keys.insert("zero".to_owned());
        let request = ListRequest { delimiter: Some("/".to_owned()), limit: 1000, ..ListRequest::default() };
        let (page, given) = run(&keys, &request);
        assert_eq!(entries(&page), ["last", "many/", "zero"]);
        assert_eq!(page.next, None);
        assert!(given < 1100, "{given}");
    }

    #[test]
    fn an_empty_page_asks_nothing() {
        let (_, question) = RollUp::begin(ListRequest::default());
        assert_eq!(question, None);
    }

    fn key() -> impl Strategy<Value = String> {
        prop::collection::vec(prop::sample::select(vec!["a", "b", "/", "//", "\u{10ffff}", "ü"]), 1..6)
            .prop_map(|parts| parts.concat())
    }

    proptest! {
        #[test]
        fn the_pages_together_are_the_naive_listing(
            keys in prop::collection::btree_set(key(), 0..60),
            prefix in prop_oneof![Just(String::new()), key()],
            delimiter in prop::sample::select(vec![None, Some("/"), Some("b/"), Some("")]),
            start in prop::option::of(key()),
            limit in 1usize..7,
        ) {
            let mut request = ListRequest {
                prefix,
                delimiter: delimiter.map(str::to_owned),
                start_after: start,
                limit,
            };
            let mut left = model(&keys, &request);
            loop {
                let (page, _) = run(&keys, &request);
                let expected: Vec<String> = left.drain(..limit.min(left.len())).collect();
                prop_assert_eq!(entries(&page), expected);
                prop_assert_eq!(page.next.is_some(), !left.is_empty());
                if page.next.is_none() {
                    break;
                }
                request.start_after = page.next;
            }
        }
    }
}
