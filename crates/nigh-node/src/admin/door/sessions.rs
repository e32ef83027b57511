//! Who is signed in: sessions of browsers, and links that sign in one browser once. In memory: a restart signs out.
//!
//! A session of a key, or of a link that a key made, holds the key and asks for its role at each request, so that it ends
//! when the key does. The table has hashes, so that no lookup tells by its time how much of a token was right.

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

/// Who made a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) enum LinkMaker {
    /// A user of this machine, by uid; none if the system did not tell it.
    LocalUser(Option<u32>),
    /// The owner of this key.
    Key(AccessKeyId, SecretKey),
}

/// A link, or whoever had one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) struct Link {
    /// What it permits at most.
    pub(in crate::admin) role: AdminRole,
    pub(in crate::admin) maker: LinkMaker,
}

/// For whom a session is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::admin) enum Holder {
    /// Whoever had this link.
    Link(Link),
    /// Whoever gave this key.
    Key(AccessKeyId, SecretKey),
}

impl Holder {
    /// What the holder may do now, if `role_of` says what a key may do. None if the key has ended, or has no role.
    pub(super) fn role(
        &self,
        role_of: impl FnOnce(&AccessKeyId, &SecretKey) -> Option<AdminRole>,
    ) -> Option<AdminRole> {
        match self {
            Self::Key(key, secret) => role_of(key, secret),
            Self::Link(Link { role, maker: LinkMaker::LocalUser(_) }) => Some(*role),
            Self::Link(Link { role, maker: LinkMaker::Key(key, secret) }) => Some(role_of(key, secret)?.min(*role)),
        }
    }

    /// Who makes a link that this holder asks for.
    pub(super) fn maker(&self) -> LinkMaker {
        match self {
            Self::Key(key, secret) => LinkMaker::Key(key.clone(), secret.clone()),
            Self::Link(Link { maker, .. }) => maker.clone(),
        }
    }
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
    links: Mutex<Ending<Link>>,
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
    /// The token of a new link.
    pub(in crate::admin) fn make_link(&self, link: Link, now: Instant) -> String {
        self.links.lock().add(link, now)
    }

    /// The token of the session that a link opens; none if the link was used or is over.
    pub(in crate::admin) fn use_link(&self, link: &str, now: Instant) -> Option<String> {
        let link = self.links.lock().take(link, now)?;
        Some(self.open(Holder::Link(link), now))
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

    fn link(role: AdminRole) -> Link {
        Link { role, maker: LinkMaker::LocalUser(Some(1000)) }
    }

    #[test]
    fn a_link_signs_in_once_within_a_minute() {
        let (all, now) = (SignIns::default(), Instant::now());
        let viewer = link(AdminRole::View);
        let link = all.make_link(viewer.clone(), now);
        assert_eq!(all.use_link("another", now), None);
        let session = all.use_link(&link, now + Duration::from_secs(59)).unwrap();
        assert_eq!(all.find(&session, now).unwrap().0, Holder::Link(viewer.clone()));
        assert_eq!(all.use_link(&link, now), None, "used");
        let late = all.make_link(viewer, now);
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
        let holder = Holder::Link(link(AdminRole::View));
        let first = all.open(holder.clone(), now);
        let later = now + Duration::from_secs(1);
        let next = all.open(holder.clone(), later);
        for _ in 0..SESSIONS_MAX - 1 {
            all.open(holder.clone(), later + Duration::from_secs(1));
        }
        assert_eq!(all.find(&first, later), None);
        assert!(all.find(&next, later).is_some());
        assert_eq!(all.sessions.lock().entries.len(), SESSIONS_MAX);
    }

    #[test]
    fn a_link_permits_what_its_maker_still_may_and_no_more_than_it_says() {
        let (key, secret) = (AccessKeyId::random(), SecretKey::random());
        let of_key = Holder::Link(Link { role: AdminRole::View, maker: LinkMaker::Key(key.clone(), secret.clone()) });
        let of_user = Holder::Link(link(AdminRole::Operate));
        assert_eq!(of_key.role(|_, _| Some(AdminRole::Operate)), Some(AdminRole::View));
        assert_eq!(of_key.role(|_, _| None), None, "the key has ended");
        assert_eq!(of_user.role(|_, _| None), Some(AdminRole::Operate));
        assert_eq!(Holder::Key(key.clone(), secret.clone()).maker(), LinkMaker::Key(key, secret));
        assert_eq!(of_user.maker(), LinkMaker::LocalUser(Some(1000)), "a link of its session has the same maker");
    }
}
