//! Where containers mount volumes.

use super::containers::Scope;
use super::volumes::{moved, relative_in};
use crate::kinds::at::{At, Errors};
use crate::met::Met;

pub fn mounts(container: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let devices = container.get("volumeDevices");
    let [device_names, device_paths] = ["name", "devicePath"].map(|field| devices.each(field));
    let list = container.get("volumeMounts");
    let mut points = Met::default();
    for mount in list.items() {
        let [name, path] = ["name", "mountPath"].map(|field| mount.get(field));
        errors.non_empty(&name);
        if !scope.volumes.contains_key(name.text()) {
            errors.not_found(&name, name.text());
        }
        errors.non_empty(&path);
        if points.contains(&path.text()) {
            errors.invalid(&path, path.text(), "must be unique");
        }
        points.push(path.text());
        if device_names.contains(&name.text()) {
            errors.invalid(
                &name,
                name.text(),
                "must not already exist in volumeDevices",
            );
        }
        if device_paths.contains(&path.text()) {
            errors.invalid(
                &path,
                path.text(),
                "must not already exist as a path in volumeDevices",
            );
        }
        let (sub, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
        if !sub.is_empty() {
            relative_in(&list.get("subPath"), sub.text(), errors);
        }
        if !expression.is_empty() {
            if !sub.is_empty() {
                errors.invalid(
                    &expression,
                    expression.text(),
                    "subPathExpr and subPath are mutually exclusive",
                );
            }
            relative_in(&list.get("subPathExpr"), expression.text(), errors);
        }
        propagation(&mount, &list, container, errors);
    }
}

pub(super) fn propagation(mount: &At<'_>, list: &At<'_>, container: &At<'_>, errors: &mut Errors) {
    let mode = mount.get("mountPropagation");
    let place = moved(&mode, list, "mountPropagation");
    errors.optional_choice(&place, &["Bidirectional", "HostToContainer", "None"]);
    let privileged = container.dig(&["securityContext", "privileged"]).flag();
    if mode.text() == "Bidirectional" && !privileged {
        errors.forbidden(
            &place,
            "Bidirectional mount propagation is available only to privileged containers",
        );
    }
    let recursive = moved(&mount.get("recursiveReadOnly"), list, "recursiveReadOnly");
    match recursive.text() {
        "Enabled" | "IfPossible" => {
            if !mount.get("readOnly").flag() {
                errors.forbidden(&recursive, "may only be specified when readOnly is true");
            }
            if mode.is_set() && mode.text() != "None" {
                errors.forbidden(
                    &recursive,
                    "may only be specified when mountPropagation is None or not specified",
                );
            }
        }
        _ => errors.optional_choice(&recursive, &["Disabled", "Enabled", "IfPossible"]),
    }
}

pub fn devices(container: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let mounts = container.get("volumeMounts");
    let [mount_names, mount_paths] = ["name", "mountPath"].map(|field| mounts.each(field));
    let (mut seen_names, mut seen_paths) = (Met::default(), Met::default());
    for device in container.get("volumeDevices").items() {
        let [name, path] = ["name", "devicePath"].map(|field| device.get(field));
        let volume = scope.volumes.get(name.text());
        errors.non_empty(&name);
        if seen_names.contains(&name.text()) {
            errors.invalid(&name, name.text(), "must be unique");
        }
        match volume {
            None => errors.not_found(&name, name.text()),
            Some(volume) => {
                let claims = ["persistentVolumeClaim", "ephemeral"];
                if !claims.iter().any(|claim| volume.get(claim).is_set()) {
                    errors.invalid(&name, name.text(), "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode");
                }
            }
        }
        errors.non_empty(&path);
        if seen_paths.contains(&path.text()) {
            errors.invalid(&path, path.text(), "must be unique");
        }
        if path.text().split('/').any(|part| part == "..") {
            errors.invalid(&path, path.text(), "can not contain backsteps ('..')");
        } else {
            seen_paths.push(path.text());
        }
        if mount_names.contains(&name.text()) {
            errors.invalid(&name, name.text(), "must not already exist in volumeMounts");
        }
        if mount_paths.contains(&path.text()) {
            errors.invalid(
                &path,
                path.text(),
                "must not already exist as a path in volumeMounts",
            );
        }
        if !name.is_empty() {
            seen_names.push(name.text());
        }
    }
}
