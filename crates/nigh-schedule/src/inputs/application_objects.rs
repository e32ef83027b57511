//! Predicts which objects the runs of an application read, from the objects that its earlier invocations touched. Pure.
//!
//! An application is everything that follows from one invocation: functions that read its output, or get the output's
//! name, and so on. Its runs are recognised by their first function and the names in that function's input. Two kinds
//! of keys are learned: keys that recur in every run (models, tables; Faa$T, SoCC 2021, learns these), and keys that
//! consist of a name in the input with fixed text before and after it. A key is expected if enough runs have read it.
//! So a scheduler knows what an invocation will read even if its input does not name it, and the objects can be
//! prefetched (`prefetch`).
//!
//! Everything is bounded, belongs to one namespace, and is a hint: a wrong one costs a fetch.

mod patterns;

use std::collections::{BTreeMap, HashMap, VecDeque};

use nigh_data::NamePrint;
use nigh_terms::{FunctionName, Namespace};
use serde::{Deserialize, Serialize};

use self::patterns::{EXPECTED_MAX, HALVED_AT, HITS_MIN, PATTERNS_MAX, Reads};
pub use self::patterns::{ExpectedObject, Names};
use crate::activation::touched::TouchedObject;

/// The most known functions of a namespace; beyond it the least recently used is forgotten.
const FUNCTIONS_MAX: usize = 1024;
/// The most application runs that may still continue.
const RUNS_MAX: usize = 512;
/// The most objects whose writers are remembered.
const WRITES_MAX: usize = 4096;
/// The most outputs of an invocation's last run that a successor is expected to read.
const OUTPUTS_MAX: usize = 8;

/// What is learned of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FunctionReads {
    /// Reads of the function itself.
    own: Reads,
    /// Reads of the functions that follow, without outputs of the same run. Empty unless the function is the first of
    /// an application.
    after: Reads,
    /// The functions whose outputs it has read, each with the number of runs; halved when `runs` is.
    predecessors: BTreeMap<FunctionName, u32>,
    /// The functions that have read its outputs.
    successors: BTreeMap<FunctionName, u32>,
    /// The outputs of its last run.
    #[serde(skip)]
    outputs: Vec<ExpectedObject>,
    #[serde(skip)]
    used: u64,
    /// True if it has changed since it was stored.
    #[serde(skip)]
    changed: bool,
}

/// The stored document of a function.
#[derive(Serialize, Deserialize)]
struct Document {
    format: u32,
    known: FunctionReads,
}

const FORMAT: u32 = 1;

/// A run of an application.
#[derive(Clone, Debug)]
struct Run {
    first: FunctionName,
    names: Names,
    /// True if another function has followed.
    followed: bool,
    /// The objects that the following functions have read; each counts once.
    read: Vec<NamePrint>,
}

/// What is learned of the applications of a namespace.
#[derive(Clone, Debug, Default)]
pub struct ApplicationObjects {
    functions: HashMap<FunctionName, FunctionReads>,
    /// Counts calls, to find the least recently used function.
    clock: u64,
    runs: BTreeMap<u64, Run>,
    next_run: u64,
    /// The run and the function that wrote an object last.
    writers: HashMap<NamePrint, (u64, FunctionName)>,
    written: VecDeque<NamePrint>,
}

/// The facts of an ended invocation.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRun<'a> {
    /// The invocation's namespace.
    pub namespace: &'a Namespace,
    /// The invocation's function.
    pub function: &'a FunctionName,
    /// The names in the input of the invocation: words and keys of objects.
    pub names: &'a Names,
    /// The objects that its input names.
    pub named: &'a [NamePrint],
    /// The objects that it read or wrote.
    pub touched: &'a [TouchedObject],
}

impl ApplicationObjects {
    /// Learns from an ended invocation.
    pub fn ended(&mut self, ended: &FinishedRun<'_>) {
        let FinishedRun { namespace, function, names, named, touched } = *ended;
        let prints: Vec<NamePrint> = touched.iter().map(|one| NamePrint::of(&one.object(namespace))).collect();
        let read = || touched.iter().zip(&prints).filter(|(one, _)| !one.wrote);
        let of_others = read().map(|(_, print)| print).chain(named);
        let before = of_others.filter_map(|print| self.writers.get(print)).max_by_key(|(run, _)| *run).cloned();

        let known = self.known(function);
        known.own.begin();
        read().for_each(|(one, _)| known.own.saw(names, one));
        let outputs = touched.iter().filter(|one| one.wrote).take(OUTPUTS_MAX);
        known.outputs = outputs
            .map(|one| ExpectedObject { bucket: one.bucket.clone(), key: one.key.clone(), bytes: one.bytes })
            .collect();

        let run = match before.filter(|(run, _)| self.runs.contains_key(run)) {
            Some((run, writer)) => {
                self.followed(run, &writer, function);
                let new: Vec<(&TouchedObject, NamePrint)> = read()
                    .filter(|(_, print)| self.writers.get(*print).is_none_or(|(of, _)| *of != run))
                    .map(|(one, print)| (one, *print))
                    .collect();
                self.read_after(run, &new);
                run
            }
            None => self.begin(function, names),
        };
        for (_, print) in touched.iter().zip(&prints).filter(|(one, _)| one.wrote) {
            if self.writers.insert(*print, (run, function.clone())).is_none() {
                self.written.push_back(*print);
            }
            while self.written.len() > WRITES_MAX {
                let oldest = self.written.pop_front();
                oldest.map(|oldest| self.writers.remove(&oldest));
            }
        }
    }

    /// The objects that an invocation of `function` will probably read itself.
    #[must_use]
    pub fn reads(&self, function: &FunctionName, names: &Names) -> Vec<ExpectedObject> {
        let Some(known) = self.functions.get(function) else { return Vec::new() };
        let mut expected = known.own.expected(names);
        let is_expected = |hits: u32| hits >= HITS_MIN && hits * 2 >= known.own.runs;
        let before = known.predecessors.iter().filter(|(_, hits)| is_expected(**hits));
        expected.extend(before.filter_map(|(name, _)| self.functions.get(name)).flat_map(|one| one.outputs.clone()));
        expected.truncate(EXPECTED_MAX);
        expected
    }

    /// If an invocation of `function` is the first of an application: the objects that the following functions will
    /// probably read.
    #[must_use]
    pub fn reads_after(&self, function: &FunctionName, names: &Names) -> Vec<ExpectedObject> {
        self.functions.get(function).map(|known| known.after.expected(names)).unwrap_or_default()
    }

    /// The function that has most often read the outputs of `function`.
    #[must_use]
    pub fn successor(&self, function: &FunctionName) -> Option<&FunctionName> {
        let known = self.functions.get(function)?;
        known.successors.iter().max_by_key(|(_, hits)| **hits).map(|(name, _)| name)
    }

    fn known(&mut self, function: &FunctionName) -> &mut FunctionReads {
        self.clock += 1;
        if self.functions.len() >= FUNCTIONS_MAX && !self.functions.contains_key(function) {
            let oldest = self.functions.iter().min_by_key(|(_, known)| known.used).map(|(name, _)| name.clone());
            oldest.map(|oldest| self.functions.remove(&oldest));
        }
        let known = self.functions.entry(function.clone()).or_default();
        (known.used, known.changed) = (self.clock, true);
        known
    }

    /// The documents of the functions that have changed since the last call.
    pub fn take_changed(&mut self) -> Vec<(FunctionName, Vec<u8>)> {
        let changed = self.functions.iter_mut().filter_map(|(function, known)| {
            if !std::mem::take(&mut known.changed) {
                return None;
            }
            let document = Document { format: FORMAT, known: known.clone() };
            // Plain data always has a JSON form.
            Some((function.clone(), serde_json::to_vec(&document).ok()?))
        });
        changed.collect()
    }

    /// Restores the document of a function, unless more is known of the function already.
    ///
    /// # Errors
    /// Why the document cannot be used.
    pub fn restore(&mut self, function: &FunctionName, kept: &[u8]) -> Result<(), String> {
        let Document { format, known } = serde_json::from_slice(kept).map_err(|error| error.to_string())?;
        let is_sound = |reads: &Reads| reads.patterns.len() <= PATTERNS_MAX;
        if format != FORMAT {
            return Err(format!("the stored document has format {format}, and this build reads {FORMAT}"));
        }
        let lists = [&known.predecessors, &known.successors];
        if !is_sound(&known.own) || !is_sound(&known.after) || lists.iter().any(|list| list.len() > PATTERNS_MAX) {
            return Err("it is larger than it can be".to_owned());
        }
        if self.functions.get(function).is_none_or(|present| present.own.runs < known.own.runs) {
            let mut known = known;
            std::mem::swap(self.known(function), &mut known);
        }
        Ok(())
    }

    fn begin(&mut self, function: &FunctionName, names: &Names) -> u64 {
        while self.runs.len() >= RUNS_MAX {
            self.runs.pop_first();
        }
        self.next_run += 1;
        let run = Run { first: function.clone(), names: names.clone(), followed: false, read: Vec::new() };
        self.runs.insert(self.next_run, run);
        self.next_run
    }

    /// Records that `function` has read an output of `writer`.
    fn followed(&mut self, run: u64, writer: &FunctionName, function: &FunctionName) {
        let add = |counts: &mut BTreeMap<FunctionName, u32>, name: &FunctionName| {
            if counts.len() < PATTERNS_MAX || counts.contains_key(name) {
                *counts.entry(name.clone()).or_default() += 1;
            }
            if counts.values().any(|count| *count >= HALVED_AT) {
                counts.values_mut().for_each(|count| *count /= 2);
                counts.retain(|_, count| *count > 0);
            }
        };
        add(&mut self.known(function).predecessors, writer);
        add(&mut self.known(writer).successors, function);
        let Some(of) = self.runs.get_mut(&run) else { return };
        if !std::mem::replace(&mut of.followed, true) {
            let first = of.first.clone();
            self.known(&first).after.begin();
        }
    }

    fn read_after(&mut self, run: u64, read: &[(&TouchedObject, NamePrint)]) {
        let Some(of) = self.runs.get_mut(&run) else { return };
        let Some(known) = self.functions.get_mut(&of.first) else { return };
        for (one, print) in read {
            if of.read.len() < EXPECTED_MAX && !of.read.contains(print) {
                of.read.push(*print);
                known.after.saw(&of.names, one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nigh_data::ObjectId;
    use nigh_terms::{BucketName, ObjectKey};

    use super::*;
    use crate::inputs::named_objects::NamedObject;
    use crate::inputs::payload_walk::PayloadWalk;

    fn name(name: &str) -> FunctionName {
        FunctionName::new(name).unwrap()
    }

    fn touched(key: &str, wrote: bool) -> TouchedObject {
        TouchedObject {
            bucket: BucketName::new("bucket").unwrap(),
            key: ObjectKey::new(key).unwrap(),
            bytes: 1000,
            wrote,
        }
    }

    fn end(learned: &mut ApplicationObjects, function: &str, payload: &str, calls: &[(&str, bool)]) {
        let walk = PayloadWalk::of(payload.as_bytes());
        let tenant = Namespace::new("tenant").unwrap();
        let object = |named: &NamedObject| ObjectId {
            namespace: tenant.clone(),
            bucket: named.bucket.clone(),
            key: named.key.clone(),
        };
        let named: Vec<NamePrint> = walk.objects.iter().map(|named| NamePrint::of(&object(named))).collect();
        let touched: Vec<TouchedObject> = calls.iter().map(|(key, wrote)| touched(key, *wrote)).collect();
        let (function, names) = (name(function), Names::of(&walk));
        learned.ended(&FinishedRun {
            namespace: &tenant,
            function: &function,
            names: &names,
            named: &named,
            touched: &touched,
        });
    }

    fn keys(expected: &[ExpectedObject]) -> Vec<&str> {
        expected.iter().map(|one| one.key.as_str()).collect()
    }

    fn names(payload: &str) -> Names {
        Names::of(&PayloadWalk::of(payload.as_bytes()))
    }

    /// A run of an application: `cut` makes parts of the object that its input names; `tell` reads a model, the parts
    /// and a mask.
    fn run(learned: &mut ApplicationObjects, film: &str) {
        let payload = format!(r#"{{"film":"{film}"}}"#);
        let (source, part) = (format!("in/{film}.mp4"), format!("tmp/{film}-1"));
        end(learned, "cut", &payload, &[(&source, false), (&part, true)]);
        let mask = format!("masks/{film}.png");
        end(learned, "tell", "{}", &[("model.bin", false), (&part, false), (&mask, false)]);
    }

    #[test]
    fn what_follows_reads_what_recurs_and_what_is_named_alike() {
        let mut learned = ApplicationObjects::default();
        ["alpha", "beta"].into_iter().for_each(|film| run(&mut learned, film));
        let after = learned.reads_after(&name("cut"), &names(r#"{"film":"gamma"}"#));
        assert_eq!(keys(&after), ["model.bin", "masks/gamma.png"], "and not what the run writes itself");
        assert_eq!(learned.successor(&name("cut")), Some(&name("tell")));
        assert_eq!(keys(&learned.reads(&name("cut"), &names(r#"{"film":"gamma"}"#))), ["in/gamma.mp4"]);
        // The input names nothing: expected are its predecessor's last output and the recurring keys.
        assert_eq!(keys(&learned.reads(&name("tell"), &names("{}"))), ["model.bin", "tmp/beta-1"]);
    }

    #[test]
    fn one_run_proves_nothing_and_what_is_not_read_any_more_is_forgotten() {
        let mut learned = ApplicationObjects::default();
        run(&mut learned, "alpha");
        assert!(learned.reads_after(&name("cut"), &names("{}")).is_empty());
        run(&mut learned, "beta");
        for film in 0..6 {
            let part = format!("tmp/{film}");
            end(&mut learned, "cut", "{}", &[(&part, true)]);
            end(&mut learned, "tell", "{}", &[(&part, false), ("new.bin", false)]);
        }
        assert_eq!(keys(&learned.reads_after(&name("cut"), &names("{}"))), ["new.bin"]);
    }

    #[test]
    fn whoever_is_given_an_output_by_name_follows_though_it_has_not_read_it() {
        let mut learned = ApplicationObjects::default();
        for at in 0..2 {
            let part = format!("tmp/{at}");
            end(&mut learned, "cut", "{}", &[(&part, true)]);
            let payload = format!(r#"{{"bucket":"bucket","key":"{part}"}}"#);
            end(&mut learned, "tell", &payload, &[("model.bin", false)]);
        }
        assert_eq!(keys(&learned.reads_after(&name("cut"), &names("{}"))), ["model.bin"]);
    }

    #[test]
    fn what_was_kept_is_known_again() {
        let mut learned = ApplicationObjects::default();
        ["alpha", "beta"].into_iter().for_each(|film| run(&mut learned, film));
        let kept = learned.take_changed();
        assert_eq!((kept.len(), learned.take_changed().len()), (2, 0));
        let mut again = ApplicationObjects::default();
        for (function, document) in &kept {
            again.restore(function, document).unwrap();
        }
        let film = names(r#"{"film":"gamma"}"#);
        assert_eq!(again.reads_after(&name("cut"), &film), learned.reads_after(&name("cut"), &film));
        assert!(again.restore(&name("cut"), b"{}").is_err());
    }

    #[test]
    fn what_is_learned_is_bounded() {
        let mut learned = ApplicationObjects::default();
        for at in 0..6000 {
            let part = format!("tmp/{at}");
            end(&mut learned, &format!("f{at}"), "{}", &[(&part, true), (&format!("x{at}"), false)]);
            end(&mut learned, "tell", "{}", &[(&part, false), (&format!("y{at}"), false)]);
        }
        assert!(learned.functions.len() <= FUNCTIONS_MAX && learned.runs.len() <= RUNS_MAX);
        assert!(learned.writers.len() <= WRITES_MAX && learned.writers.len() == learned.written.len());
        let tell = &learned.functions[&name("tell")];
        assert!(tell.own.patterns.len() <= PATTERNS_MAX && tell.predecessors.len() <= PATTERNS_MAX);
        assert!(tell.own.runs < HALVED_AT);
    }
}
