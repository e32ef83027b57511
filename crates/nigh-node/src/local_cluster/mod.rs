//! A cluster on this machine: NATS servers and nodes, each a process, on ports of loopback or in network namespaces. It is
//! for `nigh cluster up`, experiments and tests: every process can be killed, stopped and cut off, and `tend` restarts
//! processes that ended by themselves.

mod arguments;
mod cluster;
mod folder_lock;
mod loopback_ports;
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
