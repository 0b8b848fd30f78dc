//! The query string. Unknown parameters are errors: a filter with a typing mistake must not select every item.

use super::excerpt;
use crate::response::ProblemResponse;
use axum::extract::FromRequestParts;
use http::request::Parts;
use serde::de::DeserializeOwned;
use std::str::FromStr;
use std::time::Duration;
use towline_api::payload::Form;
use towline_api::{Code, PAGE_DEFAULT, PAGE_MAX, Span, Time, WAIT_MAX};
use towline_domain::{FieldSet, Millis, Timestamp};

/// The parameters that the route has not read yet, and the names it has read.
#[derive(Debug)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
    known: Vec<String>,
}

const PAIRS_MAX: usize = 100;

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = ProblemResponse;
    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Query, ProblemResponse> {
        let text = parts.uri.query().unwrap_or_default();
        let pairs: Vec<(String, String)> =
            form_urlencoded::parse(text.as_bytes()).into_owned().take(PAIRS_MAX + 1).collect();
        if pairs.len() > PAIRS_MAX {
            return Err(invalid("query", format!("use at most {PAIRS_MAX} values")));
        }
        Ok(Query { pairs, known: Vec::new() })
    }
}

/// For routes without parameters. A parameter in the query string was probably meant for the body, so it is an error.
pub(crate) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = ProblemResponse;
    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<NoQuery, ProblemResponse> {
        if parts.uri.query().is_some() {
            Query::from_request_parts(parts, state).await?.end()?;
        }
        Ok(NoQuery)
    }
}

pub(crate) fn invalid(what: &str, why: impl std::fmt::Display) -> ProblemResponse {
    ProblemResponse::new(Code::Invalid, format!("{what}: {why}"))
}

impl Query {
    /// Takes all values of a parameter.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        for (key, value) in self.pairs.drain(..) {
            if key == name { taken.push(value) } else { left.push((key, value)) }
        }
        self.pairs = left;
        self.known.push(name.to_owned());
        taken
    }

    /// Takes a parameter if it has this value.
    pub(crate) fn take_pair(&mut self, name: &str, value: &str) -> bool {
        let at = self.pairs.iter().position(|(key, given)| key == name && given == value);
        at.map(|at| self.pairs.remove(at)).is_some()
    }

    pub(crate) fn one(&mut self, name: &str) -> Result<Option<String>, ProblemResponse> {
        let mut values = self.all(name);
        if values.len() > 1 {
            return Err(invalid(name, format!("given {} times; give it once", values.len())));
        }
        Ok(values.pop())
    }

    pub(crate) fn parse<T: FromStr<Err: std::fmt::Display>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, ProblemResponse> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|error: T::Err| invalid(name, format!("{:?}: {error}", excerpt(&text))))
    }

    /// A number from 1 to `max`.
    pub(crate) fn number(
        &mut self,
        name: &str,
        default: usize,
        max: usize,
    ) -> Result<usize, ProblemResponse> {
        let number = self.parse(name)?.unwrap_or(default);
        if !(1..=max).contains(&number) {
            return Err(invalid(name, format!("{number} is out of range; use 1 to {max}")));
        }
        Ok(number)
    }

    /// The size of a page.
    pub(crate) fn limit(&mut self) -> Result<usize, ProblemResponse> {
        self.number("limit", PAGE_DEFAULT, PAGE_MAX)
    }

    /// How long the client is willing to wait.
    pub(crate) fn wait(
        &mut self,
        name: &'static str,
        default: Duration,
    ) -> Result<Duration, ProblemResponse> {
        self.span(name)?.map_or(Ok(default), |wait| check_wait(name, wait))
    }

    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, ProblemResponse> {
        match self.one(name)?.as_deref() {
            None => Ok(false),
            Some("true" | "1" | "") => Ok(true),
            Some("false" | "0") => Ok(false),
            Some(other) => Err(invalid(name, format!("{:?}; use true or false", excerpt(other)))),
        }
    }

    /// A value in the form that it has in a JSON body: a number, or a string without its quotes.
    fn json<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, ProblemResponse> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        let value = text.parse::<u64>().map_or_else(|_| serde_json::Value::from(text.as_str()), Into::into);
        serde_json::from_value(value).map(Some).map_err(|error| invalid(name, error))
    }

    /// A duration like `5m`, or a number of milliseconds. Refuses a number that was probably meant as seconds: a response to a query
    /// has no place for a note.
    pub(crate) fn span(&mut self, name: &'static str) -> Result<Option<Millis>, ProblemResponse> {
        let Some(span) = self.json::<Span>(name)? else { return Ok(None) };
        if let Some(note) = span.note(name) {
            return Err(ProblemResponse::new(Code::Invalid, note));
        }
        Ok(Some(span.into_domain(name)?))
    }

    /// A time in RFC 3339, or a number of milliseconds since 1970.
    pub(crate) fn time(&mut self, name: &'static str) -> Result<Option<Timestamp>, ProblemResponse> {
        let Some(time) = self.json::<Time>(name)? else { return Ok(None) };
        Ok(Some(time.into_domain(name)?))
    }

    /// Whether `view` is `summary`.
    pub(crate) fn summary(&mut self) -> Result<bool, ProblemResponse> {
        match self.one("view")?.as_deref() {
            None | Some("full") => Ok(false),
            Some("summary") => Ok(true),
            Some(other) => Err(invalid("view", format!("{:?}; use full or summary", excerpt(other)))),
        }
    }

    /// Names of payload fields, separated by commas.
    pub(crate) fn fields(&mut self) -> Result<Option<FieldSet>, ProblemResponse> {
        let Some(text) = self.one("fields")? else { return Ok(None) };
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Ok(Some(towline_api::field_set(names)?))
    }

    /// The form of payload fields in the answer.
    pub(crate) fn payload_as(&mut self) -> Result<Form, ProblemResponse> {
        Ok(self.one("payload_as")?.map_or(Ok(Form::default()), |name| Form::parse(&name))?)
    }

    /// Rejects parameters that the route has not read. Call it last.
    pub(crate) fn end(self) -> Result<(), ProblemResponse> {
        let Some((name, _)) = self.pairs.first() else { return Ok(()) };
        let name = excerpt(name);
        let distance = |known: &&String| strsim::damerau_levenshtein(known, &name.to_lowercase());
        let nearest = self.known.iter().min_by_key(distance).filter(|known| distance(known) <= 3);
        let nearest = nearest.map_or_else(String::new, |known| format!("; did you mean {known:?}?"));
        let message = format!("{name:?} is not a parameter of this route{nearest}");
        Err(invalid("query", message))
    }
}

/// Checks how long a client wants to wait.
pub(crate) fn check_wait(name: &str, wait: Millis) -> Result<Duration, ProblemResponse> {
    if wait > WAIT_MAX {
        let why = format!("{wait} is longer than {WAIT_MAX}; call again to wait longer");
        return Err(invalid(name, why));
    }
    Ok(Duration::from_millis(wait.0))
}
