//! What somebody asks to deploy, and what follows from it and from what is there: the code, packed, and the plan.

use std::path::{Path, PathBuf};

use nigh_node::client::CodeUpload;
use nigh_node::status::Status;
use nigh_terms::{ByteSize, FunctionName};
use serde_json::Value;

use super::apply::{self, Applying};
use super::code_listing::CodeListing;
use super::description::FunctionDescription;
use super::doors::Doors;
use super::inferred::{Code, NodeRuntimes, python_file};
use super::plan::{CodeSummary, Deployed, Plan};
use super::project::Project;
use super::python_syntax::PythonModule;
use crate::archive::{self, FileChoice};
use crate::build::{self, StderrProgress};
use crate::context::Globals;
use crate::error::CliError;
use crate::workflow;

/// Where the code is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CodeSource {
    /// Files of a folder, or one file.
    Files {
        /// The folder or file.
        path: PathBuf,
        /// Which files.
        choice: FileChoice,
    },
    /// A zip archive.
    Zip(PathBuf),
}

/// What is asked to be deployed.
#[derive(Clone, Debug)]
pub(crate) struct DeployRequest {
    /// The function.
    pub(crate) name: FunctionName,
    /// What it shall be.
    pub(crate) wanted: FunctionDescription,
    /// Its code; none: the code stays.
    pub(crate) source: Option<CodeSource>,
    /// The file with its state machine.
    pub(crate) workflow: Option<PathBuf>,
}

/// A deployment of which all is known and nothing is done.
pub(crate) struct Prepared {
    /// What changes.
    pub(crate) plan: Plan,
    deployed: Deployed,
    code: Option<CodeUpload>,
    /// The module with the handler, if it is Python and comes with this deployment.
    module: Option<PythonModule>,
    doors: Doors,
}

/// The code to send, and what was seen of it.
struct PackedCode {
    upload: CodeUpload,
    summary: CodeSummary,
    module: Option<PythonModule>,
}

/// A deployed function.
pub(crate) struct Done {
    /// Its configuration, in Lambda's form.
    pub(crate) function: Value,
    /// Its URL, if one was asked for.
    pub(crate) url: Option<String>,
}

impl DeployRequest {
    /// All that the project's file says, with `above` in place of what it gives, too.
    pub(crate) fn of_project(project: &Project, above: FunctionDescription) -> Self {
        Self {
            name: project.name.clone(),
            wanted: project.file.description.clone().overlaid(above),
            source: Some(CodeSource::Files { path: project.folder.clone(), choice: project.choice() }),
            workflow: project.workflow(),
        }
    }

    /// The project's code alone, for a function that has its settings already.
    pub(crate) fn of_code(project: &Project) -> Self {
        let FunctionDescription { runtime, handler, layers, .. } = project.file.description.clone();
        let wanted = FunctionDescription { runtime, handler, layers, ..FunctionDescription::default() };
        Self { wanted, workflow: None, ..Self::of_project(project, FunctionDescription::default()) }
    }

    /// Finds out what is to be changed, and asks the doors whether they would refuse it. Changes nothing.
    ///
    /// # Errors
    /// If the code is not what it says it is, or a door would refuse a part.
    pub(crate) async fn prepare(mut self, globals: &Globals) -> Result<Prepared, CliError> {
        let machine = self.workflow.as_deref().map(|path| workflow::definition(&path.to_string_lossy())).transpose()?;
        let doors = Doors::reach(&self.wanted, machine.is_some(), globals).await?;
        let deployed = doors.deployed(&self.name, &self.wanted, globals).await?;
        if self.source.is_none() && deployed.function.is_none() {
            let name = &self.name;
            let how = format!("there is no function {name}; to create it, name its code with --folder or --zip");
            return Err(CliError::Usage(how));
        }
        let packed = self.packed(&deployed, globals).await?;
        let summary = packed.as_ref().map(|packed| &packed.summary);
        let plan = Plan::new(&self.name, &self.wanted, summary, machine.as_deref(), &deployed);
        let (code, module) = packed.map(|packed| (packed.upload, packed.module)).unzip();
        let prepared = Prepared { plan, deployed, code, module: module.flatten(), doors };
        apply::check(&prepared.applying(globals)).await?;
        Ok(prepared)
    }

    /// The code, if it is given. Completes the runtime and the handler of a new function.
    async fn packed(&mut self, deployed: &Deployed, globals: &Globals) -> Result<Option<PackedCode>, CliError> {
        let Some(source) = self.source.clone() else { return Ok(None) };
        let there = runtimes(globals).await?;
        let (archive, files, module) = match &source {
            CodeSource::Zip(path) => {
                let archive = std::fs::read(path).map_err(CliError::local(path.display()))?;
                let listing = CodeListing::of_zip(&archive);
                self.settle(path, &listing, deployed, there.as_ref())?;
                self.check(path, &listing, deployed, there.as_ref())?;
                let module = self.module(&listing, deployed);
                drop(listing);
                (archive, None, module)
            }
            CodeSource::Files { path, choice } => {
                // All files tell the language, also sources that are built and not deployed; but not those of packages.
                let packages = |name: &str| name == "node_modules";
                let all = archive::list_without(path, &FileChoice::default(), &packages);
                let all = all.or_else(|_| archive::list(path, choice));
                let all = all.map_err(usage)?;
                self.settle(path, &CodeListing::of_files(&all), deployed, there.as_ref())?;
                let runtime = self.runtime(deployed).unwrap_or_default();
                let functions = globals.configuration(Vec::new())?.settings.functions;
                let mut progress = StderrProgress::new(globals.json);
                let prepared = build::prepare(path, &runtime, &functions, &mut progress).await?;
                drop(progress);
                let files = prepared.files(path, choice).map_err(usage)?;
                let listing = CodeListing::of_files(&files);
                self.check(path, &listing, deployed, there.as_ref())?;
                let module = self.module(&listing, deployed);
                (archive::pack(path, &files).map_err(usage)?, Some(files.len()), module)
            }
        };
        let upload = CodeUpload(archive);
        let summary = CodeSummary { sha256: upload.sha256(), bytes: ByteSize(upload.0.len() as u64), files };
        Ok(Some(PackedCode { upload, summary, module }))
    }

    /// The function's runtime after the deployment.
    fn runtime(&self, deployed: &Deployed) -> Option<String> {
        self.wanted.runtime.clone().or_else(|| setting(deployed, "Runtime"))
    }

    /// Its handler after the deployment.
    fn handler(&self, deployed: &Deployed) -> Option<String> {
        self.wanted.handler.clone().or_else(|| setting(deployed, "Handler"))
    }

    /// The module with the handler, if a Python runs it, and it is among the files.
    fn module(&self, listing: &CodeListing<'_>, deployed: &Deployed) -> Option<PythonModule> {
        let minor = self.runtime(deployed)?.strip_prefix("python3.")?.parse().ok()?;
        let file = python_file(listing, &self.handler(deployed)?)?;
        Some(PythonModule { source: listing.source(&file)?, file, minor })
    }

    /// Gives a new function the runtime and the handler that its files show, and short runtimes their whole name.
    fn settle(
        &mut self,
        path: &Path,
        listing: &CodeListing<'_>,
        deployed: &Deployed,
        there: Option<&NodeRuntimes>,
    ) -> Result<(), CliError> {
        let shown = path.display().to_string();
        let code = Code { name: &shown, files: listing };
        let is_new = deployed.function.is_none();
        if is_new || self.wanted.runtime.is_some() {
            let runtime = code.runtime(self.wanted.runtime.as_deref(), there).map_err(usage)?;
            self.wanted.runtime = Some(runtime);
        }
        if is_new && self.wanted.handler.is_none() {
            let runtime = self.wanted.runtime.as_deref().unwrap_or_default();
            self.wanted.handler = Some(code.handler(runtime).map_err(usage)?);
        }
        Ok(())
    }

    /// Refuses a handler that is not there. The door itself refuses a runtime that the node does not have.
    fn check(
        &self,
        path: &Path,
        listing: &CodeListing<'_>,
        deployed: &Deployed,
        there: Option<&NodeRuntimes>,
    ) -> Result<(), CliError> {
        let (Some(runtime), Some(handler)) = (self.runtime(deployed), self.handler(deployed)) else { return Ok(()) };
        if there.is_some_and(|there| !there.names.contains(&runtime)) {
            return Ok(());
        }
        let layers_now = || deployed.function.as_ref().is_some_and(|now| now.configuration["Layers"].is_array());
        let has_layers = self.wanted.layers.as_ref().map_or_else(layers_now, |layers| !layers.is_empty());
        let shown = path.display().to_string();
        Code { name: &shown, files: listing }.check(&runtime, &handler, has_layers).map_err(usage)
    }
}

impl Prepared {
    fn applying<'a>(&'a self, globals: &'a Globals) -> Applying<'a> {
        let Self { plan, deployed, code, doors, .. } = self;
        Applying { plan, deployed, code: code.as_ref(), doors, globals }
    }

    /// What lets the deployed function fail, each a line. A Python of this machine reads the module with the handler, if
    /// one of the function's version is here.
    ///
    /// # Errors
    /// If the settings, which name the Pythons, cannot be read.
    pub(crate) async fn warnings(&self, globals: &Globals) -> Result<Vec<String>, CliError> {
        let mut warnings = Vec::new();
        if let Some(module) = &self.module {
            let choice = globals.configuration(Vec::new())?.settings.functions.python;
            warnings.extend(module.syntax_error(&choice).await);
        }
        if self.plan.mixes_events {
            warnings.push(format!(
                "{} gets events of two forms: those of its triggers have Records, those of its schedule do not \
                 (docs/reference/lambda.md#schedules)",
                self.plan.name
            ));
        }
        Ok(warnings)
    }

    /// Deploys.
    ///
    /// # Errors
    /// The refusal of a door; then nothing is changed.
    pub(crate) async fn apply(&self, globals: &Globals) -> Result<Done, CliError> {
        let (function, given) = self.applying(globals).run().await?;
        let url = match self.plan.url {
            Some(_) => given,
            None => self.deployed.url.as_ref().map(|(url, _)| url.clone()),
        };
        Ok(Done { function, url })
    }
}

fn setting(deployed: &Deployed, name: &str) -> Option<String> {
    Some(deployed.function.as_ref()?.configuration[name].as_str()?.to_owned())
}

fn usage(error: impl std::error::Error) -> CliError {
    CliError::Usage(error.to_string())
}

/// The runtimes of the node that runs here; none if the door is another's, or the node is of an older version.
pub(crate) async fn runtimes(globals: &Globals) -> Result<Option<NodeRuntimes>, CliError> {
    if globals.endpoint.is_some() {
        return Ok(None);
    }
    let Status { runtimes: names, levels, .. } = globals.admin()?.get("/status").await?;
    let lacks_python = levels.into_iter().find(|level| level.name == "python" && !level.on);
    let why_no_python = lacks_python.map(|level| level.detail);
    Ok((!names.is_empty()).then_some(NodeRuntimes { names, why_no_python }))
}
