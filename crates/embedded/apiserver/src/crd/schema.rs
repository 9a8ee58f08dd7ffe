//! A structural schema, read once from a definition's `openAPIV3Schema`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, OnceLock};

use regex::Regex;
use serde_json::Value;

use super::formats::Format;
use super::rules::Rule;
use crate::schema::ListType;

#[derive(Debug, Default)]
pub struct Schema {
    /// Empty: any. More than one only for `x-kubernetes-int-or-string`.
    pub types: Vec<Type>,
    pub nullable: bool,
    pub properties: BTreeMap<String, Schema>,
    pub additional: Additional,
    pub items: Option<Box<Schema>>,
    pub preserve_unknown: bool,
    pub embedded: bool,
    /// `None` where the schema does not say, which is atomic too.
    pub list: Option<ListType>,
    pub atomic_map: bool,
    pub default: Option<Value>,
    pub limits: Limits,
    pub all_of: Vec<Schema>,
    pub any_of: Vec<Schema>,
    pub one_of: Vec<Schema>,
    pub not: Option<Box<Schema>>,
    /// `x-kubernetes-validations`.
    pub rules: Vec<Rule>,
}

#[derive(Debug, Default)]
pub enum Additional {
    #[default]
    Unsaid,
    Any,
    Of(Box<Schema>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// What values are held to besides their type.
#[derive(Debug, Default)]
pub struct Limits {
    /// With its name as the schema spells it.
    pub format: Option<(String, Format)>,
    pub minimum: Option<f64>,
    pub exclusive_minimum: bool,
    pub maximum: Option<f64>,
    pub exclusive_maximum: bool,
    pub multiple_of: Option<f64>,
    pub min_length: Option<u64>,
    pub max_length: Option<u64>,
    pub pattern: Option<Pattern>,
    pub min_items: Option<u64>,
    pub max_items: Option<u64>,
    pub min_properties: Option<u64>,
    pub max_properties: Option<u64>,
    pub required: Vec<String>,
    pub allowed: Allowed,
}

#[derive(Debug)]
pub struct Pattern {
    pub text: String,
    compiled: OnceLock<Result<Regex, String>>,
}

impl Pattern {
    /// Compiled when a value is first held against it. The error is the complaint about what cannot be read.
    pub fn compiled(&self) -> &Result<Regex, String> {
        self.compiled
            .get_or_init(|| Regex::new(&self.text).map_err(|error| error.to_string()))
    }
}

impl Type {
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

impl Schema {
    /// Reads the schema of a whole object.
    pub fn read(schema: &Value) -> Self {
        Self::read_part(schema, true)
    }

    fn read_part(schema: &Value, root: bool) -> Self {
        let part = |schema: &Value| Self::read_part(schema, false);
        let flag = |name: &str| schema[name] == true;
        let several = |name: &str| -> Vec<Schema> {
            let list = schema[name].as_array();
            list.into_iter().flatten().map(part).collect()
        };
        let types = if flag("x-kubernetes-int-or-string") {
            vec![Type::Integer, Type::String]
        } else {
            schema["type"]
                .as_str()
                .and_then(Type::parse)
                .into_iter()
                .collect()
        };
        let properties = schema["properties"].as_object();
        Self {
            nullable: flag("nullable"),
            properties: properties
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), part(schema)))
                .collect(),
            additional: match &schema["additionalProperties"] {
                Value::Object(_) => Additional::Of(Box::new(part(&schema["additionalProperties"]))),
                Value::Bool(true) => Additional::Any,
                _ => Additional::Unsaid,
            },
            items: schema.get("items").map(|items| Box::new(part(items))),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            list: match schema["x-kubernetes-list-type"].as_str() {
                Some("set") => Some(ListType::Set),
                Some("map") => {
                    let keys = texts(&schema["x-kubernetes-list-map-keys"]);
                    Some(ListType::Map(keys.into_iter().map(Into::into).collect()))
                }
                Some(_) => Some(ListType::Atomic),
                None => None,
            },
            atomic_map: schema["x-kubernetes-map-type"] == "atomic",
            default: schema
                .get("default")
                .filter(|value| !value.is_null())
                .cloned(),
            limits: Limits::read(schema, &types),
            all_of: several("allOf"),
            any_of: several("anyOf"),
            one_of: several("oneOf"),
            not: schema.get("not").map(|not| Box::new(part(not))),
            rules: Rule::read_all(schema, root),
            types,
        }
    }

    /// The schema of a field; `None` where nothing is said about it.
    pub fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Additional::Of(schema) => Some(schema),
            _ => None,
        })
    }

    pub fn knows(&self, name: &str) -> bool {
        self.properties.contains_key(name) || !matches!(self.additional, Additional::Unsaid)
    }

    /// Whether there are rules anywhere in the schema.
    pub fn has_rules(&self) -> bool {
        let further = match &self.additional {
            Additional::Of(schema) => schema.has_rules(),
            _ => false,
        };
        further
            || !self.rules.is_empty()
            || self.properties.values().any(Schema::has_rules)
            || self.items.as_deref().is_some_and(Schema::has_rules)
    }

    /// The earlier elements of a list, to be found by the keys that the schema declares. `None`: it declares none.
    pub fn earlier_elements<'a>(&'a self, earlier: &'a Value) -> Option<EarlierElements<'a>> {
        let Some(ListType::Map(keys)) = &self.list else {
            return None;
        };
        let mut elements = EarlierElements {
            keys,
            items: self.items.as_deref(),
            by_keys: HashMap::new(),
        };
        for element in earlier.as_array()? {
            let keys = elements.keys_of(element);
            elements.by_keys.entry(keys).or_insert(element);
        }
        Some(elements)
    }

    /// Whether a value is as it was; the order of a list with keys does not matter.
    pub fn unchanged(&self, value: &Value, earlier: &Value) -> bool {
        match (value, earlier) {
            (Value::Array(items), Value::Array(before)) if self.list.is_some() => {
                let Some(schema) = self.items.as_deref() else {
                    return value == earlier;
                };
                if items.len() != before.len() {
                    return false;
                }
                let elements = self.earlier_elements(earlier);
                items.iter().zip(before).all(|(item, same_place)| {
                    let matching = elements.as_ref().and_then(|elements| elements.of(item));
                    schema.unchanged(item, matching.unwrap_or(same_place))
                })
            }
            (Value::Object(fields), Value::Object(before)) => {
                fields.len() == before.len()
                    && fields.iter().all(|(name, field)| {
                        before.get(name).is_some_and(|before| {
                            self.field(name).map_or_else(
                                || field == before,
                                |schema| schema.unchanged(field, before),
                            )
                        })
                    })
            }
            _ => value == earlier,
        }
    }

    /// The earlier value of a field, unless the object is replaced as a whole.
    pub fn earlier_field<'a>(&self, name: &str, earlier: &'a Value) -> Option<&'a Value> {
        if self.atomic_map {
            return None;
        }
        earlier.get(name)
    }
}

/// See [`Schema::earlier_elements`].
#[derive(Debug)]
pub struct EarlierElements<'a> {
    keys: &'a [Box<str>],
    items: Option<&'a Schema>,
    by_keys: HashMap<Vec<Option<&'a Value>>, &'a Value>,
}

impl<'a> EarlierElements<'a> {
    fn keys_of<'e>(&self, element: &'e Value) -> Vec<Option<&'e Value>>
    where
        'a: 'e,
    {
        let default = |key: &str| self.items?.properties.get(key)?.default.as_ref();
        let keys = self.keys.iter();
        keys.map(|key| element.get(key.as_ref()).or_else(|| default(key)))
            .collect()
    }

    /// What an element was before.
    pub fn of(&self, element: &Value) -> Option<&'a Value> {
        self.by_keys.get(&self.keys_of(element)).copied()
    }
}

/// The values that a schema enumerates.
#[derive(Debug, Default)]
pub struct Allowed {
    /// As the schema has them.
    pub all: Arc<[Value]>,
    others: HashSet<Value>,
    /// Numbers are the same whether they are written with a fraction or not.
    numbers: HashSet<u64>,
}

impl Allowed {
    fn read(list: &Value) -> Self {
        let all = list.as_array().map(Vec::as_slice).unwrap_or_default();
        let (numbers, others): (Vec<&Value>, Vec<&Value>) =
            all.iter().partition(|value| value.is_number());
        Self {
            all: all.into(),
            others: others
                .into_iter()
                .filter(|one| !one.is_null())
                .cloned()
                .collect(),
            numbers: numbers.into_iter().filter_map(worth).collect(),
        }
    }

    pub fn allows(&self, value: &Value) -> bool {
        self.all.is_empty()
            || self.others.contains(value)
            || worth(value).is_some_and(|worth| self.numbers.contains(&worth))
    }
}

/// What tells a number from others.
fn worth(number: &Value) -> Option<u64> {
    // Nought has two signs.
    number.as_f64().map(|float| (float + 0.0).to_bits())
}

impl Limits {
    fn read(schema: &Value, types: &[Type]) -> Self {
        let flag = |name: &str| schema[name] == true;
        let count = |name: &str| schema[name].as_u64();
        let number = |name: &str| schema[name].as_f64();
        Self {
            format: schema["format"].as_str().and_then(|name| {
                let only = match types {
                    [] => None,
                    [one] => Some(*one),
                    // Formats of what may be of several types are not looked at.
                    _ => return None,
                };
                Some((name.to_owned(), Format::find(name, only)?))
            }),
            minimum: number("minimum"),
            exclusive_minimum: flag("exclusiveMinimum"),
            maximum: number("maximum"),
            exclusive_maximum: flag("exclusiveMaximum"),
            multiple_of: number("multipleOf"),
            min_length: count("minLength"),
            max_length: count("maxLength"),
            pattern: schema["pattern"]
                .as_str()
                .filter(|text| !text.is_empty())
                .map(|text| Pattern {
                    text: text.to_owned(),
                    compiled: OnceLock::new(),
                }),
            min_items: count("minItems"),
            max_items: count("maxItems"),
            min_properties: count("minProperties"),
            max_properties: count("maxProperties"),
            required: texts(&schema["required"])
                .into_iter()
                .map(str::to_owned)
                .collect(),
            allowed: Allowed::read(&schema["enum"]),
        }
    }
}

fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array();
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}
