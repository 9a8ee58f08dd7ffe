//! Evictions that protection asks for, on the embedded API server.

use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, ListParams, PostParams};
use plimsoll_agent::protect::{EvictionCounters, Evictor, Method, Told};
use plimsoll_agent::states::ClusterStateCell;
use plimsoll_client::shutdown;
use plimsoll_plan::{Eviction, EvictionScope, Reason, Urgency};
use serde_json::json;
use tokio::sync::mpsc;

use crate::world::{Cluster, DEADLINE, NODE};

fn eviction(name: &str, uid: &str) -> Eviction {
    Eviction {
        uid: uid.into(),
        namespace: "default".into(),
        name: name.into(),
        scope: EvictionScope::Memory,
        releases: 1 << 30,
        urgency: Urgency::Orderly,
        feature: "BEMemoryEvict",
        why: Reason::new("be_memory_evict"),
    }
}

/// Asks until an event with this reason is there; gives its message.
async fn event(client: &kube::Client, reason: &str) -> String {
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let found = async {
        loop {
            let list = events.list(&ListParams::default()).await.unwrap();
            let mut all = list.items.into_iter();
            if let Some(event) = all.find(|event| event.reason.as_deref() == Some(reason)) {
                return event.message.unwrap();
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(DEADLINE, found).await {
        Ok(message) => message,
        Err(_) => panic!(
            "no event {reason} among {:?}",
            events.list(&ListParams::default()).await
        ),
    }
}

#[tokio::test]
async fn a_pod_is_evicted_by_its_uid_and_told_of() {
    let cluster = Cluster::start().await;
    let client = cluster.client();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    for name in ["batch", "other"] {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let uid = pods.get("batch").await.unwrap().metadata.uid.unwrap();
    let failed = Arc::new(Mutex::new(Vec::new()));
    let counters = Arc::new(EvictionCounters::default());
    let evictor = Evictor {
        client: client.clone(),
        board: ClusterStateCell::default(),
        method: Method::Api,
        counters: Arc::clone(&counters),
        may: Box::new(|| true),
        told: {
            let failed = Arc::clone(&failed);
            Box::new(move |eviction, told| {
                if told == Told::Failed {
                    failed.lock().unwrap().push(eviction.uid.to_string());
                }
            })
        },
        node: NODE.to_owned(),
    };
    let (trigger, shutdown) = shutdown::channel();
    let (queue, evictions) = mpsc::channel(4);
    let running = tokio::spawn(evictor.run(evictions, shutdown));
    queue.send(eviction("batch", &uid)).await.unwrap();
    // A pod of this name is there, but it is another one.
    queue
        .send(eviction("other", "some-other-uid"))
        .await
        .unwrap();
    assert_eq!(
        event(&client, "evictPodSuccess").await,
        "evict Pod:default/batch, reason: evicted, message: trigger by koordlet feature BEMemoryEvict, kill pod: batch"
    );
    let message = event(&client, "evictPodFail").await;
    assert!(
        message.starts_with("evict Pod:default/other, reason: evicted, "),
        "{message}"
    );
    trigger.stop();
    running.await.unwrap();
    assert_eq!((counters.succeeded(), counters.failed()), (1, 1));
    assert_eq!(*failed.lock().unwrap(), ["some-other-uid"]);
    let batch = pods.get_opt("batch").await.unwrap();
    assert!(batch.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
    let other = pods.get("other").await.unwrap();
    assert_eq!(other.metadata.deletion_timestamp, None);
    cluster.drain().await;
}
