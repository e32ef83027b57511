//! What is done to a mount, valid or not, and how such commands are drawn.
//!
//! Threads are named by their place among the living ones (`{0}`, counted round) or as the last ended one (`{gone}`),
//! so that a list of commands keeps its meaning when some are left out.

use std::fmt;

use nigh_llc::resctrl::MountOptions;
use nigh_llc::resctrl::emulator::MachineConfig;

use crate::draw::Draw;

/// One command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Command {
    /// `mkdir`.
    Make(String),
    /// `rmdir`.
    Remove(String),
    /// `rename`.
    Rename(String, String),
    /// One write of a text that may name threads.
    Write {
        /// The file.
        path: String,
        /// The text.
        text: String,
    },
    /// A read.
    Read(String),
    /// A thread starts another one.
    Fork(u32),
    /// A thread ends.
    End(u32),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(path) => write!(f, "mkdir {path:?}"),
            Self::Remove(path) => write!(f, "rmdir {path:?}"),
            Self::Rename(from, to) => write!(f, "rename {from:?} {to:?}"),
            Self::Write { path, text } => write!(f, "write {path} {text:?}"),
            Self::Read(path) => write!(f, "read {path}"),
            Self::Fork(thread) => write!(f, "fork thread {thread}"),
            Self::End(thread) => write!(f, "end thread {thread}"),
        }
    }
}

/// Few enough that commands meet, more than there are classes.
const GROUPS: [&str; 9] = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
const MON_GROUPS: [&str; 3] = ["m", "n", "o"];

/// Draws at least `count` commands for `machine`, mounted with `options`.
pub(crate) fn commands(draw: &mut Draw, machine: &MachineConfig, options: MountOptions, count: usize) -> Vec<Command> {
    let mut drawn = Vec::new();
    while drawn.len() < count {
        if draw.chance(4) {
            drawn.extend(carve(draw, machine, options));
        } else {
            drawn.push(command(draw, machine));
        }
    }
    drawn
}

/// What chance alone hardly brings about: the root in the lower ways of every cache and domain, a group in some above
/// and alone there, and a group made beside them.
fn carve(draw: &mut Draw, machine: &MachineConfig, options: MountOptions) -> Vec<Command> {
    let group = group_name(draw);
    let mut texts = [String::new(), String::new()];
    for (name, cache, split) in [("L3", &machine.l3, options.cdp), ("L2", &machine.l2, options.cdpl2)] {
        let Some(cache) = cache else { continue };
        let (half, top) = (u32::from(cache.ways) / 2, u32::from(cache.ways) - 2);
        let names = if split { vec![format!("{name}CODE"), format!("{name}DATA")] } else { vec![name.to_owned()] };
        for name in names {
            for (text, (from, to)) in texts.iter_mut().zip([(0, half), (half, top)]) {
                let mut run = || {
                    let first = from + draw.below(to - from);
                    let length = 1 + draw.below(to - first);
                    ((1_u64 << length) - 1) << first
                };
                let (zero, one) = (run(), run());
                text.push_str(&format!("{name}:0={zero:x};1={one:x}\n"));
            }
        }
    }
    let [root, own] = texts;
    vec![
        Command::Make(group.to_owned()),
        write(String::new(), "schemata", root),
        write(format!("{group}/"), "schemata", own),
        write(format!("{group}/"), "mode", "exclusive\n".to_owned()),
        Command::Make(group_name(draw).to_owned()),
    ]
}

fn command(draw: &mut Draw, machine: &MachineConfig) -> Command {
    match draw.below(100) {
        0..18 => Command::Make(directory(draw)),
        18..24 => Command::Remove(directory(draw)),
        24..28 => Command::Rename(directory(draw), directory(draw)),
        28..55 => write(group(draw), "schemata", schemata(draw, machine)),
        55..63 => write(group(draw), "mode", mode(draw)),
        63..75 => write(any_group(draw), "tasks", tasks(draw)),
        75..81 => write(any_group(draw), "cpus", cpu_mask(draw)),
        81..87 => write(any_group(draw), "cpus_list", cpu_list(draw)),
        87..90 => other_write(draw),
        90..93 => Command::Read(format!("{}{}", any_group(draw), draw.of(&FILES))),
        93..97 => Command::Fork(draw.below(8)),
        _ => Command::End(draw.below(8)),
    }
}

const FILES: [&str; 14] = [
    "tasks",
    "cpus",
    "cpus_list",
    "schemata",
    "size",
    "mode",
    "mon_data",
    "mon_groups",
    "info",
    "info/L3/bit_usage",
    "info/last_cmd_status",
    "mon_data/mon_L3_00/llc_occupancy",
    "mba_MBps_event",
    "nothing",
];

fn write(group: String, file: &str, text: String) -> Command {
    Command::Write { path: format!("{group}{file}"), text }
}

/// The first ones far more often: commands must meet to get anywhere.
fn group_name(draw: &mut Draw) -> &'static str {
    let some = if draw.chance(70) { &GROUPS[..3] } else { &GROUPS[..] };
    draw.of(some)
}

/// A control group's folder with its slash, the root's is empty.
fn group(draw: &mut Draw) -> String {
    if draw.chance(25) { String::new() } else { format!("{}/", group_name(draw)) }
}

/// A control or monitoring group's folder with its slash.
fn any_group(draw: &mut Draw) -> String {
    let group = group(draw);
    if draw.chance(30) { format!("{group}mon_groups/{}/", draw.of(&MON_GROUPS)) } else { group }
}

/// A folder that could be made, is there already, or cannot be.
fn directory(draw: &mut Draw) -> String {
    match draw.below(100) {
        0..58 => group_name(draw).to_owned(),
        58..90 => format!("{}mon_groups/{}", group(draw), draw.of(&MON_GROUPS)),
        90..94 => format!("{}/{}", draw.of(&GROUPS), draw.of(&GROUPS)),
        94..96 => format!("mon_groups/{}/x", draw.of(&MON_GROUPS)),
        _ => draw
            .of(&[
                "info",
                "mon_groups",
                "mon_data",
                "info/x",
                "a\nb",
                "tasks",
                "a/mon_groups/mon_groups",
                "a/mon_groups",
                "info/L3",
            ])
            .to_owned(),
    }
}

/// One or more lines for `schemata`, three of four of them acceptable.
fn schemata(draw: &mut Draw, machine: &MachineConfig) -> String {
    let lines = if draw.chance(75) { 1 } else { 1 + draw.below(3) };
    let mut text = (0..lines).map(|_each| schema(draw, machine)).collect::<Vec<_>>().join("\n");
    if draw.chance(97) {
        text.push('\n');
    }
    if draw.chance(1) {
        text.clear();
    }
    text
}

fn schema(draw: &mut Draw, machine: &MachineConfig) -> String {
    if draw.chance(2) {
        return draw.of(&["", "L3", "L3:", ":", "L3:0", "L3:=f", "L3 0=f", "MB:0", "L3:0=f:1=f", " "]).to_owned();
    }
    let name = match draw.below(100) {
        0..56 => "L3",
        56..66 => "L3CODE",
        66..76 => "L3DATA",
        76..88 => "MB",
        88..94 => "L2",
        94..97 => "    L3",
        97 => "L3 ",
        98 => "SMBA",
        _ => "l3",
    };
    let domains = 1 + draw.below(2);
    let first = draw.below(2);
    let mut values: Vec<String> = (0..domains)
        .map(|at| {
            let id = if draw.chance(4) {
                draw.of(&["2", "x", "-1", "", "00", "0x1", " 1", "1 ", "+1", "99999999999"]).to_owned()
            } else {
                ((first + at) % 2).to_string()
            };
            let value = if name.contains("MB") { bandwidth(draw) } else { mask(draw, machine, name) };
            format!("{id}={value}")
        })
        .collect();
    if draw.chance(3) {
        values.push(draw.of(&["", "0=1", "1", ";", "0=1=1"]).to_owned());
    }
    format!("{name}:{}", values.join(";"))
}

fn mask(draw: &mut Draw, machine: &MachineConfig, name: &str) -> String {
    let cache = if name.contains("L2") { &machine.l2 } else { &machine.l3 };
    let ways = cache.as_ref().map_or(8, |cache| u32::from(cache.ways));
    match draw.below(100) {
        0..80 => {
            let first = draw.below(ways);
            // Short ones leave room for others: without, no group could be exclusive.
            let longest = if draw.chance(70) { (ways - first).min(3) } else { ways - first };
            let length = 1 + draw.below(longest);
            format!("{:x}", ((1_u64 << length) - 1) << first)
        }
        80..90 => format!("{:x}", draw.below(1 << ways)),
        90..92 => format!("0x{:x}", 1 + draw.below(15)),
        92..94 => format!("{:X}", draw.below(1 << ways)),
        94 => format!("00{:x}", 1 + draw.below(15)),
        95 => format!("{:x}", 1_u64 << ways),
        _ => draw.of(&["0", "zz", "", "-1", "ffffffffffffffffff", "7g", " 3", "3 ", "+3", "0x"]).to_owned(),
    }
}

fn bandwidth(draw: &mut Draw) -> String {
    match draw.below(100) {
        0..80 => (10 + draw.below(91)).to_string(),
        80..90 => (draw.below(12) * 10).to_string(),
        _ => draw.of(&["", "x", "-10", "101", "0x20", "4294967296", "010", " 50", "50 ", "+50"]).to_owned(),
    }
}

fn mode(draw: &mut Draw) -> String {
    match draw.below(100) {
        0..55 => "exclusive\n",
        55..80 => "shareable\n",
        80..88 => "pseudo-locksetup\n",
        88..92 => "pseudo-locked\n",
        _ => draw.of(&["exclusive", "", "\n", "Exclusive\n", " exclusive\n", "exclusive \n", "shareable\n\n", "x\n"]),
    }
    .to_owned()
}

fn tasks(draw: &mut Draw) -> String {
    let thread = |draw: &mut Draw| format!("{{{}}}", draw.below(8));
    match draw.below(100) {
        0..65 => thread(draw),
        65..75 => format!("{}\n", thread(draw)),
        75..83 => format!("{},{}\n", thread(draw), thread(draw)),
        83..86 => format!("{},{{gone}},{}", thread(draw), thread(draw)),
        86..90 => "{gone}\n".to_owned(),
        90..92 => format!(" {} ", thread(draw)),
        _ => draw
            .of(&[
                "0",
                "0\n",
                "-1\n",
                "-5",
                "x\n",
                "",
                "\n",
                ",",
                "1,",
                "99999999",
                "99999999999",
                "0x7fffffff",
                "1 2",
                "07777777",
            ])
            .to_owned(),
    }
}

fn cpu_mask(draw: &mut Draw) -> String {
    match draw.below(100) {
        0..85 => draw.of(&["0", "1", "2", "3", "1\n", "3\n", "00000002", "0\n"]),
        _ => draw.of(&["4", "", "\n", "x", "1,1", "0,3", "-1", "0x1", "f", "1 2", "100000000", "80000000"]),
    }
    .to_owned()
}

fn cpu_list(draw: &mut Draw) -> String {
    match draw.below(100) {
        0..85 => draw.of(&["0", "1", "0-1", "0,1", "1\n", "0-1\n", "\n", "1,0", "0,0-1"]),
        _ => draw.of(&[
            "2", "", "1-0", "x", "0-", "-1", ",", "0,,1", "0 1", "0-1:1/2", "5000", "1-2", "all", "0-N", " 1", "N",
        ]),
    }
    .to_owned()
}

fn other_write(draw: &mut Draw) -> Command {
    let group = any_group(draw);
    let (path, text) = match draw.below(8) {
        0 => (format!("{group}size"), "L3:0=1\n".to_owned()),
        1 => (format!("{group}nothing"), "1\n".to_owned()),
        2 => ("info/last_cmd_status".to_owned(), "ok\n".to_owned()),
        // None that rounds to 0: then newer kernels free no monitoring id, and when they run out of them is up to the clock.
        3 => (
            "info/L3_MON/max_threshold_occupancy".to_owned(),
            draw.of(&["65536\n", "100000\n", "131072", "x\n", "99999999999\n", "-1\n"]).to_owned(),
        ),
        4 => (
            format!("{group}mba_MBps_event"),
            draw.of(&["mbm_total_bytes\n", "mbm_local_bytes\n", "x\n", "mbm_total_bytes"]).to_owned(),
        ),
        5 => (format!("{group}tasks"), "1".repeat(5000)),
        6 => (format!("{group}mon_data"), "1\n".to_owned()),
        _ => ("info/L3/cbm_mask".to_owned(), "1\n".to_owned()),
    };
    Command::Write { path, text }
}

#[cfg(test)]
mod tests {
    use nigh_llc::resctrl::emulator::Dialect;

    use super::*;

    #[test]
    fn a_seed_draws_the_same_commands_and_another_seed_others() {
        let machine = MachineConfig::silver_4210r(Dialect::Linux7);
        let drawn = |seed| commands(&mut Draw::new(seed), &machine, MountOptions::default(), 50);
        assert_eq!(drawn(1), drawn(1));
        assert_ne!(drawn(1), drawn(2));
    }

    #[test]
    fn every_kind_of_command_is_drawn() {
        let machine = MachineConfig::silver_4210r(Dialect::Linux7);
        let drawn = commands(&mut Draw::new(3), &machine, MountOptions::default(), 2000);
        let kinds: std::collections::BTreeSet<String> =
            drawn.iter().filter_map(|command| command.to_string().split(' ').next().map(str::to_owned)).collect();
        assert_eq!(Vec::from_iter(kinds), ["end", "fork", "mkdir", "read", "rename", "rmdir", "write"]);
    }
}
