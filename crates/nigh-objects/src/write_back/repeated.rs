//! Requests that are made again: the shell around `requests`.

use nigh_data::{ObjectError, ObjectId};
use nigh_engine::RequestId;
use nigh_terms::Version;

use super::WriteBack;
use super::dirty::ObjectState;
use super::policy::WriteMode;
use super::requests::RequestRecord;

impl WriteBack {
    /// Takes note of what became of a request that has a name.
    pub(super) fn note(
        &self,
        request: Option<RequestId>,
        object: &ObjectId,
        mode: WriteMode,
        version: Version,
        becomes: ObjectState,
        is_certain: bool,
    ) {
        if let Some(request) = request {
            let mut requests = self.requests.lock();
            let told = requests.get(request, object).is_some_and(|known| known.version == version && known.told);
            requests.note(request, object, RequestRecord { version, mode, becomes, is_certain, told });
        }
    }

    /// What became of a request that is made again, once what it was promised holds; None if it is to be carried out.
    ///
    /// # Errors
    /// `SlowDown` while the store does not have what was to go through to it.
    pub(crate) async fn repeated(
        &self,
        object: &ObjectId,
        request: Option<RequestId>,
    ) -> Result<Option<RequestRecord>, ObjectError> {
        let Some(request) = request else { return Ok(None) };
        let Some(known) = self.requests.lock().get(request, object).cloned() else { return Ok(None) };
        if !known.is_certain {
            // Sent to the store, without an answer: it carries its version.
            let is_there = self.store.head(object).await.is_ok_and(|meta| meta.version == known.version);
            if !is_there {
                return Ok(None);
            }
        }
        self.acknowledge(object, known.mode, known.version).await?;
        Ok(Some(known))
    }

    /// Those who want to hear of the change that `request` made have.
    pub(crate) fn told(&self, object: &ObjectId, request: Option<RequestId>) {
        if let Some(request) = request
            && let Some(known) = self.requests.lock().get_mut(request, object)
        {
            known.told = true;
        }
    }
}
