//! Objects with trimmed records that may come back after a crash, until the ledger has made their trim durable. Pure.

use std::collections::HashMap;

use nigh_data::ObjectId;

/// Objects whose records were trimmed.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedTrims {
    objects: HashMap<ObjectId, LetGo>,
    /// The number of trims that the ledger was told.
    told: u64,
}

#[derive(Debug, Default)]
struct LetGo {
    /// The number of calls that are telling the ledger now.
    telling: u32,
    /// The count at the end of the last such call.
    told: u64,
}

impl UnconfirmedTrims {
    /// Call before the ledger is told to trim a record of `object`.
    pub(super) fn begin(&mut self, object: &ObjectId) {
        self.objects.entry(object.clone()).or_default().telling += 1;
    }

    /// Call when the ledger was told to trim a record of `object`.
    pub(super) fn told(&mut self, object: &ObjectId) {
        self.told += 1;
        if let Some(one) = self.objects.get_mut(object) {
            one.telling -= 1;
            one.told = self.told;
        }
    }

    pub(super) fn contains(&self, object: &ObjectId) -> bool {
        self.objects.contains_key(object)
    }

    /// True if such a call for `object` is under way.
    pub(super) fn is_being_told(&self, object: &ObjectId) -> bool {
        self.objects.get(object).is_some_and(|one| one.telling > 0)
    }

    /// The objects without such a call, and the present count.
    pub(super) fn all(&self) -> (Vec<ObjectId>, u64) {
        let told = self.objects.iter().filter(|(_, one)| one.telling == 0);
        (told.map(|(object, _)| object.clone()).collect(), self.told)
    }

    /// The trims of `objects` up to the count `told` are durable.
    pub(super) fn settled(&mut self, objects: &[ObjectId], told: u64) {
        for object in objects {
            if self.objects.get(object).is_some_and(|one| one.telling == 0 && one.told <= told) {
                self.objects.remove(object);
            }
        }
    }

    /// The homes of these objects are elsewhere now.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&ObjectId) -> bool) {
        // An object with a call under way stays until its end; the ledger then refuses it as another home's.
        self.objects.retain(|object, one| one.telling > 0 || !is_gone(object));
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::{BucketName, Namespace, ObjectKey};

    use super::*;

    fn object(key: &str) -> ObjectId {
        ObjectId {
            namespace: Namespace::new("n").unwrap(),
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
        }
    }

    #[test]
    fn what_the_ledger_hears_while_it_is_asked_is_asked_for_again() {
        let mut unsettled = UnconfirmedTrims::default();
        let (a, b) = (object("a"), object("b"));
        unsettled.begin(&a);
        unsettled.begin(&b);
        unsettled.told(&a);
        assert!(unsettled.is_being_told(&b) && !unsettled.is_being_told(&a));
        let (objects, told) = unsettled.all();
        assert_eq!(objects, std::slice::from_ref(&a), "the ledger has not heard of the other");
        unsettled.told(&b);
        unsettled.begin(&a);
        unsettled.settled(&objects, told);
        assert!(unsettled.contains(&a), "one more is being told");
        unsettled.told(&a);
        unsettled.settled(&objects, told);
        assert!(unsettled.contains(&a), "it was told after the question");
        let (objects, told) = unsettled.all();
        unsettled.settled(&objects, told);
        assert!(unsettled.objects.is_empty());
    }

    #[test]
    fn what_is_forgotten_while_the_ledger_is_told_of_it_goes_when_that_has_ended() {
        let mut unsettled = UnconfirmedTrims::default();
        let (a, b) = (object("a"), object("b"));
        for one in [&a, &b] {
            unsettled.begin(one);
        }
        unsettled.told(&b);
        unsettled.forget(|_| true);
        assert!(unsettled.contains(&a) && !unsettled.contains(&b));
        unsettled.told(&a);
        unsettled.forget(|_| true);
        assert!(unsettled.objects.is_empty());
    }
}
