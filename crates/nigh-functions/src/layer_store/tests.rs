use std::fs;
use std::io::{Cursor, Write as _};

use nigh_engine::{LocalRegistry, StateFile};
use nigh_terms::ManualClock;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use bytes::Bytes;

use super::*;
use crate::test_support::function;

fn archive(files: &[(&str, &str)]) -> Bytes {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in files {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content.as_bytes()).unwrap();
    }
    zip.finish().unwrap().into_inner().into()
}

fn new(name: &str) -> NewLayer {
    NewLayer {
        name: FunctionName::new(name).unwrap(),
        description: String::new(),
        runtimes: Vec::new(),
        license: String::new(),
    }
}

#[tokio::test]
async fn versions_are_numbered_for_ever_and_a_deleted_one_serves_the_functions_that_have_it() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
    let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
    let tenant = Namespace::new("tenant").unwrap();
    let root = folder.path().join("layers");
    let open = async |functions: &[Arc<Function>]| {
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        LayerStore::open(Arc::clone(&registry), &root, clock, functions).await.unwrap()
    };
    let store = open(&[]).await;
    let one = store.publish(&tenant, new("one"), archive(&[("python/a.py", "1"), ("both", "1")])).await.unwrap();
    let two = store.publish(&tenant, new("two"), archive(&[("python/b.py", "2"), ("both", "2")])).await.unwrap();
    assert_eq!((one.version, two.version), (1, 1));
    let arn = |name: &str| format!("{}:1", layer_arn("eu-west-3", &FunctionName::new(name).unwrap()));
    let used: Vec<LayerUse> = ["one", "two"].iter().map(|name| store.resolve(&tenant, &arn(name)).unwrap()).collect();
    let opt = store.folder(&tenant, &used).await.unwrap();
    for (file, content) in [("python/a.py", "1"), ("python/b.py", "2"), ("both", "2")] {
        assert_eq!(fs::read_to_string(opt.join(file)).unwrap(), content, "{file}");
    }

    store.delete(&tenant, &one.name, 1).await.unwrap();
    assert!(matches!(store.resolve(&tenant, &arn("one")), Err(LayerError::NotFound(_))));
    let again = store.publish(&tenant, new("one"), archive(&[("c", "3")])).await.unwrap();
    assert_eq!(again.version, 2);
    let has = Arc::new(Function { layers: used.clone(), ..function("f") });
    let store = open(&[has]).await;
    assert_eq!(fs::read_to_string(store.folder(&tenant, &used).await.unwrap().join("both")).unwrap(), "2");
    // Once no function has it, its files are gone.
    let store = open(&[]).await;
    assert!(!opt.exists());
    assert!(store.folder(&tenant, &used).await.is_err());
    assert_eq!(store.newest(&tenant).len(), 2);
    assert!(store.resolve(&Namespace::new("other").unwrap(), &arn("two")).is_err());
}

#[tokio::test]
async fn a_layer_with_an_extension_is_refused_when_published_and_when_used() {
    let folder = tempfile::tempdir().unwrap();
    let state = StateFile::open(&folder.path().join("state.redb")).unwrap();
    let registry: Arc<dyn Registry> = Arc::new(LocalRegistry::new(state));
    let tenant = Namespace::new("tenant").unwrap();
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
    let store = LayerStore::open(registry, &folder.path().join("layers"), clock, &[]).await.unwrap();
    let refused = store.publish(&tenant, new("agent"), archive(&[("extensions/agent", "#!/bin/sh")])).await;
    let said = refused.unwrap_err().to_string();
    assert!(said.contains("the layer agent has the Lambda extension extensions/agent, and Nigh starts no"), "{said}");
    assert!(store.newest(&tenant).is_empty());
    // Lambda starts the files of the folder itself alone.
    let plain = [("extensions/agent/lib.py", ""), ("python/extensions/a.py", "")];
    let published = store.publish(&tenant, new("agent"), archive(&plain)).await.unwrap();
    let arn = format!("{}:1", layer_arn("eu-west-3", &published.name));
    store.resolve(&tenant, &arn).unwrap();
    // One that an earlier Nigh took.
    let files = store.0.code.task_folder(&code_version(&tenant, &published.name, &published.sha256));
    fs::write(files.join("extensions/late"), "").unwrap();
    let refused = store.resolve(&tenant, &arn).unwrap_err().to_string();
    assert!(refused.contains("extensions/late"), "{refused}");
}

#[test]
fn only_arns_of_this_account_s_layer_versions_are_taken() {
    assert!(parse_layer_arn("arn:aws:lambda:us-east-1:000000000000:layer:x:7").is_ok_and(|(_, v)| v == 7));
    for bad in [
        "arn:aws:lambda:us-east-1:000000000000:layer:x",
        "arn:aws:lambda:us-east-1:123456789012:layer:x:1",
        "arn:aws:lambda:us-east-1:000000000000:function:x:1",
        "arn:aws:lambda:us-east-1:000000000000:layer:../x:1",
        "x:1",
    ] {
        assert!(matches!(parse_layer_arn(bad), Err(LayerError::Arn(_))), "{bad}");
    }
}
