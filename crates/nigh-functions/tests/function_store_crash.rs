//! A process that changes functions is killed at random moments; what it acknowledged must be there, whole.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test ends by panicking")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Cursor, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nigh_engine::{LocalRegistry, Registry, StateFile};
use nigh_functions::code_store::CodeVersion;
use nigh_functions::function::{FunctionSource, Runtime};
use nigh_functions::function_store::{FunctionLimits, FunctionSettings, FunctionStore, NewFunction};
use nigh_terms::{FunctionName, Namespace, SystemClock};
use rand::Rng;

/// Set in the process that is to be killed: where its state is.
const STATE: &str = "NIGH_TEST_CRASH_STATE";
const ROUNDS: usize = 8;
const FUNCTIONS: usize = 3;

/// A function's content, `None` if there is no such function.
type Seen = BTreeMap<FunctionName, Option<String>>;

fn tenant() -> Namespace {
    Namespace::new("tenant").unwrap()
}

fn version_of(name: &FunctionName, content: &str) -> CodeVersion {
    CodeVersion::of_archive(&tenant(), name, &archive(content).into()).unwrap()
}

fn archive(content: &str) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    for name in ["handler.py", "lib/a.py", "lib/b.py"] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

async fn open(folder: &Path) -> FunctionStore {
    let state = StateFile::open(&folder.join("state.redb")).unwrap();
    let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
    let root = folder.join("functions");
    FunctionStore::open(registry, &root, Arc::new(SystemClock::new()), FunctionLimits::default()).await.unwrap()
}

/// Changes functions at random for ever, and says what it is about to do and what it was told is done.
async fn change_until_killed(folder: &Path) {
    let store = open(folder).await;
    loop {
        let (number, what) = (rand::rng().random_range(0..FUNCTIONS), rand::rng().random_range(0..4));
        let name = FunctionName::new(&format!("f{number}")).unwrap();
        let content = uuid::Uuid::new_v4().to_string();
        let there = store.get(&tenant(), &name).is_some();
        let next = match what {
            0 if there => "-",
            1 if there => "=",
            _ => &content,
        };
        println!("\nbegin {name} {next}");
        match (next, there) {
            ("-", _) => store.delete(&tenant(), &name).await.unwrap(),
            ("=", _) => {
                let settings = FunctionSettings { description: Some(content), ..FunctionSettings::default() };
                store.update_settings(&tenant(), &name, settings, None).await.unwrap();
            }
            (_, true) => drop(store.update_code(&tenant(), &name, archive(&content), None).await.unwrap()),
            (_, false) => {
                let runtime = (Runtime::Provided, "provided".to_owned());
                let (settings, tags) = (FunctionSettings::default(), BTreeMap::new());
                let new = NewFunction { name: name.clone(), runtime, handler: "h".to_owned(), settings, tags };
                store.create(&tenant(), new, archive(next)).await.unwrap();
            }
        }
        println!("\ndone {name}");
    }
}

/// Runs the other process until it has acknowledged `enough` changes and some time, and kills it. What it
/// acknowledged goes into `seen`; what it had begun is returned.
fn run_and_kill(folder: &Path, seen: &mut Seen, enough: usize) -> Option<(FunctionName, Option<String>)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_kill_at_any_moment_leaves_each_function_old_or_new_and_whole", "--nocapture"])
        .env(STATE, folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let (mut begun, mut done, mut killer) = (None, 0, None);
    for line in lines.map_while(Result::ok) {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            ["begin", name, content] => {
                let name = FunctionName::new(name).unwrap();
                let next = match *content {
                    "-" => None,
                    "=" => seen.get(&name).cloned().flatten(),
                    content => Some(content.to_owned()),
                };
                begun = Some((name, next));
            }
            ["done", _] => {
                let (name, next) = begun.take().unwrap();
                seen.insert(name, next);
                done += 1;
                if done == enough {
                    let id = rustix::process::Pid::from_child(&child);
                    let pause = Duration::from_micros(rand::rng().random_range(0..20_000));
                    killer = Some(std::thread::spawn(move || {
                        std::thread::sleep(pause);
                        rustix::process::kill_process(id, rustix::process::Signal::KILL).unwrap();
                    }));
                }
            }
            _ => {}
        }
    }
    killer.expect("the child ended by itself").join().unwrap();
    child.wait().unwrap();
    begun
}

fn entries(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

#[tokio::test]
async fn a_kill_at_any_moment_leaves_each_function_old_or_new_and_whole() {
    if let Some(folder) = std::env::var_os(STATE) {
        return change_until_killed(Path::new(&folder)).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Seen::new();
    for round in 0..ROUNDS {
        let begun = run_and_kill(folder.path(), &mut seen, 4 + round);
        let store = open(folder.path()).await;
        if let Some((name, next)) = begun {
            let found = store.get(&tenant(), &name);
            let is_next = found.as_ref().map(|found| found.function.code_sha256.clone())
                == next.as_ref().map(|next| version_of(&name, next).sha256);
            if is_next {
                seen.insert(name, next);
            }
        }
        let mut live = 0;
        for (name, content) in &seen {
            let found = store.find(&tenant(), name).await;
            assert_eq!(found.is_some(), content.is_some(), "{name} in round {round}");
            let (Some(found), Some(content)) = (found, content) else { continue };
            live += 1;
            let code = store.code_folder(&found).await;
            for file in ["handler.py", "lib/a.py", "lib/b.py"] {
                assert_eq!(&std::fs::read_to_string(code.join(file)).unwrap(), content, "{name} in round {round}");
            }
        }
        let root = folder.path().join("functions");
        assert_eq!((entries(&root.join("incoming")), entries(&root.join("outgoing"))), (0, 0));
        let tenants = root.join("code/tenant");
        let versions: usize = if tenants.exists() {
            std::fs::read_dir(&tenants).unwrap().map(|function| entries(&function.unwrap().path())).sum()
        } else {
            0
        };
        assert_eq!(versions, live, "only code in use remains");
    }
}
