//! Carries out what the pool commands: invocations get their turns; sandboxes are made, frozen and ended.

use std::sync::Arc;

use nigh_functions::function_network::FunctionNetwork;
use nigh_schedule::prewarm::PREWARMED_MEMORY;
use nigh_schedule::sandbox_pool::{Command, Start};
use nigh_terms::Monotonic;
use tokio::sync::oneshot;

use super::{AdmittedRun, ColdStart, InTheWay, PoolState, RunGuard, Sandboxes, SparePrewarmed, StartGuard, Turn};
use crate::invocation::gate::Entrance;
use crate::sandboxes::live_sandbox::LiveSandbox;

/// What the pool commanded; it is done once the lock is released.
#[derive(Default)]
pub(super) struct PoolActions {
    pub(super) turns: Vec<(oneshot::Sender<Turn>, Turn)>,
    cold_starts: Vec<ColdStart>,
    freeze: Vec<Arc<LiveSandbox>>,
    surplus: Vec<SparePrewarmed>,
}

impl Sandboxes {
    /// What the pool commands now, with the guards that it takes.
    pub(super) fn commands(self: &Arc<Self>, state: &mut PoolState, now: Monotonic) -> PoolActions {
        let mut done = PoolActions::default();
        let commands = state.pool.serve(now);
        if commands.is_empty() {
            return done;
        }
        let mut stems = self.surplus_stems(state);
        // The last command that needs room waits until the pre-warmed sandboxes in its way have ended.
        let last = commands.iter().rposition(|command| matches!(command, Command::Run { .. } | Command::Start(_)));
        for (at, command) in commands.into_iter().enumerate() {
            let mut none = Vec::new();
            let stems = if Some(at) == last { &mut stems } else { &mut none };
            match command {
                Command::Run { ticket, sandbox, after } => {
                    let in_the_way = self.in_the_way(after, stems);
                    let lease = self.lease(sandbox);
                    let Some(waiter) = state.waiting.remove(&ticket) else { continue };
                    let run = RunGuard::new(self, waiter.function);
                    let admitted = AdmittedRun { lease, in_the_way, run, waited_for: None };
                    done.turns.push((waiter.turn, Turn::Admitted(admitted)));
                }
                Command::Start(start) => done.cold_starts.push(self.cold_start(state, start, stems)),
                Command::Freeze(sandbox) => done.freeze.push(sandbox),
                Command::Refuse { ticket, waits_for } => {
                    if let Some(waiter) = state.waiting.remove(&ticket) {
                        done.turns.push((waiter.turn, Turn::TooLate(waits_for)));
                    }
                }
            }
        }
        done.surplus = stems;
        done
    }

    pub(super) fn carry_out(self: &Arc<Self>, done: PoolActions) {
        let PoolActions { turns, cold_starts, freeze, surplus } = done;
        for (to, turn) in turns {
            // If nobody waits any more, the guards give everything back.
            drop(to.send(turn));
        }
        if !cold_starts.is_empty() {
            self.stems_changed.notify_one();
        }
        for start in cold_starts {
            // When the node ends nobody receives it: its guard gives the room back.
            drop(self.cold_starts.send(start));
        }
        for sandbox in freeze {
            tokio::spawn(async move { sandbox.freeze().await });
        }
        self.end_apart(surplus);
    }

    fn in_the_way(self: &Arc<Self>, sandboxes: Vec<Arc<LiveSandbox>>, stems: &mut Vec<SparePrewarmed>) -> InTheWay {
        for _ in &sandboxes {
            metrics::counter!("nigh_sandboxes_ended_total", "reason" => "room").increment(1);
        }
        let sandboxes = sandboxes.into_iter().map(|live| self.lease(live)).collect();
        InTheWay { sandboxes, stems: std::mem::take(stems) }
    }

    /// A sandbox to be made, from a pre-warmed one if there is one.
    pub(super) fn cold_start(
        self: &Arc<Self>,
        state: &mut PoolState,
        start: Start<Arc<LiveSandbox>>,
        stems: &mut Vec<SparePrewarmed>,
    ) -> ColdStart {
        let Start { id, function, ticket, after, reason } = start;
        // A pre-warmed runtime was started without a network: a function that asks for one starts cold.
        let asks_for_network = FunctionNetwork::asked(&function.environment) != Ok(FunctionNetwork::None);
        let runtime = (!asks_for_network).then_some(&function.runtime);
        let stem = runtime.and_then(|runtime| state.stems.take(runtime, self.now()));
        if stem.is_some() {
            state.pool.release_prewarmed(PREWARMED_MEMORY);
        }
        let waiter = ticket.and_then(|ticket| state.waiting.get(&ticket));
        let entrance = waiter.map_or_else(Entrance::of_nobody, |waiter| waiter.entrance.clone());
        let in_the_way = self.in_the_way(after, stems);
        ColdStart { guard: StartGuard::new(self, id), function, entrance, ticket, stem, in_the_way, reason }
    }
}
