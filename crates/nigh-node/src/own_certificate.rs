//! `nigh up --tls`: an authority of this machine's own, and a certificate of it for the addresses of this node, both in the
//! folder `tls` of the state folder. They are made once; the certificate is made anew before it ends, or when the node has
//! another address.

use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nigh_rpc::certificates::{Authority, CertificateError, CertificateFacts, describe};
use nigh_rpc::{CertificateFiles, Identity, Role};

use crate::config::Settings;
use crate::state_folder::StatePaths;

/// The authority's cluster and the process' name, which no client looks at.
const CLUSTER: &str = "local";
const NAME: &str = "doors";
const AUTHORITY_DAYS: u32 = 3650;
/// Some clients refuse longer ones.
const DAYS: u32 = 397;
/// A certificate that ends sooner is made anew.
const LEFT_DAYS_MIN: i64 = 60;
const DAY_SECONDS: i64 = 24 * 3600;

/// The files for `settings`, made if they are missing or no longer do; `now` in seconds since 1970.
///
/// # Errors
/// If the folder cannot be written.
pub fn ensure(settings: &Settings, now: i64) -> Result<CertificateFiles, CertificateError> {
    let folder = StatePaths::new(&settings.state).tls();
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|reason| CertificateError::File { path: folder.clone(), reason })?;
    let authority = match Authority::open(&folder) {
        Err(CertificateError::NoAuthority(_)) => Authority::create(&folder, CLUSTER, AUTHORITY_DAYS)?,
        opened => opened?,
    };
    let (files, names) = (authority.files(NAME), names(settings));
    let known = describe(&files.certificate).ok().and_then(|facts| facts.into_iter().next());
    if files.key.exists() && known.is_some_and(|known| does(&known, &names, now)) {
        return Ok(files);
    }
    authority.issue(&Identity::new(CLUSTER, Role::Node, NAME)?, &names, DAYS, true)
}

/// The names by which clients reach the doors.
fn names(settings: &Settings) -> Vec<String> {
    let listens = [Some(settings.s3.listen), Some(settings.lambda.listen), settings.outside.listen];
    let addresses = listens.into_iter().flatten().map(|listen| listen.ip());
    let addresses = addresses.filter(|ip| !ip.is_unspecified() && !ip.is_loopback()).map(|ip| ip.to_string());
    // Functions' URLs are below the third.
    let mut names: Vec<String> =
        ["localhost", "127.0.0.1", "*.lambda-url.localhost", "::1"].into_iter().map(str::to_owned).collect();
    let letters = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    let host = &settings.node;
    let is_host = host.len() < 64 && host.starts_with(|c: char| c.is_ascii_alphanumeric()) && host.chars().all(letters);
    names.extend(is_host.then(|| host.clone()));
    for address in addresses {
        if !names.contains(&address) {
            names.push(address);
        }
    }
    names
}

/// True if a certificate has all `names` and lasts.
fn does(known: &CertificateFacts, names: &[String], now: i64) -> bool {
    let of_host = |name: &String| known.hosts.contains(name);
    let of_address = |name: &String| name.parse::<IpAddr>().is_ok_and(|address| known.addresses.contains(&address));
    let left = known.until.unix_timestamp() - now;
    left >= LEFT_DAYS_MIN * DAY_SECONDS && names.iter().all(|name| of_host(name) || of_address(name))
}

/// The authority's certificate, which clients trust.
#[must_use]
pub fn authority(state: &Path) -> PathBuf {
    StatePaths::new(state).tls().join("authority.crt")
}

#[cfg(test)]
mod tests {
    use nigh_terms::{ByteSize, Clock as _, SystemClock};

    use super::*;
    use crate::machine::Machine;

    #[test]
    fn an_own_certificate_is_made_once_and_anew_before_it_ends_or_for_another_address() {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine { hostname: "laptop".to_owned(), memory: ByteSize::gib(8), cpus: 2 };
        let mut settings = Settings::defaults(&folder.path().join("state"), &machine);
        let now = SystemClock::new().wall().date().unix_timestamp();
        let facts = |files: &CertificateFiles| describe(&files.certificate).unwrap().remove(0);
        let first = ensure(&settings, now).unwrap();
        assert_eq!(first.authority, authority(&settings.state));
        assert_eq!(facts(&first).hosts, ["localhost", "*.lambda-url.localhost", "laptop"]);
        let of_first = facts(&first).serial;
        assert_eq!(facts(&ensure(&settings, now).unwrap()).serial, of_first);
        let trusted = std::fs::read(&first.authority).unwrap();
        let later = ensure(&settings, now + 340 * DAY_SECONDS).unwrap();
        assert_ne!(facts(&later).serial, of_first);
        settings.s3.listen = "10.0.0.7:9400".parse().unwrap();
        let other = ensure(&settings, now).unwrap();
        assert!(facts(&other).addresses.contains(&"10.0.0.7".parse().unwrap()));
        assert_eq!(std::fs::read(&other.authority).unwrap(), trusted, "the authority stays");
        std::fs::remove_file(&other.key).unwrap();
        assert!(ensure(&settings, now).unwrap().key.exists());
    }
}
