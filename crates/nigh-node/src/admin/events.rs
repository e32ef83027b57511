//! Asynchronous invocations.

use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::response::Response;
use nigh_invoke::event_invoker::{EventListing, ListedEvent};
use nigh_terms::{InvocationId, Namespace};
use schemars::JsonSchema;
use serde::Deserialize;

use super::refusal::Refusal;
use super::{AdminSource, RECORDS_MAX, json, no_content, with_cursor};

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EventParams {
    /// Whose events.
    namespace: Namespace,
    /// True for events that wait or run, too.
    #[serde(default)]
    all: bool,
    /// The most events: 1000 at most, and if absent.
    limit: Option<usize>,
    /// Where the page begins: the header `x-nigh-cursor` of the page before.
    cursor: Option<String>,
}

/// Behind which event a page begins.
#[derive(Debug, PartialEq, Eq)]
struct EventCursor {
    /// When it died, if it is a dead letter, RFC 3339.
    died: Option<String>,
    id: InvocationId,
}

impl EventCursor {
    fn text(event: &ListedEvent) -> String {
        match &event.died {
            Some(died) => format!("{died}_{}", event.id),
            None => event.id.to_string(),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (died, id) = match text.rsplit_once('_') {
            Some((died, id)) => (Some(died.to_owned()), id),
            None => (None, text),
        };
        Some(Self { died, id: id.parse().ok()? })
    }

    /// How many of `events`, in the order of `EventListing`, come before the page, also if the cursor's event is gone.
    fn passed(&self, events: &[ListedEvent]) -> usize {
        if let Some(at) = events.iter().position(|event| event.id == self.id && event.died == self.died) {
            return at + 1;
        }
        let is_behind = |event: &ListedEvent| match (&self.died, &event.died) {
            (None, None) => event.id > self.id,
            (None, Some(_)) => true,
            (Some(_), None) => false,
            (Some(cursor), Some(died)) => died <= cursor,
        };
        events.iter().position(is_behind).unwrap_or(events.len())
    }
}

/// Leaves of `listing` the page behind `cursor`. Returns the next page's cursor.
fn cut(listing: &mut EventListing, cursor: Option<&EventCursor>, limit: usize) -> Option<String> {
    let events = &mut listing.events;
    let passed = cursor.map_or(0, |cursor| cursor.passed(events));
    events.drain(..passed);
    let is_more = events.len() > limit;
    events.truncate(limit);
    events.last().filter(|_| is_more).map(EventCursor::text)
}

pub(super) async fn events<N: AdminSource>(
    State(node): State<Arc<N>>,
    Query(asked): Query<EventParams>,
) -> Result<Response, Refusal> {
    let cursor = match &asked.cursor {
        Some(text) => Some(EventCursor::parse(text).ok_or_else(|| Refusal::bad_cursor(text))?),
        None => None,
    };
    let mut listing = node.events().list(&asked.namespace, asked.all, usize::MAX);
    let next = cut(&mut listing, cursor.as_ref(), asked.limit.unwrap_or(RECORDS_MAX).min(RECORDS_MAX));
    Ok(with_cursor(next, json(&listing)?))
}

/// The namespace and the event of a path.
fn named_event(namespace: &str, id: &str) -> Result<(Namespace, InvocationId), Refusal> {
    let namespace = Namespace::new(namespace).map_err(|_| Refusal::bad_id(namespace))?;
    Ok((namespace, id.parse().map_err(|_| Refusal::bad_id(id))?))
}

pub(super) async fn event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    let shown = node.events().show(&namespace, id).await?;
    json(&shown.ok_or_else(|| no_event(id))?)
}

pub(super) async fn retry_event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    if node.events().retry(&namespace, id).await? { Ok(no_content()) } else { Err(no_event(id)) }
}

pub(super) async fn drop_event<N: AdminSource>(
    State(node): State<Arc<N>>,
    Path((namespace, id)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let (namespace, id) = named_event(&namespace, &id)?;
    if node.events().drop_event(&namespace, id).await? { Ok(no_content()) } else { Err(no_event(id)) }
}

fn no_event(id: InvocationId) -> Refusal {
    Refusal::not_found(format!("there is no event {id}, or its state does not permit this"))
}

#[cfg(test)]
mod tests {
    use nigh_terms::FunctionName;

    use super::*;

    fn event(number: u8, died: Option<&str>) -> ListedEvent {
        ListedEvent {
            id: InvocationId::of_bytes([number; 16]),
            function: FunctionName::new("f").unwrap(),
            state: if died.is_some() { "dead" } else { "waiting" }.to_owned(),
            attempts: 1,
            bytes: 0,
            accepted: "2026-11-26T06:00:00.000Z".to_owned(),
            due_in_s: None,
            reason: None,
            died: died.map(|second| format!("2026-11-26T06:00:0{second}.000Z")),
            last_error: None,
        }
    }

    /// Two that wait, and three that died, the newest first.
    fn whole() -> EventListing {
        let events =
            vec![event(1, None), event(2, None), event(9, Some("9")), event(7, Some("7")), event(8, Some("5"))];
        EventListing { pending: 2, dead: 3, events }
    }

    #[test]
    fn pages_have_every_event_once() {
        let (mut found, mut cursor) = (Vec::new(), None);
        loop {
            let mut page = whole();
            let next = cut(&mut page, cursor.as_ref(), 2);
            found.extend(page.events);
            let Some(next) = next else { break };
            cursor = Some(EventCursor::parse(&next).unwrap());
        }
        assert_eq!(found, whole().events);
    }

    #[test]
    fn a_page_goes_on_though_the_last_event_of_the_page_before_is_gone() {
        let left = |cursor: &ListedEvent, gone: u8| {
            let cursor = EventCursor::parse(&EventCursor::text(cursor)).unwrap();
            let mut listing = whole();
            listing.events.retain(|event| event.id != InvocationId::of_bytes([gone; 16]));
            cut(&mut listing, Some(&cursor), 10);
            listing.events.iter().map(|event| event.id.as_bytes()[0]).collect::<Vec<_>>()
        };
        assert_eq!(left(&event(1, None), 1), [2, 9, 7, 8]);
        assert_eq!(left(&event(2, None), 2), [9, 7, 8]);
        assert_eq!(left(&event(7, Some("7")), 7), [8]);
        // It has died since.
        assert_eq!(left(&event(9, None), 0), [9, 7, 8]);
        assert_eq!(EventCursor::parse("no id"), None);
    }
}
