//! The operations of one resource and its subresources.

use super::parameters::{
    ATTACH, DELETE, EXEC, LIST, LOG, PATCH, PRETTY, Parameter, WRITE, in_path, query, variant,
};
use super::paths::{
    Answer, Body, Item, Media, Operation, base, group_title, schema_name, tag, title,
};
use super::schemas::META;
use crate::resource::{Resource, Subresource};

pub struct Writer<'a> {
    pub resource: &'a Resource,
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

    pub fn items(&self, items: &mut Vec<Item>) {
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
