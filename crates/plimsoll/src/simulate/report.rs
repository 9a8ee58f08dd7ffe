//! Answers for people and for programs.

use std::fmt::Write as _;

use plimsoll_sched::what_if::{Answer, Share};
use serde_json::{Value, json};

/// With more nodes than that, only the fullest are listed.
const MOST_NODES: usize = 30;

/// `before`: under the configuration that it is compared with.
pub fn text(answer: &Answer, before: Option<&Answer>) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, answer);
    if let Some(before) = before {
        let _ = write_difference(&mut text, before, answer);
    }
    text
}

fn write_difference(text: &mut String, before: &Answer, after: &Answer) -> std::fmt::Result {
    let differences = before.differences(after);
    writeln!(text, "\n{} pods fare differently", differences.len())?;
    for pod in &differences {
        writeln!(
            text,
            "  {}/{}: {} -> {}",
            pod.namespace, pod.name, pod.before, pod.after
        )?;
    }
    let used = |answer: &Answer| {
        let mut nodes = answer.nodes.iter();
        let used = nodes.by_ref().filter(|node| node.pods.requested > 0);
        used.count()
    };
    writeln!(
        text,
        "  without a node: {} -> {}; nodes in use: {} -> {}",
        before.failed.len(),
        after.failed.len(),
        used(before),
        used(after)
    )
}

fn write_text(text: &mut String, answer: &Answer) -> std::fmt::Result {
    let pods = answer.placed.len() + answer.failed.len();
    writeln!(text, "{} of {pods} pods placed", answer.placed.len())?;
    for pod in &answer.placed {
        writeln!(text, "  {}/{} -> {}", pod.namespace, pod.name, pod.node)?;
    }
    if !answer.failed.is_empty() {
        writeln!(text, "\n{} without a node", answer.failed.len())?;
        for pod in &answer.failed {
            writeln!(text, "  {}/{}: {}", pod.namespace, pod.name, pod.message)?;
        }
    }
    if !answer.evicted.is_empty() {
        writeln!(text, "\n{} evicted", answer.evicted.len())?;
        for pod in &answer.evicted {
            writeln!(
                text,
                "  {}/{} from {} for {}",
                pod.namespace, pod.name, pod.node, pod.by
            )?;
        }
    }
    let mut nodes: Vec<_> = answer.nodes.iter().collect();
    if nodes.len() > MOST_NODES {
        nodes.sort_by(|one, other| {
            let fullness = |share: Share| share.percent();
            fullness(other.cpu_millicores).total_cmp(&fullness(one.cpu_millicores))
        });
        nodes.truncate(MOST_NODES);
        writeln!(text, "\nrequested of the {MOST_NODES} fullest nodes")?;
    } else {
        writeln!(text, "\nrequested")?;
    }
    let width = nodes
        .iter()
        .map(|node| node.node.len())
        .max()
        .unwrap_or(0)
        .max(4);
    writeln!(
        text,
        "  {:<width$} {:>16} {:>20} {:>11}",
        "node", "cpu", "memory", "pods"
    )?;
    for node in nodes {
        row(
            text,
            width,
            &node.node,
            [node.cpu_millicores, node.memory_bytes, node.pods],
        )?;
    }
    row(text, width, "all", answer.total())
}

fn row(text: &mut String, width: usize, name: &str, shares: [Share; 3]) -> std::fmt::Result {
    let [cpu, memory, pods] = shares;
    let cores = |millicores: i64| millicores as f64 / 1000.0;
    let gibibytes = |bytes: i64| bytes as f64 / (1_u64 << 30) as f64;
    writeln!(
        text,
        "  {name:<width$} {:>16} {:>20} {:>11}",
        format!(
            "{:.1}/{:.1} {:>3.0} %",
            cores(cpu.requested),
            cores(cpu.allocatable),
            cpu.percent()
        ),
        format!(
            "{:.1}/{:.1} GiB {:>3.0} %",
            gibibytes(memory.requested),
            gibibytes(memory.allocatable),
            memory.percent()
        ),
        format!("{}/{}", pods.requested, pods.allocatable),
    )
}

pub fn json(answer: &Answer, before: Option<&Answer>) -> Value {
    let [cpu, memory, pods] = answer.total();
    let mut value = json!(answer);
    if let Some(before) = before {
        value["differences"] = json!(before.differences(answer));
    }
    value["total"] = json!({"cpu_millicores": cpu, "memory_bytes": memory, "pods": pods});
    value
}

#[cfg(test)]
mod tests {
    use plimsoll_sched::what_if::{Failed, NodeUse, Placed};

    use super::*;

    #[test]
    fn a_report_says_it_all() {
        let name = || "x".to_owned();
        let share = Share {
            requested: 500,
            allocatable: 2000,
        };
        let answer = Answer {
            placed: vec![Placed {
                namespace: name(),
                name: "p".to_owned(),
                node: "n".to_owned(),
            }],
            failed: vec![Failed {
                namespace: name(),
                name: "q".to_owned(),
                message: "no room".to_owned(),
            }],
            nodes: vec![NodeUse {
                node: "n".to_owned(),
                cpu_millicores: share,
                memory_bytes: share,
                pods: share,
            }],
            ..Answer::default()
        };
        let before = Answer {
            failed: answer.failed.clone(),
            ..Answer::default()
        };
        let text = text(&answer, Some(&before));
        for part in [
            "1 of 2 pods placed",
            "x/p -> n",
            "x/q: no room",
            "0.5/2.0  25 %",
            "1 pods fare differently",
            "x/p: - -> n",
            "nodes in use: 0 -> 1",
            "500/2000",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert_eq!(
            json(&answer, None)["total"]["cpu_millicores"]["requested"],
            500
        );
    }
}
