//! Where containers mount volumes.

use super::containers::Scope;
use super::volumes::{moved, relative_in};
use crate::kinds::at::{At, Errors};

pub fn mounts(container: &At<'_>, scope: &Scope<'_>, errors: &mut Errors) {
    let devices = container.get("volumeDevices");
    let list = container.get("volumeMounts");
    let mut points = Vec::new();
    for mount in list.items() {
        let [name, path] = ["name", "mountPath"].map(|field| mount.get(field));
        errors.non_empty(&name);
        if !scope
            .volumes
            .iter()
            .any(|volume| volume.get("name").text() == name.text())
        {
            errors.not_found(&name, name.text());
        }
        errors.non_empty(&path);
        if points.contains(&path.text()) {
            errors.invalid(&path, path.text(), "must be unique");
        }
        points.push(path.text());
        if devices
            .items()
            .any(|device| device.get("name").text() == name.text())
        {
            errors.invalid(
                &name,
                name.text(),
                "must not already exist in volumeDevices",
            );
        }
        if devices
            .items()
            .any(|device| device.get("devicePath").text() == path.text())
        {
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
    let (mut seen_names, mut seen_paths) = (Vec::new(), Vec::new());
    for device in container.get("volumeDevices").items() {
        let [name, path] = ["name", "devicePath"].map(|field| device.get(field));
        let volume = scope
            .volumes
            .iter()
            .find(|volume| volume.get("name").text() == name.text());
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
        if mounts
            .items()
            .any(|mount| mount.get("name").text() == name.text())
        {
            errors.invalid(&name, name.text(), "must not already exist in volumeMounts");
        }
        if mounts
            .items()
            .any(|mount| mount.get("mountPath").text() == path.text())
        {
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
