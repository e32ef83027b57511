//! Starting, finding and refusing: what the command says around a node.

use std::ffi::OsString;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::platform::{Node, command, python};
use crate::programs::build_programs;

#[test]
fn without_a_node_the_command_says_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [["status"].as_slice(), &["invoke", "f"], &["objects", "ls"], &["activations"]] {
        let output = command(folder.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
        let words = String::from_utf8(output.stderr).unwrap();
        let expected = format!("nigh: no Nigh is running at {}; start one with `nigh up`\n", folder.path().display());
        assert_eq!(words, expected);
    }
}

#[test]
fn a_wrong_setting_is_refused_in_one_line_that_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| command(folder.path()).args(arguments).output().unwrap();
    let refused = run(&["up", "--set", "cache.byts=1 GiB"]);
    assert_eq!(refused.status.code(), Some(1));
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("--set cache.byts") && words.contains("did you mean bytes?"), "{words}");
    assert_eq!(words.lines().count(), 1);
    let loud = run(&["up", "--set", "log.level=loud"]);
    assert_eq!(loud.status.code(), Some(1));
    let words = String::from_utf8(loud.stderr).unwrap();
    assert!(words.contains("log.level") && words.contains("off, error, warn"), "{words}");
    let open = run(&["up", "--s3-listen", "0.0.0.0:0"]);
    assert!(String::from_utf8(open.stderr).unwrap().contains("allow_plain"));
    assert_eq!(run(&["up", "--set", "nothing"]).status.code(), Some(2));
    assert_eq!(run(&["no-such-command"]).status.code(), Some(2));
}

#[test]
fn a_start_that_fails_leaves_no_key_that_nobody_has_seen() {
    let Some(python) = python("a_start_that_fails_leaves_no_key_that_nobody_has_seen") else { return };
    build_programs();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let up = ["up", "--s3-listen", &address, "--health-listen", "127.0.0.1:0", "--python", python.to_str().unwrap()];
    let failed = command(folder.path()).args(up).output().unwrap();
    let words = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(failed.status.code(), Some(1), "{words}");
    assert!(words.contains("--s3-listen"), "{words}");
    assert!(!folder.path().join("credentials").exists());
}

#[test]
fn a_node_without_a_python_says_so_to_who_deploys_a_python_function() {
    if python("a_node_without_a_python_says_so_to_who_deploys_a_python_function").is_none() {
        return;
    }
    let node = Node::start(std::path::Path::new("/bin/false"));
    let code = node.state.with_file_name("code");
    std::fs::create_dir_all(&code).unwrap();
    std::fs::write(code.join("app.py"), "").unwrap();
    let code = code.to_str().unwrap();
    let refused = node.nigh(["deploy", "f", "--folder", code, "--handler", "app.handler", "--runtime", "python3.11"]);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{words}");
    for word in ["Python functions cannot run", "/bin/false", "nigh up --python", "functions.python"] {
        assert!(words.contains(word), "{word}: {words}");
    }
}

#[test]
fn errors_are_json_objects_where_json_is_asked_for() {
    let Some(python) = python("errors_are_json_objects_where_json_is_asked_for") else { return };
    let node = Node::start(&python);
    let failed = |arguments: &[&str]| {
        let output = node.nigh([&["--json"], arguments].concat());
        let error: serde_json::Value = serde_json::from_slice(&output.stderr).unwrap();
        assert_eq!(error["exit"].as_i64().map(|code| code as i32), output.status.code(), "{error}");
        error
    };
    let missing = failed(&["invoke", "missing"]);
    assert_eq!((&missing["exit"], &missing["code"]), (&1.into(), &"ResourceNotFoundException".into()));
    let usage = failed(&["invoke"]);
    assert_eq!((&usage["exit"], usage["error"].as_str().unwrap().contains("<NAME>")), (&2.into(), true));
    assert!(failed(&["logs", "nope"])["error"].as_str().unwrap().contains("no function nope"));

    let meters = node.json(["metrics"]);
    let resident = meters.as_array().unwrap().iter().find(|one| one["name"] == "process_resident_memory_bytes");
    assert!(resident.unwrap()["value"].as_f64().unwrap() > 1e6, "{meters}");
}

#[test]
fn a_node_keeps_its_state_to_itself_and_its_key_from_start_to_start() {
    let Some(python) = python("a_node_keeps_its_state_to_itself_and_its_key_from_start_to_start") else { return };
    let mut node = Node::start(&python);
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&node.state), 0o700);
    for private in ["credentials", "endpoints.json", "admin.sock", "s3.sock"] {
        assert_eq!(mode(&node.state.join(private)), 0o600, "{private}");
    }
    let second = command(&node.state).args(["up", "--s3-listen", "127.0.0.1:0"]).output().unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8(second.stderr).unwrap().contains("another Nigh is running"));

    // A door may be named, and another namespace: this one's key file has neither.
    let s3 = node.endpoints()["s3"].as_str().unwrap().to_owned();
    node.ok(["objects", "ls", "--endpoint", &s3]);
    let other = node.nigh(["objects", "ls", "--profile", "other"]);
    assert!(String::from_utf8(other.stderr).unwrap().contains("has no profile \"other\"; it has default"));

    let key = std::fs::read(node.state.join("credentials")).unwrap();
    let secret = node.sdk_environment().into_iter().find(|(name, _)| name == "AWS_SECRET_ACCESS_KEY").unwrap().1;
    node.kill();
    std::fs::remove_file(node.state.join("credentials")).unwrap();
    node.restart();
    assert_eq!(std::fs::read(node.state.join("credentials")).unwrap(), key);
    let log = std::fs::read_to_string(node.state.with_extension("log")).unwrap();
    assert!(!log.contains(&secret), "a start writes no secret where others may read it");
    assert!(node.ok(["env"]).contains(&secret), "`nigh env` prints it");
}

#[test]
fn settings_meters_and_levels_are_shown() {
    let Some(python) = python("settings_meters_and_levels_are_shown") else { return };
    let node = Node::start(&python);
    let shown = node.json(["config", "show", "--running"]);
    let cache = shown.as_array().unwrap().iter().find(|one| one["key"] == "cache.bytes").unwrap();
    assert_eq!((cache["value"].as_str(), cache["origin"].as_str()), (Some("256 MiB"), Some("flag --cache")));
    // What `up` would use now differs from what this node was started with, and that is said.
    let unlike = node.nigh(["config", "show"]);
    let words = String::from_utf8(unlike.stderr).unwrap();
    assert!(words.contains("cache.bytes") && words.contains("--running"), "{words}");
    let status = node.json(["status"]);
    let names: Vec<&str> = status["levels"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
    for level in ["isolation", "python", "store", "cache", "writes", "fast path"] {
        assert!(names.contains(&level), "{names:?}");
    }
    node.ok(["objects", "mb", "nigh://meters"]);
    let file = node.state.join("endpoints.json");
    node.ok(["objects", "cp", file.to_str().unwrap(), "nigh://meters/a"]);
    let meters = node.ok(["metrics"]);
    for meter in [
        "process_resident_memory_bytes",
        "nigh_journal_commits_total 1",
        "nigh_journal_commit_seconds_count 1",
        "nigh_journal_commit_seconds_bucket{le=\"0.1\"}",
        "nigh_journal_syncs_total",
        "nigh_journal_written_bytes_total",
        "nigh_journal_used_bytes",
        "nigh_journal_trims_total",
        "nigh_writeback_pushes_total",
        "nigh_writeback_push_failures_total",
        "nigh_writeback_watched_objects",
        "nigh_writeback_oldest_seconds",
        "nigh_fast_path_holders_over",
    ] {
        assert!(meters.contains(meter), "{meter}: {meters}");
    }
    let status = node.json(["status"]);
    assert_eq!((&status["writes"]["commits"], &status["writes"]["watched"]), (&1.into(), &0.into()), "{status}");
    assert_eq!((&status["fast_path"]["held"], &status["fast_path"]["over"]), (&0.into(), &0.into()), "{status}");
    let table = node.ok(["status", "--verbose"]);
    assert!(table.contains("; journal ") && table.contains("by copy"), "{table}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(node.ok(["completions", shell]).contains("activations"));
    }
}

#[test]
fn a_node_that_may_open_few_files_has_fewer_sandboxes_and_connections_and_fails_nobody() {
    let test = "a_node_that_may_open_few_files_has_fewer_sandboxes_and_connections_and_fails_nobody";
    let Some(python) = python(test) else { return };
    let way_in = ["sh", "-c", "ulimit -n 1024 && exec \"$0\" \"$@\""].map(OsString::from).to_vec();
    let node = Node::start_by(way_in, &python, &[]);
    let status = node.json(["status"]);
    let files = status["levels"].as_array().unwrap().iter().find(|level| level["name"] == "open files").unwrap();
    assert_eq!(files["on"], false, "{files}");
    let detail = files["detail"].as_str().unwrap();
    assert!(detail.contains("1024 files") && detail.contains("LimitNOFILE="), "{detail}");
    let most = status["sandboxes"]["max"].as_u64().unwrap();
    assert!((2..40).contains(&most), "{status}");

    // The cache holds as many objects of their own as it may.
    node.ok(["objects", "mb", "nigh://data"]);
    let folder = node.state.with_file_name("many");
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..400 {
        std::fs::write(folder.join(format!("o{number}")), vec![1; 70_000]).unwrap();
    }
    node.ok(["objects", "cp", "-r", folder.to_str().unwrap(), "nigh://data/many"]);
    node.deploy("f");
    let endpoints = node.endpoints();
    let idle: Vec<TcpStream> = ["s3", "lambda"]
        .into_iter()
        .flat_map(|door| std::iter::repeat_n(endpoints[door].as_str().unwrap().trim_start_matches("http://"), 50))
        .map(|address| TcpStream::connect(address).unwrap())
        .collect();
    let payload = r#"{"sleep": 0.2}"#;
    let invoked: Vec<_> = (0..40).map(|_| node.begin(["invoke", "f", payload])).collect();
    for invoked in invoked {
        let output = invoked.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    drop(idle);
    let open = std::fs::read_dir(format!("/proc/{}/fd", node.process_id())).unwrap().count();
    assert!(open < 1024, "{open} files are open");
    let log = std::fs::read_to_string(node.state.with_extension("log")).unwrap();
    assert!(!log.contains("Too many open files") && !log.contains("cannot accept"), "{log}");
}
