//! What each route requires of a token. Routes declare it in their OpenAPI description, under `security`; a route that declares
//! nothing requires the `admin` scope.

use super::scope::Right;
use axum::extract::{MatchedPath, Request};
use http::Method;
use serde_json::Value;
use std::collections::HashMap;
use std::fmt;

/// The name of the security scheme in the OpenAPI description.
pub(crate) const SCHEME: &str = "token";

/// What a route requires of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Requirement {
    /// No token.
    Nothing,
    /// No token. With one, the response has more.
    OptionalToken,
    /// Any token. The route itself checks the scopes.
    Token,
    /// A right on the queue in the path.
    Queue(Right),
    /// A right on the queue of the item in the path.
    Item(Right),
    /// A right on the queue of the schedule in the path. For a new schedule the route itself checks the queue in the body.
    Schedule(Right),
    /// A right on the queue of each item in the body. The route itself checks each one.
    EachItem(Right),
    EveryQueue(Right),
    /// A right on the group in the path.
    Group(Right),
    /// A right on the topic in the path.
    Topic(Right),
    /// A right on the record in the path.
    Record(Right),
    /// The right to read the records with the prefix in the query. The route itself checks it.
    Records,
    /// Any token. The route itself checks the right on each record in the body.
    EachRecord,
    Buffers(Right),
    /// A right on buffers, or a lease that names the buffer in the path.
    LeasedBuffer(Right),
    /// To read and to write buffers.
    BufferCopy,
    Metrics,
    Compute(Right),
    Admin,
}

impl Requirement {
    const ALL: [Requirement; 35] = [
        Requirement::Token,
        Requirement::Queue(Right::Submit),
        Requirement::Queue(Right::Receive),
        Requirement::Queue(Right::Read),
        Requirement::Queue(Right::Admin),
        Requirement::Item(Right::Submit),
        Requirement::Item(Right::Receive),
        Requirement::Item(Right::Read),
        Requirement::Item(Right::Admin),
        Requirement::Schedule(Right::Submit),
        Requirement::Schedule(Right::Read),
        Requirement::EachItem(Right::Read),
        Requirement::EachItem(Right::Receive),
        Requirement::EachItem(Right::Admin),
        Requirement::EveryQueue(Right::Read),
        Requirement::EveryQueue(Right::Admin),
        Requirement::Group(Right::Read),
        Requirement::Group(Right::Admin),
        Requirement::Topic(Right::Publish),
        Requirement::Topic(Right::Subscribe),
        Requirement::Record(Right::Read),
        Requirement::Record(Right::Write),
        Requirement::Records,
        Requirement::EachRecord,
        Requirement::Buffers(Right::Read),
        Requirement::Buffers(Right::Write),
        Requirement::Buffers(Right::Delete),
        Requirement::LeasedBuffer(Right::Read),
        Requirement::LeasedBuffer(Right::Write),
        Requirement::BufferCopy,
        Requirement::Metrics,
        Requirement::Compute(Right::Read),
        Requirement::Compute(Right::Node),
        Requirement::Compute(Right::Admin),
        Requirement::Admin,
    ];

    /// Parses a name from the OpenAPI description.
    pub(crate) fn parse(name: &str) -> Option<Requirement> {
        Requirement::ALL.into_iter().find(|requirement| requirement.to_string() == name)
    }

    /// Whether calls of the route go to the audit log.
    pub(crate) fn is_administrative(self) -> bool {
        use Requirement::{Admin, Buffers, Compute, EachItem, EveryQueue, Group, Item, Queue, Schedule};
        matches!(
            self,
            Admin
                | Compute(Right::Admin)
                | Queue(Right::Admin)
                | Item(Right::Admin)
                | EachItem(Right::Admin)
                | EveryQueue(Right::Admin)
                | Group(Right::Admin)
                | Schedule(Right::Submit)
                | Buffers(Right::Delete)
        )
    }

    /// Whether calls of the route go to the audit log only if it is a file. Workers write records often, and nothing else
    /// should drown in the log.
    pub(crate) fn is_for_audit_file(self) -> bool {
        matches!(self, Requirement::Record(Right::Write) | Requirement::EachRecord)
    }

    /// Whether only those calls go to the audit log whose response has a subject. The others change nothing.
    pub(crate) fn is_audited_by_subject(self) -> bool {
        self == Requirement::EachRecord
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Requirement::Nothing => f.write_str("nothing"),
            Requirement::OptionalToken => f.write_str("optional"),
            Requirement::Token => f.write_str("any"),
            Requirement::Queue(right) => write!(f, "queue:{{queue}}:{right}"),
            Requirement::Item(right) => write!(f, "queue:{{queue of the item}}:{right}"),
            Requirement::Schedule(right) => write!(f, "queue:{{queue of the schedule}}:{right}"),
            Requirement::EachItem(right) => write!(f, "queue:{{queue of each item}}:{right}"),
            Requirement::EveryQueue(right) => write!(f, "queue:*:{right}"),
            Requirement::Group(right) => write!(f, "group:{{group}}:{right}"),
            Requirement::Topic(right) => write!(f, "topic:{{topic}}:{right}"),
            Requirement::Record(right) => write!(f, "kv:{{key}}:{right}"),
            Requirement::Records => f.write_str("kv:{prefix}:read"),
            Requirement::EachRecord => f.write_str("kv:{key of each call}:<read|write>"),
            Requirement::Buffers(right) => write!(f, "buffer:{right}"),
            Requirement::LeasedBuffer(right) => write!(f, "buffer:{right} or the lease of an item"),
            Requirement::BufferCopy => f.write_str("buffer:read and buffer:write"),
            Requirement::Metrics => f.write_str("metrics:read"),
            Requirement::Compute(right) => write!(f, "compute:{right}"),
            Requirement::Admin => f.write_str("admin"),
        }
    }
}

#[derive(Debug)]
struct Route {
    method: Method,
    /// The operation id.
    name: String,
    requirement: Requirement,
}

#[derive(Debug)]
pub(crate) struct RouteRequirements {
    routes: HashMap<String, Vec<Route>>,
}

impl RouteRequirements {
    pub(crate) fn from_openapi(description: &utoipa::openapi::OpenApi) -> RouteRequirements {
        let described = serde_json::to_value(description).unwrap_or_default();
        let mut routes: HashMap<String, Vec<Route>> = HashMap::new();
        for (path, methods) in described["paths"].as_object().into_iter().flatten() {
            for (method, operation) in methods.as_object().into_iter().flatten() {
                let Ok(method) = Method::try_from(method.to_ascii_uppercase().as_str()) else { continue };
                let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
                let requirement = declared(&operation["security"]).unwrap_or(Requirement::Admin);
                routes.entry(path.clone()).or_default().push(Route { method, name, requirement });
            }
        }
        RouteRequirements { routes }
    }

    /// Adds a route that needs no token and is not in the OpenAPI description.
    pub(crate) fn add_public(&mut self, path: &str, name: &str) {
        let route = Route { method: Method::GET, name: name.to_owned(), requirement: Requirement::Nothing };
        self.routes.entry(path.to_owned()).or_default().push(route);
    }

    pub(super) fn of(&self, request: &Request) -> (Requirement, &str) {
        // An unknown path gets "not found" from every client, with or without a token.
        let Some(path) = request.extensions().get::<MatchedPath>() else { return (Requirement::Nothing, "") };
        let Some(routes) = self.routes.get(path.as_str()) else { return (Requirement::Admin, "") };
        let method = if *request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let found = routes.iter().find(|route| route.method == *method);
        found.map_or((Requirement::Nothing, ""), |route| (route.requirement, route.name.as_str()))
    }
}

/// The declared requirement. `None` if it is missing or not valid.
pub(crate) fn declared(security: &Value) -> Option<Requirement> {
    let one = match &security.as_array()?[..] {
        [one] => one,
        [none, one] if none.as_object()?.is_empty() => {
            return (declared(&serde_json::json!([one]))? == Requirement::Token)
                .then_some(Requirement::OptionalToken);
        }
        _ => return None,
    };
    let schemes = one.as_object()?;
    match schemes.get(SCHEME) {
        None if schemes.is_empty() => Some(Requirement::Nothing),
        None => None,
        Some(scopes) => match &scopes.as_array()?[..] {
            [name] => Requirement::parse(name.as_str()?),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_have_distinct_names() {
        for requirement in Requirement::ALL {
            assert_eq!(Requirement::parse(&requirement.to_string()), Some(requirement));
        }
    }

    #[test]
    fn every_route_declares_its_requirement() {
        let described = serde_json::to_value(crate::openapi()).unwrap();
        let mut count = 0;
        for (path, methods) in described["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let requirement = declared(&operation["security"]);
                assert!(
                    requirement.is_some(),
                    "{method} {path}: declare a requirement with `security`: {}",
                    operation["security"]
                );
                // The middleware reads the name it checks from the path.
                match requirement {
                    Some(Requirement::Queue(_)) => assert!(path.contains("{queue}"), "{method} {path}"),
                    Some(Requirement::Item(_)) => assert!(path.contains("{id}"), "{method} {path}"),
                    Some(Requirement::Schedule(_)) => assert!(path.contains("{schedule}"), "{method} {path}"),
                    Some(Requirement::Group(_)) => assert!(path.contains("{group}"), "{method} {path}"),
                    Some(Requirement::Topic(_)) => assert!(path.contains("{topic}"), "{method} {path}"),
                    Some(Requirement::Record(_)) => assert!(path.contains("{key}"), "{method} {path}"),
                    Some(Requirement::LeasedBuffer(_)) => {
                        assert!(path.starts_with("/v1/buffers/{id}"), "{method} {path}");
                    }
                    _ => assert!(!path.contains("{queue}"), "{method} {path}"),
                }
                count += 1;
            }
        }
        assert!(count >= 40, "{count}");
    }
}
