//! A node whose threads stand still, but for the one that tells of its health.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{LIVE, READY, check, get, health, probes, told};
use crate::platform::{Node, python, wait_for};

/// Permits any process of this user to trace the program of the words behind it, where Yama forbids that (PR_SET_PTRACER).
const TRACEABLE: &str = "\
import ctypes, os, sys
ctypes.CDLL(None).prctl(0x59616d61, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
os.execvp(sys.argv[1], sys.argv[1:])";

/// Stops the threads of this name in the process of this number, and says so (PTRACE_SEIZE, PTRACE_INTERRUPT). When the tracer
/// ends, the kernel lets them go on.
const TRACER: &str = "\
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def ptrace(request, thread):
    if libc.ptrace(ctypes.c_long(request), ctypes.c_long(thread), None, None):
        raise OSError(ctypes.get_errno(), 'ptrace')
tasks, name = f'/proc/{sys.argv[1]}/task', sys.argv[2]
for thread in map(int, os.listdir(tasks)):
    try:
        with open(f'{tasks}/{thread}/comm') as comm:
            if comm.read().strip() != name:
                continue
        ptrace(0x4206, thread)
        ptrace(0x4207, thread)
        os.waitpid(thread, 0x40000000)
    except (FileNotFoundError, ProcessLookupError):
        pass  # It has ended.
print('stopped', flush=True)
sys.stdin.read()";

/// The threads of Tokio's runtimes that nobody has named: of the one that runs the node. The S3 door's have names.
const NAME: &str = "tokio-rt-worker";

/// Threads that stand still until this is dropped.
struct StoppedThreads(Child);

impl StoppedThreads {
    fn stop(python: &Path, process: u32) -> Self {
        let mut tracer = Command::new(python)
            .args(["-c", TRACER, &process.to_string(), NAME])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(tracer.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let stopped = Self(tracer);
        assert_eq!(said, "stopped\n");
        stopped
    }
}

impl Drop for StoppedThreads {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_node_whose_threads_stand_still_is_not_live_and_is_so_again_when_they_go_on() {
    let Some(python) = python("a_node_whose_threads_stand_still_is_not_live_and_is_so_again_when_they_go_on") else {
        return;
    };
    let way_in = [python.as_os_str().to_owned(), OsString::from("-c"), OsString::from(TRACEABLE)].to_vec();
    let node = Node::start_by(way_in, &python, &[]);
    let address = health(&node.state);
    wait_for("the node to be well", || probes(&address) == told([(200, "ok"); 4]));

    let stopped = StoppedThreads::stop(&python, node.process_id());
    wait_for("the threads to be missed", || get(&address, LIVE).status == 503);
    assert_eq!(probes(&address), told([(503, "stalled"); 4]));
    for path in [LIVE, READY] {
        let threads = check(&get(&address, path).json(), "threads");
        assert_eq!(threads["ok"], false);
        assert!(threads["why"].as_str().unwrap().contains("no answer from the runtime of the node"), "{threads}");
    }
    // It asks of other nodes, and a node alone has none.
    assert_eq!(get(&address, "/health/cluster").told(), (200, "ok".to_owned()));

    drop(stopped);
    wait_for("the threads to go on", || probes(&address) == told([(200, "ok"); 4]));
    assert!(node.nigh(["objects", "ls"]).status.success());
}
