//! Whether two namespaces could reach the same buckets through stores of their own. Pure.
//!
//! Two places meet if one folder is in the other, or if both are the same account of the same service and one prefix
//! begins with the other. Accounts that cannot be distinguished count as the same: all keys of Google, all application
//! credentials of a Keystone. This check does not notice two keys of one S3 account, or two addresses of one Swift.

use std::path::{Path, PathBuf};

use super::{StoreKind, StoreSettings, SwiftAuth};

/// The place of a namespace's buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Folder(PathBuf),
    Account { service: String, account: Option<String>, prefix: String },
}

impl Place {
    pub(super) fn of(store: &StoreSettings) -> Self {
        let key = store.access_key.as_deref();
        // A TempAuth user is `account:user`, even through s3api; the account has the buckets.
        let account_of_key = || key.map(|key| key.split(':').next().unwrap_or(key).to_owned());
        let account = match (store.kind, store.auth) {
            (StoreKind::Directory, _) => return Self::Folder(plain(&store.path)),
            (StoreKind::Swift, SwiftAuth::Password) => {
                store.project.as_ref().map(|project| format!("{}/{project}", store.project_domain))
            }
            (StoreKind::Swift, SwiftAuth::ApplicationCredential) | (StoreKind::Gcs, _) => None,
            (StoreKind::Swift | StoreKind::S3 | StoreKind::Azure, _) => account_of_key(),
        };
        let service = store.endpoint.as_deref().map_or_else(|| store.kind.as_str().to_owned(), authority);
        Self::Account { service, account, prefix: store.bucket_prefix.clone() }
    }

    /// True if a bucket could be in both.
    pub(super) fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Folder(one), Self::Folder(other)) => one.starts_with(other) || other.starts_with(one),
            (
                Self::Account { service, account, prefix },
                Self::Account { service: other_service, account: other_account, prefix: other_prefix },
            ) => {
                let same = match (account, other_account) {
                    (Some(one), Some(other)) => one == other,
                    _ => true,
                };
                let meet = prefix.starts_with(other_prefix.as_str()) || other_prefix.starts_with(prefix.as_str());
                service == other_service && same && meet
            }
            _ => false,
        }
    }
}

/// Host and port of a URL, with the scheme's default port if it names none.
fn authority(url: &str) -> String {
    let url = url.trim().to_ascii_lowercase();
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", &url));
    let host = rest.split(['/', '?']).next().unwrap_or(rest);
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    match (has_port, scheme) {
        (true, _) => host.to_owned(),
        (false, "https") => format!("{host}:443"),
        (false, _) => format!("{host}:80"),
    }
}

/// The path without links and `..`, as far as it exists.
fn plain(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let there = absolute.ancestors().find_map(|ancestor| Some((ancestor, ancestor.canonicalize().ok()?)));
    let Some((ancestor, canonical)) = there else { return absolute };
    absolute.strip_prefix(ancestor).map_or_else(|_| absolute.clone(), |rest| canonical.join(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(kind: StoreKind, endpoint: &str, key: &str, prefix: &str) -> StoreSettings {
        StoreSettings {
            kind,
            endpoint: Some(endpoint.to_owned()),
            access_key: Some(key.to_owned()),
            bucket_prefix: prefix.to_owned(),
            ..StoreSettings::directory(Path::new("/x"))
        }
    }

    fn meet(one: &StoreSettings, other: &StoreSettings) -> bool {
        let meet = Place::of(one).meets(&Place::of(other));
        assert_eq!(meet, Place::of(other).meets(&Place::of(one)));
        meet
    }

    #[test]
    fn one_account_with_prefixes_that_begin_alike_meets_itself() {
        use StoreKind::{Azure, Gcs, S3, Swift};
        let one = account(S3, "https://h", "a", "x");
        assert!(meet(&one, &account(S3, "https://H:443/", "a", "xy")));
        assert!(!meet(&one, &account(S3, "https://h", "a", "y")));
        assert!(!meet(&one, &account(S3, "https://h:8443", "a", "x")));
        assert!(!meet(&one, &account(S3, "https://h", "b", "x")));
        // Swift's two APIs reach one account.
        assert!(meet(&account(S3, "http://s", "t:u", ""), &account(Swift, "http://s/auth/v1.0", "t:v", "p")));
        assert!(!meet(&account(Swift, "http://s/auth", "t:u", ""), &account(Swift, "http://s/auth", "r:u", "")));
        assert!(meet(&account(Gcs, "http://g", "a", ""), &account(Gcs, "http://g", "b", "p")));
        assert!(!meet(&account(Azure, "http://z", "a", ""), &account(Azure, "http://z", "b", "")));
    }

    #[test]
    fn with_keystone_the_project_is_the_account() {
        let of = |auth, project: &str| StoreSettings {
            auth,
            project: Some(project.to_owned()),
            ..account(StoreKind::Swift, "http://k:5000/v3", "user", "")
        };
        assert!(meet(&of(SwiftAuth::Password, "p"), &of(SwiftAuth::Password, "p")));
        assert!(!meet(&of(SwiftAuth::Password, "p"), &of(SwiftAuth::Password, "q")));
        assert!(meet(&of(SwiftAuth::Password, "p"), &of(SwiftAuth::ApplicationCredential, "q")));
    }

    #[test]
    fn folders_meet_if_one_lies_in_the_other_by_whatever_path() {
        let folder = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
        let at = |path: &str| StoreSettings::directory(&folder.path().join(path));
        assert!(meet(&at("a"), &at("a/b")) && meet(&at("a"), &at("link/a")) && meet(&at("a"), &at("a")));
        assert!(!meet(&at("a"), &at("ab")));
        assert!(!meet(&at("a"), &account(StoreKind::S3, "http://h", "k", "")));
    }
}
