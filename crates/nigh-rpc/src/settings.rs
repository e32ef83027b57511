//! The limits of both sides.

use std::time::Duration;

/// The limits of a client.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// The most connections to one peer.
    pub connections_max: usize,
    /// The most calls that wait for a connection; further calls fail at once.
    pub waiting_max: usize,
    /// The time for making a connection, with TLS and hellos.
    pub connect_max: Duration,
    /// Idle connections are closed after this time, which is shorter than that of servers.
    pub idle_max: Duration,
    /// Idle connections older than this are closed, so that new certificates come into use.
    pub age_max: Duration,
    /// How each connection notices a silent peer.
    pub liveness: Liveness,
}

impl Default for ClientSettings {
    fn default() -> Self {
        Self {
            connections_max: 16,
            waiting_max: 1024,
            connect_max: Duration::from_secs(3),
            idle_max: Duration::from_secs(60),
            age_max: Duration::from_secs(3600),
            liveness: Liveness::default(),
        }
    }
}

/// The limits of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// The most connections, including those before their hello.
    pub connections_max: usize,
    /// The most connections of one peer.
    pub connections_per_peer_max: usize,
    /// The most calls at once; further calls are refused as `Busy`.
    pub calls_max: usize,
    /// The time for TLS and hellos.
    pub hello_max: Duration,
    /// The longest time of a call, even if its caller would wait longer.
    pub call_max: Duration,
    /// Idle connections are closed after this time.
    pub idle_max: Duration,
    /// The time for calls under way when the server ends.
    pub drain_max: Duration,
    /// How each connection notices a silent peer.
    pub liveness: Liveness,
}

impl Default for ServerSettings {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            connections_per_peer_max: 64,
            calls_max: 1024,
            hello_max: Duration::from_secs(5),
            call_max: Duration::from_secs(900),
            idle_max: Duration::from_secs(600),
            drain_max: Duration::from_secs(30),
            liveness: Liveness::default(),
        }
    }
}

/// When the kernel closes the connection of a silent peer (tcp(7)).
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    /// The time before the first probe of an idle connection, and between probes.
    pub probe_every: Duration,
    /// A connection without an acknowledgement for this long is closed (TCP_USER_TIMEOUT).
    pub silence_max: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { probe_every: Duration::from_secs(5), silence_max: Duration::from_secs(15) }
    }
}
