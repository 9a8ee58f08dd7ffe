//! The scheduler on the embedded API server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_scheduler::config::Configuration;
use plimsoll_scheduler::live::{Connections, Options};
use serde_json::{Value, json};

use crate::support::{Cluster, pod};

fn condition(pod: &Value) -> Option<&Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "PodScheduled")
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_are_bound_and_told_of() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "4", json!({})).await;
    cluster.pod(pod("a", "1")).await;
    let bound = cluster.bound("a").await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    let event = cluster.event("a", "Scheduled").await;
    assert_eq!(event["message"], "Successfully assigned default/a to n1");
    assert_eq!(event["action"], "Binding");
    assert_eq!(event["type"], "Normal");
    assert_eq!(event["reportingComponent"], "default-scheduler");
    let instance = event["reportingInstance"].as_str().unwrap();
    assert!(instance.starts_with("default-scheduler-"), "{instance}");
    assert_eq!(event["involvedObject"]["uid"], bound["metadata"]["uid"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_says_why_and_fits_later() {
    let cluster = Cluster::start().await;
    cluster.pod(pod("a", "1")).await;
    let waiting = cluster
        .eventually("a condition", async |cluster| {
            let pod = cluster.get("/api/v1/namespaces/default/pods/a").await;
            condition(&pod).is_some().then_some(pod)
        })
        .await;
    let told = condition(&waiting).unwrap();
    assert_eq!(told["status"], "False");
    assert_eq!(told["reason"], "Unschedulable");
    assert_eq!(told["message"], "no nodes available to schedule pods");
    assert!(told["lastTransitionTime"].is_string());
    cluster.node("small", "500m", json!({})).await;
    let text = "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are \
                available: 1 Preemption is not helpful for scheduling.";
    cluster
        .eventually("the reason", async |cluster| {
            let pod = cluster.get("/api/v1/namespaces/default/pods/a").await;
            condition(&pod)
                .filter(|told| told["message"] == text)
                .cloned()
        })
        .await;
    let report = cluster
        .scheduler
        .shared()
        .explain("default", "a")
        .await
        .unwrap();
    assert_eq!(report.fitting_nodes, 0);
    assert_eq!(
        report.would_fit,
        ["on small with 500m more cpu (it asks for 1, 500m of 500m are free)"]
    );
    cluster.node("large", "4", json!({})).await;
    assert_eq!(cluster.bound("a").await["spec"]["nodeName"], "large");
    let report = cluster
        .scheduler
        .shared()
        .explain("default", "a")
        .await
        .unwrap();
    assert_eq!(report.node.as_deref(), Some("large"));
    assert!(report.cycles.len() >= 3, "{:?}", report.cycles);
    assert!(report.text().starts_with("pod default/a is on large"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_more_important_pod_takes_the_place() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "1", json!({})).await;
    for (name, value) in [("low", 1), ("high", 1000)] {
        cluster
            .create(
                "/apis/scheduling.k8s.io/v1/priorityclasses",
                json!({"metadata": {"name": name}, "value": value}),
            )
            .await;
    }
    let with_class = |name: &str, class: &str| {
        let mut pod = pod(name, "800m");
        pod["spec"]["priorityClassName"] = class.into();
        pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
        pod
    };
    cluster.pod(with_class("victim", "low")).await;
    cluster.bound("victim").await;
    cluster.pod(with_class("preemptor", "high")).await;
    let bound = cluster.bound("preemptor").await;
    assert_eq!(bound["spec"]["nodeName"], "n1");
    let event = cluster.event("victim", "Preempted").await;
    let uid = bound["metadata"]["uid"].as_str().unwrap();
    assert_eq!(
        event["message"],
        format!("Preempted by pod {uid} on node n1")
    );
    assert!(event["related"].is_null(), "{event}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_are_spread_over_zones() {
    let cluster = Cluster::start().await;
    let zones = [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")];
    let zones = zones.map(|(name, zone)| (name, "8", json!({"topology.kubernetes.io/zone": zone})));
    cluster.nodes(&zones).await;
    for index in 0..6 {
        let mut pod = pod(&format!("p{index}"), "100m");
        pod["metadata"]["labels"] = json!({"app": "x"});
        pod["spec"]["topologySpreadConstraints"] = json!([{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}}}]);
        cluster.pod(pod).await;
    }
    let mut zones = std::collections::BTreeMap::new();
    for index in 0..6 {
        let bound = cluster.bound(&format!("p{index}")).await;
        let node = bound["spec"]["nodeName"]
            .as_str()
            .unwrap()
            .chars()
            .next()
            .unwrap();
        *zones.entry(node).or_insert(0) += 1;
    }
    assert_eq!(zones.into_values().collect::<Vec<_>>(), [2, 2, 2]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_are_bound_first() {
    let cluster = Cluster::start().await;
    cluster
        .node("n1", "4", json!({"kubernetes.io/hostname": "n1"}))
        .await;
    cluster
        .node("n2", "4", json!({"kubernetes.io/hostname": "n2"}))
        .await;
    cluster
        .create("/apis/storage.k8s.io/v1/storageclasses", json!({"metadata": {"name": "local"},
            "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}))
        .await;
    cluster
        .create("/api/v1/persistentvolumes", json!({"metadata": {"name": "v2"}, "spec": {
            "capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
            "local": {"path": "/data"}, "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n2"]}]}]}}}}))
        .await;
    let available = json!({"status": {"phase": "Available"}});
    cluster
        .patch("/api/v1/persistentvolumes/v2/status", available)
        .await;
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    cluster
        .create(
            claims,
            json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "storageClassName": "local", "resources": {"requests": {"storage": "1Gi"}}}}),
        )
        .await;
    let mut wanting = pod("a", "100m");
    wanting["spec"]["volumes"] =
        json!([{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]);
    cluster.pod(wanting).await;
    // Whoever binds claims sees the volume kept for it, and completes the binding.
    let volume = cluster
        .eventually("the volume is given to the claim", async |cluster| {
            let volume = cluster.get("/api/v1/persistentvolumes/v2").await;
            (volume["spec"]["claimRef"]["name"] == "c").then_some(volume)
        })
        .await;
    assert_eq!(
        volume["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"],
        "yes"
    );
    let completed = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "v2"}});
    cluster.patch(&format!("{claims}/c"), completed).await;
    assert_eq!(cluster.bound("a").await["spec"]["nodeName"], "n2");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_other_schedulers_are_left_alone() {
    let mut config = Configuration::default();
    config.profiles[0].scheduler_name = "ours".to_owned();
    let cluster = Cluster::start_with(config).await;
    cluster.node("n1", "4", json!({})).await;
    let mut own = pod("own", "1");
    own["spec"]["schedulerName"] = "ours".into();
    cluster.pod(pod("other", "1")).await;
    cluster.pod(own).await;
    cluster.bound("own").await;
    let other = cluster.get("/api/v1/namespaces/default/pods/other").await;
    assert!(other["spec"]["nodeName"].is_null());
    assert!(condition(&other).is_none());
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_pods_none_lost_and_none_beyond_capacity() {
    let cluster = Cluster::start().await;
    for index in 0..20 {
        cluster.node(&format!("n{index}"), "4", json!({})).await;
    }
    // Room for 20 x 4 of them.
    let pods = (0..100).map(|index| pod(&format!("p{index}"), "1"));
    for pod in pods {
        cluster.pod(pod).await;
    }
    let on_nodes = cluster
        .eventually("80 are bound and 20 told why not", async |cluster| {
            let list = cluster.get("/api/v1/namespaces/default/pods").await;
            let pods = list["items"].as_array()?.clone();
            let nodes: Vec<String> = pods
                .iter()
                .filter_map(|pod| pod["spec"]["nodeName"].as_str().map(str::to_owned))
                .collect();
            let told = pods
                .iter()
                .filter(|pod| condition(pod).is_some_and(|told| told["reason"] == "Unschedulable"));
            (nodes.len() == 80 && told.count() == 20).then_some(nodes)
        })
        .await;
    let mut by_node = std::collections::BTreeMap::new();
    for node in on_nodes {
        *by_node.entry(node).or_insert(0) += 1;
    }
    assert!(by_node.values().all(|pods| *pods == 4), "{by_node:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_file_is_taken_and_a_bad_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    let text = |name: &str| {
        format!(
            "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {{leaderElect: false}}\nprofiles: [{{schedulerName: {name}}}]\n"
        )
    };
    std::fs::write(&file, text("first")).unwrap();
    let cluster = Cluster::start_from(&file).await;
    cluster.node("n1", "4", json!({})).await;
    let of = |name: &str, scheduler: &str| {
        let mut pod = pod(name, "100m");
        pod["spec"]["schedulerName"] = scheduler.into();
        pod
    };
    cluster.pod(of("a", "first")).await;
    cluster.bound("a").await;
    cluster.pod(of("b", "second")).await;
    std::fs::write(&file, "nonsense").unwrap();
    cluster.pod(of("c", "first")).await;
    cluster.bound("c").await;
    std::fs::write(&file, text("second")).unwrap();
    cluster.bound("b").await;
    // The profile that has come tells of all that it does, not only of the first.
    for name in ["d", "e"] {
        cluster.pod(of(name, "second")).await;
        let event = cluster.event(name, "Scheduled").await;
        assert_eq!(event["reportingComponent"], "second");
    }
    cluster.stop().await;
}

/// Name, type, labels and bounds of a family: those of a page, or a line of `families.txt`.
type Families = BTreeMap<String, (String, BTreeSet<String>, BTreeSet<String>)>;

fn families(page: &str) -> Families {
    let mut families = Families::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(told) = line.strip_prefix("# TYPE ") {
            let (name, kind) = told.split_once(' ').unwrap();
            current = name.to_owned();
            let family = (kind.to_owned(), BTreeSet::new(), BTreeSet::new());
            families.insert(current.clone(), family);
        } else if let Some((_, labels)) = line.split_once('{').filter(|_| !line.starts_with('#')) {
            let (_, keys, bounds) = families.get_mut(&current).unwrap();
            let (labels, _) = labels.rsplit_once('}').unwrap();
            for label in labels.split("\",") {
                let (key, value) = label.split_once("=\"").unwrap();
                match key {
                    "le" => bounds.insert(value.trim_end_matches('"').to_owned()),
                    _ => keys.insert(key.to_owned()),
                };
            }
        }
    }
    families
}

fn words(list: &str) -> BTreeSet<String> {
    let words = list.split(',').filter(|word| *word != "-");
    words.map(str::to_owned).collect()
}

/// Every family that the original has is there, and where it says anything, it is in the same shape.
#[tokio::test(flavor = "multi_thread")]
async fn figures_have_the_originals_shape() {
    let cluster = Cluster::start().await;
    cluster.node("n1", "4", json!({})).await;
    cluster.pod(pod("a", "1")).await;
    cluster.bound("a").await;
    cluster.pod(pod("large", "9")).await;
    cluster.event("large", "FailedScheduling").await;
    let ours = cluster
        .eventually("both are counted", async |cluster| {
            let page = cluster.scheduler.shared().metrics().await;
            // More than once if a pod was tried before its node was known.
            let counted = |result| {
                let labels = format!("{{profile=\"default-scheduler\",result=\"{result}\"}} ");
                let line = format!("scheduler_schedule_attempts_total{labels}");
                let times = page.lines().find_map(|one| one.strip_prefix(&line));
                times.is_some_and(|times| times.parse::<f64>().unwrap() >= 1.0)
            };
            (counted("scheduled") && counted("unschedulable")).then(|| families(&page))
        })
        .await;
    let theirs = include_str!("families.txt").lines();
    for line in theirs.filter(|line| !line.starts_with('#')) {
        let parts: Vec<&str> = line.split(' ').collect();
        let [name, kind, labels, bounds] = parts[..] else {
            panic!("not a family: {line}");
        };
        let (our_kind, our_labels, our_bounds) = ours.get(name).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(our_kind, kind, "{name}");
        if !our_labels.is_empty() || labels == "-" {
            assert_eq!(*our_labels, words(labels), "{name}");
        }
        if !our_bounds.is_empty() {
            assert_eq!(*our_bounds, words(bounds), "{name}");
        }
    }
    cluster.stop().await;
}

/// What is checked and not spawned does nothing, and leaves nothing behind.
#[tokio::test]
async fn building_starts_nothing() {
    let never = tower::service_fn(|_: http::Request<kube::client::Body>| async {
        std::future::pending::<Result<http::Response<kube::client::Body>, http::Error>>().await
    });
    let connections = Connections::one(kube::Client::new(never, "default"));
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    let before = tasks();
    let mut configuration = Configuration::default();
    assert!(configuration.leader_election.leader_elect);
    configuration.check().unwrap();
    let ready = Options::new(configuration).build(connections).unwrap();
    // Each client has a queue, which is a task of kube's: that by which a leader writes, and that for its events.
    assert_eq!(tasks(), before + 2);
    drop(ready);
    let gone = async {
        while tasks() > before - 1 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), gone)
        .await
        .unwrap();
}
