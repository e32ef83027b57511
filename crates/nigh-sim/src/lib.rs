//! Models of machines we lack. Pure: no I/O, no clock, no thread; randomness comes in as a seed.

pub mod fabric;
pub mod llc;
