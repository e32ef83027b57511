//! Functions that invoke others and start executions, from within their sandboxes.

use std::fs;

use serde_json::{Value, json};

use crate::platform::{Node, python};

/// Does what its event says, with the environment that any function has.
const CALLER: &str = r#"
import json
import os
import urllib.request
import urllib.error

import boto3
from botocore.exceptions import ClientError

functions = boto3.client("lambda")
s3 = boto3.client("s3")


def ask(call, **arguments):
    try:
        return call(**arguments)
    except ClientError as error:
        return {"refused": error.response["Error"]["Code"]}


def handler(event, context):
    if "write" in event:
        s3.put_object(Bucket="data", Key="message", Body=event["write"].encode())
    if "list" in event:
        return ask(functions.list_functions)
    if "key" in event:
        identity, secret = event["key"]
        other = boto3.client("lambda", aws_access_key_id=identity, aws_secret_access_key=secret)
        return ask(other.invoke, FunctionName="callee", Payload=b"{}")
    if "machine" in event:
        started = ask(boto3.client("stepfunctions").start_execution, stateMachineArn=event["machine"])
        return started.get("refused", "started")
    if "url" in event:
        scope = "AWS4-HMAC-SHA256 Credential=x/20260101/r/lambda/aws4_request, SignedHeaders=host, Signature=" + "0" * 64
        request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL_LAMBDA"] + event["url"])
        request.add_header("Authorization", scope)
        try:
            return urllib.request.urlopen(request).status
        except urllib.error.HTTPError as error:
            return error.code
    how = event.get("how", "RequestResponse")
    answer = ask(functions.invoke, FunctionName="callee", InvocationType=how, Payload=json.dumps(event).encode())
    return answer if "refused" in answer else json.loads(answer["Payload"].read() or b"null")
"#;

const CALLEE: &str = r#"
import boto3

s3 = boto3.client("s3")


def handler(event, context):
    return {"read": s3.get_object(Bucket="data", Key="message")["Body"].read().decode()}
"#;

#[test]
fn a_function_invokes_another_by_boto3_as_it_is_and_with_its_own_key_only() {
    let test = "a_function_invokes_another_by_boto3_as_it_is_and_with_its_own_key_only";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    node.ok(["objects", "mb", "nigh://data"]);
    node.deploy_code("caller", CALLER, "256MiB");
    node.deploy_code("callee", CALLEE, "256MiB");
    let call = |event: Value| node.json(["invoke", "caller", &event.to_string()])["payload"].clone();
    // What the caller wrote just before is what the other reads.
    for text in ["first", "second"] {
        assert_eq!(call(json!({ "write": text })), json!({ "read": text }));
    }
    assert_eq!(call(json!({ "how": "Event" })), Value::Null);

    assert_eq!(call(json!({ "list": true })), json!({ "refused": "AccessDeniedException" }));
    let environment = node.sdk_environment();
    let of = |name: &str| environment.iter().find(|(found, _)| found == name).unwrap().1.clone();
    let key = json!({ "key": [of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY")] });
    assert_eq!(call(key), json!({ "refused": "UnrecognizedClientException" }), "a client's key, within a sandbox");
    // Nothing that needs no key is there either.
    node.ok(["deploy", "callee", "--url", "public"]);
    let url = node.json(["functions", "show", "callee"])["FunctionUrl"].as_str().unwrap().to_owned();
    let id = url.split("//").nth(1).unwrap().split('.').next().unwrap();
    assert_eq!(call(json!({ "url": format!("/lambda-url/{id}/") })), json!(403), "{url}");
}

#[test]
fn a_function_starts_an_execution_by_boto3_as_it_is() {
    let Some(python) = python("a_function_starts_an_execution_by_boto3_as_it_is") else { return };
    let node = Node::start(&python);
    node.deploy_code("caller", CALLER, "256MiB");
    let definition = node.state.with_file_name("pass.json");
    fs::write(&definition, r#"{"StartAt": "A", "States": {"A": {"Type": "Pass", "End": true}}}"#).unwrap();
    let made = node.json(["workflow", "create", "steps", definition.to_str().unwrap()]);
    let event = json!({ "machine": made["stateMachineArn"] });
    assert_eq!(node.json(["invoke", "caller", &event.to_string()])["payload"], json!("started"));
    let listed = node.json(["workflow", "list", "steps"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
}
