//! Where spans go.

use http::Uri;
use towline_api::Secret;

/// What is not here comes from the usual `OTEL_...` variables: the name of the service, the sampler, headers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceSettings {
    /// Where spans are posted to; `None`: nowhere, and none are made.
    pub endpoint: Option<String>,
    /// Sent along, to be let in.
    pub headers: Vec<(String, Secret)>,
    /// Of a million traces that begin here, how many are recorded; `None`: as `OTEL_TRACES_SAMPLER` says, or all.
    pub sample_ppm: Option<u32>,
    /// `OTEL_SDK_DISABLED`, or `OTEL_TRACES_EXPORTER` says `none`.
    pub disabled: bool,
}

/// The path that collectors listen at.
const PATH: &str = "/v1/traces";

impl TraceSettings {
    /// What the variables say that everybody knows. They come before all else, which may say otherwise.
    pub(super) fn of(environment: &[(String, String)]) -> Result<TraceSettings, (&'static str, String)> {
        let said = |name: &str| {
            let said = environment.iter().find(|(known, value)| known == name && !value.trim().is_empty());
            said.map(|(_, value)| value.trim())
        };
        let disabled = said("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || said("OTEL_TRACES_EXPORTER") == Some("none");
        let (traces, all) = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT");
        let endpoint = match (said(traces), said(all)) {
            (Some(endpoint), _) => Some(endpoint_of(endpoint, false).map_err(|why| (traces, why))?),
            (None, Some(base)) => Some(endpoint_of(base, true).map_err(|why| (all, why))?),
            (None, None) => None,
        };
        for name in ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"] {
            if endpoint.is_some()
                && !disabled
                && said(name).is_some_and(|protocol| protocol != "http/protobuf")
            {
                return Err((name, "use http/protobuf, and the port of the collector for it".to_owned()));
            }
        }
        Ok(TraceSettings { endpoint, disabled, ..TraceSettings::default() })
    }

    /// Where spans are to be posted.
    pub(crate) fn wanted(&self) -> Option<&str> {
        self.endpoint.as_deref().filter(|_| !self.disabled)
    }
}

/// `base`: the path of a collector is put behind whatever path there is.
fn endpoint_of(text: &str, base: bool) -> Result<String, String> {
    let uri: Uri = text.parse().map_err(|_| "it is no address")?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() || uri.query().is_some() {
        return Err("use http://host:4318, or https://...".to_owned());
    }
    let text = text.trim_end_matches('/');
    Ok(if base { format!("{text}{PATH}") } else { text.to_owned() })
}

/// As a setting: a collector, or where exactly it takes spans.
pub(super) fn endpoint(text: &str) -> Result<String, String> {
    let is_base = text.parse::<Uri>().is_ok_and(|uri| matches!(uri.path(), "" | "/"));
    endpoint_of(text, is_base)
}

/// A line for each, like `authorization: Bearer ...`.
pub(super) fn headers(text: &str) -> Result<Vec<(String, Secret)>, String> {
    let header = |(nth, line): (usize, &str)| {
        let wrong = || format!("line {} is no header; write name: value", nth + 1);
        let (name, value) = line.split_once(':').ok_or_else(wrong)?;
        let name = http::HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        http::HeaderValue::try_from(value.trim()).map_err(|_| wrong())?;
        Ok((name.to_string(), Secret(value.trim().to_owned())))
    };
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(header).collect()
}

/// A share of one, in millionths.
pub(super) fn sample(text: &str) -> Result<u32, String> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok((share * 1e6).round() as u32),
        _ => Err("use a number from 0 to 1".to_owned()),
    }
}
