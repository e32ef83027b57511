//! WEKA's learners on the same splits: a Java program reads files of rows and of splits.
//!
//! `make peers` fetches WEKA by Maven into the cache of peers. If WEKA or Java is missing, the report says so.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use nigh_learn::{FeatureRow, FeatureValue, Interval};
use nigh_terms::ByteSize;
use serde::Serialize;

use super::data_set::{FunctionRows, Split};
use super::score::Outcome;
use crate::LabError;
use crate::instrument::error::Tried;
use crate::instrument::peer::installed::cache_folder;

const PROGRAM: &str = include_str!("../../../peers/weka/Splits.java");
const POM: &str = include_str!("../../../peers/weka/pom.xml");

/// An installed WEKA.
#[derive(Debug)]
pub(super) struct Weka {
    jars: PathBuf,
    pub(super) version: String,
}

/// One split for WEKA.
#[derive(Debug)]
pub(super) struct WekaRequest<'s> {
    pub(super) id: String,
    pub(super) split: &'s Split,
    pub(super) widths: &'s [Interval],
    pub(super) algorithms: &'static [&'static str],
}

/// How fast a learner of WEKA was, on one function.
#[derive(Debug, Clone, Serialize)]
pub(super) struct WekaTimes {
    pub(super) function: String,
    pub(super) algorithm: String,
    pub(super) predict_p50_ns: f64,
    pub(super) predict_p99_ns: f64,
    pub(super) fit_ms: f64,
}

/// WEKA's answers: outcomes by function, split, width and algorithm; and times.
#[derive(Debug, Default)]
pub(super) struct WekaResults {
    pub(super) outcomes: BTreeMap<(String, String, u64, String), Vec<Outcome>>,
    pub(super) timed: Vec<WekaTimes>,
}

impl Weka {
    /// Finds it, or says why it is left out.
    pub(super) fn find() -> Result<Self, String> {
        let after = POM.split("<artifactId>weka-stable</artifactId>").nth(1).unwrap_or_default();
        let version = after.split("<version>").nth(1).and_then(|text| text.split('<').next()).unwrap_or_default();
        let jars = cache_folder().join(format!("weka-{version}"));
        if !jars.is_dir() {
            return Err(format!("WEKA is left out: {} is missing; run `make peers`", jars.display()));
        }
        match Command::new("java").arg("-version").output() {
            Ok(output) if output.status.success() => Ok(Self { jars, version: version.to_owned() }),
            _ => Err("WEKA is left out: there is no java here".to_owned()),
        }
    }

    /// Lets it predict all splits of all functions.
    pub(super) fn ask(
        &self,
        functions: &[FunctionRows],
        asked: &[Vec<WekaRequest<'_>>],
    ) -> Result<WekaResults, LabError> {
        let folder = tempfile::tempdir().at("a temporary folder")?;
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).at(path)
        };
        write("Splits.java", PROGRAM)?;
        for (function, asked) in functions.iter().zip(asked) {
            write(&format!("{}.arff", function.name), &arff(function))?;
            write(&format!("{}.splits", function.name), &asked.iter().map(line).collect::<String>())?;
        }
        let output = Command::new("java")
            .arg("-cp")
            .arg(format!("{}/*", self.jars.display()))
            .arg(folder.path().join("Splits.java"))
            .arg(folder.path())
            .output()
            .at("java")?;
        if !output.status.success() {
            let told = String::from_utf8_lossy(&output.stderr);
            // The exception without its stack.
            let why = told.lines().find(|line| line.starts_with("Exception") || line.contains("error:"));
            let last = why.or_else(|| told.lines().last()).unwrap_or_default();
            return Err(LabError::Request { what: format!("WEKA {}", self.version), reason: last.to_owned() });
        }
        read(&String::from_utf8_lossy(&output.stdout), functions, asked)
    }
}

fn line(asked: &WekaRequest<'_>) -> String {
    let list = |rows: &[usize]| rows.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let widths: Vec<String> = asked.widths.iter().map(|width| width.width().bytes().to_string()).collect();
    let WekaRequest { id, split, algorithms, .. } = asked;
    format!("{id} {} {} {} {}\n", widths.join(","), algorithms.join(","), list(&split.train), list(&split.test))
}

/// The features of a function and last its peak, as WEKA reads them. Words are known from all rows, as in the paper's study.
fn arff(function: &FunctionRows) -> String {
    let mut words: BTreeMap<&str, Option<Vec<&str>>> = BTreeMap::new();
    for row in &function.rows {
        for (name, value) in row.features.iter() {
            let column = words.entry(name.as_str()).or_default();
            if let FeatureValue::Word(word) = value {
                let known = column.get_or_insert_default();
                if let Err(at) = known.binary_search(&&**word) {
                    known.insert(at, word);
                }
            }
        }
    }
    let mut text = format!("@relation {}\n", function.name);
    for (name, words) in &words {
        let kind = match words {
            None => "numeric".to_owned(),
            Some(words) => format!("{{{}}}", words.iter().map(|word| in_quotes(word)).collect::<Vec<_>>().join(",")),
        };
        let _ = writeln!(text, "@attribute {name} {kind}");
    }
    text += "@attribute peak numeric\n@data\n";
    let field = |row: &FeatureRow, name: &str, words: &Option<Vec<&str>>| match (row.get(name), words) {
        (Some(FeatureValue::Number(number)), None) => number.to_string(),
        (Some(FeatureValue::Word(word)), _) => in_quotes(word),
        _ => "?".to_owned(),
    };
    for row in &function.rows {
        for (name, words) in &words {
            text += &field(&row.features, name, words);
            text.push(',');
        }
        let _ = writeln!(text, "{}", row.peak.bytes());
    }
    text
}

fn in_quotes(word: &str) -> String {
    format!("'{}'", word.replace('\\', "\\\\").replace('\'', "\\'"))
}

fn read(text: &str, functions: &[FunctionRows], asked: &[Vec<WekaRequest<'_>>]) -> Result<WekaResults, LabError> {
    let mut said = WekaResults::default();
    for line in text.lines() {
        let odd = || LabError::Request { what: "WEKA".to_owned(), reason: format!("an answer that is none: {line}") };
        let mut words = line.split(' ');
        let kind = words.next().unwrap_or_default();
        let mut word = || words.next().ok_or_else(odd);
        match kind {
            "p" => {
                let (name, id, width, algorithm, intervals) = (word()?, word()?, word()?, word()?, word()?);
                let width: u64 = width.parse().map_err(|_| odd())?;
                let interval = Interval::new(ByteSize(width)).map_err(|_| odd())?;
                let at = functions.iter().position(|function| function.name == name).ok_or_else(odd)?;
                let split = asked[at].iter().find(|asked| asked.id == id).ok_or_else(odd)?.split;
                let granted = |index: &str| Some(interval.upper_end(index.parse().ok()?));
                let granted: Option<Vec<ByteSize>> = intervals.split(',').map(granted).collect();
                let granted = granted.filter(|granted| granted.len() == split.test.len()).ok_or_else(odd)?;
                let needed = split.test.iter().map(|row| functions[at].rows[*row].peak);
                let key = (name.to_owned(), id.to_owned(), width, algorithm.to_owned());
                said.outcomes.insert(key, granted.into_iter().zip(needed).collect());
            }
            "t" => {
                let (function, algorithm) = (word()?.to_owned(), word()?.to_owned());
                let mut number = || word()?.parse::<f64>().map_err(|_| odd());
                let (predict_p50_ns, predict_p99_ns, fit_ms) = (number()?, number()?, number()?);
                said.timed.push(WekaTimes { function, algorithm, predict_p50_ns, predict_p99_ns, fit_ms });
            }
            // WEKA's libraries print other lines.
            _ => {}
        }
    }
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::learn::data_set;
    use crate::skipped::skip;

    fn made_up() -> Vec<FunctionRows> {
        let folder = tempfile::tempdir().unwrap();
        data_set::tests::made_up(folder.path());
        data_set::read(folder.path()).unwrap()
    }

    fn asked<'s>(splits: &'s [Split], widths: &'s [Interval]) -> Vec<WekaRequest<'s>> {
        let ask = |(at, split)| WekaRequest { id: format!("f{at}"), split, widths, algorithms: &["J48"] };
        splits.iter().enumerate().map(ask).collect()
    }

    #[test]
    fn rows_are_written_as_weka_reads_them() {
        let functions = made_up();
        let text = arff(&functions[0]);
        assert!(text.contains("@attribute arg_mode {'fast','good'}"), "{}", &text[..300]);
        assert!(text.contains("@attribute peak numeric"));
        assert_eq!(text.lines().count(), 5 + 2 + 160);
        assert_eq!(in_quotes("it's"), "'it\\'s'");
    }

    #[test]
    fn an_answer_that_is_none_is_told() {
        let functions = made_up();
        let splits = functions[0].folds(2);
        let all = vec![asked(&splits, &[Interval::OFC]), vec![]];
        let refused = read("p pixels f0 16000000 J48 1,2", &functions, &all).unwrap_err().to_string();
        assert!(refused.contains("f0"), "{refused}");
        assert!(read("t pixels J48 1 2", &functions, &all).is_err());
        let said = read("hello\nt pixels J48 10 20 1.5", &functions, &all).unwrap();
        assert_eq!(said.timed[0].predict_p99_ns, 20.0);
    }

    #[test]
    fn our_tree_of_intervals_is_as_good_as_wekas() {
        let weka = match Weka::find() {
            Ok(weka) => weka,
            Err(reason) => {
                skip("our_tree_of_intervals_is_as_good_as_wekas", reason);
                return;
            }
        };
        let functions = made_up();
        let splits: Vec<Vec<Split>> = functions.iter().map(|function| function.folds(5)).collect();
        let widths = [Interval::OFC];
        let all: Vec<_> = splits.iter().map(|splits| asked(splits, &widths)).collect();
        let said = weka.ask(&functions, &all).unwrap();
        let mut ours = super::super::contenders::GrantOutcomes::new();
        for (function, splits) in functions.iter().zip(&splits) {
            for split in splits {
                super::super::contenders::judge(function, split, &widths, &mut ours);
            }
        }
        let theirs: Vec<Outcome> = said.outcomes.into_values().flatten().collect();
        let ours = &ours[&("j48".to_owned(), widths[0].width().bytes())];
        let [ours, theirs] =
            [ours.as_slice(), &theirs].map(|outcomes| super::super::score::Score::of(outcomes, widths[0]));
        assert!((ours.exact - theirs.exact).abs() <= 3.0, "{ours:?} {theirs:?}");
        assert!((ours.exact_or_over - theirs.exact_or_over).abs() <= 3.0, "{ours:?} {theirs:?}");
    }
}
