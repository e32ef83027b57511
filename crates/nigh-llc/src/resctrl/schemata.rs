//! The text of `schemata`: read from any kernel (padded or not), written as any kernel takes it. Pure.
//!
//! A resource this driver does not know keeps its text and is never written. Source:
//! Documentation/filesystems/resctrl.rst, "Resource schemata".

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use nigh_terms::{CacheDomain, WayMask};

/// A resource, by the name `schemata` gives it; in the order the kernel shows them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Slow memory bandwidth (AMD).
    Smba,
    /// Memory bandwidth.
    Mb,
    /// L2, data half under CDP.
    L2Data,
    /// L2, code half under CDP.
    L2Code,
    /// L2.
    L2,
    /// L3, data half under CDP.
    L3Data,
    /// L3, code half under CDP.
    L3Code,
    /// L3.
    L3,
    /// One this driver does not know.
    Other(String),
}

const NAMES: [(&str, Resource); 8] = [
    ("SMBA", Resource::Smba),
    ("MB", Resource::Mb),
    ("L2DATA", Resource::L2Data),
    ("L2CODE", Resource::L2Code),
    ("L2", Resource::L2),
    ("L3DATA", Resource::L3Data),
    ("L3CODE", Resource::L3Code),
    ("L3", Resource::L3),
];

impl Resource {
    /// The resource of a name; any name is one.
    pub fn parse(name: &str) -> Self {
        let known = NAMES.iter().find(|(known, _)| *known == name);
        known.map_or_else(|| Self::Other(name.to_owned()), |(_, resource)| resource.clone())
    }

    /// Whether its values are masks of ways.
    pub fn is_cache(&self) -> bool {
        !matches!(self, Self::Smba | Self::Mb | Self::Other(_))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = NAMES.iter().find(|(_, resource)| resource == self).map(|(name, _)| *name);
        match (known, self) {
            (Some(name), _) => f.write_str(name),
            (None, Self::Other(name)) => f.write_str(name),
            (None, _) => Ok(()),
        }
    }
}

/// One domain's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Ways of a cache.
    Mask(WayMask),
    /// Bandwidth in the mount's unit (percent, MiB/s or 1/8 GB/s).
    Bandwidth(u32),
    /// Of a resource this driver does not know, as it stands.
    Unknown(String),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mask(mask) => write!(f, "{mask:x}"),
            Self::Bandwidth(value) => value.fmt(f),
            Self::Unknown(text) => f.write_str(text),
        }
    }
}

/// Why a text is no schemata.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line:?} of a schemata: {reason}")]
pub struct SchemataError {
    /// The line.
    pub line: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// A group's values, or some of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schemata {
    values: BTreeMap<(Resource, CacheDomain), Value>,
}

impl Schemata {
    /// Reads what the kernel shows. A line `<name>:uninitialized` (a group being set up for pseudo-locking) has no
    /// values.
    pub fn parse(text: &str) -> Result<Self, SchemataError> {
        let mut values = BTreeMap::new();
        for line in text.lines().filter(|line| !line.trim().is_empty()) {
            let wrong = |reason| SchemataError { line: line.chars().take(200).collect(), reason };
            let (name, parts) = line.split_once(':').ok_or_else(|| wrong("no colon"))?;
            let resource = Resource::parse(name.trim());
            if parts.trim() == "uninitialized" {
                continue;
            }
            for part in parts.split(';').filter(|part| !part.trim().is_empty()) {
                let (domain, value) = part.split_once('=').ok_or_else(|| wrong("no equals sign"))?;
                let domain = domain.trim().parse().map(CacheDomain).map_err(|_not| wrong("a domain is no number"))?;
                let value = value.trim();
                let value = match &resource {
                    Resource::Other(_) => Value::Unknown(value.to_owned()),
                    Resource::Mb | Resource::Smba => {
                        Value::Bandwidth(value.parse().map_err(|_not| wrong("a bandwidth is no number"))?)
                    }
                    _ => {
                        let bits = u32::from_str_radix(value, 16).map_err(|_not| wrong("a mask is not hexadecimal"))?;
                        Value::Mask(WayMask::from_bits(bits))
                    }
                };
                values.insert((resource.clone(), domain), value);
            }
        }
        Ok(Self { values })
    }

    /// Sets one value.
    pub fn set(&mut self, resource: Resource, domain: CacheDomain, value: Value) {
        self.values.insert((resource, domain), value);
    }

    /// One value.
    pub fn get(&self, resource: &Resource, domain: CacheDomain) -> Option<&Value> {
        self.values.get(&(resource.clone(), domain))
    }

    /// A mask, if the resource is a cache that is there.
    pub fn mask(&self, resource: &Resource, domain: CacheDomain) -> Option<WayMask> {
        match self.get(resource, domain) {
            Some(Value::Mask(mask)) => Some(*mask),
            _ => None,
        }
    }

    /// Every value.
    pub fn iter(&self) -> impl Iterator<Item = (&Resource, CacheDomain, &Value)> {
        self.values.iter().map(|((resource, domain), value)| (resource, *domain, value))
    }

    /// The domains of a resource, ascending.
    pub fn domains(&self, resource: &Resource) -> impl Iterator<Item = CacheDomain> {
        let resource = resource.clone();
        self.iter().filter(move |(of, ..)| **of == resource).map(|(_, domain, _)| domain)
    }

    /// Whether it has no value.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The values of `of` that this one has too, as this one has them: what undoes a write of `of`.
    pub fn restricted_to(&self, of: &Self) -> Self {
        let values = self.values.iter().filter(|(key, _)| of.values.contains_key(*key));
        Self { values: values.map(|(key, value)| (key.clone(), value.clone())).collect() }
    }

    /// The values of `self` that differ from those of `live`.
    pub fn changes_from(&self, live: &Self) -> Self {
        let values = self.values.iter().filter(|(key, value)| live.values.get(*key) != Some(value));
        Self { values: values.map(|(key, value)| (key.clone(), value.clone())).collect() }
    }

    /// Whether every value here is the same there.
    pub fn holds_in(&self, live: &Self) -> bool {
        self.changes_from(live).is_empty()
    }

    /// The text for one write: known resources alone, final newline included; empty without any.
    pub fn to_command(&self) -> String {
        let mut text = String::new();
        let mut last = None;
        for (resource, domain, value) in self.iter().filter(|(resource, ..)| !matches!(resource, Resource::Other(_))) {
            let before = match last.replace(resource) {
                Some(same) if same == resource => ";".to_owned(),
                Some(_) => format!("\n{resource}:"),
                None => format!("{resource}:"),
            };
            _ = write!(text, "{before}{domain}={value}");
        }
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mask(bits: u32) -> Value {
        Value::Mask(WayMask::from_bits(bits))
    }

    #[test]
    fn padded_and_unpadded_texts_read_the_same() {
        let old = Schemata::parse("    MB:0=100;1= 90\n    L3:0=07ff;1=0003\n").unwrap();
        let new = Schemata::parse("MB:0=100;1=90\nL3:0=7ff;1=3\n").unwrap();
        assert_eq!(old, new);
        assert_eq!(old.to_command(), "MB:0=100;1=90\nL3:0=7ff;1=3\n");
        assert_eq!(old.mask(&Resource::L3, CacheDomain(1)), Some(WayMask::from_bits(3)));
    }

    #[test]
    fn unknown_resources_are_kept_and_never_written() {
        let read = Schemata::parse("NEW:0=a,b\nL3DATA:0=1\nL3CODE:0=2\n").unwrap();
        assert_eq!(read.get(&Resource::parse("NEW"), CacheDomain(0)), Some(&Value::Unknown("a,b".to_owned())));
        assert_eq!(read.to_command(), "L3DATA:0=1\nL3CODE:0=2\n");
        assert!(Schemata::parse("L3:uninitialized\n").unwrap().is_empty());
    }

    #[test]
    fn a_wrong_line_is_named_with_the_reason() {
        for (text, reason) in [
            ("L3", "no colon"),
            ("L3:0", "no equals sign"),
            ("L3:a=1", "a domain is no number"),
            ("L3:0=xyz", "a mask is not hexadecimal"),
            ("MB:0=f", "a bandwidth is no number"),
        ] {
            assert_eq!(Schemata::parse(text).unwrap_err().reason, reason);
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(L3|MB|L2CODE|[A-Z]{0,3})?[ :=;0-9a-fx\n]{0,40}.{0,10}") {
            _ = Schemata::parse(&text);
        }

        #[test]
        fn what_is_written_reads_back_the_same(masks in proptest::collection::btree_map(0u32..8, 1u32.., 0..5), mb in 0u32..3000) {
            let mut schemata = Schemata::default();
            for (domain, bits) in masks {
                schemata.set(Resource::L3Code, CacheDomain(domain), mask(bits));
                schemata.set(Resource::Mb, CacheDomain(domain), Value::Bandwidth(mb));
            }
            prop_assert_eq!(Schemata::parse(&schemata.to_command()).unwrap(), schemata);
        }
    }
}
