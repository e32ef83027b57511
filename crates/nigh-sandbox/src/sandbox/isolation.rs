//! The isolation of this machine's sandboxes: what is on, and what is not and why. Found once, at the start.

use std::fmt;

use super::launch::IsolationLevel;
use crate::cgroup::Controls;

/// The container runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The runtime's name and version, such as `runc 1.1.5`.
    pub version: String,
    /// True if each sandbox has a user namespace.
    pub user_namespace: bool,
}

/// What is on, what is off and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Isolation {
    /// The isolation, with example users.
    pub level: IsolationLevel,
    /// The container runtime that isolates; none if Nigh isolates itself.
    pub runtime: Option<Runtime>,
    /// The error is the reason why system calls are not filtered.
    pub filter: Result<(), String>,
    /// Stronger isolation that does not work here, with the reasons.
    pub refused: Vec<String>,
    /// What the cgroups control.
    pub controls: Controls,
}

impl Isolation {
    /// The parts that are off, each with its reason.
    #[must_use]
    pub fn off(&self) -> Vec<String> {
        let filter = self.filter.as_ref().err().map(|reason| format!("filter of system calls: {reason}"));
        self.uncontrolled().into_iter().chain(filter).chain(self.refused.iter().cloned()).collect()
    }

    /// What cgroups do not control, each with its reason.
    fn uncontrolled(&self) -> Vec<String> {
        let Controls { memory, processes, freezer, cpu, .. } = &self.controls;
        if let (Err(reason), Err(_), Err(_), Err(_)) = (memory, processes, freezer, cpu) {
            // Nigh may make no group at all, for one reason.
            let mend = "start Nigh as root, or by systemd with Delegate=yes";
            return vec![format!(
                "limits of memory, processes and processor: no cgroup can be made, so {mend} ({reason})"
            )];
        }
        [("memory limit", memory), ("process limit by cgroup", processes)]
            .into_iter()
            .chain([("freezer (signals stop processes instead)", freezer)])
            .chain([("processor weight (the busiest sandbox gets most)", cpu)])
            .filter_map(|(what, state)| state.as_ref().err().map(|reason| format!("{what}: {reason}")))
            .collect()
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.level {
            IsolationLevel::UserAndNamespaces { .. } | IsolationLevel::Container { .. } => {
                "each its own user, files, processes and network"
            }
            IsolationLevel::Namespaces => "each its own files, processes and network (user namespace)",
            IsolationLevel::User { .. } => "each its own user; files, processes and network are the host's",
            IsolationLevel::None => "none: functions are trusted with all that Nigh may read",
        })?;
        if let Some(runtime) = &self.runtime {
            let users = if runtime.user_namespace { "with a user namespace" } else { "without a user namespace" };
            write!(f, " ({}, {users})", runtime.version)?;
        }
        if self.filter.is_ok() {
            f.write_str("; system calls by an allow-list")?;
        }
        let controls = &self.controls;
        let on: Vec<&str> = [
            (controls.memory.is_ok(), "memory"),
            (controls.processes.is_ok(), "processes"),
            (controls.freezer.is_ok(), "freezing"),
            (controls.cpu.is_ok(), "processor weight"),
        ]
        .into_iter()
        .filter_map(|(on, what)| on.then_some(what))
        .collect();
        if !on.is_empty() {
            write!(f, "; {} by {}", on.join(", "), controls.version)?;
        }
        let off = self.off();
        if !off.is_empty() {
            write!(f, "; off: {}", off.join("; "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_says_what_is_on_and_what_is_off_and_why() {
        let controls = Controls {
            version: "cgroup v1",
            memory: Ok(()),
            processes: Err("no tree".to_owned()),
            freezer: Ok(()),
            cpu: Ok(()),
        };
        let mut isolation = Isolation {
            level: IsolationLevel::Namespaces,
            runtime: None,
            filter: Err("no seccomp".to_owned()),
            refused: vec!["own user: not root".to_owned()],
            controls,
        };
        assert_eq!(
            isolation.to_string(),
            "each its own files, processes and network (user namespace); memory, freezing, processor weight by \
             cgroup v1; \
             off: process limit by cgroup: no tree; filter of system calls: no seccomp; own user: not root"
        );
        isolation.level = IsolationLevel::Container { uid: 1 };
        isolation.filter = Ok(());
        isolation.runtime = Some(Runtime { version: "runc 1.1.5".to_owned(), user_namespace: true });
        let begin = "each its own user, files, processes and network (runc 1.1.5, with a user namespace); system calls";
        assert!(isolation.to_string().starts_with(begin), "{isolation}");
    }

    #[test]
    fn where_no_group_can_be_made_that_is_said_once_with_what_mends_it() {
        let none = || Err("/sys/fs/cgroup/x cannot be made: Permission denied".to_owned());
        let isolation = Isolation {
            level: IsolationLevel::Namespaces,
            runtime: None,
            filter: Ok(()),
            refused: Vec::new(),
            controls: Controls {
                version: "cgroup v2",
                memory: none(),
                processes: none(),
                freezer: none(),
                cpu: none(),
            },
        };
        assert_eq!(isolation.off().len(), 1);
        let line = isolation.to_string();
        assert!(line.contains("Delegate=yes") && line.matches("Permission denied").count() == 1, "{line}");
    }
}
