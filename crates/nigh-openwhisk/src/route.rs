//! Finds the resource of a path; the door decides what a request may do with it. Pure.

use http::Method;
use nigh_engine::Action;
use nigh_functions::action::names::{EntityName, EntityPath};
use nigh_terms::FunctionName;
use percent_encoding::percent_decode_str;

use super::error::WhiskError;

/// The path of the API.
pub const ROOT: &str = "/api/v1";

/// The resource of a path. A namespace is `_` or a name, as in the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// The API itself.
    Root,
    Namespaces,
    Namespace(String),
    Limits(String),
    /// A whole collection.
    All(String, Collection),
    One(String, Collection, EntityPath),
    /// The actions of a package.
    Packaged(String, EntityName),
    Activations(String),
    Activation(String, String, Part),
    Web(Web),
}

/// Entities of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Collection {
    Actions,
    Triggers,
    Rules,
    Packages,
}

impl Collection {
    /// The name in paths.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Actions => "actions",
            Self::Triggers => "triggers",
            Self::Rules => "rules",
            Self::Packages => "packages",
        }
    }

    fn of(text: &str) -> Option<Self> {
        [Self::Actions, Self::Triggers, Self::Rules, Self::Packages].into_iter().find(|one| one.name() == text)
    }
}

/// The part of an activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Record,
    Logs,
    Result,
}

/// A call of a web action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Web {
    pub(super) namespace: String,
    /// None for the default package.
    pub(super) package: Option<EntityName>,
    /// The name with its extension.
    pub(super) action: String,
    /// The rest of the path, as received.
    pub(super) rest: String,
}

impl Route {
    /// The function of an action's path.
    pub(super) fn function(&self) -> Option<FunctionName> {
        match self {
            Self::One(_, Collection::Actions, path) => Some(path.function()),
            _ => None,
        }
    }

    /// What a request is about to do, for the check of its key's scope; `function` is the path's.
    pub(super) fn action<'a>(&self, method: &Method, function: Option<&'a FunctionName>) -> Action<'a> {
        let function = function.map(FunctionName::as_str);
        match (function, method.as_str()) {
            (Some(function), "POST") => Action::Invoke(function),
            (Some(function), "GET") => Action::ReadFunction(function),
            (None, "GET" | "HEAD") => Action::Read,
            _ => Action::Change,
        }
    }

    /// Whether `path` belongs to this API.
    pub(super) fn is_ours(path: &str) -> bool {
        path.strip_prefix(ROOT).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The resource of `path`.
    pub(super) fn of(path: &str) -> Result<Self, WhiskError> {
        let rest = path.strip_prefix(ROOT).ok_or_else(WhiskError::not_found)?;
        let rest = rest.strip_prefix('/').unwrap_or(rest);
        if let Some(web) = rest.strip_prefix("web/") {
            return web_action(web);
        }
        // A slash at the end has a meaning only behind a package.
        let (rest, ends_open) = rest.strip_suffix('/').map_or((rest, false), |rest| (rest, true));
        let segments: Vec<String> = rest.split('/').map(decoded).collect::<Result<_, _>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let route = match segments.as_slice() {
            [""] => Self::Root,
            ["namespaces"] => Self::Namespaces,
            ["namespaces", namespace] => Self::Namespace((*namespace).to_owned()),
            ["namespaces", namespace, "limits"] => Self::Limits((*namespace).to_owned()),
            ["namespaces", namespace, "activations"] => Self::Activations((*namespace).to_owned()),
            ["namespaces", namespace, "activations", id] => activation(namespace, id, Part::Record),
            ["namespaces", namespace, "activations", id, "logs"] => activation(namespace, id, Part::Logs),
            ["namespaces", namespace, "activations", id, "result"] => activation(namespace, id, Part::Result),
            ["namespaces", namespace, "actions", package] if ends_open => {
                Self::Packaged((*namespace).to_owned(), EntityName::new(package)?)
            }
            ["namespaces", namespace, "actions", package, name] => {
                let path = EntityPath { package: Some(EntityName::new(package)?), name: EntityName::new(name)? };
                Self::One((*namespace).to_owned(), Collection::Actions, path)
            }
            ["namespaces", namespace, collection] => {
                let collection = Collection::of(collection).ok_or_else(WhiskError::not_found)?;
                Self::All((*namespace).to_owned(), collection)
            }
            ["namespaces", namespace, collection, name] => {
                let collection = Collection::of(collection).ok_or_else(WhiskError::not_found)?;
                Self::One((*namespace).to_owned(), collection, EntityPath::plain(EntityName::new(name)?))
            }
            _ => return Err(WhiskError::not_found()),
        };
        Ok(route)
    }

    /// Its name in metrics.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Root => "api",
            Self::Namespaces | Self::Namespace(_) | Self::Limits(_) => "namespaces",
            Self::All(_, collection) | Self::One(_, collection, _) => collection.name(),
            Self::Packaged(..) => "actions",
            Self::Activations(_) | Self::Activation(..) => "activations",
            Self::Web(_) => "web",
        }
    }
}

fn activation(namespace: &str, id: &str, part: Part) -> Route {
    Route::Activation(namespace.to_owned(), id.to_owned(), part)
}

/// `NAMESPACE/PACKAGE/ACTION[.EXTENSION][/REST]`
fn web_action(path: &str) -> Result<Route, WhiskError> {
    let mut parts = path.splitn(4, '/');
    let mut next = || parts.next().filter(|part| !part.is_empty()).ok_or_else(WhiskError::not_found).and_then(decoded);
    let (namespace, package, action) = (next()?, next()?, next()?);
    let package = match package.as_str() {
        "default" => None,
        other => Some(EntityName::new(other)?),
    };
    let rest = parts.next().map(|rest| format!("/{rest}")).unwrap_or_default();
    Ok(Route::Web(Web { namespace, package, action, rest }))
}

fn decoded(segment: &str) -> Result<String, WhiskError> {
    let text = percent_decode_str(segment).decode_utf8();
    text.map(|text| text.into_owned()).map_err(|_| WhiskError::bad_request("the path is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_the_clients_lead_to_their_resources() {
        let one = |collection, path: &str| Route::One("_".to_owned(), collection, path.parse().unwrap());
        for (path, route) in [
            ("", Route::Root),
            ("/namespaces", Route::Namespaces),
            ("/namespaces/_/limits", Route::Limits("_".to_owned())),
            ("/namespaces/_/actions", Route::All("_".to_owned(), Collection::Actions)),
            ("/namespaces/_/actions/a", one(Collection::Actions, "a")),
            ("/namespaces/_/actions/p/a%20b", one(Collection::Actions, "p/a b")),
            ("/namespaces/_/rules/r", one(Collection::Rules, "r")),
            ("/namespaces/_/actions/p/", Route::Packaged("_".to_owned(), EntityName::new("p").unwrap())),
            ("/namespaces/g/activations/1/logs", Route::Activation("g".to_owned(), "1".to_owned(), Part::Logs)),
        ] {
            assert_eq!(Route::of(&format!("{ROOT}{path}")), Ok(route), "{path}");
        }
        let web = Route::of("/api/v1/web/guest/default/hello.json/a%20b/c").unwrap();
        let (namespace, action, rest) = ("guest".to_owned(), "hello.json".to_owned(), "/a%20b/c".to_owned());
        assert_eq!(web, Route::Web(Web { namespace, package: None, action, rest }));
    }

    #[test]
    fn a_request_is_an_invocation_a_read_or_a_change() {
        let of = |method: Method, path: &str| {
            let route = Route::of(&format!("{ROOT}{path}")).unwrap();
            route.action(&method, route.function().as_ref()).to_string()
        };
        assert_eq!(of(Method::POST, "/namespaces/_/actions/hello"), "invoke hello");
        assert_eq!(of(Method::GET, "/namespaces/_/actions/hello"), "read function hello");
        assert_eq!(of(Method::PUT, "/namespaces/_/actions/hello"), Action::Change.to_string());
        assert_eq!(of(Method::GET, "/namespaces/_/actions"), Action::Read.to_string());
        assert_eq!(of(Method::POST, "/namespaces/_/triggers/t"), Action::Change.to_string());
    }

    #[test]
    fn what_is_no_resource_is_not_found_or_malformed() {
        for (path, status) in [
            ("/namespaces/_/things", 404),
            ("/namespaces/_/triggers/p/t", 404),
            ("/namespaces/_/actions/p/a/b", 404),
            ("/namespaces/_/actions/-a", 400),
            ("/namespaces/_/actions/%ff", 400),
            ("/web/guest/default", 404),
            ("/web/guest//a", 404),
        ] {
            assert_eq!(Route::of(&format!("{ROOT}{path}")).unwrap_err().status.as_u16(), status, "{path}");
        }
        assert!(!Route::is_ours("/api/v10") && !Route::is_ours("/2015-03-31/functions") && Route::is_ours(ROOT));
    }
}
