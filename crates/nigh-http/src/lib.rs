//! What HTTP listeners and clients share: connections, bodies within limits, APIs on one listener, Signature Version 4,
//! and when a throttled client asks again.

pub mod listener;
pub mod mounted_api;
pub mod request_body;
pub mod sigv4;
pub mod throttle;
