//! Settings for `nigh config show`.

use figment::value::{Dict, Value};
use figment::{Figment, Provider as _};
use nigh_terms::ByteSize;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The settings that are never shown: the node's secret key, and those of namespaces.
const SECRET: &str = "store.secret_key";
/// The token of the cluster's servers, which is never shown.
const CLUSTER_TOKEN: &str = "cluster.token";
/// The headers for the collector of traces, which are never shown.
const TRACE_HEADERS: &str = "traces.headers";
/// What holds where a setting has no value and that does not mean that there is none.
const ABSENT: [(&str, &str); 14] = [
    ("admin.listen", "127.0.0.1:9403, or a free port if s3.listen has one"),
    ("cluster", "one machine"),
    ("cluster.advertise", "cluster.listen"),
    ("health.listen", "127.0.0.1:9402, or a free port if s3.listen has one"),
    ("llc.insensitive_ways", "3 of 11"),
    ("openwhisk.concurrent_invocations", "functions.sandboxes_max"),
    ("functions.sandbox_program", "nigh-sandbox beside nigh"),
    ("functions.runc", "runc of PATH"),
    ("memory.features_program", "nigh-features beside nigh"),
    ("s3.uploads_bytes", "8 times s3.object_max"),
    ("store.shadow_node", "the node's name"),
    ("store.region", "us-east-1 with s3, any with swift"),
    ("tls.authority", "clients' systems trust it"),
    ("tls.certificate", "plain HTTP"),
];
/// Numbers of bytes, shown as they are written: `64 MiB`.
const SIZES: [&str; 17] = [
    "activations.bytes_max",
    "activations.namespace_bytes",
    "cache.bytes",
    "cache.held_max",
    "cache.object_max",
    "cluster.journal_max",
    "events.queue_bytes",
    "functions.memory",
    "functions.prewarm_memory",
    "memory.features_memory",
    "memory.slack",
    "memory.slack_max",
    "memory.slack_min",
    "s3.object_max",
    "s3.uploads_bytes",
    "workflows.kept_bytes",
    "writes.journal_max",
];

/// A setting, its value and its origin, for `nigh config show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ShownSetting {
    /// The setting: `s3.listen`.
    pub key: String,
    /// The setting's value; stars for secrets.
    pub value: String,
    /// The setting's origin: a file, a variable, a flag, or the default.
    pub origin: String,
}

pub(super) fn is_secret(key: &str) -> bool {
    [SECRET, CLUSTER_TOKEN, TRACE_HEADERS].contains(&key)
        || key.starts_with("namespaces.") && key.ends_with(&format!(".{SECRET}"))
}

pub(super) fn show(figment: &Figment) -> Vec<ShownSetting> {
    let mut shown = Vec::new();
    let Ok(data) = figment.data() else { return shown };
    for (_, dict) in data {
        flatten("", &dict, figment, &mut shown);
    }
    shown
}

pub(super) fn flatten(prefix: &str, dict: &Dict, figment: &Figment, shown: &mut Vec<ShownSetting>) {
    for (name, value) in dict {
        let key = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if let Value::Dict(_, inner) = value {
            flatten(&key, inner, figment, shown);
            continue;
        }
        let origin = figment.get_metadata(value.tag()).map_or_else(|| "default".to_owned(), |m| m.name.to_string());
        let value = match value {
            Value::Empty(..) => {
                let meant = ABSENT.iter().find(|(absent, _)| *absent == key).map_or("none", |(_, meant)| meant);
                format!("({meant})")
            }
            _ if is_secret(&key) => "***".to_owned(),
            Value::Num(_, number) if SIZES.contains(&key.as_str()) => match number.to_u128().map(u64::try_from) {
                Some(Ok(bytes)) => ByteSize(bytes).to_string(),
                _ => plain(value),
            },
            value => plain(value),
        };
        shown.push(ShownSetting { key, value, origin });
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(_, text) => text.clone(),
        Value::Bool(_, flag) => flag.to_string(),
        Value::Char(_, letter) => letter.to_string(),
        Value::Num(_, number) => match (number.to_u128(), number.to_f64()) {
            (Some(whole), _) => whole.to_string(),
            (None, Some(real)) => real.to_string(),
            (None, None) => format!("{number:?}"),
        },
        Value::Array(_, items) => format!("[{}]", items.iter().map(plain).collect::<Vec<_>>().join(", ")),
        Value::Empty(..) => "(none)".to_owned(),
        Value::Dict(_, inner) => {
            let items: Vec<_> = inner.iter().map(|(key, value)| format!("{key} = {}", plain(value))).collect();
            format!("{{{}}}", items.join(", "))
        }
    }
}
