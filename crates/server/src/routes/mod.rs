//! Every route with its OpenAPI description. The router and the description come from the same declarations.

mod backup;
mod buffers;
mod bulk;
mod codespecs;
mod events;
mod export;
mod filter;
mod groups;
mod health;
mod import;
mod items;
mod list;
mod nodes;
mod notes;
mod openapi;
mod queues;
mod receive;
mod records;
mod runs;
mod schedules;
mod services;
mod settle;
mod submit;
mod tally;
mod tokens;
mod topics;
mod triggers;

use crate::app::App;
use crate::auth::{self, RouteRequirements};
use crate::metrics;
use crate::request::{excerpt, reject_foreign_origin};
use crate::response::{ProblemResponse, kept};
use crate::traces;
use axum::Router;
use axum::middleware;
use axum::routing::get;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{Method, Uri};
use std::sync::Arc;
use towline_api::{Code, Format};
use towline_domain::change::Answer;
use towline_store::{Answered, Operation, Reply, StoreError};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Towline",
        description = "A durable work queue. Bodies are JSON, or MessagePack with the same names, by content type. \
                       Durations are strings like \"5m\" or numbers of milliseconds. Errors are problem+json with a stable `code`.",
    ),
    components(schemas(towline_api::Problem))
)]
struct Description;

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(backup::backup))
        .routes(routes!(export::export))
        .routes(routes!(import::import))
        .routes(routes!(tokens::whoami))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(queues::list))
        .routes(routes!(queues::put, queues::show, queues::change, queues::delete))
        .routes(routes!(queues::apply))
        .routes(routes!(queues::counts))
        .routes(routes!(tally::tally))
        .routes(routes!(queues::close))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(submit::submit, list::list, bulk::purge))
        .routes(routes!(bulk::count))
        .routes(routes!(bulk::run))
        .routes(routes!(list::list_all))
        .routes(routes!(bulk::count_all_queues))
        .routes(routes!(receive::receive))
        .routes(routes!(settle::settle))
        .routes(routes!(items::show, items::delete))
        .routes(routes!(items::wait))
        .routes(routes!(items::cancel))
        .routes(routes!(items::redrive))
        .routes(routes!(items::pause))
        .routes(routes!(items::resume))
        .routes(routes!(settle::settle_one))
        .routes(routes!(groups::show))
        .routes(routes!(groups::wait))
        .routes(routes!(groups::cancel))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::put, schedules::show, schedules::delete))
        .routes(routes!(schedules::apply))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run))
        .routes(routes!(schedules::next))
        .routes(routes!(codespecs::list))
        .routes(routes!(codespecs::put, codespecs::show, codespecs::delete))
        .routes(routes!(runs::list, runs::create))
        .routes(routes!(runs::show))
        .routes(routes!(runs::wait))
        .routes(routes!(runs::cancel))
        .routes(routes!(runs::log))
        .routes(routes!(services::list))
        .routes(routes!(services::put, services::show, services::delete))
        .routes(routes!(services::scale))
        .routes(routes!(services::restart))
        .routes(routes!(triggers::list))
        .routes(routes!(triggers::put, triggers::show, triggers::delete))
        .routes(routes!(triggers::scale))
        .routes(routes!(nodes::list))
        .routes(routes!(nodes::beat))
        .routes(routes!(nodes::remove))
        .routes(routes!(events::follow))
        .routes(routes!(records::list, records::act))
        .routes(routes!(records::get, records::set, records::delete))
        .routes(routes!(records::increment))
        .routes(routes!(topics::publish, topics::subscribe))
        .routes(routes!(buffers::manage::create, buffers::manage::list))
        .routes(routes!(buffers::manage::show, buffers::manage::delete))
        .routes(routes!(buffers::manage::copy))
        .routes(routes!(buffers::write::begin))
        .routes(routes!(buffers::write::touch))
        .routes(routes!(buffers::write::finish))
        .routes(routes!(buffers::write::fail))
        .routes(routes!(buffers::chunks::put, buffers::chunks::get))
        .routes(routes!(buffers::content::get, buffers::upload::put))
        .routes(routes!(buffers::sign::put))
        .routes(routes!(buffers::sign::get))
        .routes(routes!(buffers::sign::adopt))
}

/// The OpenAPI description, served at `/v1/openapi.json`.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut description = routes().to_openapi();
    openapi::complete(&mut description);
    description
}

pub(crate) fn router(app: App) -> Router {
    let (router, mut description) = routes().split_for_parts();
    openapi::complete(&mut description);
    let mut requirements = RouteRequirements::from_openapi(&description);
    requirements.add_public("/v1/openapi.json", "describe");
    // Cannot fail: the description always has a JSON form.
    let served = Bytes::from(description.to_json().unwrap_or_default());
    let router = router
        .route(
            "/v1/openapi.json",
            get(move || async move { ([(CONTENT_TYPE, Format::Json.content_type())], kept(served)) }),
        )
        .fallback(|uri: Uri| async move {
            let path = excerpt(uri.path());
            ProblemResponse::new(
                Code::RouteNotFound,
                format!("there is no route {path:?}; see /v1/openapi.json"),
            )
        })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            let (path, method) = (excerpt(uri.path()), excerpt(method.as_str()));
            let detail = format!("{path:?} does not support {method}; see /v1/openapi.json");
            ProblemResponse::new(Code::MethodNotAllowed, detail)
        })
        .layer(middleware::from_fn_with_state((app.clone(), Arc::new(requirements)), auth::authorize))
        .layer(middleware::from_fn_with_state(app.clone(), reject_foreign_origin))
        .layer(middleware::from_fn_with_state(app.clone(), metrics::measure));
    match app.traces {
        Some(_) => router.layer(middleware::from_fn_with_state(app.clone(), traces::trace_request)),
        None => router,
    }
    .with_state(app)
}

/// Carries out one operation.
async fn update(app: &App, operation: Operation) -> Result<Answer, ProblemResponse> {
    let answered = app.broker.update(vec![operation]).await?.pop();
    match answered.ok_or(StoreError::Closed)? {
        Ok(Reply::Answer(answer)) => Ok(answer),
        Ok(_) => Err(unexpected()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// The store returned a reply of the wrong type. The conformance suite tests that no store does.
fn unexpected() -> ProblemResponse {
    ProblemResponse::new(Code::Internal, "unexpected reply type from the store")
}

/// The results of a batch in the order of the request. `invalid` has the result of each element that did not go to the store;
/// `answers` has the store's answers for the other elements.
fn batch_results<T>(
    invalid: Vec<Option<T>>,
    answers: Vec<Answered>,
    mut result: impl FnMut(usize, Answered) -> Result<T, ProblemResponse>,
) -> Result<Vec<T>, ProblemResponse> {
    let mut answers = answers.into_iter().enumerate();
    let element = |invalid: Option<T>| match invalid {
        Some(invalid) => Ok(invalid),
        None => {
            let (index, answer) = answers.next().ok_or_else(unexpected)?;
            result(index, answer)
        }
    };
    invalid.into_iter().map(element).collect()
}
