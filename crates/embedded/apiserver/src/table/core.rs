//! Rows of the core group, events of either group, and endpoint slices.

use serde_json::{Value, json};

use super::view::{View, containers, first_few, labels};

pub fn row(plural: &str, view: View<'_>) -> Option<Vec<Value>> {
    Some(match plural {
        "componentstatuses" => component_status(view),
        "configmaps" => vec![
            view.name().into(),
            (view.count("/data") + view.count("/binaryData")).into(),
            view.age().into(),
        ],
        "endpoints" => vec![
            view.name().into(),
            endpoints(view).into(),
            view.age().into(),
        ],
        "namespaces" => vec![
            view.name().into(),
            view.text("/status/phase").into(),
            view.age().into(),
        ],
        "nodes" => node(view),
        "persistentvolumeclaims" => persistent_volume_claim(view),
        "persistentvolumes" => persistent_volume(view),
        "podtemplates" => {
            let [names, images] = containers(view, "/template/spec/containers");
            let labels = labels(view.map("/template/metadata/labels"));
            vec![view.name().into(), names, images, labels.into()]
        }
        "replicationcontrollers" => {
            let [names, images] = containers(view, "/spec/template/spec/containers");
            vec![
                view.name().into(),
                view.int("/spec/replicas").into(),
                view.int("/status/replicas").into(),
                view.int("/status/readyReplicas").into(),
                view.age().into(),
                names,
                images,
                labels(view.map("/spec/selector")).into(),
            ]
        }
        "resourcequotas" => resource_quota(view),
        "secrets" => vec![
            view.name().into(),
            view.text("/type").into(),
            view.count("/data").into(),
            view.age().into(),
        ],
        "serviceaccounts" => vec![view.name().into(), view.age().into()],
        "services" => service(view),
        _ => return None,
    })
}

fn component_status(view: View<'_>) -> Vec<Value> {
    let healthy = view.condition("/conditions", "Healthy");
    let status = match healthy.map(|one| one.text("/status")) {
        None => "Unknown",
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
    };
    let text = |path| healthy.map_or("", |one| one.text(path));
    vec![
        view.name().into(),
        status.into(),
        text("/message").into(),
        text("/error").into(),
    ]
}

fn endpoints(view: View<'_>) -> String {
    let mut shown = Vec::new();
    for subset in view.list("/subsets") {
        let addresses = || subset.list("/addresses").map(|one| one.text("/ip"));
        // Headless services may have no ports.
        if subset.count("/ports") == 0 {
            shown.extend(addresses().map(str::to_owned));
        }
        for port in subset.list("/ports") {
            let port = port.int("/port");
            shown.extend(addresses().map(|ip| {
                if ip.contains(':') {
                    format!("[{ip}]:{port}")
                } else {
                    format!("{ip}:{port}")
                }
            }));
        }
    }
    if view.count("/subsets") == 0 {
        return "<none>".to_owned();
    }
    first_few(&shown, 3)
}

pub fn endpoint_slice(view: View<'_>) -> Vec<Value> {
    let ports: Vec<String> = view
        .list("/ports")
        .map(
            |port| match (port.scalar("/port"), port.opt_text("/name")) {
                (Some(number), _) => number,
                (None, Some(name)) => name.to_owned(),
                (None, None) => "*".to_owned(),
            },
        )
        .collect();
    let addresses: Vec<String> = view
        .list("/endpoints")
        .flat_map(|endpoint| endpoint.texts("/addresses"))
        .map(str::to_owned)
        .collect();
    let few = |items: &[String]| match first_few(items, 3) {
        text if text.is_empty() => "<unset>".to_owned(),
        text => text,
    };
    vec![
        view.name().into(),
        view.text("/addressType").into(),
        few(&ports).into(),
        few(&addresses).into(),
        view.age().into(),
    ]
}

fn node(view: View<'_>) -> Vec<Value> {
    // Of several conditions of the type the last counts.
    let ready = view
        .list("/status/conditions")
        .rev()
        .find(|one| one.text("/type") == "Ready");
    let mut status = match ready.map(|one| one.text("/status")) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    }
    .to_owned();
    if view.flag("/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = view
        .map("/metadata/labels")
        .into_iter()
        .flatten()
        .filter_map(
            |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                Some(role) => Some(role),
                None if key == "kubernetes.io/role" => value.as_str(),
                None => None,
            },
        )
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    roles.dedup();
    let roles = if roles.is_empty() {
        "<none>".to_owned()
    } else {
        roles.join(",")
    };
    let address = |kind: &str| {
        view.condition("/status/addresses", kind)
            .map_or("<none>", |one| one.text("/address"))
    };
    let info = |field: &str| view.text_or(&format!("/status/nodeInfo/{field}"), "<unknown>");
    let mut kernel = info("kernelVersion").to_owned();
    let architecture = view.text("/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel = format!("{kernel} ({architecture})");
    }
    vec![
        view.name().into(),
        status.into(),
        roles.into(),
        view.age().into(),
        view.text("/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP").into(),
        address("ExternalIP").into(),
        info("osImage").into(),
        kernel.into(),
        info("containerRuntimeVersion").into(),
    ]
}

fn access_modes(view: View<'_>, path: &str) -> String {
    let given = view.texts(path);
    let short: Vec<&str> = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ]
    .into_iter()
    .filter(|(mode, _)| given.contains(mode))
    .map(|(_, short)| short)
    .collect();
    short.join(",")
}

fn phase<'a>(view: View<'a>) -> &'a str {
    if view.has("/metadata/deletionTimestamp") {
        "Terminating"
    } else {
        view.text("/status/phase")
    }
}

/// The class by its old annotation, else by the field.
fn storage_class<'a>(view: View<'a>) -> &'a str {
    view.opt_text("/metadata/annotations/volume.beta.kubernetes.io~1storage-class")
        .unwrap_or_else(|| view.text("/spec/storageClassName"))
}

fn persistent_volume_claim(view: View<'_>) -> Vec<Value> {
    let bound = !view.text("/spec/volumeName").is_empty();
    let (capacity, modes) = if bound {
        (
            view.scalar("/status/capacity/storage")
                .unwrap_or_else(|| "0".to_owned()),
            access_modes(view, "/status/accessModes"),
        )
    } else {
        (String::new(), String::new())
    };
    vec![
        view.name().into(),
        phase(view).into(),
        view.text("/spec/volumeName").into(),
        capacity.into(),
        modes.into(),
        storage_class(view).into(),
        view.opt_text("/spec/volumeAttributesClassName")
            .unwrap_or("<unset>")
            .into(),
        view.age().into(),
        view.opt_text("/spec/volumeMode")
            .unwrap_or("<unset>")
            .into(),
    ]
}

fn persistent_volume(view: View<'_>) -> Vec<Value> {
    let claim = view.part("/spec/claimRef").map_or(String::new(), |claim| {
        format!("{}/{}", claim.text("/namespace"), claim.text("/name"))
    });
    vec![
        view.name().into(),
        view.scalar("/spec/capacity/storage")
            .unwrap_or_else(|| "0".to_owned())
            .into(),
        access_modes(view, "/spec/accessModes").into(),
        view.text("/spec/persistentVolumeReclaimPolicy").into(),
        phase(view).into(),
        claim.into(),
        storage_class(view).into(),
        view.opt_text("/spec/volumeAttributesClassName")
            .unwrap_or("<unset>")
            .into(),
        view.text("/status/reason").into(),
        view.age().into(),
        view.opt_text("/spec/volumeMode")
            .unwrap_or("<unset>")
            .into(),
    ]
}

fn resource_quota(view: View<'_>) -> Vec<Value> {
    let mut requests = Vec::new();
    let mut limits = Vec::new();
    for (resource, hard) in view.map("/status/hard").into_iter().flatten() {
        let used = view
            .map("/status/used")
            .and_then(|used| used.get(resource)?.as_str())
            .unwrap_or("0");
        let text = format!("{resource}: {used}/{}", hard.as_str().unwrap_or("0"));
        if resource.starts_with("limits.") {
            limits.push(text);
        } else {
            requests.push(text);
        }
    }
    vec![
        view.name().into(),
        requests.join(", ").into(),
        limits.join(", ").into(),
        view.age().into(),
    ]
}

/// The addresses of a load balancer, sorted.
pub fn load_balancer(view: View<'_>, path: &str) -> String {
    let mut addresses: Vec<&str> = view
        .list(path)
        .map(|one| match one.text("/ip") {
            "" => one.text("/hostname"),
            ip => ip,
        })
        .filter(|address| !address.is_empty())
        .collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses.join(",")
}

fn service(view: View<'_>) -> Vec<Value> {
    let external = view.texts("/spec/externalIPs").join(",");
    let external = match view.text("/spec/type") {
        "ClusterIP" | "NodePort" if external.is_empty() => "<none>".to_owned(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => {
            let balanced = load_balancer(view, "/status/loadBalancer/ingress");
            match (balanced.is_empty(), external.is_empty()) {
                (true, true) => "<pending>".to_owned(),
                (false, true) => balanced,
                (true, false) => external,
                (false, false) => format!("{balanced},{external}"),
            }
        }
        "ExternalName" => view.text("/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    };
    let ports: Vec<String> = view
        .list("/spec/ports")
        .map(|port| {
            let protocol = port.text("/protocol");
            match (port.int("/port"), port.int("/nodePort")) {
                (port, 0) => format!("{port}/{protocol}"),
                (port, node) => format!("{port}:{node}/{protocol}"),
            }
        })
        .collect();
    let ports = if ports.is_empty() {
        "<none>".to_owned()
    } else {
        ports.join(",")
    };
    vec![
        view.name().into(),
        view.text("/spec/type").into(),
        view.opt_text("/spec/clusterIPs/0")
            .unwrap_or("<none>")
            .into(),
        external.into(),
        ports.into(),
        view.age().into(),
        labels(view.map("/spec/selector")).into(),
    ]
}

/// An event of the core group, or of its own group with the fields' newer names.
pub fn event(view: View<'_>) -> Vec<Value> {
    let either = |old: &'static str, new: &'static str| if view.has(old) { old } else { new };
    let first = either("/firstTimestamp", "/deprecatedFirstTimestamp");
    let last = either("/lastTimestamp", "/deprecatedLastTimestamp");
    let first_seen = if view.has(first) {
        view.since(first)
    } else {
        view.since("/eventTime")
    };
    let mut last_seen = if view.has(last) {
        view.since(last)
    } else {
        first_seen.clone()
    };
    let mut count = view.int(either("/count", "/deprecatedCount")).max(1);
    if let Some(series) = view.part("/series") {
        last_seen = series.since("/lastObservedTime");
        count = series.int("/count");
    }
    let object = view
        .part("/involvedObject")
        .or_else(|| view.part("/regarding"));
    let text = |path| object.map_or("", |object| object.text(path));
    let kind = text("/kind").to_lowercase();
    let target = match text("/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = either("/source", "/deprecatedSource");
    let component = view.text_or(
        &format!("{source}/component"),
        view.text_or("/reportingComponent", view.text("/reportingController")),
    );
    let host = view.text_or(&format!("{source}/host"), view.text("/reportingInstance"));
    let source = if host.is_empty() {
        component.to_owned()
    } else {
        format!("{component}, {host}")
    };
    let message = view.text(either("/message", "/note")).trim();
    vec![
        last_seen.into(),
        view.text("/type").into(),
        view.text("/reason").into(),
        target.into(),
        text("/fieldPath").into(),
        source.into(),
        message.into(),
        first_seen.into(),
        json!(count),
        view.name().into(),
    ]
}
