//! What the HTTP listeners share: bodies that are read within limits, and APIs that share a listener.

pub mod mounted_api;
pub mod request_body;
