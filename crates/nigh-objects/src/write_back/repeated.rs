//! Repeated requests: the shell around `requests`.

use nigh_data::{ObjectError, ObjectId};
use nigh_engine::RequestId;
use nigh_terms::Version;

use super::WriteBack;
use super::dirty::ObjectState;
use super::policy::WriteMode;
use super::requests::RequestRecord;

impl WriteBack {
    /// Records the result of a request, if it has a name.
    pub(crate) fn note(
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

    /// The result of a repeated request, once its promise holds; none if the request must be carried out.
    ///
    /// # Errors
    /// `SlowDown` while the store does not have a write that should go through to it.
    pub(crate) async fn repeated(
        &self,
        object: &ObjectId,
        request: Option<RequestId>,
    ) -> Result<Option<RequestRecord>, ObjectError> {
        let Some(request) = request else { return Ok(None) };
        let Some(known) = self.requests.lock().get(request, object).cloned() else { return Ok(None) };
        if !known.is_certain {
            // The store got the write, which carries its version, although it did not answer.
            let is_there = self.store.head(object).await.is_ok_and(|meta| meta.version == known.version);
            if !is_there {
                return Ok(None);
            }
        }
        self.acknowledge(object, known.mode, known.version).await?;
        Ok(Some(known))
    }

    /// Records that the change of `request` was notified.
    pub(crate) fn told(&self, object: &ObjectId, request: Option<RequestId>) {
        if let Some(request) = request
            && let Some(known) = self.requests.lock().get_mut(request, object)
        {
            known.told = true;
        }
    }
}
