//! Defaults of types outside of the core group and workloads.

use serde_json::{Value, json};

use super::{Fields, Fill, fill_zero, is_absent, sub, text};
use crate::kinds::at::{fill, fill_text};

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) const FILLS: &[(&str, Fill)] = &[
    (
        "io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler",
        |fields| {
            let spec = sub(fields, "spec");
            fill(spec, "minReplicas", 1);
            // The old form has one metric, and this is its default.
            fill(spec, "targetCPUUtilizationPercentage", 80);
        },
    ),
    (
        "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
        autoscaler,
    ),
    ("io.k8s.api.storage.v1.StorageClass", |fields| {
        fill(fields, "reclaimPolicy", "Delete");
        fill(fields, "volumeBindingMode", "Immediate");
    }),
    ("io.k8s.api.storage.v1.CSIDriverSpec", csi_driver),
    ("io.k8s.api.networking.v1.NetworkPolicyPort", |fields| {
        fill(fields, "protocol", "TCP");
    }),
    ("io.k8s.api.networking.v1.NetworkPolicySpec", network_policy),
    (
        "io.k8s.api.networking.v1.IngressClassParametersReference",
        |fields| {
            fill(fields, "scope", "Cluster");
        },
    ),
    ("io.k8s.api.rbac.v1.RoleRef", |fields| {
        fill_text(fields, "apiGroup", RBAC);
    }),
    ("io.k8s.api.rbac.v1.Subject", |fields| {
        if matches!(text(fields, "kind"), "User" | "Group") {
            fill(fields, "apiGroup", RBAC);
        }
    }),
    ("io.k8s.api.discovery.v1.EndpointPort", |fields| {
        fill(fields, "name", "");
        fill(fields, "protocol", "TCP");
    }),
    ("io.k8s.api.scheduling.v1.PriorityClass", |fields| {
        fill(fields, "preemptionPolicy", "PreemptLowerPriority");
    }),
    ("io.k8s.api.resource.v1.ExactDeviceRequest", device_request),
    ("io.k8s.api.resource.v1.DeviceSubRequest", device_request),
    ("io.k8s.api.flowcontrol.v1.FlowSchemaSpec", |fields| {
        fill_zero(fields, "matchingPrecedence", 1000);
    }),
    (
        "io.k8s.api.flowcontrol.v1.ExemptPriorityLevelConfiguration",
        |fields| {
            fill(fields, "nominalConcurrencyShares", 0);
            fill(fields, "lendablePercent", 0);
        },
    ),
    (
        "io.k8s.api.flowcontrol.v1.LimitedPriorityLevelConfiguration",
        |fields| {
            fill(fields, "nominalConcurrencyShares", 30);
            fill(fields, "lendablePercent", 0);
        },
    ),
    ("io.k8s.api.flowcontrol.v1.QueuingConfiguration", |fields| {
        fill_zero(fields, "handSize", 8);
        fill_zero(fields, "queues", 64);
        fill_zero(fields, "queueLengthLimit", 50);
    }),
    (
        "io.k8s.api.admissionregistration.v1.ValidatingWebhook",
        webhook,
    ),
    (
        "io.k8s.api.admissionregistration.v1.MutatingWebhook",
        |fields| {
            webhook(fields);
            fill(fields, "reinvocationPolicy", "Never");
        },
    ),
    (
        "io.k8s.api.admissionregistration.v1.RuleWithOperations",
        any_scope,
    ),
    (
        "io.k8s.api.admissionregistration.v1.NamedRuleWithOperations",
        any_scope,
    ),
    (
        "io.k8s.api.admissionregistration.v1.ServiceReference",
        https_port,
    ),
    (
        "io.k8s.api.admissionregistration.v1.MatchResources",
        match_all,
    ),
    (
        "io.k8s.api.admissionregistration.v1.ValidatingAdmissionPolicySpec",
        fail_by_default,
    ),
    (
        "io.k8s.api.admissionregistration.v1.MutatingAdmissionPolicySpec",
        fail_by_default,
    ),
    (
        "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference",
        https_port,
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference",
        https_port,
    ),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        custom_resource_definition,
    ),
];

fn autoscaler(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    fill(spec, "minReplicas", 1);
    if spec
        .get("metrics")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        spec.insert(
            "metrics".to_owned(),
            json!([{"type": "Resource", "resource": {
                "name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 80},
            }}]),
        );
    }
    if is_absent(spec, "behavior") {
        return;
    }
    let behavior = sub(spec, "behavior");
    let up = sub(behavior, "scaleUp");
    fill(up, "stabilizationWindowSeconds", 0);
    fill(up, "selectPolicy", "Max");
    fill(
        up,
        "policies",
        json!([
            {"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15},
        ]),
    );
    let down = sub(behavior, "scaleDown");
    fill(down, "selectPolicy", "Max");
    fill(
        down,
        "policies",
        json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
    );
}

fn csi_driver(spec: &mut Fields) {
    fill(spec, "attachRequired", true);
    fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    for switch in [
        "podInfoOnMount",
        "storageCapacity",
        "requiresRepublish",
        "seLinuxMount",
    ] {
        fill(spec, switch, false);
    }
    let modes = spec.get("volumeLifecycleModes").and_then(Value::as_array);
    if modes.is_none_or(Vec::is_empty) {
        spec.insert("volumeLifecycleModes".to_owned(), json!(["Persistent"]));
    }
}

fn network_policy(spec: &mut Fields) {
    let filled = |name: &str| {
        let list = spec.get(name).and_then(Value::as_array);
        list.is_some_and(|items| !items.is_empty())
    };
    if !filled("policyTypes") {
        let types = if filled("egress") {
            json!(["Ingress", "Egress"])
        } else {
            json!(["Ingress"])
        };
        spec.insert("policyTypes".to_owned(), types);
    }
}

fn device_request(request: &mut Fields) {
    fill(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        fill_zero(request, "count", 1);
    }
}

fn match_all(fields: &mut Fields) {
    fill(fields, "matchPolicy", "Equivalent");
    fill(fields, "namespaceSelector", json!({}));
    fill(fields, "objectSelector", json!({}));
}

fn webhook(fields: &mut Fields) {
    fill(fields, "failurePolicy", "Fail");
    match_all(fields);
    fill(fields, "timeoutSeconds", 10);
}

fn any_scope(fields: &mut Fields) {
    fill(fields, "scope", "*");
}

fn https_port(fields: &mut Fields) {
    fill(fields, "port", 443);
}

fn fail_by_default(fields: &mut Fields) {
    fill(fields, "failurePolicy", "Fail");
}

fn custom_resource_definition(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    fill(spec, "conversion", json!({"strategy": "None"}));
    let storage_version = spec
        .get("versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .find(|version| version["storage"] == true)
        .and_then(|version| version.get("name").cloned());
    let names = sub(spec, "names");
    let kind = text(names, "kind").to_owned();
    fill(names, "singular", kind.to_lowercase());
    if !kind.is_empty() {
        fill(names, "listKind", format!("{kind}List"));
    }
    let status = sub(fields, "status");
    let stored = status.get("storedVersions").and_then(Value::as_array);
    if let (true, Some(version)) = (stored.is_none_or(Vec::is_empty), storage_version) {
        status.insert("storedVersions".to_owned(), json!([version]));
    }
}
