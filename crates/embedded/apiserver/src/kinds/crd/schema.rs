//! Which schemas custom resources may have: structural ones, that say of every field what it is.

use serde_json::{Value, json};

use super::rules::{self, Place, Total};
use crate::field::FieldError;
use crate::kinds::at::{At, Errors};
use crate::kinds::diff;
use crate::met::Met;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const NOT_SUPPORTED: &[&str] = &[
    "id",
    "additionalItems",
    "patternProperties",
    "definitions",
    "dependencies",
    "$ref",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// `validation` holds the schema. With a status of its own, the root may not say much.
/// What a schema must not say at its root when the status is written by itself and has to be checked by itself.
const NOT_BESIDE_STATUS: &[&str] = &[
    "$ref",
    "$schema",
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "default",
    "definitions",
    "dependencies",
    "enum",
    "id",
    "maxProperties",
    "minProperties",
    "not",
    "nullable",
    "oneOf",
    "patternProperties",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

pub fn check(validation: &At<'_>, with_status: bool, errors: &mut Errors) {
    let schema = validation.get("openAPIV3Schema");
    if !schema.is_set() {
        return;
    }
    if with_status && !schema.get("type").is_empty() && schema.get("type").text() != "object" {
        errors.invalid(
            &validation.get("openAPIV3Schema.type"),
            schema.get("type").text(),
            "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled",
        );
    } else if with_status && NOT_BESIDE_STATUS.iter().any(|key| schema.get(key).is_set()) {
        let shown = diff::compact("JSONSchemaProps", schema.value);
        errors.invalid_shown(
            &schema,
            &shown,
            "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled",
        );
    }
    if schema.get("nullable").flag() {
        errors.forbidden(
            &validation.get("openAPIV3Schema.nullable"),
            "nullable cannot be true at the root",
        );
    }
    let mut structural = Errors::default();
    invariants(&schema, Level::Root, &mut structural);
    structural.0.sort_by_key(ToString::to_string);
    let said_before = errors.0.len();
    if structural.0.is_empty() {
        defaults(&schema, errors);
        let of_metadata = schema.get("properties").key("metadata").get("default");
        if of_metadata.is_set() {
            errors.forbidden(&of_metadata, "must not be set in top-level metadata");
        }
    }
    let mut found = Found {
        is_sound: structural.0.is_empty() && errors.0.len() == said_before,
        ..Found::default()
    };
    let place = Place {
        root: true,
        loose: None,
        count: Some(1),
    };
    standard(&schema, place, &mut found);
    // With what cannot be said in a structural schema at all, nothing is said about its structure.
    let unreadable = |error: &FieldError| error.to_string().ends_with(" is not supported");
    if !found.schema.0.iter().any(unreadable) {
        errors.0.append(&mut structural.0);
    }
    errors.0.append(&mut found.schema.0);
    errors.0.append(&mut found.rules.0);
    found.cost.check(&schema, errors);
}

/// What is wrong with a schema by itself, and with the rules in it.
#[derive(Default)]
struct Found<'v> {
    /// Whether nothing was wrong before.
    is_sound: bool,
    schema: Errors,
    rules: Errors,
    cost: Total<'v>,
}

/// A default has to be what the schema allows.
fn defaults(schema: &At<'_>, errors: &mut Errors) {
    if !schema.value.is_object() {
        return;
    }
    let default = schema.get("default");
    if default.is_set() {
        if crate::crd::has_unknown(schema.value, default.value) {
            let detail = "must not have unknown fields";
            errors.invalid(&default, default.value.clone(), detail);
        }
        for error in crate::crd::objections(schema.value, default.value, &default.path()) {
            errors.push(error);
        }
    }
    for (_, property) in schema.get("properties").entries() {
        defaults(&property, errors);
    }
    for part in ["items", "additionalProperties"] {
        defaults(&schema.get(part), errors);
    }
}

/// What every part of a structural schema must say.
fn invariants(schema: &At<'_>, level: Level, errors: &mut Errors) {
    if !schema.is_set() {
        return;
    }
    let kind = schema.get("type");
    let items = schema.get("items");
    if kind.text() == "array" && !items.is_set() {
        errors.required(&items, "must be specified");
    }
    invariants(&items, Level::Item, errors);
    let properties = schema.get("properties");
    for (_, property) in properties.entries() {
        invariants(&property, Level::Field, errors);
    }
    let additional = schema.get("additionalProperties");
    if additional.is_set() {
        if level == Level::Root {
            errors.forbidden(&additional, "must not be used at the root");
        }
        if additional.value.is_object() {
            invariants(&additional, Level::Field, errors);
        }
    }
    let [int_or_string, preserve, embedded] = [
        "x-kubernetes-int-or-string",
        "x-kubernetes-preserve-unknown-fields",
        "x-kubernetes-embedded-resource",
    ]
    .map(|name| schema.get(name));
    for at in [&preserve, &embedded] {
        if int_or_string.flag() && at.flag() {
            errors.invalid(
                at,
                true,
                "must be false if x-kubernetes-int-or-string is true",
            );
        }
    }
    value_validation(schema, errors);
    if level == Level::Root {
        for alternative in alternatives(schema) {
            complete(schema, &alternative, errors);
        }
    }
    if embedded.flag() && kind.text() != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        if kind.is_empty() {
            errors.required(&kind, detail);
        } else {
            errors.invalid(&kind, kind.text(), detail);
        }
    } else if kind.is_empty() && !int_or_string.flag() && !preserve.flag() {
        let place = match level {
            Level::Root => "at the root",
            Level::Item => "for specified array items",
            Level::Field => "for specified object fields",
        };
        errors.required(&kind, &format!("must not be empty {place}"));
    }
    if level == Level::Root && !kind.is_empty() && kind.text() != "object" {
        errors.invalid(&kind, kind.text(), "must be object at the root");
    }
    let of_object = level == Level::Root || embedded.flag();
    for (name, wanted) in [
        ("kind", "string"),
        ("apiVersion", "string"),
        ("metadata", "object"),
    ] {
        let property = properties.key(name);
        let kind = property.get("type");
        if of_object && property.is_set() && kind.text() != wanted {
            errors.invalid(&kind, kind.text(), format!("must be {wanted}"));
        }
    }
    let meta = properties.key("metadata");
    if level == Level::Root && meta.is_set() && !only_names(meta.value) {
        errors.forbidden(&meta, "must not specify anything other than name and generateName, but metadata is implicitly specified");
    }
    if embedded.flag() && !preserve.flag() && properties.is_empty() {
        errors.required(&properties, "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields");
    }
}

fn only_names(meta: &Value) -> bool {
    let fields = meta.as_object().into_iter().flatten();
    for (name, value) in fields {
        let fine = match name.as_str() {
            "type" | "default" => true,
            "properties" => value.as_object().is_some_and(|list| {
                list.keys()
                    .all(|key| ["name", "generateName"].contains(&key.as_str()))
            }),
            _ => false,
        };
        if !fine {
            return false;
        }
    }
    true
}

/// The one pattern in which alternatives may name types.
fn is_int_or_string(any_of: &Value) -> bool {
    *any_of == json!([{"type": "integer"}, {"type": "string"}])
}

fn value_validation(schema: &At<'_>, errors: &mut Errors) {
    let may_name_types = schema.get("x-kubernetes-int-or-string").flag();
    let any = schema.get("anyOf");
    if !(may_name_types && is_int_or_string(any.value)) {
        for one in any.items() {
            nested(&one, errors);
        }
    }
    for (index, one) in schema.get("allOf").items().enumerate() {
        let pattern = index == 0 && is_int_or_string(one.get("anyOf").value);
        if !(may_name_types && pattern) {
            nested(&one, errors);
        }
    }
    for one in schema.get("oneOf").items() {
        nested(&one, errors);
    }
    nested(&schema.get("not"), errors);
}

fn alternatives<'v>(schema: &At<'v>) -> Vec<At<'v>> {
    let lists = ["allOf", "anyOf", "oneOf"].map(|name| schema.get(name));
    let mut all: Vec<At<'v>> = lists.iter().flat_map(At::items).collect();
    all.push(schema.get("not"));
    all.retain(At::is_set);
    all
}

/// What an alternative of the root restricts, the schema itself has to have; nobody looks at those further down.
fn complete(schema: &At<'_>, alternative: &At<'_>, errors: &mut Errors) {
    let mut restricted: Vec<(At<'_>, At<'_>)> = Vec::new();
    for (name, property) in alternative.get("properties").entries() {
        restricted.push((schema.get("properties").key(name), property));
    }
    if alternative.get("items").is_set() {
        restricted.push((schema.get("items"), alternative.get("items")));
    }
    for (own, restriction) in restricted {
        if own.is_set() {
            complete(&own, &restriction, errors);
        } else {
            let detail = format!("because it is defined in {}", restriction.path());
            errors.required(&own, &detail);
        }
    }
    for further in alternatives(alternative) {
        complete(schema, &further, errors);
    }
}

/// Alternatives may only restrict values, not say what they are.
fn nested(schema: &At<'_>, errors: &mut Errors) {
    if !schema.is_set() {
        return;
    }
    value_validation(schema, errors);
    nested(&schema.get("items"), errors);
    let properties = schema.get("properties");
    for (_, property) in properties.entries() {
        nested(&property, errors);
    }
    for (name, words) in [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        let at = schema.get(name);
        if at.is_set() && *at.value != json!(false) {
            errors.forbidden(&at, format!("must be {words} to be structural"));
        }
    }
    let meta = properties.key("metadata");
    if meta.is_set() {
        errors.forbidden(&meta, "must not be specified in a nested context");
    }
}

/// What no schema may say, structural or not.
fn standard<'v>(schema: &At<'v>, place: Place<'_, 'v>, found: &mut Found<'v>) {
    if !schema.value.is_object() {
        return;
    }
    let errors = &mut found.schema;
    let kind = schema.get("type");
    if !kind.is_empty() && !TYPES.contains(&kind.text()) {
        errors.not_supported(&kind, TYPES);
    }
    for name in NOT_SUPPORTED {
        if schema.get(name).is_set() {
            errors.forbidden(&schema.get(name), format!("{name} is not supported"));
        }
    }
    if kind.text() == "null" {
        errors.forbidden(
            &kind,
            "type cannot be set to null, use nullable as an alternative",
        );
    }
    let pattern = schema.get("pattern");
    if let Some(trouble) = pattern_trouble(pattern.text()) {
        errors.invalid(
            &pattern,
            pattern.text(),
            format!(
                "must be a valid regular expression, but isn't: error parsing regexp: {trouble}"
            ),
        );
    }
    let items = schema.get("items");
    let is_loose = match kind.text() {
        "array" => schema.get("x-kubernetes-list-type").text() != "map",
        _ => schema.get("x-kubernetes-map-type").text() == "atomic",
    };
    let factor = crate::crd::factor(schema.value);
    let below = Place {
        root: false,
        loose: place.loose.or(is_loose.then_some(schema)),
        count: place
            .count
            .and_then(|count| Some(count.saturating_mul(factor?))),
    };
    if items.value.is_array() {
        errors.forbidden(&items, "items must be a schema object and not an array");
    }
    if schema.get("uniqueItems").flag() {
        errors.forbidden(
            &schema.get("uniqueItems"),
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic",
        );
    }
    let additional = schema.get("additionalProperties");
    if additional.is_set() {
        if !schema.get("properties").is_empty() && *additional.value != json!(true) {
            errors.forbidden(
                &additional,
                "additionalProperties and properties are mutual exclusive",
            );
        }
        standard(&additional, below, found);
    }
    for (_, property) in schema.get("properties").entries() {
        standard(&property, below, found);
    }
    standard(&schema.get("not"), below, found);
    for list in ["allOf", "oneOf", "anyOf"] {
        for one in schema.get(list).items() {
            standard(&one, below, found);
        }
    }
    standard(&items, below, found);
    extensions(schema, &mut found.schema);
    rules::check_form(schema, &mut found.schema);
    // What a compiler says about a schema that is not sound helps nobody.
    if found.is_sound && found.schema.is_empty() {
        rules::compile(schema, place, &mut found.cost, &mut found.rules);
    }
}

fn extensions(schema: &At<'_>, errors: &mut Errors) {
    let kind = schema.get("type");
    let preserve = schema.get("x-kubernetes-preserve-unknown-fields");
    if preserve.is_set() && !preserve.flag() {
        errors.invalid(&preserve, false, "must be true or undefined");
    }
    let (map, list) = (
        schema.get("x-kubernetes-map-type"),
        schema.get("x-kubernetes-list-type"),
    );
    for (at, wanted, name) in [
        (&map, "object", "x-kubernetes-map-type"),
        (&list, "array", "x-kubernetes-list-type"),
    ] {
        if at.is_set() && kind.text() != wanted {
            let detail = format!("must be {wanted} if {name} is specified");
            if kind.is_empty() {
                errors.required(&kind, &detail);
            } else {
                errors.invalid(&kind, kind.text(), detail);
            }
        }
        if name == "x-kubernetes-map-type" {
            errors.optional_choice(at, &["atomic", "granular"]);
        }
    }
    errors.optional_choice(&list, &["atomic", "set", "map"]);
    list_map(schema, &list, errors);
}

fn list_map(schema: &At<'_>, list: &At<'_>, errors: &mut Errors) {
    let (keys, items) = (
        schema.get("x-kubernetes-list-map-keys"),
        schema.get("items"),
    );
    let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
    if !keys.is_empty() && !list.is_set() {
        errors.required(list, detail);
    } else if !keys.is_empty() && list.text() != "map" {
        errors.invalid(list, list.text(), detail);
    }
    if ["set", "map"].contains(&list.text()) && items.get("nullable").flag() {
        let detail = format!(
            "cannot be nullable when x-kubernetes-list-type is {}",
            list.text()
        );
        errors.forbidden(&items.get("nullable"), detail);
    }
    if list.text() == "set" {
        // Elements of a set are compared as wholes.
        for (kind, part) in [
            ("object", "x-kubernetes-map-type"),
            ("array", "x-kubernetes-list-type"),
        ] {
            let at = items.get(part);
            if items.get("type").text() == kind && at.text() != "atomic" {
                let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
                errors.invalid(&at, at.value.clone(), detail);
            }
        }
    }
    if list.text() != "map" {
        return;
    }
    if keys.is_empty() {
        errors.required(&keys, "must not be empty if x-kubernetes-list-type is map");
    }
    if !items.is_set() {
        errors.required(
            &items,
            "must have a schema if x-kubernetes-list-type is map",
        );
        return;
    }
    let kind = items.get("type");
    if kind.text() != "object" {
        errors.invalid(
            &kind,
            kind.text(),
            "must be object if parent array's x-kubernetes-list-type is map",
        );
        return;
    }
    let properties = items.get("properties");
    let required: Met<&str> = items.get("required").texts().collect();
    let mut seen = Met::default();
    for key in keys.texts() {
        if errors.is_full() {
            return;
        }
        if !properties.get(key).is_set() {
            errors.invalid(
                &keys,
                keys.value.clone(),
                "entries must all be names of item properties",
            );
        } else if ["array", "object"].contains(&properties.get(key).get("type").text()) {
            errors.invalid(
                &properties.key(key).get("type"),
                kind.text(),
                "must be a scalar type if parent array's x-kubernetes-list-type is map",
            );
        }
        if seen.contains(&key) {
            errors.invalid(
                &keys,
                keys.value.clone(),
                "must not contain duplicate entries",
            );
        }
        seen.push(key);
    }
    for key in keys.texts() {
        let property = properties.key(key);
        let defaulted = property.get("default").is_set();
        if property.is_set() && !required.contains(&key) && !defaulted {
            errors.required(&property.get("default"), "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property");
        }
    }
}

/// What is wrong with a regular expression, in Go's words for what people get wrong most.
fn pattern_trouble(pattern: &str) -> Option<String> {
    regex::Regex::new(pattern).err()?;
    let mut chars = pattern.char_indices();
    let (mut class, mut open) = (None, 0_usize);
    while let Some((at, char)) = chars.next() {
        match (char, class) {
            ('\\', _) => drop(chars.next()),
            (']', Some(_)) => class = None,
            ('[', None) => class = Some(at),
            ('(', None) => open += 1,
            (')', None) if open == 0 => return Some(format!("unexpected ): `{pattern}`")),
            (')', None) => open -= 1,
            ('*' | '+' | '?', None) if at == 0 => {
                return Some(format!("missing argument to repetition operator: `{char}`"));
            }
            _ => {}
        }
    }
    Some(match class {
        Some(at) => format!("missing closing ]: `{}`", &pattern[at..]),
        None if open > 0 => format!("missing closing ): `{pattern}`"),
        None => format!("invalid or unsupported Perl syntax: `{pattern}`"),
    })
}
