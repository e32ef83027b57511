//! What all subcommands share: the node, the namespace, and the form of output.

use std::path::PathBuf;

use clap::Args;
use nigh_node::client::{AdminClient, DoorAddress, LambdaClient, S3Client};
use nigh_node::config::{Configuration, Flag, Layers};
use nigh_node::credentials::{self, Credentials};
use nigh_node::endpoints::{Endpoints, EndpointsError};
use nigh_node::machine::Machine;
use nigh_node::state_folder::StatePaths;
use nigh_node::status::Status;
use nigh_terms::{InvocationId, Namespace};

use crate::error::CliError;

/// Options of all subcommands.
#[derive(Args, Clone, Debug)]
pub(crate) struct Globals {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The node's state folder [default: /var/lib/nigh for root, ~/.local/state/nigh for others]
    #[arg(long, global = true, value_name = "FOLDER")]
    pub(crate) state: Option<PathBuf>,
    /// The configuration file [default: nigh.toml in the state folder, then /etc/nigh/nigh.toml]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The namespace: a profile in the node's credentials file [default: the node's first]
    #[arg(long, global = true, alias = "namespace", env = "NIGH_PROFILE", value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// The URL of the door to call: S3 for objects, else Lambda [default: the door of the running node]
    #[arg(long, global = true, env = "NIGH_ENDPOINT", value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The authorities to trust with https [default: the running node's, else AWS_CA_BUNDLE, else the system's]
    #[arg(long = "ca", global = true, env = "NIGH_CA_BUNDLE", value_name = "FILE")]
    pub(crate) ca_bundle: Option<PathBuf>,
}

/// A door, and the key that signs its requests.
pub(crate) struct DoorAccess {
    pub(crate) door: DoorAddress,
    pub(crate) region: String,
    pub(crate) credentials: Credentials,
}

impl Globals {
    /// The sources of settings, with `flags` on top.
    pub(crate) fn layers(&self, mut flags: Vec<Flag>) -> Layers {
        if let Some(state) = &self.state {
            let value = state.to_string_lossy().into_owned();
            flags.push(Flag { key: "state".to_owned(), value, flag: "--state".to_owned() });
        }
        Layers::of_process(self.config.clone(), flags)
    }

    /// The settings, with `flags` on top.
    pub(crate) fn configuration(&self, flags: Vec<Flag>) -> Result<Configuration, CliError> {
        Ok(self.layers(flags).resolve(&Machine::probe())?)
    }

    pub(crate) fn paths(&self) -> Result<StatePaths, CliError> {
        Ok(StatePaths::new(&self.configuration(Vec::new())?.settings.state))
    }

    /// The door to talk to: the one named, else the running node's. A named one need not be of a node that runs here.
    pub(crate) async fn reach(&self, door: impl FnOnce(Endpoints) -> String) -> Result<DoorAccess, CliError> {
        let settings = self.configuration(Vec::new())?.settings;
        let paths = StatePaths::new(&settings.state);
        let (url, known, region, namespace) = match &self.endpoint {
            Some(url) => {
                let known = std::env::var_os("AWS_CA_BUNDLE").filter(|path| !path.is_empty()).map(PathBuf::from);
                (url.clone(), known, settings.region, settings.namespace)
            }
            None => {
                let endpoints = self.endpoints(&paths).await?;
                let (region, namespace) = (endpoints.region.clone(), endpoints.namespace.clone());
                let known = endpoints.ca_bundle.clone();
                (door(endpoints), known, region, namespace)
            }
        };
        let profile = self.profile.as_deref().unwrap_or(namespace.as_str());
        let credentials = credentials::read(&paths.credentials(), profile)?;
        let door = DoorAddress { url, ca_bundle: self.ca_bundle.clone().or(known) };
        Ok(DoorAccess { door, region, credentials })
    }

    /// The addresses of the node that runs at `paths`.
    pub(crate) async fn endpoints(&self, paths: &StatePaths) -> Result<Endpoints, CliError> {
        match Endpoints::read(paths) {
            Err(EndpointsError::Draining(root)) => Err(self.draining(root).await),
            read => Ok(read?),
        }
    }

    /// A client of the S3 door.
    pub(crate) async fn s3(&self) -> Result<S3Client, CliError> {
        let DoorAccess { door, region, credentials } = self.reach(|endpoints| endpoints.s3).await?;
        Ok(S3Client::new(&door, &region, &credentials)?)
    }

    /// A client of the Lambda door.
    pub(crate) async fn lambda(&self) -> Result<LambdaClient, CliError> {
        let DoorAccess { door, region, credentials } = self.reach(|endpoints| endpoints.lambda).await?;
        Ok(LambdaClient::new(&door, &region, &credentials)?)
    }

    /// A client of the admin API, which answers while the node drains, too.
    pub(crate) fn admin(&self) -> Result<AdminClient, CliError> {
        let paths = self.paths()?;
        match Endpoints::read(&paths) {
            Ok(_) | Err(EndpointsError::Draining(_)) => Ok(AdminClient::new(&paths.admin_socket())),
            Err(error) => Err(error.into()),
        }
    }

    /// Why the doors of the node at `root`, which drains, are closed.
    async fn draining(&self, root: PathBuf) -> CliError {
        let admin = AdminClient::new(&StatePaths::new(&root).admin_socket());
        match admin.get::<Status>("/status").await {
            Ok(Status { draining: Some(draining), .. }) => CliError::Draining { root, draining },
            // A node that does not answer has just ended.
            Ok(_) | Err(_) => EndpointsError::Draining(root).into(),
        }
    }

    /// The namespace asked for, or the node's first.
    pub(crate) async fn namespace(&self) -> Result<Namespace, CliError> {
        match &self.profile {
            Some(name) => Namespace::new(name).map_err(|error| CliError::Usage(error.to_string())),
            None => Ok(self.admin()?.get::<Status>("/status").await?.endpoints.namespace),
        }
    }
}

/// Checks an invocation's id before it goes into a URL.
pub(crate) fn invocation(id: &str) -> Result<InvocationId, CliError> {
    id.parse()
        .map_err(|_| CliError::Usage(format!("{id:?} is not an invocation's id; `nigh activations` lists the ids")))
}
