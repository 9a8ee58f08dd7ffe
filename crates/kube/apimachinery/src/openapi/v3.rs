//! OpenAPI 3: objects and their fields.

use serde_json::Value;

use super::{EXTENSIONS, Kind, Object, Others, is_reference};

pub(super) static DOCUMENT: Object = Object {
    fields: &[
        (1, "openapi", Kind::Text),
        (2, "info", Kind::Object(&INFO)),
        (4, "paths", Kind::Object(&PATHS)),
        (5, "components", Kind::Object(&COMPONENTS)),
    ],
    others: &[(9, EXTENSIONS, Kind::Any)],
};

static INFO: Object = Object {
    fields: &[
        (1, "title", Kind::Text),
        (2, "description", Kind::Text),
        (3, "termsOfService", Kind::Text),
        (6, "version", Kind::Text),
        (8, "summary", Kind::Text),
    ],
    others: &[],
};

static PATHS: Object = Object {
    fields: &[],
    others: &[
        (1, Others::Paths, Kind::Object(&PATH)),
        (2, EXTENSIONS, Kind::Any),
    ],
};

static PATH: Object = Object {
    fields: &[
        (1, "$ref", Kind::Text),
        (2, "summary", Kind::Text),
        (3, "description", Kind::Text),
        (4, "get", Kind::Object(&OPERATION)),
        (5, "put", Kind::Object(&OPERATION)),
        (6, "post", Kind::Object(&OPERATION)),
        (7, "delete", Kind::Object(&OPERATION)),
        (8, "options", Kind::Object(&OPERATION)),
        (9, "head", Kind::Object(&OPERATION)),
        (10, "patch", Kind::Object(&OPERATION)),
        (11, "trace", Kind::Object(&OPERATION)),
        (13, "parameters", Kind::Each(&Kind::Choice(parameter))),
    ],
    others: &[(14, EXTENSIONS, Kind::Any)],
};

static OPERATION: Object = Object {
    fields: &[
        (1, "tags", Kind::Each(&Kind::Text)),
        (2, "summary", Kind::Text),
        (3, "description", Kind::Text),
        (5, "operationId", Kind::Text),
        (6, "parameters", Kind::Each(&Kind::Choice(parameter))),
        (7, "requestBody", Kind::Choice(request_body)),
        (8, "responses", Kind::Object(&RESPONSES)),
        (10, "deprecated", Kind::Flag),
    ],
    others: &[(13, EXTENSIONS, Kind::Any)],
};

fn parameter(value: &Value) -> Option<(u64, &'static Kind)> {
    static PARAMETER_KIND: Kind = Kind::Object(&PARAMETER);
    or_reference(value, &PARAMETER_KIND)
}

fn or_reference(value: &Value, kind: &'static Kind) -> Option<(u64, &'static Kind)> {
    static REFERENCE: Kind = Kind::Object(&Object {
        fields: &[
            (1, "$ref", Kind::Text),
            (2, "summary", Kind::Text),
            (3, "description", Kind::Text),
        ],
        others: &[],
    });
    match is_reference(value) {
        true => Some((2, &REFERENCE)),
        false => Some((1, kind)),
    }
}

static PARAMETER: Object = Object {
    fields: &[
        (1, "name", Kind::Text),
        (2, "in", Kind::Text),
        (3, "description", Kind::Text),
        (4, "required", Kind::Flag),
        (5, "deprecated", Kind::Flag),
        (6, "allowEmptyValue", Kind::Flag),
        (7, "style", Kind::Text),
        (8, "explode", Kind::Flag),
        (9, "allowReserved", Kind::Flag),
        (10, "schema", Kind::Choice(schema)),
        (11, "example", Kind::Any),
        (13, "content", Kind::Object(&MEDIA_TYPES)),
    ],
    others: &[(14, EXTENSIONS, Kind::Any)],
};

fn request_body(value: &Value) -> Option<(u64, &'static Kind)> {
    static BODY: Kind = Kind::Object(&Object {
        fields: &[
            (1, "description", Kind::Text),
            (2, "content", Kind::Object(&MEDIA_TYPES)),
            (3, "required", Kind::Flag),
        ],
        others: &[(4, EXTENSIONS, Kind::Any)],
    });
    or_reference(value, &BODY)
}

static RESPONSES: Object = Object {
    fields: &[(1, "default", Kind::Choice(response))],
    others: &[
        (2, Others::Names, Kind::Choice(response)),
        (3, EXTENSIONS, Kind::Any),
    ],
};

fn response(value: &Value) -> Option<(u64, &'static Kind)> {
    static RESPONSE: Kind = Kind::Object(&Object {
        fields: &[
            (1, "description", Kind::Text),
            (3, "content", Kind::Object(&MEDIA_TYPES)),
        ],
        others: &[(5, EXTENSIONS, Kind::Any)],
    });
    or_reference(value, &RESPONSE)
}

static MEDIA_TYPES: Object = Object {
    fields: &[],
    others: &[(1, Others::Names, Kind::Object(&MEDIA_TYPE))],
};

static MEDIA_TYPE: Object = Object {
    fields: &[
        (1, "schema", Kind::Choice(schema)),
        (2, "example", Kind::Any),
    ],
    others: &[(5, EXTENSIONS, Kind::Any)],
};

static COMPONENTS: Object = Object {
    fields: &[(1, "schemas", Kind::Object(&SCHEMAS))],
    others: &[(10, EXTENSIONS, Kind::Any)],
};

static SCHEMAS: Object = Object {
    fields: &[],
    others: &[
        (1, Others::Names, Kind::Choice(schema)),
        (1, EXTENSIONS, Kind::Choice(schema)),
    ],
};

fn schema(value: &Value) -> Option<(u64, &'static Kind)> {
    static SCHEMA_KIND: Kind = Kind::Object(&SCHEMA);
    or_reference(value, &SCHEMA_KIND)
}

static SCHEMA: Object = Object {
    fields: &[
        (1, "nullable", Kind::Flag),
        (3, "readOnly", Kind::Flag),
        (4, "writeOnly", Kind::Flag),
        (7, "example", Kind::Any),
        (8, "deprecated", Kind::Flag),
        (9, "title", Kind::Text),
        (10, "multipleOf", Kind::Number),
        (11, "maximum", Kind::Number),
        (12, "exclusiveMaximum", Kind::Flag),
        (13, "minimum", Kind::Number),
        (14, "exclusiveMinimum", Kind::Flag),
        (15, "maxLength", Kind::Count),
        (16, "minLength", Kind::Count),
        (17, "pattern", Kind::Text),
        (18, "maxItems", Kind::Count),
        (19, "minItems", Kind::Count),
        (20, "uniqueItems", Kind::Flag),
        (21, "maxProperties", Kind::Count),
        (22, "minProperties", Kind::Count),
        (23, "required", Kind::Each(&Kind::Text)),
        (24, "enum", Kind::Each(&Kind::Any)),
        (25, "type", Kind::Text),
        (26, "allOf", Kind::Each(&Kind::Choice(schema))),
        (27, "oneOf", Kind::Each(&Kind::Choice(schema))),
        (28, "anyOf", Kind::Each(&Kind::Choice(schema))),
        (29, "not", Kind::Object(&SCHEMA)),
        (30, "items", Kind::Within(1, &Kind::Choice(schema))),
        (31, "properties", Kind::Object(&SCHEMAS)),
        (32, "additionalProperties", Kind::Choice(additional)),
        (33, "default", Kind::Choice(default)),
        (34, "description", Kind::Text),
        (35, "format", Kind::Text),
    ],
    others: &[(36, EXTENSIONS, Kind::Any)],
};

fn additional(value: &Value) -> Option<(u64, &'static Kind)> {
    static SCHEMA_KIND: Kind = Kind::Choice(schema);
    match value {
        Value::Bool(_) => Some((2, &Kind::Flag)),
        Value::Object(_) => Some((1, &SCHEMA_KIND)),
        _ => None,
    }
}

/// Lists and objects have no words here.
fn default(value: &Value) -> Option<(u64, &'static Kind)> {
    match value {
        Value::Number(_) => Some((1, &Kind::Number)),
        Value::Bool(_) => Some((2, &Kind::Flag)),
        Value::String(_) => Some((3, &Kind::Text)),
        _ => None,
    }
}
