//! The properties of one resource. Each is resolved when it is read; what is not known, and what nobody reads, is left out
//! and listed. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::intrinsics::{Scope, Unresolved, scalar_text};
use super::stack::LeftOut;

/// Properties that Nigh has nothing for, whatever their value: the name, whether the application misses it, and why.
pub(super) type Reasons = [(&'static str, bool, &'static str)];

/// The properties of a resource, or of a part of one.
pub(super) struct Properties<'a> {
    pub(super) scope: &'a Scope,
    /// How the resource is called in the list of what is left out.
    owner: String,
    all: Map<String, Value>,
    read: BTreeSet<String>,
    left_out: Vec<LeftOut>,
}

impl<'a> Properties<'a> {
    pub(super) fn new(scope: &'a Scope, owner: &str, all: Map<String, Value>) -> Self {
        Self { scope, owner: owner.to_owned(), all, read: BTreeSet::new(), left_out: Vec::new() }
    }

    /// The properties of the part `name` of these.
    pub(super) fn part(&self, name: &str, all: Map<String, Value>) -> Self {
        Properties::new(self.scope, &format!("{}.{name}", self.owner), all)
    }

    /// Lists a part that does not come along.
    pub(super) fn leave_out(&mut self, what: &str, is_missed: bool, why: impl Into<String>) {
        let what = if what.is_empty() { self.owner.clone() } else { format!("{}.{what}", self.owner) };
        self.left_out.push(LeftOut { is_missed, what, why: why.into() });
    }

    fn known<T>(&mut self, name: &str, read: Result<Option<T>, Unresolved>) -> Option<T> {
        read.unwrap_or_else(|why| {
            self.leave_out(name, true, why.to_string());
            None
        })
    }

    /// The property as it stands in the template.
    pub(super) fn raw(&mut self, name: &str) -> Option<Value> {
        self.read.insert(name.to_owned());
        self.all.get(name).filter(|value| !value.is_null()).cloned()
    }

    /// The property, with only the functions evaluated that choose it.
    pub(super) fn unfolded(&mut self, name: &str) -> Option<Value> {
        let raw = self.raw(name)?;
        let unfolded = self.scope.unfold(&raw);
        self.known(name, unfolded)
    }

    /// The property.
    pub(super) fn value(&mut self, name: &str) -> Option<Value> {
        let raw = self.raw(name)?;
        let resolved = self.scope.resolve(&raw);
        self.known(name, resolved)
    }

    /// A value within the part `name`.
    pub(super) fn resolved_within(&mut self, name: &str, value: &Value) -> Option<Value> {
        let resolved = self.scope.resolve(value);
        self.known(name, resolved)
    }

    /// The same for a value within the part `name`.
    pub(super) fn unfolded_within(&mut self, name: &str, value: &Value) -> Option<Value> {
        let unfolded = self.scope.unfold(value);
        self.known(name, unfolded)
    }

    /// A text, or a number or boolean as text.
    pub(super) fn text(&mut self, name: &str) -> Option<String> {
        let value = self.value(name)?;
        let text = scalar_text(&value);
        if text.is_none() {
            self.leave_out(name, true, "a text is expected");
        }
        text
    }

    pub(super) fn number(&mut self, name: &str) -> Option<u64> {
        let text = self.text(name)?;
        let number = text.parse().ok();
        if number.is_none() {
            self.leave_out(name, true, format!("{text:?} is no number"));
        }
        number
    }

    pub(super) fn flag(&mut self, name: &str) -> Option<bool> {
        let text = self.text(name)?;
        let flag = match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "enabled" => Some(true),
            "false" | "no" | "off" | "disabled" => Some(false),
            _ => None,
        };
        if flag.is_none() {
            self.leave_out(name, true, format!("{text:?} is neither true nor false"));
        }
        flag
    }

    /// A map, its values not resolved.
    pub(super) fn map(&mut self, name: &str) -> Option<Map<String, Value>> {
        match self.unfolded(name)? {
            Value::Object(map) => Some(map),
            _ => {
                self.leave_out(name, true, "a map is expected");
                None
            }
        }
    }

    /// A list, its items not resolved; a single value is a list of one.
    pub(super) fn list(&mut self, name: &str) -> Vec<Value> {
        match self.unfolded(name) {
            None => Vec::new(),
            Some(Value::Array(items)) => items,
            Some(one) => vec![one],
        }
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, name: &str) -> Vec<String> {
        let mut texts = Vec::new();
        for item in self.list(name) {
            match self.resolved_within(name, &item) {
                Some(Value::Array(items)) => texts.extend(items.iter().filter_map(scalar_text)),
                Some(value) => texts.extend(scalar_text(&value)),
                None => {}
            }
        }
        texts
    }

    /// Lists the properties that nobody has read, each with its reason. Returns all that is left out.
    pub(super) fn finish(mut self, reasons: &Reasons) -> Vec<LeftOut> {
        let unread: Vec<String> = self.all.keys().filter(|name| !self.read.contains(*name)).cloned().collect();
        for name in unread {
            let reason = reasons.iter().find(|(known, ..)| *known == name);
            let (is_missed, why) =
                reason.map_or((true, "Nigh has nothing for it"), |(_, is_missed, why)| (*is_missed, *why));
            self.leave_out(&name, is_missed, why);
        }
        self.left_out
    }

    /// What is left out if the whole resource is: its properties are not listed beside it.
    pub(super) fn abandon(self) -> Vec<LeftOut> {
        self.left_out
    }

    /// Adds what a part has left out.
    pub(super) fn adopt(&mut self, part: Vec<LeftOut>) {
        self.left_out.extend(part);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_not_known_or_not_read_is_listed_and_nothing_else() {
        let scope = Scope { values: [("Size".to_owned(), json!("256"))].into(), ..Scope::default() };
        let all = json!({
            "Memory": { "Ref": "Size" }, "Timeout": "soon", "On": "Yes", "Names": ["a", { "Ref": "Size" }, { "Ref": "No" }],
            "Absent": null, "Role": "r", "Colour": "red", "Table": { "Ref": "Table" },
        });
        let mut properties = Properties::new(&scope, "hello", all.as_object().cloned().unwrap());
        assert_eq!((properties.number("Memory"), properties.number("Timeout")), (Some(256), None));
        assert_eq!(
            (properties.flag("On"), properties.text("Absent"), properties.text("Table")),
            (Some(true), None, None)
        );
        assert_eq!(properties.texts("Names"), ["a", "256"]);
        let mut part = properties.part("Events", Map::new());
        part.leave_out("", false, "why");
        properties.adopt(part.finish(&[]));
        let left_out = properties.finish(&[("Role", false, "no roles")]);
        let told: Vec<_> = left_out.iter().map(|one| (one.what.as_str(), one.is_missed, one.why.as_str())).collect();
        assert_eq!(
            told,
            [
                ("hello.Timeout", true, "\"soon\" is no number"),
                ("hello.Table", true, "the template has no parameter or resource Table"),
                ("hello.Names", true, "the template has no parameter or resource No"),
                ("hello.Events", false, "why"),
                ("hello.Colour", true, "Nigh has nothing for it"),
                ("hello.Role", false, "no roles"),
            ]
        );
    }
}
