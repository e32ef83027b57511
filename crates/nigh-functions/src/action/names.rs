//! Names of OpenWhisk's entities, and the functions that their actions are. Pure.
//!
//! OpenWhisk REST API, "Names and namespaces"; what a name may hold is `EntityName` of its controller.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use nigh_terms::{FunctionName, Hex, Namespace};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

/// The longest name.
pub const NAME_CHARS_MAX: usize = 256;
/// The name for the caller's own namespace.
pub const OWN: &str = "_";
/// The separator of package and action in a function's name.
const JOINT: &str = "__";
/// The prefix of functions whose actions have names that no function can have.
const HASHED: &str = "ow-";
/// How much of the hash is in such a name.
const HASH_BYTES: usize = 20;

/// Why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NameError {
    /// It has other characters, or none.
    #[error("The name of the entity contains illegal characters.")]
    Illegal,
    /// It is too long.
    #[error("The name of the entity is longer than allowed: {0} > {NAME_CHARS_MAX} characters.")]
    TooLong(usize),
    /// It has too few parts, or too many.
    #[error("The fully qualified name of the entity must contain at least the namespace and the name of the entity.")]
    NotQualified,
}

/// The name of an action, trigger, rule or package: letters, digits, `_`, and inside `@`, `.`, `-` and blanks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntityName(Arc<str>);

impl EntityName {
    /// Checks `text` and takes it as a name.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let word = |octet: u8| octet.is_ascii_alphanumeric() || octet == b'_';
        let inner = |octet: u8| word(octet) || b"@.-".contains(&octet);
        let octets = text.as_bytes();
        if octets.len() > NAME_CHARS_MAX {
            return Err(NameError::TooLong(octets.len()));
        }
        let good = match octets {
            [only] => word(*only),
            [first, middle @ .., last] => {
                word(*first) && middle.iter().all(|octet| inner(*octet) || *octet == b' ') && inner(*last)
            }
            [] => false,
        };
        if good { Ok(Self(text.into())) } else { Err(NameError::Illegal) }
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntityName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for EntityName {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::new(&text)
    }
}

impl From<EntityName> for String {
    fn from(name: EntityName) -> Self {
        name.0.as_ref().to_owned()
    }
}

/// Where an entity is in its namespace: `NAME`, or `PACKAGE/NAME` of an action in a package.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EntityPath {
    /// Its package; none in the default one.
    pub package: Option<EntityName>,
    /// Its name.
    pub name: EntityName,
}

impl EntityPath {
    /// An entity of the default package.
    #[must_use]
    pub const fn plain(name: EntityName) -> Self {
        Self { package: None, name }
    }

    /// The namespace that holds it, as OpenWhisk writes it: `NAMESPACE` or `NAMESPACE/PACKAGE`.
    #[must_use]
    pub fn folder(&self, namespace: &Namespace) -> String {
        match &self.package {
            Some(package) => format!("{namespace}/{package}"),
            None => namespace.to_string(),
        }
    }

    /// The name of the function of an action at this place: `NAME` or `PACKAGE__NAME` if a function can have that name and no other
    /// action can mean it, else a hash.
    #[must_use]
    pub fn function(&self) -> FunctionName {
        let plain = |name: &EntityName| !name.as_str().contains(JOINT) && !name.as_str().starts_with(HASHED);
        let text = match &self.package {
            None if plain(&self.name) => Some(self.name.to_string()),
            // An underscore beside the joint could belong to either side.
            Some(package)
                if plain(package)
                    && plain(&self.name)
                    && !package.as_str().ends_with('_')
                    && !self.name.as_str().starts_with('_') =>
            {
                Some(format!("{package}{JOINT}{}", self.name))
            }
            _ => None,
        };
        text.and_then(|text| FunctionName::new(&text).ok()).unwrap_or_else(|| self.hashed())
    }

    fn hashed(&self) -> FunctionName {
        let hash = Sha256::digest(self.to_string());
        // Letters, digits and hyphens, shorter than a name may be.
        FunctionName::new(&format!("{HASHED}{}", Hex(&hash[..HASH_BYTES])))
            .unwrap_or_else(|_| unreachable!("a hash is a function's name"))
    }
}

impl fmt::Display for EntityPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.package {
            Some(package) => write!(f, "{package}/{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

impl FromStr for EntityPath {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        match text.split_once('/') {
            None => Ok(Self::plain(EntityName::new(text)?)),
            Some((package, name)) => {
                Ok(Self { package: Some(EntityName::new(package)?), name: EntityName::new(name)? })
            }
        }
    }
}

impl TryFrom<String> for EntityPath {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        text.parse()
    }
}

impl From<EntityPath> for String {
    fn from(path: EntityPath) -> Self {
        path.to_string()
    }
}

/// An entity by namespace and place, as sequences, rules and bindings name it: `/NAMESPACE/[PACKAGE/]NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QualifiedName {
    /// The namespace, or `_`.
    pub namespace: String,
    /// Where it is there.
    pub path: EntityPath,
}

impl QualifiedName {
    /// Whether it is in `namespace`, for a caller of that namespace.
    #[must_use]
    pub fn is_in(&self, namespace: &Namespace) -> bool {
        self.namespace == OWN || self.namespace == namespace.as_str()
    }
}

impl FromStr for QualifiedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let (namespace, path) =
            text.strip_prefix('/').unwrap_or(text).split_once('/').ok_or(NameError::NotQualified)?;
        Ok(Self { namespace: namespace.to_owned(), path: path.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> EntityPath {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_openwhisks() {
        for good in ["a", "_", "a b", "a@b.c", "0-1", &"x".repeat(256), "a."] {
            assert!(EntityName::new(good).is_ok(), "{good}");
        }
        for bad in ["", " a", "a ", "-a", "a/b", "ä", "a\n", "@", &"x".repeat(257)] {
            assert!(EntityName::new(bad).is_err(), "{bad:?}");
        }
        assert!("a/b/c".parse::<EntityPath>().is_err());
        assert_eq!("/_/p/a".parse::<QualifiedName>().unwrap().path, path("p/a"));
        assert_eq!("guest/a".parse::<QualifiedName>().unwrap().namespace, "guest");
        assert_eq!("a".parse::<QualifiedName>(), Err(NameError::NotQualified));
    }

    #[test]
    fn every_action_is_a_function_of_its_own() {
        for (action, function) in [("hello", "hello"), ("p/a", "p__a"), ("p_q/a-b", "p_q__a-b")] {
            assert_eq!(path(action).function().as_str(), function);
        }
        let names = ["hello.py", "a b", "p__a", "ow-x", "p_/a", "p/_a", "p__q/a", "x.y/a", &"n".repeat(65)];
        let mut functions: Vec<FunctionName> = names.iter().map(|name| path(name).function()).collect();
        assert!(functions.iter().all(|name| name.as_str().starts_with(HASHED)), "{functions:?}");
        functions.sort();
        functions.dedup();
        assert_eq!(functions.len(), names.len());
    }
}
