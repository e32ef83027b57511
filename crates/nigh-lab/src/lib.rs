//! The laboratory: experiments, benches, load generation, the peers' servers, statistics and plots.

pub mod peer;
