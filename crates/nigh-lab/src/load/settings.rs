//! The settings of a load: those of a file, overridden by flags, and checked.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::arrivals::ArrivalLaw;
use super::booking::BookingProfile;
use crate::LabError;
use crate::instrument::error::Tried;

/// OFC's six functions on images, and one of each of its other kinds that has one stage here.
pub(crate) const FUNCTIONS: [&str; 8] =
    ["wand_blur", "wand_denoise", "wand_edge", "wand_resize", "wand_rotate", "wand_sepia", "thumbnail", "wordcount"];
/// Invocations of one load.
const ARRIVALS_MAX: f64 = 1e6;
const TENANTS_MAX: usize = 1000;
const CLIENTS_MAX: usize = 512;
const SECONDS_MAX: f64 = 86_400.0;

/// A load, as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LoadSettings {
    pub(crate) tenants: usize,
    /// Sample functions; tenants take them in turn.
    pub(crate) functions: Vec<String>,
    pub(crate) arrivals: ArrivalLaw,
    /// Seconds between two invocations of a tenant, in the mean.
    pub(crate) interval_s: f64,
    pub(crate) seconds: f64,
    pub(crate) booking: BookingProfile,
    /// Inputs of each tenant.
    pub(crate) inputs: usize,
    /// Larger inputs are left out.
    pub(crate) input_bytes_max: u64,
    /// Invocations under way at most.
    pub(crate) clients: usize,
    pub(crate) seed: u64,
}

impl Default for LoadSettings {
    fn default() -> Self {
        Self {
            tenants: 8,
            functions: FUNCTIONS.map(str::to_owned).into(),
            arrivals: ArrivalLaw::Exponential,
            interval_s: 5.0,
            seconds: 60.0,
            booking: BookingProfile::Normal,
            inputs: 4,
            input_bytes_max: 600_000,
            clients: 16,
            seed: 1,
        }
    }
}

/// Settings that flags override.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct LoadFlags {
    /// How many tenants, each with a function and inputs of its own [default: 8]
    #[arg(long, value_name = "N")]
    tenants: Option<usize>,
    /// Functions, assigned to tenants in turn (names of folders in functions/) [default: eight of OFC's kinds]
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    functions: Vec<String>,
    /// The distribution of the times between invocations [default: exponential]
    #[arg(long, value_enum, value_name = "LAW")]
    arrivals: Option<ArrivalLaw>,
    /// Mean time between two invocations of a tenant, in seconds [default: 5]
    #[arg(long, value_name = "S")]
    interval: Option<f64>,
    /// How long the load lasts, in seconds [default: 60]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// How much memory tenants book [default: normal]
    #[arg(long, value_enum, value_name = "PROFILE")]
    booking: Option<BookingProfile>,
    /// How many inputs each tenant has [default: 4]
    #[arg(long, value_name = "N")]
    inputs: Option<usize>,
    /// The most invocations at once; one that is due while all clients are busy is sent late and counted [default: 16]
    #[arg(long, value_name = "N")]
    clients: Option<usize>,
    /// The random seed, which decides inputs and times; the same seed gives the same load [default: 1]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl LoadSettings {
    /// The settings of `file`, if there is one, with `flags` over them.
    pub(crate) fn read(file: Option<&PathBuf>, flags: &LoadFlags) -> Result<Self, LabError> {
        let mut settings = match file {
            None => Self::default(),
            Some(path) => {
                let text = std::fs::read_to_string(path).at(path)?;
                toml::from_str(&text).at(path)?
            }
        };
        settings.take(flags);
        settings.check()?;
        Ok(settings)
    }

    fn take(&mut self, flags: &LoadFlags) {
        if !flags.functions.is_empty() {
            self.functions.clone_from(&flags.functions);
        }
        let LoadFlags { tenants, arrivals, interval, seconds, booking, inputs, clients, seed, .. } = *flags;
        self.tenants = tenants.unwrap_or(self.tenants);
        self.arrivals = arrivals.unwrap_or(self.arrivals);
        self.interval_s = interval.unwrap_or(self.interval_s);
        self.seconds = seconds.unwrap_or(self.seconds);
        self.booking = booking.unwrap_or(self.booking);
        self.inputs = inputs.unwrap_or(self.inputs);
        self.clients = clients.unwrap_or(self.clients);
        self.seed = seed.unwrap_or(self.seed);
    }

    /// Refuses settings without bounds or without any load.
    pub(crate) fn check(&self) -> Result<(), LabError> {
        let refused = |what: &str, reason: String| Err(LabError::Request { what: what.to_owned(), reason });
        if !(1..=TENANTS_MAX).contains(&self.tenants) {
            return refused("tenants", format!("{} is not within 1 and {TENANTS_MAX}", self.tenants));
        }
        if !(1..=CLIENTS_MAX).contains(&self.clients) {
            return refused("clients", format!("{} is not within 1 and {CLIENTS_MAX}", self.clients));
        }
        if self.functions.is_empty() || self.inputs == 0 {
            return refused("functions", "a tenant needs one and at least one input of it".to_owned());
        }
        if !(self.seconds > 0.0 && self.seconds <= SECONDS_MAX) {
            return refused("seconds", format!("{} is not within 0 and {SECONDS_MAX}", self.seconds));
        }
        let arrivals = self.tenants as f64 * self.seconds / self.interval_s;
        if !(self.interval_s > 0.0 && arrivals <= ARRIVALS_MAX) {
            return refused("interval", format!("{} s gives no load of at most a million", self.interval_s));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_go_over_the_file_and_what_neither_says_is_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("load.toml");
        std::fs::write(&path, "tenants = 24\nbooking = \"naive\"\narrivals = \"recorded\"\nseed = 3\n").unwrap();
        let flags = LoadFlags { tenants: Some(2), interval: Some(0.5), ..LoadFlags::default() };
        let settings = LoadSettings::read(Some(&path), &flags).unwrap();
        assert_eq!((settings.tenants, settings.seed, settings.interval_s), (2, 3, 0.5));
        assert_eq!((settings.booking, settings.arrivals), (BookingProfile::Naive, ArrivalLaw::Recorded));
        assert_eq!(settings.functions.len(), 8);
        std::fs::write(&path, "tenant = 24\n").unwrap();
        let error = LoadSettings::read(Some(&path), &flags).unwrap_err().to_string();
        assert!(error.contains("tenant") && error.contains("load.toml"), "{error}");
    }

    #[test]
    fn a_load_without_end_or_sense_is_refused() {
        let refused = |change: fn(&mut LoadSettings)| {
            let mut settings = LoadSettings::default();
            change(&mut settings);
            settings.check().unwrap_err().to_string()
        };
        assert!(LoadSettings::default().check().is_ok());
        assert!(refused(|settings| settings.interval_s = 0.0).contains("interval"));
        assert!(refused(|settings| settings.interval_s = f64::NAN).contains("interval"));
        assert!(refused(|settings| settings.interval_s = 1e-6).contains("million"));
        assert!(refused(|settings| settings.tenants = 0).contains("tenants"));
        assert!(refused(|settings| settings.seconds = f64::INFINITY).contains("seconds"));
        assert!(refused(|settings| settings.clients = 10_000).contains("clients"));
    }
}
