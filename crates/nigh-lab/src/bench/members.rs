//! Three members of a cluster in this process: the homes in one, the memories of the two others; calls between them over
//! TCP with mutual TLS, as between nodes, or without. Their store makes its objects up, so that no disk is measured.

use std::num::NonZeroU16;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use nigh_data::ObjectId;
use nigh_engine::WriteThrough;
use nigh_objects::cluster::{CoherenceProtocol, HandedOver, Neighbours, Place, TakenShard};
use nigh_objects::{MemoryLimits, ObjectMemory, Shards, ShrinkResult, Writes};
use nigh_protocol::{Member, NodeNumber};
use nigh_rpc::certificates::Authority;
use nigh_rpc::{
    Call, ClientSettings, Credentials, Handler, Hello, Identity, Method, PeerAddress, Peers, Refusal, Reply, Role,
    Security, ServerSettings, serve,
};
use nigh_terms::{BucketName, ByteSize, Clock, Epoch, Incarnation, Namespace, ShardId, SystemClock, Token};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::made_up::{failed, key, store};
use crate::instrument::zone::Zone;

const CLUSTER: &str = "bench";
const LIFE: u64 = 1;
const DAYS: u32 = 1;
/// The reign of the homes: what the store has is of the one before.
const REIGN: Epoch = Epoch(2);
/// Objects of one call that brings them.
const BROUGHT_AT_ONCE: usize = 256;
/// What brought the last object lets go of it a moment after it has said so; what is held is not given up.
const LET_GO_WITHIN: Duration = Duration::from_millis(20);
const LOOK_EVERY: Duration = Duration::from_millis(1);
const CONNECTIONS_MAX: usize = 64;

struct Door(ObjectMemory);

#[async_trait]
impl Handler for Door {
    fn method(&self, number: u16) -> Option<&'static Method> {
        ObjectMemory::method(number)
    }

    async fn call(&self, call: Call<'_>) -> Result<Reply, Refusal> {
        self.0.answer(call).await
    }
}

struct MemberMemory {
    memory: ObjectMemory,
    neighbours: Arc<Neighbours>,
    number: NodeNumber,
    address: PeerAddress,
    _events: mpsc::UnboundedReceiver<nigh_objects::cluster::HomeEvent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemberTransport {
    Tcp,
    Tls,
}

pub(crate) struct Members {
    all: Vec<MemberMemory>,
    stop: CancellationToken,
    _folder: TempDir,
}

impl Drop for Members {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn name(number: u32) -> String {
    format!("n{number}")
}

impl Members {
    /// Members whose memories have room for `room` each, and whose objects have `length` bytes. The first, which has the
    /// homes, is at the other machine if there is one.
    pub(crate) async fn start(
        (over, zone): (MemberTransport, Option<&Zone>),
        length: u64,
        room: ByteSize,
    ) -> Result<Self, LabError> {
        let folder = tempfile::tempdir().at(std::env::temp_dir())?;
        let refused = |error| failed("certificates", &error);
        let authority = Authority::create(folder.path(), CLUSTER, DAYS).map_err(refused)?;
        let mut members = Self { all: Vec::new(), stop: CancellationToken::new(), _folder: folder };
        for number in 0..3 {
            let identity =
                Identity::new(CLUSTER, Role::Node, &name(number)).map_err(|error| failed("a name", &error))?;
            let files = authority.issue(&identity, &["localhost".to_owned()], DAYS, false).map_err(refused)?;
            let security = match over {
                MemberTransport::Tcp => Security::Plain,
                MemberTransport::Tls => Security::Tls(Arc::new(Credentials::open(files).map_err(refused)?)),
            };
            let listener = Zone::tokio_listener(zone.filter(|_| number == 0));
            let listener = listener.map_err(|error| failed("a listener", &error))?;
            let member = members.join(number, (identity, listener), security, length, room).await?;
            members.all.push(member);
        }
        for one in &members.all {
            for other in &members.all {
                one.neighbours.set_address(other.number, Some(other.address.clone()));
            }
            one.neighbours.set_home(ShardId(0), NodeNumber(0), REIGN);
        }
        let (records, lost, summary) = (Vec::new(), Vec::new(), Token::empty());
        let taken = TakenShard { shard: ShardId(0), records, lost, may_lack_writes: false, summary };
        members.all[0].memory.take_home(taken).await.map_err(|error| failed("a home", &error))?;
        Ok(members)
    }

    async fn join(
        &self,
        number: u32,
        (identity, listener): (Identity, TcpListener),
        security: Security,
        length: u64,
        room: ByteSize,
    ) -> Result<MemberMemory, LabError> {
        let hello = Hello { identity, incarnation: LIFE };
        let settings = ClientSettings { connections_max: CONNECTIONS_MAX, ..ClientSettings::default() };
        let neighbours = Arc::new(Neighbours::new(Peers::new(hello.clone(), security.clone(), settings)));
        let (tells, events) = mpsc::unbounded_channel();
        let me = Member { node: NodeNumber(number), incarnation: Incarnation(LIFE) };
        let shards = Shards::new(NonZeroU16::MIN);
        let coherence = CoherenceProtocol::Nigh;
        let place = Place { me, shards, neighbours: Arc::clone(&neighbours), events: tells, coherence };
        let limits = MemoryLimits { cache: room, cached_object: ByteSize::mib(64), object: ByteSize::mib(64) };
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let writes = Writes { ledger: Arc::new(WriteThrough::new(REIGN)), ..Writes::through(REIGN) };
        let spool = self._folder.path().join(format!("spool-{number}"));
        let memory =
            ObjectMemory::open_in_cluster(place, store(length), writes, clock, Vec::new(), spool, limits).await;
        let memory = memory.map_err(|error| failed("a memory", &error))?;
        let address = listener.local_addr().map_err(|error| failed("a listener", &error))?.to_string();
        let address = PeerAddress { name: name(number).into(), address: address.into(), incarnation: Some(LIFE) };
        let settings = ServerSettings { drain_max: Duration::ZERO, ..ServerSettings::default() };
        let door = Arc::new(Door(memory.clone())) as Arc<dyn Handler>;
        tokio::spawn(serve(listener, hello, security, settings, door, self.stop.clone()));
        Ok(MemberMemory { memory, neighbours, number: NodeNumber(number), address, _events: events })
    }

    fn object(number: u64) -> Result<ObjectId, LabError> {
        let namespace = Namespace::new("bench").map_err(|error| failed("a name", &error))?;
        let bucket = BucketName::new("pictures").map_err(|error| failed("a name", &error))?;
        Ok(ObjectId { namespace, bucket, key: key(number)? })
    }

    fn objects(count: u64) -> Result<Vec<ObjectId>, LabError> {
        (0..count).map(Self::object).collect()
    }

    /// Brings `count` objects into the memory of `member`; `uses`: they are read so often there.
    pub(crate) async fn bring(&self, member: usize, count: u64, uses: usize) -> Result<(), LabError> {
        let memory = &self.all[member].memory;
        for objects in Self::objects(count)?.chunks(BROUGHT_AT_ONCE) {
            let brought = memory.bring(objects).await;
            if brought.len() != objects.len() || brought.contains(&0) {
                return Err(failed(
                    "bringing objects into memory",
                    &format!("of {count} objects some were not brought"),
                ));
            }
            for _ in 0..uses {
                memory.use_copies(objects);
            }
        }
        tokio::time::sleep(LET_GO_WITHIN).await;
        Ok(())
    }

    /// `member` gives up all copies, and hands none over.
    pub(crate) async fn forget(&self, member: usize) {
        let memory = &self.all[member].memory;
        while memory.usage().objects > 0 {
            memory.shrink(ByteSize(u64::MAX));
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Brings objects into the memory of `member`, which does not have them: how long that takes.
    pub(crate) async fn fetch(&self, member: usize, numbers: Range<u64>) -> Result<Duration, LabError> {
        let objects: Vec<ObjectId> = numbers.map(Self::object).collect::<Result<_, _>>()?;
        let begun = Instant::now();
        let brought = self.all[member].memory.bring(&objects).await;
        let took = begun.elapsed();
        if brought.len() == objects.len() && brought.iter().all(|bytes| *bytes > 0) {
            return Ok(took);
        }
        Err(failed("bringing an object into memory", &"it was not brought"))
    }

    pub(crate) fn bytes(&self, member: usize, number: u64) -> Result<Option<Vec<u8>>, LabError> {
        let copy = self.all[member].memory.peek(&Self::object(number)?);
        Ok(copy.and_then(|(_, segment)| segment).map(|segment| segment.as_slice().to_vec()))
    }

    pub(crate) fn copies(&self, member: usize) -> u64 {
        self.all[member].memory.usage().objects
    }

    /// `member` gives up all copies and hands them over.
    pub(crate) async fn give_up(&self, member: usize, bytes: u64) -> (ShrinkResult, HandedOver) {
        self.all[member].memory.shrink_and_hand_over(ByteSize(bytes)).await
    }
}
