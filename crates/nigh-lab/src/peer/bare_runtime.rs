//! A function without a platform: the vendor's runtime client against a bare Runtime API server.
//!
//! No sandbox, no door, no record: what an invocation costs at least, and how a function runs directly against a store.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::PeerError;
use crate::http_load::header;

const PEER: &str = "awslambdaric on a bare server";
/// How long initialisation or one invocation may take.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long an invocation says it may take.
const DEADLINE: Duration = Duration::from_secs(900);

/// One function's process and its Runtime API connection.
pub struct BareRuntime {
    child: Child,
    client: BufReader<TcpStream>,
    log: Arc<Mutex<Vec<String>>>,
    invocations: u64,
    /// From the start of the process to its first request.
    pub init: Duration,
}

/// One invocation's end.
#[derive(Debug)]
pub struct BareAnswer {
    /// What the handler returned, or the error object.
    pub payload: Vec<u8>,
    /// True if it answered on `/response`.
    pub succeeded: bool,
    /// From the event's first byte to the answer's last.
    pub took: Duration,
    /// What it printed since the last answer.
    pub log: Vec<String>,
}

struct Message {
    target: String,
    body: Vec<u8>,
}

impl BareRuntime {
    /// Runs `python -m awslambdaric handler` in `code`, with `environment` beside what the client needs, and waits
    /// for its first request.
    ///
    /// # Errors
    /// If it does not start or its initialisation fails.
    pub fn start(
        python: &Path,
        code: &Path,
        handler: &str,
        environment: &BTreeMap<String, String>,
    ) -> Result<Self, PeerError> {
        Self::try_start(python, code, handler, environment)
            .map_err(|error| PeerError::Failed { peer: PEER, reason: error.to_string() })
    }

    fn try_start(
        python: &Path,
        code: &Path,
        handler: &str,
        environment: &BTreeMap<String, String>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let begin = Instant::now();
        let mut child = Command::new(python)
            .args(["-m", "awslambdaric", handler])
            .current_dir(code)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "en_US.UTF-8")
            .env("LAMBDA_TASK_ROOT", code)
            .env("AWS_LAMBDA_RUNTIME_API", listener.local_addr()?.to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", "bare")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "$LATEST")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "10240")
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = Arc::new(Mutex::new(Vec::new()));
        for output in [child.stdout.take().map(boxed), child.stderr.take().map(boxed)].into_iter().flatten() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    log.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                }
            });
        }
        let client = accept(&listener, &mut child, begin)?;
        let mut runtime = Self { child, client: BufReader::new(client), log, invocations: 0, init: Duration::ZERO };
        let first = runtime.receive()?;
        if !first.target.ends_with("/invocation/next") {
            return Err(io::Error::other(format!("{}: {}", first.target, String::from_utf8_lossy(&first.body))));
        }
        runtime.init = begin.elapsed();
        Ok(runtime)
    }

    /// Gives the function `payload` and waits for its answer.
    ///
    /// # Errors
    /// If its process ends or does not keep to the Runtime API.
    pub fn invoke(&mut self, payload: &[u8]) -> io::Result<BareAnswer> {
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
    pub fn take_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn receive(&mut self) -> io::Result<Message> {
        let mut head = String::new();
        loop {
            let begin = head.len();
            if self.client.read_line(&mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if &head[begin..] == "\r\n" {
                break;
            }
        }
        if header(&head, "expect").is_some() {
            self.client.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
        }
        let length = header(&head, "content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.client.read_exact(&mut body)?;
        let target = head.split(' ').nth(1).unwrap_or_default().to_owned();
        Ok(Message { target, body })
    }
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

impl Drop for BareRuntime {
    fn drop(&mut self) {
        // Both fail only if the process is gone, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_answers_fails_and_prints_without_a_platform() {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.deps/python/bin/python3");
        if !python.exists() {
            println!("SKIPPED: a_handler_answers_fails_and_prints_without_a_platform: run `make deps` first");
            return;
        }
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
}
