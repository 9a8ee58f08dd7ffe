//! From a document to an object of a known type, as if it had gone through Kubernetes' Go structs and out again:
//! unknown fields dropped (and told of), values checked and put into canonical form, absent rather than null, and
//! fields that Go always writes present.

use plimsoll_api::quantity::Quantity;
use serde_json::{Map, Value};

use super::json::{Node, number};
use super::objections::Objections;
use crate::met::Met;
use crate::schema::{Field, Omit, Shape, Struct, TypeId, Types};
use plimsoll_golang::time;

/// A decoded object and what a strict reader objects to, in document order.
#[derive(Debug)]
pub struct Decoded {
    pub value: Value,
    pub objections: Vec<String>,
}

/// Why a document is not of the type; the text is Go's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(pub String);

/// What Go would write of the document.
pub fn decode(types: &Types, id: TypeId, node: &Node<'_>) -> Result<Decoded, TypeError> {
    read(types, id, node, Source::Document, false)
}

/// As [`decode`], but lists that are given without elements are there: defaults and validation tell them from absent
/// ones. Whoever keeps the object forgets them (`super::kept`).
pub fn decode_as_given(types: &Types, id: TypeId, node: &Node<'_>) -> Result<Decoded, TypeError> {
    read(types, id, node, Source::Document, true)
}

/// As [`decode_as_given`], of what was put together from an object and a patch.
pub fn convert(types: &Types, id: TypeId, value: &Value) -> Result<Decoded, TypeError> {
    read(types, id, &Node::of(value), Source::Maps, true)
}

/// Where Go has the values from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Document,
    /// Maps are not decoded but converted, which is less strict about numbers and says things in other words.
    Maps,
}

fn read(
    types: &Types,
    id: TypeId,
    node: &Node<'_>,
    source: Source,
    as_given: bool,
) -> Result<Decoded, TypeError> {
    let mut decoder = Decoder {
        types,
        source,
        as_given,
        error: None,
        objections: Objections::default(),
        unheard: 0,
        path: String::new(),
    };
    let context = Context {
        owner: types.get(id).short_name(),
        fields: String::new(),
    };
    let value = decoder.object(id, node, &context);
    match decoder.error {
        Some(error) => Err(TypeError(error)),
        None => Ok(Decoded {
            value,
            objections: decoder.objections.into_words(),
        }),
    }
}

/// The value of an object whose type has no field set: what Go writes for it.
pub fn zero_struct(types: &Types, id: TypeId) -> Value {
    let mut map = Map::new();
    for field in &types.get(id).fields {
        if let Some(value) = absent(types, field) {
            map.insert(field.name.to_string(), value);
        }
    }
    Value::Object(map)
}

/// What Go writes for a field that was not given.
fn absent(types: &Types, field: &Field) -> Option<Value> {
    match field.omit {
        Omit::Zero => None,
        Omit::Empty if field.pointer => None,
        Omit::Never if field.pointer => Some(Value::Null),
        omit => match &field.shape {
            // Go's omitempty knows no empty struct.
            Shape::Struct(id) => Some(zero_struct(types, *id)),
            Shape::Time | Shape::MicroTime | Shape::Any => Some(Value::Null),
            Shape::IntOrString => Some(0.into()),
            Shape::Quantity => Some("0".into()),
            Shape::Duration => Some("0s".into()),
            _ if omit == Omit::Empty => None,
            Shape::Text(_) => Some("".into()),
            Shape::Bool => Some(false.into()),
            Shape::Int32 | Shape::Int64 | Shape::Float => Some(0.into()),
            Shape::Bytes | Shape::List(..) | Shape::Map(..) => Some(Value::Null),
        },
    }
}

/// Whether Go leaves the value out of a field that may be left out.
fn is_empty(types: &Types, field: &Field, value: &Value) -> bool {
    if field.omit == Omit::Never || field.pointer {
        return false;
    }
    match (&field.shape, value) {
        (Shape::Struct(id), value) => field.omit == Omit::Zero && *value == zero_struct(types, *id),
        (Shape::Time | Shape::MicroTime, Value::Null) => field.omit == Omit::Zero,
        (
            Shape::IntOrString | Shape::Quantity | Shape::Duration | Shape::Time | Shape::MicroTime,
            _,
        ) => false,
        (Shape::Any, Value::Null) => field.omit == Omit::Zero,
        (Shape::Any, _) => false,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::Bool(value)) => !value,
        (_, Value::Number(value)) => value.as_f64() == Some(0.0),
        (_, Value::Array(items)) => items.is_empty(),
        (_, Value::Object(map)) => map.is_empty(),
        (_, Value::Null) => true,
    }
}

/// Whether an empty value is told from an absent one. Of maps, only an overhead is: that there is one is a claim.
fn counts_when_empty(of: &Struct, field: &Field) -> bool {
    matches!(field.shape, Shape::List(..))
        || (&*of.name, &*field.name) == ("io.k8s.api.core.v1.PodSpec", "overhead")
}

impl Struct {
    /// `Container` of `v1.Container`.
    fn short_name(&self) -> &str {
        self.go_name.rsplit('.').next().unwrap_or(&self.go_name)
    }
}

/// Where Go thinks it is: the innermost struct, and the way to the field from the root, without indexes.
#[derive(Debug, Clone)]
struct Context<'t> {
    owner: &'t str,
    fields: String,
}

/// The Go struct within `owner` that a field is declared in; empty for its own fields.
fn embedded_in(owner: &str, field: &str) -> &'static str {
    match (owner, field) {
        ("Probe", "exec" | "httpGet" | "tcpSocket" | "grpc") => "ProbeHandler",
        ("Volume", field) if field != "name" => "VolumeSource",
        ("IngressRule", "http") => "IngressRuleValue",
        (
            "PersistentVolumeSpec",
            "capacity"
            | "accessModes"
            | "claimRef"
            | "persistentVolumeReclaimPolicy"
            | "storageClassName"
            | "mountOptions"
            | "volumeMode"
            | "nodeAffinity"
            | "volumeAttributesClassName",
        ) => "",
        ("PersistentVolumeSpec", _) => "PersistentVolumeSource",
        ("RuleWithOperations", field) if field != "operations" => "Rule",
        ("NamedRuleWithOperations", "resourceNames") => "",
        ("NamedRuleWithOperations", "operations") => "RuleWithOperations",
        ("NamedRuleWithOperations", _) => "RuleWithOperations.Rule",
        ("DeviceClaimConfiguration" | "DeviceClassConfiguration", "opaque") => {
            "DeviceConfiguration"
        }
        ("EphemeralContainer", field) if field != "targetContainerName" => {
            "EphemeralContainerCommon"
        }
        (
            "ConfigMapVolumeSource"
            | "ConfigMapProjection"
            | "ConfigMapKeySelector"
            | "ConfigMapEnvSource"
            | "SecretProjection"
            | "SecretKeySelector"
            | "SecretEnvSource",
            "name",
        ) => "LocalObjectReference",
        _ => "",
    }
}

/// The type of a definition's schema, which has schemas within.
const SCHEMA: &str = "JSONSchemaProps";

/// Whether the field of a schema is a schema or something else: several of them, or yes or no.
fn is_schema_or_other(field: &str) -> bool {
    matches!(field, "items" | "additionalItems" | "additionalProperties")
}

struct Decoder<'t> {
    types: &'t Types,
    source: Source,
    as_given: bool,
    /// Go goes on after a mismatch, and reports the first.
    error: Option<String>,
    objections: Objections,
    /// Within how many decoders that do not object.
    unheard: usize,
    /// With indexes, for objections.
    path: String,
}

impl<'t> Decoder<'t> {
    fn object_to(&mut self, what: &str) {
        if self.unheard == 0 {
            let path = &self.path;
            self.objections.add(|| format!("{what} field \"{path}\""));
        }
    }

    fn fail(&mut self, error: impl Into<String>) -> Value {
        let error = error.into();
        self.error.get_or_insert(error);
        Value::Null
    }

    /// Of a type that decodes itself, and does not know where it is when it is converted.
    fn own_mismatch(&mut self, found: &str, context: &Context<'_>, wanted: &str) -> Value {
        match self.source {
            Source::Document => self.mismatch(found, context, wanted),
            Source::Maps => self.fail(format!(
                "json: cannot unmarshal {found} into Go value of type {wanted}"
            )),
        }
    }

    fn mismatch(&mut self, found: &str, context: &Context<'_>, wanted: &str) -> Value {
        if self.source == Source::Maps {
            return self.fail(not_convertible(found, wanted));
        }
        let target = if context.fields.is_empty() {
            format!("Go value of type {wanted}")
        } else {
            format!(
                "Go struct field {}.{} of type {wanted}",
                context.owner, context.fields
            )
        };
        self.fail(format!("json: cannot unmarshal {found} into {target}"))
    }

    fn object(&mut self, id: TypeId, node: &Node<'_>, context: &Context<'_>) -> Value {
        let kind = self.types.get(id);
        let Node::Object(entries) = node else {
            return self.mismatch(node.type_name(), context, &kind.go_name);
        };
        let mut map = Map::new();
        let mut names = Met::default();
        for (key, node) in entries {
            let outer = self.path.len();
            if outer > 0 {
                self.path.push('.');
            }
            self.path.push_str(key);
            let repeated = names.meet(key.as_ref()) > 0;
            match kind.field(key) {
                None if repeated => {}
                None => self.object_to("unknown"),
                Some(field) => {
                    if repeated {
                        self.object_to("duplicate");
                    }
                    let owner = kind.short_name();
                    let way = [context.fields.as_str(), embedded_in(owner, key), key];
                    let way: Vec<&str> = way.into_iter().filter(|step| !step.is_empty()).collect();
                    let inner = Context {
                        owner,
                        fields: way.join("."),
                    };
                    if *node == Node::Null {
                        map.remove(key.as_ref());
                    } else if owner == SCHEMA && is_schema_or_other(key) {
                        let value = self.schema_or_other(id, key, node, &inner);
                        map.insert(key.to_string(), value);
                    } else {
                        let value = self.value(&field.shape, node, &inner);
                        map.insert(key.to_string(), value);
                    }
                }
            }
            self.path.truncate(outer);
        }
        for field in &kind.fields {
            match map.get(field.name.as_ref()) {
                None => {
                    if let Some(value) = absent(self.types, field) {
                        map.insert(field.name.to_string(), value);
                    }
                }
                Some(value) => {
                    let means_something = self.as_given && counts_when_empty(kind, field);
                    if is_empty(self.types, field, value) && !means_something {
                        map.remove(field.name.as_ref());
                    }
                }
            }
        }
        Value::Object(map)
    }

    /// A schema within a schema, where something else can stand as well. Such places have a decoder of their own, to
    /// which unknown fields are nothing to talk about.
    fn schema_or_other(
        &mut self,
        id: TypeId,
        key: &str,
        node: &Node<'_>,
        context: &Context<'_>,
    ) -> Value {
        self.unheard += 1;
        let value = match (key, node) {
            (_, Node::Object(_)) => self.object(id, node, context),
            ("items", Node::List(schemas)) if !schemas.is_empty() => schemas
                .iter()
                .map(|schema| self.object(id, schema, context))
                .collect(),
            ("items", _) => Value::Null,
            (_, Node::Bool(allowed)) => (*allowed).into(),
            _ => self.fail("boolean or JSON schema expected"),
        };
        self.unheard -= 1;
        value
    }

    fn value(&mut self, shape: &'t Shape, node: &Node<'_>, context: &Context<'_>) -> Value {
        match (shape, node) {
            (Shape::Struct(id), Node::Null) => zero_struct(self.types, *id),
            (Shape::Struct(id), _) => self.object(*id, node, context),
            (Shape::Any, _) => node.to_value(),
            (Shape::List(element, _), Node::List(items)) => {
                let mut out = Vec::with_capacity(items.len());
                for (index, item) in items.iter().enumerate() {
                    let outer = self.path.len();
                    self.path.push_str(&format!("[{index}]"));
                    out.push(self.value(element, item, context));
                    self.path.truncate(outer);
                }
                Value::Array(out)
            }
            (Shape::Map(element, _), Node::Object(entries)) => self.map(element, entries, context),
            (Shape::Quantity, _) => self.quantity(node),
            (Shape::Time | Shape::MicroTime, Node::Null) => Value::Null,
            (Shape::Time | Shape::MicroTime, Node::Text(text)) => {
                let parsed = match shape {
                    Shape::Time => time::seconds(text),
                    _ => time::micros(text),
                };
                match parsed {
                    Ok(text) => text.into(),
                    Err(error) => self.fail(error),
                }
            }
            (Shape::Time | Shape::MicroTime | Shape::Duration, _)
                if !matches!(node, Node::Text(_) | Node::Null) =>
            {
                self.own_mismatch(node.type_name(), context, "string")
            }
            (Shape::Duration, Node::Text(text)) => text.clone().into_owned().into(),
            (Shape::IntOrString, Node::Text(text)) => text.clone().into_owned().into(),
            (Shape::IntOrString, Node::Null) => 0.into(),
            (Shape::IntOrString, Node::Number(digits)) => match digits.parse::<i32>() {
                Ok(value) => value.into(),
                Err(_) => self.own_mismatch(&format!("number {digits}"), context, "int32"),
            },
            (Shape::IntOrString, _) => self.own_mismatch(node.type_name(), context, "int32"),
            (Shape::Bytes, Node::Text(text)) => self.bytes(text),
            // A null among the elements of a list or map is the element's zero value.
            (_, Node::Null) => zero_scalar(shape),
            (Shape::Text(_), Node::Text(text)) => text.clone().into_owned().into(),
            (Shape::Text(_), Node::Number(digits))
                if self.source == Source::Maps && digits.parse::<i64>().is_ok() =>
            {
                self.fail(format!("cannot convert int64 to {}", self.go_name(shape)))
            }
            (Shape::Text(_), _) if self.source == Source::Maps => {
                self.fail("unrecognized type: string")
            }
            (Shape::Bool, Node::Bool(value)) => (*value).into(),
            (Shape::Int32 | Shape::Int64, Node::Number(digits)) => {
                self.integer(shape, digits, context)
            }
            (Shape::Float, Node::Number(digits)) => number(digits),
            _ => self.mismatch(node.type_name(), context, &self.go_name(shape)),
        }
    }

    fn map(
        &mut self,
        element: &'t Shape,
        entries: &[(std::borrow::Cow<'_, str>, Node<'_>)],
        context: &Context<'_>,
    ) -> Value {
        let mut out = Map::new();
        for (key, item) in entries {
            let outer = self.path.len();
            self.path.push('.');
            self.path.push_str(key);
            if out.contains_key(key.as_ref()) {
                self.object_to("duplicate");
            }
            let value = self.value(element, item, context);
            out.insert(key.to_string(), value);
            self.path.truncate(outer);
        }
        Value::Object(out)
    }

    fn integer(&mut self, shape: &Shape, digits: &str, context: &Context<'_>) -> Value {
        let parsed = match (self.source, shape) {
            // Go cuts off what does not fit.
            (Source::Maps, Shape::Int32) => whole(digits).map(|wide| Value::from(wide as i32)),
            (Source::Maps, _) => whole(digits).map(Value::from),
            (Source::Document, Shape::Int32) => digits.parse::<i32>().ok().map(Value::from),
            (Source::Document, _) => digits.parse::<i64>().ok().map(Value::from),
        };
        parsed.unwrap_or_else(|| {
            let wanted = self.go_name(shape);
            self.mismatch(&format!("number {digits}"), context, &wanted)
        })
    }

    fn quantity(&mut self, node: &Node<'_>) -> Value {
        let text = match node {
            Node::Null => return "0".into(),
            Node::Text(text) | Node::Number(text) => text.trim().to_owned(),
            other => other.to_value().to_string(),
        };
        match text.parse::<Quantity>() {
            Ok(quantity) => quantity.to_string().into(),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn bytes(&mut self, text: &str) -> Value {
        use base64::Engine;
        // Go's decoder skips line breaks.
        let clean: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        let engine = base64::engine::general_purpose::GeneralPurpose::new(
            &base64::alphabet::STANDARD,
            base64::engine::general_purpose::GeneralPurposeConfig::new()
                .with_decode_allow_trailing_bits(true),
        );
        match engine.decode(&clean) {
            Ok(bytes) => engine.encode(bytes).into(),
            Err(_) => {
                let at = illegal_base64_at(text, [b'+', b'/'], true);
                let said_by = match self.source {
                    Source::Document => "",
                    Source::Maps => "error decoding from json: ",
                };
                self.fail(format!("{said_by}illegal base64 data at input byte {at}"))
            }
        }
    }

    fn go_name(&self, shape: &Shape) -> String {
        match shape {
            Shape::Text(name) => name.as_deref().unwrap_or("string").to_owned(),
            Shape::Bool => "bool".into(),
            Shape::Int32 => "int32".into(),
            Shape::Int64 => "int64".into(),
            Shape::Float => "float64".into(),
            Shape::Bytes => "[]uint8".into(),
            Shape::Quantity => "resource.Quantity".into(),
            Shape::Time => "v1.Time".into(),
            Shape::MicroTime => "v1.MicroTime".into(),
            Shape::Duration => "v1.Duration".into(),
            Shape::IntOrString => "intstr.IntOrString".into(),
            Shape::Any => "interface {}".into(),
            Shape::List(element, name) => name
                .as_deref()
                .map_or_else(|| format!("[]{}", self.go_name(element)), str::to_owned),
            Shape::Map(element, name) => name.as_deref().map_or_else(
                || format!("map[string]{}", self.go_name(element)),
                str::to_owned,
            ),
            Shape::Struct(id) => self.types.get(*id).go_name.to_string(),
        }
    }
}

/// A number without a fraction, even if it is written with one.
fn whole(digits: &str) -> Option<i64> {
    let float = || digits.parse::<f64>().ok().filter(|it| it.fract() == 0.0);
    digits
        .parse::<i64>()
        .ok()
        .or_else(|| float().map(|it| it as i64))
}

/// Why a value in a map does not become one of a struct; `found` as decoders say it.
fn not_convertible(found: &str, wanted: &str) -> String {
    let found = match found.split_once(' ').unwrap_or((found, "")) {
        ("object", _) => "map",
        ("array", _) => "slice",
        ("number", digits) if digits.contains(['.', 'e', 'E']) => "float64",
        ("number", _) => "int64",
        (other, _) => other,
    };
    match wanted {
        list if list.starts_with("[]") => format!("cannot restore slice from {found}"),
        map if map.starts_with("map[") => format!("cannot restore map from {found}"),
        of if of.contains('.') => format!("cannot restore struct from: {found}"),
        whole @ ("int32" | "int64") if found == "float64" => {
            format!("cannot convert float64 to {whole}")
        }
        simple => format!("unrecognized type: {simple}"),
    }
}

fn zero_scalar(shape: &Shape) -> Value {
    match shape {
        Shape::Text(_) | Shape::Bytes => "".into(),
        Shape::Bool => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::Float => 0.into(),
        _ => Value::Null,
    }
}

/// Where Go's decoder stops: at a character that cannot be there, or at the group that is cut short. `padded`: groups
/// are filled up with `=`.
pub fn illegal_base64_at(text: &str, others: [u8; 2], padded: bool) -> usize {
    let is_digit = |byte: u8| byte.is_ascii_alphanumeric() || others.contains(&byte);
    let is_break = |byte: u8| matches!(byte, b'\r' | b'\n');
    let end = text.len();
    // Go does not see line breaks, though it counts them.
    let mut seen = text
        .bytes()
        .enumerate()
        .filter(|(_, byte)| !is_break(*byte));
    let mut in_group = 0;
    let (padding, first) = loop {
        match seen.next() {
            None => return end - in_group,
            Some((_, byte)) if is_digit(byte) => in_group = (in_group + 1) % 4,
            Some(found) => break found,
        }
    };
    if first != b'=' || !padded || in_group < 2 {
        return padding;
    }
    if in_group == 2 {
        match seen.next() {
            None => return end,
            Some((_, b'=')) => {}
            Some((at, _)) => return at - 1,
        }
    }
    seen.next().map_or(end, |(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::builtin_type;

    fn decode_pod(text: &str) -> Result<Decoded, TypeError> {
        let id = builtin_type("", "v1", "Pod").unwrap();
        decode(Types::builtin(), id, &Node::parse(text).unwrap())
    }

    #[track_caller]
    fn check_error(text: &str, expected: &str) {
        assert_eq!(decode_pod(text).unwrap_err().0, expected);
    }

    #[test]
    fn mismatches_in_gos_words() {
        check_error(
            r#"{"spec":{"containers":[{"image":5}]}}"#,
            "json: cannot unmarshal number into Go struct field Container.spec.containers.image of type string",
        );
        check_error(
            r#"{"spec":{"containers":[{"ports":[{"containerPort":4294967296}]}]}}"#,
            "json: cannot unmarshal number 4294967296 into Go struct field ContainerPort.spec.containers.ports.containerPort of type int32",
        );
        check_error(
            r#"{"metadata":{"labels":{"a":1}}}"#,
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        );
        check_error(
            r#"{"spec":[]}"#,
            "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec",
        );
    }

    #[test]
    fn what_go_writes() {
        let decoded = decode_pod(
            r#"{"metadata":{"name":"p","foo":1,"labels":{},"annotations":null},"spec":{"containers":[{"name":"c","tty":false,
            "resources":{"limits":{"memory":"1024Mi"}}}],"hostNetwork":true,"terminationGracePeriodSeconds":0}}"#,
        )
        .unwrap();
        assert_eq!(decoded.objections, ["unknown field \"metadata.foo\""]);
        assert_eq!(
            decoded.value,
            serde_json::json!({
                "metadata": {"name": "p"},
                "spec": {
                    "containers": [{"name": "c", "resources": {"limits": {"memory": "1Gi"}}}],
                    "hostNetwork": true,
                    "terminationGracePeriodSeconds": 0,
                },
                "status": {},
            })
        );
    }

    #[test]
    fn decoding_twice_changes_nothing() {
        let id = builtin_type("apps", "v1", "Deployment").unwrap();
        let once = decode(
            Types::builtin(),
            id,
            &Node::parse(r#"{"spec":{"template":{"spec":{"containers":[{"name":"c"}]}}}}"#)
                .unwrap(),
        )
        .unwrap()
        .value;
        let twice = decode(Types::builtin(), id, &Node::of(&once)).unwrap();
        assert_eq!(twice.value, once);
        assert!(twice.objections.is_empty());
    }
}
