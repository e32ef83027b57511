//! What a request of the health listener asks. Pure.

use http::Method;
use percent_encoding::percent_decode_str;

use super::verdict::Probe;

/// What a request asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Is this node alive, or ready?
    Node(Probe),
    /// Does the cluster work, without this member if one is named?
    Cluster(Option<String>),
    /// The metrics.
    Metrics,
    /// The method is neither GET nor HEAD.
    NotRead,
    /// There is no such path.
    Unknown,
}

impl Question {
    /// The question of a request.
    pub(super) fn of(method: &Method, path: &str, query: Option<&str>) -> Self {
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Self::NotRead;
        }
        let parameter = |name: &str| {
            let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
            let mut values = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value);
            values.next().map(|value| percent_decode_str(value).decode_utf8_lossy().into_owned())
        };
        let is_set = |name: &str| parameter(name).is_some_and(|value| !matches!(value.as_str(), "" | "0" | "false"));
        match path {
            "/health/live" => Self::Node(Probe::Live),
            "/health/ready" if is_set("writes") => Self::Node(Probe::Writes),
            "/health/ready" if is_set("reads") => Self::Node(Probe::Reads),
            "/health/ready" => Self::Node(Probe::Ready),
            "/health/cluster" => Self::Cluster(parameter("without")),
            "/metrics" => Self::Metrics,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_parameters_say_what_is_asked() {
        let of = |path, query| Question::of(&Method::GET, path, query);
        assert_eq!(of("/health/live", None), Question::Node(Probe::Live));
        assert_eq!(of("/health/ready", None), Question::Node(Probe::Ready));
        assert_eq!(of("/health/ready", Some("reads=1")), Question::Node(Probe::Reads));
        assert_eq!(of("/health/ready", Some("reads=0")), Question::Node(Probe::Ready));
        // Who reads and writes must be able to do both.
        assert_eq!(of("/health/ready", Some("reads=1&writes=1")), Question::Node(Probe::Writes));
        assert_eq!(of("/health/cluster", Some("without=node%2D1")), Question::Cluster(Some("node-1".to_owned())));
        assert_eq!(of("/health/cluster", None), Question::Cluster(None));
        assert_eq!(of("/metrics", None), Question::Metrics);
        assert_eq!(of("/health", None), Question::Unknown);
        assert_eq!(Question::of(&Method::HEAD, "/health/live", None), Question::Node(Probe::Live));
        assert_eq!(Question::of(&Method::POST, "/health/live", None), Question::NotRead);
    }
}
