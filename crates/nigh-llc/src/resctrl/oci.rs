//! Exports Nigh's classes to other runtimes: the configuration with which a container runs in a group that Nigh made,
//! and does not own it. Pure.
//!
//! Source: OCI runtime specification v1.3, `linux.intelRdt` (a closID alone: the directory must exist, and the
//! runtime neither changes nor removes it); goresctrl, doc/rdt.md (classes named by their directory, absolute masks).

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::groups::{GroupName, LiveGroup, LiveState};
use super::probe::{BandwidthUnit, Probe};
use super::schemata::{Resource, Value};

/// The part of an OCI `config.json` that puts a container into a class.
pub fn intel_rdt(group: &GroupName) -> Json {
    json!({ "linux": { "intelRdt": { "closID": group.as_str() } } })
}

/// A goresctrl configuration (`rdt_config_file` of containerd and CRI-O) with all of Nigh's classes and the default
/// group, with their present values, so that loading it changes nothing.
///
/// The second part names the groups that are left out: goresctrl does not accept masks with holes.
pub fn goresctrl_classes(probe: &Probe, live: &LiveState) -> (String, Vec<String>) {
    let mut text = String::from(
        "# Classes made by Nigh, with the values they have now. Made anew after every layout change.\n\
         options:\n  l2:\n    optional: true\n  l3:\n    optional: true\n  mb:\n    optional: true\npartitions:\n  nigh:\n",
    );
    let mut left_out = Vec::new();
    if let Some(l3) = &probe.l3 {
        _ = writeln!(text, "    l3Allocation: \"0x{:x}\"", l3.full);
    }
    text += "    classes:\n";
    let owned = live.groups.iter().filter(|group| group.owned().is_some());
    for group in [&live.root].into_iter().chain(owned) {
        match class(probe, group) {
            Some(class) => text += &class,
            None => left_out.push(group.title().to_owned()),
        }
    }
    (text, left_out)
}

/// One class; `None` if it cannot be expressed.
fn class(probe: &Probe, group: &LiveGroup) -> Option<String> {
    let name = if group.name.is_empty() { "DEFAULT" } else { &group.name };
    let mut text = format!("      {name}:\n");
    if let Some(l3) = &probe.l3 {
        text += "        l3Allocation:\n";
        // `all` is required, and holds for domains that are not named: there are none.
        _ = writeln!(text, "          all: \"0x{:x}\"", l3.full);
        for &domain in &l3.domains {
            let masks: Vec<_> = l3.resources(&Resource::L3).iter().map(|of| group.schemata.mask(of, domain)).collect();
            let masks: Vec<_> = masks.into_iter().collect::<Option<Vec<_>>>()?;
            if masks.iter().any(|mask| !mask.is_contiguous()) {
                return None;
            }
            match masks.as_slice() {
                [mask] => _ = writeln!(text, "          {domain}: \"0x{mask:x}\""),
                [code, data] => {
                    _ = write!(text, "          {domain}:\n            unified: \"0x{:x}\"\n", code.union(*data));
                    _ = write!(text, "            code: \"0x{code:x}\"\n            data: \"0x{data:x}\"\n");
                }
                _ => return None,
            }
        }
    }
    let unit = match probe.mb.as_ref().map(|mb| mb.unit) {
        Some(BandwidthUnit::Percent) => "%",
        Some(BandwidthUnit::MebibytesPerSecond) => "MBps",
        // goresctrl does not know AMD's unit.
        Some(BandwidthUnit::EighthGigabytesPerSecond) | None => return Some(text),
    };
    let values = group.schemata.iter().filter_map(|(of, domain, value)| match value {
        Value::Bandwidth(value) if *of == Resource::Mb => Some((domain, *value)),
        _ => None,
    });
    let full = if unit == "%" { "\"100%\"".to_owned() } else { format!("\"100%\", \"{}MBps\"", u32::MAX) };
    _ = write!(text, "        mbAllocation:\n          all: [{full}]\n");
    for (domain, value) in values {
        let value = if unit == "%" { format!("\"{value}%\"") } else { format!("\"100%\", \"{value}MBps\"") };
        _ = writeln!(text, "          {domain}: [{value}]");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resctrl::emulator::{Dialect, Emulator, MachineConfig};
    use crate::resctrl::fs::{MountOptions, ResctrlFs};

    fn export(emulator: &Emulator) -> (String, Vec<String>) {
        let live = LiveState::read(emulator).unwrap();
        goresctrl_classes(&Probe::read(emulator, &live).unwrap().unwrap(), &live)
    }

    #[test]
    fn a_container_names_the_group_and_nothing_else() {
        let name = GroupName::new("nigh-cs-2").unwrap();
        let rdt = &intel_rdt(&name)["linux"]["intelRdt"];
        assert_eq!(rdt.as_object().unwrap().keys().collect::<Vec<_>>(), ["closID"]);
        assert_eq!(rdt["closID"], "nigh-cs-2");
    }

    #[test]
    fn every_class_is_named_with_the_values_it_has() {
        let emulator = Emulator::new(MachineConfig::silver_4210r(Dialect::Linux6_1));
        for group in ["nigh-a", "theirs"] {
            emulator.make_group(group).unwrap();
            emulator.write(&format!("{group}/schemata"), "L3:0=3\nMB:0=50\n").unwrap();
        }
        let (text, left_out) = export(&emulator);
        assert!(
            text.contains("      nigh-a:\n        l3Allocation:\n          all: \"0x7ff\"\n          0: \"0x3\"\n"),
            "{text}"
        );
        assert!(text.contains("          0: [\"50%\"]\n"), "{text}");
        assert!(text.contains("      DEFAULT:\n") && !text.contains("theirs"), "{text}");
        assert!(left_out.is_empty());
    }

    #[test]
    fn code_and_data_are_named_apart_and_holes_left_out() {
        let emulator = Emulator::new(MachineConfig::epyc(Dialect::Linux7));
        emulator.make_group("nigh-a").unwrap();
        emulator.write("nigh-a/schemata", "L3:0=5\n").unwrap();
        assert_eq!(export(&emulator).1, ["nigh-a"]);
        emulator.unmount().unwrap();
        emulator.mount(MountOptions { cdp: true, ..MountOptions::default() }).unwrap();
        emulator.make_group("nigh-b").unwrap();
        emulator.write("nigh-b/schemata", "L3CODE:0=3\nL3DATA:0=c\n").unwrap();
        let (text, _) = export(&emulator);
        assert!(text.contains("unified: \"0xf\"\n            code: \"0x3\"\n            data: \"0xc\""), "{text}");
    }
}
