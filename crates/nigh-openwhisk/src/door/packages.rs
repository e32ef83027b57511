//! Packages, and bindings of packages.

use http::StatusCode;
use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_terms::Namespace;
use serde_json::{Value, json};

use super::super::entities::Package;
use super::super::entity_store::RevisedEntity;
use super::super::error::WhiskError;
use super::super::put_shapes::{PackageShape, read};
use super::{OpenWhiskDoor, Request, WhiskResult, json_answer, shown};

/// The name of the package of actions that are in no other.
const DEFAULT: &str = "default";
/// The annotation that names the bound package; the door sets it.
const BINDING: &str = "binding";

impl OpenWhiskDoor {
    pub(super) fn packages(&self, namespace: &Namespace) -> Vec<Value> {
        let all = self.0.parts.entities.all::<Package>(namespace);
        all.iter().map(|(path, held)| shown_package(namespace, path, &held.entity, false)).collect()
    }

    fn held_package(&self, path: &EntityPath, request: &Request) -> Result<RevisedEntity<Package>, WhiskError> {
        self.0.parts.entities.get(&request.namespace, path).ok_or_else(WhiskError::not_found)
    }

    pub(super) fn get_package(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let view = self.package(&request.namespace, &path.name)?;
        let mut shown = shown_package(&request.namespace, path, &view.own.entity, true);
        shown["parameters"] = json!(view.parameters());
        let real = view.bound.as_ref().map_or(&path.name, |(bound, _)| bound);
        shown["actions"] = self.package_actions(&request.namespace, real).into();
        shown["feeds"] = json!([]);
        Ok(json_answer(StatusCode::OK, &shown))
    }

    pub(super) async fn put_package(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let overwrite = request.query.flag("overwrite", false)?;
        if path.name.as_str() == DEFAULT {
            return Err(WhiskError::bad_request(format!("Package name '{DEFAULT}' is reserved.")));
        }
        let shape: PackageShape = read(&request.body)?;
        shape.common.check()?;
        let before = self.0.parts.entities.get::<Package>(&request.namespace, path);
        if before.is_some() && !overwrite {
            return Err(WhiskError::conflicts("resource already exists"));
        }
        let old = before.as_ref().map(|held| &*held.entity);
        let asked = shape.binding(&request.namespace)?;
        if let Some(asked) = &asked {
            if old.is_some_and(|old| old.binding.is_none()) {
                return Err(WhiskError::conflicts("Resource is a package and cannot be converted into a binding."));
            }
            self.check_binding(&request.namespace, path, asked)?;
        }
        let binding = asked.or_else(|| old.and_then(|old| old.binding.clone()));
        let mut common = shape.common.apply(old.map(|old| &old.common), self.0.parts.clock.wall());
        common.annotations.remove(BINDING);
        if let Some(binding) = &binding {
            common.annotations.set(BINDING, json!({ "namespace": request.namespace, "name": binding }));
        }
        let expected = before.as_ref().map(|held| held.revision);
        let held = self.0.parts.entities.put(&request.namespace, path, Package { common, binding }, expected).await?;
        Ok(json_answer(StatusCode::OK, &shown_package(&request.namespace, path, &held.entity, true)))
    }

    fn check_binding(&self, namespace: &Namespace, path: &EntityPath, asked: &EntityName) -> Result<(), WhiskError> {
        let provider = self.0.parts.entities.get::<Package>(namespace, &EntityPath::plain(asked.clone()));
        match provider {
            None => Err(WhiskError::bad_request("Binding references a package that does not exist.")),
            Some(provider) if provider.entity.binding.is_some() || *asked == path.name => {
                Err(WhiskError::bad_request("Cannot bind to another package binding."))
            }
            Some(_) => Ok(()),
        }
    }

    pub(super) async fn delete_package(&self, path: &EntityPath, request: &Request) -> WhiskResult {
        let force = request.query.flag("force", false)?;
        let held = self.held_package(path, request)?;
        if held.entity.binding.is_none() {
            let actions = self.package_actions(&request.namespace, &path.name);
            if !actions.is_empty() && !force {
                let entities = if actions.len() == 1 { "entity" } else { "entities" };
                return Err(WhiskError::conflicts(format!(
                    "Package not empty (contains {} {entities}). Set force param or delete package contents.",
                    actions.len()
                )));
            }
            for action in actions {
                let Some(Ok(name)) = action["name"].as_str().map(EntityName::new) else { continue };
                let action = EntityPath { package: Some(path.name.clone()), name };
                if let Some(found) = self.find(&request.namespace, &action) {
                    self.remove_action(&request.namespace, &action, found).await?;
                }
            }
        }
        self.0.parts.entities.delete::<Package>(&request.namespace, path, held.revision).await?;
        Ok(json_answer(StatusCode::OK, &shown_package(&request.namespace, path, &held.entity, true)))
    }
}

fn shown_package(namespace: &Namespace, path: &EntityPath, package: &Package, is_whole: bool) -> Value {
    let mut shown = shown::common(namespace, path, &package.common, is_whole);
    shown["binding"] = match &package.binding {
        Some(binding) => json!({ "namespace": namespace, "name": binding }),
        None => json!({}),
    };
    shown
}
