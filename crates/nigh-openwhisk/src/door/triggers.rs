//! Manages triggers, and fires them: a fired trigger invokes the actions of its active rules.

use http::StatusCode;
use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_functions::action::parameters::Parameters;
use nigh_terms::{InvocationId, Namespace};
use serde_json::{Map, Value, json};

use super::super::entities::{Rule, Trigger};
use super::super::entity_store::RevisedEntity;
use super::super::error::WhiskError;
use super::super::put_shapes::{TriggerShape, arguments, read};
use super::super::record::{Record, written};
use super::super::response::{Response, Status};
use super::invocation::{Input, accepted};
use super::{OpenWhiskDoor, Request, WhiskResult, empty_answer, json_answer, shown};

/// The annotation that names the feed action of a trigger.
const FEED: &str = "feed";

impl OpenWhiskDoor {
    pub(super) fn triggers(&self, namespace: &Namespace) -> Vec<Value> {
        let all = self.0.parts.entities.all::<Trigger>(namespace);
        all.iter().map(|(path, held)| self.shown_trigger(namespace, path, &held.entity)).collect()
    }

    /// The rules of the trigger called `name`.
    pub(super) fn rules_of(&self, namespace: &Namespace, name: &EntityName) -> Vec<(EntityPath, RevisedEntity<Rule>)> {
        let mut rules = self.0.parts.entities.all::<Rule>(namespace);
        rules.retain(|(_, held)| held.entity.trigger == *name);
        rules
    }

    fn shown_trigger(&self, namespace: &Namespace, path: &EntityPath, trigger: &Trigger) -> Value {
        let rules = self.rules_of(namespace, &path.name);
        let rules: Vec<_> =
            rules.into_iter().map(|(path, held)| (path.name, held.entity.active, held.entity.action.clone())).collect();
        shown::trigger(namespace, path, trigger, &rules)
    }

    pub(super) fn trigger(
        &self,
        namespace: &Namespace,
        path: &EntityPath,
    ) -> Result<RevisedEntity<Trigger>, WhiskError> {
        self.0.parts.entities.get(namespace, path).ok_or_else(WhiskError::not_found)
    }

    pub(super) fn get_trigger(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let held = self.trigger(&request.namespace, path)?;
        Ok(json_answer(StatusCode::OK, &self.shown_trigger(&request.namespace, path, &held.entity)))
    }

    pub(super) async fn put_trigger(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let overwrite = request.query.flag("overwrite", false)?;
        let TriggerShape { common } = read(&request.body)?;
        common.check()?;
        let feed = common.annotations.as_ref().and_then(|annotations| annotations.get(FEED));
        if feed.is_some_and(|feed| {
            feed.as_str().is_none_or(|feed| feed.parse::<nigh_functions::action::names::QualifiedName>().is_err())
        }) {
            return Err(WhiskError::bad_request("Feed name is not valid"));
        }
        let before = self.0.parts.entities.get::<Trigger>(&request.namespace, path);
        if before.is_some() && !overwrite {
            return Err(WhiskError::conflicts("resource already exists"));
        }
        let common = common.apply(before.as_ref().map(|held| &held.entity.common), self.0.parts.clock.wall());
        let expected = before.map(|held| held.revision);
        let held = self.0.parts.entities.put(&request.namespace, path, Trigger { common }, expected).await?;
        Ok(json_answer(StatusCode::OK, &self.shown_trigger(&request.namespace, path, &held.entity)))
    }

    pub(super) async fn delete_trigger(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let held = self.trigger(&request.namespace, path)?;
        let shown = self.shown_trigger(&request.namespace, path, &held.entity);
        self.0.parts.entities.delete::<Trigger>(&request.namespace, path, held.revision).await?;
        // A rule without its trigger stays inactive, even if a trigger of that name is created again.
        for (rule, held) in self.rules_of(&request.namespace, &path.name) {
            if held.entity.active {
                let inactive = Rule { active: false, ..(*held.entity).clone() };
                self.0.parts.entities.put(&request.namespace, &rule, inactive, Some(held.revision)).await?;
            }
        }
        Ok(json_answer(StatusCode::OK, &shown))
    }

    pub(super) fn fire(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        self.0.throttle.lock().fired(&request.namespace, self.0.parts.clock.monotonic())?;
        let held = self.trigger(&request.namespace, path)?;
        let said = arguments(&request.body)?;
        let rules = self.rules_of(&request.namespace, &path.name);
        if !rules.iter().any(|(_, rule)| rule.entity.active) {
            return Ok(empty_answer(StatusCode::NO_CONTENT));
        }
        let id = InvocationId::now();
        let input = held.entity.common.parameters.input(said.clone());
        let results = rules.iter().map(|(rule, held)| self.fire_rule(rule, &held.entity, &input, request).to_string());
        let mut annotations = Parameters::default();
        annotations.set("path", format!("{}/{path}", request.namespace).into());
        annotations.set("kind", "trigger".into());
        let record = Record {
            id,
            namespace: request.namespace.clone(),
            name: path.name.clone(),
            version: held.entity.common.version,
            start: self.0.parts.clock.wall(),
            end: None,
            duration_ms: 0,
            cause: None,
            response: Response::success(Value::Object(said)),
            logs: results.collect(),
            annotations,
        };
        self.0.parts.activations.keep(&record);
        Ok(accepted(id))
    }

    /// The outcome of a rule, for the record of the trigger.
    fn fire_rule(&self, path: &EntityPath, rule: &Rule, input: &Map<String, Value>, request: &Request) -> Value {
        let (name, action) =
            (format!("{}/{path}", request.namespace), format!("{}/{}", request.namespace, rule.action));
        let begun = if rule.active {
            let counted = self.count_invocation(&request.namespace);
            counted.and_then(|()| self.resolve(&request.namespace, &rule.action)).and_then(|resolved| {
                let input = Input::Object(input.clone()).under(&resolved.parameters());
                let token = self.0.parts.invoke.seen(&request.who);
                self.begin_unawaited(&request.namespace, resolved, input, token)
            })
        } else {
            Err(WhiskError::bad_request(format!("Rule '{name}' is inactive, action '{action}' was not activated.")))
        };
        match begun {
            Ok(id) => json!({
                "rule": name, "action": action, "statusCode": Status::Success.code(), "success": true,
                "activationId": written(id),
            }),
            Err(error) => json!({
                "rule": name, "action": action, "statusCode": Status::ApplicationError.code(), "success": false,
                "error": error.message,
            }),
        }
    }
}
