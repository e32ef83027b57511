//! The listeners of a node's doors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use nigh_http::listener::DoorListener;
use nigh_http::tls::server::DoorTls;
use nigh_rpc::certificates::CertificateFacts;
use tokio::net::TcpListener;

use super::NodeError;
use crate::config::{Settings, Switch};
use crate::door_certificates::DoorCertificates;
use crate::endpoints::Endpoints;
use crate::state_folder::{StatePaths, bind_socket, bind_socket_by};

/// Opens the listener for probes, which answers while the others are not open yet. Returns its address, too.
pub(super) fn bind_health(settings: &Settings) -> Result<(std::net::TcpListener, SocketAddr), NodeError> {
    let address = settings.health_listen();
    let bound = std::net::TcpListener::bind(address).and_then(|listener| {
        let bound = listener.local_addr()?;
        Ok((listener, bound))
    });
    bound.map_err(|source| NodeError::Bind { setting: "health.listen", flag: "health-listen", address, source })
}

/// The listeners, opened before `endpoints.json` is written.
pub(super) struct Listeners {
    pub(super) s3: DoorListener,
    pub(super) s3_unix: tokio::net::UnixListener,
    pub(super) fast: Option<OwnedFd>,
    pub(super) lambda: DoorListener,
    pub(super) outside: Option<DoorListener>,
    pub(super) admin: tokio::net::UnixListener,
    pub(super) admin_tcp: DoorListener,
}

impl Listeners {
    /// Opens them. With `certificates` all doors speak TLS.
    pub(super) async fn bind(
        settings: &Settings,
        paths: &StatePaths,
        certificates: &DoorCertificates,
    ) -> Result<Self, NodeError> {
        let tls = certificates.doors();
        let tcp = async |setting, flag, address| {
            let bound = TcpListener::bind(address).await;
            let bound = bound.map_err(|source| NodeError::Bind { setting, flag, address, source })?;
            Ok::<_, NodeError>(DoorListener::new(bound, tls.cloned()))
        };
        Ok(Self {
            s3: tcp("s3.listen", "s3-listen", settings.s3.listen).await?,
            s3_unix: bind_socket(&settings.s3.socket)?,
            lambda: tcp("lambda.listen", "lambda-listen", settings.lambda.listen).await?,
            outside: match settings.outside.listen {
                Some(address) => Some(tcp("outside.listen", "set outside.listen=ADDRESS", address).await?),
                None => None,
            },
            admin: bind_socket(&paths.admin_socket())?,
            admin_tcp: tcp("admin.listen", "set admin.listen=ADDRESS", settings.admin_listen())
                .await?
                .with_tls(certificates.admin().cloned()),
            fast: match settings.s3.fast_path {
                Switch::On => Some(bind_socket_by(&paths.fast_socket(), nigh_s3::bind_fast_path)?),
                Switch::Off => None,
            },
        })
    }

    /// The addresses of all doors; the health listener, which speaks the TLS of the others, is bound to `health`.
    pub(super) fn endpoints(
        &self,
        settings: &Settings,
        paths: &StatePaths,
        health: SocketAddr,
    ) -> Result<Endpoints, NodeError> {
        let url_of = |bound: SocketAddr, tls: Option<&Arc<DoorTls>>| {
            let facts = tls.map(|tls| tls.facts());
            door_url(reachable(bound), facts.as_deref())
        };
        let url = |listener: &DoorListener| {
            let bound = listener.local_addr().map_err(|source| NodeError::Io { what: "asking for a port", source })?;
            Ok::<_, NodeError>(url_of(bound, listener.tls()))
        };
        let authority = settings.tls.authority.as_ref().filter(|_| self.s3.tls().is_some());
        Ok(Endpoints {
            pid: std::process::id(),
            s3: url(&self.s3)?,
            s3_socket: settings.s3.socket.clone(),
            lambda: url(&self.lambda)?,
            admin: Some(url(&self.admin_tcp)?),
            admin_socket: paths.admin_socket(),
            health: Some(url_of(health, self.s3.tls())),
            outside: self.outside.as_ref().map(url).transpose()?,
            fast_socket: self.fast.is_some().then(|| paths.fast_socket()),
            ca_bundle: authority.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone())),
            region: settings.region.clone(),
            namespace: settings.namespace.clone(),
        })
    }
}

/// A listener on every address is reached at loopback.
fn reachable(bound: SocketAddr) -> SocketAddr {
    let address = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        other => other,
    };
    SocketAddr::new(address, bound.port())
}

/// The URL of a door at `address`. With TLS its host is one that the certificate names, for clients compare them.
fn door_url(address: SocketAddr, certificate: Option<&CertificateFacts>) -> String {
    let Some(facts) = certificate else { return format!("http://{address}") };
    let is_named = facts.addresses.contains(&address.ip());
    let localhost = facts.hosts.iter().find(|host| address.ip().is_loopback() && *host == "localhost");
    let name = localhost.or_else(|| facts.hosts.iter().find(|host| !host.starts_with('*')));
    match name.filter(|_| !is_named) {
        Some(name) => format!("https://{name}:{}", address.port()),
        None => format!("https://{address}"),
    }
}

#[cfg(test)]
mod tests {
    use nigh_rpc::certificates::{Authority, describe};
    use nigh_rpc::{Identity, Role};

    use super::*;

    #[test]
    fn the_url_of_a_door_with_tls_has_a_host_that_its_certificate_names() {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), "lab", 10).unwrap();
        let node = Identity::new("lab", Role::Node, "n1").unwrap();
        let facts = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            describe(&authority.issue(&node, &names, 10, true).unwrap().certificate).unwrap().remove(0)
        };
        let everywhere = reachable("0.0.0.0:9400".parse().unwrap());
        assert_eq!(door_url(everywhere, None), "http://127.0.0.1:9400");
        for (names, host) in [
            (&["127.0.0.1", "localhost"][..], "127.0.0.1"),
            (&["n1.example", "localhost"], "localhost"),
            (&["*.example", "n1.example"], "n1.example"),
            (&["*.example"], "127.0.0.1"),
        ] {
            assert_eq!(door_url(everywhere, Some(&facts(names))), format!("https://{host}:9400"));
        }
        let v6 = reachable("[::]:1".parse().unwrap());
        assert_eq!(door_url(v6, Some(&facts(&["::1"]))), "https://[::1]:1");
    }
}
