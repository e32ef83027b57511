//! Parses the fields of a `Choice`: pure.

use serde_json::Value;

use super::fields::{Fields, PathField};
use crate::language::choice::{Comparison, Operand, Rule, Shape, Test, Type, pattern};
use crate::language::definition::{Kind, StateName};
use crate::language::path::Path;
use crate::language::problems::code;
use crate::language::timestamp;

/// The most levels of nested rules.
const DEPTH_MAX: usize = 16;

const COMPARISONS: [(&str, Comparison); 5] = [
    ("LessThanEquals", Comparison::LessThanEquals),
    ("GreaterThanEquals", Comparison::GreaterThanEquals),
    ("Equals", Comparison::Equals),
    ("LessThan", Comparison::LessThan),
    ("GreaterThan", Comparison::GreaterThan),
];
const SHAPES: [(&str, Shape); 5] = [
    ("IsNull", Shape::Null),
    ("IsNumeric", Shape::Number),
    ("IsString", Shape::String),
    ("IsBoolean", Shape::Boolean),
    ("IsTimestamp", Shape::Timestamp),
];

/// The names of all tests.
const TESTS: [&str; 45] = [
    "StringEquals",
    "StringEqualsPath",
    "StringLessThan",
    "StringLessThanPath",
    "StringGreaterThan",
    "StringGreaterThanPath",
    "StringLessThanEquals",
    "StringLessThanEqualsPath",
    "StringGreaterThanEquals",
    "StringGreaterThanEqualsPath",
    "StringMatches",
    "NumericEquals",
    "NumericEqualsPath",
    "NumericLessThan",
    "NumericLessThanPath",
    "NumericGreaterThan",
    "NumericGreaterThanPath",
    "NumericLessThanEquals",
    "NumericLessThanEqualsPath",
    "NumericGreaterThanEquals",
    "NumericGreaterThanEqualsPath",
    "BooleanEquals",
    "BooleanEqualsPath",
    "TimestampEquals",
    "TimestampEqualsPath",
    "TimestampLessThan",
    "TimestampLessThanPath",
    "TimestampGreaterThan",
    "TimestampGreaterThanPath",
    "TimestampLessThanEquals",
    "TimestampLessThanEqualsPath",
    "TimestampGreaterThanEquals",
    "TimestampGreaterThanEqualsPath",
    "IsNull",
    "IsPresent",
    "IsNumeric",
    "IsString",
    "IsBoolean",
    "IsTimestamp",
    "And",
    "Or",
    "Not",
    "Variable",
    "Next",
    "Comment",
];

/// Parses a `Choice` from `fields`.
pub(crate) fn choice(fields: &Fields<'_>) -> Option<Kind> {
    let default = fields.text("Default").map(StateName::from);
    let Some(all) = fields.array("Choices") else {
        if !fields.has("Choices") {
            fields.missing("Choices");
        }
        return None;
    };
    if all.is_empty() {
        fields.problem("Choices", code::SCHEMA, "it is empty");
    }
    let read = |(index, value): (usize, &Value)| {
        let at = format!("{}[{index}]", fields.place("Choices"));
        let rule = Fields::of(value, &at, fields.problems)?;
        if !rule.has("Next") {
            rule.missing("Next");
        }
        let next = rule.text("Next").map(StateName::from);
        Some((read_rule(rule, 0)?, next?))
    };
    let rules: Vec<Option<_>> = all.iter().enumerate().map(read).collect();
    Some(Kind::Choice { rules: rules.into_iter().collect::<Option<_>>()?, default })
}

fn nested(rule: &Fields<'_>, name: &'static str, value: &Value, at: &str, depth: usize) -> Option<Rule> {
    let inner = Fields::of(value, at, rule.problems)?;
    if inner.has("Next") {
        inner.problem("Next", code::SCHEMA, format!("only the outermost rule leads on, not one in {name}"));
        return None;
    }
    read_rule(inner, depth + 1)
}

fn read_rule(rule: Fields<'_>, depth: usize) -> Option<Rule> {
    if depth > DEPTH_MAX {
        rule.problem("And", code::SCHEMA, format!("rules are nested deeper than {DEPTH_MAX}"));
        return None;
    }
    rule.text("Comment");
    let read = read_inner(&rule, depth);
    rule.finish();
    read
}

fn read_inner(rule: &Fields<'_>, depth: usize) -> Option<Rule> {
    for name in ["And", "Or"] {
        let Some(all) = rule.array(name) else { continue };
        if all.is_empty() {
            rule.problem(name, code::SCHEMA, "it is empty");
        }
        let at = |index| format!("{}[{index}]", rule.place(name));
        let rules: Vec<Option<Rule>> =
            all.iter().enumerate().map(|(index, value)| nested(rule, name, value, &at(index), depth)).collect();
        let rules: Vec<Rule> = rules.into_iter().collect::<Option<_>>()?;
        return Some(if name == "And" { Rule::And(rules) } else { Rule::Or(rules) });
    }
    if let Some(value) = rule.raw("Not") {
        return Some(Rule::Not(Box::new(nested(rule, "Not", value, &rule.place("Not"), depth)?)));
    }
    if !rule.has("Variable") {
        rule.problem("Variable", code::SCHEMA, "a rule has a Variable, or And, Or, Not");
        return None;
    }
    // An unreadable variable is reported, and its test is parsed nevertheless.
    let variable = match rule.path("Variable") {
        PathField::Path(path) => Some(path),
        _ => None,
    };
    let is_test = |name: &&&str| !matches!(**name, "And" | "Or" | "Not" | "Variable" | "Next" | "Comment");
    let mut names = TESTS.iter().filter(is_test).filter(|name| rule.has(name));
    let Some(name) = names.next().copied() else {
        rule.problem("Variable", code::SCHEMA, "nothing is asked of it: StringEquals, IsPresent, ...");
        return None;
    };
    if let Some(second) = names.next() {
        rule.problem(second, code::SCHEMA, format!("it stands beside {name}; a rule asks one thing"));
    }
    let test = test(rule, name)?;
    Some(Rule::Test { variable: variable?, test })
}

fn test(rule: &Fields<'_>, name: &'static str) -> Option<Test> {
    if name == "IsPresent" {
        return rule.flag(name).map(Test::Present);
    }
    if let Some((_, shape)) = SHAPES.iter().find(|(found, _)| *found == name) {
        return rule.flag(name).map(|asked| Test::Is(*shape, asked));
    }
    if name == "StringMatches" {
        let parts = pattern(rule.text(name)?);
        if parts.is_none() {
            rule.problem(name, code::SCHEMA, "a backslash stands before * or another backslash only");
        }
        return parts.map(Test::Matches);
    }
    let (kind, rest) = [
        (Type::String, "String"),
        (Type::Number, "Numeric"),
        (Type::Boolean, "Boolean"),
        (Type::Timestamp, "Timestamp"),
    ]
    .into_iter()
    .find_map(|(kind, word)| Some((kind, name.strip_prefix(word)?)))?;
    let (rest, is_path) = match rest.strip_suffix("Path") {
        Some(rest) => (rest, true),
        None => (rest, false),
    };
    let (_, comparison) = COMPARISONS.iter().find(|(word, _)| *word == rest)?;
    let operand =
        if is_path { Operand::Path(path_of(rule, name)?) } else { Operand::Value(value_of(rule, name, kind)?) };
    Some(Test::Compare(kind, *comparison, operand))
}

fn path_of(rule: &Fields<'_>, name: &'static str) -> Option<Path> {
    rule.one_path(name)
}

fn value_of(rule: &Fields<'_>, name: &'static str, kind: Type) -> Option<Value> {
    let value = rule.raw(name)?;
    let (fits, wanted) = match kind {
        Type::String => (value.is_string(), "string"),
        Type::Number => (value.is_number(), "number"),
        Type::Boolean => (value.is_boolean(), "boolean"),
        Type::Timestamp => {
            (value.as_str().is_some_and(|text| timestamp::parse(text).is_some()), "date like 2026-01-31T12:00:00Z")
        }
    };
    if !fits {
        rule.problem(name, code::SCHEMA, format!("it is no {wanted}"));
    }
    fits.then(|| value.clone())
}
