//! Classes, attachments, and what CSI drivers say about themselves.

use serde_json::Value;

use super::volumes::{self, csi_driver_name};
use std::collections::HashMap;

use crate::field::FieldError;
use crate::kinds::at::canonical;
use crate::kinds::at::{At, Errors, IMMUTABLE, NOT_NEGATIVE, same};
use crate::kinds::core::again;
use crate::kinds::diff;
use crate::kinds::names::{self, NameRule};
use crate::kinds::pod::warnings::{deprecated_label, for_expressions};
use crate::kinds::quantity::Quantity;
use crate::kinds::rules::Rules;
use crate::kinds::{metadata, shown};
use crate::met::Met;

const GROUP: &str = "storage.k8s.io";
const PARAMETERS_LIMIT: usize = 256 * 1024;

pub(in crate::kinds) static STORAGE_CLASS: Rules = Rules {
    kind: "StorageClass",
    warnings: |class, _| {
        let topologies = At::root(class).get("allowedTopologies").items();
        let keys = topologies
            .flat_map(|topology| topology.get("matchLabelExpressions").items())
            .map(|expression| expression.get("key"));
        keys.filter_map(|key| Some((key.path(), deprecated_label(key.text())?)))
            .map(|(place, words)| format!("{place}: {words}"))
            .collect()
    },
    validate: storage_class,
    validate_update: Some(|new, old, errors| {
        again(new, false, NameRule::Subdomain, errors);
        storage_class(new, errors);
        for field in [
            "parameters",
            "provisioner",
            "reclaimPolicy",
            "volumeBindingMode",
        ] {
            errors.immutable(&new.get(field), &old.get(field));
        }
    }),
    ..Rules::cluster(GROUP)
};

pub(in crate::kinds) static ATTRIBUTES_CLASS: Rules = Rules {
    kind: "VolumeAttributesClass",
    admit: |class, old, _| {
        if old.is_none() {
            super::protect(class, "kubernetes.io/vac-protection");
        }
        Ok(())
    },
    validate: attributes_class,
    validate_update: Some(|new, old, errors| {
        for field in ["driverName", "parameters"] {
            if !same(new.get(field).value, old.get(field).value) {
                errors.forbidden(
                    &new.get(field),
                    format!("updates to {field} are forbidden."),
                );
            }
        }
        again(new, false, NameRule::Subdomain, errors);
        attributes_class(new, errors);
    }),
    ..Rules::cluster(GROUP)
};

pub(in crate::kinds) static ATTACHMENT: Rules = Rules {
    kind: "VolumeAttachment",
    status: true,
    validate: attachment,
    validate_update: Some(|new, old, errors| {
        again(new, false, NameRule::Subdomain, errors);
        attachment(new, errors);
        let spec = new.get("spec");
        if !same(spec.value, old.get("spec").value) {
            let shown = diff::compact("VolumeAttachmentSpec", spec.value);
            errors.invalid_shown(&spec, &shown, IMMUTABLE);
        }
    }),
    validate_status: |new, _, errors| attachment(new, errors),
    ..Rules::cluster(GROUP)
};

const TOKENS_MAY_BE_LOGGED: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes";

pub(in crate::kinds) static CSI_DRIVER: Rules = Rules {
    kind: "CSIDriver",
    warnings: |new, old| {
        let is_risky = |driver: &Value| {
            let spec = &driver["spec"];
            let tokens = spec["tokenRequests"].as_array();
            let undecided = spec["serviceAccountTokenInSecrets"].is_null();
            undecided && tokens.is_some_and(|tokens| !tokens.is_empty())
        };
        (is_risky(new) && !old.is_some_and(is_risky))
            .then(|| TOKENS_MAY_BE_LOGGED.to_owned())
            .into_iter()
            .collect()
    },
    prepare_update: |new, old| {
        let changed = !same(&new["spec"], &old["spec"]);
        crate::kinds::raise_generation(new, changed);
    },
    validate: csi_driver,
    validate_update: Some(|new, old, errors| {
        csi_driver(new, errors);
        for (field, reported) in [
            ("attachRequired", "attachedRequired"),
            ("volumeLifecycleModes", "volumeLifecycleModes"),
        ] {
            let at = new
                .dig(&["spec", field])
                .reported_at(&new.dig(&["spec", reported]));
            errors.immutable(&at, &old.dig(&["spec", field]));
        }
    }),
    ..Rules::cluster(GROUP)
};

pub(in crate::kinds) static CSI_NODE: Rules = Rules {
    kind: "CSINode",
    validate: csi_node,
    validate_update: Some(|new, old, errors| {
        again(new, false, NameRule::Subdomain, errors);
        csi_node(new, errors);
        let drivers = new.dig(&["spec", "drivers"]);
        let without_count = |driver: &Value| {
            let mut driver = driver.clone();
            if let Some(fields) = driver.as_object_mut() {
                fields.remove("allocatable");
            }
            driver
        };
        let mut by_name: HashMap<&str, Vec<At<'_>>> = HashMap::new();
        for driver in drivers.items() {
            by_name
                .entry(driver.get("name").text())
                .or_default()
                .push(driver);
        }
        // Names are unique in what is kept.
        for before in old.dig(&["spec", "drivers"]).items() {
            for now in by_name
                .remove(before.get("name").text())
                .unwrap_or_default()
            {
                let kept = without_count(now.value);
                if !same(&kept, &without_count(before.value)) {
                    let shown = diff::compact("CSINodeDriver", &kept);
                    errors.invalid_shown(&drivers, &shown, IMMUTABLE);
                }
            }
        }
    }),
    ..Rules::cluster(GROUP)
};

pub(in crate::kinds) static CSI_CAPACITY: Rules = Rules {
    kind: "CSIStorageCapacity",
    warnings: |capacity, _| {
        let topology = At::root(capacity).get("nodeTopology");
        let mut out = for_expressions(&topology.get("matchExpressions"));
        let labels = topology.get("matchLabels");
        out.extend(labels.entries().filter_map(|(key, _)| {
            let place = labels.get(key).path();
            Some(format!("{place}: {}", deprecated_label(key)?))
        }));
        out
    },
    validate: capacity,
    validate_update: Some(|new, old, errors| {
        again(new, true, NameRule::Subdomain, errors);
        capacity(new, errors);
        let topology = new.get("nodeTopology");
        errors.immutable_struct(&topology, &old.get("nodeTopology"), shown::LABEL_SELECTOR);
        errors.immutable_text(&new.get("storageClassName"), &old.get("storageClassName"));
    }),
    ..Rules::namespaced(GROUP)
};

fn provisioner(at: &At<'_>, errors: &mut Errors) {
    if at.is_empty() {
        errors.required(at, "");
    } else {
        errors.format_of(at, &at.text().to_lowercase(), names::qualified_name);
    }
}

fn parameters(at: &At<'_>, errors: &mut Errors) {
    if at.len() > 512 {
        errors.too_long(at, 512);
        return;
    }
    let mut size = 0;
    for (key, value) in at.entries() {
        if key.is_empty() {
            errors.invalid(at, key, "field can not be empty.");
        }
        size += key.len() + value.len();
    }
    if size > PARAMETERS_LIMIT {
        errors.too_long(at, PARAMETERS_LIMIT);
    }
}

fn storage_class(class: &At<'_>, errors: &mut Errors) {
    provisioner(&class.get("provisioner"), errors);
    parameters(&class.get("parameters"), errors);
    let reclaim = class.get("reclaimPolicy");
    if !reclaim.is_empty() {
        errors.optional_choice(&reclaim, &["Delete", "Retain"]);
    }
    errors.given_choice(
        &class.get("volumeBindingMode"),
        &["Immediate", "WaitForFirstConsumer"],
    );
    let terms = class.get("allowedTopologies");
    // The original's list of those it has seen begins with as many empty ones as there are terms.
    let mut seen: HashMap<Value, usize> = HashMap::from([(Value::Null, terms.len())]);
    for term in terms.items() {
        let expressions = term.get("matchLabelExpressions");
        let mut keys = Met::default();
        for expression in expressions.items() {
            let values = expression.get("values");
            errors.non_empty(&values);
            let mut known = Met::default();
            for value in values.items() {
                if known.contains(&value.text()) {
                    errors.duplicate(&value, value.text());
                }
                known.push(value.text());
            }
            let key = expression.get("key");
            errors.format(&key, names::qualified_name);
            if keys.contains(&key.text()) {
                errors.duplicate(&key, key.text());
            }
            keys.push(key.text());
        }
        // Every pair is told.
        let times = seen.entry(canonical(expressions.value)).or_default();
        for _ in 0..*times {
            if errors.is_full() {
                break;
            }
            errors.duplicate(&expressions, "");
        }
        *times += 1;
    }
}

fn attributes_class(class: &At<'_>, errors: &mut Errors) {
    provisioner(&class.get("driverName"), errors);
    let given = class.get("parameters");
    parameters(&given, errors);
    if given.is_empty() {
        errors.required(&given, "must contain at least one key/value pair");
    }
}

fn attachment(attachment: &At<'_>, errors: &mut Errors) {
    let spec = attachment.get("spec");
    csi_driver_name(&spec.get("attacher"), errors);
    let source = spec.get("source");
    let (inline, name) = (
        source.get("inlineVolumeSpec"),
        source.get("persistentVolumeName"),
    );
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    match (inline.is_set(), name.is_set()) {
        (false, false) => errors.required(&source, ONE),
        (true, true) => errors.forbidden(&source, ONE),
        (false, true) if name.is_empty() => {
            errors.required(&name, "must specify non empty persistentVolumeName");
        }
        (true, false) => volumes::spec(&inline, true, errors),
        _ => {}
    }
    errors.format(&spec.get("nodeName"), names::subdomain);
    let status = attachment.get("status");
    for error in ["attachError", "detachError"] {
        let message = status.dig(&[error, "message"]);
        if message.len() > 1024 {
            errors.too_long(&message, PARAMETERS_LIMIT);
        }
    }
    if name.is_set() {
        errors.format(&name, names::subdomain);
    }
}

fn csi_driver(driver: &At<'_>, errors: &mut Errors) {
    let spec = driver.get("spec");
    errors.optional_choice(
        &spec.get("fsGroupPolicy"),
        &["File", "None", "ReadWriteOnceWithFSType"],
    );
    let tokens = spec.get("tokenRequests");
    let mut seen = Met::default();
    for token in tokens.items() {
        let audience = token.get("audience");
        if seen.contains(&audience.text()) {
            errors.duplicate(&audience, audience.text());
            continue;
        }
        seen.push(audience.text());
        let expiration = token.get("expirationSeconds");
        if expiration.is_set() && expiration.number() < 600 {
            errors.invalid(
                &expiration,
                expiration.number(),
                "may not specify a duration less than 10 minutes",
            );
        }
        if expiration.number() > 1 << 32 {
            errors.invalid(
                &expiration,
                expiration.number(),
                "may not specify a duration larger than 2^32 seconds",
            );
        }
    }
    let modes = spec.get("volumeLifecycleModes");
    for mode in modes
        .texts()
        .filter(|mode| !["Persistent", "Ephemeral"].contains(mode))
    {
        errors.push(FieldError::not_supported(
            &modes.path(),
            mode,
            &["Persistent", "Ephemeral"],
        ));
    }
    let period = spec.get("nodeAllocatableUpdatePeriodSeconds");
    if period.is_set() && period.number() < 10 {
        errors.invalid(
            &period,
            period.number(),
            "must be greater than or equal to 10 seconds",
        );
    }
    let secrets = spec.get("serviceAccountTokenInSecrets");
    if secrets.is_set() && tokens.is_empty() {
        errors.invalid(
            &secrets,
            secrets.value.clone(),
            "serviceAccountTokenInSecrets is set but no tokenRequests are specified",
        );
    }
}

fn csi_node(node: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    for driver in node.dig(&["spec", "drivers"]).items() {
        let (name, id) = (driver.get("name"), driver.get("nodeID"));
        csi_driver_name(&name, errors);
        errors.non_empty(&id);
        if id.len() > 256 {
            errors.invalid(&id, id.text(), "must be 256 characters or less");
        }
        errors.non_negative(&driver.dig(&["allocatable", "count"]));
        if seen.contains(&name.text()) {
            errors.duplicate(&name, name.text());
        }
        seen.push(name.text());
        let mut keys = Met::default();
        for key in driver.get("topologyKeys").texts() {
            if key.is_empty() {
                errors.required(&driver, "");
            }
            if keys.contains(&key) {
                errors.duplicate(&driver, key);
            }
            keys.push(key);
            errors.format_of(&driver, key, names::qualified_name);
        }
    }
}

fn capacity(capacity: &At<'_>, errors: &mut Errors) {
    metadata::selector(&capacity.get("nodeTopology"), errors);
    errors.format(&capacity.get("storageClassName"), names::subdomain);
    let amount = capacity.get("capacity");
    if amount.is_set() && Quantity::of(amount.text()) < Quantity(0) {
        errors.invalid(&amount, amount.text(), NOT_NEGATIVE);
    }
}
