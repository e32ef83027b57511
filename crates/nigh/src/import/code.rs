//! The code of a stack's functions and layers: folders, archives, and source texts within the template.

use std::path::{Path, PathBuf};

use nigh_node::client::CodeUpload;
use tempfile::TempDir;

use crate::archive::{self, FileChoice};
use crate::deploy::CodeSource;
use crate::error::CliError;
use crate::sam::{Stack, StackCode, StackFunction, StackLayer};

/// Folders of a layer that functions find.
const LAYER_FOLDERS: [&str; 5] = ["python", "nodejs", "bin", "lib", "ruby"];
/// Lists of dependencies, which somebody has to install into a layer.
const DEPENDENCY_FILES: [&str; 3] = ["requirements.txt", "package.json", "pyproject.toml"];

/// Checks that all code is beside the template.
///
/// # Errors
/// Names what is missing.
pub(super) fn check(stack: &Stack, folder: &Path) -> Result<(), CliError> {
    let functions = stack.functions.iter().filter_map(|function| match &function.code {
        StackCode::Path(path) => Some((function.logical.as_str(), path)),
        StackCode::Inline(_) => None,
    });
    let layers = stack.layers.iter().map(|layer| (layer.logical.as_str(), &layer.code));
    for (logical, path) in functions.chain(layers) {
        let path = folder.join(path);
        if !path.exists() {
            let path = path.display();
            return Err(CliError::Usage(format!("the code of {logical} is missing: there is no {path}")));
        }
    }
    for layer in &stack.layers {
        check_built(layer, &folder.join(&layer.code))?;
    }
    Ok(())
}

/// Refuses a layer whose dependencies are only listed: it would be published without them.
fn check_built(layer: &StackLayer, path: &Path) -> Result<(), CliError> {
    let has = |names: &[&str]| names.iter().any(|name| path.join(name).exists());
    if !path.is_dir() || has(&LAYER_FOLDERS) || !has(&DEPENDENCY_FILES) {
        return Ok(());
    }
    let (logical, path) = (&layer.logical, path.display());
    Err(CliError::Usage(format!(
        "the layer {logical} is not built: {path} lists dependencies and has none; install them into a folder python or \
         nodejs there, or run `sam build` and import .aws-sam/build/template.yaml"
    )))
}

/// Code that `nigh deploy` can take.
pub(super) struct ReadyCode {
    /// Where it is.
    pub(super) source: CodeSource,
    /// Removed with this.
    _folder: Option<TempDir>,
}

/// The code of a function.
///
/// # Errors
/// If a source text cannot be written to a file.
pub(super) fn of_function(function: &StackFunction, folder: &Path) -> Result<ReadyCode, CliError> {
    match &function.code {
        StackCode::Path(path) => Ok(ReadyCode { source: source(folder.join(path)), _folder: None }),
        StackCode::Inline(text) => {
            let scratch = TempDir::new().map_err(CliError::local("a folder for the code within the template"))?;
            let path = scratch.path().join(file_name(function));
            std::fs::write(&path, text).map_err(CliError::local(path.display()))?;
            let source = CodeSource::Files { path: scratch.path().to_owned(), choice: FileChoice::default() };
            Ok(ReadyCode { source, _folder: Some(scratch) })
        }
    }
}

/// The file that has the source text of a function, as Lambda names it: `index.py` for `index.handler`.
fn file_name(function: &StackFunction) -> String {
    let module = function.handler.as_deref().and_then(|handler| handler.split('.').next()).unwrap_or("index");
    let is_node = function.runtime.as_deref().is_some_and(|runtime| runtime.starts_with("nodejs"));
    format!("{module}.{}", if is_node { "js" } else { "py" })
}

fn source(path: PathBuf) -> CodeSource {
    if path.is_file() && is_archive(&path) {
        CodeSource::Zip(path)
    } else {
        CodeSource::Files { path, choice: FileChoice::default() }
    }
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["zip", "jar"].iter().any(|known| ending.eq_ignore_ascii_case(known)))
}

/// The archive of a layer.
///
/// # Errors
/// If its files cannot be read or packed.
pub(super) fn of_layer(layer: &StackLayer, folder: &Path) -> Result<CodeUpload, CliError> {
    let usage = |error: archive::ArchiveError| CliError::Usage(error.to_string());
    let archive = match source(folder.join(&layer.code)) {
        CodeSource::Zip(path) => std::fs::read(&path).map_err(CliError::local(path.display()))?,
        CodeSource::Files { path, choice } => {
            let files = archive::list(&path, &choice).map_err(usage)?;
            archive::pack(&path, &files).map_err(usage)?
        }
    };
    Ok(CodeUpload(archive))
}

#[cfg(test)]
mod tests {
    use nigh_terms::FunctionName;

    use super::*;

    fn function(code: StackCode) -> StackFunction {
        StackFunction::new("F", FunctionName::new("f").unwrap(), code)
    }

    fn layer(code: &str) -> StackLayer {
        StackLayer {
            logical: "L".to_owned(),
            name: FunctionName::new("l").unwrap(),
            code: code.into(),
            description: None,
            runtimes: Vec::new(),
            license: None,
        }
    }

    #[test]
    fn code_that_is_missing_or_not_built_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let stack = Stack { functions: vec![function(StackCode::Path("src".into()))], ..Stack::default() };
        assert!(check(&stack, folder.path()).unwrap_err().to_string().starts_with("the code of F is missing"));
        std::fs::create_dir(folder.path().join("src")).unwrap();
        assert!(check(&stack, folder.path()).is_ok());
        let stack = Stack { layers: vec![layer("src")], ..Stack::default() };
        std::fs::write(folder.path().join("src/requirements.txt"), "numpy").unwrap();
        assert!(check(&stack, folder.path()).unwrap_err().to_string().contains("sam build"));
        std::fs::create_dir(folder.path().join("src/python")).unwrap();
        assert!(check(&stack, folder.path()).is_ok());
    }

    #[test]
    fn archives_are_taken_as_they_are_and_source_texts_get_the_file_that_their_handler_names() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.ZIP"), "zip").unwrap();
        let zip = of_function(&function(StackCode::Path("a.ZIP".into())), folder.path()).unwrap();
        assert_eq!(zip.source, CodeSource::Zip(folder.path().join("a.ZIP")));
        assert_eq!(of_layer(&layer("a.ZIP"), folder.path()).unwrap().0, b"zip");
        let mut inline = function(StackCode::Inline("x = 1".to_owned()));
        inline.handler = Some("main.handle".to_owned());
        let ready = of_function(&inline, folder.path()).unwrap();
        let CodeSource::Files { path, .. } = &ready.source else { panic!("files") };
        assert_eq!(std::fs::read_to_string(path.join("main.py")).unwrap(), "x = 1");
        inline.runtime = Some("nodejs20.x".to_owned());
        inline.handler = None;
        assert_eq!(file_name(&inline), "index.js");
    }
}
