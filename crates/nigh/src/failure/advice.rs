//! What the user can do about a failure: a table from what the error says to words. Pure.

use nigh_node::{ExceededLimit, Outcome};
use nigh_terms::ByteSize;

use super::cause::Cause;

/// Lambda's limits, which a larger setting must not exceed.
const TIMEOUT_MAX_S: u64 = 900;
const MEMORY_MAX: ByteSize = ByteSize::mib(10_240);
/// Names of handlers that are offered.
const HANDLERS_MAX: usize = 5;
/// Handlers less alike than this (Jaro-Winkler) are not meant.
const ALIKE: f64 = 0.7;

/// A rule: if the error's type and message have one of these texts, this is the advice, unless it has none.
struct Rule {
    any_of: &'static [&'static str],
    advice: fn(&Cause<'_>) -> Option<String>,
}

const RULES: [Rule; 14] = [
    Rule { any_of: &["Runtime.HandlerNotFound", "Runtime.MalformedHandlerName"], advice: handler },
    Rule { any_of: &["Runtime.ImportModuleError", "ModuleNotFoundError", "Cannot find module"], advice: module },
    Rule { any_of: &["Runtime.InvalidEntrypoint"], advice: program },
    Rule { any_of: &["NoSuchBucket"], advice: bucket },
    Rule { any_of: &["NoSuchKey", "(404) when calling the HeadObject"], advice: key },
    Rule {
        any_of: &[
            "AccessDenied",
            "InvalidAccessKeyId",
            "SignatureDoesNotMatch",
            "Unable to locate credentials",
            "UnrecognizedClientException",
        ],
        advice: keys,
    },
    Rule {
        any_of: &["Read-only file system", "EROFS", "Permission denied: '", "EACCES"],
        advice: |_| Some("a function can write below /tmp, and nowhere else".to_owned()),
    },
    Rule {
        any_of: &["No space left on device", "ENOSPC"],
        advice: |cause| {
            Some(format!("its /tmp is full; make it larger: `nigh deploy {} --tmp 1GiB`", cause.record.function))
        },
    },
    Rule {
        any_of: &[
            "EndpointConnectionError",
            "Could not connect to the endpoint URL",
            "ConnectTimeoutError",
            "Name or service not known",
            "Temporary failure in name resolution",
            "Network is unreachable",
            "ENETUNREACH",
            "ENOTFOUND",
            "EAI_AGAIN",
        ],
        advice: network,
    },
    Rule {
        any_of: &["Function.ResponseSizeTooLarge"],
        advice: |_| Some("write a large result as an object, and answer its name".to_owned()),
    },
    Rule {
        any_of: &["Runtime.MarshalError", "is not JSON serializable"],
        advice: |_| Some("answer what JSON can hold: text, numbers, true and false, lists and dictionaries".to_owned()),
    },
    Rule {
        any_of: &["KeyError: 'Records'"],
        advice: |_| {
            Some(
                "an event of a trigger has Records, an event of a schedule has none: test `\"Records\" in event` first \
                 (docs/reference/lambda.md#schedules)"
                    .to_owned(),
            )
        },
    },
    Rule {
        any_of: &["can't start new thread"],
        advice: |_| Some("it has as many threads and processes as a sandbox may have; start fewer".to_owned()),
    },
    Rule {
        any_of: &["invalid ELF header", "wrong ELF class", "cannot open shared object file", "GLIBC_"],
        advice: |_| {
            Some(
                "a library in the code was built for another system; build the code on a system like this node"
                    .to_owned(),
            )
        },
    },
];

/// Python's import names whose packages are called otherwise.
const PACKAGES: [(&str, &str); 14] = [
    ("Crypto", "pycryptodome"),
    ("MySQLdb", "mysqlclient"),
    ("PIL", "pillow"),
    ("attr", "attrs"),
    ("bs4", "beautifulsoup4"),
    ("cv2", "opencv-python-headless"),
    ("dateutil", "python-dateutil"),
    ("dotenv", "python-dotenv"),
    ("google.protobuf", "protobuf"),
    ("jwt", "pyjwt"),
    ("psycopg2", "psycopg2-binary"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("yaml", "pyyaml"),
];

/// What to do; none if nothing is known.
pub(super) fn advice(cause: &Cause<'_>) -> Option<String> {
    let function = &cause.record.function;
    match (&cause.record.outcome, cause.record.exceeded) {
        (Outcome::TimedOut, limit) => {
            let limit_us = match limit {
                Some(ExceededLimit::Timeout { limit_us } | ExceededLimit::InitTimeout { limit_us }) => limit_us,
                _ => cause.record.duration_us,
            };
            let more = (limit_us.div_ceil(1_000_000).max(1) * 2).min(TIMEOUT_MAX_S);
            Some(format!("give it more time (its setting `timeout`): `nigh deploy {function} --timeout {more}s`"))
        }
        (Outcome::OutOfMemory, _) if cause.record.booked >= MEMORY_MAX => {
            Some("no function can book more: let it work on smaller parts".to_owned())
        }
        (Outcome::OutOfMemory, _) => {
            let more = (cause.record.booked + cause.record.booked).min(MEMORY_MAX).mib_ceil();
            Some(format!("book more: `nigh deploy {function} --memory {more}MiB`"))
        }
        (Outcome::Stopped, _) => Some("invoke it again when the node is back".to_owned()),
        (Outcome::HandlerError { .. } | Outcome::InitError { .. }, _) => {
            let text = format!("{}: {}", cause.error_type, cause.message);
            let applies = |rule: &&Rule| rule.any_of.iter().any(|part| text.contains(part));
            RULES.iter().filter(applies).find_map(|rule| (rule.advice)(cause))
        }
        _ => None,
    }
}

/// The handler that was probably meant, or those that there are.
fn handler(cause: &Cause<'_>) -> Option<String> {
    let function = &cause.record.function;
    let there = &cause.record.handlers;
    if there.is_empty() {
        return Some("a handler is called FILE.FUNCTION: main.handle is the function handle in main.py".to_owned());
    }
    let quoted = |before: &str| quoted_after(&cause.message, before);
    let (module, name) = (quoted("on module '").or(quoted("Unable to import module '")), quoted("Handler '"));
    let alike = |there: &str| match (module, name) {
        (Some(module), Some(name)) => strsim::jaro_winkler(&format!("{module}.{name}"), there),
        (Some(module), None) => strsim::jaro_winkler(module, there.rsplit_once('.').map_or(there, |(file, _)| file)),
        (None, _) => 0.0,
    };
    let rated = there.iter().map(|name| (alike(name), name));
    let meant = rated.filter(|(alike, _)| *alike >= ALIKE).max_by(|a, b| a.0.total_cmp(&b.0));
    match (meant, there.as_slice()) {
        (Some((_, meant)), _) => Some(format!("did you mean {meant}? `nigh deploy {function} --handler {meant}`")),
        (None, [only]) => Some(format!("the code has {only}: `nigh deploy {function} --handler {only}`")),
        (None, several) => {
            let names: Vec<&str> = several.iter().take(HANDLERS_MAX).map(String::as_str).collect();
            Some(format!("the code has {}: `nigh deploy {function} --handler NAME` chooses one", names.join(", ")))
        }
    }
}

/// The line that adds a missing module.
fn module(cause: &Cause<'_>) -> Option<String> {
    if let Some(name) = quoted_after(&cause.message, "Cannot find module '") {
        return Some(if name.starts_with(['.', '/']) {
            format!("the code has no file {name}")
        } else {
            format!("`npm install {name}` in the function's folder, and deploy it again")
        });
    }
    let missing = quoted_after(&cause.message, "No module named '")?;
    let of_handler = quoted_after(&cause.message, "Unable to import module '");
    if of_handler.is_some_and(|own| own.replace('/', ".") == missing) {
        if cause.record.handlers.is_empty() {
            return Some(format!("the code has no file {missing}.py at its top"));
        }
        return handler(cause);
    }
    let known = PACKAGES.iter().find(|(module, _)| missing == *module || missing.starts_with(&format!("{module}.")));
    let package = known.map_or_else(|| missing.split('.').next().unwrap_or(missing), |(_, package)| *package);
    Some(format!(
        "add the line `{package}` to requirements.txt in the function's folder and deploy it again, or put the package \
         into the folder: `pip install --target FOLDER {package}`"
    ))
}

fn program(cause: &Cause<'_>) -> Option<String> {
    Some(if cause.message.contains("valid bootstrap") {
        "put an executable file called bootstrap at the top of the code, and deploy it again".to_owned()
    } else {
        "the file must be executable (`chmod +x`), be built for this node's processor, and need no interpreter that is not \
         in the sandbox"
            .to_owned()
    })
}

fn bucket(cause: &Cause<'_>) -> Option<String> {
    let namespace = &cause.record.namespace;
    Some(match cause.failed_call().map(|call| call.bucket.as_str()) {
        Some(bucket) => {
            format!("the namespace {namespace} has no bucket {bucket}; make it: `nigh objects mb nigh://{bucket}`")
        }
        None => format!("`nigh objects ls` lists the buckets of the namespace {namespace}"),
    })
}

fn key(cause: &Cause<'_>) -> Option<String> {
    let call = cause.failed_call()?;
    let (bucket, key) = (&call.bucket, call.key.as_deref()?);
    let folder = key.rsplit_once('/').map_or(String::new(), |(folder, _)| format!("{folder}/"));
    Some(format!("there is no object {key} in {bucket}; what is there: `nigh objects ls nigh://{bucket}/{folder}`"))
}

fn keys(_: &Cause<'_>) -> Option<String> {
    Some(
        "use the keys and the address that the function finds in its environment (boto3 does so by itself): keys in its code \
         or settings are not this node's"
            .to_owned(),
    )
}

fn network(cause: &Cause<'_>) -> Option<String> {
    let function = &cause.record.function;
    Some(format!(
        "a function reaches only its data, unless it has an outbound network: `nigh deploy {function} --network outbound`"
    ))
}

/// The text after `before` up to the next quotation mark.
fn quoted_after<'a>(text: &'a str, before: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once('\'').map(|(quoted, _)| quoted)
}
