//! The sources of settings: defaults, then the file, then the environment, then flags; later ones win.
//!
//! Each value keeps its origin, for `nigh config show` and for messages.

use std::path::{Path, PathBuf};

use figment::providers::{Format, Serialized, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Figment, Metadata, Profile, Provider};

use super::Settings;
use super::cluster::ClusterSettings;
use super::error::{ConfigError, explain};
use super::shown::{ShownSetting, flatten, is_secret, show};
use super::store::{ACCOUNT, OTHER_ACCOUNT, StoreSettings};
use super::traces::STANDARD_VARIABLES;
use crate::machine::Machine;

/// Variables with the prefix `NIGH_` that are no settings: the command, the Python client and the hook read them.
const NOT_SETTINGS: [&str; 8] =
    ["CA_BUNDLE", "CONFIG", "PROFILE", "ENDPOINT", "FAST_PATH", "HOOK", "HOOK_REPORT", "NATIVE"];
/// Settings that had another name, which is still read.
const RENAMED: [(&str, &str); 1] = [("allow_remote", "allow_plain")];
/// The prefixes of variables for tests.
const TEST_PREFIXES: [&str; 3] = ["TEST_", "SDK_", "LAB_"];
/// The settings file of the whole machine.
const MACHINE_FILE: &str = "/etc/nigh/nigh.toml";
/// The table of the file that describes a function, for `nigh deploy`. A node passes it over.
pub const FUNCTION_TABLE: &str = "function";

/// A setting given on the command line.
#[derive(Clone, Debug)]
pub struct Flag {
    /// The setting: `s3.listen`.
    pub key: String,
    /// The setting's value as text.
    pub value: String,
    /// The flag: `--s3-listen`.
    pub flag: String,
}

/// The layers above the defaults.
#[derive(Clone, Default)]
pub struct Layers {
    /// The file named by `--config`; none: the usual one.
    pub file: Option<PathBuf>,
    /// The process's environment.
    pub environment: Vec<(String, String)>,
    /// The flags, the strongest last.
    pub flags: Vec<Flag>,
}

/// Without the environment, in which secrets may be.
impl std::fmt::Debug for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layers").field("file", &self.file).field("flags", &self.flags).finish_non_exhaustive()
    }
}

/// Settings that passed all checks.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The settings.
    pub settings: Settings,
    /// Each of them with its origin.
    pub shown: Vec<ShownSetting>,
    /// The file that was read; none if there was none.
    pub file: Option<PathBuf>,
    /// What they were made of, for a reload: the file may have changed then.
    pub layers: Layers,
}

impl Layers {
    /// The layers of this process: its environment, and the flags of its command line.
    #[must_use]
    pub fn of_process(file: Option<PathBuf>, flags: Vec<Flag>) -> Self {
        // A variable that is not UTF-8 is no setting's.
        let environment =
            std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect();
        Self { file, environment, flags }
    }

    /// Merges the layers and checks the settings.
    ///
    /// # Errors
    /// The first setting that is unknown, invalid, or conflicts with others; `faults` finds all.
    pub fn resolve(&self, machine: &Machine) -> Result<Configuration, ConfigError> {
        let usual_state = self.state_without_file()?;
        let file = self.find_file(&usual_state)?;
        let (layers, faults) = self.sources(file.as_deref());
        if let Some(first) = faults.into_iter().next() {
            return Err(first);
        }
        let upper = layers.iter().fold(Figment::new(), Figment::merge);
        let (settings, whole) = settings_of(upper, &usual_state, machine)?;
        settings.check()?;
        Ok(Configuration { settings, shown: show(&whole), file, layers: self.clone() })
    }

    /// The state folder as flags, variables and the user name it; the file may name another.
    pub(super) fn state_without_file(&self) -> Result<PathBuf, ConfigError> {
        let named = self.flag("state").or_else(|| self.variable("NIGH_STATE")).map(PathBuf::from);
        named.or_else(|| self.usual_state()).ok_or(ConfigError::NoState)
    }

    fn flag(&self, key: &str) -> Option<&str> {
        self.flags.iter().rev().find(|flag| flag.key == key).map(|flag| flag.value.as_str())
    }

    fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Root keeps its state in the folder for services, others at home (XDG Base Directory Specification).
    fn usual_state(&self) -> Option<PathBuf> {
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/lib/nigh"));
        }
        let base = self.variable("XDG_STATE_HOME").filter(|text| !text.is_empty()).map(PathBuf::from);
        let home = || self.variable("HOME").map(|home| Path::new(home).join(".local/state"));
        base.or_else(home).map(|base| base.join("nigh"))
    }

    pub(super) fn find_file(&self, state: &Path) -> Result<Option<PathBuf>, ConfigError> {
        let named = self.file.clone().or_else(|| self.variable("NIGH_CONFIG").map(PathBuf::from));
        match named {
            Some(path) => match path.metadata() {
                Ok(_) => Ok(Some(path)),
                Err(source) => Err(ConfigError::File { path, source }),
            },
            None => Ok([state.join("nigh.toml"), PathBuf::from(MACHINE_FILE)].into_iter().find(|path| path.exists())),
        }
    }

    /// The layers above the defaults, the strongest last, and what is wrong with them apart from their settings. Each
    /// variable and each flag is a layer.
    pub(super) fn sources(&self, file: Option<&Path>) -> (Vec<Layer>, Vec<ConfigError>) {
        let (mut layers, mut faults) = (Vec::new(), Vec::new());
        for (variable, key) in STANDARD_VARIABLES {
            if let Some(value) = self.variable(variable).filter(|value| !value.is_empty()) {
                layers.push(Layer::single(format!("variable {variable}"), key, value));
            }
        }
        match file.map(Layer::of_file) {
            Some(Ok(layer)) => {
                faults.extend(file.and_then(|path| keep_secrets(path, &layer).err()));
                layers.push(layer);
            }
            Some(Err(fault)) => faults.push(fault),
            None => {}
        }
        for (variable, value) in &self.environment {
            let Some(name) = variable.strip_prefix("NIGH_") else { continue };
            if NOT_SETTINGS.contains(&name) || TEST_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
                continue;
            }
            let key = name.to_ascii_lowercase().replace("__", ".");
            layers.push(Layer::single(format!("variable {variable}"), &key, value));
        }
        for flag in &self.flags {
            if is_secret(&flag.key) {
                let why =
                    "a secret is not given on the command line, which others can read; use the file or a variable";
                faults.push(ConfigError::Rule { key: flag.key.clone(), why: why.to_owned() });
                continue;
            }
            layers.push(Layer::single(format!("flag {}", flag.flag), &flag.key, &flag.value));
        }
        (layers, faults)
    }
}

/// The settings of `upper` over the defaults, and all values with their origins.
pub(super) fn settings_of(
    upper: Figment,
    usual_state: &Path,
    machine: &Machine,
) -> Result<(Settings, Figment), ConfigError> {
    let state = match upper.find_value("state") {
        Ok(value) => value.as_str().map_or_else(|| usual_state.to_owned(), PathBuf::from),
        Err(_) => usual_state.to_owned(),
    };
    let state = std::path::absolute(&state).unwrap_or(state);
    let figment = Figment::from(Defaults(Settings::defaults(&state, machine))).merge(upper);
    let figment = complete_cluster(complete_namespaces(figment, &state));
    let mut settings: Settings = figment.extract_lossy().map_err(|error| explain(error, &figment))?;
    settings.state = state;
    Ok((settings, figment))
}

/// Rejects a file that holds a secret and that other users can read.
fn keep_secrets(path: &Path, layer: &Layer) -> Result<(), ConfigError> {
    let mut names = Vec::new();
    flatten("", &layer.dict, &Figment::new(), &mut names);
    let Some(ShownSetting { key, .. }) = names.into_iter().find(|shown| is_secret(&shown.key)) else { return Ok(()) };
    let metadata = path.metadata().map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
    let mode = std::os::unix::fs::PermissionsExt::mode(&metadata.permissions());
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let why = format!("{0} holds it and is open to other users; run `chmod 600 {0}`", path.display());
    Err(ConfigError::Rule { key, why })
}

/// Adds defaults to the table `cluster`, if there is one.
fn complete_cluster(figment: Figment) -> Figment {
    if figment.find_value("cluster").ok().and_then(Value::into_dict).is_none() {
        return figment;
    }
    let usual = Value::serialize(ClusterSettings::default()).ok().and_then(Value::into_dict).unwrap_or_default();
    let dict = Dict::from([("cluster".to_owned(), Value::from(usual))]);
    figment.join(&Layer { metadata: Metadata::named("default"), dict })
}

/// Adds to each namespace's own store the values that it does not name: the node's if the store is of the same kind,
/// else the defaults. A store with an account of its own takes no part of the node's account, so no secret of the node
/// is sent to another service.
fn complete_namespaces(figment: Figment, state: &Path) -> Figment {
    let dict_of = |value: Option<Value>| value.and_then(Value::into_dict).unwrap_or_default();
    let nodes = dict_of(figment.find_value("store").ok());
    let mut whole = figment.clone();
    for (name, settings) in dict_of(figment.find_value("namespaces").ok()) {
        let Some(own) = settings.into_dict().and_then(|mut dict| dict.remove("store")) else { continue };
        let own = dict_of(Some(own));
        let same_kind = own.get("kind").is_none_or(|kind| kind.as_str() == nodes.get("kind").and_then(Value::as_str));
        let mut base = if same_kind { nodes.clone() } else { store_defaults(&state.join(format!("objects-{name}"))) };
        if OTHER_ACCOUNT.iter().any(|key| own.contains_key(*key)) {
            for key in ACCOUNT {
                base.remove(key);
            }
        }
        let store = Dict::from([("store".to_owned(), Value::from(base))]);
        let namespace = Dict::from([(name, Value::from(store))]);
        let dict = Dict::from([("namespaces".to_owned(), Value::from(namespace))]);
        whole = whole.join(&Layer { metadata: Metadata::named("the node's store"), dict });
    }
    whole
}

fn store_defaults(path: &Path) -> Dict {
    Value::serialize(StoreSettings::directory(path)).ok().and_then(Value::into_dict).unwrap_or_default()
}

/// One layer: the values of one origin.
pub(super) struct Layer {
    metadata: Metadata,
    dict: Dict,
}

impl Layer {
    /// The settings in a file of TOML.
    fn of_file(path: &Path) -> Result<Self, ConfigError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| ConfigError::File { path: path.to_owned(), source })?;
        // Read here, because figment's message for a file that it cannot read names no reason.
        let mut dict: Dict = Toml::from_str(&text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            why: error.to_string().trim_end().to_owned(),
        })?;
        dict.remove(FUNCTION_TABLE);
        rename(&mut dict);
        Ok(Self { metadata: Metadata::named(path.display().to_string()), dict })
    }

    /// Each value of this layer as a layer of its own.
    pub(super) fn leaves(&self) -> Vec<Self> {
        let mut leaves = Vec::new();
        self.add_leaves(&self.dict, &mut Vec::new(), &mut leaves);
        leaves
    }

    fn add_leaves(&self, dict: &Dict, path: &mut Vec<String>, leaves: &mut Vec<Self>) {
        for (name, value) in dict {
            path.push(name.clone());
            match value {
                Value::Dict(_, inner) if !inner.is_empty() => self.add_leaves(inner, path, leaves),
                _ => {
                    let nested = path
                        .iter()
                        .rev()
                        .fold(value.clone(), |inner, part| Value::from(Dict::from([(part.clone(), inner)])));
                    let dict = nested.into_dict().unwrap_or_default();
                    leaves.push(Self { metadata: self.metadata.clone(), dict });
                }
            }
            path.pop();
        }
    }

    fn single(origin: String, key: &str, value: &str) -> Self {
        let nested =
            key.rsplit('.').fold(Value::from(value), |inner, part| Value::from(Dict::from([(part.to_owned(), inner)])));
        let mut dict = nested.into_dict().unwrap_or_default();
        rename(&mut dict);
        Self { metadata: Metadata::named(origin), dict }
    }
}

/// Gives settings with a former name their present one, unless that is there too.
fn rename(dict: &mut Dict) {
    for (former, present) in RENAMED {
        if let Some(value) = dict.remove(former) {
            dict.entry(present.to_owned()).or_insert(value);
        }
    }
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        self.metadata.clone()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Ok(Map::from([(Profile::Default, self.dict.clone())]))
    }
}

struct Defaults(Settings);

impl Provider for Defaults {
    fn metadata(&self) -> Metadata {
        Metadata::named("default")
    }

    fn data(&self) -> Result<Map<Profile, Dict>, figment::Error> {
        Serialized::defaults(&self.0).data()
    }
}

#[cfg(test)]
mod tests;
