//! One program for all models that differ only in choices at the start.

use super::{MurphiModel, MurphiSource};

/// Constants of `nigh.m` that bound events, not sizes; the start state sets them. Each is a field of `given` or `left`,
/// with the same name in lower case.
const CHOSEN: [&str; 19] = [
    "STEPS",
    "WRITES",
    "READ_ONLY",
    "WARM",
    "PUSHES",
    "FINISH",
    "REPLACED",
    "CRASHES",
    "SUSPICIONS",
    "SCHEDULER_CRASHES",
    "KILLS",
    "LOSSES",
    "DUPLICATES",
    "EVICTIONS",
    "FORGETS",
    "TRIMS",
    "CALLS",
    "OUTSIDE_WRITES",
    "OUTSIDE_READS",
];
/// The constant that names the rule that is left out.
const OMITTED: &str = "omitted";

/// Where the verifier's program sets its start state.
const START: &str = "static bool startstate0(";

/// A function for the verifier's program: reads a number from the environment, or takes the file's own.
const CHOICE: &str = "static value_t chosen(const char *name, value_t usual) {
  const char *text = getenv(name);
  return text != NULL ? (value_t)strtol(text, NULL, 10) : usual;
}

";

/// A program, and the models that it can be run for.
#[derive(Clone, Debug)]
pub struct MurphiProgram {
    /// The text of the file, with the constants of their size.
    pub text: String,
    /// The models.
    pub models: Vec<MurphiModel>,
}

fn is_chosen(model: &MurphiModel, constant: &str) -> bool {
    model.source == MurphiSource::Nigh && CHOSEN.contains(&constant)
}

/// The programs for these models, as few as possible.
#[must_use]
pub fn murphi_programs(models: &[MurphiModel]) -> Vec<MurphiProgram> {
    let mut programs: Vec<Vec<MurphiModel>> = Vec::new();
    for model in models {
        match programs.iter_mut().find(|others| others[0].is_of_the_size_of(model)) {
            Some(others) => others.push(model.clone()),
            None => programs.push(vec![model.clone()]),
        }
    }
    programs.into_iter().map(|models| MurphiProgram { text: text_for(&models), models }).collect()
}

/// The text of the file with the constants of these models. A constant that is chosen at the start gets its largest
/// value.
fn text_for(models: &[MurphiModel]) -> String {
    let mut text = models[0].source.text().to_owned();
    let mut largest: Vec<(&str, u32)> = Vec::new();
    for (name, value) in models.iter().flat_map(MurphiModel::all_constants) {
        match largest.iter_mut().find(|(one, _)| *one == name) {
            Some((_, most)) => *most = value.max(*most),
            None => largest.push((name, value)),
        }
    }
    for (name, value) in largest {
        // A model without a value uses the file's value.
        let usual = if is_chosen(&models[0], name) { constant(&text, name) } else { None };
        text = with_constant(&text, name, value.max(usual.unwrap_or_default()));
    }
    text
}

impl MurphiModel {
    fn all_constants(&self) -> impl Iterator<Item = (&'static str, u32)> + '_ {
        self.size.iter().chain(self.constants).copied()
    }

    fn is_of_the_size_of(&self, other: &Self) -> bool {
        let size = |model: &Self| {
            let mut size: Vec<(&str, u32)> =
                model.all_constants().filter(|(name, _)| !is_chosen(model, name)).collect();
            size.sort_unstable();
            size
        };
        self.source == other.source && size(self) == size(other)
    }

    /// The environment of the program for its model: names and numbers.
    #[must_use]
    pub fn chosen(&self) -> Vec<(String, String)> {
        let text = self.source.text();
        if self.source != MurphiSource::Nigh {
            return Vec::new();
        }
        let of = |name: &str| {
            let own = self.all_constants().find(|(one, _)| *one == name).map(|(_, value)| value);
            own.or_else(|| constant(text, name)).unwrap_or_default()
        };
        let rule = self.omitted.and_then(|rule| constant(text, rule)).unwrap_or_default();
        let chosen = CHOSEN.iter().map(|name| (name.to_lowercase(), of(name).to_string()));
        chosen.chain([(OMITTED.to_owned(), rule.to_string())]).collect()
    }
}

/// A verifier's C program of `nigh.m` that reads the choices from its environment. None if the program is not as
/// expected, because another version of rumur wrote it.
#[must_use]
pub fn with_choices(program: &str) -> Option<String> {
    let mut found = 0;
    let mut text = String::with_capacity(program.len() + CHOICE.len());
    for line in program.split_inclusive('\n') {
        if line.starts_with(START) {
            text.push_str(CHOICE);
        }
        match choice(line) {
            Some((before, name, value)) => {
                found += 1;
                text.push_str(&format!("{before}chosen(\"{name}\", VALUE_C({value})));\n"));
            }
            None => text.push_str(line),
        }
    }
    (found == CHOSEN.len() + 1 && program.contains(START)).then_some(text)
}

/// Splits a line that sets a field of `given` or `left` to a number: the text before the number, the field, the number.
fn choice(line: &str) -> Option<(&str, &str, &str)> {
    let (_, set) = line.trim_start().strip_prefix("handle_write(")?.split_once('"')?.1.split_once("rule_name, \"")?;
    let name = set.strip_prefix("given.").or_else(|| set.strip_prefix("left."))?.split('"').next()?;
    let (before, value) = line.trim_end().strip_suffix("));")?.rsplit_once("VALUE_C(")?;
    let known = name == OMITTED || CHOSEN.iter().any(|chosen| chosen.to_lowercase() == name);
    (known && value.bytes().all(|digit| digit.is_ascii_digit())).then_some((before, name, value))
}

/// The value of a constant in a file.
fn constant(text: &str, name: &str) -> Option<u32> {
    let line = text.lines().find(|line| declares(line, name))?;
    line.split_once(": ")?.1.split(';').next()?.parse().ok()
}

fn declares(line: &str, name: &str) -> bool {
    line.strip_prefix("  ").and_then(|line| line.strip_prefix(name)).is_some_and(|line| line.starts_with(": "))
}

/// The text of a file with another value of a constant.
///
/// # Panics
/// If the file has no such constant: the catalogue and the files belong together, and a test reads them all.
fn with_constant(text: &str, name: &str, value: u32) -> String {
    let mut found = 0;
    let lines = text.lines().map(|line| match line.split_once(';') {
        Some((_, rest)) if declares(line, name) => {
            found += 1;
            format!("  {name}: {value};{rest}\n")
        }
        _ => format!("{line}\n"),
    });
    let changed = lines.collect();
    assert_eq!(found, 1, "constants are declared once, each in a line of its own: {name}");
    changed
}

#[cfg(test)]
mod tests {
    use super::super::murphi_models;
    use super::*;

    #[test]
    fn a_constant_is_set_where_it_is_declared_and_nowhere_else() {
        let text = with_constant("const\n  STEPS: 2; -- steps: 2\n  STEPS_MAX: 3;\n", "STEPS", 5);
        assert_eq!(text, "const\n  STEPS: 5; -- steps: 2\n  STEPS_MAX: 3;\n");
        assert_eq!((constant(&text, "STEPS"), constant(&text, "steps")), (Some(5), None));
    }

    #[test]
    fn every_model_has_its_constants_and_its_rule_in_its_file() {
        for model in murphi_models() {
            let text = model.source.text();
            for (name, _) in model.all_constants() {
                assert!(constant(text, name).is_some(), "{}: {name}", model.name);
            }
            let rule = model.omitted.map(|rule| constant(text, rule).unwrap());
            assert!(rule.is_none_or(|rule| model.chosen().contains(&(OMITTED.to_owned(), rule.to_string()))));
        }
    }

    #[test]
    fn models_of_one_size_are_one_program_with_the_largest_of_what_is_chosen() {
        let all = murphi_models();
        let programs = murphi_programs(&all);
        assert_eq!(programs.iter().map(|program| program.models.len()).sum::<usize>(), all.len());
        for program in programs.iter().filter(|program| program.models[0].source == MurphiSource::Nigh) {
            for model in &program.models {
                let fits = |(name, value): (&str, u32)| constant(&program.text, name).unwrap() >= value;
                assert!(model.all_constants().all(fits), "{}", model.name);
            }
        }
    }

    #[test]
    fn the_start_state_takes_what_is_chosen_and_no_other_line_is_changed() {
        let line = |name: &str| {
            format!(
                "    handle_write(\"model.m:1.3: \", rule_name, \"{name}\", s, VALUE_C(0), VALUE_C(1), here, VALUE_C(1));\n"
            )
        };
        let fields = CHOSEN.iter().map(|name| line(&format!("left.{}", name.to_lowercase())));
        let body: String = fields.chain([line("given.omitted"), line("calm"), line("node.left")]).collect();
        let program = format!("#include <stdlib.h>\n{START}struct state *s) {{\n{body}}}\n");
        let changed = with_choices(&program).unwrap();
        assert_eq!(changed.matches("here, chosen(\"").count(), 20);
        assert!(changed.contains("here, chosen(\"kills\", VALUE_C(1)));\n") && changed.contains(&line("calm")));
        assert!(changed.find("static value_t chosen").unwrap() < changed.find(START).unwrap());
        assert_eq!(with_choices(&program.replace("left.kills", "left.others[0]")), None);
        assert_eq!(with_choices(""), None);
    }
}
