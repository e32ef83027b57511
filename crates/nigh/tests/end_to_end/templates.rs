//! Templates of AWS SAM are listed, deployed and run; what is exported and imported again is the same.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::platform::{Node, command, python, wait_for};

/// The templates, each with what it must be given.
const TEMPLATES: [(&str, &[&str]); 5] = [
    ("hello", &[]),
    ("thumbnails", &[]),
    ("report", &[]),
    ("layers", &[]),
    ("web", &["--parameter", "CodeBucket=code"]),
];
/// The runtime that they name.
const THEIR_RUNTIME: &str = "python3.12";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/templates").join(name)
}

fn template(name: &str) -> String {
    folder(name).join("template.yaml").to_str().unwrap().to_owned()
}

/// The words of an import by the node's own Python.
fn import<'a>(path: &'a str, runtime: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["import", path, "--runtime", runtime][..], more].concat()
}

#[test]
fn five_public_forms_of_templates_are_listed_and_tried_out_on_a_node_and_nothing_is_changed() {
    let test = "five_public_forms_of_templates_are_listed_and_tried_out_on_a_node_and_nothing_is_changed";
    let Some(python) = python(test) else { return };
    let node = Node::start(&python);
    let runtime = node.python_runtime();
    for (name, more) in TEMPLATES {
        let path = template(name);
        let listed = node.ok(import(&path, &runtime, &[more, &["--dry-run"][..]].concat()));
        assert!(listed.contains("left out:") && listed.contains(" is new:"), "{name}: {listed}");
        let stack = node.json(import(&path, &runtime, &[more, &["--dry-run"][..]].concat()));
        assert!(!stack["functions"].as_array().unwrap().is_empty(), "{name}: {stack}");
    }
    if runtime != THEIR_RUNTIME {
        let refused = node.nigh(["import", &template("hello"), "--dry-run"]);
        let words = String::from_utf8(refused.stderr).unwrap();
        assert_eq!(refused.status.code(), Some(2), "{words}");
        assert!(words.contains("no runtime python3.12") && words.contains("--runtime"), "{words}");
    }
    assert_eq!(node.json(["functions", "list"]), json!([]));
    assert_eq!(node.ok(["--json", "objects", "ls"]), "");
}

#[test]
fn a_template_is_listed_where_no_node_runs() {
    let state = tempfile::tempdir().unwrap();
    let listed = command(state.path()).args(["import", &template("web"), "--dry-run"]).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let words = String::from_utf8(listed.stdout).unwrap();
    for said in ["function", "Notes: python3.12", "schedule EachHour: rate(1 hour)", "left out:", "not needed here:"] {
        assert!(words.contains(said), "{said}: {words}");
    }
    assert!(String::from_utf8(listed.stderr).unwrap().contains("no node runs here"));
    let nothing = command(state.path()).args(["import", &template("absent")]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(1), "{nothing:?}");
}

#[test]
fn imported_functions_run_by_their_triggers_and_with_their_layers() {
    let Some(python) = python("imported_functions_run_by_their_triggers_and_with_their_layers") else { return };
    let node = Node::start(&python);
    let runtime = node.python_runtime();
    let path = template("thumbnails");
    let said = node.ok(import(&path, &runtime, &[]));
    assert!(said.contains("made bucket pictures-000000000000") && said.contains("deployed CreateThumbnail"), "{said}");
    assert!(said.contains("ThumbnailBucket.VersioningConfiguration"), "{said}");
    let picture = node.state.with_file_name("picture");
    fs::write(&picture, vec![b'p'; 100]).unwrap();
    let picture = picture.to_str().unwrap();
    node.ok(["objects", "cp", picture, "nigh://pictures-000000000000/in/other.png"]);
    node.ok(["objects", "cp", picture, "nigh://pictures-000000000000/in/cat.jpg"]);
    let thumbs = || node.ok(["objects", "ls", "-r", "nigh://thumbs-000000000000"]);
    wait_for("the thumbnail", || thumbs().contains("in/cat.jpg"));
    assert_eq!(node.ok(["objects", "cat", "nigh://thumbs-000000000000/in/cat.jpg"]), "p".repeat(16));
    assert!(!thumbs().contains("other.png"), "the trigger is for .jpg alone");

    let path = template("layers");
    node.ok(import(&path, &runtime, &[]));
    assert_eq!(node.json(["invoke", "greet"])["payload"], json!({ "greeting": "hello", "polite": "yes" }));
    // Nothing has changed, so nothing is published, and the function keeps its warm sandbox.
    let again = node.json(import(&path, &runtime, &[]));
    assert_eq!(
        (&again["layers"][0]["is_new"], &again["functions"][0]["done"]),
        (&json!(false), &json!("unchanged")),
        "{again}"
    );
    let one = node.json(import(&template("web"), &runtime, &["--parameter", "CodeBucket=c", "--only", "Plain"]));
    assert_eq!(one["functions"].as_array().unwrap().len(), 1);
    assert_eq!(node.json(["invoke", "Plain", "[1]"])["payload"], json!([1]));
}

#[test]
fn an_import_that_is_refused_leaves_nothing_behind() {
    let Some(python) = python("an_import_that_is_refused_leaves_nothing_behind") else { return };
    let node = Node::start(&python);
    let root = node.state.with_file_name("refused");
    fs::create_dir_all(root.join("layer/python")).unwrap();
    fs::write(root.join("layer/python/words.py"), "").unwrap();
    fs::write(root.join("app.py"), "def handler(event, context):\n    return event\n").unwrap();
    let text = format!(
        "Resources:\n  Inbox: {{Type: AWS::S3::Bucket}}\n  Words: {{Type: AWS::Serverless::LayerVersion, Properties: \
         {{ContentUri: layer}}}}\n  Good: &good\n    Type: AWS::Serverless::Function\n    Properties: &properties\n      \
         Runtime: {}\n      Handler: app.handler\n      Layers: [!Ref Words]\n      Events: {{New: {{Type: S3, \
         Properties: {{Bucket: !Ref Inbox}}}}}}\n  Wrong:\n    <<: *good\n    Properties: {{<<: *properties, Handler: \
         app.nothing, Events: {{}}}}\n",
        node.python_runtime()
    );
    fs::write(root.join("template.yaml"), text).unwrap();
    let refused = node.nigh(["import", root.to_str().unwrap()]);
    let words = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2), "{words}");
    assert!(words.contains("Wrong: ") && words.contains("nothing"), "{words}");
    assert_eq!(node.json(["functions", "list"]), json!([]));
    assert_eq!(node.ok(["--json", "objects", "ls"]), "", "the bucket is gone again");
    // The layer's version, too: the next one gets its own number.
    node.ok(["import", root.to_str().unwrap(), "--only", "Good"]);
    let layers = node.json(["functions", "show", "Good"])["Layers"].clone();
    assert!(layers[0]["Arn"].as_str().unwrap().ends_with(":layer:Words:2"), "{layers}");
}

/// What a function is, without what differs from one deployment to the next.
fn lasting(node: &Node, name: &str) -> Value {
    let mut shown = node.json(["functions", "show", name]);
    let schedules =
        shown["Schedules"].as_array().unwrap().iter().map(|one| {
            json!([one["Name"], one["ScheduleExpression"], one["ScheduleExpressionTimezone"], one["State"]])
        });
    shown["Schedules"] = schedules.collect();
    for changing in ["RevisionId", "LastModified", "FunctionUrl", "LastErrors"] {
        shown.as_object_mut().unwrap().remove(changing);
    }
    if let Some(config) = shown["EventInvokeConfig"].as_object_mut() {
        config.remove("LastModified");
    }
    shown
}

#[test]
fn what_is_exported_removed_and_imported_again_is_the_same() {
    let Some(python) = python("what_is_exported_removed_and_imported_again_is_the_same") else { return };
    let node = Node::start(&python);
    let runtime = node.python_runtime();
    for (name, more) in TEMPLATES {
        node.ok(import(&template(name), &runtime, more));
    }
    let listed = node.json(["functions", "list"]);
    let names: Vec<String> =
        listed.as_array().unwrap().iter().map(|one| one["FunctionName"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    let before: Vec<Value> = names.iter().map(|name| lasting(&node, name)).collect();

    let out = node.state.with_file_name("exported");
    let out = out.to_str().unwrap();
    let said = node.ok(["export", "sam", "--folder", out]);
    assert!(said.ends_with("7 functions, 1 layer\n"), "{said}");
    let refused = node.nigh(["export", "sam", "--folder", out]);
    assert!(String::from_utf8(refused.stderr).unwrap().contains("--force"));
    let text = fs::read_to_string(Path::new(out).join("template.yaml")).unwrap();
    assert!(text.contains("Type: AWS::Serverless::Function") && text.contains("CodeUri: code/greet.zip"), "{text}");

    node.ok([&["functions", "rm"], &names.iter().map(String::as_str).collect::<Vec<_>>()[..]].concat());
    assert_eq!(node.json(["schedules", "list"]), json!([]));
    let done = node.json(["import", out]);
    assert_eq!(done["left_out"], json!([]), "an export has nothing that an import leaves out");
    let after: Vec<Value> = names.iter().map(|name| lasting(&node, name)).collect();
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(after, before);
    }
    assert_eq!(node.json(["invoke", "greet"])["payload"], json!({ "greeting": "hello", "polite": "yes" }));

    let one = node.state.with_file_name("one");
    node.ok(["export", "sam", "greet", "--folder", one.to_str().unwrap()]);
    let archives = fs::read_dir(one.join("code")).unwrap().count();
    assert_eq!(archives, 1);
}
