//! Finds the operation of a method and path. Pure.
//!
//! Paths are those of the Lambda API reference, each with the date of its API version. Operations that only this door lacks
//! get another error than unknown paths.

use http::Method;

use super::{LambdaError, SchedulerOperation, StatesOperation};

/// An operation, with its function's name or ARN as in the path, percent-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// `CreateFunction`.
    Create,
    /// `ListFunctions`.
    List,
    /// `GetFunction`.
    Get(&'a str),
    /// `GetFunctionConfiguration`.
    GetConfiguration(&'a str),
    /// `UpdateFunctionCode`.
    UpdateCode(&'a str),
    /// `UpdateFunctionConfiguration`.
    UpdateConfiguration(&'a str),
    /// `DeleteFunction`.
    Delete(&'a str),
    /// `Invoke`.
    Invoke(&'a str),
    /// `ListVersionsByFunction`.
    ListVersions(&'a str),
    /// `ListAliases`.
    ListAliases(&'a str),
    /// `GetPolicy`.
    GetPolicy(&'a str),
    /// `GetFunctionConcurrency`.
    GetConcurrency(&'a str),
    /// `PutFunctionConcurrency`.
    PutConcurrency(&'a str),
    /// `DeleteFunctionConcurrency`.
    DeleteConcurrency(&'a str),
    /// `PutFunctionEventInvokeConfig`.
    PutEventConfig(&'a str),
    /// `UpdateFunctionEventInvokeConfig`.
    UpdateEventConfig(&'a str),
    /// `GetFunctionEventInvokeConfig`.
    GetEventConfig(&'a str),
    /// `DeleteFunctionEventInvokeConfig`.
    DeleteEventConfig(&'a str),
    /// `ListFunctionEventInvokeConfigs`.
    ListEventConfigs(&'a str),
    /// `CreateFunctionUrlConfig`.
    CreateUrl(&'a str),
    /// `GetFunctionUrlConfig`.
    GetUrl(&'a str),
    /// `UpdateFunctionUrlConfig`.
    UpdateUrl(&'a str),
    /// `DeleteFunctionUrlConfig`.
    DeleteUrl(&'a str),
    /// `ListFunctionUrlConfigs`.
    ListUrls(&'a str),
    /// `PublishLayerVersion`.
    PublishLayer(&'a str),
    /// `ListLayers`, and `GetLayerVersionByArn`.
    ListLayers,
    /// `ListLayerVersions`.
    ListLayerVersions(&'a str),
    /// `GetLayerVersion`.
    GetLayer(&'a str, &'a str),
    /// `DeleteLayerVersion`.
    DeleteLayer(&'a str, &'a str),
    /// `ListTags`.
    ListTags(&'a str),
    /// `GetAccountSettings`.
    GetAccountSettings,
    /// An operation of the Step Functions API, which the headers name.
    States(StatesOperation),
    /// An operation of EventBridge Scheduler's API.
    Scheduler(SchedulerOperation<'a>),
}

impl<'a> Operation<'a> {
    /// The operation of `method` on `path`.
    ///
    /// # Errors
    /// `NotImplemented` for an operation that only Lambda has, `UnknownOperation` for others.
    pub fn of(method: &Method, path: &'a str) -> Result<Self, LambdaError> {
        let path = path.strip_prefix('/').unwrap_or(path);
        let segments: Vec<&str> = path.strip_suffix('/').unwrap_or(path).split('/').collect();
        if let Some(operation) = SchedulerOperation::of(method.as_str(), &segments) {
            return operation.map(Self::Scheduler);
        }
        let operation = match (method.as_str(), segments.as_slice()) {
            ("POST", ["2015-03-31", "functions"]) => Self::Create,
            ("GET", ["2015-03-31", "functions"]) => Self::List,
            ("GET", ["2015-03-31", "functions", name]) => Self::Get(name),
            ("DELETE", ["2015-03-31", "functions", name]) => Self::Delete(name),
            ("GET", ["2015-03-31", "functions", name, "configuration"]) => Self::GetConfiguration(name),
            ("PUT", ["2015-03-31", "functions", name, "configuration"]) => Self::UpdateConfiguration(name),
            ("PUT", ["2015-03-31", "functions", name, "code"]) => Self::UpdateCode(name),
            ("POST", ["2015-03-31", "functions", name, "invocations"]) => Self::Invoke(name),
            ("GET", ["2015-03-31", "functions", name, "versions"]) => Self::ListVersions(name),
            ("GET", ["2015-03-31", "functions", name, "aliases"]) => Self::ListAliases(name),
            ("GET", ["2015-03-31", "functions", name, "policy"]) => Self::GetPolicy(name),
            ("GET", ["2019-09-30", "functions", name, "concurrency"]) => Self::GetConcurrency(name),
            ("PUT", ["2017-10-31", "functions", name, "concurrency"]) => Self::PutConcurrency(name),
            ("DELETE", ["2017-10-31", "functions", name, "concurrency"]) => Self::DeleteConcurrency(name),
            ("PUT", ["2019-09-25", "functions", name, "event-invoke-config"]) => Self::PutEventConfig(name),
            ("POST", ["2019-09-25", "functions", name, "event-invoke-config"]) => Self::UpdateEventConfig(name),
            ("GET", ["2019-09-25", "functions", name, "event-invoke-config"]) => Self::GetEventConfig(name),
            ("DELETE", ["2019-09-25", "functions", name, "event-invoke-config"]) => Self::DeleteEventConfig(name),
            ("GET", ["2019-09-25", "functions", name, "event-invoke-config", "list"]) => Self::ListEventConfigs(name),
            ("POST", ["2021-10-31", "functions", name, "url"]) => Self::CreateUrl(name),
            ("GET", ["2021-10-31", "functions", name, "url"]) => Self::GetUrl(name),
            ("PUT", ["2021-10-31", "functions", name, "url"]) => Self::UpdateUrl(name),
            ("DELETE", ["2021-10-31", "functions", name, "url"]) => Self::DeleteUrl(name),
            ("GET", ["2021-10-31", "functions", name, "urls"]) => Self::ListUrls(name),
            ("GET", ["2018-10-31", "layers"]) => Self::ListLayers,
            ("POST", ["2018-10-31", "layers", name, "versions"]) => Self::PublishLayer(name),
            ("GET", ["2018-10-31", "layers", name, "versions"]) => Self::ListLayerVersions(name),
            ("GET", ["2018-10-31", "layers", name, "versions", version]) => Self::GetLayer(name, version),
            ("DELETE", ["2018-10-31", "layers", name, "versions", version]) => Self::DeleteLayer(name, version),
            ("GET", ["2017-03-31", "tags", arn]) => Self::ListTags(arn),
            ("GET", ["2016-08-19", "account-settings"]) => Self::GetAccountSettings,
            (_, [version, ..]) if is_api_version(version) => {
                return Err(LambdaError::not_implemented("this operation of the Lambda API is not supported here"));
            }
            _ => return Err(LambdaError::unknown_operation("there is no such operation")),
        };
        Ok(operation)
    }

    /// Its name in the API reference.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Create => "CreateFunction",
            Self::List => "ListFunctions",
            Self::Get(_) => "GetFunction",
            Self::GetConfiguration(_) => "GetFunctionConfiguration",
            Self::UpdateCode(_) => "UpdateFunctionCode",
            Self::UpdateConfiguration(_) => "UpdateFunctionConfiguration",
            Self::Delete(_) => "DeleteFunction",
            Self::Invoke(_) => "Invoke",
            Self::ListVersions(_) => "ListVersionsByFunction",
            Self::ListAliases(_) => "ListAliases",
            Self::GetPolicy(_) => "GetPolicy",
            Self::GetConcurrency(_) => "GetFunctionConcurrency",
            Self::PutConcurrency(_) => "PutFunctionConcurrency",
            Self::DeleteConcurrency(_) => "DeleteFunctionConcurrency",
            Self::PutEventConfig(_) => "PutFunctionEventInvokeConfig",
            Self::UpdateEventConfig(_) => "UpdateFunctionEventInvokeConfig",
            Self::GetEventConfig(_) => "GetFunctionEventInvokeConfig",
            Self::DeleteEventConfig(_) => "DeleteFunctionEventInvokeConfig",
            Self::ListEventConfigs(_) => "ListFunctionEventInvokeConfigs",
            Self::CreateUrl(_) => "CreateFunctionUrlConfig",
            Self::GetUrl(_) => "GetFunctionUrlConfig",
            Self::UpdateUrl(_) => "UpdateFunctionUrlConfig",
            Self::DeleteUrl(_) => "DeleteFunctionUrlConfig",
            Self::ListUrls(_) => "ListFunctionUrlConfigs",
            Self::PublishLayer(_) => "PublishLayerVersion",
            Self::ListLayers => "ListLayers",
            Self::ListLayerVersions(_) => "ListLayerVersions",
            Self::GetLayer(..) => "GetLayerVersion",
            Self::DeleteLayer(..) => "DeleteLayerVersion",
            Self::ListTags(_) => "ListTags",
            Self::GetAccountSettings => "GetAccountSettings",
            Self::States(operation) => operation.name(),
            Self::Scheduler(operation) => operation.name(),
        }
    }

    /// The service for which its requests are signed.
    #[must_use]
    pub const fn service(&self) -> &'static str {
        match self {
            Self::States(_) => "states",
            Self::Scheduler(_) => "scheduler",
            _ => "lambda",
        }
    }

    /// Whether its body may have an archive.
    #[must_use]
    pub const fn carries_code(&self) -> bool {
        matches!(self, Self::Create | Self::UpdateCode(_) | Self::PublishLayer(_))
    }
}

fn is_api_version(segment: &str) -> bool {
    segment.len() == 10
        && segment.bytes().enumerate().all(|(place, octet)| match place {
            4 | 7 => octet == b'-',
            _ => octet.is_ascii_digit(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    #[test]
    fn the_paths_of_the_sdks_lead_to_their_operations() {
        for (method, path, operation) in [
            (Method::POST, "/2015-03-31/functions", Operation::Create),
            (Method::GET, "/2015-03-31/functions/", Operation::List),
            (Method::GET, "/2015-03-31/functions/f", Operation::Get("f")),
            (Method::POST, "/2015-03-31/functions/a%2Fb/invocations", Operation::Invoke("a%2Fb")),
            (Method::GET, "/2016-08-19/account-settings/", Operation::GetAccountSettings),
        ] {
            assert_eq!(Operation::of(&method, path), Ok(operation), "{path}");
        }
    }

    #[test]
    fn what_lambda_has_and_we_have_not_is_told_from_what_is_nowhere() {
        for (method, path, status) in [
            (Method::POST, "/2015-03-31/event-source-mappings", StatusCode::NOT_IMPLEMENTED),
            (Method::POST, "/2021-11-15/functions/f/response-streaming-invocations", StatusCode::NOT_IMPLEMENTED),
            (Method::PATCH, "/2015-03-31/functions/f", StatusCode::NOT_IMPLEMENTED),
            (Method::GET, "/2015-03-31/functions/a/b/c/invocations", StatusCode::NOT_IMPLEMENTED),
            (Method::GET, "/", StatusCode::NOT_FOUND),
            (Method::GET, "//2015-03-31/functions", StatusCode::NOT_FOUND),
            (Method::GET, "/bucket/key", StatusCode::NOT_FOUND),
        ] {
            assert_eq!(Operation::of(&method, path).unwrap_err().status, status, "{path}");
        }
    }
}
