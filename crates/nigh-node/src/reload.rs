//! Changing the settings of a running node: on SIGHUP and by `nigh reload`.
//!
//! The sources of settings are read again. A setting that a part of the node can take over is changed, any other is told to
//! need a restart. Nothing is changed if the settings cannot be used or a part refuses its own. Files that settings name,
//! certificates and keys, are read again in any case, because their content may have changed.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{ConfigError, Layers, Settings, ShownSetting};
use crate::machine::Machine;

/// Puts checked settings in force. Returns true if something changed that no setting shows, for example a certificate.
pub type Apply = Box<dyn FnOnce() -> bool + Send>;

/// A part of a node that can take over settings while it runs.
pub trait Reload: Send + Sync {
    /// What it is, for messages: `log level`, `certificates`.
    fn name(&self) -> &'static str;
    /// True if it takes over this setting: `log.level`.
    fn takes(&self, setting: &str) -> bool;
    /// Checks its settings, and the files that they name. Nothing changes yet.
    ///
    /// # Errors
    /// What is wrong, and what mends it.
    fn check(&self, new: &Settings) -> Result<Apply, String>;
    /// Opens its log files again, which may have been renamed.
    fn reopen(&self) {}
}

/// A setting with another value than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedSetting {
    /// The setting: `log.level`.
    pub key: String,
    /// Its value in the running node before the reload; stars for secrets.
    pub from: String,
    /// Its value in the sources now.
    pub to: String,
}

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReloadReport {
    /// The settings that are in force now.
    pub changed: Vec<ChangedSetting>,
    /// The parts whose files had another content.
    pub reread: Vec<String>,
    /// The settings that the node takes over when it starts again.
    pub needs_restart: Vec<ChangedSetting>,
}

impl fmt::Display for ReloadReport {
    /// One line for the log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = |of: &[ChangedSetting]| of.iter().map(|one| one.key.as_str()).collect::<Vec<_>>().join(", ");
        let Self { changed, reread, needs_restart } = self;
        let parts =
            [("changed", keys(changed)), ("read again", reread.join(", ")), ("need a restart", keys(needs_restart))];
        let said: Vec<String> =
            parts.iter().filter(|(_, what)| !what.is_empty()).map(|(how, what)| format!("{how}: {what}")).collect();
        f.write_str(if said.is_empty() { "nothing has changed" } else { "" })?;
        f.write_str(&said.join("; "))
    }
}

/// Why nothing was reloaded.
#[derive(Debug, Error)]
pub enum ReloadError {
    /// The settings cannot be used.
    #[error("nothing was reloaded: {0}")]
    Settings(#[from] ConfigError),
    /// A part refuses its settings.
    #[error("nothing was reloaded: {part}: {why}")]
    Part {
        /// The part.
        part: &'static str,
        /// What is wrong, and what mends it.
        why: String,
    },
}

/// The parts of a node that can take over settings, and the settings in force.
pub(crate) struct ReloadParts {
    layers: Layers,
    parts: Mutex<Vec<Arc<dyn Reload>>>,
    /// Held during a reload: there is one at a time.
    shown: Mutex<Vec<ShownSetting>>,
}

impl ReloadParts {
    /// The parts of a node that started with the settings `shown`, made of `layers`.
    pub(crate) fn new(layers: Layers, shown: Vec<ShownSetting>) -> Self {
        Self { layers, parts: Mutex::default(), shown: Mutex::new(shown) }
    }

    /// A further part.
    pub(crate) fn add(&self, part: Arc<dyn Reload>) {
        self.parts.lock().push(part);
    }

    /// The settings in force.
    pub(crate) fn shown(&self) -> Vec<ShownSetting> {
        self.shown.lock().clone()
    }

    /// Reads the sources of the settings again. Blocks: it reads files.
    pub(crate) fn reload(&self) -> Result<ReloadReport, ReloadError> {
        let mut shown = self.shown.lock();
        let parts = self.parts.lock().clone();
        let new = self.layers.resolve(&Machine::probe())?;
        let mut applies = Vec::new();
        for part in &parts {
            let checked = part.check(&new.settings).map_err(|why| ReloadError::Part { part: part.name(), why })?;
            applies.push((part.name(), checked));
        }
        let takes = |key: &str| parts.iter().any(|part| part.takes(key));
        let (changed, needs_restart) = compare(&shown, &new.shown, takes);
        let mut reread = Vec::new();
        for (part, apply) in applies {
            if apply() {
                reread.push(part.to_owned());
            }
        }
        put_in_force(&mut shown, &new.shown, takes);
        Ok(ReloadReport { changed, reread, needs_restart })
    }

    /// Opens log files again.
    pub(crate) fn reopen(&self) {
        let parts = self.parts.lock().clone();
        parts.iter().for_each(|part| part.reopen());
    }
}

/// The settings that differ: those that a part takes over, and the others. A setting that is not there has no value. Pure.
fn compare(
    old: &[ShownSetting],
    new: &[ShownSetting],
    takes: impl Fn(&str) -> bool,
) -> (Vec<ChangedSetting>, Vec<ChangedSetting>) {
    let value = |of: &[ShownSetting], key: &str| {
        of.iter().find(|one| one.key == key).map_or_else(|| "(none)".to_owned(), |one| one.value.clone())
    };
    let gone = old.iter().filter(|one| !new.iter().any(|other| other.key == one.key));
    let differing = new.iter().chain(gone).filter_map(|ShownSetting { key, .. }| {
        let (from, to) = (value(old, key), value(new, key));
        (from != to).then(|| ChangedSetting { key: key.clone(), from, to })
    });
    differing.partition(|changed| takes(&changed.key))
}

/// Makes `shown` show the new values of the settings that a part has taken over. Pure.
fn put_in_force(shown: &mut Vec<ShownSetting>, new: &[ShownSetting], takes: impl Fn(&str) -> bool) {
    shown.retain(|one| !takes(&one.key));
    shown.extend(new.iter().filter(|one| takes(&one.key)).cloned());
    // As they were made: by name.
    shown.sort_by(|one, other| one.key.cmp(&other.key));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn shown(key: &str, value: &str) -> ShownSetting {
        ShownSetting { key: key.to_owned(), value: value.to_owned(), origin: "file".to_owned() }
    }

    fn changed(key: &str, from: &str, to: &str) -> ChangedSetting {
        ChangedSetting { key: key.to_owned(), from: from.to_owned(), to: to.to_owned() }
    }

    #[test]
    fn what_a_part_takes_over_is_changed_and_the_rest_needs_a_restart() {
        let old = [shown("cache.bytes", "1 GiB"), shown("drain", "30 s"), shown("namespaces.a.share", "2")];
        let new = [shown("cache.bytes", "2 GiB"), shown("drain", "30 s"), shown("log.level", "debug")];
        let takes = |key: &str| key == "log.level" || key.ends_with(".share");
        let (taken, rest) = compare(&old, &new, takes);
        assert_eq!(taken, [changed("log.level", "(none)", "debug"), changed("namespaces.a.share", "2", "(none)")]);
        assert_eq!(rest, [changed("cache.bytes", "1 GiB", "2 GiB")]);
        let report = ReloadReport { changed: taken, reread: Vec::new(), needs_restart: rest };
        let line = "changed: log.level, namespaces.a.share; need a restart: cache.bytes";
        assert_eq!(report.to_string(), line);
        assert_eq!(ReloadReport::default().to_string(), "nothing has changed");
        let mut in_force = old.to_vec();
        put_in_force(&mut in_force, &new, takes);
        assert_eq!(in_force, [shown("cache.bytes", "1 GiB"), shown("drain", "30 s"), shown("log.level", "debug")]);
    }

    /// Takes over `drain`, and refuses one of more than a minute.
    struct Drain(AtomicUsize);

    struct DrainPart(Arc<Drain>);

    impl Reload for DrainPart {
        fn name(&self) -> &'static str {
            "drain"
        }

        fn takes(&self, setting: &str) -> bool {
            setting == "drain"
        }

        fn check(&self, new: &Settings) -> Result<Apply, String> {
            let seconds = new.drain.duration().as_secs();
            if seconds > 60 {
                return Err(format!("{seconds} s is too long"));
            }
            let drain = Arc::clone(&self.0);
            Ok(Box::new(move || {
                drain.0.store(seconds as usize, Ordering::Relaxed);
                false
            }))
        }
    }

    #[test]
    fn a_reload_takes_over_the_file_as_it_is_now_or_nothing_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nigh.toml");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write("drain = \"10 s\"\n");
        let environment = vec![("NIGH_STATE".to_owned(), folder.path().display().to_string())];
        let layers = Layers { file: Some(file.clone()), environment, flags: Vec::new() };
        let start = layers.resolve(&Machine::probe()).unwrap();
        let parts = ReloadParts::new(layers, start.shown);
        let drain = Arc::new(Drain(AtomicUsize::new(10)));
        parts.add(Arc::new(DrainPart(Arc::clone(&drain))));
        let in_force = || drain.0.load(Ordering::Relaxed);

        assert_eq!(parts.reload().unwrap(), ReloadReport::default());
        write("drain = \"20 s\"\nregion = \"eu-west-1\"\n");
        let report = parts.reload().unwrap();
        assert_eq!(report.changed, [changed("drain", "10 s", "20 s")]);
        assert_eq!(report.needs_restart, [changed("region", "us-east-1", "eu-west-1")]);
        assert_eq!(in_force(), 20);
        // What needs a restart is told again, what is in force is not.
        assert!(parts.reload().unwrap().changed.is_empty());

        for (wrong, why) in [
            ("drain = \"2 min\"\n", "drain: 120 s is too long"),
            ("drain = 5\n", "has no unit"),
            ("drain = \"30 s\"\nnonsense = 1\n", "there is no setting nonsense"),
        ] {
            write(wrong);
            let refused = parts.reload().unwrap_err().to_string();
            assert!(refused.starts_with("nothing was reloaded: ") && refused.contains(why), "{refused}");
            assert_eq!(in_force(), 20);
        }
    }
}
