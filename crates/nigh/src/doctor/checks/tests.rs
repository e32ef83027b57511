use nigh_node::inventory::TakenAddress;

use super::*;

/// A machine that lacks nothing.
fn whole() -> Inventory {
    Inventory {
        kernel: "6.12.1-amd64".to_owned(),
        is_root: true,
        memory: (ByteSize::gib(16), ByteSize::gib(12)),
        isolation: Ok(IsolationFound {
            kind: "runc".to_owned(),
            has_namespaces: true,
            refused: Vec::new(),
            cgroups: "cgroup v2".to_owned(),
            uncontrolled: Vec::new(),
        }),
        python: Ok("python3.11 at /p/python3".to_owned()),
        node_js: Ok("nodejs20 at /usr/bin/node".to_owned()),
        cache_ways: Ok("11 ways, 8 classes".to_owned()),
        has_large_folios: true,
        disk: Ok(DiskFound { free: ByteSize::gib(100), is_memory: false }),
        open_files: (65_536, None),
        missing_programs: Vec::new(),
        taken: Vec::new(),
    }
}

fn of<'c>(checks: &'c [Check], name: &str) -> &'c Check {
    checks.iter().find(|check| check.name == name).unwrap()
}

#[test]
fn a_machine_that_lacks_nothing_has_no_cost() {
    for check in checks(&whole()) {
        assert_eq!((check.verdict, &check.cost, &check.mend), (Verdict::Ok, &None, &None), "{check:?}");
    }
}

#[test]
fn each_lack_has_its_cost_and_the_command_that_mends_it() {
    let lacking = Inventory {
        kernel: "6.1.0".to_owned(),
        is_root: false,
        memory: (ByteSize::gib(4), ByteSize::gib(6)),
        isolation: Ok(IsolationFound {
            kind: "process".to_owned(),
            has_namespaces: true,
            refused: vec!["runc: Nigh does not run as root".to_owned()],
            cgroups: "cgroup v2".to_owned(),
            uncontrolled: vec![("memory".to_owned(), "Permission denied".to_owned())],
        }),
        python: Err("no Python of this machine has awslambdaric: /p (3.9); run `/p -m venv /v`, or name one".to_owned()),
        node_js: Err("node: No such file".to_owned()),
        cache_ways: Err(CacheWaysLack { why: "not mounted".to_owned(), mend: Some("mount -t resctrl".to_owned()) }),
        has_large_folios: false,
        disk: Ok(DiskFound { free: ByteSize::mib(500), is_memory: true }),
        open_files: (1024, Some("room for 20 sandboxes".to_owned())),
        missing_programs: vec!["nigh-features"],
        taken: Vec::new(),
    };
    let found = checks(&lacking);
    for (name, mend) in [
        ("isolation", "as root"),
        ("cgroups", "Delegate=yes"),
        ("python", "/p -m venv /v"),
        ("node.js", "nodejs"),
        ("cache ways", "mount -t resctrl"),
        ("kernel", "6.11"),
        ("disk", "--state"),
        ("memory", "--cache"),
        ("open files", "ulimit -n 65536"),
        ("programs", "make install"),
    ] {
        let check = of(&found, name);
        assert_eq!(check.verdict, Verdict::Less, "{check:?}");
        assert!(check.cost.is_some() && check.mend.as_ref().is_some_and(|line| line.contains(mend)), "{check:?}");
    }
    assert_eq!(of(&found, "addresses").verdict, Verdict::Ok);
}

#[test]
fn what_stops_a_node_is_broken() {
    let stopped = Inventory {
        isolation: Err("nothing isolates functions".to_owned()),
        disk: Ok(DiskFound { free: ByteSize::mib(1), is_memory: true }),
        taken: vec![TakenAddress {
            setting: "s3.listen".to_owned(),
            address: "127.0.0.1:9400".parse().unwrap(),
            why: "Address already in use".to_owned(),
        }],
        ..whole()
    };
    let found = checks(&stopped);
    for (name, mend) in [("isolation", "--trust-functions"), ("disk", "--state"), ("addresses", "--s3-listen")] {
        let check = of(&found, name);
        assert_eq!(check.verdict, Verdict::Broken, "{check:?}");
        assert!(check.mend.as_ref().is_some_and(|line| line.contains(mend)), "{check:?}");
    }
    assert_eq!(Check::of_settings(&None, 2).verdict, Verdict::Broken);
}

#[test]
fn a_release_is_its_first_two_numbers() {
    assert_eq!(release("6.12.1-amd64"), (6, 12));
    assert_eq!(release("5.10-rc3"), (5, 10));
    assert_eq!(release("odd"), (0, 0));
}
