//! Requests that were sent to this door by mistake: of the query protocol (STS, IAM, CloudFormation and others) and of S3.
//!
//! Their clients read XML, so that they would report a broken answer instead of the Lambda door's JSON. Nothing is checked
//! or done here.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use crate::response::LambdaResponse;

const FORM: &str = "application/x-www-form-urlencoded";
const XML: HeaderValue = HeaderValue::from_static("text/xml");
/// How a signature's scope ends for S3, in a header and in a query.
const S3_SCOPES: [&str; 2] = ["/s3/aws4_request", "%2Fs3%2Faws4_request"];
/// AWS Query API: `ErrorResponse`.
const NO_ACTION: &str = "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidAction</Code><Message>this is Nigh's \
    Lambda door, which has no actions of STS, IAM, CloudFormation and the like; unset AWS_ENDPOINT_URL and set \
    AWS_ENDPOINT_URL_LAMBDA, AWS_ENDPOINT_URL_SFN, AWS_ENDPOINT_URL_SCHEDULER and AWS_ENDPOINT_URL_S3</Message></Error></ErrorResponse>";
/// S3's code for a signature of another service.
const NO_S3: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>AuthorizationHeaderMalformed</Code>\
    <Message>the request is signed for S3, and this is Nigh's Lambda door; set AWS_ENDPOINT_URL_S3 to the S3 door \
    (setting s3.listen)</Message></Error>";

/// The answer to a request that is no operation of this door, in the form that its client reads; none if that is JSON.
pub(super) fn answer(head: &Parts) -> Option<LambdaResponse> {
    let text = |name| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let signed = [text(AUTHORIZATION), head.uri.query().unwrap_or_default()];
    let is_s3 = S3_SCOPES.iter().any(|scope| signed.iter().any(|text| text.contains(scope)));
    let is_form = text(CONTENT_TYPE).split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case(FORM));
    let document = if is_s3 {
        NO_S3
    } else if head.method == Method::POST && is_form {
        NO_ACTION
    } else {
        return None;
    };
    let mut answer = Response::new(Full::new(Bytes::from_static(document.as_bytes())));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    answer.headers_mut().insert(CONTENT_TYPE, XML);
    Some(answer)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn status(method: &str, target: &str, header: (&str, &str)) -> Option<StatusCode> {
        let request = Request::builder().method(method).uri(target).header(header.0, header.1).body(()).unwrap();
        answer(&request.into_parts().0).map(|answer| answer.status())
    }

    #[test]
    fn clients_that_read_xml_are_told_from_those_that_read_json() {
        let bad = Some(StatusCode::BAD_REQUEST);
        let scope = |service: &str| format!("AWS4-HMAC-SHA256 Credential=K/20260101/r/{service}/aws4_request, a=b");
        let none = ("accept", "*/*");
        assert_eq!(status("POST", "/", ("content-type", "application/x-www-form-urlencoded")), bad);
        let with_charset = ("content-type", "Application/X-WWW-Form-URLencoded; charset=utf-8");
        assert_eq!(status("POST", "/", with_charset), bad);
        assert_eq!(status("GET", "/bucket/key", ("authorization", &scope("s3"))), bad);
        let presigned = "/bucket/key?X-Amz-Credential=K%2F20260101%2Fr%2Fs3%2Faws4_request";
        assert_eq!(status("GET", presigned, none), bad);
        for (method, target, header) in [
            ("GET", "/nothing", none),
            ("POST", "/", ("content-type", "application/x-amz-json-1.0")),
            ("POST", "/", ("authorization", &*scope("lambda"))),
        ] {
            assert_eq!(status(method, target, header), None, "{method} {target} {header:?}");
        }
    }
}
