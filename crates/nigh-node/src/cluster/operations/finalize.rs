//! The next format of a cluster. Pure.

use nigh_engine::PresentMember;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperationError;

/// What raising the format has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FinalizeReport {
    /// The format before.
    pub before: u32,
    /// The format now.
    pub format: u32,
}

/// The newest format that any of these members can use.
///
/// # Errors
/// The members that cannot use it.
pub(super) fn next_format(members: &[PresentMember]) -> Result<u32, OperationError> {
    let format = members.iter().map(|member| member.presence.formats.newest).max().unwrap_or(1);
    let old = members.iter().filter(|member| !member.presence.formats.has(format));
    let named = |member: &PresentMember| {
        let version = &member.presence.version;
        let version = if version.is_empty() { "an older version" } else { version };
        format!("{} (Nigh {version}, {})", member.node, member.presence.formats)
    };
    let nodes: Vec<String> = old.map(named).collect();
    if nodes.is_empty() { Ok(format) } else { Err(OperationError::OldMembers { format, nodes }) }
}

#[cfg(test)]
mod tests {
    use nigh_engine::{FormatRange, Presence};
    use nigh_terms::{Incarnation, NodeId, NodeNumber};

    use super::*;

    fn member(name: &str, version: &str, newest: u32) -> PresentMember {
        let formats = FormatRange { oldest: 1, newest };
        let presence = Presence::new(NodeNumber(1), "h:1", []).of_program(version, formats);
        PresentMember { node: NodeId(name.to_owned()), incarnation: Incarnation(1), presence }
    }

    #[test]
    fn the_format_is_raised_only_if_every_member_can_use_the_newest_one() {
        assert_eq!(next_format(&[member("a", "2.0", 3), member("b", "2.0", 3)]).unwrap(), 3);
        let mixed = [member("a", "2.0", 3), member("b", "1.9", 2), member("c", "", 1)];
        let refused = next_format(&mixed).unwrap_err().to_string();
        let told = "format 3 needs a newer Nigh on b (Nigh 1.9, formats 1 to 2), c (Nigh an older version, format 1)";
        assert!(refused.starts_with(told), "{refused}");
    }
}
