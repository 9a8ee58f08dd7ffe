//! The smaller kinds of the core group: configuration, namespaces, accounts, events.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::at::{At, Errors, IMMUTABLE, carry, field, same, text};
use super::names::{self, NameRule};
use super::pod::level_labels;
use super::rules::Rules;
use super::{limits, metadata, node, pod, quota, service, shown};
use crate::codec::json::Node;
use crate::field::{FieldError, Path};

pub(super) static KINDS: &[&Rules] = &[
    &pod::POD,
    &pod::POD_TEMPLATE,
    &node::NODE,
    &service::SERVICE,
    &limits::LIMIT_RANGE,
    &quota::RESOURCE_QUOTA,
    &CONFIG_MAP,
    &SECRET,
    &NAMESPACE,
    &SERVICE_ACCOUNT,
    &EVENT,
    &NEW_EVENT,
];

const SIZE_LIMIT: usize = 1024 * 1024;
const FROZEN: &str = "field is immutable when `immutable` is set";

static CONFIG_MAP: Rules = Rules {
    kind: "ConfigMap",
    validate: config_map,
    validate_update: Some(|new, old, errors| {
        frozen(new, old, &["data", "binaryData"], errors);
        again(new, true, NameRule::Subdomain, errors);
        config_map(new, errors);
    }),
    ..Rules::namespaced("")
};

static SECRET: Rules = Rules {
    kind: "Secret",
    prepare_create: fold_string_data,
    prepare_update: |new, old| {
        fold_string_data(new);
        if text(new, &["type"]).is_empty() {
            carry(new, old, "type");
        }
    },
    warnings: |new, _| no_certificate(new).map(str::to_owned).into_iter().collect(),
    validate: secret,
    validate_update: Some(|new, old, errors| {
        errors.immutable_text(&new.get("type"), &old.get("type"));
        frozen(new, old, &["data"], errors);
        again(new, true, NameRule::Subdomain, errors);
        secret(new, errors);
    }),
    ..Rules::namespaced("")
};

static NAMESPACE: Rules = Rules {
    kind: "Namespace",
    names: NameRule::Label,
    status: true,
    prepare_create: |namespace| {
        namespace["status"] = json!({"phase": "Active"});
        let finalizers = field(namespace, &["spec", "finalizers"])
            .as_array()
            .cloned();
        let mut finalizers = finalizers.unwrap_or_default();
        if !finalizers.contains(&json!("kubernetes")) {
            finalizers.push(json!("kubernetes"));
        }
        namespace["spec"]["finalizers"] = finalizers.into();
        let name = field(namespace, &["metadata", "name"]).clone();
        namespace["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    },
    prepare_update: |new, old| {
        let finalizers = json!({"finalizers": field(old, &["spec", "finalizers"])});
        if let Some(spec) = new.get_mut("spec") {
            carry(spec, &finalizers, "finalizers");
        }
    },
    validate: |namespace, errors| {
        let finalizers = namespace.dig(&["spec", "finalizers"]);
        for finalizer in finalizers.items() {
            namespace_finalizer(&finalizer.reported_at(&finalizers), errors);
        }
    },
    validate_update: Some(|new, _, errors| {
        again(new, false, NameRule::Label, errors);
        for finalizer in new.dig(&["spec", "finalizers"]).items() {
            namespace_finalizer(&finalizer, errors);
        }
    }),
    validate_status: |new, _, errors| {
        let phase = new.dig(&["status", "phase"]);
        let place = phase.reported_at(&new.dig(&["status", "Phase"]));
        let deleting = new.dig(&["metadata", "deletionTimestamp"]).is_set();
        match (deleting, phase.text()) {
            (false, "Active") | (true, "Terminating") => {}
            (false, other) => errors.invalid(
                &place,
                other,
                "may only be 'Active' if `deletionTimestamp` is empty",
            ),
            (true, other) => errors.invalid(
                &place,
                other,
                "may only be 'Terminating' if `deletionTimestamp` is not empty",
            ),
        }
    },
    advice: level_labels::existing_pods,
    approve: |namespace, old, _| level_labels::check_namespace(namespace, old),
    ..Rules::cluster("")
};

static SERVICE_ACCOUNT: Rules = Rules {
    kind: "ServiceAccount",
    prepare_create: only_names_of_secrets,
    prepare_update: |new, _| only_names_of_secrets(new),
    validate_update: Some(|new, _, errors| again(new, true, NameRule::Subdomain, errors)),
    warnings: |new, old| {
        const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
        let has =
            |account: &Value| !field(account, &["metadata", "annotations", ENFORCE]).is_null();
        if has(new) && !old.is_some_and(has) {
            return vec![format!(
                "metadata.annotations[{ENFORCE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
            )];
        }
        Vec::new()
    },
    ..Rules::namespaced("")
};

/// Some kinds check their metadata once more after the update's own checks.
pub(super) fn again(object: &At<'_>, namespaced: bool, rule: NameRule, errors: &mut Errors) {
    let meta = object.get("metadata");
    metadata::check(&meta, Some(namespaced), rule, errors);
    metadata::check_known_finalizers(&meta, errors);
}

fn frozen(new: &At<'_>, old: &At<'_>, fields: &[&'static str], errors: &mut Errors) {
    if !old.get("immutable").flag() {
        return;
    }
    if !new.get("immutable").flag() {
        errors.forbidden(&new.get("immutable"), FROZEN);
    }
    for field in fields {
        if !same(new.get(field).value, old.get(field).value) {
            errors.forbidden(&new.get(field), FROZEN);
        }
    }
}

/// The length of what a base64 text stands for.
fn decoded_length(text: &str) -> usize {
    STANDARD
        .decode(text)
        .map_or(text.len(), |bytes| bytes.len())
}

fn config_map(map: &At<'_>, errors: &mut Errors) {
    let (data, binary) = (map.get("data"), map.get("binaryData"));
    let mut size = 0;
    for (key, value) in data.entries() {
        for complaint in names::config_key(key) {
            errors.invalid(&value, key, complaint);
        }
        if binary.get(key).is_set() {
            errors.invalid(&value, key, "duplicate of key present in binaryData");
        }
        size += value.len();
    }
    for (key, value) in binary.entries() {
        for complaint in names::config_key(key) {
            errors.invalid(&value, key, complaint);
        }
        size += decoded_length(value.text());
    }
    if size > SIZE_LIMIT {
        let mut error = FieldError::too_long(&Path::root(), SIZE_LIMIT);
        // Of the whole, which Kubernetes writes as an element without a name here.
        "[]".clone_into(&mut error.field);
        errors.push(error);
    }
}

fn fold_string_data(secret: &mut Value) {
    let Some(fields) = secret.as_object_mut() else {
        return;
    };
    let Some(Value::Object(plain)) = fields.remove("stringData") else {
        return;
    };
    if plain.is_empty() {
        return;
    }
    for (key, value) in plain {
        let encoded = STANDARD.encode(value.as_str().unwrap_or_default());
        secret["data"][key] = encoded.into();
    }
}

fn secret(secret: &At<'_>, errors: &mut Errors) {
    let data = secret.get("data");
    let mut size = 0;
    for (key, value) in data.entries() {
        for complaint in names::config_key(key) {
            errors.invalid(&value, key, complaint);
        }
        size += decoded_length(value.text());
    }
    if size > SIZE_LIMIT {
        errors.too_long(&data, SIZE_LIMIT);
    }
    let has = |key: &'static str| data.key(key).is_set();
    let missing = |key: &'static str, errors: &mut Errors| {
        if !data.key(key).is_set() {
            errors.required(&data.key(key), "");
        }
    };
    match secret.get("type").text() {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            let name = secret.dig(&["metadata", "annotations"]).key(ACCOUNT);
            if name.is_empty() {
                errors.required(&name, "");
            }
        }
        "kubernetes.io/dockercfg" => docker_config(&data.key(".dockercfg"), errors),
        "kubernetes.io/dockerconfigjson" => docker_config(&data.key(".dockerconfigjson"), errors),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            missing("username", errors);
            missing("password", errors);
        }
        "kubernetes.io/ssh-auth" => errors.non_empty(&data.key("ssh-privatekey")),
        "kubernetes.io/tls" => {
            missing("tls.crt", errors);
            missing("tls.key", errors);
        }
        _ => {}
    }
}

fn docker_config(config: &At<'_>, errors: &mut Errors) {
    if !config.is_set() {
        errors.required(config, "");
        return;
    }
    let bytes = STANDARD.decode(config.text()).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let complaint = match Node::parse(&text) {
        Ok(Node::Object(_) | Node::Null) => return,
        Ok(other) => format!(
            "json: cannot unmarshal {} into Go value of type {}",
            other.type_name(),
            plimsoll_golang::format::MAP
        ),
        Err(error) => error.to_string(),
    };
    errors.invalid(config, "<secret contents redacted>", complaint);
}

/// What is wrong with a TLS secret at first sight.
fn no_certificate(secret: &Value) -> Option<&'static str> {
    if text(secret, &["type"]) != "kubernetes.io/tls" {
        return None;
    }
    let lacks_pem = |key: &str| {
        let encoded = text(secret, &["data", key]);
        let decoded = STANDARD.decode(encoded).unwrap_or_default();
        !decoded.windows(11).any(|bytes| bytes == b"-----BEGIN ")
    };
    if lacks_pem("tls.crt") {
        return Some("tls: failed to find any PEM data in certificate input");
    }
    lacks_pem("tls.key").then_some("tls: failed to find any PEM data in key input")
}

fn namespace_finalizer(finalizer: &At<'_>, errors: &mut Errors) {
    errors.format(finalizer, names::qualified_name);
    metadata::known_finalizer(finalizer, errors);
}

fn only_names_of_secrets(account: &mut Value) {
    let secrets = account.get_mut("secrets").and_then(Value::as_array_mut);
    for secret in secrets.into_iter().flatten() {
        *secret = match field(secret, &["name"]) {
            Value::Null => json!({}),
            name => json!({"name": name}),
        };
    }
}

static EVENT: Rules = Rules {
    kind: "Event",
    own_metadata: false,
    validate: |event, errors| old_event(event, &EventNames::CORE, errors),
    ..Rules::namespaced("")
};

static NEW_EVENT: Rules = Rules {
    kind: "Event",
    own_metadata: false,
    validate: |event, errors| {
        old_event(event, &EventNames::EVENTS, errors);
        again(event, true, NameRule::Subdomain, errors);
        series(event, errors);
        let time = event.get("eventTime");
        if !time.is_set() {
            errors.required(&time, "");
        }
        let kind = event.get("type");
        if !["Normal", "Warning"].contains(&kind.text()) {
            errors.invalid(&kind, "", format!("has invalid value: {}", kind.text()));
        }
        for (field, reported) in [
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
            ("deprecatedCount", "count"),
            ("deprecatedSource", "source"),
        ] {
            let value = event.get(field).value;
            if !value.is_null() && *value != json!({}) && *value != json!(0) {
                errors.invalid(&event.get(reported), "", "needs to be unset");
            }
        }
    },
    validate_update: Some(|new, old, errors| {
        let (meta, before) = (new.get("metadata"), old.get("metadata"));
        metadata::check_update(&meta, &before, errors);
        metadata::check_known_finalizers(&meta, errors);
        old_event(new, &EventNames::EVENTS, errors);
        if !same(new.get("series").value, old.get("series").value) {
            series(new, errors);
        }
        for (field, reported) in [
            ("regarding", "involvedObject"),
            ("reason", "reason"),
            ("note", "message"),
            ("deprecatedSource", "source"),
            ("deprecatedFirstTimestamp", "firstTimestamp"),
            ("deprecatedLastTimestamp", "lastTimestamp"),
            ("deprecatedCount", "count"),
            ("reason", "reason"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingController", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            let place = new.get(field).reported_at(&new.get(reported));
            match field {
                "regarding" | "related" => same_reference(&place, &old.get(field), errors),
                "deprecatedSource" | "eventTime" => errors.immutable(&place, &old.get(field)),
                _ if place.value.is_string() || !place.is_set() => {
                    errors.immutable_text(&place, &old.get(field));
                }
                _ => errors.immutable(&place, &old.get(field)),
            }
        }
    }),
    ..Rules::namespaced("events.k8s.io")
};

fn same_reference(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    if same(new.value, old.value) {
        return;
    }
    const FIELDS: [(&str, &str); 7] = [
        ("Kind", "kind"),
        ("Namespace", "namespace"),
        ("Name", "name"),
        ("UID", "uid"),
        ("APIVersion", "apiVersion"),
        ("ResourceVersion", "resourceVersion"),
        ("FieldPath", "fieldPath"),
    ];
    let values = FIELDS.map(|(shown, name)| (shown, json!(new.get(name).text())));
    let values: Vec<(&str, &Value)> = values.iter().map(|(name, value)| (*name, value)).collect();
    let shown = if new.is_set() {
        shown::fields(&values)
    } else {
        "null".to_owned()
    };
    errors.invalid_shown(new, &shown, IMMUTABLE);
}

/// The two forms of events name things differently.
struct EventNames {
    object: &'static str,
    note: &'static str,
    controller: &'static str,
    /// As problems call it.
    reported_controller: &'static str,
}

impl EventNames {
    const CORE: Self = Self {
        object: "involvedObject",
        note: "message",
        controller: "reportingComponent",
        reported_controller: "reportingComponent",
    };
    const EVENTS: Self = Self {
        object: "regarding",
        note: "note",
        controller: "reportingController",
        reported_controller: "reportingController",
    };
}

fn old_event(event: &At<'_>, called: &EventNames, errors: &mut Errors) {
    const MISMATCH: &str = "does not match event.namespace";
    let own = event.dig(&["metadata", "namespace"]).text();
    let about = event
        .dig(&[called.object, "namespace"])
        .reported_at(&event.dig(&["involvedObject", "namespace"]));
    if !event.get("eventTime").is_set() {
        let matches = if about.is_empty() {
            own.is_empty() || own == "default"
        } else {
            about.text() == own
        };
        if !matches {
            errors.invalid(&about, about.text(), MISMATCH);
        }
    } else {
        if about.is_empty() && own != "default" && own != "kube-system" {
            errors.invalid(&about, about.text(), MISMATCH);
        }
        let controller = event
            .get(called.controller)
            .reported_at(&event.get(called.reported_controller));
        errors.non_empty(&controller);
        errors.format(&controller, names::qualified_name);
        for (field, reported, required, limit) in [
            ("reportingInstance", "reportingInstance", true, 128),
            ("action", "action", true, 128),
            ("reason", "reason", true, 128),
            (called.note, "message", false, 1024),
        ] {
            let at = event.get(field).reported_at(&event.get(reported));
            if required {
                errors.non_empty(&at);
            }
            if at.len() > limit {
                errors.invalid(&at, "", format!("can have at most {limit} characters"));
            }
        }
    }
    errors.format_of(&event.get("namespace"), own, names::subdomain);
}

fn series(event: &At<'_>, errors: &mut Errors) {
    let series = event.get("series");
    if !series.is_set() {
        return;
    }
    if series.get("count").number() < 2 {
        errors.invalid(&series.get("count"), "", "should be at least 2");
    }
    if !series.get("lastObservedTime").is_set() {
        errors.required(&series.get("lastObservedTime"), "");
    }
}
