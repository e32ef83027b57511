//! The limits of both sides.

use std::time::Duration;

/// The limits of who calls.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Connections to one peer at most.
    pub connections_max: usize,
    /// Calls that wait for one of them at most; further ones fail at once.
    pub waiting_max: usize,
    /// For a connection, with TLS and hellos.
    pub connect_max: Duration,
    /// Idle connections are closed after this; less than the servers' own.
    pub idle_max: Duration,
    /// Connections older than this are closed when idle: new certificates come into use.
    pub age_max: Duration,
    /// Of each connection.
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

/// The limits of who answers.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Connections in all, those that have not said yet who they are too.
    pub connections_max: usize,
    /// Connections of one peer.
    pub connections_per_peer_max: usize,
    /// Calls at once in all; further ones are refused as `Busy`.
    pub calls_max: usize,
    /// For TLS and hellos.
    pub hello_max: Duration,
    /// No call takes longer, whatever its caller would wait.
    pub call_max: Duration,
    /// Idle connections are closed after this.
    pub idle_max: Duration,
    /// For the calls under way when the server ends.
    pub drain_max: Duration,
    /// Of each connection.
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

/// When the kernel gives a silent peer up (tcp(7)).
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    /// An idle connection is probed after this, and then as often.
    pub probe_every: Duration,
    /// A connection whose bytes or probes nobody acknowledges for so long is closed: TCP_USER_TIMEOUT.
    pub silence_max: Duration,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { probe_every: Duration::from_secs(5), silence_max: Duration::from_secs(15) }
    }
}
