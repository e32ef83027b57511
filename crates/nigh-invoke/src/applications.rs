//! What is learned of the applications of all namespaces, for dispatch owners and for nodes alone.
//!
//! `application_objects` learns and `prefetch` judges. `Applications` holds both and keeps what was learned in the registry, one
//! document a function: written every half minute if it changed, read when the first invocation of the namespace comes. A
//! crash loses what was learned since the last write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_data::NamePrint;
use nigh_data::ObjectId;
use nigh_engine::{Registry, RegistryError};
use nigh_schedule::activation::touched::TouchedObject;
use nigh_schedule::inputs::application_objects::{ApplicationObjects, ExpectedObject, FinishedRun, Names};
use nigh_schedule::inputs::payload_walk::PayloadWalk;
use nigh_schedule::inputs::prefetch::{PrefetchUse, Prefetches};
use nigh_terms::{FunctionName, Monotonic, Namespace};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// Known namespaces; with one more, all are forgotten and read again.
const NAMESPACES_MAX: usize = 256;
/// The table of the registry.
const TABLE: &str = "application_objects";
/// How often new namespaces are read, and after how many such looks changes are written.
const LOOKED_EVERY: Duration = Duration::from_secs(1);
const WRITTEN_EVERY: u32 = 30;

#[derive(Debug, Default)]
struct NamespaceApplications {
    objects: ApplicationObjects,
    /// Its documents in the registry have been read.
    is_read: bool,
}

#[derive(Debug, Default)]
struct Books {
    of: HashMap<Namespace, NamespaceApplications>,
    prefetches: Prefetches,
}

/// What is learned. A clone is another handle to the same.
#[derive(Clone, Debug, Default)]
pub struct Applications(Arc<Mutex<Books>>);

/// What an invocation's input says of the objects that it will read.
#[derive(Clone, Debug)]
pub struct KnownInput {
    namespace: Namespace,
    function: FunctionName,
    names: Names,
    named: Vec<NamePrint>,
    expected: Vec<ExpectedObject>,
}

/// What the functions that follow an invocation will probably read.
#[derive(Clone, Debug)]
pub struct PrefetchPlan {
    /// The function that follows first.
    pub next: FunctionName,
    /// The objects.
    pub objects: Vec<ObjectId>,
}

impl KnownInput {
    /// The invocation's namespace.
    #[must_use]
    pub const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// The objects that its input names.
    #[must_use]
    pub fn named(&self) -> &[NamePrint] {
        &self.named
    }

    /// The objects that the invocation will probably read: those that its input names, and those that were learned.
    #[must_use]
    pub fn reads(&self) -> Vec<NamePrint> {
        let expected = self.expected.iter().map(|one| NamePrint::of(&one.object(&self.namespace)));
        let mut reads: Vec<NamePrint> = self.named.iter().copied().chain(expected).collect();
        reads.sort_unstable();
        reads.dedup();
        reads
    }
}

impl Applications {
    /// What an input says, and what was learned from invocations of `function` like it.
    #[must_use]
    pub fn input(&self, namespace: &Namespace, function: &FunctionName, walk: &PayloadWalk) -> KnownInput {
        let (namespace, function) = (namespace.clone(), function.clone());
        let object = |bucket, key| ObjectId { namespace: namespace.clone(), bucket, key };
        let named = walk.objects.iter();
        let named = named.map(|one| NamePrint::of(&object(one.bucket.clone(), one.key.clone()))).collect();
        let names = Names::of(walk);
        let mut books = self.0.lock();
        let expected = books.namespace(&namespace).reads(&function, &names);
        drop(books);
        KnownInput { namespace, function, names, named, expected }
    }

    /// An invocation starts: the objects to prefetch for the functions that follow. None if they are unknown, or did not read what
    /// was prefetched before.
    #[must_use]
    pub fn starts(&self, input: &KnownInput, now: Monotonic) -> Option<PrefetchPlan> {
        let mut books = self.0.lock();
        let known = books.namespace(&input.namespace);
        let after = known.reads_after(&input.function, &input.names);
        let next = known.successor(&input.function)?.clone();
        let first = (input.namespace.clone(), input.function.clone());
        if after.is_empty() || !books.prefetches.may(&first, now) {
            return None;
        }
        Some(PrefetchPlan { next, objects: after.iter().map(|one| one.object(&input.namespace)).collect() })
    }

    /// These objects, so many bytes of each, were prefetched for the functions that follow that invocation.
    pub fn brought(&self, input: &KnownInput, objects: &[ObjectId], bytes: &[u64], now: Monotonic) {
        let first = (input.namespace.clone(), input.function.clone());
        let mut books = self.0.lock();
        for (object, bytes) in objects.iter().zip(bytes).filter(|(_, bytes)| **bytes > 0) {
            books.prefetches.brought(&first, NamePrint::of(object), *bytes, now);
        }
        books.tell();
    }

    /// The invocation with this input has ended, and touched these objects.
    pub fn ended(&self, input: &KnownInput, touched: &[TouchedObject], now: Monotonic) {
        let KnownInput { namespace, function, names, named, .. } = input;
        let mut books = self.0.lock();
        for one in touched.iter().filter(|one| !one.wrote) {
            books.prefetches.read(NamePrint::of(&one.object(namespace)));
        }
        books.prefetches.settle(now);
        books.namespace(namespace).ended(&FinishedRun { namespace, function, names, named, touched });
        books.tell();
    }

    /// How much of what was prefetched was read.
    #[must_use]
    pub fn prefetch_use(&self) -> PrefetchUse {
        self.0.lock().prefetches.all()
    }

    /// Reads and writes what is learned until `stop`, and once more then.
    #[boxed]
    pub async fn keep(self, registry: Arc<dyn Registry>, stop: CancellationToken) {
        let mut looks = 0;
        loop {
            let goes_on = stop.run_until_cancelled(tokio::time::sleep(LOOKED_EVERY)).await.is_some();
            looks += 1;
            let kept = self.read_new(&*registry).await;
            let kept = match kept {
                Ok(()) if !goes_on || looks % WRITTEN_EVERY == 0 => self.write_changed(&*registry).await,
                read => read,
            };
            if let Err(error) = kept {
                tracing::warn!(%error, "what applications read cannot be written; it is learned anew after a restart");
            }
            if !goes_on {
                return;
            }
        }
    }

    async fn read_new(&self, registry: &dyn Registry) -> Result<(), RegistryError> {
        let new: Vec<Namespace> = {
            let mut books = self.0.lock();
            let new = books.of.iter_mut().filter(|(_, known)| !known.is_read);
            new.map(|(namespace, known)| {
                known.is_read = true;
                namespace.clone()
            })
            .collect()
        };
        for namespace in new {
            for (key, found) in registry.list(TABLE, &format!("{namespace}/")).await? {
                let Some(Ok(function)) = key.split_once('/').map(|(_, name)| FunctionName::new(name)) else { continue };
                let mut books = self.0.lock();
                if let Err(error) = books.namespace(&namespace).restore(&function, &found.value) {
                    tracing::warn!(%key, %error, "what an application reads cannot be read from the registry; it is learned anew");
                }
            }
        }
        Ok(())
    }

    async fn write_changed(&self, registry: &dyn Registry) -> Result<(), RegistryError> {
        let changed: Vec<(String, Option<Vec<u8>>)> = {
            let mut books = self.0.lock();
            let all = books.of.iter_mut();
            all.flat_map(|(namespace, known)| {
                let changed = known.objects.take_changed().into_iter();
                changed.map(move |(function, document)| (format!("{namespace}/{function}"), Some(document)))
            })
            .collect()
        };
        if changed.is_empty() {
            return Ok(());
        }
        registry.apply(TABLE, changed).await
    }
}

impl Books {
    fn namespace(&mut self, namespace: &Namespace) -> &mut ApplicationObjects {
        if self.of.len() >= NAMESPACES_MAX && !self.of.contains_key(namespace) {
            self.of.clear();
        }
        &mut self.of.entry(namespace.clone()).or_default().objects
    }

    fn tell(&self) {
        let PrefetchUse { prefetched, prefetched_bytes, used, used_bytes, wasted, wasted_bytes } =
            self.prefetches.all();
        metrics::counter!("nigh_prefetched_total").absolute(prefetched);
        metrics::counter!("nigh_prefetched_bytes_total").absolute(prefetched_bytes);
        metrics::counter!("nigh_prefetch_used_total").absolute(used);
        metrics::counter!("nigh_prefetch_used_bytes_total").absolute(used_bytes);
        metrics::counter!("nigh_prefetch_wasted_total").absolute(wasted);
        metrics::counter!("nigh_prefetch_wasted_bytes_total").absolute(wasted_bytes);
    }
}
