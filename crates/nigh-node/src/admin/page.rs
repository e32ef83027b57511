//! What is not in the API: the page's files, and a word for those who use the paths of before `/v1`.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::VERSION;

/// Answers a request for a path outside of the API, whose paths below `/v1` are `known`.
pub(super) fn elsewhere(method: &Method, uri: &Uri, headers: &HeaderMap, known: &[&str]) -> Response {
    let path = uri.path();
    if matches!(*method, Method::GET | Method::HEAD)
        && let Some(file) = file_at(path, headers)
    {
        return file;
    }
    (StatusCode::NOT_FOUND, no_such_path(path, known)).into_response()
}

/// The page's file at `path`.
fn file_at(path: &str, headers: &HeaderMap) -> Option<Response> {
    let file = nigh_page::asset(path)?;
    let tag = HeaderValue::from_static(file.etag);
    // The browser asks each time whether its copy is the newest, so that an update shows at once.
    let caching = [(header::ETAG, tag.clone()), (header::CACHE_CONTROL, HeaderValue::from_static("no-cache"))];
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| *known == tag) {
        return Some((StatusCode::NOT_MODIFIED, caching).into_response());
    }
    let kind = HeaderValue::from_static(file.content_type);
    let content = [(header::CONTENT_TYPE, kind), (header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))];
    Some((caching, content, Bytes::from_static(file.bytes_gzip)).into_response())
}

fn no_such_path(path: &str, known: &[&str]) -> String {
    if known.iter().any(|template| matches_template(template, path)) {
        return format!("{path} is {VERSION}{path} now\n");
    }
    format!("the admin API has no such path; GET {VERSION}/openapi.json lists its paths\n")
}

/// True if `path` is one of `template`, whose parts in braces stand for any name.
fn matches_template(template: &str, path: &str) -> bool {
    let (mut parts, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (parts.next(), given.next()) {
            (None, None) => return true,
            (Some(part), Some(one)) if part == one || part.starts_with('{') && !one.is_empty() => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 3] = ["/status", "/events/{namespace}/{id}", "/events"];

    #[test]
    fn an_old_path_is_told_where_it_is_now() {
        assert_eq!(no_such_path("/status", &KNOWN), "/status is /v1/status now\n");
        assert_eq!(no_such_path("/events/default/1", &KNOWN), "/events/default/1 is /v1/events/default/1 now\n");
        for other in ["/stat", "/events/", "/events/default/1/2", "/v1/status2"] {
            assert!(no_such_path(other, &KNOWN).contains("openapi.json"), "{other}");
        }
    }

    #[test]
    fn a_file_that_the_browser_has_is_not_sent_again() {
        let mut headers = HeaderMap::new();
        let Some(first) = file_at("/", &headers) else { panic!("the page is part of the build") };
        assert_eq!(first.headers()[header::CONTENT_ENCODING], "gzip");
        headers.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(file_at("/", &headers).map(|file| file.status()), Some(StatusCode::NOT_MODIFIED));
        assert!(file_at("/no-such-file.js", &headers).is_none());
    }
}
