//! One cluster a folder, and only its own processes' answers.

use axum::Router;
use axum::routing::get;
use nigh_terms::{ByteSize, Namespace};

use super::*;
use crate::endpoints::Endpoints;
use crate::state_folder::bind_socket;
use crate::status::{CacheStatus, SandboxStatus, WritesStatus};

#[tokio::test]
async fn a_folder_in_which_a_cluster_runs_is_refused_and_nothing_is_started_there() {
    let folder = tempfile::tempdir().unwrap();
    let held = FolderLock::take(folder.path()).unwrap();
    let settings = LocalClusterSettings {
        folder: folder.path().to_owned(),
        nodes: 1,
        program: PathBuf::from("/bin/false"),
        nats_server: PathBuf::from("/bin/false"),
        networks: false,
        set: Vec::new(),
        relays: Vec::new(),
    };
    let refused = LocalCluster::start(&settings, Duration::from_secs(5)).await.unwrap_err();
    let own = std::process::id();
    assert!(matches!(refused, LocalClusterError::Held { pid: Some(pid), .. } if pid == own), "{refused}");
    let words = refused.to_string();
    assert!(words.contains(&format!("(process {own})")) && words.contains("--folder"), "{words}");
    let files = || -> Vec<_> {
        let mut names: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(files(), ["lock", "pid"], "nothing else was made");
    drop(held);
    assert_eq!(files(), ["lock"]);
    FolderLock::take(folder.path()).unwrap();
}

#[tokio::test]
async fn what_another_process_answers_in_a_node_s_state_folder_is_not_the_node_s_status() {
    let folder = tempfile::tempdir().unwrap();
    let paths = StatePaths::new(folder.path());
    let mut process = Process::new("node", Path::new("sleep"), vec!["60".to_owned()], &folder.path().join("log"));
    process.run().unwrap();
    let answered = |pid| Status {
        node: "node".to_owned(),
        incarnation: 1,
        version: String::new(),
        pid,
        started: String::new(),
        uptime_s: 1,
        endpoints: Endpoints {
            pid,
            s3: String::new(),
            s3_socket: PathBuf::new(),
            lambda: String::new(),
            admin: None,
            admin_socket: paths.admin_socket(),
            fast_socket: None,
            health: None,
            outside: None,
            ca_bundle: None,
            region: String::new(),
            namespace: Namespace::new("default").unwrap(),
        },
        refused_writes: None,
        draining: None,
        levels: Vec::new(),
        cluster: None,
        runtimes: Vec::new(),
        functions: 0,
        cache: CacheStatus::default(),
        writes: WritesStatus::default(),
        fast_path: None,
        features: None,
        sandboxes: SandboxStatus::default(),
        memory: None,
        stems: Vec::new(),
        resident: ByteSize::ZERO,
        records_dropped: 0,
    };
    let own = process.id().unwrap();
    let mut node = LocalNode { process, state: folder.path().to_owned(), machine: 0, calls: None };
    for (pid, is_own) in [(std::process::id(), false), (own, true)] {
        let text = serde_json::to_string(&answered(pid)).unwrap();
        let router = Router::new().route("/status", get(move || async move { text }));
        let listener = bind_socket(&paths.admin_socket()).unwrap();
        let served = tokio::spawn(async move { axum::serve(listener, router).await });
        assert_eq!(node.status().await.map(|status| status.pid), is_own.then_some(pid));
        served.abort();
    }
    node.process().kill().unwrap();
    assert_eq!(node.status().await, None);
}

#[test]
fn a_process_runs_another_program_with_its_variables_from_its_next_start_on() {
    let folder = tempfile::tempdir().unwrap();
    let (log, shell) = (folder.path().join("log"), Path::new("/bin/sh"));
    let says = vec!["-c".to_owned(), "echo \"$0 $NIGH_TEST_OF_PROGRAM $NIGH_TEST_OWN\"".to_owned(), "said".to_owned()];
    let own = vec![("NIGH_TEST_OWN".to_owned(), "own".to_owned())];
    let mut process = Process::new("p", shell, says, &log).with_environment(own);
    let mut line = |variables| {
        process.set_program(shell, variables);
        process.run().unwrap();
        assert!(process.wait(Duration::from_secs(10)));
        process.last_line()
    };
    assert_eq!(line(vec![("NIGH_TEST_OF_PROGRAM".to_owned(), "older".to_owned())]), "said older own");
    assert_eq!(line(Vec::new()), "said  own");
}
