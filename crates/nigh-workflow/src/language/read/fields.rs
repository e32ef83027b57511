//! The fields of one object of a definition, each read once. Pure.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::language::path::Path;
use crate::language::problems::{Problems, code};
use crate::language::template::Template;

/// The fields of one object.
pub(crate) struct Fields<'a> {
    pub(crate) at: String,
    object: &'a Map<String, Value>,
    known: RefCell<BTreeSet<&'static str>>,
    pub(crate) problems: &'a Problems,
}

/// The value of a field that holds a path.
pub(crate) enum PathField {
    Absent,
    Null,
    Path(Path),
}

impl<'a> Fields<'a> {
    /// The fields of `value`, which is at the place `at`. None, with a problem, if it is no object.
    pub(crate) fn of(value: &'a Value, at: &str, problems: &'a Problems) -> Option<Self> {
        let Some(object) = value.as_object() else {
            let place = if at.is_empty() { "the definition".to_owned() } else { at.to_owned() };
            problems.add(place, code::SCHEMA, "it is no object");
            return None;
        };
        Some(Self { at: at.to_owned(), object, known: RefCell::default(), problems })
    }

    /// The place of the field `name`.
    pub(crate) fn place(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    pub(crate) fn problem(&self, name: &str, code: &'static str, message: impl Into<String>) {
        self.problems.add(self.place(name), code, message);
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.object.contains_key(name)
    }

    /// The value of the field; none if it is missing.
    pub(crate) fn raw(&self, name: &'static str) -> Option<&'a Value> {
        self.known.borrow_mut().insert(name);
        self.object.get(name)
    }

    /// Reports that a field is missing.
    pub(crate) fn missing(&self, name: &str) {
        self.problem(name, code::SCHEMA, "it is missing");
    }

    fn typed<T>(&self, name: &'static str, wanted: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Option<T> {
        let value = self.raw(name)?;
        let read = read(value);
        if read.is_none() {
            self.problem(name, code::SCHEMA, format!("it is no {wanted}"));
        }
        read
    }

    pub(crate) fn text(&self, name: &'static str) -> Option<&'a str> {
        self.typed(name, "string", Value::as_str)
    }

    pub(crate) fn flag(&self, name: &'static str) -> Option<bool> {
        self.typed(name, "boolean", Value::as_bool)
    }

    pub(crate) fn array(&self, name: &'static str) -> Option<&'a Vec<Value>> {
        self.typed(name, "array", Value::as_array)
    }

    pub(crate) fn whole(&self, name: &'static str, within: RangeInclusive<u64>) -> Option<u64> {
        let number = self.typed(name, "whole number", Value::as_u64)?;
        if within.contains(&number) {
            return Some(number);
        }
        let (least, most) = within.into_inner();
        self.problem(name, code::SCHEMA, format!("it is {number}; it must be between {least} and {most}"));
        None
    }

    pub(crate) fn number(&self, name: &'static str) -> Option<f64> {
        self.typed(name, "number", Value::as_f64)
    }

    /// Parses a path, or `null`.
    pub(crate) fn path(&self, name: &'static str) -> PathField {
        match self.raw(name) {
            None => PathField::Absent,
            Some(Value::Null) => PathField::Null,
            Some(value) => match value.as_str().map(Path::parse) {
                Some(Ok(path)) => PathField::Path(path),
                Some(Err(error)) => {
                    self.problem(name, code::PATH, error.to_string());
                    PathField::Absent
                }
                None => {
                    self.problem(name, code::SCHEMA, "it is neither a string nor null");
                    PathField::Absent
                }
            },
        }
    }

    /// Parses a path that has at most one match; `null` is refused.
    pub(crate) fn one_path(&self, name: &'static str) -> Option<Path> {
        match self.path(name) {
            PathField::Absent => None,
            PathField::Null => {
                self.problem(name, code::SCHEMA, "it is null");
                None
            }
            PathField::Path(path) if path.is_definite() => Some(path),
            PathField::Path(path) => {
                self.problem(name, code::PATH, format!("{} may have more than one match", path.text()));
                None
            }
        }
    }

    /// Parses a reference path: one place of the input.
    pub(crate) fn result_path(&self, name: &'static str) -> PathField {
        match self.path(name) {
            PathField::Path(path) if !path.is_reference() => {
                let why = format!("{} is no reference path: names and indices below $ only", path.text());
                self.problem(name, code::PATH, why);
                PathField::Absent
            }
            other => other,
        }
    }

    pub(crate) fn template(&self, name: &'static str) -> Option<Template> {
        let value = self.raw(name)?;
        let mut misplaced = Vec::new();
        let template = Template::read(value, &mut misplaced);
        for wrong in misplaced {
            self.problems.add(format!("{}{}", self.place(name), wrong.field), code::PATH, wrong.error.to_string());
        }
        Some(template)
    }

    /// Reports fields that exclude each other.
    pub(crate) fn only_one_of(&self, names: &[&str]) {
        let present: Vec<&str> = names.iter().copied().filter(|name| self.has(name)).collect();
        if let [first, second, ..] = present.as_slice() {
            self.problem(second, code::SCHEMA, format!("it stands beside {first}; only one of them may"));
        }
    }

    /// Reports fields that the parser has not read.
    pub(crate) fn finish(self) {
        let known = self.known.borrow();
        for name in self.object.keys().filter(|name| !known.contains(name.as_str())) {
            let why = match name.as_str() {
                "Assign" => "variables are not supported",
                "Arguments" | "Output" | "Items" | "QueryLanguage" => "JSONata is not supported: use JSONPath",
                "HeartbeatSeconds" | "HeartbeatSecondsPath" => "functions send no heartbeats: use TimeoutSeconds",
                "ItemReader" | "ItemBatcher" | "ResultWriter" | "Label" => "distributed maps are not supported",
                "Credentials" => "there is one account: it is not supported",
                _ => "there is no such field here",
            };
            self.problems.add(self.place(name), code::SCHEMA, why);
        }
    }
}
