//! When each tenant invokes its function: periodically, by the exponential law, or as recorded invocations say. Pure.
//!
//! All arrivals are known before the load begins, and none waits for an answer. The exponential law's mean is the interval (OFC:
//! a minute). The recorded law takes the minutes of a function of the Azure trace and scales its counts to the interval.

use clap::ValueEnum;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde::{Deserialize, Serialize};

use super::settings::LoadSettings;

/// Separates the random numbers for a tenant's times from those for its inputs.
const TIMES: u64 = 0x7469_6d65;
const MINUTE_S: f64 = 60.0;

/// By what law a tenant's invocations arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ArrivalLaw {
    /// At equal intervals; each tenant begins at its own moment.
    Periodic,
    /// At intervals drawn from the exponential law.
    Exponential,
    /// In the same minutes as the invocations of a recorded function (Azure trace), drawn at random for each tenant.
    Recorded,
}

/// An invocation that will be sent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Arrival {
    /// The number in the whole load, in the order of time.
    pub(crate) number: usize,
    /// When it is due, in seconds from the beginning.
    pub(crate) due_s: f64,
    pub(crate) tenant: usize,
    /// Which of the tenant's inputs.
    pub(crate) input: usize,
}

/// All arrivals of a load in the order of time. `inputs` has the number of inputs of each tenant; `days` the invocations in each
/// minute of recorded functions, for that law alone.
pub(crate) fn schedule(inputs: &[usize], load: &LoadSettings, days: &[Vec<u32>]) -> Vec<Arrival> {
    let mut all = Vec::new();
    for (tenant, &inputs) in inputs.iter().enumerate() {
        let mut random = StdRng::seed_from_u64(load.seed.wrapping_add(tenant as u64) ^ TIMES);
        let times = match load.arrivals {
            ArrivalLaw::Periodic => periodic(load, &mut random),
            ArrivalLaw::Exponential => exponential(load.interval_s, load.seconds, &mut random),
            ArrivalLaw::Recorded => recorded(load, days, &mut random),
        };
        let mut random = StdRng::seed_from_u64(load.seed.wrapping_add(tenant as u64));
        let arrival = |due_s| Arrival { number: 0, due_s, tenant, input: random.random_range(0..inputs.max(1)) };
        all.extend(times.into_iter().map(arrival));
    }
    all.sort_by(|one, other| one.due_s.total_cmp(&other.due_s));
    for (number, arrival) in all.iter_mut().enumerate() {
        arrival.number = number;
    }
    all
}

fn periodic(load: &LoadSettings, random: &mut StdRng) -> Vec<f64> {
    let first = random.random_range(0.0..1.0) * load.interval_s;
    let times = (0_u32..).map(|number| first + f64::from(number) * load.interval_s);
    times.take_while(|&due| due < load.seconds).collect()
}

/// Times of a Poisson process in the first `seconds`, `interval_s` apart in the mean.
pub(crate) fn exponential(interval_s: f64, seconds: f64, random: &mut StdRng) -> Vec<f64> {
    let mut due = 0.0;
    let mut next = || {
        due -= interval_s * (1.0 - random.random_range(0.0_f64..1.0)).ln();
        due
    };
    std::iter::repeat_with(&mut next).take_while(|&due| due < seconds).collect()
}

/// The counts of some minutes of a drawn function, scaled; a fraction of an invocation becomes one by chance.
fn recorded(load: &LoadSettings, days: &[Vec<u32>], random: &mut StdRng) -> Vec<f64> {
    let length = load.seconds;
    let minutes = (length / MINUTE_S).ceil() as usize;
    let invoked: Vec<&Vec<u32>> = days.iter().filter(|day| day.iter().any(|&count| count > 0)).collect();
    if invoked.is_empty() || minutes == 0 {
        return Vec::new();
    }
    let day = invoked[random.random_range(0..invoked.len())];
    let begin = random.random_range(0..=day.len().saturating_sub(minutes));
    let total = |begin: usize| day.iter().skip(begin).take(minutes).map(|&count| f64::from(count)).sum::<f64>();
    // Minutes without invocations are no load: then it begins at the first minute that has some.
    let begin = if total(begin) > 0.0 { begin } else { day.iter().position(|&count| count > 0).unwrap_or(0) };
    let scale = length / load.interval_s / total(begin);
    let mut times = Vec::new();
    for (minute, &count) in day.iter().skip(begin).take(minutes).enumerate() {
        let expected = f64::from(count) * scale;
        let count = expected.floor() as u64 + u64::from(random.random_bool(expected.fract()));
        let from = minute as f64 * MINUTE_S;
        times.extend((0..count).map(|_| random.random_range(from..(from + MINUTE_S).min(length))));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(arrivals: ArrivalLaw) -> LoadSettings {
        LoadSettings { arrivals, interval_s: 2.0, seconds: 600.0, seed: 5, ..LoadSettings::default() }
    }

    #[test]
    fn each_law_keeps_its_mean_and_its_length_and_is_in_the_order_of_time() {
        let days = vec![vec![0; 1440], (0..1440).map(|minute| u32::from(minute % 3 == 0)).collect()];
        for law in [ArrivalLaw::Periodic, ArrivalLaw::Exponential, ArrivalLaw::Recorded] {
            let all = schedule(&[3; 20], &load(law), &days);
            assert!((5_700..6_300).contains(&all.len()), "{law:?}: {}", all.len());
            assert!(all.is_sorted_by(|one, other| one.due_s <= other.due_s));
            assert!(all.iter().all(|one| (0.0..600.0).contains(&one.due_s) && one.input < 3));
            assert!(all.iter().enumerate().all(|(at, one)| one.number == at));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_load_and_one_more_tenant_changes_nobody_else() {
        let of = |tenants: usize, seed| {
            let load = LoadSettings { seed, ..load(ArrivalLaw::Exponential) };
            let all = schedule(&vec![4; tenants], &load, &[]);
            all.iter().filter(|one| one.tenant < 2).map(|one| (one.due_s, one.tenant, one.input)).collect::<Vec<_>>()
        };
        assert_eq!(of(2, 1), of(2, 1));
        assert_eq!(of(2, 1), of(9, 1));
        assert_ne!(of(2, 1), of(2, 2));
    }

    #[test]
    fn recorded_invocations_come_in_the_minutes_in_which_they_came() {
        let mut day = vec![0; 1440];
        day[700] = 5;
        let all = schedule(&[1], &load(ArrivalLaw::Recorded), &[day]);
        assert!(!all.is_empty());
        let minutes: std::collections::BTreeSet<u64> = all.iter().map(|one| (one.due_s / MINUTE_S) as u64).collect();
        assert_eq!(minutes.len(), 1, "{minutes:?}");
        assert!(schedule(&[1], &load(ArrivalLaw::Recorded), &[vec![0; 1440]]).is_empty());
    }

    #[test]
    fn periodic_arrivals_of_a_tenant_are_equally_far_apart() {
        let all = schedule(&[1], &load(ArrivalLaw::Periodic), &[]);
        assert_eq!(all.len(), 300);
        assert!(all.windows(2).all(|pair| (pair[1].due_s - pair[0].due_s - 2.0).abs() < 1e-9));
    }
}
