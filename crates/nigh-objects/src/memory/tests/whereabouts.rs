//! Where the bytes of an object are.

use super::*;
use crate::CachedVersion;
use nigh_data::ObjectId;

#[tokio::test]
async fn a_cached_copy_is_told_with_its_version_and_bytes_and_telling_is_no_read() {
    let fixture = Fixture::new().await;
    let object = |name: &str| ObjectId {
        namespace: fixture.who.namespace.clone(),
        bucket: fixture.bucket.clone(),
        key: key(name),
    };
    let written = fixture.put("a", b"12345").await;
    fixture.get("a").await.unwrap();
    let (hits, events) = (fixture.memory.usage().hits, fixture.events.0.lock().len());
    let told = fixture.memory.whereabouts(&object("a"));
    assert_eq!(told.cached, Some(CachedVersion { version: written.version, bytes: 5 }));
    let home = told.home.expect("the home of a node that is alone is here");
    assert_eq!((home.sharers, home.pending), (Vec::new(), Vec::new()));
    assert_eq!(fixture.memory.whereabouts(&object("b")).cached, None);
    assert_eq!(fixture.memory.invalidations_under_way(), 0);
    assert_eq!((fixture.memory.usage().hits, fixture.events.0.lock().len()), (hits, events));
    let largest = fixture.memory.largest_copies(&fixture.who.namespace, 5);
    assert_eq!(largest.iter().map(|copy| &copy.object).collect::<Vec<_>>(), [&object("a")]);
    assert!(largest[0].bytes >= 5, "{largest:?}");
}
