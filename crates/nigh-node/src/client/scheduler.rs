//! The client of EventBridge Scheduler's API.

use async_recursion::async_recursion as boxed;
use bytes::Bytes;
use http::{Method, Request};
use nigh_functions::schedule::ScheduleName;
use serde_json::Value;

use super::http_call::{Target, full};
use super::lambda::refusal;
use super::signer::{PayloadHash, Signer};
use super::{ClientError, DoorAddress};
use crate::credentials::Credentials;

/// A client of one namespace at one Lambda door, for its schedules.
pub struct SchedulerClient {
    target: Target,
    signer: Signer,
}

impl SchedulerClient {
    /// A client of `door`.
    ///
    /// # Errors
    /// If its address is no URL, or its authorities cannot be read.
    pub fn new(door: &DoorAddress, region: &str, credentials: &Credentials) -> Result<Self, ClientError> {
        Ok(Self { target: Target::of(door)?, signer: Signer::new("scheduler", region, credentials) })
    }

    /// All schedules, by name.
    #[boxed]
    pub async fn list(&self) -> Result<Vec<Value>, ClientError> {
        let mut all = Vec::new();
        let mut token: Option<String> = None;
        loop {
            let path = match &token {
                // The token is a name: no character of it needs an escape.
                Some(token) => format!("/schedules?NextToken={token}"),
                None => "/schedules".to_owned(),
            };
            let mut page = self.call(Method::GET, &path, None).await?;
            if let Some(Value::Array(schedules)) = page.get_mut("Schedules").map(Value::take) {
                all.extend(schedules);
            }
            match page.get("NextToken").and_then(Value::as_str) {
                Some(next) => token = Some(next.to_owned()),
                None => return Ok(all),
            }
        }
    }

    /// A schedule, in the API's form.
    #[boxed]
    pub async fn get(&self, name: &ScheduleName) -> Result<Value, ClientError> {
        self.call(Method::GET, &format!("/schedules/{name}"), None).await
    }

    /// Makes a schedule, or replaces the one of that name. True if it was made.
    #[boxed]
    pub async fn put(&self, name: &ScheduleName, schedule: &Value) -> Result<bool, ClientError> {
        let path = format!("/schedules/{name}");
        match self.call(Method::POST, &path, Some(schedule)).await {
            Err(ClientError::Refused { status: 409, .. }) => {
                self.call(Method::PUT, &path, Some(schedule)).await.map(|_| false)
            }
            made => made.map(|_| true),
        }
    }

    /// Pauses a schedule, or lets it go on; all else stays as it is.
    #[boxed]
    pub async fn set_state(&self, name: &ScheduleName, state: &str) -> Result<(), ClientError> {
        let mut schedule = self.get(name).await?;
        schedule["State"] = state.into();
        self.call(Method::PUT, &format!("/schedules/{name}"), Some(&schedule)).await.map(drop)
    }

    /// Removes a schedule.
    #[boxed]
    pub async fn delete(&self, name: &ScheduleName) -> Result<(), ClientError> {
        self.call(Method::DELETE, &format!("/schedules/{name}"), None).await.map(drop)
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.target.authority()))
            .header(http::header::CONTENT_TYPE, "application/json")
            .header(http::header::CONTENT_LENGTH, bytes.len())
            .body(full(bytes.clone()))
            .map_err(|error| ClientError::Request(error.to_string()))?;
        let answer = self.target.send(self.signer.sign(request, PayloadHash::Of(&bytes))?).await?;
        let (parts, body) = answer.into_parts();
        let body = self.target.collect(body).await?;
        if !parts.status.is_success() {
            return Err(refusal(parts.status, &parts.headers, &body));
        }
        serde_json::from_slice(&body)
            .map_err(|error| ClientError::Answer { endpoint: self.target.name(), reason: error.to_string() })
    }
}
