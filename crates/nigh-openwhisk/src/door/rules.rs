//! Rules: which action a trigger has invoked, and whether it does now.

use http::StatusCode;
use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_terms::Namespace;
use serde_json::Value;

use super::super::entities::{Rule, Trigger};
use super::super::entity_store::RevisedEntity;
use super::super::error::WhiskError;
use super::super::put_shapes::{RuleShape, StatusShape, read};
use super::{OpenWhiskDoor, Request, WhiskResult, empty_answer, json_answer, shown};

impl OpenWhiskDoor {
    pub(super) fn rules(&self, namespace: &Namespace) -> Vec<Value> {
        let all = self.0.parts.entities.all::<Rule>(namespace);
        all.iter().map(|(path, held)| shown::rule(namespace, path, &held.entity)).collect()
    }

    fn rule(&self, path: &EntityPath, request: &Request) -> Result<RevisedEntity<Rule>, WhiskError> {
        self.0.parts.entities.get(&request.namespace, path).ok_or_else(WhiskError::not_found)
    }

    pub(super) fn get_rule(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let held = self.rule(path, request)?;
        Ok(json_answer(StatusCode::OK, &shown::rule(&request.namespace, path, &held.entity)))
    }

    pub(super) async fn put_rule(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let overwrite = request.query.flag("overwrite", false)?;
        let shape: RuleShape = read(&request.body)?;
        shape.common.check()?;
        let (trigger, action) = shape.ends(&request.namespace)?;
        let before = self.0.parts.entities.get::<Rule>(&request.namespace, path);
        if before.is_some() && !overwrite {
            return Err(WhiskError::conflicts("resource already exists"));
        }
        let old = before.as_ref().map(|held| &*held.entity);
        let trigger = trigger.or_else(|| old.map(|old| old.trigger.clone()));
        let action = action.or_else(|| old.map(|old| old.action.clone()));
        let (Some(trigger), Some(action)) = (trigger, action) else {
            return Err(WhiskError::bad_request("rule requires a valid trigger and a valid action"));
        };
        self.check_ends(&request.namespace, &trigger, &action)?;
        let rule = Rule {
            common: shape.common.apply(old.map(|old| &old.common), self.0.parts.clock.wall()),
            // A new rule is active, a changed one stays what it was.
            active: old.is_none_or(|old| old.active),
            trigger,
            action,
        };
        let expected = before.as_ref().map(|held| held.revision);
        let held = self.0.parts.entities.put(&request.namespace, path, rule, expected).await?;
        Ok(json_answer(StatusCode::OK, &shown::rule(&request.namespace, path, &held.entity)))
    }

    fn check_ends(&self, namespace: &Namespace, trigger: &EntityName, action: &EntityPath) -> Result<(), WhiskError> {
        if self.0.parts.entities.get::<Trigger>(namespace, &EntityPath::plain(trigger.clone())).is_none() {
            return Err(WhiskError::bad_request(format!("trigger /{namespace}/{trigger} does not exist")));
        }
        if self.resolve(namespace, action).is_err() {
            return Err(WhiskError::bad_request(format!(
                "action {} does not exist",
                shown::qualified(namespace, action)
            )));
        }
        Ok(())
    }

    /// Makes a rule active or inactive.
    pub(super) async fn set_rule(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let StatusShape { status } = read(&request.body)?;
        let active = match status.as_str() {
            "active" => true,
            "inactive" => false,
            _ => {
                return Err(WhiskError::bad_request("The request content was malformed: status is active or inactive"));
            }
        };
        let held = self.rule(path, request)?;
        let trigger = EntityPath::plain(held.entity.trigger.clone());
        if self.0.parts.entities.get::<Trigger>(&request.namespace, &trigger).is_none() {
            return Err(WhiskError::absent("Only rules with existing triggers can be activated"));
        }
        if held.entity.active != active {
            let changed = Rule { active, ..(*held.entity).clone() };
            self.0.parts.entities.put(&request.namespace, path, changed, Some(held.revision)).await?;
        }
        Ok(empty_answer(StatusCode::OK))
    }

    pub(super) async fn delete_rule(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let held = self.rule(path, request)?;
        self.0.parts.entities.delete::<Rule>(&request.namespace, path, held.revision).await?;
        let gone = Rule { active: false, ..(*held.entity).clone() };
        Ok(json_answer(StatusCode::OK, &shown::rule(&request.namespace, path, &gone)))
    }
}
