//! Operations written in either version of OpenAPI.

use serde_json::{Map, Value, json};

use super::parameters::Parameter;
use super::paths::{Answer, Item, Media, Operation};
use super::schemas::{Dialect, Schemas};

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_STREAM: &str = "application/json;stream=watch";
const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

impl Media {
    fn produced(self) -> &'static [&'static str] {
        match self {
            Self::Standard | Self::Discovery => &[JSON, YAML, PROTOBUF],
            Self::Streaming => &[JSON, YAML, PROTOBUF, JSON_STREAM, PROTOBUF_STREAM],
            Self::Log => &["text/plain", JSON, YAML, PROTOBUF],
            Self::Any => &["*/*"],
            Self::Custom => &[JSON, YAML],
            Self::Json => &[JSON],
        }
    }

    fn consumed(self) -> &'static [&'static str] {
        match self {
            Self::Discovery => &[JSON, YAML, PROTOBUF],
            Self::Custom => &[JSON, YAML],
            Self::Json => &[JSON],
            _ => &["*/*"],
        }
    }
}

fn patch_types(custom: bool) -> &'static [&'static str] {
    if custom {
        &[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/apply-patch+yaml",
        ]
    } else {
        &[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ]
    }
}

/// The paths of a document; parameters that all operations of a path share are said once.
pub fn paths(items: &[Item], dialect: Dialect, schemas: &mut Schemas) -> Map<String, Value> {
    items
        .iter()
        .map(|item| (item.path.clone(), path_item(item, dialect, schemas)))
        .collect()
}

fn path_item(item: &Item, dialect: Dialect, schemas: &mut Schemas) -> Value {
    let shared: Vec<Parameter> = match item.operations.split_first() {
        None => Vec::new(),
        Some((first, others)) => first
            .parameters
            .iter()
            .filter(|one| others.iter().all(|other| other.parameters.contains(one)))
            .copied()
            .collect(),
    };
    let mut out = Map::new();
    for operation in &item.operations {
        let own: Vec<Parameter> = operation
            .parameters
            .iter()
            .filter(|one| !shared.contains(one))
            .copied()
            .collect();
        let rendered = match dialect {
            Dialect::V2 => operation_v2(operation, &own, schemas),
            Dialect::V3 => operation_v3(operation, &own, schemas),
        };
        out.insert(operation.method.to_owned(), rendered);
    }
    if !shared.is_empty() {
        let kind = item.operations.first().and_then(|one| one.kind.as_ref());
        let kind = kind.map_or("", |(_, _, kind)| kind.as_str());
        let shared: Vec<Value> = shared
            .iter()
            .map(|one| parameter(one, dialect, kind))
            .collect();
        out.insert("parameters".into(), shared.into());
    }
    out.into()
}

fn common(operation: &Operation) -> Map<String, Value> {
    let mut out = Map::new();
    out.insert("tags".into(), json!([operation.tag]));
    out.insert("description".into(), operation.words.as_str().into());
    out.insert("operationId".into(), operation.id.as_str().into());
    if let Some(action) = operation.action {
        out.insert("x-kubernetes-action".into(), action.into());
    }
    if let Some((group, version, kind)) = &operation.kind {
        out.insert(
            "x-kubernetes-group-version-kind".into(),
            json!({"group": group, "version": version, "kind": kind}),
        );
    }
    out
}

fn answer_schema(answer: &Answer, schemas: &mut Schemas) -> Value {
    match answer {
        Answer::Of(name) => schemas.refer(name),
        Answer::Text => json!({"type": "string"}),
    }
}

fn words_of_code(code: u16) -> &'static str {
    match code {
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        _ => "Unauthorized",
    }
}

fn operation_v3(operation: &Operation, own: &[Parameter], schemas: &mut Schemas) -> Value {
    let mut out = common(operation);
    if !own.is_empty() {
        let own: Vec<Value> = own
            .iter()
            .map(|one| parameter(one, Dialect::V3, ""))
            .collect();
        out.insert("parameters".into(), own.into());
    }
    if let Some(body) = &operation.body {
        let types = if body.patch {
            patch_types(operation.media == Media::Custom)
        } else {
            operation.media.consumed()
        };
        let schema = schemas.refer(&body.schema);
        let mut request = json!({"content": content(types, &schema)});
        if body.required {
            request["required"] = true.into();
        }
        out.insert("requestBody".into(), request);
    }
    let schema = answer_schema(&operation.answer, schemas);
    let mut responses = Map::new();
    for code in &operation.answers {
        responses.insert(
            code.to_string(),
            json!({
                "description": words_of_code(*code),
                "content": content(operation.media.produced(), &schema),
            }),
        );
    }
    responses.insert("401".into(), json!({"description": words_of_code(401)}));
    out.insert("responses".into(), responses.into());
    out.into()
}

fn content(types: &[&str], schema: &Value) -> Value {
    let entries: Map<String, Value> = types
        .iter()
        .map(|kind| ((*kind).to_owned(), json!({"schema": schema})))
        .collect();
    entries.into()
}

fn operation_v2(operation: &Operation, own: &[Parameter], schemas: &mut Schemas) -> Value {
    let mut out = common(operation);
    let consumes = match &operation.body {
        Some(body) if body.patch => patch_types(operation.media == Media::Custom),
        _ => operation.media.consumed(),
    };
    out.insert("consumes".into(), json!(consumes));
    out.insert("produces".into(), json!(operation.media.produced()));
    out.insert("schemes".into(), json!(["https"]));
    let mut parameters = Vec::new();
    if let Some(body) = &operation.body {
        let schema = schemas.refer(&body.schema);
        parameters.push(match (body.patch, body.required) {
            (true, _) => json!({"$ref": "#/parameters/body-78PwaGsr"}),
            (_, false) => json!({"$ref": "#/parameters/body-2Y1dVQaQ"}),
            _ => json!({"name": "body", "in": "body", "required": true, "schema": schema}),
        });
    }
    parameters.extend(own.iter().map(|one| parameter(one, Dialect::V2, "")));
    if !parameters.is_empty() {
        out.insert("parameters".into(), parameters.into());
    }
    let schema = answer_schema(&operation.answer, schemas);
    let mut responses = Map::new();
    for code in &operation.answers {
        responses.insert(
            code.to_string(),
            json!({"description": words_of_code(*code), "schema": schema}),
        );
    }
    responses.insert("401".into(), json!({"description": words_of_code(401)}));
    out.insert("responses".into(), responses.into());
    out.into()
}

fn parameter(parameter: &Parameter, dialect: Dialect, kind: &str) -> Value {
    if dialect == Dialect::V2
        && let Some(name) = shared_name(parameter)
    {
        return json!({"$ref": format!("#/parameters/{name}")});
    }
    inline(parameter, dialect, kind)
}

fn inline(parameter: &Parameter, dialect: Dialect, kind: &str) -> Value {
    let place = if parameter.in_path { "path" } else { "query" };
    let mut out = json!({
        "name": parameter.name,
        "in": place,
        "description": words(parameter.name, kind),
    });
    match dialect {
        Dialect::V2 => {
            out["type"] = parameter.kind.into();
            out["uniqueItems"] = true.into();
        }
        Dialect::V3 => out["schema"] = json!({"type": parameter.kind, "uniqueItems": true}),
    }
    if parameter.in_path {
        out["required"] = true.into();
    }
    out
}

/// Parameters that OpenAPI 2 documents keep in one place go by these names.
const SHARED: [(&str, &str, &str); 45] = [
    ("allowWatchBookmarks", "", "allowWatchBookmarks-HC2hJt-J"),
    ("command", "", "command-Py3eQybp"),
    ("container", "log", "container-1GeXxFDC"),
    ("container", "attach", "container-_Q-EJ3nR"),
    ("container", "exec", "container-i5dOmRiM"),
    ("continue", "", "continue-QfD61s0i"),
    ("fieldManager", "patch", "fieldManager-7c6nTn1T"),
    ("fieldManager", "", "fieldManager-Qy4HdaTW"),
    ("fieldSelector", "", "fieldSelector-xIcQKXFG"),
    ("follow", "", "follow-9OIXh_2R"),
    ("force", "", "force-tOGGb0Yi"),
    ("gracePeriodSeconds", "", "gracePeriodSeconds--K5HaBOS"),
    (
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "",
        "ignoreStoreReadErrorWithClusterBreakingPotential-QbNkfIqj",
    ),
    (
        "insecureSkipTLSVerifyBackend",
        "",
        "insecureSkipTLSVerifyBackend-gM00jVbe",
    ),
    ("labelSelector", "", "labelSelector-5Zw57w4C"),
    ("limit", "", "limit-1NfNmdNH"),
    ("limitBytes", "", "limitBytes-zwd1RXuc"),
    ("namespace", "", "namespace-vgWSWtn3"),
    ("orphanDependents", "", "orphanDependents-uRB25kX5"),
    ("path", "node", "path-rFDtV0x9"),
    ("path", "pod", "path-oPbzgLUj"),
    ("path", "service", "path-QCf0eosM"),
    ("path", "", "path-z6Ciiujn"),
    ("ports", "", "ports-91KROJmm"),
    ("pretty", "", "pretty-tJGM1-ng"),
    ("previous", "", "previous-1jxDPu3y"),
    ("propagationPolicy", "", "propagationPolicy-6jk3prlO"),
    ("resourceVersion", "", "resourceVersion-5WAnf1kx"),
    ("resourceVersionMatch", "", "resourceVersionMatch-t8XhRHeC"),
    ("sendInitialEvents", "", "sendInitialEvents-rLXlEK_k"),
    ("shardSelector", "", "shardSelector-Kgyki_3_"),
    ("sinceSeconds", "", "sinceSeconds-vE2NLdnP"),
    ("stderr", "attach", "stderr-26jJhFUR"),
    ("stderr", "exec", "stderr-W_1TNlWc"),
    ("stdin", "exec", "stdin-PSzNhyUC"),
    ("stdin", "attach", "stdin-sEFnN3IS"),
    ("stdout", "exec", "stdout--EZLRwV1"),
    ("stdout", "attach", "stdout-005YMKE6"),
    ("stream", "", "stream-l-48cgXv"),
    ("tailLines", "", "tailLines-9xQLWHMV"),
    ("timeoutSeconds", "", "timeoutSeconds-yvYezaOC"),
    ("timestamps", "", "timestamps-c17fW1w_"),
    ("tty", "attach", "tty-g7MlET_l"),
    ("tty", "exec", "tty-s0flW37O"),
    ("watch", "", "watch-XNNPZGbK"),
];

fn shared_name(parameter: &Parameter) -> Option<&'static str> {
    SHARED
        .iter()
        .find(|(name, variant, _)| *name == parameter.name && *variant == parameter.variant)
        .map(|(_, _, shared)| *shared)
}

/// The `parameters` section of an OpenAPI 2 document, for the operations of `items`.
pub fn shared_parameters(items: &[Item], schemas: &mut Schemas) -> Map<String, Value> {
    let mut out = Map::new();
    let used = items
        .iter()
        .flat_map(|item| &item.operations)
        .flat_map(|operation| &operation.parameters);
    for parameter in used {
        if let Some(name) = shared_name(parameter)
            && !out.contains_key(name)
        {
            out.insert(name.to_owned(), inline(parameter, Dialect::V2, ""));
        }
    }
    for (name, kind, required) in [
        ("body-2Y1dVQaQ", "DeleteOptions", false),
        ("body-78PwaGsr", "Patch", true),
    ] {
        let schema = schemas.refer(&format!("{}{kind}", super::schemas::META));
        let mut body = json!({"name": "body", "in": "body", "schema": schema});
        if required {
            body["required"] = true.into();
        }
        out.insert(name.to_owned(), body);
    }
    out
}

/// What a parameter is for.
fn words(name: &str, kind: &str) -> String {
    match name {
        "name" => return format!("name of the {kind}"),
        "namespace" => "namespace of the object",
        "pretty" => "whether the answer is laid out for reading",
        "allowWatchBookmarks" => "whether a watch tells its progress with BOOKMARK events",
        "continue" => "token of an earlier answer, for the next part of a list",
        "fieldSelector" => "which objects, by their fields",
        "labelSelector" => "which objects, by their labels",
        "limit" => "most objects that an answer holds",
        "resourceVersion" => "state that the answer may be of",
        "resourceVersionMatch" => "how resourceVersion is meant: Exact or NotOlderThan",
        "sendInitialEvents" => "whether a watch begins with events for what there is",
        "shardSelector" => "which part of all objects, by a hash",
        "timeoutSeconds" => "how long a list or watch may take",
        "watch" => "whether changes are sent as they happen",
        "dryRun" => "All: everything is done except for keeping the outcome",
        "fieldManager" => "who is recorded as owner of the fields that are set",
        "fieldValidation" => {
            "what is done about unknown and duplicate fields: Ignore, Warn or Strict"
        }
        "force" => "whether an apply takes over fields that others own",
        "gracePeriodSeconds" => "how long the object has to end, 0 for not at all",
        "ignoreStoreReadErrorWithClusterBreakingPotential" => {
            "whether an object that cannot be read is removed anyway"
        }
        "orphanDependents" => "older way of saying propagationPolicy",
        "propagationPolicy" => "what becomes of dependents: Orphan, Background or Foreground",
        "path" => "path that is handed on",
        "container" => "which container, if there are several",
        "command" => "command to run, with its arguments",
        "stdin" => "whether input is passed on",
        "stdout" => "whether output is passed on",
        "stderr" => "whether error output is passed on",
        "tty" => "whether there is a terminal",
        "ports" => "ports to forward",
        "follow" => "whether to go on as lines are written",
        "previous" => "whether that of the container's last end is wanted",
        "sinceSeconds" => "how far back to go",
        "tailLines" => "how many lines from the end",
        "limitBytes" => "most bytes that are read",
        "timestamps" => "whether lines begin with their time",
        "stream" => "which output: All, Stdout or Stderr",
        "insecureSkipTLSVerifyBackend" => "whether the kubelet's certificate goes unchecked",
        _ => "",
    }
    .to_owned()
}
