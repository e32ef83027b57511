//! The S3 door over real HTTP, in front of a real object memory and directory store.

mod bad_input;
mod bounded;
mod checksums;
mod client;
mod objects;
mod reads;
mod running;
mod sdks;
mod serving;
mod sign;
mod uploads;
