//! What the pool commands, done: turns are told, sandboxes ordered, frozen and ended.

use std::sync::Arc;

use nigh_functions::function_network::FunctionNetwork;
use nigh_schedule::prewarm::STEM_MEMORY;
use nigh_schedule::sandbox_pool::{Command, Start};
use nigh_terms::Monotonic;
use tokio::sync::oneshot;

use super::{AdmittedRun, Books, InTheWay, Order, RunGuard, Sandboxes, SpareStem, StartGuard, Turn};
use crate::gate::Entrance;
use crate::live_sandbox::LiveSandbox;

/// What the books command, as it is done once they are closed.
#[derive(Default)]
pub(super) struct PoolActions {
    pub(super) turns: Vec<(oneshot::Sender<Turn>, Turn)>,
    orders: Vec<Order>,
    freeze: Vec<Arc<LiveSandbox>>,
    surplus: Vec<SpareStem>,
}

impl Sandboxes {
    /// What is to be done now, with all that it takes.
    pub(super) fn commands(self: &Arc<Self>, books: &mut Books, now: Monotonic) -> PoolActions {
        let mut done = PoolActions::default();
        let commands = books.pool.serve(now);
        if commands.is_empty() {
            return done;
        }
        let mut stems = self.surplus_stems(books);
        // The last that needs room waits until the stems in its way are gone.
        let last = commands.iter().rposition(|command| matches!(command, Command::Run { .. } | Command::Start(_)));
        for (at, command) in commands.into_iter().enumerate() {
            let mut none = Vec::new();
            let stems = if Some(at) == last { &mut stems } else { &mut none };
            match command {
                Command::Run { ticket, sandbox, after } => {
                    let in_the_way = self.in_the_way(after, stems);
                    let lease = self.lease(sandbox);
                    let Some(waiter) = books.waiting.remove(&ticket) else { continue };
                    let run = RunGuard::new(self, waiter.function);
                    let admitted = AdmittedRun { lease, in_the_way, run, waited_for: None };
                    done.turns.push((waiter.turn, Turn::Admitted(admitted)));
                }
                Command::Start(start) => done.orders.push(self.order(books, start, stems)),
                Command::Freeze(sandbox) => done.freeze.push(sandbox),
                Command::Refuse { ticket, waits_for } => {
                    if let Some(waiter) = books.waiting.remove(&ticket) {
                        done.turns.push((waiter.turn, Turn::TooLate(waits_for)));
                    }
                }
            }
        }
        done.surplus = stems;
        done
    }

    pub(super) fn carry_out(self: &Arc<Self>, done: PoolActions) {
        let PoolActions { turns, orders, freeze, surplus } = done;
        for (to, turn) in turns {
            // If nobody waits any more the guards give everything back.
            drop(to.send(turn));
        }
        if !orders.is_empty() {
            self.stems_changed.notify_one();
        }
        for order in orders {
            // Nobody makes it once the node ends: its guard gives the room back.
            drop(self.orders.send(order));
        }
        for sandbox in freeze {
            tokio::spawn(async move { sandbox.freeze().await });
        }
        self.end_apart(surplus);
    }

    fn in_the_way(self: &Arc<Self>, sandboxes: Vec<Arc<LiveSandbox>>, stems: &mut Vec<SpareStem>) -> InTheWay {
        for _ in &sandboxes {
            metrics::counter!("nigh_sandboxes_ended_total", "for" => "room").increment(1);
        }
        let sandboxes = sandboxes.into_iter().map(|live| self.lease(live)).collect();
        InTheWay { sandboxes, stems: std::mem::take(stems) }
    }

    /// A sandbox to be made, with the stem that becomes it, if there is one.
    pub(super) fn order(
        self: &Arc<Self>,
        books: &mut Books,
        start: Start<Arc<LiveSandbox>>,
        stems: &mut Vec<SpareStem>,
    ) -> Order {
        let Start { id, function, ticket, after, reason } = start;
        // What a runtime has behind it when it becomes a function's, it did without a network.
        let asks_for_network = FunctionNetwork::asked(&function.environment) != Ok(FunctionNetwork::None);
        let runtime = (!asks_for_network).then_some(&function.runtime);
        let stem = runtime.and_then(|runtime| books.stems.take(runtime, self.now()));
        if stem.is_some() {
            books.pool.release_stem(STEM_MEMORY);
        }
        let waiter = ticket.and_then(|ticket| books.waiting.get(&ticket));
        let entrance = waiter.map_or_else(Entrance::of_nobody, |waiter| waiter.entrance.clone());
        let in_the_way = self.in_the_way(after, stems);
        Order { making: StartGuard::new(self, id), function, entrance, ticket, stem, in_the_way, reason }
    }
}
