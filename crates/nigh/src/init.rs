//! `nigh init`: a folder with a function that can be tried, tested and deployed at once.

mod templates;

use std::path::Path;

use clap::Args;
use nigh_terms::FunctionName;
use serde_json::json;

use self::templates::{Template, TemplateFile};
use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// What stands for the function's name in a template.
const NAME: &str = "{{name}}";

/// Options of `nigh init`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  nigh init hello                          a Python function
  nigh init thumbs --template python-s3    called for each new object of a bucket
  cd hello; nigh dev                       deploys it at each save, while you work on it
  cd hello; nigh deploy                    deploys it once

The folder has the handler, its description nigh.toml, an event for trials, a test and a README.")]
pub(crate) struct InitArgs {
    /// The function's name; its folder, which must be new or empty, is called the same
    name: FunctionName,
    /// What the function is
    #[arg(long, value_enum, default_value_t = Template::Python)]
    template: Template,
}

/// Writes the folder.
pub(crate) fn run(args: &InitArgs, globals: &Globals) -> Result<(), CliError> {
    let folder = Path::new(args.name.as_str());
    must_be_free(folder)?;
    let mut written = Vec::new();
    for file in args.template.files() {
        write(folder, file, &args.name)?;
        written.push(file.name);
    }
    written.sort_unstable();
    if globals.json {
        return output::json(&json!({ "function": args.name, "folder": folder, "files": written }));
    }
    output::line(format_args!("made {}/ with {}", args.name, written.join(", ")))?;
    next_lines(&args.name, args.template).iter().try_for_each(output::line)
}

/// What to type now.
fn next_lines(name: &FunctionName, template: Template) -> [String; 2] {
    let first = template.first_step().map(|step| format!("; {step}")).unwrap_or_default();
    [
        format!("Next: cd {name}{first}"),
        "Then `nigh dev` to work on it, which deploys at each save, or `nigh deploy` to deploy it once.".to_owned(),
    ]
}

/// Refuses a folder that holds something.
fn must_be_free(folder: &Path) -> Result<(), CliError> {
    let shown = folder.display();
    let is_free = match std::fs::read_dir(folder) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => true,
        Err(error) => return Err(CliError::local(shown)(error)),
    };
    if is_free {
        return Ok(());
    }
    Err(CliError::Usage(format!("the folder {shown} is not empty; choose another name, or move the folder away")))
}

fn write(folder: &Path, file: &TemplateFile, name: &FunctionName) -> Result<(), CliError> {
    use std::io::Write as _;

    let path = folder.join(file.name);
    let made = (|| {
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        let mut opened = std::fs::File::create_new(&path)?;
        opened.write_all(file.text.replace(NAME, name.as_str()).as_bytes())
    })();
    made.map_err(CliError::local(path.display()))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;
    use crate::deploy::{PROJECT_FILE, Project};

    #[test]
    fn every_template_is_a_project_with_an_event_a_test_and_a_readme_of_five_lines() {
        let name = FunctionName::new("hello").unwrap();
        for template in Template::value_variants() {
            let parent = tempfile::tempdir().unwrap();
            let folder = parent.path().join("hello");
            for file in template.files() {
                write(&folder, file, &name).unwrap();
            }
            let project = Project::open(&folder).unwrap();
            assert_eq!(project.name, name, "{template:?}");
            assert_eq!(project.file.name.as_ref(), Some(&name), "{template:?}");
            let event = std::fs::read(project.event()).unwrap();
            serde_json::from_slice::<serde_json::Value>(&event).unwrap();
            let readme = std::fs::read_to_string(folder.join("README.md")).unwrap();
            assert_eq!(readme.lines().count(), 5, "{template:?}");
            assert!(!template.files().iter().any(|file| file.name == PROJECT_FILE && !file.text.contains(NAME)));
            let has_test =
                template.files().iter().any(|file| file.name.contains("test") || file.text.contains("#[test]"));
            assert!(has_test, "{template:?}");
            assert!(!readme.contains("{{"), "{readme}");
        }
    }

    #[test]
    fn the_next_commands_are_told_for_work_on_the_function_and_for_its_deployment() {
        let name = FunctionName::new("hello").unwrap();
        for template in Template::value_variants() {
            let [first, then] = next_lines(&name, *template);
            let bucket = if *template == Template::PythonS3 { "; nigh objects mb nigh://inbox" } else { "" };
            assert_eq!(first, format!("Next: cd hello{bucket}"));
            assert!(then.contains("`nigh dev`") && then.contains("`nigh deploy`"), "{then}");
        }
    }

    #[test]
    fn a_folder_that_holds_something_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        assert!(must_be_free(&parent.path().join("new")).is_ok() && must_be_free(parent.path()).is_ok());
        std::fs::write(parent.path().join("mine"), "").unwrap();
        let refused = must_be_free(parent.path()).unwrap_err().to_string();
        assert!(refused.contains("is not empty"), "{refused}");
        assert!(must_be_free(&parent.path().join("mine")).is_err(), "a file");
    }
}
