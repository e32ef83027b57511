//! The worlds in which the two files are run, and what each must show.
//!
//! A rule is left out in the smallest world that was found to miss it.

use super::{Expected, MurphiModel, MurphiSource};

type Constants = &'static [(&'static str, u32)];

fn world(name: &'static str, about: &'static str, constants: Constants) -> MurphiModel {
    let (source, expected) = (MurphiSource::Nigh, Expected::Holds);
    MurphiModel { name, about, source, constants, omitted: None, expected, long: false }
}

fn long(name: &'static str, about: &'static str, constants: Constants) -> MurphiModel {
    MurphiModel { long: true, ..world(name, about, constants) }
}

fn without(rule: &'static str, breaks: &'static str, about: &'static str, constants: Constants) -> MurphiModel {
    MurphiModel { omitted: Some(rule), expected: Expected::Breaks(breaks), ..world(rule, about, constants) }
}

/// A rule left out, whose want takes long to find.
fn long_without(rule: &'static str, breaks: &'static str, about: &'static str, constants: Constants) -> MurphiModel {
    MurphiModel { long: true, ..without(rule, breaks, about, constants) }
}

fn apta(name: &'static str, expected: Expected, about: &'static str, constants: Constants) -> MurphiModel {
    MurphiModel { source: MurphiSource::Apta, expected, ..world(name, about, constants) }
}

/// All: the worlds of the contract, each of its rules left out, and Apta's rules.
#[must_use]
pub fn murphi_models() -> Vec<MurphiModel> {
    [worlds(), omissions_of_nodes(), omissions_of_invocations(), omissions_of_homes(), published()].concat()
}

fn worlds() -> Vec<MurphiModel> {
    vec![]
}
