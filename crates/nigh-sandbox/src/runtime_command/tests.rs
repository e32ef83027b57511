use nigh_terms::ByteSize;

use super::*;
use nigh_functions::action::Action;
use nigh_functions::function::LayerUse;
use nigh_functions::test_support::function;

fn settings() -> RuntimeSettings {
    let python = PythonRuntime {
        minor: 11,
        interpreter: "/venv/bin/python3".into(),
        folders: vec!["/venv".into()],
        client: None,
    };
    RuntimeSettings {
        region: "us-east-1".to_owned(),
        pythons: vec![python],
        http_adapter: None,
        nodes: Vec::new(),
        launchers: None,
        python_library: None,
    }
}

fn command_of(function: &Function) -> Result<RuntimeCommand, RuntimeCommandError> {
    command_with(function, &settings())
}

fn command_with(function: &Function, settings: &RuntimeSettings) -> Result<RuntimeCommand, RuntimeCommandError> {
    let (key, secret) = (AccessKeyId::new("KEY"), SecretKey::new("secret"));
    let made = Timestamp(1_700_000_000_000);
    runtime_command(function, settings, &SandboxIdentity { id: SandboxId::random(), key: &key, secret: &secret, made })
}

fn value<'a>(command: &'a RuntimeCommand, name: &str) -> Option<&'a str> {
    command.environment.get(&OsString::from(name)).and_then(|value| value.to_str())
}

#[test]
fn python_functions_run_under_the_vendors_client() {
    let mut function = function("thumbnail");
    function.runtime = Runtime::Python { minor: 11 };
    let command = command_of(&function).unwrap();
    assert_eq!(command.command, ["/venv/bin/python3", "-m", "awslambdaric", "app.handler"]);
    assert_eq!(command.folders, [PathBuf::from("/venv")]);
    for (name, expected) in [
        ("_HANDLER", "app.handler"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9000"),
        ("AWS_ENDPOINT_URL_LAMBDA", "http://127.0.0.1:9000"),
        ("AWS_ENDPOINT_URL_SFN", "http://127.0.0.1:9000"),
        ("AWS_LAMBDA_RUNTIME_API", "127.0.0.1:9001"),
        ("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128"),
        ("AWS_LAMBDA_LOG_GROUP_NAME", "/aws/lambda/thumbnail"),
        ("AWS_EXECUTION_ENV", "AWS_Lambda_python3.11"),
        ("AWS_ACCESS_KEY_ID", "KEY"),
        ("TZ", ":UTC"),
        ("PYTHONPATH", "/var/task"),
    ] {
        assert_eq!(value(&command, name), Some(expected), "{name}");
    }
    let used = LayerUse {
        arn: String::new(),
        name: function.name.clone(),
        sha256: String::new(),
        size: ByteSize::ZERO,
        unpacked: ByteSize::ZERO,
    };
    function.layers.push(used);
    let layered = command_of(&function).unwrap();
    let path = "/var/task:/opt/python:/opt/python/lib/python3.11/site-packages";
    assert_eq!(value(&layered, "PYTHONPATH"), Some(path));
    let stream = value(&command, "AWS_LAMBDA_LOG_STREAM_NAME").unwrap();
    assert_eq!(stream.strip_prefix("2023/11/14/[$LATEST]"), value(&command, "AWS_SESSION_TOKEN"));
}

#[test]
fn the_package_is_shown_and_its_site_comes_first_whatever_path_a_function_has() {
    let mut function = function("thumbnail");
    function.runtime = Runtime::Python { minor: 11 };
    let settings = RuntimeSettings { python_library: Some("/library".into()), ..settings() };
    let path_of = |function: &Function| {
        let command = command_with(function, &settings).unwrap();
        assert_eq!(command.folders, [PathBuf::from("/venv"), PathBuf::from("/library")]);
        value(&command, "PYTHONPATH").unwrap().to_owned()
    };
    assert_eq!(path_of(&function), "/library/site:/var/task");
    for (own, expected) in [("/var/task/vendor", "/library/site:/var/task/vendor"), ("", "/library/site")] {
        function.environment.insert("PYTHONPATH".to_owned(), own.to_owned());
        assert_eq!(path_of(&function), expected);
    }
    let stem = prewarm_command(&function.runtime, &settings, &[]).unwrap();
    assert_eq!(stem.environment[&OsString::from("PYTHONPATH")], "/library/site:/var/task");
    assert_eq!(stem.folders, [PathBuf::from("/venv"), PathBuf::from("/library")]);
    function.runtime = Runtime::Provided;
    assert_eq!(value(&command_with(&function, &settings).unwrap(), "PYTHONPATH"), Some(""));
}

#[test]
fn a_python_without_the_vendors_client_has_it_last_in_the_path() {
    let mut function = function("f");
    function.runtime = Runtime::Python { minor: 12 };
    let borrower = PythonRuntime {
        minor: 12,
        interpreter: "/usr/bin/python3.12".into(),
        folders: Vec::new(),
        client: Some("/client".into()),
    };
    let mut settings = settings();
    settings.pythons.push(borrower);
    let path_of = |function: &Function, settings: &RuntimeSettings| {
        let command = command_with(function, settings).unwrap();
        assert_eq!(command.folders.first(), Some(&PathBuf::from("/client")));
        value(&command, "PYTHONPATH").unwrap().to_owned()
    };
    assert_eq!(path_of(&function, &settings), "/var/task:/client");
    let stem = prewarm_command(&function.runtime, &settings, &[]).unwrap();
    assert_eq!(stem.environment[&OsString::from("PYTHONPATH")], "/var/task:/client");
    settings.python_library = Some("/library".into());
    function.environment.insert("PYTHONPATH".to_owned(), String::new());
    assert_eq!(path_of(&function, &settings), "/library/site:/client");
}

#[test]
fn handlers_in_javascript_and_actions_have_programs_of_their_own() {
    let node = NodeRuntime { major: 20, program: "/opt/node/bin/node".into(), folders: vec!["/opt/node".into()] };
    let settings = RuntimeSettings { nodes: vec![node], launchers: Some("/launchers".into()), ..settings() };
    let mut function = function("f");
    function.runtime = Runtime::Node { major: 20 };
    function.memory = ByteSize::mib(200);
    let command = command_with(&function, &settings).unwrap();
    let expected = ["/opt/node/bin/node", "--max-old-space-size=180", "/launchers/lambda.js", "app.handler"];
    assert_eq!(command.command, expected);
    assert_eq!(command.folders, [PathBuf::from("/opt/node"), PathBuf::from("/launchers")]);
    assert_eq!(value(&command, "AWS_EXECUTION_ENV"), Some("AWS_Lambda_nodejs20.x"));
    assert_eq!(value(&command, "NODE_PATH"), None);
    let action = serde_json::json!({ "path": "f", "kind": "nodejs:20" });
    function.action = Some(serde_json::from_value(action).unwrap());
    assert_eq!(command_with(&function, &settings).unwrap().command[2], "/launchers/launcher.js");
    function.runtime = Runtime::Node { major: 22 };
    assert_eq!(command_with(&function, &settings).err(), Some(RuntimeCommandError::NoNode(22)));
}

#[test]
fn a_wrapper_is_started_with_the_runtimes_command() {
    let mut function = function("f");
    function.environment.insert(WRAPPER.to_owned(), "/opt/wrapper".to_owned());
    function.runtime = Runtime::Python { minor: 11 };
    assert_eq!(command_of(&function).unwrap().command[..2], ["/opt/wrapper", "/venv/bin/python3"]);
    function.runtime = Runtime::Provided;
    assert_eq!(command_of(&function).unwrap().command, ["/var/task/bootstrap"]);
}

#[test]
fn an_action_finds_its_names_and_a_key_only_where_it_says_so() {
    let mut function = function("p__a");
    function.runtime = Runtime::Python { minor: 11 };
    let action = serde_json::json!({ "path": "p/a", "kind": "python:3" });
    let mut action: Action = serde_json::from_value(action).unwrap();
    function.action = Some(action.clone());
    let settings = RuntimeSettings { launchers: Some("/launchers".into()), ..settings() };
    let command = command_with(&function, &settings).unwrap();
    assert_eq!(value(&command, "__OW_ACTION_NAME"), Some("/tenant/p/a"));
    assert_eq!(value(&command, "PYTHONPATH"), Some("/launchers:/var/task"));
    assert_eq!((value(&command, "__OW_API_KEY"), command.folders.len()), (None, 2));
    action.annotations.set("provide-api-key", true.into());
    function.action = Some(action);
    let keyed = command_with(&function, &settings).unwrap();
    assert!(value(&keyed, "__OW_API_KEY").is_some_and(|key| key.starts_with("KEY:")));
    assert!(command_of(&function).is_err(), "without its launcher it cannot be called");
}

#[test]
fn a_stem_has_what_all_functions_of_its_runtime_have_and_no_secret() {
    let (minor, imports) = (11, ["boto3".to_owned()]);
    let stem = prewarm_command(&Runtime::Python { minor }, &settings(), &imports).unwrap();
    assert_eq!((stem.command.len(), stem.command.last()), (4, Some(&"boto3".into())));
    let mut function = function("thumbnail");
    function.runtime = Runtime::Python { minor };
    let fresh = command_of(&function).unwrap();
    assert_eq!((&stem.command[0], stem.folders), (&fresh.command[0], fresh.folders));
    assert!(stem.environment.iter().all(|(name, value)| fresh.environment.get(name) == Some(value)));
    let secrets = ["KEY", "TOKEN"];
    assert!(stem.environment.keys().all(|name| !secrets.iter().any(|part| name.to_string_lossy().contains(part))));
    assert!(prewarm_command(&Runtime::Provided, &settings(), &imports).is_none());
    assert!(prewarm_command(&Runtime::Python { minor: 8 }, &settings(), &imports).is_none());
}

#[test]
fn a_function_sets_its_own_names_and_cannot_set_reserved_ones() {
    let mut function = function("f");
    for name in RESERVED_NAMES.into_iter().chain(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL_LAMBDA", "PATH", "MINE"]) {
        function.environment.insert(name.to_owned(), "own".to_owned());
    }
    let command = command_of(&function).unwrap();
    for name in RESERVED_NAMES.into_iter().chain(["AWS_ENDPOINT_URL_S3"]) {
        assert_ne!(value(&command, name), Some("own"), "{name}");
    }
    for name in ["AWS_ENDPOINT_URL_LAMBDA", "PATH", "MINE"] {
        assert_eq!(value(&command, name), Some("own"), "{name}");
    }
    assert_eq!(command.command, ["/var/task/bootstrap"]);
}

#[test]
fn a_python_that_is_not_there_is_named_with_those_that_are() {
    let mut function = function("f");
    function.runtime = Runtime::Python { minor: 8 };
    let error = command_of(&function).err().map(|error| error.to_string()).unwrap();
    assert!(error.contains("python3.8") && error.contains("python3.11"), "{error}");
}
