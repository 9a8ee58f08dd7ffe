//! Defaults of the core types other than workloads.

use serde_json::{Value, json};

use super::{Fields, Fill, fill_zero, is_absent, sub, text};
use crate::kinds::at::fill;

pub(super) const FILLS: &[(&str, Fill)] = &[
    ("io.k8s.api.core.v1.Probe", probe),
    ("io.k8s.api.core.v1.HTTPGetAction", http_get),
    ("io.k8s.api.core.v1.Volume", volume),
    ("io.k8s.api.core.v1.SecretVolumeSource", default_mode),
    ("io.k8s.api.core.v1.ConfigMapVolumeSource", default_mode),
    ("io.k8s.api.core.v1.DownwardAPIVolumeSource", default_mode),
    ("io.k8s.api.core.v1.ProjectedVolumeSource", default_mode),
    (
        "io.k8s.api.core.v1.ServiceAccountTokenProjection",
        |fields| {
            fill(fields, "expirationSeconds", 3600);
        },
    ),
    // The empty type means that nothing is checked, which is something else than an absent one.
    ("io.k8s.api.core.v1.HostPathVolumeSource", |fields| {
        fill(fields, "type", "");
    }),
    ("io.k8s.api.core.v1.ObjectFieldSelector", |fields| {
        fill(fields, "apiVersion", "v1");
    }),
    ("io.k8s.api.core.v1.Secret", |fields| {
        fill(fields, "type", "Opaque");
    }),
    ("io.k8s.api.core.v1.Service", service),
    ("io.k8s.api.core.v1.Namespace", namespace),
    ("io.k8s.api.core.v1.Node", node),
    ("io.k8s.api.core.v1.NodeSpec", |spec| {
        one_and_many(spec, "podCIDR", "podCIDRs", |cidr| cidr);
    }),
    ("io.k8s.api.core.v1.PodStatus", |status| {
        one_and_many(status, "podIP", "podIPs", |ip| json!({ "ip": ip }));
    }),
    ("io.k8s.api.core.v1.GRPCAction", |fields| {
        fill(fields, "service", "")
    }),
    ("io.k8s.api.core.v1.PersistentVolume", persistent_volume),
    ("io.k8s.api.core.v1.PersistentVolumeClaim", |fields| {
        fill(sub(fields, "status"), "phase", "Pending");
    }),
    ("io.k8s.api.core.v1.PersistentVolumeClaimSpec", |fields| {
        fill(fields, "volumeMode", "Filesystem");
    }),
    ("io.k8s.api.core.v1.EndpointPort", |fields| {
        fill(fields, "protocol", "TCP");
    }),
    ("io.k8s.api.core.v1.LimitRangeItem", limit_range_item),
];

fn probe(fields: &mut Fields) {
    for (name, value) in [
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ] {
        fill_zero(fields, name, value);
    }
}

fn http_get(fields: &mut Fields) {
    fill(fields, "path", "/");
    fill(fields, "scheme", "HTTP");
}

fn default_mode(fields: &mut Fields) {
    fill(fields, "defaultMode", 0o644);
}

fn volume(fields: &mut Fields) {
    if !fields.keys().any(|name| name != "name") {
        fields.insert("emptyDir".to_owned(), json!({}));
    }
    if let Some(Value::Object(image)) = fields.get_mut("image") {
        let policy = pull_policy(text(image, "reference"));
        fill(image, "pullPolicy", policy);
    }
}

/// An image without a tag or a digest is the latest one, which may have changed.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if tag_of(image) == Some("latest") {
        "Always"
    } else {
        "IfNotPresent"
    }
}

/// Letters and digits with one dot, one or two underscores or some dashes between them.
fn is_repository_part(part: &str) -> bool {
    let is_word = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let between = part.split(is_word).filter(|between| !between.is_empty());
    part.starts_with(is_word)
        && part.ends_with(is_word)
        && between.into_iter().all(|between| {
            matches!(between, "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
        })
}

/// A host name or an address, with an optional port.
fn is_registry(host: &str) -> bool {
    let is_bracketed = |host: &str| {
        let inner = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        inner.is_some_and(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())
    };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !host.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    port.is_none_or(is_port) && (is_bracketed(name) || name.split('.').all(is_label))
}

/// `None` where the image is not a valid reference.
fn tag_of(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last_slash = name.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match name.get(last_slash..)?.find(':') {
        Some(colon) => (
            name.get(..last_slash + colon)?,
            Some(name.get(last_slash + colon + 1..)?),
        ),
        None => (name, None),
    };
    // Only the registry's host may have capitals.
    let (host, path) = match name.split_once('/') {
        Some((host, path))
            if host.contains(['.', ':']) || host == "localhost" || host.to_lowercase() != host =>
        {
            (Some(host), path)
        }
        _ => (None, name),
    };
    let good_tag = |tag: &str| {
        tag.len() <= 128
            && !tag.is_empty()
            && !tag.starts_with(['.', '-'])
            && tag
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
    };
    let too_long = name.len() > 255;
    if too_long
        || !host.is_none_or(is_registry)
        || !path.split('/').all(is_repository_part)
        || !tag.is_none_or(good_tag)
    {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, Some(_)) => Some(""),
        (None, None) => Some("latest"),
    }
}

fn service(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    fill(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout = spec
                .get("sessionAffinityConfig")
                .and_then(|config| config.pointer("/clientIP/timeoutSeconds"));
            if timeout.is_none() {
                spec.insert(
                    "sessionAffinityConfig".to_owned(),
                    json!({"clientIP": {"timeoutSeconds": 10800}}),
                );
            }
        }
        _ => {}
    }
    fill(spec, "type", "ClusterIP");
    if let Some(Value::Array(ports)) = spec.get_mut("ports") {
        for port in ports.iter_mut().filter_map(Value::as_object_mut) {
            fill(port, "protocol", "TCP");
            let target = port.get("targetPort");
            if target.is_none_or(|target| *target == 0 || *target == "") {
                let number = port.get("port").cloned().unwrap_or(json!(0));
                port.insert("targetPort".to_owned(), number);
            }
        }
    }
    let kind = text(spec, "type").to_owned();
    let external_ips = spec
        .get("externalIPs")
        .and_then(Value::as_array)
        .is_some_and(|ips| !ips.is_empty());
    let routed = ["ClusterIP", "NodePort", "LoadBalancer"].contains(&&*kind);
    if kind == "NodePort" || kind == "LoadBalancer" || (kind == "ClusterIP" && external_ips) {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if routed {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
        let ingresses = fields
            .get_mut("status")
            .and_then(|status| status.pointer_mut("/loadBalancer/ingress"))
            .and_then(Value::as_array_mut);
        for ingress in ingresses.into_iter().flatten() {
            if let Some(ingress) = ingress.as_object_mut()
                && !text(ingress, "ip").is_empty()
            {
                fill(ingress, "ipMode", "VIP");
            }
        }
    }
}

fn namespace(fields: &mut Fields) {
    let meta = sub(fields, "metadata");
    let name = text(meta, "name").to_owned();
    if !name.is_empty() {
        sub(meta, "labels").insert("kubernetes.io/metadata.name".to_owned(), name.into());
    }
    fill(sub(fields, "status"), "phase", "Active");
}

/// Some things were single once. The old field is the first of the new ones, and stands for it where clients know
/// only the old one.
fn one_and_many(fields: &mut Fields, one: &str, many: &str, as_entry: fn(Value) -> Value) {
    let single = fields
        .get(one)
        .filter(|value| value.as_str().is_some_and(|text| !text.is_empty()));
    let single = single.cloned();
    let first = fields
        .get(many)
        .and_then(Value::as_array)
        .and_then(|list| list.first())
        .map(|first| first.get("ip").unwrap_or(first).clone());
    match (single, first) {
        (Some(single), first) if first.as_ref() != Some(&single) => {
            fields.insert(many.to_owned(), json!([as_entry(single)]));
        }
        (None, Some(first)) => {
            fields.insert(one.to_owned(), first);
        }
        _ => {}
    }
}

fn node(fields: &mut Fields) {
    if let Some(Value::Object(status)) = fields.get_mut("status")
        && is_absent(status, "allocatable")
        && let Some(capacity) = status.get("capacity").cloned()
    {
        status.insert("allocatable".to_owned(), capacity);
    }
}

fn persistent_volume(fields: &mut Fields) {
    fill(sub(fields, "status"), "phase", "Pending");
    let spec = sub(fields, "spec");
    fill(spec, "persistentVolumeReclaimPolicy", "Retain");
    fill(spec, "volumeMode", "Filesystem");
}

/// For containers, a default limit follows from the maximum, and a default request from the default limit or the
/// minimum.
fn limit_range_item(fields: &mut Fields) {
    if text(fields, "type") != "Container" {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let Some(Value::Object(source)) = fields.get(from).cloned() else {
            continue;
        };
        if source.is_empty() {
            continue;
        }
        let target = sub(fields, to);
        for (resource, amount) in source {
            target.entry(resource).or_insert(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_images_may_change() {
        for (image, policy) in [
            ("nginx", "Always"),
            ("nginx:latest", "Always"),
            ("nginx:1.27", "IfNotPresent"),
            ("registry:5000/nginx", "Always"),
            ("Registry.example.com:5000/a/b:v1", "IfNotPresent"),
            ("nginx@sha256:0123", "IfNotPresent"),
            ("Not An Image", "IfNotPresent"),
            ("", "IfNotPresent"),
        ] {
            assert_eq!(pull_policy(image), policy, "{image}");
        }
    }
}
