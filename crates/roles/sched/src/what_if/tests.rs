use super::*;
use crate::framework::Profile;
use crate::queue::QueueConfig;

fn node(name: &str, cpu: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}})
}

fn pod(name: &str, cpu: &str, node: Option<&str>) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "d"}, "spec": {"nodeName": node,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn answered(question: &Question, seed: u64) -> Result<Answer, WhatIfError> {
    let mut names = Names::default();
    let profile = Profile::standard(names.intern("default-scheduler"));
    let config = Config {
        profiles: vec![profile],
        queue: QueueConfig::default(),
        seed,
    };
    ask(question, config, names, Time::from_secs(1_000_000))
}

#[test]
fn a_drained_node_is_empty_and_its_pods_are_elsewhere() {
    let mut daemon = pod("daemon", "100m", Some("a"));
    daemon["metadata"]["ownerReferences"] =
        json!([{"kind": "DaemonSet", "name": "x", "controller": true}]);
    let question = Question {
        objects: vec![
            pod("one", "1", Some("a")),
            pod("two", "1", Some("a")),
            pod("big", "3", Some("a")),
            daemon,
            node("a", "8"),
            node("b", "4"),
        ],
        drain: vec!["a".to_owned()],
        ..Question::default()
    };
    let answer = answered(&question, 1).unwrap();
    let names: Vec<_> = answer.placed.iter().map(|pod| pod.name.as_str()).collect();
    assert_eq!(answer.placed.len() + answer.failed.len(), 3, "{answer:?}");
    assert_eq!(answer.failed.len(), 1, "{answer:?}");
    assert!(answer.placed.iter().all(|pod| pod.node == "b"), "{names:?}");
    assert_eq!(answer.nodes[0].pods.requested, 1);
    let error = answered(
        &Question {
            drain: vec!["zz".to_owned()],
            ..question
        },
        1,
    );
    assert_eq!(
        error.unwrap_err().to_string(),
        "there is no node \"zz\" in the cluster"
    );
}

#[test]
fn added_pods_get_their_priority_and_may_evict() {
    let question = Question {
        objects: vec![
            node("a", "2"),
            pod("low", "2", Some("a")),
            json!({"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 100}),
        ],
        add: vec![
            json!({"kind": "Deployment", "metadata": {"name": "web", "namespace": "d"},
            "spec": {"replicas": 2, "template": {"spec": {"priorityClassName": "high",
                "containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "2"}}}]}}}}),
        ],
        ..Question::default()
    };
    let answer = answered(&question, 1).unwrap();
    assert_eq!(answer.placed.len(), 1);
    assert_eq!(answer.failed.len(), 1);
    assert_eq!(answer.evicted[0].name, "low");
    assert_eq!(answer.evicted[0].by, "d/web-0");
    assert_eq!(answer.total()[0].percent(), 100.0);
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let mut objects: Vec<Value> = (0..20)
        .map(|index| node(&format!("n{index}"), "4"))
        .collect();
    objects.extend((0..40).map(|index| pod(&format!("p{index}"), "1", None)));
    let question = Question {
        objects,
        ..Question::default()
    };
    let one = answered(&question, 7).unwrap();
    assert_eq!(one, answered(&question, 7).unwrap());
    assert!(one.differences(&one).is_empty());
    let other = answered(&question, 8).unwrap();
    assert!(
        !one.differences(&other).is_empty(),
        "ties depend on the seed"
    );
}

#[test]
fn claims_that_wait_for_a_consumer_are_bound() {
    let mut consumer = pod("p", "1", None);
    consumer["spec"]["volumes"] =
        json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    let question = Question {
        objects: vec![
            node("a", "2"),
            json!({"kind": "StorageClass", "metadata": {"name": "late"}, "provisioner": "x",
                "volumeBindingMode": "WaitForFirstConsumer"}),
            json!({"kind": "PersistentVolumeClaim", "metadata": {"name": "c", "namespace": "d"},
                "spec": {"storageClassName": "late", "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}}}}),
            consumer,
        ],
        ..Question::default()
    };
    let answer = answered(&question, 1).unwrap();
    assert_eq!(answer.placed.len(), 1, "{answer:?}");
}
