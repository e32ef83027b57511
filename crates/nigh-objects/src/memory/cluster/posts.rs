//! Outputs of this process's machines for others: letters to other nodes, and events for the ledger and the host.
//!
//! A letter may be lost: a machine that needs its answer sends it again. For each node one task carries its letters,
//! many in a call, and drops those that it cannot deliver.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use nigh_protocol::{Member, NodeNumber};
use nigh_rpc::Body;
use nigh_terms::{Epoch, ShardId};
use tokio::sync::mpsc;

use super::super::ObjectMemoryState;
use super::super::machines::MachineEvent;
use super::Neighbours;
use super::wire::{Letter, POST};

/// The most letters of one call.
const LETTERS_MAX: usize = 512;
/// The most letters that wait for one node; further ones are dropped.
const WAITING_MAX: usize = 65_536;

/// What the process around a memory must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HomeEvent {
    /// This epoch of a home in this process is over.
    Deposed(ShardId, Epoch),
    /// A home here has declared a member dead.
    GaveUp(Member),
    /// A home has declared this member dead: it must join again, with nothing in memory.
    Rejoin,
}

/// Delivers the machines' events until the memory is gone.
pub(in crate::memory) async fn carry_all(
    inner: Weak<ObjectMemoryState>,
    neighbours: Arc<Neighbours>,
    mut happened: mpsc::UnboundedReceiver<MachineEvent>,
    host: mpsc::UnboundedSender<HomeEvent>,
) {
    let mut couriers = Couriers { neighbours, of: HashMap::new() };
    while let Some(happened) = happened.recv().await {
        let Some(inner) = inner.upgrade() else { return };
        let event = match happened {
            MachineEvent::Said(shard, request) => {
                couriers.send(couriers.neighbours.home_of(shard), Letter::ToHome(shard, request));
                continue;
            }
            MachineEvent::Told(reply) => {
                couriers.send(Some(reply.to.node), Letter::ToNode(reply));
                continue;
            }
            MachineEvent::Settled(shard, version) => {
                inner.back.writer_settled(shard, version).await;
                continue;
            }
            MachineEvent::Fences(shard, append, member) => {
                tokio::spawn(async move { inner.append_fence(shard, append, member).await });
                continue;
            }
            MachineEvent::Retired(shard, epoch) => {
                inner.lose_home(shard, epoch);
                HomeEvent::Deposed(shard, epoch)
            }
            MachineEvent::GaveUp(member) => HomeEvent::GaveUp(member),
            MachineEvent::Rejoin => HomeEvent::Rejoin,
        };
        let _heard_until_the_process_ends = host.send(event);
    }
}

struct Couriers {
    neighbours: Arc<Neighbours>,
    of: HashMap<NodeNumber, mpsc::Sender<Letter>>,
}

impl Couriers {
    fn send(&mut self, to: Option<NodeNumber>, letter: Letter) {
        let Some(to) = to else { return };
        let courier = self.of.entry(to).or_insert_with(|| {
            let (courier, letters) = mpsc::channel(WAITING_MAX);
            tokio::spawn(deliver(Arc::clone(&self.neighbours), to, letters));
            courier
        });
        // A letter that finds no room is dropped; a machine that needs it sends it again.
        let _sent = courier.try_send(letter);
    }
}

async fn deliver(neighbours: Arc<Neighbours>, to: NodeNumber, mut letters: mpsc::Receiver<Letter>) {
    let mut batch = Vec::new();
    while letters.recv_many(&mut batch, LETTERS_MAX).await > 0 {
        if let Err(why) = neighbours.ask::<()>(to, &POST, &batch, Body::empty()).await {
            tracing::debug!(node = to.0, ?why, letters = batch.len(), "letters to a node were not delivered");
        }
        batch.clear();
    }
}
