//! Access keys and what each may do now: the only place that turns a request into a `Principal`.
//!
//! A namespace's keys are in the registry; `changes` creates, limits and removes them, and each request is checked against
//! its key's scope and its namespace's quota here. A sandbox's key is in memory, ends with the sandbox, and is rejected
//! while the sandbox runs no invocation. The calls of an invocation are counted while they are under way, so that the
//! invocation's end can wait for calls that may still have an effect.

mod calls;
mod changes;
mod denied;
mod description;
mod document;
mod reading;
mod uses;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_recursion::async_recursion as boxed;
use nigh_terms::{
    AccessKeyId, AdminRole, Admission, Clock, FunctionName, InvocationId, Namespace, Principal, SandboxId, SecretKey,
    SystemClock,
};
use parking_lot::RwLock;

pub use self::calls::CallGuard;
use self::calls::Calls;
pub use self::changes::KeyError;
pub use self::denied::AccessDenied;
pub use self::description::{Action, KeyDescription, KeyScope};
pub use self::uses::KEY_USES_WRITTEN_EVERY;
use crate::namespaces::Namespaces;

/// The holder of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Holder {
    /// A client of a namespace.
    Client(Arc<KeyDescription>),
    /// A sandbox of one function.
    Sandbox {
        /// The sandbox's namespace.
        namespace: Namespace,
        /// The sandbox's function.
        function: FunctionName,
        /// The id of the sandbox.
        sandbox: SandboxId,
    },
}

#[derive(Debug)]
struct Entry {
    secret: SecretKey,
    holder: Holder,
    invocation: Option<InvocationId>,
    admission: Admission,
    /// The calls of the current invocation, or of the last one.
    calls: Calls,
    /// When a client's key was last used here, in milliseconds since 1970; zero: never.
    used: AtomicU64,
    /// The last use that is in the registry.
    used_written: AtomicU64,
}

impl Entry {
    fn new(secret: SecretKey, holder: Holder) -> Self {
        Self {
            secret,
            holder,
            invocation: None,
            admission: Admission::Always,
            calls: Calls::default(),
            used: AtomicU64::new(0),
            used_written: AtomicU64::new(0),
        }
    }

    /// The description of a client's key.
    fn client(&self) -> Option<&Arc<KeyDescription>> {
        match &self.holder {
            Holder::Client(key) => Some(key),
            Holder::Sandbox { .. } => None,
        }
    }
}

/// The registry's table of the namespaces' keys, secrets included.
pub const ACCESS_KEYS_TABLE: &str = "access-keys";

struct Shared {
    entries: RwLock<HashMap<AccessKeyId, Entry>>,
    namespaces: Namespaces,
    clock: Arc<dyn Clock>,
}

/// All keys of a node, and the quotas of the namespaces for which they act. A clone is another handle to them.
#[derive(Clone)]
pub struct AccessKeys {
    shared: Arc<Shared>,
}

impl fmt::Debug for AccessKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKeys").field("entries", &self.shared.entries).finish_non_exhaustive()
    }
}

impl Default for AccessKeys {
    fn default() -> Self {
        Self::new(Namespaces::default(), Arc::new(SystemClock::new()))
    }
}

impl AccessKeys {
    fn new(namespaces: Namespaces, clock: Arc<dyn Clock>) -> Self {
        Self { shared: Arc::new(Shared { entries: RwLock::default(), namespaces, clock }) }
    }

    /// The namespaces' quotas.
    #[must_use]
    pub fn namespaces(&self) -> &Namespaces {
        &self.shared.namespaces
    }

    /// Creates a key for one sandbox, which may do nothing until an invocation begins.
    #[must_use]
    pub fn issue_sandbox(
        &self,
        namespace: Namespace,
        function: FunctionName,
        sandbox: SandboxId,
    ) -> (AccessKeyId, SecretKey) {
        let (id, secret) = (AccessKeyId::random(), SecretKey::random());
        self.insert(id.clone(), secret.clone(), Holder::Sandbox { namespace, function, sandbox });
        (id, secret)
    }

    /// Lets the sandbox's key act for `invocation`; with `None` the key is rejected. Cancels the calls of an earlier
    /// invocation; `settled` waits for their end.
    pub fn set_invocation(&self, id: &AccessKeyId, invocation: Option<InvocationId>) {
        let earlier = {
            let mut entries = self.shared.entries.write();
            let Some(entry) = entries.get_mut(id) else { return };
            entry.invocation = invocation;
            // The calls of the last invocation stay, because `settled` may wait for them.
            if invocation.is_some() { std::mem::take(&mut entry.calls) } else { entry.calls.clone() }
        };
        // Outside the lock, because this wakes waiting tasks.
        earlier.end();
    }

    /// Sets whether objects that the sandbox reads from now on are cached. By default they are.
    pub fn set_admission(&self, id: &AccessKeyId, admission: Admission) {
        if let Some(entry) = self.shared.entries.write().get_mut(id) {
            entry.admission = admission;
        }
    }

    /// Returns when no call of the sandbox's last invocation is under way, or at once if the key is unknown. Call it when the
    /// invocation has ended.
    #[boxed]
    pub async fn settled(&self, id: &AccessKeyId) {
        let calls = self.shared.entries.read().get(id).map(|entry| entry.calls.under_way.clone());
        if let Some(under_way) = calls {
            under_way.wait().await;
        }
    }

    /// Removes the key at once, and cancels its calls.
    pub fn revoke(&self, id: &AccessKeyId) {
        let gone = self.shared.entries.write().remove(id);
        if let Some(entry) = gone {
            entry.calls.end();
        }
    }

    /// The secret that `id` signs with.
    #[must_use]
    pub fn secret(&self, id: &AccessKeyId) -> Option<SecretKey> {
        self.shared.entries.read().get(id).map(|entry| entry.secret.clone())
    }

    /// The secret that `id` signs with, if it is a client's key, no sandbox's, and neither disabled nor expired.
    #[must_use]
    pub fn client_secret(&self, id: &AccessKeyId) -> Option<SecretKey> {
        let entries = self.shared.entries.read();
        let entry = entries.get(id)?;
        entry.client()?.check_use(id, || self.shared.clock.wall()).ok()?;
        Some(entry.secret.clone())
    }

    /// What the client's key `access_key` may do at the admin API; none if `secret` is not its secret, or it may do
    /// nothing there.
    #[must_use]
    pub fn admin_role(&self, access_key: &str, secret: &SecretKey) -> Option<AdminRole> {
        let id = AccessKeyId::new(access_key);
        let known = self.client_secret(&id)?;
        if !known.equals(secret) {
            return None;
        }
        let entries = self.shared.entries.read();
        let entry = entries.get(&id)?;
        let role = entry.client()?.role?;
        entry.used.store(self.shared.clock.wall().millis(), Ordering::Relaxed);
        Some(role)
    }

    /// A client's key; none if there is no such key, or it is a sandbox's.
    #[must_use]
    pub fn describe(&self, id: &AccessKeyId) -> Option<KeyDescription> {
        self.shared.entries.read().get(id)?.client().map(|key| KeyDescription::clone(key))
    }

    /// All clients' keys, by id.
    #[must_use]
    pub fn clients(&self) -> Vec<(AccessKeyId, KeyDescription)> {
        let entries = self.shared.entries.read();
        let clients = entries.iter().filter_map(|(id, entry)| Some((id.clone(), entry.client()?)));
        let mut clients: Vec<_> = clients.map(|(id, key)| (id, KeyDescription::clone(key))).collect();
        clients.sort_by(|a, b| a.0.cmp(&b.0));
        clients
    }

    /// The keys of `namespace`'s clients, by id.
    #[must_use]
    pub fn of_namespace(&self, namespace: &Namespace) -> Vec<AccessKeyId> {
        let entries = self.shared.entries.read();
        let mut ids: Vec<_> = entries
            .iter()
            .filter(|(_, entry)| entry.client().is_some_and(|key| key.namespace == *namespace))
            .map(|(id, _)| id.clone())
            .collect();
        ids.sort();
        ids
    }

    /// The principal of a request that is signed with `id`.
    ///
    /// # Errors
    /// If the key is unknown, disabled or expired, or its sandbox runs no invocation.
    pub fn principal(&self, id: &AccessKeyId) -> Result<Principal, AccessDenied> {
        let entries = self.shared.entries.read();
        self.principal_of(id, entries.get(id))
    }

    /// The principal of a request that is signed with `id` and is about to do `action`. The request is not counted yet:
    /// its signature may be wrong.
    ///
    /// # Errors
    /// The same as for `principal`, or if the key's scope does not have the action.
    pub fn authorize(&self, id: &AccessKeyId, action: Action<'_>) -> Result<Principal, AccessDenied> {
        let entries = self.shared.entries.read();
        let entry = entries.get(id);
        let who = self.principal_of(id, entry)?;
        check_scope(id, entry, action)?;
        Ok(who)
    }

    /// Accepts a request whose signature was checked and that is about to do `action`: counts it against the quota of its
    /// namespace and as a use of its key. The call counts as in progress until the guard is dropped.
    ///
    /// # Errors
    /// The same as for `authorize`, or if the namespace uses all that it may use.
    pub fn admit(&self, id: &AccessKeyId, action: Action<'_>) -> Result<(Principal, CallGuard), AccessDenied> {
        // Under the lock: either `set_invocation` sees the call, or the call sees the new invocation.
        let entries = self.shared.entries.read();
        let entry = entries.get(id);
        let who = self.principal_of(id, entry)?;
        check_scope(id, entry, action)?;
        let Shared { namespaces, clock, .. } = &*self.shared;
        if let Some(entry) = entry.filter(|entry| entry.client().is_some()) {
            entry.used.store(clock.wall().millis(), Ordering::Relaxed);
            namespaces.take_request(&who.namespace, || clock.monotonic())?;
        }
        if let Action::Store { bytes, .. } = action {
            namespaces.store(&who.namespace, bytes)?;
        }
        let guard = guard(&who, entry);
        Ok((who, guard))
    }

    /// The principal of a request that is signed with `id` and may have an effect. The call counts as in progress until
    /// the guard is dropped.
    ///
    /// # Errors
    /// The same as for `principal`.
    pub fn enter(&self, id: &AccessKeyId) -> Result<(Principal, CallGuard), AccessDenied> {
        // Under the lock: either `set_invocation` sees the call, or the call sees the new invocation.
        let entries = self.shared.entries.read();
        let entry = entries.get(id);
        let who = self.principal_of(id, entry)?;
        let guard = guard(&who, entry);
        Ok((who, guard))
    }

    fn principal_of(&self, id: &AccessKeyId, entry: Option<&Entry>) -> Result<Principal, AccessDenied> {
        let entry = entry.ok_or_else(|| AccessDenied::UnknownKey(id.clone()))?;
        match (&entry.holder, entry.invocation) {
            (Holder::Client(key), _) => {
                key.check_use(id, || self.shared.clock.wall())?;
                Ok(Principal::outside(key.namespace.clone()))
            }
            (Holder::Sandbox { sandbox, .. }, None) => Err(AccessDenied::BetweenInvocations(*sandbox)),
            (Holder::Sandbox { namespace, function, sandbox }, Some(invocation)) => {
                let inside = Principal::inside(namespace.clone(), function.clone(), *sandbox, invocation);
                Ok(Principal { admission: entry.admission, ..inside })
            }
        }
    }

    fn insert(&self, id: AccessKeyId, secret: SecretKey, holder: Holder) {
        self.shared.entries.write().insert(id, Entry::new(secret, holder));
    }

    /// Takes over a client's key as the registry has it. A secret never changes.
    fn learn(&self, id: AccessKeyId, secret: SecretKey, key: KeyDescription) {
        let mut entries = self.shared.entries.write();
        let holder = Holder::Client(Arc::new(key));
        match entries.get_mut(&id) {
            Some(entry) => entry.holder = holder,
            None => drop(entries.insert(id, Entry::new(secret, holder))),
        }
    }
}

/// Refuses a client's key whose scope does not have `action`.
fn check_scope(id: &AccessKeyId, entry: Option<&Entry>, action: Action<'_>) -> Result<(), AccessDenied> {
    match entry.and_then(Entry::client) {
        Some(key) if !key.scope.allows(action) => {
            Err(AccessDenied::OutOfScope { key: id.clone(), action: action.to_string() })
        }
        _ => Ok(()),
    }
}

/// Counts a call of `who` until the guard is dropped; only calls of invocations are counted.
fn guard(who: &Principal, entry: Option<&Entry>) -> CallGuard {
    let entry = entry.filter(|_| who.invocation.is_some());
    CallGuard(entry.map(|entry| (entry.calls.ended.clone(), entry.calls.under_way.token())))
}

#[cfg(test)]
mod tests;
