//! One worker process: its settings, what it is wired from, and what it shows of itself; and the clients of its doors.

pub mod client;
pub mod config;
pub mod credentials;
pub mod endpoints;
pub mod machine;
pub mod state_folder;
