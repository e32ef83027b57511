//! The functions and layers of a template. Pure.

use std::path::PathBuf;

use nigh_terms::FunctionName;
use serde_json::{Map, Value};

use super::events::{self, DEAD_LETTERS, NO_ROLES, URL_REASONS};
use super::intrinsics::scalar_text;
use super::properties::{Properties, Reasons};
use super::stack::{AsyncSettings, LayerRef, StackCode, StackFunction, StackLayer};

/// Why versions and aliases do not come along.
pub(super) const NO_VERSIONS: &str = "a function has one version, $LATEST";
const RECORDED: &str = "each invocation is recorded: `nigh explain`, `nigh logs`";
const SIGNED_CODE: &str = "code is not checked for signatures";
const KMS: &str = "nothing is encrypted with keys of KMS";
/// Properties of functions that do not come along.
pub(super) const FUNCTION_REASONS: &Reasons = &[
    ("Role", false, NO_ROLES),
    ("RolePath", false, NO_ROLES),
    ("Policies", false, NO_ROLES),
    ("PermissionsBoundary", false, NO_ROLES),
    ("AssumeRolePolicyDocument", false, NO_ROLES),
    ("Tags", false, "tags have no effect here"),
    ("PropagateTags", false, "tags have no effect here"),
    ("Tracing", false, RECORDED),
    ("TracingConfig", false, RECORDED),
    ("LoggingConfig", false, RECORDED),
    ("Architectures", false, "functions run on this machine's architecture; programs in the code must be built for it"),
    ("DeadLetterQueue", false, DEAD_LETTERS),
    ("DeadLetterConfig", false, DEAD_LETTERS),
    ("AutoPublishAlias", true, NO_VERSIONS),
    ("AutoPublishAliasAllProperties", false, NO_VERSIONS),
    ("AutoPublishCodeSha256", false, NO_VERSIONS),
    ("VersionDescription", false, NO_VERSIONS),
    ("VersionDeletionPolicy", false, NO_VERSIONS),
    ("DeploymentPreference", false, NO_VERSIONS),
    ("ProvisionedConcurrencyConfig", false, "sandboxes are kept warm as they are needed"),
    ("SnapStart", false, "sandboxes are pre-warmed without it"),
    ("RecursiveLoop", false, "loops are not looked for"),
    ("RuntimeManagementConfig", false, "the node has one build of each runtime"),
    ("VpcConfig", true, "there are no VPCs: a function has no network, or with --network outbound all of it"),
    ("FileSystemConfigs", true, "there are no file systems beside /tmp; put the files into a bucket"),
    ("CodeSigningConfigArn", true, SIGNED_CODE),
    ("KmsKeyArn", true, KMS),
    ("SourceKMSKeyArn", true, KMS),
    ("DurableConfig", true, "functions are not resumed; `nigh workflow` runs long sequences of them"),
];
/// Properties of layers that do not come along.
pub(super) const LAYER_REASONS: &Reasons = &[
    ("RetentionPolicy", false, "a layer's versions stay until they are deleted"),
    ("CompatibleArchitectures", false, "functions run on this machine's architecture"),
    ("PublishLambdaVersion", false, NO_VERSIONS),
];
/// What configurations of asynchronous invocations do without.
pub(super) const ASYNC_REASONS: &Reasons = &[("Qualifier", false, NO_VERSIONS)];
/// Why images do not run.
const NO_IMAGES: &str = "functions are zip archives, not images; give it CodeUri, Runtime and Handler";

/// Reads a function; none, and the reason listed, if it cannot be one here. `code` is the property with its code:
/// `CodeUri` or `Code`.
pub(super) fn function(
    properties: &mut Properties<'_>,
    logical: &str,
    name: FunctionName,
    code: &str,
) -> Option<StackFunction> {
    if properties.text("PackageType").is_some_and(|package| package != "Zip") || properties.raw("ImageUri").is_some() {
        properties.leave_out("", true, NO_IMAGES);
        return None;
    }
    let code = function_code(properties, code)?;
    let mut function = StackFunction::new(logical, name, code);
    function.runtime = properties.text("Runtime");
    function.handler = properties.text("Handler");
    function.memory_mib = properties.number("MemorySize");
    function.timeout_s = properties.number("Timeout");
    function.description = properties.text("Description");
    function.reserved = properties.number("ReservedConcurrentExecutions");
    if let Some(storage) = properties.map("EphemeralStorage") {
        let mut storage = properties.part("EphemeralStorage", storage);
        function.tmp_mib = storage.number("Size");
        properties.adopt(storage.finish(&[]));
    }
    if let Some(environment) = properties.map("Environment") {
        let mut environment = properties.part("Environment", environment);
        for (name, value) in environment.map("Variables").unwrap_or_default() {
            if let Some(value) = environment.resolved_within(&name, &value) {
                let text = if value.is_null() { Some(String::new()) } else { scalar_text(&value) };
                function.environment.insert(name, text.unwrap_or_else(|| value.to_string()));
            }
        }
        properties.adopt(environment.finish(&[]));
    }
    function.layers = layers_of(properties);
    if let Some(config) = properties.map("FunctionUrlConfig") {
        let mut config = properties.part("FunctionUrlConfig", config);
        function.url = Some(events::url(&mut config));
        properties.adopt(config.finish(URL_REASONS));
    }
    if let Some(config) = properties.map("EventInvokeConfig") {
        let mut config = properties.part("EventInvokeConfig", config);
        function.events = async_settings(&mut config);
        properties.adopt(config.finish(ASYNC_REASONS));
    }
    if let Some(all) = properties.map("Events") {
        events::read(properties, all, &mut function);
    }
    Some(function)
}

fn function_code(properties: &mut Properties<'_>, name: &str) -> Option<StackCode> {
    // Of SAM; plain CloudFormation has it within `Code`.
    if let Some(text) = properties.text("InlineCode") {
        return Some(StackCode::Inline(text));
    }
    match code_value(properties, name)? {
        Value::Object(code) => match code.get("ZipFile").and_then(Value::as_str) {
            Some(text) => Some(StackCode::Inline(text.to_owned())),
            None if code.contains_key("ImageUri") => {
                properties.leave_out("", true, NO_IMAGES);
                None
            }
            None => code_path(properties, name, &Value::Object(code)).map(StackCode::Path),
        },
        value => code_path(properties, name, &value).map(StackCode::Path),
    }
}

/// The value of the property that says where code is; none, and listed, if it is not known.
fn code_value(properties: &mut Properties<'_>, name: &str) -> Option<Value> {
    if properties.raw(name).is_none() {
        // The template's folder, as for SAM.
        return Some(Value::from("."));
    }
    let value = properties.value(name);
    if value.is_none() {
        properties.leave_out("", true, format!("where its code is depends on {name}"));
    }
    value
}

/// The path of code beside the template; none, and listed, if the code is elsewhere.
fn code_path(properties: &mut Properties<'_>, name: &str, value: &Value) -> Option<PathBuf> {
    let path = value.as_str().filter(|path| !path.contains("://"));
    if path.is_none() {
        let how = format!("write the path of its folder or archive as {name}");
        properties.leave_out("", true, format!("its code is in a bucket of AWS; fetch it, and {how}"));
    }
    path.map(PathBuf::from)
}

fn layers_of(properties: &mut Properties<'_>) -> Vec<LayerRef> {
    let mut layers = Vec::new();
    for layer in properties.list("Layers") {
        let Some(layer) = properties.unfolded_within("Layers", &layer) else { continue };
        let own = layer.get("Ref").and_then(Value::as_str);
        match own.filter(|name| properties.scope.layers.contains(*name)) {
            Some(own) => layers.push(LayerRef::Own(own.to_owned())),
            None => match properties.resolved_within("Layers", &layer).as_ref().and_then(scalar_text) {
                Some(arn) if is_of_this_account(&arn) => layers.push(LayerRef::Arn(arn)),
                Some(arn) => {
                    let why = format!("{arn} is a layer of another account; publish its archive here and name that");
                    properties.leave_out("Layers", true, why);
                }
                None => {}
            },
        }
    }
    layers
}

fn is_of_this_account(arn: &str) -> bool {
    arn.split(':').nth(4) == Some(nigh_terms::ACCOUNT)
}

/// Reads `EventInvokeConfig`, or a resource that configures a function's asynchronous invocations.
pub(super) fn async_settings(config: &mut Properties<'_>) -> Option<AsyncSettings> {
    let (retries, age_s) = (config.number("MaximumRetryAttempts"), config.number("MaximumEventAgeInSeconds"));
    let mut settings = AsyncSettings { retries, age_s, ..AsyncSettings::default() };
    if let Some(destinations) = config.map("DestinationConfig") {
        let mut destinations = config.part("DestinationConfig", destinations);
        settings.on_success = destination(&mut destinations, "OnSuccess");
        settings.on_failure = destination(&mut destinations, "OnFailure");
        config.adopt(destinations.finish(&[]));
    }
    (settings != AsyncSettings::default()).then_some(settings)
}

/// The ARN of a destination, if it is a function or a bucket.
fn destination(destinations: &mut Properties<'_>, name: &str) -> Option<String> {
    let destination = destinations.map(name)?;
    let mut destination = destinations.part(name, destination);
    let _its_kind = destination.raw("Type");
    let is_named = destination.raw("Destination").is_some();
    let arn = destination.text("Destination");
    let is_here = |arn: &String| ["arn:aws:lambda:", "arn:aws:s3:::"].iter().any(|kind| arn.starts_with(kind));
    let found = arn.clone().filter(is_here);
    // An ARN that is not known is listed already.
    if found.is_none() && (arn.is_some() || !is_named) {
        let what = arn.map_or_else(String::new, |arn| format!(", not {arn}"));
        destination.leave_out("", true, format!("a destination is a function or a bucket{what}"));
    }
    destinations.adopt(destination.finish(&[]));
    found
}

/// Reads a layer; none, and the reason listed, if it cannot be one here. `code` is the property with its code:
/// `ContentUri` or `Content`.
pub(super) fn layer(properties: &mut Properties<'_>, logical: &str, code: &str) -> Option<StackLayer> {
    let name = properties.text("LayerName").unwrap_or_else(|| logical.to_owned());
    let value = code_value(properties, code)?;
    let path = code_path(properties, code, &value)?;
    let name = match FunctionName::new(&name) {
        Ok(name) => name,
        Err(error) => {
            properties.leave_out("LayerName", true, error.to_string());
            return None;
        }
    };
    Some(StackLayer {
        logical: logical.to_owned(),
        name,
        code: path,
        description: properties.text("Description"),
        runtimes: properties.texts("CompatibleRuntimes"),
        license: properties.text("LicenseInfo"),
    })
}

/// `properties` over SAM's `Globals` of the same kind: maps are merged, lists joined, other values replaced.
pub(super) fn over_globals(globals: &Map<String, Value>, properties: Map<String, Value>) -> Map<String, Value> {
    let mut all = globals.clone();
    for (name, value) in properties {
        let merged = match (all.remove(&name), value) {
            // A function such as `Fn::If` is one value.
            (Some(Value::Object(below)), Value::Object(above)) if !is_call(&below) && !is_call(&above) => {
                Value::Object(over_globals(&below, above))
            }
            (Some(Value::Array(below)), Value::Array(above)) => below.into_iter().chain(above).collect(),
            (_, value) => value,
        };
        all.insert(name, merged);
    }
    all
}

fn is_call(map: &Map<String, Value>) -> bool {
    map.keys().any(|key| key == "Ref" || key.starts_with("Fn::"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn globals_are_merged_joined_and_replaced() {
        let object = |value: Value| value.as_object().cloned().unwrap();
        let globals = object(json!({
            "Timeout": 3, "Environment": { "Variables": { "A": "1", "B": "1" } }, "Layers": ["x"], "Tags": { "Fn::If": [] },
        }));
        let own = object(json!({
            "Timeout": 9, "Environment": { "Variables": { "B": { "Ref": "P" } } }, "Layers": ["y"], "Tags": { "a": 1 },
        }));
        assert_eq!(
            Value::Object(over_globals(&globals, own)),
            json!({
                "Timeout": 9, "Environment": { "Variables": { "A": "1", "B": { "Ref": "P" } } }, "Layers": ["x", "y"],
                "Tags": { "a": 1 },
            })
        );
    }
}
