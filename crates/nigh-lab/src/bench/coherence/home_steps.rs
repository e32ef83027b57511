//! Steps of one home: fetches, puts with their appends, and acknowledged invalidations, of objects drawn at random.

use std::hint::black_box;
use std::sync::Arc;

use nigh_data::ObjectId;
use nigh_protocol::{
    Attempt, Contract, FromHome, Home, HomeInput, HomeLimits, HomeOutput, Member, NodeNumber, ObjectName, Request,
    RequestId, Takeover, ToHome, Write,
};
use nigh_sim::llc::SplitMix64;
use nigh_terms::{Epoch, Incarnation, Monotonic, Sequence, ShardId, Token, Version};
use serde::Serialize;

use super::Length;
use crate::LabError;
use crate::instrument::cpu_time::of_this_thread;
use crate::instrument::made_up::{failed, name};
use crate::instrument::stats::Sample;

pub(super) const NODES: u32 = 64;
/// Of ten operations so many are fetches; the rest are puts.
const FETCHES: u32 = 7;

#[derive(Debug, Serialize)]
pub(super) struct StepsRow {
    pub(super) objects: u64,
    pub(super) names: &'static str,
    pub(super) ns_per_step: f64,
    pub(super) per_second: f64,
    fetches: u64,
    puts: u64,
    appends: u64,
    acknowledgements: u64,
}

const NOW: Monotonic = Monotonic(0);
const EPOCH: Epoch = Epoch(1);

pub(super) struct DrivenHome<O: ObjectName> {
    pub(super) home: Home<O>,
    out: Vec<HomeOutput<O>>,
    requests: Vec<RequestId>,
    sequence: u64,
    token: Arc<Token>,
    acknowledgements: Vec<(Member, nigh_protocol::Counter)>,
    pub(super) steps: u64,
    acknowledged: u64,
}

fn member(node: u32) -> Member {
    Member { node: NodeNumber(node), incarnation: Incarnation(1) }
}

impl<O: ObjectName> DrivenHome<O> {
    pub(super) fn new() -> Self {
        let takeover =
            Takeover { shard: ShardId(0), epoch: EPOCH, records: Vec::new(), summary: Token::empty(), resident: None };
        Self {
            home: Home::begin(takeover, HomeLimits::default(), Contract),
            out: Vec::new(),
            requests: vec![RequestId::default(); NODES as usize],
            sequence: 0,
            token: Arc::new(Token::empty()),
            acknowledgements: Vec::new(),
            steps: 0,
            acknowledged: 0,
        }
    }

    fn step(&mut self, input: HomeInput<O>) {
        self.out.clear();
        self.home.step(NOW, input, &mut self.out);
        self.steps += 1;
    }

    fn request(&mut self, from: Member, body: ToHome<O>) {
        self.step(HomeInput::Request(Request { from, epoch: EPOCH, body }));
    }

    /// A fetch, with the look into the store if the home wants one.
    pub(super) fn fetch(&mut self, node: u32, object: &O) {
        let attempt = Attempt { request: RequestId(self.steps), number: 0 };
        self.request(member(node), ToHome::Fetch { attempt, object: object.clone(), shared: true });
        if let Some(HomeOutput::Load(_)) = self.out.first() {
            self.step(HomeInput::Loaded { object: object.clone(), absent: false });
        }
    }

    /// A put, its append, and the acknowledgement of each invalidation.
    fn put(&mut self, node: u32, object: &O) -> Result<(), LabError> {
        let request = self.requests[node as usize];
        self.requests[node as usize].0 += 1;
        let token = Arc::clone(&self.token);
        let body = ToHome::Put { request, object: object.clone(), write: Write::Put, token, settled: request };
        self.request(member(node), body);
        let append = self.out.iter().find_map(|output| match output {
            HomeOutput::Append { append, .. } => Some(*append),
            _ => None,
        });
        let append = append.ok_or_else(|| failed("a put", &"the home did not have it appended"))?;
        self.sequence += 1;
        let version = Version { epoch: EPOCH, sequence: Sequence(self.sequence) };
        self.step(HomeInput::Appended { append, version });
        let told = self.out.iter().filter_map(|output| match output {
            HomeOutput::Send(reply) => match reply.body {
                FromHome::Invalidate { counter, .. } => Some((reply.to, counter)),
                _ => None,
            },
            _ => None,
        });
        self.acknowledgements.extend(told);
        while let Some((from, counter)) = self.acknowledgements.pop() {
            self.acknowledged += 1;
            self.request(from, ToHome::Applied { counter });
        }
        Ok(())
    }
}

fn measure<O: ObjectName>(names: &'static str, objects: &[O], length: Length) -> Result<StepsRow, LabError> {
    let mut asked = DrivenHome::new();
    for (object, node) in objects.iter().zip((0..NODES).cycle()) {
        asked.fetch(node, object);
    }
    let mut random = SplitMix64::new(1);
    let mut times = Vec::new();
    let mut counts = (0, 0);
    // The first round makes what the others reuse.
    for round in 0..=length.rounds {
        let (steps, acknowledged) = (asked.steps, asked.acknowledged);
        counts = (0, 0);
        let begun = of_this_thread();
        for _ in 0..length.operations {
            let object = &objects[random.below(objects.len() as u32) as usize];
            let node = random.below(NODES);
            if random.below(10) < FETCHES {
                asked.fetch(node, object);
                counts.0 += 1;
            } else {
                asked.put(node, object)?;
                counts.1 += 1;
            }
        }
        let took = (of_this_thread() - begun).as_nanos() as f64;
        if round > 0 {
            times.push(took / (asked.steps - steps) as f64);
        }
        asked.acknowledged -= acknowledged;
    }
    black_box(&asked.home);
    let ns_per_step = Sample::new(times).median();
    Ok(StepsRow {
        objects: objects.len() as u64,
        names,
        ns_per_step,
        per_second: 1e9 / ns_per_step,
        fetches: counts.0,
        puts: counts.1,
        appends: counts.1,
        acknowledgements: asked.acknowledged,
    })
}

pub(super) fn names(count: u64) -> Result<Vec<ObjectId>, LabError> {
    let first = ObjectId { namespace: name("tenant")?, bucket: name("pictures")?, key: name("key")? };
    let object = |number: u64| -> Result<ObjectId, LabError> {
        Ok(ObjectId { key: name(&format!("in/{number:08}.png"))?, ..first.clone() })
    };
    (0..count).map(object).collect()
}

pub(super) fn run(sizes: &[u64], length: Length) -> Result<Vec<StepsRow>, LabError> {
    let mut rows = Vec::new();
    for &objects in sizes {
        let numbers: Vec<u64> = (0..objects).collect();
        rows.push(measure("numbers", &numbers, length)?);
        // Ten million names are as many allocations again, and say nothing that a million do not.
        if objects <= 1_000_000 {
            rows.push(measure("names", &names(objects)?, length)?);
        }
    }
    Ok(rows)
}
