//! Lists, shows, creates, updates and deletes actions.

use std::sync::Arc;

use http::StatusCode;
use nigh_functions::action::Action;
use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_functions::action::parameters::Parameters;
use nigh_functions::action::version::SemVer;
use nigh_functions::code_archive::Archive;
use nigh_functions::function::{Function, FunctionSource as _};
use nigh_functions::function_caching;
use nigh_functions::function_store::{DeployedFunction, FunctionSettings, NewFunction};
use nigh_schedule::activation::idempotence;
use nigh_terms::Namespace;
use serde_json::{Value, json};

use super::super::entities::Sequence;
use super::super::error::WhiskError;
use super::super::exec::{self, Code, Exec};
use super::super::kinds;
use super::super::limits::Limits;
use super::super::put_shapes::{ActionShape, CommonShape, environment, read};
use super::lookup::ActionTarget;
use super::shown::{self, ActionView};
use super::{OpenWhiskDoor, Request, WhiskResponse, WhiskResult, json_answer, listed};

/// The annotation with the kind of an action.
const KIND: &str = "exec";
/// The annotation for a key in the environment of an action.
const PROVIDES_KEY: &str = "provide-api-key";

/// A parsed change of an action.
struct Change {
    common: CommonShape,
    removed: Vec<String>,
    limits: Limits,
}

impl Change {
    /// The annotations of an action of `kind` that had the annotations `before`.
    fn annotations(&self, before: Option<&Parameters>, kind: &str) -> Parameters {
        let mut annotations = before.cloned().unwrap_or_default();
        self.removed.iter().for_each(|key| annotations.remove(key));
        if let Some(said) = &self.common.annotations {
            annotations = annotations.with(said);
        }
        if before.is_none() && annotations.get(PROVIDES_KEY).is_none() {
            annotations.set(PROVIDES_KEY, false.into());
        }
        annotations.set(KIND, kind.into());
        annotations
    }

    fn version(&self, before: Option<SemVer>) -> SemVer {
        self.common.version.unwrap_or_else(|| before.map_or_else(SemVer::default, SemVer::next))
    }
}

impl OpenWhiskDoor {
    /// The actions of a namespace, or of one package, as in lists.
    pub(super) fn actions(&self, namespace: &Namespace, package: Option<&EntityName>) -> Vec<Value> {
        let wanted = |path: &EntityPath| package.is_none() || path.package.as_ref() == package;
        let functions = self.0.parts.functions.list(namespace, None, usize::MAX).0;
        let functions = functions.iter().filter_map(|deployed| {
            let function = &deployed.function;
            let path = match &function.action {
                Some(action) => action.path.clone(),
                None => function.name.as_str().parse().ok()?,
            };
            wanted(&path).then(|| shown::action(namespace, function, path, None))
        });
        let sequences = self.0.parts.entities.all::<Sequence>(namespace);
        let sequences = sequences
            .iter()
            .filter(|(path, _)| wanted(path))
            .map(|(path, held)| shown::sequence(namespace, path, &held.entity, false));
        functions.chain(sequences).collect()
    }

    pub(super) fn list_package(&self, package: &EntityName, request: &Request) -> WhiskResult {
        let view = self.package(&request.namespace, package)?;
        let real = view.bound.as_ref().map_or(package, |(bound, _)| bound);
        listed("actions", self.actions(&request.namespace, Some(real)), request)
    }

    pub(super) async fn get_action(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let with_code = request.query.flag("code", true)?;
        let resolved = self.resolve(&request.namespace, path)?;
        let shown = match &resolved.found {
            ActionTarget::Sequence(held) => shown::sequence(&request.namespace, &resolved.path, &held.entity, true),
            ActionTarget::Function(deployed) => {
                let function = &deployed.function;
                let mut shown =
                    shown::action(&request.namespace, function, resolved.path.clone(), Some(&resolved.inherited));
                if with_code {
                    shown["exec"]["code"] = self.code(function, &resolved.path).await?.into();
                }
                shown
            }
        };
        Ok(json_answer(StatusCode::OK, &shown))
    }

    /// The code of an action, as it was uploaded.
    async fn code(&self, function: &Arc<Function>, path: &EntityPath) -> Result<String, WhiskError> {
        let functions = self.0.parts.functions.clone();
        // The code is fetched first if another node deployed the action.
        functions.code_folder(function).await;
        let is_text = ActionView::of(function, path.clone()).is_text;
        let function = Arc::clone(function);
        let read = move || {
            let archive = Archive::in_file(std::fs::File::open(functions.archive(&function))?)?;
            exec::code(&archive, &function.runtime, is_text)
        };
        let code = off_the_path(move || Ok(read())).await?;
        code.map_err(|error| WhiskError::internal(format!("the action's code cannot be read: {error}")))
    }

    pub(super) async fn put_action(&self, path: EntityPath, request: Request) -> WhiskResult {
        let overwrite = request.query.flag("overwrite", false)?;
        if let Some(package) = &path.package
            && self.package(&request.namespace, package)?.bound.is_some()
        {
            return Err(WhiskError::bad_request("Operation not permitted on package binding."));
        }
        let before = self.find(&request.namespace, &path);
        if before.is_some() && !overwrite {
            return Err(WhiskError::conflicts("resource already exists"));
        }
        let (body, namespace, catalog) =
            (request.body.clone(), request.namespace.clone(), self.0.parts.catalog.clone());
        let (change, exec) = off_the_path(move || {
            let ActionShape { common, exec, limits, removed } = read(&body)?;
            common.check()?;
            let limits = limits.unwrap_or_default().try_into()?;
            Ok((Change { common, removed, limits }, exec.map(|exec| exec.read(&namespace, &catalog)).transpose()?))
        })
        .await?;
        match (exec, before) {
            (None, None) => Err(WhiskError::bad_request("exec undefined")),
            (Some(Exec::Sequence(components)), before) => {
                self.put_sequence(&path, components, change, before, &request).await
            }
            (None, Some(ActionTarget::Sequence(held))) => {
                let components = held.entity.components.clone();
                self.put_sequence(&path, components, change, Some(ActionTarget::Sequence(held)), &request).await
            }
            (Some(Exec::Code(code)), Some(ActionTarget::Sequence(held))) => {
                let change = Change { limits: change.limits.or_defaults(), ..change };
                let answer = self.make_function(&path, code, change, Some(&held.entity), &request).await?;
                self.0.parts.entities.delete::<Sequence>(&request.namespace, &path, held.revision).await?;
                Ok(answer)
            }
            (Some(Exec::Code(code)), None) => {
                let change = Change { limits: change.limits.or_defaults(), ..change };
                self.make_function(&path, code, change, None, &request).await
            }
            (code, Some(ActionTarget::Function(deployed))) => {
                let code = match code {
                    Some(Exec::Code(code)) => Some(code),
                    _ => None,
                };
                self.change_function(&path, code, change, &deployed, &request).await
            }
        }
    }

    async fn make_function(
        &self,
        path: &EntityPath,
        code: Code,
        change: Change,
        replaced: Option<&Sequence>,
        request: &Request,
    ) -> WhiskResult {
        let common = replaced.map(|sequence| &sequence.common);
        let handler = kinds::handler(&code.runtime, code.main.as_deref())?;
        let archive: Archive = code.archive.clone().into();
        let parameters = change.common.parameters.clone().unwrap_or_default();
        let action = Action {
            path: path.clone(),
            main: code.main.clone(),
            text_sha256: text_sha256(&code, &archive).await?,
            annotations: change.annotations(common.map(|common| &common.annotations), &code.kind),
            version: change.version(common.map(|common| common.version)),
            publish: change.common.publish.unwrap_or(false),
            logs_mb: change.limits.logs_mb.unwrap_or(nigh_functions::action::LOGS_MB),
            kind: code.kind.clone(),
            parameters,
        };
        let settings = FunctionSettings {
            memory: change.limits.memory,
            timeout: change.limits.timeout,
            environment: Some(self.environment(&action.parameters, request)?),
            action: Some(action),
            ..FunctionSettings::default()
        };
        let new = NewFunction {
            name: path.function(),
            runtime: (code.runtime, code.kind),
            handler,
            settings,
            tags: Default::default(),
        };
        self.check_functions(&request.namespace)?;
        let made = self.0.parts.functions.create(&request.namespace, new, archive).await?;
        Ok(self.changed(&made, path, &request.namespace))
    }

    async fn change_function(
        &self,
        path: &EntityPath,
        code: Option<Code>,
        change: Change,
        before: &DeployedFunction,
        request: &Request,
    ) -> WhiskResult {
        let function = &before.function;
        let view = ActionView::of(function, path.clone());
        let kind = code.as_ref().map_or(&view.kind, |code| &code.kind);
        let annotations = change.annotations(Some(&view.annotations), kind);
        let version = change.version(Some(view.version));
        let parameters = change.common.parameters.clone().unwrap_or(view.parameters);
        let mut settings = FunctionSettings {
            memory: change.limits.memory,
            timeout: change.limits.timeout,
            ..FunctionSettings::default()
        };
        let (archive, main, text_sha256) = match &code {
            Some(code) => {
                let archive: Archive = code.archive.clone().into();
                let text_sha256 = text_sha256(code, &archive).await?;
                settings.runtime = Some((code.runtime.clone(), code.kind.clone()));
                settings.handler = Some(kinds::handler(&code.runtime, code.main.as_deref())?);
                (Some(archive), code.main.clone(), text_sha256)
            }
            // A function of the Lambda API stays one; this API changes only its limits.
            None if function.action.is_none() => {
                let changed = self.0.parts.functions.update_settings(
                    &request.namespace,
                    &function.name,
                    settings,
                    Some(function.revision_id.clone()),
                );
                return Ok(self.changed(&*changed.await?, path, &request.namespace));
            }
            None => (None, view.main, function.action.as_ref().and_then(|action| action.text_sha256.clone())),
        };
        settings.environment = Some(self.environment(&parameters, request)?);
        settings.action = Some(Action {
            path: path.clone(),
            kind: kind.clone(),
            main,
            text_sha256,
            annotations,
            version,
            publish: change.common.publish.unwrap_or(view.publish),
            logs_mb: change.limits.logs_mb.unwrap_or(view.logs_mb),
            parameters,
        });
        let revision = Some(function.revision_id.clone());
        let changed =
            self.0.parts.functions.replace(&request.namespace, &function.name, settings, archive, revision).await?;
        Ok(self.changed(&changed, path, &request.namespace))
    }

    fn changed(&self, deployed: &DeployedFunction, path: &EntityPath, namespace: &Namespace) -> WhiskResponse {
        let shown = shown::action(namespace, &deployed.function, path.clone(), Some(&Parameters::default()));
        json_answer(StatusCode::OK, &shown)
    }

    /// The environment in `parameters`, if the namespace's functions may have it.
    fn environment(
        &self,
        parameters: &Parameters,
        request: &Request,
    ) -> Result<std::collections::BTreeMap<String, String>, WhiskError> {
        let environment = environment(parameters)?;
        let refused = |error: &dyn std::fmt::Display| WhiskError::bad_request(error.to_string());
        function_caching::admission(&environment).map_err(|error| refused(&error))?;
        idempotence::says(&environment).map_err(|error| refused(&error))?;
        let permitted = self.0.settings.network.check(&request.namespace, &environment);
        permitted.map_err(|error| refused(&error))?;
        Ok(environment)
    }

    async fn put_sequence(
        &self,
        path: &EntityPath,
        components: Vec<EntityPath>,
        change: Change,
        before: Option<ActionTarget>,
        request: &Request,
    ) -> WhiskResult {
        self.check_sequence(&request.namespace, path, &components)?;
        let (old, expected, common) = match &before {
            Some(ActionTarget::Sequence(held)) => {
                (Some(&held.entity), Some(held.revision), Some(held.entity.common.clone()))
            }
            _ => (None, None, None),
        };
        let replaced = match &before {
            Some(ActionTarget::Function(deployed)) => Some(ActionView::of(&deployed.function, path.clone())),
            _ => None,
        };
        let annotations_before =
            common.as_ref().map(|common| &common.annotations).or(replaced.as_ref().map(|view| &view.annotations));
        let version_before =
            common.as_ref().map(|common| common.version).or(replaced.as_ref().map(|view| view.version));
        let (annotations, version) =
            (change.annotations(annotations_before, kinds::SEQUENCE), change.version(version_before));
        let limits = if old.is_some() { change.limits } else { change.limits.or_defaults() };
        let shape =
            CommonShape { annotations: Some(annotations), version: Some(version), parameters: None, ..change.common };
        let sequence = Sequence {
            common: shape.apply(common.as_ref(), self.0.parts.clock.wall()),
            components,
            timeout_ms: limits
                .timeout
                .map_or_else(|| old.map_or(0, |old| old.timeout_ms), |timeout| timeout.as_millis() as u64),
            memory_mb: limits.memory.map_or_else(|| old.map_or(0, |old| old.memory_mb), |memory| memory.mib_ceil()),
            logs_mb: limits.logs_mb.unwrap_or_else(|| old.map_or(0, |old| old.logs_mb)),
        };
        self.declare_scratch(&request.namespace, &sequence).await?;
        let held = self.0.parts.entities.put(&request.namespace, path, sequence, expected).await?;
        if let Some(ActionTarget::Function(deployed)) = before {
            self.remove_function(&request.namespace, &deployed).await?;
        }
        Ok(json_answer(StatusCode::OK, &shown::sequence(&request.namespace, path, &held.entity, true)))
    }

    async fn remove_function(&self, namespace: &Namespace, deployed: &DeployedFunction) -> Result<(), WhiskError> {
        let name = &deployed.function.name;
        self.0.parts.functions.delete(namespace, name).await?;
        self.0.parts.invoke.set_reserved(namespace, name, None);
        Ok(())
    }

    pub(super) async fn delete_action(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        if let Some(package) = &path.package
            && self.package(&request.namespace, package)?.bound.is_some()
        {
            return Err(WhiskError::bad_request("Operation not permitted on package binding."));
        }
        let found = self.find(&request.namespace, path).ok_or_else(WhiskError::not_found)?;
        let shown = self.remove_action(&request.namespace, path, found).await?;
        Ok(json_answer(StatusCode::OK, &shown))
    }

    /// Removes an action and returns it.
    pub(super) async fn remove_action(
        &self,
        namespace: &Namespace,
        path: &EntityPath,
        found: ActionTarget,
    ) -> Result<Value, WhiskError> {
        match found {
            ActionTarget::Sequence(held) => {
                self.0.parts.entities.delete::<Sequence>(namespace, path, held.revision).await?;
                Ok(shown::sequence(namespace, path, &held.entity, true))
            }
            ActionTarget::Function(deployed) => {
                self.remove_function(namespace, &deployed).await?;
                Ok(shown::action(namespace, &deployed.function, path.clone(), Some(&Parameters::default())))
            }
        }
    }

    /// The actions of a package, by name.
    pub(super) fn package_actions(&self, namespace: &Namespace, package: &EntityName) -> Vec<Value> {
        let all = self.actions(namespace, Some(package));
        let part =
            |one: Value| json!({ "name": one["name"], "version": one["version"], "annotations": one["annotations"] });
        all.into_iter().map(part).collect()
    }
}

/// The digest by which the function store will name code that was uploaded as text.
async fn text_sha256(code: &Code, archive: &Archive) -> Result<Option<String>, WhiskError> {
    use base64::Engine as _;
    if !code.is_text {
        return Ok(None);
    }
    let archive = archive.clone();
    let sha256 =
        off_the_path(move || archive.sha256().map_err(|error| WhiskError::internal(error.to_string()))).await?;
    Ok(Some(base64::engine::general_purpose::STANDARD.encode(sha256)))
}

/// Runs `work`, which may take long, on a thread that serves no other request.
async fn off_the_path<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WhiskError> + Send + 'static,
) -> Result<T, WhiskError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|join| Err(WhiskError::internal(join.to_string())))
}
