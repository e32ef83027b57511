//! Dead letters: events that failed for good and have no destination, or whose destination does not accept the record.
//! Bounded; pure.

use std::collections::{BTreeMap, HashMap};

use nigh_functions::event_config::Destination;
use nigh_terms::{ByteSize, InvocationId, Namespace, Timestamp};

use super::EventFacts;

/// What a retry of a dead letter does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemainingWork {
    /// The retry runs the event again.
    Event,
    /// The retry delivers the record of the end again.
    Record(Destination),
}

/// A dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The id of the event.
    pub id: InvocationId,
    /// The event's facts.
    pub facts: EventFacts,
    /// Number of attempts.
    pub attempts: u32,
    /// Why it is dead.
    pub reason: String,
    /// When it died.
    pub died: Timestamp,
    /// What a retry does.
    pub remains: RemainingWork,
}

/// Dead letters by namespace, in the order of their events.
#[derive(Debug)]
pub(super) struct DeadLetters {
    letters_max: usize,
    bytes_max: ByteSize,
    letters: HashMap<Namespace, BTreeMap<InvocationId, DeadLetter>>,
}

impl DeadLetters {
    pub(super) fn new(letters_max: usize, bytes_max: ByteSize) -> Self {
        Self { letters_max, bytes_max, letters: HashMap::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.letters.values().map(BTreeMap::len).sum()
    }

    /// Adds a dead letter. Returns those beyond the limit, the oldest first.
    pub(super) fn add(&mut self, letter: DeadLetter) -> Vec<InvocationId> {
        let own = self.letters.entry(letter.facts.namespace.clone()).or_default();
        own.insert(letter.id, letter);
        let mut gone = Vec::new();
        let bytes =
            |own: &BTreeMap<InvocationId, DeadLetter>| -> ByteSize { own.values().map(|one| one.facts.bytes).sum() };
        let mut held = bytes(own);
        while own.len() > self.letters_max.max(1) || (held > self.bytes_max && own.len() > 1) {
            let Some((id, oldest)) = own.pop_first() else { break };
            held = held.saturating_sub(oldest.facts.bytes);
            gone.push(id);
        }
        gone
    }

    pub(super) fn get(&self, namespace: &Namespace, id: InvocationId) -> Option<&DeadLetter> {
        self.letters.get(namespace)?.get(&id)
    }

    pub(super) fn take(&mut self, namespace: &Namespace, id: InvocationId) -> Option<DeadLetter> {
        self.letters.get_mut(namespace)?.remove(&id)
    }

    /// The dead letters of `namespace`, newest first.
    pub(super) fn of(&self, namespace: &Namespace) -> Vec<&DeadLetter> {
        self.letters.get(namespace).into_iter().flat_map(|own| own.values().rev()).collect()
    }
}
