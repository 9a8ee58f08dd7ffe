//! The pages of a history and a cluster that are made up.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::pod::Classes;
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_cadvisor::exposition::{Gathered, Text};
use plimsoll_history::{Config, Predictions, UsageHistory, metrics as c};
use plimsoll_host::Timestamp;
use plimsoll_predict::Amount;
use plimsoll_predict::reclaim::Reclaimable;

use super::{Page, unavailable};
use crate::states::{
    ClusterState, Container, CpuPool, CpuPools, HostApplication, Node, NodeSlo, Phase, Pod,
};

const START: i64 = 1_700_000_000;
const ID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn cluster() -> ClusterState {
    let quantities = |pairs: &[(&str, &str)]| {
        let parsed = pairs
            .iter()
            .map(|(name, value)| ((*name).into(), value.parse().unwrap()));
        parsed.collect()
    };
    let pool = |cpuset: &str| {
        vec![CpuPool {
            socket: 0,
            node: 0,
            cpuset: cpuset.into(),
        }]
    };
    let pod = Pod {
        uid: "web-1".into(),
        namespace: "default".into(),
        name: "web".into(),
        classes: Classes::of(None, None, Some("Burstable")),
        priority: None,
        phase: Phase::Running,
        created: jiff::Timestamp::UNIX_EPOCH,
        terminating: false,
        requests: quantities(&[("cpu", "3"), ("memory", "4Gi")]),
        limits: quantities(&[]),
        containers: [Container {
            name: "main".into(),
            id: Some(ID.into()),
            sidecar: false,
            running: true,
            actual: None,
            full_id: Some(format!("containerd://{ID}").into()),
            requests: quantities(&[("kubernetes.io/batch-cpu", "500")]),
            limits: quantities(&[]),
        }]
        .into(),
        claims: Box::default(),
        labels: Default::default(),
        annotations: Default::default(),
    };
    ClusterState {
        pods: Some([pod].into()),
        node: Some(Arc::new(Node {
            allocatable: quantities(&[("cpu", "2"), ("kubernetes.io/batch-cpu", "319")]),
            ..Node::default()
        })),
        node_slo: Arc::new(NodeSlo {
            host_applications: vec![HostApplication {
                name: "yarn".into(),
                priority: PriorityClass::Batch,
                qos: QosClass::Be,
                cgroups: vec!["host/yarn".into()],
            }],
            ..NodeSlo::default()
        }),
        cpu_pools: Some(Arc::new(CpuPools {
            shared: pool("0-1,3"),
            best_effort: pool("2"),
            ..CpuPools::default()
        })),
        ..ClusterState::default()
    }
}

/// Ten seconds of a node that uses 2 cores and 8 GiB.
fn history() -> UsageHistory {
    let history = UsageHistory::open(Config::default(), Timestamp::from_secs(START));
    for second in 0..10 {
        let figures = [
            (c::NODE_BE.of(&["cpu", "usage"]), 100.0),
            (c::HOST_APPLICATION_CPU_USAGE.of(&["yarn"]), 0.25),
        ];
        history.record(Timestamp::from_secs(START + second), &figures);
    }
    let reclaimable = |cpu| Reclaimable {
        amount: Amount {
            cpu,
            memory: 1024.0,
        },
        peak: Amount {
            cpu: 2.25,
            memory: 2048.0,
        },
    };
    let mut latest = history.latest().lock();
    latest.node_cpu = Some(2.0);
    latest.node_memory = Some((8_u64 << 30) as f64);
    latest.cpu_info.count(&Ok::<(), ()>(()));
    latest.forecast = Some(Predictions {
        by_pod: reclaimable(0.75),
        by_class: reclaimable(0.5),
    });
    drop(latest);
    history
}

#[test]
fn features_that_are_not_built() {
    let page = |gates: &[&str]| {
        let mut text = Text::default();
        unavailable(&mut text, gates);
        Gathered::from(text).to_string()
    };
    assert_eq!(page(&[]), "");
    let page = page(&["CPUBurst", "CoreSched"]);
    for line in [
        "# TYPE koordlet_feature_unavailable gauge\n",
        "koordlet_feature_unavailable{gate=\"CPUBurst\"} 1\n",
        "koordlet_feature_unavailable{gate=\"CoreSched\"} 1\n",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

#[test]
fn koordinators_families() {
    let history = history();
    let page = Page {
        history: &history,
        cluster: cluster(),
        node: "n1",
        started: Timestamp::from_secs(START),
        now: jiff::Timestamp::from_second(START).unwrap() + Duration::from_secs(10),
    };
    let mut text = Text::default();
    page.internal(&mut text);
    page.external(&mut text);
    let text = Gathered::from(text).to_string();
    for line in [
        "# TYPE koordlet_start_time gauge",
        "koordlet_start_time{node=\"n1\"} 1.7e+09",
        "koordlet_collect_node_cpu_info_status{node=\"n1\",status=\"succeeded\"}",
        "koordlet_node_used_cpu_cores{node=\"n1\"} 2\n",
        "koordlet_node_used_memory_bytes{node=\"n1\"} 8.589934592e+09",
        "koordlet_be_suppress_be_used_cpu_cores{node=\"n1\"} 0.1\n",
        "koordlet_node_predicted_resource_reclaimable{node=\"n1\",predictor=\"minPredictor\",resource=\"cpu\",unit=\"core\"} 0.",
        "koordlet_node_predicted_resource_peak{node=\"n1\",predictor=\"podReclaimablePredictor\",resource=\"memory\",unit=\"byte\"}",
        "koordlet_host_application_resource_usage{host_application_name=\"yarn\",node=\"n1\",priority_class=\"koord-batch\",qos=\"BE\",resource=\"cpu\"} 0.25\n",
        "koordlet_node_priority_resource_reclaimable{node=\"n1\",priority=\"koord-prod\",resource=\"cpu\",unit=\"core\"} 0.",
        "koordlet_node_resource_priority_reclaimable_status{node=\"n1\",priority=\"koord-prod\"} 0\n",
        "koordlet_container_resource_requests{container_id=\"containerd://aaaa",
        "koordlet_cpuset_share_pool_cpu_cores{node=\"n1\"} 3\n",
        "koordlet_cpuset_be_share_pool_cpu_cores{node=\"n1\"} 1\n",
        "koordlet_cpuset_share_pool_info{cpu=\"3\",node=\"n1\"} 1\n",
        // What the node does not have is shown as none of it.
        "koordlet_node_resource_allocatable{node=\"n1\",resource=\"kubernetes.io/batch-cpu\",unit=\"integer\"} 319\n",
        "koordlet_node_resource_allocatable{node=\"n1\",resource=\"kubernetes.io/batch-memory\",unit=\"byte\"} 0\n",
        "koordlet_node_resource_allocatable{node=\"n1\",resource=\"kubernetes.io/mid-cpu\",unit=\"integer\"} 0\n",
        "koordlet_node_resource_allocatable{node=\"n1\",resource=\"kubernetes.io/mid-memory\",unit=\"byte\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    // Whoever cannot foresee anything says so, and lends nothing.
    history.latest().lock().forecast = None;
    let mut text = Text::default();
    page.external(&mut text);
    let text = Gathered::from(text).to_string();
    for line in [
        "koordlet_node_priority_resource_reclaimable{node=\"n1\",priority=\"koord-prod\",resource=\"memory\",unit=\"byte\"} 0\n",
        "koordlet_node_resource_priority_reclaimable_status{node=\"n1\",priority=\"koord-prod\"} 1\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[test]
fn writes_of_the_resource_executor() {
    use plimsoll_plan::{Knob, Target};
    let durations = plimsoll_actuate::Durations::default();
    assert_eq!(super::updates(&durations), "");
    let target = Target::cgroup(&"/kubepods".into(), Knob::CpuShares);
    let _: Result<(), ()> = durations.time(&target, || Err(()));
    let page = super::updates(&durations);
    for line in [
        "# TYPE koordlet_resource_update_duration_milliseconds histogram\n",
        "_bucket{status=\"failed\",type=\"cpu.shares\",le=\"+Inf\"} 1\n",
        "_count{status=\"failed\",type=\"cpu.shares\"} 1\n",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}
