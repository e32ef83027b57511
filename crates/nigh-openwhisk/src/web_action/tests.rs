use serde_json::json;

use super::*;

fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
    all.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())).collect()
}

fn input_of(kind: &str, query: &str, body: &[u8], is_raw: bool) -> Result<Value, WhiskError> {
    let headers = headers(&[("content-type", kind), ("x-a", "1")]);
    let method = Method::POST;
    let request = WebRequest { method: &method, headers: &headers, path: "/p", query, body, user: None };
    input(&request, is_raw, &["fixed"]).map(Value::Object)
}

#[test]
fn a_request_becomes_the_input_that_openwhisk_makes() {
    let json = input_of("application/json; charset=utf-8", "a=1&b=2", br#"{"b":3}"#, false).unwrap();
    assert_eq!((&json["a"], &json["b"]), (&json!("1"), &json!(3)), "the body counts before the query");
    assert_eq!((&json["__ow_method"], &json["__ow_path"]), (&json!("post"), &json!("/p")));
    assert_eq!(json["__ow_headers"]["x-a"], "1");
    assert!(json.get("__ow_body").is_none() && json.get("__ow_user").is_none());
    let form = input_of("application/x-www-form-urlencoded", "", b"a=x+y&c=%C3%BC", false).unwrap();
    assert_eq!((&form["a"], &form["c"]), (&json!("x y"), &json!("ü")));
    assert_eq!(input_of("text/plain", "", b"hi", false).unwrap()["__ow_body"], "hi");
    assert_eq!(input_of("image/png", "", b"\x89P", false).unwrap()["__ow_body"], "iVA=");
    assert_eq!(input_of("application/json", "", b"[1]", false).unwrap()["__ow_body"], json!([1]));
    let raw = input_of("application/json", "a=1", b"{}", true).unwrap();
    assert_eq!((&raw["__ow_query"], &raw["__ow_body"]), (&json!("a=1"), &json!("e30=")));
    assert_eq!(input_of("", "", b"", true).unwrap()["__ow_body"], "");
}

#[test]
fn nobody_sets_what_is_reserved_or_fixed() {
    for (query, body) in [("__ow_user=x", "{}"), ("fixed=1", "{}"), ("", r#"{"__ow_path":1}"#), ("", r#"{"fixed":1}"#)]
    {
        assert!(input_of("application/json", query, body.as_bytes(), false).is_err(), "{query} {body}");
    }
    assert!(input_of("text/plain", "__ow_body=x", b"y", false).is_err());
    assert!(input_of("application/json", "", b"{", false).is_err());
}

fn answer(extension: Extension, result: Value) -> (u16, Option<String>) {
    match response(extension, &result, false) {
        Ok(response) => (response.status().as_u16(), response.headers().get(CONTENT_TYPE).map(text)),
        Err(error) => (error.status.as_u16(), None),
    }
}

#[test]
fn an_answer_becomes_what_its_extension_says() {
    let kind = |kind: &str| Some(kind.to_owned());
    for (extension, result, expected) in [
        (Extension::Http, json!({}), (204, None)),
        (Extension::Http, json!({ "body": "hi" }), (200, kind("text/html; charset=UTF-8"))),
        (Extension::Http, json!({ "body": { "a": 1 } }), (200, kind("application/json"))),
        (Extension::Http, json!({ "statusCode": 302, "headers": { "location": "/x" } }), (302, None)),
        (Extension::Http, json!({ "statusCode": "404", "body": "" }), (404, None)),
        (
            Extension::Http,
            json!({ "headers": { "content-type": "image/png" }, "body": "iVA=" }),
            (200, kind("image/png")),
        ),
        (Extension::Http, json!({ "headers": { "content-type": "image/png" }, "body": "no base64" }), (400, None)),
        (Extension::Http, json!({ "headers": { "content-type": "text/html" }, "body": [1] }), (400, None)),
        (Extension::Http, json!({ "statusCode": 99 }), (400, None)),
        (Extension::Http, json!({ "headers": { "x": {} } }), (400, None)),
        (Extension::Http, json!([]), (400, None)),
        (Extension::Json, json!({ "a": 1 }), (200, kind("application/json"))),
        (Extension::Json, json!("a"), (400, None)),
        (Extension::Html, json!({ "html": "<p>" }), (200, kind("text/html; charset=UTF-8"))),
        (Extension::Html, json!({ "a": 1 }), (400, None)),
        (Extension::Svg, json!({ "body": "<svg/>" }), (200, kind("image/svg+xml"))),
        (Extension::Text, json!({ "text": 3 }), (200, kind("text/plain; charset=UTF-8"))),
        (Extension::Text, json!({}), (404, None)),
    ] {
        assert_eq!(answer(extension, result.clone()), expected, "{extension:?} {result}");
    }
    let failed = response(Extension::Http, &json!({ "error": { "statusCode": 418, "body": "pot" } }), true).unwrap();
    assert_eq!(failed.status().as_u16(), 418);
    assert_eq!(Extension::split("a.json"), ("a", Extension::Json));
    assert_eq!(Extension::split("a.py"), ("a.py", Extension::Http));
}

#[test]
fn a_guarded_action_wants_its_secret_or_a_key() {
    let annotations = |value: Value| {
        let mut all = Parameters::default();
        all.set(GUARDED, value);
        all
    };
    let (shown, method) = (headers(&[("x-require-whisk-auth", "secret")]), Method::GET);
    let open = HeaderMap::new();
    let may = |value: Value, headers: &HeaderMap, user: Option<&str>| {
        let request = WebRequest { method: &method, headers, path: "", query: "", body: b"", user };
        may_call(&annotations(value), &request)
    };
    assert!(
        may(json!("secret"), &shown, None) && !may(json!("other"), &shown, None) && !may(json!("secret"), &open, None)
    );
    assert!(
        may(json!(true), &open, Some("tenant")) && !may(json!(true), &open, None) && may(json!(false), &open, None)
    );
    assert!(!may(json!({}), &shown, Some("tenant")));
}
