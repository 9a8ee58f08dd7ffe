//! What the server publishes about its API: OpenAPI 3, a document for each group and version, and OpenAPI 2, one for
//! all. `kubectl explain`, `apply` and client generators read it.
//!
//! Documents are large and rarely asked for, so each is made when it is first wanted and then kept compressed.

mod custom;
mod descriptions;
mod operations;
mod parameters;
mod paths;
mod render;
mod schemas;

use std::io::{Read, Write};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use parking_lot::Mutex;
use plimsoll_apimachinery::fingerprint::hex;
use plimsoll_apimachinery::openapi::v2_to_protobuf;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value, json};

use crate::crd::{Definition, Version};
use crate::resource::{Resource, builtin};
use crate::schema::Types;
use paths::{Answer, Item, Media};
use schemas::{Dialect, META, Schemas};

/// A document, compressed.
#[derive(Debug, PartialEq, Eq)]
pub struct Packed {
    pub gzip: Vec<u8>,
    /// Without quotes; also the hash in the index's addresses.
    pub hash: String,
}

impl Packed {
    fn new(document: &Value, hash: String) -> Self {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        // Memory takes whatever is written.
        let _ = encoder.write_all(document.to_string().as_bytes());
        Self {
            gzip: encoder.finish().unwrap_or_default(),
            hash,
        }
    }

    /// For clients that do not take it compressed.
    pub fn plain(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let _ = GzDecoder::new(self.gzip.as_slice()).read_to_end(&mut out);
        out
    }
}

/// The documents that were asked for so far.
#[derive(Debug, Default)]
pub struct OpenApi {
    /// By path, `v2` for that one; made anew when the hash is another.
    made: Mutex<FxHashMap<String, Arc<Packed>>>,
}

/// What is described: the built-in resources always, and the definitions that are served now.
pub type Definitions<'a> = &'a [Arc<Definition>];

impl OpenApi {
    /// `GET /openapi/v3`.
    pub fn index(&self, definitions: Definitions<'_>) -> Value {
        let mut index = Map::new();
        for path in static_paths().into_iter().chain(custom_paths(definitions)) {
            let hash = hash_of(&path, definitions);
            let url = format!("/openapi/v3/{path}?hash={hash}");
            index.insert(path, json!({"serverRelativeURL": url}));
        }
        json!({"paths": index})
    }

    /// `GET /openapi/v3/{path}`, the path as in the index: `api/v1`, `apis/apps/v1`.
    pub fn v3(&self, path: &str, definitions: Definitions<'_>) -> Option<Arc<Packed>> {
        let known = static_paths().iter().any(|one| one == path)
            || custom_paths(definitions).any(|one| one == path);
        known.then(|| self.made(path, definitions, || document_v3(path, definitions)))
    }

    /// `GET /openapi/v2`.
    pub fn v2(&self, definitions: Definitions<'_>) -> Arc<Packed> {
        self.made("v2", definitions, || document_v2(definitions))
    }

    /// The same in protobuf, not compressed: it is asked for once in a while.
    pub fn v2_protobuf(&self, definitions: Definitions<'_>) -> Vec<u8> {
        let document = serde_json::from_slice(&self.v2(definitions).plain()).unwrap_or_default();
        v2_to_protobuf(&document)
    }

    /// Forgets the documents about what is no longer served.
    pub fn keep(&self, definitions: Definitions<'_>) {
        let mut made = self.made.lock();
        let mut known: FxHashSet<String> = static_paths().into_iter().collect();
        known.extend(custom_paths(definitions));
        made.retain(|path, _| path == "v2" || known.contains(path));
    }

    #[cfg(test)]
    pub(crate) fn has(&self, path: &str) -> bool {
        self.made.lock().contains_key(path)
    }

    fn made(
        &self,
        path: &str,
        definitions: Definitions<'_>,
        make: impl FnOnce() -> Value,
    ) -> Arc<Packed> {
        let hash = hash_of(path, definitions);
        if let Some(packed) = self.made.lock().get(path).filter(|made| made.hash == hash) {
            return packed.clone();
        }
        let packed = Arc::new(Packed::new(&make(), hash));
        self.made.lock().insert(path.to_owned(), packed.clone());
        packed
    }
}

/// The documents about what is built in.
fn static_paths() -> Vec<String> {
    let mut paths: Vec<String> = ["api", "apis", "version"].map(str::to_owned).to_vec();
    for resource in builtin() {
        let of_version = if resource.group.is_empty() {
            format!("api/{}", resource.version)
        } else {
            paths.push(format!("apis/{}", resource.group));
            format!("apis/{}/{}", resource.group, resource.version)
        };
        paths.push(of_version);
    }
    paths.sort();
    paths.dedup();
    paths
}

fn custom_paths(definitions: Definitions<'_>) -> impl Iterator<Item = String> {
    definitions.iter().flat_map(|definition| {
        definition
            .resources()
            .map(|resource| format!("apis/{}/{}", resource.group, resource.version))
            .collect::<Vec<String>>()
    })
}

/// Changes whenever the document does, and is known without making it.
fn hash_of(path: &str, definitions: Definitions<'_>) -> String {
    let mut context = ring::digest::Context::new(&ring::digest::SHA512);
    context.update(env!("CARGO_PKG_VERSION").as_bytes());
    context.update(path.as_bytes());
    let own = path
        .strip_prefix("apis/")
        .and_then(|path| path.split_once('/'));
    for (definition, version) in served(definitions) {
        if path == "v2" || own == Some((&definition.group, &version.name)) {
            context.update(version.fingerprint());
        }
    }
    hex(context.finish().as_ref())
}

fn served<'a>(definitions: Definitions<'a>) -> impl Iterator<Item = (&'a Definition, &'a Version)> {
    definitions.iter().flat_map(|definition| {
        let versions = definition.versions.iter();
        versions
            .filter(|version| version.served)
            .map(move |version| (definition.as_ref(), version))
    })
}

fn document_v3(path: &str, definitions: Definitions<'_>) -> Value {
    let mut schemas = Schemas::new(Dialect::V3);
    let (items, gv) = items_of(path, definitions);
    let custom = !builtin().iter().any(|one| {
        gv.as_ref()
            .is_none_or(|(group, version)| one.group == *group && one.version == *version)
    });
    for (definition, version) in served(definitions) {
        if gv.as_ref() == Some(&(definition.group.clone(), version.name.clone())) {
            custom::insert(&mut schemas, Dialect::V3, definition, version);
        }
    }
    let paths = render::paths(&items, Dialect::V3, &mut schemas);
    let mut schemas = schemas.finish();
    let kinds: Vec<(String, String)> = gv.into_iter().collect();
    name_kinds(&mut schemas, &kinds);
    descriptions::add(&mut schemas);
    let mut document = json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "paths": paths,
        "components": {"schemas": schemas},
    });
    if custom {
        document["info"] = json!({"title": "Kubernetes CRD Swagger", "version": "v0.1.0"});
    } else {
        document["components"]["securitySchemes"] = security();
    }
    document
}

fn security() -> Value {
    json!({"BearerToken": {
        "type": "apiKey",
        "description": "Bearer Token authentication",
        "name": "authorization",
        "in": "header",
    }})
}

/// The operations that a document of OpenAPI 3 is about, and the group and version, if it is of one.
fn items_of(path: &str, definitions: Definitions<'_>) -> (Vec<Item>, Option<(String, String)>) {
    let parts: Vec<&str> = path.split('/').collect();
    let (group, version) = match parts.as_slice() {
        ["api"] => {
            let id = "getCoreAPIVersions".to_owned();
            return (
                vec![paths::discovery("/api/".into(), id, "core", "APIVersions")],
                None,
            );
        }
        ["apis"] => {
            let id = "getAPIVersions".to_owned();
            return (
                vec![paths::discovery(
                    "/apis/".into(),
                    id,
                    "apis",
                    "APIGroupList",
                )],
                None,
            );
        }
        ["version"] => return (vec![version_item()], None),
        ["apis", group] => {
            let id = format!("get{}APIGroup", paths::group_title(group));
            let tag = paths::tag(group, None);
            let item = paths::discovery(format!("/apis/{group}/"), id, &tag, "APIGroup");
            return (vec![item], None);
        }
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return (Vec::new(), None),
    };
    let customs: Vec<&Resource> = definitions
        .iter()
        .flat_map(|definition| definition.resources())
        .map(AsRef::as_ref)
        .collect();
    let resources: Vec<&Resource> = builtin()
        .iter()
        .map(AsRef::as_ref)
        .chain(customs)
        .filter(|one| one.group == group && one.version == version)
        .collect();
    let items = paths::of_version(group, version, &resources);
    (items, Some((group.to_owned(), version.to_owned())))
}

fn version_item() -> Item {
    let mut item = paths::discovery("/version/".into(), "getCodeVersion".into(), "version", "");
    for operation in &mut item.operations {
        operation.answer = Answer::Of(schemas::VERSION.into());
        operation.media = Media::Json;
    }
    item
}

fn document_v2(definitions: Definitions<'_>) -> Value {
    let mut schemas = Schemas::new(Dialect::V2);
    let mut items = Vec::new();
    let mut kinds = Vec::new();
    let custom: Vec<String> = custom_paths(definitions).collect();
    let mut all = static_paths();
    all.extend(custom);
    all.sort();
    all.dedup();
    for path in all {
        let (of_path, gv) = items_of(&path, definitions);
        items.extend(of_path);
        kinds.extend(gv);
    }
    for (definition, version) in served(definitions) {
        custom::insert(&mut schemas, Dialect::V2, definition, version);
    }
    let paths = render::paths(&items, Dialect::V2, &mut schemas);
    let parameters = render::shared_parameters(&items, &mut schemas);
    let mut definitions = schemas.finish();
    name_kinds(&mut definitions, &kinds);
    descriptions::add(&mut definitions);
    json!({
        "swagger": "2.0",
        "info": {"title": "Kubernetes", "version": "1.36"},
        "paths": paths,
        "definitions": definitions,
        "parameters": parameters,
        "securityDefinitions": security(),
        "security": [{"BearerToken": []}],
    })
}

/// Says of the schemas of kinds which kind they are. Options and events are of every group and version in `kinds`.
fn name_kinds(schemas: &mut Map<String, Value>, kinds: &[(String, String)]) {
    for (name, schema) in schemas.iter_mut() {
        let Some((package, kind)) = name.rsplit_once('.') else {
            continue;
        };
        let named =
            |group: &str, version: &str| json!({"group": group, "version": version, "kind": kind});
        let list = if package == META.trim_end_matches('.') {
            match kind {
                "APIGroup" | "APIGroupList" | "APIResourceList" | "APIVersions" | "Status" => {
                    vec![named("", "v1")]
                }
                "DeleteOptions" | "WatchEvent" => {
                    let mut list = vec![named("", "v1")];
                    let others = kinds.iter().filter(|(group, _)| !group.is_empty());
                    list.extend(others.map(|(group, version)| named(group, version)));
                    list
                }
                _ => continue,
            }
        } else if is_kind(name)
            && let Some((group, version)) = group_of(package)
        {
            vec![named(group, version)]
        } else {
            continue;
        };
        schema["x-kubernetes-group-version-kind"] = list.into();
    }
}

/// Whether a built-in type is a kind rather than a part of one.
fn is_kind(name: &str) -> bool {
    let types = Types::builtin();
    types.find(name).is_some_and(|id| {
        let kind = types.get(id);
        ["apiVersion", "kind", "metadata"]
            .iter()
            .all(|field| kind.field(field).is_some())
    })
}

/// The group and version of a Go package, by the resources in it.
fn group_of(package: &str) -> Option<(&'static str, &'static str)> {
    builtin().iter().find_map(|resource| {
        let id = resource.type_id()?;
        let name = &Types::builtin().get(id).name;
        let own = name.rsplit_once('.')?.0;
        (own == package).then_some((resource.group.as_str(), resource.version.as_str()))
    })
}

#[cfg(test)]
mod tests;
