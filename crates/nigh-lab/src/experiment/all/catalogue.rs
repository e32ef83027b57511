//! Every experiment and bench whose result is stored: its folder, its command, and its short form (`catalogue.tsv`), in the order
//! in which they run. Measurements of this machine come before simulations, which heat it.

use std::path::Path;
use std::sync::LazyLock;

#[derive(Debug)]
pub(super) struct Experiment {
    /// The folder of its result.
    pub(super) name: &'static str,
    /// Arguments of `nigh`.
    command: &'static str,
    /// Arguments that are added in the short form.
    quick: &'static str,
    /// The page in its folder, if it makes one.
    pub(super) page: Option<&'static str>,
    pub(super) about: &'static str,
}

pub(super) static EXPERIMENTS: LazyLock<Vec<Experiment>> = LazyLock::new(|| {
    let lines = include_str!("catalogue.tsv").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(read).collect()
});

/// The experiment of a line; none where columns are missing, which a test notices.
fn read(line: &'static str) -> Option<Experiment> {
    let mut columns = line.split('\t');
    let [name, command, quick, page, about] = std::array::from_fn(|_| columns.next());
    let page = page?;
    Some(Experiment {
        name: name?,
        command: command?,
        quick: quick?,
        page: (!page.is_empty()).then_some(page),
        about: about?,
    })
}

impl Experiment {
    /// The arguments of `nigh` that run it for the folder `out`.
    pub(super) fn arguments(&self, out: &Path, quick: bool) -> Vec<String> {
        let added = if quick { self.quick } else { "" };
        let words = self.command.split(' ').chain(added.split_whitespace()).chain(["--json"]);
        let mut arguments: Vec<String> = words.map(str::to_owned).collect();
        if let Some(page) = self.page {
            arguments.extend(["--html".to_owned(), out.join(self.name).join(page).display().to_string()]);
        }
        arguments
    }

    /// The arguments as a command line.
    pub(super) fn command_line(&self, out: &Path, quick: bool) -> String {
        format!("nigh {}", self.arguments(out, quick).join(" "))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_has_a_folder_of_its_own_and_prints_json() {
        let names: BTreeSet<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        assert_eq!(names.len(), EXPERIMENTS.len());
        let lines = include_str!("catalogue.tsv").lines().count();
        assert_eq!(EXPERIMENTS.len(), lines - 1, "each line but the first is an experiment");
        for experiment in EXPERIMENTS.iter() {
            let line = experiment.command_line(Path::new("out"), false);
            assert!(line.contains(" --json"), "{line}");
            assert_eq!(line.contains("--html out/"), experiment.page.is_some(), "{line}");
        }
    }
}
