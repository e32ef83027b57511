//! All that is wrong with the settings, for `nigh config check`. Whoever starts a node is told the first fault only.
//!
//! Each value of each layer is tried alone, over the defaults. The rules about several settings are checked with the
//! values that are right alone.

use figment::Figment;

use super::error::ConfigError;
use super::layers::{Layers, settings_of};
use crate::machine::Machine;

impl Layers {
    /// Everything that is wrong, the weakest layer first; empty if the settings can be used.
    #[must_use]
    pub fn faults(&self, machine: &Machine) -> Vec<ConfigError> {
        let found = self.state_without_file().and_then(|state| Ok((self.find_file(&state)?, state)));
        let (file, state) = match found {
            Ok(found) => found,
            Err(fault) => return vec![fault],
        };
        let (layers, mut faults) = self.sources(file.as_deref());
        let mut right = Figment::new();
        for leaf in layers.iter().flat_map(|layer| layer.leaves()) {
            match settings_of(Figment::new().merge(&leaf), &state, machine) {
                Ok(_) => right = right.merge(&leaf),
                Err(fault) => faults.push(fault),
            }
        }
        match settings_of(right, &state, machine) {
            Ok((settings, _)) => faults.extend(settings.faults()),
            Err(fault) => faults.push(fault),
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use nigh_terms::ByteSize;

    use super::*;
    use crate::config::Flag;

    fn faults(file: &str, variables: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("nigh.toml");
        std::fs::write(&path, file).unwrap();
        let machine = Machine { hostname: "n1".to_owned(), memory: ByteSize::gib(8), cpus: 2 };
        let environment = [("NIGH_STATE", "/s")].iter().chain(variables);
        let flag = |(key, value): &(&str, &str)| Flag {
            key: (*key).to_owned(),
            value: (*value).to_owned(),
            flag: format!("--set {key}"),
        };
        let layers = Layers {
            file: Some(path),
            environment: environment.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            flags: flags.iter().map(flag).collect(),
        };
        let faults = layers.faults(&machine);
        assert_eq!(
            faults.is_empty(),
            layers.resolve(&machine).is_ok(),
            "a node starts if nothing is wrong, and only then"
        );
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_faults_of_all_layers_are_told_each_with_its_origin() {
        let file = "[functions]\nkeep_alive = 60\nsandboxes_max = \"many\"\nmemroy = \"1 GiB\"\n[nothing]\n";
        let found =
            faults(file, &[("NIGH_LOG__FORMAT", "xml"), ("NIGH_PYTHON", "python3")], &[("cache.bytes", "much")]);
        for (part, other) in [
            ("functions.keep_alive", "write \"60 s\""),
            ("functions.sandboxes_max", "nigh.toml"),
            ("functions.memroy", "did you mean memory?"),
            ("setting nothing", "nigh.toml"),
            ("log.format", "variable NIGH_LOG__FORMAT"),
            ("variable NIGH_PYTHON", "did you mean functions.python (variable NIGH_FUNCTIONS__PYTHON)?"),
            ("flag --set cache.bytes", "MiB"),
        ] {
            assert!(found.iter().any(|fault| fault.contains(part) && fault.contains(other)), "{part}: {found:#?}");
        }
        assert_eq!(found.len(), 7, "{found:#?}");
    }

    #[test]
    fn broken_rules_are_all_told_beside_wrong_values() {
        let found = faults(
            "[events]\nrunning_max = 0\n[workflows]\nrunning_max = 0\n[store]\nkind = \"s3\"\n",
            &[],
            &[("functions.keep_alive", "long"), ("s3.listen", "0.0.0.0:1")],
        );
        for key in ["keep_alive", "s3.listen", "events.running_max", "workflows.running_max", "store.endpoint"] {
            assert_eq!(found.iter().filter(|fault| fault.contains(key)).count(), 1, "{key}: {found:#?}");
        }
    }

    #[test]
    fn settings_that_can_be_used_have_no_fault_and_a_broken_file_has_one() {
        assert!(faults("region = \"eu-west-3\"\n[cache]\nbytes = \"64 MiB\"\n", &[], &[]).is_empty());
        let broken = faults("[functions\n", &[], &[]);
        assert_eq!(broken.len(), 1, "{broken:?}");
        assert!(broken[0].contains("is not TOML:\n") && broken[0].contains("line 1"), "{broken:?}");
    }
}
