use nigh_terms::ByteSize;

use super::*;
use crate::config::{Network, PrewarmMode, Span};

fn machine() -> Machine {
    Machine { hostname: "n1".to_owned(), memory: ByteSize::gib(8), cpus: 2 }
}

fn layers(file: Option<PathBuf>, variables: &[(&str, &str)], flags: &[(&str, &str)]) -> Layers {
    let environment = variables.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let flags = flags
        .iter()
        .map(|(key, value)| Flag { key: (*key).into(), value: (*value).into(), flag: format!("--{key}") })
        .collect();
    Layers { file, environment, flags }
}

fn origin_of<'a>(configuration: &'a Configuration, key: &str) -> (&'a str, &'a str) {
    let shown = configuration.shown.iter().find(|shown| shown.key == key).unwrap();
    (&shown.value, &shown.origin)
}

#[test]
fn the_later_layer_wins_and_each_value_knows_its_origin() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    std::fs::write(&file, "region = \"eu-west-3\"\n[cache]\nbytes = \"64 MiB\"\nobject_max = \"1 MiB\"\n").unwrap();
    let configuration = layers(
        Some(file.clone()),
        &[("NIGH_STATE", "/s"), ("NIGH_CACHE__BYTES", "128 MiB"), ("NIGH_FUNCTIONS__SANDBOXES_MAX", "7")],
        &[("functions.keep_alive", "5 s"), ("functions.trust_functions", "true")],
    )
    .resolve(&machine())
    .unwrap();
    let settings = &configuration.settings;
    assert_eq!(settings.state, Path::new("/s"));
    assert_eq!(settings.store.path, Path::new("/s/objects"));
    assert_eq!(settings.cache.bytes, ByteSize::mib(128));
    assert_eq!(settings.cache.object_max, ByteSize::mib(1));
    assert_eq!(settings.functions.sandboxes_max, 7);
    assert_eq!(settings.functions.keep_alive, Span::seconds(5));
    assert_eq!(settings.functions.memory, ByteSize::gib(4));
    assert!(settings.functions.trust_functions);
    assert_eq!(origin_of(&configuration, "region"), ("eu-west-3", file.to_str().unwrap()));
    assert_eq!(origin_of(&configuration, "cache.bytes"), ("128 MiB", "variable NIGH_CACHE__BYTES"));
    assert_eq!(origin_of(&configuration, "functions.keep_alive"), ("5 s", "flag --functions.keep_alive"));
    assert_eq!(origin_of(&configuration, "s3.listen"), ("127.0.0.1:9400", "default"));
    assert_eq!(origin_of(&configuration, "functions.memory"), ("4 GiB", "default"));
    assert_eq!(origin_of(&configuration, "llc.insensitive_ways"), ("(3 of 11)", "default"));
    assert_eq!(origin_of(&configuration, "activations.bytes_max"), ("1 GiB", "default"));
    assert_eq!(origin_of(&configuration, "activations.namespace_bytes"), ("256 MiB", "default"));
    assert_eq!(origin_of(&configuration, "s3.uploads_bytes"), ("(8 times s3.object_max)", "default"));
}

#[test]
fn a_file_may_describe_a_function_too_which_a_node_passes_over() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    std::fs::write(&file, "region = \"eu-west-3\"\n[function]\nhandler = \"main.handle\"\n").unwrap();
    let configuration = layers(Some(file), &[("NIGH_STATE", "/s")], &[]).resolve(&machine()).unwrap();
    assert_eq!(configuration.settings.region, "eu-west-3");
    assert!(configuration.shown.iter().all(|shown| !shown.key.starts_with("function.")));
}

#[test]
fn a_node_is_alone_or_belongs_to_a_cluster_whose_other_values_are_the_usual_ones() {
    let resolve = |variables: &[(&str, &str)], flags: &[(&str, &str)]| {
        let all: Vec<_> = [("NIGH_STATE", "/s")].iter().chain(variables).copied().collect();
        layers(None, &all, flags).resolve(&machine())
    };
    let alone = resolve(&[], &[]).unwrap();
    assert!(alone.settings.cluster.is_none());
    assert_eq!(origin_of(&alone, "cluster"), ("(one machine)", "default"));
    let server = ("NIGH_CLUSTER__SERVERS", "nats://a:4222, tls://b:4222");
    let token = ("NIGH_CLUSTER__TOKEN", "hush");
    let joined = resolve(&[server, token], &[("cluster.plain", "true"), ("cluster.roles", "memory")]).unwrap();
    let cluster = joined.settings.cluster.as_ref().unwrap();
    assert_eq!(cluster.servers.0, ["nats://a:4222", "tls://b:4222"]);
    assert_eq!((cluster.name.as_str(), cluster.shards, cluster.replicas), ("nigh", 32, 3));
    assert_eq!(cluster.roles.0.iter().map(ToString::to_string).collect::<Vec<_>>(), ["memory"]);
    assert_eq!(origin_of(&joined, "cluster.token"), ("***", "variable NIGH_CLUSTER__TOKEN"));
    assert_eq!(origin_of(&joined, "cluster.journal_max"), ("256 MiB", "default"));
    assert_eq!(origin_of(&joined, "cluster.roles"), ("memory", "flag --cluster.roles"));

    for (setting, value, said) in [
        ("cluster.plain", "false", "nigh certificates init"),
        ("cluster.name", "a.b", "letters, digits and hyphens"),
        ("cluster.servers", "a:4222", "nats://host:port"),
        ("cluster.servers", "", "name the NATS servers"),
        ("cluster.replicas", "2", "3 or 5"),
        ("cluster.shards", "0", "between 1 and 1024"),
        ("cluster.coherence", "mesi", "version-check"),
        ("cluster.journal_max", "1 MiB", "four times"),
        ("cluster.listen", "0.0.0.0:1", "allow_plain"),
        ("cluster.format_max", "99", "formats 1 to 2"),
        ("cluster.advertise", "here", "host:port"),
        ("cluster.roles", "king", "no role"),
        ("cluster.roles", "", "without a role"),
        ("cluster.token_file", "/t", "set only one of the two"),
        ("cluster.tls_key", "/k", "tls_key, or none"),
        ("cluster.shard", "3", "did you mean shards?"),
    ] {
        let refused = resolve(&[server, token, ("NIGH_CLUSTER__PLAIN", "true")], &[(setting, value)]).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains("cluster.") && text.contains(said), "{setting} = {value}: {text}");
    }
    let secret = resolve(&[server], &[("cluster.token", "hush")]).unwrap_err().to_string();
    assert!(secret.contains("command line"), "{secret}");
}

#[test]
fn prewarming_is_turned_off_and_its_imports_are_named_in_one_word_each() {
    let resolve = |variables: &[(&str, &str)]| {
        let all: Vec<_> = [("NIGH_STATE", "/s")].iter().chain(variables).copied().collect();
        layers(None, &all, &[]).resolve(&machine()).map(|configuration| configuration.settings.functions)
    };
    let usual = resolve(&[]).unwrap();
    assert_eq!((usual.prewarm, usual.prewarm_memory), (PrewarmMode::On, ByteSize::mib(512)));
    let set =
        resolve(&[("NIGH_FUNCTIONS__PREWARM", "off"), ("NIGH_FUNCTIONS__PREWARM_IMPORTS", "boto3, numpy.linalg")]);
    let set = set.unwrap();
    assert_eq!((set.prewarm, set.prewarm_imports.0), (PrewarmMode::Off, vec!["boto3".into(), "numpy.linalg".into()]));
    let refused = resolve(&[("NIGH_FUNCTIONS__PREWARM_IMPORTS", "import os")]).unwrap_err().to_string();
    assert!(refused.contains("prewarm_imports") && refused.contains("import os"), "{refused}");
}

#[test]
fn the_network_is_permitted_in_one_word_and_its_lists_are_lists_or_one_text() {
    let default = layers(None, &[("NIGH_STATE", "/s")], &[]).resolve(&machine()).unwrap().settings.functions;
    assert_eq!(default.network, Network::None);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    std::fs::write(&file, "[functions]\nnetwork = \"permitted\"\nnetwork_resolvers = [\"10.0.0.1\"]\n").unwrap();
    let variables = [("NIGH_STATE", "/s"), ("NIGH_FUNCTIONS__NETWORK_NAMESPACES", "one, two")];
    let set = layers(Some(file), &variables, &[]).resolve(&machine()).unwrap().settings.functions;
    let names: Vec<&str> = set.network_namespaces.0.iter().map(|name| name.as_str()).collect();
    assert_eq!((set.network, names), (Network::Permitted, vec!["one", "two"]));
    assert_eq!(set.network_resolvers.0, ["10.0.0.1".parse::<std::net::IpAddr>().unwrap()]);
    let wrong = layers(None, &[("NIGH_FUNCTIONS__NETWORK_RESOLVERS", "near")], &[]).resolve(&machine());
    assert!(wrong.unwrap_err().to_string().contains("near"));
}

#[test]
fn an_unknown_name_is_refused_with_the_one_that_was_meant() {
    let refused = layers(None, &[("NIGH_STATE", "/s"), ("NIGH_FUNCTIONS__KEEPALIVE", "5 s")], &[]);
    let message = refused.resolve(&machine()).unwrap_err().to_string();
    assert!(message.contains("NIGH_FUNCTIONS__KEEPALIVE") && message.contains("did you mean keep_alive?"), "{message}");
    let refused = layers(None, &[("NIGH_STATE", "/s"), ("NIGH_STORAGE__KIND", "s3")], &[]);
    let message = refused.resolve(&machine()).unwrap_err().to_string();
    assert!(message.contains("storage") && message.contains("store"), "{message}");
}

#[test]
fn a_wrong_value_names_its_origin_and_the_way_to_write_it() {
    let refused = layers(None, &[("NIGH_STATE", "/s"), ("NIGH_CACHE__BYTES", "64 MB")], &[]);
    let message = refused.resolve(&machine()).unwrap_err().to_string();
    assert!(message.contains("NIGH_CACHE__BYTES") && message.contains("cache.bytes"), "{message}");
    assert!(message.contains("MiB"), "{message}");

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    for (written, hint) in [("60", "write \"60 s\""), ("-1", "for example \"600 s\""), ("true", "\"600 s\"")] {
        std::fs::write(&file, format!("[functions]\nkeep_alive = {written}\n")).unwrap();
        let refused = layers(Some(file.clone()), &[("NIGH_STATE", "/s")], &[]).resolve(&machine()).unwrap_err();
        let message = refused.to_string();
        assert!(message.contains("functions.keep_alive") && message.contains(hint), "{message}");
    }
}

#[test]
fn listening_beyond_loopback_must_be_asked_for() {
    let open = [("s3.listen", "0.0.0.0:9400")];
    let refused = layers(None, &[("NIGH_STATE", "/s")], &open).resolve(&machine()).unwrap_err();
    assert!(refused.to_string().contains("allow_plain"), "{refused}");
    assert!(layers(None, &[("NIGH_STATE", "/s"), ("NIGH_ALLOW_PLAIN", "true")], &open).resolve(&machine()).is_ok());
    // The former name.
    assert!(layers(None, &[("NIGH_STATE", "/s"), ("NIGH_ALLOW_REMOTE", "true")], &open).resolve(&machine()).is_ok());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    let resolve = |text: &str| {
        std::fs::write(&file, text).unwrap();
        layers(Some(file.clone()), &[("NIGH_STATE", "/s")], &open).resolve(&machine())
    };
    let former = resolve("allow_remote = true\n").unwrap();
    assert_eq!(origin_of(&former, "allow_plain"), ("true", file.to_str().unwrap()));
    assert!(resolve("allow_remote = true\nallow_plain = false\n").is_err());
}

#[test]
fn a_door_beyond_loopback_that_has_tls_needs_no_permission() {
    let flags = [("lambda.listen", "0.0.0.0:9401"), ("tls.certificate", "/c"), ("tls.key", "/k")];
    let set = layers(None, &[("NIGH_STATE", "/s")], &flags).resolve(&machine()).unwrap();
    assert_eq!(origin_of(&set, "tls.minimum_version"), ("1.2", "default"));
    let newer = [("tls.minimum_version", "1.3")];
    let set = layers(None, &[("NIGH_STATE", "/s")], &newer).resolve(&machine()).unwrap();
    assert_eq!(set.settings.tls.minimum_version, crate::config::MinimumVersion::V13);
    let half = layers(None, &[("NIGH_STATE", "/s")], &flags[..2]).resolve(&machine()).unwrap_err();
    assert!(half.to_string().contains("tls.key"), "{half}");
    let wrong = layers(None, &[("NIGH_STATE", "/s")], &[("tls.minimum_version", "1.1")]).resolve(&machine());
    assert!(wrong.unwrap_err().to_string().contains("1.3"));
}

#[test]
fn variables_of_the_python_client_are_no_settings_and_misspelt_ones_are_refused() {
    let of_the_client = [
        ("NIGH_STATE", "/s"),
        ("NIGH_FAST_PATH", "/s/fast.sock"),
        ("NIGH_HOOK", "off"),
        ("NIGH_HOOK_REPORT", "1"),
        ("NIGH_NATIVE", "off"),
    ];
    layers(None, &of_the_client, &[]).resolve(&machine()).unwrap();
    let misspelt = [("NIGH_STATE", "/s"), ("NIGH_FAST_PAHT", "/s/fast.sock")];
    assert!(layers(None, &misspelt, &[]).resolve(&machine()).is_err());
}

#[test]
fn a_secret_is_taken_from_a_variable_never_from_a_flag_and_never_shown() {
    let variables = [
        ("NIGH_STATE", "/s"),
        ("NIGH_STORE__KIND", "s3"),
        ("NIGH_STORE__ENDPOINT", "http://127.0.0.1:1"),
        ("NIGH_STORE__ACCESS_KEY", "123"),
        ("NIGH_STORE__SECRET_KEY", "4567890"),
    ];
    let configuration = layers(None, &variables, &[]).resolve(&machine()).unwrap();
    assert_eq!(configuration.settings.store.secret_key.as_ref().unwrap().reveal(), "4567890");
    assert_eq!(origin_of(&configuration, "store.secret_key").0, "***");
    assert!(!format!("{configuration:?}").contains("4567890"));
    assert!(layers(None, &variables, &[("store.secret_key", "x")]).resolve(&machine()).is_err());
}

#[test]
fn a_file_with_a_secret_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    std::fs::write(&file, "[store]\nsecret_key = \"x\"\n").unwrap();
    let set = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
    let resolve = || layers(Some(file.clone()), &[("NIGH_STATE", "/s")], &[]).resolve(&machine());
    set(0o644);
    assert!(resolve().unwrap_err().to_string().contains("chmod 600"));
    set(0o600);
    assert!(resolve().is_ok());
}

#[test]
fn a_named_file_must_exist_and_an_s3_store_must_be_complete() {
    let missing = layers(Some("/nowhere/nigh.toml".into()), &[("NIGH_STATE", "/s")], &[]);
    assert!(matches!(missing.resolve(&machine()), Err(ConfigError::File { .. })));
    let half = layers(None, &[("NIGH_STATE", "/s"), ("NIGH_STORE__KIND", "s3")], &[]);
    assert!(matches!(half.resolve(&machine()), Err(ConfigError::Rule { key, .. }) if key == "store.endpoint"));
}

#[test]
fn a_namespace_s_store_takes_the_node_s_values_but_never_its_account() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    let resolve = |text: &str| {
        let node = "[store]\nkind = \"s3\"\nendpoint = \"http://h\"\naccess_key = \"a\"\nsecret_key = \"b\"\n\
                    attempts = 7\nbucket_prefix = \"n-\"\n";
        std::fs::write(&file, format!("{node}{text}")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        layers(Some(file.clone()), &[("NIGH_STATE", "/s")], &[]).resolve(&machine())
    };
    let store = |configuration: &Configuration| {
        let (name, store) = configuration.settings.own_stores().next().unwrap();
        (name.as_str().to_owned(), store.clone())
    };
    let own = "[namespaces.t1.store]\naccess_key = \"c\"\nsecret_key = \"d\"\n";
    let configuration = resolve(own).unwrap();
    let (name, t1) = store(&configuration);
    assert_eq!((&*name, t1.endpoint.as_deref(), t1.attempts, &*t1.bucket_prefix), ("t1", Some("http://h"), 7, "n-"));
    assert_eq!((t1.access_key.as_deref(), t1.secret_key.unwrap().reveal()), (Some("c"), "d"));
    assert_eq!(origin_of(&configuration, "namespaces.t1.store.secret_key").0, "***");
    assert!(!format!("{configuration:?}").contains("\"d\""));

    let refused = |text: &str| resolve(text).unwrap_err().to_string();
    let message = refused("[namespaces.t1.store]\nendpoint = \"http://other\"\n");
    assert!(message.contains("namespaces.t1.store.access_key"), "{message}");
    let message = refused("[namespaces.t1.store]\nbucket_prefix = \"n-1\"\n");
    assert!(message.contains("could be the same"), "{message}");
    let message = refused("[namespaces.t1.store]\nbucket_prefx = \"n-1\"\n");
    assert!(message.contains("did you mean bucket_prefix?"), "{message}");

    let (_, t1) = store(&resolve("[namespaces.t1.store]\nbucket_prefix = \"m-\"\n").unwrap());
    assert_eq!((t1.access_key.as_deref(), &*t1.bucket_prefix), (Some("a"), "m-"));
    let (_, t1) = store(&resolve("[namespaces.t1.store]\nkind = \"directory\"\n").unwrap());
    assert_eq!((t1.path.as_path(), t1.attempts, t1.access_key), (Path::new("/s/objects-t1"), 4, None));
}

#[test]
fn open_telemetry_s_variables_are_read_and_nigh_s_own_settings_come_before_them() {
    let standard = [
        ("NIGH_STATE", "/s"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://theirs:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-key=hush"),
        ("OTEL_SERVICE_NAME", "shop"),
    ];
    let configuration = layers(None, &standard, &[("traces.sample", "0.25")]).resolve(&machine()).unwrap();
    let traces = &configuration.settings.traces;
    assert_eq!((traces.endpoint.as_deref(), traces.service_name.as_str()), (Some("http://theirs:4318"), "shop"));
    assert!((traces.sample - 0.25).abs() < f64::EPSILON);
    assert_eq!(origin_of(&configuration, "traces.headers"), ("***", "variable OTEL_EXPORTER_OTLP_HEADERS"));

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nigh.toml");
    std::fs::write(&file, "[traces]\nendpoint = \"http://ours:4318\"\n").unwrap();
    let configuration = layers(Some(file), &standard, &[]).resolve(&machine()).unwrap();
    assert_eq!(configuration.settings.traces.endpoint.as_deref(), Some("http://ours:4318"));
    let refused = layers(None, &[("NIGH_STATE", "/s")], &[("traces.headers", "x-key=hush")]).resolve(&machine());
    assert!(refused.unwrap_err().to_string().contains("not given on the command line"));
}
