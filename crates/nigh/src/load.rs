//! `nigh load`: which doors get the load, and who signs for them; the load itself is the laboratory's.

use std::net::{SocketAddr, ToSocketAddrs};

use nigh_lab::load::Doors;
use nigh_lab::s3_door::S3Door;
use nigh_lab::sign::Signer;
use nigh_lab::{LabError, LoadArgs};

use crate::context::{Globals, Reached};
use crate::error::CliError;

/// Loads.
pub(crate) async fn run(args: LoadArgs, globals: &Globals) -> Result<(), CliError> {
    let lambda = globals.reach(|endpoints| endpoints.lambda).await?;
    let s3 = match (&globals.endpoint, &args.s3_endpoint) {
        (Some(_), None) => {
            let why = "with --endpoint, which names the Lambda door, give --s3-endpoint, too";
            return Err(CliError::Usage(why.to_owned()));
        }
        (_, Some(url)) => Reached { url: url.clone(), ..globals.reach(|endpoints| endpoints.s3).await? },
        (None, None) => globals.reach(|endpoints| endpoints.s3).await?,
    };
    let admin = if globals.endpoint.is_none() { Some(globals.paths()?.admin_socket()) } else { None };
    let doors = Doors {
        lambda: address(&lambda.url)?,
        lambda_signer: signer(&lambda, "lambda"),
        s3: S3Door { address: address(&s3.url)?, signer: signer(&s3, "s3") },
        admin,
    };
    Ok(Box::pin(args.run(doors, globals.json)).await?)
}

fn signer(door: &Reached, service: &'static str) -> Signer {
    let keys = &door.credentials;
    Signer::new(service, &door.region, keys.access_key.as_str(), keys.secret_key.reveal())
}

/// The address of `http://host:port`.
fn address(url: &str) -> Result<SocketAddr, CliError> {
    let wrong = |why: &str| CliError::Usage(format!("{url:?}: {why}; write http://host:port"));
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
