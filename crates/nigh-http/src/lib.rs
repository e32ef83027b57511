//! What HTTP listeners and clients share: connections, TLS, bodies within limits, APIs on one listener, Signature Version
//! 4, and when a throttled client asks again.
//!
//! No client holds a door shut: `watch` and `least_rate` end slow clients, `places` gives the place of an idle connection to
//! the next one, `shares` bounds the requests that one requester has under way.

pub mod farewell;
pub mod least_rate;
pub mod listener;
pub mod mounted_api;
pub mod places;
pub mod pulse;
pub mod request_body;
pub mod send_guard;
pub mod shares;
pub mod sigv4;
pub mod throttle;
pub mod tls;
pub mod watch;
