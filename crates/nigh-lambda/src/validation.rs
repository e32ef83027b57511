//! Checks requests against Lambda's rules and this node's runtimes. Pure.
//!
//! Limits: Lambda API reference, CreateFunction; "Lambda quotas"; "Using Lambda environment variables".

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use nigh_functions::function::LayerUse;
use nigh_functions::function_arn::parse_function_reference;
use nigh_functions::function_store::{FunctionSettings, NewFunction};
use nigh_functions::layer_store::LAYERS_MAX;
use nigh_functions::runtime_catalog::RuntimeCatalog;
use nigh_sandbox::runtime_command::RESERVED_NAMES;
use nigh_terms::{BucketName, ByteSize, ObjectKey};
use serde::Deserialize;

use super::LambdaError;
use super::shape::{ARCHITECTURE, CodeShape, CreateShape, SettingsShape, UpdateCodeShape, UpdateConfigurationShape};

const MEMORY_MB: std::ops::RangeInclusive<i64> = 128..=10_240;
const TIMEOUT_SECONDS: std::ops::RangeInclusive<i64> = 1..=900;
const EPHEMERAL_STORAGE_MB: std::ops::RangeInclusive<i64> = 512..=10_240;
const DESCRIPTION_CHARS_MAX: usize = 256;
const HANDLER_CHARS_MAX: usize = 128;
const ROLE_CHARS_MAX: usize = 512;
const ENVIRONMENT_BYTES_MAX: usize = 4096;
const TAGS_MAX: usize = 50;
const TAG_KEY_CHARS_MAX: usize = 128;
const TAG_VALUE_CHARS_MAX: usize = 256;
/// Finds the layer version that an ARN names.
pub(super) type FindLayer<'a> = dyn Fn(&str) -> Result<LayerUse, LambdaError> + 'a;

/// The place of an archive.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CodeLocation {
    /// In the request.
    Inline(Bytes),
    /// In an object of the namespace.
    Object(BucketName, ObjectKey),
}

/// A change of code.
#[derive(Debug)]
pub(super) struct CodeChange {
    pub(super) code: CodeLocation,
    pub(super) dry_run: bool,
    pub(super) revision: Option<String>,
}

/// Parses a body as `T`; an empty body as `{}`.
pub(super) fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, LambdaError> {
    let body = if body.is_empty() { b"{}" } else { body };
    serde_json::from_slice(body).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => LambdaError::serialization(error.to_string()),
        _ => LambdaError::invalid_content(format!("Could not parse request body into json: {error}")),
    })
}

/// `CreateFunction`'s body.
pub(super) fn create(
    body: &[u8],
    catalog: &RuntimeCatalog,
    layers: &FindLayer<'_>,
) -> Result<(NewFunction, CodeLocation), LambdaError> {
    let shape: CreateShape<'_> = read(body)?;
    let name = shape.function_name.ok_or_else(|| LambdaError::validation("FunctionName is required"))?;
    let name = parse_function_reference(&name)?;
    if shape.package_type.as_deref().is_some_and(|package| package != "Zip") {
        return Err(LambdaError::invalid_parameter("PackageType can only be Zip here"));
    }
    check_architectures(shape.architectures.as_deref())?;
    let code = code_location(shape.code.ok_or_else(|| LambdaError::validation("Code is required"))?)?;
    let mut settings = settings(shape.settings, catalog, layers)?;
    let (Some(runtime), Some(handler)) = (settings.runtime.take(), settings.handler.take()) else {
        return Err(LambdaError::invalid_parameter(
            "Runtime and Handler are mandatory parameters for functions created with deployment packages.",
        ));
    };
    let tags = shape.tags.unwrap_or_default();
    check_tags(&tags)?;
    Ok((NewFunction { name, runtime, handler, settings, tags }, code))
}

/// `UpdateFunctionCode`'s body.
pub(super) fn update_code(body: &[u8]) -> Result<CodeChange, LambdaError> {
    let shape: UpdateCodeShape<'_> = read(body)?;
    check_architectures(shape.architectures.as_deref())?;
    let UpdateCodeShape { zip_file, s3_bucket, s3_key, s3_object_version, image_uri, source_kms_key_arn, .. } = shape;
    let code =
        code_location(CodeShape { zip_file, s3_bucket, s3_key, s3_object_version, image_uri, source_kms_key_arn })?;
    Ok(CodeChange { code, dry_run: shape.dry_run.unwrap_or(false), revision: shape.revision_id })
}

/// The body of `UpdateFunctionConfiguration`: the settings, and the revision that they require.
pub(super) fn update_configuration(
    body: &[u8],
    catalog: &RuntimeCatalog,
    layers: &FindLayer<'_>,
) -> Result<(FunctionSettings, Option<String>), LambdaError> {
    let shape: UpdateConfigurationShape = read(body)?;
    Ok((settings(shape.settings, catalog, layers)?, shape.revision_id))
}

pub(super) fn code_location(shape: CodeShape<'_>) -> Result<CodeLocation, LambdaError> {
    if shape.image_uri.is_some() {
        return Err(LambdaError::invalid_parameter("ImageUri is not supported here; give a zip archive"));
    }
    if is_given(shape.source_kms_key_arn.as_deref()) {
        return Err(LambdaError::invalid_parameter("SourceKMSKeyArn is not supported here; leave it out"));
    }
    match (shape.zip_file, shape.s3_bucket, shape.s3_key) {
        (Some(zip), None, None) => {
            let zip = STANDARD.decode(zip.as_bytes());
            let zip = zip.map_err(|error| LambdaError::invalid_parameter(format!("ZipFile is not base64: {error}")))?;
            if zip.is_empty() {
                return Err(LambdaError::invalid_parameter("Uploaded file must be a non-empty zip"));
            }
            Ok(CodeLocation::Inline(zip.into()))
        }
        (None, Some(bucket), Some(key)) => {
            if shape.s3_object_version.is_some() {
                return Err(LambdaError::invalid_parameter(
                    "S3ObjectVersion is not supported; objects have no versions",
                ));
            }
            let bucket = BucketName::new(&bucket).map_err(|error| LambdaError::invalid_parameter(error.to_string()))?;
            let key = ObjectKey::new(&key).map_err(|error| LambdaError::invalid_parameter(error.to_string()))?;
            Ok(CodeLocation::Object(bucket, key))
        }
        _ => Err(LambdaError::invalid_parameter("Please provide either ZipFile, or S3Bucket and S3Key")),
    }
}

fn check_architectures(architectures: Option<&[String]>) -> Result<(), LambdaError> {
    match architectures {
        None => Ok(()),
        Some([one]) if one == ARCHITECTURE => Ok(()),
        Some(_) => Err(LambdaError::invalid_parameter(format!("Architectures can only be [{ARCHITECTURE}] here"))),
    }
}

fn settings(
    shape: SettingsShape,
    catalog: &RuntimeCatalog,
    layers: &FindLayer<'_>,
) -> Result<FunctionSettings, LambdaError> {
    refuse_unsupported(&shape)?;
    let runtime = match shape.runtime {
        Some(name) => {
            let runtime = catalog.find(&name).map_err(|error| LambdaError::invalid_parameter(error.to_string()))?;
            Some((runtime, name))
        }
        None => None,
    };
    if let Some(handler) = &shape.handler
        && (handler.is_empty()
            || handler.chars().count() > HANDLER_CHARS_MAX
            || handler.contains(|c: char| c.is_whitespace() || c.is_control()))
    {
        return Err(LambdaError::validation("Handler must be 1 to 128 characters without white space"));
    }
    if shape.description.as_ref().is_some_and(|text| text.chars().count() > DESCRIPTION_CHARS_MAX) {
        return Err(LambdaError::validation("Description must have at most 256 characters"));
    }
    if shape.role.as_ref().is_some_and(|role| role.chars().count() > ROLE_CHARS_MAX) {
        return Err(LambdaError::validation("Role must have at most 512 characters"));
    }
    let environment = shape.environment.map(|environment| environment.variables.unwrap_or_default());
    if let Some(environment) = &environment {
        check_environment(environment)?;
    }
    Ok(FunctionSettings {
        runtime,
        handler: shape.handler,
        description: shape.description,
        memory: within("MemorySize", shape.memory_size, &MEMORY_MB)?.map(ByteSize::mib),
        timeout: within("Timeout", shape.timeout, &TIMEOUT_SECONDS)?.map(Duration::from_secs),
        ephemeral_storage: within(
            "EphemeralStorage.Size",
            shape.ephemeral_storage.map(|storage| storage.size),
            &EPHEMERAL_STORAGE_MB,
        )?
        .map(ByteSize::mib),
        environment,
        layers: shape.layers.map(|arns| find_layers(&arns, layers)).transpose()?,
        role: shape.role,
        action: None,
    })
}

fn find_layers(arns: &[String], find: &FindLayer<'_>) -> Result<Vec<LayerUse>, LambdaError> {
    if arns.len() > LAYERS_MAX {
        return Err(LambdaError::invalid_parameter(format!("Cannot reference more than {LAYERS_MAX} layers.")));
    }
    let found: Vec<LayerUse> = arns.iter().map(|arn| find(arn)).collect::<Result<_, _>>()?;
    let twice = found.iter().enumerate().find(|(at, layer)| found[..*at].iter().any(|one| one.name == layer.name));
    match twice {
        Some((_, layer)) => Err(LambdaError::invalid_parameter(format!(
            "Two different versions of the layer {} are referenced",
            layer.name
        ))),
        None => Ok(found),
    }
}

fn within(what: &str, value: Option<i64>, range: &std::ops::RangeInclusive<i64>) -> Result<Option<u64>, LambdaError> {
    match value {
        Some(value) if !range.contains(&value) => {
            let (least, most) = (range.start(), range.end());
            Err(LambdaError::validation(format!("{what} is {value}; it must be between {least} and {most}")))
        }
        value => Ok(value.map(i64::unsigned_abs)),
    }
}

/// An empty ARN asks for nothing.
fn is_given(arn: Option<&str>) -> bool {
    arn.is_some_and(|arn| !arn.is_empty())
}

fn refuse_unsupported(shape: &SettingsShape) -> Result<(), LambdaError> {
    let filled = |values: &Option<Vec<String>>| values.as_ref().is_some_and(|values| !values.is_empty());
    let asked = [
        ("FileSystemConfigs", shape.file_system_configs.as_ref().is_some_and(|configs| !configs.is_empty())),
        (
            "VpcConfig",
            shape.vpc_config.as_ref().is_some_and(|v| filled(&v.subnet_ids) || filled(&v.security_group_ids)),
        ),
        (
            "ImageConfig",
            shape.image_config.as_ref().is_some_and(|config| config.as_object().is_none_or(|c| !c.is_empty())),
        ),
        (
            "DeadLetterConfig",
            shape.dead_letter_config.as_ref().is_some_and(|config| is_given(config.target_arn.as_deref())),
        ),
        ("SnapStart", shape.snap_start.as_ref().is_some_and(|s| s.apply_on.as_ref().is_some_and(|on| on != "None"))),
        // Whoever asks for these relies on them: without them, code that nobody has signed would run, and what should be
        // encrypted with a key of their own would not be.
        ("KMSKeyArn", is_given(shape.kms_key_arn.as_deref())),
        ("CodeSigningConfigArn", is_given(shape.code_signing_config_arn.as_deref())),
    ];
    match asked.iter().find(|(_, asked)| *asked) {
        Some((what, _)) => Err(LambdaError::invalid_parameter(format!("{what} is not supported here; leave it out"))),
        None => Ok(()),
    }
}

fn check_environment(environment: &BTreeMap<String, String>) -> Result<(), LambdaError> {
    let reserved: Vec<&str> =
        environment.keys().map(String::as_str).filter(|key| RESERVED_NAMES.contains(key)).collect();
    if !reserved.is_empty() {
        return Err(LambdaError::invalid_parameter(format!(
            "these environment variables are reserved for the runtime and cannot be set: {}",
            reserved.join(", ")
        )));
    }
    for (key, value) in environment {
        let mut octets = key.bytes();
        let good = octets.next().is_some_and(|first| first.is_ascii_alphabetic())
            && key.len() >= 2
            && octets.all(|octet| octet.is_ascii_alphanumeric() || octet == b'_');
        if !good {
            let key: String = key.chars().take(64).collect();
            return Err(LambdaError::validation(format!(
                "the environment variable {key:?} must match [a-zA-Z]([a-zA-Z0-9_])+"
            )));
        }
        if value.contains('\0') {
            return Err(LambdaError::invalid_parameter(format!("the environment variable {key} has a zero byte")));
        }
    }
    let size: usize = environment.iter().map(|(key, value)| key.len() + value.len()).sum();
    if size > ENVIRONMENT_BYTES_MAX {
        return Err(LambdaError::invalid_parameter(format!(
            "the environment variables take {size} bytes; {ENVIRONMENT_BYTES_MAX} are allowed"
        )));
    }
    Ok(())
}

fn check_tags(tags: &BTreeMap<String, String>) -> Result<(), LambdaError> {
    let good = tags.len() <= TAGS_MAX
        && tags.iter().all(|(key, value)| {
            (1..=TAG_KEY_CHARS_MAX).contains(&key.chars().count()) && value.chars().count() <= TAG_VALUE_CHARS_MAX
        });
    if good {
        Ok(())
    } else {
        Err(LambdaError::invalid_parameter("at most 50 tags, keys of 1 to 128 and values of at most 256 characters"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn settings_of(body: &Value) -> Result<FunctionSettings, LambdaError> {
        let layer = |arn: &str| {
            let (name, _) = nigh_functions::layer_store::parse_layer_arn(arn)?;
            let (size, unpacked) = (ByteSize(1), ByteSize(2));
            Ok(LayerUse { arn: arn.to_owned(), name, sha256: "sha".to_owned(), size, unpacked })
        };
        let body = body.to_string();
        update_configuration(body.as_bytes(), &RuntimeCatalog::new([11]), &layer).map(|(settings, _)| settings)
    }

    #[test]
    fn each_limit_takes_its_ends_and_nothing_beyond() {
        for (name, least, most) in [("MemorySize", 128, 10_240), ("Timeout", 1, 900)] {
            for (value, good) in [(least - 1, false), (least, true), (most, true), (most + 1, false), (-1, false)] {
                assert_eq!(settings_of(&json!({ name: value })).is_ok(), good, "{name} {value}");
            }
        }
        for (size, good) in [(511, false), (512, true), (10_240, true), (10_241, false)] {
            assert_eq!(settings_of(&json!({ "EphemeralStorage": { "Size": size } })).is_ok(), good, "{size}");
        }
        for (length, good) in [(0, true), (256, true), (257, false)] {
            assert_eq!(settings_of(&json!({ "Description": "ü".repeat(length) })).is_ok(), good, "{length}");
        }
        for (length, good) in [(4094, true), (4095, false)] {
            let environment = json!({ "Environment": { "Variables": { "AB": "x".repeat(length) } } });
            assert_eq!(settings_of(&environment).is_ok(), good, "{length}");
        }
    }

    #[test]
    fn what_is_not_mentioned_stays_and_what_is_emptied_is_empty() {
        assert_eq!(settings_of(&json!({})), Ok(FunctionSettings::default()));
        let emptied = settings_of(&json!({ "Environment": {}, "Description": "" })).unwrap();
        assert_eq!(emptied.environment, Some(BTreeMap::new()));
        assert_eq!(emptied.description, Some(String::new()));
        let set = settings_of(&json!({ "MemorySize": 256, "Timeout": 5, "Runtime": "python3.11" })).unwrap();
        assert_eq!((set.memory, set.timeout), (Some(ByteSize::mib(256)), Some(Duration::from_secs(5))));
        assert_eq!(set.runtime.unwrap().1, "python3.11");
    }

    #[test]
    fn what_cannot_be_done_here_is_refused_unless_it_asks_for_nothing() {
        for (name, nothing, something) in [
            ("FileSystemConfigs", json!([]), json!([{}])),
            ("VpcConfig", json!({ "SubnetIds": [] }), json!({ "SubnetIds": ["subnet"] })),
            ("ImageConfig", json!({}), json!({ "Command": ["x"] })),
            ("DeadLetterConfig", json!({ "TargetArn": "" }), json!({ "TargetArn": "arn" })),
            ("SnapStart", json!({ "ApplyOn": "None" }), json!({ "ApplyOn": "PublishedVersions" })),
            ("KMSKeyArn", json!(""), json!("arn:aws:kms:us-east-1:000000000000:key/k")),
            ("CodeSigningConfigArn", json!(""), json!("arn:aws:lambda:us-east-1:000000000000:code-signing-config:c")),
        ] {
            assert_eq!(settings_of(&json!({ name: nothing })), Ok(FunctionSettings::default()), "{name}");
            let refused = settings_of(&json!({ name: something })).unwrap_err();
            assert!(refused.message.starts_with(name), "{refused:?}");
        }
    }

    #[test]
    fn code_that_is_encrypted_with_a_customer_s_key_is_refused() {
        let catalog = RuntimeCatalog::new([11]);
        let key = |arn: &str| json!({ "S3Bucket": "code", "S3Key": "zip", "SourceKMSKeyArn": arn });
        let create = |arn: &str| {
            let function = json!({ "FunctionName": "f", "Runtime": "python3.11", "Handler": "a.b", "Code": key(arn) });
            create(function.to_string().as_bytes(), &catalog, &|_| unreachable!()).map(drop)
        };
        let update = |arn: &str| update_code(key(arn).to_string().as_bytes()).map(drop);
        for refused in [create("arn:aws:kms:us-east-1:000000000000:key/k"), update("arn")] {
            assert!(refused.unwrap_err().message.starts_with("SourceKMSKeyArn"));
        }
        assert_eq!((create(""), update("")), (Ok(()), Ok(())));
    }

    #[test]
    fn at_most_five_layers_each_once_and_none_by_an_empty_list() {
        let arn = |n: usize| format!("arn:aws:lambda:us-east-1:000000000000:layer:l{n}:1");
        let layers = |count: usize| json!({ "Layers": (0..count).map(arn).collect::<Vec<_>>() });
        assert_eq!(settings_of(&layers(5)).unwrap().layers.unwrap().len(), 5);
        assert_eq!(settings_of(&layers(0)).unwrap().layers, Some(Vec::new()));
        assert!(settings_of(&layers(6)).unwrap_err().message.contains("more than 5"));
        let twice = json!({ "Layers": [arn(1), arn(1)] });
        assert!(settings_of(&twice).unwrap_err().message.contains("Two different versions"));
        assert!(settings_of(&json!({ "Layers": ["arn"] })).is_err());
    }

    #[test]
    fn every_reserved_variable_is_named_in_the_refusal() {
        for key in RESERVED_NAMES {
            let refused = settings_of(&json!({ "Environment": { "Variables": { key: "x" } } })).unwrap_err();
            assert!(refused.message.contains(key), "{refused:?}");
        }
    }
}
