//! `nigh env`: the variables by which other tools find the running node.

use clap::Args;
use nigh_node::credentials::{self, Credentials};
use nigh_node::endpoints::Endpoints;
use serde_json::Value;

use crate::context::Globals;
use crate::error::CliError;
use crate::output;

/// Options of `nigh env`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  eval \"$(nigh env)\"                       this shell: aws s3 ls, aws lambda list-functions, boto3
  eval \"$(nigh env --unset)\"               and back
  eval \"$(nigh env --profile tenant-2)\"    with the key of another namespace

The secret key is among them; it is also in the file credentials of the state folder.")]
pub(crate) struct EnvArgs {
    /// Print what removes the variables
    #[arg(long)]
    unset: bool,
}

/// The variables and their values. Older SDKs and boto3 read the second name of the region.
fn variables(endpoints: &Endpoints, key: &Credentials) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("AWS_ENDPOINT_URL_S3", endpoints.s3.clone()),
        ("AWS_ENDPOINT_URL_LAMBDA", endpoints.lambda.clone()),
        ("AWS_ENDPOINT_URL_SFN", endpoints.lambda.clone()),
        ("AWS_ENDPOINT_URL_SCHEDULER", endpoints.lambda.clone()),
        ("AWS_REGION", endpoints.region.clone()),
        ("AWS_DEFAULT_REGION", endpoints.region.clone()),
        ("AWS_ACCESS_KEY_ID", key.access_key.as_str().to_owned()),
        ("AWS_SECRET_ACCESS_KEY", key.secret_key.reveal().to_owned()),
    ];
    variables.extend(endpoints.ca_bundle.as_ref().map(|path| ("AWS_CA_BUNDLE", path.display().to_string())));
    variables
}

/// Prints them.
pub(crate) async fn run(args: &EnvArgs, globals: &Globals) -> Result<(), CliError> {
    let paths = globals.paths()?;
    let endpoints = globals.endpoints(&paths).await?;
    let profile = globals.profile.as_deref().unwrap_or(endpoints.namespace.as_str());
    let key = credentials::read(&paths.credentials(), profile)?;
    let variables = variables(&endpoints, &key);
    if globals.json {
        let all: serde_json::Map<String, Value> =
            variables.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        return output::json(&all);
    }
    for (name, value) in &variables {
        if args.unset {
            output::line(format_args!("unset {name}"))?;
        } else {
            output::line(format_args!("export {name}={}", quoted(value)))?;
        }
    }
    Ok(())
}

/// `value` for a shell: in single quotes unless no character of it has a meaning there.
fn quoted(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:+=@%,".contains(c);
    if !value.is_empty() && value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_means_itself_to_a_shell() {
        assert_eq!(quoted("http://127.0.0.1:9400"), "http://127.0.0.1:9400");
        assert_eq!(quoted("us-east-1"), "us-east-1");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("$(rm) 'x'"), r"'$(rm) '\''x'\'''");
        for value in ["it's; $HOME `id` \\ \"x\"", "*", "~/x"] {
            let command = format!("printf %s {}", quoted(value));
            let printed = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
            assert_eq!(String::from_utf8(printed.stdout).unwrap(), value);
        }
    }
}
