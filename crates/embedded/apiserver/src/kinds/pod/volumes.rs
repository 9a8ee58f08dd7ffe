//! Volumes of pods, and where containers mount them.

use super::env::{field_ref, resource_field_ref};
use std::collections::{HashMap, HashSet};

use crate::kinds::at::{At, Errors};
use crate::kinds::metadata;
use crate::kinds::names;
use crate::kinds::quantity::Quantity;
use crate::kinds::storage;

const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
pub const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];
const VOLUME_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Sources in the order in which Kubernetes looks at them, with the field under which it reports a second one.
const SOURCES: &[(&str, &str)] = &[
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Checks all volumes and returns those that are in order. `pod` is the name of the pod, where there is one.
pub fn volumes<'v>(
    list: &At<'v>,
    pod: &str,
    is_pod: bool,
    errors: &mut Errors,
) -> HashMap<&'v str, At<'v>> {
    let mut good: HashMap<&str, At<'v>> = HashMap::new();
    let claims_made: HashSet<String> = list
        .items()
        .filter(|volume| !pod.is_empty() && volume.get("ephemeral").is_set())
        .map(|volume| format!("{pod}-{}", volume.get("name").text()))
        .collect();
    for volume in list.items() {
        let mut own = Errors::default();
        source(&volume, pod, is_pod, &mut own);
        let name = volume.get("name");
        if name.is_empty() {
            own.required(&name, "");
        } else {
            own.format(&name, names::label);
        }
        if good.contains_key(name.text()) {
            own.duplicate(&name, name.text());
        }
        let claim = volume.dig(&["persistentVolumeClaim", "claimName"]);
        if own.is_empty() {
            good.insert(name.text(), volume);
        }
        errors.append(&mut own);
        if claim.is_set() && claims_made.contains(claim.text()) {
            errors.invalid(
                &claim,
                claim.text(),
                "must not reference a PVC that gets created for an ephemeral volume",
            );
        }
    }
    good
}

fn source(volume: &At<'_>, pod: &str, is_pod: bool, errors: &mut Errors) {
    let mut found = false;
    for (name, second) in SOURCES {
        let at = volume.get(name);
        if !at.is_set() {
            continue;
        }
        if found {
            errors.forbidden(
                &volume.get(second),
                "may not specify more than 1 volume type",
            );
            continue;
        }
        found = true;
        one_source(&at, volume, name, is_pod, errors);
        let volume_name = volume.get("name");
        if *name == "ephemeral" && !pod.is_empty() && !volume_name.is_empty() {
            let claim = format!("{pod}-{}", volume_name.text());
            for complaint in names::subdomain(&claim) {
                let detail = format!("PVC name \"{claim}\": {complaint}");
                errors.invalid(&volume_name, volume_name.text(), detail);
            }
        }
    }
    if !found {
        errors.required(volume, "must specify a volume type");
    }
}

fn one_source(at: &At<'_>, volume: &At<'_>, name: &str, is_pod: bool, errors: &mut Errors) {
    match name {
        "emptyDir" => {
            let limit = at.get("sizeLimit");
            if limit.is_set() && Quantity::of(limit.text()) < Quantity(0) {
                errors.forbidden(&limit, "SizeLimit field must be a valid resource quantity");
            }
        }
        "hostPath" => {
            if at.get("path").is_empty() {
                errors.required(&at.get("path"), "");
                return;
            }
            no_backsteps(&at.get("path"), errors);
            errors.optional_choice(&at.get("type"), HOST_PATH_TYPES);
        }
        "gitRepo" => {
            errors.non_empty(&at.get("repository"));
            relative(&at.get("directory"), errors);
        }
        // Reported under the name that the field once had.
        "gcePersistentDisk" => disk(at, &volume.get("persistentDisk"), "pdName", errors),
        "awsElasticBlockStore" => disk(at, at, "volumeID", errors),
        "secret" => keys_to_files(at, "secretName", errors),
        "configMap" => keys_to_files(at, "name", errors),
        "nfs" => {
            errors.non_empty(&at.get("server"));
            errors.non_empty(&at.get("path"));
            absolute(&at.get("path"), errors);
        }
        "persistentVolumeClaim" => errors.non_empty(&at.get("claimName")),
        "downwardAPI" => {
            file_mode(&at.get("defaultMode"), errors);
            for file in at.get("items").items() {
                downward_file(&file, at, errors);
            }
        }
        "projected" => projected(at, errors),
        "csi" => {
            storage::csi_driver_name(&at.get("driver"), errors);
            let secret = at.dig(&["nodePublishSecretRef", "name"]);
            if at.get("nodePublishSecretRef").is_set() && secret.is_empty() {
                errors.required(&secret, "");
            } else if secret.is_set() {
                errors.format(&moved(&secret, at, "name"), names::subdomain);
            }
        }
        "ephemeral" => {
            let template = at.get("volumeClaimTemplate");
            if template.is_set() {
                template_metadata(&template.get("metadata"), errors);
                storage::claim_spec(&template.get("spec"), errors);
            } else {
                errors.required(&template, "");
            }
        }
        "image" => {
            if is_pod {
                errors.non_empty(&at.get("reference"));
            }
            errors.choice(&at.get("pullPolicy"), &["Always", "IfNotPresent", "Never"]);
        }
        _ => storage::legacy_source(name, at, errors),
    }
}

/// Only labels and annotations may be given to what is made from a template.
fn template_metadata(meta: &At<'_>, errors: &mut Errors) {
    metadata::annotations(&meta.get("annotations"), errors);
    metadata::labels(&meta.get("labels"), errors);
    for (field, value) in meta.value.as_object().into_iter().flatten() {
        if !["labels", "annotations"].contains(&field.as_str()) && !value.is_null() {
            errors.forbidden(&meta.get(field), "cannot be set");
        }
    }
}

fn disk(at: &At<'_>, reported: &At<'_>, id: &'static str, errors: &mut Errors) {
    if at.get(id).is_empty() {
        errors.required(&reported.get(id), "");
    }
    let partition = at.get("partition").number();
    if !(0..=255).contains(&partition) {
        errors.invalid(
            &reported.get("partition"),
            partition,
            "must be between 1 and 255, inclusive",
        );
    }
}

fn file_mode(mode: &At<'_>, errors: &mut Errors) {
    if mode.is_set() && !(0..=0o777).contains(&mode.number()) {
        errors.invalid(mode, mode.number(), FILE_MODE);
    }
}

fn keys_to_files(at: &At<'_>, name: &'static str, errors: &mut Errors) {
    errors.non_empty(&at.get(name));
    file_mode(&at.get("defaultMode"), errors);
    for item in at.get("items").items() {
        key_to_path(&item, errors);
    }
}

fn key_to_path(item: &At<'_>, errors: &mut Errors) {
    errors.non_empty(&item.get("key"));
    errors.non_empty(&item.get("path"));
    unreserved(&item.get("path"), errors);
    file_mode(&item.get("mode"), errors);
}

/// Problems of a downward file are reported at its volume.
fn downward_file(file: &At<'_>, volume: &At<'_>, errors: &mut Errors) {
    let path = file.get("path");
    let reported = volume.get("path");
    if path.is_empty() {
        errors.required(&reported, "");
    }
    unreserved_at(&reported, path.text(), errors);
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.is_set() {
        field_ref(&moved(&field, volume, "fieldRef"), VOLUME_FIELDS, errors);
        if resource.is_set() {
            errors.invalid(
                volume,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
    } else if resource.is_set() {
        resource_field_ref(&moved(&resource, volume, "resourceFieldRef"), true, errors);
    } else {
        errors.required(volume, "one of fieldRef and resourceFieldRef is required");
    }
    let mode = file.get("mode");
    file_mode(&moved(&mode, volume, "mode"), errors);
}

/// `what`, reported as a field of `to`.
pub(super) fn moved<'v>(what: &At<'v>, to: &At<'v>, name: &'v str) -> At<'v> {
    what.reported_at(&to.get(name))
}

fn projected(at: &At<'_>, errors: &mut Errors) {
    file_mode(&at.get("defaultMode"), errors);
    let mut taken = HashSet::new();
    for source in at.get("sources").items() {
        let mut kinds = 0;
        for kind in ["secret", "configMap"] {
            let projection = source.get(kind);
            if !projection.is_set() {
                continue;
            }
            kinds += 1;
            errors.non_empty(&projection.get("name"));
            for item in projection.get("items").items() {
                key_to_path(&item, errors);
                note_path(
                    at,
                    item.get("path").text(),
                    projection.get("name").text(),
                    &mut taken,
                    errors,
                );
            }
        }
        let downward = source.get("downwardAPI");
        if downward.is_set() {
            kinds += 1;
            for file in downward.get("items").items() {
                downward_file(&file, &downward, errors);
                let path = file.get("path").text();
                note_path(at, path, path, &mut taken, errors);
            }
        }
        let token = source.get("serviceAccountToken");
        if token.is_set() {
            kinds += 1;
            let expiration = token.get("expirationSeconds");
            if expiration.number() < 600 {
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
            let path = token.get("path").text();
            if path.is_empty() {
                errors.required(&at.get("path"), "");
            } else {
                unreserved_at(&at.get("path"), path, errors);
            }
        }
        let bundle = source.get("clusterTrustBundle");
        if bundle.is_set() {
            kinds += 1;
            trust_bundle(&bundle, errors);
            let path = bundle.get("path").text();
            note_path(at, path, path, &mut taken, errors);
        }
        if kinds > 1 {
            errors.forbidden(
                &source,
                "may not specify more than 1 volume type per source",
            );
        }
    }
}

fn note_path(
    at: &At<'_>,
    path: &str,
    shown: &str,
    taken: &mut HashSet<String>,
    errors: &mut Errors,
) {
    if path.is_empty() {
        return;
    }
    if !taken.insert(path.to_owned()) {
        errors.invalid(at, shown, "conflicting duplicate paths");
    }
}

fn trust_bundle(bundle: &At<'_>, errors: &mut Errors) {
    let (name, signer) = (bundle.get("name"), bundle.get("signerName"));
    match (name.is_set(), signer.is_set()) {
        (true, true) => errors.invalid(
            bundle,
            bundle.value.clone(),
            "only one of name and signerName may be used",
        ),
        (true, false) => {
            if name.is_empty() {
                errors.required(&name, "must be a valid object name");
            }
            for complaint in names::subdomain(name.text()) {
                let detail = format!("not a valid clustertrustbundlename: {complaint}");
                errors.invalid(&name, name.text(), detail);
            }
            let selector = bundle.get("labelSelector");
            if selector.is_set() {
                errors.invalid(
                    &selector,
                    selector.value.clone(),
                    "labelSelector must be unset if name is specified",
                );
            }
        }
        (false, true) => {
            if signer.is_empty() {
                errors.required(&signer, "must be a valid signer name");
            }
            metadata::selector(&bundle.get("labelSelector"), errors);
        }
        (false, false) => {
            errors.required(bundle, "either name or signerName must be specified");
        }
    }
    errors.non_empty(&bundle.get("path"));
    unreserved(&bundle.get("path"), errors);
}

pub fn no_backsteps(path: &At<'_>, errors: &mut Errors) {
    no_backsteps_in(path, path.text(), errors);
}

fn no_backsteps_in(at: &At<'_>, path: &str, errors: &mut Errors) {
    if path.split('/').any(|part| part == "..") {
        errors.invalid(at, path, "must not contain '..'");
    }
}

pub fn absolute(path: &At<'_>, errors: &mut Errors) {
    if !path.text().starts_with('/') {
        errors.invalid(path, path.text(), "must be an absolute path");
    }
}

pub fn relative(path: &At<'_>, errors: &mut Errors) {
    relative_in(path, path.text(), errors);
}

pub(super) fn relative_in(at: &At<'_>, path: &str, errors: &mut Errors) {
    if path.starts_with('/') {
        errors.invalid(at, path, "must be a relative path");
    }
    no_backsteps_in(at, path, errors);
}

/// Below the mount point, and not one of the names that the kubelet keeps for itself.
fn unreserved(path: &At<'_>, errors: &mut Errors) {
    unreserved_at(path, path.text(), errors);
}

fn unreserved_at(at: &At<'_>, path: &str, errors: &mut Errors) {
    relative_in(at, path, errors);
    if path.starts_with("..") && !path.starts_with("../") {
        errors.invalid(at, path, "must not start with '..'");
    }
}
