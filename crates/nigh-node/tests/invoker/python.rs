//! Python functions under the vendor's own runtime client.

use std::path::{Path, PathBuf};

use nigh_functions::function::Runtime;
use nigh_sandbox::runtime_command::PythonRuntime;
use serde_json::json;

use crate::node::{Node, settings};
use crate::skipped::skip;

const HANDLER: &str = "
import os
print('loaded')

def handler(event, context):
    print('handling', context.aws_request_id)
    if event.get('raise'):
        raise KeyError('as asked')
    return {'event': event, 'function': context.function_name, 'memory': context.memory_limit_in_mb,
            'left': context.get_remaining_time_in_millis() > 0}
";

/// The Python that `make` installs for functions, or the one that the environment names.
pub(crate) fn python() -> Option<PythonRuntime> {
    // Without `..`: a sandbox has only those folders on the way to it that are shown in it.
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?;
    let installed = project.join(".deps/python/bin/python3");
    let interpreter = std::env::var_os("NIGH_TEST_PYTHON").map_or(installed, PathBuf::from);
    let program = "import awslambdaric, sys; print(sys.version_info.minor, sys.prefix, sys.base_prefix)";
    let said = std::process::Command::new(&interpreter).args(["-c", program]).output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let mut words = said.split_whitespace();
    let minor = words.next()?.parse().ok()?;
    Some(PythonRuntime { minor, interpreter, folders: words.map(PathBuf::from).collect(), client: None })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_python_handler_runs_unmodified_under_awslambdaric() {
    let Some(python) = python() else {
        skip(
            "a_python_handler_runs_unmodified_under_awslambdaric",
            "no Python with awslambdaric; make installs one, NIGH_TEST_PYTHON names one",
        );
        return;
    };
    let minor = python.minor;
    let mut settings = settings();
    settings.runtime.pythons = vec![python];
    let node = Node::start(settings).await;
    node.deploy_files("f", &[("app.py", HANDLER)], |function| function.runtime = Runtime::Python { minor });
    let cold = node.invoke("f", json!({"n": [1, 2]})).await;
    let expected = json!({"event": {"n": [1, 2]}, "function": "f", "memory": "128", "left": true});
    assert_eq!((&cold.payload, cold.is_error), (&expected, false));
    assert!(cold.tail.contains("loaded") && cold.tail.contains(&format!("handling {}", cold.id)), "{}", cold.tail);
    let warm = node.invoke("f", json!({})).await;
    assert!(!warm.tail.contains("loaded") && !node.record(warm.id).await.cold);
    let raised = node.invoke("f", json!({"raise": true})).await;
    assert_eq!((raised.error_type(), &raised.payload["errorMessage"]), ("KeyError", &json!("'as asked'")));
    assert!(raised.payload["stackTrace"].as_array().is_some_and(|trace| !trace.is_empty()));

    node.deploy_files("broken", &[("app.py", "import not_there\n")], |function| {
        function.runtime = Runtime::Python { minor };
    });
    let broken = node.invoke("broken", json!({})).await;
    assert_eq!(broken.error_type(), "Runtime.ImportModuleError");
    node.stop().await;
}
