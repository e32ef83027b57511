//! What an operator does to a cluster and its members: take a node out of work and back (`availability`), raise the
//! cluster's format (`finalize`), and see all members in one table (`member_table`).
//!
//! An operator's decision is a document of the registry. The node that it is about follows the document and tells the
//! other members by its presence (`announcer`), so any node can be asked, and a node that is away obeys when it starts.

pub(super) mod announcer;
pub(super) mod availability;
mod finalize;
mod follower;
mod member_table;

use nigh_engine::{Availability, FormatRange, NodeRole, PresentMember, RegistryError, known_number};
use nigh_terms::NodeId;
use thiserror::Error;

use super::{ClusterEngine, shape};

pub use self::finalize::FinalizeReport;
pub use self::member_table::{AbsentMember, ClusterTable, MemberRow, MemberState};

/// The version that this program tells the other members.
pub(super) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Why an operation on the cluster is refused.
#[derive(Debug, Error)]
pub(crate) enum OperationError {
    /// The cluster has no such node.
    #[error("the cluster has no node {0}; `nigh cluster ls` names its nodes")]
    NoSuchNode(NodeId),
    /// The node's program cannot be taken out of work.
    #[error("the program of {0} is from before `nigh cluster cordon`: upgrade it first, or stop it")]
    OldProgram(NodeId),
    /// No other node would do what the node does.
    #[error(
        "{node} is the last node with the role {role} that takes work: start another, or let one work again with \
         `nigh cluster uncordon`"
    )]
    LastNode {
        /// The node.
        node: NodeId,
        /// What no other node would do.
        role: NodeRole,
    },
    /// Members that cannot use the new format.
    #[error("format {format} needs a newer Nigh on {}: upgrade them first", .nodes.join(", "))]
    OldMembers {
        /// The format.
        format: u32,
        /// The nodes whose programs cannot use it, with what they can use.
        nodes: Vec<String>,
    },
    /// The registry cannot be read or written.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Whether `node` may stop taking work, if these are the members.
///
/// # Errors
/// If its program is too old, or no other member that takes work has one of its roles `run` and `memory`.
fn may_stop_work(members: &[PresentMember], node: &NodeId) -> Result<(), OperationError> {
    let Some(member) = members.iter().find(|member| member.node == *node) else { return Ok(()) };
    if member.presence.version.is_empty() {
        return Err(OperationError::OldProgram(node.clone()));
    }
    let others = || members.iter().filter(|other| other.node != *node && other.takes_work());
    let last = [NodeRole::Run, NodeRole::Memory].into_iter().find(|role| {
        // A node that starts does not fill the role yet, but will.
        member.could(*role) && !others().any(|other| other.could(*role))
    });
    last.map_or(Ok(()), |role| Err(OperationError::LastNode { node: node.clone(), role }))
}

impl ClusterEngine {
    /// Sets whether `node` takes work, until it is set again. The node itself follows; it may be away.
    ///
    /// # Errors
    /// If there is no such node, it must not stop its work, or the registry cannot be written.
    pub(crate) async fn set_availability(&self, node: &NodeId, to: Availability) -> Result<(), OperationError> {
        let members = self.membership.present().borrow().clone();
        let is_member = members.iter().any(|member| member.node == *node);
        if !is_member && known_number(&*self.registry, node).await?.is_none() {
            return Err(OperationError::NoSuchNode(node.clone()));
        }
        if !to.takes_work() {
            may_stop_work(&members, node)?;
        }
        tracing::info!(%node, availability = %to, "an operator sets whether a node takes work");
        availability::set(&*self.registry, node, to, &self.clock.wall().rfc3339()).await?;
        Ok(())
    }

    /// From now on no other node sends this node invocations or places homes on it, until it ends. Its homes stay until
    /// `leave`, and its doors answer.
    pub(crate) fn withdraw(&self) {
        self.announcer.withdraw();
    }

    /// The format of the cluster, as this node follows it.
    pub(super) fn format(&self) -> u32 {
        self.announcer.format()
    }

    /// The formats that this node can use.
    pub(super) fn formats(&self) -> FormatRange {
        self.settings.formats()
    }

    /// Raises the cluster's format to the newest that any member knows.
    ///
    /// # Errors
    /// If a member cannot use it, or the registry cannot be written.
    pub(crate) async fn finalize(&self) -> Result<FinalizeReport, OperationError> {
        let members = self.membership.present().borrow().clone();
        let format = finalize::next_format(&members)?;
        let before = shape::raise(&*self.registry, format, VERSION).await?;
        if before < format {
            tracing::info!(before, format, "an operator has raised the cluster's format");
        }
        Ok(FinalizeReport { before, format: before.max(format) })
    }
}

#[cfg(test)]
mod tests {
    use nigh_engine::Presence;
    use nigh_terms::{Incarnation, NodeNumber};

    use super::*;

    fn member(name: &str, roles: &[NodeRole], availability: Availability) -> PresentMember {
        let presence = Presence::new(NodeNumber(1), "h:1", roles.iter().copied());
        let presence = presence.of_program("1.0.0", FormatRange::OWN).with_availability(availability);
        PresentMember { node: NodeId(name.to_owned()), incarnation: Incarnation(1), presence }
    }

    fn refusal(members: &[PresentMember], node: &str) -> String {
        may_stop_work(members, &NodeId(node.to_owned())).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_node_may_stop_if_others_that_take_work_do_what_it_does() {
        let both = [NodeRole::Run, NodeRole::Memory];
        let mut members =
            vec![member("a", &both, Availability::Available), member("b", &both, Availability::Available)];
        assert_eq!([refusal(&members, "a"), refusal(&members, "b"), refusal(&members, "gone")], [""; 3]);
        members[1] = member("b", &both, Availability::Cordoned);
        assert!(refusal(&members, "a").contains("a is the last node with the role run"));
        assert_eq!(refusal(&members, "b"), "", "it takes no work already");
        members.push(member("c", &[NodeRole::Run], Availability::Available));
        assert!(refusal(&members, "a").contains("the role memory"));
        members.push(member("d", &[NodeRole::Memory], Availability::Available));
        members.push(member("e", &[NodeRole::Controller], Availability::Available));
        assert_eq!([refusal(&members, "a"), refusal(&members, "e")], [""; 2]);
    }

    #[test]
    fn a_program_that_does_not_follow_the_order_is_not_given_it() {
        let mut members = vec![
            member("a", &[NodeRole::Run], Availability::Available),
            member("b", &[NodeRole::Run], Availability::Available),
        ];
        members[0].presence.version.clear();
        assert!(refusal(&members, "a").contains("upgrade it first"));
        assert_eq!(refusal(&members, "b"), "");
    }
}
