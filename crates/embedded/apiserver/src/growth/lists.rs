//! Objects of every kind with one list that is long.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::Elements;
use super::measure::compare;
use crate::codec::decode::decode_as_given;
use crate::codec::json::Node;
use crate::kinds;
use crate::managed::{Reset, Tracking};
use crate::resource::{self, Resource};
use crate::schema::{Shape, TypeId, Types};

/// The way to a list or map, from the root of an object of a resource.
#[derive(Debug, Clone)]
struct Place {
    resource: &'static Resource,
    way: Vec<Box<str>>,
}

/// All lists and maps of all kinds, those of one type once.
fn places() -> Vec<Place> {
    let mut met = BTreeSet::new();
    let mut places = Vec::new();
    for resource in resource::builtin() {
        if let Some(id) = resource.type_id() {
            note(resource, id, &mut Vec::new(), &mut met, &mut places);
        }
    }
    places
}

fn note(
    resource: &'static Resource,
    id: TypeId,
    way: &mut Vec<Box<str>>,
    met: &mut BTreeSet<(String, String, String)>,
    places: &mut Vec<Place>,
) {
    let of = Types::builtin().get(id);
    for field in &of.fields {
        // A template is checked in another way than a pod is.
        let root = if way.is_empty() {
            resource.qualified()
        } else {
            String::new()
        };
        let template = way.iter().any(|step| &**step == "template");
        let key = (
            format!("{}{template}", of.name),
            field.name.to_string(),
            root,
        );
        if !met.insert(key) {
            continue;
        }
        way.push(field.name.clone());
        let mut shape = &field.shape;
        if matches!(shape, Shape::List(..) | Shape::Map(..)) {
            places.push(Place {
                resource,
                way: way.clone(),
            });
        }
        while let Shape::List(inner, _) | Shape::Map(inner, _) = shape {
            shape = inner;
        }
        if let Shape::Struct(id) = shape {
            note(resource, *id, way, met, places);
        }
        way.pop();
    }
}

impl Place {
    fn object(&self, count: usize, elements: Elements) -> Value {
        let id = self.resource.type_id().unwrap();
        let mut object = self.along(&Shape::Struct(id), &self.way, count, elements);
        object["kind"] = self.resource.kind.as_str().into();
        object["apiVersion"] = self.resource.api_version().into();
        object["metadata"]["name"] = "a".into();
        if self.resource.namespaced() {
            object["metadata"]["namespace"] = "default".into();
        }
        object
    }

    fn along(&self, shape: &Shape, way: &[Box<str>], count: usize, elements: Elements) -> Value {
        match (shape, way.split_first()) {
            (Shape::Struct(id), Some((name, rest))) => {
                let mut object = filled(*id, 0, 1);
                let field = Types::builtin().get(*id).field(name).unwrap();
                object[&**name] = self.along(&field.shape, rest, count, elements);
                object
            }
            // One element on the way to the list that is long.
            (Shape::List(inner, _), Some(_)) => json!([self.along(inner, way, count, elements)]),
            (Shape::Map(inner, _), Some(_)) => {
                json!({"a": self.along(inner, way, count, elements)})
            }
            (Shape::List(inner, _), None) => (0..count)
                .map(|index| value(inner, elements.number(index), 2))
                .collect(),
            (Shape::Map(inner, _), None) => {
                let entries = (0..count)
                    .map(|index| (format!("k{index}"), value(inner, elements.number(index), 2)));
                Value::Object(entries.collect())
            }
            _ => Value::Null,
        }
    }
}

fn filled(id: TypeId, number: usize, levels: usize) -> Value {
    let fields = Types::builtin().get(id).fields.iter();
    let fields =
        fields.filter(|field| levels > 0 || matches!(field.shape, Shape::Text(_) | Shape::Int32));
    let fields: Map<String, Value> = fields
        .filter(|field| {
            !matches!(
                &*field.name,
                "managedFields" | "deletionTimestamp" | "status"
            )
        })
        .map(|field| {
            (
                field.name.to_string(),
                value(&field.shape, number, levels.saturating_sub(1)),
            )
        })
        .filter(|(_, value)| !value.is_null())
        .collect();
    Value::Object(fields)
}

fn value(shape: &Shape, number: usize, levels: usize) -> Value {
    match shape {
        Shape::Text(_) => format!("a{number}").into(),
        Shape::Bool => true.into(),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => (1 + number % 60_000).into(),
        Shape::Float => 1.5.into(),
        Shape::Bytes => "YQ==".into(),
        Shape::Quantity => format!("{}m", 1 + number).into(),
        Shape::Time => "2026-01-01T00:00:00Z".into(),
        Shape::MicroTime => "2026-01-01T00:00:00.000000Z".into(),
        Shape::Duration => "1s".into(),
        Shape::Any => Value::Null,
        _ if levels == 0 => Value::Null,
        Shape::List(inner, _) => match value(inner, number, levels - 1) {
            Value::Null => Value::Null,
            one => json!([one]),
        },
        Shape::Map(inner, _) => match value(inner, number, levels - 1) {
            Value::Null => Value::Null,
            one => json!({format!("k{number}"): one}),
        },
        Shape::Struct(id) => filled(*id, number, levels - 1),
    }
}

/// An object, and the same in reverse.
fn pair(place: &Place, count: usize, elements: Elements) -> (Value, Value) {
    let object = place.object(count, elements);
    let mut other = object.clone();
    let mut list = &mut other;
    for step in &place.way {
        // One element, or one entry, on the way.
        if list.is_array() {
            list = &mut list[0];
        } else if list.get(&**step).is_none() {
            list = &mut list["a"];
        }
        list = &mut list[&**step];
    }
    if let Value::Array(items) = list {
        items.reverse();
        items.pop();
    }
    (object, other)
}

/// Elements of the list, and four times as many.
const COUNT: usize = 500;

fn check_place(place: &Place, elements: Elements) {
    let resource = place.resource;
    let id = resource.type_id().unwrap();
    let kind = kinds::of(&resource.group, &resource.version, &resource.kind);
    let types = Types::builtin();
    let shape = Shape::Struct(id);
    let api_version = resource.api_version();
    let tracking = Tracking {
        types,
        shape: &shape,
        api_version: &api_version,
        kind: &resource.kind,
        subresource: "",
        reset: &Reset::nothing(),
        versions: &[&api_version],
    };
    let now = "2026-01-01T00:00:00Z";
    let what = |work: &str| {
        format!(
            "{work} {} {} {elements:?}",
            resource.qualified(),
            place.way.join(".")
        )
    };
    let given = [COUNT, 4 * COUNT].map(|count| pair(place, count, elements));
    let on_both = |work: &str, inputs: &[(Value, Value); 2], go: &dyn Fn(&(Value, Value))| {
        compare(&what(work), &inputs[0], &inputs[1], go);
    };
    on_both("decode", &given, &|(object, _)| {
        let decoded = decode_as_given(types, id, &Node::of(object));
        if let Ok(mut decoded) = decoded {
            kind.default(&mut decoded.value);
            kind.prepare_create(&mut decoded.value);
        }
    });
    let as_decoded = |object: Value| {
        let decoded = decode_as_given(types, id, &Node::of(&object));
        let mut object = decoded.map_or(object, |decoded| decoded.value);
        kind.default(&mut object);
        object
    };
    let mut inputs = given.map(|(object, other)| (as_decoded(object), as_decoded(other)));
    on_both("create", &inputs, &|(object, _)| {
        drop(kind.validate_create(object))
    });
    on_both("update", &inputs, &|(object, other)| {
        drop(kind.validate_update(object, other))
    });
    on_both("status", &inputs, &|(object, other)| {
        drop(kind.validate_status_update(object, other));
    });
    on_both("prepare", &inputs, &|(object, other)| {
        let (mut new, mut status) = (object.clone(), object.clone());
        kind.prepare_update(&mut new, other);
        kind.prepare_status_update(&mut status, other);
    });
    on_both("warn", &inputs, &|(object, other)| {
        let (notices, new) = (kind.notices(object), kind.warnings(object, None));
        drop((notices, new, kind.warnings(object, Some(other))));
    });
    on_both("track", &inputs, &|(object, _)| {
        tracking.update(None, &mut object.clone(), "one", now);
    });
    for (object, _) in &mut inputs {
        tracking.update(None, object, "one", now);
    }
    on_both("track a change", &inputs, &|(object, other)| {
        tracking.update(Some(object), &mut other.clone(), "two", now);
    });
    on_both("apply", &inputs, &|(object, other)| {
        drop(tracking.apply(Some(object), other, "three", true, now));
    });
}

/// Of all kinds, and so many places of theirs as there is time for: `PLIMSOLL_CLASS_SECONDS` says how much.
#[test]
fn one_long_list_of_any_kind() {
    let seconds: Option<u64> = std::env::var("PLIMSOLL_CLASS_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok());
    // The ladder sets the second: its runs must not fail by chance.
    let told = ["PLIMSOLL_CLASS_SEED", "PROPTEST_RNG_SEED"].map(|name| std::env::var(name).ok());
    let seed = told
        .into_iter()
        .flatten()
        .find_map(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("PLIMSOLL_CLASS_SEED={seed}");
    let mut places = places();
    assert!(places.len() > 400, "{}", places.len());
    fastrand::Rng::with_seed(seed).shuffle(&mut places);
    let enough = match seconds {
        None => 3,
        Some(_) => places.len(),
    };
    // All that is wrong is told, not the first of it.
    let wrong = places.iter().take(enough).filter(|place| {
        let checks = [Elements::Different, Elements::Alike]
            .map(|elements| std::panic::catch_unwind(|| check_place(place, elements)));
        checks.iter().any(Result::is_err)
    });
    let wrong: Vec<String> = wrong.map(|place| place.way.join(".")).collect();
    assert_eq!(wrong, [""; 0]);
}

/// Those that somebody once looked through for each element.
#[test]
fn long_lists_that_were_slow() {
    let places = places();
    for (plural, way) in [
        ("pods", "spec.volumes.secret.items"),
        ("pods", "spec.containers.env"),
        ("pods", "spec.containers.ports"),
        ("pods", "spec.tolerations"),
        ("pods", "metadata.finalizers"),
        ("pods", "metadata.ownerReferences"),
        ("services", "spec.ports"),
        ("resourcequotas", "spec.scopes"),
        ("storageclasses", "allowedTopologies"),
    ] {
        let of = |place: &&Place| {
            place.way.join(".") == way
                && (place.resource.plural == plural || way.starts_with("metadata"))
        };
        let place = places
            .iter()
            .find(of)
            .unwrap_or_else(|| panic!("{plural} {way}"));
        check_place(place, Elements::Different);
        check_place(place, Elements::Alike);
    }
}
