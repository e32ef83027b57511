//! Why a node cannot become a member of its cluster, and what to do.

use std::net::SocketAddr;
use std::path::PathBuf;

use nigh_engine::nats::ClusterError;
use nigh_engine::{FormatRange, RegistryError};
use nigh_objects::cluster::CoherenceProtocol;
use nigh_rpc::certificates::CertificateError;
use nigh_rpc::{Identity, NameError};
use thiserror::Error;

use crate::outside_door::SecretFileError;

/// Why a node cannot become a member of its cluster.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "each source says what happened")]
pub enum ClusterStartError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    #[error("the node's name: {0}; set another with --set node=NAME")]
    Name(#[from] NameError),
    #[error(transparent)]
    Token(#[from] SecretFileError),
    #[error(
        "cluster.shards is {own}, but the cluster {name} was made with {theirs} for good: set cluster.shards = {theirs}, \
         or another cluster.name for another cluster"
    )]
    OtherShards { name: String, own: u16, theirs: u16 },
    #[error(
        "cluster.coherence is {own}, but the cluster {name} was made with {theirs} for good: set cluster.coherence = \
         {theirs}, or another cluster.name for another cluster"
    )]
    OtherCoherence { name: String, own: CoherenceProtocol, theirs: CoherenceProtocol },
    #[error("the cluster {name} has format {cluster}, and this program can use {own}: start Nigh {by} or newer")]
    NewerFormat { name: String, own: FormatRange, cluster: u32, by: String },
    #[error(
        "the cluster {name} has format {cluster}, and this program can use {own}: start the version of Nigh before it on \
         all nodes, run `nigh cluster finalize`, then upgrade to this one"
    )]
    OlderFormat { name: String, own: FormatRange, cluster: u32 },
    #[error("{} is of {found}, and this node is {own}: issue it one of its own with `nigh certificates`", .path.display())]
    OtherIdentity { path: PathBuf, found: Identity, own: Identity },
    #[error(
        "cluster.listen {address}: {source}; set another with --set cluster.listen=ADDRESS, port 0 takes a free one"
    )]
    Bind { address: SocketAddr, source: std::io::Error },
}
