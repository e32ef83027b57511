//! `nigh keys`.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use nigh_node::config::Span;
use nigh_node::tenancy::{CreatedKey, KeyState, ListedKey, NewKey};
use nigh_terms::{AdminRole, BucketName, FunctionName, Namespace};
use serde_json::json;

use crate::confirm::confirm;
use crate::context::Globals;
use crate::error::CliError;
use crate::output::{self, Colour, coloured};

/// A day in seconds.
const DAY_S: u64 = 24 * 3600;

/// Subcommands of `nigh keys`.
#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  nigh keys create --name backup --bucket pictures --read-only --expires 90d
  nigh keys create --name ci --function blur --namespace team-a
  nigh keys create --name dashboard --role view      for the admin API
  nigh keys ls --active --namespace team-a
  nigh keys rotate backup --overlap 24h               both keys are good for a day
  nigh keys disable backup

A key is an access key and a secret, for S3, Lambda, OpenWhisk and the admin API. A change holds on all nodes of a cluster
within a second; a node that is cut off from NATS learns of it when it is connected again. A limited key is read by this
version of Nigh and later ones only.")]
pub(crate) enum KeysCommand {
    /// Create a key for the namespace, and print its secret, which is not shown again
    Create(CreateArgs),
    /// List the keys of all namespaces, or of the one that --profile names, without their secrets
    #[command(visible_alias = "list")]
    Ls {
        /// Only keys whose names or ids begin like this
        prefix: Option<String>,
        /// Only keys that are neither disabled nor expired
        #[arg(long)]
        active: bool,
        /// List so many at most
        #[arg(long, default_value_t = 1000)]
        limit: usize,
    },
    /// Show a key
    Show {
        /// The key's id or name
        key: String,
    },
    /// Refuse a key until it is enabled again
    Disable {
        /// The key's id or name
        key: String,
    },
    /// Accept a disabled key again
    Enable {
        /// The key's id or name
        key: String,
    },
    /// Create a key that may do the same, and let this one expire
    Rotate {
        /// The key's id or name
        key: String,
        /// How long the old key is still accepted: 24h, 30min, 0s
        #[arg(long, value_name = "TIME", default_value = "24h", value_parser = time)]
        overlap: Duration,
    },
    /// Remove a key for good
    Rm {
        /// The key's id or name
        key: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// What a new key is for and may do.
#[derive(Args)]
pub(crate) struct CreateArgs {
    /// A name, for the other commands: letters, digits, dots, dashes, underscores
    #[arg(long)]
    name: Option<String>,
    /// What it is for
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
    /// It reads objects, functions and lists, and neither changes nor runs anything
    #[arg(long)]
    read_only: bool,
    /// A bucket that it reaches; may be given several times. With this or --function it reaches nothing else
    #[arg(long = "bucket", value_name = "BUCKET")]
    buckets: Vec<BucketName>,
    /// A function that it may invoke and read; may be given several times
    #[arg(long = "function", value_name = "FUNCTION")]
    functions: Vec<FunctionName>,
    /// What it may do at the admin API, for all namespaces [default: nothing]
    #[arg(long)]
    role: Option<RoleArg>,
    /// After this time it is refused: 90d, 12h [default: never]
    #[arg(long, value_name = "TIME", value_parser = time)]
    expires: Option<Duration>,
}

/// A role at the admin API.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RoleArg {
    /// Read status, metrics, records and logs
    View,
    /// Also change: keys, namespaces, policies, drain
    Operate,
}

impl From<RoleArg> for AdminRole {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::View => Self::View,
            RoleArg::Operate => Self::Operate,
        }
    }
}

/// A span of time in days, or as settings have it.
fn time(text: &str) -> Result<Duration, String> {
    let days = text.trim().trim_end_matches("ays").strip_suffix('d').map(str::trim);
    if let Some(days) = days.and_then(|days| days.parse::<u64>().ok()) {
        let seconds = days.checked_mul(DAY_S).ok_or_else(|| format!("{text:?} is too long"))?;
        return Ok(Duration::from_secs(seconds));
    }
    let refused = || format!("{text:?} is no time; write a whole number with d, h, min or s, for example 90d or 24h");
    text.parse::<Span>().map(Span::duration).map_err(|_| refused())
}

/// Runs it.
pub(crate) async fn run(command: KeysCommand, globals: &Globals) -> Result<(), CliError> {
    let admin = globals.admin()?;
    match command {
        KeysCommand::Create(args) => {
            let new = NewKey {
                name: args.name,
                description: args.description,
                namespace: Some(globals.namespace().await?),
                read_only: args.read_only,
                buckets: args.buckets.into_iter().collect(),
                functions: args.functions.into_iter().collect(),
                role: args.role.map(AdminRole::from),
                expires_s: args.expires.map(|expires| expires.as_secs()),
            };
            created(&admin.exchange("/keys", &new).await?, globals)
        }
        KeysCommand::Ls { prefix, active, limit } => {
            let namespace = match globals.profile {
                Some(_) => Some(globals.namespace().await?),
                None => None,
            };
            let mut keys: Vec<ListedKey> = admin.get("/keys").await?;
            keys.retain(|key| is_listed(key, prefix.as_deref(), namespace.as_ref(), active));
            keys.truncate(limit);
            if globals.json { output::json(&keys) } else { list(&keys) }
        }
        KeysCommand::Show { key } => {
            let key: ListedKey = admin.get(&format!("/keys/{}", checked(&key)?)).await?;
            if globals.json { output::json(&key) } else { show(&key) }
        }
        KeysCommand::Disable { key } => change(&key, "disable", "disabled", globals).await,
        KeysCommand::Enable { key } => change(&key, "enable", "enabled", globals).await,
        KeysCommand::Rotate { key, overlap } => {
            let path = format!("/keys/{}/rotate?overlap_s={}", checked(&key)?, overlap.as_secs());
            created(&admin.post(&path).await?, globals)
        }
        KeysCommand::Rm { key, yes } => {
            let found: ListedKey = admin.get(&format!("/keys/{}", checked(&key)?)).await?;
            confirm(&format!("Remove the access key {} for good?", title(&found)), yes)?;
            change(&key, "rm", "removed", globals).await
        }
    }
}

/// Whether a key's id or name begins with `prefix`, and it is of `namespace`; where these are asked for.
fn is_listed(key: &ListedKey, prefix: Option<&str>, namespace: Option<&Namespace>, active: bool) -> bool {
    let begins = |prefix: &str| {
        let name = key.name.as_deref().unwrap_or_default();
        name.starts_with(prefix) || key.id.as_str().starts_with(prefix)
    };
    prefix.is_none_or(begins)
        && namespace.is_none_or(|namespace| key.namespace == *namespace)
        && (!active || key.state == KeyState::Active)
}

/// A key's id or name as part of a path.
fn checked(key: &str) -> Result<&str, CliError> {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_');
    if key.is_empty() || !key.chars().all(fits) {
        return Err(CliError::Usage(format!("{key:?} is no key's id or name; `nigh keys ls` lists them")));
    }
    Ok(key)
}

async fn change(key: &str, verb: &str, done: &str, globals: &Globals) -> Result<(), CliError> {
    globals.admin()?.give(&format!("/keys/{}/{verb}", checked(key)?), &()).await?;
    if globals.json {
        return output::json(&json!({ done: key }));
    }
    output::line(format_args!("{done} {key}"))
}

/// Prints a key with its secret.
pub(crate) fn created(created: &CreatedKey, globals: &Globals) -> Result<(), CliError> {
    if globals.json {
        return output::json(created);
    }
    let key = &created.key;
    let mut table = output::table(&[]);
    table.add_row(["access key".to_owned(), key.id.to_string()]);
    table.add_row(["secret".to_owned(), created.secret.reveal().to_owned()]);
    for (name, value) in facts(key) {
        table.add_row([name.to_owned(), value]);
    }
    output::print_table(&table)?;
    if let Some(old) = &created.replaces {
        output::remark(format_args!("{old} is refused after the overlap; `nigh keys show {old}` says when"));
    }
    output::remark("the secret is not shown again");
    Ok(())
}

/// Its id, and its name if it has one.
fn title(key: &ListedKey) -> String {
    key.name.as_ref().map_or_else(|| key.id.to_string(), |name| format!("{} ({name})", key.id))
}

/// What a key may do, in words.
fn scope(key: &ListedKey) -> String {
    let mut words: Vec<String> = Vec::new();
    if key.scope.read_only {
        words.push("read-only".to_owned());
    }
    words.extend(key.scope.buckets.iter().map(|bucket| format!("bucket {bucket}")));
    words.extend(key.scope.functions.iter().map(|function| format!("function {function}")));
    if words.is_empty() { "all".to_owned() } else { words.join(", ") }
}

fn state(key: &ListedKey) -> String {
    match key.state {
        KeyState::Active => coloured(Colour::Green, "active"),
        KeyState::Disabled => coloured(Colour::Yellow, "disabled"),
        KeyState::Expired => coloured(Colour::Red, "expired"),
    }
}

fn list(keys: &[ListedKey]) -> Result<(), CliError> {
    let mut table = output::table(&["ID", "NAME", "NAMESPACE", "STATE", "MAY", "ROLE", "LAST USED", "EXPIRES"])
        .less_important(&["ROLE", "EXPIRES", "LAST USED"]);
    for key in keys {
        table.add_row(row(key));
    }
    output::print_table(&table)
}

fn row(key: &ListedKey) -> [String; 8] {
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let name = if key.from_settings { "(from settings)".to_owned() } else { or_none(&key.name) };
    [
        key.id.to_string(),
        name,
        key.namespace.to_string(),
        state(key),
        scope(key),
        key.role.map_or_else(|| "-".to_owned(), |role| role.to_string()),
        or_none(&key.last_used),
        or_none(&key.expires),
    ]
}

fn show(key: &ListedKey) -> Result<(), CliError> {
    let mut table = output::table(&[]);
    table.add_row(["access key".to_owned(), key.id.to_string()]);
    table.add_row(["state".to_owned(), state(key)]);
    for (name, value) in facts(key) {
        table.add_row([name.to_owned(), value]);
    }
    output::print_table(&table)
}

/// What is known of a key but its id and its state.
fn facts(key: &ListedKey) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    let mut add = |name: &'static str, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    add("name", key.name.clone());
    add("description", Some(key.description.clone()).filter(|text| !text.is_empty()));
    add("namespace", Some(key.namespace.to_string()));
    add("may", Some(scope(key)));
    add("role", key.role.map(|role| role.to_string()));
    add("created", key.created.clone().or_else(|| Some("by Nigh, from settings".to_owned())));
    add("expires", key.expires.clone());
    add("last used", key.last_used.clone());
    add("replaced by", key.replaced_by.as_ref().map(ToString::to_string));
    facts
}

#[cfg(test)]
mod tests {
    use nigh_terms::AccessKeyId;

    use super::*;

    #[test]
    fn a_time_is_in_days_or_as_settings_have_it() {
        assert_eq!(time("90d"), Ok(Duration::from_secs(90 * DAY_S)));
        assert_eq!(time("1 days"), Ok(Duration::from_secs(DAY_S)));
        assert_eq!(time("24h"), Ok(Duration::from_secs(DAY_S)));
        assert_eq!(time("30 min"), Ok(Duration::from_secs(1800)));
        for bad in ["", "d", "90", "-1d", "1 year", "99999999999999999999d"] {
            assert!(time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_row_says_what_a_key_may_do_and_whether_it_is_from_the_settings() {
        let mut key = ListedKey {
            id: AccessKeyId::new("NIGHA"),
            name: None,
            description: String::new(),
            namespace: Namespace::new("team-a").unwrap(),
            state: KeyState::Active,
            from_settings: true,
            scope: Default::default(),
            role: None,
            created: None,
            expires: None,
            last_used: None,
            replaced_by: None,
        };
        assert_eq!(row(&key)[1], "(from settings)");
        assert_eq!(row(&key)[4], "all");
        (key.from_settings, key.name) = (false, Some("backup".to_owned()));
        key.scope.read_only = true;
        key.scope.buckets.insert(BucketName::new("pictures").unwrap());
        assert_eq!(row(&key)[1], "backup");
        assert_eq!(row(&key)[4], "read-only, bucket pictures");
        assert_eq!(title(&key), "NIGHA (backup)");
    }
}
