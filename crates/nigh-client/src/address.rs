//! The address of a node's fast path.

use std::fmt;
use std::path::PathBuf;

use rustix::net::SocketAddrUnix;

/// The address of a node's fast path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// A name without a file, within this network namespace.
    Abstract(String),
    /// A socket file.
    File(PathBuf),
}

impl Address {
    /// Parses the form of `NIGH_FAST_PATH`: `@` before a name without a file.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix('@') {
            Some(name) => Self::Abstract(name.to_owned()),
            None => Self::File(text.into()),
        }
    }

    pub(crate) fn socket(&self) -> rustix::io::Result<SocketAddrUnix> {
        match self {
            Self::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes()),
            Self::File(path) => SocketAddrUnix::new(path),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Abstract(name) => write!(f, "@{name}"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in ["@nigh-fast", "/var/lib/nigh/fast.sock"] {
            assert_eq!(Address::parse(text).to_string(), text);
        }
        assert_eq!(Address::parse("@x"), Address::Abstract("x".to_owned()));
    }
}
