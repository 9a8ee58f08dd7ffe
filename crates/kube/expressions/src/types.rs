//! Types of the Common Expression Language, as its checker sees them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq)]
pub enum Type {
    /// Nothing is known, so nothing is wrong.
    Dyn,
    /// What came of something wrong; it has been complained about.
    Error,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Type>),
    Map(Box<Type>, Box<Type>),
    Optional(Box<Type>),
    /// The type of a type's name.
    Type(Box<Type>),
    /// `kubernetes.Quantity` and the like: only functions look into it.
    Opaque(&'static str),
    Object(Arc<Object>),
    /// A type that a signature leaves open; numbered anew at each use.
    Open(usize),
}

/// A type with named fields.
#[derive(Debug, PartialEq)]
pub struct Object {
    pub name: String,
    pub fields: BTreeMap<String, Type>,
}

impl Type {
    pub fn list(item: Self) -> Self {
        Self::List(Box::new(item))
    }

    pub fn map(key: Self, value: Self) -> Self {
        Self::Map(Box::new(key), Box::new(value))
    }

    pub fn optional(value: Self) -> Self {
        Self::Optional(Box::new(value))
    }

    pub fn is_dyn(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    pub fn is_time(&self) -> bool {
        matches!(self, Self::Duration | Self::Timestamp)
    }

    /// With every open type replaced.
    pub fn map_open(&self, replace: &mut impl FnMut(usize) -> Self) -> Self {
        match self {
            Self::Open(number) => replace(*number),
            Self::List(item) => Self::list(item.map_open(replace)),
            Self::Map(key, value) => Self::map(key.map_open(replace), value.map_open(replace)),
            Self::Optional(value) => Self::optional(value.map_open(replace)),
            Self::Type(of) => Self::Type(Box::new(of.map_open(replace))),
            plain => plain.clone(),
        }
    }

    /// The parts of a type that has any.
    pub fn parts(&self) -> Vec<&Self> {
        match self {
            Self::List(one) | Self::Optional(one) | Self::Type(one) => vec![one],
            Self::Map(key, value) => vec![key, value],
            _ => Vec::new(),
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Open(_) => f.write_str("dyn"),
            Self::Error => f.write_str("!error!"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::String => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::List(item) => write!(f, "list({item})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(value) => write!(f, "optional_type({value})"),
            Self::Type(of) => write!(f, "type({of})"),
            Self::Opaque(name) => f.write_str(name),
            Self::Object(object) => f.write_str(&object.name),
        }
    }
}
