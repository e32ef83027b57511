//! Whether a cluster works, and whether it would work without one of its nodes. Pure.
//!
//! Ask before you take a node away. The homes of its shards move to other nodes with the role `memory`, invocations go to
//! nodes with `run`, and namespaces to processes with `controller`. While shards have no home, or the NATS servers do not
//! confirm writes, nothing can move.

use nigh_engine::NodeRole;

use super::verdict::Finding;
use crate::status::MemberStatus;

/// What a node knows of its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClusterFacts {
    /// The living members.
    pub(crate) members: Vec<MemberStatus>,
    /// Why the NATS servers confirm no write.
    pub(crate) servers: Option<String>,
    /// The number of shards without a living home, and of all shards.
    pub(crate) homeless: (usize, usize),
}

/// The state of the cluster now; none of a node that is alone.
pub(super) fn now(cluster: Option<&ClusterFacts>) -> Vec<Finding> {
    let Some(ClusterFacts { servers, homeless: (homeless, shards), .. }) = cluster else {
        return vec![Finding::of_cluster("cluster", None)];
    };
    let why = (*homeless > 0).then(|| format!("{homeless} of {shards} shards have no living home"));
    vec![Finding::of_cluster("servers", servers.clone()), Finding::of_cluster("shards", why)]
}

/// The state of the cluster without the member `node`; None if there is no such member. `own` is the name of this node.
pub(super) fn without(node: &str, own: &str, cluster: Option<&ClusterFacts>) -> Option<Vec<Finding>> {
    let Some(facts) = cluster else {
        let why = "this node is alone: no other one serves its clients".to_owned();
        return (node == own).then(|| vec![Finding::of_cluster("members", Some(why))]);
    };
    let leaving = facts.members.iter().find(|member| member.node == node)?;
    let mut found = now(cluster);
    for (name, role, what) in [
        ("memory", NodeRole::Memory, "no other node can be the home of its shards"),
        ("run", NodeRole::Run, "no other node runs functions"),
        ("controller", NodeRole::Controller, "no other process dispatches invocations"),
    ] {
        if leaving.roles.contains(&role) {
            let has_other = facts.members.iter().any(|member| member.node != node && member.roles.contains(&role));
            found.push(Finding::of_cluster(name, (!has_other).then(|| what.to_owned())));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(members: &[(&str, &[NodeRole])]) -> ClusterFacts {
        let member = |(node, roles): &(&str, &[NodeRole])| MemberStatus {
            node: (*node).to_owned(),
            number: 1,
            incarnation: 1,
            address: "127.0.0.1:1".to_owned(),
            roles: roles.to_vec(),
        };
        ClusterFacts { members: members.iter().map(member).collect(), servers: None, homeless: (0, 8) }
    }

    /// The names of the checks that fail; None if the member is unknown.
    fn missed(facts: Option<&ClusterFacts>, node: &str) -> Option<Vec<&'static str>> {
        let found = without(node, "a", facts)?;
        Some(found.into_iter().filter(|finding| finding.why.is_some()).map(|finding| finding.name).collect())
    }

    #[test]
    fn a_node_may_go_if_others_have_its_roles_and_everything_can_move() {
        use NodeRole::{Controller, Memory, Run};
        let all: &[NodeRole] = &[Run, Memory, Controller];
        let two = cluster(&[("a", all), ("b", all)]);
        assert_eq!(missed(Some(&two), "a"), Some(Vec::new()));
        assert_eq!(missed(Some(&two), "c"), None);
        let workers = cluster(&[("a", all), ("b", &[Run, Memory])]);
        assert_eq!(missed(Some(&workers), "a"), Some(vec!["controller"]));
        assert_eq!(missed(Some(&workers), "b"), Some(Vec::new()));
        assert_eq!(missed(Some(&cluster(&[("a", &[Run])])), "a"), Some(vec!["run"]));
        let homeless = ClusterFacts { homeless: (2, 8), ..two.clone() };
        assert_eq!(missed(Some(&homeless), "a"), Some(vec!["shards"]));
        let cut_off = ClusterFacts { servers: Some("silent".to_owned()), ..two };
        assert_eq!(missed(Some(&cut_off), "a"), Some(vec!["servers"]));
    }

    #[test]
    fn a_node_that_is_alone_may_not_go_and_is_well() {
        assert_eq!(missed(None, "a"), Some(vec!["members"]));
        assert_eq!(missed(None, "b"), None);
        assert!(now(None).iter().all(|finding| finding.why.is_none()));
    }
}
