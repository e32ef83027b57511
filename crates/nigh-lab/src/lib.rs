//! The laboratory: experiments, benches, load generation, the peers' servers, statistics and plots.

pub mod cpu_time;
pub mod http_load;
pub mod machine;
pub mod peer;
pub mod stats;
