//! Server-sent events (WHATWG HTML, "Server-sent events"): how values reach an open page.
//!
//! One stream a tab. A value is sent at most twice a second, and an empty object when nothing was sent for a while, so that
//! both sides learn of a broken connection: scripts do not see the comments of a stream. A client that does not take what is
//! sent is closed by the listener (`nigh_http::watch`). When the node stops, the streams end (`admin::ends_with_node`) and
//! browsers come back.

use std::convert::Infallible;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive};
use axum::response::{IntoResponse, Response, Sse};
use futures::{Stream, StreamExt as _};
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Streams at a time in this process.
const STREAMS_MAX: usize = 200;
/// Between two values of a stream.
const EVERY: Duration = Duration::from_millis(500);
/// Without a value for so long, an empty object is sent.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// After how long a browser asks again when the stream has ended.
const RETRY: Duration = Duration::from_secs(2);

static STREAMS: Semaphore = Semaphore::const_new(STREAMS_MAX);

/// The answer that sends each value of `values` as one event with a number, until they end or the client leaves.
pub(super) fn events<T: Serialize + Send + 'static>(values: impl Stream<Item = T> + Send + 'static) -> Response {
    events_within(values, &STREAMS, HEARTBEAT)
}

fn events_within<T: Serialize + Send + 'static>(
    values: impl Stream<Item = T> + Send + 'static,
    places: &'static Semaphore,
    heartbeat: Duration,
) -> Response {
    let Ok(place) = places.try_acquire() else {
        let words = format!("{STREAMS_MAX} live views are open at this node; close one and reload");
        return (StatusCode::SERVICE_UNAVAILABLE, words).into_response();
    };
    let numbered = paced(values, EVERY).enumerate().map(move |(number, value)| {
        // The place is free again when the stream is dropped.
        let _held = &place;
        Ok::<_, Infallible>(event(number, &value))
    });
    let alive = KeepAlive::new().interval(heartbeat).event(Event::default().data("{}"));
    Sse::new(numbered).keep_alive(alive).into_response()
}

fn event(number: usize, value: &impl Serialize) -> Event {
    let event = Event::default().id(number.to_string()).retry(RETRY);
    event.json_data(value).unwrap_or_else(|error| {
        tracing::error!(%error, "a live view's value cannot be written as JSON");
        Event::default().comment("a value was left out")
    })
}

/// The values, with at least `every` between two of them: the source is not asked earlier.
fn paced<T>(values: impl Stream<Item = T> + Send + 'static, every: Duration) -> impl Stream<Item = T> + Send {
    futures::stream::unfold((Box::pin(values), None::<Interval>), move |(mut values, ticks)| async move {
        let mut ticks = ticks.unwrap_or_else(|| {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        ticks.tick().await;
        let value = values.next().await?;
        Some((value, (values, Some(ticks))))
    })
}

#[cfg(test)]
mod tests {
    use axum::http::header;
    use http_body_util::BodyExt as _;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test]
    async fn a_value_is_an_event_with_a_number_and_the_time_to_come_back() {
        let response = events(futures::stream::iter([json!({"a": 1}), json!("two\nlines")]));
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        assert!(text.starts_with("id: 0\nretry: 2000\ndata: {\"a\":1}\n\n"), "{text}");
        assert!(text.contains("id: 1\n") && text.contains("data: \"two\\nlines\"\n\n"), "{text}");
    }

    #[tokio::test]
    async fn values_come_at_most_twice_a_second_however_fast_they_are_made() {
        let mut paced = Box::pin(paced(futures::stream::iter(0..4), Duration::from_millis(20)));
        let begun = Instant::now();
        let mut count = 0;
        while paced.next().await.is_some() {
            count += 1;
        }
        assert_eq!(count, 4);
        // The first comes at once; three waits follow, and one for the end.
        assert!(begun.elapsed() >= Duration::from_millis(60), "{:?}", begun.elapsed());
    }

    #[tokio::test]
    async fn a_script_hears_of_a_stream_on_which_no_value_comes() {
        static PLACES: Semaphore = Semaphore::const_new(1);
        let silent = events_within(futures::stream::pending::<u8>(), &PLACES, Duration::from_millis(1));
        let mut body = silent.into_body();
        for _ in 0..2 {
            let heard = body.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(heard, "data: {}\n\n");
        }
    }

    #[tokio::test]
    async fn a_stream_too_many_is_refused_until_one_is_closed() {
        static PLACES: Semaphore = Semaphore::const_new(1);
        let open = || events_within(futures::stream::pending::<u8>(), &PLACES, HEARTBEAT);
        let first = open();
        assert_eq!((first.status(), open().status()), (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE));
        drop(first);
        assert_eq!(open().status(), StatusCode::OK);
    }
}
