//! A real node whose pods really run, held for a bench: overlays, networks, volumes and labels, as nodes have them.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;
use plimsoll_test_support::{janitor, poll};
use serde_json::{Value, json};

use super::{PATIENCE, Stage, agent_kubeconfig, object, slo_path};
use crate::admin;
use crate::kubectl::Kubectl;
use crate::kubelet::{RealNode, Runtime, container};
use crate::process::Scratch;
use crate::real::RealCluster;

const NODE: &str = "held-node";
const NAMESPACE: &str = "held";
/// They are made so many at a time: a runtime that is asked for all at once is slower.
const AT_ONCE: usize = 25;

#[derive(Args, Debug)]
pub struct Options {
    /// The plimsoll binary, whose manager asks the node for reports.
    #[arg(long)]
    program: PathBuf,
    #[arg(long, default_value_t = 98)]
    pods: usize,
    /// Containers of each pod.
    #[arg(long, default_value_t = 1)]
    containers: usize,
}

/// Says on one line of JSON what an agent beside it has to be told, and lets go of everything when its input ends.
pub fn run(options: &Options, kube_bin: &Path, folder: &Path) -> Result<()> {
    janitor::raise_file_limit();
    let cluster = RealCluster::start(kube_bin)?;
    let api = &cluster.server;
    let manifests = folder.join("../../deploy");
    let stage = Stage {
        manifests: &manifests,
        program: &options.program,
        kube_bin: Some(kube_bin),
    };
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, NAMESPACE)?;
    stage.install(&kubectl)?;
    let mut scratch = Scratch::make()?;
    let mut node = RealNode::start_with(Runtime::Full, Some(kube_bin), api, NODE, &mut scratch)?;
    let _manager = stage.manager(&kubectl, api, &mut scratch)?;
    let space = json!({"metadata": {"name": NAMESPACE}});
    admin::create(api, "/api/v1/namespaces", &space)?;
    let config = json!({
        "metadata": {"name": "settings"}, "data": {"setting": "value".repeat(100)},
    });
    let maps = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
    admin::create(api, &maps, &config)?;
    let mut made = 0;
    while made < options.pods {
        let until = (made + AT_ONCE).min(options.pods);
        for index in made..until {
            let path = format!("/api/v1/namespaces/{NAMESPACE}/pods");
            admin::create(api, &path, &pod(index, options.containers))?;
        }
        made = until;
        node.wait_running(api, NAMESPACE, made)?;
        eprintln!("{made} of {} pods run", options.pods);
    }
    poll::until("the node is asked for reports", PATIENCE, || {
        object(api, &slo_path("nodemetrics", NODE))
    })?;
    let told = json!({
        "node": NODE,
        "kubeconfig": agent_kubeconfig(&kubectl, api, NODE, scratch.path())?,
        "containerd": scratch.path().join("containerd.sock"),
        "kubelet_dir": scratch.path().join("kubelet"),
        "folder": scratch.path(),
        "cgroup": node.cgroup(),
    });
    println!("{told}");
    let mut input = Vec::new();
    std::io::stdin()
        .read_to_end(&mut input)
        .context("wait for the end of the input")?;
    // While their runtime still is there to take down their networks.
    kubectl.text("delete pods --all --grace-period=1 --wait=false")?;
    node.wait_gone(api, NAMESPACE)?;
    Ok(())
}

/// Every third works a little, the others hold memory and wait, as most pods do.
fn pod(index: usize, containers: usize) -> Value {
    let script = match index % 3 {
        0 => "while :; do i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; sleep 1; done",
        _ => "cat /dev/zero | busybox head -c 1048576 > /scratch/held; sleep 1000000",
    };
    let resources = match index % 4 {
        0 => json!({}),
        1 => {
            json!({"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}})
        }
        _ => json!({"requests": {"cpu": "1m", "memory": "8Mi"}}),
    };
    let containers: Vec<Value> = (0..containers)
        .map(|number| {
            let mut one = container(&format!("c{number}"), script, resources.clone());
            one["volumeMounts"] = json!([
                {"name": "scratch", "mountPath": "/scratch"},
                {"name": "settings", "mountPath": "/settings"},
            ]);
            one
        })
        .collect();
    json!({
        "metadata": {
            "name": format!("pod-{index}"),
            "labels": {
                "app.kubernetes.io/name": format!("app-{}", index % 10),
                "app.kubernetes.io/part-of": "bench",
                "pod-template-hash": "5d4f8c7b9d",
            },
        },
        "spec": {
            "nodeName": NODE,
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": containers,
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "settings", "configMap": {"name": "settings"}},
            ],
        },
    })
}
