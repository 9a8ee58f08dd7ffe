//! Objects with extremes in every place, in any order: the core decides on, in bounded work, and never panics.

use std::time::Duration;

use fastrand::Rng;
use plimsoll_sched::framework::Profile;
use plimsoll_sched::model::Names;
use plimsoll_sched::queue::QueueConfig;
use plimsoll_sched::sandbox::{ObjectKey, Sandbox};
use plimsoll_sched::{Config, Time};
use plimsoll_test_support::hostile::{NUMBERS, rounds, spoil};
use serde_json::{Value, json};

const START: Time = Time(1_795_000_000_000_000);
const STEPS: usize = 60;
/// Cycles that a step may cause: whoever fails waits, so there are about as many as pods.
const MOST_CYCLES: usize = 2000;

fn requirement() -> Value {
    json!({"nodeSelectorTerms": [{
        "matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]},
            {"key": "size", "operator": "Gt", "values": ["9223372036854775807"]}],
        "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}]}]})
}

fn pod(name: usize, random: &mut Rng) -> Value {
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"},
        "matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
        "namespaces": ["default"], "namespaceSelector": {}, "matchLabelKeys": ["app"], "mismatchLabelKeys": ["x"]});
    let mut pod = json!({
        "kind": "Pod",
        "metadata": {"name": format!("p{name}"), "namespace": "default", "labels": {"app": "a"},
            "creationTimestamp": "2026-11-19T03:30:34Z",
            "annotations": {"koordinator.sh/qosClass": "BE"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "u", "apiVersion": "apps/v1", "controller": true}]},
        "spec": {
            "schedulerName": "default-scheduler",
            "priority": 10, "preemptionPolicy": "PreemptLowerPriority",
            "terminationGracePeriodSeconds": 30,
            "containers": [
                {"name": "c", "image": "i", "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP", "hostIP": "1.2.3.4"}],
                 "resources": {"requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1", "ephemeral-storage": "1Gi"},
                    "limits": {"cpu": "2", "memory": "2Gi"}, "claims": [{"name": "dev"}]}},
                {"name": "d", "image": "j", "resources": {"requests": {"cpu": "100m", "hugepages-2Mi": "2Mi"}}}],
            "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
            "overhead": {"cpu": "10m", "memory": "1Mi"},
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
            "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "num", "operator": "Gt", "value": "5"}],
            "topologySpreadConstraints": [{"maxSkew": 1, "minDomains": 2, "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["app"],
                "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Honor"},
                {"maxSkew": 2147483647, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": "a"}}}],
            "affinity": {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 100, "preference": requirement()["nodeSelectorTerms"][0]}]},
                "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]},
                "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": term}]}},
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}},
                {"name": "w", "emptyDir": {"sizeLimit": "1Gi"}},
                {"name": "x", "gcePersistentDisk": {"pdName": "p"}}],
            "resourceClaims": [{"name": "dev", "resourceClaimName": "devices"}],
            "schedulingGates": [],
        },
        "status": {"phase": "Pending", "startTime": "2026-11-19T03:30:34Z", "conditions": [
            {"type": "PodScheduled", "status": "False", "lastTransitionTime": "2026-11-19T03:30:34Z", "observedGeneration": 1}]},
    });
    // Most pods want little, so that some are placed.
    let spec = pod["spec"].as_object_mut().unwrap();
    for wish in [
        "volumes",
        "resourceClaims",
        "affinity",
        "topologySpreadConstraints",
        "resources",
        "overhead",
        "initContainers",
    ] {
        if random.u8(..3) > 0 {
            spec.remove(wish);
        }
    }
    if spec.get("resourceClaims").is_none() {
        spec["containers"][0]["resources"]["claims"] = json!([]);
    }
    match random.u8(..8) {
        0 => pod["spec"]["nodeName"] = json!("n0"),
        1 => pod["status"]["nominatedNodeName"] = json!("n1"),
        2 => {
            let term = pod["spec"]["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
                ["podAffinityTerm"]
                .clone();
            if !term.is_null() {
                pod["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
                    json!([term]);
            }
        }
        3 => pod["metadata"]["deletionTimestamp"] = json!("2026-11-19T03:30:34Z"),
        _ => {}
    }
    pod["spec"]["priority"] = json!(random.i32(..));
    pod
}

fn node(name: usize) -> Value {
    json!({
        "kind": "Node",
        "metadata": {"name": format!("n{name}"), "labels": {"kubernetes.io/hostname": format!("n{name}"), "zone": "z", "disk": "ssd",
            "size": "9223372036854775807"},
            "annotations": {"node.koordinator.sh/raw-allocatable": "{\"cpu\":1}"}},
        "spec": {"unschedulable": false, "taints": [{"key": "num", "value": "7", "effect": "PreferNoSchedule"}]},
        "status": {
            "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110", "example.com/gpu": "8", "ephemeral-storage": "1Ti",
                "hugepages-2Mi": "1Gi"},
            "capacity": {"cpu": "64", "memory": "256Gi", "pods": "110"},
            "images": [{"names": ["i", "j"], "sizeBytes": 1000000000}],
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    })
}

fn others(random: &mut Rng) -> Value {
    let metadata = |name: &str| json!({"name": name, "namespace": "default"});
    let time = "2026-11-19T03:30:34Z";
    let all = [
        json!({"kind": "PodDisruptionBudget", "metadata": metadata("pdb"), "spec": {"selector": {"matchLabels": {"app": "a"}}},
            "status": {"disruptionsAllowed": 1, "disruptedPods": {"p0": time}}}),
        json!({"kind": "PodGroup", "metadata": metadata("group"), "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, "minMember": 2}}),
        json!({"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"], "storageClassName": "late", "volumeMode": "Filesystem",
            "csi": {"driver": "d", "volumeHandle": "h"}, "nodeAffinity": {"required": requirement()}}, "status": {"phase": "Available"}}),
        json!({"kind": "PersistentVolumeClaim", "metadata": metadata("claim"), "spec": {"storageClassName": "late",
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}, "status": {"phase": "Pending"}}),
        json!({"kind": "StorageClass", "metadata": {"name": "late"}, "provisioner": "d", "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["z"]}]}]}),
        json!({"kind": "CSINode", "metadata": {"name": "n0"}, "spec": {"drivers": [{"name": "d", "nodeID": "n0",
            "topologyKeys": ["zone"], "allocatable": {"count": 3}}]}}),
        json!({"kind": "CSIDriver", "metadata": {"name": "d"}, "spec": {"storageCapacity": true, "attachRequired": true}}),
        json!({"kind": "CSIStorageCapacity", "metadata": metadata("cap"), "storageClassName": "late", "capacity": "1Gi",
            "maximumVolumeSize": "1Gi", "nodeTopology": {"matchLabels": {"zone": "z"}}}),
        json!({"kind": "VolumeAttachment", "metadata": {"name": "va"}, "spec": {"attacher": "d", "nodeName": "n0",
            "source": {"persistentVolumeName": "pv"}}}),
        json!({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel":
            {"expression": "device.capacity['d'].memory.compareTo(quantity('1Gi')) >= 0 && device.attributes['d'].n > 0"}}]}}),
        json!({"kind": "ResourceClaim", "metadata": metadata("devices"), "spec": {"devices": {
            "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2,
                "capacity": {"requests": {"memory": "1Gi"}}}}],
            "constraints": [{"requests": ["r"], "matchAttribute": "d/n"}]}}}),
        json!({"kind": "ResourceSlice", "metadata": {"name": "slice"}, "spec": {"driver": "d", "nodeName": "n0",
            "pool": {"name": "pool", "generation": 1, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "set", "counters": {"memory": {"value": "8Gi"}}}],
            "devices": [{"name": "d0", "attributes": {"n": {"int": 1}, "v": {"version": "1.0.0"}},
                "capacity": {"memory": {"value": "4Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}}}},
                "allowMultipleAllocations": true,
                "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "4Gi"}}}],
                "taints": [{"key": "t", "effect": "NoSchedule", "timeAdded": time}]},
                {"name": "d1", "attributes": {"n": {"int": 1}}, "capacity": {"memory": {"value": "4Gi"}}}]}}),
        json!({"kind": "DeviceTaintRule", "metadata": {"name": "rule"}, "spec": {"deviceSelector": {"driver": "d"},
            "taint": {"key": "t", "effect": "NoExecute", "timeAdded": time}}}),
        json!({"kind": "NodeMetric", "metadata": {"name": "n0"}, "spec": {"metricCollectPolicy":
            {"aggregateDurationSeconds": 300, "reportIntervalSeconds": 60}}, "status": {"updateTime": time,
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "1", "memory": "1Gi"}},
                "aggregatedNodeUsages": [{"duration": "5m0s", "usage": {"p95": {"resources": {"cpu": "1", "memory": "1Gi"}}}}]},
            "podsMetric": [{"name": "p0", "namespace": "default", "podUsage": {"resources": {"cpu": "1", "memory": "1Gi"}}}],
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": "1"}}}}}),
        json!({"kind": "ReplicaSet", "metadata": metadata("rs"), "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "a"}}}}),
        json!({"kind": "Service", "metadata": metadata("svc"), "spec": {"selector": {"app": "a"}}}),
        json!({"kind": "Namespace", "metadata": {"name": "default", "labels": {"team": "x"}}}),
    ];
    all[random.usize(..all.len())].clone()
}

fn sandbox(seed: u64) -> Sandbox {
    let mut names = Names::default();
    let profile = Profile::standard(names.intern("default-scheduler"));
    let config = Config {
        profiles: vec![profile.with_gangs().with_load(1)],
        queue: QueueConfig::default(),
        seed,
    };
    Sandbox::new(config, names, START)
}

/// What cannot be read is refused; everything else is taken.
fn put(sandbox: &mut Sandbox, mut object: Value, random: &mut Rng) {
    let (kind, name) = (object["kind"].clone(), object["metadata"]["name"].clone());
    if random.u8(..3) > 0 {
        let places = random.usize(1..5);
        spoil(&mut object, places, random);
    }
    // An object without these is no object.
    object["kind"] = kind;
    if !object["metadata"].is_object() {
        object["metadata"] = json!({});
    }
    object["metadata"]["name"] = name;
    let _ = sandbox.put(object);
}

fn round(seed: u64) {
    let random = &mut Rng::with_seed(seed);
    let mut sandbox = sandbox(seed);
    for index in 0..3 {
        put(&mut sandbox, node(index), random);
    }
    for _ in 0..STEPS {
        match random.u8(..10) {
            0 => put(&mut sandbox, node(random.usize(..4)), random),
            1..=3 => put(&mut sandbox, others(random), random),
            4 => {
                let keys: Vec<ObjectKey> = sandbox.objects().map(|(key, _)| key.clone()).collect();
                if !keys.is_empty() {
                    sandbox.remove(&keys[random.usize(..keys.len())]);
                }
            }
            5 => {
                let key = ObjectKey::new("Pod", "default", &format!("p{}", random.usize(..20)));
                let grace = NUMBERS[random.usize(..NUMBERS.len())];
                let _ = sandbox.delete_pod(&key, random.bool().then_some(grace));
            }
            6 => {
                let by = [1, 400, 86_400 * 365][random.usize(..3)];
                sandbox.advance(Duration::from_secs(by));
            }
            _ => {
                let pod = pod(random.usize(..20), random);
                put(&mut sandbox, pod, random);
            }
        }
        let before = sandbox.cycles.len();
        sandbox.settle().unwrap();
        let cycles = sandbox.cycles.len() - before;
        assert!(cycles < MOST_CYCLES, "{cycles} cycles");
    }
}

#[test]
fn the_core_survives_whatever_it_is_told() {
    rounds(60, round);
}

/// Many of everything that a pod may have, where each is looked at for each node.
#[test]
fn a_pod_may_ask_for_much() {
    let mut sandbox = sandbox(1);
    for index in 0..5 {
        sandbox.put(node(index)).unwrap();
    }
    let mut pod = json!({"kind": "Pod", "metadata": {"name": "much", "namespace": "default"},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]}});
    let many = |make: &dyn Fn(usize) -> Value| (0..10_000).map(make).collect::<Value>();
    pod["spec"]["tolerations"] =
        many(&|number| json!({"key": format!("k{number}"), "operator": "Exists"}));
    pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": many(&|number| json!({"matchExpressions": [
            {"key": "disk", "operator": "NotIn", "values": [format!("v{number}"), "ssd"]}]}))}}});
    sandbox.put(pod).unwrap();
    sandbox.settle().unwrap();
    let mut spread = json!({"kind": "Pod", "metadata": {"name": "spread", "namespace": "default", "labels": {"app": "a"}},
        "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c"}]}});
    spread["spec"]["topologySpreadConstraints"] = (0..2000)
        .map(|number| {
            json!({"maxSkew": i32::MAX, "minDomains": i32::MAX, "topologyKey": format!("k{}", number % 1000),
                "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "a"}}})
        })
        .collect();
    sandbox.put(spread).unwrap();
    sandbox.settle().unwrap();
    assert_eq!(sandbox.cycles.len(), 2);
}
