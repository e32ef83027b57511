//! What every subcommand shares: which node it talks to, as whom, and how it prints.

use std::path::PathBuf;

use clap::Args;
use nigh_node::client::{AdminClient, LambdaClient, S3Client};
use nigh_node::config::{Configuration, Flag, Layers};
use nigh_node::credentials::{self, Credentials};
use nigh_node::endpoints::Endpoints;
use nigh_node::machine::Machine;
use nigh_node::state_folder::StatePaths;
use nigh_terms::Namespace;

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
    /// The namespace to act in: a profile of the node's credentials [default: the node's first]
    #[arg(long, global = true, alias = "namespace", env = "NIGH_PROFILE", value_name = "NAME")]
    pub(crate) profile: Option<String>,
    /// Talk to the door at this URL instead of the one the node names
    #[arg(long, global = true, env = "NIGH_ENDPOINT", value_name = "URL")]
    pub(crate) endpoint: Option<String>,
}

/// Of a running node: where it listens, and the key to use.
struct Reached {
    endpoints: Endpoints,
    credentials: Credentials,
}

impl Globals {
    /// The settings, with `flags` on top.
    pub(crate) fn configuration(&self, mut flags: Vec<Flag>) -> Result<Configuration, CliError> {
        if let Some(state) = &self.state {
            let value = state.to_string_lossy().into_owned();
            flags.push(Flag { key: "state".to_owned(), value, flag: "--state".to_owned() });
        }
        Ok(Layers::of_process(self.config.clone(), flags).resolve(&Machine::probe())?)
    }

    fn paths(&self) -> Result<StatePaths, CliError> {
        Ok(StatePaths::new(&self.configuration(Vec::new())?.settings.state))
    }

    fn reach(&self) -> Result<Reached, CliError> {
        let paths = self.paths()?;
        let endpoints = Endpoints::read(&paths)?;
        let profile = self.profile.as_deref().unwrap_or(endpoints.namespace.as_str());
        let credentials = credentials::read(&paths.credentials(), profile)?;
        Ok(Reached { endpoints, credentials })
    }

    /// A client of the S3 door.
    pub(crate) fn s3(&self) -> Result<S3Client, CliError> {
        let Reached { endpoints, credentials } = self.reach()?;
        let url = self.endpoint.as_ref().unwrap_or(&endpoints.s3);
        Ok(S3Client::new(url, &endpoints.region, &credentials)?)
    }

    /// A client of the Lambda door.
    pub(crate) fn lambda(&self) -> Result<LambdaClient, CliError> {
        let Reached { endpoints, credentials } = self.reach()?;
        let url = self.endpoint.as_ref().unwrap_or(&endpoints.lambda);
        Ok(LambdaClient::new(url, &endpoints.region, &credentials)?)
    }

    /// A client of the admin API.
    pub(crate) fn admin(&self) -> Result<AdminClient, CliError> {
        Ok(AdminClient::new(&Endpoints::read(&self.paths()?)?.admin_socket))
    }

    /// The namespace asked for, or the node's first.
    pub(crate) fn namespace(&self) -> Result<Namespace, CliError> {
        match &self.profile {
            Some(name) => Namespace::new(name).map_err(|error| CliError::Usage(error.to_string())),
            None => Ok(Endpoints::read(&self.paths()?)?.namespace),
        }
    }
}
