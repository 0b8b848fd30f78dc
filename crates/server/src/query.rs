//! The part of an address after the `?`. A name nobody knows is refused: a filter that is ignored deletes too much.

use crate::refuse::Refused;
use axum::extract::FromRequestParts;
use http::request::Parts;
use std::str::FromStr;
use towline_api::{Code, Span, Time};
use towline_domain::{FieldSet, Millis, Refusal, Timestamp};

/// Pairs that nobody has asked for yet, and the names that were asked for.
#[derive(Debug)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    known: Vec<String>,
}

const PAIRS_MAX: usize = 100;

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Query, Refused> {
        let text = parts.uri.query().unwrap_or_default();
        let pairs: Vec<(String, String)> =
            form_urlencoded::parse(text.as_bytes()).into_owned().take(PAIRS_MAX + 1).collect();
        if pairs.len() > PAIRS_MAX {
            return Err(invalid("the query", format!("at most {PAIRS_MAX} values are allowed")));
        }
        Ok(Query { pairs, known: Vec::new() })
    }
}

/// For routes that take none: what is written into the address of one is meant for its body, and would be lost.
pub(crate) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Refused;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<NoQuery, Refused> {
        if parts.uri.query().is_some() {
            Query::from_request_parts(parts, state).await?.end()?;
        }
        Ok(NoQuery)
    }
}

pub(crate) fn invalid(what: &str, why: impl std::fmt::Display) -> Refused {
    Refused::new(Code::Invalid, format!("{what}: {why}"))
}

impl Query {
    /// All values of one name.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for (key, value) in self.pairs.drain(..) {
            if key == name { taken.push(value) } else { left.push((key, value)) }
        }
        self.pairs = left;
        self.known.push(name.to_owned());
        taken
    }

    /// Takes one value of one name, if it is there.
    pub(crate) fn take_pair(&mut self, name: &str, value: &str) -> bool {
        let at = self.pairs.iter().position(|(key, given)| key == name && given == value);
        at.map(|at| self.pairs.remove(at)).is_some()
    }

    pub(crate) fn one(&mut self, name: &str) -> Result<Option<String>, Refused> {
        let mut values = self.all(name);
        if values.len() > 1 {
            return Err(invalid(name, format!("given {} times; once is enough", values.len())));
        }
        Ok(values.pop())
    }

    pub(crate) fn parse<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, Refused> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|error: T::Err| invalid(name, format!("{:?}: {error}", shown(&text))))
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Refused> {
        match self.one(name)?.as_deref() {
            None => Ok(false),
            Some("true" | "1" | "") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(other) => Err(invalid(name, format!("{:?}; use true or false", shown(other)))),
        }
    }

    /// `5m`, or a number of milliseconds.
    pub(crate) fn span(&mut self, name: &'static str) -> Result<Option<Millis>, Refused> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let quoted = text.parse::<u64>().map_or_else(|_| serde_json::Value::from(text.as_str()), Into::into);
        let span: Span = serde_json::from_value(quoted).map_err(|error| invalid(name, error))?;
        Ok(Some(span.into_domain(name)?))
    }

    /// RFC 3339, or a number of milliseconds since 1970.
    pub(crate) fn time(&mut self, name: &'static str) -> Result<Option<Timestamp>, Refused> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let quoted = text.parse::<u64>().map_or_else(|_| serde_json::Value::from(text.as_str()), Into::into);
        let time: Time = serde_json::from_value(quoted).map_err(|error| invalid(name, error))?;
        Ok(Some(time.into_domain(name)?))
    }

    /// Whether `view` asks for less.
    pub(crate) fn summary(&mut self) -> Result<bool, Refused> {
        match self.one("view")?.as_deref() {
            None | Some("full") => Ok(false),
            Some("summary") => Ok(true),
            Some(other) => Err(invalid("view", format!("{:?}; use full or summary", shown(other)))),
        }
    }

    /// Payload fields by name, with commas between.
    pub(crate) fn fields(&mut self) -> Result<Option<FieldSet>, Refused> {
        let Some(text) = self.one("fields")? else { return Ok(None) };
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Some(towline_api::field_set(names)?))
    }

    /// To be called last.
    pub(crate) fn end(self) -> Result<(), Refused> {
        let Some((name, _)) = self.pairs.first() else { return Ok(()) };
        let name = shown(name);
        let distance = |known: &&String| strsim::damerau_levenshtein(known, &name.to_lowercase());
        let nearest = self.known.iter().min_by_key(distance).filter(|known| distance(known) <= 3);
        let nearest = nearest.map_or_else(String::new, |known| format!("; did you mean {known:?}?"));
        let message = format!("{name:?} is not known here{nearest}");
        Err(Refusal::Invalid { what: "the query", message }.into())
    }
}

pub(crate) fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}
