use super::*;

fn object<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(value).unwrap())
}

fn now() -> Timestamp {
    "2026-06-01T12:00:00Z".parse().unwrap()
}

fn enabled() -> Config {
    let mut config = Config::default();
    let data = [(
        "colocation-config".to_owned(),
        r#"{"enable":true}"#.to_owned(),
    )];
    assert!(config.update(&data.into()).is_empty());
    config
}

fn known(updated: &str) -> Known {
    let config = enabled();
    let (strategy, _) = config
        .colocation()
        .for_node(&BTreeMap::new(), &BTreeMap::new());
    Known {
        node: object(json!({
            "metadata": {"name": "n", "annotations": {names::ANNOTATION_NORMALIZATION_RATIO: "1.00"}},
            "status": {
                "capacity": {"cpu": "10", "memory": "10000", "pods": "110"},
                "allocatable": {"cpu": "10", "memory": "10000", "pods": "110"}
            }
        })),
        metric: Some(object(json!({
            "metadata": {"name": "n"},
            "spec": strategy.node_metric(),
            "status": {
                "updateTime": updated,
                "nodeMetric": {
                    "nodeUsage": {"resources": {"cpu": "3", "memory": "4000"}},
                    "systemUsage": {"resources": {"cpu": "500m", "memory": "500"}}
                },
                "podsMetric": [
                    {"name": "a", "namespace": "x", "podUsage": {"resources": {"cpu": "1", "memory": "1000"}}, "priority": "koord-prod"},
                    {"name": "gone", "namespace": "x", "podUsage": {"resources": {"cpu": "150m", "memory": "75"}}, "priority": "koord-prod"},
                    {"name": "done", "namespace": "x", "podUsage": {"resources": {"cpu": "50m", "memory": "25"}}, "priority": "koord-prod"}
                ],
                "prodReclaimableMetric": {"resource": {"resources": {"cpu": "2", "memory": "2000"}}}
            }
        }))),
        slo: Some(object(
            json!({"metadata": {"name": "n"}, "spec": config.node_slo(&BTreeMap::new(), None, None)}),
        )),
        pods: vec![
            object(json!({
                "metadata": {"name": "a", "namespace": "x"},
                "spec": {"containers": [{"resources": {"requests": {"cpu": "4", "memory": "4000"}}}]},
                "status": {"phase": "Running", "qosClass": "Burstable"}
            })),
            object(json!({
                "metadata": {"name": "done", "namespace": "x"},
                "spec": {"containers": [{"resources": {"requests": {"cpu": "4", "memory": "4000"}}}]},
                "status": {"phase": "Succeeded", "qosClass": "Burstable"}
            })),
        ],
        topology: None,
        written: None,
    }
}

#[test]
fn a_reporting_node_lends() {
    let (steps, complaints) = steps(&known("2026-06-01T11:59:30Z"), &enabled(), now());
    assert!(complaints.is_empty());
    let [Step::Lend { node, status, .. }] = &steps[..] else {
        panic!("{steps:?}");
    };
    // CPU: 10 − 4 margin − 0.5 system − 1 − 0.15 and 0.05 of those that are gone or have ended; memory: 10000 −
    // 3500 − 500 − 1000 − 100.
    let lent = json!({
        "kubernetes.io/batch-cpu": "4300",
        "kubernetes.io/batch-memory": "4900",
        "kubernetes.io/mid-cpu": "2k",
        "kubernetes.io/mid-memory": "2000"
    });
    assert_eq!(
        status,
        &json!({"status": {"capacity": lent, "allocatable": lent}})
    );
    let origin = &node["metadata"]["annotations"][names::ANNOTATION_ORIGIN_EXTENDED];
    assert_eq!(
        origin,
        r#"{"resources":{"kubernetes.io/batch-cpu":"4300","kubernetes.io/batch-memory":"4900"}}"#
    );
}

/// With these annotations.
fn annotated(annotations: &[(&str, &str)]) -> Known {
    let mut known = known("2026-06-01T11:59:30Z");
    let mut node = (*known.node).clone();
    let annotations = annotations
        .iter()
        .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    let all = node.metadata.annotations.get_or_insert_default();
    all.extend(annotations);
    known.node = Arc::new(node);
    known
}

#[test]
fn what_others_took_is_theirs_and_told() {
    let taken = r#"{"allocations":[{"name":"yarn","priority":"koord-batch","resources":{"kubernetes.io/batch-cpu":"1300","kubernetes.io/batch-memory":"900"}}]}"#;
    let known = annotated(&[(names::ANNOTATION_THIRD_PARTY, taken)]);
    let (steps, _) = steps(&known, &enabled(), now());
    let [Step::Lend { node, status, .. }] = &steps[..] else {
        panic!("{steps:?}");
    };
    let allocatable = &status["status"]["allocatable"];
    assert_eq!(allocatable[names::BATCH_CPU], "3k");
    assert_eq!(allocatable[names::BATCH_MEMORY], "4k");
    assert_eq!(
        node["metadata"]["annotations"][names::ANNOTATION_ORIGIN_EXTENDED],
        r#"{"resources":{"kubernetes.io/batch-cpu":"4300","kubernetes.io/batch-memory":"4900"}}"#
    );
}

#[test]
fn fast_cores_are_told_and_lend_more() {
    let mut config = enabled();
    let fast = json!({"enable": true, "ratioModel": {"Fast": {"baseRatio": 1.5}}});
    let data = [
        ("colocation-config", json!({"enable": true})),
        ("cpu-normalization-config", fast),
    ];
    let data = data.map(|(key, value)| (key.to_owned(), value.to_string()));
    assert_eq!(config.update(&data.into()), []);
    let mut known = known("2026-06-01T11:59:30Z");
    // Nobody knows its CPUs: nothing is written, and what is there counts.
    let (found, _) = steps(&known, &config, now());
    assert!(matches!(&found[..], [Step::Lend { .. }]), "{found:?}");
    let cpus = json!({names::ANNOTATION_CPU_BASIC_INFO: r#"{"cpuModel":"Fast"}"#});
    known.topology = Some(object(
        json!({"metadata": {"name": "n", "annotations": cpus}}),
    ));
    let (found, _) = steps(&known, &config, now());
    let [Step::Annotate { patch }, Step::Lend { status, .. }] = &found[..] else {
        panic!("{found:?}");
    };
    let ratio = &patch["metadata"]["annotations"][names::ANNOTATION_NORMALIZATION_RATIO];
    assert_eq!(ratio, "1.50");
    let amplified = &patch["metadata"]["annotations"][names::ANNOTATION_AMPLIFICATION_RATIO];
    assert_eq!(amplified, r#"{"cpu":1.50}"#);
    assert_eq!(status["status"]["allocatable"][names::BATCH_CPU], "6450");
    // Where none is asked for, that is told, too.
    let mut node = (*known.node).clone();
    node.metadata.annotations = None;
    known.node = Arc::new(node);
    let (found, _) = steps(&known, &enabled(), now());
    let Step::Annotate { patch } = &found[0] else {
        panic!("{found:?}");
    };
    let ratio = &patch["metadata"]["annotations"][names::ANNOTATION_NORMALIZATION_RATIO];
    assert_eq!(ratio, "1.00");
}

#[test]
fn a_node_counts_for_more_only_while_it_lends() {
    let name = names::ANNOTATION_AMPLIFICATION_RATIO;
    let known = annotated(&[(name, r#"{"memory":1.50}"#)]);
    let told = |enable: bool| {
        let more = json!({"enable": true, "resourceAmplificationRatio": {"memory": 1.2}});
        let data = [
            ("colocation-config", json!({"enable": enable})),
            ("resource-amplification-config", more),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), value.to_string()));
        let mut config = Config::default();
        assert_eq!(config.update(&data.into()), []);
        let (steps, _) = steps(&known, &config, now());
        let told = steps.into_iter().find_map(|step| match step {
            Step::Annotate { patch } => Some(patch["metadata"]["annotations"][name].clone()),
            _ => None,
        });
        told.unwrap()
    };
    assert_eq!(told(true), r#"{"memory":1.20}"#);
    assert_eq!(told(false), Value::Null);
}

#[test]
fn what_is_reserved() {
    for (text, milli_cpu, memory) in [
        (r#"{"resources":{"cpu":"2","memory":"1Ki"}}"#, 2000, 1024),
        (
            r#"{"resources":{"cpu":"2"},"reservedCPUs":"0-2,7"}"#,
            4000,
            0,
        ),
        (r#"{"reservedCPUs":"0"}"#, 1000, 0),
        (r#"{"resources":{"cpu":2},"reservedCPUs":"all"}"#, 0, 0),
        ("{}", 0, 0),
    ] {
        let known = annotated(&[(names::ANNOTATION_RESERVATION, text)]);
        let annotations = known.node.metadata.annotations.as_ref().unwrap();
        let found = described(&known.node, annotations).reservation;
        assert_eq!((found.milli_cpu, found.memory), (milli_cpu, memory));
    }
}

#[test]
fn a_node_knows_its_network() {
    let wide = |text: &str| {
        let known = annotated(&[(names::ANNOTATION_NETWORK_BANDWIDTH, text)]);
        let (steps, complaints) = steps(&known, &enabled(), now());
        let found = steps.into_iter().find_map(|step| match step {
            Step::ReplaceSloSpec { spec } => Some(spec),
            _ => None,
        });
        let found = found.map(|spec| spec["systemStrategy"]["totalNetworkBandwidth"].clone());
        (found, complaints.len())
    };
    assert_eq!(wide("10000M"), (Some("10G".into()), 0));
    assert_eq!(wide("wide"), (None, 1));
}

#[test]
fn a_silent_node_lends_nothing_any_more() {
    let mut silent = known("2026-06-01T11:00:00Z");
    assert_eq!(steps(&silent, &enabled(), now()).0, []);
    let mut node = (*silent.node).clone();
    node.status
        .allocatable
        .insert(names::BATCH_CPU.into(), "4300".into());
    silent.node = Arc::new(node);
    let (steps, _) = steps(&silent, &enabled(), now());
    let [
        Step::Lend {
            node,
            status,
            reason,
        },
    ] = &steps[..]
    else {
        panic!("{steps:?}");
    };
    assert_eq!(reason, "the node's last report is too old");
    assert_eq!(
        status["status"]["allocatable"][names::BATCH_CPU],
        Value::Null
    );
    assert_eq!(
        node["metadata"]["annotations"][names::ANNOTATION_ORIGIN_EXTENDED],
        r#"{"resources":{"kubernetes.io/batch-cpu":"0","kubernetes.io/batch-memory":"0"}}"#
    );
}

#[test]
fn a_configuration_that_was_never_understood_takes_nothing_back() {
    let mut lending = known("2026-06-01T11:00:00Z");
    let mut node = (*lending.node).clone();
    let allocatable = &mut node.status.allocatable;
    allocatable.insert(names::BATCH_CPU.into(), "4300".into());
    lending.node = Arc::new(node);
    let mut config = Config::default();
    let bad = BTreeMap::from([("colocation-config".to_owned(), "{".to_owned())]);
    assert_eq!(config.update(&bad).len(), 1);
    assert_eq!(steps(&lending, &config, now()).0, []);
}

#[test]
fn a_new_node_gets_its_objects() {
    let new = Known {
        metric: None,
        slo: None,
        ..known("2026-06-01T11:59:30Z")
    };
    let (steps, _) = steps(&new, &Config::default(), now());
    assert!(matches!(
        &steps[..],
        [Step::CreateMetric { .. }, Step::CreateSlo { .. }]
    ));
}

/// Objects and a configuration with extremes in every place: what should be written is decided all the same, and is no
/// object that would have to be refused.
#[test]
fn whatever_the_cluster_says_is_decided_about() {
    use plimsoll_test_support::hostile::{rounds, spoil};
    let pod = json!({
        "metadata": {"name": "a", "namespace": "x", "labels": {"koordinator.sh/qosClass": "LSR"},
            "annotations": {"scheduling.koordinator.sh/resource-status": "{\"numaNodeResources\":[{\"node\":1}]}"}},
        "spec": {"priority": 9500, "containers": [{"name": "c", "resources": {"requests": {"cpu": "4", "memory": "4Gi"}}}],
            "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "4", "memory": "4Gi"}}}],
            "overhead": {"cpu": "1"}},
        "status": {"phase": "Running", "qosClass": "Burstable"}
    });
    let topology = json!({
        "metadata": {"name": "n", "annotations": {names::ANNOTATION_CPU_BASIC_INFO:
            "{\"cpuModel\":\"x\",\"hyperThreadEnabled\":true,\"turboEnabled\":false}"}},
        "zones": [{"name": "node-0", "type": "Node", "resources": [
            {"name": "cpu", "capacity": "10", "allocatable": "10", "available": "10"},
            {"name": "memory", "capacity": "10Gi", "allocatable": "10Gi", "available": "10Gi"}]},
            {"name": "node-1", "type": "Node", "resources": []}]
    });
    let configs = json!({
        "colocation-config": {"enable": true, "cpuReclaimThresholdPercent": 60, "memoryReclaimThresholdPercent": 60,
            "degradeTimeMinutes": 5, "updateTimeThresholdSeconds": 300, "resourceDiffThreshold": 0.1,
            "metricAggregateDurationSeconds": 300, "metricReportIntervalSeconds": 60, "cpuCalculatePolicy": "maxUsageRequest",
            "memoryCalculatePolicy": "request", "midCPUThresholdPercent": 10, "midMemoryThresholdPercent": 10,
            "nodeConfigs": [{"nodeSelector": {"matchLabels": {"a": "b"}}, "enable": true}]},
        "cpu-normalization-config": {"enable": true, "ratioModel": {"x": {"baseRatio": 1.5, "turboEnabledRatio": 1.65,
            "hyperThreadEnabledRatio": 1.0, "hyperThreadTurboEnabledRatio": 1.1}}},
        "resource-amplification-config": {"enable": true, "resourceAmplificationRatio": {"cpu": 1.5}},
        "cpu-burst-config": {"clusterStrategy": {"cfsQuotaBurstPercent": 300, "cpuBurstPercent": 1000}},
        "system-config": {"clusterStrategy": {"minFreeKbytesFactor": 100}},
    });
    rounds(300, |seed| {
        let random = &mut fastrand::Rng::with_seed(seed);
        let mut spoiled = |value: &Value| {
            let mut value = value.clone();
            if random.u8(..3) > 0 {
                let places = random.usize(1..5);
                spoil(&mut value, places, random);
            }
            value
        };
        let mut known = known("2026-06-01T11:59:30Z");
        let read = |value: Value| serde_json::to_value(value).unwrap_or_default();
        let node = json!({
            "metadata": {"name": "n", "labels": {"a": "b"}, "annotations": {
                names::ANNOTATION_NORMALIZATION_RATIO: "1.00",
                names::ANNOTATION_THIRD_PARTY: "{\"allocations\":[{\"name\":\"yarn\",\"priority\":\"koord-batch\",\"resources\":{\"kubernetes.io/batch-cpu\":\"1\"}}]}",
                names::ANNOTATION_NETWORK_BANDWIDTH: "1G",
                "node.koordinator.sh/reservation": "{\"resources\":{\"cpu\":\"1\"},\"reservedCPUs\":\"0-3\"}",
                "node.koordinator.sh/colocation-strategy": "{\"enable\":true}",
            }},
            "status": {"capacity": {"cpu": "10", "memory": "10Gi", "pods": "110", names::BATCH_CPU: "1k"},
                "allocatable": {"cpu": "10", "memory": "10Gi", "pods": "110", names::BATCH_CPU: "1k"}}
        });
        if let Ok(node) = serde_json::from_value(spoiled(&node)) {
            known.node = Arc::new(node);
        }
        let metric = json!({"metadata": {"name": "n"}, "spec": {}, "status": {
            "updateTime": "2026-06-01T11:59:30Z",
            "nodeMetric": {"nodeUsage": {"resources": {"cpu": "3", "memory": "4000"}},
                "systemUsage": {"resources": {"cpu": "500m", "memory": "500"}}},
            "podsMetric": [{"name": "a", "namespace": "x", "podUsage": {"resources": {"cpu": "1", "memory": "1000"}}, "priority": "koord-prod"}],
            "hostApplicationMetric": [{"name": "h", "usage": {"resources": {"cpu": "1"}}, "priority": "koord-batch"}],
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": "2", "memory": "2000"}}}}});
        if let Ok(metric) = serde_json::from_value(read(spoiled(&metric))) {
            known.metric = Some(Arc::new(metric));
        }
        known.topology = serde_json::from_value(spoiled(&topology))
            .ok()
            .map(Arc::new);
        known.pods = (0..3)
            .filter_map(|_| serde_json::from_value(spoiled(&pod)).ok().map(Arc::new))
            .collect();
        let mut config = enabled();
        let data = spoiled(&configs);
        let data = data.as_object().into_iter().flatten();
        config.update(
            &data
                .map(|(key, value)| (key.clone(), value.to_string()))
                .collect(),
        );
        let times = [
            "-009999-01-02T01:59:59Z",
            "2026-06-01T12:00:00Z",
            "9999-12-30T22:00:00Z",
        ];
        let now: Timestamp = times[seed as usize % times.len()].parse().unwrap();
        known.written = times[seed as usize / 3 % times.len()].parse().ok();
        let (steps, _) = steps(&known, &config, now);
        assert!(steps.len() < 10, "{steps:?}");
    });
}
