//! The facts about every built-in type, loaded from `data/types.txt` (which `cargo xtask facts` writes): fields, their
//! shapes, which are always written, how lists and maps merge. A custom resource's schema becomes a table of the same
//! form, so that patching and field tracking have one way of looking at both.

use std::sync::OnceLock;

use rustc_hash::FxHashMap;
use serde_json::Value;

/// A table of struct types that refer to each other by [`TypeId`].
#[derive(Debug, Default)]
pub struct Types {
    structs: Vec<Struct>,
    by_name: FxHashMap<Box<str>, TypeId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TypeId(u32);

/// An object with known fields.
#[derive(Debug, Clone)]
pub struct Struct {
    /// As in OpenAPI: `io.k8s.api.core.v1.Container`.
    pub name: Box<str>,
    /// As in the decoder's complaints: `v1.Container`. Empty for what is not built in.
    pub go_name: Box<str>,
    /// Owned and replaced as a whole in server-side apply.
    pub atomic: bool,
    /// Sorted by name.
    pub fields: Vec<Field>,
    /// What values of further fields look like: only custom resources have such.
    pub rest: Option<Shape>,
}

#[derive(Debug, Clone)]
pub struct Field {
    pub name: Box<str>,
    /// Among its siblings in Go, which writes fields in that order.
    pub position: usize,
    pub shape: Shape,
    /// In protobuf messages: its number, after those of the messages that it is inlined from.
    pub numbers: Vec<u32>,
    pub omit: Omit,
    /// A pointer in Go: a zero value is something else than an absent one.
    pub pointer: bool,
    pub strategy: Strategy,
    /// How a list merges in server-side apply.
    pub list: ListType,
    /// A map or struct that is owned as a whole in server-side apply.
    pub atomic: bool,
    /// A struct that is not owned as a whole here, though its type says so.
    pub granular: bool,
    pub required: bool,
    /// Not part of the published schema.
    pub hidden: bool,
    pub default: Option<Value>,
    pub format: Option<Box<str>>,
    pub allowed: Vec<Box<str>>,
}

/// When Go leaves a field out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Omit {
    Never,
    /// Zero scalars, empty lists and maps, absent pointers; never a struct.
    Empty,
    /// As `Empty`, and structs that are all zero.
    Zero,
}

/// How a strategic merge patch treats the field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Strategy {
    /// Lists merge element by element rather than being replaced.
    pub merge: bool,
    /// `$retainKeys` is honoured.
    pub retain_keys: bool,
    /// Maps and structs are replaced rather than merged.
    pub replace: bool,
    /// The field that identifies an element; `None` for lists of scalars.
    pub key: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<Box<str>>),
}

/// The form of one value.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// With the name of its Go type, where that is not plain `string`.
    Text(Option<Box<str>>),
    Bool,
    Int32,
    Int64,
    Float,
    Bytes,
    Quantity,
    Time,
    MicroTime,
    Duration,
    IntOrString,
    /// Any JSON, kept as it is.
    Any,
    List(Box<Shape>, GoName),
    Map(Box<Shape>, GoName),
    Struct(TypeId),
}

/// The name of a list or map type that has one in Go (`v1.ResourceList`).
pub type GoName = Option<Box<str>>;

impl Types {
    /// The built-in types.
    pub fn builtin() -> &'static Self {
        static BUILTIN: OnceLock<Types> = OnceLock::new();
        BUILTIN.get_or_init(|| Self::parse(include_str!("../data/types.txt")))
    }

    pub fn find(&self, name: &str) -> Option<TypeId> {
        self.by_name.get(name).copied()
    }

    pub fn get(&self, id: TypeId) -> &Struct {
        &self.structs[id.0 as usize]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Struct> {
        self.structs.iter()
    }

    /// Adds a type; for schemas that are not built in.
    pub fn add(&mut self, mut new: Struct) -> TypeId {
        new.fields.sort_by(|a, b| a.name.cmp(&b.name));
        let id = TypeId(self.structs.len() as u32);
        self.by_name.insert(new.name.clone(), id);
        self.structs.push(new);
        id
    }

    fn parse(text: &str) -> Self {
        let mut types = Self::default();
        // Types refer to later ones: names first.
        for line in text.lines().filter(|line| !line.starts_with('\t')) {
            let mut parts = line.split('\t');
            let name = parts.next().unwrap_or_default();
            let go_name = parts.next().unwrap_or_default();
            types.add(Struct {
                name: name.into(),
                go_name: go_name.into(),
                atomic: parts.any(|mark| mark == "map=atomic"),
                fields: Vec::new(),
                rest: None,
            });
        }
        let mut current = None;
        for line in text.lines() {
            match line.strip_prefix('\t') {
                None => current = types.find(line.split('\t').next().unwrap_or_default()),
                Some(line) => {
                    let mut field = types.parse_field(line);
                    if let Some(id) = current {
                        let fields = &mut types.structs[id.0 as usize].fields;
                        field.position = fields.len();
                        fields.push(field);
                    }
                }
            }
        }
        for one in &mut types.structs {
            one.fields.sort_by(|a, b| a.name.cmp(&b.name));
        }
        types
    }

    fn parse_field(&self, line: &str) -> Field {
        let mut parts = line.split('\t');
        let name = parts.next().unwrap_or_default();
        let shape = self.parse_shape(parts.next().unwrap_or_default());
        let mut field = Field::new(name, shape);
        field.omit = Omit::Never;
        let mut keys: Vec<Box<str>> = Vec::new();
        let mut list = "";
        for mark in parts {
            let (mark, value) = mark.split_once('=').unwrap_or((mark, ""));
            match mark {
                "number" => {
                    field.numbers = value.split('.').filter_map(|n| n.parse().ok()).collect()
                }
                "omitempty" => field.omit = Omit::Empty,
                "omitzero" => field.omit = Omit::Zero,
                "pointer" => field.pointer = true,
                "required" => field.required = true,
                "hidden" => field.hidden = true,
                "key" => field.strategy.key = Some(value.into()),
                "strategy" => {
                    for part in value.split('+') {
                        match part {
                            "merge" => field.strategy.merge = true,
                            "retainKeys" => field.strategy.retain_keys = true,
                            "replace" => field.strategy.replace = true,
                            _ => {}
                        }
                    }
                }
                "list" => list = value,
                "keys" => keys = value.split('+').map(Into::into).collect(),
                "map" => {
                    field.atomic = value == "atomic";
                    field.granular = value == "granular";
                }
                "default" => field.default = serde_json::from_str(value).ok(),
                "format" => field.format = Some(value.into()),
                "enum" => field.allowed = value.split('|').map(Into::into).collect(),
                _ => {}
            }
        }
        field.list = match list {
            "set" => ListType::Set,
            "map" => ListType::Map(keys),
            _ => ListType::Atomic,
        };
        field
    }

    fn parse_shape(&self, text: &str) -> Shape {
        if let Some(rest) = text.strip_prefix("[]") {
            let (go, element) = go_named(rest);
            return Shape::List(Box::new(self.parse_shape(element)), go);
        }
        if let Some(rest) = text.strip_prefix("map:") {
            let (go, element) = go_named(rest);
            return Shape::Map(Box::new(self.parse_shape(element)), go);
        }
        if let Some(named) = text.strip_prefix("string(") {
            return Shape::Text(Some(named.trim_end_matches(')').into()));
        }
        match text.split('(').next().unwrap_or(text) {
            "string" => Shape::Text(None),
            "bool" => Shape::Bool,
            "int32" | "uint8" | "uint16" => Shape::Int32,
            "int64" | "int" | "uint32" | "uint64" => Shape::Int64,
            "float64" => Shape::Float,
            "bytes" => Shape::Bytes,
            "quantity" => Shape::Quantity,
            "time" => Shape::Time,
            "microtime" => Shape::MicroTime,
            "duration" => Shape::Duration,
            "intorstring" => Shape::IntOrString,
            name => self.find(name).map_or(Shape::Any, Shape::Struct),
        }
    }
}

/// Splits `(v1.ResourceList)quantity`.
fn go_named(text: &str) -> (GoName, &str) {
    match text.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
        Some((name, element)) => (Some(name.into()), element),
        None => (None, text),
    }
}

impl Field {
    /// A field of which nothing but its shape is known.
    pub fn new(name: &str, shape: Shape) -> Self {
        Self {
            name: name.into(),
            position: 0,
            shape,
            numbers: Vec::new(),
            omit: Omit::Empty,
            pointer: false,
            strategy: Strategy::default(),
            list: ListType::Atomic,
            atomic: false,
            granular: false,
            required: false,
            hidden: false,
            default: None,
            format: None,
            allowed: Vec::new(),
        }
    }
}

impl Struct {
    pub fn field(&self, name: &str) -> Option<&Field> {
        let found = self
            .fields
            .binary_search_by(|field| field.name.as_ref().cmp(name))
            .ok()?;
        Some(&self.fields[found])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_types_are_complete() {
        let types = Types::builtin();
        assert!(types.iter().count() > 500);
        for one in types.iter() {
            for field in &one.fields {
                let mut shape = &field.shape;
                while let Shape::List(inner, _) | Shape::Map(inner, _) = shape {
                    shape = inner;
                }
                if let Shape::Struct(id) = shape {
                    assert!(!types.get(*id).name.is_empty());
                }
            }
        }
    }

    #[test]
    fn a_field_has_its_marks() {
        let types = Types::builtin();
        let container = types.get(types.find("io.k8s.api.core.v1.Container").unwrap());
        let ports = container.field("ports").unwrap();
        assert_eq!(ports.strategy.key.as_deref(), Some("containerPort"));
        assert!(ports.strategy.merge && !ports.strategy.replace);
        assert_eq!(
            ports.list,
            ListType::Map(vec!["containerPort".into(), "protocol".into()])
        );
        let policy = container.field("imagePullPolicy").unwrap();
        assert_eq!(policy.shape, Shape::Text(Some("v1.PullPolicy".into())));
        assert_eq!(policy.allowed.len(), 3);
        let limits = types
            .get(
                types
                    .find("io.k8s.api.core.v1.ResourceRequirements")
                    .unwrap(),
            )
            .field("limits")
            .unwrap();
        assert_eq!(
            limits.shape,
            Shape::Map(Box::new(Shape::Quantity), Some("v1.ResourceList".into()))
        );
    }
}
