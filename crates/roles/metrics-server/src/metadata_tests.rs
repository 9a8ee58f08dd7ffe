//! What is told of nodes and pods as they come and go.

use std::time::Duration;

use plimsoll_apimachinery::selector::parse_labels;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use crate::store::Settings;
use crate::view::{Found, View};

fn store(selector: &str) -> Store {
    let mut settings = Settings::new(Duration::from_secs(15));
    settings.node_selector = parse_labels(selector).unwrap();
    Store::new(settings)
}

fn nodes(store: &Store) -> (Nodes, UnboundedReceiver<NodeChange>) {
    let (changes, told) = unbounded_channel();
    let nodes = Nodes {
        store: store.clone(),
        changes,
        known: BTreeMap::new(),
    };
    (nodes, told)
}

fn node(name: &str, zone: &str, status: Value) -> SlimNode {
    let metadata = json!({"name": name, "labels": {"zone": zone},
        "annotations": {PATH: "/other", "more": "x"}});
    serde_json::from_value(json!({"metadata": metadata, "spec": {"x": 1}, "status": status}))
        .unwrap()
}

fn status(address: &str) -> Value {
    json!({
        "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": "h"}],
        "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": "True"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": [{"names": ["a"]}],
    })
}

fn told(changes: &mut UnboundedReceiver<NodeChange>) -> Vec<String> {
    let next = || changes.try_recv().ok();
    let shown = |change| match change {
        NodeChange::Put(info) => {
            let address = info.addresses.first().map_or("", |(_, address)| address);
            format!("+{} {address}", info.name)
        }
        NodeChange::Gone(name) => format!("-{name}"),
    };
    std::iter::from_fn(next).map(shown).collect()
}

#[test]
fn a_node_is_what_its_status_says() {
    let info = node("a", "z", status("10.0.0.1")).info();
    assert_eq!((info.port, info.ready), (Some(10250), true));
    assert_eq!(info.path.as_deref(), Some("/other"));
    assert_eq!(info.addresses[1], ("Hostname".to_owned(), "h".to_owned()));
    let bare = node(
        "b",
        "z",
        json!({"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}),
    )
    .info();
    assert_eq!((bare.port, bare.ready), (None, false));
}

#[test]
fn only_what_matters_is_told() {
    let store = store("zone!=off");
    let (mut sink, mut changes) = nodes(&store);
    sink.begin();
    sink.listed(node("a", "z", status("1")));
    sink.listed(node("b", "z", status("2")));
    sink.listed(node("c", "off", status("3")));
    sink.end();
    assert_eq!(told(&mut changes), ["+a 1", "+b 2"]);
    sink.apply(node("a", "y", status("1")));
    sink.apply(node("b", "z", status("9")));
    assert_eq!(told(&mut changes), ["+b 9"]);
    // Selected by a label no more, and again.
    sink.apply(node("a", "off", status("1")));
    sink.apply(node("c", "on", status("3")));
    assert_eq!(told(&mut changes), ["-a", "+c 3"]);
    sink.delete(node("b", "z", status("9")));
    assert_eq!(told(&mut changes), ["-b"]);
    // A new list lacks one, and nothing is told of the other.
    sink.begin();
    sink.listed(node("a", "off", status("1")));
    sink.end();
    assert_eq!(told(&mut changes), ["-c"]);
    let view = View::new(store);
    assert_eq!(view.node("a", |_| ()), Found::NoMetrics);
    assert_eq!(view.node("c", |_| ()), Found::Unknown);
}

#[test]
fn pods_are_those_of_the_last_list_and_what_came_since() {
    let store = store("");
    let view = View::new(store.clone());
    let pod = |name: &str| -> PartialObjectMeta<Pod> {
        let metadata = json!({"name": name, "namespace": "n", "labels": {"app": name}});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    };
    let known = |name| view.pod("n", name, |_| ()) == Found::NoMetrics;
    let mut sink = Pods(store);
    sink.begin();
    sink.listed(pod("a"));
    sink.listed(pod("b"));
    sink.end();
    sink.apply(pod("c"));
    sink.delete(pod("a"));
    assert_eq!(["a", "b", "c"].map(known), [false, true, true]);
    sink.begin();
    sink.listed(pod("b"));
    // The attempt failed.
    sink.begin();
    sink.listed(pod("c"));
    sink.end();
    assert_eq!(["a", "b", "c"].map(known), [false, false, true]);
}
