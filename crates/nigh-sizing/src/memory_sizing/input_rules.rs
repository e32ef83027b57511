//! Learns which arguments of a function name the objects that it reads, from the invocation's data calls. Pure.
//!
//! An object named in a known form (`named_objects`) is recognised by its place in the input: the places whose objects
//! are read are inputs. An argument that is a single word is an object's key if the invocation read an object with that
//! key. Its bucket is the word of another argument, or the bucket that was read from. Until something is learned, every
//! named object counts as an input. The rules are bounded and belong to one version of the code. A function may declare
//! its inputs by a variable of its environment; then the declaration counts and nothing is learned.

use std::collections::{BTreeMap, BTreeSet};

use nigh_learn::{FeatureRow, FeatureValue, kept_word};
use nigh_schedule::activation::DataCallRecord;
use nigh_schedule::inputs::named_objects::{NamedObject, input_paths};
use nigh_schedule::inputs::payload_walk::{ARGUMENT_PREFIX, PayloadWalk};
use nigh_terms::{BucketName, ObjectKey};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The variable by which a function declares its inputs, as words between blanks. `/input` is a place where an object
/// is named, `file@photos` an argument that is a key in that bucket, `file@.source` an argument that is a key in the
/// bucket that argument `source` names.
pub const INPUTS_VARIABLE: &str = "NIGH_INPUTS";
/// Places of inputs that are remembered.
const PATHS_MAX: usize = 32;
/// Arguments that are known to be keys.
const KEYS_MAX: usize = 8;
/// Objects of an invocation that are looked up at most.
const INPUTS_MAX: usize = 16;

/// A place that no input has: no member is called so.
const NOWHERE: &str = "-";

/// The source of a key's bucket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum BucketOf {
    /// In this argument.
    Argument(Box<str>),
    /// In the code: always this bucket.
    Code(BucketName),
}

/// An argument that is a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct KeyArgument {
    argument: Box<str>,
    bucket: BucketOf,
}

/// The variable has an invalid word.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{INPUTS_VARIABLE}: {word:?} is no place of an input; name up to {KEYS_MAX} as /member/member, argument@bucket or \
     argument@.argument"
)]
pub struct UnknownInputs {
    /// The word.
    word: String,
}

/// The rules for a function's arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRules {
    /// The places of objects in a known form that were read.
    read: BTreeSet<String>,
    keys: Vec<KeyArgument>,
}

impl InputRules {
    /// The declaration in this environment; none without the variable.
    ///
    /// # Errors
    /// If a word is invalid.
    pub fn declared(environment: &BTreeMap<String, String>) -> Result<Option<Self>, UnknownInputs> {
        let Some(text) = environment.get(INPUTS_VARIABLE) else { return Ok(None) };
        let argument = |name: &str| format!("{ARGUMENT_PREFIX}{name}").into_boxed_str();
        let mut rules = Self::default();
        for word in text.split_whitespace() {
            let wrong = || UnknownInputs { word: word.chars().take(80).collect() };
            if rules.read.len() + rules.keys.len() >= KEYS_MAX {
                return Err(wrong());
            }
            match word.split_once('@') {
                None if word.starts_with('/') => drop(rules.read.insert(word.trim_end_matches('/').to_owned())),
                Some((key, bucket)) if !key.is_empty() => {
                    let bucket = match bucket.strip_prefix('.') {
                        Some(name) if !name.is_empty() => BucketOf::Argument(argument(name)),
                        Some(_) => return Err(wrong()),
                        None => BucketOf::Code(BucketName::new(bucket).map_err(|_| wrong())?),
                    };
                    rules.keys.push(KeyArgument { argument: argument(key), bucket });
                }
                _ => return Err(wrong()),
            }
        }
        // A declaration with keys alone excludes named objects.
        if rules.read.is_empty() && !rules.keys.is_empty() {
            rules.read.insert(NOWHERE.to_owned());
        }
        Ok(Some(rules))
    }

    /// The objects that an invocation will read, as far as is known.
    pub(super) fn inputs(&self, walk: &PayloadWalk) -> Vec<(BucketName, ObjectKey)> {
        let is_input = |object: &&NamedObject| self.read.is_empty() || self.read.contains(object.path.as_str());
        let named = walk.objects.iter().filter(is_input).map(|object| (object.bucket.clone(), object.key.clone()));
        let by_key = self.keys.iter().filter_map(|rule| {
            let bucket = match &rule.bucket {
                BucketOf::Argument(argument) => BucketName::new(word(walk, argument)?).ok()?,
                BucketOf::Code(bucket) => bucket.clone(),
            };
            Some((bucket, ObjectKey::new(word(walk, &rule.argument)?).ok()?))
        });
        named.chain(by_key).take(INPUTS_MAX).collect()
    }

    /// Whether the argument names an object, and so is no feature of the work.
    pub(super) fn is_name(&self, argument: &str) -> bool {
        self.keys.iter().any(|rule| {
            *rule.argument == *argument || matches!(&rule.bucket, BucketOf::Argument(bucket) if **bucket == *argument)
        })
    }

    /// Learns from the calls of an invocation with `named` objects and `arguments`. True if something was learned.
    pub(super) fn learn(&mut self, named: &[NamedObject], arguments: &FeatureRow, calls: &[DataCallRecord]) -> bool {
        let mut learned = false;
        for path in input_paths(named, calls) {
            if self.read.len() < PATHS_MAX {
                learned |= self.read.insert(path);
            }
        }
        for call in calls.iter().filter(|call| call.is_read()) {
            let Some(key) = &call.key else { continue };
            let is_named = |object: &NamedObject| object.bucket.as_str() == call.bucket && object.key.as_str() == key;
            if self.keys.len() >= KEYS_MAX || named.iter().any(is_named) {
                continue;
            }
            let Some(argument) = argument_of(arguments, key).filter(|argument| !self.is_name(argument)) else {
                continue;
            };
            let bucket = match (argument_of(arguments, &call.bucket), BucketName::new(&call.bucket)) {
                (Some(argument), _) => BucketOf::Argument(argument.into()),
                (None, Ok(bucket)) => BucketOf::Code(bucket),
                (None, Err(_)) => continue,
            };
            self.keys.push(KeyArgument { argument: argument.into(), bucket });
            learned = true;
        }
        learned
    }

    /// The rules in words: places of objects, arguments that are keys.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let places = self
            .read
            .iter()
            .filter(|path| *path != NOWHERE)
            .map(|path| if path.is_empty() { "/".to_owned() } else { path.clone() });
        places.chain(self.keys.iter().map(|rule| rule.argument.to_string())).collect()
    }

    /// Its approximate memory.
    pub(super) fn bytes(&self) -> usize {
        let read: usize = self.read.iter().map(|path| size_of::<String>() + path.len()).sum();
        read + self.keys.iter().map(|rule| size_of::<KeyArgument>() + rule.argument.len()).sum::<usize>()
    }

    /// True if what was read from a store is within its bounds.
    pub(super) fn is_sound(&self) -> bool {
        self.read.len() <= PATHS_MAX && self.keys.len() <= KEYS_MAX
    }
}

/// The text of an argument that is a single word.
fn word<'w>(walk: &'w PayloadWalk, argument: &str) -> Option<&'w str> {
    if let Some((_, text)) = walk.long_words.iter().find(|(name, _)| **name == *argument) {
        return Some(text);
    }
    match walk.arguments.get(argument) {
        Some(FeatureValue::Word(word)) => Some(word),
        _ => None,
    }
}

/// The argument whose word is `text`.
fn argument_of<'a>(arguments: &'a FeatureRow, text: &str) -> Option<&'a str> {
    let kept = kept_word(text);
    let is = |value: &FeatureValue| matches!(value, FeatureValue::Word(word) if **word == *kept);
    arguments.iter().find(|(_, value)| is(value)).map(|(name, _)| name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(served: &str, bucket: &str, key: &str) -> DataCallRecord {
        DataCallRecord {
            served: served.to_owned(),
            bucket: bucket.to_owned(),
            key: Some(key.to_owned()),
            bytes: 1,
            began_us: 0,
            took_us: 1,
            under_way: None,
        }
    }

    fn inputs(rules: &InputRules, payload: &str) -> Vec<String> {
        let walk = PayloadWalk::of(payload.as_bytes());
        rules.inputs(&walk).into_iter().map(|(bucket, key)| format!("{bucket}/{key}")).collect()
    }

    fn learn(rules: &mut InputRules, payload: &str, calls: &[DataCallRecord]) -> bool {
        let walk = PayloadWalk::of(payload.as_bytes());
        rules.learn(&walk.objects, &walk.arguments, calls)
    }

    #[test]
    fn every_named_object_is_an_input_until_one_was_read() {
        let payload = r#"{"input":{"bucket":"photos","key":"in"},"output":{"bucket":"photos","key":"out"}}"#;
        let mut rules = InputRules::default();
        assert_eq!(inputs(&rules, payload), ["photos/in", "photos/out"]);
        assert!(learn(&mut rules, payload, &[call("miss", "photos", "in"), call("write", "photos", "out")]));
        assert_eq!(inputs(&rules, &payload.replace("\"in\"", "\"other\"")), ["photos/other"]);
        assert!(!learn(&mut rules, payload, &[call("hit", "photos", "in")]), "known already");
    }

    #[test]
    fn an_argument_whose_word_is_read_as_a_key_is_found() {
        let mut rules = InputRules::default();
        let payload = r#"{"source":"photos","file":"cat.png","mode":"fast"}"#;
        assert!(inputs(&rules, payload).is_empty());
        assert!(learn(&mut rules, payload, &[call("past", "photos", "cat.png")]));
        assert_eq!(inputs(&rules, r#"{"source":"films","file":"dog.mp4"}"#), ["films/dog.mp4"]);
        assert!(rules.is_name("arg_file") && rules.is_name("arg_source") && !rules.is_name("arg_mode"));
        let mut fixed = InputRules::default();
        let long = "k".repeat(300);
        let payload = format!(r#"{{"file":"{long}"}}"#);
        assert!(learn(&mut fixed, &payload, &[call("hit", "photos", &long)]));
        assert_eq!(inputs(&fixed, &payload), [format!("photos/{long}")]);
        let stored = serde_json::to_string(&fixed).unwrap();
        assert_eq!(serde_json::from_str::<InputRules>(&stored).unwrap(), fixed);
    }

    #[test]
    fn a_function_may_say_itself_where_its_inputs_stand() {
        let says = |text: &str| InputRules::declared(&[(INPUTS_VARIABLE.to_owned(), text.to_owned())].into());
        assert_eq!(InputRules::declared(&BTreeMap::new()), Ok(None));
        let rules = says("/input file@photos film@.source").unwrap().unwrap();
        let payload = r#"{"input":{"bucket":"a-bucket","key":"in"},"output":{"bucket":"a-bucket","key":"out"},
            "file":"f","film":"g","source":"films"}"#;
        assert_eq!(inputs(&rules, payload), ["a-bucket/in", "photos/f", "films/g"]);
        let keys_alone = says("file@photos").unwrap().unwrap();
        assert_eq!(inputs(&keys_alone, payload), ["photos/f"]);
        assert_eq!(keys_alone.words(), ["arg_file"]);
        let many: String = (0..=KEYS_MAX).map(|at| format!("/a{at} ")).collect();
        for wrong in ["input", "@photos", "file@.", "file@NoBucket", &many] {
            assert!(says(wrong).is_err_and(|error| error.to_string().contains(INPUTS_VARIABLE)), "{wrong}");
        }
    }

    #[test]
    fn what_is_learned_is_bounded() {
        let mut rules = InputRules::default();
        for at in 0..100 {
            let payload = format!(r#"{{"in{at}":{{"bucket":"photos","key":"a"}},"file{at}":"b{at}"}}"#);
            learn(&mut rules, &payload, &[call("hit", "photos", "a"), call("hit", "photos", &format!("b{at}"))]);
        }
        assert!(rules.is_sound() && rules.words().len() == PATHS_MAX + KEYS_MAX);
    }
}
