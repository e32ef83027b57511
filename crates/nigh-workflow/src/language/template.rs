//! Payload templates: `Parameters`, `ItemSelector` and `ResultSelector`. Pure.
//!
//! A template is JSON; a field whose name ends in `.$` holds a path or a call of an intrinsic function.

use serde_json::{Map, Value};
use thiserror::Error;

use super::chance::Chance;
use super::context::Context;
use super::error_names;
use super::intrinsic::{Intrinsic, IntrinsicError};
use super::path::{NotFound, Path, PathError, Root, literal};

/// The most levels of a nested template or call.
const DEPTH_MAX: usize = 64;

/// Why a text is not a valid template.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum TemplateError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("{0:?} is no path and no call of an intrinsic function: {1}")]
    Call(String, &'static str),
    #[error("there is no intrinsic function {0:?}")]
    Unknown(String),
    #[error("{name} takes {least} to {most} arguments, and has {found}")]
    Arguments { name: &'static str, least: usize, most: usize, found: usize },
    #[error("it is nested deeper than {DEPTH_MAX}")]
    Deep,
}

/// Why a template has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ValueError {
    #[error(transparent)]
    NotFound(#[from] NotFound),
    #[error(transparent)]
    Intrinsic(#[from] IntrinsicError),
}

impl ValueError {
    /// The error's name in `Retry` and `Catch`.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::NotFound(_) => error_names::PARAMETER_PATH,
            Self::Intrinsic(_) => error_names::INTRINSIC,
        }
    }
}

/// The values that paths can read.
pub(crate) struct Sight<'a> {
    pub(crate) input: &'a Value,
    pub(crate) context: &'a Context<'a>,
}

impl Sight<'_> {
    pub(crate) fn find(&self, path: &Path) -> Result<Value, NotFound> {
        match path.root() {
            Root::Input => path.find(self.input),
            Root::Context => path.find(&self.context.value()),
        }
    }
}

/// A path, or a call of an intrinsic function.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Expression {
    Path(Path),
    Literal(Value),
    Call(Intrinsic, Vec<Self>),
}

impl Expression {
    /// Parses all of `text`.
    pub(crate) fn parse(text: &str) -> Result<Self, TemplateError> {
        let text = text.trim();
        if text.starts_with('$') {
            return Ok(Self::Path(Path::parse(text)?));
        }
        let (call, rest) = call(text, 0)?;
        if rest.trim().is_empty() {
            Ok(call)
        } else {
            Err(TemplateError::Call(text.to_owned(), "something follows its end"))
        }
    }

    pub(crate) fn value(&self, sight: &Sight<'_>, chance: &mut Chance) -> Result<Value, ValueError> {
        match self {
            Self::Path(path) => Ok(sight.find(path)?),
            Self::Literal(value) => Ok(value.clone()),
            Self::Call(intrinsic, arguments) => {
                let arguments: Result<Vec<Value>, ValueError> =
                    arguments.iter().map(|argument| argument.value(sight, chance)).collect();
                Ok(intrinsic.call(&arguments?, chance)?)
            }
        }
    }
}

fn call(text: &str, depth: usize) -> Result<(Expression, &str), TemplateError> {
    let malformed = |why| TemplateError::Call(text.to_owned(), why);
    if depth > DEPTH_MAX {
        return Err(TemplateError::Deep);
    }
    let (name, after) = text.split_once('(').ok_or_else(|| malformed("it has no parenthesis"))?;
    let intrinsic = Intrinsic::of(name.trim()).ok_or_else(|| TemplateError::Unknown(name.trim().to_owned()))?;
    let (mut arguments, mut rest) = (Vec::new(), after.trim_start());
    if let Some(after) = rest.strip_prefix(')') {
        rest = after;
    } else {
        loop {
            let (mut argument, after) = argument(rest, depth)?;
            let is_format = intrinsic == Intrinsic::Format && arguments.is_empty();
            if let Expression::Literal(Value::String(raw)) = &mut argument
                && !is_format
            {
                *raw = unescaped(raw);
            }
            arguments.push(argument);
            let after = after.trim_start();
            if let Some(after) = after.strip_prefix(')') {
                rest = after;
                break;
            }
            rest = after.strip_prefix(',').ok_or_else(|| malformed("a parenthesis is not closed"))?.trim_start();
        }
    }
    let ((least, most), found) = (intrinsic.arguments(), arguments.len());
    if !(least..=most).contains(&found) {
        return Err(TemplateError::Arguments { name: intrinsic.name(), least, most, found });
    }
    Ok((Expression::Call(intrinsic, arguments), rest))
}

fn argument(text: &str, depth: usize) -> Result<(Expression, &str), TemplateError> {
    let malformed = |why| TemplateError::Call(text.to_owned(), why);
    if text.starts_with('$') {
        let (path, rest) = Path::parse_first(text)?;
        return Ok((Expression::Path(path), rest));
    }
    if text.starts_with('\'') {
        let (value, rest) = quoted(text).map_err(malformed)?;
        return Ok((Expression::Literal(Value::String(value)), rest));
    }
    if text.starts_with("States.") {
        return call(text, depth + 1);
    }
    let (value, rest) = literal(text).map_err(malformed)?;
    Ok((Expression::Literal(value), rest))
}

/// Parses a quoted text. Only the escape of the quote is resolved here, because `States.Format` handles the others.
fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let (mut raw, mut letters) = (String::new(), text.char_indices().skip(1));
    while let Some((place, letter)) = letters.next() {
        match letter {
            '\'' => return Ok((raw, &text[place + 1..])),
            '\\' => match letters.next() {
                Some((_, '\'')) => raw.push('\''),
                Some((_, next)) => raw.extend(['\\', next]),
                None => return Err("a quoted text ends in a backslash; write \\\\ for a backslash"),
            },
            letter => raw.push(letter),
        }
    }
    Err("a quoted text has no closing quote")
}

fn unescaped(raw: &str) -> String {
    let (mut out, mut letters) = (String::with_capacity(raw.len()), raw.chars());
    while let Some(letter) = letters.next() {
        out.extend(if letter == '\\' { letters.next() } else { Some(letter) });
    }
    out
}

/// A template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Template {
    Literal(Value),
    Expression(Expression),
    Object(Vec<(String, Self)>),
    Array(Vec<Self>),
}

/// A problem of a template, and its field.
pub(crate) struct TemplateProblem {
    pub(crate) field: String,
    pub(crate) error: TemplateError,
}

impl Template {
    /// Parses a template; all problems go to `problems`.
    pub(crate) fn read(value: &Value, problems: &mut Vec<TemplateProblem>) -> Self {
        Self::read_at(value, "", 0, problems)
    }

    fn read_at(value: &Value, at: &str, depth: usize, problems: &mut Vec<TemplateProblem>) -> Self {
        if depth > DEPTH_MAX {
            problems.push(TemplateProblem { field: at.to_owned(), error: TemplateError::Deep });
            return Self::Literal(Value::Null);
        }
        match value {
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| {
                    let place = format!("{at}.{name}");
                    match (name.strip_suffix(".$"), value) {
                        (Some(name), Value::String(text)) => match Expression::parse(text) {
                            Ok(expression) => (name.to_owned(), Self::Expression(expression)),
                            Err(error) => {
                                problems.push(TemplateProblem { field: place, error });
                                (name.to_owned(), Self::Literal(Value::Null))
                            }
                        },
                        (Some(name), _) => {
                            let error = TemplateError::Call(value.to_string(), "it is no string");
                            problems.push(TemplateProblem { field: place, error });
                            (name.to_owned(), Self::Literal(Value::Null))
                        }
                        (None, value) => (name.clone(), Self::read_at(value, &place, depth + 1, problems)),
                    }
                });
                Self::Object(fields.collect()).folded()
            }
            Value::Array(items) => {
                let read = |(index, item)| Self::read_at(item, &format!("{at}[{index}]"), depth + 1, problems);
                Self::Array(items.iter().enumerate().map(read).collect()).folded()
            }
            other => Self::Literal(other.clone()),
        }
    }

    /// Turns the template into a literal if nothing in it must be looked up.
    fn folded(self) -> Self {
        let literal = |template: &Self| match template {
            Self::Literal(value) => Some(value.clone()),
            _ => None,
        };
        match &self {
            Self::Object(fields) => {
                let all: Option<Map<String, Value>> =
                    fields.iter().map(|(name, field)| Some((name.clone(), literal(field)?))).collect();
                all.map_or(self, |all| Self::Literal(Value::Object(all)))
            }
            Self::Array(items) => {
                let all: Option<Vec<Value>> = items.iter().map(literal).collect();
                all.map_or(self, |all| Self::Literal(Value::Array(all)))
            }
            _ => self,
        }
    }

    pub(crate) fn value(&self, sight: &Sight<'_>, chance: &mut Chance) -> Result<Value, ValueError> {
        match self {
            Self::Literal(value) => Ok(value.clone()),
            Self::Expression(expression) => expression.value(sight, chance),
            Self::Object(fields) => {
                let mut object = Map::new();
                for (name, field) in fields {
                    object.insert(name.clone(), field.value(sight, chance)?);
                }
                Ok(Value::Object(object))
            }
            Self::Array(items) => items.iter().map(|item| item.value(sight, chance)).collect(),
        }
    }

    /// The field `name` of the template.
    pub(crate) fn field(&self, name: &str) -> Option<FieldOf<'_>> {
        match self {
            Self::Literal(Value::Object(fields)) => fields.get(name).map(FieldOf::Literal),
            Self::Object(fields) => fields.iter().find(|(found, _)| found == name).map(|(_, field)| match field {
                Self::Literal(value) => FieldOf::Literal(value),
                _ => FieldOf::LookedUp,
            }),
            _ => None,
        }
    }
}

/// A field of a template.
pub(crate) enum FieldOf<'a> {
    Literal(&'a Value),
    LookedUp,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn value(template: Value, input: Value) -> Result<Value, ValueError> {
        let mut problems = Vec::new();
        let template = Template::read(&template, &mut problems);
        assert!(problems.is_empty(), "{}", problems[0].error);
        let context = Context::of_nothing();
        template.value(&Sight { input: &input, context: &context }, &mut Chance::new([1; 16]))
    }

    #[test]
    fn fields_that_end_in_a_dollar_are_looked_up_and_all_else_stays() {
        let template = json!({
            "plain": [1, {"a": "$.x"}],
            "found.$": "$.x",
            "deep": {"list": [{"n.$": "$.y[0]"}]},
            "call.$": "States.Format('it''s'[0]', $.x)",
        });
        let mut problems = Vec::new();
        Template::read(&template, &mut problems);
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].field, ".call.$");
        let template = json!({
            "plain": [1, {"a": "$.x"}],
            "found.$": "$.x",
            "deep": {"list": [{"n.$": "$.y[0]"}]},
            "call.$": "States.Format('it\\'s {} of \\{\\} {}', $.x, States.MathAdd($.y[0], 1))",
        });
        assert_eq!(
            value(template, json!({"x": "X", "y": [4]})).unwrap(),
            json!({"plain": [1, {"a": "$.x"}], "found": "X", "deep": {"list": [{"n": 4}]}, "call": "it's X of {} 5"})
        );
        let missing = value(json!({"a.$": "$.x"}), json!({})).unwrap_err();
        assert_eq!(missing.name(), "States.ParameterPathFailure");
    }

    #[test]
    fn a_call_that_is_none_is_refused() {
        for text in
            ["States.Nothing()", "States.UUID(1)", "States.Array(1", "x", "States.Array(1) 2", "States.Format()"]
        {
            assert!(Expression::parse(text).is_err(), "{text}");
        }
        assert!(Expression::parse("States.Array($.a[0], 'b', -1.5, true, null)").is_ok());
    }
}
