//! The rules about several settings together.

use std::net::SocketAddr;

use nigh_objects::WriteMode;
use nigh_terms::{ByteSize, Namespace};
use tracing::level_filters::LevelFilter;

use super::places::Place;
use super::{ConfigError, Settings, StoreSettings};

/// The least that the records of one namespace may take: a single one may have some megabytes.
const RECORDS_BYTES_MIN: ByteSize = ByteSize::mib(16);

impl Settings {
    /// Checks the rules that concern more than one value.
    ///
    /// # Errors
    /// The first broken rule, and how to fix it.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// All broken rules that concern more than one value, each with the way to fix it.
    #[must_use]
    pub fn faults(&self) -> Vec<ConfigError> {
        let mut faults = self.own_faults();
        if let Some(cluster) = &self.cluster {
            let plain = self.plain_beyond_loopback(cluster.listen, !cluster.plain);
            faults.extend(plain.map(|why| ConfigError::rule("cluster.listen", why)));
            faults.extend(cluster.faults(self.cache.object_max));
        }
        faults.extend(self.tls.faults(self.admin.client_certificate));
        faults.extend(self.store.faults("store"));
        for (name, store) in self.own_stores() {
            faults.extend(store.faults(&format!("namespaces.{name}.store")));
        }
        faults.extend(self.traces.collector().err());
        faults.extend(self.check_shadows().err());
        faults.extend(self.check_places().err());
        faults
    }

    /// Why nothing may listen at `address`: only what has TLS is open to other machines, unless `allow_plain` says otherwise.
    fn plain_beyond_loopback(&self, address: SocketAddr, has_tls: bool) -> Option<String> {
        let is_permitted = address.ip().is_loopback() || has_tls || self.allow_plain;
        (!is_permitted).then(|| {
            format!(
                "{address} is beyond loopback, and without TLS; give the doors a certificate (tls.certificate, `nigh up --tls`; \
                 nodes: cluster.certificates), or set allow_plain = true to let everything be read on its way"
            )
        })
    }

    /// The broken rules that no table checks itself.
    fn own_faults(&self) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        let mut broken = |key: &str, why: String| faults.push(ConfigError::rule(key, why));
        let outside = self.outside.listen.map(|address| ("outside.listen", address));
        let doors = [
            ("s3.listen", self.s3.listen),
            ("lambda.listen", self.lambda.listen),
            ("admin.listen", self.admin_listen()),
            ("health.listen", self.health_listen()),
        ];
        for (key, address) in doors.into_iter().chain(outside) {
            if let Some(why) = self.plain_beyond_loopback(address, self.tls.certificate.is_some()) {
                broken(key, why);
            }
        }
        if self.cache.object_max > self.cache.bytes {
            broken("cache.object_max", format!("{} is more than cache.bytes", self.cache.object_max));
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
        for (key, _, why) in counts.iter().filter(|(_, count, _)| *count == 0) {
            broken(key, (*why).to_owned());
        }
        self.check_kept_bytes(&mut broken);
        if let Some(part) = self.log.level.split(',').map(str::trim).find(|part| !is_log_directive(part)) {
            let why = format!(
                "{part:?} has no level; write off, error, warn, info, debug or trace, or levels by module: \
                 info,nigh_node=debug"
            );
            broken("log.level", why);
        }
        let functions = &self.functions;
        let is_name = |module: &String| {
            module.split('.').all(|part| !part.is_empty() && part.chars().all(|c| c == '_' || c.is_alphanumeric()))
        };
        if let Some(module) = functions.prewarm_imports.0.iter().find(|module| !is_name(module)) {
            broken("functions.prewarm_imports", format!("{module:?} is no name of a module"));
        }
        if self.memory.slack_min > self.memory.slack_max {
            broken("memory.slack_min", format!("{} is more than memory.slack_max", self.memory.slack_min));
        }
        // One unpushed object may be as large as a cached object can be.
        if self.writes.journal_max.bytes() / 4 < self.cache.object_max.bytes() {
            let why = format!("{} is less than four times cache.object_max", self.writes.journal_max);
            broken("writes.journal_max", why);
        }
        faults
    }

    /// Rejects limits in bytes that leave no room for what they bound.
    fn check_kept_bytes(&self, broken: &mut impl FnMut(&str, String)) {
        let (all, own) = (self.activations.bytes_max, self.activations.namespace_bytes);
        if own < RECORDS_BYTES_MIN {
            broken("activations.namespace_bytes", format!("{own} is less than {RECORDS_BYTES_MIN}"));
        }
        if own > all {
            broken("activations.namespace_bytes", format!("{own} is more than activations.bytes_max, {all}"));
        }
        let (uploads, object) = (self.s3.uploads_bytes(), self.s3.object_max);
        if uploads < object {
            let why = format!(
                "{uploads} is less than s3.object_max, {object}: such an object could not be uploaded in parts"
            );
            broken("s3.uploads_bytes", why);
        }
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

/// Whether a part of a log filter says a level: alone, or of a module (`nigh_node=debug`). A word alone that is no level would
/// be taken for a module, and all other lines would be dropped.
fn is_log_directive(part: &str) -> bool {
    // A filter by spans has its own syntax, which is checked when the log is set up.
    let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
    part.contains(['[', ']', '{', '}']) || level.parse::<LevelFilter>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::machine::Machine;

    fn said(change: impl FnOnce(&mut Settings)) -> String {
        let machine = Machine { hostname: "n1".to_owned(), memory: ByteSize::gib(8), cpus: 2 };
        let mut settings = Settings::defaults(Path::new("/s"), &machine);
        change(&mut settings);
        settings.check().map_or_else(|error| error.to_string(), |()| "right".to_owned())
    }

    #[test]
    fn a_log_level_that_is_none_is_refused_with_those_that_there_are() {
        let level = |level: &str| said(|settings| settings.log.level = level.to_owned());
        for right in [
            "info",
            "WARN",
            "off",
            "3",
            "",
            "info,nigh_node=debug",
            "warn, s3s=off",
            "info,nigh_s3[request{key=k}]=trace",
        ] {
            assert_eq!(level(right), "right", "{right}");
        }
        for wrong in ["loud", "info,loud", "nigh_node", "6", "info,nigh_node=loud"] {
            let said = level(wrong);
            assert!(
                said.starts_with("setting log.level: ") && said.contains("off, error, warn, info"),
                "{wrong}: {said}"
            );
        }
        assert!(level("info,loud").contains("\"loud\" has no level"));
    }

    #[test]
    fn the_admin_api_has_its_port_and_a_free_one_where_the_s3_door_has_one() {
        let at = |change: fn(&mut Settings)| {
            let machine = Machine { hostname: "n1".to_owned(), memory: ByteSize::gib(8), cpus: 2 };
            let mut settings = Settings::defaults(Path::new("/s"), &machine);
            change(&mut settings);
            settings.admin_listen().to_string()
        };
        assert_eq!(at(|_| {}), "127.0.0.1:9403");
        assert_eq!(at(|settings| settings.s3.listen.set_port(0)), "127.0.0.1:0");
        assert_eq!(at(|settings| settings.admin.listen = "127.0.0.1:80".parse().ok()), "127.0.0.1:80");
        assert!(said(|settings| settings.admin.listen = "0.0.0.0:1".parse().ok()).contains("allow_plain"));
    }

    #[test]
    fn what_is_open_to_other_machines_has_tls_or_is_permitted_to_be_plain() {
        let open = |change: fn(&mut Settings)| {
            said(|settings| {
                settings.s3.listen = "0.0.0.0:1".parse().unwrap();
                change(settings);
            })
        };
        assert!(open(|_| {}).starts_with("setting s3.listen: ") && open(|_| {}).contains("allow_plain = true"));
        assert_eq!(open(|settings| settings.allow_plain = true), "right");
        let with_tls = |settings: &mut Settings| {
            (settings.tls.certificate, settings.tls.key) = (Some("/c".into()), Some("/k".into()));
        };
        assert_eq!(open(with_tls), "right");
        // Each door, whichever it is.
        type Listen = fn(&mut Settings, SocketAddr);
        let doors: [(&str, Listen); 4] = [
            ("lambda.listen", |settings, at| settings.lambda.listen = at),
            ("admin.listen", |settings, at| settings.admin.listen = Some(at)),
            ("health.listen", |settings, at| settings.health.listen = Some(at)),
            ("outside.listen", |settings, at| settings.outside.listen = Some(at)),
        ];
        for (key, listen) in doors {
            let refused = said(|settings| listen(settings, "0.0.0.0:1".parse().unwrap()));
            assert!(refused.starts_with(&format!("setting {key}: ")), "{refused}");
        }
    }

    #[test]
    fn limits_in_bytes_have_room_for_what_they_bound() {
        let records = |all, own| {
            said(|settings| (settings.activations.bytes_max, settings.activations.namespace_bytes) = (all, own))
        };
        assert_eq!(records(ByteSize::mib(16), ByteSize::mib(16)), "right");
        assert!(records(ByteSize::gib(1), ByteSize::mib(15)).contains("namespace_bytes: 15 MiB is less than 16 MiB"));
        assert!(records(ByteSize::mib(64), ByteSize::mib(65)).contains("more than activations.bytes_max, 64 MiB"));
        let uploads =
            |object, uploads| said(|settings| (settings.s3.object_max, settings.s3.uploads_bytes) = (object, uploads));
        assert_eq!(uploads(ByteSize::gib(100), None), "right");
        assert_eq!(uploads(ByteSize::gib(5), Some(ByteSize::gib(5))), "right");
        assert!(uploads(ByteSize::gib(5), Some(ByteSize::gib(4))).contains("s3.uploads_bytes: 4 GiB is less than"));
    }
}
