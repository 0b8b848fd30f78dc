//! Every route, and with it its description: what is served and what is documented cannot differ.

mod acts;
mod buffers;
mod describe;
mod events;
mod filter;
mod groups;
mod health;
mod items;
mod kv;
mod list;
mod queues;
mod receive;
mod schedules;
mod settle;
mod submit;
mod tally;
mod tokens;
mod topics;

use crate::app::App;
use crate::auth::{self, Table};
use crate::guard;
use crate::metrics;
use crate::refuse::Refused;
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
        description = "A durable work queue. Bodies are JSON or, by content type, MessagePack with the same names; \
                       durations are strings like \"5m\" or numbers of milliseconds; errors are problem+json with a stable `code`.",
    ),
    components(schemas(towline_api::Problem))
)]
struct Description;

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Description::openapi())
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .routes(routes!(tokens::whoami))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(queues::list))
        .routes(routes!(queues::put, queues::show, queues::change, queues::delete))
        .routes(routes!(queues::counts))
        .routes(routes!(tally::tally))
        .routes(routes!(queues::close))
        .routes(routes!(queues::pause))
        .routes(routes!(queues::resume))
        .routes(routes!(submit::submit, list::list, acts::purge))
        .routes(routes!(acts::count))
        .routes(routes!(acts::act))
        .routes(routes!(list::list_all))
        .routes(routes!(acts::count_everywhere))
        .routes(routes!(receive::receive))
        .routes(routes!(settle::settle))
        .routes(routes!(items::show, items::delete))
        .routes(routes!(items::wait))
        .routes(routes!(items::cancel))
        .routes(routes!(items::redrive))
        .routes(routes!(items::pause))
        .routes(routes!(items::resume))
        .routes(routes!(settle::act))
        .routes(routes!(groups::show))
        .routes(routes!(groups::wait))
        .routes(routes!(groups::cancel))
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::put, schedules::show, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::run))
        .routes(routes!(schedules::next))
        .routes(routes!(events::follow))
        .routes(routes!(kv::list))
        .routes(routes!(kv::get, kv::set, kv::delete))
        .routes(routes!(kv::increment))
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

/// The description that is served at `/v1/openapi.json`.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut description = routes().to_openapi();
    describe::complete(&mut description);
    description
}

pub(crate) fn router(app: App) -> Router {
    let (router, mut description) = routes().split_for_parts();
    describe::complete(&mut description);
    let mut table = Table::of_description(&description);
    table.open("/v1/openapi.json", "describe");
    // Made of our own words: it always has a JSON form.
    let served = Bytes::from(description.to_json().unwrap_or_default());
    let router = router
        .route(
            "/v1/openapi.json",
            get(move || async move { ([(CONTENT_TYPE, Format::Json.content_type())], served) }),
        )
        .fallback(|uri: Uri| async move {
            let path: String = uri.path().chars().take(200).collect();
            Refused::new(Code::RouteNotFound, format!("nothing is at {path:?}; see /v1/openapi.json"))
        })
        .method_not_allowed_fallback(|method: Method, uri: Uri| async move {
            let path: String = uri.path().chars().take(200).collect();
            let method: String = method.as_str().chars().take(20).collect();
            Refused::new(
                Code::MethodNotAllowed,
                format!("{path:?} does not take {method}; see /v1/openapi.json"),
            )
        })
        .layer(middleware::from_fn_with_state((app.clone(), Arc::new(table)), auth::admit))
        .layer(middleware::from_fn_with_state(app.clone(), guard::guard))
        .layer(middleware::from_fn_with_state(app.clone(), metrics::measure));
    match app.traces {
        Some(_) => router.layer(middleware::from_fn_with_state(app.clone(), traces::follow)),
        None => router,
    }
    .with_state(app)
}

/// Carries out one operation.
async fn update(app: &App, operation: Operation) -> Result<Answer, Refused> {
    let answered = app.broker.update(vec![operation]).await?.pop();
    match answered.ok_or(StoreError::Closed)? {
        Ok(Reply::Answer(answer)) => Ok(answer),
        Ok(_) => Err(unexpected()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// A store answered something that was not asked. Its contract is tested; this is for the day it is broken.
fn unexpected() -> Refused {
    Refused::new(Code::Internal, "the store gave an answer to another question")
}

/// Puts answers back beside the elements that never got to the store.
fn merge<T>(
    elements: Vec<Option<T>>,
    answers: Vec<Answered>,
    mut answered: impl FnMut(usize, Answered) -> T,
) -> Vec<T> {
    let mut answers = answers.into_iter();
    let mut merged = Vec::with_capacity(elements.len());
    for (at, element) in elements.into_iter().enumerate() {
        match element {
            Some(refused) => merged.push(refused),
            None => merged.extend(answers.next().map(|answer| answered(at, answer))),
        }
    }
    merged
}
