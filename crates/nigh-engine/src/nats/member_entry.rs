//! Entering a cluster under a name: a name belongs to one living process.
//!
//! An entry that a dead process left is replaced at once if the new process knows that incarnation to have ended (it holds
//! the same state folder), or when it has expired. An entry that is renewed meanwhile belongs to a living process, and the
//! new one is refused. A process that is only cut off from the servers cannot be told from a dead one: it learns that its
//! name was taken when it is back.

use std::time::{Duration, Instant};

use nigh_terms::{Incarnation, NodeId};
use tokio::time::sleep;

use super::ClusterError;
use super::documents::{Documents, FoundDocument, NotWritten};
use super::membership::TTL;
use crate::Presence;

/// An entry begins with the incarnation.
pub(super) const INCARNATION_BYTES: usize = 8;
/// The most attempts to create the entry while other incarnations write it.
pub(super) const JOINS_MAX: usize = 16;
/// How often an entry of an unknown process is looked at.
const LOOKED_EVERY: Duration = Duration::from_millis(250);
/// An entry that was neither renewed nor removed for so long has expired: servers remove it some time after its lease.
const ENDED_AFTER: Duration = TTL.saturating_mul(2);

/// The incarnation of the entry at `place`: the place of the first entry of an incarnation is the incarnation.
pub(super) fn incarnation_of(place: u64, entry: &[u8]) -> Option<Incarnation> {
    let first = u64::from_le_bytes(*entry.first_chunk::<INCARNATION_BYTES>()?);
    Some(Incarnation(if first == 0 { place } else { first }))
}

/// What a found entry says of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// There is none, or it has ended.
    Ended,
    /// It renewed its entry while it was looked at.
    Lives,
    /// Its lease runs, and nothing is known of it.
    Unknown,
}

/// What is known of the process whose entry was first seen at `first`, and is `now` at another place or gone, `since` later.
fn holder(
    former: Option<Incarnation>,
    first: (u64, Incarnation),
    now: Option<(u64, Incarnation)>,
    since: Duration,
) -> Holder {
    match now {
        None => Holder::Ended,
        Some((_, incarnation)) if Some(incarnation) == former => Holder::Ended,
        Some(now) if now != first => Holder::Lives,
        Some(_) if since >= ENDED_AFTER => Holder::Ended,
        Some(_) => Holder::Unknown,
    }
}

/// The place and incarnation of a document that is an entry.
fn entry_of(found: Option<&FoundDocument>) -> Option<(u64, Incarnation)> {
    let FoundDocument { place, value } = found?;
    Some((*place, incarnation_of(*place, value.as_deref()?)?))
}

/// Creates the entry `value` of a new incarnation of `node`. Returns its place.
pub(super) async fn enter(
    documents: &Documents,
    node: &NodeId,
    subject: &str,
    value: &[u8],
    former: Option<Incarnation>,
) -> Result<u64, ClusterError> {
    for _ in 0..JOINS_MAX {
        let mut found = documents.get(subject).await?;
        if let Some(first) = entry_of(found.as_ref()) {
            let seen = Instant::now();
            loop {
                match holder(former, first, entry_of(found.as_ref()), seen.elapsed()) {
                    Holder::Ended => break,
                    Holder::Lives => return Err(taken(node, found.as_ref())),
                    Holder::Unknown => {}
                }
                sleep(LOOKED_EVERY).await;
                found = documents.get(subject).await?;
            }
        }
        let before = found.map_or(0, |found| found.place);
        match documents.write(subject, Some(value), before).await {
            Ok(place) => return Ok(place),
            Err(NotWritten::Conflict) => {}
            Err(NotWritten::Other(error)) => return Err(error),
        }
    }
    let reason = "its entry changes all the time: another node has this name".to_owned();
    Err(ClusterError::Unreachable { what: "join as", of: subject.to_owned(), reason })
}

fn taken(node: &NodeId, found: Option<&FoundDocument>) -> ClusterError {
    let told = found.and_then(|found| found.value.as_deref()).and_then(|value| value.get(INCARNATION_BYTES..));
    let address = told.and_then(|told| Presence::decode(told).ok()).map(|presence| presence.address);
    ClusterError::NameTaken { node: node.clone(), address: address.unwrap_or_else(|| "an unknown address".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(500);

    #[test]
    fn an_entry_that_is_renewed_is_of_a_living_process() {
        let first = (7, Incarnation(7));
        assert_eq!(holder(None, first, Some(first), SOON), Holder::Unknown);
        assert_eq!(holder(None, first, Some((9, Incarnation(7))), SOON), Holder::Lives);
        // A third process has taken the name meanwhile.
        assert_eq!(holder(None, first, Some((9, Incarnation(9))), SOON), Holder::Lives);
        assert_eq!(holder(Some(Incarnation(3)), first, Some((9, Incarnation(7))), SOON), Holder::Lives);
    }

    #[test]
    fn an_entry_that_has_expired_or_is_of_the_predecessor_is_replaced() {
        let first = (7, Incarnation(7));
        assert_eq!(holder(None, first, None, SOON), Holder::Ended);
        assert_eq!(holder(None, first, Some(first), ENDED_AFTER), Holder::Ended);
        assert_eq!(holder(Some(Incarnation(7)), first, Some(first), Duration::ZERO), Holder::Ended);
    }

    #[test]
    fn the_first_entry_of_an_incarnation_is_at_its_place() {
        assert_eq!(incarnation_of(5, &[0; 9]), Some(Incarnation(5)));
        assert_eq!(incarnation_of(5, &4_u64.to_le_bytes()), Some(Incarnation(4)));
        assert_eq!(incarnation_of(5, &[1; 7]), None);
    }
}
