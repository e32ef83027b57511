//! Writes a template as YAML, in the form in which people write templates by hand. Pure.
//!
//! A text that another reader could take for something else (`yes`, `1.10`, `2010-09-09`, a line break) is quoted.

use serde_json::{Map, Value};

use super::yaml::plain;

/// The keys that come first, in this order; the others follow by name.
const FIRST: [&str; 9] = [
    "AWSTemplateFormatVersion",
    "Transform",
    "Description",
    "Metadata",
    "Globals",
    "Parameters",
    "Resources",
    "Type",
    "Name",
];
/// What YAML 1.1 takes for a boolean.
const WORDS: [&str; 6] = ["yes", "no", "on", "off", "y", "n"];

/// `value` as a YAML document.
pub(super) fn write(value: &Value) -> String {
    let mut text = String::new();
    block(&mut text, value, 0);
    text
}

/// Writes `value` on lines of its own, `depth` levels in.
fn block(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(entries) if inline(value).is_none() => {
            for (key, value) in ordered(entries) {
                indent(text, depth);
                text.push_str(&scalar(key));
                text.push(':');
                below(text, value, depth);
            }
        }
        Value::Array(items) if inline(value).is_none() => {
            for item in items {
                indent(text, depth);
                let Some(line) = inline(item) else {
                    // The item's first line begins behind the dash.
                    let mut lines = String::new();
                    block(&mut lines, item, depth + 1);
                    text.push_str("- ");
                    text.push_str(lines.trim_start_matches(' '));
                    continue;
                };
                text.push_str("- ");
                text.push_str(&line);
                text.push('\n');
            }
        }
        _ => {
            indent(text, depth);
            text.push_str(&inline(value).unwrap_or_default());
            text.push('\n');
        }
    }
}

/// Writes the value of a key.
fn below(text: &mut String, value: &Value, depth: usize) {
    match inline(value) {
        Some(line) => {
            text.push(' ');
            text.push_str(&line);
            text.push('\n');
        }
        None => {
            text.push('\n');
            block(text, value, depth + 1);
        }
    }
}

fn indent(text: &mut String, depth: usize) {
    text.push_str(&"  ".repeat(depth));
}

fn ordered(entries: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut all: Vec<_> = entries.iter().collect();
    all.sort_by_key(|entry| {
        let key: &String = entry.0;
        (FIRST.iter().position(|first| *first == key.as_str()).unwrap_or(FIRST.len()), key)
    });
    all
}

/// The value on one line, if it has one.
fn inline(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(scalar(text)),
        Value::Object(entries) if entries.is_empty() => Some("{}".to_owned()),
        Value::Array(items) if items.is_empty() => Some("[]".to_owned()),
        Value::Object(entries) if entries.len() == 1 => short_form(entries),
        Value::Object(_) | Value::Array(_) => None,
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
    }
}

/// `!Ref` and `!GetAtt`.
fn short_form(entries: &Map<String, Value>) -> Option<String> {
    let (key, value) = entries.iter().next()?;
    match (key.as_str(), value) {
        ("Ref", Value::String(name)) => Some(format!("!Ref {}", scalar(name))),
        ("Fn::GetAtt", Value::Array(path)) => match path.as_slice() {
            [Value::String(resource), Value::String(attribute)] => {
                Some(format!("!GetAtt {}", scalar(&format!("{resource}.{attribute}"))))
            }
            _ => None,
        },
        _ => None,
    }
}

fn scalar(text: &str) -> String {
    // A text in JSON's quotes is also YAML's.
    if is_plain(text) { text.to_owned() } else { Value::from(text).to_string() }
}

fn is_plain(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '/')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./:@-".contains(&byte))
        && !text.ends_with(':')
        && plain(text).is_string()
        && !WORDS.iter().any(|word| word.eq_ignore_ascii_case(text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::yaml::parse;
    use super::*;

    #[test]
    fn a_template_reads_as_if_written_by_hand() {
        let template = json!({
            "Resources": {
                "Hello": {
                    "Properties": {
                        "Events": { "Upload": { "Properties": { "Rules": [{ "Name": "suffix", "Value": ".png" }, "x"] } } },
                        "Layers": [{ "Ref": "Tools" }],
                        "MemorySize": 256,
                        "Arn": { "Fn::GetAtt": ["Other", "Arn"] },
                    },
                    "Type": "AWS::Serverless::Function",
                },
            },
            "AWSTemplateFormatVersion": "2010-09-09",
        });
        let expected = "AWSTemplateFormatVersion: \"2010-09-09\"\nResources:\n  Hello:\n    Type: AWS::Serverless::Function\n    \
                        Properties:\n      Arn: !GetAtt Other.Arn\n      Events:\n        Upload:\n          Properties:\n            \
                        Rules:\n              - Name: suffix\n                Value: \".png\"\n              - x\n      \
                        Layers:\n        - !Ref Tools\n      MemorySize: 256\n";
        assert_eq!(write(&template), expected);
    }

    #[test]
    fn what_is_written_is_read_back_as_it_was() {
        let texts = [
            "plain",
            "a b",
            "",
            "yes",
            "NO",
            "true",
            "null",
            "~",
            "12",
            "1.10",
            "0123",
            "2010-09-09",
            "12:30",
            "a: b",
            "a:",
            "#x",
            "- x",
            "a\nb",
            "\"quoted\"",
            "'",
            "ü",
            "*",
            "&a",
            "!Ref",
            "{}",
            "[]",
            "|",
            ">",
            "%",
            "@",
            "`",
            "a #b",
            "\t",
            "rate(5 minutes)",
            "cron(0 8 ? * MON-FRI *)",
            "arn:aws:s3:::pictures",
            "http://host/path",
            "/tmp/x",
        ];
        for text in texts {
            for value in [json!(text), json!({ "key": text, text: 1 }), json!([text, [text], { "a": [{ "b": text }] }])]
            {
                assert_eq!(parse(&write(&value)).unwrap(), value, "{}", write(&value));
            }
        }
        let nested = json!([[[1, 2], {}], [], { "a": {}, "b": [null, true, -3], "c": { "d": { "e": [[]] } } }]);
        assert_eq!(parse(&write(&nested)).unwrap(), nested, "{}", write(&nested));
    }
}
