//! What a function has beside its own settings: layers, and how its asynchronous invocations are handled.

use async_recursion::async_recursion as boxed;
use http::Method;
use nigh_terms::FunctionName;
use serde_json::{Value, json};

use super::{CodeUpload, LambdaClient, encode};
use crate::client::ClientError;

const LAYERS: &str = "/2018-10-31/layers";

/// A layer to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NewLayer {
    /// A description for people to read.
    pub description: Option<String>,
    /// The runtimes that the layer is for; only returned.
    pub runtimes: Vec<String>,
    /// Its licence; only returned.
    pub license: Option<String>,
}

fn event_config(name: &FunctionName) -> String {
    format!("/2019-09-25/functions/{name}/event-invoke-config")
}

impl LambdaClient {
    /// How the function's asynchronous invocations are handled, in Lambda's form; none if it is as usual.
    #[boxed]
    pub async fn event_config(&self, name: &FunctionName) -> Result<Option<Value>, ClientError> {
        match self.call(Method::GET, &event_config(name), None).await {
            Ok(config) => Ok(Some(config)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces how the function's asynchronous invocations are handled.
    #[boxed]
    pub async fn set_event_config(&self, name: &FunctionName, config: &Value) -> Result<(), ClientError> {
        self.call(Method::PUT, &event_config(name), Some(config.clone())).await.map(drop)
    }

    /// The versions of a layer, newest first, in Lambda's form.
    #[boxed]
    pub async fn layer_versions(&self, name: &FunctionName) -> Result<Vec<Value>, ClientError> {
        let mut found = self.call(Method::GET, &format!("{LAYERS}/{name}/versions"), None).await?;
        match found.get_mut("LayerVersions").map(Value::take) {
            Some(Value::Array(versions)) => Ok(versions),
            _ => Ok(Vec::new()),
        }
    }

    /// The layer version of this ARN, in Lambda's form; none if there is none.
    #[boxed]
    pub async fn layer_version(&self, arn: &str) -> Result<Option<Value>, ClientError> {
        match self.call(Method::GET, &format!("{LAYERS}?find=LayerVersion&Arn={}", encode(arn)), None).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Publishes the next version of a layer. Returns it, in Lambda's form.
    #[boxed]
    pub async fn publish_layer(
        &self,
        name: &FunctionName,
        layer: &NewLayer,
        code: &CodeUpload,
    ) -> Result<Value, ClientError> {
        let mut body = json!({ "Content": { "ZipFile": code.encoded() }, "CompatibleRuntimes": layer.runtimes });
        for (field, text) in [("Description", &layer.description), ("LicenseInfo", &layer.license)] {
            if let Some(text) = text {
                body[field] = text.as_str().into();
            }
        }
        self.call(Method::POST, &format!("{LAYERS}/{name}/versions"), Some(body)).await
    }

    /// Deletes a version of a layer; functions that use it keep it.
    #[boxed]
    pub async fn delete_layer(&self, name: &FunctionName, version: u64) -> Result<(), ClientError> {
        self.call(Method::DELETE, &format!("{LAYERS}/{name}/versions/{version}"), None).await.map(drop)
    }
}
