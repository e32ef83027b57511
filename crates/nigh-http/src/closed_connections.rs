//! Counts connections that a door closes because of their clients, by the reason.

/// The client sent no request's head in time.
pub(crate) const SILENT: &str = "silent";
/// The client took an answer too slowly.
pub(crate) const SLOW_ANSWER: &str = "slow_answer";
/// The client sent a body too slowly.
pub(crate) const SLOW_BODY: &str = "slow_body";
/// Another client needed the place of an idle connection.
pub(crate) const ROOM: &str = "room";

/// Counts one.
pub(crate) fn count_closed(reason: &'static str) {
    metrics::counter!("nigh_connections_closed_total", "reason" => reason).increment(1);
}
