//! What answers always have, and what they never have: a field without a value is absent, not `null`.

use std::collections::BTreeSet;
use utoipa::openapi::schema::{Components, Object, SchemaType, Type};
use utoipa::openapi::{OpenApi, RefOr, Schema};

/// Fields that are `null` without a value, by schema. In every schema, `next` is one of them.
const NULLABLE: [(&str, &str); 4] = [
    ("ItemShown", "finished_at"),
    ("ScheduleShown", "next_at"),
    ("ScheduleShown", "last_at"),
    ("ScheduleShown", "last_item"),
];
/// Fields that a client may do without, because an earlier server did not answer them.
const ALWAYS: [(&str, &str); 3] =
    [("TransferSummary", "schedules"), ("TransferSummary", "records"), ("TransferSummary", "tokens")];

/// Corrects the schemas that only answers use.
pub(super) fn complete(openapi: &mut OpenApi) {
    let requested = requested(openapi);
    let Some(components) = &mut openapi.components else { return };
    for (name, schema) in &mut components.schemas {
        if requested.contains(name) {
            continue;
        }
        match schema {
            RefOr::T(Schema::Object(object)) => complete_object(name, object),
            RefOr::T(Schema::OneOf(one_of)) => {
                for item in &mut one_of.items {
                    if let RefOr::T(Schema::Object(object)) = item {
                        complete_object(name, object);
                    }
                }
            }
            _ => {}
        }
    }
}

fn complete_object(name: &str, object: &mut Object) {
    for (field, schema) in &mut object.properties {
        let is_named = |list: &[(&str, &str)]| list.contains(&(name, field.as_str()));
        let is_nullable = field == "next" || is_named(&NULLABLE);
        let is_required = object.required.contains(field);
        if (is_nullable || is_named(&ALWAYS)) && !is_required {
            object.required.push(field.clone());
        }
        if !is_nullable && !is_required {
            remove_null(schema);
        }
    }
}

fn remove_null(schema: &mut RefOr<Schema>) {
    let RefOr::T(inner) = schema else { return };
    match inner {
        Schema::Object(object) => remove_null_type(&mut object.schema_type),
        Schema::Array(array) => remove_null_type(&mut array.schema_type),
        Schema::OneOf(one_of) => {
            one_of.items.retain(|item| !is_null(item));
            if let [only] = &one_of.items[..] {
                *schema = only.clone();
            }
        }
        _ => {}
    }
}

fn remove_null_type(of: &mut SchemaType) {
    if let SchemaType::Array(types) = of {
        types.retain(|one| *one != Type::Null);
        if let [only] = &types[..] {
            *of = SchemaType::Type(only.clone());
        }
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == SchemaType::Type(Type::Null))
}

/// The schemas that bodies of requests use, also inside of other ones.
fn requested(openapi: &OpenApi) -> BTreeSet<String> {
    let mut left = Vec::new();
    for item in openapi.paths.paths.values() {
        for operation in [&item.put, &item.post, &item.patch].into_iter().flatten() {
            references(&serde_json::to_value(&operation.request_body).unwrap_or_default(), &mut left);
        }
    }
    let mut found = BTreeSet::new();
    while let Some(name) = left.pop() {
        if found.insert(name.clone()) {
            let schema =
                openapi.components.as_ref().and_then(|Components { schemas, .. }| schemas.get(&name));
            references(&serde_json::to_value(schema).unwrap_or_default(), &mut left);
        }
    }
    found
}

fn references(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(members) => {
            let named = members.get("$ref").and_then(serde_json::Value::as_str);
            found.extend(named.and_then(|path| path.rsplit('/').next()).map(str::to_owned));
            members.values().for_each(|value| references(value, found));
        }
        serde_json::Value::Array(elements) => elements.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}
