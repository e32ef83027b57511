//! Who takes part: a client of one store. Python clients are processes of their own that live as long as the bench and
//! are told on their standard input what to do (`peers/objects_client.py`); Rust's is in this process.
//!
//! It does what it is told and measures it; what is compared with what is not its concern.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nigh_client::{ClientError, Conditions};
use nigh_terms::companion_programs;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Op;
use crate::LabError;
use crate::bench::us;
use crate::instrument::cpu_time;
use crate::instrument::made_up::failed;

/// What a Python client runs.
pub(super) const PROGRAM: &str = include_str!("../../../peers/objects_client.py");
/// Where clients put their objects, as the program has it.
const BUCKET: &str = "bench-bucket";
/// Variables of this process that would send a client elsewhere.
const NOT_INHERITED: [&str; 7] = [
    "NIGH_FAST_PATH",
    "NIGH_HOOK",
    "NIGH_NATIVE",
    "PYTHONPATH",
    "AWS_ENDPOINT_URL",
    "AWS_SESSION_TOKEN",
    "AWS_PROFILE",
];
/// The native module of Nigh's Python client, beside the programs.
const NATIVE: &str = "libnigh_native.so";

pub(super) struct Contestant {
    pub(super) path: &'static str,
    pub(super) client: Client,
    /// Whose processor time counts with the client's.
    pub(super) servers: Vec<u32>,
}

pub(super) enum Client {
    Python(PythonClient),
    Rust(nigh_client::Client),
}

pub(super) struct Calls {
    pub(super) latencies_us: Vec<f64>,
    pub(super) cpu_us: f64,
}

impl Contestant {
    /// Stores the object that will be read, and compares what comes back.
    pub(super) fn prepare(&mut self, bytes: u64) -> Result<(), LabError> {
        match &mut self.client {
            Client::Python(client) => client.ask(&json!({ "do": "prepare", "bytes": bytes })).map(drop),
            Client::Rust(client) => {
                let refused = |error: ClientError| failed(self.path, &error);
                let (key, data) = (key(bytes), vec![b'n'; bytes as usize]);
                client.put(BUCKET, &key, &data, &nigh_client::Headers::new()).map_err(refused)?;
                let view = client.get(BUCKET, &key, &Conditions::default()).map_err(refused)?;
                let same = *view == *data;
                same.then_some(()).ok_or_else(|| failed(self.path, &"other bytes than were stored"))
            }
        }
    }

    pub(super) fn call(&mut self, op: Op, bytes: u64, count: usize) -> Result<Calls, LabError> {
        let before = self.servers_time()?;
        let (latencies_us, client_cpu_us) = match &mut self.client {
            Client::Python(client) => client.call(op, bytes, count)?,
            Client::Rust(client) => rust_calls(client, op, bytes, count).map_err(|error| failed(self.path, &error))?,
        };
        // A thread that has ended takes its time with it: less is then seen than there was.
        let servers = self.servers_time()?.saturating_sub(before);
        // The servers have answered one call more than is counted.
        Ok(Calls { latencies_us, cpu_us: client_cpu_us + us(servers) / (count + 1) as f64 })
    }

    /// Which way boto3's calls went, if this is boto3.
    pub(super) fn ways(&mut self) -> Result<Value, LabError> {
        match &mut self.client {
            Client::Python(client) => client.ask(&json!({ "do": "ways" })),
            Client::Rust(_) => Ok(Value::Null),
        }
    }

    fn servers_time(&self) -> Result<Duration, LabError> {
        let times = self.servers.iter().map(|&pid| cpu_time::of_process(pid));
        times.sum::<std::io::Result<Duration>>().map_err(|error| failed(self.path, &error))
    }
}

fn key(bytes: u64) -> String {
    format!("object-{bytes}")
}

/// `NIGH_NATIVE` of a client of Nigh's: the native module, if it is built.
pub(super) fn native_module() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    let found = companion_programs(&program, NATIVE).find(|path| path.is_file());
    found.map_or_else(|| "off".to_owned(), |path| path.to_string_lossy().into_owned())
}

/// As the Python program measures: one call that does not count, then each by itself.
fn rust_calls(
    client: &mut nigh_client::Client,
    op: Op,
    bytes: u64,
    count: usize,
) -> Result<(Vec<f64>, f64), ClientError> {
    let key = key(bytes);
    let data = vec![b'n'; if op == Op::Put { bytes as usize } else { 0 }];
    let mut call = || {
        match op {
            Op::Read => drop(std::hint::black_box(client.get(BUCKET, &key, &Conditions::default())?.to_vec())),
            Op::View => drop(std::hint::black_box(client.get(BUCKET, &key, &Conditions::default())?.first().copied())),
            Op::Put => drop(client.put(BUCKET, &format!("written-{bytes}"), &data, &nigh_client::Headers::new())?),
        }
        Ok(())
    };
    call()?;
    let mut latencies = Vec::with_capacity(count);
    let before = cpu_time::of_this_thread();
    for _ in 0..count {
        let begun = Instant::now();
        call()?;
        latencies.push(us(begun.elapsed()));
    }
    Ok((latencies, us(cpu_time::of_this_thread().saturating_sub(before)) / count.max(1) as f64))
}

#[derive(Debug)]
pub(super) struct PythonClient {
    path: &'static str,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

#[derive(Deserialize)]
struct ContenderTimes {
    us: Vec<f64>,
    cpu_us: f64,
}

impl PythonClient {
    /// Starts `program` for one kind of store.
    pub(super) fn start(
        path: &'static str,
        python: &Path,
        program: &Path,
        store: &str,
        environment: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, LabError> {
        let mut command = Command::new(python);
        for variable in NOT_INHERITED {
            command.env_remove(variable);
        }
        let mut child = command
            .arg(program)
            .arg(store)
            .envs(environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| failed(path, &error))?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(orders), Some(answers)) => {
                Ok(Self { path, child, orders: Some(orders), answers: BufReader::new(answers) })
            }
            _ => Err(failed(path, &"no pipes to it")),
        }
    }

    /// Whether this client of Nigh's is `native`, or `Python` alone.
    pub(super) fn kind(&mut self) -> Result<String, LabError> {
        let answer = self.ask(&json!({ "do": "client" }))?;
        let kind = answer["client"].as_str().map(str::to_owned);
        kind.ok_or_else(|| failed(self.path, &format!("it did not say which client it is: {answer}")))
    }

    fn ask(&mut self, order: &Value) -> Result<Value, LabError> {
        let mut line = String::new();
        let asked = self.orders.as_mut().map_or(Ok(()), |orders| writeln!(orders, "{order}"));
        let answered = asked.and_then(|()| self.answers.read_line(&mut line));
        match answered {
            Ok(1..) => serde_json::from_str(&line).map_err(|error| failed(self.path, &error)),
            Ok(0) => Err(failed(self.path, &format!("its client ended at {order}; what it said is above"))),
            Err(error) => Err(failed(self.path, &format!("{order}: {error}"))),
        }
    }

    fn call(&mut self, op: Op, bytes: u64, count: usize) -> Result<(Vec<f64>, f64), LabError> {
        let answer = self.ask(&json!({ "do": op, "bytes": bytes, "count": count }))?;
        let measured: ContenderTimes = serde_json::from_value(answer).map_err(|error| failed(self.path, &error))?;
        Ok((measured.us, measured.cpu_us))
    }
}

impl Drop for PythonClient {
    fn drop(&mut self) {
        // It ends with its input; both fail only if it has ended.
        self.orders = None;
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
