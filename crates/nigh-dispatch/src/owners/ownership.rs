//! Who owns a namespace's dispatch: pure.
//!
//! A document in the registry names the owner, its incarnation, and its owner epoch (`term`), which grows with each owner. It is
//! changed only by compare-and-set. When an owner has expired or released the namespace, the fastest controller becomes the
//! next owner. The former owner is kept from dispatching not by this document but by the nodes: they refuse every term below
//! the highest that they know (`run_door::terms`).

use nigh_engine::{NodeRole, PresentMember};
use nigh_terms::{Incarnation, NodeId};
use serde::{Deserialize, Serialize};

/// The table of the registry; the keys are the namespaces.
pub const OWNERS_TABLE: &str = "dispatch";
/// The format that this build writes.
const FORMAT: u32 = 1;

/// The document of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ownership {
    format: u32,
    /// The owner.
    pub node: NodeId,
    /// The incarnation of the owner.
    pub incarnation: Incarnation,
    /// The owner epoch; the first owner has 1.
    pub term: u64,
    /// The owner has released the namespace: it dispatches nothing more.
    #[serde(default)]
    pub free: bool,
    /// The namespace has executions of state machines, begun under this owner or a former one: the next owner continues them
    /// unasked.
    #[serde(default)]
    pub executes: bool,
}

/// How this process stands to a namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnershipState {
    /// This process is the owner, in this term.
    Mine(u64),
    /// Another member is the owner.
    Theirs(PresentMember),
    /// There is no owner, or it has expired: the next owner has this term.
    Open {
        /// The term of the next owner.
        term: u64,
        /// The last owner has not released the namespace: it may not know yet that it has expired.
        abandoned: bool,
    },
}

impl Ownership {
    /// The document of an owner.
    #[must_use]
    pub fn of(node: &NodeId, incarnation: Incarnation, term: u64) -> Self {
        Self { format: FORMAT, node: node.clone(), incarnation, term, free: false, executes: false }
    }

    /// The document once the owner has released the namespace.
    #[must_use]
    pub fn freed(self) -> Self {
        Self { free: true, ..self }
    }

    /// The document of a namespace with or without executions.
    #[must_use]
    pub fn executing(self, executes: bool) -> Self {
        Self { executes, ..self }
    }

    /// Reads a document.
    ///
    /// # Errors
    /// If it cannot be read, or is of a newer build.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let read: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if read.format > FORMAT {
            return Err(format!(
                "the ownership document has format {}, and this build reads {FORMAT}: start the newer Nigh",
                read.format
            ));
        }
        Ok(read)
    }

    fn is_of(&self, node: &NodeId, incarnation: Incarnation) -> bool {
        !self.free && self.node == *node && self.incarnation == incarnation
    }
}

/// How a process stands to the namespace of this document, if these are the members.
#[must_use]
pub fn standing(
    document: Option<&Ownership>,
    (node, incarnation): (&NodeId, Incarnation),
    living: &[PresentMember],
) -> OwnershipState {
    let Some(document) = document else { return OwnershipState::Open { term: 1, abandoned: false } };
    if document.is_of(node, incarnation) {
        return OwnershipState::Mine(document.term);
    }
    let owner = living
        .iter()
        .find(|member| document.is_of(&member.node, member.incarnation) && member.has(NodeRole::Controller));
    match owner {
        Some(owner) => OwnershipState::Theirs(owner.clone()),
        None => OwnershipState::Open { term: document.term + 1, abandoned: !document.free },
    }
}

#[cfg(test)]
mod tests {
    use nigh_engine::Presence;
    use nigh_terms::NodeNumber;

    use super::*;

    fn member(name: &str, life: u64, role: NodeRole) -> PresentMember {
        let presence = Presence::new(NodeNumber(1), "127.0.0.1:1", [role]);
        PresentMember { node: NodeId(name.to_owned()), incarnation: Incarnation(life), presence }
    }

    fn of(name: &str, life: u64) -> Ownership {
        Ownership::of(&NodeId(name.to_owned()), Incarnation(life), 7)
    }

    fn seen_by_a(document: Option<&Ownership>, living: &[PresentMember]) -> OwnershipState {
        standing(document, (&NodeId("a".to_owned()), Incarnation(2)), living)
    }

    #[test]
    fn who_lives_and_is_named_owns_and_nobody_else_does() {
        let living = [member("a", 2, NodeRole::Controller), member("b", 3, NodeRole::Controller)];
        assert_eq!(seen_by_a(None, &living), OwnershipState::Open { term: 1, abandoned: false });
        assert_eq!(seen_by_a(Some(&of("a", 2)), &living), OwnershipState::Mine(7));
        assert_eq!(seen_by_a(Some(&of("b", 3)), &living), OwnershipState::Theirs(living[1].clone()));
    }

    #[test]
    fn an_earlier_life_a_dead_one_and_one_that_let_go_are_followed_in_a_higher_term() {
        let living = [member("a", 2, NodeRole::Controller), member("b", 3, NodeRole::Controller)];
        for dead in [of("a", 1), of("b", 2), of("c", 1)] {
            assert_eq!(seen_by_a(Some(&dead), &living), OwnershipState::Open { term: 8, abandoned: true });
        }
        assert_eq!(seen_by_a(Some(&of("b", 3).freed()), &living), OwnershipState::Open { term: 8, abandoned: false });
        assert_eq!(seen_by_a(Some(&of("a", 2).freed()), &living), OwnershipState::Open { term: 8, abandoned: false });
        let run_only = [member("b", 3, NodeRole::Run)];
        assert_eq!(seen_by_a(Some(&of("b", 3)), &run_only), OwnershipState::Open { term: 8, abandoned: true });
    }

    #[test]
    fn a_document_is_read_as_it_was_written_and_one_of_a_newer_build_is_refused() {
        let document = of("a", 2).executing(true);
        assert_eq!(Ownership::decode(&serde_json::to_vec(&document).unwrap()), Ok(document.clone()));
        let newer = Ownership { format: FORMAT + 1, ..document };
        assert!(Ownership::decode(&serde_json::to_vec(&newer).unwrap()).unwrap_err().contains("newer"));
    }
}
