//! The paper's six workflows: patterns and schedule from its table III and figure 7, sizes measured on the public
//! sources.
//!
//! Computing is what each function took in plain Python on two cores, with the (de)serialisation in its reads and
//! writes; a run scales all of a workflow alike, so only proportions matter. Where nothing was measured, none is made
//! up.

use super::workflow::{Function, Object, ObjectId, Server, Step, Workflow};

/// What the paper calls c1, c2 and c3.
const C1: Server = Server(0);
const C2: Server = Server(1);
const C3: Server = Server(2);

/// The model that image prediction loads beside its picture. Not named by the paper; fitted (docs/design/fabric.md).
pub const IMAGE_MODEL_BYTES: u64 = 5_400_000;

/// Objects while they are listed.
#[derive(Default)]
struct Objects(Vec<Object>);

impl Objects {
    fn uncached(&mut self, bytes: u64) -> ObjectId {
        self.cached(bytes, &[])
    }

    fn cached(&mut self, bytes: u64, cached_at: &[Server]) -> ObjectId {
        self.0.push(Object { bytes, cached_at: cached_at.to_vec() });
        ObjectId((self.0.len() - 1) as u16)
    }
}

/// A function: what it gets, milliseconds of computing, what it puts.
fn function(
    stage: u8,
    name: &'static str,
    server: Server,
    gets: &[ObjectId],
    milliseconds: f64,
    puts: &[ObjectId],
) -> Function {
    let gets = gets.iter().map(|object| Step::Get(*object));
    let computing = [Step::Compute(milliseconds * 1e3)];
    let puts = puts.iter().map(|object| Step::Put(*object));
    Function { name, server, stage, steps: gets.chain(computing).chain(puts).collect() }
}

/// The six, in the order of the paper's figure 8.
pub fn workflows() -> [Workflow; 6] {
    [phi(), sentiment(), finra(), video(), image(), gemm()]
}

fn phi() -> Workflow {
    let mut objects = Objects::default();
    let text = objects.uncached(19_928);
    let identified = objects.uncached(128_606);
    let masked = objects.uncached(88_271);
    let anonymous = objects.uncached(19_905);
    let statistics = objects.uncached(29_723);
    let functions = vec![
        function(0, "identifyPHI", C1, &[text], 157.4, &[identified]),
        function(1, "deIdentify", C2, &[identified], 80.2, &[masked]),
        function(1, "anonymize", C1, &[identified], 33.3, &[anonymous]),
        function(2, "analytics", C1, &[anonymous], 1.8, &[statistics]),
    ];
    Workflow { name: "phi", objects: objects.0, functions }
}

fn sentiment() -> Workflow {
    let mut objects = Objects::default();
    let csv = objects.uncached(163_293);
    // The second function writes its result into the object that it read: the one put that invalidates.
    let reviews = objects.uncached(206_971);
    let functions = vec![
        function(0, "readcsv", C1, &[csv], 26.7, &[reviews]),
        function(1, "sentimentAnalysis", C2, &[reviews], 42.8, &[reviews]),
        function(2, "publishSNS", C2, &[reviews], 0.8, &[]),
        function(2, "writeDB", C2, &[reviews], 0.8, &[]),
    ];
    Workflow { name: "sentiment", objects: objects.0, functions }
}

fn finra() -> Workflow {
    let mut objects = Objects::default();
    let market = objects.uncached(828_674);
    let portfolios = objects.uncached(24_929);
    let both = [portfolios, market];
    let functions = vec![
        function(0, "fetchMarket", C1, &[], 126.7, &[market]),
        function(0, "fetchPortfolios", C2, &[], 1.0, &[portfolios]),
        function(1, "volume", C1, &both, 29.0, &[]),
        function(1, "trdate", C2, &both, 33.9, &[]),
        function(1, "lastpx", C3, &both, 23.0, &[]),
        function(1, "side", C2, &both, 27.0, &[]),
        // It writes the margins into the portfolios, which the others have read.
        function(2, "marginBalance", C1, &both, 20.8, &[portfolios]),
    ];
    Workflow { name: "finra", objects: objects.0, functions }
}

fn video() -> Workflow {
    let mut objects = Objects::default();
    let film = objects.uncached(2_107_842);
    let frame = objects.uncached(21);
    let first = objects.uncached(3_684_268);
    let second = objects.uncached(1_660_704);
    let verdict = objects.uncached(130);
    let whole = objects.uncached(4_599_010);
    let functions = vec![
        function(0, "locateKeyFrame", C1, &[film], 76.9, &[frame]),
        function(1, "splitVideo", C1, &[film], 7_628.8, &[first, second]),
        // Each writes its segment again, nearly as large; the second one is in the cache of c1, which split it.
        function(2, "AnalyzeProcess", C1, &[first], 2_717.3, &[first]),
        function(2, "AnalyzeProcess", C2, &[second], 2_300.5, &[second]),
        function(3, "validate", C3, &[], 0.0, &[verdict]),
        function(4, "concat", C3, &[first, second], 7_377.4, &[whole]),
    ];
    Workflow { name: "video", objects: objects.0, functions }
}

fn image() -> Workflow {
    let mut objects = Objects::default();
    let picture = objects.uncached(2_853_364);
    let resized = objects.uncached(1_204_391);
    // Read by every prediction: c1 has it from the last one.
    let model = objects.cached(IMAGE_MODEL_BYTES, &[C1]);
    let labels = objects.uncached(23_093);
    let page = objects.uncached(83);
    let functions = vec![
        function(0, "resize", C1, &[picture], 597.9, &[resized]),
        // Its computing was not measured; the three run one after the other, so the first one's stands for all.
        function(1, "predict", C1, &[resized, model], 0.0, &[labels]),
        function(2, "render", C1, &[labels], 0.0, &[page]),
    ];
    Workflow { name: "image", objects: objects.0, functions }
}

fn gemm() -> Workflow {
    let mut objects = Objects::default();
    let matrix = objects.uncached(308_158);
    let halves = [objects.uncached(557_580), objects.uncached(557_580)];
    let products = [objects.uncached(31_695_603), objects.uncached(31_726_403)];
    // The framework shuffles products on c1, where the second split reads them; it is no function, and is not counted.
    let shuffled = objects.cached(63_422_001, &[C1]);
    let parts = [objects.uncached(119_451_458), objects.uncached(119_444_858)];
    let sums = [objects.uncached(303_932), objects.uncached(329_300)];
    let functions = vec![
        function(0, "split", C1, &[matrix], 12.5, &halves),
        function(1, "mapper", C1, &[halves[0]], 2_097.3, &[products[0]]),
        function(1, "mapper", C2, &[halves[1]], 2_007.6, &[products[1]]),
        function(2, "split", C1, &[shuffled], 1_780.0, &parts),
        function(3, "reducer", C1, &[parts[0]], 222.1, &[sums[0]]),
        function(3, "reducer", C2, &[parts[1]], 248.3, &[sums[1]]),
    ];
    Workflow { name: "gemm", objects: objects.0, functions }
}
