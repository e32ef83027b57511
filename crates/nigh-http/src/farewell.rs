//! The end of a node's doors: before they close, they ask their clients to leave. Each answer then closes its connection, and
//! the client's next request opens one elsewhere. No request is cut off.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, header};

/// Whether a node's doors ask their clients to leave, and how long requests then have to finish. A clone is another handle to
/// the same.
#[derive(Clone, Debug, Default)]
pub struct Farewell(Arc<OnceLock<Duration>>);

impl Farewell {
    /// From now on every answer closes its connection. Once a door has closed, requests have `drain` to finish.
    pub fn begin(&self, drain: Duration) {
        // A second call changes nothing.
        let _ = self.0.set(drain);
    }

    /// How long requests have to finish; None if it has not begun.
    #[must_use]
    pub fn drain(&self) -> Option<Duration> {
        self.0.get().copied()
    }

    /// Marks the headers of an answer, if the door asks its clients to leave.
    pub fn mark(&self, headers: &mut HeaderMap) {
        if self.0.get().is_some() {
            headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_close_their_connections_once_the_farewell_has_begun() {
        let farewell = Farewell::default();
        let (door, mut headers) = (farewell.clone(), HeaderMap::new());
        door.mark(&mut headers);
        assert!(headers.is_empty() && door.drain().is_none());
        farewell.begin(Duration::from_secs(7));
        door.mark(&mut headers);
        assert_eq!(headers[header::CONNECTION], "close");
        assert_eq!(door.drain(), Some(Duration::from_secs(7)));
    }
}
