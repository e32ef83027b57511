//! Checks the consistency contract exhaustively.
//!
//! It explores bounded worlds of nodes, homes, schedulers, clients and faults, in every order of events. The state
//! machines in them are the production types of `nigh_protocol`. If a rule is left out, the check must find a
//! violation.
//! `murphi/` encodes the contract a second time, independently. `history` checks what clients of a real cluster wrote
//! and read. docs/design/coherence.md has the promises and the rules.

mod catalogue;
mod configuration;
mod events;
mod explore;
mod fingerprint;
mod ghost;
pub mod history;
mod homes;
mod long_catalogue;
mod murphi;
mod network;
mod programs;
mod schedulers;
mod search;
pub mod storm;
mod transactions;
mod weakenings;
mod world;
mod world_parts;

pub use catalogue::configurations;
pub use configuration::{Configuration, Faults, MutatedRules, Origin, Program, Step};
pub use events::Event;
pub use explore::{Counterexample, ExplorationResult, StuckStates, explore, retell};
pub use ghost::Promise;
pub use long_catalogue::long_configurations;
pub use murphi::{
    BrokenProperty, ExpectedVerdict, MurphiModel, MurphiProgram, MurphiReport, MurphiSource, murphi_models,
    murphi_programs, with_choices,
};
pub use search::{Limits, SearchLimit};
pub use transactions::{
    TransactionWorldConfig, WeakenedTransaction, explore_transactions, transaction_configurations,
    weakened_transactions,
};
pub use weakenings::{MutationSymptom, Weakening, weakenings};
pub use world::World;
