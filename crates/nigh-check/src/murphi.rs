//! A second encoding of the contract, in Murphi, and Apta's published rules beside it: the models to run, and their
//! results.
//!
//! The models are in `murphi/`, one file each. Constants in the file set the size of the world and the rule that is
//! left out. A world here is a list of constants. Worlds of one size share one program, because rumur and the compiler
//! take longer than most searches; the other choices are made when the program starts. This crate does not run rumur.
//! It makes the text for rumur and reads the verifier's report (the XML of rumur 2022.08.20).

mod models;
mod program;
mod report;

use std::fmt;

pub use models::murphi_models;
pub use program::{MurphiProgram, murphi_programs, with_choices};
pub use report::{BrokenProperty, MurphiReport};

const NIGH: &str = include_str!("../murphi/nigh.m");
const APTA: &str = include_str!("../murphi/apta.m");

/// The file of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MurphiSource {
    /// Nigh's contract.
    Nigh,
    /// Apta's published rules.
    Apta,
}

impl MurphiSource {
    fn text(self) -> &'static str {
        match self {
            Self::Nigh => NIGH,
            Self::Apta => APTA,
        }
    }
}

/// The expected result of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedVerdict {
    /// Every property holds in every state.
    Holds,
    /// The property with this name (the text before the colon) fails.
    Breaks(&'static str),
}

impl fmt::Display for ExpectedVerdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Holds => "holds",
            Self::Breaks(property) => property,
        })
    }
}

/// One world of one file.
#[derive(Clone, Debug)]
pub struct MurphiModel {
    /// The file and the world; if a rule is left out, the rule.
    pub name: &'static str,
    /// What the world tests, or what goes wrong without the rule.
    pub about: &'static str,
    /// The file of the model.
    pub source: MurphiSource,
    /// The constants for the size of the world that differ from those in the file.
    pub size: &'static [(&'static str, u32)],
    /// The other constants that differ.
    pub constants: &'static [(&'static str, u32)],
    /// The rule that is left out; none if all hold.
    pub omitted: Option<&'static str>,
    /// The expected result.
    pub expected: ExpectedVerdict,
    /// True if the search takes minutes.
    pub long: bool,
}

impl MurphiModel {
    /// True if the result is the expected one.
    #[must_use]
    pub fn is_as_expected(&self, found: &MurphiReport) -> bool {
        match self.expected {
            ExpectedVerdict::Holds => found.complete && found.broken.is_none(),
            ExpectedVerdict::Breaks(property) => {
                found.broken.as_ref().is_some_and(|broken| broken.property == property)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_must_have_been_searched_to_its_end() {
        let model = &murphi_models()[0];
        assert_eq!(model.expected, ExpectedVerdict::Holds);
        assert!(model.is_as_expected(&MurphiReport { states: 7, complete: true, broken: None }));
        assert!(!model.is_as_expected(&MurphiReport { states: 7, complete: false, broken: None }));
        let broken = BrokenProperty { property: "P1".to_owned(), steps: Vec::new() };
        assert!(!model.is_as_expected(&MurphiReport { states: 7, complete: true, broken: Some(broken) }));
    }

    /// Rules whose absence shows only in larger worlds than are searched.
    const UNSEEN: [&str; 5] =
        ["EPOCH_IN_TOKENS", "NEW_INCARNATION", "NEW_HOME_SUMMARY", "PUSH_FORWARD", "STORE_TELLS_EPOCH"];

    #[test]
    fn every_rule_of_the_file_is_left_out_in_one_model_but_those_that_need_larger_worlds() {
        let rules = NIGH.split("2 the rules").nth(2).unwrap().split("  OMIT: ").next().unwrap();
        let names = rules.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(": ").map(|(name, _)| name));
        let names = names.filter(|name| name.bytes().all(|letter| letter.is_ascii_uppercase() || letter == b'_'));
        let models = murphi_models();
        let mut seen = 0;
        for name in names {
            let times = models.iter().filter(|model| model.omitted == Some(name)).count();
            assert_eq!(times, usize::from(!UNSEEN.contains(&name)), "{name}");
            seen += 1;
        }
        assert_eq!(seen, 46);
    }

    #[test]
    fn no_two_models_have_one_name() {
        let mut names: Vec<&str> = murphi_models().iter().map(|model| model.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
