//! What would come of it: a cluster as it is, pods that come, nodes that go.

mod cluster;
mod pods;

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::{Value, json};

use crate::model::{Names, ResourceId};
use crate::sandbox::{ObjectKey, Sandbox, SandboxError};
use crate::scheduler::{Config, Outcome};
use crate::time::Time;

pub use pods::expand;

/// A cluster, and what is to be done to it.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Objects of any kind, as the API server has them.
    pub objects: Vec<Value>,
    /// Pods, and what makes pods.
    pub add: Vec<Value>,
    /// Nodes that are emptied.
    pub drain: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum WhatIfError {
    #[error("there is no node {0:?} in the cluster")]
    NoSuchNode(String),
    #[error("{kind} {name:?} cannot be added: only pods and what makes them can")]
    NotAPod { kind: String, name: String },
    #[error(transparent)]
    Object(#[from] SandboxError),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct Answer {
    /// Pods that got a node.
    pub placed: Vec<Placed>,
    /// Pods that did not, and why.
    pub failed: Vec<Failed>,
    /// Pods that had to go for others.
    pub evicted: Vec<Evicted>,
    pub nodes: Vec<NodeUse>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Placed {
    pub namespace: String,
    pub name: String,
    pub node: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Failed {
    pub namespace: String,
    pub name: String,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Evicted {
    pub namespace: String,
    pub name: String,
    pub node: String,
    pub by: String,
}

/// What is asked for of what a node has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeUse {
    pub node: String,
    pub cpu_millicores: Share,
    pub memory_bytes: Share,
    pub pods: Share,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct Share {
    pub requested: i64,
    pub allocatable: i64,
}

impl Share {
    pub fn percent(self) -> f64 {
        if self.allocatable == 0 {
            return 0.0;
        }
        self.requested as f64 * 100.0 / self.allocatable as f64
    }

    fn add(&mut self, other: Self) {
        self.requested = self.requested.saturating_add(other.requested);
        self.allocatable = self.allocatable.saturating_add(other.allocatable);
    }
}

impl Answer {
    /// All nodes together: cpu, memory, pods.
    pub fn total(&self) -> [Share; 3] {
        let mut total = [Share::default(); 3];
        for node in &self.nodes {
            total[0].add(node.cpu_millicores);
            total[1].add(node.memory_bytes);
            total[2].add(node.pods);
        }
        total
    }

    /// Pods that another configuration treats otherwise: where they are here, and where there.
    pub fn differences(&self, other: &Self) -> Vec<Difference> {
        let all = |answer: &Self| -> std::collections::BTreeMap<(String, String), String> {
            let placed = answer.placed.iter().map(|pod| {
                let name = (pod.namespace.clone(), pod.name.clone());
                (name, pod.node.clone())
            });
            let evicted = answer.evicted.iter().map(|pod| {
                let name = (pod.namespace.clone(), pod.name.clone());
                (name, "evicted".to_owned())
            });
            placed.chain(evicted).collect()
        };
        let (here, there) = (all(self), all(other));
        let names: BTreeSet<_> = here.keys().chain(there.keys()).collect();
        let fate = |map: &std::collections::BTreeMap<(String, String), String>,
                    name: &(String, String)| {
            map.get(name).cloned().unwrap_or_else(|| "-".to_owned())
        };
        names
            .into_iter()
            .map(|name| Difference {
                namespace: name.0.clone(),
                name: name.1.clone(),
                before: fate(&here, name),
                after: fate(&there, name),
            })
            .filter(|difference| difference.before != difference.after)
            .collect()
    }
}

/// A pod, and what becomes of it under two configurations: a node, `evicted`, or `-` for neither.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub namespace: String,
    pub name: String,
    pub before: String,
    pub after: String,
}

/// Schedules all pods that have no node, on a cluster where nothing else happens. `names` are those of the configuration.
pub fn ask(
    question: &Question,
    config: Config,
    names: Names,
    now: Time,
) -> Result<Answer, WhatIfError> {
    let mut sandbox = Sandbox::new(config, names, now);
    cluster::load(&mut sandbox, question)?;
    let added = pods::expand(&question.add, &question.objects)?;
    for pod in added {
        sandbox.put(pod)?;
    }
    let waiting: Vec<ObjectKey> = sandbox
        .of_kind("Pod")
        .filter(|(_, pod)| pod["spec"]["nodeName"].is_null())
        .map(|(key, _)| key.clone())
        .collect();
    let before: Vec<(ObjectKey, String)> = sandbox
        .of_kind("Pod")
        .filter_map(|(key, pod)| Some((key.clone(), pod["spec"]["nodeName"].as_str()?.to_owned())))
        .collect();
    loop {
        sandbox.settle()?;
        if !cluster::bind_claims(&mut sandbox)? {
            break;
        }
    }
    Ok(answer(&sandbox, &waiting, &before))
}

fn answer(sandbox: &Sandbox, waiting: &[ObjectKey], before: &[(ObjectKey, String)]) -> Answer {
    let mut answer = Answer::default();
    for key in waiting {
        let node = sandbox
            .get(key)
            .and_then(|pod| pod["spec"]["nodeName"].as_str());
        if let Some(node) = node {
            answer.placed.push(Placed {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                node: node.to_owned(),
            });
            continue;
        }
        let last =
            sandbox.cycles.iter().rev().find(|cycle| {
                *cycle.pod.name == *key.name && *cycle.pod.namespace == *key.namespace
            });
        let message = match last.map(|cycle| &cycle.outcome) {
            Some(Outcome::Unschedulable { message } | Outcome::Error { message }) => {
                message.clone()
            }
            _ if sandbox.get(key).is_none() => "evicted for a pod of higher priority".to_owned(),
            _ => "not tried: held back, or not for this scheduler".to_owned(),
        };
        answer.failed.push(Failed {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            message,
        });
    }
    for (key, node) in before {
        let gone = sandbox
            .get(key)
            .is_none_or(|pod| pod.pointer("/metadata/deletionTimestamp").is_some());
        let told = sandbox.events.iter().find(|event| {
            event.reason == "Preempted"
                && *event.regarding.name == *key.name
                && *event.regarding.namespace == *key.namespace
        });
        if let Some(event) = told.filter(|_| gone) {
            let by = event.related.as_ref();
            answer.evicted.push(Evicted {
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                node: node.clone(),
                by: by.map_or(String::new(), |pod| {
                    format!("{}/{}", pod.namespace, pod.name)
                }),
            });
        }
    }
    let cluster = sandbox.scheduler().cluster();
    for (id, node) in cluster.nodes.iter() {
        let share = |resource| Share {
            requested: cluster.nodes.requested(resource, id),
            allocatable: node.allocatable.get(resource),
        };
        answer.nodes.push(NodeUse {
            node: cluster.node_name(id).to_owned(),
            cpu_millicores: share(ResourceId::CPU),
            memory_bytes: share(ResourceId::MEMORY),
            pods: Share {
                requested: cluster.nodes.pods(id).len() as i64,
                allocatable: node.pods,
            },
        });
    }
    answer.nodes.sort_by(|one, other| one.node.cmp(&other.node));
    answer
}

/// An object of the cluster that says nothing new about a pod that waits.
fn without_status(pod: &Value) -> Value {
    let mut pod = pod.clone();
    pod["status"] = json!({});
    if let Some(spec) = pod["spec"].as_object_mut() {
        spec.remove("nodeName");
    }
    if let Some(metadata) = pod["metadata"].as_object_mut() {
        metadata.remove("deletionTimestamp");
    }
    pod
}

#[cfg(test)]
mod tests;
