//! What each route needs, as the description of the routes says: a route that says nothing is for administrators alone.

use super::scope::Needs;
use axum::extract::{MatchedPath, Request};
use http::Method;
use serde_json::Value;
use std::collections::HashMap;

/// The name under which a description speaks of tokens.
pub(crate) const SCHEME: &str = "token";

#[derive(Debug)]
struct Route {
    method: Method,
    /// The name of the operation.
    name: String,
    needs: Needs,
}

#[derive(Debug)]
pub(crate) struct Table {
    routes: HashMap<String, Vec<Route>>,
}

impl Table {
    pub(crate) fn of_description(description: &utoipa::openapi::OpenApi) -> Table {
        let described = serde_json::to_value(description).unwrap_or_default();
        let mut routes: HashMap<String, Vec<Route>> = HashMap::new();
        for (path, methods) in described["paths"].as_object().into_iter().flatten() {
            for (method, operation) in methods.as_object().into_iter().flatten() {
                let Ok(method) = Method::try_from(method.to_ascii_uppercase().as_str()) else { continue };
                let name = operation["operationId"].as_str().unwrap_or_default().to_owned();
                let needs = declared(&operation["security"]).unwrap_or(Needs::Admin);
                routes.entry(path.clone()).or_default().push(Route { method, name, needs });
            }
        }
        Table { routes }
    }

    /// The description itself, which is no part of what is described.
    pub(crate) fn open(&mut self, path: &str, name: &str) {
        let route = Route { method: Method::GET, name: name.to_owned(), needs: Needs::Nothing };
        self.routes.entry(path.to_owned()).or_default().push(route);
    }

    pub(super) fn of(&self, request: &Request) -> (Needs, &str) {
        // What is no route is refused by name, to whoever asks.
        let Some(path) = request.extensions().get::<MatchedPath>() else { return (Needs::Nothing, "") };
        let Some(routes) = self.routes.get(path.as_str()) else { return (Needs::Admin, "") };
        let method = if *request.method() == Method::HEAD { &Method::GET } else { request.method() };
        let found = routes.iter().find(|route| route.method == *method);
        found.map_or((Needs::Nothing, ""), |route| (route.needs, route.name.as_str()))
    }
}

/// `None`: nothing that makes sense is said.
pub(crate) fn declared(security: &Value) -> Option<Needs> {
    let [one] = &security.as_array()?[..] else { return None };
    let schemes = one.as_object()?;
    match schemes.get(SCHEME) {
        None if schemes.is_empty() => Some(Needs::Nothing),
        None => None,
        Some(scopes) => match &scopes.as_array()?[..] {
            [name] => Needs::parse(name.as_str()?),
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_says_what_it_needs() {
        let described = serde_json::to_value(crate::openapi()).unwrap();
        let mut count = 0;
        for (path, methods) in described["paths"].as_object().unwrap() {
            for (method, operation) in methods.as_object().unwrap() {
                let needs = declared(&operation["security"]);
                assert!(
                    needs.is_some(),
                    "{method} {path}: say what it needs with `security`: {}",
                    operation["security"]
                );
                // What is in a path is what is checked.
                match needs {
                    Some(Needs::Queue(_)) => assert!(path.contains("{queue}"), "{method} {path}"),
                    Some(Needs::Item(_)) => assert!(path.contains("{id}"), "{method} {path}"),
                    Some(Needs::Schedule(_)) => assert!(path.contains("{schedule}"), "{method} {path}"),
                    _ => assert!(!path.contains("{queue}"), "{method} {path}"),
                }
                count += 1;
            }
        }
        assert!(count >= 40, "{count}");
    }
}
