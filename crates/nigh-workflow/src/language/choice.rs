//! The rules of a `Choice` state: pure.

use std::cmp::Ordering;

use serde_json::Value;

use super::path::{NotFound, Path};
use super::template::Sight;
use super::timestamp;

/// A rule of a `Choice`.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    And(Vec<Self>),
    Or(Vec<Self>),
    Not(Box<Self>),
    Test { variable: Path, test: Test },
}

/// The test of a value.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Compare(Type, Comparison, Operand),
    /// The value matches a pattern in which `*` is any text and `\*` an asterisk.
    Matches(Vec<PatternPart>),
    /// True: the value has this shape. False: it does not.
    Is(Shape, bool),
    /// True: there is a value. False: there is none.
    Present(bool),
}

/// The type that both sides of a comparison must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    Number,
    Boolean,
    Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equals,
    LessThan,
    GreaterThan,
    LessThanEquals,
    GreaterThanEquals,
}

#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Value(Value),
    Path(Path),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Null,
    Number,
    String,
    Boolean,
    Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PatternPart {
    Text(String),
    Any,
}

impl Rule {
    /// True if the rule holds. An error if a path has no value.
    pub(crate) fn holds(&self, sight: &Sight<'_>) -> Result<bool, NotFound> {
        match self {
            Self::And(rules) => {
                for rule in rules {
                    if !rule.holds(sight)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Self::Or(rules) => {
                for rule in rules {
                    if rule.holds(sight)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Self::Not(rule) => Ok(!rule.holds(sight)?),
            Self::Test { variable, test } => {
                let found = sight.find(variable);
                if let Test::Present(asked) = test {
                    return Ok(found.is_ok() == *asked);
                }
                test.holds(&found?, sight)
            }
        }
    }
}

impl Test {
    fn holds(&self, value: &Value, sight: &Sight<'_>) -> Result<bool, NotFound> {
        match self {
            Self::Present(asked) => Ok(*asked),
            Self::Is(shape, asked) => Ok(shape.is(value) == *asked),
            Self::Matches(pattern) => Ok(value.as_str().is_some_and(|text| matches(pattern, text))),
            Self::Compare(kind, comparison, to) => {
                let order = match to {
                    Operand::Value(to) => kind.order(value, to),
                    Operand::Path(path) => kind.order(value, &sight.find(path)?),
                };
                // Values of another type are neither equal nor less.
                Ok(order.is_some_and(|order| comparison.is(order)))
            }
        }
    }
}

impl Comparison {
    const fn is(self, order: Ordering) -> bool {
        match self {
            Self::Equals => order.is_eq(),
            Self::LessThan => order.is_lt(),
            Self::GreaterThan => order.is_gt(),
            Self::LessThanEquals => order.is_le(),
            Self::GreaterThanEquals => order.is_ge(),
        }
    }
}

impl Type {
    fn order(self, left: &Value, right: &Value) -> Option<Ordering> {
        match (self, left, right) {
            (Self::String, Value::String(left), Value::String(right)) => Some(left.cmp(right)),
            (Self::Boolean, Value::Bool(left), Value::Bool(right)) => Some(left.cmp(right)),
            (Self::Number, Value::Number(left), Value::Number(right)) => match (left.as_i64(), right.as_i64()) {
                (Some(left), Some(right)) => Some(left.cmp(&right)),
                _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
            },
            (Self::Timestamp, Value::String(left), Value::String(right)) => {
                Some(timestamp::parse(left)?.cmp(&timestamp::parse(right)?))
            }
            _ => None,
        }
    }
}

impl Shape {
    fn is(self, value: &Value) -> bool {
        match self {
            Self::Null => value.is_null(),
            Self::Number => value.is_number(),
            Self::String => value.is_string(),
            Self::Boolean => value.is_boolean(),
            Self::Timestamp => value.as_str().is_some_and(|text| timestamp::parse(text).is_some()),
        }
    }
}

/// The parts of a pattern; none if a backslash precedes a character other than `*` or itself.
pub(crate) fn pattern(text: &str) -> Option<Vec<PatternPart>> {
    let (mut parts, mut plain, mut letters) = (Vec::new(), String::new(), text.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '*' => {
                if !plain.is_empty() {
                    parts.push(PatternPart::Text(std::mem::take(&mut plain)));
                }
                if parts.last() != Some(&PatternPart::Any) {
                    parts.push(PatternPart::Any);
                }
            }
            '\\' => plain.push(letters.next().filter(|next| matches!(next, '*' | '\\'))?),
            letter => plain.push(letter),
        }
    }
    if !plain.is_empty() {
        parts.push(PatternPart::Text(plain));
    }
    Some(parts)
}

/// Each text is matched at its first occurrence, and the last one at the end, so the text is read at most once.
fn matches(pattern: &[PatternPart], text: &str) -> bool {
    let (mut rest, mut free) = (text, false);
    for (index, part) in pattern.iter().enumerate() {
        match part {
            PatternPart::Any => free = true,
            PatternPart::Text(part) => {
                let is_last = index + 1 == pattern.len();
                let after = match (free, is_last) {
                    (false, _) => rest.strip_prefix(part.as_str()),
                    (true, true) => rest.ends_with(part.as_str()).then_some(""),
                    (true, false) => rest.find(part.as_str()).map(|place| &rest[place + part.len()..]),
                };
                let Some(after) = after else { return false };
                rest = after;
                free = false;
            }
        }
    }
    free || rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asterisk_is_any_text_and_one_behind_a_backslash_is_itself() {
        for (pattern_text, text, holds) in [
            ("log-*.txt", "log-1.txt", true),
            ("log-*.txt", "log-1.txt.gz", false),
            ("*", "", true),
            ("a*b*c", "a--b--b--c", true),
            ("a*b", "ab-", false),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(&pattern(pattern_text).unwrap(), text), holds, "{pattern_text} {text}");
        }
        assert_eq!(pattern("a\\b"), None);
    }
}
