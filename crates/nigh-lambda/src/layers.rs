//! Publishes, lists, shows and deletes versions of layers.

use http::StatusCode;
use nigh_functions::layer_store::{LayerVersion, NewLayer, layer_arn, parse_layer_arn};
use nigh_terms::FunctionName;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::operations::{Request, off_the_path};
use super::response::{LambdaResponse, empty_answer, json_answer};
use super::shape::CodeShape;
use super::validation::{code_location, read};
use super::{LambdaDoor, LambdaError};

const DESCRIPTION_CHARS_MAX: usize = 256;
const LICENSE_CHARS_MAX: usize = 512;
const RUNTIMES_MAX: usize = 15;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LayerShape<'a> {
    #[serde(borrow)]
    content: Option<CodeShape<'a>>,
    description: Option<String>,
    compatible_runtimes: Option<Vec<String>>,
    license_info: Option<String>,
}

/// The layer's name in a path, which has the name or an ARN.
fn layer_name(text: &str) -> Result<FunctionName, LambdaError> {
    let bad = || LambdaError::validation("a layer has a name of 1 to 64 letters, digits, hyphens and underscores");
    let text = percent_decode_str(text).decode_utf8().map_err(|_| bad())?;
    let name = text.rsplit_once(":layer:").map_or(&*text, |(_, name)| name);
    FunctionName::new(name).map_err(|_| bad())
}

fn number(text: &str) -> Result<u64, LambdaError> {
    text.parse().map_err(|_| LambdaError::validation("a layer version has a number"))
}

impl LambdaDoor {
    pub(super) async fn publish_layer(&self, name: &str, request: Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let name = layer_name(name)?;
        let body = request.body;
        let (new, code) = off_the_path(move || {
            let shape: LayerShape<'_> = read(&body)?;
            let code = code_location(shape.content.ok_or_else(|| LambdaError::validation("Content is required"))?)?;
            let new = NewLayer {
                name,
                description: shape.description.unwrap_or_default(),
                runtimes: shape.compatible_runtimes.unwrap_or_default(),
                license: shape.license_info.unwrap_or_default(),
            };
            if new.description.chars().count() > DESCRIPTION_CHARS_MAX
                || new.license.chars().count() > LICENSE_CHARS_MAX
                || new.runtimes.len() > RUNTIMES_MAX
            {
                return Err(LambdaError::validation(
                    "a layer has a description of at most 256 characters, a licence of 512, and 15 runtimes",
                ));
            }
            Ok((new, code))
        })
        .await?;
        let archive = self.code(&request.who, code).await?;
        let published = self.parts.functions.layers().publish(&request.who.namespace, new, archive).await?;
        Ok(json_answer(StatusCode::CREATED, &self.layer_version(&published)))
    }

    pub(super) fn list_layers(&self, request: &Request<'_>) -> Result<LambdaResponse, LambdaError> {
        if request.parameter("find").as_deref() == Some("LayerVersion") {
            let arn = request.parameter("Arn").unwrap_or_default();
            let (name, version) = parse_layer_arn(&arn)?;
            return self.layer(&name, version, request);
        }
        let newest = self.parts.functions.layers().newest(&request.who.namespace);
        let layers: Vec<Value> = newest
            .iter()
            .map(|layer| {
                json!({
                    "LayerName": layer.name,
                    "LayerArn": layer_arn(&self.settings.region, &layer.name),
                    "LatestMatchingVersion": self.layer_version(layer),
                })
            })
            .collect();
        Ok(json_answer(StatusCode::OK, &json!({ "Layers": layers })))
    }

    pub(super) fn list_layer_versions(&self, name: &str, request: &Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let versions = self.parts.functions.layers().versions(&request.who.namespace, &layer_name(name)?);
        let versions: Vec<Value> = versions.iter().map(|version| self.layer_version(version)).collect();
        Ok(json_answer(StatusCode::OK, &json!({ "LayerVersions": versions })))
    }

    pub(super) fn get_layer(
        &self,
        name: &str,
        version: &str,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        self.layer(&layer_name(name)?, number(version)?, request)
    }

    fn layer(&self, name: &FunctionName, version: u64, request: &Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let found = self.parts.functions.layers().get(&request.who.namespace, name, version);
        let arn = format!("{}:{version}", layer_arn(&self.settings.region, name));
        let found = found.ok_or_else(|| {
            LambdaError::not_found(format!("The resource you requested does not exist: there is no {arn}"))
        })?;
        Ok(json_answer(StatusCode::OK, &self.layer_version(&found)))
    }

    pub(super) async fn delete_layer(
        &self,
        name: &str,
        version: &str,
        request: &Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        let layers = self.parts.functions.layers();
        layers.delete(&request.who.namespace, &layer_name(name)?, number(version)?).await?;
        Ok(empty_answer(StatusCode::NO_CONTENT))
    }

    fn layer_version(&self, layer: &LayerVersion) -> Value {
        let arn = layer_arn(&self.settings.region, &layer.name);
        json!({
            "LayerVersionArn": format!("{arn}:{}", layer.version),
            "LayerArn": arn,
            "Version": layer.version,
            "Description": layer.description,
            "CreatedDate": layer.created.rfc3339().replace('Z', "+0000"),
            "CompatibleRuntimes": layer.runtimes,
            "LicenseInfo": layer.license,
            "Content": { "CodeSha256": layer.sha256, "CodeSize": layer.size, "Location": "" },
        })
    }
}
