//! CloudFormation's functions: `Ref`, `Fn::Sub`, `Fn::If` and the like, as far as a template alone says what they give.
//! Pure.
//!
//! A value is resolved when it is read, so that one that cannot be known spoils only what needs it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};
use thiserror::Error;

/// The deepest nesting of conditions: a condition that names itself ends here.
const CONDITIONS_DEPTH_MAX: usize = 32;
const NO_VALUE: &str = "AWS::NoValue";

/// Why a value is not known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(super) struct Unresolved(pub(super) String);

fn unresolved<T>(why: impl Into<String>) -> Result<T, Unresolved> {
    Err(Unresolved(why.into()))
}

/// What a template's resource is called here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourceName {
    /// What `Ref` gives.
    pub(super) name: String,
    /// What `Fn::GetAtt` gives for `Arn`.
    pub(super) arn: String,
}

/// All that values may refer to.
#[derive(Debug, Default)]
pub(super) struct Scope {
    /// Parameters, pseudo parameters, and what the user says of other names: `Table`, `Table.Arn`.
    pub(super) values: BTreeMap<String, Value>,
    /// Why other names have no value.
    pub(super) unknown: BTreeMap<String, String>,
    /// The resources that Nigh has.
    pub(super) resources: BTreeMap<String, ResourceName>,
    /// The layers of the template, by their names there.
    pub(super) layers: BTreeSet<String>,
    pub(super) mappings: Map<String, Value>,
    pub(super) conditions: Map<String, Value>,
}

/// The name and the argument of a function, if `value` is one.
fn call(value: &Value) -> Option<(&str, &Value)> {
    let map = value.as_object().filter(|map| map.len() == 1)?;
    let (name, argument) = map.iter().next()?;
    (name == "Ref" || name.starts_with("Fn::")).then_some((name.as_str(), argument))
}

/// A scalar as text, as CloudFormation prints it.
pub(super) fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

impl Scope {
    /// The value, with all functions in it evaluated; none for `AWS::NoValue`.
    pub(super) fn resolve(&self, value: &Value) -> Result<Option<Value>, Unresolved> {
        if let Some((name, argument)) = call(value) {
            return self.evaluate(name, argument);
        }
        Ok(Some(match value {
            Value::Object(entries) => {
                let mut resolved = Map::new();
                for (key, value) in entries {
                    if let Some(value) = self.resolve(value)? {
                        resolved.insert(key.clone(), value);
                    }
                }
                Value::Object(resolved)
            }
            Value::Array(items) => {
                let mut resolved = Vec::new();
                for item in items {
                    resolved.extend(self.resolve(item)?);
                }
                Value::Array(resolved)
            }
            scalar => scalar.clone(),
        }))
    }

    /// The value, with only the functions evaluated that choose it: what stands within it stays as it is.
    pub(super) fn unfold(&self, value: &Value) -> Result<Option<Value>, Unresolved> {
        match call(value) {
            Some(("Fn::If", argument)) => self.unfold(self.choice(argument)?),
            Some(("Ref", Value::String(name))) if name == NO_VALUE => Ok(None),
            Some(("Ref" | "Fn::GetAtt", _)) | None => Ok(Some(value.clone())),
            Some(_) => self.resolve(value),
        }
    }

    /// The value as text.
    pub(super) fn text(&self, value: &Value) -> Result<String, Unresolved> {
        match self.resolve(value)? {
            Some(value) => scalar_text(&value).map_or_else(|| unresolved(format!("{value} is no text")), Ok),
            None => unresolved("AWS::NoValue is no text"),
        }
    }

    fn evaluate(&self, name: &str, argument: &Value) -> Result<Option<Value>, Unresolved> {
        let value: Value = match (name, argument) {
            ("Ref", Value::String(name)) if name == NO_VALUE => return Ok(None),
            ("Ref", Value::String(name)) => self.reference(name)?,
            ("Fn::GetAtt", path) => self.attribute(path)?.into(),
            ("Fn::Sub", Value::String(text)) => self.substitute(text, &Map::new())?.into(),
            ("Fn::Sub", Value::Array(parts)) => match parts.as_slice() {
                [Value::String(text)] => self.substitute(text, &Map::new())?.into(),
                [Value::String(text), Value::Object(more)] => self.substitute(text, more)?.into(),
                _ => return malformed(name),
            },
            ("Fn::Join", Value::Array(parts)) => match parts.as_slice() {
                [Value::String(between), list] => self.texts(list)?.join(between.as_str()).into(),
                _ => return malformed(name),
            },
            ("Fn::Split", Value::Array(parts)) => match parts.as_slice() {
                [Value::String(between), text] if !between.is_empty() => {
                    self.text(text)?.split(between.as_str()).map(Value::from).collect()
                }
                _ => return malformed(name),
            },
            ("Fn::Select", Value::Array(parts)) => match parts.as_slice() {
                [at, list] => {
                    let at = self.text(at)?;
                    let Some(Value::Array(items)) = self.resolve(list)? else { return malformed(name) };
                    let chosen = at.parse().ok().and_then(|at: usize| items.get(at).cloned());
                    chosen.map_or_else(|| unresolved(format!("Fn::Select: the list has no item {at}")), Ok)?
                }
                _ => return malformed(name),
            },
            ("Fn::FindInMap", Value::Array(path)) => self.find_in_map(path)?,
            ("Fn::If", argument) => return self.resolve(self.choice(argument)?),
            (UNKNOWN_VARIABLE, Value::String(why)) => return unresolved(why.clone()),
            ("Fn::ImportValue", _) => return unresolved("Fn::ImportValue: it is a value of another stack"),
            _ => return unresolved(format!("{name} is not evaluated here")),
        };
        Ok(Some(value))
    }

    fn reference(&self, name: &str) -> Result<Value, Unresolved> {
        if let Some(value) = self.values.get(name) {
            return Ok(value.clone());
        }
        if let Some(resource) = self.resources.get(name) {
            return Ok(resource.name.as_str().into());
        }
        match self.unknown.get(name) {
            Some(why) => unresolved(why.clone()),
            None => unresolved(format!("the template has no parameter or resource {name}")),
        }
    }

    fn attribute(&self, path: &Value) -> Result<String, Unresolved> {
        let path = match path {
            Value::String(path) => path.clone(),
            Value::Array(path) => path.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("."),
            _ => return malformed("Fn::GetAtt"),
        };
        let (resource, attribute) = path.split_once('.').unwrap_or((path.as_str(), ""));
        if let Some(given) = self.values.get(&path).and_then(scalar_text) {
            return Ok(given);
        }
        match (self.resources.get(resource), self.unknown.get(resource)) {
            (Some(resource), _) if attribute == "Arn" => Ok(resource.arn.clone()),
            (Some(_), _) => {
                unresolved(format!("{path} is known once AWS has made it; give it with --parameter {path}=VALUE"))
            }
            (None, Some(why)) => unresolved(why.clone()),
            (None, None) => unresolved(format!("the template has no resource {resource}")),
        }
    }

    /// The text of `Fn::Sub`, with `more` beside what the scope has.
    fn substitute(&self, text: &str, more: &Map<String, Value>) -> Result<String, Unresolved> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, behind)) = rest.split_once("${") {
            out.push_str(before);
            let Some((name, behind)) = behind.split_once('}') else { return malformed("Fn::Sub") };
            rest = behind;
            let name = name.trim();
            if let Some(literal) = name.strip_prefix('!') {
                out.push_str(&format!("${{{literal}}}"));
            } else if let Some(value) = more.get(name) {
                out.push_str(&self.text(value)?);
            } else if name.contains('.') {
                out.push_str(&self.attribute(&Value::from(name))?);
            } else {
                let value = self.reference(name)?;
                out.push_str(&scalar_text(&value).map_or_else(|| malformed("Fn::Sub"), Ok)?);
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    fn texts(&self, list: &Value) -> Result<Vec<String>, Unresolved> {
        let Some(Value::Array(items)) = self.resolve(list)? else { return malformed("Fn::Join") };
        items.iter().map(|item| self.text(item)).collect()
    }

    fn find_in_map(&self, path: &[Value]) -> Result<Value, Unresolved> {
        let [map, first, second] = path else { return malformed("Fn::FindInMap") };
        let names = [self.text(map)?, self.text(first)?, self.text(second)?];
        let found = self.mappings.get(&names[0]).and_then(|map| map.get(&names[1])?.get(&names[2]));
        found.map_or_else(|| unresolved(format!("Mappings have no {}", names.join("."))), |found| Ok(found.clone()))
    }

    /// The branch of `Fn::If` that counts.
    fn choice<'a>(&self, argument: &'a Value) -> Result<&'a Value, Unresolved> {
        match argument.as_array().map(Vec::as_slice) {
            Some([Value::String(condition), then, otherwise]) => {
                Ok(if self.condition(condition)? { then } else { otherwise })
            }
            _ => malformed("Fn::If"),
        }
    }

    /// Whether the condition of this name holds.
    pub(super) fn condition(&self, name: &str) -> Result<bool, Unresolved> {
        self.condition_at(name, 0)
    }

    fn condition_at(&self, name: &str, depth: usize) -> Result<bool, Unresolved> {
        if depth > CONDITIONS_DEPTH_MAX {
            return unresolved(format!("the condition {name} depends on itself"));
        }
        let Some(test) = self.conditions.get(name) else {
            return unresolved(format!("the template has no condition {name}"));
        };
        self.holds(test, depth + 1)
    }

    fn holds(&self, test: &Value, depth: usize) -> Result<bool, Unresolved> {
        let Some((name, argument)) = test.as_object().and_then(|test| test.iter().next()) else {
            return malformed("a condition");
        };
        let all = |argument: &Value| -> Result<Vec<bool>, Unresolved> {
            let Some(tests) = argument.as_array() else { return malformed(name) };
            tests.iter().map(|test| self.holds(test, depth)).collect()
        };
        match (name.as_str(), argument) {
            ("Condition", Value::String(name)) => self.condition_at(name, depth),
            ("Fn::Equals", Value::Array(sides)) => match sides.as_slice() {
                [one, other] => Ok(self.text(one)? == self.text(other)?),
                _ => malformed(name),
            },
            ("Fn::And", tests) => Ok(all(tests)?.into_iter().all(|holds| holds)),
            ("Fn::Or", tests) => Ok(all(tests)?.into_iter().any(|holds| holds)),
            ("Fn::Not", tests) => Ok(!all(tests)?.into_iter().all(|holds| holds)),
            _ => unresolved(format!("{name} is no condition")),
        }
    }
}

/// Marks, in a document of Serverless Framework, a variable without a value; the argument says why.
pub(super) const UNKNOWN_VARIABLE: &str = "Fn::Nigh::Unknown";

fn malformed<T>(name: &str) -> Result<T, Unresolved> {
    unresolved(format!("{name} has not the form that CloudFormation describes"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::yaml;
    use super::*;

    fn scope() -> Scope {
        let bucket = ResourceName { name: "pictures".to_owned(), arn: "arn:aws:s3:::pictures".to_owned() };
        let object = |value: Value| value.as_object().cloned().unwrap();
        Scope {
            values: [
                ("Stage".to_owned(), json!("prod")),
                ("AWS::Region".to_owned(), json!("eu-west-3")),
                ("Zones".to_owned(), json!(["a", "b"])),
                ("Table.Arn".to_owned(), json!("arn:table")),
            ]
            .into(),
            unknown: [("Table".to_owned(), "Table is an AWS::DynamoDB::Table".to_owned())].into(),
            resources: [("Bucket".to_owned(), bucket)].into(),
            layers: BTreeSet::new(),
            mappings: object(json!({ "Sizes": { "prod": { "memory": 512 } } })),
            conditions: object(json!({
                "IsProd": { "Fn::Equals": [{ "Ref": "Stage" }, "prod"] },
                "IsTest": { "Fn::Not": [{ "Condition": "IsProd" }] },
                "Either": { "Fn::Or": [{ "Condition": "IsTest" }, { "Fn::Equals": [1, "1"] }] },
                "Both": { "Fn::And": [{ "Condition": "IsProd" }, { "Condition": "Either" }] },
                "Loop": { "Condition": "Loop" },
            })),
        }
    }

    fn resolved(yaml_text: &str) -> Result<Option<Value>, Unresolved> {
        scope().resolve(&yaml::parse(yaml_text).unwrap())
    }

    #[test]
    fn each_function_gives_what_cloudformation_gives() {
        for (text, expected) in [
            ("!Ref Stage", json!("prod")),
            ("!Ref Bucket", json!("pictures")),
            ("!GetAtt Bucket.Arn", json!("arn:aws:s3:::pictures")),
            ("!GetAtt Table.Arn", json!("arn:table")),
            (
                "!Sub '${Stage}/${AWS::Region}/${Bucket.Arn}/${!Literal}/$x'",
                json!("prod/eu-west-3/arn:aws:s3:::pictures/${Literal}/$x"),
            ),
            ("!Sub ['${A}-${Stage}', {A: !Ref Bucket}]", json!("pictures-prod")),
            ("!Join ['-', [a, !Ref Stage, 3]]", json!("a-prod-3")),
            ("!Join [',', !Ref Zones]", json!("a,b")),
            ("!Select [1, !Split ['-', x-y-z]]", json!("y")),
            ("!FindInMap [Sizes, !Ref Stage, memory]", json!(512)),
            ("!If [IsProd, !Ref Bucket, !Ref Table]", json!("pictures")),
            ("!If [IsTest, 1, 2]", json!(2)),
            ("!If [Both, 1, 2]", json!(1)),
            ("{a: !If [IsTest, 1, !Ref 'AWS::NoValue'], b: [!Ref 'AWS::NoValue', x]}", json!({ "b": ["x"] })),
        ] {
            assert_eq!(resolved(text), Ok(Some(expected)), "{text}");
        }
        assert_eq!(resolved("!Ref AWS::NoValue"), Ok(None));
    }

    #[test]
    fn what_is_not_known_says_why() {
        for (text, why) in [
            ("!Ref Table", "AWS::DynamoDB::Table"),
            ("!Sub 'x${Table}'", "AWS::DynamoDB::Table"),
            ("!Ref Nothing", "no parameter or resource Nothing"),
            ("!GetAtt Bucket.DomainName", "--parameter Bucket.DomainName=VALUE"),
            ("!ImportValue x", "another stack"),
            ("!GetAZs ''", "Fn::GetAZs is not evaluated here"),
            ("!If [Loop, 1, 2]", "depends on itself"),
            ("!If [Missing, 1, 2]", "no condition Missing"),
            ("!Select [7, [a]]", "no item 7"),
            ("!Sub '${Stage'", "has not the form"),
            ("!FindInMap [Sizes, none, memory]", "no Sizes.none.memory"),
        ] {
            let error = resolved(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn what_an_if_chooses_is_unfolded_and_its_inside_is_left() {
        let unfolded = |text: &str| scope().unfold(&yaml::parse(text).unwrap());
        assert_eq!(unfolded("!If [IsProd, {A: !Ref Table}, {}]"), Ok(Some(json!({ "A": { "Ref": "Table" } }))));
        assert_eq!(unfolded("!If [IsTest, {}, !Ref 'AWS::NoValue']"), Ok(None));
        assert_eq!(unfolded("!Ref Table"), Ok(Some(json!({ "Ref": "Table" }))));
        assert_eq!(unfolded("!Split [',', 'a,b']"), Ok(Some(json!(["a", "b"]))));
    }
}
