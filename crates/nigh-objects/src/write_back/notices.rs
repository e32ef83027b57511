//! The store's notices of changes, as far as they concern writes that the store does not have yet.
//!
//! A service may wait for the answer to its notice before it answers the writer (MinIO with `sync_events`). So the notice
//! of an outsider's write is answered when this node's unpushed write of the object has been pushed or has given way: who
//! reads here then finds the outsider's write. The notice of a write that this node is just sending is answered at once:
//! the service holds the answer to that write back meanwhile.

use std::collections::HashMap;

use nigh_data::{ETag, ObjectId};

use super::WriteBack;
use super::dirty::{Base, UnpushedWrite};
use crate::sync::Mutex;

/// What a notice says that a store has of an object now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// Bytes with this entity tag.
    Holds(ETag),
    /// No object: it was removed, and its remover has no answer yet.
    Removed,
    /// Something else than before: no object, or other metadata.
    Changed,
}

impl StoreChange {
    /// The entity tag of the bytes; none if the notice does not say it.
    #[must_use]
    pub const fn etag(&self) -> Option<&ETag> {
        match self {
            Self::Holds(etag) => Some(etag),
            Self::Removed | Self::Changed => None,
        }
    }
}

/// What a notice means here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoticeKind {
    /// It is about a write of this node, which is on its way or is known to be there.
    Own,
    /// Copies are dropped, and nothing else is to be done.
    CopiesOnly,
    /// An outsider has changed the object. A write that is under way here may not have seen it.
    Outside,
    /// The same, and the store does not have this node's newest write.
    OverUnpushed,
}

/// What this node is sending to the store at this moment, object by object.
#[derive(Default)]
pub(super) struct Sending(Mutex<HashMap<ObjectId, Base>>);

/// Ends with the store's answer, or when nobody waits for that any more.
pub(super) struct SendingGuard<'a> {
    sending: &'a Sending,
    object: &'a ObjectId,
}

impl Sending {
    /// The store is about to be sent what leaves `leaves` of `object`.
    pub(super) fn begin<'a>(&'a self, object: &'a ObjectId, leaves: Base) -> SendingGuard<'a> {
        self.0.lock().insert(object.clone(), leaves);
        SendingGuard { sending: self, object }
    }

    fn get(&self, object: &ObjectId) -> Option<Base> {
        self.0.lock().get(object).cloned()
    }
}

impl Drop for SendingGuard<'_> {
    fn drop(&mut self) {
        self.sending.0.lock().remove(self.object);
    }
}

/// Whether `change` may tell of the write that leaves `sent`. None if it may, and also of another.
fn tells_of(change: &StoreChange, sent: &Base) -> Option<bool> {
    match (change, sent) {
        (StoreChange::Changed, _) => None,
        // The service computes another tag for an object in parts than Nigh does.
        (StoreChange::Holds(_), Base::Holds(etag)) if etag.0.contains('-') => None,
        (StoreChange::Holds(now), Base::Holds(etag)) => Some(now == etag),
        (StoreChange::Removed, Base::Absent) => Some(true),
        _ => Some(false),
    }
}

impl WriteBack {
    /// What the notice of `change` means. A write that must give way because of it is marked.
    pub(crate) fn heard(&self, object: &ObjectId, change: &StoreChange) -> NoticeKind {
        let sent = self.sending.get(object);
        match sent.as_ref().map(|sent| tells_of(change, sent)) {
            Some(Some(true)) => return NoticeKind::Own,
            Some(None) => return NoticeKind::CopiesOnly,
            Some(Some(false)) | None => {}
        }
        // An outsider's write in an exclusive bucket is overwritten by the push, sooner or later.
        if !self.is_shared(object) {
            return NoticeKind::CopiesOnly;
        }
        let holds = match change {
            StoreChange::Holds(etag) => Base::Holds(etag.clone()),
            StoreChange::Removed => Base::Absent,
            StoreChange::Changed => Base::Unknown,
        };
        let mut dirty = self.dirty.lock();
        let waits = dirty.get(object).is_some_and(UnpushedWrite::is_pushed_at_last);
        match (waits, dirty.noticed(object, &holds)) {
            (true, true) => NoticeKind::OverUnpushed,
            (true, false) => NoticeKind::CopiesOnly,
            (false, _) if sent.is_none() && *change != StoreChange::Changed => NoticeKind::Outside,
            (false, _) => NoticeKind::CopiesOnly,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_of_what_is_being_sent_if_it_tells_of_the_same_bytes() {
        let tag = |text: &str| ETag(text.to_owned());
        let (ours, parts) = (Base::Holds(tag("a")), Base::Holds(tag("a-2")));
        for (change, sent, expected) in [
            (StoreChange::Holds(tag("a")), &ours, Some(true)),
            (StoreChange::Holds(tag("b")), &ours, Some(false)),
            (StoreChange::Holds(tag("b")), &parts, None),
            (StoreChange::Removed, &ours, Some(false)),
            (StoreChange::Removed, &Base::Absent, Some(true)),
            (StoreChange::Holds(tag("a")), &Base::Absent, Some(false)),
            (StoreChange::Changed, &ours, None),
        ] {
            assert_eq!(tells_of(&change, sent), expected, "{change:?} {sent:?}");
        }
    }
}
