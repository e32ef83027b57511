//! Parses the bodies of requests that create or update entities. Pure.

use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_functions::action::parameters::{PARAMETERS_BYTES_MAX, Parameters};
use nigh_functions::action::version::SemVer;
use nigh_terms::{ByteSize, Namespace, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::entities::EntityHeader;
use super::error::WhiskError;
use super::exec::{ExecShape, own};
use super::limits::LimitsShape;

/// The members that every entity may have.
#[derive(Debug, Default, Deserialize)]
pub(super) struct CommonShape {
    pub(super) parameters: Option<Parameters>,
    pub(super) annotations: Option<Parameters>,
    pub(super) version: Option<SemVer>,
    pub(super) publish: Option<bool>,
}

/// An action.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ActionShape {
    #[serde(flatten)]
    pub(super) common: CommonShape,
    pub(super) exec: Option<ExecShape>,
    pub(super) limits: Option<LimitsShape>,
    /// The annotations to remove.
    #[serde(rename = "delAnnotations", default)]
    pub(super) removed: Vec<String>,
}

/// A trigger.
#[derive(Debug, Default, Deserialize)]
pub(super) struct TriggerShape {
    #[serde(flatten)]
    pub(super) common: CommonShape,
}

/// A package.
#[derive(Debug, Default, Deserialize)]
pub(super) struct PackageShape {
    #[serde(flatten)]
    pub(super) common: CommonShape,
    binding: Option<BindingShape>,
}

#[derive(Debug, Default, Deserialize)]
struct BindingShape {
    namespace: Option<String>,
    name: Option<String>,
}

/// A rule.
#[derive(Debug, Default, Deserialize)]
pub(super) struct RuleShape {
    #[serde(flatten)]
    pub(super) common: CommonShape,
    trigger: Option<Reference>,
    action: Option<Reference>,
}

/// How a rule names its trigger or action: by text, or by a path as answers have it.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Reference {
    Text(String),
    Parts { path: String, name: String },
}

/// A change of a rule's state.
#[derive(Debug, Deserialize)]
pub(super) struct StatusShape {
    pub(super) status: String,
}

fn malformed(error: &serde_json::Error) -> WhiskError {
    WhiskError::bad_request(format!("The request content was malformed: {error}"))
}

/// Reads a body; an empty one is `{}`.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, WhiskError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| malformed(&error))
}

/// The arguments of a call: an object, or nothing.
pub(super) fn arguments(body: &[u8]) -> Result<Map<String, Value>, WhiskError> {
    if body.is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_slice(body).map_err(|error| malformed(&error))? {
        Value::Object(arguments) => Ok(arguments),
        Value::Null => Ok(Map::new()),
        _ => Err(WhiskError::bad_request("The request content was malformed: Object expected")),
    }
}

impl CommonShape {
    /// Rejects parameters or annotations that are too large.
    pub(super) fn check(&self) -> Result<(), WhiskError> {
        for (what, set) in [("Parameters", &self.parameters), ("Annotations", &self.annotations)] {
            let bytes = set.as_ref().map_or(0, Parameters::bytes);
            if bytes > PARAMETERS_BYTES_MAX {
                return Err(WhiskError::larger_than(what, bytes, PARAMETERS_BYTES_MAX));
            }
        }
        Ok(())
    }

    /// A new entity, or `before` with the changes of the request.
    pub(super) fn apply(self, before: Option<&EntityHeader>, now: Timestamp) -> EntityHeader {
        let version =
            self.version.unwrap_or_else(|| before.map_or_else(SemVer::default, |before| before.version.next()));
        let parameters = self.parameters.or_else(|| before.map(|before| before.parameters.clone()));
        let annotations = self.annotations.or_else(|| before.map(|before| before.annotations.clone()));
        EntityHeader {
            parameters: parameters.unwrap_or_default(),
            annotations: annotations.unwrap_or_default(),
            version,
            publish: self.publish.or(before.map(|before| before.publish)).unwrap_or(false),
            updated: now,
        }
    }
}

impl PackageShape {
    /// The package that it binds, if it is a binding.
    pub(super) fn binding(&self, namespace: &Namespace) -> Result<Option<EntityName>, WhiskError> {
        let Some(name) = self.binding.as_ref().and_then(|binding| binding.name.as_deref()) else { return Ok(None) };
        let of = self.binding.as_ref().and_then(|binding| binding.namespace.as_deref()).filter(|of| !of.is_empty());
        let path = own(&format!("{}/{name}", of.unwrap_or(nigh_functions::action::names::OWN)), namespace)?;
        match path.package {
            None => Ok(Some(path.name)),
            Some(_) => Err(WhiskError::bad_request("The name of the entity contains illegal characters.")),
        }
    }
}

impl RuleShape {
    /// The trigger and the action, if the request names them.
    pub(super) fn ends(&self, namespace: &Namespace) -> Result<(Option<EntityName>, Option<EntityPath>), WhiskError> {
        let find = |reference: &Option<Reference>| {
            let name = match reference {
                None => return Ok(None),
                Some(Reference::Text(name)) => name.clone(),
                Some(Reference::Parts { path, name }) => format!("{path}/{name}"),
            };
            own(&name, namespace).map(Some)
        };
        let (trigger, action) = (find(&self.trigger)?, find(&self.action)?);
        match trigger {
            Some(EntityPath { package: Some(_), .. }) => {
                Err(WhiskError::bad_request("rule requires a valid trigger and a valid action"))
            }
            other => Ok((other.map(|path| path.name), action)),
        }
    }
}

/// The environment variables of a function that its parameters set.
pub(super) fn environment(parameters: &Parameters) -> Result<std::collections::BTreeMap<String, String>, WhiskError> {
    let mut environment = std::collections::BTreeMap::new();
    for one in parameters.iter().filter(|one| one.init) {
        let mut octets = one.key.bytes();
        let good = octets.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
            && octets.all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
        let is_reserved =
            nigh_sandbox::runtime_command::RESERVED_NAMES.contains(&one.key.as_str()) || one.key.starts_with("__OW_");
        if !good || is_reserved {
            let key: String = one.key.chars().take(64).collect();
            return Err(WhiskError::bad_request(format!(
                "The parameter {key:?} cannot be an environment variable: its name must have only letters, digits and \
                 underscores, not begin with a digit, and not be a name that the runtime reserves."
            )));
        }
        let value = one.value.as_str().map_or_else(|| one.value.to_string(), str::to_owned);
        if value.contains('\0') {
            return Err(WhiskError::bad_request(format!("The parameter {:?} has a zero byte.", one.key)));
        }
        environment.insert(one.key.clone(), value);
    }
    let size = environment.iter().map(|(key, value)| key.len() + value.len()).sum();
    // Linux limits a variable of a new process to 128 KiB.
    let most = ByteSize::kib(64).bytes() as usize;
    if size > most {
        return Err(WhiskError::larger_than("Environment", size, most));
    }
    Ok(environment)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rule(body: Value) -> Result<(Option<EntityName>, Option<EntityPath>), WhiskError> {
        serde_json::from_value::<RuleShape>(body).unwrap().ends(&Namespace::new("tenant").unwrap())
    }

    #[test]
    fn a_rule_names_its_ends_by_text_or_by_parts_in_its_own_namespace() {
        let (trigger, action) =
            rule(json!({ "trigger": "/_/t", "action": { "path": "tenant/p", "name": "a" } })).unwrap();
        assert_eq!((trigger.unwrap().as_str(), action.unwrap().to_string()), ("t", "p/a".to_owned()));
        assert_eq!(rule(json!({})), Ok((None, None)));
        assert_eq!(rule(json!({ "trigger": "/other/t" })).unwrap_err().status.as_u16(), 403);
        assert_eq!(rule(json!({ "trigger": "/_/p/t" })).unwrap_err().status.as_u16(), 400);
        assert_eq!(rule(json!({ "action": "a" })).unwrap_err().status.as_u16(), 400);
    }

    #[test]
    fn what_is_not_said_of_an_entity_stays_and_its_version_grows() {
        let first = CommonShape { publish: Some(true), ..CommonShape::default() }.apply(None, Timestamp(1));
        assert_eq!((first.version.to_string(), first.publish), ("0.0.1".to_owned(), true));
        let next = CommonShape::default().apply(Some(&first), Timestamp(2));
        assert_eq!((next.version.to_string(), next.publish, next.updated), ("0.0.2".to_owned(), true, Timestamp(2)));
    }

    #[test]
    fn arguments_are_an_object_or_nothing() {
        assert_eq!(arguments(b"").unwrap(), Map::new());
        assert!(arguments(b"[1]").is_err() && arguments(b"{").is_err() && arguments(b"1").is_err());
        let large: CommonShape =
            read(json!({ "parameters": [{ "key": "a", "value": "x".repeat(1 << 20) }] }).to_string().as_bytes())
                .unwrap();
        assert_eq!(large.check().unwrap_err().status.as_u16(), 413);
    }

    #[test]
    fn parameters_for_the_environment_have_names_that_it_takes() {
        let of = |key: &str, value: Value| {
            let one = json!([{ "key": key, "value": value, "init": true }, { "key": "input", "value": 1 }]);
            environment(&serde_json::from_value(one).unwrap())
        };
        assert_eq!(of("A_1", json!({ "b": 1 })).unwrap()["A_1"], r#"{"b":1}"#);
        for bad in ["1A", "A-B", "", "AWS_REGION", "__OW_NAMESPACE"] {
            assert!(of(bad, json!("x")).is_err(), "{bad}");
        }
    }
}
