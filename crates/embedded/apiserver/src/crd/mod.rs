//! Custom resources: what a CustomResourceDefinition makes the server serve, and how its objects are read, checked
//! and shown. Everything is a pure function of the definition and the objects.

mod bounds;
mod declared;
mod findings;
mod formats;
mod lists;
pub mod names;
pub(crate) mod rules;
pub mod scale;
pub mod schema;
mod shape;
mod validate;
mod version;
mod visible;
pub(crate) mod webhook;

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::discovery::compare_versions;
use crate::field::{FieldError, Path};
use crate::resource::{Resource, Scope, Subresource};
use crate::table;
use crate::table::jsonpath::JsonPath;
pub(crate) use bounds::{bounds, factor, repeated};
pub(crate) use declared::{declared, variables};
use scale::Scale;
use schema::Schema;
pub(crate) use shape::write_whole_numbers_so;
use webhook::Webhook;

/// What a schema has against a value at `path`.
pub fn objections(schema: &Value, value: &Value, path: &Path) -> Vec<FieldError> {
    validate::validate(&Schema::read(schema), value, None, path)
}

/// Whether a value has fields that its schema does not know.
pub fn has_unknown(schema: &Value, value: &Value) -> bool {
    let mut value = serde_json::json!({ "value": value });
    let whole = serde_json::json!({"properties": {"value": schema}});
    !shape::prune(&mut value, &Schema::read(&whole)).is_empty()
}

/// Whether a format says anything about values of a type; of an empty type, about texts.
pub fn knows_format(format: &str, of: &str) -> bool {
    let of = schema::Type::parse(of);
    formats::Format::find(format, of).is_some()
}

/// A definition, ready to serve.
#[derive(Debug)]
pub struct Definition {
    /// `widgets.example.com`.
    pub name: String,
    pub group: String,
    pub kind: String,
    pub list_kind: String,
    /// In the order of the definition; those not served too, for reading what is stored.
    pub versions: Vec<Version>,
    /// Who would convert from one version to another; `None`: the server does.
    pub webhook: Option<Webhook>,
}

#[derive(Debug)]
pub struct Version {
    pub name: String,
    pub served: bool,
    pub storage: bool,
    pub resource: Arc<Resource>,
    /// `openAPIV3Schema` as the definition has it. As text: most are never looked at, and a structure takes ten times as
    /// much memory.
    text: Box<str>,
    /// Made of it when somebody needs it first.
    schema: OnceLock<Schema>,
    fingerprint: OnceLock<Box<[u8]>>,
    /// For the `Warning` header of every request.
    pub deprecation: Option<String>,
    pub has_status: bool,
    pub scale: Option<Scale>,
    /// Fields besides the name and namespace by which lists can be filtered.
    pub selectable: Vec<SelectableField>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SelectableField {
    /// As in a query: `spec.color`.
    pub name: String,
    path: JsonPath,
}

impl SelectableField {
    /// The text that a selector is compared with; empty where there is none.
    pub fn of(&self, object: &Value) -> String {
        match self.path.find(object).ok().as_deref() {
            Some([Value::String(text), ..]) => text.clone(),
            Some([Value::Null, ..] | []) | None => String::new(),
            Some([value, ..]) => value.to_string(),
        }
    }
}

/// The verbs of custom resources, in the order of the original.
const VERBS: [&str; 8] = [
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
];
const VERBS_WHILE_TERMINATING: [&str; 5] = ["delete", "deletecollection", "get", "list", "watch"];

impl Version {
    /// Reading a large one takes tens of milliseconds, so nobody does it before there is an object.
    pub fn schema(&self) -> &Schema {
        self.schema.get_or_init(|| Schema::read(&self.document()))
    }

    /// `openAPIV3Schema` as the definition has it.
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_default()
    }

    /// Changes with everything that is published about the version.
    pub fn fingerprint(&self) -> &[u8] {
        self.fingerprint.get_or_init(|| {
            let mut context = ring::digest::Context::new(&ring::digest::SHA256);
            context.update(format!("{:?}", self.resource).as_bytes());
            for field in &self.selectable {
                context.update(field.name.as_bytes());
                context.update(b"\0");
            }
            context.update(self.text.as_bytes());
            context.finish().as_ref().into()
        })
    }

    #[cfg(test)]
    pub(crate) fn is_read(&self) -> bool {
        self.schema.get().is_some()
    }
}

impl Definition {
    /// From a CustomResourceDefinition that was accepted; names are those its status accepts, if it has any.
    pub fn read(definition: &Value) -> Option<Self> {
        let spec = &definition["spec"];
        let accepted = &definition["status"]["acceptedNames"];
        let names = if accepted["plural"]
            .as_str()
            .is_some_and(|name| !name.is_empty())
        {
            accepted
        } else {
            &spec["names"]
        };
        let kind = names["kind"].as_str()?.to_owned();
        let storage = spec["versions"]
            .as_array()?
            .iter()
            .find(|version| version["storage"] == true)?["name"]
            .as_str()?;
        let shared = Shared {
            group: spec["group"].as_str()?,
            names,
            storage,
            versions: spec["versions"].as_array()?,
            namespaced: spec["scope"] == "Namespaced",
            terminating: names::is_true(definition, "Terminating"),
        };
        Some(Self {
            name: definition["metadata"]["name"].as_str()?.to_owned(),
            group: shared.group.to_owned(),
            list_kind: names["listKind"]
                .as_str()
                .map_or_else(|| format!("{kind}List"), str::to_owned),
            versions: spec["versions"]
                .as_array()?
                .iter()
                .filter_map(|version| shared.version(version, &kind))
                .collect(),
            webhook: Webhook::read(&spec["conversion"]),
            kind,
        })
    }

    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions
            .iter()
            .find(|version| version.name == name && version.served)
    }

    /// What is served, for routing, discovery and tables.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.versions
            .iter()
            .filter(|version| version.served)
            .map(|version| &version.resource)
    }

    fn any_version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }

    /// The version in which objects are kept.
    pub fn storage(&self) -> Option<&Version> {
        self.versions.iter().find(|version| version.storage)
    }

    /// An object of any version as it is to be kept. Answers are made from it ([`Self::present`]), those of dry runs
    /// too.
    pub fn to_storage(&self, mut object: Value) -> Value {
        shape::whole_numbers(&mut object);
        if let Some(storage) = self.storage() {
            self.convert(&mut object, storage);
        }
        object
    }

    /// A kept object as a version shows it: what the definition says now is true of objects written earlier too.
    pub fn present(&self, mut object: Value, version: &Version) -> Value {
        let kept = object["apiVersion"]
            .as_str()
            .and_then(|text| self.any_version(text.rsplit('/').next()?));
        if let Some(kept) = kept {
            shape::prune(&mut object, kept.schema());
            shape::drop_nulls(&mut object, Some(kept.schema()));
            shape::fill_defaults(&mut object, kept.schema());
        }
        self.convert(&mut object, version);
        object
    }

    /// Versions differ in their schemas only: the object says another version, and loses what that does not know.
    fn convert(&self, object: &mut Value, version: &Version) {
        let api_version = format!("{}/{}", self.group, version.name);
        if object["apiVersion"] == *api_version {
            return;
        }
        object["apiVersion"] = api_version.into();
        shape::prune(object, version.schema());
        shape::drop_nulls(object, Some(version.schema()));
    }
}

/// What all versions of a definition have in common.
struct Shared<'a> {
    group: &'a str,
    names: &'a Value,
    storage: &'a str,
    versions: &'a [Value],
    namespaced: bool,
    terminating: bool,
}

impl Shared<'_> {
    /// Names the version to use instead, if there is a newer one.
    fn deprecation(&self, name: &str, kind: &str) -> String {
        let group = self.group;
        let newest = self
            .versions
            .iter()
            .filter(|version| version["served"] == true && version["deprecated"] != true)
            .filter_map(|version| version["name"].as_str())
            .filter(|other| compare_versions(other, name).is_gt())
            .max_by(|a, b| compare_versions(a, b));
        match newest {
            Some(newest) => {
                format!("{group}/{name} {kind} is deprecated; use {group}/{newest} {kind}")
            }
            None => format!("{group}/{name} {kind} is deprecated"),
        }
    }

    fn version(&self, version: &Value, kind: &str) -> Option<Version> {
        let name = version["name"].as_str()?.to_owned();
        let texts = |field: &str| -> Vec<String> {
            let list = self.names[field].as_array();
            list.into_iter()
                .flatten()
                .filter_map(|one| Some(one.as_str()?.to_owned()))
                .collect()
        };
        let has_status = version["subresources"].get("status").is_some();
        let scale = version["subresources"].get("scale").and_then(Scale::read);
        let part_verbs = || ["get", "patch", "update"].map(str::to_owned).to_vec();
        let mut subresources = Vec::new();
        if has_status {
            subresources.push(Subresource("status".into(), kind.into(), part_verbs()));
        }
        if scale.is_some() {
            subresources.push(Subresource("scale".into(), "Scale".into(), part_verbs()));
        }
        let columns = match version["additionalPrinterColumns"].as_array() {
            Some(columns) if !columns.is_empty() => table::custom_columns(columns),
            _ => table::custom_columns(&table::default_custom_columns()),
        };
        let verbs: &[&str] = if self.terminating {
            &VERBS_WHILE_TERMINATING
        } else {
            &VERBS
        };
        let resource = Resource {
            group: self.group.to_owned(),
            version: name.clone(),
            plural: self.names["plural"].as_str()?.to_owned(),
            singular: self.names["singular"]
                .as_str()
                .map_or_else(|| kind.to_lowercase(), str::to_owned),
            kind: kind.to_owned(),
            scope: if self.namespaced {
                Scope::Namespaced
            } else {
                Scope::Cluster
            },
            short_names: texts("shortNames"),
            categories: texts("categories"),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            subresources,
            columns,
            storage_version: Some(self.storage.to_owned()),
        };
        let deprecation = (version["deprecated"] == true).then(|| {
            version["deprecationWarning"]
                .as_str()
                .map_or_else(|| self.deprecation(&name, kind), str::to_owned)
        });
        let selectable = version["selectableFields"].as_array();
        Some(Version {
            served: version["served"] == true,
            storage: version["storage"] == true,
            resource: Arc::new(resource),
            text: match &version["schema"]["openAPIV3Schema"] {
                Value::Null => Box::default(),
                schema => schema.to_string().into(),
            },
            schema: OnceLock::new(),
            fingerprint: OnceLock::new(),
            deprecation,
            has_status,
            scale,
            selectable: selectable
                .into_iter()
                .flatten()
                .filter_map(|field| {
                    let path = field["jsonPath"].as_str()?;
                    Some(SelectableField {
                        name: path.strip_prefix('.').unwrap_or(path).to_owned(),
                        path: JsonPath::parse(path).ok()?,
                    })
                })
                .collect(),
            name,
        })
    }
}

#[cfg(test)]
mod tests;
