//! A patched object as refusals show it. The original takes apart only what a patch touches: that comes back with its
//! fields sorted, and the rest as Go wrote it.

use std::collections::BTreeMap;
use std::fmt::Write;

use plimsoll_golang::json::escape_html;
use serde_json::{Map, Value};

use crate::depth::MAX_DEPTH;
use crate::schema::{Field, Shape, Types};

/// What a patch has taken apart.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Touched {
    /// All of it is the patch's own.
    new: bool,
    within: BTreeMap<String, Touched>,
}

impl Touched {
    /// By a merge patch.
    pub fn by_merge(current: Option<&Value>, patch: &Value) -> Self {
        let (Some(Value::Object(current)), Value::Object(patch)) = (current, patch) else {
            return Self {
                new: true,
                within: BTreeMap::new(),
            };
        };
        let within = patch
            .iter()
            .map(|(name, patch)| (name.clone(), Self::by_merge(current.get(name), patch)))
            .collect();
        Self { new: false, within }
    }

    /// What has been taken apart of a field or an element.
    fn part(&self, name: &str) -> Option<&Self> {
        if self.new {
            return Some(self);
        }
        self.within.get(name)
    }

    /// By an operation of a JSON patch: everything on the way to what its path names.
    pub fn note_path(&mut self, path: &str) {
        let mut here = self;
        // Further down there is nothing.
        for part in path.split('/').skip(1).take(MAX_DEPTH) {
            let name = part.replace("~1", "/").replace("~0", "~");
            here = here.within.entry(name).or_default();
        }
        here.new = true;
    }
}

pub(super) fn shown(types: &Types, shape: &Shape, value: &Value, touched: &Touched) -> String {
    let mut writer = Writer {
        types,
        out: String::new(),
    };
    writer.value(value, Some(shape), Some(touched));
    // As Go writes JSON: harmless within HTML.
    escape_html(&writer.out)
}

struct Writer<'a> {
    types: &'a Types,
    out: String,
}

impl Writer<'_> {
    fn value(&mut self, value: &Value, shape: Option<&Shape>, touched: Option<&Touched>) {
        match value {
            Value::Object(fields) => self.fields(fields, shape, touched),
            Value::Array(values) => {
                let element = match shape {
                    Some(Shape::List(element, _)) => Some(element.as_ref()),
                    _ => None,
                };
                self.out.push('[');
                for (index, value) in values.iter().enumerate() {
                    if index > 0 {
                        self.out.push(',');
                    }
                    let touched = touched.and_then(|it| it.part(&index.to_string()));
                    self.value(value, element, touched);
                }
                self.out.push(']');
            }
            scalar => {
                let _ = write!(self.out, "{scalar}");
            }
        }
    }

    fn fields(
        &mut self,
        fields: &Map<String, Value>,
        shape: Option<&Shape>,
        touched: Option<&Touched>,
    ) {
        let of = match shape {
            Some(Shape::Struct(id)) => Some(self.types.get(*id)),
            _ => None,
        };
        let known = |name: &str| -> Option<&Field> { of?.field(name) };
        let mut sorted: Vec<(&String, &Value)> = fields.iter().collect();
        sorted.sort_by_key(|(name, _)| match touched {
            Some(_) => (0, *name),
            None => (
                known(name).map_or(usize::MAX, |field| field.position),
                *name,
            ),
        });
        self.out.push('{');
        for (index, (name, value)) in sorted.into_iter().enumerate() {
            if index > 0 {
                self.out.push(',');
            }
            let _ = write!(self.out, "{}:", Value::from(name.as_str()));
            let shape = match shape {
                Some(Shape::Map(element, _)) => Some(element.as_ref()),
                _ => known(name).map(|field| &field.shape),
            };
            let touched = touched.and_then(|it| it.part(name));
            self.value(value, shape, touched);
        }
        self.out.push('}');
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::builtin_type;

    #[test]
    fn only_what_was_touched_is_sorted() {
        let shape = Shape::Struct(builtin_type("", "v1", "ConfigMap").unwrap());
        let object = json!({
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"name": "a", "uid": "u", "labels": {"b": "<"}, "creationTimestamp": "t"},
            "data": {"q": 1},
        });
        let show = |touched: &Touched| shown(Types::builtin(), &shape, &object, touched);
        let metadata = r#"{"name":"a","uid":"u","creationTimestamp":"t","labels":{"b":"\u003c"}}"#;
        let sorted = r#"{"creationTimestamp":"t","labels":{"b":"\u003c"},"name":"a","uid":"u"}"#;
        let whole = |metadata: &str| {
            format!(
                r#"{{"apiVersion":"v1","data":{{"q":1}},"kind":"ConfigMap","metadata":{metadata}}}"#
            )
        };
        let merged = Touched::by_merge(Some(&object), &json!({"data": {"q": 1}}));
        assert_eq!(show(&merged), whole(metadata));
        let list = json!({"list": [{"b": 1, "a": 2}]});
        let merged = Touched::by_merge(Some(&json!({"list": []})), &list);
        let shape = Shape::Struct(builtin_type("", "v1", "ConfigMap").unwrap());
        let text = shown(Types::builtin(), &shape, &list, &merged);
        assert_eq!(text, r#"{"list":[{"a":2,"b":1}]}"#);
        let mut touched = Touched::default();
        touched.note_path("/metadata/name");
        assert_eq!(show(&touched), whole(sorted));
    }
}
