use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams};
use parking_lot::Mutex;
use plimsoll_agent::reports::{self, Sources, UsageSource};
use plimsoll_agent::states::{self, ClusterState, ClusterStateCell};
use plimsoll_history::{Series, Summary};
use plimsoll_host::gpu::Device;
use plimsoll_host::{Clock, HostRoot};
use plimsoll_predict::reclaim::Reclaimable;
use serde_json::{Value, json};

use crate::states::by_kubelet;
use crate::world::{Cluster, DEADLINE, FakeKubelet, NODE, Place, seen};

/// Averages that can be changed.
#[derive(Default)]
struct TopologyReport(Mutex<HashMap<String, f64>>, Vec<Device>);

impl TopologyReport {
    fn set(&self, series: &str, value: f64) {
        self.0.lock().insert(series.to_owned(), value);
    }
}

impl UsageSource for TopologyReport {
    fn summary(&self, series: &Series, window: Duration, _: Timestamp) -> Option<Summary> {
        let avg = *self.0.lock().get(&series.to_string())?;
        Some(Summary {
            avg,
            last: avg,
            p50: avg,
            p90: avg,
            p95: avg,
            p99: avg,
            count: 300,
            span: window,
        })
    }

    fn forecast(&self, _: &ClusterState, _: Duration, _: Timestamp) -> Option<Reclaimable> {
        Some(Reclaimable::default())
    }

    fn gpus(&self) -> Vec<Device> {
        self.1.clone()
    }
}

/// One NUMA node of two CPUs.
fn machine(dir: &Path) -> HostRoot {
    let put = |path: &str, text: &str| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(
        "proc/cpuinfo",
        "processor : 0\nvendor_id : AuthenticAMD\nmodel name : AMD EPYC\n",
    );
    put("sys/devices/system/cpu/online", "0-1\n");
    for cpu in 0..2 {
        let at = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        put(&format!("{at}/core_id"), &format!("{cpu}\n"));
        put(&format!("{at}/physical_package_id"), "0\n");
        put(&format!("sys/devices/system/node/node0/cpu{cpu}/x"), "");
    }
    put(
        "sys/devices/system/node/node0/meminfo",
        "Node 0 MemTotal: 17261124 kB\nNode 0 MemFree: 1024 kB\n",
    );
    HostRoot::new(dir)
}

struct Agent {
    states: states::Running,
    reports: reports::Running,
    cluster_state: ClusterStateCell,
}

fn agent(
    cluster: &Cluster,
    figures: Arc<TopologyReport>,
    root: HostRoot,
    config: reports::Config,
) -> Agent {
    follower(cluster, states::Config::new(NODE), figures, root, config)
}

/// One that learns about pods and policies as it is told to.
fn follower(
    cluster: &Cluster,
    states: states::Config,
    figures: Arc<TopologyReport>,
    root: HostRoot,
    config: reports::Config,
) -> Agent {
    let cluster_state = ClusterStateCell::default();
    let states = states.build(cluster.client(), cluster_state.clone());
    let sources = Sources {
        cluster_state: cluster_state.clone(),
        figures,
        clock: Clock::Real,
        root,
    };
    Agent {
        states: states.spawn(),
        reports: config.build(cluster.client(), sources).spawn(),
        cluster_state,
    }
}

impl Agent {
    async fn drain(self) {
        self.reports.drain(DEADLINE).await;
        self.states.drain(DEADLINE).await;
    }
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
    found.unwrap_or_else(|_| panic!("{what}: in vain"))
}

#[tokio::test]
async fn usage_is_reported_and_again_when_it_moves() {
    let cluster = Cluster::start().await;
    cluster.define().await;
    cluster.put_node(json!({})).await;
    let temp = tempfile::tempdir().unwrap();
    let figures = Arc::new(TopologyReport::default());
    figures.set("node_cpu_usage", 1.25);
    figures.set("node_memory_usage", 1024.0 * 1024.0);
    let config = reports::Config {
        topology: None,
        ..reports::Config::new(NODE)
    };
    let agent = agent(&cluster, Arc::clone(&figures), machine(temp.path()), config);
    let counters = agent.reports.counters();
    // The manager comes later.
    seen(&agent.cluster_state, "the node", |known| {
        known.node.is_some()
    })
    .await;
    assert_eq!(counters.reports.get(), 0);
    cluster
        .put_slo(
            "NodeMetric",
            json!({"metricCollectPolicy": {"reportIntervalSeconds": 3600}}),
        )
        .await;
    let metrics = cluster.slo("NodeMetric");
    let cpu = async |wanted: &str| {
        eventually(wanted, async || {
            let metric = metrics.get_opt(NODE).await.unwrap()?;
            let usage = &metric.data["status"]["nodeMetric"]["nodeUsage"]["resources"];
            (usage["cpu"] == wanted).then(|| metric.data["status"].clone())
        })
        .await
    };
    let status = cpu("1250m").await;
    assert_eq!(
        status["nodeMetric"]["nodeUsage"]["resources"]["memory"],
        "1Mi"
    );
    let updated: Timestamp = status["updateTime"].as_str().unwrap().parse().unwrap();
    assert!(Timestamp::now().duration_since(updated).as_hours() < 1);
    assert_eq!(counters.early.get(), 0);
    // By more than a twentieth of ten cores, an hour before the time.
    figures.set("node_cpu_usage", 2.0);
    cpu("2").await;
    // Counted once the answer is there, which is after others can see it.
    eventually("both are counted", async || {
        ((counters.reports.get(), counters.early.get()) == (2, 1)).then_some(())
    })
    .await;
    // Without its object there is nobody to tell, until there is one again.
    metrics
        .delete(NODE, &DeleteParams::default())
        .await
        .unwrap();
    seen(&agent.cluster_state, "no object", |known| {
        known.collect_policy.is_none()
    })
    .await;
    // The new one is told at once, although nothing has moved.
    let hour = json!({"metricCollectPolicy": {"reportIntervalSeconds": 3600}});
    cluster.put_slo("NodeMetric", hour).await;
    cpu("2").await;
    agent.drain().await;
    cluster.drain().await;
}

#[tokio::test]
async fn a_kubelet_that_is_away_keeps_nobody_from_reporting() {
    let cluster = Cluster::start().await;
    cluster.define().await;
    cluster.put_node(json!({})).await;
    let hour = json!({"metricCollectPolicy": {"reportIntervalSeconds": 3600}});
    cluster.put_slo("NodeMetric", hour).await;
    let temp = tempfile::tempdir().unwrap();
    let figures = Arc::new(TopologyReport::default());
    for of in ["node_cpu_usage", "node_memory_usage"] {
        figures.set(of, 1.0);
    }
    for pod in ["a", "b", "c"] {
        figures.set(&format!("pod_cpu_usage{{pod_uid=uid-{pod}}}"), 0.5);
        figures.set(&format!("pod_memory_usage{{pod_uid=uid-{pod}}}"), 1024.0);
    }
    let place = Place::reserve();
    let kubelet = FakeKubelet::at(&place).await;
    kubelet.tell(&["a", "b"]);
    let often = Duration::from_millis(20);
    let (states, _) = by_kubelet(&kubelet, often, "http://127.0.0.1:1").await;
    let config = reports::Config {
        topology: None,
        ..reports::Config::new(NODE)
    };
    let root = machine(temp.path());
    let agent = follower(&cluster, states, Arc::clone(&figures), root, config);
    let asked = agent.states.counters();
    let metrics = cluster.slo("NodeMetric");
    // A report with this usage of the node, whose pods are these.
    let told = async |cpu: &str, pods: &[&str]| {
        let pods: Vec<Value> = pods.iter().map(|pod| json!(pod)).collect();
        eventually(&format!("{cpu} cores and {pods:?}"), async || {
            let metric = metrics.get_opt(NODE).await.unwrap()?;
            let status = &metric.data["status"];
            let usage = &status["nodeMetric"]["nodeUsage"]["resources"]["cpu"];
            let found = status["podsMetric"].as_array()?.iter();
            let found: Vec<Value> = found.map(|pod| pod["name"].clone()).collect();
            (usage == cpu && found == pods).then_some(())
        })
        .await;
    };
    told("1", &["a", "b"]).await;
    kubelet.stop().await;
    let before = asked.pod_list_failures.get();
    eventually("it is missed", async || {
        (asked.pod_list_failures.get() > before + 2).then_some(())
    })
    .await;
    // What was known of the pods still is, and what they use is measured without the kubelet.
    figures.set("node_cpu_usage", 3.0);
    told("3", &["a", "b"]).await;
    let kubelet = FakeKubelet::at(&place).await;
    kubelet.tell(&["b", "c"]);
    seen(&agent.cluster_state, "its new pods", |known| {
        let pods = known.pods.as_deref().unwrap_or_default();
        pods.iter().any(|pod| &*pod.name == "c")
    })
    .await;
    figures.set("node_cpu_usage", 5.0);
    told("5", &["b", "c"]).await;
    agent.drain().await;
    cluster.drain().await;
}

#[tokio::test]
async fn the_topology_is_told_and_what_others_add_stays() {
    let cluster = Cluster::start().await;
    cluster.define().await;
    cluster.put_node(json!({})).await;
    let temp = tempfile::tempdir().unwrap();
    let config = reports::Config {
        metrics: false,
        topology: Some(Duration::from_millis(20)),
        ..reports::Config::new(NODE)
    };
    let agent = agent(&cluster, Arc::default(), machine(temp.path()), config);
    let topologies = cluster.objects("topology.node.k8s.io", "v1alpha1", "NodeResourceTopology");
    let object = eventually("the object", async || {
        let object = topologies.get_opt(NODE).await.unwrap()?;
        Some(serde_json::to_value(object).unwrap())
    })
    .await;
    // As Koordinator's agent wrote it of such a machine, but for what it asked of the kubelet and the manager added.
    assert_eq!(
        object["zones"],
        json!([{"name": "node-0", "type": "Node", "resources": [
            {"name": "cpu", "capacity": "2", "allocatable": "2", "available": "2"},
            {"name": "hugepages-1Gi", "capacity": "0", "allocatable": "0", "available": "0"},
            {"name": "hugepages-2Mi", "capacity": "0", "allocatable": "0", "available": "0"},
            {"name": "memory", "capacity": "17261124Ki", "allocatable": "17261124Ki", "available": "17261124Ki"},
        ]}])
    );
    let annotations = &object["metadata"]["annotations"];
    assert_eq!(
        annotations["node.koordinator.sh/cpu-topology"],
        r#"{"detail":[{"id":0,"core":0,"socket":0,"node":0},{"id":1,"core":1,"socket":0,"node":0}]}"#
    );
    assert_eq!(
        annotations["node.koordinator.sh/cpu-basic-info"],
        r#"{"cpuModel":"AMD EPYC","vendorID":"AuthenticAMD"}"#
    );
    assert_eq!(
        object["metadata"]["labels"],
        json!({"app.kubernetes.io/managed-by": "Koordinator"})
    );
    assert_eq!(object["topologyPolicies"], json!(["None"]));
    let known = seen(&agent.cluster_state, "the pools", |known| {
        known.cpu_pools.is_some()
    })
    .await;
    assert_eq!(known.cpu_pools.unwrap().shared[0].cpuset, "0-1");
    // Another writes to it, and the node's annotation changes: both hold.
    let mut zones: Value = object["zones"].clone();
    let batch = json!({"name": "kubernetes.io/batch-cpu", "capacity": "319", "allocatable": "319", "available": "319"});
    zones[0]["resources"].as_array_mut().unwrap().push(batch);
    let patch = Patch::Merge(json!({"zones": zones, "metadata": {"annotations": {"mine": "1"}}}));
    topologies
        .patch(NODE, &PatchParams::default(), &patch)
        .await
        .unwrap();
    cluster
        .put_node(json!({"node.koordinator.sh/reservation": r#"{"reservedCPUs":"1"}"#}))
        .await;
    eventually("both", async || {
        let object = topologies.get(NODE).await.unwrap();
        let object = serde_json::to_value(object).unwrap();
        let annotations = &object["metadata"]["annotations"];
        let pools = annotations["node.koordinator.sh/cpu-shared-pools"].as_str()?;
        let resources = object["zones"][0]["resources"].as_array()?;
        let lent = resources
            .iter()
            .any(|one| one["name"] == "kubernetes.io/batch-cpu");
        (pools.contains(r#""cpuset":"0""#) && lent && annotations["mine"] == "1").then_some(())
    })
    .await;
    // Whoever deletes it has it back at once.
    let before = topologies.get(NODE).await.unwrap().metadata.uid;
    topologies
        .delete(NODE, &DeleteParams::default())
        .await
        .unwrap();
    eventually("another", async || {
        let object = topologies.get_opt(NODE).await.unwrap()?;
        (object.metadata.uid != before).then_some(())
    })
    .await;
    // A node that comes back is another one, and would take the object of the first with it.
    let nodes = cluster.objects("", "v1", "Node");
    let first = nodes.get(NODE).await.unwrap().metadata.uid;
    nodes.delete(NODE, &DeleteParams::default()).await.unwrap();
    cluster.put_node(json!({})).await;
    let second = nodes.get(NODE).await.unwrap().metadata.uid;
    assert_ne!(first, second);
    eventually("its owner", async || {
        let object = topologies.get_opt(NODE).await.unwrap()?;
        let owners = object.metadata.owner_references?;
        (Some(&owners[0].uid) == second.as_ref()).then_some(())
    })
    .await;
    agent.drain().await;
    cluster.drain().await;
}

#[tokio::test]
async fn devices_are_told_where_there_are_any() {
    let cluster = Cluster::start().await;
    cluster.define().await;
    cluster.put_node(json!({})).await;
    let temp = tempfile::tempdir().unwrap();
    let gpu = Device {
        uuid: "GPU-1".into(),
        model: "Tesla T4".into(),
        driver: "535".into(),
        memory: 16 << 30,
        ..Device::default()
    };
    let figures = Arc::new(TopologyReport(Mutex::default(), vec![gpu]));
    let config = reports::Config {
        metrics: false,
        topology: None,
        devices: reports::Devices {
            gpus: true,
            rdma: true,
            ..reports::Devices::default()
        },
        ..reports::Config::new(NODE)
    };
    let root = machine(temp.path());
    let card = temp.path().join("sys/bus/pci/devices/0000:3b:00.0");
    std::fs::create_dir_all(card.join("infiniband/mlx5_2/ports/1")).unwrap();
    std::fs::write(card.join("class"), "0x020000\n").unwrap();
    std::fs::write(card.join("infiniband/mlx5_2/ports/1/state"), "4: ACTIVE\n").unwrap();
    let agent = agent(&cluster, figures, root, config);
    let devices = cluster.objects("scheduling.koordinator.sh", "v1alpha1", "Device");
    let device = eventually("the device", async || devices.get_opt(NODE).await.unwrap()).await;
    assert_eq!(device.data["spec"]["devices"][0]["id"], "GPU-1");
    let card = &device.data["spec"]["devices"][1];
    assert_eq!((&card["type"], &card["minor"]), (&json!("rdma"), &json!(2)));
    assert_eq!(
        (&card["id"], &card["health"]),
        (&json!("0000:3b:00.0"), &json!(true))
    );
    eventually("it is counted", async || {
        (agent.reports.counters().devices.written.get() == 1).then_some(())
    })
    .await;
    assert_eq!(
        device.metadata.labels.unwrap()["node.koordinator.sh/gpu-model"],
        "Tesla-T4"
    );
    let owner = &device.metadata.owner_references.unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", NODE));
    agent.drain().await;
    cluster.drain().await;
}

#[tokio::test]
async fn a_cluster_without_the_managers_kinds_is_complained_about_once() {
    let cluster = Cluster::start().await;
    cluster.put_node(json!({})).await;
    let temp = tempfile::tempdir().unwrap();
    let cluster_state = ClusterStateCell::default();
    let states = states::Config::new(NODE);
    let absence = states.absence.clone();
    let config = reports::Config {
        absence: absence.clone(),
        ..reports::Config::new(NODE)
    };
    let sources = Sources {
        cluster_state: cluster_state.clone(),
        figures: Arc::new(TopologyReport::default()),
        clock: Clock::Real,
        root: machine(temp.path()),
    };
    let agent = Agent {
        states: states
            .build(cluster.client(), cluster_state.clone())
            .spawn(),
        reports: config.build(cluster.client(), sources).spawn(),
        cluster_state,
    };
    eventually("the topology is tried", async || {
        let topology = &agent.reports.counters().topology;
        (topology.failures.get() > 0).then_some(())
    })
    .await;
    eventually("the kinds are missed", async || {
        let missed = |name: &str| {
            let rounds = agent.states.rounds().iter();
            let mut of = rounds.filter(|(kind, _)| *kind == name);
            of.any(|(_, rounds)| rounds.failures() > 0)
        };
        (missed("nodeslos") && missed("nodemetrics")).then_some(())
    })
    .await;
    assert!(absence.is_told());
    // As soon as they are there, all is as if they always had been.
    cluster.define().await;
    cluster.put_slo("NodeMetric", json!({})).await;
    seen(&agent.cluster_state, "what is to be collected", |known| {
        known.collect_policy.is_some()
    })
    .await;
    agent.drain().await;
    cluster.drain().await;
}
