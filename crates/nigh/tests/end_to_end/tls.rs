//! TLS of a whole node's doors, with clients of others: curl, boto3, Python's ssl; and certificates that change.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use nigh_rpc::certificates::Authority;
use nigh_rpc::{CertificateFiles, Identity, Role};
use nigh_terms::{Clock as _, SystemClock};
use serde_json::Value;

use crate::cluster_workflows::Nodes;
use crate::platform::{Node, command, python, wait_for};

/// Everything that a program does with boto3, over https.
const BOTO3: &str = r#"
import json, sys, urllib.request, ssl, os
import boto3
from botocore.config import Config
s3, functions = boto3.client("s3"), boto3.client("lambda")
assert s3.meta.endpoint_url.startswith("https://"), s3.meta.endpoint_url
s3.create_bucket(Bucket="data")
body = os.urandom(9 << 20)
s3.put_object(Bucket="data", Key="large", Body=body)
assert s3.get_object(Bucket="data", Key="large")["Body"].read() == body
s3.put_object(Bucket="data", Key="in", Body=b"abc")
# Without this boto3 makes URLs of an older signature.
signer = boto3.client("s3", config=Config(signature_version="s3v4"))
url = signer.generate_presigned_url("get_object", Params={"Bucket": "data", "Key": "in"})
trusted = ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])
assert urllib.request.urlopen(url, context=trusted).read() == b"abc"
answer = functions.invoke(FunctionName="f", Payload=json.dumps({"read": "in"}))
assert json.load(answer["Payload"]) == {"bytes": 3}, answer
assert s3.get_object(Bucket="data", Key="in.reversed")["Body"].read() == b"cba"
print("done")
"#;

/// Connects with TLS up to a version. Prints the server's certificate.
const CONNECT: &str = r#"
import socket, ssl, sys
host, port, bundle, newest = sys.argv[1:]
context = ssl.create_default_context(cafile=bundle)
context.maximum_version = getattr(ssl.TLSVersion, newest)
with socket.create_connection((host, int(port))) as tcp, context.wrap_socket(tcp, server_hostname=host) as tls:
    print(ssl.DER_cert_to_PEM_cert(tls.getpeercert(True)))
"#;

fn run(python: &Path, program: &str, arguments: &[&str], environment: &[(String, String)]) -> Output {
    let environment = environment.iter().map(|(name, value)| (name, value));
    Command::new(python).args(["-c", program]).args(arguments).envs(environment).output().unwrap()
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn url(node: &Node, door: &str) -> String {
    node.endpoints()[door].as_str().unwrap().to_owned()
}

/// Host and port of a door.
fn place(node: &Node, door: &str) -> (String, String) {
    let url = url(node, door);
    let (host, port) = url.strip_prefix("https://").unwrap().rsplit_once(':').unwrap();
    (host.to_owned(), port.to_owned())
}

fn curl(arguments: &[&str]) -> Output {
    Command::new("curl").args(["--silent", "--show-error", "--max-time", "30"]).args(arguments).output().unwrap()
}

/// An authority in a folder, and a certificate of it for the doors.
fn issued(folder: &Path, name: &str, days: u32) -> CertificateFiles {
    let authority = Authority::open(folder).or_else(|_| Authority::create(folder, "lab", 100)).unwrap();
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    authority.issue(&Identity::new("lab", Role::Node, name).unwrap(), &names, days, true).unwrap()
}

/// The flags by which a node has these files.
fn flags(files: &CertificateFiles) -> Vec<String> {
    let CertificateFiles { authority, certificate, key } = files;
    let set = [("certificate", certificate), ("key", key), ("authority", authority)];
    let one = |(name, path): (&str, &PathBuf)| ["--set".to_owned(), format!("tls.{name}={}", path.display())];
    set.into_iter().flat_map(one).collect()
}

fn start(python: &Path, flags: &[String], more: &[&str]) -> Node {
    let all: Vec<&str> = flags.iter().map(String::as_str).chain(more.iter().copied()).collect();
    Node::start_with(python, &all)
}

#[test]
fn with_an_own_authority_boto3_curl_and_the_command_reach_all_doors_over_tls() {
    let test = "with_an_own_authority_boto3_curl_and_the_command_reach_all_doors_over_tls";
    let Some(python) = python(test) else { return };
    let mut node = Node::start_with(&python, &["--tls"]);
    node.deploy("f");
    let bundle = node.endpoints()["ca_bundle"].as_str().unwrap().to_owned();
    assert_eq!(Path::new(&bundle), node.state.join("tls/authority.crt"));
    assert!(node.ok(["env"]).contains(&format!("AWS_CA_BUNDLE={bundle}")));
    assert_eq!(text(run(&python, BOTO3, &[], &node.sdk_environment())).trim(), "done");
    assert!(node.ok(["objects", "ls", "data"]).contains("in.reversed"));

    // OpenWhisk's API and a function's URL, by curl.
    let auth = node.ok(["openwhisk", "auth"]);
    let namespaces = format!("{}/api/v1/namespaces", url(&node, "lambda"));
    let listed = text(curl(&["--cacert", &bundle, "--user", auth.trim(), &namespaces]));
    assert!(serde_json::from_str::<Value>(&listed).unwrap().is_array(), "{listed}");
    let script = "import boto3; print(boto3.client('lambda').create_function_url_config(\
                  FunctionName='f', AuthType='NONE')['FunctionUrl'])";
    let own = text(run(&python, script, &[], &node.sdk_environment()));
    let host = own.trim().strip_prefix("https://").unwrap().split(':').next().unwrap();
    let resolve = format!("{host}:{}:127.0.0.1", place(&node, "lambda").1);
    let answer = text(curl(&["--cacert", &bundle, "--resolve", &resolve, own.trim()]));
    assert!(answer.contains("echo"), "{answer}");

    // Who does not trust the authority, or does not speak TLS, is told.
    assert_eq!(curl(&[&namespaces]).status.code(), Some(60));
    let plain = namespaces.replace("https://", "http://");
    assert!(text(curl(&[&plain])).contains("https://"));
    let s3 = url(&node, "s3");
    let list = |more: &[&str]| {
        let mut listing = command(&node.state);
        listing.env_remove("AWS_CA_BUNDLE").args(["objects", "ls", "data", "--endpoint", &s3]).args(more);
        listing.output().unwrap()
    };
    let refused = list(&[]);
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && words.contains("--ca"), "{words}");
    assert!(text(list(&["--ca", &bundle])).contains("in.reversed"));
    let words = node.nigh(["objects", "ls", "data", "--endpoint", &s3.replace("https://", "http://")]).stderr;
    assert!(String::from_utf8_lossy(&words).contains("speaks TLS"), "{words:?}");

    // The authority is made once.
    let before = std::fs::read(&bundle).unwrap();
    node.kill();
    node.restart();
    assert_eq!(std::fs::read(&bundle).unwrap(), before);
    assert!(node.ok(["objects", "ls", "data"]).contains("in.reversed"));
}

#[test]
fn certificates_are_replaced_while_requests_run_and_unusable_ones_change_nothing() {
    let test = "certificates_are_replaced_while_requests_run_and_unusable_ones_change_nothing";
    let Some(python) = python(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let files = issued(folder.path(), "doors", 50);
    let node = start(&python, &flags(&files), &[]);
    let ((host, port), bundle) = (place(&node, "s3"), files.authority.display().to_string());
    let served = || text(run(&python, CONNECT, &[&host, &port, &bundle, "MAXIMUM_SUPPORTED"], &[])).trim().to_owned();
    let written = || std::fs::read_to_string(&files.certificate).unwrap().trim().replace("\r\n", "\n");
    let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let asking = {
        let (over, answered, s3, bundle) = (over.clone(), answered.clone(), url(&node, "s3"), bundle.clone());
        std::thread::spawn(move || {
            let mut failed = Vec::new();
            while !over.load(Ordering::SeqCst) {
                // Not signed: the door refuses it, over a connection of its own.
                let output = curl(&["--cacert", &bundle, &s3]);
                if !output.status.success() {
                    failed.push(String::from_utf8_lossy(&output.stderr).into_owned());
                }
                answered.fetch_add(1, Ordering::SeqCst);
            }
            failed
        })
    };
    let some_requests = || {
        let enough = answered.load(Ordering::SeqCst) + 5;
        wait_for("further requests", || answered.load(Ordering::SeqCst) >= enough);
    };
    some_requests();
    assert_eq!(served(), written());
    issued(folder.path(), "doors", 50);
    assert_eq!(served(), written());
    let good = [&files.certificate, &files.key].map(|path| std::fs::read(path).unwrap());
    let in_use = served();
    let still = |what: &str| {
        some_requests();
        assert_eq!(served(), in_use, "{what}");
    };
    let half = folder.path().join("half");
    std::fs::write(&half, &good[0][..good[0].len() / 2]).unwrap();
    std::fs::rename(&half, &files.certificate).unwrap();
    still("half a certificate");
    let log = std::fs::read_to_string(node.state.with_extension("log")).unwrap();
    // One may have been seen with the key of the other before.
    let complaints =
        log.lines().filter(|line| line.contains("the old one stays in use") && line.contains("PEM")).count();
    assert_eq!(complaints, 1, "{log}");
    let other = issued(folder.path(), "other", 50);
    std::fs::write(&files.certificate, std::fs::read(&other.certificate).unwrap()).unwrap();
    still("another key's certificate");
    std::fs::remove_file(&files.key).unwrap();
    still("no key");
    let authority = Authority::open(folder.path()).unwrap();
    let past = SystemClock::new().wall().date() - Duration::from_secs(100 * 24 * 3600);
    let identity = Identity::new("lab", Role::Node, "doors").unwrap();
    authority.issue_at(&identity, &["127.0.0.1".to_owned()], past, 1, true).unwrap();
    still("an expired certificate");
    std::fs::write(&files.key, &good[1]).unwrap();
    std::fs::write(&files.certificate, &good[0]).unwrap();
    still("the one in use");
    issued(folder.path(), "doors", 50);
    assert_eq!(served(), written());
    assert_ne!(served(), in_use);
    some_requests();
    over.store(true, Ordering::SeqCst);
    assert_eq!(asking.join().unwrap(), Vec::<String>::new());
    let status = node.json(["status"]);
    let levels = status["levels"].as_array().unwrap();
    let tls = levels.iter().find(|level| level["name"] == "tls").unwrap();
    assert!(tls["detail"].as_str().unwrap().contains("127.0.0.1"), "{tls}");
}

#[test]
fn a_node_that_asks_for_tls_1_3_refuses_1_2() {
    let test = "a_node_that_asks_for_tls_1_3_refuses_1_2";
    let Some(python) = python(test) else { return };
    let folder = tempfile::tempdir().unwrap();
    let files = issued(folder.path(), "doors", 50);
    let bundle = files.authority.display().to_string();
    let usual: &[&str] = &[];
    for (more, speaks_old) in [(usual, true), (&["--set", "tls.minimum_version=1.3"], false)] {
        let node = start(&python, &flags(&files), more);
        for door in ["s3", "lambda"] {
            let (host, port) = place(&node, door);
            let connect = |newest: &str| run(&python, CONNECT, &[&host, &port, &bundle, newest], &[]).status.success();
            assert_eq!((connect("TLSv1_2"), connect("TLSv1_3")), (speaks_old, true), "{door}");
        }
    }
}

#[test]
fn the_admin_door_may_ask_its_clients_for_certificates_and_refuses_revoked_ones() {
    let test = "the_admin_door_may_ask_its_clients_for_certificates_and_refuses_revoked_ones";
    let Some(python) = python(test) else { return };
    let (folder, of_clients) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let files = issued(folder.path(), "doors", 50);
    let authority = Authority::create(of_clients.path(), "staff", 100).unwrap();
    let alice = Identity::new("staff", Role::Operator, "alice").unwrap();
    let CertificateFiles { authority: trusted, certificate, key } = authority.issue(&alice, &[], 50, false).unwrap();
    let authorities = format!("tls.client_authority={}", trusted.display());
    let more = ["--set", "admin.listen=127.0.0.1:0", "--set", "admin.client_certificate=required"];
    let node = start(&python, &flags(&files), &[&more[..], &["--set", &authorities]].concat());
    let (bundle, page) = (files.authority.display().to_string(), format!("{}/", url(&node, "admin")));
    let (certificate, key) = (certificate.display().to_string(), key.display().to_string());
    let of_alice = || curl(&["--cacert", &bundle, "--cert", &certificate, "--key", &key, &page]).status.success();
    assert!(!curl(&["--cacert", &bundle, &page]).status.success());
    assert!(of_alice());
    // Only the admin door asks for one.
    assert!(curl(&["--cacert", &bundle, &url(&node, "s3")]).status.success());
    authority.revoke(&[alice]).unwrap();
    assert!(!of_alice());
}

/// Runs `nigh certificates` at the first node.
fn certificates(nodes: &Nodes, words: &[&str]) {
    let output = command(&nodes.states[0]).arg("certificates").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Replaces the authority in the folder `ca` while objects are written and read at both nodes. Gives the errors of the calls
/// that failed.
fn replace_the_authority(nodes: &Nodes, ca: &str) -> Vec<String> {
    let (over, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let working = {
        let (over, done, states) = (over.clone(), done.clone(), nodes.states.clone());
        std::thread::spawn(move || {
            let scratch = tempfile::tempdir().unwrap();
            let (file, mut failed) = (scratch.path().join("file"), Vec::new());
            for number in 0.. {
                if over.load(Ordering::SeqCst) {
                    break;
                }
                std::fs::write(&file, number.to_string()).unwrap();
                // Each object has its home at one of the nodes: one of the two calls the other.
                let object = format!("nigh://marks/{number}");
                for (state, words) in [
                    (&states[number % 2], ["objects", "cp", file.to_str().unwrap(), &object]),
                    (&states[(number + 1) % 2], ["objects", "cp", &object, "-"]),
                ] {
                    let output = command(state).args(words).output().unwrap();
                    if !output.status.success() {
                        failed.push(String::from_utf8_lossy(&output.stderr).into_owned());
                    }
                }
                done.fetch_add(1, Ordering::SeqCst);
            }
            failed
        })
    };
    let some_work = || {
        let enough = done.load(Ordering::SeqCst) + 5;
        wait_for("further calls", || done.load(Ordering::SeqCst) >= enough);
    };
    some_work();
    certificates(nodes, &["authority", "add", ca]);
    some_work();
    certificates(nodes, &["issue", ca, "node-1", "node-2", "--renew"]);
    some_work();
    certificates(nodes, &["authority", "retire", ca]);
    some_work();
    over.store(true, Ordering::SeqCst);
    working.join().unwrap()
}

#[test]
fn the_authority_of_a_cluster_is_replaced_without_a_failed_call_and_a_revoked_node_is_refused() {
    let test = "the_authority_of_a_cluster_is_replaced_without_a_failed_call_and_a_revoked_node_is_refused";
    for attempt in 1..=3 {
        let Some(nodes) = Nodes::start(test, 2) else { return };
        let folder = nodes.states[0].with_file_name("certificates");
        let ca = folder.to_str().unwrap();
        let failed = replace_the_authority(&nodes, ca);
        // A machine that stalls for longer than the lease has a node declared dead, which says nothing about certificates.
        if attempt < 3 && failed.iter().any(|error| error.contains("has declared this node dead")) {
            continue;
        }
        assert_eq!(failed, Vec::<String>::new());

        let words = || {
            let output = command(&nodes.states[0]).args(["activations"]).output().unwrap();
            String::from_utf8(output.stderr).unwrap()
        };
        assert_eq!(words(), "");
        certificates(&nodes, &["revoke", ca, "node-2"]);
        wait_for("node-2 to be refused", || words().contains("node-2 did not answer"));
        return;
    }
}
