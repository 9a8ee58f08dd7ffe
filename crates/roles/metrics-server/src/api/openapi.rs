//! What the server publishes about its API for tools: OpenAPI 2 in one document, OpenAPI 3 in one for each part.

use bytes::Bytes;
use jiff::Timestamp;
use plimsoll_apimachinery::fingerprint::fingerprint;
use plimsoll_apimachinery::openapi::{v2_to_protobuf, v3_to_protobuf};
use serde_json::{Map, Value, json};

use super::row::Kind;
use super::schemas::{V2, V3, reachable, schemas, to_v2};
use super::version::{Announced, GROUP, Version};

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const TYPES: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];
const STREAMS: [&str; 2] = [
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];

/// A document and its fingerprint.
#[derive(Debug, Clone)]
pub struct Published {
    pub body: Bytes,
    pub protobuf: Bytes,
    /// Without quotes.
    pub hash: String,
}

impl Published {
    fn new(document: &Value, to_protobuf: fn(&Value) -> Vec<u8>) -> Self {
        let body = document.to_string().into_bytes();
        Self {
            hash: fingerprint(&body),
            body: body.into(),
            protobuf: to_protobuf(document).into(),
        }
    }
}

/// All documents; they never change.
#[derive(Debug)]
pub struct OpenApi {
    pub v2: Published,
    pub index: Published,
    pub made: Timestamp,
    /// By what follows `/openapi/v3/`.
    v3: Vec<(String, Published)>,
}

impl OpenApi {
    pub fn new(announced: Announced) -> Self {
        let operations = operations(announced);
        let v2 = document_v2(&operations, announced);
        let mut parts: Vec<String> = operations.iter().map(|one| one.part.clone()).collect();
        parts.sort();
        parts.dedup();
        let v3: Vec<(String, Published)> = parts
            .into_iter()
            .map(|part| {
                let document = Published::new(&document_v3(&operations, &part), v3_to_protobuf);
                (part, document)
            })
            .collect();
        let mut index = Map::new();
        for (part, document) in &v3 {
            let url = format!("/openapi/v3/{part}?hash={}", document.hash);
            index.insert(part.clone(), json!({"serverRelativeURL": url}));
        }
        Self {
            v2: Published::new(&v2, v2_to_protobuf),
            // Nobody has defined that one in protobuf.
            index: Published::new(&json!({"paths": index}), |_| Vec::new()),
            made: Timestamp::now(),
            v3,
        }
    }

    pub fn v3(&self, part: &str) -> Option<&Published> {
        let found = self.v3.iter().find(|(name, _)| name == part);
        found.map(|(_, document)| document)
    }
}

/// What can be done at a path.
struct Operation {
    path: String,
    /// The document of OpenAPI 3 that tells of it.
    part: String,
    tag: String,
    id: String,
    description: String,
    answers_with: String,
    /// The resource's, with the version and the action.
    resource: Option<(Kind, Version, &'static str)>,
    namespaced: bool,
}

fn schema_name(kind: &str, version: Version) -> String {
    format!("io.k8s.metrics.pkg.apis.metrics.{}.{kind}", version.name())
}

fn operations(announced: Announced) -> Vec<Operation> {
    let about =
        |path: &str, part: &str, tag: &str, id: &str, description: &str, answer: &str| Operation {
            path: path.to_owned(),
            part: part.to_owned(),
            tag: tag.to_owned(),
            id: id.to_owned(),
            description: description.to_owned(),
            answers_with: answer.to_owned(),
            resource: None,
            namespaced: false,
        };
    let meta = |name: &str| format!("{META}{name}");
    let group_part = format!("apis/{GROUP}");
    let mut all = vec![
        about(
            "/apis/",
            "apis",
            "apis",
            "getAPIVersions",
            "which groups there are",
            &meta("APIGroupList"),
        ),
        about(
            &format!("/{group_part}/"),
            &group_part,
            "metrics",
            "getMetricsAPIGroup",
            "which versions the group has",
            &meta("APIGroup"),
        ),
        about(
            "/version/",
            "version",
            "version",
            "getCodeVersion",
            "which version the server is",
            "io.k8s.apimachinery.pkg.version.Info",
        ),
    ];
    for version in announced.versions() {
        let part = format!("{group_part}/{}", version.name());
        let tag = format!("metrics_{}", version.name());
        let title = format!("Metrics{}", capitalised(version.name()));
        all.push(about(
            &format!("/{part}/"),
            &part,
            &tag,
            &format!("get{title}APIResources"),
            "which resources the version has",
            &meta("APIResourceList"),
        ));
        for kind in Kind::ALL {
            let resource = kind.resource();
            let mut add = |path: String, verb: &'static str, scope: &str, whole: &str| {
                let (answer, description) = match verb {
                    "list" => (kind.list_name(), format!("usage of all {resource}")),
                    _ => (kind.name(), format!("usage of one of the {resource}")),
                };
                let start = if verb == "get" { "read" } else { verb };
                all.push(Operation {
                    namespaced: path.contains("{namespace}"),
                    path,
                    part: part.clone(),
                    tag: tag.clone(),
                    id: format!("{start}{title}{scope}{}{whole}", kind.name()),
                    description,
                    answers_with: schema_name(answer, *version),
                    resource: Some((kind, *version, verb)),
                });
            };
            match kind {
                Kind::Node => {
                    add(format!("/{part}/nodes"), "list", "", "");
                    add(format!("/{part}/nodes/{{name}}"), "get", "", "");
                }
                Kind::Pod => {
                    let within = format!("/{part}/namespaces/{{namespace}}/pods");
                    add(format!("{within}/{{name}}"), "get", "Namespaced", "");
                    add(within, "list", "Namespaced", "");
                    add(format!("/{part}/pods"), "list", "", "ForAllNamespaces");
                }
            }
        }
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

/// Parameters of lists with their types and the names OpenAPI 2 shares them by.
const LIST_PARAMETERS: [(&str, &str, &str); 12] = [
    ("allowWatchBookmarks", "boolean", "HC2hJt-J"),
    ("continue", "string", "QfD61s0i"),
    ("fieldSelector", "string", "xIcQKXFG"),
    ("labelSelector", "string", "5Zw57w4C"),
    ("limit", "integer", "1NfNmdNH"),
    ("pretty", "string", "tJGM1-ng"),
    ("resourceVersion", "string", "5WAnf1kx"),
    ("resourceVersionMatch", "string", "t8XhRHeC"),
    ("sendInitialEvents", "boolean", "rLXlEK_k"),
    ("shardSelector", "string", "Kgyki_3_"),
    ("timeoutSeconds", "integer", "yvYezaOC"),
    ("watch", "boolean", "XNNPZGbK"),
];
const NAMESPACE: (&str, &str) = ("namespace", "vgWSWtn3");

impl Operation {
    /// Name, type, whether it is part of the path, and the shared name.
    fn parameters(&self) -> Vec<(&'static str, &'static str, bool, Option<String>)> {
        let shared = |name: &str, hash: &str| Some(format!("{name}-{hash}"));
        let mut found = Vec::new();
        let Some((_, _, verb)) = self.resource else {
            return found;
        };
        for (name, kind, hash) in LIST_PARAMETERS {
            if verb == "list" || name == "pretty" {
                found.push((name, kind, false, shared(name, hash)));
            }
        }
        if verb == "get" {
            found.push(("name", "string", true, None));
        }
        if self.namespaced {
            found.push((
                NAMESPACE.0,
                "string",
                true,
                shared(NAMESPACE.0, NAMESPACE.1),
            ));
        }
        found.sort_by_key(|(name, ..)| *name);
        // Those that OpenAPI 2 does not share come first.
        found.sort_by_key(|(_, _, _, shared)| shared.is_some());
        found
    }

    fn types(&self) -> Vec<&'static str> {
        match self.resource {
            Some((_, _, "list")) => TYPES.into_iter().chain(STREAMS).collect(),
            None if self.part == "version" => vec![TYPES[0]],
            _ => TYPES.to_vec(),
        }
    }

    fn kind(&self) -> Option<Value> {
        let (kind, version, _) = self.resource?;
        Some(json!({"group": GROUP, "version": version.name(), "kind": kind.name()}))
    }
}

fn document_v2(operations: &[Operation], announced: Announced) -> Value {
    let mut paths = Map::new();
    for operation in operations {
        let types = operation.types();
        let consumes: Vec<&str> = match operation.resource {
            Some(_) => vec!["*/*"],
            None => types.clone(),
        };
        let mut get = json!({
            "description": operation.description,
            "consumes": consumes,
            "produces": types,
            "schemes": ["https"],
            "tags": [operation.tag],
            "operationId": operation.id,
            "responses": {"200": {
                "description": "OK",
                "schema": {"$ref": format!("{V2}{}", operation.answers_with)},
            }},
        });
        if let (Some((_, _, verb)), Some(kind)) = (operation.resource, operation.kind()) {
            get["x-kubernetes-action"] = verb.into();
            get["x-kubernetes-group-version-kind"] = kind;
        }
        let mut item = json!({"get": get});
        let parameters: Vec<Value> = operation
            .parameters()
            .into_iter()
            .map(|(name, kind, in_path, shared)| match shared {
                Some(shared) => json!({"$ref": format!("#/parameters/{shared}")}),
                None => parameter_v2(name, kind, in_path),
            })
            .collect();
        if !parameters.is_empty() {
            item["parameters"] = parameters.into();
        }
        paths.insert(operation.path.clone(), item);
    }
    let mut shared = Map::new();
    for (name, kind, hash) in LIST_PARAMETERS {
        shared.insert(format!("{name}-{hash}"), parameter_v2(name, kind, false));
    }
    shared.insert(
        format!("{}-{}", NAMESPACE.0, NAMESPACE.1),
        parameter_v2(NAMESPACE.0, "string", true),
    );
    let definitions: Map<String, Value> = schemas(announced)
        .into_iter()
        .map(|(name, schema)| (name, to_v2(schema)))
        .collect();
    json!({
        "swagger": "2.0",
        "info": info(),
        "paths": paths,
        "definitions": definitions,
        "parameters": shared,
    })
}

fn parameter_v2(name: &str, kind: &str, in_path: bool) -> Value {
    let mut parameter = json!({
        "uniqueItems": true,
        "type": kind,
        "name": name,
        "in": if in_path { "path" } else { "query" },
    });
    if in_path {
        parameter["required"] = true.into();
    }
    parameter
}

fn document_v3(operations: &[Operation], part: &str) -> Value {
    let mut paths = Map::new();
    let mut needed = Vec::new();
    let mut announced = Announced::default();
    for operation in operations.iter().filter(|one| one.part == part) {
        needed.push(operation.answers_with.clone());
        announced.v1 |= matches!(operation.resource, Some((_, Version::V1, _)));
        let schema = json!({"schema": {"$ref": format!("{V3}{}", operation.answers_with)}});
        let content: Map<String, Value> = operation
            .types()
            .into_iter()
            .map(|media| (media.to_owned(), schema.clone()))
            .collect();
        let mut get = json!({
            "tags": [operation.tag],
            "description": operation.description,
            "operationId": operation.id,
            "responses": {"200": {"description": "OK", "content": content}},
        });
        if let (Some((_, _, verb)), Some(kind)) = (operation.resource, operation.kind()) {
            get["x-kubernetes-action"] = verb.into();
            get["x-kubernetes-group-version-kind"] = kind;
        }
        let mut item = json!({"get": get});
        let mut parameters = operation.parameters();
        parameters.sort_by_key(|(name, ..)| *name);
        let parameters: Vec<Value> = parameters
            .into_iter()
            .map(|(name, kind, in_path, _)| {
                let mut parameter = json!({
                    "name": name,
                    "in": if in_path { "path" } else { "query" },
                    "schema": {"type": kind, "uniqueItems": true},
                });
                if in_path {
                    parameter["required"] = true.into();
                }
                parameter
            })
            .collect();
        if !parameters.is_empty() {
            item["parameters"] = parameters.into();
        }
        paths.insert(operation.path.clone(), item);
    }
    json!({
        "openapi": "3.0.0",
        "info": info(),
        "paths": paths,
        "components": {"schemas": reachable(&schemas(announced), needed)},
    })
}

fn info() -> Value {
    json!({"title": "Kubernetes metrics-server", "version": super::about::TAG})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::schemas::references;

    /// Of metrics-server 0.9.0: what its documents say of each path, without prose.
    const RECORDED: &str = include_str!("../../../../../tests/cluster/metrics-server/paths.jsonl");

    fn without_descriptions(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, inner| !(key == "description" && inner.is_string()));
                map.values_mut().for_each(without_descriptions);
            }
            Value::Array(list) => list.iter_mut().for_each(without_descriptions),
            _ => {}
        }
    }

    #[test]
    fn paths_consume_and_produce_what_they_do_in_the_original() {
        let openapi = OpenApi::new(Announced::default());
        let mut recorded: Map<String, Value> = Map::new();
        for line in RECORDED.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let document = line["document"].as_str().unwrap().to_owned();
            let path = line["path"].as_str().unwrap();
            recorded.entry(document).or_insert_with(|| json!({}))[path] = line["item"].clone();
        }
        assert_eq!(recorded.len(), 5);
        for (name, expected) in &recorded {
            let published = match name.strip_prefix("/openapi/v3/") {
                Some(part) => openapi.v3(part).unwrap(),
                None => &openapi.v2,
            };
            let mut document: Value = serde_json::from_slice(&published.body).unwrap();
            without_descriptions(&mut document);
            let found = &document["paths"];
            for (path, item) in expected.as_object().unwrap() {
                assert_eq!(found[path], *item, "{name} {path}");
                // What is recorded says so of every path, so this compares something.
                let says = match name.as_str() {
                    "/openapi/v2" => {
                        item["get"]["consumes"].is_array() && item["get"]["produces"].is_array()
                    }
                    _ => item["get"]["responses"]["200"]["content"].is_object(),
                };
                assert!(says, "{name} {path}");
            }
            assert_eq!(
                found.as_object().map(Map::len),
                expected.as_object().map(Map::len)
            );
        }
    }

    #[test]
    fn documents_are_closed() {
        let openapi = OpenApi::new(Announced {
            v1: true,
            past: false,
        });
        let index: Value = serde_json::from_slice(&openapi.index.body).unwrap();
        let parts: Vec<&String> = index["paths"].as_object().unwrap().keys().collect();
        assert_eq!(
            parts,
            [
                "apis",
                "apis/metrics.k8s.io",
                "apis/metrics.k8s.io/v1",
                "apis/metrics.k8s.io/v1beta1",
                "version"
            ]
        );
        for part in parts {
            let document: Value = serde_json::from_slice(&openapi.v3(part).unwrap().body).unwrap();
            let mut named = Vec::new();
            references(&document, &mut named);
            for name in named {
                let schema = &document["components"]["schemas"][&name];
                assert!(schema.is_object(), "{part}: {name}");
            }
        }
    }
}
