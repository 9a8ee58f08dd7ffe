//! Why a pod is where it is, or is nowhere: the core's findings, put together for people and programs.

use std::collections::BTreeMap;

use plimsoll_sched::explain::{Explanation, Finding, NodeExplanation};
use plimsoll_sched::queue::Room;
use plimsoll_sched::{Scheduler, Time};
use serde::{Deserialize, Serialize};

use crate::journal::{Entry, Journal};

/// Nodes that are told of one by one; the others are counted.
const NODES: usize = 50;
/// Ways out that are told.
const WAYS: usize = 5;

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub namespace: String,
    pub name: String,
    /// Where it is, or has been given room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nominated_node: Option<String>,
    /// Where in the queue it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back_by: Option<&'static str>,
    pub attempts: u32,
    /// Plugins that refuse the pod whatever the node.
    pub refused_by: Vec<Refusal>,
    pub nodes: usize,
    pub fitting_nodes: usize,
    /// How many nodes were refused for what.
    pub reasons: Vec<Reason>,
    /// What would make it fit, the least first.
    pub would_fit: Vec<String>,
    /// The best that fit, then the nearest that do not.
    pub details: Vec<NodeReport>,
    /// Its cycles that are still remembered, the oldest first.
    pub cycles: Vec<Entry>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Refusal {
    pub plugin: &'static str,
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Reason {
    pub plugin: &'static str,
    pub reason: String,
    pub nodes: usize,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    pub node: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<Refusal>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shortages: Vec<ShortageReport>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<crate::journal::PluginScore>,
    pub total: i64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShortageReport {
    pub resource: String,
    pub asked: String,
    pub free: String,
    pub allocatable: String,
    pub missing: String,
}

/// `None`: no such pod is known.
pub fn report(
    core: &mut Scheduler,
    journal: &Journal,
    namespace: &str,
    name: &str,
    now: Time,
) -> Option<Report> {
    let space = core.cluster().names.find(namespace)?;
    let uid = core
        .cluster()
        .pods
        .iter()
        .find(|(_, record)| record.pod.namespace() == space && &*record.pod.name == name)
        .map(|(_, record)| std::sync::Arc::clone(&record.pod.uid))?;
    let explanation = core.explain(&uid, now)?;
    let mut report = put_together(explanation);
    report.cycles = journal.of(&uid);
    Some(report)
}

fn put_together(mut found: Explanation) -> Report {
    let mut reasons: BTreeMap<(&'static str, String), usize> = BTreeMap::new();
    for node in &found.nodes {
        for refusal in &node.refusals {
            for reason in &refusal.reasons {
                *reasons
                    .entry((refusal.plugin.name(), reason.clone()))
                    .or_default() += 1;
            }
        }
    }
    let mut reasons: Vec<Reason> = reasons
        .into_iter()
        .map(|((plugin, reason), nodes)| Reason {
            plugin,
            reason,
            nodes,
        })
        .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.nodes));
    let fitting = found.nodes.iter().filter(|node| node.fits()).count();
    // Where it is comes first, whatever else might have been better by now.
    let place = found.node.clone();
    found.nodes.sort_by_key(|node| {
        let here = place.as_deref() == Some(node.node.as_str());
        (
            !here,
            node.refusals.len(),
            node.shortages.iter().map(missing_share).max(),
            std::cmp::Reverse(node.total),
        )
    });
    let would_fit = match fitting {
        0 => ways_out(&found.nodes),
        _ => Vec::new(),
    };
    let all = found.nodes.len();
    Report {
        namespace: found.namespace,
        name: found.name,
        queue: found.room.filter(|_| place.is_none()).map(queue_name),
        node: found.node,
        nominated_node: found.nominated,
        held_back_by: found.gated_by.map(|plugin| plugin.name()),
        attempts: found.attempts,
        refused_by: refusals(&found.refused_by),
        nodes: all,
        fitting_nodes: match found.refused_by.is_empty() {
            true => fitting,
            false => 0,
        },
        reasons,
        would_fit,
        details: found
            .nodes
            .into_iter()
            .take(NODES)
            .map(node_report)
            .collect(),
        cycles: Vec::new(),
    }
}

fn queue_name(room: Room) -> &'static str {
    match room {
        Room::Active => "active",
        Room::Backoff => "backoff",
        Room::ErrorBackoff => "error backoff",
        Room::Unschedulable => "unschedulable",
        Room::InFlight => "being scheduled",
        Room::Settled => "being bound",
    }
}

fn refusals(found: &[Finding]) -> Vec<Refusal> {
    found
        .iter()
        .map(|finding| Refusal {
            plugin: finding.plugin.name(),
            reasons: finding.reasons.clone(),
        })
        .collect()
}

/// In thousandths of what the node has.
fn missing_share(shortage: &plimsoll_sched::explain::Shortage) -> i64 {
    let missing = shortage.asked - (shortage.there - shortage.taken);
    missing.saturating_mul(1000) / shortage.there.max(1)
}

/// Each node that lacks but one thing, the nearest first; alike ones are told once.
fn ways_out(nodes: &[NodeExplanation]) -> Vec<String> {
    let mut ways: Vec<(String, usize)> = Vec::new();
    for node in nodes {
        let [only] = node.refusals.as_slice() else {
            continue;
        };
        if !node.shortages.is_empty() {
            // Numbers differ from node to node: the nearest is enough.
            if ways.iter().any(|(way, _)| way.contains(" more ")) {
                continue;
            }
            let short = node.shortages.iter().map(|shortage| {
                let free = shortage.there - shortage.taken;
                let text = |value| amount(&shortage.resource, value);
                format!(
                    "{} more {} (it asks for {}, {} of {} are free)",
                    text(shortage.asked - free),
                    shortage.resource,
                    text(shortage.asked),
                    text(free),
                    text(shortage.there),
                )
            });
            let short: Vec<String> = short.collect();
            ways.push((format!("on {} with {}", node.node, short.join(" and ")), 1));
            continue;
        }
        let reason = format!("{}: {}", only.plugin.name(), only.reasons.join(", "));
        match ways.iter_mut().find(|(way, _)| way.ends_with(&reason)) {
            Some((_, count)) => *count += 1,
            None => ways.push((format!("on {} but for {reason}", node.node), 1)),
        }
    }
    ways.truncate(WAYS);
    ways.into_iter()
        .map(|(way, count)| match count {
            1 => way,
            more => format!("{way} (and {} more nodes)", more - 1),
        })
        .collect()
}

/// As people write amounts.
fn amount(resource: &str, value: i64) -> String {
    const UNITS: [(i64, &str); 3] = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    match resource {
        "cpu" if value % 1000 == 0 => (value / 1000).to_string(),
        "cpu" => format!("{value}m"),
        "memory" | "ephemeral-storage" => {
            let unit = UNITS
                .iter()
                .find(|(size, _)| value.saturating_abs() >= *size);
            match unit {
                Some((size, unit)) if value % size == 0 => format!("{}{unit}", value / size),
                Some((size, unit)) => format!("{:.1}{unit}", value as f64 / *size as f64),
                None => value.to_string(),
            }
        }
        _ => value.to_string(),
    }
}

fn node_report(node: NodeExplanation) -> NodeReport {
    NodeReport {
        refusals: refusals(&node.refusals),
        shortages: node
            .shortages
            .iter()
            .map(|shortage| {
                let free = shortage.there - shortage.taken;
                let text = |value| amount(&shortage.resource, value);
                ShortageReport {
                    asked: text(shortage.asked),
                    free: text(free),
                    allocatable: text(shortage.there),
                    missing: text(shortage.asked - free),
                    resource: shortage.resource.clone(),
                }
            })
            .collect(),
        scores: node
            .scores
            .iter()
            .map(|(plugin, weight, score)| crate::journal::PluginScore {
                plugin: plugin.name(),
                score: *score,
                weight: *weight,
            })
            .collect(),
        total: node.total,
        node: node.node,
    }
}

impl Report {
    /// For a terminal.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        let place = match (&self.node, self.queue, self.held_back_by) {
            (Some(node), ..) => format!("is on {node}"),
            (None, _, Some(plugin)) => format!("is held back by {plugin}"),
            (None, Some(queue), None) => format!("is pending ({queue})"),
            (None, None, None) => "is not queued here".to_owned(),
        };
        let attempts = match self.attempts {
            0 => String::new(),
            1 => ", after 1 attempt".to_owned(),
            n => format!(", after {n} attempts"),
        };
        lines.push(format!(
            "pod {}/{} {place}{attempts}",
            self.namespace, self.name
        ));
        if let Some(node) = &self.nominated_node {
            lines.push(format!("promised     {node}, once its victims are gone"));
        }
        for refusal in &self.refused_by {
            lines.push(format!(
                "refused      {} by {}, whatever the node",
                refusal.reasons.join(", "),
                refusal.plugin
            ));
        }
        lines.push(format!(
            "nodes        {} of {} would do now",
            self.fitting_nodes, self.nodes
        ));
        for reason in &self.reasons {
            lines.push(format!(
                "{:>11}  {} ({})",
                reason.nodes, reason.reason, reason.plugin
            ));
        }
        for way in &self.would_fit {
            lines.push(format!("would fit    {way}"));
        }
        if let Some(last) = self
            .cycles
            .iter()
            .rev()
            .find(|cycle| !cycle.scores.is_empty())
        {
            lines.push(format!(
                "chosen by    scores of {}",
                last.at.strftime("%Y-%m-%dT%H:%M:%SZ")
            ));
            for node in &last.scores {
                lines.push(scores_line(&node.node, node.total, &node.plugins));
            }
        } else if self.fitting_nodes > 0 {
            lines.push("scores now".to_owned());
            for node in self
                .details
                .iter()
                .filter(|node| !node.scores.is_empty())
                .take(WAYS)
            {
                lines.push(scores_line(&node.node, node.total, &node.scores));
            }
        }
        lines.join("\n") + "\n"
    }
}

fn scores_line(node: &str, total: i64, plugins: &[crate::journal::PluginScore]) -> String {
    let parts: Vec<String> = plugins
        .iter()
        .map(|one| format!("{} {}x{}", one.plugin, one.weight, one.score))
        .collect();
    format!("{total:>11}  {node}: {}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_as_people_write_them() {
        for (resource, value, expected) in [
            ("cpu", 1500, "1500m"),
            ("cpu", 2000, "2"),
            ("memory", 1 << 30, "1Gi"),
            ("memory", 1_610_612_736, "1.5Gi"),
            ("memory", 10, "10"),
            ("pods", 110, "110"),
        ] {
            assert_eq!(amount(resource, value), expected);
        }
    }
}
