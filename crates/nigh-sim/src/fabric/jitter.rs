//! Latencies that vary: Gaussian around the mean, cut at nothing (Apta section IV-C: "40 % variation around the mean").

use std::f64::consts::TAU;

use super::picos::Picos;
use crate::llc::SplitMix64;

/// How latencies vary.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Jitter {
    /// The standard deviation over the mean.
    pub deviation: f64,
    /// What varies.
    pub part: JitteredPart,
}

/// Which latencies are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JitteredPart {
    /// Each message's: a stream's first and last line, each round trip of lines, each invalidation.
    Messages,
    /// These, and the pace of streams, as the published simulator has it: a latency for each window that fills the
    /// link.
    MessagesAndStreams,
}

/// The drawn latencies of one run.
#[derive(Debug)]
pub(super) struct Latencies {
    jitter: Option<Jitter>,
    random: SplitMix64,
    spare: Option<f64>,
}

impl Latencies {
    pub(super) const fn new(jitter: Option<Jitter>, seed: u64) -> Self {
        Self { jitter, random: SplitMix64::new(seed), spare: None }
    }

    /// Uniform, above 0 and at most 1.
    fn uniform(&mut self) -> f64 {
        ((self.random.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Standard normal (Box and Muller).
    fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        let angle = TAU * self.uniform();
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }

    fn factor(&mut self, deviation: f64) -> f64 {
        (1.0 + deviation * self.normal()).max(0.0)
    }

    /// A message's latency.
    pub(super) fn message(&mut self, mean: Picos) -> Picos {
        match self.jitter {
            Some(jitter) => mean.scaled(self.factor(jitter.deviation)),
            None => mean,
        }
    }

    /// How long a stream's next piece is on the link.
    pub(super) fn stream(&mut self, mean: Picos) -> Picos {
        match self.jitter {
            Some(Jitter { deviation, part: JitteredPart::MessagesAndStreams }) => mean.scaled(self.factor(deviation)),
            _ => mean,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_latencies_have_the_mean_and_deviation_asked_for() {
        let jitter = Jitter { deviation: 0.4, part: JitteredPart::Messages };
        let mut latencies = Latencies::new(Some(jitter), 7);
        let drawn: Vec<f64> = (0..20_000).map(|_| latencies.message(Picos::from_nanos(500)).micros() * 1e3).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let deviation = (drawn.iter().map(|one| (one - mean).powi(2)).sum::<f64>() / drawn.len() as f64).sqrt();
        assert!((mean - 500.0).abs() < 5.0, "{mean}");
        assert!((deviation - 200.0).abs() < 5.0, "{deviation}");
        assert!(drawn.iter().all(|one| *one >= 0.0));
        assert_eq!(latencies.stream(Picos::from_nanos(1)), Picos::from_nanos(1), "streams keep their pace");
    }
}
