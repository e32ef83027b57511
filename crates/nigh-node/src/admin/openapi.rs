//! The description of the admin API as OpenAPI 3.1, made of the table that the router is made of. Pure.
//!
//! Schemas come from the Rust types (schemars). Answers describe what is written, bodies and queries what is read.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::route::{Answer, Content, Operation, SchemaOf};
use super::{CURSOR, UNANSWERED, VERSION};

/// Where an OpenAPI document has its schemas.
const SCHEMAS: &str = "/components/schemas";
const ABOUT: &str = "Status, history and changes of a node. Over TCP a request has an access key and its secret by \
                     HTTP Basic, or a session's cookie; the role of the key must suffice. On the Unix socket \
                     `admin.sock` no key is asked for. An answer may gain fields within a version of the API: pass \
                     over those that you do not know. A refusal is one line of text.";

/// The document for these operations.
pub(super) fn document<'a>(operations: impl IntoIterator<Item = &'a Operation>) -> Value {
    let mut answers = generator(|settings| settings.for_serialize());
    // A type may be read otherwise than it is written, so no schema is shared between the two.
    let mut requests = generator(|settings| settings.for_deserialize().with(|one| one.inline_subschemas = true));
    let mut paths = Map::new();
    for operation in operations {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method.as_str().to_ascii_lowercase()] = described(operation, &mut answers, &mut requests);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Nigh's admin API", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT},
        "servers": [{"url": VERSION}],
        "paths": paths,
        "components": {
            "schemas": answers.take_definitions(true),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "basic", "description": "An access key and its secret."},
                "session": {
                    "type": "apiKey", "in": "cookie", "name": "nigh-PORT",
                    "description": "A session's cookie; over TLS its name is __Host-nigh.",
                },
            },
        },
    })
}

fn generator(contract: impl FnOnce(SchemaSettings) -> SchemaSettings) -> SchemaGenerator {
    contract(SchemaSettings::draft2020_12())
        .with(|settings| {
            settings.definitions_path = SCHEMAS.into();
            settings.meta_schema = None;
        })
        .into_generator()
}

fn described(operation: &Operation, answers: &mut SchemaGenerator, requests: &mut SchemaGenerator) -> Value {
    let Operation { method, path, summary, role, query, body, answer } = operation;
    let mut described = json!({
        "summary": summary,
        "operationId": operation_id(method.as_str(), path),
        "parameters": parameters(path, *query, requests),
        "responses": responses(*answer, answers),
        "security": [{"key": []}, {"session": []}],
        "x-role": role,
    });
    if let Some(body) = body {
        let content = match body {
            Content::Json(schema) => json!({"application/json": {"schema": schema(requests).to_value()}}),
            Content::Bytes => json!({"application/octet-stream": {}}),
        };
        described["requestBody"] = json!({"required": true, "content": content});
    }
    described
}

/// `get /events/{namespace}/{id}` is `getEventsNamespaceId`.
fn operation_id(method: &str, path: &str) -> String {
    let words = path.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut id = method.to_ascii_lowercase();
    for word in words {
        id.push_str(&word[..1].to_ascii_uppercase());
        id.push_str(&word[1..]);
    }
    id
}

/// The names in braces of a path.
fn names_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn parameters(path: &str, query: Option<SchemaOf>, requests: &mut SchemaGenerator) -> Vec<Value> {
    let mut all: Vec<Value> = names_in(path)
        .map(|name| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}}))
        .collect();
    let Some(query) = query else { return all };
    let schema = query(requests).to_value();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let mut field = field.clone();
        let description = field.as_object_mut().and_then(|field| field.remove("description"));
        let mut parameter = json!({
            "name": name, "in": "query", "required": required.iter().any(|one| one == name), "schema": given(field),
        });
        if let Some(description) = description {
            parameter["description"] = description;
        }
        all.push(parameter);
    }
    all
}

/// The schema of a value that is left out rather than null.
fn given(mut field: Value) -> Value {
    if let Some(fields) = field.as_object_mut() {
        fields.remove("default");
        if let Some(Value::Array(kinds)) = fields.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [kind] = &kinds[..] {
                let kind = kind.clone();
                fields.insert("type".to_owned(), kind);
            }
        }
    }
    let choices = field["anyOf"]
        .as_array()
        .map(|choices| choices.iter().filter(|choice| choice["type"] != "null").cloned().collect::<Vec<_>>());
    match choices.as_deref() {
        Some([choice]) => choice.clone(),
        _ => field,
    }
}

fn responses(answer: Answer, answers: &mut SchemaGenerator) -> Value {
    let mut of = |schema: SchemaOf| schema(answers).to_value();
    let mut success = match answer {
        Answer::Nothing => json!({"204": {"description": "Done."}}),
        Answer::Json(schema) => {
            json!({"200": {"description": "The document.", "content": {"application/json": {"schema": of(schema)}}}})
        }
        Answer::Accepted(schema) => json!({"202": {
            "description": "The work goes on.", "content": {"application/json": {"schema": of(schema)}},
        }}),
        Answer::Lines(schema) => json!({"200": {
            "description": "A line of JSON for each item, while they come.",
            "content": {"application/x-ndjson": {"schema": of(schema)}},
        }}),
        Answer::Events => json!({"200": {
            "description": "Server-sent events, whose data are JSON.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }}),
        Answer::Bytes(content_type) => json!({"200": {
            "description": "The bytes.",
            "content": {(content_type): {"schema": {"type": "string", "contentMediaType": content_type}}},
        }}),
    };
    if let Some(found) = success.get_mut("200") {
        let header = |description: &str| json!({"description": description, "schema": {"type": "string"}});
        found["headers"] = json!({
            (UNANSWERED): header("Members of the cluster whose part of the answer is missing, separated by commas."),
            (CURSOR): header("The parameter `cursor` of the next page; absent at the end."),
        });
    }
    let refusal = |why: &str| json!({"description": why, "content": {"text/plain": {"schema": {"type": "string"}}}});
    success["401"] = refusal("No key, a wrong one, or a session that is over.");
    success["403"] = refusal("The role does not suffice, or another site sent the request.");
    success["429"] = refusal("Too many wrong keys from this address; `Retry-After` says when to come back.");
    success["default"] = refusal("Why not, and what to do.");
    success
}

#[cfg(test)]
mod tests;
