//! Homes and journals that do not answer: whoever waits for them is told, in time, what is known.

use std::time::Duration;

use futures::future::join_all;
use nigh_data::{CompleteRequest, CompletedPart, MultipartRequest, ObjectError, PutDone, UploadId};
use nigh_engine::LedgerError;
use nigh_terms::ShardId;
use tokio::time::{sleep, timeout};

use crate::world::{Node, SHARDS, World, bucket, key, request, who};

/// Longer than a caller waits for a home that does not answer, and for what comes before and after.
const WITHIN: Duration = Duration::from_secs(25);
const PART: usize = 5 << 20;

/// True if S3 clients get the status 503, and so try again.
fn is_for_now(error: &ObjectError) -> bool {
    use LedgerError::{Failed, Fenced, Full, NotKept, Unavailable};
    match error {
        ObjectError::SlowDown(_) | ObjectError::Busy(_) | ObjectError::OutcomeUnknown(_) => true,
        ObjectError::Ledger(ledger) => {
            matches!(ledger, Failed(_) | Fenced { .. } | Full | NotKept(_) | Unavailable(_))
        }
        _ => false,
    }
}

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    timeout(WITHIN, work).await.unwrap_or_else(|_| panic!("{what} hangs"))
}

/// Waits until everybody reads this of an object: none if there is no object.
async fn read_everywhere(world: &World, name: &str, expected: Option<&[u8]>) {
    let read = async {
        for node in world.nodes.values() {
            loop {
                match node.get(name).await {
                    Ok(bytes) if expected == Some(&bytes[..]) => break,
                    Err(ObjectError::NoSuchKey(_)) if expected.is_none() => break,
                    Err(error) => assert!(is_for_now(&error) || expected.is_some(), "{error:?}"),
                    Ok(_) => {}
                }
                sleep(Duration::from_millis(20)).await;
            }
        }
    };
    in_time("a read of what was written", read).await;
}

async fn complete(node: &Node, name: &str, upload: &UploadId, parts: &[CompletedPart]) -> Result<PutDone, ObjectError> {
    let request = CompleteRequest { parts: parts.to_vec(), ..CompleteRequest::default() };
    node.memory.complete_upload(&who(), &bucket(), &key(name), upload, request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_home_does_not_answer_ends_for_its_caller_and_takes_place_when_the_home_is_back() {
    let test = "a_write_whose_home_does_not_answer_ends_for_its_caller_and_takes_place_when_the_home_is_back";
    let Some(world) = World::start(test, 2).await else { return };
    let names: Vec<String> = world.names_at(0).take(3).collect();
    let writer = &world.nodes[&1];
    for name in &names[..2] {
        writer.put(name, b"first").await.unwrap();
    }
    let multipart = MultipartRequest::default();
    let upload = writer.memory.create_upload(&who(), &bucket(), &key(&names[2]), multipart).await.unwrap();
    let mut parts = Vec::new();
    for (number, bytes) in [(1, vec![1; PART]), (2, vec![2; 10])] {
        let (length, body) = (Some(bytes.len() as u64), request(&bytes).body);
        let (who, bucket, name) = (who(), bucket(), key(&names[2]));
        let part = writer.memory.put_part(&who, &bucket, &name, &upload, number, body, length, None, None);
        let part = part.await.unwrap();
        parts.push(CompletedPart { number, etag: part.etag, checksum: part.checksum });
    }

    world.nodes[&0].set_goes(false);
    let (put, deleted, completed) = in_time("a write", async {
        tokio::join!(
            writer.put(&names[0], b"second"),
            writer.delete(&names[1]),
            complete(writer, &names[2], &upload, &parts)
        )
    })
    .await;
    for error in [put.unwrap_err(), deleted.unwrap_err(), completed.unwrap_err()] {
        assert!(matches!(error, ObjectError::OutcomeUnknown(_)), "{error:?}");
        assert!(error.to_string().contains("read the object, then write again"), "{error}");
    }

    world.nodes[&0].set_goes(true);
    // An SDK repeats the completion: it gets the answer of the first one, which has taken the parts.
    let whole = in_time("the repeated completion", complete(writer, &names[2], &upload, &parts)).await.unwrap();
    read_everywhere(&world, &names[0], Some(b"second")).await;
    read_everywhere(&world, &names[1], None).await;
    assert_eq!(world.nodes[&0].get_as(&who(), &names[2]).await.unwrap().1, whole.version, "it was written once");
    for name in &names[..2] {
        in_time("the next put", writer.put(name, b"third")).await.unwrap();
        read_everywhere(&world, name, Some(b"third")).await;
    }
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_a_home_that_does_not_answer_so_many_writes_may_wait_and_no_more() {
    let test = "at_a_home_that_does_not_answer_so_many_writes_may_wait_and_no_more";
    let Some(world) = World::start(test, 2).await else { return };
    let names: Vec<String> = world.names_at(0).take(130).collect();
    let (writer, own) = (&world.nodes[&1], world.names_at(1).next().unwrap());
    world.nodes[&0].set_goes(false);
    let first = join_all(names[..128].iter().map(|name| writer.put(name, b"waits")));
    for put in in_time("a write", first).await {
        assert!(matches!(put, Err(ObjectError::OutcomeUnknown(_))), "{put:?}");
    }
    let further = timeout(Duration::from_secs(5), writer.put(&names[128], b"is refused")).await;
    assert!(matches!(further, Ok(Err(ObjectError::SlowDown(_)))), "{further:?}");
    writer.put(&own, b"at another home").await.unwrap();
    world.nodes[&0].set_goes(true);
    for name in [&names[0], &names[127]] {
        read_everywhere(&world, name, Some(b"waits")).await;
    }
    in_time("the next put", async {
        while let Err(error) = writer.put(&names[129], b"is taken").await {
            assert!(matches!(error, ObjectError::SlowDown(_)), "{error:?}");
            sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    world.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_journal_does_not_answer_reads_and_writes_are_refused_in_time_and_for_now() {
    let test = "while_the_journal_does_not_answer_reads_and_writes_are_refused_in_time_and_for_now";
    let Some(mut world) = World::start_answered_within(test, 2, Duration::from_secs(3)).await else { return };
    let names: Vec<String> = (0..2).map(|node| world.names_at(node).next().unwrap()).collect();
    for name in &names {
        world.nodes[&0].put(name, b"before").await.unwrap();
    }
    world.servers.stop(0);
    let all = || world.nodes.values().flat_map(|node| names.iter().map(move |name| (node, name)));
    let puts = join_all(all().map(|(node, name)| node.put(name, b"meanwhile")));
    for put in in_time("a write", puts).await {
        let error = put.unwrap_err();
        assert!(is_for_now(&error), "{error:?}");
    }
    let gets = join_all(all().map(|(node, name)| node.get(name)));
    for read in in_time("a read", gets).await {
        assert!(read.as_ref().is_ok_and(|bytes| bytes == b"before") || is_for_now(&read.unwrap_err()));
    }
    world.servers.go_on(0);
    for shard in (0..SHARDS).map(ShardId) {
        world.give(shard, u32::from(shard.0) % 2).await;
    }
    for name in &names {
        in_time("the next put", world.nodes[&1].put(name, b"after")).await.unwrap();
    }
    world.end().await;
}
