//! A stock kubelet with pods that really run: what the agent reports of them, held against the kernel's own files.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use super::readings::{Readings, Subject, Used};
use super::{SPACE, Stage, node_path, object, slo_path};
use crate::admin;
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::kubelet::{RealNode, container};
use crate::process::Scratch;

const NODE: &str = "colocated-node";
const NAMESPACE: &str = "colocated";
/// What is asked of the agent: averages over so many seconds, this often. It is the least that it does.
const AVERAGED: f64 = 60.0;
const REPORTED_EVERY: u32 = 30;
/// How far a figure may be from the truth, as a share of it.
const TOLERANCE: f64 = 0.02;
/// A report tells its time in whole seconds and its last samples are up to a second old: its averages are of a time that
/// ends somewhere here.
const ENDS: (f64, f64) = (-1.25, 1.0);
/// A machine that stands still for a moment spoils the averages of one report, not of all.
const REPORTS: usize = 4;

/// A pod's name, and what it has to be taken for.
const PODS: [(&str, &str, &str); 3] = [
    ("batch", "BE", "koord-batch"),
    ("guaranteed", "LSR", "koord-prod"),
    ("service", "LS", "koord-prod"),
];

pub fn figures_are_true(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, NAMESPACE)?;
    stage.install(&kubectl)?;
    ask_for_short_averages(&kubectl)?;
    let mut scratch = Scratch::make()?;
    let mut node = RealNode::start(stage.kube_bin, api, NODE, &mut scratch)?;
    let _manager = stage.manager(&kubectl, api, &mut scratch)?;
    // Nothing is saved by looking less often.
    let mut agent = stage.agent(&kubectl, api, NODE, &["--cpu-budget=0"], &mut scratch)?;
    node.run_pods(api, NAMESPACE, pods())?;
    let readings = Readings::begin(subjects(api, &node)?)?;

    let path = slo_path("nodemetrics", NODE);
    agent.wait("the agent is asked for short averages", || {
        let metric = admin::get(api, &path)?;
        let asked = &metric["spec"]["metricCollectPolicy"]["aggregateDurationSeconds"];
        Ok((*asked == json!(AVERAGED as u64)).then_some(()))
    })?;
    let mut last = String::new();
    let mut outcome = Ok(0.0);
    for _ in 0..REPORTS {
        let metric = next_report(api, &path, &mut last, &readings)?;
        outcome = compare(&metric, &readings);
        if outcome.is_ok() {
            break;
        }
    }
    let furthest = outcome.with_context(|| {
        format!(
            "{REPORTS} reports are not true; the agent: {}",
            agent.last_words()
        )
    })?;
    agent.wait("the node lends", || {
        let node = object(api, &node_path(NODE))?;
        let lends = node.is_some_and(|node| {
            let allocatable = &node["status"]["allocatable"];
            allocatable["kubernetes.io/batch-cpu"].is_string()
        });
        Ok(lends.then_some(()))
    })?;
    let described = kubectl.text(&format!("describe node {NODE}"))?;
    for resource in ["kubernetes.io/batch-cpu", "kubernetes.io/batch-memory"] {
        ensure!(described.contains(resource), "{described}");
    }
    agent.wait("its policy is there", || {
        object(api, &slo_path("nodeslos", NODE))
    })?;
    kubectl.text(&format!("delete node {NODE}"))?;
    Ok(format!(
        "no figure is further off than {:.2} %",
        furthest * 100.0
    ))
}

/// By the operator's configuration, as anybody would.
fn ask_for_short_averages(kubectl: &Kubectl<'_>) -> Result<()> {
    let config = json!({
        "enable": true,
        "metricAggregateDurationSeconds": AVERAGED as u64,
        "metricReportIntervalSeconds": REPORTED_EVERY,
    });
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "slo-controller-config", "namespace": SPACE},
        "data": {"colocation-config": config.to_string()},
    });
    let applied = kubectl.run("apply -f -", Some(map.to_string().as_bytes()))?;
    ensure!(applied["exit"] == 0, "{applied}");
    Ok(())
}

/// They all hold memory; two are held back at steady rates, one works in bursts.
fn pods() -> Vec<(&'static str, Value)> {
    let spin = "while :; do :; done";
    let bursts = "while :; do i=0; while [ $i -lt 800000 ]; do i=$((i+1)); done; sleep 1; done";
    let pod = |mebibytes: u32, then: &str, resources: Value| {
        let bytes = mebibytes << 20;
        let script = format!("cat /dev/zero | busybox head -c {bytes} > /held/it; {then}");
        let mut container = container("c", &script, resources);
        container["volumeMounts"] = json!([{"name": "held", "mountPath": "/held"}]);
        json!({
            "containers": [container],
            "volumes": [{"name": "held", "emptyDir": {"medium": "Memory"}}],
        })
    };
    let some = json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}});
    let all = json!({"cpu": "200m", "memory": "64Mi"});
    let mut batch = pod(8, bursts, json!({}));
    batch["labels"] = json!({
        "koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch",
    });
    vec![
        ("service", pod(16, spin, some)),
        (
            "guaranteed",
            pod(32, spin, json!({"requests": all, "limits": all})),
        ),
        ("batch", batch),
    ]
}

/// The machine, and the pods in their order.
fn subjects(api: &Server, node: &RealNode) -> Result<Vec<Subject>> {
    let mounts = Mounts::detect()?;
    let mut subjects = vec![Subject::Machine];
    for (name, ..) in PODS {
        let pod = admin::get(api, &format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}"))?;
        let cgroup = node.cgroup_of(&pod)?;
        subjects.push(Subject::Cgroup(Group::existing(&mounts, &cgroup)));
    }
    Ok(subjects)
}

/// The next one after `last` whose averages are all of times that were written down, too.
fn next_report(api: &Server, path: &str, last: &mut String, readings: &Readings) -> Result<Value> {
    let patience = Duration::from_secs(AVERAGED as u64 + u64::from(REPORTED_EVERY) * 4);
    poll::until("the node reports", patience, || {
        let metric = admin::get(api, path)?;
        let Some(time) = metric["status"]["updateTime"].as_str() else {
            return Ok(None);
        };
        if time == last {
            return Ok(None);
        }
        let end = seconds(time)?;
        readings.used(0, end + ENDS.0 - AVERAGED, end + ENDS.1)?;
        time.clone_into(last);
        Ok(Some(metric))
    })
}

fn seconds(time: &str) -> Result<f64> {
    let time: jiff::Timestamp = time.parse()?;
    Ok(time.as_second() as f64)
}

/// How far the worst figure is from the truth, as a share of it.
fn compare(metric: &Value, readings: &Readings) -> Result<f64> {
    let status = &metric["status"];
    let end = seconds(status["updateTime"].as_str().context("no time")?)?;
    let usage = &status["nodeMetric"];
    let (node, mut furthest) = check("the node", &usage["nodeUsage"], readings, 0, end)?;
    let pods = status["podsMetric"].as_array().context("no pods")?;
    let mut held = 0.0;
    for (number, (name, qos, priority)) in PODS.into_iter().enumerate() {
        let pod = pods
            .iter()
            .find(|pod| pod["name"] == name && pod["namespace"] == NAMESPACE)
            .with_context(|| format!("no {name} in {pods:?}"))?;
        ensure!(
            pod["qos"] == qos && pod["priority"] == priority,
            "{pod} is not {qos} of {priority}"
        );
        let (used, off) = check(name, &pod["podUsage"], readings, number + 1, end)?;
        furthest = furthest.max(off);
        held += used.memory;
    }
    check_system(&usage["systemUsage"], &node, held, readings, end)?;
    Ok(furthest)
}

/// What is not theirs is the system's. A second's share is small and its edges are rough, so is this.
fn check_system(
    reported: &Value,
    node: &Used,
    held_by_pods: f64,
    readings: &Readings,
    end: f64,
) -> Result<()> {
    let told = figures(reported).with_context(|| format!("the system: {reported}"))?;
    let near = |told: f64, truth: f64, whole: f64| (told - truth).abs() <= whole * TOLERANCE * 2.0;
    let truths = ends(end)
        .map(|to| left_over(readings, to))
        .collect::<Result<Vec<f64>>>()?;
    ensure!(
        truths.iter().any(|truth| near(told.cpu, *truth, node.cpu)),
        "the system is told to use {} of {}, not {truths:.3?}",
        told.cpu,
        node.cpu
    );
    let memory = told.memory + held_by_pods;
    ensure!(
        near(memory, node.memory, node.memory),
        "{told:?} and {held_by_pods} of pods are not the node's {node:?}"
    );
    Ok(())
}

/// Cores that no pod used, second by second and never less than none: the kernel counts the machine's time in ticks and the
/// pods' exactly, so that they may seem to use more than there is.
fn left_over(readings: &Readings, to: f64) -> Result<f64> {
    let mut sum = 0.0;
    for second in 0..AVERAGED as u32 {
        let from = to - AVERAGED + f64::from(second);
        let mut left = readings.used(0, from, from + 1.0)?.cpu;
        for number in 1..=PODS.len() {
            left -= readings.used(number, from, from + 1.0)?.cpu;
        }
        sum += left.max(0.0);
    }
    Ok(sum / AVERAGED)
}

/// Moments at which the averages of a report may end.
fn ends(end: f64) -> impl Iterator<Item = f64> {
    const STEPS: u32 = 45;
    (0..=STEPS)
        .map(move |step| end + ENDS.0 + (ENDS.1 - ENDS.0) * f64::from(step) / f64::from(STEPS))
}

/// Gives what was reported, and how far that is from the truth.
fn check(
    name: &str,
    reported: &Value,
    readings: &Readings,
    number: usize,
    end: f64,
) -> Result<(Used, f64)> {
    let told = figures(reported).with_context(|| format!("{name}: {reported}"))?;
    let mut nearest = [f64::INFINITY; 2];
    let mut truth = None;
    for to in ends(end) {
        let used = readings.used(number, to - AVERAGED, to)?;
        let off = |told: f64, truth: f64| (told - truth).abs() / truth;
        // Parts of a thousandth of a core are cut off.
        nearest[0] = nearest[0].min(off(told.cpu + 0.0005, used.cpu));
        nearest[1] = nearest[1].min(off(told.memory, used.memory));
        truth = Some(used);
    }
    ensure!(
        nearest.iter().all(|off| *off <= TOLERANCE),
        "{name} is told to use {told:?}, off by {nearest:.4?} of {truth:?}"
    );
    Ok((told, nearest[0].max(nearest[1])))
}

/// Cores and bytes.
fn figures(usage: &Value) -> Result<Used> {
    let of = |name: &str| {
        let text = usage["resources"][name].as_str();
        quantity(text.with_context(|| format!("no {name}"))?)
    };
    Ok(Used {
        cpu: of("cpu")?,
        memory: of("memory")?,
    })
}

fn quantity(text: &str) -> Result<f64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1.0,
        "m" => 1e-3,
        "k" => 1e3,
        "Ki" => 1024.0,
        "Mi" => 1_048_576.0,
        "Gi" => 1_073_741_824.0,
        other => bail!("{text}: what is {other}?"),
    };
    Ok(digits.parse::<f64>()? * unit)
}
