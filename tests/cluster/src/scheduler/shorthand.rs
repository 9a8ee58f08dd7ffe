//! Objects as scenarios write them: `{pod: p, cpu: 1, on: n1}` instead of twenty lines.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::kinds::Kind;
use super::stored::merge;

/// The fields of a shorthand that have been read are taken out; one that is left over is a mistake.
struct Short {
    fields: Map<String, Value>,
}

impl Short {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name)
    }

    /// YAML may have read a name or an amount as a number.
    fn text(&mut self, name: &str) -> Option<String> {
        self.take(name).map(|value| plain(&value))
    }

    fn list(&mut self, name: &str) -> Vec<Value> {
        match self.take(name) {
            Some(Value::Array(items)) => items,
            Some(other) => vec![other],
            None => Vec::new(),
        }
    }

    fn map(&mut self, name: &str) -> Vec<(String, Value)> {
        match self.take(name) {
            Some(Value::Object(fields)) => fields.into_iter().collect(),
            _ => Vec::new(),
        }
    }
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The whole object. What is written in full already is left as it is.
pub fn expand(object: &Value) -> Result<Value> {
    let fields = object.as_object().context("an object is a mapping")?;
    if fields.contains_key("kind") {
        return Ok(object.clone());
    }
    // A slice has a node, a pod a class of priority: the kind that comes first in the table names the object.
    let shorts = ["slice", "pvc", "claim", "pod", "pv"];
    let kind = shorts
        .iter()
        .copied()
        .chain(fields.keys().map(String::as_str))
        .find_map(|name| fields.contains_key(name).then(|| Kind::by_short(name))?)
        .with_context(|| format!("no kind in {object}"))?;
    let mut short = Short {
        fields: fields.clone(),
    };
    let name = short.text(kind.short).unwrap_or_default();
    let mut metadata = json!({"name": name});
    for field in ["labels", "annotations", "ownerReferences", "finalizers"] {
        if let Some(value) = short.take(field) {
            metadata[field] = value;
        }
    }
    if kind.namespaced {
        metadata["namespace"] = json!(short.text("ns").unwrap_or_else(|| "default".to_owned()));
    }
    let mut whole =
        json!({"apiVersion": kind.group_version, "kind": kind.kind, "metadata": metadata});
    let body = match kind.short {
        "pod" => pod(&mut short),
        "node" => node(&mut short, &name),
        "pdb" => budget(&mut short),
        "pv" => volume(&mut short),
        "pvc" => claim(&mut short),
        "class" => class(&mut short),
        "csinode" => csi_node(&mut short),
        "deviceclass" => device_class(&mut short),
        "slice" => slice(&mut short)?,
        "claim" => device_claim(&mut short),
        "group" => group(&mut short),
        "service" => json!({"spec": {"selector": short.take("selector"), "ports": [{"port": 80}]}}),
        "rs" | "sts" | "rc" => workload(&mut short, kind.short),
        _ => json!({}),
    };
    merge(&mut whole, &body);
    for field in ["metadata", "spec", "status"] {
        if let Some(value) = short.take(field) {
            merge(&mut whole, &json!({field: value}));
        }
    }
    if matches!(
        kind.short,
        "csidriver" | "storagecapacity" | "attachment" | "runtime" | "taintrule" | "class"
    ) {
        let rest = std::mem::take(&mut short.fields);
        merge(&mut whole, &Value::Object(rest));
    }
    if let Some(left) = short.fields.keys().next() {
        bail!("{} {name}: what is {left:?}?", kind.kind);
    }
    Ok(whole)
}

fn amounts(short: &mut Short, names: &[&str]) -> Map<String, Value> {
    let mut amounts = Map::new();
    for name in names {
        if let Some(amount) = short.text(name) {
            amounts.insert((*name).to_owned(), json!(amount));
        }
    }
    for (name, amount) in short.map("resources") {
        amounts.insert(name, json!(plain(&amount)));
    }
    amounts
}

/// With one container that asks for `cpu`, `memory` and other `resources`. `on` puts it on a node.
fn pod(short: &mut Short) -> Value {
    let requests = amounts(short, &["cpu", "memory"]);
    let mut container =
        json!({"name": "c", "image": short.text("image").unwrap_or_else(|| "i".to_owned())});
    if !requests.is_empty() {
        container["resources"] = json!({"requests": requests});
    }
    if let Some(limits) = short.take("limits") {
        container["resources"]["limits"] = limits;
    }
    if let Some(ports) = short.take("ports") {
        container["ports"] = ports;
    }
    // Nobody is there to end it: with a grace period, it would go on terminating for ever.
    let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": 0});
    let mut status = json!({});
    if let Some(node) = short.text("on") {
        spec["nodeName"] = json!(node);
        status["phase"] = json!("Running");
    }
    if let Some(second) = short.take("started") {
        status["startTime"] = json!(format!("2026-01-01T00:00:{:0>2}Z", plain(&second)));
    }
    if let Some(priority) = short.take("priority") {
        spec["priorityClassName"] = json!(priority_class(priority.as_i64().unwrap_or(0)));
    }
    if let Some(priority) = short.take("never") {
        spec["priorityClassName"] = json!(format!("never-{priority}"));
    }
    for (name, field) in [
        ("selector", "nodeSelector"),
        ("tolerations", "tolerations"),
        ("scheduler", "schedulerName"),
        ("spread", "topologySpreadConstraints"),
        ("affinity", "affinity"),
        ("gates", "schedulingGates"),
        ("volumes", "volumes"),
    ] {
        if let Some(value) = short.take(name) {
            spec[field] = value;
        }
    }
    let claims = short.list("pvcs");
    if !claims.is_empty() {
        spec["volumes"] = claims
            .iter()
            .map(|claim| {
                let claim = plain(claim);
                json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}})
            })
            .collect();
    }
    let claims = short.list("claims");
    if !claims.is_empty() {
        spec["resourceClaims"] = claims
            .iter()
            .map(|claim| json!({"name": plain(claim), "resourceClaimName": plain(claim)}))
            .collect();
    }
    if let Some(group) = short.text("member") {
        spec["schedulingGroup"] = json!({"podGroupName": group});
    }
    json!({"spec": spec, "status": status})
}

/// The class that gives a pod its priority; the server computes one from the other.
pub fn priority_class(priority: i64) -> String {
    match priority {
        negative if negative < 0 => format!("minus-{}", -negative),
        other => format!("p-{other}"),
    }
}

fn node(short: &mut Short, name: &str) -> Value {
    let mut allocatable = amounts(short, &["cpu", "memory", "pods"]);
    for (name, amount) in [("cpu", "4"), ("memory", "8Gi"), ("pods", "110")] {
        allocatable.entry(name).or_insert_with(|| json!(amount));
    }
    let zone = short.text("zone");
    let mut labels = json!({"kubernetes.io/hostname": name});
    if let Some(zone) = zone {
        labels["topology.kubernetes.io/zone"] = json!(zone);
    }
    let taints: Vec<Value> = short
        .list("taints")
        .iter()
        .map(|taint| match taint {
            Value::String(text) => {
                let (pair, effect) = text.split_once(':').unwrap_or((text, "NoSchedule"));
                match pair.split_once('=') {
                    Some((key, value)) => json!({"key": key, "value": value, "effect": effect}),
                    None => json!({"key": pair, "effect": effect}),
                }
            }
            whole => whole.clone(),
        })
        .collect();
    let mut spec = json!({});
    if !taints.is_empty() {
        spec["taints"] = json!(taints);
    }
    if let Some(cordoned) = short.take("unschedulable") {
        spec["unschedulable"] = cordoned;
    }
    let mut status = json!({"allocatable": allocatable, "capacity": allocatable});
    let images: Vec<Value> = short
        .map("images")
        .into_iter()
        .map(|(name, size)| json!({"names": [name], "sizeBytes": size}))
        .collect();
    if !images.is_empty() {
        status["images"] = json!(images);
    }
    if let Some(features) = short.take("features") {
        status["declaredFeatures"] = features;
    }
    json!({"metadata": {"labels": labels}, "spec": spec, "status": status})
}

fn budget(short: &mut Short) -> Value {
    let allowed = short.take("allowed").unwrap_or(json!(0));
    json!({
        "spec": {"minAvailable": 1, "selector": {"matchLabels": short.take("selector")}},
        "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1,
            "observedGeneration": 1},
    })
}

fn volume(short: &mut Short) -> Value {
    let mut spec = json!({
        "capacity": {"storage": short.text("size").unwrap_or_else(|| "1Gi".to_owned())},
        "accessModes": short.take("modes").unwrap_or(json!(["ReadWriteOnce"])),
        "persistentVolumeReclaimPolicy": "Retain",
    });
    if let Some(class) = short.text("class") {
        spec["storageClassName"] = json!(class);
    }
    spec["csi"] = match short.text("driver") {
        Some(driver) => {
            json!({"driver": driver, "volumeHandle": short.text("handle").unwrap_or_else(|| "h".to_owned())})
        }
        None => Value::Null,
    };
    if spec["csi"].is_null() {
        spec["hostPath"] = json!({"path": "/x"});
    }
    if let Some(claim) = short.text("bound") {
        spec["claimRef"] = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default",
            "name": claim, "uid": format!("uid-of:pvc/{claim}")});
    }
    if let Some(terms) = short.take("nodes") {
        spec["nodeAffinity"] = json!({"required": {"nodeSelectorTerms": [{"matchExpressions":
            [{"key": "kubernetes.io/hostname", "operator": "In", "values": terms}]}]}});
    }
    let phase = short
        .text("phase")
        .unwrap_or_else(|| "Available".to_owned());
    let mut whole = json!({"spec": spec, "status": {"phase": phase}});
    if let Some(zone) = short.text("zone") {
        whole["metadata"] = json!({"labels": {"topology.kubernetes.io/zone": zone}});
    }
    whole
}

fn claim(short: &mut Short) -> Value {
    let mut spec = json!({
        "accessModes": short.take("modes").unwrap_or(json!(["ReadWriteOnce"])),
        "resources": {"requests": {"storage": short.text("size").unwrap_or_else(|| "1Gi".to_owned())}},
    });
    if let Some(class) = short.text("class") {
        spec["storageClassName"] = json!(class);
    }
    let mut whole = json!({"metadata": {}, "status": {"phase": "Pending"}});
    if let Some(volume) = short.text("volume") {
        spec["volumeName"] = json!(volume);
        whole["metadata"] = json!({"annotations": {"pv.kubernetes.io/bind-completed": "yes"}});
        whole["status"]["phase"] = json!("Bound");
    }
    whole["spec"] = spec;
    whole
}

/// `wait: true` binds only when there is a consumer.
fn class(short: &mut Short) -> Value {
    let waits = short.take("wait") == Some(json!(true));
    let mode = if waits {
        "WaitForFirstConsumer"
    } else {
        "Immediate"
    };
    let provisioner = short.text("provisioner");
    json!({
        "provisioner": provisioner.unwrap_or_else(|| "kubernetes.io/no-provisioner".to_owned()),
        "volumeBindingMode": mode,
    })
}

/// `drivers: {NAME: LIMIT}`
fn csi_node(short: &mut Short) -> Value {
    let drivers: Vec<Value> = short
        .map("drivers")
        .into_iter()
        .map(|(name, limit)| {
            let mut driver = json!({"name": name, "nodeID": "id"});
            if !limit.is_null() {
                driver["allocatable"] = json!({"count": limit});
            }
            driver
        })
        .collect();
    json!({"spec": {"drivers": drivers}})
}

fn device_class(short: &mut Short) -> Value {
    let selectors: Vec<Value> = short
        .list("cel")
        .iter()
        .map(|text| json!({"cel": {"expression": plain(text)}}))
        .collect();
    let mut spec = json!({});
    if !selectors.is_empty() {
        spec["selectors"] = json!(selectors);
    }
    json!({"spec": spec})
}

/// `devices` are names or whole devices.
fn slice(short: &mut Short) -> Result<Value> {
    let devices: Vec<Value> = short
        .list("devices")
        .into_iter()
        .map(|device| match device {
            Value::String(name) => json!({"name": name}),
            whole => whole,
        })
        .collect();
    let pool = short.text("pool").unwrap_or_else(|| "pool".to_owned());
    let mut spec = json!({
        "driver": short.text("driver").unwrap_or_else(|| "gpu.example.com".to_owned()),
        "pool": {"name": pool, "generation": short.take("generation").unwrap_or(json!(1)),
            "resourceSliceCount": short.take("slices").unwrap_or(json!(1))},
    });
    if !devices.is_empty() {
        spec["devices"] = json!(devices);
    }
    match short.text("node") {
        Some(node) => spec["nodeName"] = json!(node),
        None => {
            ensure!(
                short.fields.contains_key("spec"),
                "a slice needs a node, or a spec that says where its devices are"
            );
        }
    }
    Ok(json!({"spec": spec}))
}

/// One request `r` for a device class, or the whole of `devices`.
fn device_claim(short: &mut Short) -> Value {
    if let Some(devices) = short.take("devices") {
        return json!({"spec": {"devices": devices}});
    }
    let mut exactly = json!({"deviceClassName": short.text("class")});
    for (name, field) in [
        ("count", "count"),
        ("mode", "allocationMode"),
        ("admin", "adminAccess"),
        ("tolerations", "tolerations"),
        ("capacity", "capacity"),
    ] {
        if let Some(value) = short.take(name) {
            exactly[field] = value;
        }
    }
    let selectors: Vec<Value> = short
        .list("cel")
        .iter()
        .map(|text| json!({"cel": {"expression": plain(text)}}))
        .collect();
    if !selectors.is_empty() {
        exactly["selectors"] = json!(selectors);
    }
    json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}})
}

fn group(short: &mut Short) -> Value {
    let policy = match short.take("min") {
        Some(count) => json!({"gang": {"minCount": count}}),
        None => json!({"basic": {}}),
    };
    json!({"spec": {"schedulingPolicy": policy}})
}

fn workload(short: &mut Short, kind: &str) -> Value {
    let labels = short.take("selector").unwrap_or(json!({}));
    let selector = match kind {
        "rc" => labels.clone(),
        _ => json!({"matchLabels": labels}),
    };
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut spec = json!({"replicas": 0, "selector": selector, "template": template});
    if kind == "sts" {
        spec["serviceName"] = json!("s");
    }
    json!({"spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_objects_become_whole_ones() {
        let pod = expand(
            &json!({"pod": "p", "cpu": 1, "on": "n", "labels": {"a": "b"}, "priority": -5,
            "spec": {"hostNetwork": true}}),
        )
        .unwrap();
        assert_eq!(pod["metadata"]["namespace"], "default");
        assert_eq!(
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"],
            "1"
        );
        assert_eq!(pod["spec"]["nodeName"], "n");
        assert_eq!(pod["spec"]["priorityClassName"], "minus-5");
        assert_eq!(pod["spec"]["hostNetwork"], true);
        let node = expand(&json!({"node": "n", "taints": ["a=b:NoExecute", "c"]})).unwrap();
        assert_eq!(node["spec"]["taints"][0]["value"], "b");
        assert_eq!(node["spec"]["taints"][1]["effect"], "NoSchedule");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "n");
        let error = expand(&json!({"pod": "p", "cpus": 1})).unwrap_err();
        assert_eq!(error.to_string(), "Pod p: what is \"cpus\"?");
        let slice = expand(&json!({"slice": "s", "node": "n", "devices": ["d"]})).unwrap();
        assert_eq!(slice["kind"], "ResourceSlice");
        assert_eq!(slice["spec"]["devices"][0]["name"], "d");
    }
}
