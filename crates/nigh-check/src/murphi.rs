//! A second encoding of the contract, in Murphi, and Apta's published rules beside it: what is to be run, and what came
//! of it.
//!
//! The models are in `murphi/`; each is one file whose constants say how large its world is and which rule is left
//! out. Here a world is a list of constants. Who runs rumur is not this crate's matter: it gives the text to be
//! checked, and reads the verifier's report (its XML, of rumur 2022.08.20).

mod models;

use std::fmt;

pub use models::murphi_models;

const NIGH: &str = include_str!("../murphi/nigh.m");
const APTA: &str = include_str!("../murphi/apta.m");

/// Which of the two files.
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

/// What a model must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Every property, in every state.
    Holds,
    /// That this property fails: its name, which is what stands before the colon.
    Breaks(&'static str),
}

impl fmt::Display for Expected {
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
    /// Its file and world; for a rule left out, the rule.
    pub name: &'static str,
    /// What it is about, or what goes wrong.
    pub about: &'static str,
    /// The file.
    pub source: MurphiSource,
    /// The constants that differ from those in the file.
    pub constants: &'static [(&'static str, u32)],
    /// The rule that is left out.
    pub omitted: Option<&'static str>,
    /// What must come of it.
    pub expected: Expected,
    /// Whether it takes minutes.
    pub long: bool,
}

impl MurphiModel {
    /// The file with this world's constants.
    ///
    /// # Panics
    /// If the file has no such constant: the catalogue and the files are one program, and a test reads them all.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.source.text().to_owned();
        for (name, value) in self.constants {
            text = with_constant(&text, name, &value.to_string());
        }
        match self.omitted {
            Some(rule) => with_constant(&text, "OMIT", rule),
            None => text,
        }
    }

    /// Whether what was found is what must be found.
    #[must_use]
    pub fn is_as_expected(&self, found: &MurphiReport) -> bool {
        match self.expected {
            Expected::Holds => found.complete && found.broken.is_none(),
            Expected::Breaks(property) => found.broken.as_ref().is_some_and(|broken| broken.property == property),
        }
    }
}

fn with_constant(text: &str, name: &str, value: &str) -> String {
    let declares = |line: &str| line.strip_prefix("  ").and_then(|line| line.strip_prefix(name)).is_some_and(|line| line.starts_with(": "));
    let mut found = 0;
    let lines = text.lines().map(|line| match line.split_once(';') {
        Some((_, rest)) if declares(line) => {
            found += 1;
            format!("  {name}: {value};{rest}\n")
        }
        _ => format!("{line}\n"),
    });
    let changed = lines.collect();
    assert_eq!(found, 1, "constants are declared once, each in a line of its own: {name}");
    changed
}

/// The property that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenProperty {
    /// What stands before the colon of its name; the verifier's own words for an error that is no property's.
    pub property: String,
    /// The rules that were taken on the way to it, in order. The shortest way, if one thread went it.
    pub steps: Vec<String>,
}

/// What a verifier found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MurphiReport {
    /// Different states; of a search that was cut, those of its last word.
    pub states: u64,
    /// Whether the search came to its end.
    pub complete: bool,
    /// The first property that failed.
    pub broken: Option<BrokenProperty>,
}

impl MurphiReport {
    /// Reads what a verifier printed, whole or cut off.
    #[must_use]
    pub fn read(xml: &str) -> Self {
        let count = |tag: &str| {
            let last = xml.rsplit_once(tag)?.1;
            attribute(last, "states")?.parse().ok()
        };
        let summary = count("<summary ");
        Self {
            states: summary.or_else(|| count("<progress ")).unwrap_or_default(),
            complete: summary.is_some(),
            broken: xml.split_once("<error").and_then(|(_, error)| broken(error)),
        }
    }
}

/// The value of the first attribute of this name.
fn attribute<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split_once(&format!("{name}=\""))?.1.split('"').next()
}

fn broken(error: &str) -> Option<BrokenProperty> {
    let error = error.split("</error>").next()?;
    let message = error.split_once("<message>")?.1.split_once("</message>")?.0;
    let said = message.split("&quot;").nth(1).unwrap_or(message);
    let property = said.split_once(": ").map_or(said, |(name, _)| name).to_owned();
    let taken = error.split("<transition>Rule ").skip(1).filter_map(|text| text.split("</transition>").next());
    Some(BrokenProperty { property, steps: taken.map(step).collect() })
}

/// `&quot;read&quot;<parameter name="i">1</parameter>` as `read, i: 1`.
fn step(transition: &str) -> String {
    let rule = transition.split("&quot;").nth(1).unwrap_or(transition);
    let parameters = transition.split("<parameter ").skip(1).filter_map(|text| {
        let value = text.split_once('>')?.1.split('<').next()?;
        Some(format!(", {}: {value}", attribute(text, "name")?))
    });
    parameters.fold(rule.replace("&apos;", "'"), |told, parameter| told + &parameter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKEN: &str = r#"<?xml version="1.0"?><rumur_run><information state_size_bits="18"/>
<progress states="10000" duration_seconds="1"/>
<error includes_trace="true"><message>invariant &quot;P1: what is shown&quot; failed</message>
<transition>Startstate 1</transition><state/>
<transition>Rule &quot;dispatch&quot;<parameter name="n">1</parameter></transition><state/>
<transition>Rule &quot;a home hears&quot;<parameter name="n">2</parameter><parameter name="x">1</parameter></transition>
</error><summary states="85" rules_fired="172" errors="1" duration_seconds="0"/></rumur_run>"#;

    #[test]
    fn a_report_tells_the_property_and_the_way_to_it() {
        let report = MurphiReport::read(BROKEN);
        assert_eq!((report.states, report.complete), (85, true));
        let broken = report.broken.unwrap();
        assert_eq!(broken.property, "P1");
        assert_eq!(broken.steps, ["dispatch, n: 1", "a home hears, n: 2, x: 1"]);
    }

    #[test]
    fn a_search_that_was_cut_is_not_complete() {
        let cut = BROKEN.split_once("<error").unwrap().0;
        assert_eq!(MurphiReport::read(cut), MurphiReport { states: 10_000, complete: false, broken: None });
        assert_eq!(MurphiReport::read(""), MurphiReport::default());
    }

    #[test]
    fn an_error_that_is_no_property_s_is_told_in_its_own_words() {
        let xml = "<error><message>read of undefined value</message></error><summary states=\"3\"/>";
        let broken = MurphiReport::read(xml).broken.unwrap();
        assert_eq!((broken.property.as_str(), broken.steps.len()), ("read of undefined value", 0));
    }

    #[test]
    fn what_holds_must_have_been_searched_to_its_end() {
        let model = &murphi_models()[0];
        assert_eq!(model.expected, Expected::Holds);
        assert!(model.is_as_expected(&MurphiReport { states: 7, complete: true, broken: None }));
        assert!(!model.is_as_expected(&MurphiReport { states: 7, complete: false, broken: None }));
        assert!(!model.is_as_expected(&MurphiReport::read(BROKEN)));
    }

    #[test]
    fn a_constant_is_set_where_it_is_declared_and_nowhere_else() {
        let text = with_constant("const\n  STEPS: 2; -- steps: 2\n  STEPS_MAX: 3;\n", "STEPS", "5");
        assert_eq!(text, "const\n  STEPS: 5; -- steps: 2\n  STEPS_MAX: 3;\n");
    }

    #[test]
    fn every_model_has_its_constants_and_its_rule_in_its_file() {
        for model in murphi_models() {
            let text = model.text();
            if let Some(rule) = model.omitted {
                assert!(model.source.text().contains(&format!("\n  {rule}: ")), "{}", model.name);
                assert!(text.contains(&format!("\n  OMIT: {rule};")), "{}", model.name);
            }
        }
    }

    #[test]
    fn every_rule_of_the_file_is_left_out_in_one_model() {
        let rules = NIGH.split("2 the rules").nth(2).unwrap().split("  OMIT: ").next().unwrap();
        let names = rules.lines().filter_map(|line| line.strip_prefix("  ")?.split_once(": ").map(|(name, _)| name));
        let omitted: Vec<&str> = murphi_models().iter().filter_map(|model| model.omitted).collect();
        for name in names.filter(|name| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')) {
            assert_eq!(omitted.iter().filter(|rule| **rule == name).count(), 1, "{name}");
        }
        assert!(omitted.len() > 40);
    }
}
