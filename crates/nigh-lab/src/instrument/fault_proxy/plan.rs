//! What the proxy does to which requests. Pure: a plan, a request's line and its number in, a fault or none out.
//!
//! Which requests a rule meets is drawn from the plan's seed and the request's number, so that the same requests in
//! the same order meet the same faults.

use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// What may happen to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Fault {
    /// It is answered with a status, and the store never hears of it.
    Refuse {
        /// The status.
        status: u16,
        /// `Retry-After`, in seconds.
        #[serde(default)]
        retry_after_s: Option<u64>,
    },
    /// The store carries it out, and the answer is this status.
    Break {
        /// The status.
        status: u16,
    },
    /// The store carries it out, and the connection is closed without an answer.
    Close,
    /// It is never answered, nor passed on. The connection stays open.
    Hang,
    /// The answer's entity tag is another.
    WrongEtag,
    /// The connection is closed after half of the answer's body.
    HalfBody,
    /// The answer's body comes at this rate.
    Throttle {
        /// Bytes a second.
        bytes_per_s: u64,
    },
}

/// A fault for some requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Methods, in capitals; all if empty.
    #[serde(default)]
    pub methods: Vec<String>,
    /// What the path or query must contain; anything if empty.
    #[serde(default)]
    pub contains: String,
    /// What the path or query must not contain; nothing if empty.
    #[serde(default)]
    pub lacks: String,
    /// The share of these requests that it meets, from 0 to 1.
    pub chance: f64,
    /// What happens to them.
    pub fault: Fault,
}

/// How long requests take on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Delay {
    /// What each takes.
    pub base_ms: f64,
    /// What each takes beside that, drawn evenly from 0 to this.
    #[serde(default)]
    pub jitter_ms: f64,
}

/// What happens to requests: the first rule that meets one decides.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// What is drawn depends on it.
    #[serde(default)]
    pub seed: u64,
    /// How long each request is held before it is passed on.
    #[serde(default)]
    pub delay: Delay,
    /// Faults.
    #[serde(default)]
    pub rules: Vec<Rule>,
}

/// What happens to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Fate {
    /// How long it is held, in milliseconds.
    pub delay_ms: f64,
    /// What happens then; nothing if absent.
    pub fault: Option<Fault>,
}

impl Rule {
    /// `fault` for a share of all requests.
    #[must_use]
    pub const fn of_all(chance: f64, fault: Fault) -> Self {
        Self { methods: Vec::new(), contains: String::new(), lacks: String::new(), chance, fault }
    }

    /// The same for requests of `method` alone.
    #[must_use]
    pub fn of(mut self, method: Method) -> Self {
        self.methods.push(method.as_str().to_owned());
        self
    }

    fn concerns(&self, method: &Method, target: &str) -> bool {
        (self.methods.is_empty() || self.methods.iter().any(|one| one == method.as_str()))
            && target.contains(&self.contains)
            && (self.lacks.is_empty() || !target.contains(&self.lacks))
    }
}

impl Plan {
    /// What happens to request `number` for `target`, path and query.
    #[must_use]
    pub fn fate(&self, number: u64, method: &Method, target: &str) -> Fate {
        let mut draw = StdRng::seed_from_u64(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let delay_ms = self.delay.base_ms + self.delay.jitter_ms * draw.random::<f64>();
        let meets = |rule: &&Rule| rule.concerns(method, target) && draw.random::<f64>() < rule.chance;
        Fate { delay_ms, fault: self.rules.iter().find(meets).map(|rule| rule.fault.clone()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_requests_meet_the_same_faults_and_their_share_is_what_was_asked_for() {
        let plan = Plan {
            seed: 7,
            delay: Delay { base_ms: 2.0, jitter_ms: 4.0 },
            rules: vec![
                Rule::of_all(0.25, Fault::Hang).of(Method::GET),
                Rule::of_all(1.0, Fault::Close).of(Method::PUT),
            ],
        };
        let fates: Vec<Fate> = (0..4000).map(|n| plan.fate(n, &Method::GET, "/b/k")).collect();
        assert_eq!(fates, (0..4000).map(|n| plan.fate(n, &Method::GET, "/b/k")).collect::<Vec<_>>());
        let hung = fates.iter().filter(|fate| fate.fault == Some(Fault::Hang)).count();
        assert!((900..1100).contains(&hung), "{hung}");
        assert!(fates.iter().all(|fate| (2.0..6.0).contains(&fate.delay_ms)));
        assert_eq!(plan.fate(1, &Method::PUT, "/b/k").fault, Some(Fault::Close));
        assert_eq!(plan.fate(1, &Method::HEAD, "/b/k").fault, None);
    }

    #[test]
    fn a_rule_is_for_some_paths() {
        let rule =
            Rule { contains: "/data".to_owned(), lacks: "prefix=".to_owned(), ..Rule::of_all(1.0, Fault::Close) };
        let plan = Plan { rules: vec![rule], ..Plan::default() };
        let fault = |target| plan.fate(0, &Method::GET, target).fault;
        assert_eq!(
            (fault("/v1/data/k"), fault("/v1/data?prefix=a"), fault("/other")),
            (Some(Fault::Close), None, None)
        );
    }

    #[test]
    fn a_plan_is_read_from_a_file() {
        let text = "seed = 3\ndelay = { base_ms = 5 }\n[[rules]]\nchance = 0.1\nfault = { refuse = { status = 503 } }\n\
                    [[rules]]\nmethods = [\"GET\"]\nchance = 1.0\nfault = \"half_body\"\n";
        let plan: Plan = toml::from_str(text).unwrap();
        assert_eq!(plan.rules[0].fault, Fault::Refuse { status: 503, retry_after_s: None });
        assert_eq!((plan.rules[1].fault.clone(), plan.delay.base_ms), (Fault::HalfBody, 5.0));
    }
}
