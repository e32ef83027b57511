//! The audit trail of a whole node: who did what, in CloudTrail's words; and that secrets are in no output of a node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::platform::{Node, python};

/// A handler that reads an object, and says the secret of its sandbox to its caller.
const TELLS_ITS_SECRET: &str = r#"
import os
import boto3

s3 = boto3.client("s3")

def handler(event, context):
    s3.get_object(Bucket="data", Key="a")["Body"].read()
    if "fail" in event:
        raise ValueError("on purpose")
    return os.environ["AWS_SECRET_ACCESS_KEY"]
"#;

/// A node with an audit trail, and the trail's file.
fn audited(python: &Path, more: &[&str]) -> (Node, PathBuf, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.log");
    let setting = format!("audit.file={}", file.display());
    let flags = [&["--set", setting.as_str()][..], more].concat();
    (Node::start_with(python, &flags), file, folder)
}

/// The events in the file, once the last of them is `last`, which is asked for last.
fn events(file: &Path, last: &str) -> Vec<Value> {
    let read = || -> Vec<Value> {
        let text = fs::read_to_string(file).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    crate::platform::wait_for("the trail to be written", || read().iter().any(|event| event["eventName"] == last));
    read()
}

fn one<'a>(events: &'a [Value], name: &str) -> &'a Value {
    events.iter().find(|event| event["eventName"] == name).unwrap_or_else(|| panic!("{name}: {events:#?}"))
}

/// Asks for the actions of OpenWhisk's API.
fn list_actions(node: &Node, user: &str) {
    let actions = format!("{}/api/v1/namespaces/_/actions", node.endpoints()["lambda"].as_str().unwrap());
    let asked = Command::new("curl").args(["--silent", "--output", "/dev/null", "--user", user, &actions]).status();
    assert!(asked.unwrap().success());
}

/// Does something at each door.
fn use_each_door(node: &Node) {
    let file = node.state.join("endpoints.json");
    node.ok(["objects", "mb", "nigh://data"]);
    node.ok(["objects", "cp", file.to_str().unwrap(), "nigh://data/a"]);
    assert!(!node.nigh(["objects", "cat", "nigh://data/none"]).status.success());
    node.ok(["objects", "policy", "nigh://data", "--mode", "through"]);
    node.deploy_code("f", TELLS_ITS_SECRET, "256MiB");
    node.ok(["invoke", "f", "{}"]);
    list_actions(node, node.ok(["openwhisk", "auth"]).trim());
}

#[test]
fn who_manages_a_node_is_in_its_audit_trail_and_data_events_are_not_unless_they_are_chosen() {
    let test = "who_manages_a_node_is_in_its_audit_trail_and_data_events_are_not_unless_they_are_chosen";
    let Some(python) = python(test) else { return };
    let (node, file, _folder) = audited(&python, &[]);
    use_each_door(&node);
    let events = events(&file, "ListActions");
    let key = node.sdk_environment().into_iter().find(|(name, _)| name == "AWS_ACCESS_KEY_ID").unwrap().1;

    let bucket = one(&events, "CreateBucket");
    assert_eq!((&bucket["eventSource"], &bucket["readOnly"]), (&"s3.amazonaws.com".into(), &false.into()));
    assert_eq!(bucket["requestParameters"], json!({ "bucketName": "data" }));
    assert_eq!(bucket["userIdentity"]["accessKeyId"], key.as_str());
    assert_eq!(bucket["userIdentity"]["userName"], "default");
    assert_eq!(bucket["requestID"].as_str().unwrap().len(), 16);
    let function = one(&events, "CreateFunction");
    assert_eq!(function["eventSource"], "lambda.amazonaws.com");
    assert_eq!(function["responseElements"]["functionName"], "f");
    assert_eq!(function["additionalEventData"]["namespace"], "default");
    let actions = one(&events, "ListActions");
    assert_eq!((&actions["eventSource"], &actions["readOnly"]), (&"openwhisk.nigh".into(), &true.into()));
    assert_eq!(actions["userIdentity"]["accessKeyId"], key.as_str());
    let policy = events.iter().find(|event| event["eventSource"] == "admin.nigh").unwrap();
    assert!(policy["requestParameters"]["path"].as_str().unwrap().ends_with("/buckets/default/data/policy"));
    assert_eq!(policy["userIdentity"]["type"], "LocalUser");
    assert_eq!(policy["userIdentity"]["principalId"], format!("uid:{}", rustix::process::geteuid().as_raw()));
    assert!(events.iter().all(|event| event["managementEvent"] == true), "{events:#?}");

    // As logrotate does it.
    let rotated = file.with_extension("1");
    fs::rename(&file, &rotated).unwrap();
    let id = Pid::from_raw(node.process_id().cast_signed()).unwrap();
    kill_process(id, Signal::USR1).unwrap();
    crate::platform::wait_for("the new file", || file.exists());
    list_actions(&node, node.ok(["openwhisk", "auth"]).trim());
    assert_eq!(self::events(&file, "ListActions").len(), 1);
    let before = fs::read_to_string(&rotated).unwrap();
    assert_eq!(before.lines().filter(|line| line.contains("\"ListActions\"")).count(), 1);
}

#[test]
fn data_events_name_the_object_the_invocation_and_the_error() {
    let Some(python) = python("data_events_name_the_object_the_invocation_and_the_error") else { return };
    let (node, file, _folder) = audited(&python, &["--set", "audit.data=true"]);
    use_each_door(&node);
    // Somebody who names a key and does not have its secret.
    let key = node.sdk_environment().into_iter().find(|(name, _)| name == "AWS_ACCESS_KEY_ID").unwrap().1;
    list_actions(&node, &format!("{key}:wrong"));
    node.ok(["objects", "mb", "nigh://last"]);
    crate::platform::wait_for("the last event", || {
        events(&file, "CreateBucket").iter().any(|event| event["requestParameters"]["bucketName"] == "last")
    });
    let events = events(&file, "CreateBucket");

    let put = one(&events, "PutObject");
    assert_eq!(put["requestParameters"], json!({ "bucketName": "data", "key": "a" }));
    assert_eq!((&put["eventCategory"], &put["managementEvent"]), (&"Data".into(), &false.into()));
    let failed = events.iter().find(|event| event["requestParameters"]["key"] == "none").unwrap();
    assert!(["NoSuchKey", "Not Found"].contains(&failed["errorCode"].as_str().unwrap()), "{failed:#}");
    assert_eq!(one(&events, "Invoke")["requestParameters"]["functionName"], "f");
    // The function's read, whichever way it went.
    let inside = events.iter().find(|event| event["userIdentity"]["type"] == "AssumedRole").unwrap();
    assert_eq!((&inside["eventName"], &inside["requestParameters"]["key"]), (&"GetObject".into(), &"a".into()));
    assert!(inside["userIdentity"]["arn"].as_str().unwrap().ends_with(":assumed-role/default/f"), "{inside:#}");
    assert!(inside["additionalEventData"]["invocation"].is_string(), "{inside:#}");
    let stranger = events.iter().find(|event| event["additionalEventData"]["httpStatus"] == 401).unwrap();
    assert_eq!(stranger["userIdentity"], json!({ "type": "Unknown", "accessKeyId": key }));
    assert_eq!(stranger["errorCode"], "Unauthorized");
    for event in &events {
        let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
        assert!(text("eventTime").ends_with('Z') && text("eventID").len() == 36, "{event:#}");
        assert!(!text("eventName").is_empty() && !text("awsRegion").is_empty(), "{event:#}");
    }
}

#[test]
fn whoever_signed_in_by_a_link_is_named_by_who_made_the_link() {
    let (node, file, folder) = audited(Path::new("/bin/false"), &[]);
    let curl = |arguments: &[&str]| {
        let asked = Command::new("curl").args(["--silent", "--show-error", "--fail"]).args(arguments).output().unwrap();
        assert!(asked.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&asked.stderr));
        String::from_utf8(asked.stdout).unwrap()
    };
    let own = ["--header", "sec-fetch-site: same-origin"];
    let link = node.ok(["page"]);
    let door = link.split("/sign-in").next().unwrap().to_owned();
    let jar = folder.path().join("cookies");
    let reloads = |link: &str| {
        curl(&["--cookie-jar", jar.to_str().unwrap(), link]);
        let url = format!("{door}/v1/reload");
        curl(&[&["--cookie", jar.to_str().unwrap(), "--request", "POST"][..], &own, &[url.as_str()]].concat());
    };
    reloads(link.trim());
    let made = node.json(["keys", "create", "--name", "operator", "--role", "operate"]);
    let (key, secret) = (made["key"]["id"].as_str().unwrap(), made["secret"].as_str().unwrap());
    let (user, links) = (format!("{key}:{secret}"), format!("{door}/v1/sign-in-links"));
    let link: Value = serde_json::from_str(&curl(&["--user", &user, "--request", "POST", &links])).unwrap();
    reloads(link["url"].as_str().unwrap());
    node.ok(["objects", "mb", "nigh://last"]);

    let events = events(&file, "CreateBucket");
    let of_links = events.iter().filter(|event| event["requestParameters"]["path"] == "/v1/reload");
    let issuers: Vec<&Value> = of_links
        .map(|event| {
            assert_eq!(event["userIdentity"]["type"], "SignInLink", "{event:#}");
            &event["userIdentity"]["sessionContext"]["sessionIssuer"]
        })
        .collect();
    assert_eq!(issuers.len(), 2, "{events:#?}");
    assert_eq!(issuers[0]["principalId"], format!("uid:{}", rustix::process::geteuid().as_raw()));
    assert_eq!(issuers[1]["accessKeyId"], key);
    // What was made is named, and its secret is not.
    let created = events.iter().find(|event| event["responseElements"]["accessKeyId"] == key).unwrap();
    let names = json!({ "accessKeyId": key, "name": "operator", "namespace": "default" });
    assert_eq!(created["responseElements"], names);
    assert!(!fs::read_to_string(&file).unwrap().contains(secret));
}

#[test]
fn no_output_of_a_node_has_a_secret() {
    let Some(python) = python("no_output_of_a_node_has_a_secret") else { return };
    let (mut node, file, _folder) = audited(&python, &["--set", "audit.data=true", "--set", "log.level=debug"]);
    use_each_door(&node);
    let environment = node.sdk_environment();
    let of = |name: &str| environment.iter().find(|(variable, _)| variable == name).unwrap().1.clone();
    let (key, secret) = (of("AWS_ACCESS_KEY_ID"), of("AWS_SECRET_ACCESS_KEY"));
    let of_sandbox = node.json(["invoke", "f", "{}"])["payload"].as_str().unwrap().to_owned();
    assert!(!node.nigh(["invoke", "f", &json!({ "fail": true }).to_string()]).status.success());
    // As HTTP's Basic authentication carries it.
    let basic = STANDARD.encode(format!("{key}:{secret}"));
    // What is shown once: by the answer that makes it.
    let made = node.json(["keys", "create", "--name", "job", "--role", "operate"]);
    let rotated = node.json(["keys", "rotate", "job"]);
    let of_team = node.json(["namespaces", "create", "team-a"]);
    let [made, rotated, of_team] = [made, rotated, of_team].map(|one| one["secret"].as_str().unwrap().to_owned());
    let link = node.json(["page"])["url"].as_str().unwrap().to_owned();
    let token = link.split_once("token=").unwrap().1.to_owned();
    let followed = Command::new("curl").args(["--silent", "--include", &link]).output().unwrap();
    let followed = String::from_utf8(followed.stdout).unwrap();
    let cookie = followed.lines().find(|line| line.to_ascii_lowercase().starts_with("set-cookie:")).unwrap();
    let session = cookie.split(['=', ';']).nth(1).unwrap().to_owned();
    let mut outputs: Vec<(String, String)> = [
        &["status", "--verbose"][..],
        &["--json", "status"],
        &["config", "show", "--running"],
        &["metrics"],
        &["logs"],
        &["--json", "activations"],
        &["--json", "explain"],
        &["--json", "functions", "list"],
        &["--json", "learn", "ls"],
        &["--json", "events", "list"],
        &["--json", "objects", "ls", "nigh://data"],
        &["--json", "llc", "status"],
        &["keys", "ls"],
        &["--json", "keys", "ls"],
        &["--json", "keys", "show", "job"],
        &["--json", "namespaces", "ls"],
        &["top", "--once"],
        &["reload"],
        &["doctor"],
    ]
    .into_iter()
    .map(|command| {
        let output = node.nigh(command);
        let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
        (command.join(" "), said)
    })
    .collect();
    let socket = node.state.join("admin.sock");
    for path in ["status", "config", "keys", "namespaces", "events?namespace=default&all=true", "views/hierarchy"] {
        let url = format!("http://n/v1/{path}");
        let words = ["--silent", "--fail", "--unix-socket", socket.to_str().unwrap(), &url];
        let asked = Command::new("curl").args(words).output().unwrap();
        assert!(asked.status.success(), "{url}: {asked:?}");
        outputs.push((url, String::from_utf8(asked.stdout).unwrap()));
    }
    node.terminate();
    assert_eq!(node.exit_code(), Some(0));
    for written in [file, node.state.with_extension("log")] {
        let text = fs::read_to_string(&written).unwrap();
        assert!(text.len() > 1000, "{} is not written", written.display());
        outputs.push((written.display().to_string(), text));
    }
    for (output, text) in &outputs {
        for (what, known) in [
            ("the client's secret", &secret),
            ("a sandbox's secret", &of_sandbox),
            ("Basic", &basic),
            ("a created key's secret", &made),
            ("a rotated key's secret", &rotated),
            ("a namespace's secret", &of_team),
            ("a link's token", &token),
            ("a session's token", &session),
        ] {
            assert!(known.len() >= 40, "{what} is not known: {known:?}");
            assert!(!text.contains(known.as_str()), "{output} has {what}");
        }
    }
}
