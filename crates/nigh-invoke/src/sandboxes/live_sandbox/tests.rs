use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use nigh_terms::{FunctionName, Namespace, SystemClock, Timestamp};

use super::*;
use crate::node_memory::NodeMemory;
use nigh_functions::function::Runtime;
use nigh_schedule::memory::grant::{OnPressure, SandboxMemory, SandboxMemoryError};

/// A sandbox that cannot be frozen for sure, and counts how often it is thawed.
struct UnfreezableSandbox {
    id: SandboxId,
    thawed: Arc<AtomicUsize>,
    memory: NoMemory,
}

struct NoMemory;

const NONE: SandboxMemoryError = SandboxMemoryError::NotControlled("a test");

impl SandboxMemory for NoMemory {
    fn set_limit(&self, _: ByteSize) -> Result<(), SandboxMemoryError> {
        Err(NONE)
    }
    fn peak(&self) -> Result<ByteSize, SandboxMemoryError> {
        Err(NONE)
    }
    fn reset_peak(&self) -> Result<(), SandboxMemoryError> {
        Err(NONE)
    }
    fn used(&self) -> Result<ByteSize, SandboxMemoryError> {
        Err(NONE)
    }
    fn oom_kills(&self) -> Result<u64, SandboxMemoryError> {
        Err(NONE)
    }
    fn on_pressure(&self, _: OnPressure) -> Result<(), SandboxMemoryError> {
        Err(NONE)
    }
}

#[async_trait]
impl Sandbox for UnfreezableSandbox {
    fn id(&self) -> SandboxId {
        self.id
    }
    fn memory(&self) -> &dyn SandboxMemory {
        &self.memory
    }
    async fn freeze(&self) -> Result<(), SandboxError> {
        Err(SandboxError::Io { what: "stop".to_owned(), source: std::io::ErrorKind::TimedOut.into() })
    }
    async fn thaw(&self) -> Result<(), SandboxError> {
        self.thawed.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
    async fn destroy(&self) {}
    async fn ended(&self) -> SandboxEnd {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_sandbox_whose_freezing_failed_is_thawed_when_it_wakes() {
    let (id, keys, thawed) = (SandboxId::random(), AccessKeys::default(), Arc::new(AtomicUsize::new(0)));
    let (namespace, name) = (Namespace::new("tenant").unwrap(), FunctionName::new("f").unwrap());
    let (key, _) = keys.issue_sandbox(namespace.clone(), name.clone(), id);
    let function = Function {
        namespace,
        name,
        runtime: Runtime::Provided,
        runtime_name: "provided".to_owned(),
        handler: "app.handler".to_owned(),
        description: String::new(),
        memory: ByteSize::mib(128),
        timeout: Duration::from_secs(1),
        ephemeral_storage: ByteSize::mib(64),
        environment: std::collections::BTreeMap::new(),
        layers: Vec::new(),
        role: String::new(),
        code_sha256: String::new(),
        code_size: ByteSize(1),
        modified: Timestamp(1),
        revision_id: String::new(),
        action: None,
    };
    let sandbox: Arc<dyn Sandbox> = Arc::new(UnfreezableSandbox { id, thawed: Arc::clone(&thawed), memory: NoMemory });
    let memory = NodeMemory::off().admit(id, ByteSize::mib(128)).await.unwrap();
    let live = LiveSandbox::new(SandboxParts {
        function: Arc::new(function),
        function_arn: HeaderValue::from_static("arn"),
        memory,
        sandbox,
        runtime: RuntimeApi::new(Arc::new(SystemClock::new()), Box::new(|| {})).0,
        log: Arc::new(LogCapture::new(ByteSize::kib(1))),
        key: Arc::new(SandboxKey::new(keys, key)),
        until: CancellationToken::new(),
    });
    live.rest.lock().is_resting = true;
    live.freeze().await;
    live.take_up().await.thaw().await.unwrap();
    assert_eq!(thawed.load(Ordering::SeqCst), 1);
    live.take_up().await.thaw().await.unwrap();
    assert_eq!(thawed.load(Ordering::SeqCst), 1);
}
