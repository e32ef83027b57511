//! A trigger between two functions: the second is told of what the first has written, while that still runs.

use std::num::NonZeroU16;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use nigh_data::{ObjectError, ObjectId};
use nigh_dispatch::Dispatcher;
use nigh_invoke::invocation::{EventAttempt, Invoke, InvokeRequest, TriggerObject};
use nigh_objects::{
    EventPattern, NotificationConfig, NotificationRule, NotificationTargets, Notifications, ReservedEvents, Shards,
    Writer,
};
use nigh_terms::{FunctionName, InvocationId, Namespace, ShardId};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::processes::{PATIENCE, Processes};
use crate::world::{SHARDS, bucket, key, who};

/// Large enough that its place matters, and small enough to be kept.
const BYTES: usize = 3 << 19;

/// What the second function has answered, and what is known of who wrote.
type Told = (Value, Writer);

/// Has `second` invoked by a controller when it is told of a change, as the queue of events does. It reads what the first
/// has written before.
#[derive(Clone)]
struct Pipeline {
    dispatcher: Dispatcher,
    told: mpsc::UnboundedSender<Told>,
}

#[async_trait]
impl NotificationTargets for Pipeline {
    fn check(&self, _: &Namespace, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn reserve(&self, _: &Namespace, _: &[(&str, usize)]) -> Result<Box<dyn ReservedEvents>, ObjectError> {
        Ok(Box::new(self.clone()))
    }
}

#[async_trait]
impl ReservedEvents for Pipeline {
    async fn send(self: Box<Self>, documents: Vec<Bytes>, writer: Writer) -> Result<(), String> {
        for document in documents {
            let mut payload: Value = serde_json::from_slice(&document).unwrap();
            let told_of = payload["Records"][0]["s3"]["object"]["key"].as_str().unwrap();
            let before = first(&told_of.replace("%2F", "/"));
            (payload["do"], payload["key"]) = (json!("get"), json!(before));
            let (node, bytes) = writer.wrote.unwrap();
            let request = InvokeRequest {
                function: FunctionName::new("second").unwrap(),
                payload: payload.to_string().into(),
                client_context: None,
                token: writer.token.clone(),
                event: Some(EventAttempt {
                    id: InvocationId::now(),
                    attempt: 1,
                    wrote: Some(TriggerObject { node, bytes }),
                }),
            };
            let (dispatcher, told, writer) = (self.dispatcher.clone(), self.told.clone(), writer.clone());
            tokio::spawn(async move {
                let invoked = dispatcher.invoke(&who(), request).await.unwrap();
                told.send((serde_json::from_slice(&invoked.payload).unwrap(), writer)).unwrap();
            });
        }
        Ok(())
    }
}

/// What the first writes before `name`, of which the second is told.
fn first(name: &str) -> String {
    format!("before-{name}")
}

fn shard(name: &str) -> ShardId {
    let object = ObjectId { namespace: who().namespace, bucket: bucket(), key: key(name) };
    Shards::new(NonZeroU16::new(SHARDS).unwrap()).of(&object)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_triggered_runs_where_its_object_was_written_and_sees_what_its_writer_had_written() {
    let test = "who_is_triggered_runs_where_its_object_was_written_and_sees_what_its_writer_had_written";
    let Some(processes) = Processes::start(test).await else { return };
    let (told, mut answers) = mpsc::unbounded_channel();
    let targets = Arc::new(Pipeline { dispatcher: processes.all["c1"].dispatcher.clone(), told });
    let rule = NotificationRule {
        id: "pipeline".to_owned(),
        function: "second".to_owned(),
        events: vec![EventPattern::new("s3:ObjectCreated:*").unwrap()],
        prefix: "in/".to_owned(),
        suffix: String::new(),
    };
    for node in processes.world.nodes.values() {
        let targets = Arc::clone(&targets) as Arc<dyn NotificationTargets>;
        let all = Notifications::open(processes.registry(), targets, "us-east-1".to_owned()).await.unwrap();
        node.memory.notify_by(all);
        // The home tells, and each may be it.
        let config = NotificationConfig { rules: vec![rule.clone()] };
        node.memory.set_notification_config(&who(), &bucket(), config).await.unwrap();
    }
    for round in 0..6 {
        // In a shard of its own, at a home that runs nothing: its writer alone of the nodes has a copy.
        let is_apart = |name: &String| shard(name) != shard(&first(name)) && shard(name).0 % 4 == 3;
        let name = (0..).map(|number| format!("in/{round}-{number}")).find(is_apart).unwrap();
        let value = format!("of round {round}");
        let writes =
            json!({"do": "put", "first": first(&name), "key": name, "value": value, "bytes": BYTES, "then": "wait"});
        let writer = format!("first-{round}");
        let (wrote, answer) = tokio::join!(processes.invoke("c1", &writer, writes), async {
            // The first has not ended, and its node has not reported since: it waits.
            let at = processes.until_held(1).await.remove(0);
            let (answer, writer) = tokio::time::timeout(PATIENCE, answers.recv()).await.unwrap().unwrap();
            processes.held.waiting.lock().clear();
            processes.held.go_on.notify_waiters();
            let seen: Vec<ShardId> = writer.token.iter().map(|(shard, _)| shard).collect();
            assert!(seen.contains(&shard(&first(&name))) && seen.contains(&shard(&name)), "{seen:?}");
            (at, answer)
        });
        let (at, answer) = answer;
        assert_eq!((&wrote["node"], answer["value"].as_str()), (&json!(at), Some(value.as_str())));
        assert_eq!(answer["node"], json!(at), "{}", answer["why"]);
        assert!(answer["why"].as_str().unwrap().contains(" that it reads ("), "{}", answer["why"]);
    }
    processes.end().await;
}
