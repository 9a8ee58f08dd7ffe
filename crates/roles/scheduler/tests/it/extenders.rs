//! Extenders that are asked over HTTP.

use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use plimsoll_scheduler::config::{Configuration, ExtenderConfig};
use plimsoll_serving::Arriving;
use serde_json::{Value, json};

use crate::support::{Cluster, pod};

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers by what it is asked, and writes down what that was. `None`: with an error.
async fn extender(answer: fn(&str, &Value) -> Option<Value>) -> (plimsoll_serving::Serving, Asked) {
    let asked = Asked::default();
    let book = Arc::clone(&asked);
    let service = tower::service_fn(move |request: Request<Arriving>| {
        let book = Arc::clone(&book);
        async move {
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let question: Value = serde_json::from_slice(&body).unwrap();
            let (status, told) = match answer(&path, &question) {
                Some(told) => (200, told.to_string()),
                None => (500, String::new()),
            };
            book.lock().push((path, question));
            let mut response = Response::new(Full::new(bytes::Bytes::from(told)));
            *response.status_mut() = http::StatusCode::from_u16(status).unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    let bound = plimsoll_serving::Config::loopback().bind().await.unwrap();
    (bound.spawn(service), asked)
}

fn config(
    serving: &plimsoll_serving::Serving,
    more: impl FnOnce(&mut ExtenderConfig),
) -> Configuration {
    let mut extender = ExtenderConfig {
        url_prefix: format!("http://{}/ext", serving.local_addr()),
        ..ExtenderConfig::default()
    };
    more(&mut extender);
    Configuration {
        extenders: vec![extender],
        ..Configuration::default()
    }
}

async fn three_nodes(configuration: Configuration) -> Cluster {
    nodes(configuration, &[("n1", "4"), ("n2", "4"), ("n3", "4")]).await
}

async fn nodes(configuration: Configuration, all: &[(&str, &str)]) -> Cluster {
    let cluster = Cluster::start_with(configuration).await;
    let all: Vec<_> = all
        .iter()
        .map(|(name, cpu)| (*name, *cpu, json!({})))
        .collect();
    cluster.nodes(&all).await;
    cluster
}

#[tokio::test(flavor = "multi_thread")]
async fn one_filters_and_another_verb_scores() {
    let (serving, asked) = extender(|path, question| {
        Some(match path {
            "/ext/filter" => {
                assert!(question["NodeNames"].is_null());
                let items = question["Nodes"]["items"].as_array().unwrap();
                let left: Vec<_> = items
                    .iter()
                    .filter(|node| node["metadata"]["name"] != "n1")
                    .cloned()
                    .collect();
                json!({"Nodes": {"items": left}, "FailedNodes": {"n1": "not that one"}})
            }
            _ => json!([{"Host": "n3", "Score": 10}, {"Host": "n2", "Score": 1}]),
        })
    })
    .await;
    let cluster = three_nodes(config(&serving, |extender| {
        extender.filter_verb = "filter".to_owned();
        extender.prioritize_verb = "prioritize".to_owned();
        extender.weight = 5;
    }))
    .await;
    cluster.pod(pod("a", "1")).await;
    assert_eq!(cluster.bound("a").await["spec"]["nodeName"], "n3");
    let asked = asked.lock();
    assert_eq!(asked[0].1["Pod"]["metadata"]["name"], "a");
    assert_eq!(
        asked[0].1["Nodes"]["items"][0]["status"]["allocatable"]["cpu"],
        "4"
    );
    assert_eq!(asked[1].0, "/ext/prioritize");
}

/// Nodes that come back from an extender have nothing on them, and that is how they are scored.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_were_sent_are_scored_as_empty() {
    for only_names in [false, true] {
        let (serving, _) = extender(|_, question| {
            Some(json!({"Nodes": question["Nodes"], "NodeNames": question["NodeNames"]}))
        })
        .await;
        let cluster = three_nodes(config(&serving, |extender| {
            extender.filter_verb = "filter".to_owned();
            extender.node_cache_capable = only_names;
        }))
        .await;
        cluster.nodes(&[("large", "16", json!({}))]).await;
        let mut there = pod("there", "14");
        there["spec"]["nodeName"] = "large".into();
        cluster.pod(there).await;
        cluster.pod(pod("a", "1")).await;
        let node = cluster.bound("a").await["spec"]["nodeName"].clone();
        assert_eq!(node == "large", !only_names, "{node}");
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_will_do() {
    let (serving, _) = extender(|_, question| {
        assert!(question["Nodes"].is_null());
        Some(json!({"NodeNames": [], "FailedNodes": {"n1": "no", "n2": "no"}, "FailedAndUnresolvableNodes": {"n3": "never"}}))
    })
    .await;
    let cluster = three_nodes(config(&serving, |extender| {
        extender.filter_verb = "filter".to_owned();
        extender.node_cache_capable = true;
    }))
    .await;
    cluster.pod(pod("a", "1")).await;
    let event = cluster.event("a", "FailedScheduling").await;
    assert_eq!(
        event["message"],
        "0/3 nodes are available: 1 never, 2 no. no new claims to deallocate, preemption: 0/3 nodes are available: 1 \
         Preemption is not helpful for scheduling, 2 No preemption victims found for incoming pod."
    );
}

/// What it says about a node takes the place of what plugins said, and a node that nobody knows counts as well. The texts
/// are the original's.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_of_all_kinds_of_nodes() {
    let (serving, _) = extender(|_, question| {
        Some(match question["Pod"]["metadata"]["name"].as_str() {
            Some("stranger") => json!({"NodeNames": [], "FailedNodes": {"n9": "who?"}}),
            _ => json!({"NodeNames": [], "FailedNodes": {"n1": "no", "n2": "no", "small": "no"}}),
        })
    })
    .await;
    let configuration = config(&serving, |extender| {
        extender.filter_verb = "filter".to_owned();
        extender.node_cache_capable = true;
    });
    let all = [("n1", "4"), ("n2", "4"), ("small", "1")];
    let cluster = nodes(configuration, &all).await;
    for (name, cpu, expected) in [
        (
            "stranger",
            "1",
            "0/3 nodes are available: 1 who?. no new claims to deallocate, preemption: 0/3 nodes are available: 3 \
             Preemption is not helpful for scheduling.",
        ),
        (
            "large",
            "2",
            "0/3 nodes are available: 3 no. no new claims to deallocate, preemption: 0/3 nodes are available: 3 No \
             preemption victims found for incoming pod.",
        ),
    ] {
        cluster.pod(pod(name, cpu)).await;
        let event = cluster.event(name, "FailedScheduling").await;
        assert_eq!(event["message"], expected);
    }
}

/// Evicting pods would not be needed for the scheduler's own rules: the original says so of each node.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_would_have_to_go() {
    let (serving, _) = extender(|_, _| {
        Some(json!({"NodeNames": [], "FailedNodes": {"n1": "no", "n2": "no"}, "FailedAndUnresolvableNodes": {"n3": "never"}}))
    })
    .await;
    let cluster = three_nodes(config(&serving, |extender| {
        extender.filter_verb = "filter".to_owned();
        extender.node_cache_capable = true;
    }))
    .await;
    let high = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster
        .create("/apis/scheduling.k8s.io/v1/priorityclasses", high)
        .await;
    for node in ["n1", "n2"] {
        let mut low = pod(&format!("on-{node}"), "1");
        low["spec"]["nodeName"] = node.into();
        cluster.pod(low).await;
    }
    let mut high = pod("high", "1");
    high["spec"]["priorityClassName"] = "high".into();
    cluster.pod(high).await;
    let event = cluster.event("high", "FailedScheduling").await;
    let bare = |node| format!("expected at least one victim pod on node \"{node}\"");
    let told = |one, other| {
        let both = format!("[{}, {}]", bare(one), bare(other));
        format!("0/3 nodes are available: 1 never, 2 no. preemption: {both}")
    };
    // Which node is tried first is drawn by lot.
    let message = event["message"].as_str().unwrap();
    assert!(
        message == told("n1", "n2") || message == told("n2", "n1"),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_fails_stops_the_pod_unless_it_is_ignorable() {
    let (serving, _) = extender(|_, _| None).await;
    let filters = |extender: &mut ExtenderConfig| {
        extender.filter_verb = "filter".to_owned();
        extender.node_cache_capable = true;
    };
    let cluster = three_nodes(config(&serving, filters)).await;
    cluster.pod(pod("a", "1")).await;
    let event = cluster.event("a", "FailedScheduling").await;
    let expected = format!(
        "failed filter with extender at URL http://{}/ext/filter, code 500",
        serving.local_addr()
    );
    assert_eq!(event["message"], expected);
    let cluster = three_nodes(config(&serving, |extender| {
        filters(extender);
        extender.ignorable = true;
    }))
    .await;
    cluster.pod(pod("a", "1")).await;
    cluster.bound("a").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_binds_the_pods_that_it_manages() {
    let (serving, asked) = extender(|_, _| Some(json!({}))).await;
    let cluster = three_nodes(config(&serving, |extender| {
        extender.bind_verb = "bind".to_owned();
        extender.managed_resources = vec![plimsoll_scheduler::config::ManagedResource {
            name: "example.com/thing".to_owned(),
            ignored_by_scheduler: true,
        }];
    }))
    .await;
    let mut managed = pod("managed", "1");
    let things = json!({"example.com/thing": "1"});
    managed["spec"]["containers"][0]["resources"] = json!({"requests": things, "limits": things});
    cluster.pod(pod("other", "1")).await;
    cluster.bound("other").await;
    cluster.pod(managed).await;
    let asked = cluster
        .eventually("the extender binds", async |_| {
            let asked = asked.lock().clone();
            (!asked.is_empty()).then_some(asked)
        })
        .await;
    assert_eq!(asked.len(), 1);
    let (path, binding) = &asked[0];
    assert_eq!(path, "/ext/bind");
    assert_eq!(binding["PodName"], "managed");
    assert_eq!(binding["PodNamespace"], "default");
    assert!(binding["PodUID"].is_string() && binding["Node"].as_str().unwrap().starts_with('n'));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_has_a_say_about_victims() {
    // Only what is on n2 may go.
    let (serving, asked) = extender(|_, question| {
        let all = question["NodeNameToMetaVictims"].as_object().unwrap();
        Some(json!({"NodeNameToMetaVictims": {"n2": all["n2"]}}))
    })
    .await;
    let cluster = three_nodes(config(&serving, |extender| {
        extender.preempt_verb = "preempt".to_owned();
        extender.node_cache_capable = true;
    }))
    .await;
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    cluster
        .create(
            classes,
            json!({"metadata": {"name": "high"}, "value": 1000}),
        )
        .await;
    for node in ["n1", "n2", "n3"] {
        let mut low = pod(&format!("on-{node}"), "3");
        low["spec"]["nodeName"] = node.into();
        low["spec"]["terminationGracePeriodSeconds"] = 0.into();
        cluster.pod(low).await;
    }
    let mut high = pod("high", "3");
    high["spec"]["priorityClassName"] = "high".into();
    cluster.pod(high).await;
    assert_eq!(cluster.bound("high").await["spec"]["nodeName"], "n2");
    assert_eq!(asked.lock()[0].1["Pod"]["metadata"]["name"], "high");
}

/// Anybody on the node may be named, not only those who would have had to go.
#[tokio::test(flavor = "multi_thread")]
async fn one_names_somebody_else_as_victim() {
    let (serving, _) = extender(|_, question| {
        let all = question["NodeNameToMetaVictims"].as_object().unwrap();
        let instead = question["Pod"]["metadata"]["annotations"]["instead"].clone();
        let named = |node: &String| (node.clone(), json!({"Pods": [{"UID": instead}]}));
        let named: serde_json::Map<String, Value> = all.keys().map(named).collect();
        Some(json!({"NodeNameToMetaVictims": named}))
    })
    .await;
    let configuration = config(&serving, |extender| {
        extender.preempt_verb = "preempt".to_owned();
        extender.node_cache_capable = true;
    });
    let cluster = nodes(configuration, &[("n2", "4")]).await;
    let high = json!({"metadata": {"name": "high"}, "value": 1000});
    cluster
        .create("/apis/scheduling.k8s.io/v1/priorityclasses", high)
        .await;
    for (name, cpu) in [("large", "3"), ("bystander", "100m")] {
        let mut low = pod(name, cpu);
        low["spec"]["nodeName"] = "n2".into();
        low["spec"]["terminationGracePeriodSeconds"] = 0.into();
        cluster.pod(low).await;
    }
    let path = "/api/v1/namespaces/default/pods/bystander";
    let bystander = cluster.get(path).await;
    let mut high = pod("high", "3");
    high["spec"]["priorityClassName"] = "high".into();
    high["metadata"]["annotations"] = json!({"instead": bystander["metadata"]["uid"]});
    cluster.pod(high).await;
    cluster.event("bystander", "Preempted").await;
}
