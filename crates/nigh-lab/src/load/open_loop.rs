//! Plays a schedule of arrivals in time, with a bounded number of clients (`instrument::open_loop`).
//!
//! If all clients are busy, an arrival is sent late, and its response time counts from when it was due.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::arrivals::Arrival;
use super::run::{InvocationTimes, Run};
use crate::LabError;
use crate::instrument::open_loop::{self, Bounds, Turn};

/// How a schedule is played.
pub(crate) struct Pace<'a> {
    /// Invocations under way at most.
    pub(crate) clients: usize,
    /// An arrival that is due at this moment of the load is sent at once.
    pub(crate) from_s: f64,
    /// Set to end the load: invocations under way end, and nothing more is sent.
    pub(crate) stop: &'a AtomicBool,
    /// Called when a run has ended.
    pub(crate) ended: &'a (dyn Fn(&Run) + Sync),
}

/// Plays `arrivals`, which are in the order of time. `client` makes each client, which sends an invocation and waits for its end.
/// Returns the runs in the order of arrival.
pub(crate) fn play<C>(
    arrivals: &[Arrival],
    pace: &Pace<'_>,
    client: impl Fn() -> Result<C, LabError>,
) -> Result<Vec<Run>, LabError>
where
    C: FnMut(&Arrival) -> Result<InvocationTimes, String> + Send,
{
    let sender = |mut client: C| {
        move |turn: &Turn| {
            let arrival = arrivals[turn.number];
            let answered = client(&arrival);
            let late_ms = ms(turn.sent.saturating_duration_since(turn.due));
            let run = Run { arrival, late_ms, response_ms: ms(turn.due.elapsed()), answered };
            (pace.ended)(&run);
            run
        }
    };
    let clients = (0..pace.clients.max(1)).map(|_| Ok(sender(client()?))).collect::<Result<Vec<_>, LabError>>()?;
    let bounds = Bounds { begin: Instant::now(), end: None, stop: pace.stop };
    open_loop::play(clients, bounds, |number| {
        let due_s = arrivals.get(number)?.due_s - pace.from_s;
        Some(Duration::from_secs_f64(due_s.max(0.0)))
    })
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    fn slow_client(takes: Duration) -> impl FnMut(&Arrival) -> Result<InvocationTimes, String> {
        move |arrival| {
            std::thread::sleep(takes);
            if arrival.input == 9 { Err("nine".to_owned()) } else { Ok(InvocationTimes::default()) }
        }
    }

    fn arrivals(count: usize, apart_s: f64) -> Vec<Arrival> {
        let one = |number: usize| Arrival { number, due_s: 100.0 + number as f64 * apart_s, tenant: 0, input: number };
        (0..count).map(one).collect()
    }

    fn played(clients: usize, stop: &AtomicBool) -> Vec<Run> {
        let pace = Pace { clients, from_s: 100.0, stop, ended: &|_| () };
        play(&arrivals(12, 0.02), &pace, || Ok(slow_client(Duration::from_millis(60)))).unwrap()
    }

    #[test]
    fn arrivals_wait_for_nobody_while_a_client_is_free_and_count_from_when_they_were_due() {
        let never = AtomicBool::new(false);
        let many = played(12, &never);
        assert_eq!(many.len(), 12);
        assert!(many.iter().enumerate().all(|(at, run)| run.arrival.number == at && run.response_ms >= 60.0));
        assert_eq!(many.iter().filter(|run| run.answered.is_err()).count(), 1);
        // One client sends each invocation after the answers of all before.
        let one = played(1, &never);
        assert!(one[11].late_ms > 300.0 && one[11].response_ms > one[11].late_ms + 50.0, "{:?}", one[11]);
        assert!(many[11].late_ms < one[11].late_ms);
    }

    #[test]
    fn a_load_that_is_stopped_sends_nothing_more_and_keeps_what_has_ended() {
        let stop = AtomicBool::new(false);
        let pace = Pace { clients: 1, from_s: 100.0, stop: &stop, ended: &|_| stop.store(true, Ordering::Relaxed) };
        let runs = play(&arrivals(12, 0.02), &pace, || Ok(slow_client(Duration::ZERO))).unwrap();
        assert_eq!(runs.len(), 1);
    }
}
