//! Parameters and annotations: named JSON values, and how the parameters of several entities become one input. Pure.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// All parameters of an entity together (OpenWhisk's limit, as its annotations').
pub const PARAMETERS_BYTES_MAX: usize = 1 << 20;

/// One named value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Its name.
    pub key: String,
    /// Its value.
    #[serde(default)]
    pub value: Value,
    /// It becomes a variable of the action's environment instead of an input.
    #[serde(default, skip_serializing_if = "is_false")]
    pub init: bool,
}

/// Named values, each name once, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<Parameter>")]
pub struct Parameters(Vec<Parameter>);

fn is_false(value: &bool) -> bool {
    !value
}

impl From<Vec<Parameter>> for Parameters {
    /// Of two values with the same name the later counts.
    fn from(all: Vec<Parameter>) -> Self {
        let mut set = Self::default();
        all.into_iter().for_each(|one| set.put(one));
        set
    }
}

impl Parameters {
    /// The value called `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|one| one.key == key).map(|one| &one.value)
    }

    /// Whether `key` has a value that means yes: `true`, a text that is not empty, or a number other than zero.
    #[must_use]
    pub fn says(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| match value {
            Value::Bool(yes) => *yes,
            Value::String(text) => !text.is_empty(),
            Value::Number(number) => number.as_f64() != Some(0.0),
            Value::Null => false,
            Value::Array(_) | Value::Object(_) => true,
        })
    }

    /// Sets `key`.
    pub fn set(&mut self, key: &str, value: Value) {
        self.put(Parameter { key: key.to_owned(), value, init: false });
    }

    /// Removes `key`.
    pub fn remove(&mut self, key: &str) {
        self.0.retain(|one| one.key != key);
    }

    /// These values, replaced and extended by those of `over`.
    #[must_use]
    pub fn with(&self, over: &Self) -> Self {
        let mut all = self.clone();
        over.0.iter().for_each(|one| all.put(one.clone()));
        all
    }

    /// All values.
    pub fn iter(&self) -> impl Iterator<Item = &Parameter> {
        self.0.iter()
    }

    /// The input of a call: these values, replaced and extended by `arguments`.
    #[must_use]
    pub fn input(&self, arguments: Map<String, Value>) -> Map<String, Value> {
        let mut input: Map<String, Value> =
            self.0.iter().filter(|one| !one.init).map(|one| (one.key.clone(), one.value.clone())).collect();
        input.extend(arguments);
        input
    }

    /// The names that have a value.
    pub fn defined(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|one| is_defined(&one.value)).map(|one| one.key.as_str())
    }

    /// The bytes of all of them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|one| one.key.len() + one.value.to_string().len()).sum()
    }

    fn put(&mut self, one: Parameter) {
        match self.0.iter_mut().find(|there| there.key == one.key) {
            Some(there) => *there = one,
            None => self.0.push(one),
        }
    }
}

/// False for null, 0, false and everything empty: OpenWhisk treats such a value as not given.
fn is_defined(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::Bool(yes) => *yes,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn of(value: Value) -> Parameters {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_package_gives_way_to_the_action_and_that_to_the_call() {
        let package = of(json!([{ "key": "a", "value": 1 }, { "key": "b", "value": 1 }, { "key": "c", "value": 1 }]));
        let action = of(json!([{ "key": "b", "value": 2 }, { "key": "c", "value": 2 }]));
        let call = json!({ "c": 3, "d": 3 });
        let input = package.with(&action).input(call.as_object().unwrap().clone());
        assert_eq!(Value::Object(input), json!({ "a": 1, "b": 2, "c": 3, "d": 3 }));
    }

    #[test]
    fn the_last_of_one_name_counts_and_what_is_the_environments_is_no_input() {
        let twice = of(
            json!([{ "key": "a", "value": 1 }, { "key": "a", "value": 2 }, { "key": "e", "value": "x", "init": true }]),
        );
        assert_eq!(Value::Object(twice.input(Map::new())), json!({ "a": 2 }));
        assert_eq!(
            serde_json::to_value(&twice).unwrap(),
            json!([{ "key": "a", "value": 2 }, { "key": "e", "value": "x", "init": true }])
        );
        assert!(twice.says("a") && !twice.says("b"));
        let open = of(json!([{ "key": "a", "value": "" }, { "key": "b" }, { "key": "c", "value": 1 }]));
        assert_eq!(open.defined().collect::<Vec<_>>(), ["c"]);
    }
}
