//! Schemas of the built-in types, in either version of OpenAPI, from the facts about them.

use std::collections::BTreeSet;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Map, Value, json};

use crate::schema::{Field, ListType, Shape, Struct, Types};

/// The two differ in how they refer to each other and in what they can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    V2,
    V3,
}

pub const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";
const RAW: &str = "io.k8s.apimachinery.pkg.runtime.RawExtension";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
pub const VERSION: &str = "io.k8s.apimachinery.pkg.version.Info";
const EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.";

impl Dialect {
    pub fn reference(self, name: &str) -> Value {
        let place = match self {
            Self::V2 => "#/definitions/",
            Self::V3 => "#/components/schemas/",
        };
        json!({"$ref": format!("{place}{name}")})
    }
}

/// Schemas that were asked for, with all that they refer to.
#[derive(Debug)]
pub struct Schemas {
    dialect: Dialect,
    done: Map<String, Value>,
    open: BTreeSet<String>,
    facts: Facts,
}

impl Schemas {
    pub fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            done: Map::new(),
            open: BTreeSet::new(),
            facts: Facts::read(),
        }
    }

    /// A reference to a type, whose schema is then included.
    pub fn refer(&mut self, name: &str) -> Value {
        if !self.done.contains_key(name) {
            self.open.insert(name.to_owned());
        }
        self.dialect.reference(name)
    }

    /// Includes a schema that is no built-in type's.
    pub fn insert(&mut self, name: String, schema: Value) {
        self.open.remove(&name);
        self.done.insert(name, schema);
    }

    /// All of them, by name.
    pub fn finish(mut self) -> Map<String, Value> {
        while let Some(name) = self.open.pop_first() {
            let schema = match Types::builtin().find(&name) {
                Some(id) => self.structure(Types::builtin().get(id)),
                None => self.simple(&name),
            };
            self.done.insert(name, schema);
        }
        self.done
    }

    /// Types that are no structs.
    fn simple(&self, name: &str) -> Value {
        match name {
            QUANTITY if self.dialect == Dialect::V3 => {
                json!({"oneOf": [{"type": "string"}, {"type": "number"}]})
            }
            QUANTITY => json!({"type": "string"}),
            INT_OR_STRING if self.dialect == Dialect::V3 => {
                json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
            }
            INT_OR_STRING => json!({"type": "string", "format": "int-or-string"}),
            _ if name.ends_with("Time") => json!({"type": "string", "format": "date-time"}),
            _ if name.starts_with(EXTENSIONS) => json!({}),
            VERSION => self.version_info(),
            _ => json!({"type": "object"}),
        }
    }

    /// The answer of `/version`, which is no kind.
    fn version_info(&self) -> Value {
        let required = [
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ];
        let optional = [
            "emulationMajor",
            "emulationMinor",
            "minCompatibilityMajor",
            "minCompatibilityMinor",
        ];
        let properties: Map<String, Value> = required
            .iter()
            .chain(&optional)
            .map(|name| {
                let mut schema = json!({"type": "string"});
                if self.dialect == Dialect::V3 && required.contains(name) {
                    schema["default"] = "".into();
                }
                ((*name).to_owned(), schema)
            })
            .collect();
        json!({"type": "object", "properties": properties, "required": required})
    }

    fn structure(&mut self, kind: &Struct) -> Value {
        let mut properties = Map::new();
        for field in kind.fields.iter().filter(|field| !field.hidden) {
            properties.insert(field.name.to_string(), self.field(kind, field));
        }
        let mut schema = json!({"type": "object"});
        if !properties.is_empty() {
            schema["properties"] = properties.into();
        }
        if let Some(required) = self.facts.required.get(kind.name.as_ref()) {
            schema["required"] = json!(required);
        }
        if kind.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        }
        let unions = self.facts.unions.get(kind.name.as_ref());
        if let Some(unions) = unions.and_then(|text| serde_json::from_str(text).ok()) {
            schema["x-kubernetes-unions"] = unions;
        }
        schema
    }

    fn field(&mut self, owner: &Struct, field: &Field) -> Value {
        let any = any_type(&owner.name, &field.name);
        let mut schema = self.shape(&field.shape, any);
        if let Some(reference) = schema.get("$ref").cloned()
            && !undocumented(&owner.name, &field.name)
        {
            schema = self.decorated(reference);
        }
        if let Some(default) = field
            .default
            .clone()
            .filter(|_| self.dialect == Dialect::V3)
        {
            schema["default"] = default;
        }
        if let Some(format) = &field.format
            && schema
                .get("type")
                .is_some_and(|kind| kind != "array" && kind != "object")
        {
            schema["format"] = format.as_ref().into();
        }
        if !field.allowed.is_empty() {
            let allowed: Vec<&str> = field.allowed.iter().map(AsRef::as_ref).collect();
            // Of a list or map it is the elements that are held to it.
            let place = match &field.shape {
                Shape::List(..) => &mut schema["items"],
                Shape::Map(..) => &mut schema["additionalProperties"],
                _ => &mut schema,
            };
            place["enum"] = allowed.into();
        }
        let strategy: Vec<&str> = [
            ("merge", field.strategy.merge),
            ("retainKeys", field.strategy.retain_keys),
            ("replace", field.strategy.replace),
        ]
        .iter()
        .filter(|(_, on)| *on)
        .map(|(name, _)| *name)
        .collect();
        if !strategy.is_empty() {
            schema["x-kubernetes-patch-strategy"] = strategy.join(",").into();
        }
        if let Some(key) = &field.strategy.key {
            schema["x-kubernetes-patch-merge-key"] = key.as_ref().into();
        }
        let marked = (owner.name.as_ref(), field.name.as_ref());
        match (&field.list, self.facts.atomic_lists.contains(&marked)) {
            (ListType::Set, _) => schema["x-kubernetes-list-type"] = "set".into(),
            (ListType::Map(keys), _) => {
                schema["x-kubernetes-list-type"] = "map".into();
                let keys: Vec<&str> = keys.iter().map(AsRef::as_ref).collect();
                schema["x-kubernetes-list-map-keys"] = keys.into();
            }
            (ListType::Atomic, true) => schema["x-kubernetes-list-type"] = "atomic".into(),
            (ListType::Atomic, false) => {}
        }
        if field.atomic {
            schema["x-kubernetes-map-type"] = "atomic".into();
        } else if self.facts.granular_maps.contains(&marked) {
            schema["x-kubernetes-map-type"] = "granular".into();
        }
        schema
    }

    /// A reference that more is to be said about: OpenAPI 3 ignores what stands beside a plain one.
    fn decorated(&self, reference: Value) -> Value {
        match self.dialect {
            Dialect::V2 => json!({"$ref": reference}),
            Dialect::V3 => json!({"allOf": [{"$ref": reference}]}),
        }
    }

    /// `any` names the type of what may be anything.
    fn shape(&mut self, shape: &Shape, any: &str) -> Value {
        match shape {
            Shape::Text(_) | Shape::Duration => json!({"type": "string"}),
            Shape::Bool => json!({"type": "boolean"}),
            Shape::Int32 => json!({"type": "integer", "format": "int32"}),
            Shape::Int64 => json!({"type": "integer", "format": "int64"}),
            Shape::Float => json!({"type": "number", "format": "double"}),
            Shape::Bytes => json!({"type": "string", "format": "byte"}),
            Shape::Quantity => self.refer(QUANTITY),
            Shape::Time => self.refer(&format!("{META}Time")),
            Shape::MicroTime => self.refer(&format!("{META}MicroTime")),
            Shape::IntOrString => self.refer(INT_OR_STRING),
            Shape::Any => self.refer(any),
            Shape::Struct(id) => {
                let name = &Types::builtin().get(*id).name;
                self.refer(name)
            }
            Shape::List(element, _) => {
                let items = self.element(element, any);
                json!({"type": "array", "items": items})
            }
            Shape::Map(element, _) => {
                let values = self.element(element, any);
                json!({"type": "object", "additionalProperties": values})
            }
        }
    }

    /// Elements cannot be absent, so they have a default: the zero value of Go.
    fn element(&mut self, shape: &Shape, any: &str) -> Value {
        let mut schema = self.shape(shape, any);
        let zero = match shape {
            _ if self.dialect == Dialect::V2 => None,
            Shape::Text(_) => Some("".into()),
            Shape::Bool => Some(false.into()),
            Shape::Int32 | Shape::Int64 | Shape::Float => Some(0.into()),
            Shape::Struct(_) => Some(json!({})),
            _ => None,
        };
        if let Some(zero) = zero {
            if let Some(reference) = schema.get("$ref").cloned() {
                schema = self.decorated(reference);
            }
            schema["default"] = zero;
        }
        schema
    }
}

/// Fields without documentation have nothing beside their reference.
fn undocumented(owner: &str, field: &str) -> bool {
    match owner.rsplit('.').next() {
        Some("IngressRule") => field == "http",
        Some("JSONSchemaProps") => matches!(
            field,
            "additionalItems"
                | "additionalProperties"
                | "example"
                | "externalDocs"
                | "items"
                | "not"
        ),
        _ => false,
    }
}

/// What is behind a field that holds anything.
fn any_type(owner: &str, field: &str) -> &'static str {
    match (owner.rsplit('.').next().unwrap_or_default(), field) {
        ("JSONSchemaProps", "default" | "example" | "enum") => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON"
        }
        ("JSONSchemaProps", "items") => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray"
        }
        ("JSONSchemaProps", "dependencies") => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray"
        }
        ("JSONSchemaProps", _) => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool"
        }
        ("ManagedFieldsEntry", _) => "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        _ => RAW,
    }
}

/// The facts that only the published schemas need: read for a document, and forgotten with it.
#[derive(Debug, Default)]
struct Facts {
    unions: FxHashMap<&'static str, &'static str>,
    /// Lists that say that they are atomic, rather than saying nothing.
    atomic_lists: FxHashSet<(&'static str, &'static str)>,
    /// Maps that say that they are not.
    granular_maps: FxHashSet<(&'static str, &'static str)>,
    /// In the order of declaration.
    required: FxHashMap<&'static str, Vec<&'static str>>,
}

impl Facts {
    fn read() -> Self {
        let mut facts = Self::default();
        let mut kind = "";
        for line in include_str!("../../data/types.txt").lines() {
            let mut parts = line.trim_start_matches('\t').split('\t');
            let name = parts.next().unwrap_or_default();
            if line.starts_with('\t') {
                for mark in parts {
                    match mark {
                        "list=atomic" => {
                            facts.atomic_lists.insert((kind, name));
                        }
                        "map=granular" => {
                            facts.granular_maps.insert((kind, name));
                        }
                        "required" => facts.required.entry(kind).or_default().push(name),
                        _ => {}
                    }
                }
            } else {
                kind = name;
                if let Some(unions) = parts.find_map(|mark| mark.strip_prefix("unions=")) {
                    facts.unions.insert(kind, unions);
                }
            }
        }
        facts
    }
}
