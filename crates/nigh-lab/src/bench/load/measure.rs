//! One kind of request: what each side sustains, and then all sides in turns at each rate.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use super::contestant::{Contestant, LoadClient};
use super::rates::{Cell, Request, cells, due_times, order};
use super::report::{RequestOutcome, Row, SustainedRow};
use super::round::{DRAIN, Round, Timed};
use super::stage::Stage;
use super::{Parameters, SUSTAINED_S_MAX};
use crate::LabError;
use crate::instrument::made_up::failed;
use crate::instrument::open_loop::{self, Bounds, Turn};
use crate::instrument::progress::{PARTS_KEPT, unless_stopped};
use crate::instrument::stats::Sample;

/// Plays turns on the servers of one kind of request.
pub(super) struct Player<'a> {
    pub(super) request: &'a Request,
    pub(super) parameters: &'a Parameters,
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a ProgressBar,
}

/// What came of a turn.
struct Played {
    timed: Vec<Timed>,
    took: Duration,
    cpu: Option<Duration>,
}

impl Player<'_> {
    pub(super) async fn measure(&self) -> Result<RequestOutcome, LabError> {
        let name = self.request.name;
        self.progress.set_message(format!("{name}: what each side sustains"));
        let stage = Stage::set(self.request, &self.parameters.folder).await?;
        let sustained = self.sustained(&stage.contestants).await?;
        self.progress.inc(1);
        let mut rows = Vec::new();
        for &share in &self.parameters.shares {
            self.progress.set_message(format!("{name} at {:.0} %", share * 100.0));
            rows.extend(self.share(&stage.contestants, &sustained, share).await?);
            self.progress.inc(1);
        }
        let row = |(contestant, per_second): (&Contestant, f64)| SustainedRow {
            request: name.to_owned(),
            side: contestant.name.to_owned(),
            connections: self.request.connections,
            per_second,
        };
        let sustained = stage.contestants.iter().zip(sustained).map(row).collect();
        Ok(RequestOutcome { sustained, rows, skipped: stage.skipped, peers: stage.peers })
    }

    /// Answers a second of each side in a closed loop: the median of the rounds, after one that starts sandboxes and fills caches.
    async fn sustained(&self, contestants: &[Contestant]) -> Result<Vec<f64>, LabError> {
        let length = Duration::from_secs_f64(self.parameters.seconds.min(SUSTAINED_S_MAX));
        let mut rates: Vec<Vec<f64>> = contestants.iter().map(|_| Vec::new()).collect();
        for round in 0..=self.parameters.rounds {
            for side in order(contestants.len(), round) {
                let contestant = &contestants[side];
                // All is due at once: a connection sends again as soon as it has its answer.
                let played = self.turn(contestant, length, |_| Some(Duration::ZERO)).await?;
                if let Some(error) = played.timed.iter().find_map(|one| one.error.as_ref()) {
                    return Err(failed(contestant.name, error));
                }
                if round > 0 {
                    rates[side].push(played.timed.len() as f64 / played.took.as_secs_f64());
                }
            }
        }
        Ok(rates.into_iter().map(|rates| Sample::new(rates).median()).collect())
    }

    /// The rows of all sides at one share.
    async fn share(&self, contestants: &[Contestant], sustained: &[f64], share: f64) -> Result<Vec<Row>, LabError> {
        let length = Duration::from_secs_f64(self.parameters.seconds);
        let mut measured: Vec<(Cell, Vec<Round>)> =
            cells(sustained, share).into_iter().map(|cell| (cell, Vec::new())).collect();
        for round in 0..self.parameters.rounds {
            for at in order(measured.len(), round) {
                let (cell, rounds) = &mut measured[at];
                let due = due_times(cell.rate_per_s, length, round);
                let played = self.turn(&contestants[cell.side], length + DRAIN, |number| due.get(number).copied());
                let Played { timed, took, cpu } = played.await?;
                rounds.push(Round::new(timed, &due, length, took, cpu));
            }
        }
        let row =
            |(cell, rounds): &(Cell, Vec<Round>)| Row::of(self.request.name, contestants[cell.side].name, cell, rounds);
        Ok(measured.iter().map(row).collect())
    }

    /// Has the clients of `contestant` send what is due, and nothing from `end` on.
    async fn turn(
        &self,
        contestant: &Contestant,
        end: Duration,
        due: impl Fn(usize) -> Option<Duration> + Sync,
    ) -> Result<Played, LabError> {
        let clients = contestant.clients(self.request.connections).await?;
        let before = contestant.cpu_time()?;
        let begin = Instant::now();
        let bounds = Bounds { begin, end: Some(begin + end), stop: self.stop };
        let clients = clients.into_iter().map(|client| timed(client, begin)).collect();
        let timed = open_loop::play(clients, bounds, due)?;
        let took = begin.elapsed();
        let cpu = contestant.cpu_time()?.zip(before).map(|(after, before)| after.saturating_sub(before));
        unless_stopped(self.stop, PARTS_KEPT)?;
        contestant.settle().await?;
        Ok(Played { timed, took, cpu })
    }
}

/// A client that times what it sends in a turn from `begin` on.
fn timed(mut client: LoadClient<'_>, begin: Instant) -> impl FnMut(&Turn) -> Timed + Send {
    move |turn: &Turn| {
        let error = client().err();
        Timed {
            number: turn.number,
            due_s: turn.due.duration_since(begin).as_secs_f64(),
            waited_s: turn.waited().as_secs_f64(),
            generator_s: turn.generator_late().as_secs_f64(),
            latency_s: turn.due.elapsed().as_secs_f64(),
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What came of a second of requests to a server that needs 20 ms for each, over one connection.
    fn round(rate_per_s: f64) -> Round {
        let never = AtomicBool::new(false);
        let length = Duration::from_secs(1);
        let due = due_times(rate_per_s, length, 0);
        let client: LoadClient<'_> = Box::new(|| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        });
        let begin = Instant::now();
        let bounds = Bounds { begin, end: Some(begin + length + DRAIN), stop: &never };
        let played = open_loop::play(vec![timed(client, begin)], bounds, |number| due.get(number).copied());
        Round::new(played.unwrap(), &due, length, begin.elapsed(), None)
    }

    #[test]
    fn more_requests_than_a_server_can_answer_overload_it_and_wait_from_when_they_were_due() {
        let round = round(500.0);
        assert!(round.is_overloaded());
        assert!(round.answered() <= 100, "two seconds have room for 100 answers: {}", round.answered());
        assert!(round.unsent_due_s.len() > 300, "{}", round.unsent_due_s.len());
        let late = Sample::new(round.latencies_us().collect());
        assert!(late.median() > 500_000.0, "{}", late.median());
        // The connection was never free before the next request was due: none of the lateness is the generator's.
        let second = &round.timed[1];
        assert!(second.waited_s + 0.02 <= second.latency_s, "{second:?}");
    }
}
