use std::collections::BTreeSet;

use axum::http::Method;
use nigh_terms::AdminRole;

use super::super::routes::routes;
use super::*;
use crate::node::RunningNode;

fn whole() -> Value {
    let routes = routes::<RunningNode>();
    document(routes.iter().map(|route| &route.operation))
}

fn operations(document: &Value) -> Vec<(&str, &str, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap();
            methods.iter().map(move |(method, operation)| (path.as_str(), method.as_str(), operation))
        })
        .collect()
}

/// Every `$ref` below `value`.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if let ("$ref", Value::String(to)) = (name.as_str(), field) {
                    found.insert(to.clone());
                }
                references(field, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[test]
fn every_route_is_described_once_with_a_sentence_and_its_parameters() {
    let (routes, document) = (routes::<RunningNode>(), whole());
    let all = operations(&document);
    assert_eq!(all.len(), routes.len(), "two routes have one method and path");
    let ids: BTreeSet<_> = all.iter().map(|(_, _, operation)| operation["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), all.len());
    for (path, method, operation) in all {
        let summary = operation["summary"].as_str().unwrap();
        assert!(summary.len() > 10 && summary.ends_with('.'), "{method} {path}: {summary:?}");
        let parameters = operation["parameters"].as_array().unwrap();
        let named = |place: &str| -> Vec<&str> {
            parameters.iter().filter(|one| one["in"] == place).filter_map(|one| one["name"].as_str()).collect()
        };
        assert_eq!(named("path"), names_in(path).collect::<Vec<_>>(), "{method} {path}");
    }
}

#[test]
fn every_reference_leads_to_a_schema_and_every_schema_says_what_it_is() {
    let document = whole();
    let (mut found, schemas) = (BTreeSet::new(), document["components"]["schemas"].as_object().unwrap());
    references(&document, &mut found);
    assert!(found.contains("#/components/schemas/Status"), "{found:?}");
    for reference in &found {
        let name = reference.strip_prefix("#/components/schemas/").unwrap();
        assert!(schemas.contains_key(name), "{reference}");
    }
    // The standard library's types have none.
    for (name, schema) in schemas.iter().filter(|(name, _)| *name != "Duration") {
        assert!(schema["description"].is_string(), "{name} has no description");
    }
}

#[test]
fn a_query_is_described_by_the_type_that_reads_it() {
    let document = whole();
    let parameters = document["paths"]["/activations"]["get"]["parameters"].as_array().unwrap();
    let named = |name: &str| parameters.iter().find(|one| one["name"] == name).unwrap();
    assert_eq!(named("limit")["schema"]["type"], "integer");
    assert_eq!(named("errors")["schema"]["type"], "boolean");
    assert_eq!(named("limit")["required"], false);
    assert!(named("limit")["description"].is_string(), "{parameters:?}");
    let events = document["paths"]["/events"]["get"]["parameters"].as_array().unwrap();
    assert!(events.iter().any(|one| one["name"] == "namespace" && one["required"] == true), "{events:?}");
}

/// What has keys, or the data that tenants have stored.
const OF_TENANTS: [&str; 5] = [
    "/backup",
    "/events/{namespace}/{id}",
    "/functions/{namespace}/{function}/code",
    "/layers/{namespace}/{layer}/{version}/code",
    "/objects/{namespace}/{bucket}",
];

#[test]
fn reading_needs_the_role_view_and_changing_operate_as_does_reading_what_tenants_have_stored() {
    let mut of_tenants = 0;
    for route in routes::<RunningNode>() {
        let Operation { method, path, role, .. } = route.operation;
        of_tenants += usize::from(method == Method::GET && OF_TENANTS.contains(&path));
        // Whoever has any role may sign in and out.
        let reads = method == Method::GET && !OF_TENANTS.contains(&path) || path == "/session";
        assert_eq!(role, if reads { AdminRole::View } else { AdminRole::Operate }, "{method} {path}");
    }
    assert_eq!(of_tenants, OF_TENANTS.len());
}

#[test]
fn operations_have_readable_names() {
    assert_eq!(operation_id("GET", "/events/{namespace}/{id}"), "getEventsNamespaceId");
    assert_eq!(operation_id("POST", "/sign-in-links"), "postSignInLinks");
}
