//! The part of JSONPath that the Amazon States Language uses: pure.
//!
//! `$` is the input, `$$` the context object. Steps: `.name`, `['name']`, `[0]`, `[-1]`, `[*]`, `.*`, `[1:3]`, `[0,2]`,
//! `['a','b']`, `..name`, and filters (`filter`). A path that can have only one match gives that match, or an
//! error if there is none; any other path gives the array of its matches.

mod filter;

use serde_json::Value;
use thiserror::Error;

use self::filter::Filter;

/// The most bytes of a path.
const PATH_BYTES_MAX: usize = 4096;
/// The most matches of one path.
const MATCHES_MAX: usize = 100_000;

/// Why a text is not a valid path.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is no JSONPath: {why}")]
pub(crate) struct PathError {
    text: String,
    why: &'static str,
}

/// Why a path has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("the JSONPath '{0}' could not be found in the input")]
pub(crate) struct NotFound(pub(crate) String);

/// The root of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Root {
    /// The root `$`.
    Input,
    /// The root `$$`.
    Context,
}

/// What a step selects from an object or array.
#[derive(Clone, Debug, PartialEq)]
enum Pick {
    Name(String),
    Index(i64),
    All,
    Slice(Option<i64>, Option<i64>),
    Filter(Filter),
}

#[derive(Clone, Debug, PartialEq)]
struct Step {
    /// True if the step selects from all levels below, not only from the children.
    deep: bool,
    picks: Vec<Pick>,
}

/// A path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Path {
    text: String,
    root: Root,
    steps: Vec<Step>,
}

impl Path {
    /// Parses all of `text` as a path.
    pub(crate) fn parse(text: &str) -> Result<Self, PathError> {
        let (path, rest) = Self::parse_first(text)?;
        if rest.is_empty() { Ok(path) } else { Err(path_error(text, "something follows its end")) }
    }

    /// Parses the path at the beginning of `text`. Returns the text after it.
    pub(crate) fn parse_first(text: &str) -> Result<(Self, &str), PathError> {
        if text.len() > PATH_BYTES_MAX {
            return Err(path_error(&text.chars().take(64).collect::<String>(), "it is longer than 4096 bytes"));
        }
        let (root, rest) = match text.strip_prefix("$$") {
            Some(rest) => (Root::Context, rest),
            None => (Root::Input, text.strip_prefix('$').ok_or_else(|| path_error(text, "it does not begin with $"))?),
        };
        let (steps, rest) = steps(rest).map_err(|why| path_error(text, why))?;
        let text = text[..text.len() - rest.len()].to_owned();
        Ok((Self { text, root, steps }, rest))
    }

    /// The path as written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    pub(crate) const fn root(&self) -> Root {
        self.root
    }

    /// True if it has at most one match.
    pub(crate) fn is_definite(&self) -> bool {
        let one = |step: &Step| !step.deep && matches!(step.picks.as_slice(), [Pick::Name(_) | Pick::Index(_)]);
        self.steps.iter().all(one)
    }

    /// True if it is a reference path: it names one place of the input that can be written.
    pub(crate) fn is_reference(&self) -> bool {
        let plain = |step: &Step| match step.picks.as_slice() {
            [Pick::Name(_)] => !step.deep,
            [Pick::Index(index)] => !step.deep && *index >= 0,
            _ => false,
        };
        self.root == Root::Input && self.steps.iter().all(plain)
    }

    /// The path's value in `root`.
    pub(crate) fn find(&self, root: &Value) -> Result<Value, NotFound> {
        if self.is_definite() {
            return self.one(root).cloned().ok_or_else(|| NotFound(self.text.clone()));
        }
        Ok(Value::Array(matches_of(&self.steps, root).into_iter().cloned().collect()))
    }

    /// The value of a definite path; none if it is not there.
    pub(crate) fn one<'v>(&self, root: &'v Value) -> Option<&'v Value> {
        matches_of(&self.steps, root).into_iter().next()
    }

    /// `root` with `value` at this reference path; missing parts on the way are created.
    pub(crate) fn set(&self, root: Value, value: Value) -> Result<Value, NotFound> {
        let mut whole = root;
        let mut place = &mut whole;
        for step in &self.steps {
            let not_there = || NotFound(self.text.clone());
            place = match step.picks.first() {
                Some(Pick::Name(name)) => {
                    if !place.is_object() {
                        if !place.is_null() {
                            return Err(not_there());
                        }
                        *place = Value::Object(serde_json::Map::new());
                    }
                    place.as_object_mut().ok_or_else(not_there)?.entry(name.as_str()).or_insert(Value::Null)
                }
                Some(Pick::Index(index)) => {
                    let items = place.as_array_mut().ok_or_else(not_there)?;
                    let index = usize::try_from(*index).map_err(|_| not_there())?;
                    if index == items.len() {
                        items.push(Value::Null);
                    }
                    items.get_mut(index).ok_or_else(not_there)?
                }
                _ => return Err(not_there()),
            };
        }
        *place = value;
        Ok(whole)
    }
}

fn path_error(text: &str, why: &'static str) -> PathError {
    PathError { text: text.to_owned(), why }
}

fn steps(text: &str) -> Result<(Vec<Step>, &str), &'static str> {
    let (mut steps, mut rest) = (Vec::new(), text);
    loop {
        let (deep, after) = match rest.strip_prefix("..") {
            Some(after) => (true, after),
            None => (false, rest),
        };
        if let Some(inner) = after.strip_prefix('[') {
            let (picks, after) = bracket(inner)?;
            steps.push(Step { deep, picks });
            rest = after;
        } else if deep || rest.starts_with('.') {
            let after = if deep { after } else { &after[1..] };
            if let Some(after) = after.strip_prefix('*') {
                steps.push(Step { deep, picks: vec![Pick::All] });
                rest = after;
                continue;
            }
            let end = after.find(|letter: char| !is_name(letter)).unwrap_or(after.len());
            if end == 0 {
                return Err("a name is missing after a dot");
            }
            steps.push(Step { deep, picks: vec![Pick::Name(after[..end].to_owned())] });
            rest = &after[end..];
        } else {
            return Ok((steps, rest));
        }
    }
}

/// True for characters that need no brackets.
fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '-' | '$' | '@' | ':') || !letter.is_ascii()
}

fn bracket(inner: &str) -> Result<(Vec<Pick>, &str), &'static str> {
    let mut rest = inner.trim_start();
    if let Some(filter) = rest.strip_prefix("?(") {
        let (filter, after) = Filter::parse(filter)?;
        let after = after.trim_start().strip_prefix(']').ok_or("a filter is not closed")?;
        return Ok((vec![Pick::Filter(filter)], after));
    }
    let mut picks = Vec::new();
    loop {
        let (pick, after) = pick(rest)?;
        picks.push(pick);
        let after = after.trim_start();
        if let Some(after) = after.strip_prefix(']') {
            return Ok((picks, after));
        }
        rest = after.strip_prefix(',').ok_or("a bracket is not closed")?.trim_start();
    }
}

fn pick(text: &str) -> Result<(Pick, &str), &'static str> {
    if let Some(after) = text.strip_prefix('*') {
        return Ok((Pick::All, after));
    }
    if text.starts_with('\'') || text.starts_with('"') {
        let (name, after) = quoted(text)?;
        return Ok((Pick::Name(name), after));
    }
    let (first, after) = number(text)?;
    let after = after.trim_start();
    let Some(after) = after.strip_prefix(':') else {
        return Ok((Pick::Index(first.ok_or("brackets hold no name, number or *")?), after));
    };
    let (last, after) = number(after.trim_start())?;
    Ok((Pick::Slice(first, last), after))
}

fn number(text: &str) -> Result<(Option<i64>, &str), &'static str> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '-').unwrap_or(text.len());
    if end == 0 {
        return Ok((None, text));
    }
    let number = text[..end].parse().map_err(|_| "an index in brackets must be a whole number")?;
    Ok((Some(number), &text[end..]))
}

/// Parses the quoted text at the beginning of `text`; a backslash takes the next character literally. Returns the text
/// after it.
pub(crate) fn quoted(text: &str) -> Result<(String, &str), &'static str> {
    let mut letters = text.char_indices();
    let Some((_, quote)) = letters.next() else { return Err("a text is missing") };
    let mut out = String::new();
    while let Some((place, letter)) = letters.next() {
        match letter {
            '\\' => out.push(letters.next().ok_or("a quoted text ends in a backslash; write \\\\ for a backslash")?.1),
            letter if letter == quote => return Ok((out, &text[place + quote.len_utf8()..])),
            letter => out.push(letter),
        }
    }
    Err("a quoted text has no closing quote")
}

/// Parses a number, a quoted text, `true`, `false` or `null`. Returns the text after it.
pub(crate) fn literal(text: &str) -> Result<(Value, &str), &'static str> {
    if text.starts_with('\'') || text.starts_with('"') {
        let (text, rest) = quoted(text)?;
        return Ok((Value::String(text), rest));
    }
    let end = text.find(|letter: char| !(letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.')));
    let (word, rest) = text.split_at(end.unwrap_or(text.len()));
    let value: Value = serde_json::from_str(word).map_err(|_| "a value is no number, text, true, false or null")?;
    Ok((value, rest))
}

fn matches_of<'v>(steps: &[Step], root: &'v Value) -> Vec<&'v Value> {
    let mut found = vec![root];
    for step in steps {
        let mut next = Vec::new();
        for value in found {
            if step.deep {
                descend(value, &mut |below| pick_all(&step.picks, below, &mut next));
            } else {
                pick_all(&step.picks, value, &mut next);
            }
        }
        found = next;
    }
    found
}

fn descend<'v>(value: &'v Value, visit: &mut dyn FnMut(&'v Value)) {
    visit(value);
    match value {
        Value::Array(items) => items.iter().for_each(|item| descend(item, visit)),
        Value::Object(fields) => fields.values().for_each(|field| descend(field, visit)),
        _ => {}
    }
}

fn pick_all<'v>(picks: &[Pick], value: &'v Value, found: &mut Vec<&'v Value>) {
    for pick in picks {
        if found.len() >= MATCHES_MAX {
            return;
        }
        match (pick, value) {
            (Pick::Name(name), Value::Object(fields)) => found.extend(fields.get(name)),
            (Pick::Index(index), Value::Array(items)) => {
                found.extend(place_of(*index, items.len()).and_then(|index| items.get(index)));
            }
            (Pick::All, Value::Array(items)) => found.extend(items),
            (Pick::All, Value::Object(fields)) => found.extend(fields.values()),
            (Pick::Slice(from, to), Value::Array(items)) => {
                let bound = |index: Option<i64>, open: usize| match index {
                    None => open,
                    Some(index) if index < 0 => items.len().saturating_sub(index.unsigned_abs() as usize),
                    Some(index) => (index as usize).min(items.len()),
                };
                let (from, to) = (bound(*from, 0), bound(*to, items.len()));
                found.extend(items.get(from..to).unwrap_or_default());
            }
            (Pick::Filter(filter), Value::Array(items)) => {
                found.extend(items.iter().filter(|item| filter.holds(item)));
            }
            (Pick::Filter(filter), Value::Object(fields)) => {
                found.extend(fields.values().filter(|field| filter.holds(field)));
            }
            _ => {}
        }
    }
}

/// The index in an array of `length`; a negative one counts from the end. None if it is outside.
fn place_of(index: i64, length: usize) -> Option<usize> {
    if index < 0 { length.checked_sub(index.unsigned_abs() as usize) } else { usize::try_from(index).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn find(path: &str, root: &Value) -> Option<Value> {
        Path::parse(path).unwrap().find(root).ok()
    }

    #[test]
    fn a_definite_path_gives_its_value_and_any_other_the_array_of_its_matches() {
        let input = json!({"a": {"b-c": [1, 2, 3]}, "d": [{"n": 1, "s": "x"}, {"n": 2}], "e f": null});
        for (path, expected) in [
            ("$", Some(input.clone())),
            ("$.a.b-c[0]", Some(json!(1))),
            ("$.a['b-c'][-1]", Some(json!(3))),
            ("$['e f']", Some(json!(null))),
            ("$.a.b-c[3]", None),
            ("$.nothing", None),
            ("$.a.b-c[*]", Some(json!([1, 2, 3]))),
            ("$.a.b-c[1:]", Some(json!([2, 3]))),
            ("$.a.b-c[:-1]", Some(json!([1, 2]))),
            ("$.a.b-c[0,2]", Some(json!([1, 3]))),
            ("$..n", Some(json!([1, 2]))),
            ("$.d[*].s", Some(json!(["x"]))),
            ("$.d[?(@.n > 1)]", Some(json!([{"n": 2}]))),
            ("$.d[?(@.s == 'x')].n", Some(json!([1]))),
            ("$.d[?(@.s)].n", Some(json!([1]))),
            ("$.nothing[*]", Some(json!([]))),
        ] {
            assert_eq!(find(path, &input), expected, "{path}");
        }
    }

    #[test]
    fn what_is_no_path_is_refused_with_a_reason() {
        for text in ["", "a", "$.", "$[", "$['a", "$[a]", "$.a b", "$[?(@.a", "$[]", "$.a[1"] {
            assert!(Path::parse(text).is_err(), "{text}");
        }
        assert_eq!(Path::parse_first("$.a, 1)").unwrap().1, ", 1)");
    }

    #[test]
    fn a_result_is_put_where_its_path_says_and_the_way_is_made() {
        let set = |path: &str, root: Value| Path::parse(path).unwrap().set(root, json!(7));
        assert_eq!(set("$.a.b", json!({"c": 1})).unwrap(), json!({"a": {"b": 7}, "c": 1}));
        assert_eq!(set("$", json!({"c": 1})).unwrap(), json!(7));
        assert_eq!(set("$.a[1]", json!({"a": [1]})).unwrap(), json!({"a": [1, 7]}));
        assert!(set("$.a.b", json!({"a": 1})).is_err());
        assert!(set("$.a[5]", json!({"a": [1]})).is_err());
        assert!(!Path::parse("$.a[*]").unwrap().is_reference());
        assert!(!Path::parse("$$.a").unwrap().is_reference());
    }
}
