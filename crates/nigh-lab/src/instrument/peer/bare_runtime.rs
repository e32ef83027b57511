//! A function without a platform: the vendor's runtime client against a bare Runtime API server.
//!
//! No sandbox, no door, no record: what an invocation costs at least, and how a function runs directly against a store.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{KilledOnDrop, PeerError};
use crate::instrument::http_load::header;

const PEER: &str = "awslambdaric on a bare server";
/// How long initialisation or one invocation may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long an invocation says it may take.
const DEADLINE: Duration = Duration::from_secs(900);

/// How much of what a process has printed is told when it ends by itself.
const LAST_LINES: usize = 5;
/// How late that may come.
const LAST_WITHIN: Duration = Duration::from_secs(1);

/// One function's process and its Runtime API connection.
pub(crate) struct BareRuntime {
    child: KilledOnDrop,
    listener: TcpListener,
    client: BufReader<TcpStream>,
    log: Arc<Mutex<Vec<String>>>,
    readers: Vec<JoinHandle<()>>,
    invocations: u64,
    /// From the start of the process to its first request.
    pub(crate) init: Duration,
}

/// One invocation's end.
#[derive(Debug)]
pub(crate) struct BareAnswer {
    /// What the handler returned, or the error object.
    pub(crate) payload: Vec<u8>,
    /// True if it answered on `/response`.
    pub(crate) succeeded: bool,
    /// From the event's first byte to the answer's last.
    pub(crate) took: Duration,
    /// What it printed since the last answer.
    pub(crate) log: Vec<String>,
}

struct Message {
    target: String,
    body: Vec<u8>,
}

impl BareRuntime {
    /// Runs `python -m awslambdaric handler` in `code`, with `environment` beside what the client needs, and waits
    /// for its first request.
    pub(crate) fn start(
        python: &Path,
        code: &Path,
        handler: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, PeerError> {
        let mut command = Command::new(python);
        command
            .args(["-m", "awslambdaric", handler])
            .current_dir(code)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "en_US.UTF-8")
            .env("LAMBDA_TASK_ROOT", code)
            .env("AWS_LAMBDA_FUNCTION_NAME", "bare")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "10240")
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Self::spawn(command).map_err(|error| PeerError::failed(PEER, error))
    }

    fn spawn(mut command: Command) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let begin = Instant::now();
        command.env("AWS_LAMBDA_RUNTIME_API", listener.local_addr()?.to_string());
        let mut child = KilledOnDrop(command.spawn()?);
        let log = Arc::new(Mutex::new(Vec::new()));
        let outputs = [child.0.stdout.take().map(boxed), child.0.stderr.take().map(boxed)].into_iter().flatten();
        let read = |output| {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            })
        };
        let readers = outputs.map(read).collect();
        let client = BufReader::new(accept(&listener, &mut child.0, begin)?);
        let mut runtime = Self { child, listener, client, log, readers, invocations: 0, init: Duration::ZERO };
        let first = runtime.receive()?;
        if !first.target.ends_with("/invocation/next") {
            return Err(io::Error::other(format!("{}: {}", first.target, String::from_utf8_lossy(&first.body))));
        }
        runtime.init = begin.elapsed();
        Ok(runtime)
    }

    /// Gives the function `payload` and waits for its answer.
    pub(crate) fn invoke(&mut self, payload: &[u8]) -> io::Result<BareAnswer> {
        self.try_invoke(payload).map_err(|error| self.explained(error))
    }

    fn try_invoke(&mut self, payload: &[u8]) -> io::Result<BareAnswer> {
        self.invocations += 1;
        let id = format!("00000000-0000-4000-8000-{:012x}", self.invocations);
        let deadline = std::time::SystemTime::now() + DEADLINE;
        let deadline_ms = deadline.duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nLambda-Runtime-Aws-Request-Id: {id}\r\n\
             Lambda-Runtime-Deadline-Ms: {deadline_ms}\r\n\
             Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:us-east-1:000000000000:function:bare\r\n\
             Content-Length: {}\r\n\r\n",
            payload.len()
        );
        let begin = Instant::now();
        self.client.get_mut().write_all(&[head.as_bytes(), payload].concat())?;
        let answer = self.receive()?;
        let took = begin.elapsed();
        self.client.get_mut().write_all(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")?;
        let next = self.receive()?;
        if !next.target.ends_with("/invocation/next") {
            return Err(io::Error::other(format!("{} where the next request was expected", next.target)));
        }
        let succeeded = answer.target.ends_with("/response");
        Ok(BareAnswer { payload: answer.body, succeeded, took, log: self.take_log() })
    }

    /// What it printed and nobody has taken yet. A line may come a moment after the answer before which it was printed.
    pub(crate) fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its next request. It may make it on a new connection: the vendor's client closes one on which nothing was said for two
    /// minutes, as while a handler runs that long.
    fn receive(&mut self) -> io::Result<Message> {
        loop {
            if let Some(message) = read_message(&mut self.client)? {
                return Ok(message);
            }
            self.client = BufReader::new(accept(&self.listener, &mut self.child.0, Instant::now())?);
        }
    }

    /// `error` with what became of the process, if it has ended.
    fn explained(&mut self, error: io::Error) -> io::Error {
        let Ok(Some(status)) = self.child.0.try_wait() else { return error };
        let begun = Instant::now();
        while !self.readers.iter().all(JoinHandle::is_finished) && begun.elapsed() < LAST_WITHIN {
            std::thread::sleep(Duration::from_millis(1));
        }
        let said = self.take_log();
        let last = said[said.len().saturating_sub(LAST_LINES)..].join(" | ");
        io::Error::new(error.kind(), format!("{error}; its process ended, {status}; it printed last: {last}"))
    }
}

/// One request; nothing if the connection was closed before it began.
fn read_message(client: &mut BufReader<TcpStream>) -> io::Result<Option<Message>> {
    let mut head = String::new();
    loop {
        let begin = head.len();
        match client.read_line(&mut head) {
            Ok(0) if begin == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if begin == 0 && error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            read => read?,
        };
        if &head[begin..] == "\r\n" {
            break;
        }
    }
    if header(&head, "expect").is_some() {
        client.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    client.read_exact(&mut body)?;
    let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok(Some(Message { target, body }))
}

fn boxed(output: impl Read + Send + 'static) -> Box<dyn Read + Send> {
    Box::new(output)
}

fn accept(listener: &TcpListener, child: &mut Child, begin: Instant) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TIMEOUT))?;
                return Ok(stream);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if let Some(status) = child.try_wait()? {
            return Err(io::Error::other(format!("its process ended before it asked for work: {status}")));
        }
        if begin.elapsed() > TIMEOUT {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skip;

    /// Python with the vendor's client; says so where it is missing.
    fn python(test: &str) -> Option<std::path::PathBuf> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/python/bin/python3");
        if !python.exists() {
            skip(test, "run `make deps` first");
            return None;
        }
        Some(python)
    }

    #[test]
    fn a_handler_answers_fails_and_prints_without_a_platform() {
        let Some(python) = python("a_handler_answers_fails_and_prints_without_a_platform") else { return };
        let folder = tempfile::tempdir().unwrap();
        let code =
            "def handler(event, context):\n    print('seen', event['n'])\n    return {'twice': 2 * event['n']}\n";
        std::fs::write(folder.path().join("app.py"), code).unwrap();
        let mut runtime = BareRuntime::start(&python, folder.path(), "app.handler", &BTreeMap::new()).unwrap();
        for n in 1..4 {
            let answer = runtime.invoke(format!("{{\"n\": {n}}}").as_bytes()).unwrap();
            assert!(answer.succeeded);
            assert_eq!(answer.payload, format!("{{\"twice\": {}}}", 2 * n).as_bytes());
        }
        assert!(!runtime.invoke(b"{}").unwrap().succeeded);
        assert!(BareRuntime::start(&python, folder.path(), "absent.handler", &BTreeMap::new()).is_err());
    }

    /// A client that asks each time on a connection of its own, and ends when it is told to.
    const FORGETFUL: &str = "import http.client, os, sys

def ask(method, path, body=None):
    connection = http.client.HTTPConnection(os.environ['AWS_LAMBDA_RUNTIME_API'])
    connection.request(method, '/2018-06-01/runtime/invocation/' + path, body)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.headers, body

while True:
    headers, event = ask('GET', 'next')
    if event == b'end':
        print('it is told to end', flush=True)
        sys.exit(7)
    ask('POST', headers['Lambda-Runtime-Aws-Request-Id'] + '/response', event)
";

    #[test]
    fn a_client_may_ask_on_a_new_connection_and_one_that_ends_is_told_with_what_it_printed() {
        let test = "a_client_may_ask_on_a_new_connection_and_one_that_ends_is_told_with_what_it_printed";
        let Some(python) = python(test) else { return };
        let folder = tempfile::tempdir().unwrap();
        let package = folder.path().join("awslambdaric");
        std::fs::create_dir(&package).unwrap();
        for (file, text) in [("__init__.py", ""), ("__main__.py", FORGETFUL)] {
            std::fs::write(package.join(file), text).unwrap();
        }
        let mut runtime = BareRuntime::start(&python, folder.path(), "none", &BTreeMap::new()).unwrap();
        for _ in 0..3 {
            assert_eq!(runtime.invoke(b"{}").unwrap().payload, b"{}");
        }
        let error = runtime.invoke(b"end").unwrap_err().to_string();
        assert!(error.contains("status: 7") && error.contains("it is told to end"), "{error}");
    }
}
