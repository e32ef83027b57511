//! The answer of a conductor action: the next action, its input, and the state that is returned with its result. Pure.
//!
//! Follows "Conductor Actions" of the OpenWhisk documentation, and OpenWhisk's controller where the two differ: a name that
//! leads to no action does not end a composition; the conductor gets an error and decides.

use nigh_functions::action::names::EntityPath;
use nigh_terms::Namespace;
use serde_json::{Map, Value};

use super::error::WhiskError;
use super::exec::own;

/// The annotation that makes an action a conductor.
pub(super) const CONDUCTOR: &str = "conductor";
const ACTION: &str = "action";
const PARAMS: &str = "params";
const STATE: &str = "state";
/// The member that gets parameters which are no object.
const VALUE: &str = "value";

/// The next step of a composition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Continuation {
    /// The composition ends with this result.
    Done(Value),
    /// An action runs next; its result goes to the conductor.
    Next(NextAction),
}

/// The next component.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NextAction {
    /// Its name, which may be invalid.
    pub(super) action: Value,
    pub(super) params: Map<String, Value>,
    /// The state that is added to its result.
    pub(super) state: Map<String, Value>,
}

/// An object as it is; any other value as the member `name` of an object.
fn boxed(value: Value, name: &str) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => Map::from_iter([(name.to_owned(), other)]),
    }
}

impl Continuation {
    /// The next step that a conductor's `result` asks for.
    pub(super) fn of(result: Value) -> Self {
        let mut members = match result {
            Value::Object(members) => members,
            other => return Self::Done(other),
        };
        match members.remove(ACTION) {
            None => Self::Done(match members.remove(PARAMS) {
                Some(params) => Value::Object(boxed(params, VALUE)),
                None => Value::Object(members),
            }),
            Some(action) => Self::Next(NextAction {
                action,
                params: members.remove(PARAMS).map(|params| boxed(params, VALUE)).unwrap_or_default(),
                state: members.remove(STATE).map(|state| boxed(state, STATE)).unwrap_or_default(),
            }),
        }
    }
}

/// Why a name leads to no action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoComponent {
    Invalid(String),
    NotAccessible(String),
}

impl NoComponent {
    /// OpenWhisk's message.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Invalid(value) => format!("Failed to parse action name from json value {value} during composition."),
            Self::NotAccessible(name) => {
                format!("Failed entitlement check for action with name '{name}' during composition.")
            }
        }
    }
}

impl NextAction {
    /// The next action: a full name, a name relative to `namespace`, or a path as in a record.
    pub(super) fn path(&self, namespace: &Namespace) -> Result<EntityPath, NoComponent> {
        let invalid = || NoComponent::Invalid(self.action.to_string().chars().take(SHOWN_CHARS_MAX).collect());
        let part = |name: &str| self.action.get(name).and_then(Value::as_str);
        let whole = match &self.action {
            Value::String(name) if name.starts_with('/') => name.clone(),
            Value::String(name) => format!("/{namespace}/{name}"),
            Value::Object(_) => match (part("path"), part("name")) {
                (Some(path), Some(name)) => format!("/{path}/{name}"),
                _ => return Err(invalid()),
            },
            _ => return Err(invalid()),
        };
        own(&whole, namespace).map_err(|error: WhiskError| {
            if error == WhiskError::forbidden() {
                NoComponent::NotAccessible(whole.trim_start_matches('/').to_owned())
            } else {
                invalid()
            }
        })
    }
}

/// The characters of an invalid name that a message shows.
const SHOWN_CHARS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn next(result: Value) -> NextAction {
        match Continuation::of(result) {
            Continuation::Next(next) => next,
            done @ Continuation::Done(_) => panic!("{done:?}"),
        }
    }

    #[test]
    fn a_result_without_an_action_is_the_end() {
        for (result, end) in [
            (json!({ "params": { "a": 1 }, "state": { "b": 2 } }), json!({ "a": 1 })),
            (json!({ "params": 7 }), json!({ "value": 7 })),
            (json!({ "a": 1 }), json!({ "a": 1 })),
            (json!({ "error": "mine" }), json!({ "error": "mine" })),
            (json!([1]), json!([1])),
        ] {
            assert_eq!(Continuation::of(result.clone()), Continuation::Done(end), "{result}");
        }
    }

    #[test]
    fn what_is_no_object_is_put_into_one() {
        let said = next(json!({ "action": "a", "params": 1, "state": [2] }));
        assert_eq!(Value::Object(said.params), json!({ "value": 1 }));
        assert_eq!(Value::Object(said.state), json!({ "state": [2] }));
        let bare = next(json!({ "action": "a" }));
        assert!(bare.params.is_empty() && bare.state.is_empty());
    }

    #[test]
    fn a_name_is_whole_or_of_the_own_namespace() {
        let tenant = Namespace::new("tenant").unwrap();
        let path = |action: Value| next(json!({ "action": action })).path(&tenant).map(|path| path.to_string());
        for (name, found) in [
            (json!("a"), "a"),
            (json!("p/a"), "p/a"),
            (json!("/_/a"), "a"),
            (json!("/tenant/p/a"), "p/a"),
            (json!({ "path": "tenant/p", "name": "a" }), "p/a"),
        ] {
            assert_eq!(path(name.clone()).as_deref(), Ok(found), "{name}");
        }
        assert_eq!(
            path(json!("/other/a")).unwrap_err().words(),
            "Failed entitlement check for action with name 'other/a' during composition."
        );
        for name in [json!(1), json!(null), json!(""), json!("a/b/c"), json!("-"), json!({ "name": "a" })] {
            let words = path(name.clone()).unwrap_err().words();
            assert_eq!(words, format!("Failed to parse action name from json value {name} during composition."));
        }
    }
}
