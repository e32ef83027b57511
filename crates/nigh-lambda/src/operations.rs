//! Performs each operation for an authenticated caller.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::TryStreamExt as _;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use http_body_util::Full;
use nigh_data::ObjectError;
use nigh_engine::AccessDenied;
use nigh_functions::code_archive::{Archive, ArchiveLimits};
use nigh_functions::function_arn::{LATEST, function_arn, parse_function_reference};
use nigh_functions::function_caching;
use nigh_functions::function_store::{DeployedFunction, FunctionStoreError};
use nigh_invoke::invocation::InvokeRequest;
use nigh_schedule::activation::idempotence;
use nigh_sizing::memory_sizing::InputRules;
use nigh_terms::{FunctionName, Principal};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use super::response::{JSON, LambdaResponse, empty_answer, header, json_answer, set};
use super::shape::configuration;
use super::validation::{self, CodeLocation};
use super::{LambdaDoor, LambdaError, Operation};

/// Functions on one page of `ListFunctions` (Lambda API reference).
const PAGE_MAX: usize = 50;
/// The longest `ClientContext`, base64 (Lambda API reference, `Invoke`).
const CLIENT_CONTEXT_BYTES_MAX: usize = 3583;

/// A request whose signature was checked.
pub(super) struct Request<'a> {
    pub(super) who: Principal,
    pub(super) query: &'a str,
    pub(super) headers: &'a HeaderMap,
    pub(super) body: Bytes,
}

impl Request<'_> {
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let value = pairs.into_iter().find(|(found, _)| *found == name)?.1;
        Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
    }

    fn header(&self, name: &HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// Lambda's `ClientContext`, if it is one.
    pub(super) fn client_context(&self) -> Result<Option<String>, LambdaError> {
        self.header(&header::CLIENT_CONTEXT).map(client_context).transpose()
    }
}

impl LambdaDoor {
    /// Does `operation`.
    pub(super) async fn perform(
        &self,
        operation: Operation<'_>,
        request: Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        let named = |name| self.function_name(name, &request);
        if let Operation::Invoke(name) = operation {
            return self.invoke(named(name)?, request).await;
        }
        if let Operation::States(operation) = operation {
            return Ok(self.states(operation, request).await);
        }
        if let Some(function) = &request.who.function {
            return Err(LambdaError::access_denied(format!(
                "the function {function} may invoke functions of its namespace; managing them needs a client's key"
            )));
        }
        match operation {
            Operation::Create => self.create(request).await,
            Operation::List => self.list(&request),
            Operation::Get(name) => self.get(&named(name)?, &request),
            Operation::GetConfiguration(name) => {
                let deployed = self.deployed(&named(name)?, &request)?;
                Ok(json_answer(StatusCode::OK, &self.configuration(&deployed)))
            }
            Operation::UpdateCode(name) => self.update_code(named(name)?, request).await,
            Operation::UpdateConfiguration(name) => self.update_configuration(named(name)?, request).await,
            Operation::Delete(name) => {
                let name = named(name)?;
                self.parts.functions.delete(&request.who.namespace, &name).await.map_err(|e| self.refused(e))?;
                self.parts.invoke.set_reserved(&request.who.namespace, &name, None);
                Ok(empty_answer(StatusCode::NO_CONTENT))
            }
            Operation::ListVersions(name) => {
                let deployed = self.deployed(&named(name)?, &request)?;
                Ok(json_answer(StatusCode::OK, &json!({ "Versions": [self.configuration(&deployed)] })))
            }
            Operation::ListAliases(name) => {
                self.deployed(&named(name)?, &request)?;
                Ok(json_answer(StatusCode::OK, &json!({ "Aliases": [] })))
            }
            Operation::GetPolicy(name) => {
                self.deployed(&named(name)?, &request)?;
                Err(LambdaError::not_found("No policy is associated with the given resource."))
            }
            Operation::GetConcurrency(name) => self.get_concurrency(&named(name)?, &request),
            Operation::PutConcurrency(name) => self.put_concurrency(&named(name)?, &request).await,
            Operation::DeleteConcurrency(name) => self.delete_concurrency(&named(name)?, &request).await,
            Operation::PutEventConfig(name) => self.set_event_config(&named(name)?, &request, true).await,
            Operation::UpdateEventConfig(name) => self.set_event_config(&named(name)?, &request, false).await,
            Operation::GetEventConfig(name) => self.get_event_config(&named(name)?, &request),
            Operation::ListEventConfigs(name) => self.list_event_configs(&named(name)?, &request),
            Operation::DeleteEventConfig(name) => self.delete_event_config(&named(name)?, &request).await,
            Operation::CreateUrl(name) => self.create_url(&named(name)?, &request).await,
            Operation::GetUrl(name) => self.get_url(&named(name)?, &request),
            Operation::UpdateUrl(name) => self.update_url(&named(name)?, &request).await,
            Operation::DeleteUrl(name) => self.delete_url(&named(name)?, &request).await,
            Operation::ListUrls(name) => self.list_urls(&named(name)?, &request),
            Operation::PublishLayer(name) => self.publish_layer(name, request).await,
            Operation::ListLayers => self.list_layers(&request),
            Operation::ListLayerVersions(name) => self.list_layer_versions(name, &request),
            Operation::GetLayer(name, version) => self.get_layer(name, version, &request),
            Operation::DeleteLayer(name, version) => self.delete_layer(name, version, &request).await,
            Operation::ListTags(arn) => {
                let deployed = self.deployed(&named(arn)?, &request)?;
                Ok(json_answer(StatusCode::OK, &json!({ "Tags": deployed.tags })))
            }
            Operation::GetAccountSettings => Ok(self.account_settings(&request)),
            Operation::Scheduler(operation) => self.scheduler(operation, &request).await,
            Operation::Invoke(_) | Operation::States(_) => {
                Err(LambdaError::unknown_operation("there is no such operation"))
            }
        }
    }

    async fn invoke(&self, name: FunctionName, request: Request<'_>) -> Result<LambdaResponse, LambdaError> {
        match request.header(&header::INVOCATION_TYPE) {
            None | Some("RequestResponse") => {}
            Some("Event") => return self.invoke_later(name, request).await,
            Some("DryRun") => {
                self.deployed(&name, &request)?;
                return Ok(empty_answer(StatusCode::NO_CONTENT));
            }
            Some(_) => {
                return Err(LambdaError::invalid_parameter("InvocationType must be RequestResponse, Event or DryRun"));
            }
        }
        let wants_log = request.header(&header::LOG_TYPE) == Some("Tail");
        let client_context = request.client_context()?;
        let payload = if request.body.is_empty() { Bytes::from_static(b"{}") } else { request.body };
        let token = self.parts.invoke.seen(&request.who);
        let asked = InvokeRequest { function: name, payload, client_context, token, event: None };
        let invoked = self.parts.invoke.invoke(&request.who, asked).await?;
        let log_tail = if wants_log { STANDARD.encode(invoked.log_tail()) } else { String::new() };
        let mut answer = Response::new(Full::new(invoked.payload));
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, JSON);
        headers.insert(header::EXECUTED_VERSION, HeaderValue::from_static(LATEST));
        set(headers, header::REQUEST_ID, &invoked.id.to_string());
        if let Some(error) = invoked.function_error {
            headers.insert(header::FUNCTION_ERROR, HeaderValue::from_static(error));
        }
        if wants_log {
            set(headers, header::LOG_RESULT, &log_tail);
        }
        Ok(answer)
    }

    async fn create(&self, request: Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let (body, catalog) = (request.body, self.parts.catalog.clone());
        let (layers, namespace) = (self.parts.functions.layers().clone(), request.who.namespace.clone());
        let find = move |arn: &str| layers.resolve(&namespace, arn).map_err(LambdaError::from);
        let (new, code) = off_the_path(move || validation::create(&body, &catalog, &find)).await?;
        self.check_environment(&request.who, new.settings.environment.as_ref())?;
        let namespace = &request.who.namespace;
        let deployed = self.parts.functions.totals(namespace).0;
        self.parts.keys.namespaces().check_functions(namespace, deployed).map_err(AccessDenied::from)?;
        let archive = self.code(&request.who, code).await?;
        let created = self.parts.functions.create(&request.who.namespace, new, archive).await;
        let created = created.map_err(|error| self.refused(error))?;
        Ok(json_answer(StatusCode::CREATED, &self.configuration(&created)))
    }

    async fn update_code(&self, name: FunctionName, request: Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let body = request.body;
        let change = off_the_path(move || validation::update_code(&body)).await?;
        let archive = self.code(&request.who, change.code).await?;
        let (functions, namespace) = (&self.parts.functions, &request.who.namespace);
        let updated = if change.dry_run {
            functions.check_code(namespace, &name, archive, change.revision.as_deref()).await
        } else {
            functions.update_code(namespace, &name, archive, change.revision).await
        };
        let updated = updated.map_err(|error| self.refused(error))?;
        Ok(json_answer(StatusCode::OK, &self.configuration(&updated)))
    }

    async fn update_configuration(
        &self,
        name: FunctionName,
        request: Request<'_>,
    ) -> Result<LambdaResponse, LambdaError> {
        let layers = self.parts.functions.layers();
        let find = |arn: &str| layers.resolve(&request.who.namespace, arn).map_err(LambdaError::from);
        let (settings, revision) = validation::update_configuration(&request.body, &self.parts.catalog, &find)?;
        self.check_environment(&request.who, settings.environment.as_ref())?;
        let updated = self.parts.functions.update_settings(&request.who.namespace, &name, settings, revision).await;
        let updated = updated.map_err(|error| self.refused(error))?;
        Ok(json_answer(StatusCode::OK, &self.configuration(&updated)))
    }

    /// Rejects an environment that asks for a network which the namespace may not use, or sets one of Nigh's own
    /// variables to an unknown word.
    fn check_environment(
        &self,
        who: &Principal,
        environment: Option<&BTreeMap<String, String>>,
    ) -> Result<(), LambdaError> {
        let Some(environment) = environment else { return Ok(()) };
        function_caching::admission(environment).map_err(|error| LambdaError::invalid_parameter(error.to_string()))?;
        idempotence::says(environment).map_err(|error| LambdaError::invalid_parameter(error.to_string()))?;
        InputRules::declared(environment).map_err(|error| LambdaError::invalid_parameter(error.to_string()))?;
        let checked = self.settings.network.check(&who.namespace, environment);
        checked.map(drop).map_err(|refusal| LambdaError::invalid_parameter(refusal.to_string()))
    }

    fn list(&self, request: &Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let limit = match request.parameter("MaxItems").map(|text| text.parse::<usize>()) {
            None => PAGE_MAX,
            Some(Ok(limit @ 1..=10_000)) => limit.min(PAGE_MAX),
            Some(_) => return Err(LambdaError::validation("MaxItems must be between 1 and 10000")),
        };
        let after = request.parameter("Marker").filter(|marker| !marker.is_empty());
        let after = after.map(|marker| FunctionName::new(&marker)).transpose();
        let after = after.map_err(|_| LambdaError::invalid_parameter("Marker is not one that ListFunctions gave"))?;
        let (page, more) = self.parts.functions.list(&request.who.namespace, after.as_ref(), limit);
        let mut answer = json!({ "Functions": page.iter().map(|f| self.configuration(f)).collect::<Vec<_>>() });
        if let Some(last) = page.last().filter(|_| more) {
            answer["NextMarker"] = json!(last.function.name);
        }
        Ok(json_answer(StatusCode::OK, &answer))
    }

    fn get(&self, name: &FunctionName, request: &Request<'_>) -> Result<LambdaResponse, LambdaError> {
        let deployed = self.deployed(name, request)?;
        let mut answer = json!({
            "Configuration": self.configuration(&deployed),
            // Lambda gives a link to the archive; Nigh has no links that need no key.
            "Code": { "RepositoryType": "S3", "Location": "" },
        });
        if !deployed.tags.is_empty() {
            answer["Tags"] = json!(deployed.tags);
        }
        if let Some(reserved) = deployed.attached.reserved {
            answer["Concurrency"] = json!({ "ReservedConcurrentExecutions": reserved });
        }
        Ok(json_answer(StatusCode::OK, &answer))
    }

    fn account_settings(&self, request: &Request<'_>) -> LambdaResponse {
        let (count, size) = self.parts.functions.totals(&request.who.namespace);
        let limits = self.parts.functions.limits();
        let answer = json!({
            "AccountLimit": {
                "TotalCodeSize": limits.code,
                "CodeSizeUnzipped": limits.archive.unpacked,
                "CodeSizeZipped": limits.archive.uploaded,
                "ConcurrentExecutions": self.settings.concurrency,
                "UnreservedConcurrentExecutions": self.unreserved(),
            },
            "AccountUsage": { "TotalCodeSize": size, "FunctionCount": count },
        });
        json_answer(StatusCode::OK, &answer)
    }

    fn function_name(&self, text: &str, request: &Request<'_>) -> Result<FunctionName, LambdaError> {
        let name = parse_function_reference(text)?;
        match request.parameter("Qualifier") {
            Some(qualifier) if qualifier != LATEST && !qualifier.is_empty() => {
                let arn = function_arn(&self.settings.region, &name);
                Err(LambdaError::not_found(format!("Function not found: {arn}:{qualifier}")))
            }
            _ => Ok(name),
        }
    }

    pub(super) fn deployed(
        &self,
        name: &FunctionName,
        request: &Request<'_>,
    ) -> Result<std::sync::Arc<DeployedFunction>, LambdaError> {
        let deployed = self.parts.functions.get(&request.who.namespace, name);
        deployed.ok_or_else(|| self.refused(FunctionStoreError::NotFound(name.clone())))
    }

    fn configuration(&self, deployed: &DeployedFunction) -> Value {
        configuration(&deployed.function, &self.settings.region)
    }

    /// The refusal, with the ARN where Lambda has it.
    pub(super) fn refused(&self, error: FunctionStoreError) -> LambdaError {
        match error {
            FunctionStoreError::NotFound(name) => {
                LambdaError::not_found(format!("Function not found: {}", function_arn(&self.settings.region, &name)))
            }
            other => other.into(),
        }
    }

    /// The archive in a request, or the object that it names, copied into a file.
    pub(super) async fn code(&self, who: &Principal, location: CodeLocation) -> Result<Archive, LambdaError> {
        let (bucket, key) = match location {
            CodeLocation::Inline(archive) => return Ok(archive.into()),
            CodeLocation::Object(bucket, key) => (bucket, key),
        };
        let unread = |error: ObjectError| match error {
            ObjectError::Store { .. }
            | ObjectError::StoreUnreached { .. }
            | ObjectError::StoreSilent { .. }
            | ObjectError::Memory { .. }
            | ObjectError::Busy(_)
            | ObjectError::AtHome(_)
            | ObjectError::Ledger(_) => LambdaError::service(format!("the archive could not be read: {error}")),
            _ => LambdaError::invalid_parameter(format!("the archive {bucket}/{key} could not be read: {error}")),
        };
        let limit = ArchiveLimits::LAMBDA.zipped;
        let (size, mut body) = self.parts.objects.open(who, &bucket, &key).await.map_err(unread)?;
        if size > limit {
            return Err(unread(ObjectError::EntityTooLarge { limit: limit.bytes() }));
        }
        let functions = self.parts.functions.clone();
        let unwritten = |error: &dyn std::fmt::Display| LambdaError::service(format!("the archive: {error}"));
        let scratch = off_the_path(move || functions.scratch().map_err(LambdaError::from)).await?;
        let mut file = tokio::fs::File::from_std(scratch);
        while let Some(piece) = body.try_next().await.map_err(unread)? {
            file.write_all(&piece).await.map_err(|error| unwritten(&error))?;
        }
        file.flush().await.map_err(|error| unwritten(&error))?;
        Archive::in_file(file.into_std().await).map_err(|error| unwritten(&error))
    }
}

/// Runs `work`, which may parse a large body, on a thread that serves no other request.
pub(super) async fn off_the_path<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LambdaError> + Send + 'static,
) -> Result<T, LambdaError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|join| Err(LambdaError::service(join.to_string())))
}

/// The JSON in the base64 of a `ClientContext` header, in ASCII, because it becomes a header again.
fn client_context(header: &str) -> Result<String, LambdaError> {
    let refused =
        || LambdaError::invalid_content("ClientContext must be at most 3583 bytes of base64 of a JSON object");
    if header.len() > CLIENT_CONTEXT_BYTES_MAX {
        return Err(refused());
    }
    let decoded = STANDARD.decode(header).map_err(|_| refused())?;
    let object: BTreeMap<String, Value> = serde_json::from_slice(&decoded).map_err(|_| refused())?;
    let text = serde_json::to_string(&object).map_err(|_| refused())?;
    let mut ascii = String::with_capacity(text.len());
    let mut units = [0; 2];
    for letter in text.chars() {
        if letter.is_ascii() && !letter.is_ascii_control() {
            ascii.push(letter);
        } else {
            letter.encode_utf16(&mut units).iter().for_each(|unit| ascii.push_str(&format!("\\u{unit:04x}")));
        }
    }
    Ok(ascii)
}
