//! The processes of a cluster: controllers c1 and c2, nodes n0 to n2; n3 is home of its part of the shards and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::TryStreamExt;
use nigh_data::{GetRequest, ObjectError};
use nigh_dispatch::{
    DispatchCalls, DispatchHomes, DispatchSettings, Dispatcher, DispatcherParts, OWNERS_TABLE, Ownership, RunDoor,
    RunDoorParts, report_all,
};
use nigh_engine::{Availability, LocalRegistry, NodeRole, Presence, PresentMember, Registry, StateFile};
use nigh_functions::function::{Function, FunctionSource, Runtime};
use nigh_invoke::applications::Applications;
use nigh_invoke::invocation::gate::InvocationGate;
use nigh_invoke::invocation::run_dispatched::RunDispatched;
use nigh_invoke::invocation::{InvocationResult, Invoke, InvokeError, InvokeRequest, UpcomingInvocation};
use nigh_objects::ObjectMemory;
use nigh_objects::cluster::Frontiers;
use nigh_protocol::{Dispatch, Member};
use nigh_rpc::{ClientSettings, Handler, Hello, Identity, Peers, Role, Security, ServerSettings, serve};
use nigh_schedule::activation::touched::TouchedObject;
use nigh_schedule::scheduler::vacancy::Vacancy;
use nigh_terms::{
    ByteSize, Epoch, FunctionName, Incarnation, Namespace, NodeId, NodeNumber, Principal, SandboxId, ShardId,
    SystemClock, Timestamp, Token,
};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::world::{World, bucket, key, request, who};

/// How long a test waits for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// How many memories there are: those of the nodes, and one more.
const MEMORIES: u32 = 4;
const NODES: u32 = 3;

/// Functions that say of themselves whether they are idempotent: those whose name begins with `again`.
struct Functions;

#[async_trait]
impl FunctionSource for Functions {
    async fn find(&self, namespace: &Namespace, name: &FunctionName) -> Option<Arc<Function>> {
        let again = name.as_str().starts_with("again");
        Some(Arc::new(Function {
            namespace: namespace.clone(),
            name: name.clone(),
            runtime: Runtime::Provided,
            runtime_name: "provided".to_owned(),
            handler: String::new(),
            description: String::new(),
            memory: ByteSize::mib(128),
            timeout: Duration::from_secs(30),
            ephemeral_storage: ByteSize::mib(512),
            environment: BTreeMap::from([("NIGH_IDEMPOTENT".to_owned(), again.to_string())]),
            layers: Vec::new(),
            role: String::new(),
            code_sha256: "code".to_owned(),
            code_size: ByteSize(1),
            modified: Timestamp(1),
            revision_id: "revision".to_owned(),
            action: None,
        }))
    }

    async fn code_folder(&self, _: &Function) -> PathBuf {
        PathBuf::new()
    }

    async fn layers_folder(&self, _: &Function) -> Result<Option<PathBuf>, String> {
        Ok(None)
    }

    fn runtimes(&self) -> BTreeSet<Runtime> {
        BTreeSet::new()
    }
}

/// The homes, asked by the memory that runs nothing.
struct Homes {
    memory: ObjectMemory,
    epochs: Arc<Mutex<Vec<(ShardId, Epoch)>>>,
    fenced: Arc<Mutex<Vec<Member>>>,
    answer: watch::Receiver<bool>,
}

#[async_trait]
impl DispatchHomes for Homes {
    async fn newest_of_all(&self) -> Result<Token, ObjectError> {
        let epochs = self.epochs.lock().clone();
        let newest = self.memory.newest_of_all(&epochs).await;
        // The last of them answers late.
        drop(self.answer.clone().wait_for(|answer| *answer).await);
        newest
    }

    async fn fence(&self, member: Member) -> Result<Token, ObjectError> {
        let token = self.memory.fence(member).await?;
        self.fenced.lock().push(member);
        Ok(token)
    }
}

/// Does what a payload says: reads, writes, and waits before or then until it may go on.
struct Runner {
    name: String,
    memory: ObjectMemory,
    /// As a killed process it does nothing any more.
    killed: CancellationToken,
    held: Arc<Held>,
}

/// Invocations that wait.
#[derive(Default)]
pub(crate) struct Held {
    /// Where they wait, one entry for each that has begun to.
    pub(crate) waiting: Mutex<Vec<String>>,
    pub(crate) go_on: Notify,
    /// Functions of which sandboxes were asked for ahead, and where.
    pub(crate) prepared: Mutex<Vec<(String, FunctionName)>>,
}

impl Runner {
    async fn act(
        &self,
        who: &Principal,
        payload: &Value,
        touched: &mut Vec<TouchedObject>,
    ) -> Result<Value, ObjectError> {
        if payload["do"] == "nothing" {
            return Ok(json!({"node": self.name}));
        }
        // A key that stands in the input as a number is none that anybody could know for one.
        let name = match (&payload["key"], &payload["number"]) {
            (Value::String(key), _) => key.clone(),
            (_, number) => format!("part-{number}"),
        };
        let name = name.as_str();
        let mut touch = |bytes: usize, wrote| {
            touched.push(TouchedObject { bucket: bucket(), key: key(name), bytes: bytes as u64, wrote });
        };
        if payload["do"] == "wait" {
            let go_on = self.held.go_on.notified();
            self.held.waiting.lock().push(self.name.clone());
            go_on.await;
        }
        if payload["do"] == "get" {
            let got = self.memory.get(who, &bucket(), &key(name), GetRequest::default()).await?;
            let pieces: Vec<Bytes> = got.body.try_collect().await?;
            let value = String::from_utf8(pieces.concat()).unwrap();
            touch(value.len(), false);
            if let Some(also) = payload["also"].as_str() {
                let got = self.memory.get(who, &bucket(), &key(also), GetRequest::default()).await?;
                let pieces: Vec<Bytes> = got.body.try_collect().await?;
                let bytes = pieces.iter().map(Bytes::len).sum::<usize>() as u64;
                touched.push(TouchedObject { bucket: bucket(), key: key(also), bytes, wrote: false });
            }
            return Ok(json!({"node": self.name, "value": value}));
        }
        if let Some(first) = payload["first"].as_str() {
            let value = payload["value"].as_str().unwrap();
            self.memory.put(who, &bucket(), &key(first), request(value.as_bytes())).await?;
        }
        let long = payload["bytes"].as_u64().map(|bytes| "x".repeat(bytes as usize));
        let value = long.as_deref().or_else(|| payload["value"].as_str()).unwrap();
        self.memory.put(who, &bucket(), &key(name), request(value.as_bytes())).await?;
        touch(value.len(), true);
        if payload["then"] == "wait" {
            let go_on = self.held.go_on.notified();
            self.held.waiting.lock().push(self.name.clone());
            go_on.await;
        }
        Ok(json!({"node": self.name, "value": value}))
    }
}

#[async_trait]
impl RunDispatched for Runner {
    async fn run(
        &self,
        function: Arc<Function>,
        request: InvokeRequest,
        to: Member,
        why: &str,
    ) -> Result<InvocationResult, InvokeError> {
        assert!(why.contains(&self.name), "{why}");
        let id = request.event.unwrap().id;
        let dispatch = Dispatch { to, token: request.token };
        let run = async {
            self.memory.begin_dispatched(&function.namespace, id, dispatch).await?;
            let who = Principal::inside(function.namespace.clone(), request.function, SandboxId::random(), id);
            let mut touched = Vec::new();
            let acted = self.act(&who, &serde_json::from_slice(&request.payload).unwrap(), &mut touched).await;
            let token = self.memory.end_invocation(id, Duration::from_secs(5)).await;
            let (payload, function_error) = match acted {
                Ok(mut answer) => {
                    answer["why"] = json!(why);
                    (answer, None)
                }
                Err(error) => (json!(error.to_string()), Some("Unhandled")),
            };
            Ok(InvocationResult {
                id,
                payload: payload.to_string().into(),
                function_error,
                log: Vec::new(),
                run: nigh_invoke::invocation::RunTimes::default(),
                token,
                touched,
            })
        };
        match Box::pin(self.killed.run_until_cancelled(run)).await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    fn prepare(&self, _namespace: &Namespace, next: UpcomingInvocation) {
        self.held.prepared.lock().push((self.name.clone(), next.function));
    }

    fn vacancy(&self) -> Vacancy {
        Vacancy {
            memory: ByteSize::gib(4),
            memory_free: ByteSize::gib(4),
            sandboxes_free: 64,
            invocations_free: 64,
            processors: 2,
            ..Vacancy::default()
        }
    }
}

/// A process.
pub(crate) struct Process {
    pub(crate) dispatcher: Dispatcher,
    stop: CancellationToken,
    killed: CancellationToken,
}

/// All of them.
pub(crate) struct Processes {
    pub(crate) world: World,
    pub(crate) all: BTreeMap<String, Process>,
    pub(crate) held: Arc<Held>,
    pub(crate) fenced: Arc<Mutex<Vec<Member>>>,
    present: watch::Sender<Vec<PresentMember>>,
    registry: Arc<dyn Registry>,
    epochs: Arc<Mutex<Vec<(ShardId, Epoch)>>>,
    homes_answer: watch::Sender<bool>,
    _state: TempDir,
}

impl Processes {
    /// A cluster whose nodes have reported; none where NATS is not installed.
    pub(crate) async fn start(test: &str) -> Option<Self> {
        let world = World::start(test, MEMORIES).await?;
        let state = tempfile::tempdir().unwrap();
        let registry = LocalRegistry::new(StateFile::open(&state.path().join("state.redb")).unwrap());
        let epochs = Arc::new(Mutex::new(world.epochs()));
        let mut processes = Self {
            world,
            all: BTreeMap::new(),
            held: Arc::default(),
            fenced: Arc::default(),
            present: watch::Sender::new(Vec::new()),
            registry: Arc::new(registry),
            epochs,
            homes_answer: watch::Sender::new(true),
            _state: state,
        };
        for controller in ["c1", "c2"] {
            processes.begin(controller, None).await;
        }
        for node in 0..NODES {
            processes.begin(&format!("n{node}"), Some(node)).await;
        }
        Some(processes)
    }

    async fn begin(&mut self, name: &str, node: Option<u32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let memory = node.map(|node| self.world.nodes[&node].memory.clone());
        let me = node.map(|node| self.world.nodes[&node].member);
        let number = 100 + self.all.len() as u32;
        let me = me.unwrap_or(Member { node: NodeNumber(number), incarnation: Incarnation(1) });
        let role = if node.is_some() { NodeRole::Run } else { NodeRole::Controller };
        let id = NodeId(name.to_owned());
        let own = Hello { identity: Identity::new("test", Role::Node, name).unwrap(), incarnation: me.incarnation.0 };
        let settings = ClientSettings { connections_max: 256, ..ClientSettings::default() };
        let peers = Peers::new(own.clone(), Security::Plain, settings);
        let homes = Homes {
            memory: self.world.nodes[&NODES].memory.clone(),
            epochs: Arc::clone(&self.epochs),
            fenced: Arc::clone(&self.fenced),
            answer: self.homes_answer.subscribe(),
        };
        let dispatcher = Dispatcher::new(
            DispatcherParts {
                node: id.clone(),
                me,
                owns: node.is_none(),
                functions: Arc::new(Functions),
                gate: memory.clone().map(|memory| Arc::new(memory) as Arc<dyn InvocationGate>),
                homes: Arc::new(homes),
                registry: Arc::clone(&self.registry),
                applications: Applications::default(),
                memory: Some(memory.clone().unwrap_or_else(|| self.world.nodes[&NODES].memory.clone())),
                peers: peers.clone(),
                present: self.present.subscribe(),
                clock: Arc::new(SystemClock::new()),
            },
            DispatchSettings::default(),
        );
        let (stop, killed) = (CancellationToken::new(), CancellationToken::new());
        let door = memory.clone().map(|memory| {
            memory.set_frontiers(Arc::new(dispatcher.clone()) as Arc<dyn Frontiers>);
            let runner = Runner {
                name: name.to_owned(),
                memory: memory.clone(),
                killed: killed.clone(),
                held: Arc::clone(&self.held),
            };
            let door = RunDoor::new(RunDoorParts {
                node: id.clone(),
                me,
                runner: Arc::new(runner),
                functions: Arc::new(Functions),
                registry: Arc::clone(&self.registry),
                present: self.present.subscribe(),
                clock: Arc::new(SystemClock::new()),
            });
            tokio::spawn(report_all(Arc::clone(&door), memory, peers, self.present.subscribe(), stop.clone()));
            door
        });
        let calls = DispatchCalls { door, dispatcher: Some(dispatcher.clone()) };
        let settings = ServerSettings { drain_max: Duration::ZERO, ..ServerSettings::default() };
        let door = Arc::new(calls) as Arc<dyn Handler>;
        tokio::spawn(serve(listener, own, Security::Plain, settings, door, stop.clone()));
        let presence = Presence::new(me.node, &address, [role]);
        let member = PresentMember { node: id, incarnation: me.incarnation, presence };
        self.present.send_modify(|present| present.push(member));
        self.all.insert(name.to_owned(), Process { dispatcher, stop, killed });
    }

    /// Where owners stand, and what else all processes share.
    pub(crate) fn registry(&self) -> Arc<dyn Registry> {
        Arc::clone(&self.registry)
    }

    /// The members hear that `name` is gone.
    pub(crate) fn declare_gone(&self, name: &str) {
        self.present.send_modify(|present| present.retain(|member| member.node.0 != name));
    }

    /// The members hear whether `name` takes work.
    pub(crate) fn set_availability(&self, name: &str, availability: Availability) {
        self.present.send_modify(|present| {
            for member in present.iter_mut().filter(|member| member.node.0 == name) {
                member.presence = member.presence.clone().with_availability(availability);
            }
        });
    }

    /// A process is killed.
    pub(crate) fn kill(&self, name: &str) {
        let process = &self.all[name];
        process.stop.cancel();
        process.killed.cancel();
    }

    /// From now on one of the homes that a new owner reads answers not, or does again.
    pub(crate) fn set_homes_answer(&self, answer: bool) {
        self.homes_answer.send_replace(answer);
    }

    /// A controller `name` owns the tenant, and its machine takes calls and answers none.
    pub(crate) async fn own_in_silence(&self, name: &str) -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (id, incarnation) = (NodeId(name.to_owned()), Incarnation(1));
        let document = serde_json::to_vec(&Ownership::of(&id, incarnation, 1)).unwrap();
        self.registry.put(OWNERS_TABLE, who().namespace.as_str(), document, None).await.unwrap();
        let presence = Presence::new(NodeNumber(200), &address, [NodeRole::Controller]);
        self.present.send_modify(|present| present.push(PresentMember { node: id, incarnation, presence }));
        listener
    }

    /// The homes that a node had are given to others.
    pub(crate) async fn lose_homes(&mut self, node: u32) {
        self.world.lose(node).await;
        *self.epochs.lock() = self.world.epochs();
    }

    /// Invokes `function` at `process`.
    pub(crate) async fn try_invoke(&self, process: &str, function: &str, payload: Value) -> Result<Value, InvokeError> {
        invoke(&self.all[process].dispatcher, function, payload).await
    }

    /// As `try_invoke`, of what must succeed.
    pub(crate) async fn invoke(&self, process: &str, function: &str, payload: Value) -> Value {
        self.try_invoke(process, function, payload).await.unwrap()
    }

    /// Which controllers own the tenant.
    pub(crate) fn owners(&self) -> Vec<&str> {
        let owns = |process: &Process| !process.dispatcher.owned().is_empty();
        self.all.iter().filter(|(_, process)| owns(process)).map(|(name, _)| name.as_str()).collect()
    }

    /// Waits until so many invocations wait; gives where.
    pub(crate) async fn until_held(&self, count: usize) -> Vec<String> {
        let held = async {
            while self.held.waiting.lock().len() < count {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, held).await.unwrap();
        self.held.waiting.lock().clone()
    }

    pub(crate) async fn end(self) {
        self.all.values().for_each(|process| process.stop.cancel());
        self.world.end().await;
    }
}

/// Invokes `function` by `dispatcher`, on behalf of a client outside.
pub(crate) async fn invoke(dispatcher: &Dispatcher, function: &str, payload: Value) -> Result<Value, InvokeError> {
    let request = InvokeRequest {
        function: FunctionName::new(function).unwrap(),
        payload: payload.to_string().into(),
        client_context: None,
        token: Token::empty(),
        event: None,
    };
    let invoked = tokio::time::timeout(PATIENCE, dispatcher.invoke(&who(), request)).await.unwrap()?;
    let answer: Value = serde_json::from_slice(&invoked.payload).unwrap();
    assert_eq!(invoked.function_error, None, "{answer}");
    Ok(answer)
}
