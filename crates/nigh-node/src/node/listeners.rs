//! The listeners of a node's doors.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use tokio::net::TcpListener;

use super::NodeError;
use crate::config::{Settings, Switch};
use crate::endpoints::Endpoints;
use crate::state_folder::{StatePaths, bind_socket, bind_socket_by};

/// The listeners, opened before `endpoints.json` is written.
pub(super) struct Listeners {
    pub(super) s3: TcpListener,
    pub(super) s3_unix: tokio::net::UnixListener,
    pub(super) fast: Option<OwnedFd>,
    pub(super) lambda: TcpListener,
    pub(super) outside: Option<TcpListener>,
    pub(super) admin: tokio::net::UnixListener,
    pub(super) admin_tcp: TcpListener,
}

impl Listeners {
    pub(super) async fn bind(settings: &Settings, paths: &StatePaths) -> Result<Self, NodeError> {
        let tcp = async |setting, flag, address| {
            TcpListener::bind(address).await.map_err(|source| NodeError::Bind { setting, flag, address, source })
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
            admin_tcp: tcp("admin.listen", "set admin.listen=ADDRESS", settings.admin_listen()).await?,
            fast: match settings.s3.fast_path {
                Switch::On => Some(bind_socket_by(&paths.fast_socket(), nigh_s3::bind_fast_path)?),
                Switch::Off => None,
            },
        })
    }

    pub(super) fn endpoints(&self, settings: &Settings, paths: &StatePaths) -> Result<Endpoints, NodeError> {
        let url = |listener: &TcpListener| {
            let bound = listener.local_addr().map_err(|source| NodeError::Io { what: "asking for a port", source })?;
            // A listener on every address is reached at loopback.
            let reachable = match bound {
                SocketAddr::V4(v4) if v4.ip().is_unspecified() => SocketAddr::from(([127, 0, 0, 1], v4.port())),
                SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
                    SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, v6.port()))
                }
                other => other,
            };
            Ok::<_, NodeError>(format!("http://{reachable}"))
        };
        Ok(Endpoints {
            pid: std::process::id(),
            s3: url(&self.s3)?,
            s3_socket: settings.s3.socket.clone(),
            lambda: url(&self.lambda)?,
            admin: Some(url(&self.admin_tcp)?),
            admin_socket: paths.admin_socket(),
            outside: self.outside.as_ref().map(url).transpose()?,
            fast_socket: self.fast.is_some().then(|| paths.fast_socket()),
            region: settings.region.clone(),
            namespace: settings.namespace.clone(),
        })
    }
}
