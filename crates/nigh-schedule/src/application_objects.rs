//! Which objects the runs of an application read: learned from what its invocations touched. Pure.
//!
//! An application is what follows from one invocation: who reads what it wrote, or is given it by name, and so on. Its runs
//! are known by their first function and the names in that one's input. Learned are keys that recur in every run (models,
//! tables) and keys that are made of a name in the input, with the same text before and behind it (Faa$T, SoCC 2021, learns
//! the first kind). Each is believed by how many of the runs read it. So a scheduler knows what an invocation will read that
//! its input does not name, and memory can be filled before it is asked (`prefetch`).
//!
//! All of it is bounded, a hint, and of one namespace: a wrong one costs a fetch.

use std::collections::{BTreeMap, HashMap, VecDeque};

use nigh_data::NamePrint;
use nigh_data::ObjectId;
use nigh_learn::FeatureValue;
use nigh_terms::{BucketName, FunctionName, Namespace, ObjectKey};
use serde::{Deserialize, Serialize};

use crate::payload_walk::PayloadWalk;
use crate::touched::TouchedObject;

/// Functions of a namespace of which something is known; the one used longest ago makes room.
const FUNCTIONS_MAX: usize = 1024;
/// Kinds of keys that are counted of a function.
const PATTERNS_MAX: usize = 48;
/// Names of an input that keys may be made of.
const NAMES_MAX: usize = 16;
/// A shorter name is in keys by chance.
const NAME_BYTES_MIN: usize = 3;
/// Runs of applications that may still go on.
const RUNS_MAX: usize = 512;
/// Objects whose writers are remembered.
const WRITES_MAX: usize = 4096;
/// Objects of an invocation's last run that a successor is expected to read.
const OUTPUTS_MAX: usize = 8;
/// At so many runs all counts are halved: what is new counts more.
const HALVED_AT: u32 = 64;
/// A key is expected after so many runs that read it.
const HITS_MIN: u32 = 2;
/// Objects that are expected at most.
const EXPECTED_MAX: usize = 32;

/// An object that will probably be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedObject {
    /// Its bucket.
    pub bucket: BucketName,
    /// Its key.
    pub key: ObjectKey,
    /// How large those of its kind were last.
    pub bytes: u64,
}

impl ExpectedObject {
    /// The object of `namespace` that it is.
    #[must_use]
    pub fn object(&self, namespace: &Namespace) -> ObjectId {
        ObjectId { namespace: namespace.clone(), bucket: self.bucket.clone(), key: self.key.clone() }
    }
}

/// How the key of an object comes about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Kind {
    /// It is always this one.
    Same(ObjectKey),
    /// The name that stands at this place of the input, with this before and behind it.
    Made { place: String, before: String, behind: String },
}

/// A kind of key, and how many runs read one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Pattern {
    bucket: BucketName,
    kind: Kind,
    hits: u32,
    bytes: u64,
}

impl Pattern {
    fn key(&self, names: &Names) -> Option<ObjectKey> {
        match &self.kind {
            Kind::Same(key) => Some(key.clone()),
            Kind::Made { place, before, behind } => {
                let (_, name) = names.0.iter().find(|(at, _)| at == place)?;
                ObjectKey::new(&format!("{before}{name}{behind}")).ok()
            }
        }
    }
}

/// The names in an input, by their places: words, keys of objects, and of those what stands between the last `/` and the
/// last `.`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<(String, String)>);

impl Names {
    /// Those of an input.
    #[must_use]
    pub fn of(walk: &PayloadWalk) -> Self {
        let keys = walk.objects.iter().map(|object| (object.path.to_string(), object.key.as_str()));
        let long = walk.long_words.iter().map(|(name, word)| (name.to_string(), &**word));
        let is_long = |name: &str| walk.long_words.iter().any(|(long, _)| **long == *name);
        let words = walk.arguments.iter().filter_map(|(name, value)| match value {
            FeatureValue::Word(word) if !is_long(name.as_str()) => Some((name.to_string(), word.as_str())),
            _ => None,
        });
        let mut names = Vec::new();
        for (place, text) in keys.chain(long).chain(words) {
            let file = text.rsplit_once('/').map_or(text, |(_, file)| file);
            let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
            if stem != text {
                names.push((format!("{place}#stem"), stem.to_owned()));
            }
            names.push((place, text.to_owned()));
        }
        names.retain(|(_, name)| name.len() >= NAME_BYTES_MIN);
        names.truncate(NAMES_MAX);
        Self(names)
    }

    /// The longest of them that is part of `key`.
    fn in_key(&self, key: &str) -> Option<Kind> {
        let found = self.0.iter().filter(|(_, name)| key.contains(name.as_str()));
        let (place, name) = found.max_by_key(|(_, name)| name.len())?;
        let (before, behind) = key.split_once(name.as_str())?;
        Some(Kind::Made { place: place.clone(), before: before.to_owned(), behind: behind.to_owned() })
    }
}

/// What runs have read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Reads {
    runs: u32,
    patterns: Vec<Pattern>,
}

impl Reads {
    fn begin(&mut self) {
        self.runs += 1;
        if self.runs >= HALVED_AT {
            self.runs /= 2;
            self.patterns.iter_mut().for_each(|pattern| pattern.hits /= 2);
            self.patterns.retain(|pattern| pattern.hits > 0);
        }
    }

    /// The run that began last has read this, for the first time.
    fn saw(&mut self, names: &Names, read: &TouchedObject) {
        let mut known = false;
        let is_it = |pattern: &Pattern| pattern.bucket == read.bucket && pattern.key(names).as_ref() == Some(&read.key);
        for pattern in self.patterns.iter_mut().filter(|pattern| is_it(pattern)) {
            (pattern.hits, pattern.bytes) = (pattern.hits.saturating_add(1), read.bytes);
            known = true;
        }
        if known {
            return;
        }
        let made = names.in_key(read.key.as_str());
        for kind in [Some(Kind::Same(read.key.clone())), made].into_iter().flatten() {
            if self.patterns.len() >= PATTERNS_MAX {
                // The first of those that were read least often: it has been here longest.
                let least = self.patterns.iter().map(|pattern| pattern.hits).min();
                if let Some(at) = self.patterns.iter().position(|pattern| Some(pattern.hits) == least) {
                    self.patterns.remove(at);
                }
            }
            self.patterns.push(Pattern { bucket: read.bucket.clone(), kind, hits: 1, bytes: read.bytes });
        }
    }

    /// What a run with these names will probably read: what at least half of the runs have.
    fn expected(&self, names: &Names) -> Vec<ExpectedObject> {
        let mut expected: Vec<ExpectedObject> = Vec::new();
        for pattern in self.patterns.iter().filter(|one| one.hits >= HITS_MIN && one.hits * 2 >= self.runs) {
            let Some(key) = pattern.key(names) else { continue };
            let is_it = |known: &ExpectedObject| known.bucket == pattern.bucket && known.key == key;
            if expected.len() < EXPECTED_MAX && !expected.iter().any(is_it) {
                expected.push(ExpectedObject { bucket: pattern.bucket.clone(), key, bytes: pattern.bytes });
            }
        }
        expected
    }
}

/// What is known of a function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct FunctionReads {
    /// What it reads itself.
    own: Reads,
    /// What those read that follow from it, where it is the first; but for what was written in the same run.
    after: Reads,
    /// Whose outputs it has read, and in how many runs; of those halved as runs are.
    predecessors: BTreeMap<FunctionName, u32>,
    /// Who has read its outputs.
    successors: BTreeMap<FunctionName, u32>,
    /// What its last run wrote.
    #[serde(skip)]
    outputs: Vec<ExpectedObject>,
    #[serde(skip)]
    used: u64,
    /// It is not written since it changed.
    #[serde(skip)]
    changed: bool,
}

/// What is kept of a function.
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
    /// Somebody has followed.
    followed: bool,
    /// What those who followed have read: each counts once.
    read: Vec<NamePrint>,
}

/// What is known of the applications of a namespace.
#[derive(Clone, Debug, Default)]
pub struct ApplicationObjects {
    functions: HashMap<FunctionName, FunctionReads>,
    /// Counts what is asked and told, for who was used longest ago.
    clock: u64,
    runs: BTreeMap<u64, Run>,
    next_run: u64,
    /// Who wrote an object last, in which run.
    writers: HashMap<NamePrint, (u64, FunctionName)>,
    written: VecDeque<NamePrint>,
}

/// What an invocation has done.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRun<'a> {
    /// Its tenant.
    pub namespace: &'a Namespace,
    /// Its function.
    pub function: &'a FunctionName,
    /// The names in its input.
    pub names: &'a Names,
    /// The objects that its input names.
    pub named: &'a [NamePrint],
    /// What it touched.
    pub touched: &'a [TouchedObject],
}

impl ApplicationObjects {
    /// An invocation has ended.
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

    /// What an invocation of `function` will probably read itself.
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

    /// What those will probably read that follow from an invocation of `function`, if it is the first of an application.
    #[must_use]
    pub fn reads_after(&self, function: &FunctionName, names: &Names) -> Vec<ExpectedObject> {
        self.functions.get(function).map(|known| known.after.expected(names)).unwrap_or_default()
    }

    /// The function that has most often read what `function` wrote.
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

    /// What has changed of functions since this was asked last, to be kept.
    pub fn take_changed(&mut self) -> Vec<(FunctionName, Vec<u8>)> {
        let changed = self.functions.iter_mut().filter_map(|(function, known)| {
            if !std::mem::take(&mut known.changed) {
                return None;
            }
            let document = Document { format: FORMAT, known: known.clone() };
            // What is written has no form of its own that could fail.
            Some((function.clone(), serde_json::to_vec(&document).ok()?))
        });
        changed.collect()
    }

    /// Takes in what was kept of a function, unless something is known of it since.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn restore(&mut self, function: &FunctionName, kept: &[u8]) -> Result<(), String> {
        let Document { format, known } = serde_json::from_slice(kept).map_err(|error| error.to_string())?;
        let is_sound = |reads: &Reads| reads.patterns.len() <= PATTERNS_MAX;
        if format != FORMAT {
            return Err(format!("it has format {format}, this build reads {FORMAT}"));
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

    /// `function` has read what `writer` wrote.
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
    use super::*;

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
        let object = |named: &crate::named_objects::NamedObject| ObjectId {
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

    /// A run of an application: `cut` makes parts of what its input names; `tell` reads a model, the parts and a mask.
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
        // Its input names nothing: what its predecessor wrote last, and what recurs.
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
