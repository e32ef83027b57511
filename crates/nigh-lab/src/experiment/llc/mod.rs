//! Experiments of the last-level cache: CASY's figures and tables, from recorded functions on a simulated machine.
//!
//! The simulator knows neither a prefetcher nor the kernel; what it and the recordings leave out is said beside each
//! figure.

mod contention;
mod paper;
mod prediction;
mod real_contention;
mod scenarios;
mod sensitivity;
mod ways;

pub(crate) use self::contention::ContentionArgs;
pub(crate) use self::prediction::PredictionArgs;
pub(crate) use self::scenarios::ScenariosArgs;
pub(crate) use self::sensitivity::SensitivityArgs;
pub(crate) use self::ways::WaysArgs;
