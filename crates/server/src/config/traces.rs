//! Settings of tracing: which collector receives spans.

use super::ConfigError;
use http::Uri;
use towline_api::Secret;

/// The OpenTelemetry SDK itself reads the other `OTEL_...` variables: service name, sampler and headers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceSettings {
    /// The URL that receives spans. `None` disables tracing.
    pub endpoint: Option<String>,
    /// Headers of every request to the collector.
    pub headers: Vec<(String, Secret)>,
    /// How many of a million traces started by this server are recorded. `None`: what `OTEL_TRACES_SAMPLER` says, or all.
    pub sample_ppm: Option<u32>,
    /// Set by `OTEL_SDK_DISABLED`, or by `none` in `OTEL_TRACES_EXPORTER`.
    pub disabled: bool,
}

const ENDPOINT_USAGE: &str = "Use http://host:4318, or https://..., and otlp_headers_file for secrets";
/// The path at which collectors receive spans.
const PATH: &str = "/v1/traces";

impl TraceSettings {
    /// Reads the standard OpenTelemetry variables. Settings override them.
    pub(super) fn from_environment(environment: &[(String, String)]) -> Result<TraceSettings, ConfigError> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(known, value)| known == name && !value.trim().is_empty());
            found.map(|(_, value)| value.trim())
        };
        let wrong = |name: &'static str, why: String| {
            let value = variable(name).unwrap_or_default();
            ConfigError::value("the environment".to_owned(), name, value, why, ENDPOINT_USAGE)
        };
        let disabled = variable("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || variable("OTEL_TRACES_EXPORTER") == Some("none");
        let (traces, all) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let endpoint = match (variable(traces), variable(all)) {
            (Some(url), _) => Some(parse_endpoint(url, false).map_err(|why| wrong(traces, why))?),
            (None, Some(base)) => Some(parse_endpoint(base, true).map_err(|why| wrong(all, why))?),
            (None, None) => None,
        };
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            let unsupported = variable(name).is_some_and(|protocol| protocol != "http/protobuf");
            if endpoint.is_some() && !disabled && unsupported {
                return Err(wrong(name, "use http/protobuf, and the collector's port for it".to_owned()));
            }
        }
        Ok(TraceSettings { endpoint, disabled, ..TraceSettings::default() })
    }

    /// The URL that receives spans, unless tracing is disabled.
    pub(crate) fn active_endpoint(&self) -> Option<&str> {
        self.endpoint.as_deref().filter(|_| !self.disabled)
    }
}

/// `is_base`: whether to append the path of the collector.
fn parse_endpoint(text: &str, is_base: bool) -> Result<String, String> {
    let uri: Uri = text.parse().map_err(|_| "not a URL")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() || uri.query().is_some() {
        return Err(ENDPOINT_USAGE.to_owned());
    }
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("leave the user and the password out; use otlp_headers_file for them".to_owned());
    }
    let text = text.trim_end_matches('/');
    Ok(if is_base { format!("{text}{PATH}") } else { text.to_owned() })
}

/// Parses the setting: a URL without a path is a collector, any other URL receives spans itself.
pub(super) fn endpoint(text: &str) -> Result<String, String> {
    let is_base = text.parse::<Uri>().is_ok_and(|uri| matches!(uri.path(), "" | "/"));
    parse_endpoint(text, is_base)
}

/// Parses one header per line, like `authorization: Bearer ...`.
pub(super) fn headers(text: &str) -> Result<Vec<(String, Secret)>, String> {
    let header = |(index, line): (usize, &str)| {
        let wrong = || format!("line {} is not a header; use name: value", index + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name = http::HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        http::HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
        Ok((name.to_string(), Secret(value.trim().to_owned())))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(header).collect()
}

/// Parses a share from 0 to 1 into millionths.
pub(super) fn sample(text: &str) -> Result<u32, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok((share * 1e6).round() as u32),
        _ => Err("use a number from 0 to 1".to_owned()),
    }
}
