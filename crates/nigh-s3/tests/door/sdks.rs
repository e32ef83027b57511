//! boto3 with its default settings, against the running door. `nigh`'s own tests drive a whole node with the other SDKs.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::running::Running;
use crate::skipped::skip;

fn script(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/sdk").join(name)
}

/// The command of its own environment: nothing of the caller's AWS configuration reaches it.
fn command(program: &str, door: &Running) -> Command {
    let mut command = Command::new(program);
    command
        .env("AWS_ENDPOINT_URL", format!("http://{}", door.address))
        .env("AWS_ACCESS_KEY_ID", &door.signer.key)
        .env("AWS_SECRET_ACCESS_KEY", &door.signer.secret)
        .env("AWS_DEFAULT_REGION", "us-east-1")
        .env("AWS_CONFIG_FILE", "/dev/null")
        .env("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("AWS_PAGER", "")
        .env_remove("AWS_SESSION_TOKEN")
        .env_remove("AWS_PROFILE");
    command
}

async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn report(output: &Output, checks_min: usize) {
    let said = String::from_utf8_lossy(&output.stdout);
    println!("{said}");
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let checks = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert!(checks >= checks_min, "only {checks} checks ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn boto3_works_with_its_default_settings() {
    let python = std::env::var("NIGH_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_boto3 = Command::new(&python).args(["-c", "import boto3"]).output().is_ok_and(|ran| ran.status.success());
    if !has_boto3 {
        skip("boto3_works_with_its_default_settings", format_args!("{python} has no boto3; set NIGH_TEST_PYTHON"));
        return;
    }
    let door = Running::start().await;
    let mut command = command(&python, &door);
    command.arg(script("boto3_s3.py"));
    report(&run(command).await, 35);
}

#[tokio::test(flavor = "multi_thread")]
async fn boto3_s_transactions_are_whole_and_those_of_many_threads_keep_a_sum() {
    let python = std::env::var("NIGH_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let has_boto3 = Command::new(&python).args(["-c", "import boto3"]).output().is_ok_and(|ran| ran.status.success());
    if !has_boto3 {
        skip(
            "boto3_s_transactions_are_whole_and_those_of_many_threads_keep_a_sum",
            format_args!("{python} has no boto3; set NIGH_TEST_PYTHON"),
        );
        return;
    }
    let door = Running::start_with_journal().await;
    let mut command = command(&python, &door);
    command.env("PYTHONPATH", PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../runtimes/python"));
    command.arg(script("boto3_transactions.py"));
    report(&run(command).await, 6);
}
