//! What strategic merging knows about the object at hand, and what it says when it cannot go on.

use http::StatusCode;
use serde_json::Value;

use super::{ELEMENT_ORDER, Fields};
use crate::patch::does_not_apply;
use crate::schema::{Field, Shape, Struct, Types};
use crate::status::StatusError;
use plimsoll_golang::format;
use plimsoll_golang::strconv::quote;

/// Why a patch cannot be merged.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::patch) enum Problem {
    Malformed(&'static str),
    ListOfLists,
    /// The client's mistake all the same, but the original takes it for its own.
    Other(String),
}

impl From<Problem> for StatusError {
    fn from(problem: Problem) -> Self {
        match problem {
            Problem::Malformed(what) => Self::bad_request(what),
            Problem::ListOfLists => does_not_apply(),
            Problem::Other(what) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, "", what),
        }
    }
}

impl Problem {
    pub(in crate::patch) const PRIMITIVE_LIST: Self =
        Self::Malformed("invalid patch format of primitive list");
    pub(in crate::patch) const ORDER_LIST: Self =
        Self::Malformed("invalid patch format of setElementOrder list");
    pub(in crate::patch) const KEYS_TO_RETAIN: Self =
        Self::Malformed("invalid patch format of retainKeys");

    pub(in crate::patch) fn wrong_type(expected: &str, actual: &Value) -> Self {
        let actual = format::type_name(actual);
        Self::Other(format!("expected a {expected}, but received a {actual}"))
    }

    pub(in crate::patch) fn no_merge_key(element: &Value, key: &str) -> Self {
        let shown = format::shown(element);
        Self::Other(format!(
            "map: {shown} does not contain declared merge key: {key}"
        ))
    }

    pub(in crate::patch) fn order_mismatch(patch: &[Value], requested: &[Value]) -> Self {
        Self::Other(format!(
            "The order in patch list:\n{}\n doesn't match {ELEMENT_ORDER} list:\n{}\n",
            format::shown_list(patch),
            format::shown_list(requested)
        ))
    }

    pub(in crate::patch) fn unknown_directive(directive: &Value, map: &Fields) -> Self {
        let directive = match directive {
            Value::String(text) => text.clone(),
            other => format!("%!s({}={})", format::type_name(other), format::shown(other)),
        };
        let shown = format::shown(&Value::Object(map.clone()));
        Self::Other(format!("unknown patch type: {directive} in map: {shown}"))
    }
}

/// What is known about the object that is being merged.
#[derive(Debug, Clone, Copy)]
pub(in crate::patch) struct Scope<'a> {
    types: &'a Types,
    kind: Kind<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Kind<'a> {
    Struct(&'a Struct),
    /// What Go calls the kind of a type that has no fields to look up.
    Other(&'static str),
}

impl<'a> Scope<'a> {
    pub(in crate::patch) fn of_object(types: &'a Types, object: &'a Struct) -> Self {
        Self {
            types,
            kind: Kind::Struct(object),
        }
    }

    pub(in crate::patch) fn of(self, shape: &Shape) -> Self {
        let kind = match shape {
            Shape::Struct(id) => Kind::Struct(self.types.get(*id)),
            Shape::Map(..) => Kind::Other("map"),
            Shape::List(..) | Shape::Bytes => Kind::Other("slice"),
            Shape::Text(_) => Kind::Other("string"),
            Shape::Bool => Kind::Other("bool"),
            Shape::Int32 => Kind::Other("int32"),
            Shape::Int64 => Kind::Other("int64"),
            Shape::Float => Kind::Other("float64"),
            _ => Kind::Other("struct"),
        };
        Self { kind, ..self }
    }

    pub(in crate::patch) fn name(self) -> &'static str {
        match self.kind {
            Kind::Struct(_) => "struct",
            Kind::Other(name) => name,
        }
    }

    pub(in crate::patch) fn field(self, name: &str) -> Result<&'a Field, Problem> {
        let one = match self.kind {
            Kind::Struct(one) => one,
            Kind::Other(kind) => {
                return Err(Problem::Other(format!(
                    "merging an object in json but data type is not struct, instead is: {kind}"
                )));
            }
        };
        let loosely = || {
            let mut fields = one.fields.iter();
            fields.find(|field| field.name.eq_ignore_ascii_case(name))
        };
        one.field(name).or_else(loosely).ok_or_else(|| {
            let go_name = one.go_name.rsplit('.').next().unwrap_or(&one.go_name);
            Problem::Other(format!(
                "unable to find api field in struct {go_name} for the json field {}",
                quote(name)
            ))
        })
    }

    /// A list's field and what is known about its elements.
    pub(in crate::patch) fn list_field(self, name: &str) -> Result<(&'a Field, Self), Problem> {
        let field = self.field(name)?;
        match &field.shape {
            Shape::List(element, _) if matches!(**element, Shape::List(..)) => {
                Err(Problem::Other("unexpected slice of slice".to_owned()))
            }
            Shape::List(element, _) => Ok((field, self.of(element))),
            _ => Err(Problem::Other(format!(
                "expected slice or array type, but got: {}",
                self.name()
            ))),
        }
    }
}
