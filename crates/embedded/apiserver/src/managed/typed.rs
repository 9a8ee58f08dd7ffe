//! Values seen through their types: which of their parts are owned apart from each other.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fieldset::FieldSet;
use super::path::Step;
use crate::schema::{Field, ListType, Shape, Struct, Types};

/// The type of a value, as far as ownership goes.
#[derive(Debug, Clone, Copy)]
pub struct Type<'a> {
    types: &'a Types,
    form: Form<'a>,
}

#[derive(Debug, Clone, Copy)]
enum Form<'a> {
    Known {
        shape: &'a Shape,
        list: &'a ListType,
        /// Owned as a whole or not, where the place of the value says so rather than its type.
        atomic: Option<bool>,
        /// A text that has a format may also be written as a number.
        formatted: bool,
    },
    /// Nothing is known: maps are taken apart, lists are not.
    Deduced,
    /// Nothing is known, and all of it belongs together.
    Opaque,
}

/// What a value is to those who walk over it.
#[derive(Debug, Clone, Copy)]
pub enum Atom<'a> {
    Scalar(Scalar),
    List(List<'a>),
    Map(Fields<'a>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Number,
    Text,
    Bool,
    Any,
}

#[derive(Debug, Clone, Copy)]
pub struct List<'a> {
    pub element: Type<'a>,
    pub kind: &'a ListType,
}

#[derive(Debug, Clone, Copy)]
pub struct Fields<'a> {
    owner: Type<'a>,
    known: Option<&'a Struct>,
    /// Of fields that are not known; `None`: there may be none.
    rest: Option<Type<'a>>,
    pub atomic: bool,
}

impl<'a> Type<'a> {
    /// Of a whole object. `Shape::Any`: nothing is known about it.
    pub fn of_object(types: &'a Types, shape: &'a Shape) -> Self {
        Self {
            types,
            form: Form::Deduced,
        }
        .element(shape)
    }

    fn with(self, form: Form<'a>) -> Self {
        Self { form, ..self }
    }

    /// Of a value that no field describes: a whole object, an element of a list or of a map.
    fn element(self, shape: &'a Shape) -> Self {
        // The published schema of a number or a string has no type at all.
        if matches!(shape, Shape::Any | Shape::IntOrString) {
            return self.with(Form::Deduced);
        }
        self.with(Form::Known {
            shape,
            list: &ListType::Atomic,
            atomic: None,
            formatted: false,
        })
    }

    fn field(self, field: &'a Field, of: &Struct) -> Self {
        if field.shape == Shape::Any {
            // What the built-in types leave open is some other program's object, to be taken as a whole.
            let built_in = !of.go_name.is_empty();
            let opaque = built_in || field.atomic;
            return self.with(if opaque { Form::Opaque } else { Form::Deduced });
        }
        if field.shape == Shape::IntOrString {
            return self.element(&field.shape);
        }
        let atomic = match (field.atomic, field.granular) {
            (true, _) => Some(true),
            (false, true) => Some(false),
            (false, false) => None,
        };
        self.with(Form::Known {
            shape: &field.shape,
            list: &field.list,
            atomic,
            formatted: field
                .format
                .as_deref()
                .is_some_and(|format| format != "byte"),
        })
    }

    /// `value` decides only where the type does not.
    pub fn atom(self, value: Option<&Value>) -> Atom<'a> {
        let (shape, list, atomic, formatted) = match self.form {
            Form::Known {
                shape,
                list,
                atomic,
                formatted,
            } => (shape, list, atomic, formatted),
            Form::Deduced => return self.deduce(value, Form::Deduced),
            Form::Opaque => return self.deduce(value, Form::Opaque),
        };
        match shape {
            Shape::Text(_) if !formatted => Atom::Scalar(Scalar::Text),
            Shape::Bytes | Shape::Duration => Atom::Scalar(Scalar::Text),
            Shape::Bool => Atom::Scalar(Scalar::Bool),
            Shape::Int32 | Shape::Int64 | Shape::Float => Atom::Scalar(Scalar::Number),
            Shape::Text(_) | Shape::Quantity | Shape::Time | Shape::MicroTime => {
                Atom::Scalar(Scalar::Any)
            }
            Shape::Any | Shape::IntOrString => self.deduce(value, Form::Deduced),
            Shape::List(element, _) => Atom::List(List {
                element: self.element(element),
                kind: list,
            }),
            Shape::Map(element, _) => Atom::Map(Fields {
                owner: self,
                known: None,
                rest: Some(self.element(element)),
                atomic: atomic.unwrap_or(false),
            }),
            Shape::Struct(id) => {
                let known = self.types.get(*id);
                Atom::Map(Fields {
                    owner: self,
                    known: Some(known),
                    rest: known.rest.as_ref().map(|shape| self.element(shape)),
                    atomic: atomic.unwrap_or(known.atomic),
                })
            }
        }
    }

    fn deduce(self, value: Option<&Value>, form: Form<'a>) -> Atom<'a> {
        match value {
            Some(Value::Array(_)) => Atom::List(List {
                element: self.with(Form::Opaque),
                kind: &ListType::Atomic,
            }),
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Atom::Scalar(Scalar::Any),
            Some(Value::Object(_) | Value::Null) | None => Atom::Map(Fields {
                owner: self,
                known: None,
                rest: Some(self.with(form)),
                atomic: matches!(form, Form::Opaque),
            }),
        }
    }

    /// Whether its parts are owned together.
    fn is_whole(self) -> bool {
        match self.atom(None) {
            Atom::Scalar(_) => false,
            Atom::List(list) => list.is_atomic(),
            Atom::Map(fields) => fields.atomic,
        }
    }

    /// Whether a value of another kind may take the place of one.
    pub fn is_open(self) -> bool {
        matches!(self.form, Form::Deduced | Form::Opaque)
    }
}

impl<'a> Fields<'a> {
    pub fn is_known(&self, name: &str) -> bool {
        self.known.is_some_and(|known| known.field(name).is_some())
    }

    /// `None`: there can be no such field.
    pub fn get(&self, name: &str) -> Option<Type<'a>> {
        let known = self
            .known
            .and_then(|known| Some((known, known.field(name)?)));
        match known {
            Some((known, field)) => Some(self.owner.field(field, known)),
            None => self.rest,
        }
    }

    /// What a key of a list's element is when it is left out.
    fn default(&self, name: &str) -> Option<&'a Value> {
        self.known?.field(name)?.default.as_ref()
    }
}

impl List<'_> {
    pub fn is_atomic(&self) -> bool {
        *self.kind == ListType::Atomic
    }

    /// What tells `element` from others in the list.
    pub fn step(&self, element: &Value) -> Result<Step, String> {
        match self.kind {
            ListType::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            ListType::Map(keys) if !keys.is_empty() => self.key(element, keys),
            ListType::Map(_) | ListType::Set => match element {
                Value::Object(_) => {
                    Err("associative list without keys has an element that's a map type".to_owned())
                }
                Value::Array(_) => {
                    Err("not supported: associative list with lists as elements".to_owned())
                }
                Value::Null => Err(
                    "associative list without keys has an element that's an explicit null"
                        .to_owned(),
                ),
                scalar => Ok(Step::Value(scalar.clone())),
            },
        }
    }

    fn key(&self, element: &Value, keys: &[Box<str>]) -> Result<Step, String> {
        let fields = match element {
            Value::Object(fields) => fields,
            Value::Null => {
                return Err("associative list with keys may not have a null element".to_owned());
            }
            _ => {
                return Err("associative list with keys may not have non-map elements".to_owned());
            }
        };
        let known = match self.element.atom(Some(element)) {
            Atom::Map(known) => Some(known),
            _ => None,
        };
        let mut parts = Vec::with_capacity(keys.len());
        for name in keys {
            let default = || known.as_ref()?.default(name);
            if let Some(value) = fields.get(name.as_ref()).or_else(default) {
                parts.push((name.clone(), value.clone()));
            }
        }
        if parts.is_empty() {
            let names: Vec<String> = keys
                .iter()
                .map(|name| plimsoll_golang::strconv::quote(name))
                .collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                names.join(" ")
            ));
        }
        Ok(Step::key(parts))
    }
}

/// Every leaf of `value`, and every element of its lists and maps.
pub fn field_set(value: &Value, of: Type<'_>) -> FieldSet {
    let mut set = FieldSet::new();
    collect(value, of, &mut Vec::new(), &mut set);
    set
}

fn collect(value: &Value, of: Type<'_>, path: &mut Vec<Step>, set: &mut FieldSet) {
    match of.atom(Some(value)) {
        Atom::Scalar(_) => set.insert(path),
        Atom::List(list) if list.is_atomic() => set.insert(path),
        Atom::List(list) => {
            if let Value::Array(values) = value {
                collect_elements(values, list, path, set);
            }
        }
        Atom::Map(fields) if fields.atomic => set.insert(path),
        Atom::Map(fields) => {
            let Value::Object(values) = value else { return };
            for (name, value) in values {
                path.push(Step::field(name));
                if let Some(inner) = fields.get(name) {
                    collect(value, inner, path, set);
                }
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if empty || !fields.is_known(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

/// Elements that are there twice are owned as one.
fn collect_elements(values: &[Value], list: List<'_>, path: &mut Vec<Step>, set: &mut FieldSet) {
    let steps: Vec<Option<Step>> = values.iter().map(|one| list.step(one).ok()).collect();
    let mut times: BTreeMap<&Step, usize> = BTreeMap::new();
    for step in steps.iter().flatten() {
        *times.entry(step).or_default() += 1;
    }
    for (value, step) in values.iter().zip(&steps) {
        let Some(step) = step else { continue };
        let twice = times.get(step).is_some_and(|times| *times > 1);
        path.push(step.clone());
        if !twice {
            collect(value, list.element, path, set);
        }
        set.insert(path);
        path.pop();
    }
}

/// `value` without the members of `set`. A list or map that loses all it has becomes null.
pub fn remove(value: &Value, set: &FieldSet, of: Type<'_>) -> Value {
    match (of.atom(Some(value)), value) {
        (Atom::Scalar(_), _) => value.clone(),
        (Atom::List(list), Value::Array(values)) if !list.is_atomic() => {
            let mut kept = Vec::with_capacity(values.len());
            for value in values {
                let Ok(step) = list.step(value) else {
                    kept.push(value.clone());
                    continue;
                };
                if set.has_member(&step) {
                    continue;
                }
                kept.push(match set.below(&step) {
                    Some(below) => remove(value, below, list.element),
                    None => value.clone(),
                });
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Array(kept)
            }
        }
        (Atom::Map(fields), Value::Object(values)) if !fields.atomic => {
            let mut kept = Map::new();
            for (name, value) in values {
                let step = Step::field(name);
                if set.has_member(&step) {
                    continue;
                }
                let value = match (set.below(&step), fields.get(name)) {
                    (Some(below), Some(inner)) => remove(value, below, inner),
                    _ => value.clone(),
                };
                kept.insert(name.clone(), value);
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Object(kept)
            }
        }
        _ => Value::Null,
    }
}

/// With every known field on the way to a member a member itself.
pub fn with_named_fields(set: &FieldSet, of: Option<Type<'_>>) -> FieldSet {
    let atoms = of.map(|of| (of.atom(None), of.atom(Some(&Value::Array(Vec::new())))));
    set.map(|step, member, below| {
        let (named, inner) = match (step, atoms) {
            (Step::Field(name), Some((Atom::Map(fields), _))) => {
                (fields.is_known(name), fields.get(name))
            }
            (Step::Key(_), Some((_, Atom::List(list)))) => (false, Some(list.element)),
            _ => (false, None),
        };
        let leads_on = !below.is_empty();
        (
            member || (named && leads_on),
            with_named_fields(below, inner),
        )
    })
}

/// Ownership of the parts of what has since become one whole becomes ownership of the whole.
pub fn fit_to_type(set: &FieldSet, of: Type<'_>) -> FieldSet {
    let atoms = (of.atom(None), of.atom(Some(&Value::Array(Vec::new()))));
    set.map(|step, member, below| {
        let inner = match (step, atoms) {
            (Step::Field(name), (Atom::Map(fields), _)) => fields.get(name),
            (Step::Key(_) | Step::Value(_), (_, Atom::List(list))) => Some(list.element),
            _ => None,
        };
        match inner {
            Some(inner) if inner.is_open() || below.is_empty() => (member, below.clone()),
            Some(inner) if inner.is_whole() => (true, FieldSet::new()),
            Some(inner) => (member, fit_to_type(below, inner)),
            None => (member, below.clone()),
        }
    })
}
