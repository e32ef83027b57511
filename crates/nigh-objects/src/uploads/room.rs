//! The bytes of unfinished uploads, bounded for each namespace. Pure.

use std::collections::HashMap;
use std::sync::Arc;

use nigh_data::ObjectError;
use nigh_terms::{ByteSize, Namespace};
use parking_lot::Mutex;

/// The limit until `limit` sets another: eight objects of the S3 door's usual largest size.
const NAMESPACE_BYTES_MAX: u64 = 40 << 30;

/// The bytes that the parts of unfinished uploads take, those that are being received included. A clone is another handle
/// to the same.
#[derive(Clone, Debug)]
pub(crate) struct UploadRoom(Arc<Mutex<TakenRoom>>);

#[derive(Debug)]
struct TakenRoom {
    namespace_bytes_max: u64,
    by_namespace: HashMap<Namespace, u64>,
}

/// Bytes that one part takes; given back when it is dropped.
#[derive(Debug)]
pub(crate) struct ReservedRoom {
    room: UploadRoom,
    namespace: Namespace,
    bytes: u64,
}

impl Default for UploadRoom {
    fn default() -> Self {
        let taken = TakenRoom { namespace_bytes_max: NAMESPACE_BYTES_MAX, by_namespace: HashMap::new() };
        Self(Arc::new(Mutex::new(taken)))
    }
}

impl UploadRoom {
    /// The bytes that each namespace may take from now on. What takes more already stays.
    pub(crate) fn limit(&self, namespace_bytes_max: ByteSize) {
        self.0.lock().namespace_bytes_max = namespace_bytes_max.bytes();
    }

    /// Room for a part of so many bytes.
    pub(crate) fn reserve(&self, namespace: &Namespace, bytes: u64) -> Result<ReservedRoom, ObjectError> {
        let mut room = self.found(namespace, 0);
        room.grow_to(bytes)?;
        Ok(room)
    }

    /// The room of a part that is there already, also beyond the limit.
    pub(crate) fn found(&self, namespace: &Namespace, bytes: u64) -> ReservedRoom {
        *self.0.lock().by_namespace.entry(namespace.clone()).or_default() += bytes;
        ReservedRoom { room: self.clone(), namespace: namespace.clone(), bytes }
    }
}

impl ReservedRoom {
    /// Takes more, if the part turns out to have more bytes.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<(), ObjectError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let mut taken = self.room.0.lock();
        let limit = taken.namespace_bytes_max;
        let own = taken.by_namespace.entry(self.namespace.clone()).or_default();
        if own.saturating_add(more) > limit {
            let why = "the unfinished uploads of the namespace have all the bytes that they may (s3.uploads_bytes); \
                       complete or abort some";
            return Err(ObjectError::SlowDown(why));
        }
        *own += more;
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for ReservedRoom {
    fn drop(&mut self) {
        let mut taken = self.room.0.lock();
        if let Some(own) = taken.by_namespace.get_mut(&self.namespace) {
            *own -= self.bytes;
            if *own == 0 {
                taken.by_namespace.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_bounded_for_each_namespace_and_given_back() {
        let (one, two) = (Namespace::new("one").unwrap(), Namespace::new("two").unwrap());
        let room = UploadRoom::default();
        room.limit(ByteSize(10));
        let mut first = room.reserve(&one, 6).unwrap();
        assert!(matches!(room.reserve(&one, 5), Err(ObjectError::SlowDown(why)) if why.contains("s3.uploads_bytes")));
        let second = room.reserve(&one, 4).unwrap();
        assert!(first.grow_to(7).is_err());
        drop(second);
        first.grow_to(7).unwrap();
        first.grow_to(3).unwrap();
        assert!(room.reserve(&one, 4).is_err() && room.reserve(&two, 10).is_ok());
        let beyond = room.found(&one, 100);
        assert!(room.reserve(&one, 1).is_err());
        drop((first, beyond));
        assert!(room.0.lock().by_namespace.is_empty());
        drop(room.reserve(&one, 0).unwrap());
        assert!(room.0.lock().by_namespace.is_empty());
    }
}
