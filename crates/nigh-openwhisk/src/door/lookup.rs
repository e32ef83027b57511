//! Finds an action by its name, through packages and their bindings, and collects the parameters on the way.

use std::sync::Arc;

use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_functions::action::parameters::Parameters;
use nigh_functions::function_store::DeployedFunction;
use nigh_terms::{FunctionName, Namespace};

use super::super::entities::{Package, Sequence};
use super::super::entity_store::RevisedEntity;
use super::super::error::WhiskError;
use super::OpenWhiskDoor;

/// What an action is.
#[derive(Clone)]
pub(super) enum ActionTarget {
    Function(Arc<DeployedFunction>),
    Sequence(RevisedEntity<Sequence>),
}

/// An action that was found.
#[derive(Clone)]
pub(super) struct ResolvedAction {
    pub(super) found: ActionTarget,
    /// Its path, with bindings resolved.
    pub(super) path: EntityPath,
    /// The binding that the caller named.
    pub(super) binding: Option<EntityName>,
    /// The parameters of its package and of the binding.
    pub(super) inherited: Parameters,
}

impl ResolvedAction {
    /// All parameters, to which the input of a call gives other values.
    pub(super) fn parameters(&self) -> Parameters {
        match &self.found {
            ActionTarget::Function(deployed) => match &deployed.function.action {
                Some(action) => self.inherited.with(&action.parameters),
                None => self.inherited.clone(),
            },
            ActionTarget::Sequence(_) => self.inherited.clone(),
        }
    }

    /// The annotations of the action itself.
    pub(super) fn annotations(&self) -> &Parameters {
        static NONE: std::sync::LazyLock<Parameters> = std::sync::LazyLock::new(Parameters::default);
        match &self.found {
            ActionTarget::Function(deployed) => {
                deployed.function.action.as_ref().map_or(&NONE, |action| &action.annotations)
            }
            ActionTarget::Sequence(held) => &held.entity.common.annotations,
        }
    }

    /// The parameters that callers may not set: those with a value, if the action is declared final.
    pub(super) fn fixed(&self, parameters: &Parameters) -> Vec<String> {
        if self.annotations().says("final") { parameters.defined().map(str::to_owned).collect() } else { Vec::new() }
    }
}

/// A package, and the package that it binds.
pub(super) struct PackageView {
    pub(super) own: RevisedEntity<Package>,
    pub(super) bound: Option<(EntityName, RevisedEntity<Package>)>,
}

impl PackageView {
    /// The parameters that its actions have.
    pub(super) fn parameters(&self) -> Parameters {
        match &self.bound {
            Some((_, bound)) => bound.entity.common.parameters.with(&self.own.entity.common.parameters),
            None => self.own.entity.common.parameters.clone(),
        }
    }
}

impl OpenWhiskDoor {
    /// The action at `path`, whose package is no binding.
    pub(super) fn find(&self, namespace: &Namespace, path: &EntityPath) -> Option<ActionTarget> {
        if let Some(sequence) = self.0.parts.entities.get::<Sequence>(namespace, path) {
            return Some(ActionTarget::Sequence(sequence));
        }
        let functions = &self.0.parts.functions;
        let own = functions.get(namespace, &path.function());
        if let Some(own) = own.filter(|own| own.function.action.as_ref().is_some_and(|action| action.path == *path)) {
            return Some(ActionTarget::Function(own));
        }
        // A function of the Lambda API is an action of the default package.
        let plain = FunctionName::new(path.name.as_str()).ok().filter(|_| path.package.is_none())?;
        let lambda = functions.get(namespace, &plain).filter(|lambda| lambda.function.action.is_none());
        lambda.map(ActionTarget::Function)
    }

    /// The package called `name`.
    pub(super) fn package(&self, namespace: &Namespace, name: &EntityName) -> Result<PackageView, WhiskError> {
        let get = |name: &EntityName| {
            self.0
                .parts
                .entities
                .get::<Package>(namespace, &EntityPath::plain(name.clone()))
                .ok_or_else(WhiskError::not_found)
        };
        let own = get(name)?;
        let bound = match &own.entity.binding {
            Some(bound) => Some((bound.clone(), get(bound)?)),
            None => None,
        };
        Ok(PackageView { own, bound })
    }

    /// The action at `path`, which may lead through a binding.
    pub(super) fn resolve(&self, namespace: &Namespace, path: &EntityPath) -> Result<ResolvedAction, WhiskError> {
        let (real, binding, inherited) = match &path.package {
            None => (path.clone(), None, Parameters::default()),
            Some(package) => {
                let view = self.package(namespace, package)?;
                let inherited = view.parameters();
                match view.bound {
                    None => (path.clone(), None, inherited),
                    Some((bound, _)) => {
                        let real = EntityPath { package: Some(bound), name: path.name.clone() };
                        (real, Some(package.clone()), inherited)
                    }
                }
            }
        };
        let found = self.find(namespace, &real).ok_or_else(WhiskError::not_found)?;
        Ok(ResolvedAction { found, path: real, binding, inherited })
    }
}
