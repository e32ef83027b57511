//! Applications in the place of recorded functions, with objects made up by a seed.
//!
//! Each is a chain of three functions: the first reads the object that its input names and writes a part; the second reads the
//! part, a model and an object named like the input; the third reads a table. In a fifth of the applications the model gets
//! another key every 20 runs; in another fifth the second function reads a key that nobody can predict.

use nigh_terms::{FunctionName, ObjectKey};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::LabError;
use crate::instrument::made_up::name;
use crate::instrument::measured_sizes::size;

/// The report's description of the applications.
pub(super) const ABOUT: &str = "made up: each function is the first of a chain of three; 1 to 300 inputs each; a model of \
                                0.1 to 20 MiB and an object named as the input are read by the second, a table by the \
                                third; in a fifth the model changes every 20 runs, in a fifth what follows reads an unknown \
                                key; 0.05 to 1 s of work each";

const INPUTS_MAX: f64 = 300.0;
/// Runs of one application in one minute that are played.
const RUNS_IN_A_MINUTE_MAX: u32 = 2;
/// Runs after which a model has another key.
const MODEL_LASTS: u64 = 20;

/// Which keys recur in an application's runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Habit {
    Steady,
    Drifting,
    Fickle,
}

#[derive(Debug)]
pub(super) struct Application {
    pub(super) functions: [FunctionName; 3],
    habit: Habit,
    number: usize,
    /// The bytes of each input, and of the object named like it.
    inputs: Vec<[u64; 2]>,
    model_bytes: u64,
    table_bytes: u64,
    /// The work of each function.
    pub(super) work_us: f64,
}

/// An object of a run.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) key: ObjectKey,
    pub(super) bytes: u64,
}

/// The objects that a run of an application reads and writes.
#[derive(Debug)]
pub(super) struct RunObjects {
    pub(super) payload: String,
    pub(super) input: Object,
    pub(super) part: Object,
    pub(super) second: Vec<Object>,
    pub(super) third: Vec<Object>,
}

/// The beginning of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) at_s: f64,
    pub(super) application: usize,
    pub(super) run: u64,
    input: usize,
}

fn object(key: &str, bytes: u64) -> Result<Object, LabError> {
    Ok(Object { key: name(key)?, bytes })
}

impl Application {
    fn make(number: usize, random: &mut StdRng) -> Result<Self, LabError> {
        let function = |stage: &str| name(&format!("{stage}-{number}"));
        let habit = match random.random_range(0..5) {
            0 => Habit::Drifting,
            1 => Habit::Fickle,
            _ => Habit::Steady,
        };
        let inputs = INPUTS_MAX.powf(random.random_range(0.0..1.0)).round() as usize;
        let mib = |least: f64, most: f64, random: &mut StdRng| {
            (least * (most / least).powf(random.random_range(0.0..1.0)) * 1_048_576.0) as u64
        };
        Ok(Self {
            functions: [function("first")?, function("second")?, function("third")?],
            habit,
            number,
            inputs: (0..inputs).map(|_| [size(random), size(random)]).collect(),
            model_bytes: mib(0.1, 20.0, random),
            table_bytes: mib(0.01, 2.0, random),
            work_us: 50_000.0 * 20_f64.powf(random.random_range(0.0..1.0)),
        })
    }

    pub(super) fn objects(&self, start: &Start) -> Result<RunObjects, LabError> {
        let (number, item) = (self.number, format!("item{:04}", start.input));
        let [input, named_alike] = self.inputs[start.input];
        let key = format!("{number}/in/{item}.bin");
        let model = match self.habit {
            Habit::Drifting => start.run / MODEL_LASTS,
            Habit::Steady | Habit::Fickle => 0,
        };
        let mut second = vec![object(&format!("{number}/model-{model}"), self.model_bytes)?];
        match self.habit {
            Habit::Fickle => second = vec![object(&format!("{number}/{}", start.run), self.model_bytes)?],
            Habit::Steady | Habit::Drifting => {
                second.push(object(&format!("{number}/index/{item}.idx"), named_alike)?);
            }
        }
        Ok(RunObjects {
            payload: format!(r#"{{"input":{{"bucket":"objects","key":"{key}"}}}}"#),
            input: object(&key, input)?,
            part: object(&format!("{number}/parts/{}", start.run), input / 2 + 1)?,
            second,
            third: vec![object(&format!("{number}/table"), self.table_bytes)?],
        })
    }

    /// The bytes of all that its runs may read again.
    pub(super) fn bytes(&self) -> u64 {
        self.inputs.iter().flatten().sum::<u64>() + self.model_bytes + self.table_bytes
    }
}

/// The applications of the recorded functions, and the begins of their runs in the order of time.
pub(super) fn make(days: &[Vec<u32>], seed: u64) -> Result<(Vec<Application>, Vec<Start>), LabError> {
    let mut random = StdRng::seed_from_u64(seed);
    let (mut applications, mut starts) = (Vec::new(), Vec::new());
    for (at, minutes) in days.iter().enumerate() {
        let application = Application::make(at, &mut random)?;
        let mut run = 0;
        for (minute, count) in (0_u32..).zip(minutes) {
            for _ in 0..(*count).min(RUNS_IN_A_MINUTE_MAX) {
                let at_s = f64::from(minute) * 60.0 + random.random_range(0.0..60.0);
                let input = random.random_range(0..application.inputs.len());
                starts.push(Start { at_s, application: at, run, input });
                run += 1;
            }
        }
        applications.push(application);
    }
    starts.sort_by(|one: &Start, other| one.at_s.total_cmp(&other.at_s));
    Ok((applications, starts))
}
