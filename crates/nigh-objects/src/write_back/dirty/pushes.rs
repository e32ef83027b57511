//! Chooses the next push and its time, and handles the end of each push.

use nigh_data::ObjectId;
use nigh_terms::{Epoch, Monotonic, Version};

use super::state::{Base, ObjectState, UnpushedWrite};
use super::{TrimmableVersions, WriteBackQueue};
use crate::write_back::policy::WriteMode;

/// A push to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    /// The object.
    pub object: ObjectId,
    /// The version that is pushed.
    pub version: Version,
    /// The mode of the write.
    pub mode: WriteMode,
    /// The state that is pushed.
    pub becomes: ObjectState,
    /// What the push should replace in the store.
    pub base: Base,
    /// What pushes of this object without an answer may have left in the store, or may still leave.
    pub attempts: Vec<Base>,
    /// The damaged journal may have lost newer writes of the object, which the store may have; all of them are of epochs
    /// before this one.
    pub may_lack: Option<Epoch>,
    /// An outsider has removed the object since the write was acknowledged, and no condition can see that.
    pub contested: bool,
}

/// What a push finds in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreState {
    /// What the push would leave.
    Done(Base),
    /// What the push should replace, or an earlier state of Nigh's.
    Ours(Base),
    /// A newer write of Nigh's, which the damaged journal has lost.
    Newer(Base),
    /// An outside write.
    Others(Base),
}

impl Push {
    /// Whether the store is to be looked at before the push: it may hold something that is not to be overwritten.
    #[must_use]
    pub fn looks_first(&self) -> bool {
        self.may_lack.is_some() || !self.attempts.is_empty()
    }

    /// Classifies what the store `holds`, with the version in its metadata if it is an object.
    #[must_use]
    pub fn sees(&self, holds: Base, version: Option<Version>) -> StoreState {
        // A version of a later epoch is no write of this journal: another installation of Nigh has used the store.
        let is_lost = |before: Epoch| version.is_some_and(|there| there > self.version && there.epoch < before);
        if self.may_lack.is_some_and(is_lost) {
            return StoreState::Newer(holds);
        }
        if holds == self.becomes.leaves() && version.is_none_or(|version| version == self.version) {
            return StoreState::Done(holds);
        }
        let ours = holds == self.base || holds == self.becomes.leaves() || self.attempts.contains(&holds);
        if ours { StoreState::Ours(holds) } else { StoreState::Others(holds) }
    }
}

/// What to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextPush {
    /// Make this push, and say how it ended.
    Push(Box<Push>),
    /// Nothing is due before this time.
    At(Monotonic),
    /// Nothing is unpushed.
    Idle,
}

impl WriteBackQueue {
    /// Pushes `object` as soon as possible, if it is unpushed. Returns the version that the store has after that; none
    /// for an ephemeral one.
    pub fn want(&mut self, object: &ObjectId) -> Option<Version> {
        let mut entry = self.take(object)?;
        if entry.may_hurry() {
            entry.due = Monotonic(0);
        }
        let version = (entry.newest.mode != WriteMode::Ephemeral).then_some(entry.newest.version);
        self.put_back(object, entry);
        version
    }

    /// Makes every write due that was acknowledged until `now` and whose push has not failed.
    pub fn want_all(&mut self, now: Monotonic) {
        // None of these writes is due later than this.
        self.wanted_until = now.after(self.limits.delay);
    }

    /// All writes that must be pushed.
    pub fn waiting(&self) -> Vec<(ObjectId, Version)> {
        let waits = |object: &ObjectId| {
            let newest = &self.entry(object)?.newest;
            (!matches!(newest.becomes, ObjectState::Lost)).then(|| (object.clone(), newest.version))
        };
        self.ages.iter().filter_map(|(_, object)| waits(object)).collect()
    }

    /// What to push now. In a `hurry`, when room is short, writes that are not due go too.
    pub fn next(&mut self, now: Monotonic, hurry: bool) -> NextPush {
        let is_due = |(due, _): &&(Monotonic, ObjectId)| *due <= now;
        let is_wanted = |(due, _): &&(Monotonic, ObjectId)| hurry || *due <= now.max(self.wanted_until);
        let later = self.later.first().filter(is_due);
        let fresh = self.fresh.first().filter(is_wanted);
        let Some((_, object)) = later.into_iter().chain(fresh).min().cloned() else {
            let dues = self.later.first().into_iter().chain(self.fresh.first());
            return dues.map(|(due, _)| *due).min().map_or(NextPush::Idle, NextPush::At);
        };
        let Some(mut entry) = self.take(&object) else { return NextPush::Idle };
        let UnpushedWrite { version, mode, becomes } = entry.newest.clone();
        (entry.pushing, entry.leaves) = (Some(version), becomes.leaves());
        let (base, attempts) = (entry.base.clone(), entry.attempts.clone());
        let (may_lack, contested) = (entry.may_lack, entry.contested);
        self.put_back(&object, entry);
        NextPush::Push(Box::new(Push { object, version, mode, becomes, base, attempts, may_lack, contested }))
    }

    /// A push has ended, and the store has what was pushed. If an earlier push may still be carried out over it, the
    /// object is watched until that can no longer happen.
    pub fn pushed(&mut self, object: &ObjectId, version: Version, stored: Base, now: Monotonic) -> TrimmableVersions {
        let Some(mut entry) = self.take(object) else { return Vec::new() };
        if entry.pushing.take_if(|pushing| *pushing == version).is_none() {
            self.put_back(object, entry);
            return Vec::new();
        }
        (entry.base, entry.pushed, entry.failures) = (stored, Some(version), 0);
        // What is pushed next replaces what was stored now.
        entry.contested = false;
        if now >= entry.doubt {
            entry.attempts.clear();
        }
        let is_newest = entry.newest.version == version;
        if is_newest && entry.attempts.is_empty() {
            return vec![version];
        }
        if is_newest {
            entry.due = entry.doubt;
        } else {
            // The newer state was acknowledged during this push.
            (entry.since, entry.due) = (now, now.after(self.limits.delay));
        }
        self.put_back(object, entry);
        if is_newest { Vec::new() } else { vec![version] }
    }

    /// A push has failed. `attempted` is the state that the store may have or get all the same; none if it cannot. `base`
    /// is what the store was seen to have; none if it was not asked.
    pub fn failed(
        &mut self,
        object: &ObjectId,
        version: Version,
        attempted: Option<Base>,
        base: Option<Base>,
        now: Monotonic,
    ) -> TrimmableVersions {
        let Some(mut entry) = self.take(object) else { return Vec::new() };
        let mut settled = Vec::new();
        if entry.pushing.take_if(|pushing| *pushing == version).is_some() {
            if entry.newest.version != version {
                settled.push(version);
            }
            entry.failures = entry.failures.saturating_add(1);
            let doubled = self.limits.back_off.saturating_mul(1 << (entry.failures - 1).min(16));
            entry.due = now.after(doubled.min(self.limits.back_off_max));
            if let Some(attempted) = attempted {
                entry.doubt = now.after(self.limits.lands_within);
                entry.has_attempted(attempted);
            }
            if let Some(base) = base {
                entry.base = base;
            }
        }
        self.put_back(object, entry);
        settled
    }

    /// The push of `version` has stored its state under the conflict key, because of an outside write. A newer state
    /// stays: it should replace what this one should have replaced, and will get the same result.
    pub fn kept_apart(&mut self, object: &ObjectId, version: Version, now: Monotonic) -> TrimmableVersions {
        let Some(mut entry) = self.take(object) else { return Vec::new() };
        let was_pushing = entry.pushing.take_if(|pushing| *pushing == version).is_some();
        if entry.newest.version == version {
            return vec![version];
        }
        if was_pushing {
            (entry.since, entry.due, entry.failures) = (now, now.after(self.limits.delay), 0);
        }
        self.put_back(object, entry);
        was_pushing.then_some(version).into_iter().collect()
    }

    /// `version` of `object` must not be pushed any more, if it is still the newest.
    pub fn drop_newest(&mut self, object: &ObjectId, version: Version) -> TrimmableVersions {
        let Some(entry) = self.take(object) else { return Vec::new() };
        if entry.newest.version != version {
            self.put_back(object, entry);
            return Vec::new();
        }
        let newest = (entry.newest.mode != WriteMode::Ephemeral).then_some(version);
        newest.into_iter().chain(entry.pushing.filter(|pushing| *pushing != version)).collect()
    }

    /// The store reports that `object` was written, and `holds` what it has now: `Absent` if the object was removed. True
    /// if an outsider's change must be settled with an unpushed write, or with one that is only watched: it is none of
    /// this node's own states. Where the write was to replace nothing, it is marked to give way: of a removal the store
    /// shows no trace, nor of a put whose object is removed before the store is looked at.
    pub fn noticed(&mut self, object: &ObjectId, holds: &Base) -> bool {
        let Some(entry) = self.entry(object).filter(|entry| entry.newest.is_pushed_at_last()) else { return false };
        let is_own = entry.newest.becomes.leaves() == *holds
            || (entry.pushing.is_some() && entry.leaves == *holds)
            || (*holds != Base::Absent && (entry.base == *holds || entry.attempts.contains(holds)));
        if is_own {
            return false;
        }
        if entry.base == Base::Absent
            && let Some(mut entry) = self.take(object)
        {
            entry.contested = true;
            self.put_back(object, entry);
        }
        true
    }

    /// True if no push of `object` is under way.
    pub fn is_idle(&self, object: &ObjectId) -> bool {
        self.entry(object).is_none_or(|entry| entry.pushing.is_none())
    }

    /// True if the store has had `version` of `object`, or no longer needs it.
    pub fn has_had(&self, object: &ObjectId, version: Version) -> bool {
        self.entry(object).is_none_or(|entry| entry.pushed.is_some_and(|pushed| pushed >= version))
    }
}
