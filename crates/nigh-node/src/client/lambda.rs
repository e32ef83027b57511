//! The Lambda door's client: deploy, describe, invoke.

mod attached;

use std::collections::BTreeMap;

use async_recursion::async_recursion as boxed;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use nigh_terms::FunctionName;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::http_call::{Target, full};
use super::signer::{PayloadHash, Signer};
use super::{ClientError, DoorAddress};
use crate::credentials::Credentials;

pub use self::attached::NewLayer;

const FUNCTIONS: &str = "/2015-03-31/functions";
/// Lambda requires a role; Nigh stores it and never uses it.
const ROLE: &str = "arn:aws:iam::000000000000:role/nigh";

/// The changes to a function. A field that is none keeps its value, or takes Lambda's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FunctionChange {
    /// The runtime: `python3.11`, `provided`.
    pub runtime: Option<String>,
    /// The handler: `app.handler`.
    pub handler: Option<String>,
    /// The function's memory in MiB.
    pub memory_mib: Option<u64>,
    /// How long one invocation may run, in seconds.
    pub timeout_s: Option<u64>,
    /// The size of its /tmp in MiB.
    pub ephemeral_mib: Option<u64>,
    /// The whole environment.
    pub environment: Option<BTreeMap<String, String>>,
    /// Variables to set beside those that the function has, or that `environment` gives.
    pub variables: BTreeMap<String, String>,
    /// The description.
    pub description: Option<String>,
    /// The ARNs of all its layers.
    pub layers: Option<Vec<String>>,
}

/// A zip archive of code.
#[derive(Clone, Debug)]
pub struct CodeUpload(pub Vec<u8>);

impl CodeUpload {
    /// Its SHA-256 in base64, as `CodeSha256` has it.
    #[must_use]
    pub fn sha256(&self) -> String {
        BASE64.encode(Sha256::digest(&self.0))
    }

    fn encoded(&self) -> Value {
        BASE64.encode(&self.0).into()
    }
}

/// A deployed function, as `GetFunction` describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct DescribedFunction {
    /// Its configuration, in Lambda's form.
    pub configuration: Value,
    /// Its reserved concurrency.
    pub reserved: Option<u64>,
}

/// The result of an invocation.
#[derive(Clone, Debug)]
pub struct InvokeReply {
    /// The id of the invocation.
    pub id: String,
    /// The handler's response, or Lambda's error object.
    pub payload: Bytes,
    /// `Unhandled` if the function failed; else none.
    pub function_error: Option<String>,
    /// The end of its log; none if it was not requested.
    pub log_tail: Option<Vec<u8>>,
}

/// A client of one namespace at one Lambda door.
pub struct LambdaClient {
    target: Target,
    signer: Signer,
}

impl FunctionChange {
    /// The change that gives a function these settings, in Lambda's form, whatever it has now.
    #[must_use]
    pub fn back_to(configuration: &Value) -> Self {
        let text = |name: &str| Some(configuration[name].as_str().unwrap_or_default().to_owned());
        let variables = configuration["Environment"]["Variables"].as_object().cloned().unwrap_or_default();
        let variables = variables.into_iter().filter_map(|(name, value)| Some((name, value.as_str()?.to_owned())));
        let layers = configuration["Layers"].as_array().into_iter().flatten();
        Self {
            runtime: text("Runtime"),
            handler: text("Handler"),
            memory_mib: configuration["MemorySize"].as_u64(),
            timeout_s: configuration["Timeout"].as_u64(),
            ephemeral_mib: configuration["EphemeralStorage"]["Size"].as_u64(),
            environment: Some(variables.collect()),
            variables: BTreeMap::new(),
            description: text("Description"),
            layers: Some(layers.filter_map(|layer| Some(layer["Arn"].as_str()?.to_owned())).collect()),
        }
    }

    /// True if nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The fields to send for a function that has the environment `current`.
    fn fields(&self, current: &Value) -> serde_json::Map<String, Value> {
        let mut fields = serde_json::Map::new();
        let mut set = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(name.to_owned(), value);
            }
        };
        set("Runtime", self.runtime.clone().map(Value::from));
        set("Handler", self.handler.clone().map(Value::from));
        set("MemorySize", self.memory_mib.map(Value::from));
        set("Timeout", self.timeout_s.map(Value::from));
        set("EphemeralStorage", self.ephemeral_mib.map(|size| json!({ "Size": size })));
        set("Environment", self.environment_over(current).map(|variables| json!({ "Variables": variables })));
        set("Description", self.description.clone().map(Value::from));
        set("Layers", self.layers.clone().map(Value::from));
        fields
    }

    /// The whole new environment; none if it does not change.
    fn environment_over(&self, current: &Value) -> Option<Value> {
        if self.variables.is_empty() {
            return self.environment.as_ref().map(|given| json!(given));
        }
        let mut all = match &self.environment {
            Some(given) => json!(given),
            None if current.is_object() => current.clone(),
            None => json!({}),
        };
        for (name, value) in &self.variables {
            all[name] = value.as_str().into();
        }
        Some(all)
    }
}

impl LambdaClient {
    /// A client of `door`.
    ///
    /// # Errors
    /// If its address is no URL, or its authorities cannot be read.
    pub fn new(door: &DoorAddress, region: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        Ok(Self { target: Target::of(door)?, signer: Signer::new("lambda", region, credentials) })
    }

    /// The configuration of the function, in Lambda's form.
    #[boxed]
    pub async fn get(&self, name: &FunctionName) -> Result<Value, ClientError> {
        self.call(Method::GET, &format!("{FUNCTIONS}/{name}/configuration"), None).await
    }

    /// The configurations of all functions, by name.
    #[boxed]
    pub async fn list(&self) -> Result<Vec<Value>, ClientError> {
        let mut all = Vec::new();
        let mut marker: Option<String> = None;
        loop {
            let path = match &marker {
                Some(marker) => format!("{FUNCTIONS}/?Marker={}", encode(marker)),
                None => format!("{FUNCTIONS}/"),
            };
            let mut page = self.call(Method::GET, &path, None).await?;
            if let Some(Value::Array(functions)) = page.get_mut("Functions").map(Value::take) {
                all.extend(functions);
            }
            match page.get("NextMarker").and_then(Value::as_str) {
                Some(next) if !next.is_empty() => marker = Some(next.to_owned()),
                _ => return Ok(all),
            }
        }
    }

    /// The function and what hangs on it, or none if there is no such function.
    ///
    /// # Errors
    /// Any other refusal of the door.
    #[boxed]
    pub async fn find(&self, name: &FunctionName) -> Result<Option<DescribedFunction>, ClientError> {
        match self.call(Method::GET, &format!("{FUNCTIONS}/{name}"), None).await {
            Ok(mut found) => Ok(Some(DescribedFunction {
                configuration: found["Configuration"].take(),
                reserved: found["Concurrency"]["ReservedConcurrentExecutions"].as_u64(),
            })),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates the function. Returns its configuration.
    #[boxed]
    pub async fn create(
        &self,
        name: &FunctionName,
        change: &FunctionChange,
        code: &CodeUpload,
    ) -> Result<Value, ClientError> {
        let mut body = change.fields(&Value::Null);
        body.insert("FunctionName".to_owned(), name.as_str().into());
        body.insert("Role".to_owned(), ROLE.into());
        body.insert("Code".to_owned(), json!({ "ZipFile": code.encoded() }));
        self.call(Method::POST, FUNCTIONS, Some(Value::Object(body))).await
    }

    /// Changes the settings of a function that has the configuration `current`. Returns the new one.
    #[boxed]
    pub async fn update_settings(
        &self,
        name: &FunctionName,
        change: &FunctionChange,
        current: &Value,
    ) -> Result<Value, ClientError> {
        let body = Value::Object(change.fields(&current["Environment"]["Variables"]));
        self.call(Method::PUT, &format!("{FUNCTIONS}/{name}/configuration"), Some(body)).await
    }

    /// Replaces the function's code, or with `dry_run` only checks that the door would take it. Returns the
    /// configuration.
    #[boxed]
    pub async fn update_code(
        &self,
        name: &FunctionName,
        code: &CodeUpload,
        dry_run: bool,
    ) -> Result<Value, ClientError> {
        let body = json!({ "ZipFile": code.encoded(), "DryRun": dry_run });
        self.call(Method::PUT, &format!("{FUNCTIONS}/{name}/code"), Some(body)).await
    }

    /// Removes the function.
    #[boxed]
    pub async fn delete(&self, name: &FunctionName) -> Result<(), ClientError> {
        self.call(Method::DELETE, &format!("{FUNCTIONS}/{name}"), None).await.map(drop)
    }

    /// Invokes the function with `payload`, and waits for its end.
    ///
    /// # Errors
    /// The door's refusal. A failure of the function itself is no error here: see `InvokeReply::function_error`.
    #[boxed]
    pub async fn invoke(
        &self,
        name: &FunctionName,
        payload: Bytes,
        log_tail: bool,
    ) -> Result<InvokeReply, ClientError> {
        let mut request = Request::builder().method(Method::POST).header("x-amz-invocation-type", "RequestResponse");
        if log_tail {
            request = request.header("x-amz-log-type", "Tail");
        }
        let (_, headers, answer) = self.send(request, &format!("{FUNCTIONS}/{name}/invocations"), payload).await?;
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Ok(InvokeReply {
            id: header("x-amzn-requestid").unwrap_or_default(),
            payload: answer,
            function_error: header("x-amz-function-error"),
            log_tail: header("x-amz-log-result").and_then(|text| BASE64.decode(text).ok()),
        })
    }

    /// Reserves `count` concurrent invocations for the function; `None` ends the reservation.
    #[boxed]
    pub async fn reserve(&self, name: &FunctionName, count: Option<u64>) -> Result<(), ClientError> {
        let path = format!("/2017-10-31/functions/{name}/concurrency");
        let done = match count {
            Some(count) => self.call(Method::PUT, &path, Some(json!({ "ReservedConcurrentExecutions": count }))).await,
            None => self.call(Method::DELETE, &path, None).await,
        };
        done.map(drop)
    }

    /// Gives the function a URL for `auth` (`AWS_IAM`, `NONE`), or changes its present one. Returns the URL.
    #[boxed]
    pub async fn give_url(&self, name: &FunctionName, auth: &str) -> Result<String, ClientError> {
        let path = format!("/2021-10-31/functions/{name}/url");
        let body = json!({ "AuthType": auth });
        let made = match self.call(Method::POST, &path, Some(body.clone())).await {
            Err(ClientError::Refused { status: 409, .. }) => self.call(Method::PUT, &path, Some(body)).await,
            made => made,
        }?;
        Ok(made.get("FunctionUrl").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// The URL of the function and for whom it is (`AWS_IAM`, `NONE`); none if it has no URL.
    #[boxed]
    pub async fn url(&self, name: &FunctionName) -> Result<Option<(String, String)>, ClientError> {
        match self.call(Method::GET, &format!("/2021-10-31/functions/{name}/url"), None).await {
            Ok(found) => {
                let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
                Ok(Some((text("FunctionUrl"), text("AuthType"))))
            }
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the function's URL away.
    #[boxed]
    pub async fn take_url(&self, name: &FunctionName) -> Result<(), ClientError> {
        self.call(Method::DELETE, &format!("/2021-10-31/functions/{name}/url"), None).await.map(drop)
    }

    /// Queues `payload` for the function, which runs it at least once. Returns the request id.
    #[boxed]
    pub async fn invoke_later(&self, name: &FunctionName, payload: Bytes) -> Result<String, ClientError> {
        let request = Request::builder().method(Method::POST).header("x-amz-invocation-type", "Event");
        let (_, headers, _) = self.send(request, &format!("{FUNCTIONS}/{name}/invocations"), payload).await?;
        let id = headers.get("x-amzn-requestid").and_then(|value| value.to_str().ok());
        Ok(id.unwrap_or_default().to_owned())
    }

    async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, ClientError> {
        let mut request = Request::builder().method(method);
        let mut bytes = Bytes::new();
        if let Some(body) = body {
            bytes = body.to_string().into();
            request = request.header(http::header::CONTENT_TYPE, "application/json");
        }
        let (status, _, answer) = self.send(request, path, bytes).await?;
        if status == StatusCode::NO_CONTENT || answer.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&answer)
            .map_err(|error| ClientError::Answer { endpoint: self.target.name(), reason: error.to_string() })
    }

    async fn send(
        &self,
        request: http::request::Builder,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap, Bytes), ClientError> {
        let request = request
            .uri(format!("http://{}{path}", self.target.authority()))
            .header(http::header::CONTENT_LENGTH, body.len())
            .body(full(body.clone()))
            .map_err(|error| ClientError::Request(error.to_string()))?;
        let answer = self.target.send(self.signer.sign(request, PayloadHash::Of(&body))?).await?;
        let (parts, body) = answer.into_parts();
        let body = self.target.collect(body).await?;
        if parts.status.is_success() {
            return Ok((parts.status, parts.headers, body));
        }
        Err(refusal(parts.status, &parts.headers, &body))
    }
}

/// Lambda's error: its code is in a header, its message in JSON.
pub(super) fn refusal(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> ClientError {
    let code = headers.get("x-amzn-errortype").and_then(|value| value.to_str().ok());
    // AWS appends a colon and a URL for some services.
    let code = code.and_then(|code| code.split(':').next()).unwrap_or(status.as_str()).to_owned();
    let words: Option<Value> = serde_json::from_slice(body).ok();
    let words = words.as_ref().and_then(|words| words.get("Message").or_else(|| words.get("message"))?.as_str());
    let message = words.or(status.canonical_reason()).unwrap_or("refused").to_owned();
    ClientError::Refused { status: status.as_u16(), code, message }
}

fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests;
