//! A cluster on this machine: NATS servers and nodes as processes of their own, on ports of loopback or each in a network
//! namespace. For `nigh cluster up`, for experiments and tests: every process can be killed, stopped and cut off, and who
//! tends the cluster starts again what has ended by itself.

mod cluster;
mod nats_servers;
mod network;
mod process;
mod restarts;
mod roll;

pub use cluster::{LocalCluster, LocalClusterError, LocalClusterSettings, LocalNode};
pub use nats_servers::{NatsServers, Place, find_nats_server};
pub use network::Network;
pub use process::{Process, ProcessEvent};
pub use roll::{ProcessStatus, local_processes};
