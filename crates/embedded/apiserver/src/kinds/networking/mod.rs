//! Ingresses, network policies, and what stands behind services.

mod endpoints;
mod policy;

use serde_json::Value;

use super::Lookup;
use super::at::{At, Errors};
use super::core::again;
use super::names::{self, NameRule};
use super::rules::Rules;
use crate::status::StatusError;

pub(super) static KINDS: &[&Rules] = &[
    &INGRESS,
    &INGRESS_CLASS,
    &policy::NETWORK_POLICY,
    &endpoints::ENDPOINT_SLICE,
    &endpoints::ENDPOINTS,
];

const GROUP: &str = "networking.k8s.io";
const NOT_AN_IP: &str = "must be a DNS name, not an IP address";

static INGRESS: Rules = Rules {
    kind: "Ingress",
    status: true,
    generation: true,
    validate: |ingress, errors| {
        ingress_spec(&ingress.get("spec"), errors);
        const CLASS: &str = "kubernetes.io/ingress.class";
        let annotation = ingress.dig(&["metadata", "annotations", CLASS]);
        let class = ingress.dig(&["spec", "ingressClassName"]);
        if annotation.is_set() && class.is_set() && annotation.text() != class.text() {
            errors.invalid(
                &ingress.dig(&["annotations", CLASS]),
                annotation.text(),
                "must match `ingressClassName` when both are specified",
            );
        }
    },
    validate_update: Some(|new, _, errors| {
        again(new, true, NameRule::Subdomain, errors);
        ingress_spec(&new.get("spec"), errors);
    }),
    validate_status: |new, old, errors| {
        let known = old.dig(&["status", "loadBalancer", "ingress"]).each("ip");
        for entry in new.dig(&["status", "loadBalancer", "ingress"]).items() {
            let (ip, host) = (entry.get("ip"), entry.get("hostname"));
            if !ip.is_empty() && !known.contains(&ip.text()) {
                errors.format(&ip, names::ip);
            }
            if !host.is_empty() {
                errors.format(&host, names::subdomain);
                if names::parse_ip(host.text()).is_some() {
                    errors.invalid(&host, host.text(), NOT_AN_IP);
                }
            }
        }
    },
    warnings: |ingress, old| {
        let annotation = At::root(ingress).dig(&["metadata", "annotations"]);
        const CLASS: &str = "kubernetes.io/ingress.class";
        if old.is_none() && annotation.get(CLASS).is_set() {
            return vec![format!(
                "annotation {} is deprecated, please use 'spec.ingressClassName' instead",
                plimsoll_golang::strconv::quote(CLASS)
            )];
        }
        Vec::new()
    },
    admit: default_class,
    ..Rules::namespaced(GROUP)
};

/// An ingress without a class gets the one that calls itself default.
fn default_class(
    ingress: &mut Value,
    old: Option<&Value>,
    world: &dyn Lookup,
) -> Result<(), StatusError> {
    use super::at::{field, text};
    let annotated = !field(
        ingress,
        &["metadata", "annotations", "kubernetes.io/ingress.class"],
    )
    .is_null();
    if old.is_some() || annotated || !field(ingress, &["spec", "ingressClassName"]).is_null() {
        return Ok(());
    }
    const DEFAULT: &str = "ingressclass.kubernetes.io/is-default-class";
    let mut classes = world.list("ingressclasses.networking.k8s.io", "");
    classes.retain(|class| text(class, &["metadata", "annotations", DEFAULT]) == "true");
    classes.sort_by_key(|class| {
        let created = text(class, &["metadata", "creationTimestamp"]).to_owned();
        (
            std::cmp::Reverse(created),
            text(class, &["metadata", "name"]).to_owned(),
        )
    });
    if let Some(class) = classes.first() {
        ingress["spec"]["ingressClassName"] = field(class, &["metadata", "name"]).clone();
    }
    Ok(())
}

fn ingress_spec(spec: &At<'_>, errors: &mut Errors) {
    let (rules, backend) = (spec.get("rules"), spec.get("defaultBackend"));
    if rules.is_empty() && !backend.is_set() {
        errors.invalid(
            spec,
            rules.value.clone(),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if backend.is_set() {
        ingress_backend(&backend, errors);
    }
    for rule in rules.items() {
        let host = rule.get("host");
        if !host.is_empty() {
            if names::parse_ip(host.text()).is_some() {
                errors.invalid(&host, host.text(), NOT_AN_IP);
            }
            host_name(&host, errors);
        }
        let http = rule.get("http");
        if !http.is_set() {
            continue;
        }
        errors.non_empty(&http.get("paths"));
        for path in http.get("paths").items() {
            ingress_path(&path, errors);
        }
    }
    for tls in spec.get("tls").items() {
        for host in tls.get("hosts").items() {
            host_name(&host, errors);
        }
        let secret = tls.get("secretName");
        if !secret.is_empty() {
            errors.format(&secret, names::subdomain);
        }
    }
    let class = spec.get("ingressClassName");
    if class.is_set() {
        errors.format(&class, names::subdomain);
    }
}

fn host_name(host: &At<'_>, errors: &mut Errors) {
    if host.text().contains('*') {
        errors.format(host, names::wildcard_subdomain);
    } else {
        errors.format(host, names::subdomain);
    }
}

fn ingress_path(rule: &At<'_>, errors: &mut Errors) {
    let (kind, path) = (rule.get("pathType"), rule.get("path"));
    if !kind.is_set() {
        errors.required(&kind, "pathType must be specified");
        return;
    }
    let mut absolute = || {
        if !path.text().starts_with('/') {
            errors.invalid(&path, path.text(), "must be an absolute path");
        }
    };
    match kind.text() {
        "Exact" | "Prefix" => {
            absolute();
            for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                if path.text().contains(sequence) {
                    errors.invalid(&path, path.text(), format!("must not contain '{sequence}'"));
                }
            }
            for suffix in ["/..", "/."] {
                if path.text().ends_with(suffix) {
                    errors.invalid(&path, path.text(), format!("cannot end with '{suffix}'"));
                }
            }
        }
        "ImplementationSpecific" if path.is_empty() => {}
        "ImplementationSpecific" => absolute(),
        _ => errors.not_supported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
    ingress_backend(&rule.get("backend"), errors);
}

fn ingress_backend(backend: &At<'_>, errors: &mut Errors) {
    let (resource, service) = (backend.get("resource"), backend.get("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => {
            errors.invalid(backend, "", "cannot set both resource and service backends");
        }
        (true, false) => reference(&resource, errors),
        (false, true) => {
            let name = service.get("name");
            if name.is_empty() {
                errors.required(&name, "");
            } else {
                errors.format(&name, names::label);
            }
            let (named, number) = (
                service.dig(&["port", "name"]),
                service.dig(&["port", "number"]),
            );
            match (named.is_empty(), number.number() == 0) {
                (false, false) => {
                    errors.invalid(backend, "", "cannot set both port name & port number");
                }
                (false, true) => errors.format(&named, names::port_name),
                (true, false) => errors.between(&number, 1, 65535),
                (true, true) => errors.required(backend, "port name or number is required"),
            }
        }
        (false, false) => {
            errors.invalid(backend, "", "resource or service backend is required");
        }
    }
}

fn reference(at: &At<'_>, errors: &mut Errors) {
    let group = at.get("apiGroup");
    if group.is_set() {
        errors.format(&group, names::subdomain);
    }
    for name in ["kind", "name"] {
        let part = at.get(name);
        if part.is_empty() {
            errors.required(&part, "");
        } else {
            errors.format(&part, names::path_segment);
        }
    }
}

static INGRESS_CLASS: Rules = Rules {
    kind: "IngressClass",
    generation: true,
    validate: ingress_class,
    validate_update: Some(|new, old, errors| {
        let controller = new.dig(&["spec", "controller"]);
        errors.immutable_text(&controller, &old.dig(&["spec", "controller"]));
        again(new, false, NameRule::Subdomain, errors);
        ingress_class(new, errors);
    }),
    ..Rules::cluster(GROUP)
};

fn ingress_class(class: &At<'_>, errors: &mut Errors) {
    let spec = class.get("spec");
    let controller = spec.get("controller");
    if controller.len() > 250 {
        errors.too_long(&controller, 250);
    }
    super::batch::domain_path(&controller, errors);
    let parameters = spec.get("parameters");
    if !parameters.is_set() {
        return;
    }
    reference(&parameters, errors);
    let (scope, namespace) = (parameters.get("scope"), parameters.get("namespace"));
    match scope.text() {
        "" if !scope.is_set() => errors.required(&scope, ""),
        "Namespace" if !namespace.is_set() => {
            errors.required(&namespace, "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => errors.format(&namespace, names::label),
        "Cluster" => {
            if namespace.is_set() {
                errors.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
            }
        }
        _ => errors.not_supported(&scope, &["Cluster", "Namespace"]),
    }
}
