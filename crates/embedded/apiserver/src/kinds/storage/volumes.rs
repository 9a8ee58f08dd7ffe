//! Persistent volumes, and the sources that volumes come from.

use serde_json::{Value, json};

use super::{BETA_CLASS, VOLUME_MODES, access_modes, not_negative, protect};
use crate::field::FieldError;
use crate::kinds::at::{At, Errors, IMMUTABLE, carry, field, same, text};
use crate::kinds::core::again;
use crate::kinds::diff;
use crate::kinds::names::{self, NameRule};
use crate::kinds::pod::warnings::{DEPRECATED_VOLUMES, for_expressions};
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
    update_checks_metadata: true,
    prepare_status_update: |new, old| {
        let is_same = new["status"]["phase"] == old["status"]["phase"];
        if is_same && new["status"]["lastPhaseTransitionTime"].is_null() {
            carry(
                &mut new["status"],
                &old["status"],
                "lastPhaseTransitionTime",
            );
        }
    },
    validate: |volume, errors| {
        spec(&volume.get("spec"), false, errors);
        mount_options(volume, errors);
    },
    validate_update: Some(update),
    warnings: |volume, _| {
        let mut out = Vec::new();
        let annotations = At::root(volume).dig(&["metadata", "annotations"]);
        for (key, why) in DEPRECATED_ANNOTATIONS {
            let annotation = annotations.key(key);
            if annotation.is_set() {
                out.push(format!("{}: {why}", annotation.path()));
            }
        }
        if text(volume, &["spec", "persistentVolumeReclaimPolicy"]) == "Recycle" {
            out.push("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.".to_owned());
        }
        let required = At::root(volume).dig(&["spec", "nodeAffinity", "required"]);
        for term in required.get("nodeSelectorTerms").items() {
            out.extend(for_expressions(&term.get("matchExpressions")));
        }
        // Of persistent volumes, nobody warns of these two.
        let sources = DEPRECATED_VOLUMES
            .iter()
            .filter(|(name, ..)| !["flocker", "quobyte"].contains(name));
        for (name, shown, why) in sources {
            if !field(volume, &["spec", name]).is_null() {
                out.push(format!("spec.{shown}: {why}"));
            }
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

const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const DEPRECATED_ANNOTATIONS: &[(&str, &str)] = &[
    (
        BETA_CLASS,
        "deprecated since v1.8; use \"storageClassName\" attribute instead",
    ),
    (
        MOUNT_OPTIONS,
        "deprecated since v1.31; use \"mountOptions\" attribute instead",
    ),
];

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
        // Flex volumes may go with others.
        if found && *name != "flexVolume" {
            let at = match *name {
                "cephfs" => at.reported_at(&spec.get("cephFS")),
                _ => at,
            };
            errors.forbidden(&at, "may not specify more than 1 volume type");
            continue;
        }
        found = true;
        // The original calls one of them by another name here.
        let at = match *name {
            "gcePersistentDisk" => at.reported_at(&spec.get("persistentDisk")),
            _ => at,
        };
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
            errors.optional_choice(&at.get("type"), volumes::HOST_PATH_TYPES);
        }
        "storageos" => {
            legacy_source(name, at, errors);
            for part in ["volumeName", "volumeNamespace"].map(|part| at.get(part)) {
                if !part.is_empty() {
                    errors.format(&part, names::label);
                }
            }
            whole_reference(&at.get("secretRef"), errors);
        }
        "cinder" => {
            legacy_source(name, at, errors);
            whole_reference(&at.get("secretRef"), errors);
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            legacy_source(name, at, errors);
            let partition = at.get("partition");
            if !(0..=255).contains(&partition.number()) {
                let why = "must be between 1 and 255, inclusive";
                errors.invalid(&partition, partition.number(), why);
            }
        }
        "glusterfs" => {
            legacy_source(name, at, errors);
            let namespace = at.get("endpointsNamespace");
            if namespace.is_set() && namespace.is_empty() {
                let why = "if the endpointnamespace is set, it must be a valid namespace name";
                errors.invalid(&namespace, "", why);
            } else if namespace.is_set() {
                errors.format(&namespace, names::label);
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
            if !affinity.is_set() {
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
                    required_name(&secret.get("name"), names::subdomain, errors);
                    required_name(&secret.get("namespace"), names::label, errors);
                }
            }
        }
        _ => legacy_source(name, at, errors),
    }
}

/// A reference to a secret, which says what and where.
fn whole_reference(secret: &At<'_>, errors: &mut Errors) {
    if secret.is_set() {
        for part in ["name", "namespace"] {
            errors.non_empty(&secret.get(part));
        }
    }
}

fn required_name(at: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    if at.is_empty() {
        errors.required(at, "");
    } else {
        errors.format(at, rule);
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
        if (name, *field) == ("quobyte", "registry") {
            registry(&at, errors);
        } else {
            errors.non_empty(&at);
        }
    }
    match name {
        "fc" => fibre_channel(at, errors),
        "flocker" => {
            let (name, id) = (at.get("datasetName"), at.get("datasetUUID"));
            if name.is_empty() && id.is_empty() {
                errors.required(at, "one of datasetName and datasetUUID is required");
            }
            if !name.is_empty() && !id.is_empty() {
                let why = "datasetName and datasetUUID can not be specified simultaneously";
                errors.invalid(at, "resource", why);
            }
            if name.text().contains('/') {
                errors.invalid(&name, name.text(), "must not contain '/'");
            }
        }
        "azureDisk" => {
            let uri = at.get("diskURI");
            let (start, form) = match at.get("kind").text() {
                "Managed" => (
                    "/subscriptions",
                    "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
                ),
                _ => (
                    "https://",
                    "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
                ),
            };
            if !uri.text().starts_with(start) {
                errors.not_supported(&uri, &[form]);
            }
        }
        "iscsi" => iscsi(at, errors),
        _ => {}
    }
}

fn registry(at: &At<'_>, errors: &mut Errors) {
    const WANTED: &str = "must be a host:port pair or multiple pairs separated by commas";
    let is_pair = |one: &str| one.rsplit_once(':').is_some();
    if at.is_empty() {
        errors.required(at, WANTED);
    } else if !at.text().split(',').all(is_pair) {
        errors.invalid(at, at.text(), WANTED);
    }
}

fn fibre_channel(at: &At<'_>, errors: &mut Errors) {
    let (targets, ids, lun) = (at.get("targetWWNs"), at.get("wwids"), at.get("lun"));
    if targets.is_empty() && ids.is_empty() {
        errors.required(
            &targets,
            "must specify either targetWWNs or wwids, but not both",
        );
    }
    if !targets.is_empty() && !ids.is_empty() {
        let why = "targetWWNs and wwids can not be specified simultaneously";
        errors.invalid(&targets, targets.value.clone(), why);
    }
    if targets.is_empty() {
        return;
    }
    if lun.is_set() {
        unit_number(&lun, errors);
    } else {
        errors.required(&lun, "lun is required if targetWWNs is specified");
    }
}

fn iscsi(at: &At<'_>, errors: &mut Errors) {
    const WANTED: &str = "must be valid format";
    let is_name = |text: &str| {
        ["iqn.", "eui.", "naa."]
            .iter()
            .any(|start| text.starts_with(start))
    };
    let name = at.get("iqn");
    if !name.is_empty() && !is_name(name.text()) {
        errors.invalid(&name, name.text(), WANTED);
    }
    unit_number(&at.get("lun"), errors);
    let asks = ["chapAuthDiscovery", "chapAuthSession"];
    let secret = at.get("secretRef");
    if asks.iter().any(|one| at.get(one).flag()) && !secret.is_set() {
        errors.required(&secret, "");
    }
    if secret.is_set() {
        errors.non_empty(&secret.get("name"));
    }
    let initiator = at.get("initiatorName");
    if initiator.is_set() && !is_name(initiator.text()) {
        let place = at.get("initiatorname");
        errors.invalid(&place, initiator.text(), WANTED);
    }
}

fn unit_number(lun: &At<'_>, errors: &mut Errors) {
    if !(0..=255).contains(&lun.number()) {
        errors.invalid(lun, lun.number(), "must be between 0 and 255, inclusive");
    }
}

/// Options of mounts may still be given as an annotation, but only for sources that have known it.
fn mount_options(volume: &At<'_>, errors: &mut Errors) {
    const KNOWN_BY: &[&str] = &[
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "glusterfs",
        "nfs",
        "rbd",
        "quobyte",
        "iscsi",
        "cinder",
        "cephfs",
        "azureFile",
        "vsphereVolume",
        "azureDisk",
        "photonPersistentDisk",
    ];
    let spec = volume.get("spec");
    let options = volume.dig(&["metadata", "annotations", MOUNT_OPTIONS]);
    if options.is_set() && !KNOWN_BY.iter().any(|source| spec.get(source).is_set()) {
        errors.forbidden(
            &options,
            "may not specify mount options for this volume type",
        );
    }
}

fn update(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    // Kubernetes checks the whole volume twice.
    for round in 0..2 {
        again(new, false, NameRule::Subdomain, errors);
        spec(&new.get("spec"), false, errors);
        if round == 0 {
            mount_options(new, errors);
        }
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
