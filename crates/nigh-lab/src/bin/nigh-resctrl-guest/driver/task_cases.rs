//! Cases about binding: real processes that fork while they are moved, CPUs, and what counts them.

use std::fs;
use std::io;
use std::thread;
use std::time::Duration;

use nigh_llc::resctrl::conformance::Stop;
use nigh_llc::resctrl::{
    BindError, BindResult, CpuList, GroupName, Members, ProcTasks, ProcessRef, Resctrl, TaskTarget, TaskView, Tid,
};

use super::meddler::Interference;
use super::restless::{RestlessProcess, restless, restless_orphans, still, told_another_user};
use super::{Case, DOMAINS, Stage, THEIRS, expect, expect_said, failed, name, need, refused};

/// Moves of one tree from class to class.
const MOVES: usize = 4;
/// What a tree does between a move and the second look.
const BETWEEN_LOOKS: Duration = Duration::from_millis(30);
/// Looks until a tree is taken to be where it belongs, or not to get there;
const LOOKS_MAX: usize = 12;
/// and so many in a row must find it there.
const CLEAN_LOOKS: usize = 3;
/// Two processes that start further apart than this differ in their start time.
const CLOCK_TICKS: Duration = Duration::from_millis(30);
/// Tries to have the kernel give an id again: others may take it first.
const REUSES_MAX: u32 = 20;
/// Longest wait for a cgroup to be empty.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

fn target(group: Option<&str>, monitor: Option<&str>) -> Result<TaskTarget, Stop> {
    Ok(TaskTarget { group: group.map(name).transpose()?, monitor: monitor.map(name).transpose()? })
}

/// What `/proc/<tid>/cpu_resctrl_groups` must show of a task that is there.
fn shown(target: &TaskTarget) -> String {
    let group = target.group.as_ref().map_or("/", GroupName::as_str);
    format!("res:{group}\nmon:{}\n", target.monitor.as_ref().map_or("", GroupName::as_str))
}

/// Asks the kernel, and not the driver, where every thread is; how many there were.
fn all_are_there(members: &Members, target: &TaskTarget) -> Result<usize, Stop> {
    let tasks = ProcTasks::default();
    let mut asked = 0;
    for tid in tasks.members(members)? {
        match tasks.groups(tid) {
            Ok(groups) => {
                expect(&format!("task {tid}"), &groups, &shown(target))?;
                asked += 1;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(asked)
}

/// Moves a tree and looks at every task of it, at once and a while later.
fn moved(driver: &Resctrl, members: &Members, target: &TaskTarget) -> Result<BindResult, Stop> {
    let bound = driver.bind_tasks(members, target).map_err(failed)?;
    // An emulated processor may take longer for a fork than the driver waits, and longer than until one look; it finds
    // that out, and mends it.
    let (mut looks, mut clean) = (0, 0);
    while looks < LOOKS_MAX && clean < CLEAN_LOOKS {
        thread::sleep(BETWEEN_LOOKS);
        looks += 1;
        if driver.verify(members, target).map_err(failed)?.astray.is_empty() {
            clean += 1;
        } else {
            clean = 0;
            driver.bind_tasks(members, target).map_err(failed)?;
        }
    }
    for look in 0..2 {
        if look > 0 {
            thread::sleep(BETWEEN_LOOKS);
        }
        let asked = all_are_there(members, target)?;
        expect("a tree of several threads", &(asked > 3), &true)?;
        expect("the driver's own look", &driver.verify(members, target).map_err(failed)?.astray, &Vec::new())?;
    }
    Ok(bound)
}

fn move_about(stage: &Stage<'_>, members: &Members, monitor: Option<&str>) -> Result<Vec<BindResult>, Stop> {
    let driver = stage.apply(&[("nigh-a", 0, 2), ("nigh-b", 2, 2)])?;
    let classes = [Some("nigh-a"), Some("nigh-b"), None];
    let targets = classes.iter().cycle().take(MOVES).map(|class| target(*class, monitor));
    targets.map(|target| moved(&driver, members, &target?)).collect()
}

fn a_forking_tree_is_moved(stage: &Stage<'_>) -> Result<(), Stop> {
    let tree = restless()?;
    move_about(stage, &tree.members()?, None).map(drop)
}

fn a_watched_tree_is_moved(stage: &Stage<'_>) -> Result<(), Stop> {
    need(stage.machine.monitoring.is_some(), "nothing is counted")?;
    let tree = restless()?;
    let bounds = move_about(stage, &tree.members()?, Some("nigh-box"))?;
    expect("counted", &bounds.iter().all(|bound| bound.monitored), &true)?;
    // From the second move on; an older kernel cannot.
    let renames =
        stage.fs().read("info/L3/sparse_masks").or_else(|_| stage.fs().read("info/L3CODE/sparse_masks")).is_ok();
    expect("moved by renaming", &bounds[1..].iter().all(|bound| bound.renamed == renames), &true)?;
    let driver = stage.driver()?;
    // Where the last move took it.
    let counters = driver.counters(&target(Some("nigh-a"), Some("nigh-box"))?)?;
    expect("domains counted", &counters.into_keys().collect::<Vec<_>>(), &DOMAINS.to_vec())
}

/// A cgroup of v2 for one case.
struct Cgroup(String);

impl Cgroup {
    fn make() -> io::Result<Self> {
        let folder = "/sys/fs/cgroup/restless".to_owned();
        fs::create_dir(&folder)?;
        Ok(Self(folder))
    }

    /// Ends all in it and removes it.
    fn end(self) -> io::Result<()> {
        fs::write(format!("{}/cgroup.kill", self.0), "1")?;
        let mut waited = Duration::ZERO;
        loop {
            match fs::remove_dir(&self.0) {
                // Processes that are ending keep it busy, also when they are listed no more.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && waited < EMPTY_WITHIN => {}
                outcome => return outcome,
            }
            thread::sleep(CLOCK_TICKS);
            waited += CLOCK_TICKS;
        }
    }
}

fn a_cgroup_of_orphans_is_moved(stage: &Stage<'_>) -> Result<(), Stop> {
    let cgroup = Cgroup::make()?;
    let ran = restless_orphans(&cgroup.0).and_then(|shell| {
        let outside = ProcTasks::default().groups(shell.pid())?;
        move_about(stage, &Members::Cgroup(cgroup.0.clone().into()), None)?;
        expect("a process outside", &ProcTasks::default().groups(shell.pid())?, &outside)
    });
    ran.and_then(|()| Ok(cgroup.end()?))
}

/// Starts a process that the kernel gives the id `pid`.
fn with_the_id(pid: Tid) -> Result<RestlessProcess, Stop> {
    for _ in 0..REUSES_MAX {
        // The id is free when the last of its process group is gone.
        thread::sleep(CLOCK_TICKS);
        fs::write("/proc/sys/kernel/ns_last_pid", (pid.0 - 1).to_string())?;
        let kept = still()?;
        if kept.pid() == pid {
            return Ok(kept);
        }
    }
    Err(Stop::NotApplicable(format!("the kernel gives the id {pid} to others")))
}

fn a_reused_id_is_not_moved(stage: &Stage<'_>) -> Result<(), Stop> {
    let driver = stage.apply(&[("nigh-a", 0, 2)])?;
    let class = target(Some("nigh-a"), None)?;
    let mut first = still()?;
    let (pid, members) = (first.pid(), first.members()?);
    first.kill()?;
    let ended = |error: &BindError| matches!(error, BindError::Ended(_));
    expect("one that ended", &driver.bind_tasks(&members, &class).as_ref().err().map(ended), &Some(true))?;
    thread::sleep(CLOCK_TICKS);
    let stranger = with_the_id(pid)?;
    expect("a stranger", &driver.bind_tasks(&members, &class).as_ref().err().map(ended), &Some(true))?;
    all_are_there(&stranger.members()?, &target(None, None)?)?;
    // By its own start time it is as good as any.
    let started = ProcTasks::default().started(pid)?;
    let members = Members::Tree(ProcessRef { pid, started });
    expect("moved", &driver.bind_tasks(&members, &class).map_err(failed)?.moved, &1)?;
    all_are_there(&members, &class).map(drop)
}

/// A class goes for a new one, since there is no other; the new one's ways are refused, and it comes back as it was.
fn a_removed_class_comes_back_with_what_was_in_it(stage: &Stage<'_>) -> Result<(), Stop> {
    let titles: Vec<String> = (0..stage.classes()?).map(|number| format!("nigh-{number}")).collect();
    let full: Vec<_> = titles.iter().map(|title| (title.as_str(), 0, 2)).collect();
    let driver = stage.apply(&full)?;
    // One that stands still: its threads are compared one by one.
    let members = Members::Tree(ProcTasks::default().process(Tid(std::process::id()))?);
    let there = target(Some("nigh-0"), None)?;
    driver.bind_tasks(&members, &there).map_err(failed)?;
    driver.bind_cpus(&name("nigh-0")?, &cpus("1")?).map_err(failed)?;
    let before = stage.everything()?;
    let mut next = full.clone();
    next[0] = ("nigh-new", 4, 1);
    // Removes nigh-0, makes nigh-new, sets its ways.
    let (beside, _) = stage.driver_beside(2, Interference::Refuse)?;
    let error = refused(&beside, &next)?;
    expect_said(&error.to_string(), &["nigh-new/schemata", "all was put back"])?;
    expect("all", &stage.everything()?, &before)?;
    driver.bind_tasks(&members, &target(None, None)?).map_err(failed)?;
    driver.release_cpus(&name("nigh-0")?, &cpus("1")?).map_err(failed).map(drop)
}

fn cpus(list: &str) -> Result<CpuList, Stop> {
    list.parse().map_err(failed)
}

fn cpus_are_bound(stage: &Stage<'_>) -> Result<(), Stop> {
    let driver = stage.apply(&[("nigh-a", 0, 2), ("nigh-b", 2, 2)])?;
    let (a, b) = (name("nigh-a")?, name("nigh-b")?);
    let bind = |group: &GroupName, list: &str| driver.bind_cpus(group, &cpus(list)?).map_err(failed);
    let list = |group: &str| stage.fs().read(&format!("{group}cpus_list"));
    expect("written", &[bind(&a, "1")?, bind(&a, "1")?], &[true, false])?;
    expect("the class's", &(list("nigh-a/")?, list("")?), &("1\n".to_owned(), "0\n".to_owned()))?;
    // From class to class with one write.
    expect("written", &bind(&b, "0-1")?, &true)?;
    expect("the classes'", &(list("nigh-a/")?, list("nigh-b/")?), &("\n".to_owned(), "0-1\n".to_owned()))?;
    expect("released", &driver.release_cpus(&b, &cpus("0-1")?).map_err(failed)?, &true)?;
    stage.fs().make_group(THEIRS)?;
    stage.fs().write(&format!("{THEIRS}/cpus_list"), "1\n")?;
    let refused = driver.bind_cpus(&a, &cpus("0-1")?).err().map(|error| error.to_string()).unwrap_or_default();
    expect_said(&refused, &["the CPUs 1 belong to the group theirs"])?;
    expect("theirs", &list("theirs/")?, &"1\n".to_owned())?;
    let refused = driver.bind_cpus(&a, &cpus("400")?).err().map(|error| error.to_string()).unwrap_or_default();
    expect_said(&refused, &["nigh-a/cpus_list", "Bad CPU list/mask"])?;
    Ok(stage.fs().remove_group(THEIRS)?)
}

fn another_user_is_told(stage: &Stage<'_>) -> Result<(), Stop> {
    stage.driver()?;
    expect_said(&told_another_user()?, &["no permission to write resctrl (hint: run as root)"])
}

pub(super) const CASES: &[Case] = &[
    Case { name: "every thread of a tree that forks without rest is moved", run: a_forking_tree_is_moved },
    Case { name: "a tree with a group of its own is moved and counted", run: a_watched_tree_is_moved },
    Case { name: "a cgroup is moved with processes that have no parent in it", run: a_cgroup_of_orphans_is_moved },
    Case { name: "who has an ended process's id is not moved in its place", run: a_reused_id_is_not_moved },
    Case {
        name: "a removed class comes back with what was in it",
        run: a_removed_class_comes_back_with_what_was_in_it,
    },
    Case { name: "CPUs are bound with one write, and never others'", run: cpus_are_bound },
    Case { name: "somebody who may not write is told so", run: another_user_is_told },
];
