//! What goes over the wire: Go's structs without names for their fields, so that these begin with capitals.

use std::collections::BTreeMap;

use bytes::Bytes;
use plimsoll_sched::extender::Victims;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

#[derive(Debug, Serialize)]
pub struct NodesQuestion<'a> {
    #[serde(rename = "Pod")]
    pod: &'a RawValue,
    #[serde(rename = "Nodes")]
    nodes: Option<NodeList>,
    #[serde(rename = "NodeNames")]
    names: Option<Vec<&'a str>>,
}

#[derive(Debug, Serialize, Default)]
struct NodeList {
    metadata: Empty,
    items: Vec<Box<RawValue>>,
}

#[derive(Debug, Serialize, Default)]
struct Empty {}

/// Joins nodes with their objects, which are in the same order where they are known at all.
pub fn with_objects(names: Vec<Box<str>>, objects: Vec<Bytes>) -> Vec<(Box<str>, Option<Bytes>)> {
    match objects.len() == names.len() {
        true => names
            .into_iter()
            .zip(objects.into_iter().map(Some))
            .collect(),
        false => names.into_iter().map(|name| (name, None)).collect(),
    }
}

pub fn nodes<'a>(
    pod: &'a RawValue,
    nodes: &'a [(Box<str>, Option<Bytes>)],
    only_names: bool,
) -> Result<NodesQuestion<'a>, String> {
    if only_names {
        return Ok(NodesQuestion {
            pod,
            nodes: None,
            names: Some(nodes.iter().map(|(name, _)| &**name).collect()),
        });
    }
    let mut list = NodeList::default();
    for (name, object) in nodes {
        let Some(object) = object else {
            return Err(format!("node {name:?} not found"));
        };
        let text = String::from_utf8_lossy(object).into_owned();
        list.items
            .push(RawValue::from_string(text).map_err(|error| error.to_string())?);
    }
    Ok(NodesQuestion {
        pod,
        nodes: Some(list),
        names: None,
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct FilterAnswer {
    nodes: Option<AnsweredNodes>,
    node_names: Option<Vec<Box<str>>>,
    #[serde(deserialize_with = "or_nothing")]
    pub failed_nodes: BTreeMap<Box<str>, String>,
    #[serde(deserialize_with = "or_nothing")]
    pub failed_and_unresolvable_nodes: BTreeMap<Box<str>, String>,
    pub error: String,
}

fn or_nothing<'de, D>(deserializer: D) -> Result<BTreeMap<Box<str>, String>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnsweredNodes {
    items: Option<Vec<AnsweredNode>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnsweredNode {
    metadata: AnsweredMeta,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AnsweredMeta {
    name: Box<str>,
}

impl FilterAnswer {
    /// Nodes that will do.
    pub fn names(&self, only_names: bool) -> Vec<Box<str>> {
        if only_names && let Some(names) = &self.node_names {
            return names.clone();
        }
        let items = self
            .nodes
            .iter()
            .flat_map(|list| list.items.iter().flatten());
        items.map(|node| node.metadata.name.clone()).collect()
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Host {
    pub host: Box<str>,
    pub score: i64,
}

#[derive(Debug, Serialize)]
pub struct Binding<'a> {
    #[serde(rename = "PodName")]
    pub pod_name: &'a str,
    #[serde(rename = "PodNamespace")]
    pub pod_namespace: &'a str,
    #[serde(rename = "PodUID")]
    pub pod_uid: &'a str,
    #[serde(rename = "Node")]
    pub node: &'a str,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct BindAnswer {
    pub error: String,
}

#[derive(Debug, Serialize)]
pub struct VictimsQuestion<'a> {
    #[serde(rename = "Pod")]
    pod: &'a RawValue,
    #[serde(rename = "NodeNameToVictims")]
    whole: Option<BTreeMap<&'a str, WholeVictims<'a>>>,
    #[serde(rename = "NodeNameToMetaVictims")]
    meta: Option<BTreeMap<&'a str, MetaVictims>>,
}

#[derive(Debug, Serialize)]
struct WholeVictims<'a> {
    #[serde(rename = "Pods")]
    pods: Vec<&'a RawValue>,
    #[serde(rename = "NumPDBViolations")]
    violations: i64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MetaVictims {
    #[serde(rename = "Pods")]
    pods: Option<Vec<MetaPod>>,
    #[serde(rename = "NumPDBViolations")]
    violations: i64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct MetaPod {
    #[serde(rename = "UID")]
    uid: Box<str>,
}

impl MetaVictims {
    pub fn uids(&self) -> impl Iterator<Item = &str> {
        self.pods.iter().flatten().map(|pod| &*pod.uid)
    }

    pub fn violations(&self) -> i64 {
        self.violations
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PreemptAnswer {
    #[serde(rename = "NodeNameToMetaVictims")]
    pub node_name_to_meta_victims: Option<BTreeMap<Box<str>, MetaVictims>>,
}

pub fn victims<'a>(
    pod: &'a RawValue,
    victims: &'a [Victims],
    pods: &'a BTreeMap<Box<str>, Box<RawValue>>,
    only_names: bool,
) -> VictimsQuestion<'a> {
    let violations = |one: &Victims| i64::try_from(one.violations).unwrap_or(i64::MAX);
    if only_names {
        let meta = victims.iter().map(|one| {
            let pods = one.pods.iter().map(|pod| MetaPod {
                uid: (&*pod.uid).into(),
            });
            let victims = MetaVictims {
                pods: Some(pods.collect()),
                violations: violations(one),
            };
            (&*one.node, victims)
        });
        return VictimsQuestion {
            pod,
            whole: None,
            meta: Some(meta.collect()),
        };
    }
    let whole = victims.iter().map(|one| {
        let known = one.pods.iter().filter_map(|pod| pods.get(&*pod.uid));
        let victims = WholeVictims {
            pods: known.map(|pod| &**pod).collect(),
            violations: violations(one),
        };
        (&*one.node, victims)
    });
    VictimsQuestion {
        pod,
        whole: Some(whole.collect()),
        meta: None,
    }
}
