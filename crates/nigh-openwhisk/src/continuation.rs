//! What a conductor action answers: which action is to run next, with what, and what is to come back with its result.
//! Pure.
//!
//! OpenWhisk documentation, "Conductor Actions"; where it is silent, or the controller does otherwise, the controller. There
//! a name that leads to no action does not end a composition: its conductor is told, and decides.

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
/// What parameters that are no object are put into.
const VALUE: &str = "value";

/// What is to be done.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Continuation {
    /// The composition has ended with this.
    Done(Value),
    /// An action is to run; the conductor goes on with what it comes to.
    Next(NextAction),
}

/// The next component.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct NextAction {
    /// Its name, which may be none.
    pub(super) action: Value,
    pub(super) params: Map<String, Value>,
    /// What is added to its result.
    pub(super) state: Map<String, Value>,
}

/// An object stays one, anything else becomes the member `name` of one.
fn boxed(value: Value, name: &str) -> Map<String, Value> {
    match value {
        Value::Object(members) => members,
        other => Map::from_iter([(name.to_owned(), other)]),
    }
}

impl Continuation {
    /// What a conductor's `result` asks for.
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
    /// In OpenWhisk's words.
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
    /// Where the next action is: a text, whole or relative to `namespace`, or as a record shows it.
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

/// How much of what is no name is shown.
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
