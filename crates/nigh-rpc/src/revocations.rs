//! Certificates that are refused though an authority of the cluster signed them: a list by identity and date, which
//! `nigh certificates revoke` writes beside the authority's certificate. Pure.
//!
//! All certificates of the identity that are valid from that date or from earlier are revoked, lost copies and renewed ones
//! too. A later certificate of the same name is accepted, so that the process can come back with a new key.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::identity::Identity;

/// The head of the file.
const HEAD: &str = "# Certificates of these processes, valid from this date or from earlier, are refused.\n\
                    # `nigh certificates revoke` writes it; copy it to each node, beside authority.crt.\n";

/// The revoked certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revocations(BTreeMap<Identity, OffsetDateTime>);

impl Revocations {
    /// Parses the list.
    ///
    /// # Errors
    /// The first line that is none: its number.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut revoked = Self::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parsed = line.split_once(char::is_whitespace).and_then(|(uri, date)| {
                Some((Identity::of_uri(uri)?, OffsetDateTime::parse(date.trim(), &Rfc3339).ok()?))
            });
            let (identity, date) = parsed.ok_or(at + 1)?;
            revoked.revoke(identity, date);
        }
        Ok(revoked)
    }

    /// The list as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = HEAD.to_owned();
        for (identity, date) in &self.0 {
            // Every date of the list was parsed or is of this century.
            let date = date.format(&Rfc3339).unwrap_or_default();
            let _ = writeln!(text, "{identity} {date}");
        }
        text
    }

    /// Revokes the certificates of `identity` that are valid from `date` or from earlier.
    pub fn revoke(&mut self, identity: Identity, date: OffsetDateTime) {
        let known = self.0.entry(identity).or_insert(date);
        *known = date.max(*known);
    }

    /// The date of `identity`'s last revocation.
    #[must_use]
    pub fn revoked_at(&self, identity: &Identity) -> Option<OffsetDateTime> {
        self.0.get(identity).copied()
    }

    /// True if a certificate of `identity` that is valid from `from` is revoked.
    #[must_use]
    pub fn revokes(&self, identity: &Identity, from: OffsetDateTime) -> bool {
        self.revoked_at(identity).is_some_and(|date| from <= date)
    }

    /// The identities of which certificates are revoked.
    pub fn identities(&self) -> impl Iterator<Item = &Identity> {
        self.0.keys()
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;
    use crate::identity::Role;

    fn node(name: &str) -> Identity {
        Identity::new("lab", Role::Node, name).unwrap()
    }

    #[test]
    fn a_revoked_certificate_is_refused_and_a_later_one_of_the_same_name_is_not() {
        let date = datetime!(2026-11-26 12:00:00 UTC);
        let mut revoked = Revocations::default();
        revoked.revoke(node("n2"), date);
        let second = Duration::seconds(1);
        assert!(revoked.revokes(&node("n2"), date) && revoked.revokes(&node("n2"), date - second));
        assert!(!revoked.revokes(&node("n2"), date + second) && !revoked.revokes(&node("n1"), date - second));
        assert!(!revoked.revokes(&Identity::new("lab", Role::Operator, "n2").unwrap(), date));
        // An older line takes nothing back.
        revoked.revoke(node("n2"), date - second);
        assert_eq!(revoked.revoked_at(&node("n2")), Some(date));
    }

    #[test]
    fn a_list_is_read_as_it_was_written_and_a_damaged_one_not_at_all() {
        let mut revoked = Revocations::default();
        revoked.revoke(node("n2"), datetime!(2026-11-26 12:00:00 UTC));
        revoked.revoke(node("n1"), datetime!(2026-11-26 12:00:01 UTC));
        assert_eq!(Revocations::parse(&revoked.text()), Ok(revoked.clone()));
        assert_eq!(Revocations::parse(""), Ok(Revocations::default()));
        for (damaged, line) in [
            ("nigh://lab/node/n2", 1),
            ("# none\n\nn2 2026-11-26T12:00:00Z", 3),
            ("nigh://lab/node/n2 yesterday", 1),
            ("nigh://lab/king/n2 2026-11-26T12:00:00Z", 1),
        ] {
            assert_eq!(Revocations::parse(damaged), Err(line), "{damaged}");
        }
    }
}
