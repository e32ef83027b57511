//! Parses requests and answers for the fuzz target `openwhisk`.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_invoke::invocation::{InvocationResult, RunTimes};
use nigh_terms::{InvocationId, Namespace, Token};

use super::credentials::Credentials;
use super::put_shapes::{self, ActionShape, PackageShape, RuleShape};
use super::query::Query;
use super::response::{Response, Status};
use super::route::Route;
use super::web_action::{Extension, WebRequest, input, response};

/// Parses any request. Nothing may panic, and a rejected request has an error status.
pub fn read_request(path: &str, query: &str, headers: &HeaderMap, body: &[u8]) {
    if let Err(error) = Route::of(path) {
        assert!(error.status.is_client_error(), "{error:?}");
    }
    let parsed = Query::of(query);
    let _ = (parsed.flag("blocking", false), parsed.wait(), parsed.page("actions"), parsed.date("since"));
    let _ = Credentials::of(headers);
    let Ok(namespace) = Namespace::new("tenant") else { return };
    if let Ok(action) = put_shapes::read::<ActionShape>(body) {
        let _ = action.common.check();
        let catalog = RuntimeCatalog::new([11]).with_nodes([20]).with_native();
        let _ = action.exec.map(|exec| exec.read(&namespace, &catalog).map(drop));
        let _ = action.common.parameters.as_ref().map(put_shapes::environment);
    }
    let _ = put_shapes::read::<PackageShape>(body).and_then(|package| package.binding(&namespace));
    let _ = put_shapes::read::<RuleShape>(body).and_then(|rule| rule.ends(&namespace));
    for is_raw in [false, true] {
        let request = WebRequest { method: &Method::POST, headers, path, query, body, user: None };
        if let Ok(input) = input(&request, is_raw, &["fixed"]) {
            assert_eq!(input.get("__ow_method").and_then(|method| method.as_str()), Some("post"));
            assert!(!input.contains_key("__ow_user"), "nobody says who asks but the door");
        }
    }
}

/// Parses any answer in all the ways that the API does.
pub fn read_answer(payload: &[u8], failed: bool) {
    let invoked = InvocationResult {
        id: InvocationId::now(),
        payload: Bytes::copy_from_slice(payload),
        function_error: failed.then_some("Unhandled"),
        log: Vec::new(),
        run: RunTimes::default(),
        token: Token::empty(),
        touched: Vec::new(),
    };
    let answer = Response::of_run(&invoked, Duration::from_secs(1), true);
    assert!(answer.status != Status::Success || answer.result.get("error").is_none());
    for extension in [Extension::Http, Extension::Json, Extension::Html, Extension::Svg, Extension::Text] {
        if let Ok(response) = response(extension, &answer.result, answer.status != Status::Success) {
            assert!(!response.status().is_informational() && !response.headers().contains_key("transfer-encoding"));
        }
    }
}
