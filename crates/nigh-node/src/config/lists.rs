//! Settings that are lists: a list in the file, or one text with a separator, for example in a variable.

use std::fmt::Display;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use nigh_terms::Namespace;
use serde::{Deserialize, Deserializer, Serialize};

/// A list whose items are separated by `SEPARATOR` in a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct ListSetting<T, const SEPARATOR: char>(pub Vec<T>);

/// Folders, separated by `:`.
pub(super) type Folders = ListSetting<PathBuf, ':'>;
/// Python modules, separated by `,`.
pub(super) type Modules = ListSetting<String, ','>;
/// Namespaces, separated by `,`.
pub(super) type Namespaces = ListSetting<Namespace, ','>;
/// Addresses of name servers, separated by `,`.
pub(super) type Resolvers = ListSetting<IpAddr, ','>;
/// NATS servers, separated by `,`.
pub(super) type Servers = ListSetting<String, ','>;

impl<T, const SEPARATOR: char> Default for ListSetting<T, SEPARATOR> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: FromStr<Err: Display>, const SEPARATOR: char> Deserialize<'de> for ListSetting<T, SEPARATOR> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let parse = |text: &String| text.parse().map_err(|error| format!("{text:?}: {error}"));
        let items: Result<_, _> = listed(deserializer, SEPARATOR)?.iter().map(parse).collect();
        items.map(Self).map_err(serde::de::Error::custom)
    }
}

/// The items as text.
pub(super) fn listed<'de, D: Deserializer<'de>>(deserializer: D, separator: char) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        List(Vec<String>),
        Text(String),
    }
    Ok(match Form::deserialize(deserializer)? {
        Form::List(list) => list,
        Form::Text(text) => {
            text.split(separator).map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
        }
    })
}
