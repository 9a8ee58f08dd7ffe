//! The manager on the embedded API server.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use plimsoll_apiserver::embed;
use plimsoll_manager::live::{Config, Running};
use serde_json::{Value, json};

const DEADLINE: Duration = Duration::from_secs(60);
const CRDS: &str = include_str!("../../../../deploy/manager/crds.yaml");
const SPACE: &str = "koordinator-system";

struct Cluster {
    api: embed::Running,
    manager: Running,
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looking = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let found = tokio::time::timeout(DEADLINE, looking).await;
    found.unwrap_or_else(|_| panic!("{what} did not happen"))
}

impl Cluster {
    async fn start() -> Self {
        let config = embed::Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: None,
        };
        let api = config.build().await.unwrap().spawn();
        let client = api.client();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        let documents: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(CRDS).unwrap();
        for crd in documents {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
        let spaces: Api<Namespace> = Api::all(client.clone());
        let space = serde_json::from_value(json!({"metadata": {"name": SPACE}})).unwrap();
        spaces.create(&PostParams::default(), &space).await.unwrap();
        let manager = Config::default().build(client).unwrap().spawn();
        Self { api, manager }
    }

    fn client(&self) -> Client {
        self.api.client()
    }

    fn slo(&self, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("slo.koordinator.sh", "v1alpha1", kind);
        Api::all_with(self.client(), &ApiResource::from_gvk(&kind))
    }

    async fn configure(&self, data: Value) {
        let maps: Api<ConfigMap> = Api::namespaced(self.client(), SPACE);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "slo-controller-config"}, "data": data});
        let params = PatchParams::apply("test").force();
        maps.patch("slo-controller-config", &params, &Patch::Apply(map))
            .await
            .unwrap();
    }

    async fn add_node(&self, name: &str) {
        let nodes: Api<Node> = Api::all(self.client());
        let node = json!({"metadata": {"name": name, "labels": {"pool": "a"}}});
        nodes
            .create(
                &PostParams::default(),
                &serde_json::from_value(node).unwrap(),
            )
            .await
            .unwrap();
        let resources = json!({"cpu": "10", "memory": "10000", "pods": "110"});
        let status = json!({"status": {"capacity": resources, "allocatable": resources}});
        nodes
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// As the node's agent does; `cpu` is what a pod uses.
    async fn report(&self, node: &str, cpu: &str) {
        let metrics = self.slo("NodeMetric");
        eventually("the report's object", async || {
            metrics.get_opt(node).await.unwrap()
        })
        .await;
        let status = json!({"status": {
            "updateTime": jiff::Timestamp::now().to_string(),
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": "3", "memory": "3000"}},
                "systemUsage": {"resources": {"cpu": "500m", "memory": "500"}}
            },
            "podsMetric": [{
                "name": "p", "namespace": "default", "priority": "koord-prod", "qos": "LS",
                "podUsage": {"resources": {"cpu": cpu, "memory": "1000"}}
            }]
        }});
        metrics
            .patch_status(node, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    /// A lent resource of a node, once it is as wanted.
    async fn lent(&self, node: &str, resource: &str, wanted: Option<&str>) {
        let nodes: Api<Node> = Api::all(self.client());
        let what = format!("{resource} of {wanted:?}");
        eventually(&what, async || {
            let node = nodes.get(node).await.unwrap();
            let status = node.status.unwrap();
            let of = |list: Option<std::collections::BTreeMap<String, _>>| {
                list.and_then(|list| {
                    list.get(resource).map(
                        |found: &k8s_openapi::apimachinery::pkg::api::resource::Quantity| {
                            found.0.clone()
                        },
                    )
                })
            };
            let both = (of(status.allocatable), of(status.capacity));
            (both.0.as_deref() == wanted && both.1.as_deref() == wanted).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_node_lends_what_its_pods_do_not_use() {
    let cluster = Cluster::start().await;
    cluster
        .configure(json!({"colocation-config": r#"{"enable":true}"#}))
        .await;
    cluster.add_node("n1").await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4", "memory": "4000"}}}]}
    });
    pods.create(
        &PostParams::default(),
        &serde_json::from_value(pod).unwrap(),
    )
    .await
    .unwrap();
    cluster.report("n1", "1").await;
    // 10 cores less 4 of margin, half a core for the system, and what the pod uses.
    cluster
        .lent("n1", "kubernetes.io/batch-cpu", Some("4500"))
        .await;
    cluster
        .lent("n1", "kubernetes.io/batch-memory", Some("5k"))
        .await;
    cluster.report("n1", "3").await;
    cluster
        .lent("n1", "kubernetes.io/batch-cpu", Some("2500"))
        .await;
    let slos = cluster.slo("NodeSLO");
    eventually("the node's policy", async || {
        let slo = slos.get_opt("n1").await.unwrap()?;
        (slo.data["spec"]["cpuBurstStrategy"]["policy"] == "none").then_some(())
    })
    .await;
    // Nothing is lent where nothing is to be.
    cluster
        .configure(json!({"colocation-config": r#"{"enable":false}"#}))
        .await;
    cluster.lent("n1", "kubernetes.io/batch-cpu", None).await;
    cluster.manager.drain(DEADLINE).await;
    cluster.api.drain(DEADLINE).await;
}

#[tokio::test]
async fn bad_configuration_is_told_and_changes_nothing() {
    let cluster = Cluster::start().await;
    let threshold = |percent: &str| {
        let text = format!(
            r#"{{"clusterStrategy":{{"cpuSuppressThresholdPercent":50}},"nodeStrategies":[{{"nodeSelector":{{"matchLabels":{{"pool":"a"}}}},"cpuSuppressThresholdPercent":{percent}}}]}}"#
        );
        json!({"resource-threshold-config": text})
    };
    cluster.configure(threshold("40")).await;
    cluster.add_node("n1").await;
    let slos = cluster.slo("NodeSLO");
    let percent = async |wanted: i64| {
        eventually("the policy", async || {
            let slo = slos.get_opt("n1").await.unwrap()?;
            (slo.data["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"]
                == wanted)
                .then_some(())
        })
        .await;
    };
    percent(40).await;
    cluster.configure(threshold("400")).await;
    let events: Api<Event> = Api::namespaced(cluster.client(), SPACE);
    let event = eventually("an event", async || {
        let found = events.list(&ListParams::default()).await.unwrap();
        found
            .items
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("SLOCfgUnmarshalFailed"))
    })
    .await;
    assert!(
        event
            .message
            .unwrap()
            .contains("nodeStrategies[0].cpuSuppressThresholdPercent")
    );
    percent(40).await;
    cluster.configure(threshold("30")).await;
    percent(30).await;
    cluster.manager.drain(DEADLINE).await;
    cluster.api.drain(DEADLINE).await;
}

#[tokio::test]
async fn what_belongs_to_a_node_goes_with_it() {
    let cluster = Cluster::start().await;
    cluster.add_node("n1").await;
    let (metrics, slos) = (cluster.slo("NodeMetric"), cluster.slo("NodeSLO"));
    eventually("both objects", async || {
        let both = (
            metrics.get_opt("n1").await.unwrap(),
            slos.get_opt("n1").await.unwrap(),
        );
        matches!(both, (Some(_), Some(_))).then_some(())
    })
    .await;
    let nodes: Api<Node> = Api::all(cluster.client());
    nodes.delete("n1", &DeleteParams::default()).await.unwrap();
    eventually("their end", async || {
        let both = (
            metrics.get_opt("n1").await.unwrap(),
            slos.get_opt("n1").await.unwrap(),
        );
        matches!(both, (None, None)).then_some(())
    })
    .await;
    cluster.manager.drain(DEADLINE).await;
    cluster.api.drain(DEADLINE).await;
}

#[tokio::test]
async fn a_node_may_ask_for_its_own_pods_only() {
    use plimsoll_api::eviction_wishes::{self, Wish};
    let cluster = Cluster::start().await;
    cluster
        .configure(json!({"colocation-config": r#"{"enable":true}"#}))
        .await;
    let pods: Api<Pod> = Api::default_namespaced(cluster.client());
    let mut wishes = Vec::new();
    // What is asked for last is done last: when the pod of n1 goes, the one of n2 was looked at.
    for (node, name) in [("n2", "elsewhere"), ("n1", "here")] {
        cluster.add_node(node).await;
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}
        });
        let pod = serde_json::from_value(pod).unwrap();
        let pod = pods.create(&PostParams::default(), &pod).await.unwrap();
        wishes.push(Wish {
            uid: pod.metadata.uid.unwrap(),
            namespace: "default".to_owned(),
            name: name.to_owned(),
            feature: "BEMemoryEvict".to_owned(),
            reason: "node_memory".to_owned(),
            at: jiff::Timestamp::now().as_second(),
        });
    }
    cluster.report("n1", "1").await;
    let text = serde_json::to_string(&wishes).unwrap();
    let patch = json!({"metadata": {"annotations": {eviction_wishes::ANNOTATION: text}}});
    let metrics = cluster.slo("NodeMetric");
    metrics
        .patch("n1", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    eventually("the eviction", async || {
        let pod = pods.get_opt("here").await.unwrap();
        pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some())
            .then_some(())
    })
    .await;
    let other = pods.get("elsewhere").await.unwrap();
    assert_eq!(other.metadata.deletion_timestamp, None);
    let events: Api<Event> = Api::default_namespaced(cluster.client());
    let event = eventually("an event", async || {
        let found = events.list(&ListParams::default()).await.unwrap();
        let mut found = found.items.into_iter();
        found.find(|event| event.reason.as_deref() == Some("evictPodSuccess"))
    })
    .await;
    assert_eq!(event.involved_object.name.as_deref(), Some("here"));
    cluster.manager.drain(DEADLINE).await;
    cluster.api.drain(DEADLINE).await;
}
