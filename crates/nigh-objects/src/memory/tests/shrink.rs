//! The cache frees memory.

use nigh_terms::ByteSize;

use super::*;

#[tokio::test]
async fn what_is_given_back_is_free_when_the_call_returns_and_what_readers_hold_is_told() {
    let fixture = Fixture::new().await;
    let bytes = vec![7; CACHED];
    for name in ["a", "b", "c"] {
        fixture.put(name, &bytes).await;
    }
    let held = fixture.get_with("a", GetRequest::default()).await.unwrap();
    let before = fixture.memory.usage();
    let each = before.living.bytes() / 3;

    let shrunk = fixture.memory.shrink(ByteSize(1));
    assert_eq!((shrunk.freed, shrunk.copies), (ByteSize(each), 1));
    let shrunk = fixture.memory.shrink(before.living);
    assert_eq!((shrunk.freed, shrunk.held, shrunk.copies), (ByteSize(each), ByteSize(each), 1));
    assert_eq!(fixture.memory.usage().living, ByteSize(each));
    assert_eq!(fixture.memory.usage().objects, 1);

    assert_eq!(bytes_of(held).await.unwrap(), bytes);
    let shrunk = fixture.memory.shrink(before.living);
    assert_eq!((shrunk.freed, shrunk.held), (ByteSize(each), ByteSize(0)));
    assert_eq!(fixture.memory.usage().living, ByteSize(0));
    // The budget has not changed, and nothing is lost.
    assert_eq!(fixture.memory.usage().budget, before.budget);
    assert_eq!(fixture.get("b").await.unwrap(), bytes);
}

#[tokio::test]
async fn who_gives_way_has_freed_what_nobody_holds_and_keeps_to_the_lower_budget() {
    let fixture = Fixture::new().await;
    for name in ["a", "b", "c"] {
        fixture.put(name, &vec![7; CACHED]).await;
    }
    let _held = fixture.get_with("a", GetRequest::default()).await.unwrap();
    let each = ByteSize(fixture.memory.living().bytes() / 3);
    let shrunk = fixture.memory.give_way(each);
    assert_eq!((shrunk.copies, fixture.memory.living()), (2, each));
    fixture.put("d", &vec![7; CACHED]).await;
    let usage = fixture.memory.usage();
    assert!(usage.budget == each && usage.kept <= each, "{usage:?}");
}

#[tokio::test]
async fn small_objects_that_share_pages_are_given_back_until_the_pages_go() {
    let fixture = Fixture::new().await;
    for n in 0..100 {
        fixture.put(&format!("k{n}"), &[n; 1000]).await;
    }
    let before = fixture.memory.usage().living;
    let shrunk = fixture.memory.shrink(ByteSize(before.bytes() / 2));
    assert!(shrunk.freed >= ByteSize(before.bytes() / 2), "{shrunk:?}");
    assert_eq!(fixture.memory.usage().living, ByteSize(before.bytes() - shrunk.freed.bytes()));
    assert_eq!(shrunk.held, ByteSize(0));
}
