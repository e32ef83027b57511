//! Replaced code: it stays while an invocation may still run it, and counts against the limit until it is removed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use nigh_terms::{ByteSize, Monotonic, Namespace};

use super::{DeployedFunction, FunctionStoreState, blocking};
use crate::code_store::CodeVersion;

/// How long replaced code stays: the longest timeout (900 s), and time to start and to end.
pub(super) const RETIRED_CODE_KEPT: Duration = Duration::from_secs(20 * 60);

/// A version that no function has any more.
pub(super) struct RetiredCode {
    pub(super) version: CodeVersion,
    size: ByteSize,
    since: Monotonic,
}

impl FunctionStoreState {
    pub(super) fn retire_code_of(&self, replaced: &DeployedFunction) {
        let size = replaced.function.code_size + replaced.unpacked;
        self.retire(CodeVersion::of_function(&replaced.function), size);
    }

    pub(super) fn retire(&self, version: CodeVersion, size: ByteSize) {
        self.retired.lock().push(RetiredCode { version, size, since: self.clock.monotonic() });
    }

    pub(super) fn code_in_use(&self, namespace: &Namespace) -> ByteSize {
        let retired: ByteSize =
            self.retired.lock().iter().filter(|r| &r.version.namespace == namespace).map(|r| r.size).sum();
        let index = self.index.read();
        let live = index.get(namespace).into_iter().flatten();
        retired + live.map(|(_, deployed)| deployed.function.code_size + deployed.unpacked).sum()
    }

    /// Removes code whose last invocation must have ended, except held code and code of functions being changed.
    pub(super) async fn remove_due_code(&self) {
        if self.holds.load(Ordering::SeqCst) > 0 {
            return;
        }
        let now = self.clock.monotonic();
        let is_due = |retired: &mut RetiredCode| now.since(retired.since) > RETIRED_CODE_KEPT;
        let due: Vec<RetiredCode> = self.retired.lock().extract_if(.., is_due).collect();
        for retired in due {
            match self.begin(&retired.version.namespace, &retired.version.function) {
                Ok(_changing) => self.remove_unless_live(&retired.version).await,
                Err(_) => self.retired.lock().push(retired),
            }
        }
    }

    pub(super) async fn remove_unless_live(&self, version: &CodeVersion) {
        let is_live = {
            let index = self.index.read();
            let function = index.get(&version.namespace).and_then(|functions| functions.get(&version.function));
            function.is_some_and(|deployed| deployed.function.code_sha256 == version.sha256)
        };
        if !is_live {
            self.unshare(version).await;
            let (code, removed) = (self.code.clone(), version.clone());
            if let Err(error) = blocking(move || code.remove(&removed)).await {
                tracing::warn!(%error, "code that no function has could not be removed; the next start tries again");
            }
        }
    }
}
