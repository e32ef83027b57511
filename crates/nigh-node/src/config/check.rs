//! The rules about several settings together.

use nigh_objects::WriteMode;
use nigh_terms::Namespace;

use super::places::Place;
use super::{ConfigError, Settings, StoreSettings};

impl Settings {
    /// Checks the rules that concern more than one value.
    ///
    /// # Errors
    /// The first broken rule, and how to fix it.
    pub fn check(&self) -> Result<(), ConfigError> {
        let broken = |key: &str, why: String| Err(ConfigError::rule(key, why));
        let outside = self.outside.listen.map(|address| ("outside.listen", address));
        let doors = [("s3.listen", self.s3.listen), ("lambda.listen", self.lambda.listen)];
        for (key, address) in doors.into_iter().chain(outside) {
            if !address.ip().is_loopback() && !self.allow_remote {
                return broken(key, format!("{address} is beyond loopback; set allow_remote = true to permit that"));
            }
        }
        if self.cache.object_max > self.cache.bytes {
            return broken("cache.object_max", format!("{} is more than cache.bytes", self.cache.object_max));
        }
        let counts = [
            ("functions.sandboxes_max", self.functions.sandboxes_max as u64, "at least one sandbox is needed"),
            ("s3.connections_max", self.s3.connections_max as u64, "at least one connection is needed"),
            ("events.running_max", self.events.running_max as u64, "at least one event must be allowed to run"),
            (
                "workflows.running_max",
                self.workflows.running_max as u64,
                "at least one execution must be allowed to run",
            ),
            ("activations.records_max", self.activations.records_max, "at least one record is needed"),
            ("writes.pushes_max", self.writes.pushes_max as u64, "at least one push must be allowed at a time"),
        ];
        if let Some((key, _, why)) = counts.iter().find(|(_, count, _)| *count == 0) {
            return broken(key, (*why).to_owned());
        }
        let functions = &self.functions;
        let is_name = |module: &String| {
            module.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric()))
        };
        if let Some(module) = functions.prewarm_imports.0.iter().find(|module| !is_name(module)) {
            return broken("functions.prewarm_imports", format!("{module:?} is no name of a module"));
        }
        if self.memory.slack_min > self.memory.slack_max {
            return broken("memory.slack_min", format!("{} is more than memory.slack_max", self.memory.slack_min));
        }
        // One unpushed object may be as large as a cached object can be.
        if self.writes.journal_max.bytes() / 4 < self.cache.object_max.bytes() {
            let why = format!("{} is less than four times cache.object_max", self.writes.journal_max);
            return broken("writes.journal_max", why);
        }
        if let Some(cluster) = &self.cluster {
            cluster.check(self.allow_remote, self.cache.object_max)?;
        }
        self.store.check("store")?;
        for (name, store) in self.own_stores() {
            store.check(&format!("namespaces.{name}.store"))?;
        }
        self.check_shadows()?;
        self.check_places()
    }

    /// Rejects write mode `shadow` if the store cannot show placeholders, or cannot notify this node of outside writes.
    fn check_shadows(&self) -> Result<(), ConfigError> {
        let broken = |key: String, why: &str| Err(ConfigError::rule(&key, why.to_owned()));
        let own = self.own_stores().map(|(name, store)| (format!("namespaces.{name}.store"), store));
        for (section, store) in std::iter::once(("store".to_owned(), &self.store)).chain(own) {
            if store.shadow_secret_file.is_some() && self.outside.listen.is_none() {
                let why =
                    "Swift's middleware tells this node of outside writes: set outside.listen, and the address there";
                return broken(format!("{section}.shadow_secret_file"), why);
            }
        }
        let why =
            "the mode shadow needs Swift with Nigh's middleware: kind = \"swift\" and shadow_secret_file in its store";
        let of = |name: &Namespace| self.namespaces.get(name).and_then(|own| own.store.as_ref()).unwrap_or(&self.store);
        if self.writes.mode == WriteMode::Shadow && of(&self.namespace).shadow_secret_file.is_none() {
            return broken("writes.mode".to_owned(), why);
        }
        for (name, own) in &self.namespaces {
            if own.write_mode.unwrap_or(self.writes.mode) == WriteMode::Shadow && of(name).shadow_secret_file.is_none()
            {
                return broken(format!("namespaces.{name}.write_mode"), why);
            }
        }
        Ok(())
    }

    /// The namespaces with a store of their own.
    pub fn own_stores(&self) -> impl Iterator<Item = (&Namespace, &StoreSettings)> {
        self.namespaces.iter().filter_map(|(name, own)| Some((name, own.store.as_ref()?)))
    }

    /// Rejects namespaces that could reach each other's buckets. Several may use one directory, because it is one
    /// store, which separates them.
    fn check_places(&self) -> Result<(), ConfigError> {
        let own: Vec<_> = self.own_stores().map(|(name, store)| (name.as_str(), Place::of(store))).collect();
        let nodes = ("the node's own store", Place::of(&self.store));
        for (at, (name, place)) in own.iter().enumerate() {
            let mut others = own[..at].iter().chain([&nodes]);
            let shared = |other: &Place| matches!(other, Place::Folder(_)) && place == other;
            if let Some((other, _)) = others.find(|(_, other)| place.meets(other) && !shared(other)) {
                let key = format!("namespaces.{name}.store");
                let why = format!(
                    "its buckets could be the same as those of {other}; give each a bucket_prefix that is no beginning of \
                     the other, another account, or another folder"
                );
                return Err(ConfigError::rule(&key, why));
            }
        }
        Ok(())
    }
}
