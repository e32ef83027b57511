use std::collections::VecDeque;

use nigh_trace::{SpanContext, SpanKind};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const TAKEN: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
const BUSY: &str = "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n";
const WRONG: &str = "HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n";
/// It answers nothing, and keeps the connection.
const HANGS: &str = "";

/// A collector that gives `answers` in turn, and then takes everything.
async fn collector(answers: &[&'static str]) -> (String, mpsc::UnboundedReceiver<Value>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = mpsc::unbounded_channel();
    let answers: Arc<Mutex<VecDeque<&'static str>>> = Arc::new(Mutex::new(answers.iter().copied().collect()));
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let (answers, tell) = (Arc::clone(&answers), tell.clone());
            tokio::spawn(async move {
                let mut read = Vec::new();
                while let Some(body) = next_body(&mut stream, &mut read).await {
                    // The test may be over.
                    let _ = tell.send(serde_json::from_slice(&body).unwrap());
                    let answer = answers.lock().pop_front().unwrap_or(TAKEN);
                    if answer == HANGS {
                        std::future::pending::<()>().await;
                    }
                    stream.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (address, told)
}

async fn next_body(stream: &mut tokio::net::TcpStream, read: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        if let Some(end) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            assert!(head.starts_with("post /v1/traces http/1.1") && head.contains("content-type: application/json"));
            assert!(head.contains("x-key: hush"), "{head}");
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
            let whole = end + 4 + length.unwrap();
            if read.len() >= whole {
                let body = read[end + 4..whole].to_vec();
                read.drain(..whole);
                return Some(body);
            }
        }
        if stream.read_buf(read).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

fn settings(endpoint: &str) -> TraceSettings {
    let headers = Some(nigh_terms::SecretKey::new("x-key=hush"));
    TraceSettings { endpoint: Some(endpoint.to_owned()), headers, ..TraceSettings::default() }
}

fn span(name: &'static str) -> FinishedSpan {
    FinishedSpan {
        context: SpanContext::of_traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").unwrap(),
        parent: None,
        name: name.into(),
        kind: SpanKind::Internal,
        start_ns: 1,
        end_ns: 2,
        attributes: Vec::new(),
        failure: None,
    }
}

/// An exporter to `endpoint`: where spans go in, and how it is told to end.
fn exporter(endpoint: &str) -> (mpsc::Sender<FinishedSpan>, CancellationToken, JoinHandle<()>) {
    let collector = settings(endpoint).collector().unwrap().unwrap();
    let (queue, spans) = mpsc::channel(QUEUE_MAX);
    let target = Target::new(&collector, "n1").unwrap();
    let (_, targets) = watch::channel(Some(Arc::new(target)));
    let ending = CancellationToken::new();
    let task = tokio::spawn(Exporter::new(spans, targets, ending.clone()).run());
    (queue, ending, task)
}

fn names(request: &Value) -> Vec<&str> {
    let spans = request["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap();
    spans.iter().map(|span| span["name"].as_str().unwrap()).collect()
}

async fn next(told: &mut mpsc::UnboundedReceiver<Value>) -> Value {
    tokio::time::timeout(Duration::from_secs(60), told.recv()).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_busy_collector_gets_a_batch_again_and_one_that_refuses_it_does_not() {
    let (endpoint, mut told) = collector(&[BUSY, TAKEN, WRONG]).await;
    let (queue, ending, task) = exporter(&endpoint);
    queue.send(span("first")).await.unwrap();
    assert_eq!(names(&next(&mut told).await), ["first"]);
    assert_eq!(names(&next(&mut told).await), ["first"], "it is sent again");
    queue.send(span("refused")).await.unwrap();
    assert_eq!(names(&next(&mut told).await), ["refused"]);
    queue.send(span("last")).await.unwrap();
    assert_eq!(names(&next(&mut told).await), ["last"], "what was refused is not sent again");
    ending.cancel();
    task.await.unwrap();
}

#[tokio::test]
async fn what_is_queued_at_the_end_is_sent() {
    let (endpoint, mut told) = collector(&[]).await;
    let (queue, ending, task) = exporter(&endpoint);
    for _ in 0..700 {
        queue.try_send(span("one")).unwrap();
    }
    ending.cancel();
    task.await.unwrap();
    assert_eq!((names(&next(&mut told).await).len(), names(&next(&mut told).await).len()), (512, 188));
}

#[tokio::test]
async fn a_collector_that_hangs_costs_requests_nothing_but_spans() {
    let (endpoint, mut told) = collector(&[HANGS]).await;
    let (queue, ..) = exporter(&endpoint);
    let sink = SpanQueue(queue.clone());
    sink.take(span("hangs"));
    assert_eq!(names(&next(&mut told).await), ["hangs"]);
    // Nobody takes spans now: the queue fills, and no call waits.
    for _ in 0..2 * QUEUE_MAX {
        sink.take(span("more"));
    }
    assert_eq!(queue.capacity(), 0);
}

#[tokio::test]
async fn settings_are_taken_over_while_the_node_runs_and_wrong_ones_are_refused() {
    let (endpoint, mut told) = collector(&[]).await;
    let traces = Traces::open(&TraceSettings::default(), "n1").unwrap();
    assert!(!nigh_trace::is_on());
    assert_eq!(traces.reload(&settings(&endpoint)), Ok(true));
    assert_eq!(traces.reload(&settings(&endpoint)), Ok(false), "nothing has changed");
    assert!(nigh_trace::is_on());
    drop(nigh_trace::Span::root("recorded", SpanKind::Internal));
    assert_eq!(names(&next(&mut told).await), ["recorded"]);
    assert!(traces.reload(&settings("nowhere")).unwrap_err().contains("traces.endpoint"));
    assert!(nigh_trace::is_on(), "the earlier settings stay");
    drop(nigh_trace::Span::root("at the end", SpanKind::Internal));
    traces.close(Duration::from_secs(60)).await;
    assert_eq!(names(&next(&mut told).await), ["at the end"]);
    assert!(!nigh_trace::is_on());
}
