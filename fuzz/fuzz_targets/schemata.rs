//! Whatever a kernel shows: the texts of resctrl never make a parser panic, and what is read writes back the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nigh_llc::resctrl::{Counter, CpuList, MountOptions, Schemata};

fuzz_target!(|text: &str| {
    if let Ok(schemata) = Schemata::parse(text) {
        let written = schemata.to_command();
        let known = Schemata::parse(&written).unwrap();
        assert!(known.holds_in(&schemata));
        assert_eq!(known.to_command(), written);
    }
    if let Ok(cpus) = text.parse::<CpuList>() {
        assert_eq!(cpus.to_string().parse::<CpuList>().unwrap(), cpus);
    }
    _ = Counter::parse(text);
    _ = MountOptions::parse(text);
});
