//! Rows of the remaining built-in groups.

use plimsoll_golang::human_duration;
use serde_json::Value;

use super::core::load_balancer;
use super::view::{View, selector_or_none};

pub fn row(group: &str, plural: &str, view: View<'_>) -> Option<Vec<Value>> {
    let name = || Value::from(view.name());
    let age = || Value::from(view.age());
    let text = |path| Value::from(view.text(path));
    let int = |path| Value::from(view.int(path));
    let flag = |path| Value::from(view.flag(path));
    Some(match (group, plural) {
        ("apiregistration.k8s.io", "apiservices") => api_service(view),
        ("certificates.k8s.io", "certificatesigningrequests") => signing_request(view),
        ("networking.k8s.io", "ingresses") => ingress(view),
        ("networking.k8s.io", "ingressclasses") => ingress_class(view),
        ("networking.k8s.io", "ipaddresses") => ip_address(view),
        ("networking.k8s.io", "networkpolicies") => {
            let pods = selector_or_none(view.part("/spec/podSelector"));
            vec![name(), pods.into(), age()]
        }
        ("networking.k8s.io", "servicecidrs") => {
            vec![name(), view.texts("/spec/cidrs").join(",").into(), age()]
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => binding(view),
        ("storage.k8s.io", "csidrivers") => csi_driver(view),
        ("storage.k8s.io", "csinodes") => vec![name(), view.count("/spec/drivers").into(), age()],
        ("storage.k8s.io", "storageclasses") => storage_class(view),
        ("storage.k8s.io", "volumeattachments") => vec![
            name(),
            text("/spec/attacher"),
            text("/spec/source/persistentVolumeName"),
            text("/spec/nodeName"),
            flag("/status/attached"),
            age(),
        ],
        ("storage.k8s.io", "volumeattributesclasses") => vec![name(), text("/driverName"), age()],
        ("admissionregistration.k8s.io", _) => admission(plural, view)?,
        ("scheduling.k8s.io", "priorityclasses") => vec![
            name(),
            int("/value"),
            flag("/globalDefault"),
            age(),
            text("/preemptionPolicy"),
        ],
        ("coordination.k8s.io", "leases") => vec![name(), text("/spec/holderIdentity"), age()],
        ("node.k8s.io", "runtimeclasses") => vec![name(), text("/handler"), age()],
        ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => vec![name(), age()],
        ("resource.k8s.io", "resourceclaims") => vec![name(), claim_state(view).into(), age()],
        ("resource.k8s.io", "resourceslices") => vec![
            name(),
            text("/spec/nodeName"),
            text("/spec/driver"),
            text("/spec/pool/name"),
            age(),
        ],
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow_schema(view),
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => priority_level(view),
        _ => return None,
    })
}

fn api_service(view: View<'_>) -> Vec<Value> {
    let service = view.part("/spec/service").map_or("Local".into(), |found| {
        format!("{}/{}", found.text("/namespace"), found.text("/name"))
    });
    let available =
        view.condition("/status/conditions", "Available")
            .map_or("Unknown".to_owned(), |found| {
                match (found.text("/status"), found.text("/reason")) {
                    ("True", _) => "True".to_owned(),
                    (status, "") => status.to_owned(),
                    (status, reason) => format!("{status} ({reason})"),
                }
            });
    vec![
        view.name().into(),
        service.into(),
        available.into(),
        view.age().into(),
    ]
}

fn signing_request(view: View<'_>) -> Vec<Value> {
    let has = |kind| view.condition("/status/conditions", kind).is_some();
    let mut status = if has("Denied") {
        "Denied"
    } else if has("Approved") {
        "Approved"
    } else {
        "Pending"
    }
    .to_owned();
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !view.text("/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let requested = if view.has("/spec/expirationSeconds") {
        human_duration::duration(view.int("/spec/expirationSeconds"))
    } else {
        "<none>".to_owned()
    };
    vec![
        view.name().into(),
        view.age().into(),
        view.text_or("/spec/signerName", "<none>").into(),
        view.text("/spec/username").into(),
        requested.into(),
        status.into(),
    ]
}

fn ingress(view: View<'_>) -> Vec<Value> {
    let mut hosts: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in view.list("/spec/rules") {
        more |= hosts.len() == 3;
        let host = rule.text("/host");
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    let hosts = match (hosts.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => hosts.join(","),
        (false, true) => format!(
            "{} + {} more...",
            hosts.join(","),
            view.count("/spec/rules") - 3
        ),
    };
    let ports = if view.count("/spec/tls") > 0 {
        "80, 443"
    } else {
        "80"
    };
    vec![
        view.name().into(),
        view.opt_text("/spec/ingressClassName")
            .unwrap_or("<none>")
            .into(),
        hosts.into(),
        load_balancer(view, "/status/loadBalancer/ingress").into(),
        ports.into(),
        view.age().into(),
    ]
}

fn default_marked(view: View<'_>, annotations: &[&str]) -> String {
    let is_default = annotations.iter().any(|annotation| {
        view.map("/metadata/annotations")
            .and_then(|map| map.get(*annotation)?.as_str())
            == Some("true")
    });
    let mark = if is_default { " (default)" } else { "" };
    format!("{}{mark}", view.name())
}

fn ingress_class(view: View<'_>) -> Vec<Value> {
    let parameters = view
        .part("/spec/parameters")
        .map_or("<none>".to_owned(), |found| {
            let kind = found.text("/kind");
            let name = found.text("/name");
            match found.opt_text("/apiGroup") {
                Some(group) => format!("{kind}.{group}/{name}"),
                None => format!("{kind}/{name}"),
            }
        });
    vec![
        default_marked(view, &["ingressclass.kubernetes.io/is-default-class"]).into(),
        view.text("/spec/controller").into(),
        parameters.into(),
        view.age().into(),
    ]
}

fn ip_address(view: View<'_>) -> Vec<Value> {
    let parent = view
        .part("/spec/parentRef")
        .map_or("<none>".to_owned(), |found| {
            let mut parent = found.text("/resource").to_lowercase();
            if !found.text("/group").is_empty() {
                parent = format!("{parent}.{}", found.text("/group").to_lowercase());
            }
            if !found.text("/namespace").is_empty() {
                parent = format!("{parent}/{}", found.text("/namespace"));
            }
            format!("{parent}/{}", found.text("/name"))
        });
    // A cell more than there are columns: so it is.
    vec![view.name().into(), parent.into(), view.age().into()]
}

fn binding(view: View<'_>) -> Vec<Value> {
    let subjects = |kind: &str| {
        let names: Vec<String> = view
            .list("/subjects")
            .filter(|subject| subject.text("/kind") == kind)
            .map(|subject| match kind {
                "ServiceAccount" => {
                    format!("{}/{}", subject.text("/namespace"), subject.text("/name"))
                }
                _ => subject.text("/name").to_owned(),
            })
            .collect();
        Value::from(names.join(", "))
    };
    vec![
        view.name().into(),
        format!(
            "{}/{}",
            view.text("/roleRef/kind"),
            view.text("/roleRef/name")
        )
        .into(),
        view.age().into(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn csi_driver(view: View<'_>) -> Vec<Value> {
    let attach = view
        .get("/spec/attachRequired")
        .and_then(Value::as_bool)
        .unwrap_or(true);
    let tokens = if view.has("/spec/tokenRequests") {
        let audiences: Vec<&str> = view
            .list("/spec/tokenRequests")
            .map(|one| one.text("/audience"))
            .collect();
        audiences.join(",")
    } else {
        "<unset>".to_owned()
    };
    let modes = match view.texts("/spec/volumeLifecycleModes").join(",") {
        modes if modes.is_empty() => "<none>".to_owned(),
        modes => modes,
    };
    vec![
        view.name().into(),
        attach.into(),
        view.flag("/spec/podInfoOnMount").into(),
        view.flag("/spec/storageCapacity").into(),
        tokens.into(),
        view.flag("/spec/requiresRepublish").into(),
        modes.into(),
        view.age().into(),
    ]
}

fn storage_class(view: View<'_>) -> Vec<Value> {
    let annotations = [
        "storageclass.kubernetes.io/is-default-class",
        "storageclass.beta.kubernetes.io/is-default-class",
    ];
    vec![
        default_marked(view, &annotations).into(),
        view.text("/provisioner").into(),
        view.opt_text("/reclaimPolicy").unwrap_or("Delete").into(),
        view.opt_text("/volumeBindingMode")
            .unwrap_or("Immediate")
            .into(),
        view.flag("/allowVolumeExpansion").into(),
        view.age().into(),
    ]
}

fn admission(plural: &str, view: View<'_>) -> Option<Vec<Value>> {
    let mut row: Vec<Value> = vec![view.name().into()];
    match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => {
            row.push(view.count("/webhooks").into());
        }
        "mutatingadmissionpolicies" | "validatingadmissionpolicies" => {
            let steps = if plural.starts_with('m') {
                "/spec/mutations"
            } else {
                "/spec/validations"
            };
            row.push(view.count(steps).into());
            let kind = view
                .part("/spec/paramKind")
                .map_or("<unset>".to_owned(), |found| {
                    format!("{}/{}", found.text("/apiVersion"), found.text("/kind"))
                });
            row.push(kind.into());
        }
        "mutatingadmissionpolicybindings" | "validatingadmissionpolicybindings" => {
            row.push(view.text("/spec/policyName").into());
            row.push(parameter(view).into());
        }
        _ => return None,
    }
    row.push(view.age().into());
    Some(row)
}

fn parameter(view: View<'_>) -> String {
    let Some(found) = view.part("/spec/paramRef") else {
        return "<unset>".to_owned();
    };
    match (found.text("/namespace"), found.text("/name")) {
        ("", "") | (_, "") => found
            .part("/selector")
            .map_or("<unset>".to_owned(), go_selector),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// A selector as Go prints the struct: the table has it so.
fn go_selector(selector: View<'_>) -> String {
    let labels: String = selector
        .map("/matchLabels")
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let terms: String = selector
        .list("/matchExpressions")
        .map(|term| {
            format!(
                "LabelSelectorRequirement{{Key:{},Operator:{},Values:[{}],}},",
                term.text("/key"),
                term.text("/operator"),
                term.texts("/values").join(" ")
            )
        })
        .collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
    )
}

fn claim_state(view: View<'_>) -> String {
    let deleted = view.has("/metadata/deletionTimestamp");
    let mut states = Vec::new();
    if deleted {
        states.push("deleted");
    }
    if view.has("/status/allocation") {
        states.push("allocated");
        if view.count("/status/reservedFor") > 0 {
            states.push("reserved");
        }
    } else if !deleted {
        states.push("pending");
    }
    states.join(",")
}

fn flow_schema(view: View<'_>) -> Vec<Value> {
    vec![
        view.name().into(),
        view.text("/spec/priorityLevelConfiguration/name").into(),
        view.int("/spec/matchingPrecedence").into(),
        view.opt_text("/spec/distinguisherMethod/type")
            .unwrap_or("<none>")
            .into(),
        view.age().into(),
        view.condition("/status/conditions", "Dangling")
            .map_or("?", |one| one.text("/status"))
            .into(),
    ]
}

fn priority_level(view: View<'_>) -> Vec<Value> {
    let cell = |path| view.get(path).cloned().unwrap_or_else(|| "<none>".into());
    let queuing = "/spec/limited/limitResponse/queuing";
    let of_queue = |field: &str| {
        if view.has(queuing) {
            view.int(&format!("{queuing}/{field}")).into()
        } else {
            Value::from("<none>")
        }
    };
    vec![
        view.name().into(),
        view.text("/spec/type").into(),
        cell("/spec/limited/nominalConcurrencyShares"),
        of_queue("queues"),
        of_queue("handSize"),
        of_queue("queueLengthLimit"),
        view.age().into(),
    ]
}
