//! One node: from what is known about it to what should be written.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_api::cpus::CpuSet;
use plimsoll_api::names;
use plimsoll_api::quantity::{Notation, Quantity};
use plimsoll_client::node_slo::NodeSlo;
use serde_json::{Map, Value, json};

use super::objects::{Node, NodeMetric, Pod, Topology, notation, spelled};
use super::zones;
use crate::amount::Amount;
use crate::colocation::Strategy;
use crate::config::Config;
use crate::plan::{self, Present, Wanted, Writes};
use crate::reclaim::{self, Report};

/// Everything that is known about a node.
#[derive(Debug)]
pub struct Known {
    pub node: Arc<Node>,
    pub metric: Option<Arc<NodeMetric>>,
    pub slo: Option<Arc<NodeSlo>>,
    /// `None`: its agent has not told how its CPUs and memory lie.
    pub topology: Option<Arc<Topology>>,
    /// Those on it.
    pub pods: Vec<Arc<Pod>>,
    /// When its lent resources were written last, as far as this process knows.
    pub written: Option<Timestamp>,
}

/// Something to be done in the cluster.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    CreateMetric {
        spec: Value,
    },
    ReplaceMetricSpec {
        spec: Value,
    },
    CreateSlo {
        spec: Value,
    },
    ReplaceSloSpec {
        spec: Value,
    },
    /// A merge patch of the node, and one of its status. `reason` is for people.
    Lend {
        node: Value,
        status: Value,
        reason: String,
    },
    /// A merge patch of the node.
    Annotate {
        patch: Value,
    },
    /// A merge patch of the topology object as it was seen.
    LendZones {
        patch: Value,
    },
}

/// What makes the cluster what it should be, and complaints about what the node says of itself.
pub fn steps(known: &Known, config: &Config, now: Timestamp) -> (Vec<Step>, Vec<String>) {
    let nothing = BTreeMap::new();
    let labels = known.node.metadata.labels.as_ref().unwrap_or(&nothing);
    let annotations = known.node.metadata.annotations.as_ref().unwrap_or(&nothing);
    let (strategy, mut complaints) = config.colocation().for_node(labels, annotations);
    let known_strategy = config.is_colocation_known();
    let mut steps = Vec::new();
    let spec = serde_json::to_value(strategy.node_metric()).unwrap_or_default();
    match &known.metric {
        None => steps.push(Step::CreateMetric { spec }),
        Some(metric) if known_strategy && metric.spec != spec => {
            steps.push(Step::ReplaceMetricSpec { spec });
        }
        Some(_) => {}
    }
    let bandwidth = bandwidth(annotations).unwrap_or_else(|complaint| {
        complaints.push(complaint);
        None
    });
    let has = known.slo.as_ref().map(|slo| &slo.spec);
    let spec = config.node_slo(labels, bandwidth.as_ref(), has);
    match &known.slo {
        None => steps.push(Step::CreateSlo { spec }),
        Some(slo) if slo.spec != spec => steps.push(Step::ReplaceSloSpec { spec }),
        Some(_) => {}
    }
    if !known_strategy {
        return (steps, complaints);
    }
    let lends = config.colocation().lends(&strategy);
    let speed = speed(known, config, labels, annotations, lends);
    if !speed.notes.is_empty() {
        steps.push(Step::Annotate {
            patch: json!({"metadata": {"annotations": speed.notes}}),
        });
    }
    let decision = match lends {
        true => decide(known, &strategy, annotations, speed.ratio, now),
        false => Decision::nothing("colocation is not enabled"),
    };
    let present = present(known);
    if let Some(writes) = plan::writes(&present, decision.wanted, &strategy, now) {
        let of_memory = notation(known.node.status.capacity.get("memory"));
        steps.push(lend(&writes, &decision, of_memory));
    }
    if let Some(topology) = &known.topology {
        steps.extend(zones::lend(topology, &decision.zones, &strategy));
    }
    (steps, complaints)
}

/// What the node's network can carry, if it says so itself.
fn bandwidth(annotations: &BTreeMap<String, String>) -> Result<Option<Quantity>, String> {
    let name = names::ANNOTATION_NETWORK_BANDWIDTH;
    let Some(text) = annotations.get(name) else {
        return Ok(None);
    };
    let parsed = text.parse::<Quantity>();
    parsed
        .map(Some)
        .map_err(|problem| format!("annotation {name}: {text:?}: {problem}"))
}

/// How much faster its cores are, and the annotations that have to change for others to know.
#[derive(Default)]
struct Speed {
    ratio: Option<f64>,
    notes: Map<String, Value>,
}

fn speed(
    known: &Known,
    config: &Config,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
    lends: bool,
) -> Speed {
    let mut speed = Speed::default();
    if lends {
        let name = names::ANNOTATION_NORMALIZATION_RATIO;
        let number = |text: &String| text.parse::<f64>().ok();
        let present = annotations.get(name).and_then(number);
        let found = ratio(known, config, labels);
        // Where nobody knows, what is written down counts.
        speed.ratio = found.as_ref().map_or(present, number);
        let near = |(one, other): (f64, f64)| (one - other).abs() <= 0.01;
        if let Some(found) = found
            && !present.zip(speed.ratio).is_some_and(near)
        {
            speed.notes.insert(name.to_owned(), found.into());
        }
    }
    if let Some(amplification) = config.amplification() {
        let name = names::ANNOTATION_AMPLIFICATION_RATIO;
        let wanted = lends.then(|| amplification.ratios(labels, speed.ratio));
        let wanted = wanted.flatten();
        if annotations.get(name) != wanted.as_ref() {
            speed.notes.insert(name.to_owned(), wanted.into());
        }
    }
    speed
}

/// `None`: nobody knows.
fn ratio(known: &Known, config: &Config, labels: &BTreeMap<String, String>) -> Option<String> {
    let topology = known.topology.as_ref();
    let cpus = topology.and_then(|one| one.metadata.annotations.as_ref());
    let cpus = cpus.and_then(|all| all.get(names::ANNOTATION_CPU_BASIC_INFO));
    let unreadable = || Err("the configuration makes no sense".to_owned());
    let normalization = config.normalization();
    match normalization.map_or_else(unreadable, |one| one.ratio(labels, cpus)) {
        Ok(found) => Some(format!("{found:.2}")),
        Err(reason) => {
            tracing::debug!(reason, "how fast a node's cores are is not known");
            None
        }
    }
}

/// What a node and its NUMA nodes should lend, and why.
struct Decision {
    wanted: Wanted,
    /// To batch pods, before other systems took of it.
    batch: Amount,
    zones: Vec<Amount>,
    reason: String,
}

impl Decision {
    fn nothing(reason: &str) -> Self {
        Self {
            wanted: Wanted::Nothing,
            batch: Amount::default(),
            zones: Vec::new(),
            reason: reason.to_owned(),
        }
    }
}

fn decide(
    known: &Known,
    strategy: &Strategy,
    annotations: &BTreeMap<String, String>,
    normalization: Option<f64>,
    now: Timestamp,
) -> Decision {
    let nothing = Decision::nothing;
    let Some(metric) = &known.metric else {
        return nothing("the node has not reported yet");
    };
    let updated = metric
        .status
        .update_time
        .as_ref()
        .and_then(|text| text.parse().ok());
    if plan::is_stale(updated, strategy, now) {
        return nothing("the node's last report is too old");
    }
    let node = reclaim::Node {
        normalization,
        ..described(&known.node, annotations)
    };
    let (report, pods) = reported(metric, &known.pods);
    let batch = reclaim::batch(&node, &report, &pods, strategy);
    let mid = reclaim::mid(&node, &report, &pods, strategy);
    let reason = format!("batch: {}; mid: {}", batch.reason, mid.reason);
    let zones = known.topology.as_deref().and_then(zones::amounts);
    let zones = zones.map(|zones| reclaim::batch_by_zone(&node, &report, &pods, strategy, &zones));
    Decision {
        wanted: Wanted::Amounts {
            batch: reclaim::left_by_others(&node, batch.amount),
            mid: mid.amount,
        },
        batch: batch.amount,
        zones: zones.unwrap_or_default(),
        reason,
    }
}

fn described(node: &Node, annotations: &BTreeMap<String, String>) -> reclaim::Node {
    let json = |name: &str| {
        annotations
            .get(name)
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
    };
    let third_party = json(names::ANNOTATION_THIRD_PARTY)
        .and_then(|value| value.get("allocations")?.as_array().cloned())
        .unwrap_or_default()
        .iter()
        .filter(|one| one["priority"] == "koord-batch")
        .fold(Amount::default(), |sum, one| {
            sum.plus(batch_amounts(&one["resources"]))
        });
    reclaim::Node {
        capacity: Amount::of(&node.status.capacity),
        allocatable: Amount::of(&node.status.allocatable),
        reservation: json(names::ANNOTATION_RESERVATION)
            .map_or_else(Amount::default, |value| reserved(&value)),
        normalization: None,
        third_party,
    }
}

/// `{resources, reservedCPUs}`: CPUs that are named count instead of a number of them. What makes no sense reserves
/// nothing.
fn reserved(reservation: &Value) -> Amount {
    let fields = reservation["resources"].as_object();
    let amount = Amount::of(&texts(&fields.cloned().unwrap_or_default()));
    let named = reservation["reservedCPUs"].as_str().unwrap_or_default();
    match named.parse::<CpuSet>() {
        Err(_) => Amount::default(),
        Ok(cpus) if cpus.is_empty() => amount,
        Ok(cpus) => Amount {
            milli_cpu: i64::try_from(cpus.0.len()).unwrap_or(i64::MAX) * 1000,
            ..amount
        },
    }
}

/// Values of a JSON resource list, whether they are strings or numbers.
fn texts(fields: &Map<String, Value>) -> BTreeMap<String, String> {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    fields
        .iter()
        .map(|(name, value)| (name.clone(), text(value)))
        .collect()
}

fn batch_amounts(resources: &Value) -> Amount {
    let fields = texts(&resources.as_object().cloned().unwrap_or_default());
    let value = |name: &str| {
        let quantity = fields
            .get(name)?
            .parse::<plimsoll_api::quantity::Quantity>()
            .ok()?;
        Some(quantity.value())
    };
    Amount {
        milli_cpu: value(names::BATCH_CPU).unwrap_or(0),
        memory: value(names::BATCH_MEMORY).unwrap_or(0),
    }
}

/// The agent's report, joined with the pods that are there.
fn reported(metric: &NodeMetric, pods: &[Arc<Pod>]) -> (Report, Vec<reclaim::Pod>) {
    let status = &metric.status;
    let mut used: BTreeMap<(&str, &str), _> = status
        .pods_metric
        .iter()
        .map(|pod| ((pod.namespace.as_str(), pod.name.as_str()), pod))
        .collect();
    let pods = pods
        .iter()
        // What a pod that has just ended used is still in the report's averages, as with one that is gone.
        .filter(|pod| pod.is_alive())
        .map(|pod| {
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let found = used.remove(&(namespace, name));
            let classes = pod.classes();
            reclaim::Pod {
                priority: classes.effective_priority(),
                qos: classes.effective_qos(),
                request: pod.request(),
                used: found.map(|found| Amount::of(&found.pod_usage.resources)),
                zones: pod.zones(),
            }
        })
        .collect();
    let usage = status.node_metric.clone().unwrap_or_default();
    let report = Report {
        node: ["cpu", "memory"]
            .iter()
            .all(|name| usage.node_usage.resources.contains_key(*name))
            .then(|| Amount::of(&usage.node_usage.resources)),
        system: Amount::of(&usage.system_usage.resources),
        host_applications: status
            .host_application_metric
            .iter()
            .map(|one| (one.priority, Amount::of(&one.usage.resources)))
            .collect(),
        gone: used
            .values()
            .map(|one| (one.priority, Amount::of(&one.pod_usage.resources)))
            .collect(),
        prod_reclaimable: status
            .prod_reclaimable_metric
            .as_ref()
            .filter(|one| !one.resource.resources.is_empty())
            .map(|one| Amount::of(&one.resource.resources)),
    };
    (report, pods)
}

const LENT: [&str; 4] = [
    names::BATCH_CPU,
    names::BATCH_MEMORY,
    names::MID_CPU,
    names::MID_MEMORY,
];

fn present(known: &Known) -> Present {
    let allocatable = &known.node.status.allocatable;
    let lent = LENT
        .iter()
        .filter_map(|name| allocatable.get_key_value(*name));
    Present {
        lent: lent
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        written: known.written,
    }
}

fn lend(writes: &Writes, decision: &Decision, of_memory: Notation) -> Step {
    let resources: Map<String, Value> = writes
        .iter()
        .map(|(name, value)| {
            let text = value.map(|value| spelled(name, value, of_memory).into());
            ((*name).to_owned(), text.unwrap_or(Value::Null))
        })
        .collect();
    // Other systems that live on batch resources see here what there is for all; nothing is told as zero.
    let batch = json!({
        names::BATCH_CPU: spelled(names::BATCH_CPU, decision.batch.milli_cpu, Notation::Binary),
        names::BATCH_MEMORY: spelled(names::BATCH_MEMORY, decision.batch.memory, Notation::Binary),
    });
    let origin = json!({"resources": batch}).to_string();
    Step::Lend {
        node: json!({"metadata": {"annotations": {names::ANNOTATION_ORIGIN_EXTENDED: origin}}}),
        status: json!({"status": {"capacity": resources, "allocatable": resources}}),
        reason: decision.reason.clone(),
    }
}

#[cfg(test)]
mod tests;
