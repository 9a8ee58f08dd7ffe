//! What pods ask for and may take, a line a resource: `/metrics/resources`.
//!
//! The core keeps no limits, so whoever asks for this page has the pods read for it, a few hundred at a time.

use std::collections::BTreeMap;
use std::fmt::Write;

use plimsoll_api::quantity::Quantity;
use serde::{Deserialize, Deserializer};

/// Amounts by resource.
type Amounts = BTreeMap<String, f64>;

/// As the API server writes it: text. One that makes no sense counts for nothing.
#[derive(Debug, Clone, Copy)]
struct Amount(f64);

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let nanos = text.parse().map_or(0, |amount: Quantity| amount.nanos());
        Ok(Self(nanos as f64 / 1e9))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodList {
    pub metadata: ListMeta,
    items: Vec<Pod>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ListMeta {
    #[serde(rename = "continue")]
    pub token: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pod {
    metadata: Meta,
    spec: Spec,
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    namespace: String,
    name: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    phase: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: String,
    scheduler_name: String,
    priority: Option<i32>,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    resources: Resources,
    overhead: BTreeMap<String, Amount>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    resources: Resources,
    restart_policy: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Resources {
    requests: BTreeMap<String, Amount>,
    limits: BTreeMap<String, Amount>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Requests,
    Limits,
}

impl Resources {
    fn of(&self, side: Side) -> &BTreeMap<String, Amount> {
        match side {
            Side::Requests => &self.requests,
            Side::Limits => &self.limits,
        }
    }
}

fn add(to: &mut Amounts, from: &BTreeMap<String, Amount>) {
    for (name, amount) in from {
        *to.entry(name.clone()).or_default() += amount.0;
    }
}

fn raise(to: &mut Amounts, from: &Amounts) {
    for (name, amount) in from {
        let known = to.entry(name.clone()).or_default();
        *known = known.max(*amount);
    }
}

impl Spec {
    /// Containers add up; init containers take turns, beside those of them that stay; the pod as a whole has the last
    /// word on what it names.
    fn total(&self, side: Side) -> Amounts {
        let mut total = Amounts::new();
        for container in &self.containers {
            add(&mut total, container.resources.of(side));
        }
        let mut staying = Amounts::new();
        let mut highest = Amounts::new();
        for container in &self.init_containers {
            let own = container.resources.of(side);
            if container.restart_policy == "Always" {
                add(&mut total, own);
                add(&mut staying, own);
                raise(&mut highest, &staying);
            } else {
                let mut turn = staying.clone();
                add(&mut turn, own);
                raise(&mut highest, &turn);
            }
        }
        raise(&mut total, &highest);
        for (name, amount) in self.resources.of(side) {
            let is_supported =
                matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-");
            if is_supported {
                total.insert(name.clone(), amount.0);
            }
        }
        for (name, amount) in &self.overhead {
            match total.get_mut(name) {
                Some(known) => *known += amount.0,
                None if side == Side::Requests => {
                    total.insert(name.clone(), amount.0);
                }
                None => {}
            }
        }
        total
    }
}

fn unit(resource: &str) -> &'static str {
    match resource {
        "cpu" => "cores",
        "memory" | "storage" | "ephemeral-storage" => "bytes",
        name if name.starts_with("hugepages-") => "bytes",
        name if name.starts_with("attachable-volumes-") => "integer",
        _ => "",
    }
}

/// The page as far as it is written.
#[derive(Debug, Default)]
pub struct PodResources {
    requests: String,
    limits: String,
}

impl PodResources {
    pub fn add(&mut self, list: &PodList) {
        for pod in &list.items {
            let has_ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
            if has_ended && !pod.spec.node_name.is_empty() {
                continue;
            }
            for (side, name, text) in [
                (
                    Side::Requests,
                    "kube_pod_resource_request",
                    &mut self.requests,
                ),
                (Side::Limits, "kube_pod_resource_limit", &mut self.limits),
            ] {
                for (resource, amount) in pod.spec.total(side) {
                    if amount != 0.0 {
                        line(text, name, pod, &resource, amount);
                    }
                }
            }
        }
    }

    pub fn finish(self) -> String {
        let mut page = String::new();
        for (name, help, lines) in [
            (
                "kube_pod_resource_limit",
                "[STABLE] What a pod may take at most, by resource.",
                self.limits,
            ),
            (
                "kube_pod_resource_request",
                "[STABLE] What a pod asks for, by resource.",
                self.requests,
            ),
        ] {
            if !lines.is_empty() {
                let _ = write!(page, "# HELP {name} {help}\n# TYPE {name} gauge\n{lines}");
            }
        }
        page
    }
}

fn line(text: &mut String, name: &str, pod: &Pod, resource: &str, amount: f64) {
    let priority = pod.spec.priority.map(|priority| priority.to_string());
    let priority = priority.unwrap_or_default();
    // None of these can contain what would have to be escaped.
    let _ = writeln!(
        text,
        "{name}{{namespace=\"{}\",node=\"{}\",pod=\"{}\",priority=\"{priority}\",resource=\"{resource}\",scheduler=\"{}\",unit=\"{}\"}} {}",
        pod.metadata.namespace,
        pod.spec.node_name,
        pod.metadata.name,
        pod.spec.scheduler_name,
        unit(resource),
        plimsoll_golang::strconv::format_float(amount)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_a_resource() {
        let list = r#"{"metadata":{"continue":"x"},"items":[
            {"metadata":{"namespace":"d","name":"p"},"spec":{"nodeName":"n","schedulerName":"s","priority":5,
             "overhead":{"cpu":"100m","memory":"1Mi"},
             "initContainers":[{"resources":{"requests":{"cpu":"1"}},"restartPolicy":"Always"},
                               {"resources":{"requests":{"cpu":"3"}}}],
             "containers":[{"resources":{"requests":{"cpu":"500m","memory":"1Gi"},"limits":{"cpu":"2","example.com/x":"1"}}}]}},
            {"metadata":{"namespace":"d","name":"ended"},"spec":{"nodeName":"n",
             "containers":[{"resources":{"requests":{"cpu":"1"}}}]},"status":{"phase":"Failed"}}]}"#;
        let list: PodList = serde_json::from_str(list).unwrap();
        assert_eq!(list.metadata.token, "x");
        let mut page = PodResources::default();
        page.add(&list);
        let page = page.finish();
        let common = "namespace=\"d\",node=\"n\",pod=\"p\",priority=\"5\"";
        for line in [
            format!(
                "kube_pod_resource_limit{{{common},resource=\"cpu\",scheduler=\"s\",unit=\"cores\"}} 2.1\n"
            ),
            format!(
                "kube_pod_resource_limit{{{common},resource=\"example.com/x\",scheduler=\"s\",unit=\"\"}} 1\n"
            ),
            // Four of the init container beside the one that stays, and what the runtime needs.
            format!(
                "kube_pod_resource_request{{{common},resource=\"cpu\",scheduler=\"s\",unit=\"cores\"}} 4.1\n"
            ),
            format!(
                "kube_pod_resource_request{{{common},resource=\"memory\",scheduler=\"s\",unit=\"bytes\"}} 1.0747904e+09\n"
            ),
        ] {
            assert!(page.contains(&line), "{line}\n{page}");
        }
        assert!(!page.contains("ended"), "{page}");
    }
}
