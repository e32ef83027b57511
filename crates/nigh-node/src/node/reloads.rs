//! The parts of a node that take over settings while it runs: how long it drains, room for uploads, limits and shares of
//! namespaces.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use nigh_dispatch::Dispatcher;
use nigh_invoke::invoker::Invoker;
use nigh_objects::ObjectMemory;
use nigh_openwhisk::OpenWhiskDoor;
use nigh_terms::Namespace;
use parking_lot::Mutex;

use super::doors::whisk_limits;
use super::invocations::Invocations;
use crate::config::Settings;
use crate::reload::{Apply, Reload, ReloadParts};

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
