//! The backoff of a queue or an item: the name of a preset, or custom numbers.

use crate::invalid::{invalid, not_one_of};
use crate::object::{NameOrObject, name_or_object};
use crate::span::Span;
use serde::{Deserialize, Deserializer, Serialize};
use towline_domain::backoff::{Growth, PRESETS};
use towline_domain::{Backoff, Jitter, Millis, Refusal};
use utoipa::ToSchema;

const FACTOR_MAX: f64 = 1000.0;
const BACKOFF: &str = "backoff";

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum BackoffBody {
    /// A preset: `default` (1 s, doubling up to 5 min, with jitter), `none`, `tyger`, `ayepi`, `quantumleap`, `cyclotron`, `aicf-ai` or `aicf-quantum`.
    Preset(String),
    Custom(Box<CustomBackoff>),
}

impl<'de> Deserialize<'de> for BackoffBody {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<BackoffBody, D::Error> {
        name_or_object("the name of a backoff, or an object", deserializer).map(|read| match read {
            NameOrObject::Name(name) => BackoffBody::Preset(name),
            NameOrObject::Object(custom) => BackoffBody::Custom(custom),
        })
    }
}

/// A custom backoff. `delay` alone is a constant delay. `base` with `factor` and `max` grows exponentially.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CustomBackoff {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<Span>,
    /// Multiplies the delay after each retry. Default: 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Longest delay, before jitter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Span>,
    /// Shortens each delay at random by up to this share, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<f64>,
    /// Lengthens or shortens each delay by up to this share, 0 to 1, computed from a hash of item and
    /// attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash_jitter: Option<f64>,
    /// Rounds delays to a multiple of this. Only with `hash_jitter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round: Option<Span>,
}

fn permille(name: &str, value: f64, max: f64) -> Result<u32, Refusal> {
    if !(0.0..=max).contains(&value) {
        return Err(invalid(BACKOFF, format!("{name} {value} is out of range; use 0 to {max}")));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1,000,000")]
    Ok((value * 1000.0).round() as u32)
}

impl TryFrom<BackoffBody> for Backoff {
    type Error = Refusal;

    fn try_from(body: BackoffBody) -> Result<Backoff, Refusal> {
        match body {
            BackoffBody::Preset(name) => {
                Backoff::preset(&name).ok_or_else(|| not_one_of(BACKOFF, &name, &PRESETS.join(", ")))
            }
            BackoffBody::Custom(custom) => (*custom).try_into(),
        }
    }
}

impl TryFrom<CustomBackoff> for Backoff {
    type Error = Refusal;

    fn try_from(body: CustomBackoff) -> Result<Backoff, Refusal> {
        let span = |span: Option<Span>| span.map(|span| span.into_domain(BACKOFF)).transpose();
        let (delay, base, max) = (span(body.delay)?, span(body.base)?, span(body.max)?);
        let growth = match (delay, base) {
            (Some(_), Some(_)) => {
                return Err(invalid(BACKOFF, "both `delay` and `base` are given; choose one"));
            }
            (None, None) => Growth::None,
            (Some(delay), None) => Growth::Constant { delay },
            (None, Some(base)) => {
                let factor_permille = permille("factor", body.factor.unwrap_or(2.0), FACTOR_MAX)?;
                Growth::Exponential { base, factor_permille, cap: max }
            }
        };
        if !matches!(growth, Growth::Exponential { .. }) && (max.is_some() || body.factor.is_some()) {
            return Err(invalid(BACKOFF, "`factor` and `max` need a `base`"));
        }
        let jitter = match (body.jitter, body.hash_jitter) {
            (Some(_), Some(_)) => {
                return Err(invalid(BACKOFF, "both `jitter` and `hash_jitter` are given; choose one"));
            }
            (Some(share), None) => Jitter::Random { permille: permille("jitter", share, 1.0)? },
            (None, Some(share)) => Jitter::Hash {
                permille: permille("hash_jitter", share, 1.0)?,
                round: span(body.round)?.unwrap_or(Millis(1)),
            },
            (None, None) => Jitter::None,
        };
        Ok(Backoff { growth, jitter })
    }
}

impl From<&Backoff> for BackoffBody {
    fn from(backoff: &Backoff) -> BackoffBody {
        if *backoff == Backoff::NONE {
            return BackoffBody::Preset("none".to_owned());
        }
        let share = |permille: u32| f64::from(permille) / 1000.0;
        let mut custom = CustomBackoff::default();
        match &backoff.growth {
            Growth::None => {}
            Growth::Constant { delay } => custom.delay = Some((*delay).into()),
            Growth::Exponential { base, factor_permille, cap } => {
                custom.base = Some((*base).into());
                custom.factor = Some(share(*factor_permille));
                custom.max = cap.map(Span::from);
            }
        }
        match &backoff.jitter {
            Jitter::None => {}
            Jitter::Random { permille } => custom.jitter = Some(share(*permille)),
            Jitter::Hash { permille, round } => {
                custom.hash_jitter = Some(share(*permille));
                custom.round = Some((*round).into());
            }
        }
        BackoffBody::Custom(Box::new(custom))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_backoff_parses_to_the_same_backoff() {
        for name in PRESETS {
            let backoff = Backoff::preset(name).unwrap();
            let shown = serde_json::to_string(&BackoffBody::from(&backoff)).unwrap();
            let read: BackoffBody = serde_json::from_str(&shown).unwrap();
            assert_eq!(Backoff::try_from(read).unwrap(), backoff, "{name}: {shown}");
        }
    }

    #[test]
    fn a_bad_backoff_is_refused_with_the_cause() {
        for (text, words) in [
            (r#""tigre""#, "tyger"),
            (r#"{"delay":"5s","base":"1s"}"#, "both"),
            (r#"{"base":"1s","factor":-2}"#, "out of range"),
            (r#"{"delay":"5s","max":"9s"}"#, "need a"),
            (r#"{"jitter":0.5,"hash_jitter":0.5}"#, "choose one"),
        ] {
            let body: BackoffBody = serde_json::from_str(text).unwrap();
            let message = Backoff::try_from(body).unwrap_err().to_string();
            assert!(message.contains(words), "{message}");
        }
    }
}
