//! OpenAPI 2: objects and their fields.

use serde_json::Value;

use super::{EXTENSIONS, Kind, Object, Others, is_reference};

pub(super) static DOCUMENT: Object = Object {
    fields: &[
        (1, "swagger", Kind::Text),
        (2, "info", Kind::Object(&INFO)),
        (3, "host", Kind::Text),
        (4, "basePath", Kind::Text),
        (5, "schemes", Kind::Each(&Kind::Text)),
        (6, "consumes", Kind::Each(&Kind::Text)),
        (7, "produces", Kind::Each(&Kind::Text)),
        (8, "paths", Kind::Object(&PATHS)),
        (9, "definitions", Kind::Object(&SCHEMAS)),
        (10, "parameters", Kind::Object(&PARAMETERS)),
    ],
    others: &[(16, EXTENSIONS, Kind::Any)],
};

static INFO: Object = Object {
    fields: &[
        (1, "title", Kind::Text),
        (2, "version", Kind::Text),
        (3, "description", Kind::Text),
        (4, "termsOfService", Kind::Text),
    ],
    others: &[(7, EXTENSIONS, Kind::Any)],
};

static PATHS: Object = Object {
    fields: &[],
    others: &[
        (1, EXTENSIONS, Kind::Any),
        (2, Others::Paths, Kind::Object(&PATH)),
    ],
};

static PATH: Object = Object {
    fields: &[
        (1, "$ref", Kind::Text),
        (2, "get", Kind::Object(&OPERATION)),
        (3, "put", Kind::Object(&OPERATION)),
        (4, "post", Kind::Object(&OPERATION)),
        (5, "delete", Kind::Object(&OPERATION)),
        (6, "options", Kind::Object(&OPERATION)),
        (7, "head", Kind::Object(&OPERATION)),
        (8, "patch", Kind::Object(&OPERATION)),
        (9, "parameters", Kind::Each(&Kind::Choice(parameters_item))),
    ],
    others: &[(10, EXTENSIONS, Kind::Any)],
};

static OPERATION: Object = Object {
    fields: &[
        (1, "tags", Kind::Each(&Kind::Text)),
        (2, "summary", Kind::Text),
        (3, "description", Kind::Text),
        (5, "operationId", Kind::Text),
        (6, "produces", Kind::Each(&Kind::Text)),
        (7, "consumes", Kind::Each(&Kind::Text)),
        (8, "parameters", Kind::Each(&Kind::Choice(parameters_item))),
        (9, "responses", Kind::Object(&RESPONSES)),
        (10, "schemes", Kind::Each(&Kind::Text)),
        (11, "deprecated", Kind::Flag),
    ],
    others: &[(13, EXTENSIONS, Kind::Any)],
};

static RESPONSES: Object = Object {
    fields: &[],
    others: &[
        (1, Others::Names, Kind::Choice(response_value)),
        (2, EXTENSIONS, Kind::Any),
    ],
};

fn response_value(value: &Value) -> Option<(u64, &'static Kind)> {
    static RESPONSE_KIND: Kind = Kind::Object(&RESPONSE);
    match is_reference(value) {
        true => Some((2, &REFERENCE)),
        false => Some((1, &RESPONSE_KIND)),
    }
}

static RESPONSE: Object = Object {
    fields: &[
        (1, "description", Kind::Text),
        (2, "schema", Kind::Within(1, &Kind::Object(&SCHEMA))),
    ],
    others: &[(5, EXTENSIONS, Kind::Any)],
};

static REFERENCE: Kind = Kind::Object(&Object {
    fields: &[(1, "$ref", Kind::Text), (2, "description", Kind::Text)],
    others: &[],
});

static PARAMETERS: Object = Object {
    fields: &[],
    others: &[(1, Others::Names, PARAMETER)],
};

const PARAMETER: Kind = Kind::Choice(parameter);

fn parameters_item(value: &Value) -> Option<(u64, &'static Kind)> {
    static PARAMETER_KIND: Kind = PARAMETER;
    match is_reference(value) {
        true => Some((2, &REFERENCE)),
        false => Some((1, &PARAMETER_KIND)),
    }
}

fn parameter(value: &Value) -> Option<(u64, &'static Kind)> {
    static BODY: Kind = Kind::Object(&BODY_PARAMETER);
    static OTHER: Kind = Kind::Choice(non_body_parameter);
    match value["in"].as_str() {
        Some("body") => Some((1, &BODY)),
        _ => Some((2, &OTHER)),
    }
}

static BODY_PARAMETER: Object = Object {
    fields: &[
        (1, "description", Kind::Text),
        (2, "name", Kind::Text),
        (3, "in", Kind::Text),
        (4, "required", Kind::Flag),
        (5, "schema", Kind::Object(&SCHEMA)),
    ],
    others: &[(6, EXTENSIONS, Kind::Any)],
};

fn non_body_parameter(value: &Value) -> Option<(u64, &'static Kind)> {
    static QUERY: Kind = Kind::Object(&QUERY_PARAMETER);
    static PATH: Kind = Kind::Object(&PATH_PARAMETER);
    match value["in"].as_str() {
        Some("header") => Some((1, &PATH)),
        Some("formData") => Some((2, &QUERY)),
        Some("query") => Some((3, &QUERY)),
        Some("path") => Some((4, &PATH)),
        _ => None,
    }
}

/// Of forms as well.
static QUERY_PARAMETER: Object = Object {
    fields: &[
        (1, "required", Kind::Flag),
        (2, "in", Kind::Text),
        (3, "description", Kind::Text),
        (4, "name", Kind::Text),
        (5, "allowEmptyValue", Kind::Flag),
        (6, "type", Kind::Text),
        (7, "format", Kind::Text),
        (9, "collectionFormat", Kind::Text),
        (10, "default", Kind::Any),
        (17, "pattern", Kind::Text),
        (20, "uniqueItems", Kind::Flag),
        (21, "enum", Kind::Each(&Kind::Any)),
    ],
    others: &[(23, EXTENSIONS, Kind::Any)],
};

/// Of headers as well.
static PATH_PARAMETER: Object = Object {
    fields: &[
        (1, "required", Kind::Flag),
        (2, "in", Kind::Text),
        (3, "description", Kind::Text),
        (4, "name", Kind::Text),
        (5, "type", Kind::Text),
        (6, "format", Kind::Text),
        (8, "collectionFormat", Kind::Text),
        (9, "default", Kind::Any),
        (16, "pattern", Kind::Text),
        (19, "uniqueItems", Kind::Flag),
        (20, "enum", Kind::Each(&Kind::Any)),
    ],
    others: &[(22, EXTENSIONS, Kind::Any)],
};

static SCHEMAS: Object = Object {
    fields: &[],
    others: &[
        (1, Others::Names, Kind::Object(&SCHEMA)),
        (1, EXTENSIONS, Kind::Object(&SCHEMA)),
    ],
};

static SCHEMA: Object = Object {
    fields: &[
        (1, "$ref", Kind::Text),
        (2, "format", Kind::Text),
        (3, "title", Kind::Text),
        (4, "description", Kind::Text),
        (5, "default", Kind::Any),
        (6, "multipleOf", Kind::Number),
        (7, "maximum", Kind::Number),
        (8, "exclusiveMaximum", Kind::Flag),
        (9, "minimum", Kind::Number),
        (10, "exclusiveMinimum", Kind::Flag),
        (11, "maxLength", Kind::Count),
        (12, "minLength", Kind::Count),
        (13, "pattern", Kind::Text),
        (14, "maxItems", Kind::Count),
        (15, "minItems", Kind::Count),
        (16, "uniqueItems", Kind::Flag),
        (17, "maxProperties", Kind::Count),
        (18, "minProperties", Kind::Count),
        (19, "required", Kind::Each(&Kind::Text)),
        (20, "enum", Kind::Each(&Kind::Any)),
        (21, "additionalProperties", Kind::Choice(additional)),
        (22, "type", Kind::Within(1, &Kind::Each(&Kind::Text))),
        (
            23,
            "items",
            Kind::Within(1, &Kind::Each(&Kind::Object(&SCHEMA))),
        ),
        (24, "allOf", Kind::Each(&Kind::Object(&SCHEMA))),
        (25, "properties", Kind::Object(&SCHEMAS)),
        (26, "discriminator", Kind::Text),
        (27, "readOnly", Kind::Flag),
        (30, "example", Kind::Any),
    ],
    others: &[(31, EXTENSIONS, Kind::Any)],
};

fn additional(value: &Value) -> Option<(u64, &'static Kind)> {
    static SCHEMA_KIND: Kind = Kind::Object(&SCHEMA);
    match value {
        Value::Bool(_) => Some((2, &Kind::Flag)),
        Value::Object(_) => Some((1, &SCHEMA_KIND)),
        _ => None,
    }
}
