//! Which traces are recorded, and who takes them.

use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use nigh_terms::SecretKey;
use nigh_trace::Sampling;
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// What OTLP over HTTP adds to a collector's address.
const PATH: &str = "/v1/traces";
/// OpenTelemetry's variables that are read too, weaker than the file.
pub(super) const STANDARD_VARIABLES: [(&str, &str); 3] = [
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "traces.endpoint"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "traces.headers"),
    ("OTEL_SERVICE_NAME", "traces.service_name"),
];

/// Traces by OpenTelemetry's protocol.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TraceSettings {
    /// The address of the collector, which takes OTLP over HTTP as JSON: `http://127.0.0.1:4318`. If absent,
    /// `OTEL_EXPORTER_OTLP_ENDPOINT`; without both nothing is recorded, and callers' trace ids are only passed on.
    pub endpoint: Option<String>,
    /// The share of traces that are recorded, from 0 to 1, of those for which the caller has not decided.
    pub sample: f64,
    /// Headers of each export, `name=value` separated by commas, by file or variable only. If absent,
    /// `OTEL_EXPORTER_OTLP_HEADERS`.
    pub headers: Option<SecretKey>,
    /// The service's name in traces. `OTEL_SERVICE_NAME` sets it too.
    pub service_name: String,
}

impl Default for TraceSettings {
    fn default() -> Self {
        Self { endpoint: None, sample: 1.0, headers: None, service_name: "nigh".to_owned() }
    }
}

/// Where spans go, and how many.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Collector {
    /// Where spans are posted.
    pub(crate) uri: Uri,
    /// The headers of each post; those of the setting do not print.
    pub(crate) headers: HeaderMap,
    /// The share of traces that begin here and are recorded.
    pub(crate) sampling: Sampling,
    /// The name of the service.
    pub(crate) service_name: String,
}

impl TraceSettings {
    /// The collector that the settings name; none if nothing is recorded.
    ///
    /// # Errors
    /// The first setting that is wrong.
    pub(crate) fn collector(&self) -> Result<Option<Collector>, ConfigError> {
        if !(0.0..=1.0).contains(&self.sample) {
            let why = format!("{} is no share; write a number from 0 to 1", self.sample);
            return Err(ConfigError::rule("traces.sample", why));
        }
        let headers = self.headers.as_ref().map_or_else(|| Ok(HeaderMap::new()), |text| headers(text.reveal()))?;
        let Some(endpoint) = &self.endpoint else { return Ok(None) };
        let uri = format!("{}{PATH}", endpoint.trim_end_matches('/')).parse::<Uri>();
        let uri = uri.ok().filter(|uri| {
            let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
            is_http && uri.query().is_none() && uri.authority().is_some_and(|authority| !authority.host().is_empty())
        });
        let why = || format!("{endpoint:?} is no address of a collector; write http://HOST:4318 or https://HOST");
        let uri = uri.ok_or_else(|| ConfigError::rule("traces.endpoint", why()))?;
        let (sampling, service_name) = (Sampling::of_ratio(self.sample), self.service_name.clone());
        Ok(Some(Collector { uri, headers, sampling, service_name }))
    }
}

/// Parses `name=value,name=value`, whose values may be percent-encoded. An error does not show the values.
fn headers(text: &str) -> Result<HeaderMap, ConfigError> {
    let mut headers = HeaderMap::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let why = "it is no list of headers; write name=value, separated by commas";
        let refused = || ConfigError::rule("traces.headers", why.to_owned());
        let (name, value) = pair.split_once('=').ok_or_else(refused)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| refused())?;
        let value = percent_decode_str(value.trim()).decode_utf8().map_err(|_| refused())?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| refused())?;
        value.set_sensitive(true);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(endpoint: &str) -> TraceSettings {
        TraceSettings { endpoint: Some(endpoint.to_owned()), ..TraceSettings::default() }
    }

    #[test]
    fn a_collector_is_an_address_to_which_the_path_of_traces_is_added() {
        for (endpoint, expected) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/traces"),
            ("https://host/", "https://host/v1/traces"),
            ("https://host/otlp", "https://host/otlp/v1/traces"),
        ] {
            let collector = settings(endpoint).collector().unwrap().unwrap();
            assert_eq!(collector.uri.to_string(), expected);
            assert_eq!(collector.sampling, Sampling::ALL);
        }
        for wrong in ["", "127.0.0.1:4318", "grpc://host:4317", "http://", "http://h/?a=b"] {
            let said = settings(wrong).collector().unwrap_err().to_string();
            assert!(said.starts_with("setting traces.endpoint: ") && said.contains("http://HOST:4318"), "{said}");
        }
        assert_eq!(TraceSettings::default().collector().unwrap(), None);
        for sample in [-0.1, 1.1, f64::NAN] {
            let said = TraceSettings { sample, ..TraceSettings::default() }.collector().unwrap_err().to_string();
            assert!(said.contains("from 0 to 1"), "{said}");
        }
    }

    #[test]
    fn headers_are_sent_and_never_shown() {
        let with = |text: &str| TraceSettings { headers: Some(SecretKey::new(text)), ..settings("http://h") };
        let collector = with("x-key=hush%20now, other=1,").collector().unwrap().unwrap();
        assert_eq!(collector.headers["x-key"], "hush now");
        assert_eq!(collector.headers["other"], "1");
        assert!(!format!("{collector:?}").contains("hush"), "{collector:?}");
        for wrong in ["hush", "a b=hush", "x=hush%0a"] {
            let said = with(wrong).collector().unwrap_err().to_string();
            assert!(said.contains("traces.headers") && !said.contains("hush"), "{said}");
        }
    }
}
