//! One walk through an invocation's input: the objects that it names, and its other arguments as features. Pure.
//!
//! Every invocation waits for the walk, so it is one pass without a tree, and everything is bounded: the bytes of the
//! payload, values, depth, objects, arguments. Values that are too large or too deep, and text that is no JSON, are
//! left out. Which named objects are read, and which words are keys of objects, is not guessed here: `input_rules`
//! learns it from what invocations read.

use std::borrow::Cow;
use std::fmt;

use nigh_learn::{FeatureRow, WORD_BYTES_MAX};
use nigh_terms::{BucketName, ObjectKey};
use percent_encoding::percent_decode_str;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use smol_str::ToSmolStr as _;

use super::named_objects::NamedObject;

/// The most bytes of an input that is read: a longer one would delay the function too much.
const PAYLOAD_BYTES_MAX: usize = 64 * 1024;
/// The most values that are looked at; the walk ends there.
const VALUES_MAX: usize = 10_000;
/// Values below this depth are skipped.
const DEPTH_MAX: usize = 16;
/// The most named objects.
const OBJECTS_MAX: usize = 16;
/// The most arguments that become features: the rest of a row is for features of the input's data.
pub const ARGUMENTS_MAX: usize = 16;
/// The most members of a list that become arguments.
const LIST_MAX: usize = 8;
/// The most words, and the most bytes of each (S3's longest key), that may be keys and are too long for features.
const LONG_WORDS_MAX: usize = 4;
const KEY_BYTES_MAX: usize = 1024;
/// The bytes reserved for the path to a place; enough for most inputs.
const PLACE_BYTES: usize = 128;
/// The step of the feature for the input's size. Small inputs differ only by the names in them.
const SIZE_STEP: usize = 16 * 1024;

/// The prefix of features of arguments.
pub const ARGUMENT_PREFIX: &str = "arg_";
/// The feature for the payload's own size.
const SIZE_FEATURE: &str = "arg_payload_bytes";

/// The names of members that hold a bucket's name, and of those that hold a key.
const BUCKET_MEMBERS: [&str; 4] = ["bucket", "Bucket", "bucketName", "bucket_name"];
const KEY_MEMBERS: [&str; 4] = ["key", "Key", "objectKey", "object_key"];

/// What an input contains.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PayloadWalk {
    /// The objects that it names, in order.
    pub objects: Vec<NamedObject>,
    /// The input's numbers, booleans and words, as `arg_` and the members' names joined by dots; and the size of the
    /// payload.
    pub arguments: FeatureRow,
    /// Words that are too long for a feature and short enough for a key, by the name of the feature.
    pub long_words: Vec<(Box<str>, Box<str>)>,
}

impl PayloadWalk {
    /// Walks through `payload`.
    #[must_use]
    pub fn of(payload: &[u8]) -> Self {
        // Reserves memory for what most inputs contain, so that nothing is reallocated.
        let mut walker = Walker {
            path: String::with_capacity(PLACE_BYTES),
            name: String::with_capacity(PLACE_BYTES),
            walk: PayloadWalk { arguments: FeatureRow::with_capacity(ARGUMENTS_MAX), ..PayloadWalk::default() },
            seen: 0,
        };
        if payload.len() <= PAYLOAD_BYTES_MAX {
            walker.name.push_str(ARGUMENT_PREFIX);
            let mut reader = serde_json::Deserializer::from_slice(payload);
            let here = WalkPosition { walker: &mut walker, depth: 0, is_argument: true, is_half: false };
            // If the text ends early or is no JSON, what was found until then counts.
            let _ended_early = here.deserialize(&mut reader);
        }
        let mut walk = walker.walk;
        let steps = (payload.len() / SIZE_STEP * SIZE_STEP) as f64;
        let _always_a_number = walk.arguments.set_number(SIZE_FEATURE, steps);
        walk
    }
}

struct Walker {
    walk: PayloadWalk,
    /// The members on the path to this place: as the path of named objects, and as the name of features.
    path: String,
    name: String,
    seen: usize,
}

/// The kind of a value, for its parent.
enum WalkedValue<'de> {
    Other,
    Text(Cow<'de, str>),
    /// A JSON object with a text `name` and a text `key`.
    Members {
        name: Option<Cow<'de, str>>,
        key: Option<Cow<'de, str>>,
    },
    /// The part of an event notification that names an object.
    Notification,
}

impl Walker {
    fn object(&mut self, bucket: &str, key: &str) {
        if self.walk.objects.len() < OBJECTS_MAX
            && let (Ok(bucket), Ok(key)) = (BucketName::new(bucket), ObjectKey::new(key))
        {
            self.walk.objects.push(NamedObject { path: self.path.as_str().into(), bucket, key });
        }
    }

    fn has_room(&self) -> bool {
        self.walk.arguments.len() < ARGUMENTS_MAX
    }

    // A name that no feature can have, or NaN, makes no argument.
    fn number(&mut self, value: f64) {
        if self.has_room() {
            let _refused = self.walk.arguments.set_number(&self.name, value);
        }
    }

    fn truth(&mut self, value: bool) {
        if self.has_room() {
            let _refused = self.walk.arguments.set_bool(&self.name, value);
        }
    }

    fn word(&mut self, text: &str) {
        if !self.has_room() || self.walk.arguments.set_word(&self.name, text).is_err() {
            return;
        }
        let long = text.len() > WORD_BYTES_MAX && text.len() <= KEY_BYTES_MAX;
        if long && self.walk.long_words.len() < LONG_WORDS_MAX {
            self.walk.long_words.push((self.name.as_str().into(), text.into()));
        }
    }

    /// Removes the arguments at this place and below it.
    fn forget_below(&mut self) {
        let name = self.name.as_str();
        let is_below =
            |other: &str| other.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        // At the top this removes all.
        let all = name == ARGUMENT_PREFIX;
        self.walk.arguments.retain(|other| !all && !is_below(other));
        self.walk.long_words.retain(|(other, _)| !all && !is_below(other));
    }

    /// Enters a member. Returns what `leave` needs.
    fn enter(&mut self, path: &str, name: &str) -> (usize, usize) {
        let back = (self.path.len(), self.name.len());
        self.path.push('/');
        self.path.push_str(path);
        if self.name.len() > ARGUMENT_PREFIX.len() {
            self.name.push('.');
        }
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if name.bytes().all(legal) {
            self.name.push_str(name);
        } else {
            self.name.extend(name.chars().map(|c| if c.is_ascii() && legal(c as u8) { c } else { '_' }));
        }
        back
    }

    fn leave(&mut self, (path, name): (usize, usize)) {
        self.path.truncate(path);
        self.name.truncate(name);
    }
}

/// A place in the input.
struct WalkPosition<'w> {
    walker: &'w mut Walker,
    depth: usize,
    /// True if the value here may be an argument.
    is_argument: bool,
    /// True if a text here may be half of an object's name: the parent, which sees both halves, decides whether it is
    /// an argument.
    is_half: bool,
}

impl<'de> DeserializeSeed<'de> for WalkPosition<'_> {
    type Value = WalkedValue<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<WalkedValue<'de>, D::Error> {
        self.walker.seen += 1;
        if self.walker.seen > VALUES_MAX {
            return Err(D::Error::custom("enough was seen"));
        }
        if self.depth > DEPTH_MAX {
            return IgnoredAny::deserialize(deserializer).map(|_| WalkedValue::Other);
        }
        deserializer.deserialize_any(self)
    }
}

/// A member's name, borrowed if the text has no escapes.
#[derive(Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

impl WalkPosition<'_> {
    fn text<'de>(self, text: Cow<'de, str>) -> WalkedValue<'de> {
        match text.strip_prefix("s3://").and_then(|rest| rest.split_once('/')) {
            Some((bucket, key)) => self.walker.object(bucket, key),
            None if self.is_argument && !self.is_half => self.walker.word(&text),
            None => {}
        }
        WalkedValue::Text(text)
    }
}

impl<'de> Visitor<'de> for WalkPosition<'_> {
    type Value = WalkedValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<WalkedValue<'de>, E> {
        Ok(WalkedValue::Other)
    }

    fn visit_bool<E>(self, value: bool) -> Result<WalkedValue<'de>, E> {
        if self.is_argument {
            self.walker.truth(value);
        }
        Ok(WalkedValue::Other)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<WalkedValue<'de>, E> {
        self.visit_f64(value as f64)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<WalkedValue<'de>, E> {
        self.visit_f64(value as f64)
    }

    fn visit_f64<E>(self, value: f64) -> Result<WalkedValue<'de>, E> {
        if self.is_argument {
            self.walker.number(value);
        }
        Ok(WalkedValue::Other)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<WalkedValue<'de>, E> {
        Ok(self.text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<WalkedValue<'de>, E> {
        Ok(self.text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut members: A) -> Result<WalkedValue<'de>, A::Error> {
        let Self { walker, depth, is_argument, .. } = self;
        let mut at = 0;
        loop {
            let back = walker.enter("*", &at.to_smolstr());
            let is_argument = is_argument && at < LIST_MAX;
            let here = WalkPosition { walker, depth: depth + 1, is_argument, is_half: false };
            let member = members.next_element_seed(here);
            walker.leave(back);
            if member?.is_none() {
                break;
            }
            at += 1;
        }
        Ok(WalkedValue::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<WalkedValue<'de>, A::Error> {
        let Self { walker, depth, is_argument, .. } = self;
        // Each with the member's name, which is the first of the names for a bucket or a key.
        let mut bucket: Option<(Cow<'de, str>, Cow<'de, str>)> = None;
        let mut key: Option<(Cow<'de, str>, Cow<'de, str>)> = None;
        let (mut name, mut of_bucket, mut of_object, mut is_record) = (None, None, None, false);
        while let Some(MemberName(member)) = members.next_key()? {
            let back = walker.enter(&member, &member);
            let is_half = BUCKET_MEMBERS.contains(&&*member) || KEY_MEMBERS.contains(&&*member);
            let seen = members.next_value_seed(WalkPosition { walker, depth: depth + 1, is_argument, is_half });
            walker.leave(back);
            match seen? {
                WalkedValue::Text(text) if BUCKET_MEMBERS.contains(&&*member) => {
                    bucket = bucket.or(Some((member, text)))
                }
                WalkedValue::Text(text) if KEY_MEMBERS.contains(&&*member) => key = key.or(Some((member, text))),
                WalkedValue::Text(text) if member == "name" => name = Some(text),
                WalkedValue::Members { name: Some(name), .. } if member == "bucket" => of_bucket = Some(name),
                WalkedValue::Members { key: Some(key), .. } if member == "object" => of_object = Some(key),
                WalkedValue::Notification => is_record |= member == "s3",
                WalkedValue::Other | WalkedValue::Text(_) | WalkedValue::Members { .. } => {}
            }
        }
        if let (Some((_, bucket)), Some((_, key))) = (&bucket, &key) {
            walker.object(bucket, key);
        } else if let (Some(bucket), Some(key)) = (&of_bucket, &of_object) {
            // A notification's key is encoded as in a form.
            let key = key.replace('+', " ");
            if let Ok(key) = percent_decode_str(&key).decode_utf8() {
                walker.object(bucket, &key);
            }
            walker.forget_below();
            return Ok(WalkedValue::Notification);
        } else if is_argument {
            for (member, text) in bucket.iter().chain(&key) {
                let back = walker.enter(member, member);
                walker.word(text);
                walker.leave(back);
            }
        }
        if is_record {
            // The rest of S3's record is no argument: dates, addresses, identifiers.
            walker.forget_below();
        }
        Ok(WalkedValue::Members { name, key: key.map(|(_, key)| key) })
    }
}

#[cfg(test)]
mod tests;
