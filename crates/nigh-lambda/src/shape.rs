//! The JSON of the Lambda API's requests and answers.
//!
//! Members of a request that have no effect here (`Publish`, `TracingConfig`, `Timeout` of other services, ...) are not
//! listed and thus ignored; members whose effect Nigh does not support are listed and rejected.

use std::borrow::Cow;
use std::collections::BTreeMap;

use nigh_functions::function::Function;
use nigh_functions::function_arn::{LATEST, function_arn};
use serde::Deserialize;
use serde_json::{Value, json};
use time::macros::format_description;

/// The source of code: `Code` of `CreateFunction`, and a part of `UpdateFunctionCode`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CodeShape<'a> {
    /// Base64 of a zip.
    #[serde(borrow)]
    pub(super) zip_file: Option<Cow<'a, str>>,
    pub(super) s3_bucket: Option<String>,
    pub(super) s3_key: Option<String>,
    pub(super) s3_object_version: Option<String>,
    pub(super) image_uri: Option<String>,
    #[serde(rename = "SourceKMSKeyArn")]
    pub(super) source_kms_key_arn: Option<String>,
}

/// The common members of `CreateFunction` and `UpdateFunctionConfiguration`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SettingsShape {
    pub(super) runtime: Option<String>,
    pub(super) handler: Option<String>,
    pub(super) description: Option<String>,
    pub(super) memory_size: Option<i64>,
    pub(super) timeout: Option<i64>,
    pub(super) ephemeral_storage: Option<EphemeralStorageShape>,
    pub(super) environment: Option<EnvironmentShape>,
    pub(super) role: Option<String>,
    pub(super) layers: Option<Vec<String>>,
    pub(super) vpc_config: Option<VpcConfigShape>,
    pub(super) file_system_configs: Option<Vec<Value>>,
    pub(super) image_config: Option<Value>,
    pub(super) dead_letter_config: Option<DeadLetterConfigShape>,
    pub(super) snap_start: Option<SnapStartShape>,
    #[serde(rename = "KMSKeyArn")]
    pub(super) kms_key_arn: Option<String>,
    pub(super) code_signing_config_arn: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EphemeralStorageShape {
    pub(super) size: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct EnvironmentShape {
    pub(super) variables: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct VpcConfigShape {
    pub(super) subnet_ids: Option<Vec<String>>,
    pub(super) security_group_ids: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct DeadLetterConfigShape {
    pub(super) target_arn: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct SnapStartShape {
    pub(super) apply_on: Option<String>,
}

/// `CreateFunction`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct CreateShape<'a> {
    pub(super) function_name: Option<String>,
    #[serde(borrow)]
    pub(super) code: Option<CodeShape<'a>>,
    pub(super) package_type: Option<String>,
    pub(super) architectures: Option<Vec<String>>,
    pub(super) tags: Option<BTreeMap<String, String>>,
    #[serde(flatten)]
    pub(super) settings: SettingsShape,
}

/// `UpdateFunctionCode`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct UpdateCodeShape<'a> {
    #[serde(borrow)]
    pub(super) zip_file: Option<Cow<'a, str>>,
    pub(super) s3_bucket: Option<String>,
    pub(super) s3_key: Option<String>,
    pub(super) s3_object_version: Option<String>,
    pub(super) image_uri: Option<String>,
    #[serde(rename = "SourceKMSKeyArn")]
    pub(super) source_kms_key_arn: Option<String>,
    pub(super) architectures: Option<Vec<String>>,
    pub(super) dry_run: Option<bool>,
    pub(super) revision_id: Option<String>,
}

/// `UpdateFunctionConfiguration`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct UpdateConfigurationShape {
    pub(super) revision_id: Option<String>,
    #[serde(flatten)]
    pub(super) settings: SettingsShape,
}

/// Lambda's name of this machine's architecture.
pub(super) const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" };

/// `FunctionConfiguration`.
pub(super) fn configuration(function: &Function, region: &str) -> Value {
    let modified = function
        .modified
        .date()
        .format(format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]+0000"))
        .unwrap_or_default();
    let mut configuration = json!({
        "FunctionName": function.name,
        "FunctionArn": function_arn(region, &function.name),
        "Runtime": function.runtime_name,
        "Role": function.role,
        "Handler": function.handler,
        "CodeSize": function.code_size,
        "Description": function.description,
        "Timeout": function.timeout.as_secs(),
        "MemorySize": function.memory.mib_ceil(),
        "LastModified": modified,
        "CodeSha256": function.code_sha256,
        "Version": LATEST,
        "TracingConfig": { "Mode": "PassThrough" },
        "RevisionId": function.revision_id,
        "State": "Active",
        "LastUpdateStatus": "Successful",
        "PackageType": "Zip",
        "Architectures": [ARCHITECTURE],
        "EphemeralStorage": { "Size": function.ephemeral_storage.mib_ceil() },
        "SnapStart": { "ApplyOn": "None", "OptimizationStatus": "Off" },
        "LoggingConfig": { "LogFormat": "Text", "LogGroup": format!("/aws/lambda/{}", function.name) },
    });
    if !function.layers.is_empty() {
        let layers = function.layers.iter();
        configuration["Layers"] =
            layers.map(|layer| json!({ "Arn": layer.arn, "CodeSize": layer.size })).collect::<Vec<_>>().into();
    }
    if !function.environment.is_empty() {
        configuration["Environment"] = json!({ "Variables": function.environment });
    }
    configuration
}
