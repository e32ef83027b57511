//! What HTTP listeners and clients share: connections, bodies within limits, APIs on one listener, Signature Version 4.

pub mod listener;
pub mod mounted_api;
pub mod request_body;
pub mod sigv4;
