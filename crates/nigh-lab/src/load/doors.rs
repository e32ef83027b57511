//! The doors that get the load, and their signers. `nigh load` finds the node and sets the environment variables of the AWS
//! SDKs.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use nigh_node::state_folder::StatePaths;

use crate::LabError;
use crate::instrument::s3_door::S3Door;
use crate::instrument::sign::Signer;

/// The platform that is loaded.
#[derive(Clone, Debug)]
pub(crate) struct Doors {
    /// Where the Lambda door listens.
    pub(crate) lambda: SocketAddr,
    pub(crate) lambda_signer: Signer,
    pub(crate) s3: S3Door,
    /// The node's admin socket, where it runs on this machine.
    pub(crate) admin: Option<PathBuf>,
}

impl Doors {
    /// The doors that the environment names, with `s3` as the S3 door.
    pub(crate) fn of_environment(s3: Option<&str>) -> Result<Self, LabError> {
        let [lambda, region, access_key, secret_key] =
            ["AWS_ENDPOINT_URL_LAMBDA", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"].map(named);
        let (lambda, region, access_key, secret_key) = (lambda?, region?, access_key?, secret_key?);
        let s3 = s3.ok_or_else(|| {
            let why = "with --endpoint, which names the Lambda door, give --s3-endpoint, too";
            LabError::Usage(why.to_owned())
        })?;
        let signer = |service| Signer::new(service, &region, &access_key, &secret_key);
        let state = std::env::var_os("NIGH_STATE");
        Ok(Self {
            lambda: address(&lambda)?,
            lambda_signer: signer("lambda"),
            s3: S3Door { address: address(s3)?, signer: signer("s3") },
            admin: state.map(|state| StatePaths::new(Path::new(&state)).admin_socket()),
        })
    }
}

fn named(variable: &str) -> Result<String, LabError> {
    let missing =
        |_| LabError::Usage(format!("{variable} is not set; start this by `nigh load`, which finds the node"));
    std::env::var(variable).map_err(missing)
}

/// The address of `http://host:port`.
fn address(url: &str) -> Result<SocketAddr, LabError> {
    let wrong = |why: &str| LabError::Usage(format!("{url:?}: {why}; write http://host:port"));
    let host = url.strip_prefix("http://").ok_or_else(|| wrong("only http:// is spoken here"))?;
    let found = host.trim_end_matches('/').to_socket_addrs();
    let found = found.map_err(|error| LabError::Request { what: url.to_owned(), reason: error.to_string() })?;
    found.into_iter().next().ok_or_else(|| wrong("there is no such host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_a_host_and_a_port() {
        assert_eq!(address("http://127.0.0.1:9401/").unwrap(), "127.0.0.1:9401".parse().unwrap());
        assert!(address("https://127.0.0.1:9401").unwrap_err().to_string().contains("only http://"));
        assert!(address("http://127.0.0.1").is_err());
    }
}
