//! Definitions of custom resources. What their schemas must look like is beside.

mod parts;
mod rules;
mod schema;

use crate::met::Met;
use serde_json::{Value, json};

use super::at::{At, Errors, field, same};
use super::rules::Rules;
use super::{diff, names};

pub(super) static KINDS: &[&Rules] = &[&DEFINITION];

static DEFINITION: Rules = Rules {
    kind: "CustomResourceDefinition",
    known_finalizers: false,
    status: true,
    generation: true,
    prepare_create: |definition| {
        // Nothing has been accepted yet; what is written when unset stays.
        let accepted = json!({"plural": "", "kind": ""});
        definition["status"] = json!({"conditions": null, "acceptedNames": accepted});
        remember_stored(definition);
    },
    prepare_update: |new, _| remember_stored(new),
    validate: |definition, errors| {
        own_name(definition, errors);
        check(definition, errors);
        approval(definition, None, errors);
    },
    validate_update: Some(|new, old, errors| {
        // What was found good once is, and to find out takes most of what a write costs.
        if !same(new.get("spec").value, old.get("spec").value) {
            check_spec(&new.get("spec"), errors);
        }
        let established = old.dig(&["status", "conditions"]).items().any(|one| {
            one.get("type").text() == "Established" && one.get("status").text() == "True"
        });
        let fixed: &[&[&'static str]] = if established {
            &[
                &["scope"],
                &["names", "kind"],
                &["group"],
                &["names", "plural"],
            ]
        } else {
            &[&["group"], &["names", "plural"]]
        };
        for path in fixed {
            let (now, then) = (new.get("spec").dig(path), old.get("spec").dig(path));
            errors.immutable_text(&now, &then);
        }
        stored_versions(new, errors);
        approval(new, Some(old), errors);
    }),
    warnings: |new, old| {
        let known = old.map(parts::unrecognized_formats).unwrap_or_default();
        let mut formats = parts::unrecognized_formats(new);
        let known: Met<&String> = known.iter().collect();
        formats.retain(|format| !known.contains(&format));
        formats
            .iter()
            .map(|format| {
                format!(
                    "unrecognized format {}",
                    plimsoll_golang::strconv::quote(format)
                )
            })
            .collect()
    },
    ..Rules::cluster("apiextensions.k8s.io")
};

fn remember_stored(definition: &mut Value) {
    let versions = field(definition, &["spec", "versions"]).as_array();
    let storage = versions
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .and_then(|version| version.get("name").cloned());
    let Some(storage) = storage else {
        if field(definition, &["status", "storedVersions"]).is_null() {
            definition["status"]["storedVersions"] = Value::Null;
        }
        return;
    };
    let mut stored = field(definition, &["status", "storedVersions"])
        .as_array()
        .cloned()
        .unwrap_or_default();
    if !stored.contains(&storage) {
        stored.push(storage);
    }
    definition["status"]["storedVersions"] = stored.into();
}

fn own_name(definition: &At<'_>, errors: &mut Errors) {
    let wanted = format!(
        "{}.{}",
        definition.dig(&["spec", "names", "plural"]).text(),
        definition.dig(&["spec", "group"]).text()
    );
    for field in ["generateName", "name"] {
        let name = definition.dig(&["metadata", field]);
        if !name.is_empty() && name.text() != wanted {
            errors.invalid(
                &name,
                name.text(),
                "must be spec.names.plural+\".\"+spec.group",
            );
        }
    }
}

fn check(definition: &At<'_>, errors: &mut Errors) {
    check_spec(&definition.get("spec"), errors);
    stored_versions(definition, errors);
}

fn stored_versions(definition: &At<'_>, errors: &mut Errors) {
    let stored = definition.dig(&["status", "storedVersions"]);
    if stored.is_empty() {
        errors.invalid(
            &stored,
            stored.value.clone(),
            "must have at least one stored version",
        );
        return;
    }
    // Each counts for one version, so that the second of a name has none.
    let mut unclaimed: Vec<At<'_>> = stored.items().collect();
    for version in definition.dig(&["spec", "versions"]).items() {
        let name = version.get("name").text();
        let before = unclaimed.len();
        unclaimed.retain(|one| one.text() != name);
        if version.get("storage").flag() && unclaimed.len() == before {
            let detail = format!("must have the storage version {name}");
            errors.invalid(&stored, stored.value.clone(), detail);
        }
    }
    for one in unclaimed {
        let name = one.text();
        errors.invalid(&one, name, format!("missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in {name} and removes {name} from status.storedVersions"));
    }
}

/// Groups of the Kubernetes community need its approval.
fn approval(definition: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let group = definition.dig(&["spec", "group"]).text();
    let community = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    if !community || old.is_some() {
        return;
    }
    const KEY: &str = "api-approved.kubernetes.io";
    let note = definition.dig(&["metadata", "annotations"]).key(KEY);
    let text = note.text();
    if text.is_empty() {
        errors.required(&note, "protected groups must have approval annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111");
    } else if !text.starts_with("unapproved") && !is_url(text) {
        errors.invalid(&note, text, "protected groups must have approval annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see https://github.com/kubernetes/enhancements/pull/1111");
    }
}

fn is_url(text: &str) -> bool {
    text.contains("://") && !text.contains(' ')
}

fn check_spec(spec: &At<'_>, errors: &mut Errors) {
    let group = spec.get("group");
    let complaints = names::subdomain(group.text());
    if group.is_empty() {
        errors.required(&group, "");
    } else if !complaints.is_empty() {
        errors.invalid(&group, group.text(), complaints.join(","));
    } else if !group.text().contains('.') {
        errors.invalid(
            &group,
            group.text(),
            "should be a domain with at least one dot",
        );
    }
    errors.choice(&spec.get("scope"), &["Cluster", "Namespaced"]);
    let versions = spec.get("versions");
    // What all versions have in common is looked at once, under an older name.
    let schema_hoisted = shared(&versions, "schema");
    let subresources_hoisted = shared(&versions, "subresources");
    let columns_hoisted = shared(&versions, "additionalPrinterColumns");
    let fields_hoisted = shared(&versions, "selectableFields");
    let has_schema = |version: &At<'_>| version.dig(&["schema", "openAPIV3Schema"]).is_set();
    for version in versions.items().filter(|version| !has_schema(version)) {
        errors.required(&version.dig(&["schema", "openAPIV3Schema"]), "");
    }
    let preserve = spec.get("preserveUnknownFields");
    if preserve.flag() && has_defaults(&versions) {
        let detail = "must be false in order to use defaults in the schema";
        errors.invalid(&preserve, true, detail);
    }
    let mut seen = Met::default();
    let (mut unique, mut storage) = (true, 0);
    for version in versions.items() {
        storage += usize::from(version.get("storage").flag());
        let name = version.get("name");
        unique &= !seen.contains(&name.text());
        seen.push(name.text());
        let complaints = names::label_1035(name.text());
        if !complaints.is_empty() {
            errors.invalid(&name, name.text(), complaints.join(","));
        }
        deprecation(&version, errors);
        let with_status = version.dig(&["subresources", "status"]).is_set();
        if !schema_hoisted {
            schema::check(&version.get("schema"), with_status, errors);
        }
        if !subresources_hoisted {
            parts::subresources(&version.get("subresources"), errors);
        }
        if !columns_hoisted {
            parts::columns(&version.get("additionalPrinterColumns"), errors);
        }
        if !fields_hoisted {
            let schema = version.dig(&["schema", "openAPIV3Schema"]);
            parts::selectable(&version.get("selectableFields"), schema.value, errors);
        }
    }
    let shown = shown_versions(&versions);
    if !unique {
        errors.invalid_shown(&versions, &shown, "must contain unique version names");
    }
    if storage != 1 {
        errors.invalid_shown(
            &versions,
            &shown,
            "must have exactly one version marked as storage version",
        );
    }
    let first_name = versions
        .item(0)
        .get("name")
        .reported_at(&spec.get("version"));
    let complaints = names::label_1035(first_name.text());
    if !first_name.is_empty() && !complaints.is_empty() {
        errors.invalid(&first_name, first_name.text(), complaints.join(","));
    }
    for name in ["plural", "singular", "kind", "listKind"] {
        errors.non_empty(&spec.dig(&["names", name]));
    }
    check_names(&spec.get("names"), errors);
    let first = versions.item(0);
    if schema_hoisted {
        let with_status = versions
            .items()
            .any(|version| version.dig(&["subresources", "status"]).is_set());
        let place = first.get("schema").reported_at(&spec.get("validation"));
        schema::check(&place, with_status, errors);
    }
    if subresources_hoisted {
        parts::subresources(
            &first
                .get("subresources")
                .reported_at(&spec.get("subresources")),
            errors,
        );
    }
    if columns_hoisted {
        let place = spec.get("additionalPrinterColumns");
        parts::columns(
            &first.get("additionalPrinterColumns").reported_at(&place),
            errors,
        );
    }
    if fields_hoisted {
        let place = spec.get("selectableFields");
        let schema = first.dig(&["schema", "openAPIV3Schema"]);
        let fields = first.get("selectableFields").reported_at(&place);
        parts::selectable(&fields, schema.value, errors);
    }
    let strategy = spec.dig(&["conversion", "strategy"]);
    if preserve.flag() && strategy.is_set() && strategy.text() != "None" {
        let detail = "must be None if spec.preserveUnknownFields is true";
        errors.invalid(&strategy, strategy.text(), detail);
    }
    parts::conversion(&spec.get("conversion"), errors);
    if preserve.flag() {
        errors.invalid(
            &preserve,
            true,
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead",
        );
    }
}

fn has_defaults(versions: &At<'_>) -> bool {
    fn within(schema: &Value) -> bool {
        let Some(words) = schema.as_object() else {
            return false;
        };
        words
            .iter()
            .any(|(word, value)| match (word.as_str(), value) {
                ("default", value) => !value.is_null(),
                ("properties", Value::Object(properties)) => properties.values().any(within),
                ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.iter().any(within),
                ("items" | "additionalProperties" | "not", schema) => within(schema),
                _ => false,
            })
    }
    versions
        .items()
        .any(|version| within(version.dig(&["schema", "openAPIV3Schema"]).value))
}

/// All versions have it, and the same.
fn shared(versions: &At<'_>, name: &'static str) -> bool {
    let first = versions.item(0).get(name);
    first.is_set()
        && versions
            .items()
            .all(|version| same(version.get(name).value, first.value))
}

/// The versions as Kubernetes has them inside: what they have in common is not theirs.
fn shown_versions(versions: &At<'_>) -> String {
    let mut own = versions.value.clone();
    for part in [
        "schema",
        "subresources",
        "additionalPrinterColumns",
        "selectableFields",
    ] {
        if shared(versions, part) {
            let all = own.as_array_mut().into_iter().flatten();
            for version in all.filter_map(Value::as_object_mut) {
                version.remove(part);
            }
        }
    }
    diff::compact("[]CustomResourceDefinitionVersion", &own)
}

fn deprecation(version: &At<'_>, errors: &mut Errors) {
    let warning = version.get("deprecationWarning");
    if !warning.is_set() {
        return;
    }
    let mut refuse = |wrong: bool, detail: &str| {
        if wrong {
            errors.invalid(&warning, warning.text(), detail);
        }
    };
    if !version.get("deprecated").flag() {
        refuse(true, "can only be set for deprecated versions");
        return;
    }
    refuse(warning.len() > 256, "must be <= 256 characters long");
    refuse(warning.is_empty(), "must not be an empty string");
    if let Some((at, _)) = warning
        .text()
        .char_indices()
        .find(|(_, letter)| letter.is_control())
    {
        let detail = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        );
        refuse(true, &detail);
    }
}

fn check_names(given: &At<'_>, errors: &mut Errors) {
    let label = |at: &At<'_>, lower: bool, errors: &mut Errors| {
        let name = if lower {
            at.text().to_lowercase()
        } else {
            at.text().to_owned()
        };
        let complaints = names::label_1035(&name);
        if !complaints.is_empty() {
            let words = if lower {
                "may have mixed case, but should otherwise match: "
            } else {
                ""
            };
            errors.invalid(at, at.text(), format!("{words}{}", complaints.join(",")));
        }
    };
    let list = given.get("listKind");
    for (name, lower) in [
        (given.get("plural"), false),
        (given.get("singular"), false),
        (given.get("kind"), true),
        (list.clone(), true),
    ] {
        if !name.is_empty() {
            label(&name, lower, errors);
        }
    }
    for name in given.get("shortNames").items() {
        label(&name, false, errors);
    }
    if !list.is_empty() && list.text() == given.get("kind").text() {
        errors.invalid(&list, list.text(), "kind and listKind may not be the same");
    }
    for name in given.get("categories").items() {
        label(&name, false, errors);
    }
}
