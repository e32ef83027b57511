//! Where invocations go whose inputs lie at one node.

use std::num::NonZeroU16;
use std::time::Duration;

use nigh_data::NamePrint;
use nigh_data::ObjectId;
use nigh_objects::{HoldingsCursor, Shards};
use nigh_terms::ByteSize;
use serde_json::{Value, json};

use crate::processes::{PATIENCE, Processes};
use crate::world::{SHARDS, bucket, key, who};

/// Large enough that its place matters, and small enough to be kept.
const BYTES: usize = 3 << 19;

/// A key whose home is at the memory that runs nothing, so that its writer alone of the nodes has a copy.
fn key_of_no_runner(named: impl Fn(u32) -> String) -> (u32, String) {
    let shards = Shards::new(NonZeroU16::new(SHARDS).unwrap());
    let home = |name: &str| {
        let object = ObjectId { namespace: who().namespace, bucket: bucket(), key: key(name) };
        shards.of(&object).0 % 4
    };
    (0..).map(|number| (number, named(number))).find(|(_, name)| home(name) == 3).unwrap()
}

pub(crate) fn node(answer: &Value) -> &str {
    answer["node"].as_str().unwrap()
}

/// Invokes functions that never ran before, until `holds` is true of an answer. Gives the name of that function. The
/// dispatcher places by the nodes' reports, which come some time after what they report.
pub(crate) async fn until_one(
    processes: &Processes,
    named: &str,
    payload: &Value,
    mut holds: impl FnMut(&Value) -> bool,
) -> String {
    let tried = async {
        let mut number = 0;
        loop {
            let name = format!("{named}-{number}");
            if holds(&processes.invoke("c1", &name, payload.clone()).await) {
                return name;
            }
            number += 1;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tried).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_sandbox_goes_to_the_node_that_holds_its_input() {
    let Some(processes) = Processes::start("a_new_sandbox_goes_to_the_node_that_holds_its_input").await else { return };
    // Written by a client of a node: nobody but that node's reports can tell where it is.
    let (_, name) = key_of_no_runner(|number| format!("input-{number}"));
    processes.world.nodes[&1].put(&name, &vec![b'x'; BYTES]).await.unwrap();
    processes.invoke("c1", "first", json!({"do": "put", "key": "other", "value": "v"})).await;
    // Until its node has reported it.
    let input = json!({"bucket": bucket().as_str(), "key": name});
    let knows = |read: &Value| read["why"].as_str().unwrap().contains("that it reads (1 of 1 objects)");
    until_one(&processes, "known", &json!({"do": "get", "key": "other", "input": input}), knows).await;
    let named = json!({"do": "get", "key": name, "input": input});
    for number in 0..8 {
        let read = processes.invoke("c1", &format!("reads-{number}"), named.clone()).await;
        assert_eq!(node(&read), "n1", "{}", read["why"]);
        let why = read["why"].as_str().unwrap();
        assert!(why.contains("that it reads (1 of 1 objects)"), "{why}");
    }
    // Whose input is nowhere or small goes by its own order, as soon as the other nodes have reported that they cover what was
    // read and written before.
    let other = json!({"do": "get", "key": "other"});
    until_one(&processes, "other", &other, |read| node(read) != "n1").await;
    processes.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_function_of_a_chain_runs_where_the_first_wrote() {
    let test = "the_second_function_of_a_chain_runs_where_the_first_wrote";
    let Some(processes) = Processes::start(test).await else { return };
    let wrote = processes.invoke("c1", "first", json!({"do": "put", "key": "small", "value": "v"})).await;
    let first = node(&wrote).to_owned();
    // Until the others cover what was written, whatever reads it goes there. Then a function goes elsewhere, whose own
    // order of nodes begins with another.
    let get = json!({"do": "get", "key": "small"});
    let second = until_one(&processes, "second", &get, |read| node(read) != first).await;
    let mut number = 0;
    for round in 0..4 {
        // Idle sandboxes that these nodes do not have are forgotten with their reports.
        tokio::time::sleep(Duration::from_millis(600)).await;
        number += 1 + key_of_no_runner(|at| format!("part-{}", number + 1 + at)).0;
        let wrote = processes.invoke("c1", "first", json!({"do": "put", "number": number, "bytes": BYTES})).await;
        assert_eq!(node(&wrote), first);
        // Nothing in its input says what it reads: that is learned from the runs before.
        let read = processes.invoke("c1", &second, json!({"do": "get", "number": number})).await;
        assert_eq!(read["value"].as_str().unwrap().len(), BYTES);
        if round >= 2 {
            assert_eq!(node(&read), first, "{}", read["why"]);
        }
    }
    processes.end().await;
}

/// The nodes that have a copy of `name`.
fn holders(processes: &Processes, name: &str) -> Vec<String> {
    let print = NamePrint::of(&ObjectId { namespace: who().namespace, bucket: bucket(), key: key(name) });
    let has = |number: &u32| {
        let page = processes.world.nodes[number].memory.holdings(HoldingsCursor::default());
        page.changes.iter().any(|change| change.object == print && change.bytes.is_some())
    };
    (0..3).filter(has).map(|number| format!("n{number}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_application_reads_is_brought_where_it_will_run_when_it_starts() {
    let test = "what_an_application_reads_is_brought_where_it_will_run_when_it_starts";
    let Some(processes) = Processes::start(test).await else { return };
    let (_, model) = key_of_no_runner(|number| format!("model-{number}"));
    processes.world.nodes[&3].put(&model, &vec![b'm'; BYTES]).await.unwrap();
    let run = async |number: u64| {
        let wrote = processes.invoke("c1", "first", json!({"do": "put", "number": number, "bytes": 1000})).await;
        let brought = async {
            while holders(&processes, &model).is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        // Long enough for what comes over the loopback, if anything comes.
        let within = Duration::from_secs(if number < 3 { 1 } else { 30 });
        let was_brought = tokio::time::timeout(within, brought).await.is_ok();
        let before = holders(&processes, &model);
        let read = processes.invoke("c1", "second", json!({"do": "get", "number": number, "also": model})).await;
        (node(&wrote).to_owned(), was_brought, before, node(&read).to_owned())
    };
    // Where an invocation runs hangs on what its dispatcher knows of the nodes at that moment: not always as it was foreseen.
    let mut foreseen = 0;
    for number in 1..=10 {
        let (first, was_brought, before, second) = run(number).await;
        if number >= 3 {
            assert!(was_brought, "{first}, {before:?}, {second}");
            foreseen += u32::from(before.contains(&second));
        } else {
            assert!(!was_brought, "one or two runs prove nothing: {before:?}");
        }
        if foreseen == 2 {
            return processes.end().await;
        }
        // Nobody has it any more.
        for number in 0..3 {
            processes.world.nodes[&number].memory.shrink(ByteSize::mib(64));
        }
        assert!(holders(&processes, &model).is_empty());
    }
    panic!("{foreseen} of eight were brought to where they were read");
}
