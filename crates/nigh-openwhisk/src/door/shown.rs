//! Entities as the API shows them. Pure.

use nigh_functions::action::Action;
use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_functions::action::parameters::Parameters;
use nigh_functions::action::version::SemVer;
use nigh_functions::function::Function;
use nigh_terms::Namespace;
use serde_json::{Value, json};

use super::super::entities::{EntityHeader, Rule, Sequence, Trigger};
use super::super::kinds;

/// The members that all entities have; lists omit the parameters.
pub(super) fn common(namespace: &Namespace, path: &EntityPath, common: &EntityHeader, is_whole: bool) -> Value {
    let mut shown = json!({
        "namespace": path.folder(namespace),
        "name": path.name,
        "version": common.version,
        "publish": common.publish,
        "annotations": common.annotations,
        "updated": common.updated.millis(),
    });
    if is_whole {
        shown["parameters"] = json!(common.parameters);
    }
    shown
}

/// The action of a function, whichever door deployed it.
pub(super) struct ActionView {
    pub(super) path: EntityPath,
    pub(super) kind: String,
    pub(super) main: Option<String>,
    pub(super) is_text: bool,
    pub(super) version: SemVer,
    pub(super) publish: bool,
    pub(super) parameters: Parameters,
    pub(super) annotations: Parameters,
    pub(super) logs_mb: u64,
}

impl ActionView {
    /// The action of `function` at `path`.
    pub(super) fn of(function: &Function, path: EntityPath) -> Self {
        match &function.action {
            Some(action) => {
                let Action { kind, main, parameters, annotations, version, publish, logs_mb, .. } = action.clone();
                let is_text = action.text_sha256.as_ref() == Some(&function.code_sha256);
                Self { path, kind, main, is_text, version, publish, parameters, annotations, logs_mb }
            }
            // A function of the Lambda API.
            None => {
                let mut annotations = Parameters::default();
                annotations.set("exec", function.runtime_name.clone().into());
                if !function.description.is_empty() {
                    annotations.set("description", function.description.clone().into());
                }
                Self {
                    path,
                    kind: function.runtime_name.clone(),
                    main: Some(function.handler.clone()),
                    is_text: false,
                    version: SemVer::default(),
                    publish: false,
                    parameters: Parameters::default(),
                    annotations,
                    logs_mb: nigh_functions::action::LOGS_MB,
                }
            }
        }
    }
}

/// The limits of a function as the API shows them.
pub(super) fn limits(function: &Function, logs_mb: u64) -> Value {
    json!({
        "timeout": function.timeout.as_millis() as u64,
        "memory": function.memory.mib_ceil(),
        "logs": logs_mb,
        "concurrency": 1,
    })
}

/// An action that is a function. `inherited` are the parameters of its package, if all is shown.
pub(super) fn action(
    namespace: &Namespace,
    function: &Function,
    path: EntityPath,
    inherited: Option<&Parameters>,
) -> Value {
    let view = ActionView::of(function, path);
    let mut exec = json!({ "binary": !view.is_text });
    if inherited.is_some() {
        exec["kind"] = json!(view.kind);
        if let Some(main) = &view.main {
            exec["main"] = json!(main);
        }
    }
    let mut shown = json!({
        "namespace": view.path.folder(namespace),
        "name": view.path.name,
        "version": view.version,
        "publish": view.publish,
        "annotations": view.annotations,
        "limits": limits(function, view.logs_mb),
        "exec": exec,
        "updated": function.modified.millis(),
    });
    if let Some(inherited) = inherited {
        shown["parameters"] = json!(inherited.with(&view.parameters));
    }
    shown
}

/// The fully qualified name of an action.
pub(super) fn qualified(namespace: &Namespace, path: &EntityPath) -> String {
    format!("/{namespace}/{path}")
}

/// A sequence.
pub(super) fn sequence(namespace: &Namespace, path: &EntityPath, sequence: &Sequence, is_whole: bool) -> Value {
    let mut shown = common(namespace, path, &sequence.common, false);
    let components: Vec<String> = sequence.components.iter().map(|one| qualified(namespace, one)).collect();
    shown["limits"] = sequence_limits(sequence);
    shown["exec"] = json!({ "binary": false });
    if is_whole {
        shown["exec"] = json!({ "kind": kinds::SEQUENCE, "components": components });
        shown["parameters"] = json!([{ "key": "_actions", "value": components }]);
    }
    shown
}

pub(super) fn sequence_limits(sequence: &Sequence) -> Value {
    json!({
        "timeout": sequence.timeout_ms,
        "memory": sequence.memory_mb,
        "logs": sequence.logs_mb,
        "concurrency": 1,
    })
}

fn status(is_active: bool) -> &'static str {
    if is_active { "active" } else { "inactive" }
}

/// A rule.
pub(super) fn rule(namespace: &Namespace, path: &EntityPath, rule: &Rule) -> Value {
    let mut shown = common(namespace, path, &rule.common, false);
    shown["trigger"] = json!({ "path": namespace, "name": rule.trigger });
    shown["action"] = json!({ "path": rule.action.folder(namespace), "name": rule.action.name });
    shown["status"] = status(rule.active).into();
    shown
}

/// A trigger with its rules.
pub(super) fn trigger(
    namespace: &Namespace,
    path: &EntityPath,
    trigger: &Trigger,
    rules: &[(EntityName, bool, EntityPath)],
) -> Value {
    let mut shown = common(namespace, path, &trigger.common, true);
    shown["limits"] = json!({});
    shown["rules"] = rules
        .iter()
        .map(|(name, is_active, action)| {
            let action = json!({ "path": action.folder(namespace), "name": action.name });
            (format!("{namespace}/{name}"), json!({ "action": action, "status": status(*is_active) }))
        })
        .collect::<serde_json::Map<_, _>>()
        .into();
    shown
}
