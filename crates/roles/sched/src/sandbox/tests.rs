use serde_json::json;

use super::*;
use crate::framework::Profile;
use crate::queue::QueueConfig;

fn sandbox() -> Sandbox {
    let mut names = Names::default();
    let profile = Profile::standard(names.intern("default-scheduler"));
    let config = Config {
        profiles: vec![profile],
        queue: QueueConfig::default(),
        seed: 1,
    };
    Sandbox::new(config, names, Time::from_secs(1_000_000))
}

fn node(name: &str, cpu: &str) -> Value {
    json!({"kind": "Node", "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "110"}}})
}

fn pod(name: &str, cpu: &str, priority: i32) -> Value {
    json!({"kind": "Pod", "metadata": {"name": name, "namespace": "d"}, "spec": {"priority": priority,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

fn node_of(sandbox: &Sandbox, name: &str) -> String {
    let pod = sandbox.get(&ObjectKey::new("Pod", "d", name));
    pod.map(|pod| text(pod, "/spec/nodeName").to_owned())
        .unwrap_or_else(|| "gone".to_owned())
}

#[test]
fn pods_are_bound_and_those_that_do_not_fit_are_told_so() {
    let mut sandbox = sandbox();
    sandbox.put(node("a", "2")).unwrap();
    sandbox.put(pod("small", "1", 0)).unwrap();
    sandbox.put(pod("big", "4", 0)).unwrap();
    sandbox.settle().unwrap();
    assert_eq!(node_of(&sandbox, "small"), "a");
    assert_eq!(node_of(&sandbox, "big"), "");
    let big = sandbox.get(&ObjectKey::new("Pod", "d", "big")).unwrap();
    assert_eq!(
        text(big, "/status/conditions/0/reason"),
        "Unschedulable",
        "{big}"
    );
    assert_eq!(sandbox.events.len(), 2);

    sandbox.put(node("b", "8")).unwrap();
    sandbox.settle().unwrap();
    assert_eq!(node_of(&sandbox, "big"), "b");
}

#[test]
fn victims_go_and_their_place_is_taken() {
    let mut sandbox = sandbox();
    sandbox.put(node("a", "2")).unwrap();
    sandbox.put(pod("low", "2", 0)).unwrap();
    sandbox.settle().unwrap();
    sandbox.put(pod("high", "2", 10)).unwrap();
    sandbox.settle().unwrap();
    assert_eq!(node_of(&sandbox, "low"), "gone");
    assert_eq!(node_of(&sandbox, "high"), "a");
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let mut sandbox = sandbox();
    let error = sandbox.put(node("a", "two")).unwrap_err();
    assert_eq!(error.to_string(), "Node a: it cannot be read");
    let error = sandbox.put(json!({"kind": "Node"})).unwrap_err();
    assert_eq!(error.to_string(), "an object without kind or name");
}
