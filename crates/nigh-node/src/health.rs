//! Whether a node lives, and whether it should be given new work now: for load balancers, supervisors and Prometheus, on a
//! listener of its own, without a key.
//!
//! | request | answer |
//! |---|---|
//! | `GET /health/live` | 200 while the process can do work; it asks nothing outside. After 503 only a restart helps |
//! | `GET /health/ready` | 200 if the node should be given new work now, else 503 |
//! | `GET /health/ready?reads=1` | 200 if it should be given reads |
//! | `GET /health/ready?writes=1` | 200 if it should be given writes |
//! | `GET /health/cluster` | 200 if every shard has a home and the NATS servers confirm writes, else 503 |
//! | `GET /health/cluster?without=NODE` | 200 if the cluster works without this node, 412 if not, 404 if it is no member |
//! | `GET /metrics` | Prometheus text |
//!
//! The answers about health are JSON, `HealthAnswer`. `verdict` and `removal` decide them; `board` has what they are decided
//! from. The listener has a thread of its own, so that it answers when the node's own threads do not.

mod board;
mod life;
mod removal;
mod route;
mod server;
mod service_manager;
mod verdict;

pub(crate) use self::board::{HealthBoard, HealthSource};
pub(crate) use self::removal::ClusterFacts;
pub(crate) use self::server::HealthServer;
pub use self::verdict::{CheckAnswer, HealthAnswer};
pub(crate) use self::verdict::{NodeFacts, Phase};
