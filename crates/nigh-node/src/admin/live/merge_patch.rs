//! JSON Merge Patch (RFC 7396): what has changed between two documents. Pure.
//!
//! A patch cannot say that a member is null, because null removes it. So documents are stripped of null members before
//! they are compared: for a reader an absent member and a null one are the same.

use serde_json::{Map, Value};

/// Removes the members that are null, at every depth. Elements of arrays stay, as a patch replaces arrays whole.
pub(super) fn strip_nulls(document: &mut Value) {
    match document {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(strip_nulls);
        }
        Value::Array(elements) => elements.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

/// The patch that makes `new` of `old`; none if they are equal. Both have no null members.
pub(super) fn diff(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for name in before.keys().filter(|name| !after.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in after {
        let change = match before.get(name) {
            Some(earlier) => diff(earlier, value),
            None => Some(value.clone()),
        };
        if let Some(change) = change {
            patch.insert(name.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// What a reader does (RFC 7396, section 2).
    fn apply(target: &mut Value, patch: &Value) {
        let Value::Object(changes) = patch else {
            *target = patch.clone();
            return;
        };
        if !target.is_object() {
            *target = json!({});
        }
        let Some(members) = target.as_object_mut() else { return };
        for (name, change) in changes {
            if change.is_null() {
                members.remove(name);
            } else {
                apply(members.entry(name.clone()).or_insert(Value::Null), change);
            }
        }
    }

    #[test]
    fn a_patch_has_what_changed_and_nothing_else() {
        let old = json!({"a": 1, "rows": {"f": {"runs": 1, "p50": 2}, "g": {"runs": 3}}, "list": [1, 2]});
        let new = json!({"a": 1, "rows": {"f": {"runs": 2, "p50": 2}}, "list": [1, 3]});
        let patch = json!({"rows": {"f": {"runs": 2}, "g": null}, "list": [1, 3]});
        assert_eq!(diff(&old, &new), Some(patch));
        assert_eq!(diff(&new, &new), None);
    }

    #[test]
    fn null_members_are_removed_at_every_depth() {
        let mut document = json!({"a": null, "b": {"c": null, "d": [null, {"e": null}]}});
        strip_nulls(&mut document);
        assert_eq!(document, json!({"b": {"d": [null, {}]}}));
    }

    fn documents() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3_i64).prop_map(Value::from)];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_reader_who_applies_the_patch_has_the_new_document(old in documents(), new in documents()) {
            let mut reader = old.clone();
            match diff(&old, &new) {
                // A patch that is no object, and an empty object, replace what was there.
                Some(patch) => apply(&mut reader, &patch),
                None => prop_assert_eq!(&old, &new),
            }
            prop_assert_eq!(reader, new);
        }
    }
}
