//! Mode `shadow`: a write is acknowledged when the journal has it and the store shows that it is coming.
//!
//! The journal comes first, so that every placeholder has its payload behind it. If the store did not answer, or the
//! node was killed in between, the write is in the journal and was not acknowledged, and the store may show its
//! placeholder or not: the write is *unannounced*. Nobody reads the object here until a push has made the write happen,
//! or has found an outside write since and stored this one under its conflict key. Follows
//! `integrations/swift/README.md` and OFC, section 6.2.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use nigh_data::{ObjectError, ObjectId, ObjectMeta};
use nigh_engine::RequestId;
use nigh_stores::Shadows;
use nigh_stores::swift::shadow::{ShadowConflict, ShadowError, SwiftTimestamp};
use nigh_terms::Version;
use serde::{Deserialize, Serialize};

use super::dirty::{Base, ObjectState, PossibleBases, Push, WriteBackQueue};
use super::persistor::{Copies, Outcome};
use super::policy::WriteMode;
use super::room::Room;
use super::{WriteBack, unkept};

/// The most seconds by which the clocks of this node and of the store may differ.
const CLOCKS_APART_S: u64 = 60;

/// Which incarnation of this node made an unannounced write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    /// The present one: the write was not acknowledged.
    This,
    /// An earlier one: the write may have been acknowledged.
    Earlier,
}

/// Objects whose newest unpushed version may have no placeholder.
pub(super) type UnannouncedWrites = HashMap<ObjectId, (Version, Life)>;

/// The most refused requests that are remembered.
const REFUSED_MAX: usize = 10_000;

/// Requests that were refused after the journal had them. The journal would take a repetition for the first, refused
/// write, so the repetition gets another name there.
#[derive(Debug, Default)]
pub(super) struct RefusedRequests {
    names: HashMap<RequestId, RequestId>,
    order: VecDeque<RequestId>,
}

impl RefusedRequests {
    /// `request` was refused: when it is repeated, the journal knows it as `name`.
    fn rename(&mut self, request: RequestId, name: RequestId) {
        if self.names.insert(request, name).is_none() {
            self.order.push_back(request);
        }
        if self.order.len() > REFUSED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    fn name(&self, request: RequestId) -> RequestId {
        self.names.get(&request).copied().unwrap_or(request)
    }
}

/// The result of pushing a version that the store's readers ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PushOutcome {
    /// The store has the version.
    Pushed,
    /// The store has a newer version.
    Superseded,
    /// This node does not know the version.
    Unknown,
}

/// A placeholder that the store was asked to show. Readers who meet it before the store has answered wait for the
/// answer.
pub(crate) struct PlaceholderGuard<'a> {
    back: &'a WriteBack,
    object: &'a ObjectId,
}

impl<'a> PlaceholderGuard<'a> {
    pub(crate) fn begin(back: &'a WriteBack, object: &'a ObjectId) -> Self {
        back.announcing.lock().insert(object.clone());
        Self { back, object }
    }
}

impl Drop for PlaceholderGuard<'_> {
    fn drop(&mut self) {
        self.back.announcing.lock().remove(self.object);
        self.back.pushes.send_modify(|ended| *ended += 1);
    }
}

/// The result of asking the store to show a placeholder.
pub(crate) enum PlaceholderOutcome {
    /// The store shows the placeholder.
    Placed,
    /// The store does not show the placeholder, and never will.
    NotPlaced(ObjectError),
    /// The store may show the placeholder, now or later.
    Unknown(ObjectError),
}

/// What to do with a version whose placeholder the store does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The store never showed it: place it and push.
    Place,
    /// The object was written from outside after it, or may have been: store the write under its conflict key.
    Apart,
}

/// Decides about `version`, written to the journal at `written_s` (seconds since 1970), whose placeholder the store
/// does not show; Swift has `found` instead. Pure.
fn verdict(life: Life, version: Version, written_s: u64, found: &ShadowConflict) -> Verdict {
    let older_of_ours = found.version().is_some_and(|there| there < version);
    // By the store's own clock: an outside write that had replaced the placeholder would be younger than it.
    let before = found.seconds().is_some_and(|seconds| seconds.saturating_add(CLOCKS_APART_S) < written_s);
    if life == Life::This || older_of_ours || before { Verdict::Place } else { Verdict::Apart }
}

impl WriteBack {
    /// The name under which the journal takes `request`.
    pub(crate) fn journal_name(&self, request: RequestId) -> RequestId {
        self.refused.lock().name(request)
    }

    /// `request` was refused after the journal had it: a repetition is another write.
    pub(crate) fn rename_refused(&self, request: Option<RequestId>) {
        if let Some(request) = request {
            self.refused.lock().rename(request, RequestId(uuid::Uuid::new_v4().as_u128()));
        }
    }

    /// True if nobody knows whether the store shows the placeholder of `version`.
    pub(crate) fn is_unannounced(&self, object: &ObjectId, version: Version) -> bool {
        self.unannounced.lock().get(object).is_some_and(|(waiting, _)| *waiting == version)
    }

    /// Records that nobody knows whether the store shows the placeholder of `version`, which this incarnation wrote.
    pub(crate) fn note_unannounced(&self, object: &ObjectId, version: Version) {
        self.unannounced.lock().insert(object.clone(), (version, Life::This));
    }

    /// Asks the store to show a placeholder for `meta`.
    pub(crate) async fn place_placeholder(
        &self,
        shadows: &dyn Shadows,
        object: &ObjectId,
        meta: &ObjectMeta,
    ) -> PlaceholderOutcome {
        match tokio::time::timeout(self.settings.wait, shadows.place(object, meta)).await {
            Ok(Ok(())) => PlaceholderOutcome::Placed,
            Ok(Err(error)) if may_stand(&error) => PlaceholderOutcome::Unknown(refused(error)),
            Ok(Err(error)) => PlaceholderOutcome::NotPlaced(refused(error)),
            Err(_) => {
                let why = "the store has not taken the placeholder of the write yet";
                PlaceholderOutcome::Unknown(ObjectError::SlowDown(why))
            }
        }
    }

    pub(crate) async fn wrote_shadow(&self, object: &ObjectId, meta: &Arc<ObjectMeta>, room: Room<'_>) {
        let becomes = ObjectState::Put(Arc::clone(meta));
        self.wrote(object, meta.version, WriteMode::Shadow, becomes, PossibleBases::default(), room).await;
        self.unmark(object).await;
    }

    /// For a request that an earlier incarnation has in the journal: checks that it was not refused then.
    pub(crate) async fn check_happened(
        &self,
        shadows: &dyn Shadows,
        object: &ObjectId,
        version: Version,
    ) -> Result<(), ObjectError> {
        let waits = self.dirty.lock().get(object).is_some_and(|newest| newest.version >= version);
        if waits || version.epoch == self.ledger.epoch(self.shards.of(object)) {
            return Ok(());
        }
        let there = shadows.standing(object).await?;
        let has_had = [there.shadow, there.payload].into_iter().flatten().any(|there| there >= version);
        if has_had { Ok(()) } else { Err(ObjectError::ConditionalRequestConflict) }
    }

    /// Waits until it is known whether the unpushed write of `object` has happened.
    ///
    /// # Errors
    /// `SlowDown` if that takes longer than a write may wait.
    pub(super) async fn certain(&self, object: &ObjectId) -> Result<(), ObjectError> {
        let version = self.unannounced.lock().get(object).map(|(version, _)| *version);
        match version {
            Some(version) => self.flushed(object, version).await,
            None => Ok(()),
        }
    }

    /// A reader did not get `object` from the store. True if the cause may be a placeholder that was on its way and is
    /// no longer: the reader must try again.
    pub(super) async fn met_a_placeholder(&self, object: &ObjectId) -> bool {
        if self.is_announcing(object) {
            let ended = || !self.is_announcing(object);
            return self.until(self.settings.wait, ended, "its placeholder is on its way").await.is_ok();
        }
        self.dirty.lock().get(object).is_some()
    }

    fn is_announcing(&self, object: &ObjectId) -> bool {
        self.announcing.lock().contains(object)
    }

    /// Pushes a write in mode `shadow`.
    pub(super) async fn push_shadow(&self, push: &Push, meta: &ObjectMeta, copies: &dyn Copies) -> Outcome {
        let object = &push.object;
        let Some(shadows) = self.store.shadows(&object.namespace) else {
            let reason = "the store of this object showed what was coming and does not any more: set it up as it was";
            return Outcome::refused(unkept(object, reason));
        };
        let payload = match self.payload(object, meta, copies).await {
            Ok(Some(payload)) => payload,
            Ok(None) => return Outcome::Stored(Base::Unknown),
            Err(error) => return Outcome::refused(error),
        };
        let mut outcome = shadows.push(object, &payload, meta).await;
        // The placeholder of a newer write may stand already, which is known when its answer has come.
        if matches!(outcome, Err(ShadowError::Outside(_) | ShadowError::Newer(_))) && self.is_announcing(object) {
            return Outcome::refused(ObjectError::SlowDown("a newer write of the object is being announced"));
        }
        let is_newest = self.dirty.lock().get(object).is_some_and(|newest| newest.version == push.version);
        let life =
            self.unannounced.lock().get(object).filter(|(version, _)| *version == push.version).map(|(_, life)| *life);
        if let (Err(ShadowError::Outside(found)), Some(life), true) = (&outcome, life, is_newest)
            && verdict(life, push.version, meta.modified.millis() / 1000, found) == Verdict::Place
        {
            outcome = match shadows.place(object, meta).await {
                Ok(()) => shadows.push(object, &payload, meta).await,
                Err(error) => Err(error),
            };
        }
        match outcome {
            Ok(()) => Outcome::Stored(push.becomes.leaves()),
            // The newer write is on its way, and replaces this one in the store.
            Err(ShadowError::Outside(_) | ShadowError::Newer(_) | ShadowError::Raced(_)) if !is_newest => {
                Outcome::Stored(Base::Unknown)
            }
            Err(ShadowError::Outside(_) | ShadowError::Newer(_)) => Outcome::Conflict,
            Err(error) => Outcome::refused(refused(error)),
        }
    }

    /// Pushes `version` of `object`, and waits until the store has it.
    ///
    /// # Errors
    /// `SlowDown` if that takes longer than a write may wait; the store's.
    pub(crate) async fn push_now(&self, object: &ObjectId, version: Version) -> Result<PushOutcome, ObjectError> {
        let waits = self.dirty.lock().get(object).map(|newest| (newest.version, newest.becomes.clone()));
        let newest = match waits {
            Some((newest, ObjectState::Put(_) | ObjectState::Gone)) if newest >= version => Some(newest),
            _ => None,
        };
        if let Some(newest) = newest {
            self.flush(object).await?;
            return Ok(if newest == version { PushOutcome::Pushed } else { PushOutcome::Superseded });
        }
        let Some(shadows) = self.store.shadows(&object.namespace) else { return Ok(PushOutcome::Unknown) };
        let there = shadows.standing(object).await?;
        Ok(if there.shadow == Some(version) { PushOutcome::Unknown } else { PushOutcome::Superseded })
    }

    /// The timestamp, in the store's own order, that an outside write must exceed; none if it is not known.
    pub(crate) fn newest_there(&self, object: &ObjectId) -> Option<SwiftTimestamp> {
        self.store.shadows(&object.namespace)?.newest()
    }

    /// `object` was written from outside: a pushed state that is only watched must not be pushed again.
    pub(crate) async fn superseded(&self, object: &ObjectId) {
        let drop_stored = |dirty: &mut WriteBackQueue| {
            let newest = dirty.get(object).map(|newest| newest.version);
            let stored = newest.filter(|newest| dirty.has_had(object, *newest));
            stored.map(|newest| dirty.drop_newest(object, newest)).unwrap_or_default()
        };
        self.let_go(object, drop_stored).await;
    }

    /// Records that the store's state of `version` of `object` is certain now.
    pub(crate) fn announced(&self, object: &ObjectId, version: Version) {
        let mut unannounced = self.unannounced.lock();
        if unannounced.get(object).is_some_and(|(waiting, _)| *waiting <= version) {
            unannounced.remove(object);
        }
    }
}

/// True if a placeholder may stand, or be placed later, despite this error.
const fn may_stand(error: &ShadowError) -> bool {
    matches!(error, ShadowError::Store(_) | ShadowError::Raced(_) | ShadowError::Outside(_))
}

/// The writer's error for a shadow that was not placed or pushed.
fn refused(error: ShadowError) -> ObjectError {
    match error {
        ShadowError::Store(error) | ShadowError::NotSent(error) => error,
        ShadowError::Raced(_) => ObjectError::SlowDown("others write the object faster than this node can"),
        error => ObjectError::Store { store: "swift", operation: "shadow", reason: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{Epoch, Sequence};

    use super::*;

    #[test]
    fn what_has_no_placeholder_is_placed_unless_others_may_have_replaced_it() {
        let version = Version { epoch: Epoch(2), sequence: Sequence(5) };
        let found = |exists, version: &str, seconds: &str| {
            let text = serde_json::json!({"reason": "", "exists": exists, "timestamp": format!("{seconds}.00000"),
                "version": if version.is_empty() { serde_json::Value::Null } else { version.into() }});
            serde_json::from_value::<ShadowConflict>(text).unwrap()
        };
        for (life, found, expected) in [
            (Life::Earlier, found(true, "", "2000"), Verdict::Apart),
            (Life::Earlier, found(false, "", "1990"), Verdict::Apart),
            (Life::Earlier, found(true, "", "1900"), Verdict::Place),
            (Life::Earlier, found(false, "", "0"), Verdict::Place),
            (Life::Earlier, found(true, "2.4", "2000"), Verdict::Place),
            (Life::Earlier, found(true, "2.6", "2000"), Verdict::Apart),
            (Life::This, found(true, "", "2000"), Verdict::Place),
        ] {
            assert_eq!(verdict(life, version, 2000, &found), expected, "{life:?} {found:?}");
        }
    }

    #[test]
    fn a_refused_request_has_another_name_as_long_as_it_is_remembered() {
        let mut refused = RefusedRequests::default();
        refused.rename(RequestId(1), RequestId(7));
        refused.rename(RequestId(1), RequestId(8));
        assert_eq!((refused.name(RequestId(1)), refused.name(RequestId(2))), (RequestId(8), RequestId(2)));
        for request in 0..REFUSED_MAX as u128 {
            refused.rename(RequestId(100 + request), RequestId(0));
        }
        assert_eq!(refused.name(RequestId(1)), RequestId(1));
        assert_eq!((refused.names.len(), refused.order.len()), (REFUSED_MAX, REFUSED_MAX));
    }
}
