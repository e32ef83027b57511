//! The consistency contract, checked by exhaustion.
//!
//! Bounded worlds of nodes, homes, schedulers, clients and faults, in which every order of events is tried. The
//! machines in them are the production types of `nigh_objects::protocol`; a rule can be left out, and must then
//! be missed. docs/coherence.md has the tables.

mod catalogue;
mod configuration;
mod events;
mod explore;
mod ghost;
mod homes;
mod network;
mod programs;
pub mod storm;
mod weakenings;
mod world;

pub use catalogue::{configurations, long_configurations};
pub use configuration::{Configuration, Faults, Origin, Program, Step, Without};
pub use events::Event;
pub use explore::{Counterexample, Explored, Stuck, explore, find_stuck, retell};
pub use ghost::Promise;
pub use weakenings::{Missed, Weakening, weakenings};
pub use world::World;
