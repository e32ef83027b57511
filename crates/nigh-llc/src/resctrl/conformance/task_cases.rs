//! Cases about tasks and CPUs (rules 18 to 21, 25).

use rustix::io::Errno;

use super::bench::{Bench, GROUP, OTHER, Op, Stop};
use super::{Case, case};

/// An id no task has: above the greatest `pid_max` (4194304).
const NOBODY: u32 = 5_000_000;

fn groups(bench: &Bench<'_>) -> Result<String, Stop> {
    bench.tasks.groups(bench.task).map_err(|error| Stop::NotApplicable(format!("cpu_resctrl_groups: {error}")))
}

fn task_is_in(bench: &Bench<'_>, res: &str, mon: &str) -> Result<(), Stop> {
    bench.expect("cpu_resctrl_groups", &groups(bench)?, &format!("res:{res}\nmon:{mon}\n"))
}

/// One CPU of the root that the group may have for a moment.
fn spare_cpu(bench: &Bench<'_>) -> Result<String, Stop> {
    let list = bench.fs.read("cpus_list")?;
    let first = list.trim_end().split(['-', ',']).next().unwrap_or_default();
    bench.need(!first.is_empty(), "the root has no CPU")?;
    Ok(first.to_owned())
}

pub(super) const CASES: &[Case] = &[
    case(18, "a task that is none is refused with the reason", |bench| {
        let tasks = bench.file(GROUP, "tasks");
        let gone = if bench.new {
            format!("No task {NOBODY}\nError while processing task {NOBODY}\n")
        } else {
            format!("No task {NOBODY}\n")
        };
        bench.refused(Op::Write(&tasks, &NOBODY.to_string()), Errno::SRCH, &gone)?;
        let negative = if bench.new { "Invalid pid -1\n" } else { "ok\n" };
        bench.refused(Op::Write(&tasks, "-1"), Errno::INVAL, negative)?;
        let garbage = if bench.new { "Task list parsing error pid x\n" } else { "ok\n" };
        bench.refused(Op::Write(&tasks, "x"), Errno::INVAL, garbage)
    }),
    case(18, "the tasks of a list before one in error stay moved", |bench| {
        bench.need(bench.new, "an older kernel takes one task a write")?;
        let text = format!("{}, {NOBODY}\n", bench.task);
        let status = format!("No task {NOBODY}\nError while processing task {NOBODY}\n");
        bench.refused(Op::Write(&bench.file(GROUP, "tasks"), &text), Errno::SRCH, &status)?;
        task_is_in(bench, GROUP, "")
    }),
    case(19, "a task moves with one write and shows where it is", |bench| {
        groups(bench)?;
        let task = bench.task.to_string();
        bench.accepted(Op::Write(&bench.file(GROUP, "tasks"), &task))?;
        task_is_in(bench, GROUP, "")?;
        let listed = bench.fs.read(&bench.file(GROUP, "tasks"))?.lines().any(|line| line == task);
        bench.expect("listed", &listed, &true)?;
        bench.accepted(Op::Write("tasks", &task))?;
        task_is_in(bench, "/", "")
    }),
    case(19, "a monitoring group takes its parent's tasks alone", |bench| {
        bench.need(bench.monitors, "no monitoring")?;
        let (mon, task) = (format!("{GROUP}/mon_groups/m"), bench.task.to_string());
        bench.accepted(Op::Make(&mon))?;
        let mut status = "Can't move task to different control group\n".to_owned();
        if bench.new {
            status += &format!("Error while processing task {task}\n");
        }
        bench.refused(Op::Write(&format!("{mon}/tasks"), &task), Errno::INVAL, &status)?;
        bench.accepted(Op::Write(&bench.file(GROUP, "tasks"), &task))?;
        bench.accepted(Op::Write(&format!("{mon}/tasks"), &task))?;
        task_is_in(bench, GROUP, "m")?;
        let listed = bench.fs.read(&bench.file(GROUP, "tasks"))?.lines().any(|line| line == task);
        bench.expect("listed by the parent too", &listed, &true)?;
        bench.accepted(Op::Write(&bench.file(GROUP, "tasks"), &task))?;
        task_is_in(bench, GROUP, "")
    }),
    case(26, "a renamed monitoring group takes its tasks along into the new class", |bench| {
        bench.need(bench.monitors && bench.new, "nothing can be renamed")?;
        let (mon, task) = (format!("{GROUP}/mon_groups/m"), bench.task.to_string());
        bench.accepted(Op::Make(&mon))?;
        bench.accepted(Op::Write(&bench.file(GROUP, "tasks"), &task))?;
        bench.accepted(Op::Write(&format!("{mon}/tasks"), &task))?;
        bench.accepted(Op::Make(OTHER))?;
        bench.accepted(Op::Rename(&mon, &format!("{OTHER}/mon_groups/m")))?;
        task_is_in(bench, OTHER, "m")
    }),
    case(25, "a group goes with its task inside, which falls to the root", |bench| {
        bench.accepted(Op::Make(OTHER))?;
        bench.accepted(Op::Write(&bench.file(OTHER, "tasks"), &bench.task.to_string()))?;
        bench.accepted(Op::Remove(OTHER))?;
        task_is_in(bench, "/", "")
    }),
    case(21, "a CPU goes to the group that names it and falls back to the root", |bench| {
        let (cpu, list) = (spare_cpu(bench)?, bench.file(GROUP, "cpus_list"));
        let before = bench.fs.read("cpus_list")?;
        bench.accepted(Op::Write(&list, &cpu))?;
        bench.expect("cpus_list", &bench.fs.read(&list)?, &format!("{cpu}\n"))?;
        bench.expect("the root lost it", &(bench.fs.read("cpus_list")? != before), &true)?;
        bench.accepted(Op::Write(&list, "\n"))?;
        bench.expect("the root's", &bench.fs.read("cpus_list")?, &before)
    }),
    case(21, "CPUs that are none are refused", |bench| {
        let (list, mask) = (bench.file(GROUP, "cpus_list"), bench.file(GROUP, "cpus"));
        bench.refused(Op::Write(&list, "a\n"), Errno::INVAL, "Bad CPU list/mask\n")?;
        bench.refused(Op::Write(&list, "3-1\n"), Errno::INVAL, "Bad CPU list/mask\n")?;
        bench.refused(Op::Write(&mask, "xyz\n"), Errno::INVAL, "Bad CPU list/mask\n")?;
        bench.refused(Op::Write(&list, "999999\n"), Errno::RANGE, "Bad CPU list/mask\n")
    }),
    case(21, "the root keeps its CPUs", |bench| {
        spare_cpu(bench)?;
        bench.refused(Op::Write("cpus_list", "\n"), Errno::INVAL, "Can't drop CPUs from default group\n")
    }),
    case(21, "a monitoring group takes its parent's CPUs alone", |bench| {
        bench.need(bench.monitors, "no monitoring")?;
        let (cpu, mon) = (spare_cpu(bench)?, format!("{GROUP}/mon_groups/m"));
        bench.accepted(Op::Make(&mon))?;
        let status = "Can only add CPUs to mongroup that belong to parent\n";
        bench.refused(Op::Write(&format!("{mon}/cpus_list"), &cpu), Errno::INVAL, status)?;
        bench.accepted(Op::Write(&bench.file(GROUP, "cpus_list"), &cpu))?;
        bench.accepted(Op::Write(&format!("{mon}/cpus_list"), &cpu))?;
        bench.expect("cpus_list", &bench.fs.read(&format!("{mon}/cpus_list"))?, &format!("{cpu}\n"))?;
        bench.accepted(Op::Make(OTHER))?;
        if bench.new {
            let status = "Cannot move a MON group that monitors CPUs\n";
            bench.refused(Op::Rename(&mon, &format!("{OTHER}/mon_groups/m")), Errno::PERM, status)?;
        }
        Ok(())
    }),
];
