//! A real Swift, and how the stores on the network reach it: by S3 and by its own API, directly or through a proxy.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use nigh_lab::instrument::peer::PeerError;
use nigh_lab::instrument::peer::swift::Swift;
use nigh_stores::NetworkLimits;
use nigh_stores::remote::RemoteConfig;
use nigh_stores::swift::SwiftConfig;
use nigh_stores::swift::auth::{EndpointChoice, SwiftLogin};
use nigh_terms::{AccessKeyId, Namespace};

use crate::skipped::skip;

pub(crate) fn namespace(name: &str) -> Namespace {
    Namespace::new(name).unwrap()
}

fn prefixes() -> BTreeMap<Namespace, String> {
    [("tenant", "t1-"), ("other", "t2-")].map(|(name, prefix)| (namespace(name), prefix.to_owned())).into()
}

/// A Swift at `endpoint`: its own, or a proxy's before it.
pub(crate) fn by_s3(swift: &Swift, endpoint: &str, limits: NetworkLimits) -> RemoteConfig {
    RemoteConfig {
        endpoint: endpoint.to_owned(),
        region: swift.s3().region.clone(),
        access_key: AccessKeyId::new(&swift.s3().access_key),
        secret_key: swift.s3().secret_key.clone(),
        bucket_prefixes: prefixes(),
        limits,
    }
}

/// The same by Swift's own API.
pub(crate) fn natively(swift: &Swift, endpoint: &str, limits: NetworkLimits) -> SwiftConfig {
    SwiftConfig {
        auth_url: format!("{endpoint}/auth/v1.0"),
        login: SwiftLogin::TempAuth { user: swift.s3().access_key.clone(), key: swift.s3().secret_key.clone() },
        endpoint: EndpointChoice { region: None, interface: "public".to_owned() },
        bucket_prefixes: prefixes(),
        limits,
    }
}

pub(crate) fn start(test: &str, folder: &Path) -> Option<Swift> {
    let began = Instant::now();
    match Swift::start(folder) {
        Ok(swift) => {
            println!("Swift started in {} ms", began.elapsed().as_millis());
            Some(swift)
        }
        Err(missing @ PeerError::NotInstalled { .. }) => {
            skip(test, missing);
            None
        }
        Err(error) => panic!("{error}"),
    }
}
