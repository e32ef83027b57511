//! The parts of a node that take over settings while it runs: how long it drains, room for uploads, limits and shares of
//! namespaces, traces; and those whose files are read or opened again: certificates, keys, the audit trail.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nigh_dispatch::Dispatcher;
use nigh_invoke::invoker::Invoker;
use nigh_objects::ObjectMemory;
use nigh_openwhisk::OpenWhiskDoor;
use nigh_terms::Namespace;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::doors::whisk_limits;
use super::invocations::Invocations;
use crate::audit::AuditLog;
use crate::config::Settings;
use crate::door_certificates::DoorCertificates;
use crate::reload::{Apply, Reload, ReloadParts};
use crate::tenancy::Tenancy;
use crate::traces::Traces;

/// A namespace without a share of its own.
const SHARE: u32 = 1;

/// How long a node takes to end.
#[derive(Debug)]
pub(super) struct DrainTimes(Mutex<(Duration, Duration)>);

impl DrainTimes {
    pub(super) fn new(settings: &Settings) -> Self {
        Self(Mutex::new((settings.drain_delay.duration(), settings.drain.duration())))
    }

    /// How long the doors stay open, and how long requests and invocations then have to finish.
    pub(super) fn now(&self) -> (Duration, Duration) {
        *self.0.lock()
    }
}

/// `DrainTimes` of a running node.
struct DrainPart(Arc<DrainTimes>);

impl Reload for DrainPart {
    fn name(&self) -> &'static str {
        "drain"
    }

    fn takes(&self, setting: &str) -> bool {
        matches!(setting, "drain" | "drain_delay")
    }

    fn check(&self, new: &Settings) -> Result<Apply, String> {
        let (times, new) = (Arc::clone(&self.0), (new.drain_delay.duration(), new.drain.duration()));
        Ok(Box::new(move || {
            *times.0.lock() = new;
            false
        }))
    }
}

/// The room of unfinished uploads.
struct UploadRoom(ObjectMemory);

impl Reload for UploadRoom {
    fn name(&self) -> &'static str {
        "room for uploads"
    }

    fn takes(&self, setting: &str) -> bool {
        setting == "s3.uploads_bytes"
    }

    fn check(&self, new: &Settings) -> Result<Apply, String> {
        let (memory, room) = (self.0.clone(), new.s3.uploads_bytes());
        Ok(Box::new(move || {
            memory.limit_uploads(room);
            false
        }))
    }
}

/// The limits at OpenWhisk's API.
struct WhiskLimits(OpenWhiskDoor);

impl Reload for WhiskLimits {
    fn name(&self) -> &'static str {
        "limits of OpenWhisk"
    }

    fn takes(&self, setting: &str) -> bool {
        setting.starts_with("openwhisk.")
    }

    fn check(&self, new: &Settings) -> Result<Apply, String> {
        let (door, limits) = (self.0.clone(), whisk_limits(new));
        Ok(Box::new(move || {
            door.set_limits(limits);
            false
        }))
    }
}

/// The shares of namespaces where several wait for sandboxes.
struct NamespaceShares {
    invoker: Arc<Invoker>,
    dispatcher: Option<Dispatcher>,
    /// Those with a share of their own.
    own: Arc<Mutex<BTreeSet<Namespace>>>,
}

impl Reload for NamespaceShares {
    fn name(&self) -> &'static str {
        "shares of namespaces"
    }

    fn takes(&self, setting: &str) -> bool {
        setting.starts_with("namespaces.") && setting.ends_with(".share")
    }

    fn check(&self, new: &Settings) -> Result<Apply, String> {
        let shares: Vec<(Namespace, u32)> =
            new.namespaces.iter().filter_map(|(name, settings)| Some((name.clone(), settings.share?.get()))).collect();
        let (invoker, dispatcher, own) = (Arc::clone(&self.invoker), self.dispatcher.clone(), Arc::clone(&self.own));
        Ok(Box::new(move || {
            let set = |name: &Namespace, share| {
                invoker.set_share(name, share);
                if let Some(dispatcher) = &dispatcher {
                    dispatcher.set_share(name, share);
                }
            };
            let mut own = own.lock();
            own.iter().filter(|name| !shares.iter().any(|(new, _)| new == *name)).for_each(|name| set(name, SHARE));
            shares.iter().for_each(|(name, share)| set(name, *share));
            *own = shares.into_iter().map(|(name, _)| name).collect();
            false
        }))
    }
}

/// The keys of the registry, and the credentials file made of them.
struct Keys {
    tenancy: Arc<Tenancy>,
    runtime: Handle,
}

impl Reload for Keys {
    fn name(&self) -> &'static str {
        "keys"
    }

    fn takes(&self, _: &str) -> bool {
        false
    }

    fn check(&self, _: &Settings) -> Result<Apply, String> {
        let (tenancy, runtime) = (Arc::clone(&self.tenancy), self.runtime.clone());
        // A reload blocks, and so is called where the runtime permits it.
        runtime.block_on(tenancy.check_reload()).map_err(|error| error.to_string())?;
        Ok(Box::new(move || {
            runtime.block_on(tenancy.reload()).unwrap_or_else(|error| {
                tracing::error!(%error, "the keys cannot be read again; those that are known stay");
                false
            })
        }))
    }
}

/// The file of the audit trail.
struct AuditFile(Arc<AuditLog>);

impl Reload for AuditFile {
    fn name(&self) -> &'static str {
        "audit trail"
    }

    fn takes(&self, _: &str) -> bool {
        false
    }

    fn check(&self, _: &Settings) -> Result<Apply, String> {
        Ok(Box::new(|| false))
    }

    fn reopen(&self) {
        self.0.reopen();
    }
}

/// Which traces are recorded, and who takes them.
pub(super) struct TracePart(pub(super) Arc<Traces>);

impl Reload for TracePart {
    fn name(&self) -> &'static str {
        "traces"
    }

    fn takes(&self, setting: &str) -> bool {
        setting.starts_with("traces.")
    }

    fn check(&self, new: &Settings) -> Result<Apply, String> {
        self.0.check(&new.traces)?;
        let (traces, settings) = (Arc::clone(&self.0), new.traces.clone());
        Ok(Box::new(move || {
            if let Err(why) = traces.reload(&settings) {
                tracing::error!(why, "the collector of traces cannot be used; the one of before stays");
            }
            // The report shows the settings that have changed.
            false
        }))
    }
}

/// Adds the parts of a node whose files and documents may have another content than before.
pub(super) fn add_files(
    parts: &ReloadParts,
    certificates: &DoorCertificates,
    tenancy: &Arc<Tenancy>,
    audit: Option<&Arc<AuditLog>>,
) {
    parts.add(Arc::new(certificates.clone()));
    parts.add(Arc::new(Keys { tenancy: Arc::clone(tenancy), runtime: Handle::current() }));
    if let Some(audit) = audit {
        parts.add(Arc::new(AuditFile(Arc::clone(audit))));
    }
}

/// Adds these parts of a node that starts with `settings`.
pub(super) fn add(
    parts: &ReloadParts,
    settings: &Settings,
    times: &Arc<DrainTimes>,
    memory: &ObjectMemory,
    openwhisk: OpenWhiskDoor,
    invocations: &Invocations,
) {
    let own = settings.namespaces.iter().filter(|(_, own)| own.share.is_some()).map(|(name, _)| name.clone()).collect();
    parts.add(Arc::new(DrainPart(Arc::clone(times))));
    parts.add(Arc::new(UploadRoom(memory.clone())));
    parts.add(Arc::new(WhiskLimits(openwhisk)));
    parts.add(Arc::new(NamespaceShares {
        invoker: Arc::clone(&invocations.invoker),
        dispatcher: invocations.dispatcher.clone(),
        own: Arc::new(Mutex::new(own)),
    }));
}
