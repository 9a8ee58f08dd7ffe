//! What holds whatever is written.

use std::sync::OnceLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::compare::Comparison;
use super::fieldset::FieldSet;
use super::merge::merge;
use super::path::values_equal;
use super::typed::{field_set, remove};
use super::*;

fn schema() -> Value {
    let text = json!({"type": "string"});
    json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "text": text,
        "map": {"type": "object", "additionalProperties": text},
        "whole": {"type": "object", "additionalProperties": text, "x-kubernetes-map-type": "atomic"},
        "plain": {"type": "array", "items": text},
        "set": {"type": "array", "items": text, "x-kubernetes-list-type": "set"},
        "keyed": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["key"],
            "items": {"type": "object", "properties": {"key": text, "a": text, "b": text}},
        },
        "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    }}}})
}

fn word() -> impl Strategy<Value = String> {
    "[a-c]"
}

fn words() -> impl Strategy<Value = Value> {
    prop::collection::btree_set(word(), 1..4)
        .prop_map(|set| set.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(Value::from)
}

fn word_map() -> impl Strategy<Value = Value> {
    prop::collection::btree_map(word(), word(), 1..4).prop_map(|map| json!(map))
}

fn keyed() -> impl Strategy<Value = Value> {
    let rest = (prop::option::of(word()), prop::option::of(word()));
    prop::collection::btree_map(word(), rest, 1..4)
        .prop_map(|elements| elements.into_iter().collect::<Vec<_>>())
        .prop_shuffle()
        .prop_map(|elements| {
            let element = |(key, (a, b))| {
                let mut element = json!({"key": key});
                for (name, value) in [("a", a), ("b", b)] {
                    if let Some(value) = value {
                        element[name] = Value::from(value);
                    }
                }
                element
            };
            elements.into_iter().map(element).collect()
        })
}

fn open() -> impl Strategy<Value = Value> {
    let inner = prop_oneof![word().prop_map(Value::from), words(), word_map()];
    prop::collection::btree_map(word(), inner, 1..3).prop_map(|map| json!(map))
}

prop_compose! {
    fn object()(
        text in prop::option::of(word().prop_map(Value::from)),
        map in prop::option::of(word_map()),
        whole in prop::option::of(word_map()),
        plain in prop::option::of(words()),
        set in prop::option::of(words()),
        keyed in prop::option::of(keyed()),
        open in prop::option::of(open()),
    ) -> Value {
        let mut object = json!({"apiVersion": "e/v1", "kind": "K", "metadata": {"name": "n"}});
        let fields = [
            ("text", text), ("map", map), ("whole", whole), ("plain", plain),
            ("set", set), ("keyed", keyed), ("open", open),
        ];
        for (name, value) in fields {
            if let Some(value) = value {
                object["spec"][name] = value;
            }
        }
        object
    }
}

fn with_tracking<T>(check: impl FnOnce(Tracking<'_>) -> T) -> T {
    static TYPES: OnceLock<(Types, Shape)> = OnceLock::new();
    let (types, shape) = TYPES.get_or_init(|| structural::from_schema(&schema()));
    check(Tracking {
        types,
        shape,
        api_version: "e/v1",
        kind: "K",
        subresource: "",
        reset: &Reset::nothing(),
        versions: &[],
    })
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(name, value)| (name.clone(), without_nulls(value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn merging(live in object(), applied in object()) {
        with_tracking(|tracking| {
            let of = tracking.of();
            let merged = merge(&live, &applied, of);
            // Nothing of what was applied is missing, and once is enough.
            prop_assert!(values_equal(&merge(&merged, &applied, of), &merged));
            prop_assert!(values_equal(&merge(&live, &live, of), &live));
            let applied_set = field_set(&applied, of);
            let all = field_set(&live, of).union(&applied_set);
            let own = applied_set.leaves().difference(&field_set(&merged, of));
            prop_assert!(own.is_empty(), "{own:?}");
            prop_assert!(field_set(&merged, of).difference(&all).is_empty());
            Ok(())
        })?;
    }

    #[test]
    fn comparing(old in object(), new in object()) {
        with_tracking(|tracking| {
            let of = tracking.of();
            prop_assert_eq!(Comparison::of(&old, &old, of), Comparison::default());
            let there = Comparison::of(&old, &new, of);
            let back = Comparison::of(&new, &old, of);
            prop_assert_eq!(&there.added, &back.removed);
            prop_assert_eq!(&there.removed, &back.added);
            prop_assert_eq!(&there.modified, &back.modified);
            // What was neither added nor removed is in both.
            let (old_set, new_set) = (field_set(&old, of), field_set(&new, of));
            prop_assert!(there.added.leaves().difference(&new_set).is_empty());
            prop_assert!(there.removed.leaves().difference(&old_set).is_empty());
            Ok(())
        })?;
    }

    #[test]
    fn removing(value in object(), other in object()) {
        with_tracking(|tracking| {
            let of = tracking.of();
            let set = field_set(&other, of).intersection(&field_set(&value, of));
            let rest = field_set(&without_nulls(&remove(&value, &set, of)), of);
            prop_assert!(rest.intersection(&set.leaves()).is_empty());
            prop_assert!(values_equal(&remove(&value, &FieldSet::new(), of), &value));
            Ok(())
        })?;
    }

    #[test]
    fn applying(first in object(), second in object(), third in object()) {
        with_tracking(|tracking| {
            let apply = |live: Option<&Value>, applied: &Value, manager: &str| {
                tracking.apply(live, applied, manager, true, "2026-01-01T00:00:00Z").unwrap()
            };
            let one = apply(None, &first, "a");
            let two = apply(Some(&one), &second, "b");
            // Applying again changes nothing, not even times.
            prop_assert_eq!(&apply(Some(&two), &second, "b"), &two);
            // What one applied, and nobody else has, goes with the next configuration.
            let alone = without_nulls(&apply(Some(&one), &third, "a"));
            let fresh = without_nulls(&apply(None, &third, "a"));
            let of = tracking.of();
            let left = field_set(&alone, of).leaves();
            prop_assert_eq!(left, field_set(&fresh, of).leaves());
            Ok(())
        })?;
    }

    #[test]
    fn entries_survive_reading_and_writing(first in object(), second in object()) {
        with_tracking(|tracking| {
            let one = tracking.apply(None, &first, "a", true, "2026-01-01T00:00:00Z").unwrap();
            let mut two = second;
            two["metadata"]["uid"] = "u".into();
            tracking.update(Some(&one), &mut two, "b", "2026-01-02T00:00:00Z");
            let given = &two["metadata"]["managedFields"];
            let entries = Entries::parse(given).unwrap();
            prop_assert_eq!(&entries.to_value(), if entries.is_empty() { &Value::Array(vec![]) } else { given });
            Ok(())
        })?;
    }
}
