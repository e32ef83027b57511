//! Finds this process's groups in the kernel's cgroup trees: read from `/proc/self/cgroup` and `/proc/self/mountinfo`.
//!
//! Pure: text in, places out. Follows cgroups(7) and Documentation/admin-guide/cgroup-v2.rst. A machine may mount v1
//! trees and a v2 tree side by side ("hybrid"); v2 counts only if it has the memory controller.

use std::path::{Path, PathBuf};

/// A tree of cgroups, and our group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where the tree is mounted.
    pub mount: PathBuf,
    /// The folder of Nigh's own group.
    pub own: PathBuf,
}

/// The trees that matter here.
#[expect(clippy::large_enum_variant, reason = "there is one a process")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One tree for each controller; none if the controller's tree is absent.
    V1 {
        /// The memory controller.
        memory: Option<Place>,
        /// The freezer.
        freezer: Option<Place>,
        /// The controller of the number of processes.
        pids: Option<Place>,
        /// The controller of processor weights.
        cpu: Option<Place>,
        /// The controller of cpusets.
        cpuset: Option<Place>,
        /// All other trees, the v2 tree too. Nigh controls nothing there, but a container runtime makes groups in each.
        others: Vec<Place>,
    },
    /// One tree for all controllers.
    V2(Place),
    /// No tree is mounted.
    Absent,
}

/// Finds the trees. `own_groups` is the text of `/proc/self/cgroup`, `mounts` of `/proc/self/mountinfo`;
/// `v2_controllers` answers what the file `cgroup.controllers` of a folder says.
#[must_use]
pub fn locate(own_groups: &str, mounts: &str, v2_controllers: impl Fn(&Path) -> String) -> Layout {
    if let Some(place) = v2_place(own_groups, mounts)
        && v2_controllers(&place.own).split_whitespace().any(|controller| controller == "memory")
    {
        return Layout::V2(place);
    }
    let of = |controller| v1_place(own_groups, mounts, controller);
    match [of("memory"), of("freezer"), of("pids"), of("cpu"), of("cpuset")] {
        [None, None, None, None, None] => Layout::Absent,
        controlled => {
            let others = places(own_groups, mounts).into_iter();
            let others = others.filter(|place| !controlled.iter().flatten().any(|one| one == place)).collect();
            let [memory, freezer, pids, cpu, cpuset] = controlled;
            Layout::V1 { memory, freezer, pids, cpu, cpuset, others }
        }
    }
}

/// Our group in every tree that is mounted.
fn places(own_groups: &str, mounts: &str) -> Vec<Place> {
    let place = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        match controllers.split(',').next()? {
            "" => v2_place(own_groups, mounts),
            first => v1_place(own_groups, mounts, first),
        }
    };
    own_groups.lines().filter_map(place).collect()
}

fn v2_place(own_groups: &str, mounts: &str) -> Option<Place> {
    let own = own_groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    mounts.lines().filter_map(Mount::parse).filter(|mount| mount.kind == "cgroup2").find_map(|mount| mount.place(own))
}

fn v1_place(own_groups: &str, mounts: &str, controller: &str) -> Option<Place> {
    let own = own_groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?;
        controllers.split(',').any(|one| one == controller).then_some(path)
    })?;
    mounts
        .lines()
        .filter_map(Mount::parse)
        .filter(|mount| mount.kind == "cgroup" && mount.options.split(',').any(|one| one == controller))
        .find_map(|mount| mount.place(own))
}

/// One line of mountinfo: `id parent major:minor root point options [tags...] - kind source options`.
struct Mount<'a> {
    root: String,
    point: String,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        Some(Self {
            root: unescape(left.next()?),
            point: unescape(left.next()?),
            kind: right.next()?,
            options: right.nth(1)?,
        })
    }

    /// Our group's place below this mount. None if the mount does not show it: a container may see only its own part of
    /// the tree.
    fn place(&self, own: &str) -> Option<Place> {
        let below = Path::new(own).strip_prefix(&self.root).ok()?;
        let mount = PathBuf::from(&self.point);
        let own = if below.as_os_str().is_empty() { mount.clone() } else { mount.join(below) };
        Some(Place { mount, own })
    }
}

/// Blanks and backslashes are octal escapes in mountinfo.
fn unescape(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:7 - cgroup cgroup rw,memory
37 31 0:34 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
38 31 0:35 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
39 31 0:36 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

    fn place(mount: &str, own: &str) -> Place {
        Place { mount: mount.into(), own: own.into() }
    }

    #[test]
    fn a_hybrid_machine_counts_as_v1_when_memory_is_there() {
        let groups = "1:cpu,cpuacct:/jobs\n4:memory:/jobs/a\n6:freezer:/\n7:cpuset:/\n0::/\n";
        let found = locate(groups, HYBRID_MOUNTS, |_| "hugetlb\n".to_owned());
        assert_eq!(
            found,
            Layout::V1 {
                memory: Some(place("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/jobs/a")),
                freezer: Some(place("/sys/fs/cgroup/freezer", "/sys/fs/cgroup/freezer")),
                pids: None,
                cpu: Some(place("/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/jobs")),
                cpuset: Some(place("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup/cpuset")),
                others: vec![place("/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified")],
            }
        );
    }

    #[test]
    fn the_v2_tree_counts_when_it_has_the_memory_controller() {
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = locate("0::/system.slice/nigh.service\n", mounts, |_| "cpu memory pids\n".to_owned());
        assert_eq!(found, Layout::V2(place("/sys/fs/cgroup", "/sys/fs/cgroup/system.slice/nigh.service")));
        assert_eq!(locate("0::/x\n", mounts, |_| "cpu memory_like\n".to_owned()), Layout::Absent);
    }

    #[test]
    fn a_container_that_sees_its_own_part_of_the_tree_finds_its_group_at_the_mount() {
        let mounts = "35 31 0:32 /docker/7f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
        let found = locate("4:memory:/docker/7f\n", mounts, |_| String::new());
        let memory = Some(place("/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory"));
        let others = Vec::new();
        assert_eq!(found, Layout::V1 { memory, freezer: None, pids: None, cpu: None, cpuset: None, others });
        // A group outside the part that is mounted cannot be reached.
        assert_eq!(locate("4:memory:/other\n", mounts, |_| String::new()), Layout::Absent);
    }

    #[test]
    fn trees_that_control_nothing_of_ours_are_found_too_also_named_ones() {
        let mounts = "\
35 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory
36 31 0:33 / /cg/devices rw - cgroup cgroup rw,devices
37 31 0:34 / /cg/systemd rw - cgroup cgroup rw,name=systemd
";
        let groups = "3:name=systemd:/s\n2:devices:/d\n1:memory:/m\n";
        let Layout::V1 { memory, others, .. } = locate(groups, mounts, |_| String::new()) else { panic!("not v1") };
        assert_eq!(memory, Some(place("/cg/memory", "/cg/memory/m")));
        assert_eq!(others, [place("/cg/systemd", "/cg/systemd/s"), place("/cg/devices", "/cg/devices/d")]);
    }

    #[test]
    fn joined_controllers_and_escaped_paths_are_read() {
        let mounts = "1 1 0:1 / /sys/my\\040groups rw - cgroup cgroup rw,pids,memory\n";
        let found = locate("3:pids,memory:/a\n", mounts, |_| String::new());
        let both = Some(place("/sys/my groups", "/sys/my groups/a"));
        let (memory, pids, others) = (both.clone(), both, Vec::new());
        assert_eq!(found, Layout::V1 { memory, freezer: None, pids, cpu: None, cpuset: None, others });
    }

    #[test]
    fn no_tree_is_absent_and_broken_lines_are_passed_over() {
        assert_eq!(locate("", "", |_| String::new()), Layout::Absent);
        assert_eq!(locate("0::\nx\n4:memory", "a b c\n - \n", |_| "memory".to_owned()), Layout::Absent);
    }
}
