//! The numbers of a cluster's nodes: messages name a node by a number, which belongs to its name permanently.
//!
//! A number is drawn from a counter by compare-and-set, and then bound to the name if the name has none yet. A number that
//! was drawn and not bound stays unused.

use async_recursion::async_recursion as boxed;
use nigh_terms::{NodeId, NodeNumber};
use serde::{Deserialize, Serialize};

use crate::{Registry, RegistryDocument, RegistryError};

/// The table of numbers by the names of nodes.
pub const NODE_NUMBERS_TABLE: &str = "node-numbers";
/// The table of the counter, and its only key.
const COUNTER_TABLE: &str = "node-numbers-next";
const COUNTER: &str = "next";
/// The format version that this build writes.
const FORMAT: u32 = 1;
/// The most attempts to draw a number while other nodes draw.
const DRAWS_MAX: usize = 64;

#[derive(Serialize, Deserialize)]
struct StoredNumber {
    format: u32,
    number: u32,
}

/// The number of `node`, which it keeps; a new one if it has none.
///
/// # Errors
/// If the registry cannot be read or written, or holds what a newer Nigh wrote.
#[boxed]
pub async fn node_number(registry: &dyn Registry, node: &NodeId) -> Result<NodeNumber, RegistryError> {
    if let Some(known) = known_number(registry, node).await? {
        return Ok(known);
    }
    let number = draw(registry).await?;
    match registry.put(NODE_NUMBERS_TABLE, &node.0, encode(number)?, None).await {
        Ok(_) => Ok(NodeNumber(number)),
        Err(RegistryError::Conflict { .. }) => known_number(registry, node).await?.ok_or_else(|| {
            RegistryError::Storage(format!(
                "the number of node {node} comes and goes; who removes {NODE_NUMBERS_TABLE}?"
            ))
        }),
        Err(other) => Err(other),
    }
}

/// The number of `node`. None if the node never had one.
///
/// # Errors
/// The same as for `node_number`.
#[boxed]
pub async fn known_number(registry: &dyn Registry, node: &NodeId) -> Result<Option<NodeNumber>, RegistryError> {
    let found = registry.get(NODE_NUMBERS_TABLE, &node.0).await?;
    found.map(|found| decode(&node.0, &found).map(NodeNumber)).transpose()
}

/// The next number that nobody has.
async fn draw(registry: &dyn Registry) -> Result<u32, RegistryError> {
    for _ in 0..DRAWS_MAX {
        let found = registry.get(COUNTER_TABLE, COUNTER).await?;
        let next = found.as_ref().map_or(Ok(1), |found| decode(COUNTER, found))?;
        let after = next.checked_add(1).ok_or_else(|| {
            RegistryError::Storage("all node numbers are used; start the node under the id of a former node".to_owned())
        })?;
        match registry.put(COUNTER_TABLE, COUNTER, encode(after)?, found.map(|found| found.revision)).await {
            Ok(_) => return Ok(next),
            Err(RegistryError::Conflict { .. }) => {}
            Err(other) => return Err(other),
        }
    }
    Err(RegistryError::Storage(format!("no node number could be drawn in {DRAWS_MAX} attempts; start the node again")))
}

fn encode(number: u32) -> Result<Vec<u8>, RegistryError> {
    serde_json::to_vec(&StoredNumber { format: FORMAT, number })
        .map_err(|error| RegistryError::Storage(error.to_string()))
}

fn decode(key: &str, RegistryDocument { value, .. }: &RegistryDocument) -> Result<u32, RegistryError> {
    let told = |why: String| RegistryError::Storage(format!("the number of node {key}: {why}"));
    let StoredNumber { format, number } = serde_json::from_slice(value).map_err(|error| told(error.to_string()))?;
    if format > FORMAT {
        return Err(told(format!("format {format}, this build reads {FORMAT}: start the newer Nigh")));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::{LocalRegistry, StateFile};

    #[tokio::test]
    async fn a_name_keeps_its_number_and_nobody_else_gets_it() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Arc::new(LocalRegistry::new(StateFile::open(&folder.path().join("state.redb")).unwrap()));
        let names: Vec<NodeId> = (0..8).map(|at| NodeId(format!("n{}", at % 4))).collect();
        let mut asking = tokio::task::JoinSet::new();
        for name in names.clone() {
            let registry = Arc::clone(&registry);
            asking.spawn(async move { (node_number(&*registry, &name).await.unwrap(), name) });
        }
        let given: BTreeSet<_> = asking.join_all().await.into_iter().collect();
        assert_eq!(given.len(), 4, "two that ask for one name get one number: {given:?}");
        let numbers: BTreeSet<_> = given.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers.len(), 4, "{given:?}");
        for (number, name) in given {
            assert_eq!(node_number(&*registry, &name).await.unwrap(), number);
        }
        // If the name's entry is removed by hand, the name gets another number: messages may still have the old one.
        let found = registry.get(NODE_NUMBERS_TABLE, "n0").await.unwrap().unwrap();
        registry.delete(NODE_NUMBERS_TABLE, "n0", found.revision).await.unwrap();
        assert!(!numbers.contains(&node_number(&*registry, &NodeId("n0".to_owned())).await.unwrap()));
    }
}
