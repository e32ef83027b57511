//! The members of a cluster in one table: who they are, whether they take work, and what they have to do.

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use nigh_engine::{Availability, FormatRange, NodeRole, PresentMember, RegistryError};
use nigh_terms::{ByteSize, NodeId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::availability;
use crate::cluster::ClusterEngine;
use crate::cluster::members::MemberSummary;

/// How a member stands to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// It takes invocations and homes.
    Available,
    /// It takes none, and keeps its homes.
    Cordoned,
    /// It takes none, and gives its homes away.
    Draining,
    /// It has no home and no invocation left.
    Drained,
}

impl std::fmt::Display for MemberState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Available => "available",
            Self::Cordoned => "cordoned",
            Self::Draining => "draining",
            Self::Drained => "drained",
        })
    }
}

/// A member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberRow {
    /// Its name.
    pub node: String,
    /// Its number.
    pub number: u32,
    /// Its incarnation.
    pub incarnation: u64,
    /// The address at which other nodes call it.
    pub address: String,
    /// The version of its program. None if the program does not tell it.
    pub version: Option<String>,
    /// The cluster formats that its program can use.
    pub formats: FormatRange,
    /// Its roles, also those that it does not fill because it takes no work.
    pub roles: Vec<NodeRole>,
    /// Whether it takes work.
    pub state: MemberState,
    /// What keeps it from its work. None if nothing does.
    pub trouble: Option<String>,
    /// Number of shards whose home it is.
    pub homes: usize,
    /// Number of its invocations that run or wait. None if it does not answer.
    pub invocations: Option<usize>,
    /// What its sandboxes have booked. None if it does not answer.
    pub booked: Option<ByteSize>,
    /// Its memory for sandboxes. None if it does not answer.
    pub memory: Option<ByteSize>,
    /// When it started, RFC 3339. None if it does not answer.
    pub since: Option<String>,
}

/// A node that takes no work when it comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbsentMember {
    /// Its name.
    pub node: String,
    /// What an operator has set.
    pub availability: Availability,
    /// When it was set, RFC 3339.
    pub since: String,
}

/// A cluster's members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClusterTable {
    /// The cluster's name.
    pub cluster: String,
    /// The node that tells this.
    pub node: String,
    /// The cluster's format.
    pub format: u32,
    /// The format to which `nigh cluster finalize` would raise it. None if it is raised, or a member cannot use it.
    pub next_format: Option<u32>,
    /// The members, by name.
    pub members: Vec<MemberRow>,
    /// Nodes that are away and take no work when they come back.
    pub absent: Vec<AbsentMember>,
}

fn state(availability: Availability, homes: usize, invocations: Option<usize>) -> MemberState {
    match availability {
        Availability::Available => MemberState::Available,
        Availability::Cordoned => MemberState::Cordoned,
        Availability::Draining if homes == 0 && invocations == Some(0) => MemberState::Drained,
        Availability::Draining => MemberState::Draining,
    }
}

/// The row of `member`, which is the home of `homes` shards. Pure.
fn row(member: &PresentMember, homes: usize, summary: Result<MemberSummary, String>) -> MemberRow {
    let presence = &member.presence;
    let (summary, silence) = match summary {
        Ok(summary) => (Some(summary), None),
        // Older programs are not asked what they have to do.
        Err(_) if presence.version.is_empty() => (None, None),
        Err(reason) => (None, Some(format!("it does not answer: {reason}"))),
    };
    let invocations = summary.as_ref().map(|summary| summary.running + summary.waiting);
    MemberRow {
        node: member.node.0.clone(),
        number: presence.number.0,
        incarnation: member.incarnation.0,
        address: presence.address.clone(),
        version: (!presence.version.is_empty()).then(|| presence.version.clone()),
        formats: presence.formats,
        roles: presence.roles.union(&presence.withheld).copied().collect(),
        state: state(presence.availability, homes, invocations),
        trouble: silence.or_else(|| summary.as_ref().and_then(|summary| summary.trouble.clone())),
        homes,
        invocations,
        booked: summary.as_ref().map(|summary| summary.booked),
        memory: summary.as_ref().map(|summary| summary.bookable),
        since: summary.map(|summary| summary.started),
    }
}

impl ClusterEngine {
    /// The members now. Asks each of them.
    ///
    /// # Errors
    /// If the registry or the map of homes cannot be read.
    #[boxed]
    pub(crate) async fn table(&self) -> Result<ClusterTable, RegistryError> {
        let mut members = self.membership.present().borrow().clone();
        members.sort_by(|one, other| one.node.cmp(&other.node));
        let mut homes: BTreeMap<NodeId, usize> = BTreeMap::new();
        for entry in self.homes.list().await?.into_iter().filter(|entry| !entry.home.free) {
            *homes.entry(entry.home.node).or_default() += 1;
        }
        let away = availability::all(&*self.registry).await?.into_iter();
        let away = away.filter(|(node, _)| !members.iter().any(|member| member.node == *node));
        let absent = away.map(|(node, stored)| AbsentMember {
            node: node.0,
            availability: stored.availability,
            since: stored.since,
        });
        let absent = absent.collect();
        let summaries = self.summaries(&members).await;
        let summaries = summaries.map_err(|error| RegistryError::Storage(format!("a question: {error}")))?;
        let rows = members.iter().zip(summaries).map(|(member, summary)| {
            let homes = homes.get(&member.node).copied().unwrap_or(0);
            row(member, homes, summary)
        });
        let format = self.format();
        Ok(ClusterTable {
            cluster: self.settings.name.clone(),
            node: self.claimant.node.0.clone(),
            format,
            next_format: super::finalize::next_format(&members).ok().filter(|next| *next > format),
            members: rows.collect(),
            absent,
        })
    }
}

#[cfg(test)]
mod tests {
    use nigh_engine::Presence;
    use nigh_terms::{Incarnation, NodeNumber};

    use super::*;

    fn member(version: &str, availability: Availability) -> PresentMember {
        let roles = [NodeRole::Run, NodeRole::Memory];
        let presence = Presence::new(NodeNumber(2), "h:1", roles).of_program(version, FormatRange::OWN);
        let presence = presence.with_availability(availability);
        PresentMember { node: NodeId("n2".to_owned()), incarnation: Incarnation(9), presence }
    }

    fn busy(running: usize) -> MemberSummary {
        MemberSummary { started: "2026-11-26T06:00:00.000Z".to_owned(), running, ..MemberSummary::default() }
    }

    #[test]
    fn a_draining_member_is_drained_when_it_is_known_to_have_no_home_and_no_invocation() {
        let state = |homes, summary| row(&member("1.0.0", Availability::Draining), homes, summary).state;
        assert_eq!(state(1, Ok(busy(0))), MemberState::Draining);
        assert_eq!(state(0, Ok(busy(1))), MemberState::Draining);
        assert_eq!(state(0, Err("timed out".to_owned())), MemberState::Draining, "nobody knows");
        assert_eq!(state(0, Ok(busy(0))), MemberState::Drained);
        let cordoned = row(&member("1.0.0", Availability::Cordoned), 0, Ok(busy(0)));
        assert_eq!(cordoned.state, MemberState::Cordoned);
        assert_eq!(cordoned.roles, [NodeRole::Run, NodeRole::Memory], "also those that it does not fill");
    }

    #[test]
    fn silence_is_the_trouble_of_a_member_that_should_answer_and_not_of_an_older_program() {
        let silent = || Err("timed out".to_owned());
        let row_of = |version| row(&member(version, Availability::Available), 3, silent());
        assert_eq!(row_of("1.0.0").trouble.as_deref(), Some("it does not answer: timed out"));
        let old = row_of("");
        assert_eq!((old.trouble, old.version, old.since, old.homes), (None, None, None, 3));
        let failing = MemberSummary { trouble: Some("cannot serve 1 shards".to_owned()), waiting: 3, ..busy(1) };
        let row = row(&member("1.0.0", Availability::Available), 3, Ok(failing));
        assert_eq!((row.trouble.as_deref(), row.invocations), (Some("cannot serve 1 shards"), Some(4)));
    }
}
