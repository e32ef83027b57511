//! What is known of the applications of all namespaces, for whoever dispatches or runs their invocations.
//!
//! `application_objects` learns; here is what holds it for several namespaces and reads an invocation's input once.

use std::collections::HashMap;

use nigh_objects::{NamePrint, ObjectId};
use nigh_terms::{FunctionName, Namespace};
use parking_lot::Mutex;

use crate::application_objects::{ApplicationObjects, Ended, Expected, Names};
use crate::payload_walk::PayloadWalk;
use crate::touched::Touched;

/// Namespaces of which something is known; with one more all are forgotten.
const NAMESPACES_MAX: usize = 256;

/// See the module.
#[derive(Debug, Default)]
pub struct Applications {
    of: Mutex<HashMap<Namespace, ApplicationObjects>>,
}

/// What the input of an invocation says of the objects that it will read.
#[derive(Clone, Debug)]
pub struct KnownInput {
    namespace: Namespace,
    function: FunctionName,
    names: Names,
    named: Vec<NamePrint>,
    expected: Vec<Expected>,
}

impl KnownInput {
    /// The objects that the invocation will probably read: those that its input names, and what is learned.
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
    /// What `payload` says, and what is learned of invocations of `function` like it.
    #[must_use]
    pub fn input(&self, namespace: &Namespace, function: &FunctionName, payload: &[u8]) -> KnownInput {
        let walk = PayloadWalk::of(payload);
        let (namespace, function) = (namespace.clone(), function.clone());
        let object = |bucket, key| ObjectId { namespace: namespace.clone(), bucket, key };
        let named = walk.objects.iter();
        let named = named.map(|one| NamePrint::of(&object(one.bucket.clone(), one.key.clone()))).collect();
        let names = Names::of(&walk);
        let of = self.of.lock();
        let expected = of.get(&namespace).map(|known| known.reads(&function, &names)).unwrap_or_default();
        drop(of);
        KnownInput { namespace, function, names, named, expected }
    }

    /// The invocation with this input has ended, and touched these objects.
    pub fn ended(&self, input: &KnownInput, touched: &[Touched]) {
        let KnownInput { namespace, function, names, named, .. } = input;
        let mut of = self.of.lock();
        if of.len() >= NAMESPACES_MAX && !of.contains_key(namespace) {
            of.clear();
        }
        let known = of.entry(namespace.clone()).or_default();
        known.ended(&Ended { namespace, function, names, named, touched });
    }
}
