//! Parses a verifier's report.

/// The property that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenProperty {
    /// The name before the colon, or the verifier's message for an error without a property.
    pub property: String,
    /// The rules that were applied on the path to it, in order. The path is the shortest if one thread searched.
    pub steps: Vec<String>,
}

/// The result of a verifier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MurphiReport {
    /// Number of different states; if the search was cut, of its last report.
    pub states: u64,
    /// True if the search was completed.
    pub complete: bool,
    /// The first property that failed; none if none did.
    pub broken: Option<BrokenProperty>,
}

impl MurphiReport {
    /// Parses a verifier's output, complete or not.
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
}
