//! Room for unpushed writes: promised before a write is made, and released if it is not made.

use nigh_data::{ObjectError, ObjectId};

use super::WriteBack;
use super::dirty::WriteBackQueue;

/// Room that a write was promised. Dropping it releases the room.
pub(crate) struct Room<'a> {
    back: &'a WriteBack,
    bytes: Option<u64>,
}

impl Room<'_> {
    /// Ends the promise: the write is added now, under the same lock.
    pub(super) fn taken(mut self, dirty: &mut WriteBackQueue) {
        if let Some(bytes) = self.bytes.take() {
            dirty.release(bytes);
        }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(bytes) = self.bytes.take() {
            self.back.dirty.lock().release(bytes);
            // Wakes writes that wait for room.
            self.back.pushes.send_modify(|pushes| *pushes += 1);
        }
    }
}

impl WriteBack {
    /// Waits until there is room for an unpushed write of `bytes`, and promises it.
    pub(crate) async fn wait_for_room(&self, object: &ObjectId, bytes: u64) -> Result<Room<'_>, ObjectError> {
        let promised = || self.dirty.lock().promise(object, bytes);
        if !promised() {
            self.dirty.lock().want_all(self.clock.monotonic());
            self.work.notify_one();
            self.until(self.settings.wait, promised, "the store has not taken what was written before").await?;
        }
        Ok(Room { back: self, bytes: Some(bytes) })
    }
}
