//! A service behind the node, and the proxy between the two that makes it unwell.

use std::path::Path;

use tokio::runtime::Handle;

use super::Store;
use crate::LabError;
use crate::instrument::fault_proxy::FaultProxy;
use crate::instrument::fault_proxy::plan::Plan;
use crate::instrument::node_under_test::settings_of_store;
use crate::instrument::peer::S3Access;
use crate::instrument::peer::s3_server::S3Server;
use crate::instrument::peer::swift::Swift;

enum Server {
    Minio(S3Server),
    Swift(Swift),
}

impl Server {
    const fn s3(&self) -> &S3Access {
        match self {
            Self::Minio(minio) => minio.s3(),
            Self::Swift(swift) => swift.s3(),
        }
    }
}

pub(super) struct Service {
    server: Server,
    proxy: FaultProxy,
}

impl Service {
    /// Starts what `store` names with its files in `folder`; nothing for a directory.
    pub(super) fn start(store: Store, folder: &Path, handle: &Handle) -> Result<Option<Self>, LabError> {
        let server = match store {
            Store::Directory => return Ok(None),
            Store::S3 => Server::Minio(S3Server::minio(&folder.join("minio"))?),
            Store::Swift => Server::Swift(Swift::start(&folder.join("swift"))?),
        };
        let proxy = handle
            .block_on(FaultProxy::start(&server.s3().endpoint, Plan::default()))
            .map_err(|error| LabError::Node(format!("the proxy before the store: {error}")))?;
        Ok(Some(Self { server, proxy }))
    }

    /// Settings of a node that reaches it through the proxy.
    pub(super) fn settings(&self) -> toml::Table {
        let access = S3Access { endpoint: self.proxy.endpoint(), ..self.access().clone() };
        let mut settings = settings_of_store(&access);
        if let (Server::Swift(_), Some(store)) = (&self.server, settings["store"].as_table_mut()) {
            store.insert("kind".to_owned(), "swift".into());
            store.insert("endpoint".to_owned(), format!("{}/auth/v1.0", access.endpoint).into());
        }
        settings
    }

    pub(super) const fn access(&self) -> &S3Access {
        self.server.s3()
    }

    /// What happens to the node's requests from now on.
    pub(super) fn set_plan(&self, plan: Plan) {
        self.proxy.set_plan(plan);
    }

    /// Whether it can be killed and started again.
    pub(super) const fn is_mortal(&self) -> bool {
        matches!(self.server, Server::Minio(_))
    }

    /// Ends it at once, as a crash does; one that is not mortal lives on.
    pub(super) fn kill(&mut self) {
        if let Server::Minio(minio) = &mut self.server {
            minio.kill();
        }
    }

    /// Starts it again after a kill; one that was not killed goes on.
    pub(super) fn start_again(&mut self) -> Result<(), LabError> {
        match &mut self.server {
            Server::Minio(minio) => Ok(minio.start_again()?),
            Server::Swift(_) => Ok(()),
        }
    }
}
