//! A node's part in a cluster: the NATS engine, the membership, calls between nodes, and the homes of shards
//! (docs/design/cluster-engine.md).
//! `ClusterEngine::join` makes this node a member: other nodes see it, and place no shard on it. From `serve` on the
//! keeper of homes takes this node's shards. At the end `leave` releases all shards and ends the membership.

mod calls;
mod dispatch;
mod former_incarnation;
mod home_host;
mod home_keeper;
mod home_steps;
mod keeping;
pub(crate) mod members;
pub(crate) mod memory;
mod newest;
mod operations;
mod placement;
pub(crate) mod records;
mod seen_map;
mod servers;
mod shape;
mod start_error;
mod summary;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_recursion::async_recursion as boxed;
use nigh_engine::nats::{Claimant, Cluster, NatsHistories, NatsHomes, NatsLedger, NatsMembership, NatsRegistry};
use nigh_engine::{Membership as _, NodeRole, Presence, PresentMember, Registry, RegistryError, node_number};
use nigh_objects::cluster::CoherenceProtocol;
use nigh_rpc::{
    CertificateFiles, ClientSettings, Credentials, Handler, Hello, Identity, PeerAddress, Peers, Role, Security,
    ServerSettings, serve,
};
use nigh_terms::{Clock, Incarnation, NodeId, NodeNumber, SecretKey};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::calls::Calls;
use self::home_keeper::KeeperParts;
use self::newest::OwnEpochs;
use self::operations::announcer::{Announced, Announcer};
use crate::config::{ClusterSettings, DamagedJournal, Settings};
use crate::outside_door::{SecretFileError, read_private};
use crate::status::{ClusterStatus, HomesStatus, Level, MemberStatus};

pub use self::calls::FIRST_OBJECT_METHOD;
pub(crate) use self::former_incarnation::FORMER_INCARNATIONS_TABLE;
pub use self::home_host::HomeHost;
pub use self::home_keeper::HomeKeeper;
pub(crate) use self::operations::OperationError;
pub use self::operations::{AbsentMember, ClusterTable, FinalizeReport, MemberRow, MemberState};
pub use self::placement::place_homes;
pub use self::start_error::ClusterStartError;

/// The folder, below the state folder, for copies of damaged messages of journals.
const DAMAGED: &str = "damaged";

/// This node's part in its cluster.
pub struct ClusterEngine {
    settings: ClusterSettings,
    clock: Arc<dyn Clock>,
    claimant: Claimant,
    /// This node with all its roles and its program.
    presence: Presence,
    servers: Cluster,
    registry: Arc<NatsRegistry>,
    membership: Arc<NatsMembership>,
    announcer: Arc<Announcer>,
    ledger: NatsLedger,
    histories: NatsHistories,
    homes: NatsHomes,
    own: Hello,
    security: Security,
    peers: Peers,
    calls: Arc<Calls>,
    keeper: Mutex<Option<HomeKeeper>>,
    ending: CancellationToken,
    tasks: TaskTracker,
}

impl ClusterEngine {
    /// Makes this node a member of `cluster`, with a new incarnation. Other nodes can call it from now on. `former` is an
    /// incarnation of this node that the caller knows to have ended.
    ///
    /// # Errors
    /// What is missing, and how to fix it; or that another living node has this node's name.
    #[boxed]
    pub async fn join(
        settings: &Settings,
        cluster: &ClusterSettings,
        former: Option<Incarnation>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClusterStartError> {
        let node = NodeId(settings.node.clone());
        let identity = Identity::new(&cluster.name, role(cluster), &node.0)?;
        let security = security(cluster, &identity)?;
        let listen = cluster.listen;
        let bound = TcpListener::bind(listen).await.and_then(|bound| bound.local_addr().map(|at| (bound, at)));
        let (listener, address) = bound.map_err(|source| ClusterStartError::Bind { address: listen, source })?;
        let servers = Cluster::connect(cluster.servers(token(cluster)?)).await?;
        let registry = Arc::new(NatsRegistry::open(servers.clone()).await?);
        let formats = cluster.formats();
        let format = shape::agree(&*registry, cluster, formats).await?;
        let number = node_number(&*registry, &node).await?;
        let address = cluster.advertise.clone().unwrap_or_else(|| address.to_string());
        let presence = Presence::new(number, &address, cluster.roles.0.iter().copied());
        let presence = presence.of_program(operations::VERSION, formats);
        let set = operations::availability::of(&*registry, &node).await?;
        let announced = Announced::starting(presence.clone(), set, format);
        let told = announced.presence();
        let membership = NatsMembership::join(servers.clone(), node.clone(), former, &told, Arc::clone(&clock)).await?;
        let membership = Arc::new(membership);
        let announcer = Arc::new(Announcer::new(Arc::clone(&membership), announced));
        let incarnation = membership.incarnation();
        let keep_damaged =
            (settings.writes.on_damage == DamagedJournal::KeepAside).then(|| settings.state.join(DAMAGED));
        let ledger = NatsLedger::new(servers.clone(), cluster.ledger(settings.writes.wait, keep_damaged.as_deref()));
        let histories = NatsHistories::open(servers.clone()).await?;
        let homes = NatsHomes::open(servers.clone()).await?;
        let own = Hello { identity: identity.clone(), incarnation: incarnation.0 };
        let peers = Peers::new(own.clone(), security.clone(), ClientSettings::default());
        let calls = Arc::new(Calls {
            own: identity,
            epochs: OnceLock::new(),
            objects: OnceLock::new(),
            dispatch: OnceLock::new(),
            running: OnceLock::new(),
            records: OnceLock::new(),
            members: OnceLock::new(),
        });
        let (ending, tasks) = (CancellationToken::new(), TaskTracker::new());
        let door = Arc::clone(&calls) as Arc<dyn Handler>;
        // Each running invocation is a running call.
        let limits = ServerSettings {
            drain_max: settings.drain.duration(),
            connections_max: 16_384,
            connections_per_peer_max: 2048,
            calls_max: 16_384,
            ..ServerSettings::default()
        };
        tasks.spawn(serve(listener, own.clone(), security.clone(), limits, door, ending.clone()));
        Ok(Self {
            settings: cluster.clone(),
            clock,
            claimant: Claimant { node, number, incarnation },
            presence,
            servers,
            registry,
            membership,
            announcer,
            ledger,
            histories,
            homes,
            own,
            security,
            peers,
            calls,
            keeper: Mutex::new(None),
            ending,
            tasks,
        })
    }

    /// From now on this node is the home of its part of the shards, if it has the role `memory`: `host` serves them.
    /// `objects` answers the other nodes' calls with method numbers from [`FIRST_OBJECT_METHOD`] on. Call this once.
    #[boxed]
    pub async fn serve(&self, host: Arc<dyn HomeHost>, objects: Option<Arc<dyn Handler>>) -> Result<(), RegistryError> {
        let epochs = OwnEpochs::new(Arc::clone(&host));
        // A second call changes nothing.
        let _ = self.calls.epochs.set(epochs.clone());
        if let Some(objects) = objects {
            let _ = self.calls.objects.set(objects);
        }
        // Connections of its own: a home that begins asks other homes, while as many writes as there are connections may wait
        // for it to begin.
        let peers = Peers::new(self.own.clone(), self.security.clone(), ClientSettings::default());
        let keeper = HomeKeeper::start(KeeperParts {
            claimant: self.claimant.clone(),
            membership: Arc::clone(&self.membership),
            announcer: Arc::clone(&self.announcer),
            homes: self.homes.clone(),
            ledger: self.ledger.clone(),
            host,
            epochs,
            peers,
            shards: self.settings.shards,
            clock: Arc::clone(&self.clock),
        });
        *self.keeper.lock() = Some(keeper.await?);
        Ok(())
    }

    /// Releases all shards within `patience`, and ends the membership.
    #[boxed]
    pub async fn leave(&self, patience: Duration) {
        let keeper = self.keeper.lock().take();
        if let Some(keeper) = keeper {
            keeper.close(patience).await;
        }
        if let Err(error) = self.membership.leave().await {
            tracing::warn!(%error, "other nodes see this node's end only when its lease ends");
        }
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The registry that all nodes share.
    #[must_use]
    pub fn registry(&self) -> Arc<dyn Registry> {
        Arc::clone(&self.registry) as Arc<dyn Registry>
    }

    /// This node's membership, and the other members.
    #[must_use]
    pub const fn membership(&self) -> &Arc<NatsMembership> {
        &self.membership
    }

    /// The journals of the shards whose homes are here.
    #[must_use]
    pub const fn ledger(&self) -> &NatsLedger {
        &self.ledger
    }

    /// The histories of executions.
    #[must_use]
    pub const fn histories(&self) -> &NatsHistories {
        &self.histories
    }

    /// The map of homes.
    #[must_use]
    pub const fn homes(&self) -> &NatsHomes {
        &self.homes
    }

    /// The number of the cluster's shards.
    #[must_use]
    pub const fn shards(&self) -> u16 {
        self.settings.shards
    }

    /// The coherence protocol of the cluster's nodes.
    #[must_use]
    pub const fn coherence(&self) -> CoherenceProtocol {
        self.settings.coherence
    }

    /// This node's number.
    #[must_use]
    pub const fn number(&self) -> NodeNumber {
        self.claimant.number
    }

    /// How this node identifies itself to nodes that it calls, and how it secures the calls.
    #[must_use]
    pub const fn own(&self) -> (&Hello, &Security) {
        (&self.own, &self.security)
    }

    /// Calls to other nodes.
    #[must_use]
    pub const fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The address of a living node, in its present incarnation; none if it is not known.
    #[must_use]
    pub fn address_of(&self, number: NodeNumber) -> Option<PeerAddress> {
        let present = self.membership.present();
        let present = present.borrow();
        present.iter().find(|member| member.presence.number == number).map(peer_address)
    }

    /// All living members, as they change.
    #[must_use]
    pub fn present(&self) -> watch::Receiver<Vec<PresentMember>> {
        self.membership.present()
    }

    /// One line for the status. Off while the NATS servers are silent.
    #[must_use]
    pub fn level(&self) -> Level {
        let roles: Vec<String> = self.presence.roles.iter().map(ToString::to_string).collect();
        let ClusterSettings { name, shards, .. } = &self.settings;
        let secured = match &self.security {
            Security::Plain => "without TLS: nobody's identity is checked",
            Security::Tls(_) => "by mutual TLS",
        };
        let (number, address, roles) = (self.number(), &self.presence.address, roles.join(" and "));
        let mut detail =
            format!("{name}, of {shards} shards; node {number} for {roles}, called at {address} {secured}");
        let availability = self.announcer.availability();
        if !availability.takes_work() {
            detail += &format!("; {availability}: `nigh cluster uncordon {}` ends that", self.claimant.node);
        }
        let trouble = self.servers_status().trouble();
        let (on, detail) =
            (trouble.is_none(), trouble.map_or(detail.clone(), |trouble| format!("{trouble}; {detail}")));
        Level { name: "cluster".to_owned(), on, detail }
    }

    /// The cluster, as this node sees it.
    #[must_use]
    pub fn status(&self) -> ClusterStatus {
        let present = self.membership.present();
        let members = present
            .borrow()
            .iter()
            .map(|member| MemberStatus {
                node: member.node.0.clone(),
                number: member.presence.number.0,
                incarnation: member.incarnation.0,
                address: member.presence.address.clone(),
                roles: member.presence.roles.union(&member.presence.withheld).copied().collect(),
                version: member.presence.version.clone(),
                availability: member.presence.availability,
            })
            .collect();
        let (name, coherence) = (self.settings.name.clone(), self.settings.coherence);
        let (servers, homes, format) = (Some(self.servers_status()), self.homes_status(), self.format());
        ClusterStatus { name, coherence, servers, members, homes, format }
    }

    /// The homes; none before `serve`.
    #[must_use]
    pub fn homes_status(&self) -> Option<HomesStatus> {
        self.keeper.lock().as_ref().map(HomeKeeper::status)
    }
}

impl Drop for ClusterEngine {
    /// Ends like a crash: no shard is released.
    fn drop(&mut self) {
        self.ending.cancel();
    }
}

/// The address of a member, in its present incarnation.
fn peer_address(member: &PresentMember) -> PeerAddress {
    PeerAddress {
        name: member.node.0.as_str().into(),
        address: member.presence.address.as_str().into(),
        incarnation: Some(member.incarnation.0),
    }
}

/// The role in the certificate: a process with the role `controller` alone is a controller.
fn role(cluster: &ClusterSettings) -> Role {
    let roles: Vec<NodeRole> = cluster.roles.0.iter().copied().collect();
    if roles == [NodeRole::Controller] { Role::Controller } else { Role::Node }
}

fn security(cluster: &ClusterSettings, own: &Identity) -> Result<Security, ClusterStartError> {
    let Some(folder) = &cluster.certificates else { return Ok(Security::Plain) };
    let of = |name: &str, end: &str| folder.join(format!("{name}.{end}"));
    let (certificate, key) = (of(own.name(), "crt"), of(own.name(), "key"));
    let files = CertificateFiles { authority: of("authority", "crt"), certificate: certificate.clone(), key };
    let credentials = Credentials::open(files)?;
    let found = credentials.identity();
    if found == *own {
        Ok(Security::Tls(Arc::new(credentials)))
    } else {
        Err(ClusterStartError::OtherIdentity { path: certificate, found, own: own.clone() })
    }
}

fn token(cluster: &ClusterSettings) -> Result<Option<SecretKey>, SecretFileError> {
    let file = cluster.token_file.as_deref();
    let read = file.map(|file| read_private(file, "cluster.token_file")).transpose()?;
    Ok(read.map(|text| SecretKey::new(text.trim())).or_else(|| cluster.token.clone()))
}
