//! What all that keeps histories must do; and of those that a cluster shares, that they have one writer at a time.

use std::sync::Arc;

use bytes::Bytes;
use nigh_engine::nats::NatsHistories;
use nigh_engine::{Histories, HistoryChange, HistoryId, LocalHistories, RegistryError, SharedHistories, StateFile};
use nigh_terms::Namespace;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::servers::{PATIENCE, Servers};
use crate::under_test::content;

const ONE: HistoryId = [1; 16];
const TWO: HistoryId = [2; 16];

fn head(id: HistoryId, text: &'static str) -> HistoryChange {
    HistoryChange::SetHead { id, head: Bytes::from_static(text.as_bytes()) }
}

fn add(id: HistoryId, place: u64, event: impl Into<Bytes>) -> HistoryChange {
    HistoryChange::Add { id, place, event: event.into() }
}

async fn write(histories: &dyn Histories, changes: Vec<HistoryChange>) -> Result<(), RegistryError> {
    histories.queue(changes).await?.wait().await
}

fn tenant() -> Namespace {
    Namespace::new("tenant").unwrap()
}

async fn conforms(histories: &dyn Histories) {
    assert!(histories.heads().await.unwrap().is_empty());
    assert!(histories.events(ONE).await.unwrap().is_empty());
    let first = histories.queue(vec![head(ONE, "runs"), add(ONE, 0, "begins")]).await.unwrap();
    let more = vec![add(ONE, 300, "late"), add(ONE, 2, "goes on"), add(TWO, 0, "another"), add(ONE, u64::MAX, "end")];
    histories.queue(more).await.unwrap().wait().await.unwrap();
    first.wait().await.unwrap();
    let events = histories.events(ONE).await.unwrap();
    assert_eq!(events.iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, 2, 300, u64::MAX]);
    assert_eq!(histories.event(ONE, 300).await.unwrap().unwrap(), b"late");
    assert_eq!(histories.event(ONE, 301).await.unwrap(), None);
    // A head is what was written last, also of one group.
    let again = histories.queue(vec![head(ONE, "ends")]).await.unwrap();
    write(histories, vec![head(ONE, "done"), head(TWO, "runs")]).await.unwrap();
    again.wait().await.unwrap();
    assert_eq!(histories.heads().await.unwrap(), [(ONE, b"done".to_vec()), (TWO, b"runs".to_vec())]);
    let long = content(7, 1_200_000);
    write(histories, vec![add(TWO, 1, long.clone()), add(TWO, 2, "short")]).await.unwrap();
    assert_eq!(histories.event(TWO, 1).await.unwrap().unwrap(), long);
    let many: Vec<HistoryChange> = (3..2_003).map(|place| add(TWO, place, format!("event {place}"))).collect();
    write(histories, many).await.unwrap();
    let events = histories.events(TWO).await.unwrap();
    assert!(events.iter().map(|(place, _)| *place).eq(0..2_003));
    assert_eq!((&events[1].1[..], &events[2_002].1[..]), (&long[..], &b"event 2002"[..]));
    write(histories, vec![HistoryChange::Remove { id: TWO }]).await.unwrap();
    assert!(histories.events(TWO).await.unwrap().is_empty() && histories.event(TWO, 1).await.unwrap().is_none());
    assert_eq!(histories.heads().await.unwrap(), [(ONE, b"done".to_vec())]);
}

#[tokio::test]
async fn histories_of_one_machine_conform() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
    conforms(&LocalHistories::open(state).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn histories_of_a_cluster_conform() {
    let Some(servers) = Servers::start("histories_of_a_cluster_conform", 3) else { return };
    let all = NatsHistories::open(servers.connect(3).await).await.unwrap();
    conforms(&*all.take(&tenant(), 1).await.unwrap()).await;
    let other = Namespace::new("other").unwrap();
    assert!(all.take(&other, 1).await.unwrap().heads().await.unwrap().is_empty(), "tenants meet");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_lost_its_histories_writes_nothing_more_and_all_that_it_wrote_is_read() {
    let test = "who_has_lost_its_histories_writes_nothing_more_and_all_that_it_wrote_is_read";
    let Some(servers) = Servers::start(test, 3) else { return };
    let mut last: Option<Arc<dyn Histories>> = None;
    let mut acknowledged: Vec<u64> = Vec::new();
    for term in 1..=5 {
        let all = NatsHistories::open(servers.connect(3).await).await.unwrap();
        let taken = all.take(&tenant(), term).await.unwrap();
        let found: Vec<u64> = taken.events(ONE).await.unwrap().into_iter().map(|(place, _)| place).collect();
        let lost: Vec<&u64> = acknowledged.iter().filter(|place| !found.contains(place)).collect();
        assert!(lost.is_empty(), "acknowledged and not there: {lost:?}");
        if let Some(last) = last.take() {
            assert!(matches!(all.take(&tenant(), term - 1).await, Err(RegistryError::Conflict { .. })));
            assert!(write(&*last, vec![add(ONE, 1 << 40, "of one that was deposed")]).await.is_err());
            timeout(PATIENCE, last.lost()).await.unwrap();
            assert_eq!(taken.event(ONE, 1 << 40).await.unwrap(), None);
        }
        // The next one takes them amid writes.
        let (writer, (count, mut counted)) = (Arc::clone(&taken), watch::channel(0));
        let writing = tokio::spawn(async move {
            let mut written = Vec::new();
            for place in (term << 20).. {
                if write(&*writer, vec![add(ONE, place, "x")]).await.is_err() {
                    break;
                }
                written.push(place);
                count.send_replace(written.len());
            }
            written
        });
        timeout(PATIENCE, counted.wait_for(|count| *count >= 20)).await.unwrap().unwrap();
        let next = NatsHistories::open(servers.connect(3).await).await.unwrap();
        let between = next.take(&tenant(), term).await.unwrap();
        acknowledged.extend(timeout(PATIENCE, writing).await.unwrap().unwrap());
        write(&*between, vec![add(ONE, (term << 20) + (1 << 19), "by who came after")]).await.unwrap();
        acknowledged.push((term << 20) + (1 << 19));
        last = Some(between);
    }
    assert!(acknowledged.len() > 100, "{} were acknowledged", acknowledged.len());
}
