//! On a node alone: learns what an application reads from its invocations, and prefetches it when the application starts.
//!
//! In a cluster the dispatch owner does this: it sees all invocations of a namespace, wherever they run.

use std::collections::HashMap;
use std::sync::Arc;

use crate::applications::{Applications, KnownInput, PrefetchPlan};
use nigh_objects::ObjectMemory;
use nigh_schedule::activation::Activation;
use nigh_schedule::activation::touched::TouchedObject;
use nigh_terms::{Clock, InvocationId};
use parking_lot::Mutex;
use tokio::runtime::Handle;

use super::{InvocationHook, Run};

/// Running invocations whose inputs are remembered; nothing is learned from more.
const RUNNING_MAX: usize = 16_384;

/// Prefetches for applications.
pub struct PrefetchHook {
    applications: Applications,
    /// Where objects are prefetched; None where that is off: then it only learns.
    memory: Option<ObjectMemory>,
    clock: Arc<dyn Clock>,
    running: Mutex<HashMap<InvocationId, KnownInput>>,
    /// Hooks are called from any thread.
    runtime: Handle,
}

impl PrefetchHook {
    /// A hook. Needs a tokio runtime.
    #[must_use]
    pub fn new(applications: Applications, memory: Option<ObjectMemory>, clock: Arc<dyn Clock>) -> Self {
        Self { applications, memory, clock, running: Mutex::default(), runtime: Handle::current() }
    }
}

impl InvocationHook for PrefetchHook {
    fn name(&self) -> &'static str {
        "prefetch"
    }

    fn before_run(&self, run: &mut Run<'_>) -> Option<String> {
        let input = self.applications.input(&run.function.namespace, &run.function.name, run.walk());
        let foreseen = self.memory.as_ref().and_then(|_| self.applications.starts(&input, self.clock.monotonic()));
        let mut running = self.running.lock();
        if running.len() < RUNNING_MAX {
            running.insert(run.invocation, input.clone());
        }
        drop(running);
        let (PrefetchPlan { next, objects }, memory) = (foreseen?, self.memory.clone()?);
        let note = format!("prefetch: {} objects that {next} will probably read", objects.len());
        let (applications, clock) = (self.applications.clone(), Arc::clone(&self.clock));
        self.runtime.spawn(async move {
            let brought = memory.bring(&objects).await;
            applications.brought(&input, &objects, &brought, clock.monotonic());
        });
        Some(note)
    }

    fn after_run(&self, activation: &Activation) {
        let Some(input) = self.running.lock().remove(&activation.id) else { return };
        self.applications.ended(&input, &TouchedObject::of(&activation.data_calls), self.clock.monotonic());
    }

    fn not_run(&self, invocation: InvocationId) {
        self.running.lock().remove(&invocation);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures::StreamExt as _;
    use nigh_data::{Attributes, ObjectId, PutRequest, Tags, WriteConditions};
    use nigh_objects::{MemoryLimits, Writes};
    use nigh_stores::directory::DirectoryStore;
    use nigh_terms::{BucketName, ByteSize, Epoch, Namespace, ObjectKey, Principal, SandboxId, SystemClock};
    use tempfile::TempDir;

    use super::*;
    use nigh_functions::test_support::function;
    use nigh_schedule::activation::{DataCallRecord, Outcome};
    use nigh_schedule::test_support::activation;

    const BYTES: usize = 100_000;

    /// A real memory on a directory, and the hook in front of it.
    struct Node {
        memory: ObjectMemory,
        applications: Applications,
        hook: PrefetchHook,
        tenant: Namespace,
        _folder: TempDir,
    }

    fn object(tenant: &Namespace, key: &str) -> ObjectId {
        let (bucket, key) = (BucketName::new("bucket").unwrap(), ObjectKey::new(key).unwrap());
        ObjectId { namespace: tenant.clone(), bucket, key }
    }

    impl Node {
        async fn start() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
            let store = DirectoryStore::open(&folder.path().join("objects"), Arc::clone(&clock)).unwrap();
            let limits =
                MemoryLimits { cache: ByteSize::mib(16), cached_object: ByteSize::mib(4), object: ByteSize::mib(4) };
            let (writes, spool) = (Writes::through(Epoch(1)), folder.path().join("spool"));
            let opened =
                ObjectMemory::open(Arc::new(store), writes, Arc::clone(&clock), Vec::new(), spool, limits).await;
            let (memory, applications) = (opened.unwrap(), Applications::default());
            let tenant = function("f").namespace;
            let bucket = BucketName::new("bucket").unwrap();
            memory.create_bucket(&Principal::outside(tenant.clone()), &bucket).await.unwrap();
            let hook = PrefetchHook::new(applications.clone(), Some(memory.clone()), clock);
            Self { memory, applications, hook, tenant, _folder: folder }
        }

        async fn put(&self, key: &str) {
            let ObjectId { bucket, key, .. } = object(&self.tenant, key);
            let request = PutRequest {
                attributes: Attributes::default(),
                tags: Tags::new(),
                conditions: WriteConditions::default(),
                body: futures::stream::iter([Ok(vec![1; BYTES].into())]).boxed(),
                length: Some(BYTES as u64),
                md5: None,
                checksum: None,
                request: None,
            };
            self.memory.put(&Principal::outside(self.tenant.clone()), &bucket, &key, request).await.unwrap();
        }

        /// An invocation that makes these calls, each with whether it writes.
        fn invoke(&self, name: &str, payload: &str, calls: &[(&str, bool)]) -> Option<String> {
            let (id, function) = (InvocationId::now(), function(name));
            let note = self.hook.before_run(&mut Run::new(id, &function, payload.as_bytes(), SandboxId::random()));
            let call = |(key, wrote): &(&str, bool)| DataCallRecord {
                served: if *wrote { "write" } else { "hit" }.to_owned(),
                bucket: "bucket".to_owned(),
                key: Some((*key).to_owned()),
                bytes: BYTES as u64,
                began_us: 0,
                took_us: 1,
                under_way: None,
            };
            let record = activation(self.tenant.as_str(), name, Outcome::Answered);
            let data_calls = calls.iter().map(call).collect();
            self.hook.after_run(&Activation { id, data_calls, ..record });
            note
        }

        fn run(&self, film: &str) -> Option<String> {
            let (part, mask) = (format!("tmp/{film}"), format!("masks/{film}.png"));
            let note = self.invoke("cut", &format!(r#"{{"film":"{film}"}}"#), &[(&part, true)]);
            self.invoke("tell", "{}", &[(&part, false), ("model", false), (&mask, false)]);
            note
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn when_its_first_function_starts_what_an_application_reads_comes_into_memory() {
        let node = Node::start().await;
        for key in ["model", "masks/gamma.png", "masks/alpha.png"] {
            node.put(key).await;
        }
        let dropped = node.memory.shrink(ByteSize::mib(16));
        assert_eq!((dropped.copies, node.memory.usage().objects), (3, 0));
        assert_eq!((node.run("alpha"), node.run("beta")), (None, None), "they prove nothing before");
        let note = node.invoke("cut", r#"{"film":"gamma"}"#, &[("tmp/gamma", true)]);
        assert_eq!(note.as_deref(), Some("prefetch: 2 objects that tell will probably read"));
        let brought = async {
            while node.applications.prefetch_use().prefetched < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), brought).await.unwrap();
        assert_eq!(node.memory.usage().objects, 2, "the model and the mask, and nothing else");
        node.invoke("tell", "{}", &[("tmp/gamma", false), ("model", false)]);
        let all = node.applications.prefetch_use();
        assert_eq!((all.prefetched_bytes, all.used, all.used_bytes), (2 * BYTES as u64, 1, BYTES as u64));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_hot_is_not_driven_out_for_what_may_be_read() {
        let node = Node::start().await;
        let keys: Vec<String> = (0..200).map(|number| format!("hot-{number}")).collect();
        for key in &keys {
            node.put(key).await;
        }
        let hot: Vec<ObjectId> = keys.iter().map(|key| object(&node.tenant, key)).collect();
        let before = node.memory.usage().objects;
        assert!(before > 100, "it is full: {before}");
        (0..4).for_each(|_| node.memory.use_copies(&hot));
        let missing: Vec<ObjectId> = keys[..20].iter().map(|key| object(&node.tenant, key)).collect();
        let brought = node.memory.bring(&missing).await;
        assert!(brought.iter().filter(|bytes| **bytes > 0).count() <= 2, "{brought:?}");
    }
}
