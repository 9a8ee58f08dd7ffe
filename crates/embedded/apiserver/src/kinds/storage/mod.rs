//! Storage: claims here, volumes, classes and drivers beside.

mod classes;
pub mod volumes;

pub use volumes::{csi_driver_name, legacy_source};

use serde_json::{Value, json};

use super::at::{At, Errors, IMMUTABLE, carry, field, same, text};
use super::core::again;
use super::names::{self, NameRule};
use super::pod::resources;
use super::quantity::Quantity;
use super::rules::Rules;
use super::{Lookup, diff, limits, metadata};
use crate::field::{FieldError, Path};
use crate::status::{StatusError, Subject};

/// How far the resizing of a claim may have got.
const RESIZE_STATES: &[&str] = &[
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

pub(super) static KINDS: &[&Rules] = &[
    &CLAIM,
    &volumes::VOLUME,
    &classes::STORAGE_CLASS,
    &classes::ATTRIBUTES_CLASS,
    &classes::ATTACHMENT,
    &classes::CSI_DRIVER,
    &classes::CSI_NODE,
    &classes::CSI_CAPACITY,
];

const ACCESS_MODES: &[&str] = &[
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOnce",
    "ReadWriteOncePod",
];
const VOLUME_MODES: &[&str] = &["Block", "Filesystem"];
const BETA_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const CLASSES: &str = "storageclasses.storage.k8s.io";

static CLAIM: Rules = Rules {
    kind: "PersistentVolumeClaim",
    status: true,
    prepare_create: |claim| {
        claim["status"] = json!({"phase": "Pending"});
        agree_on_source(claim, None);
    },
    prepare_update: |new, old| agree_on_source(new, Some(old)),
    validate: |claim, errors| claim_spec(&claim.get("spec"), errors),
    validate_update: Some(update),
    validate_status: |new, _, errors| {
        let status = new.get("status");
        for (_, amount) in status.get("capacity").entries() {
            not_negative(&amount, errors);
        }
        let states = status.get("allocatedResourceStatuses");
        for (name, state) in states.entries() {
            claimed_resource(&states, name, errors);
            if !RESIZE_STATES.contains(&state.text()) {
                let path = states.path();
                errors.push(FieldError::not_supported(&path, name, RESIZE_STATES));
            }
        }
        let allocated = status.get("allocatedResources");
        for (name, amount) in allocated.entries() {
            claimed_resource(&allocated, name, errors);
            not_negative(&amount, errors);
        }
    },
    warnings: |claim, _| {
        let claim = At::root(claim);
        let mut out = Vec::new();
        let class = claim.dig(&["metadata", "annotations"]).key(BETA_CLASS);
        if class.is_set() {
            out.push(format!(
                "{}: deprecated since v1.8; use \"storageClassName\" attribute instead",
                class.path()
            ));
        }
        out.extend(size_warnings(&claim.get("spec")));
        out
    },
    admit: |claim, old, world| {
        if old.is_none() {
            protect(claim, "kubernetes.io/pvc-protection");
            default_class(claim, world);
        }
        Ok(())
    },
    approve: |claim, old, world| match old {
        None => limits::approve_claim(claim, world),
        Some(old) => approve_growth(claim, old, world),
    },
    ..Rules::namespaced("")
};

/// Claims have storage, and what others define.
fn claimed_resource(at: &At<'_>, name: &str, errors: &mut Errors) {
    let before = errors.0.len();
    errors.format_of(at, name, names::qualified_name);
    let native = !name.contains('/') || name.contains("kubernetes.io/");
    if errors.0.len() == before && native && name != "storage" {
        errors.push(FieldError::not_supported(&at.path(), name, &["storage"]));
    }
}

/// Sizes of claims that are no whole numbers of bytes.
pub(super) fn size_warnings(spec: &At<'_>) -> Vec<String> {
    ["requests", "limits"]
        .into_iter()
        .map(|list| spec.dig(&["resources", list]).key("storage"))
        .filter(|amount| amount.is_set() && !Quantity::of(amount.text()).is_whole())
        .map(|amount| {
            format!(
                "{}: fractional byte value {} is invalid, must be an integer",
                amount.path(),
                plimsoll_golang::strconv::quote(amount.text())
            )
        })
        .collect()
}

fn access_modes(at: &At<'_>, errors: &mut Errors) {
    let (mut alone, mut others) = (false, false);
    for mode in at.texts() {
        if !ACCESS_MODES.contains(&mode) {
            errors.push(FieldError::not_supported(&at.path(), mode, ACCESS_MODES));
        } else if mode == "ReadWriteOncePod" {
            alone = true;
        } else {
            others = true;
        }
    }
    if alone && others {
        errors.forbidden(at, "may not use ReadWriteOncePod with other access modes");
    }
}

/// What a claim asks for; also in templates.
pub fn claim_spec(spec: &At<'_>, errors: &mut Errors) {
    let modes = spec.get("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    metadata::selector(&spec.get("selector"), errors);
    access_modes(&modes, errors);
    let amount = spec
        .dig(&["resources", "requests", "storage"])
        .reported_at(&spec.get("resources").key("storage"));
    if !amount.is_set() {
        errors.required(&amount, "");
    } else if Quantity::of(amount.text()) <= Quantity(0) {
        errors.invalid(&amount, amount.text(), "must be greater than zero");
    } else {
        resources::resource_amount(&amount, "storage", errors);
    }
    let class = spec.get("storageClassName");
    if !class.is_empty() {
        errors.format(&class, names::subdomain);
    }
    errors.optional_choice(&spec.get("volumeMode"), VOLUME_MODES);
    let (source, reference) = (spec.get("dataSource"), spec.get("dataSourceRef"));
    data_source(&source, errors);
    data_source(&reference, errors);
    let elsewhere = reference.get("namespace");
    if !elsewhere.is_empty() {
        errors.format(&elsewhere, names::label);
    }
    if source.is_set() && reference.is_set() {
        let place = json!({});
        if !elsewhere.is_empty() {
            errors.invalid(
                spec,
                place,
                "may not be specified when dataSourceRef.namespace is specified",
            );
        } else if ["apiGroup", "kind", "name"]
            .iter()
            .any(|field| source.get(field).value != reference.get(field).value)
        {
            errors.invalid(spec, place, "must match dataSourceRef");
        }
    }
    let attributes = spec.get("volumeAttributesClassName");
    if !attributes.is_empty() {
        errors.format(&attributes, names::subdomain);
    }
}

fn data_source(source: &At<'_>, errors: &mut Errors) {
    if !source.is_set() {
        return;
    }
    errors.non_empty(&source.get("name"));
    errors.non_empty(&source.get("kind"));
    let (group, kind) = (source.get("apiGroup"), source.get("kind").text());
    if group.is_empty() && kind != "PersistentVolumeClaim" {
        errors.invalid(
            source,
            kind,
            "must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        );
    }
    if !group.is_empty() {
        errors.format(&group, names::subdomain);
    }
}

fn not_negative(amount: &At<'_>, errors: &mut Errors) {
    let value = Quantity::of(amount.text());
    if value < Quantity(0) {
        errors.invalid(
            amount,
            // Away from zero.
            i64::try_from(-Quantity(value.0.saturating_neg()).ceil()).unwrap_or(i64::MIN),
            "must be a valid resource quantity",
        );
    }
}

/// A source is given in two ways, of which older clients know only the first. One that is in use may be refused, but is
/// not forgotten.
fn agree_on_source(claim: &mut Value, old: Option<&Value>) {
    let is_used = |name: &str| old.is_some_and(|old| !field(old, &["spec", name]).is_null());
    let in_use = is_used("dataSource") || is_used("dataSourceRef");
    // Sources in other namespaces are off unless asked for.
    let foreign = !text(claim, &["spec", "dataSourceRef", "namespace"]).is_empty();
    if foreign
        && !is_used("dataSourceRef")
        && let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("dataSourceRef");
    }
    let (source, reference) = (
        field(claim, &["spec", "dataSource"]).clone(),
        field(claim, &["spec", "dataSourceRef"]).clone(),
    );
    let of_known_kind = matches!(
        (text(&source, &["apiGroup"]), text(&source, &["kind"])),
        ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
    );
    if !source.is_null() && reference.is_null() {
        // The older field was only ever meant for these two.
        if of_known_kind || in_use {
            claim["spec"]["dataSourceRef"] = source;
        } else if let Some(spec) = claim.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("dataSource");
        }
    } else if source.is_null()
        && !reference.is_null()
        && text(&reference, &["namespace"]).is_empty()
    {
        let mut source = reference;
        if let Some(fields) = source.as_object_mut() {
            fields.remove("namespace");
        }
        claim["spec"]["dataSource"] = source;
    }
}

fn update(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    again(new, true, NameRule::Subdomain, errors);
    claim_spec(&new.get("spec"), errors);
    let (mut masked, mut before) = (new.get("spec").value.clone(), old.get("spec").value.clone());
    // Binding fills in the volume.
    if text(&before, &["volumeName"]).is_empty() {
        let given = masked.clone();
        carry(&mut before, &given, "volumeName");
    }
    let annotation = |claim: &At<'_>| {
        claim
            .dig(&["metadata", "annotations", BETA_CLASS])
            .text()
            .to_owned()
    };
    let (class, old_class) = (annotation(new), annotation(old));
    let named = field(&masked, &["storageClassName"])
        .as_str()
        .map(str::to_owned);
    let was_named = !field(&before, &["storageClassName"]).is_null();
    let upgraded = !old_class.is_empty()
        && !was_named
        && named.as_deref() == Some(&old_class)
        && (class.is_empty() || class == old_class);
    if upgraded {
        carry(&mut masked, &before, "storageClassName");
    } else {
        if class != old_class {
            let path = Path::new("metadata").child("annotations").child(BETA_CLASS);
            errors.push(FieldError::invalid(&path, class, IMMUTABLE));
        }
        let allowed = old_class.is_empty() || named.as_deref() == Some(&old_class);
        if named.is_some() && !was_named && allowed {
            carry(&mut masked, &before, "storageClassName");
        }
    }
    let bound = new.dig(&["status", "phase"]).text() == "Bound";
    if bound {
        let requests = masked.pointer_mut("/resources/requests");
        if let (Some(requests), Some(kept)) = (requests, before.pointer("/resources/requests")) {
            carry(requests, kept, "storage");
        }
        carry(&mut masked, &before, "volumeAttributesClassName");
    }
    let spec = new.get("spec");
    if !same(&masked, &before) {
        let difference = diff::of("PersistentVolumeClaimSpec", &before, &masked);
        errors.forbidden(&spec, format!("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"));
    }
    let size = |claim: &At<'_>, path: &[&'static str]| Quantity::of(text(claim.value, path));
    const REQUEST: &[&str] = &["spec", "resources", "requests", "storage"];
    let now = size(new, REQUEST);
    if now < size(old, REQUEST) && now <= size(old, &["status", "capacity", "storage"]) {
        errors.forbidden(
            &new.dig(REQUEST),
            "field can not be less than status.capacity",
        );
    }
    let mode = new
        .dig(&["spec", "volumeMode"])
        .reported_at(&new.get("volumeMode"));
    errors.immutable(&mode, &old.dig(&["spec", "volumeMode"]));
    let attributes = spec.get("volumeAttributesClassName");
    let current = old.dig(&["status", "currentVolumeAttributesClassName"]);
    if attributes.value != old.dig(&["spec", "volumeAttributesClassName"]).value && current.is_set()
    {
        let words = if attributes.is_set() {
            "empty string"
        } else {
            "nil"
        };
        if attributes.is_empty() {
            errors.forbidden(&attributes, format!("update to {words} is forbidden when status.currentVolumeAttributesClassName is not nil"));
        }
    }
}

/// Keeps what is in use from being deleted.
fn protect(object: &mut Value, finalizer: &str) {
    let mut list = field(object, &["metadata", "finalizers"])
        .as_array()
        .cloned()
        .unwrap_or_default();
    if !list.iter().any(|one| one == finalizer) {
        list.push(json!(finalizer));
        object["metadata"]["finalizers"] = list.into();
    }
}

/// The newest of the classes that call themselves default.
fn default_class(claim: &mut Value, world: &dyn Lookup) {
    let named = !field(claim, &["spec", "storageClassName"]).is_null()
        || !field(claim, &["metadata", "annotations", BETA_CLASS]).is_null();
    if named {
        return;
    }
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let mut classes = world.list(CLASSES, "");
    classes.retain(|class| text(class, &["metadata", "annotations", DEFAULT]) == "true");
    classes.sort_by(|a, b| {
        let created = |class: &Value| text(class, &["metadata", "creationTimestamp"]).to_owned();
        let name = |class: &Value| text(class, &["metadata", "name"]).to_owned();
        created(b)
            .cmp(&created(a))
            .then_with(|| name(a).cmp(&name(b)))
    });
    if let Some(class) = classes.first() {
        claim["spec"]["storageClassName"] = field(class, &["metadata", "name"]).clone();
    }
}

fn class_of(claim: &Value) -> &str {
    match text(claim, &["metadata", "annotations", BETA_CLASS]) {
        "" => text(claim, &["spec", "storageClassName"]),
        class => class,
    }
}

/// A claim grows only where its class allows it.
fn approve_growth(claim: &Value, old: &Value, world: &dyn Lookup) -> Result<(), StatusError> {
    let size =
        |claim: &Value| Quantity::of(text(claim, &["spec", "resources", "requests", "storage"]));
    if size(claim) <= size(old) {
        return Ok(());
    }
    let class = class_of(claim);
    let allowed = !class.is_empty()
        && class == class_of(old)
        && world
            .get(CLASSES, "", class)
            .is_some_and(|class| class["allowVolumeExpansion"] == true);
    let why = if text(old, &["status", "phase"]) != "Bound" {
        "Only bound persistent volume claims can be expanded"
    } else if !allowed {
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
    } else {
        return Ok(());
    };
    let subject = Subject {
        group: "",
        kind: "persistentvolumeclaims",
    };
    Err(StatusError::forbidden(
        subject,
        text(claim, &["metadata", "name"]),
        why,
    ))
}
