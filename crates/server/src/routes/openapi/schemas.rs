//! What the derived schemas cannot say: names of states and kinds, results that are one of several shapes, and that an absent
//! field has no default.

use super::{JSON, json, reference, request_body};
use crate::request::BULK_ACTIONS;
use towline_api::CODES;
use towline_domain::item::ErrorKind;
use towline_domain::{BufferStateKind, EventKind, FailureKind, ItemState};
use utoipa::openapi::path::{Parameter, ParameterIn};
use utoipa::openapi::schema::{ArrayItems, Components, Object, SchemaType, Type};
use utoipa::openapi::{OneOfBuilder, OpenApi, RefOr, Schema};

const QUEUE_STATES: [&str; 3] = ["open", "closed", "completed"];
const PAYLOAD_FORMS: [&str; 3] = ["base64", "text", "json"];
const UNIQUE: [&str; 2] = ["while_exists", "while_unfinished"];
const CATCH_UP: [&str; 3] = ["none", "one", "all"];
const OVERLAP: [&str; 3] = ["allow", "skip", "cancel"];
/// Parameters of paths and the bytes that they may have.
const PATH_BYTES_MAX: [(&str, usize); 4] = [("queue", 255), ("schedule", 255), ("topic", 255), ("key", 512)];

/// The names that a field can have, by its schema.
fn names() -> Vec<(&'static str, &'static str, Vec<&'static str>)> {
    let item_states = || ItemState::ALL.map(ItemState::name).to_vec();
    let codes = || CODES.iter().map(|code| code.name()).collect();
    vec![
        ("ItemShown", "state", item_states()),
        ("ItemShown", "failure", failures()),
        ("Settled", "state", item_states()),
        (
            "EventShown",
            "kind",
            EventKind::ALL.iter().filter(|kind| kind.is_public()).map(|kind| kind.name()).collect(),
        ),
        ("EventShown", "failure", failures()),
        ("EventShown", "state", item_states()),
        ("ItemError", "kind", ErrorKind::ALL.map(ErrorKind::name).to_vec()),
        ("Problem", "code", codes()),
        ("ErrorBody", "code", codes()),
        ("ScheduleErrorShown", "code", codes()),
        ("Health", "status", vec!["ok"]),
        ("Readiness", "status", vec!["ok", "degraded"]),
        ("QueueShown", "state", QUEUE_STATES.to_vec()),
        ("ReceiveAnswer", "status", QUEUE_STATES.to_vec()),
        ("BufferShown", "state", BufferStateKind::ALL.map(BufferStateKind::name).to_vec()),
        ("TallyShown", "by", vec!["hour", "day"]),
        ("ReceiveRequest", "payload_as", PAYLOAD_FORMS.to_vec()),
        ("NewItem", "unique", UNIQUE.to_vec()),
        ("PolicyBody", "unique", UNIQUE.to_vec()),
        ("DependencyBody", "when", vec!["all-success", "all-done", "count-of"]),
        ("PutSchedule", "catch_up", CATCH_UP.to_vec()),
        ("PutSchedule", "overlap", OVERLAP.to_vec()),
        ("ScheduleShown", "catch_up", CATCH_UP.to_vec()),
        ("ScheduleShown", "overlap", OVERLAP.to_vec()),
    ]
}

fn failures() -> Vec<&'static str> {
    FailureKind::ALL.map(FailureKind::name).to_vec()
}

/// The names that a parameter can have, by its name. Not those that have other forms too, as `state` has.
fn parameter_names(parameter: &str) -> Option<Vec<&'static str>> {
    Some(match parameter {
        "failure" | "not_failure" => failures(),
        "view" => vec!["full", "summary"],
        "by" => vec!["hour", "day"],
        "action" => BULK_ACTIONS.to_vec(),
        _ => return None,
    })
}

/// Fields without which a request is refused. The wire types have a default, so that the refusal can say what is missing.
const REQUIRED: [(&str, &str); 3] = [("PutSchedule", "queue"), ("NewToken", "name"), ("NewToken", "scopes")];

/// Text that has a form, by its schema.
const PATTERNS: [(&str, &str, &str); 24] = [
    ("Action", "queue", NAME),
    ("EventShown", "queue", NAME),
    ("HandOffBody", "queue", NAME),
    ("OriginShown", "queue", NAME),
    ("PolicyBody", "dead_letter_queue", NAME),
    ("ReceivedItem", "queue", NAME),
    ("Action", "lease", LEASE),
    ("CancelRequest", "lease", LEASE),
    ("PauseRequest", "lease", LEASE),
    ("ReceivedItem", "lease", MARK),
    ("PutSchedule", "queue", NAME),
    ("QueueShown", "name", NAME),
    ("ScheduleShown", "name", NAME),
    ("ScheduleShown", "queue", NAME),
    ("ItemShown", "queue", NAME),
    ("BeginBuffer", "writer", MARK),
    ("TouchBuffer", "writer", MARK),
    ("AdoptChunk", "writer", MARK),
    ("FailBuffer", "writer", MARK),
    ("FinishBuffer", "writer", MARK),
    ("FinishBuffer", "chain", HASH),
    ("SignPut", "writer", MARK),
    ("SignPut", "hash", HASH),
    ("SignPut", "chain", HASH),
];
/// The name of a queue, a schedule or a topic.
const NAME: &str = "^[A-Za-z0-9_][A-Za-z0-9._:-]*$";
/// A lease as a receive answers it, or as a UUID.
const LEASE: &str = "^[0-9A-Fa-f-]{32,36}$";
const MARK: &str = "^[0-9A-Fa-f]{32}$";
const HASH: &str = "^[0-9A-Fa-f]{64}$";

pub(super) fn complete(openapi: &mut OpenApi) {
    if let Some(components) = &mut openapi.components {
        components.schemas.values_mut().for_each(remove_null_defaults);
        for (schema, field, names) in names() {
            if let Some(Schema::Object(field)) = property(components, schema, field) {
                let is_nullable =
                    matches!(&field.schema_type, SchemaType::Array(types) if types.contains(&Type::Null));
                let mut values: Vec<_> = names.into_iter().map(serde_json::Value::from).collect();
                values.extend(is_nullable.then_some(serde_json::Value::Null));
                field.enum_values = Some(values);
            }
        }
        for (schema, field, pattern) in PATTERNS {
            if let Some(Schema::Object(field)) = property(components, schema, field) {
                field.pattern = Some(pattern.to_owned());
            }
        }
        for (schema, field) in REQUIRED {
            require(components, schema, field);
        }
        for result in ["Submitted", "Settled"] {
            split_result(components, result);
        }
        add_single_item(components);
    }
    describe_single_item(openapi);
    for item in openapi.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.patch, &mut item.delete];
        for parameter in
            operations.into_iter().flatten().flat_map(|operation| operation.parameters.iter_mut().flatten())
        {
            if let RefOr::T(parameter) = parameter {
                complete_parameter(parameter);
            }
        }
    }
}

fn complete_parameter(parameter: &mut Parameter) {
    let Some(RefOr::T(schema)) = &mut parameter.schema else { return };
    if let (Some(names), Some(one)) = (parameter_names(&parameter.name), text_of(schema)) {
        one.enum_values = Some(names.into_iter().map(serde_json::Value::from).collect());
    }
    if let (ParameterIn::Query, "queue", Some(one)) =
        (&parameter.parameter_in, parameter.name.as_str(), text_of(schema))
    {
        one.pattern = Some(NAME.to_owned());
    }
    let max = PATH_BYTES_MAX.iter().find(|(name, _)| *name == parameter.name);
    if let (ParameterIn::Path, Schema::Object(schema), Some((_, max))) =
        (&parameter.parameter_in, schema, max)
    {
        (schema.min_length, schema.max_length) = (Some(1), Some(*max));
        if parameter.name != "key" {
            schema.pattern = Some(NAME.to_owned());
        }
    }
}

/// The schema of a text, or of the texts of a list.
fn text_of(schema: &mut Schema) -> Option<&mut Object> {
    match schema {
        Schema::Object(text) => Some(text),
        Schema::Array(list) => match &mut list.items {
            ArrayItems::RefOrSchema(items) => match &mut **items {
                RefOr::T(Schema::Object(text)) => Some(text),
                _ => None,
            },
            ArrayItems::False => None,
        },
        _ => None,
    }
}

fn require(components: &mut Components, schema: &str, field: &str) {
    let Some(object) = object(components, schema) else { return };
    if !object.required.iter().any(|required| required == field) {
        object.required.push(field.to_owned());
    }
    match object.properties.get_mut(field) {
        Some(RefOr::T(Schema::Object(text))) => text.default = None,
        Some(RefOr::T(Schema::Array(list))) => list.default = None,
        _ => {}
    }
}

fn object<'a>(components: &'a mut Components, name: &str) -> Option<&'a mut Object> {
    match components.schemas.get_mut(name) {
        Some(RefOr::T(Schema::Object(object))) => Some(object),
        _ => None,
    }
}

fn property<'a>(components: &'a mut Components, schema: &str, field: &str) -> Option<&'a mut Schema> {
    match object(components, schema)?.properties.get_mut(field)? {
        RefOr::T(schema) => Some(schema),
        RefOr::Ref(_) => None,
    }
}

/// A field that may be absent has no value then, not `null`.
fn remove_null_defaults(schema: &mut RefOr<Schema>) {
    let RefOr::T(schema) = schema else { return };
    let default = match schema {
        Schema::Object(object) => {
            object.properties.values_mut().for_each(remove_null_defaults);
            &mut object.default
        }
        Schema::Array(array) => {
            if let ArrayItems::RefOrSchema(items) = &mut array.items {
                remove_null_defaults(items);
            }
            &mut array.default
        }
        Schema::OneOf(one_of) => {
            one_of.items.iter_mut().for_each(remove_null_defaults);
            &mut one_of.default
        }
        Schema::AllOf(all_of) => {
            all_of.items.iter_mut().for_each(remove_null_defaults);
            &mut all_of.default
        }
        Schema::AnyOf(any_of) => {
            any_of.items.iter_mut().for_each(remove_null_defaults);
            &mut any_of.default
        }
        _ => return,
    };
    if default.as_ref().is_some_and(serde_json::Value::is_null) {
        *default = None;
    }
}

/// The result of an element is either a success or an error.
fn split_result(components: &mut Components, name: &str) {
    let Some(both) = object(components, name) else { return };
    let (mut success, mut refused) = (both.clone(), both.clone());
    success.properties.retain(|name, _| name != "error");
    success.required = ["id", "created", "state"].map(str::to_owned).to_vec();
    success.required.retain(|name| success.properties.contains_key(name));
    // A refused call of a lease holder names its item.
    let names_item = success.properties.contains_key("state");
    refused.properties.retain(|name, _| name == "error" || name == "id" && names_item);
    refused.required = vec!["error".to_owned()];
    refused.description = Some("The element was refused.".to_owned());
    let union = OneOfBuilder::new().description(both.description.clone());
    let union = union.item(RefOr::T(Schema::Object(success))).item(RefOr::T(Schema::Object(refused)));
    components.schemas.insert(name.to_owned(), union.into());
}

/// An item that is posted without a list around it also has the `wait` of the list.
fn add_single_item(components: &mut Components) {
    let Some(wait) =
        object(components, "SubmitRequest").and_then(|list| list.properties.get("wait").cloned())
    else {
        return;
    };
    let Some(mut item) = object(components, "NewItem").cloned() else { return };
    item.description =
        Some("An item to submit, without a list around it. Every field is optional.".to_owned());
    item.properties.insert("wait".to_owned(), wait);
    components.schemas.insert("SingleItem".to_owned(), RefOr::T(Schema::Object(item)));
}

fn describe_single_item(openapi: &mut OpenApi) {
    let item = openapi.paths.paths.get_mut("/v1/queues/{queue}/items");
    let Some(submit) = item.and_then(|item| item.post.as_mut()) else { return };
    let one_of = |names: [&str; 2]| {
        names.into_iter().fold(OneOfBuilder::new(), |one_of, name| one_of.item(reference(name)))
    };
    if let Some(content) = request_body(submit) {
        content.schema = Some(one_of(["SubmitRequest", "SingleItem"]).into());
    }
    if let Some(RefOr::T(response)) = submit.responses.responses.get_mut("200")
        && let Some(content) = json(response.content.get_mut(JSON))
    {
        content.schema = Some(one_of(["SubmitAnswer", "Submitted"]).into());
    }
}
