//! What the HTTP listeners share: bodies that are read within limits, APIs that share a listener, and when a throttled
//! client asks again.

pub mod mounted_api;
pub mod request_body;
pub mod throttle;
