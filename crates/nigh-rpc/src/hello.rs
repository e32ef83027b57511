//! The first frame of each side: its identity and incarnation. Pure.

use crate::identity::{Identity, Role};

const ROLES: [(Role, u8); 3] = [(Role::Node, 1), (Role::Controller, 2), (Role::Operator, 3)];

/// The identity and the incarnation of a side.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hello {
    /// The identity.
    pub identity: Identity,
    /// The incarnation; the user of this crate gives it a meaning.
    pub incarnation: u64,
}

impl Hello {
    /// The frame's head.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let code = ROLES.iter().find(|(role, _)| *role == self.identity.role()).map_or(0, |(_, code)| *code);
        let mut head = self.incarnation.to_le_bytes().to_vec();
        head.push(code);
        for name in [self.identity.cluster(), self.identity.name()] {
            // Names are at most 128 bytes long.
            head.push(name.len() as u8);
            head.extend_from_slice(name.as_bytes());
        }
        head
    }

    /// Parses a hello; none if `head` is no hello.
    #[must_use]
    pub fn parse(head: &[u8]) -> Option<Self> {
        let (incarnation, rest) = head.split_first_chunk::<8>()?;
        let (code, rest) = rest.split_first()?;
        let role = ROLES.iter().find(|(_, known)| known == code)?.0;
        let (cluster, rest) = name(rest)?;
        let (name, rest) = name(rest)?;
        let identity = Identity::new(cluster, role, name).ok()?;
        rest.is_empty().then_some(Self { identity, incarnation: u64::from_le_bytes(*incarnation) })
    }
}

fn name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    Some((str::from_utf8(name).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_as_it_was_written_and_no_shorter_or_longer() {
        for (role, _) in ROLES {
            let hello = Hello { identity: Identity::new("lab", role, "n1").unwrap(), incarnation: u64::MAX - 1 };
            let head = hello.encode();
            assert_eq!(Hello::parse(&head), Some(hello));
            assert!((0..head.len()).all(|end| Hello::parse(&head[..end]).is_none()));
            assert_eq!(Hello::parse(&[&head[..], b"x"].concat()), None);
        }
    }
}
