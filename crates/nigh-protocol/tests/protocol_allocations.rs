//! The home's and the node's steps allocate nothing once they have what they keep: counted by an allocator of this test's
//! own, which is why it is a program of its own.

#![expect(clippy::unwrap_used, reason = "a test ends by panicking")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use nigh_protocol::{
    Attempt, CacheLimits, CacheOutput, Contract, FromHome, Home, HomeInput, HomeLimits, HomeOutput, Member, NodeCache,
    NodeNumber, ReadDecision, Reply, Request, RequestId, Takeover, ToHome, Write,
};
use nigh_terms::{Epoch, Incarnation, Monotonic, Sequence, ShardId, Token, Version};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts what this thread asks for.
struct Counting;

// SAFETY: every call is passed on to the system's allocator as it is; the count has neither allocation nor destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

const NOW: Monotonic = Monotonic(0);
const EPOCH: Epoch = Epoch(1);
const SHARD: ShardId = ShardId(0);
const OBJECTS: u64 = 5_000;
const NODES: u32 = 16;

fn member(node: u32) -> Member {
    Member { node: NodeNumber(node), incarnation: Incarnation(1) }
}

/// A home, and what those who ask it remember.
struct World {
    home: Home<u64>,
    out: Vec<HomeOutput<u64>>,
    owed: Vec<Reply<u64>>,
    puts: Vec<RequestId>,
    sequence: u64,
    token: Arc<Token>,
    steps: u64,
}

impl World {
    fn new() -> Self {
        let takeover =
            Takeover { shard: SHARD, epoch: EPOCH, records: Vec::new(), summary: Token::empty(), resident: None };
        Self {
            home: Home::begin(takeover, HomeLimits::default(), Contract),
            out: Vec::new(),
            owed: Vec::new(),
            puts: vec![RequestId(0); NODES as usize],
            sequence: 0,
            token: Arc::new(Token::empty()),
            steps: 0,
        }
    }

    fn step(&mut self, input: HomeInput<u64>) {
        self.out.clear();
        self.home.step(NOW, input, &mut self.out);
        self.steps += 1;
    }

    fn request(&mut self, node: u32, body: ToHome<u64>) {
        self.step(HomeInput::Request(Request { from: member(node), epoch: EPOCH, body }));
    }

    fn fetch(&mut self, node: u32, object: u64) {
        let attempt = Attempt { request: RequestId(self.steps), number: 0 };
        self.request(node, ToHome::Fetch { attempt, object, shared: true });
        if matches!(self.out[..], [HomeOutput::Load(_)]) {
            self.step(HomeInput::Loaded { object, absent: false });
        }
        assert!(matches!(self.out[..], [HomeOutput::Send(_)]));
    }

    fn put(&mut self, node: u32, object: u64) {
        let request = self.puts[node as usize];
        self.puts[node as usize].0 += 1;
        let token = Arc::clone(&self.token);
        self.request(node, ToHome::Put { request, object, write: Write::Put, token, settled: request });
        let append = self.out.iter().find_map(|output| match output {
            HomeOutput::Append { append, .. } => Some(*append),
            _ => None,
        });
        self.sequence += 1;
        let version = Version { epoch: EPOCH, sequence: Sequence(self.sequence) };
        self.step(HomeInput::Appended { append: append.unwrap(), version });
        for output in self.out.drain(..) {
            if let HomeOutput::Send(reply) = output {
                self.owed.push(reply);
            }
        }
        while let Some(reply) = self.owed.pop() {
            if let FromHome::Invalidate { counter, .. } = reply.body {
                self.request(reply.to.node.0, ToHome::Applied { counter });
            }
        }
    }

    /// Each object is read by two other nodes between two writes, as an object is that one function makes and two read.
    fn round(&mut self) {
        for object in 0..OBJECTS {
            let node = (object * 7 % u64::from(NODES)) as u32;
            self.put(node, object);
            self.fetch((node + 1) % NODES, object);
            self.fetch((node + 5) % NODES, object);
        }
    }
}

#[test]
fn a_home_in_steady_state_allocates_nothing() {
    let mut world = World::new();
    (0..3).for_each(|_| world.round());
    let (before, steps) = (allocations(), world.steps);
    (0..3).for_each(|_| world.round());
    assert_eq!(allocations() - before, 0, "in {} steps", world.steps - steps);
    assert!(world.steps - steps > 80_000, "puts, appends, fetches and acknowledgements: {}", world.steps - steps);
}

#[test]
fn a_local_hit_allocates_nothing_and_sends_nothing() {
    let mut home = World::new();
    let mut cache: NodeCache<u64, Arc<()>> = NodeCache::new(member(3), CacheLimits::default(), Contract);
    let mut out: Vec<CacheOutput<u64, Arc<()>>> = Vec::new();
    let value = Arc::new(());
    cache.meet(NOW, SHARD, EPOCH, &mut out);
    for object in 0..OBJECTS {
        out.clear();
        assert!(matches!(cache.read(NOW, SHARD, &object, false, &mut out), ReadDecision::Shared(_)));
        let Some(CacheOutput::Send(_, request)) = out.pop() else { panic!("nothing was asked") };
        home.step(HomeInput::Request(request));
        home.step(HomeInput::Loaded { object, absent: false });
        let Some(HomeOutput::Send(reply)) = home.out.pop() else { panic!("nothing was answered") };
        cache.receive(NOW, reply, Some(Arc::clone(&value)), &mut out);
    }
    out.clear();
    let before = allocations();
    for object in 0..OBJECTS {
        assert!(matches!(cache.read(NOW, SHARD, &object, false, &mut out), ReadDecision::Hit(_)));
    }
    assert_eq!((allocations() - before, out.len()), (0, 0));
}
