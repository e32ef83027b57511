//! Intrinsic functions of the Amazon States Language (its appendix B): pure.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nigh_terms::hex;
use serde_json::{Map, Number, Value, json};
use sha2::{Digest, Sha256, Sha384, Sha512};
use thiserror::Error;

use super::chance::Chance;

/// The most items of an array that a function may make.
const ITEMS_MAX: usize = 1000;
/// The longest text that Base64 and hashes take (Amazon States Language: 10,000 characters).
const TEXT_MAX: usize = 10_000;

/// Why a function has no value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name}: {why}")]
pub(crate) struct IntrinsicError {
    name: &'static str,
    why: String,
}

macro_rules! intrinsics {
    ($($kind:ident = $name:literal, $arguments:expr;)*) => {
        /// The intrinsic functions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Intrinsic { $($kind,)* }

        impl Intrinsic {
            /// The function with this name.
            pub(crate) fn of(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$kind),)* _ => None }
            }

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The least and the most arguments of the function.
            pub(crate) const fn arguments(self) -> (usize, usize) {
                match self { $(Self::$kind => $arguments,)* }
            }
        }
    };
}

intrinsics! {
    Format = "States.Format", (1, 100);
    StringToJson = "States.StringToJson", (1, 1);
    JsonToString = "States.JsonToString", (1, 1);
    Array = "States.Array", (0, 100);
    ArrayPartition = "States.ArrayPartition", (2, 2);
    ArrayContains = "States.ArrayContains", (2, 2);
    ArrayRange = "States.ArrayRange", (3, 3);
    ArrayGetItem = "States.ArrayGetItem", (2, 2);
    ArrayLength = "States.ArrayLength", (1, 1);
    ArrayUnique = "States.ArrayUnique", (1, 1);
    Base64Encode = "States.Base64Encode", (1, 1);
    Base64Decode = "States.Base64Decode", (1, 1);
    Hash = "States.Hash", (2, 2);
    JsonMerge = "States.JsonMerge", (3, 3);
    MathRandom = "States.MathRandom", (2, 3);
    MathAdd = "States.MathAdd", (2, 2);
    StringSplit = "States.StringSplit", (2, 2);
    Uuid = "States.UUID", (0, 0);
}

impl Intrinsic {
    /// Calls the function. The caller has checked the number of `arguments`.
    pub(crate) fn call(self, arguments: &[Value], chance: &mut Chance) -> Result<Value, IntrinsicError> {
        let given = IntrinsicCall { name: self.name(), arguments };
        match self {
            Self::Format => given.format(),
            Self::StringToJson => {
                let text = given.text(0)?;
                serde_json::from_str(text).map_err(|error| given.error(format!("its argument is no JSON: {error}")))
            }
            Self::JsonToString => Ok(Value::String(given.any(0).to_string())),
            Self::Array => Ok(Value::Array(arguments.to_vec())),
            Self::ArrayPartition => {
                let (items, size) = (given.items(0)?, given.whole(1)?);
                let size = usize::try_from(size).ok().filter(|size| *size > 0);
                let size = size.ok_or_else(|| given.error("the size of a part is not above zero"))?;
                Ok(items.chunks(size).map(|part| Value::Array(part.to_vec())).collect())
            }
            Self::ArrayContains => Ok(Value::Bool(given.items(0)?.contains(given.any(1)))),
            Self::ArrayRange => given.range(),
            Self::ArrayGetItem => {
                let (items, index) = (given.items(0)?, given.whole(1)?);
                let item = usize::try_from(index).ok().and_then(|index| items.get(index));
                item.cloned().ok_or_else(|| given.error(format!("the array has no item {index}")))
            }
            Self::ArrayLength => Ok(json!(given.items(0)?.len())),
            Self::ArrayUnique => {
                let mut unique: Vec<Value> = Vec::new();
                for item in given.items(0)? {
                    if !unique.contains(item) {
                        unique.push(item.clone());
                    }
                }
                Ok(Value::Array(unique))
            }
            Self::Base64Encode => Ok(Value::String(STANDARD.encode(given.short_text(0)?))),
            Self::Base64Decode => {
                let bytes = STANDARD.decode(given.short_text(0)?).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                bytes.map(Value::String).ok_or_else(|| given.error("its argument is no base64 of a text"))
            }
            Self::Hash => given.hash(),
            Self::JsonMerge => given.merge(),
            Self::MathRandom => given.random(chance),
            Self::MathAdd => {
                let sum = given.whole(0)?.checked_add(given.whole(1)?);
                sum.map(Value::from).ok_or_else(|| given.error("the sum is too large"))
            }
            Self::StringSplit => {
                let (text, separators) = (given.text(0)?, given.text(1)?);
                // Each character is a separator, and empty parts between adjacent separators are left out.
                let parts = text.split(|letter| separators.contains(letter)).filter(|part| !part.is_empty());
                Ok(parts.map(Value::from).collect())
            }
            Self::Uuid => {
                let id = uuid::Builder::from_random_bytes(chance.draw()).into_uuid();
                Ok(Value::String(id.to_string()))
            }
        }
    }
}

struct IntrinsicCall<'a> {
    name: &'static str,
    arguments: &'a [Value],
}

impl<'a> IntrinsicCall<'a> {
    fn error(&self, why: impl Into<String>) -> IntrinsicError {
        IntrinsicError { name: self.name, why: why.into() }
    }

    fn any(&self, index: usize) -> &'a Value {
        self.arguments.get(index).unwrap_or(&Value::Null)
    }

    fn wrong(&self, index: usize, wanted: &str) -> IntrinsicError {
        self.error(format!("argument {} is no {wanted}", index + 1))
    }

    fn text(&self, index: usize) -> Result<&'a str, IntrinsicError> {
        self.any(index).as_str().ok_or_else(|| self.wrong(index, "string"))
    }

    fn short_text(&self, index: usize) -> Result<&'a str, IntrinsicError> {
        let text = self.text(index)?;
        let fits = text.chars().count() <= TEXT_MAX;
        if fits { Ok(text) } else { Err(self.error(format!("its argument is longer than {TEXT_MAX} characters"))) }
    }

    fn items(&self, index: usize) -> Result<&'a [Value], IntrinsicError> {
        self.any(index).as_array().map(Vec::as_slice).ok_or_else(|| self.wrong(index, "array"))
    }

    fn whole(&self, index: usize) -> Result<i64, IntrinsicError> {
        let number = self.any(index);
        let rounded = || number.as_f64().filter(|number| number.abs() < 9e15).map(|number| number.round() as i64);
        number.as_i64().or_else(rounded).ok_or_else(|| self.wrong(index, "number"))
    }

    fn format(&self) -> Result<Value, IntrinsicError> {
        let (mut letters, mut out, mut next) = (self.text(0)?.chars().peekable(), String::new(), 1);
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => out.extend(letters.next()),
                '{' if letters.peek() == Some(&'}') => {
                    letters.next();
                    let value = self.arguments.get(next);
                    match value.ok_or_else(|| self.error("there are more {} than arguments"))? {
                        Value::String(text) => out.push_str(text),
                        other => out.push_str(&other.to_string()),
                    }
                    next += 1;
                }
                letter => out.push(letter),
            }
        }
        if next == self.arguments.len() {
            Ok(Value::String(out))
        } else {
            Err(self.error("there are fewer {} than arguments"))
        }
    }

    fn range(&self) -> Result<Value, IntrinsicError> {
        let (first, last, step) = (self.whole(0)?, self.whole(1)?, self.whole(2)?);
        if step == 0 {
            return Err(self.error("the step is zero"));
        }
        let (mut items, mut at) = (Vec::new(), first);
        while if step > 0 { at <= last } else { at >= last } {
            if items.len() == ITEMS_MAX {
                return Err(self.error(format!("it would have more than {ITEMS_MAX} items")));
            }
            items.push(Value::from(at));
            let Some(next) = at.checked_add(step) else { break };
            at = next;
        }
        Ok(Value::Array(items))
    }

    fn hash(&self) -> Result<Value, IntrinsicError> {
        let text = match self.any(0) {
            Value::String(_) => self.short_text(0)?.to_owned(),
            other => other.to_string(),
        };
        let digest = match self.text(1)? {
            "SHA-1" => hex(&sha1::Sha1::digest(text)),
            "SHA-256" => hex(&Sha256::digest(text)),
            "SHA-384" => hex(&Sha384::digest(text)),
            "SHA-512" => hex(&Sha512::digest(text)),
            other => return Err(self.error(format!("{other:?} is not SHA-1, SHA-256, SHA-384 or SHA-512"))),
        };
        Ok(Value::String(digest))
    }

    fn merge(&self) -> Result<Value, IntrinsicError> {
        let object = |index| self.any(index).as_object().ok_or_else(|| self.wrong(index, "object"));
        let (first, second) = (object(0)?, object(1)?);
        if self.any(2) != &Value::Bool(false) {
            return Err(self.error("argument 3 must be false: objects within are not merged"));
        }
        let both = first.iter().chain(second).map(|(name, value)| (name.clone(), value.clone()));
        Ok(Value::Object(both.collect::<Map<_, _>>()))
    }

    fn random(&self, chance: &mut Chance) -> Result<Value, IntrinsicError> {
        let (first, end) = (self.whole(0)?, self.whole(1)?);
        let width = end.checked_sub(first).filter(|width| *width > 0);
        let width = width.ok_or_else(|| self.error("the end is not above the start"))?;
        let fraction = match self.arguments.get(2) {
            None => chance.fraction(),
            // The same seed gives the same number.
            Some(_) => {
                let mut seed = [0; 16];
                seed[8..].copy_from_slice(&self.whole(2)?.to_be_bytes());
                Chance::new(seed).fraction()
            }
        };
        Ok(Value::Number(Number::from(first + (fraction * width as f64) as i64)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: Value) -> Result<Value, IntrinsicError> {
        let Value::Array(arguments) = arguments else { panic!("arguments are an array") };
        Intrinsic::of(name).unwrap().call(&arguments, &mut Chance::new([7; 16]))
    }

    #[test]
    fn the_functions_give_what_the_language_says() {
        for (name, arguments, expected) in [
            ("States.Format", json!(["{} is {}, \\{\\}", "a", 1]), json!("a is 1, {}")),
            ("States.StringToJson", json!(["{\"a\":1}"]), json!({"a": 1})),
            ("States.JsonToString", json!([{"a": 1}]), json!("{\"a\":1}")),
            ("States.Array", json!([1, "b"]), json!([1, "b"])),
            ("States.ArrayPartition", json!([[1, 2, 3, 4, 5], 2]), json!([[1, 2], [3, 4], [5]])),
            ("States.ArrayContains", json!([[1, 2], 2]), json!(true)),
            ("States.ArrayRange", json!([1, 9, 2]), json!([1, 3, 5, 7, 9])),
            ("States.ArrayRange", json!([3, 1, -1]), json!([3, 2, 1])),
            ("States.ArrayGetItem", json!([[1, 2], 1]), json!(2)),
            ("States.ArrayLength", json!([[1, 2]]), json!(2)),
            ("States.ArrayUnique", json!([[1, 2, 1]]), json!([1, 2])),
            ("States.Base64Encode", json!(["Data"]), json!("RGF0YQ==")),
            ("States.Base64Decode", json!(["RGF0YQ=="]), json!("Data")),
            ("States.Hash", json!(["abc", "SHA-1"]), json!("a9993e364706816aba3e25717850c26c9cd0d89d")),
            ("States.JsonMerge", json!([{"a": 1, "b": 1}, {"b": 2}, false]), json!({"a": 1, "b": 2})),
            ("States.MathAdd", json!([111, -2]), json!(109)),
            ("States.StringSplit", json!(["1,2,,3", ","]), json!(["1", "2", "3"])),
        ] {
            assert_eq!(call(name, arguments), Ok(expected), "{name}");
        }
    }

    #[test]
    fn what_they_cannot_do_is_said_and_chance_comes_again() {
        for (name, arguments) in [
            ("States.Format", json!(["{}"])),
            ("States.Format", json!(["", 1])),
            ("States.ArrayPartition", json!([[1], 0])),
            ("States.ArrayRange", json!([0, 100_000, 1])),
            ("States.ArrayGetItem", json!([[1], 1])),
            ("States.Hash", json!(["a", "MD5"])),
            ("States.JsonMerge", json!([{}, {}, true])),
            ("States.MathRandom", json!([2, 1])),
            ("States.MathAdd", json!(["1", 2])),
        ] {
            assert!(call(name, arguments).is_err(), "{name}");
        }
        assert_eq!(call("States.UUID", json!([])), call("States.UUID", json!([])));
        let drawn = call("States.MathRandom", json!([3, 6])).unwrap().as_i64().unwrap();
        assert!((3..6).contains(&drawn));
        assert_eq!(call("States.MathRandom", json!([0, 999, 5])), call("States.MathRandom", json!([0, 999, 5])));
    }
}
