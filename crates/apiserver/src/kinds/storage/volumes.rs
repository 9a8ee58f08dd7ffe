//! Persistent volumes, and the sources that volumes come from.

use serde_json::{Value, json};

use super::{VOLUME_MODES, access_modes, not_negative, protect};
use crate::field::FieldError;
use crate::kinds::at::{At, Errors, IMMUTABLE, carry, field, same, text};
use crate::kinds::core::again;
use crate::kinds::diff;
use crate::kinds::names::{self, NameRule};
use crate::kinds::pod::{scheduling, volumes};
use crate::kinds::quantity::Quantity;
use crate::kinds::rules::Rules;

pub(in crate::kinds) static VOLUME: Rules = Rules {
    kind: "PersistentVolume",
    status: true,
    prepare_create: |volume| {
        let since = field(volume, &["metadata", "creationTimestamp"]).clone();
        volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": since});
    },
    validate: |volume, errors| spec(&volume.get("spec"), false, errors),
    validate_update: Some(update),
    warnings: |volume, _| {
        let mut out = Vec::new();
        if text(volume, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
            out.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
        }
        out
    },
    admit: |volume, old, _| {
        if old.is_none() {
            protect(volume, "kubernetes.io/pv-protection");
        }
        Ok(())
    },
    ..Rules::cluster("")
};

/// In the order in which Kubernetes looks at them.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// `inline`: a volume that exists only within an attachment.
pub fn spec(spec: &At<'_>, inline: bool, errors: &mut Errors) {
    const INLINE: &str = "in the context of inline volumes";
    if inline {
        for name in ["claimRef", "capacity"] {
            if spec.get(name).is_set() {
                errors.forbidden(&spec.get(name), format!("may not be specified {INLINE}"));
            }
        }
        if !spec.get("csi").is_set() {
            errors.required(&spec.get("csi"), &format!("has to be specified {INLINE}"));
        }
    }
    let modes = spec.get("accessModes");
    errors.non_empty(&modes);
    access_modes(&modes, errors);
    let policy = spec.get("persistentVolumeReclaimPolicy");
    let affinity = spec.get("nodeAffinity");
    if !inline {
        capacity(&spec.get("capacity"), errors);
        if !policy.is_empty() {
            errors.optional_choice(&policy, &["Delete", "Recycle", "Retain"]);
        }
        let required = affinity.get("required");
        if required.is_set() {
            scheduling::node_selector(&required, errors);
        } else if affinity.is_set() {
            errors.required(&required, "must specify required node constraints");
        }
    }
    let mut found = false;
    for name in SOURCES {
        let at = spec.get(name);
        if !at.is_set() {
            continue;
        }
        if found {
            errors.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        source(name, &at, &affinity, errors);
    }
    if !found {
        errors.required(spec, "must specify a volume type");
    }
    let root = spec.dig(&["hostPath", "path"]).text();
    if !root.is_empty() && root.trim_matches('/').is_empty() && policy.text() == "Recycle" {
        errors.forbidden(&policy, "may not be 'recycle' for a hostPath mount of '/'");
    }
    let class = spec.get("storageClassName");
    if !class.is_empty() {
        errors.format(&class, names::subdomain);
    }
    errors.optional_choice(&spec.get("volumeMode"), VOLUME_MODES);
    let attributes = spec.get("volumeAttributesClassName");
    if attributes.is_set() {
        if attributes.is_empty() {
            errors.required(&attributes, "an empty string is disallowed");
        } else {
            errors.format(&attributes, names::subdomain);
        }
        if !spec.get("csi").is_set() {
            errors.required(
                &spec.get("csi"),
                "has to be specified when using volumeAttributesClassName",
            );
        }
    }
}

fn capacity(capacity: &At<'_>, errors: &mut Errors) {
    errors.non_empty(capacity);
    if !capacity.get("storage").is_set() || capacity.len() > 1 {
        errors.push(FieldError::not_supported(
            &capacity.path(),
            capacity.value.clone(),
            &["storage"],
        ));
    }
    for (_, amount) in capacity.entries() {
        not_negative(&amount, errors);
        if Quantity::of(amount.text()) <= Quantity(0) {
            errors.invalid(&amount, amount.text(), "must be greater than zero");
        }
    }
}

fn source(name: &str, at: &At<'_>, affinity: &At<'_>, errors: &mut Errors) {
    match name {
        "hostPath" => {
            if at.get("path").is_empty() {
                errors.required(&at.get("path"), "");
            } else {
                volumes::no_backsteps(&at.get("path"), errors);
            }
        }
        "nfs" => {
            errors.non_empty(&at.get("server"));
            errors.non_empty(&at.get("path"));
            volumes::absolute(&at.get("path"), errors);
        }
        "local" => {
            if at.get("path").is_empty() {
                errors.required(&at.get("path"), "");
            } else {
                volumes::no_backsteps(&at.get("path"), errors);
            }
            if !affinity.get("required").is_set() {
                errors.required(affinity, "Local volume requires node affinity");
            }
        }
        "csi" => {
            csi_driver_name(&at.get("driver"), errors);
            errors.non_empty(&at.get("volumeHandle"));
            for name in [
                "controllerPublishSecretRef",
                "controllerExpandSecretRef",
                "nodePublishSecretRef",
                "nodeExpandSecretRef",
            ] {
                let secret = at.get(name);
                if secret.is_set() {
                    for part in ["name", "namespace"] {
                        errors.non_empty(&secret.get(part));
                    }
                }
            }
        }
        _ => legacy_source(name, at, errors),
    }
}

pub fn csi_driver_name(driver: &At<'_>, errors: &mut Errors) {
    if driver.is_empty() {
        errors.required(driver, "");
        return;
    }
    if driver.len() > 63 {
        errors.too_long(driver, 63);
    }
    for complaint in names::subdomain(&driver.text().to_lowercase()) {
        errors.invalid(driver, driver.text(), complaint);
    }
}

/// What sources that hardly anybody uses any more cannot do without.
const REQUIRED: &[(&str, &[&str])] = &[
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("glusterfs", &["endpoints", "path"]),
    ("rbd", &["monitors", "image"]),
    ("quobyte", &["registry", "volume"]),
    ("cephfs", &["monitors"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeName"]),
];

pub fn legacy_source(name: &str, at: &At<'_>, errors: &mut Errors) {
    let required = REQUIRED.iter().find(|(source, _)| *source == name);
    for field in required.map_or(&[][..], |(_, fields)| fields) {
        let at = at.get(field);
        if (name, *field) == ("quobyte", "registry") && at.is_empty() {
            errors.required(
                &at,
                "must be a host:port pair or multiple pairs separated by commas",
            );
        } else {
            errors.non_empty(&at);
        }
    }
    match name {
        "fc" if at.get("targetWWNs").is_empty() == at.get("wwids").is_empty() => errors.required(
            &at.get("targetWWNs"),
            "must specify either targetWWNs or wwids, but not both",
        ),
        "flocker" if at.get("datasetName").is_empty() && at.get("datasetUUID").is_empty() => {
            errors.required(at, "one of datasetName and datasetUUID is required");
        }
        "azureDisk"
            if !at.get("diskURI").text().starts_with("https://")
                && at.get("kind").text() != "Managed" =>
        {
            errors.not_supported(
                &at.get("diskURI"),
                &["https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"],
            )
        }
        _ => {}
    }
}

fn update(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    // Kubernetes checks the whole volume twice.
    for _ in 0..2 {
        again(new, false, NameRule::Subdomain, errors);
        spec(&new.get("spec"), false, errors);
    }
    let only_source = |volume: &At<'_>| -> Value {
        let spec = volume.get("spec");
        let sources = SOURCES.iter().map(|name| (*name, spec.get(name)));
        let set = sources.filter(|(_, at)| at.is_set());
        set.map(|(name, at)| (name.to_owned(), at.value.clone()))
            .collect()
    };
    let (mut now, then) = (only_source(new), only_source(old));
    const SECRET: &str = "controllerExpandSecretRef";
    if !field(&then, &["csi"]).is_null()
        && field(&then, &["csi", SECRET]).is_null()
        && let Some(csi) = now.get_mut("csi")
    {
        carry(csi, &json!({}), SECRET);
    }
    if !same(&now, &then) {
        let difference = diff::of("PersistentVolumeSource", &then, &now);
        errors.forbidden(
            &new.dig(&["spec", "persistentvolumesource"]),
            format!("spec.persistentvolumesource is immutable after creation\n{difference}"),
        );
    }
    let (mode, old_mode) = (
        new.dig(&["spec", "volumeMode"]),
        old.dig(&["spec", "volumeMode"]),
    );
    errors.immutable(&mode.reported_at(&new.get("volumeMode")), &old_mode);
    let (affinity, before) = (
        new.dig(&["spec", "nodeAffinity"]),
        old.dig(&["spec", "nodeAffinity"]),
    );
    if before.is_set() && !same(affinity.value, before.value) {
        errors.invalid_shown(
            &affinity.reported_at(&new.get("nodeAffinity")),
            &diff::compact("*VolumeNodeAffinity", affinity.value),
            format!("{IMMUTABLE}, except for updating from beta label to GA"),
        );
    }
    let class = new.dig(&["spec", "volumeAttributesClassName"]);
    if !class.is_set() && old.dig(&["spec", "volumeAttributesClassName"]).is_set() {
        errors.forbidden(&class, "update from non-nil value to nil is forbidden");
    }
}
