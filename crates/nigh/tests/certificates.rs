//! `nigh certificates`: an authority, what it issues, and what is said of them.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

use std::path::Path;
use std::process::{Command, Output};

fn nigh(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nigh")).current_dir(folder).args(arguments).output().unwrap()
}

fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = nigh(folder, arguments);
    assert!(!output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_authority_issues_certificates_that_are_shown_and_renewed_and_no_key_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let missing = refused(path, &["certificates", "issue", "ca", "n1"]);
    assert!(missing.contains("nigh certificates init"), "{missing}");
    let mut told = Vec::new();
    let mut run = |arguments: &[&str]| {
        let output = nigh(path, arguments);
        assert!(output.status.success(), "{output:?}");
        told.extend_from_slice(&output.stdout);
        output.stdout
    };
    run(&["certificates", "init", "ca", "--cluster", "lab"]);
    run(&["certificates", "issue", "ca", "n1", "n2", "--address", "10.0.0.7", "--address", "n.example", "--json"]);
    run(&["certificates", "issue", "ca", "c1", "--role", "controller", "--days", "5"]);
    let shown = run(&["certificates", "show", "ca/authority.crt", "ca/n1.crt", "ca/c1.crt", "--json"]);
    let shown: serde_json::Value = serde_json::from_slice(&shown).unwrap();
    let identities = ["nigh://lab/authority", "nigh://lab/node/n1", "nigh://lab/controller/c1"];
    for (at, identity) in identities.into_iter().enumerate() {
        assert_eq!(shown[at]["identities"], serde_json::json!([identity]));
    }
    assert_eq!((&shown[1]["addresses"][0], &shown[1]["hosts"][0]), (&"10.0.0.7".into(), &"n.example".into()));
    // A moment of the last day may have passed.
    let days = |at: usize| shown[at]["days_left"].as_i64().unwrap();
    assert!((396..=397).contains(&days(1)) && (4..=5).contains(&days(2)), "{} {}", days(1), days(2));
    let table = run(&["certificates", "show", "ca/n1.crt"]);
    assert!(String::from_utf8_lossy(&table).contains("nigh://lab/node/n1"));

    let serial = |path: &Path| std::fs::read(path.join("ca/n1.crt")).unwrap();
    let before = serial(path);
    let there = refused(path, &["certificates", "issue", "ca", "n1"]);
    assert!(there.contains("exists already") && there.contains("--renew"), "{there}");
    assert!(refused(path, &["certificates", "init", "ca", "--cluster", "lab"]).contains("exists already"));
    assert_eq!(serial(path), before);
    run(&["certificates", "issue", "ca", "n1", "--renew"]);
    assert_ne!(serial(path), before);
    assert!(refused(path, &["certificates", "issue", "ca", "../n1"]).contains("is no name"));
    let told = String::from_utf8_lossy(&told);
    for file in ["authority.key", "n1.key", "c1.key"] {
        let key = std::fs::read_to_string(path.join("ca").join(file)).unwrap();
        let secret = key.lines().nth(1).unwrap();
        assert!(!told.contains(secret) && !told.contains("PRIVATE"), "{file}");
    }
}

#[test]
fn an_authority_is_replaced_in_two_steps_and_a_process_is_revoked_by_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let run = |arguments: &[&str]| {
        let output = nigh(path, &[&["certificates"][..], arguments].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["init", "ca", "--cluster", "lab"]);
    run(&["issue", "ca", "n1", "n2"]);
    assert!(refused(path, &["certificates", "authority", "retire", "ca"]).contains("authority add"));
    assert!(run(&["authority", "add", "ca"]).contains("copy it to all processes"));
    let used = refused(path, &["certificates", "authority", "retire", "ca"]);
    assert!(used.contains("n1.crt, n2.crt") && used.contains("--renew"), "{used}");
    run(&["issue", "ca", "n1", "n2", "--renew"]);
    run(&["authority", "retire", "ca"]);
    let authorities = run(&["show", "ca/authority.crt", "--json"]);
    assert_eq!(serde_json::from_str::<serde_json::Value>(&authorities).unwrap().as_array().unwrap().len(), 1);

    assert!(run(&["revoke", "ca", "n2"]).contains("nigh://lab/node/n2 is revoked"));
    let unknown = nigh(path, &["certificates", "revoke", "ca", "n9"]);
    assert!(unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("no certificate of nigh://lab/node/n9"));
    let list = std::fs::read_to_string(path.join("ca/revoked.txt")).unwrap();
    assert!(list.contains("nigh://lab/node/n2 2") && list.contains("nigh://lab/node/n9 2"), "{list}");
}
