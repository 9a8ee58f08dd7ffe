//! The operations of resources, as data: what both versions of OpenAPI are written from.

use super::schemas::META;
use crate::resource::{Resource, Subresource, builtin_type};
use crate::schema::Types;

/// A path and what can be done with it.
#[derive(Debug)]
pub struct Item {
    pub path: String,
    pub operations: Vec<Operation>,
}

#[derive(Debug)]
pub struct Operation {
    pub method: &'static str,
    pub id: String,
    pub tag: String,
    pub words: String,
    pub action: Option<&'static str>,
    /// Group, version, kind.
    pub kind: Option<(String, String, String)>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    pub answers: Vec<u16>,
    pub answer: Answer,
    pub media: Media,
}

#[derive(Debug)]
pub struct Body {
    pub schema: String,
    pub required: bool,
    pub patch: bool,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Of(String),
    Text,
}

/// In which forms requests and answers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// JSON, YAML, protobuf.
    Standard,
    /// Those, and streams of the watch.
    Streaming,
    /// Those, and plain text.
    Log,
    /// As the other side has it.
    Any,
    /// JSON and YAML.
    Custom,
    /// Discovery: what may be sent is said too.
    Discovery,
    Json,
}

/// Name, type, and whether it is part of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    pub name: &'static str,
    pub kind: &'static str,
    pub in_path: bool,
    /// Those of the same name that differ in what they mean.
    pub variant: &'static str,
}

const fn query(name: &'static str, kind: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        in_path: false,
        variant: "",
    }
}

const fn variant(name: &'static str, kind: &'static str, variant: &'static str) -> Parameter {
    Parameter {
        name,
        kind,
        in_path: false,
        variant,
    }
}

const fn in_path(name: &'static str) -> Parameter {
    Parameter {
        name,
        kind: "string",
        in_path: true,
        variant: "",
    }
}

const PRETTY: Parameter = query("pretty", "string");
const LIST: [Parameter; 11] = [
    query("allowWatchBookmarks", "boolean"),
    query("continue", "string"),
    query("fieldSelector", "string"),
    query("labelSelector", "string"),
    query("limit", "integer"),
    query("resourceVersion", "string"),
    query("resourceVersionMatch", "string"),
    query("sendInitialEvents", "boolean"),
    query("shardSelector", "string"),
    query("timeoutSeconds", "integer"),
    query("watch", "boolean"),
];
const WRITE: [Parameter; 3] = [
    query("dryRun", "string"),
    query("fieldManager", "string"),
    query("fieldValidation", "string"),
];
const PATCH: [Parameter; 4] = [
    query("dryRun", "string"),
    variant("fieldManager", "string", "patch"),
    query("fieldValidation", "string"),
    query("force", "boolean"),
];
const DELETE: [Parameter; 5] = [
    query("dryRun", "string"),
    query("gracePeriodSeconds", "integer"),
    query(
        "ignoreStoreReadErrorWithClusterBreakingPotential",
        "boolean",
    ),
    query("orphanDependents", "boolean"),
    query("propagationPolicy", "string"),
];
const LOG: [Parameter; 10] = [
    variant("container", "string", "log"),
    query("follow", "boolean"),
    query("insecureSkipTLSVerifyBackend", "boolean"),
    query("limitBytes", "integer"),
    query("previous", "boolean"),
    query("sinceSeconds", "integer"),
    query("stream", "string"),
    query("tailLines", "integer"),
    query("timestamps", "boolean"),
    PRETTY,
];
const EXEC: [Parameter; 6] = [
    query("command", "string"),
    variant("container", "string", "exec"),
    variant("stderr", "boolean", "exec"),
    variant("stdin", "boolean", "exec"),
    variant("stdout", "boolean", "exec"),
    variant("tty", "boolean", "exec"),
];
const ATTACH: [Parameter; 5] = [
    variant("container", "string", "attach"),
    variant("stderr", "boolean", "attach"),
    variant("stdin", "boolean", "attach"),
    variant("stdout", "boolean", "attach"),
    variant("tty", "boolean", "attach"),
];

/// `rbac.authorization.k8s.io` as `RbacAuthorization`.
pub fn group_title(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    group.split('.').map(title).collect()
}

pub fn tag(group: &str, version: Option<&str>) -> String {
    let mut title = group_title(group);
    title[..1].make_ascii_lowercase();
    match version {
        Some(version) => format!("{title}_{version}"),
        None => title,
    }
}

fn title(word: &str) -> String {
    // What an identifier cannot hold begins a word.
    word.split('-')
        .map(|part| {
            let mut part = part.to_owned();
            if let Some(first) = part.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            part
        })
        .collect()
}

/// All paths of a group and version, by the resources it has.
pub fn of_version(group: &str, version: &str, resources: &[&Resource]) -> Vec<Item> {
    let mut items = Vec::new();
    for resource in resources {
        Writer { resource }.items(&mut items);
    }
    // Custom groups have no operation for discovery.
    if !resources.iter().any(|resource| resource.is_custom()) {
        let id = format!("get{}{}APIResources", group_title(group), title(version));
        items.push(discovery(
            format!("{}/", base(group, version)),
            id,
            &tag(group, Some(version)),
            "APIResourceList",
        ));
    }
    items.sort_by(|a, b| a.path.cmp(&b.path));
    items
}

/// Discovery of a group, of all groups, of the core versions.
pub fn discovery(path: String, id: String, tag: &str, kind: &str) -> Item {
    let operation = Operation {
        method: "get",
        id,
        tag: tag.to_owned(),
        words: "what there is".to_owned(),
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        answers: vec![200],
        answer: Answer::Of(format!("{META}{kind}")),
        media: Media::Discovery,
    };
    Item {
        path,
        operations: vec![operation],
    }
}

fn base(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

/// The name of a kind's schema.
pub fn schema_name(group: &str, version: &str, kind: &str) -> String {
    if let Some(id) = builtin_type(group, version, kind) {
        return Types::builtin().get(id).name.to_string();
    }
    // As Go packages are written: the domain backwards.
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}

struct Writer<'a> {
    resource: &'a Resource,
}

impl Writer<'_> {
    fn schema(&self) -> String {
        let Resource {
            group,
            version,
            kind,
            ..
        } = self.resource;
        schema_name(group, version, kind)
    }

    fn is_custom(&self) -> bool {
        self.resource.is_custom()
    }

    fn items(&self, items: &mut Vec<Item>) {
        let Resource {
            group,
            version,
            plural,
            ..
        } = self.resource;
        let base = base(group, version);
        let namespaced = self.resource.namespaced();
        let collection = if namespaced {
            format!("{base}/namespaces/{{namespace}}/{plural}")
        } else {
            format!("{base}/{plural}")
        };
        let named = format!("{collection}/{{name}}");
        let has = |verb: &str| self.resource.has_verb(verb);
        let mut on_collection = Vec::new();
        if has("list") {
            on_collection.push(self.list("Namespaced", ""));
        }
        if has("create") {
            on_collection.push(self.write("post", "create", "", &self.schema(), false));
        }
        if has("deletecollection") {
            on_collection.push(self.delete_collection());
        }
        self.push(items, collection, on_collection);
        let mut on_one = Vec::new();
        if has("get") {
            on_one.push(self.read("", &self.schema(), None));
        }
        if has("update") {
            on_one.push(self.write("put", "replace", "", &self.schema(), true));
        }
        if has("patch") {
            on_one.push(self.patch("", &self.schema(), None));
        }
        if has("delete") {
            on_one.push(self.delete());
        }
        self.push(items, named.clone(), on_one);
        if namespaced && has("list") {
            let all = vec![self.list("", "ForAllNamespaces")];
            self.push(items, format!("{base}/{plural}"), all);
        }
        if has("watch") && !self.is_custom() {
            let watched = |path: &str| path.replacen(&base, &format!("{base}/watch"), 1);
            let one = vec![self.watch("watch", "Namespaced", "")];
            self.push(items, watched(&named), one);
            let list = vec![self.watch("watchlist", "Namespaced", "List")];
            let path = watched(named.trim_end_matches("/{name}"));
            self.push(items, path, list);
            if namespaced {
                let all = vec![self.watch("watchlist", "", "ListForAllNamespaces")];
                self.push(items, format!("{base}/watch/{plural}"), all);
            }
        }
        for subresource in &self.resource.subresources {
            self.subresource(items, &named, subresource);
        }
    }

    fn push(&self, items: &mut Vec<Item>, path: String, mut operations: Vec<Operation>) {
        if operations.is_empty() {
            return;
        }
        for operation in &mut operations {
            let connects = operation.action == Some("connect");
            let mut common = Vec::new();
            for name in ["name", "namespace", "path"] {
                if path.contains(&format!("{{{name}}}")) {
                    common.push(in_path(name));
                }
            }
            if !connects && !operation.parameters.contains(&PRETTY) {
                common.push(PRETTY);
            }
            operation.parameters.extend(common);
            operation
                .parameters
                .sort_by_key(|one| (one.name, !one.in_path));
        }
        items.push(Item { path, operations });
    }

    fn id(&self, verb: &str, scope: &str, suffix: &str) -> String {
        let scope = if self.resource.namespaced() {
            scope
        } else {
            ""
        };
        format!(
            "{verb}{}{}{scope}{}{suffix}",
            group_title(&self.resource.group),
            title(&self.resource.version),
            self.resource.kind
        )
    }

    fn operation(&self, method: &'static str, id: String, action: &'static str) -> Operation {
        let resource = self.resource;
        Operation {
            method,
            id,
            tag: tag(&resource.group, Some(&resource.version)),
            words: format!("{action} of {}", resource.kind),
            action: Some(action),
            kind: Some((
                resource.group.clone(),
                resource.version.clone(),
                resource.kind.clone(),
            )),
            parameters: Vec::new(),
            body: None,
            answers: vec![200],
            answer: Answer::Of(self.schema()),
            media: if self.is_custom() {
                Media::Custom
            } else {
                Media::Standard
            },
        }
    }

    fn list(&self, scope: &str, suffix: &str) -> Operation {
        let mut operation = self.operation("get", self.id("list", scope, suffix), "list");
        operation.parameters = LIST.to_vec();
        operation.answer = Answer::Of(format!("{}List", self.schema()));
        if !self.is_custom() {
            operation.media = Media::Streaming;
        }
        operation
    }

    fn watch(&self, action: &'static str, scope: &str, suffix: &str) -> Operation {
        let mut operation = self.operation("get", self.id("watch", scope, suffix), action);
        operation.parameters = LIST.to_vec();
        operation.answer = Answer::Of(format!("{META}WatchEvent"));
        operation.media = Media::Streaming;
        operation
    }

    fn read(&self, suffix: &str, schema: &str, kind: Option<(&str, &str, &str)>) -> Operation {
        let mut operation = self.operation("get", self.id("read", "Namespaced", suffix), "get");
        operation.answer = Answer::Of(schema.to_owned());
        if self.is_custom() {
            operation.parameters = vec![query("resourceVersion", "string")];
        }
        self.of_kind(operation, kind)
    }

    fn of_kind(&self, mut operation: Operation, kind: Option<(&str, &str, &str)>) -> Operation {
        // Custom resources say their own kind even of a Scale.
        if let Some((group, version, kind)) = kind.filter(|_| !self.is_custom()) {
            operation.kind = Some((group.to_owned(), version.to_owned(), kind.to_owned()));
        }
        operation
    }

    fn write(
        &self,
        method: &'static str,
        verb: &str,
        suffix: &str,
        schema: &str,
        replaces: bool,
    ) -> Operation {
        let mut operation = self.operation(method, self.id(verb, "Namespaced", suffix), method);
        operation.parameters = WRITE.to_vec();
        operation.body = Some(Body {
            schema: schema.to_owned(),
            required: true,
            patch: false,
        });
        operation.answers = if replaces {
            vec![200, 201]
        } else {
            vec![200, 201, 202]
        };
        operation.answer = Answer::Of(schema.to_owned());
        operation
    }

    fn patch(&self, suffix: &str, schema: &str, kind: Option<(&str, &str, &str)>) -> Operation {
        let mut operation =
            self.operation("patch", self.id("patch", "Namespaced", suffix), "patch");
        operation.parameters = PATCH.to_vec();
        operation.body = Some(Body {
            schema: format!("{META}Patch"),
            required: true,
            patch: true,
        });
        operation.answers = if self.is_custom() {
            vec![200]
        } else {
            vec![200, 201]
        };
        operation.answer = Answer::Of(schema.to_owned());
        self.of_kind(operation, kind)
    }

    fn delete(&self) -> Operation {
        let id = self.id("delete", "Namespaced", "");
        let mut operation = self.operation("delete", id, "delete");
        operation.parameters = DELETE.to_vec();
        operation.body = Some(options());
        operation.answers = vec![200, 202];
        if !self.returns_deleted() {
            operation.answer = Answer::Of(format!("{META}Status"));
        }
        operation
    }

    /// Whether a deletion answers with the object.
    fn returns_deleted(&self) -> bool {
        self.resource.group == "resource.k8s.io"
            || (!self.is_custom()
                && matches!(
                    self.resource.plural.as_str(),
                    "csidrivers"
                        | "csinodes"
                        | "persistentvolumeclaims"
                        | "persistentvolumes"
                        | "pods"
                        | "podtemplates"
                        | "resourcequotas"
                        | "serviceaccounts"
                        | "services"
                        | "storageclasses"
                        | "volumeattachments"
                        | "volumeattributesclasses"
                ))
    }

    fn delete_collection(&self) -> Operation {
        let id = self.id("delete", "CollectionNamespaced", "");
        let id = if self.resource.namespaced() {
            id
        } else {
            id.replacen(
                &self.resource.kind,
                &format!("Collection{}", self.resource.kind),
                1,
            )
        };
        let mut operation = self.operation("delete", id, "deletecollection");
        operation.answer = Answer::Of(format!("{META}Status"));
        if self.is_custom() {
            operation.parameters = LIST.to_vec();
        } else {
            let not_here = ["allowWatchBookmarks", "watch"];
            operation.parameters = LIST
                .iter()
                .filter(|one| !not_here.contains(&one.name))
                .chain(&DELETE)
                .copied()
                .collect();
            operation.body = Some(options());
        }
        operation
    }

    fn subresource(&self, items: &mut Vec<Item>, named: &str, subresource: &Subresource) {
        let Subresource(name, kind, verbs) = subresource;
        let path = format!("{named}/{name}");
        let suffix = title(name);
        let (group, version) = match kind.as_str() {
            "Scale" => ("autoscaling", "v1"),
            "Eviction" => ("policy", "v1"),
            "TokenRequest" => ("authentication.k8s.io", "v1"),
            _ => (self.resource.group.as_str(), self.resource.version.as_str()),
        };
        let of = Some((group, version, kind.as_str()));
        match name.as_str() {
            "log" => {
                let mut operation = self.read(&suffix, "", None);
                operation.parameters = LOG.to_vec();
                operation.answer = Answer::Text;
                operation.media = Media::Log;
                self.push(items, path, vec![operation]);
            }
            "exec" | "attach" | "portforward" | "proxy" => {
                self.connect(items, path, &suffix, of);
            }
            _ => {
                let schema = schema_name(group, version, kind);
                let mut operations = Vec::new();
                for verb in verbs {
                    operations.push(match verb.as_str() {
                        "get" => self.read(&suffix, &schema, of),
                        "update" => {
                            let operation = self.write("put", "replace", &suffix, &schema, true);
                            self.of_kind(operation, of)
                        }
                        "patch" => self.patch(&suffix, &schema, of),
                        _ => {
                            let operation = self.write("post", "create", &suffix, &schema, false);
                            self.of_kind(operation, of)
                        }
                    });
                }
                self.push(items, path, operations);
            }
        }
    }

    /// Subresources that hand the connection on.
    fn connect(
        &self,
        items: &mut Vec<Item>,
        path: String,
        suffix: &str,
        kind: Option<(&str, &str, &str)>,
    ) {
        let parameters: &[Parameter] = match suffix {
            "Exec" => &EXEC,
            "Attach" => &ATTACH,
            "Portforward" => &[query("ports", "integer")],
            _ => match self.resource.kind.as_str() {
                "Pod" => &[variant("path", "string", "pod")],
                "Service" => &[variant("path", "string", "service")],
                _ => &[variant("path", "string", "node")],
            },
        };
        let all = suffix == "Proxy";
        let methods: &[&'static str] = if all {
            &["get", "put", "post", "delete", "options", "head", "patch"]
        } else {
            &["get", "post"]
        };
        let operations = |with_path: &str| -> Vec<Operation> {
            methods
                .iter()
                .map(|method| {
                    let id = self.id("connect", "Namespaced", &format!("{suffix}{with_path}"));
                    let prefix = format!(
                        "connect{}{}",
                        group_title(&self.resource.group),
                        title(&self.resource.version)
                    );
                    let id = id.replacen(&prefix, &format!("{prefix}{}", title(method)), 1);
                    let mut operation = self.operation(method, id, "connect");
                    operation.parameters = parameters.to_vec();
                    operation.answer = Answer::Text;
                    operation.media = Media::Any;
                    self.of_kind(operation, kind)
                })
                .collect()
        };
        let with_path = format!("{path}/{{path}}");
        self.push(items, path, operations(""));
        if all {
            self.push(items, with_path, operations("WithPath"));
        }
    }
}

fn options() -> Body {
    Body {
        schema: format!("{META}DeleteOptions"),
        required: false,
        patch: false,
    }
}
