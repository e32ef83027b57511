//! Cases about making, removing and renaming groups (rules 4, 22, 24 to 26).

use rustix::io::Errno;

use super::bench::{Bench, GROUP, OTHER, Op, PREFIX, Stop};
use super::{Case, case};

/// The classes of service this mount has, the root's included: the least of all schemas.
fn closids(bench: &Bench<'_>) -> Result<usize, Stop> {
    let mut least: Option<usize> = None;
    for name in bench.fs.list("info")? {
        if let Ok(text) = bench.fs.read(&format!("info/{}num_closids", name)) {
            let number = text.trim().parse().map_err(|_not| Stop::Failed(format!("num_closids is {text:?}")))?;
            least = Some(least.map_or(number, |least| least.min(number)));
        }
    }
    least.ok_or_else(|| Stop::NotApplicable("nothing can be allocated".to_owned()))
}

pub(super) const CASES: &[Case] = &[
    case(4, "groups can be made until every class is taken, and no more", |bench| {
        let all = closids(bench)?;
        let reserved = ["info/", "mon_data/", "mon_groups/"];
        let there = bench.fs.list("")?.into_iter().filter(|name| name.ends_with('/'));
        let taken = 1 + there.filter(|name| !reserved.contains(&name.as_str())).count();
        for n in taken..all {
            bench.accepted(Op::Make(&format!("{PREFIX}{n}")))?;
        }
        // Where both ids have run out, older kernels miss the monitoring id first.
        let few_rmids = !bench.new && bench.monitors && {
            let rmids = bench.fs.read("info/L3_MON/num_rmids")?;
            rmids.trim().parse().is_ok_and(|rmids: usize| rmids <= all)
        };
        let word = if few_rmids { "Out of RMIDs\n" } else { "Out of CLOSIDs\n" };
        bench.refused(Op::Make(&format!("{PREFIX}over")), Errno::NOSPC, word)?;
        let left = bench.fs.list("")?.contains(&format!("{PREFIX}over/"));
        bench.expect("a group left behind", &left, &false)
    }),
    case(22, "a group's name may have no newline and must be new", |bench| {
        bench.refused(Op::Make(&format!("{PREFIX}a\nb")), Errno::INVAL, "ok\n")?;
        bench.refused(Op::Make(GROUP), Errno::EXIST, "ok\n")?;
        bench.refused(Op::Make("schemata"), Errno::EXIST, "ok\n")
    }),
    case(22, "a name that is there already is refused before resctrl hears of it", |bench| {
        bench.refused(Op::Write(&bench.file(GROUP, "schemata"), "\n"), Errno::INVAL, "Missing ':'\n")?;
        bench.expect("made", &bench.fs.make_group(GROUP).is_err(), &true)?;
        bench.expect("status", &bench.status()?, &"Missing ':'\n".to_owned())
    }),
    case(25, "a removed group leaves the status alone", |bench| {
        bench.accepted(Op::Make(OTHER))?;
        bench.refused(Op::Write(&bench.file(GROUP, "schemata"), "\n"), Errno::INVAL, "Missing ':'\n")?;
        bench.fs.remove_group(OTHER)?;
        bench.expect("status", &bench.status()?, &"Missing ':'\n".to_owned())
    }),
    case(22, "groups are made at the root and in mon_groups alone", |bench| {
        bench.refused(Op::Make(&format!("{GROUP}/inner")), Errno::PERM, "ok\n")?;
        let errno = if bench.new && bench.monitors { Errno::NODEV } else { Errno::PERM };
        bench.refused(Op::Make("info/inner"), errno, "ok\n")?;
        bench.refused(Op::Make("nowhere/inner"), Errno::NOENT, "ok\n")?;
        if bench.monitors {
            bench.refused(Op::Make(&format!("{GROUP}/mon_data/inner")), Errno::PERM, "ok\n")?;
            bench.refused(Op::Make(&format!("{GROUP}/mon_groups/mon_groups")), Errno::PERM, "ok\n")?;
        }
        Ok(())
    }),
    case(24, "a group has the files of its kind", |bench| {
        let files = bench.fs.list(GROUP)?;
        for file in ["cpus", "cpus_list", "mode", "schemata", "size", "tasks"] {
            bench.expect(file, &files.iter().any(|there| there == file), &true)?;
        }
        for directory in ["mon_data/", "mon_groups/"] {
            bench.expect(directory, &files.iter().any(|there| there == directory), &bench.monitors)?;
        }
        if bench.monitors {
            let mon = format!("{GROUP}/mon_groups/{OTHER}");
            bench.accepted(Op::Make(&mon))?;
            let files = bench.fs.list(&mon)?;
            for file in ["schemata", "mode", "size", "mon_groups/"] {
                bench.expect(file, &files.iter().any(|there| there == file), &false)?;
            }
        }
        Ok(())
    }),
    case(25, "only groups can be removed", |bench| {
        bench.refused(Op::Remove("info"), Errno::PERM, "ok\n")?;
        bench.refused(Op::Remove("nowhere"), Errno::NOENT, "ok\n")?;
        bench.refused(Op::Remove("schemata"), Errno::NOTDIR, "ok\n")?;
        if bench.monitors {
            bench.refused(Op::Remove("mon_groups"), Errno::PERM, "ok\n")?;
            bench.refused(Op::Remove(&format!("{GROUP}/mon_data")), Errno::PERM, "ok\n")?;
            bench.refused(Op::Remove(&format!("{GROUP}/mon_groups")), Errno::PERM, "ok\n")?;
        }
        Ok(())
    }),
    case(25, "a group goes with its monitoring groups", |bench| {
        bench.need(bench.monitors, "no monitoring")?;
        bench.accepted(Op::Make(OTHER))?;
        bench.accepted(Op::Make(&format!("{OTHER}/mon_groups/m")))?;
        bench.accepted(Op::Remove(OTHER))?;
        bench.expect("still there", &bench.fs.list("")?.contains(&format!("{OTHER}/")), &false)
    }),
    case(26, "only a monitoring group can be renamed, into a mon_groups", |bench| {
        bench.need(bench.monitors, "no monitoring")?;
        bench.need(bench.new, "an older kernel renames nothing")?;
        let mon = format!("{GROUP}/mon_groups/m");
        bench.accepted(Op::Make(&mon))?;
        bench.accepted(Op::Make(OTHER))?;
        let status = "Source must be a MON group\n";
        bench.refused(Op::Rename(OTHER, &format!("{PREFIX}c")), Errno::PERM, status)?;
        let status = "Destination must be a mon_groups subdirectory\n";
        bench.refused(Op::Rename(&mon, &format!("{PREFIX}c")), Errno::PERM, status)?;
        let status = "Source and destination must be directories";
        bench.refused(Op::Rename(&format!("{mon}/tasks"), &format!("{mon}/t")), Errno::PERM, status)?;
        bench.accepted(Op::Rename(&mon, &format!("{OTHER}/mon_groups/n")))?;
        bench.expect("new place", &bench.fs.list(&format!("{OTHER}/mon_groups"))?, &vec!["n/".to_owned()])?;
        bench.expect("old place", &bench.fs.list(&format!("{GROUP}/mon_groups"))?, &vec![])
    }),
    case(26, "an older kernel renames nothing", |bench| {
        bench.need(bench.monitors, "no monitoring")?;
        bench.need(!bench.new, "a newer kernel renames")?;
        let mon = format!("{GROUP}/mon_groups/m");
        bench.accepted(Op::Make(&mon))?;
        bench.refused(Op::Rename(&mon, &format!("{GROUP}/mon_groups/n")), Errno::PERM, "ok\n")
    }),
];
