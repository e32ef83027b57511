//! Where a node says whether it is alive and ready.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::Settings;

/// The port where none is set.
const PORT: u16 = 9402;

/// Health and metrics for load balancers, supervisors and Prometheus, without a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HealthSettings {
    /// The address of its listener; port 0 takes a free one.
    pub listen: Option<SocketAddr>,
}

impl Settings {
    /// The address of the health listener.
    #[must_use]
    pub fn health_listen(&self) -> SocketAddr {
        // Whoever starts several nodes on one machine has given the S3 door a free port.
        let port = if self.s3.listen.port() == 0 { 0 } else { PORT };
        self.health.listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use nigh_terms::ByteSize;

    use super::*;
    use crate::machine::Machine;

    #[test]
    fn a_node_with_an_s3_door_on_a_free_port_has_a_health_listener_on_a_free_port() {
        let machine = Machine { hostname: "here".to_owned(), memory: ByteSize::gib(1), cpus: 1 };
        let mut settings = Settings::defaults(Path::new("/s"), &machine);
        assert_eq!(settings.health_listen().to_string(), "127.0.0.1:9402");
        settings.s3.listen.set_port(0);
        assert_eq!(settings.health_listen().to_string(), "127.0.0.1:0");
        settings.health.listen = Some(SocketAddr::from(([0, 0, 0, 0], 8080)));
        assert_eq!(settings.health_listen().to_string(), "0.0.0.0:8080");
    }
}
