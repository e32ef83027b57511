//! Sources of a window's latencies: a probe command, a function's invocations, or a histogram that the service exports.
//! Each gives one window after the other, and decides nothing.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nigh_llc::{ExportedHistogram, GuardWindow, HistogramChoice, LatencyHistogram, SCRAPE_BYTES_MAX};
use nigh_node::admin::LogEntry;
use nigh_node::client::{ClientError, Lines, fetch};
use nigh_terms::{FunctionName, Ways};

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Bytes of a probe's output that are read for one window.
const PROBE_BYTES_MAX: usize = 64 << 20;
/// How long a service may take to export its histogram.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(10);
/// How many scrapes in a row may fail: a restarting service is away for a moment.
const SCRAPE_FAILURES_MAX: u32 = 3;

/// A source of windows.
pub(super) enum LatencySource {
    /// A shell command; a window is as long as it runs.
    Probe(String),
    /// What ends of a function's invocations.
    Function { ends: Lines, window: Duration },
    /// What a service counts.
    Histogram(Box<HistogramSource>),
}

/// An exported histogram with its values at the last scrape.
pub(super) struct HistogramSource {
    place: Place,
    choice: HistogramChoice,
    window: Duration,
    before: ExportedHistogram,
    failures: u32,
}

/// Where a histogram is exported.
enum Place {
    File(PathBuf),
    Url(String),
}

impl LatencySource {
    /// The invocations of a function on the node that runs, from now on.
    pub(super) async fn function(
        function: &FunctionName,
        window: Duration,
        globals: &Globals,
    ) -> Result<Self, CliError> {
        // A function that does not exist would never give a latency.
        globals.lambda().await?.get(function).await?;
        let namespace = globals.namespace().await?;
        let path = format!("/logs?namespace={namespace}&function={function}&limit=0&follow=true");
        Ok(Self::Function { ends: globals.admin()?.lines(&path).await?, window })
    }

    /// A histogram in a file or at an `http://` URL, with bounds that can tell whether `limit` was met.
    pub(super) async fn histogram(
        place: &str,
        choice: HistogramChoice,
        window: Duration,
        limit: Duration,
    ) -> Result<Self, CliError> {
        let place =
            if place.contains("://") { Place::Url(place.to_owned()) } else { Place::File(PathBuf::from(place)) };
        let before = place.scrape(&choice).await?;
        match before.longest_bound() {
            Some(bound) if bound >= limit => {}
            bound => {
                let longest = bound.map_or_else(|| "none".to_owned(), |bound| format!("{bound:?}"));
                return Err(CliError::Usage(format!(
                    "the histogram's longest bound is {longest}, below the objective of {limit:?}: it cannot tell \
                     whether that is met; export a bound at the objective, and one at seven tenths of it"
                )));
            }
        }
        Ok(Self::Histogram(Box::new(HistogramSource { place, choice, window, before, failures: 0 })))
    }

    /// The next window; the ways in it are the caller's to say.
    pub(super) async fn window(&mut self) -> Result<GuardWindow, CliError> {
        let began = Instant::now();
        let latency = match self {
            Self::Probe(command) => probed(command).await?,
            Self::Function { ends, window } => ended(ends, *window).await?,
            Self::Histogram(source) => source.next().await?,
        };
        let load = latency.total() as f64 / began.elapsed().as_secs_f64();
        Ok(GuardWindow { applied: Ways(0), latency, load, batch_progress: None })
    }
}

/// Runs the probe; gives its output.
async fn probed(probe: &str) -> Result<LatencyHistogram, CliError> {
    let command = probe.to_owned();
    let run = move || Command::new("sh").args(["-c", &command]).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let ran = tokio::task::spawn_blocking(run).await.map_err(|error| CliError::Failed(error.to_string()))?;
    let output = ran.map_err(CliError::local("the probe"))?;
    if !output.status.success() {
        return Err(CliError::Failed(format!("the probe failed: {}", output.status)));
    }
    latencies(&output.stdout)
}

/// Microseconds, one a line.
fn latencies(printed: &[u8]) -> Result<LatencyHistogram, CliError> {
    let text = String::from_utf8_lossy(&printed[..printed.len().min(PROBE_BYTES_MAX)]);
    let mut histogram = LatencyHistogram::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let micros = line.parse().ok().filter(|micros: &f64| micros.is_finite() && *micros >= 0.0);
        let micros = micros.ok_or_else(|| {
            CliError::Failed(format!("the probe printed {line:?}, which is not a latency in microseconds"))
        })?;
        histogram.record(Duration::from_secs_f64(micros / 1e6));
    }
    Ok(histogram)
}

/// The handler's time of each invocation that ends within the window, failed ones included.
async fn ended(ends: &mut Lines, window: Duration) -> Result<LatencyHistogram, CliError> {
    let mut histogram = LatencyHistogram::default();
    let deadline = tokio::time::Instant::now() + window;
    // A line that is not complete stays for the next window.
    while let Ok(end) = tokio::time::timeout_at(deadline, ends.next::<LogEntry>()).await {
        let end = end?.ok_or_else(|| CliError::Failed("the node has ended".to_owned()))?;
        histogram.record(Duration::from_micros(end.duration_us));
    }
    Ok(histogram)
}

impl HistogramSource {
    async fn next(&mut self) -> Result<LatencyHistogram, CliError> {
        tokio::time::sleep(self.window).await;
        let now = match self.place.scrape(&self.choice).await {
            Ok(now) => now,
            Err(error) => {
                self.failures += 1;
                if self.failures >= SCRAPE_FAILURES_MAX {
                    return Err(error);
                }
                output::remark(format!("no latencies in this window: {error}"));
                return Ok(LatencyHistogram::default());
            }
        };
        self.failures = 0;
        let before = std::mem::replace(&mut self.before, now);
        self.before.since(&before).or_else(|lost| {
            output::remark(format!("no latencies in this window: {lost}"));
            Ok(LatencyHistogram::default())
        })
    }
}

impl Place {
    async fn scrape(&self, choice: &HistogramChoice) -> Result<ExportedHistogram, CliError> {
        let (what, text) = match self {
            Self::File(path) => {
                let what = path.display().to_string();
                let text = read(path).map_err(CliError::local(&what))?;
                (what, text)
            }
            Self::Url(url) => {
                let answer = tokio::time::timeout(SCRAPE_TIMEOUT, fetch(url)).await.map_err(|_| {
                    CliError::Failed(format!("{url}: no histogram within {} s", SCRAPE_TIMEOUT.as_secs()))
                })?;
                let answer = answer.map_err(|error| match error {
                    // The exit code for a missing node does not fit: this is another service.
                    ClientError::Connect { endpoint, reason } => {
                        CliError::Failed(format!("{endpoint} cannot be reached: {reason}; does the service run?"))
                    }
                    other => other.into(),
                })?;
                (url.clone(), answer.to_vec())
            }
        };
        let text = String::from_utf8(text).map_err(|error| CliError::Failed(format!("{what} is not text: {error}")))?;
        ExportedHistogram::parse(&text, choice).map_err(|error| CliError::Failed(format!("{what}: {error}")))
    }
}

/// A file's bytes; of a file above the limit, enough for the parser to notice.
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::open(path)?.take(SCRAPE_BYTES_MAX as u64 + 1).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    const WINDOW: Duration = Duration::from_millis(5);
    const LIMIT: Duration = Duration::from_micros(70);

    fn exported(within: u64, all: u64) -> String {
        format!("get_us_bucket{{le=\"70\"}} {within}\nget_us_bucket{{le=\"+Inf\"}} {all}\n")
    }

    #[test]
    fn a_probes_lines_are_latencies_and_anything_else_is_an_error() {
        let histogram = latencies(b"10\n 20.5 \n\n30\n").unwrap();
        assert_eq!(histogram.total(), 3);
        for wrong in [&b"ten\n"[..], b"-1\n", b"nan\n", b"inf\n"] {
            assert!(latencies(wrong).is_err());
        }
    }

    #[tokio::test]
    async fn a_probe_that_fails_is_told() {
        let mut probe = LatencySource::Probe("printf '5\\n6\\n'".to_owned());
        assert_eq!(probe.window().await.unwrap().latency.total(), 2);
        let mut probe = LatencySource::Probe("exit 3".to_owned());
        assert!(probe.window().await.unwrap_err().to_string().contains("exit status: 3"));
    }

    #[tokio::test]
    async fn a_histogram_in_a_file_gives_what_was_added_since_the_last_window() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("latencies.prom");
        std::fs::write(&file, exported(10, 10)).unwrap();
        let place = file.to_str().unwrap();
        let choice = HistogramChoice::default();
        let mut source = LatencySource::histogram(place, choice.clone(), WINDOW, LIMIT).await.unwrap();
        assert_eq!(source.window().await.unwrap().latency.total(), 0);
        std::fs::write(&file, exported(14, 15)).unwrap();
        assert_eq!(source.window().await.unwrap().latency.total(), 5);
        // Started anew: one window is lost, the next counts again.
        std::fs::write(&file, exported(1, 1)).unwrap();
        assert_eq!(source.window().await.unwrap().latency.total(), 0);
        std::fs::write(&file, exported(3, 3)).unwrap();
        assert_eq!(source.window().await.unwrap().latency.total(), 2);
        // Gone for good: told at the third time.
        std::fs::remove_file(&file).unwrap();
        for _ in 1..SCRAPE_FAILURES_MAX {
            assert_eq!(source.window().await.unwrap().latency.total(), 0);
        }
        assert!(source.window().await.is_err());
        std::fs::write(&file, exported(1, 1)).unwrap();
        let beyond = LatencySource::histogram(place, choice, WINDOW, LIMIT * 2).await;
        assert!(beyond.is_err_and(|error| error.to_string().contains("cannot tell")));
    }

    #[tokio::test]
    async fn a_histogram_is_fetched_over_http() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/metrics", listener.local_addr().unwrap());
        let service = std::thread::spawn(move || {
            for count in [5, 9] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap();
                assert!(request[..read].starts_with(b"GET /metrics HTTP/1.1\r\n"));
                let text = exported(count, count);
                write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}", text.len()).unwrap();
            }
        });
        let mut source = LatencySource::histogram(&url, HistogramChoice::default(), WINDOW, LIMIT).await.unwrap();
        assert_eq!(source.window().await.unwrap().latency.total(), 4);
        service.join().unwrap();
        let gone = source.window().await.unwrap();
        assert_eq!(gone.latency.total(), 0, "a service that is away for a moment ends nothing");
    }
}
