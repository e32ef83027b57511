//! YAML as CloudFormation and Serverless Framework write it: one document, whose short tags (`!Ref`, `!Sub`) become the
//! long forms (`{"Ref": …}`, `{"Fn::Sub": …}`), so that the rest sees JSON only. Pure.
//!
//! A plain scalar is a number or a boolean only if it would be printed as it stands: `0123` and `1.10` stay texts, as an
//! environment variable needs them.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Tag};
use serde_json::{Map, Value};
use thiserror::Error;

/// The longest text; CloudFormation takes 1 MB.
const TEXT_BYTES_MAX: usize = 4 << 20;
/// The most values, those behind aliases counted each time.
const NODES_MAX: usize = 100_000;
/// The deepest nesting.
const DEPTH_MAX: usize = 64;
/// The key whose maps are merged into the one that has it.
const MERGE: &str = "<<";

/// Why a text is not understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line}: {why}")]
pub(crate) struct YamlError {
    line: usize,
    why: String,
}

/// The value of the one document in `text`.
///
/// # Errors
/// If the text is not YAML, or goes beyond a limit.
pub(super) fn parse(text: &str) -> Result<Value, YamlError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(YamlError { line: 1, why: format!("the file has more than {TEXT_BYTES_MAX} bytes") });
    }
    let mut builder = Builder::default();
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|error| YamlError { line: error.marker().line(), why: error.info().to_owned() })?;
        builder.take(event).map_err(|why| YamlError { line: span.start.line(), why })?;
    }
    builder.root.ok_or_else(|| YamlError { line: 1, why: "the file is empty".to_owned() })
}

/// The value of a plain scalar.
pub(super) fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => match text.parse::<i64>() {
            Ok(number) if number.to_string() == text => number.into(),
            _ => text.into(),
        },
    }
}

/// Builds the value from the parser's events.
#[derive(Default)]
struct Builder {
    root: Option<Value>,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Value>,
    nodes: usize,
}

/// A list or map whose end has not come.
struct Open {
    collection: Collection,
    /// The name of its tag.
    tag: Option<String>,
    /// The number of its anchor; 0 for none.
    anchor: usize,
}

enum Collection {
    List(Vec<Value>),
    Map {
        entries: Map<String, Value>,
        /// The key whose value comes next.
        key: Option<String>,
        merged: Vec<Map<String, Value>>,
    },
}

impl Builder {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err("a second document begins; a file has one".to_owned())
            }
            Event::DocumentStart(_) => Ok(()),
            Event::Alias(anchor) => {
                let value = self.anchors.get(&anchor).cloned();
                let value = value.ok_or_else(|| "an alias stands within the value that it names".to_owned())?;
                let (nodes, depth) = extent(&value);
                self.count(nodes, depth)?;
                self.add(value)
            }
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, 0)?;
                if let Some(key) = self.expected_key() {
                    *key = Some(text.into_owned());
                    return Ok(());
                }
                let value = scalar(&text, style, tag.as_deref());
                self.remember(anchor, &value);
                self.add(value)
            }
            Event::SequenceStart(anchor, tag) => self.begin(Collection::List(Vec::new()), anchor, tag.as_deref()),
            Event::MappingStart(anchor, tag) => {
                let collection = Collection::Map { entries: Map::new(), key: None, merged: Vec::new() };
                self.begin(collection, anchor, tag.as_deref())
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
        }
    }

    /// Counts `nodes` more values, which are nested to `depth` below the open ones.
    fn count(&mut self, nodes: usize, depth: usize) -> Result<(), String> {
        self.nodes += nodes;
        if self.nodes > NODES_MAX {
            return Err(format!("the file has more than {NODES_MAX} values"));
        }
        if self.open.len() + depth > DEPTH_MAX {
            return Err(format!("values are nested deeper than {DEPTH_MAX} levels"));
        }
        Ok(())
    }

    /// Where the next scalar goes if it is the key of a map.
    fn expected_key(&mut self) -> Option<&mut Option<String>> {
        match &mut self.open.last_mut()?.collection {
            Collection::Map { key, .. } if key.is_none() => Some(key),
            Collection::Map { .. } | Collection::List(_) => None,
        }
    }

    fn begin(&mut self, collection: Collection, anchor: usize, tag: Option<&Tag>) -> Result<(), String> {
        if self.expected_key().is_some() {
            return Err("a key is a text, not a list or map".to_owned());
        }
        self.count(1, 1)?;
        self.open.push(Open { collection, tag: tag.and_then(own_name), anchor });
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(Open { collection, tag, anchor }) = self.open.pop() else { return Ok(()) };
        let value = match collection {
            Collection::List(items) => Value::Array(items),
            Collection::Map { mut entries, merged, .. } => {
                for (key, value) in merged.into_iter().flatten() {
                    entries.entry(key).or_insert(value);
                }
                Value::Object(entries)
            }
        };
        let value = match tag {
            Some(tag) => tagged(&tag, value),
            None => value,
        };
        self.remember(anchor, &value);
        self.add(value)
    }

    fn remember(&mut self, anchor: usize, value: &Value) {
        if anchor != 0 {
            self.anchors.insert(anchor, value.clone());
        }
    }

    fn add(&mut self, value: Value) -> Result<(), String> {
        match self.open.last_mut().map(|open| &mut open.collection) {
            None => self.root = Some(value),
            Some(Collection::List(items)) => items.push(value),
            Some(Collection::Map { entries, key, merged }) => {
                let key = key.take().ok_or_else(|| "a key is a text, not an alias".to_owned())?;
                match (key.as_str(), value) {
                    (MERGE, Value::Object(map)) => merged.push(map),
                    (MERGE, Value::Array(maps)) => {
                        merged.extend(maps.into_iter().filter_map(|map| match map {
                            Value::Object(map) => Some(map),
                            _ => None,
                        }));
                    }
                    (_, value) => {
                        if entries.contains_key(&key) {
                            return Err(format!("{key} stands twice in one map"));
                        }
                        entries.insert(key, value);
                    }
                }
            }
        }
        Ok(())
    }
}

/// The number of values in `value`, and how deep they are nested.
fn extent(value: &Value) -> (usize, usize) {
    let below = |children: &mut dyn Iterator<Item = &Value>| {
        let folded = children.map(extent).fold((0, 0), |(nodes, depth), (more, deep)| (nodes + more, depth.max(deep)));
        (folded.0 + 1, folded.1 + 1)
    };
    match value {
        Value::Array(items) => below(&mut items.iter()),
        Value::Object(entries) => below(&mut entries.values()),
        _ => (1, 0),
    }
}

/// The name of a tag that YAML itself does not define.
fn own_name(tag: &Tag) -> Option<String> {
    (tag.handle == "!").then(|| tag.suffix.clone())
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Value {
    match (tag, tag.and_then(own_name)) {
        (_, Some(name)) => tagged(&name, text.into()),
        (Some(tag), None) if !tag.is_yaml_core_schema() || tag.suffix == "str" => text.into(),
        _ if style == ScalarStyle::Plain => plain(text),
        _ => text.into(),
    }
}

/// The long form of CloudFormation's short tag `name`.
fn tagged(name: &str, value: Value) -> Value {
    let (key, value) = match (name, value) {
        ("Ref" | "Condition", value) => (name.to_owned(), value),
        ("GetAtt", Value::String(path)) => {
            let (resource, attribute) = path.split_once('.').unwrap_or((path.as_str(), ""));
            ("Fn::GetAtt".to_owned(), Value::from(vec![resource, attribute]))
        }
        (_, value) => (format!("Fn::{name}"), value),
    };
    Value::Object(Map::from_iter([(key, value)]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn short_tags_become_the_long_forms() {
        let text = "a: !Ref Bucket\nb: !GetAtt Function.Arn\nc: !Sub \"${A}-x\"\nd: !Join [\"-\", [a, !Ref B]]\n\
                    e: !If\n  - IsProd\n  - !Ref \"AWS::NoValue\"\n  - 3\nf: !Equals [!Condition C, true]\n\
                    g: !FindInMap {k: v}\n";
        assert_eq!(
            parse(text).unwrap(),
            json!({
                "a": { "Ref": "Bucket" },
                "b": { "Fn::GetAtt": ["Function", "Arn"] },
                "c": { "Fn::Sub": "${A}-x" },
                "d": { "Fn::Join": ["-", ["a", { "Ref": "B" }]] },
                "e": { "Fn::If": ["IsProd", { "Ref": "AWS::NoValue" }, 3] },
                "f": { "Fn::Equals": [{ "Condition": "C" }, true] },
                "g": { "Fn::FindInMap": { "k": "v" } },
            })
        );
    }

    #[test]
    fn scalars_that_would_not_be_printed_as_they_stand_stay_texts() {
        let text = "[1, -7, 0123, 1.10, 1e3, 2010-09-09, '3', \"true\", true, False, ~, null, yes, !!str 5, 12:30]";
        assert_eq!(
            parse(text).unwrap(),
            json!([
                1,
                -7,
                "0123",
                "1.10",
                "1e3",
                "2010-09-09",
                "3",
                "true",
                true,
                false,
                null,
                null,
                "yes",
                "5",
                "12:30"
            ])
        );
    }

    #[test]
    fn blocks_anchors_and_merges_are_read() {
        let text = "base: &base {memory: 128, timeout: 3}\none:\n  <<: *base\n  timeout: 9\ntwo: *base\n\
                    code: |\n  def f():\n    pass\nfolded: >-\n  a\n  b\n";
        assert_eq!(
            parse(text).unwrap(),
            json!({
                "base": { "memory": 128, "timeout": 3 },
                "one": { "memory": 128, "timeout": 9 },
                "two": { "memory": 128, "timeout": 3 },
                "code": "def f():\n  pass\n",
                "folded": "a b",
            })
        );
        assert_eq!(parse("{\"a\": [1, {\"b\": null}]}").unwrap(), json!({ "a": [1, { "b": null }] }));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_line() {
        assert_eq!(error("a: 1\nb: 2\na: 3\n"), "line 3: a stands twice in one map");
        assert!(error("a: [1\nb: 2\n").starts_with("line "));
        assert!(error("a: 1\n---\nb: 2\n").contains("second document"));
        assert_eq!(error(""), "line 1: the file is empty");
        assert!(error("? [a, b]\n: 1\n").contains("not a list or map"));
    }

    #[test]
    fn aliases_that_multiply_and_deep_nesting_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let below = format!("*a{}", level - 1);
            let items = [below.as_str(); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{items}]\n"));
        }
        assert!(error(&text).contains("more than 100000 values"));
        let deep = format!("{}{}", "[".repeat(65), "]".repeat(65));
        assert!(error(&deep).contains("nested deeper"));
        let mut chain = "a0: &a0 [x]\n".to_owned();
        for level in 1..70 {
            chain.push_str(&format!("a{level}: &a{level} [*a{}]\n", level - 1));
        }
        assert!(error(&chain).contains("nested deeper"));
    }
}
