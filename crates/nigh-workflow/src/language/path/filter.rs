//! Filters of a JSONPath, `?(@.n > 1 && @.name == 'x')`: pure.

use std::cmp::Ordering;

use serde_json::Value;

use super::{Path, literal};

/// The most conditions of one filter.
const CONDITIONS_MAX: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// In the order in which they are tried: the longer ones first.
const OPERATORS: [(&str, Operator); 6] = [
    ("==", Operator::Equal),
    ("!=", Operator::NotEqual),
    ("<=", Operator::LessOrEqual),
    (">=", Operator::GreaterOrEqual),
    ("<", Operator::Less),
    (">", Operator::Greater),
];

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    negated: bool,
    path: Path,
    /// The operator and the value to compare with; none: the condition is that a value exists.
    compared: Option<(Operator, Value)>,
}

/// Alternatives, each a list of conditions that must all hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filter(Vec<Vec<Condition>>);

impl Filter {
    /// Parses the text after `?(`, up to its closing parenthesis. Returns the text after that.
    pub(crate) fn parse(text: &str) -> Result<(Self, &str), &'static str> {
        let (mut alternatives, mut together, mut rest, mut count) = (Vec::new(), Vec::new(), text, 0);
        loop {
            let (condition, after) = condition(rest.trim_start())?;
            together.push(condition);
            count += 1;
            if count > CONDITIONS_MAX {
                return Err("a filter has more than 32 conditions");
            }
            let after = after.trim_start();
            if let Some(after) = after.strip_prefix(')') {
                alternatives.push(together);
                return Ok((Self(alternatives), after));
            } else if let Some(after) = after.strip_prefix("&&") {
                rest = after;
            } else if let Some(after) = after.strip_prefix("||") {
                alternatives.push(std::mem::take(&mut together));
                rest = after;
            } else {
                return Err("a filter has conditions of the form @.name == 1, joined by && and ||");
            }
        }
    }

    pub(crate) fn holds(&self, item: &Value) -> bool {
        self.0.iter().any(|together| together.iter().all(|condition| condition.holds(item)))
    }
}

impl Condition {
    fn holds(&self, item: &Value) -> bool {
        let found = self.path.one(item);
        let holds = match (&self.compared, found) {
            (None, found) => found.is_some(),
            (Some(_), None) => false,
            (Some((operator, to)), Some(found)) => compare(*operator, found, to),
        };
        holds != self.negated
    }
}

fn compare(operator: Operator, found: &Value, to: &Value) -> bool {
    let order = match (found, to) {
        (Value::Number(found), Value::Number(to)) => found.as_f64().partial_cmp(&to.as_f64()),
        (Value::String(found), Value::String(to)) => Some(found.cmp(to)),
        (found, to) => (found == to).then_some(Ordering::Equal),
    };
    match operator {
        Operator::Equal => order == Some(Ordering::Equal),
        Operator::NotEqual => order != Some(Ordering::Equal),
        Operator::Less => order == Some(Ordering::Less),
        Operator::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        Operator::Greater => order == Some(Ordering::Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    }
}

fn condition(text: &str) -> Result<(Condition, &str), &'static str> {
    let (negated, text) = match text.strip_prefix('!') {
        Some(text) => (true, text.trim_start()),
        None => (false, text),
    };
    let below = text.strip_prefix('@').ok_or("a filter's condition does not begin with @")?;
    // Paths below an item have the same form as those below the input.
    let rooted = format!("${below}");
    let (path, after) = Path::parse_first(&rooted).map_err(|_| "a filter has a path that is none")?;
    if !path.is_definite() {
        return Err("a filter's path has more than one match");
    }
    let rest = below[below.len() - after.len()..].trim_start();
    let found = OPERATORS.iter().find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)));
    let Some((operator, rest)) = found else {
        return Ok((Condition { negated, path, compared: None }, rest));
    };
    let (value, rest) = literal(rest.trim_start())?;
    Ok((Condition { negated, path, compared: Some((operator, value)) }, rest))
}
