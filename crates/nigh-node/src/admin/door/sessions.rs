//! Who is signed in: sessions of browsers, and links that sign in one browser once. In memory: a restart signs out.
//!
//! A session of a key holds the key and asks for its role at each request, so that it ends when the key does. The table
//! has hashes, so that no lookup tells by its time how much of a token was right.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use nigh_terms::{AccessKeyId, AdminRole, SecretKey};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};

/// How long a link is valid.
pub(in crate::admin) const LINK_VALID: Duration = Duration::from_secs(60);
/// How long a session lasts.
pub(in crate::admin) const SESSION_VALID: Duration = Duration::from_secs(12 * 3600);
/// Links at a time; then the one that ends first is dropped.
const LINKS_MAX: usize = 100;
/// Sessions at a time; then the one that ends first is over.
const SESSIONS_MAX: usize = 1000;

/// For whom a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) enum Holder {
    /// Whoever had a link.
    Link(AdminRole),
    /// Whoever gave this key.
    Key(AccessKeyId, SecretKey),
}

/// The SHA-256 of a token.
type TokenHash = [u8; 32];

fn hash(token: &str) -> TokenHash {
    Sha256::digest(token).into()
}

/// 200 random bits.
fn random_token() -> String {
    SecretKey::random().reveal().to_owned()
}

/// Entries that end, at most so many.
#[derive(Debug)]
struct Ending<T> {
    entries: HashMap<TokenHash, (T, Instant)>,
    valid: Duration,
    max: usize,
}

impl<T: Clone> Ending<T> {
    fn new(valid: Duration, max: usize) -> Self {
        Self { entries: HashMap::new(), valid, max }
    }

    /// Returns the token of the new entry.
    fn add(&mut self, entry: T, now: Instant) -> String {
        self.entries.retain(|_, (_, ends)| *ends > now);
        if self.entries.len() >= self.max {
            let first = self.entries.iter().min_by_key(|(_, (_, ends))| *ends).map(|(token, _)| *token);
            if let Some(first) = first {
                self.entries.remove(&first);
            }
        }
        let token = random_token();
        self.entries.insert(hash(&token), (entry, now + self.valid));
        token
    }

    /// The entry, and how long it is still valid.
    fn get(&self, token: &str, now: Instant) -> Option<(T, Duration)> {
        let (entry, ends) = self.entries.get(&hash(token))?;
        let left = ends.saturating_duration_since(now);
        (!left.is_zero()).then(|| (entry.clone(), left))
    }

    fn take(&mut self, token: &str, now: Instant) -> Option<T> {
        let (entry, ends) = self.entries.remove(&hash(token))?;
        (ends > now).then_some(entry)
    }
}

/// The sessions and links of a node.
#[derive(Debug)]
pub(crate) struct SignIns {
    links: Mutex<Ending<AdminRole>>,
    sessions: Mutex<Ending<Holder>>,
}

impl Default for SignIns {
    fn default() -> Self {
        Self {
            links: Mutex::new(Ending::new(LINK_VALID, LINKS_MAX)),
            sessions: Mutex::new(Ending::new(SESSION_VALID, SESSIONS_MAX)),
        }
    }
}

impl SignIns {
    /// The token of a link that signs in with `role`.
    pub(in crate::admin) fn make_link(&self, role: AdminRole, now: Instant) -> String {
        self.links.lock().add(role, now)
    }

    /// The token of the session that a link opens; none if the link was used or is over.
    pub(in crate::admin) fn use_link(&self, link: &str, now: Instant) -> Option<String> {
        let role = self.links.lock().take(link, now)?;
        Some(self.open(Holder::Link(role), now))
    }

    /// The token of a new session.
    pub(in crate::admin) fn open(&self, holder: Holder, now: Instant) -> String {
        self.sessions.lock().add(holder, now)
    }

    /// Whose session it is, and how long it still lasts.
    pub(in crate::admin) fn find(&self, session: &str, now: Instant) -> Option<(Holder, Duration)> {
        self.sessions.lock().get(session, now)
    }

    /// Ends a session.
    pub(in crate::admin) fn close(&self, session: &str, now: Instant) {
        drop(self.sessions.lock().take(session, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_signs_in_once_within_a_minute() {
        let (all, now) = (SignIns::default(), Instant::now());
        let link = all.make_link(AdminRole::View, now);
        assert_eq!(all.use_link("another", now), None);
        let session = all.use_link(&link, now + Duration::from_secs(59)).unwrap();
        assert_eq!(all.find(&session, now).unwrap().0, Holder::Link(AdminRole::View));
        assert_eq!(all.use_link(&link, now), None, "used");
        let late = all.make_link(AdminRole::Operate, now);
        assert_eq!(all.use_link(&late, now + LINK_VALID), None, "over");
        assert_eq!(all.find(&link, now), None, "a link is no session");
    }

    #[test]
    fn a_session_ends_by_signing_out_and_after_its_time() {
        let (all, now) = (SignIns::default(), Instant::now());
        let holder = Holder::Key(AccessKeyId::random(), SecretKey::random());
        let [short, long] = [(); 2].map(|()| all.open(holder.clone(), now));
        assert_eq!(all.find(&short, now), Some((holder.clone(), SESSION_VALID)));
        all.close(&short, now);
        assert_eq!(all.find(&short, now), None);
        assert_eq!(all.find(&long, now + SESSION_VALID), None);
    }

    #[test]
    fn sessions_are_bounded_and_the_oldest_makes_room() {
        let (all, now) = (SignIns::default(), Instant::now());
        let first = all.open(Holder::Link(AdminRole::View), now);
        let later = now + Duration::from_secs(1);
        let next = all.open(Holder::Link(AdminRole::View), later);
        for _ in 0..SESSIONS_MAX - 1 {
            all.open(Holder::Link(AdminRole::View), later + Duration::from_secs(1));
        }
        assert_eq!(all.find(&first, later), None);
        assert!(all.find(&next, later).is_some());
        assert_eq!(all.sessions.lock().entries.len(), SESSIONS_MAX);
    }
}
