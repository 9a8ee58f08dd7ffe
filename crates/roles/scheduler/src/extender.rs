//! Extenders: others who are asked by HTTP which nodes will do, how well, who may be evicted, and to bind.

mod client;
mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::join_all;
use parking_lot::Mutex;
use plimsoll_sched::action::PodRef;
use plimsoll_sched::extender::{About, Answer, Question, RefusedNode, Victims};
use plimsoll_waiting::ByKey;
use serde_json::value::RawValue;

use crate::config::ExtenderConfig;
use client::HttpClient;
use wire::{Binding, FilterAnswer, Host, MetaVictims, PreemptAnswer};

/// What an extender's best score amounts to beside a plugin's.
const SCALE: i64 = 10;
/// Filter, prioritize, preempt and bind.
const VERBS: usize = 4;

#[derive(Debug, thiserror::Error)]
#[error("couldn't build extenders: {problem}")]
pub struct ExtenderError {
    pub problem: String,
}

#[derive(Debug)]
pub struct Extender {
    config: ExtenderConfig,
    http: HttpClient,
    /// By verb: one may be served and another not.
    trouble: Mutex<ByKey<&'static str>>,
}

/// All of them, in the order of the configuration.
#[derive(Debug, Default)]
pub struct Extenders(Vec<Arc<Extender>>);

impl Extender {
    pub fn build(config: ExtenderConfig) -> Result<Self, ExtenderError> {
        let http = HttpClient::build(&config).map_err(|problem| ExtenderError { problem })?;
        Ok(Self {
            config,
            http,
            trouble: Mutex::new(ByKey::new(VERBS)),
        })
    }

    /// It is done without, which is said, and again at growing intervals.
    pub fn passed_over(&self, verb: &'static str, error: &str) {
        if let Some(said) = self.trouble.lock().failed(&verb) {
            let (extender, times) = (&self.config.url_prefix, said.times);
            tracing::warn!(
                extender,
                verb,
                error,
                times,
                "an extender does not answer, going on without"
            );
        }
    }

    pub fn answered(&self, verb: &'static str) {
        if let Some(over) = self.trouble.lock().well(&verb) {
            let (extender, failures) = (&self.config.url_prefix, over.failures);
            tracing::info!(extender, verb, failures, "an extender answers again");
        }
    }

    /// Without its answer, things go on as if it had not been asked.
    pub fn is_ignorable(&self) -> bool {
        self.config.ignorable
    }

    pub async fn bind(&self, pod: &PodRef, node: &str) -> Result<(), String> {
        let binding = Binding {
            pod_name: &pod.name,
            pod_namespace: &pod.namespace,
            pod_uid: &pod.uid,
            node,
        };
        let answer: Option<wire::BindAnswer> =
            self.http.post(&self.config.bind_verb, &binding).await?;
        match answer.unwrap_or_default().error {
            none if none.is_empty() => Ok(()),
            error => Err(error),
        }
    }

    /// Which of the nodes will do, and why the others will not.
    async fn filter(
        &self,
        pod: &RawValue,
        nodes: &[(Box<str>, Option<Bytes>)],
    ) -> Result<(Vec<Box<str>>, Vec<RefusedNode>), String> {
        let body = wire::nodes(pod, nodes, self.config.node_cache_capable)?;
        let answer: Option<FilterAnswer> = self.http.post(&self.config.filter_verb, &body).await?;
        let answer = answer.unwrap_or_default();
        if !answer.error.is_empty() {
            return Err(answer.error);
        }
        let names = answer.names(self.config.node_cache_capable);
        for name in &names {
            if !nodes.iter().any(|(known, _)| **known == **name) {
                return Err(format!(
                    "extender {:?} claims a filtered node {name:?} which is not found in the input node list",
                    self.config.url_prefix
                ));
            }
        }
        let FilterAnswer {
            mut failed_nodes,
            failed_and_unresolvable_nodes: for_good,
            ..
        } = answer;
        // A node is refused once, for good if it is in both lists.
        failed_nodes.retain(|node, _| !for_good.contains_key(node));
        let refused = |list: BTreeMap<Box<str>, String>, for_good| {
            list.into_iter().map(move |(node, message)| RefusedNode {
                node,
                message,
                for_good,
            })
        };
        let refused = refused(failed_nodes, false)
            .chain(refused(for_good, true))
            .collect();
        Ok((names, refused))
    }

    async fn prioritize(
        &self,
        pod: &RawValue,
        nodes: &[(Box<str>, Option<Bytes>)],
    ) -> Result<Vec<Host>, String> {
        let body = wire::nodes(pod, nodes, self.config.node_cache_capable)?;
        let hosts: Option<Vec<Host>> = self.http.post(&self.config.prioritize_verb, &body).await?;
        Ok(hosts.unwrap_or_default())
    }

    async fn preempt(
        &self,
        pod: &RawValue,
        victims: &[Victims],
        pods: &BTreeMap<Box<str>, Box<RawValue>>,
    ) -> Result<BTreeMap<Box<str>, MetaVictims>, String> {
        let body = wire::victims(pod, victims, pods, self.config.node_cache_capable);
        let answer: Option<PreemptAnswer> =
            self.http.post(&self.config.preempt_verb, &body).await?;
        Ok(answer
            .unwrap_or_default()
            .node_name_to_meta_victims
            .unwrap_or_default())
    }

    /// Who has to go by its answer, which has to name somebody on each of the nodes, and nobody who is not there.
    fn left_of(
        &self,
        victims: &[Victims],
        answer: BTreeMap<Box<str>, MetaVictims>,
    ) -> Result<Vec<Victims>, String> {
        let mut left = Vec::new();
        for (node, named) in answer {
            let known = victims.iter().find(|one| one.node == node);
            let known = known.ok_or(format!("nodeinfo not found for node name {node:?}"))?;
            let pods = named.uids().map(|uid| {
                let pod = known.present.iter().find(|pod| &*pod.uid == uid);
                pod.cloned().ok_or_else(|| {
                    format!(
                        "extender: {} claims to preempt pod (UID: &{{{uid}}}) on node: {node}, but the pod is not \
                         found on that node",
                        self.config.url_prefix
                    )
                })
            });
            left.push(Victims {
                pods: pods.collect::<Result<_, _>>()?,
                present: known.present.clone(),
                violations: usize::try_from(named.violations()).unwrap_or(0),
                node,
            });
        }
        if self.is_ignorable() {
            left.retain(|one| !one.pods.is_empty());
        }
        match left.iter().find(|one| one.pods.is_empty()) {
            Some(bare) => Err(format!(
                "expected at least one victim pod on node {:?}",
                bare.node
            )),
            None => Ok(left),
        }
    }
}

impl Extenders {
    pub fn build(configs: &[ExtenderConfig]) -> Result<Self, ExtenderError> {
        let built = configs.iter().cloned().map(Extender::build);
        let list: Result<Vec<_>, _> = built.map(|one| one.map(Arc::new)).collect();
        Ok(Self(list?))
    }

    /// Whether whole nodes have to be sent to any.
    pub fn want_nodes(&self) -> bool {
        self.0.iter().any(|one| {
            let asks = !one.config.filter_verb.is_empty() || !one.config.prioritize_verb.is_empty();
            asks && !one.config.node_cache_capable
        })
    }

    /// Who binds, and its place in the configuration.
    pub fn binder(&self) -> Option<(usize, Arc<Extender>)> {
        let index = self
            .0
            .iter()
            .position(|one| !one.config.bind_verb.is_empty())?;
        Some((index, Arc::clone(self.0.get(index)?)))
    }

    /// Asks all that a question is for.
    pub async fn ask(
        &self,
        client: &kube::Client,
        question: Question,
        nodes: Vec<Bytes>,
    ) -> Answer {
        match self.try_ask(client, question, nodes).await {
            Ok(answer) => answer,
            Err(error) => Answer::failed(error),
        }
    }

    async fn try_ask(
        &self,
        client: &kube::Client,
        question: Question,
        nodes: Vec<Bytes>,
    ) -> Result<Answer, String> {
        let pod = whole_pod(client, &question.pod).await?;
        let mut concerned: Vec<&Arc<Extender>> = question
            .extenders
            .iter()
            .filter_map(|index| self.0.get(*index))
            .collect();
        // Those whose answer matters come first.
        concerned.sort_by_key(|one| one.is_ignorable());
        match question.about {
            About::Nodes(names) => {
                let nodes = wire::with_objects(names, nodes);
                about_nodes(&concerned, &pod, nodes).await
            }
            About::Victims(victims) => about_victims(client, &concerned, &pod, victims).await,
        }
    }
}

async fn whole_pod(client: &kube::Client, pod: &PodRef) -> Result<Box<RawValue>, String> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
    let request = http::Request::get(path).body(Vec::new());
    let request = request.map_err(|error| error.to_string())?;
    let text = client.request_text(request).await;
    let text = text.map_err(|error| error.to_string())?;
    RawValue::from_string(text).map_err(|error| error.to_string())
}

type Nodes = Vec<(Box<str>, Option<Bytes>)>;

async fn about_nodes(
    concerned: &[&Arc<Extender>],
    pod: &RawValue,
    mut nodes: Nodes,
) -> Result<Answer, String> {
    let mut answer = Answer::default();
    for extender in concerned {
        if nodes.is_empty() {
            break;
        }
        if extender.config.filter_verb.is_empty() {
            continue;
        }
        match extender.filter(pod, &nodes).await {
            Ok((left, refused)) => {
                extender.answered("filter");
                nodes.retain(|(name, _)| left.contains(name));
                answer.refused.extend(refused);
                answer.nodes_as_empty |= !extender.config.node_cache_capable;
            }
            Err(error) if extender.is_ignorable() => {
                extender.passed_over("filter", &error);
            }
            Err(error) => return Err(error),
        }
    }
    let mut scores: BTreeMap<Box<str>, i64> = BTreeMap::new();
    if nodes.len() > 1 {
        let scoring = concerned
            .iter()
            .filter(|extender| !extender.config.prioritize_verb.is_empty());
        let asked = scoring.map(|extender| {
            let asked = extender.prioritize(pod, &nodes);
            async move { (extender, asked.await) }
        });
        for (extender, hosts) in join_all(asked).await {
            let weight = extender.config.weight;
            match hosts {
                Ok(hosts) => {
                    extender.answered("prioritize");
                    for host in hosts {
                        let score = host.score.saturating_mul(weight).saturating_mul(SCALE);
                        let sum = scores.entry(host.host).or_default();
                        *sum = sum.saturating_add(score);
                    }
                }
                Err(error) => extender.passed_over("prioritize", &error),
            }
        }
    }
    answer.nodes = nodes
        .into_iter()
        .map(|(name, _)| {
            let score = scores.get(&name).copied().unwrap_or(0);
            (name, score)
        })
        .collect();
    Ok(answer)
}

async fn about_victims(
    client: &kube::Client,
    concerned: &[&Arc<Extender>],
    pod: &RawValue,
    mut victims: Vec<Victims>,
) -> Result<Answer, String> {
    let mut pods: BTreeMap<Box<str>, Box<RawValue>> = BTreeMap::new();
    for extender in concerned {
        if !extender.config.node_cache_capable {
            for victim in victims.iter().flat_map(|one| &one.pods) {
                if !pods.contains_key(&*victim.uid) {
                    pods.insert((&*victim.uid).into(), whole_pod(client, victim).await?);
                }
            }
        }
        let left = extender.preempt(pod, &victims, &pods).await;
        match left.and_then(|left| extender.left_of(&victims, left)) {
            Ok(left) => {
                extender.answered("preempt");
                victims = left;
            }
            Err(error) if extender.is_ignorable() => {
                extender.passed_over("preempt", &error);
            }
            Err(error) => return Err(error),
        }
        if victims.is_empty() {
            break;
        }
    }
    Ok(Answer {
        victims,
        ..Answer::default()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Who has to go instead of two victims on node `a`, as `UID…: violations`, or what is wrong with the answer.
    fn left(ignorable: bool, answer: Value) -> String {
        let extender = Extender::build(ExtenderConfig {
            url_prefix: "http://127.0.0.1:1".to_owned(),
            ignorable,
            ..ExtenderConfig::default()
        })
        .unwrap();
        let pod = |uid: &str| PodRef {
            namespace: "default".into(),
            name: uid.into(),
            uid: uid.into(),
            resource_version: "1".into(),
        };
        let victims = [Victims {
            node: "a".into(),
            pods: vec![pod("one"), pod("two")],
            present: vec![pod("one"), pod("two"), pod("bystander")],
            violations: 0,
        }];
        let answer = serde_json::from_value(answer).unwrap();
        match extender.left_of(&victims, answer) {
            Ok(left) => left
                .iter()
                .map(|one| {
                    let uids: Vec<&str> = one.pods.iter().map(|pod| &*pod.uid).collect();
                    format!("{} {}: {}", one.node, uids.join(" "), one.violations)
                })
                .collect(),
            Err(error) => error,
        }
    }

    #[tokio::test]
    async fn answers_about_victims() {
        let two = json!({"a": {"Pods": [{"UID": "two"}], "NumPDBViolations": 3}});
        assert_eq!(left(false, two), "a two: 3");
        let another = json!({"a": {"Pods": [{"UID": "bystander"}, {"UID": "one"}]}});
        assert_eq!(left(false, another), "a bystander one: 0");
        assert_eq!(left(false, json!({})), "");
        let bare = json!({"a": {"Pods": []}});
        assert_eq!(
            left(false, bare.clone()),
            "expected at least one victim pod on node \"a\""
        );
        assert_eq!(left(true, bare), "");
        assert_eq!(
            left(true, json!({"z": {"Pods": [{"UID": "one"}]}})),
            "nodeinfo not found for node name \"z\""
        );
        assert_eq!(
            left(false, json!({"a": {"Pods": [{"UID": "three"}]}})),
            "extender: http://127.0.0.1:1 claims to preempt pod (UID: &{three}) on node: a, but the pod is not found on \
             that node"
        );
    }

    /// An extender that serves one verb and not another.
    #[tokio::test]
    async fn each_verb_has_its_own_trouble() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut request = [0; 4096];
                let length = socket.read(&mut request).await.unwrap();
                let answer = match request[..length].starts_with(b"POST /scores") {
                    true => "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n[]",
                    false => "HTTP/1.1 500 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
                };
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        let extender = Extender::build(ExtenderConfig {
            url_prefix: format!("http://{address}"),
            filter_verb: "filter".to_owned(),
            prioritize_verb: "scores".to_owned(),
            ignorable: true,
            node_cache_capable: true,
            ..ExtenderConfig::default()
        });
        let extender = Arc::new(extender.unwrap());
        extender.passed_over("prioritize", "it was away");
        let nodes = ["a", "b"].map(|name| (name.into(), None)).to_vec();
        let pod = RawValue::from_string("{}".to_owned()).unwrap();
        let answer = about_nodes(&[&extender], &pod, nodes).await.unwrap();
        assert_eq!(answer.nodes.len(), 2);
        let mut trouble = extender.trouble.lock();
        assert!(trouble.well(&"prioritize").is_none());
        assert!(trouble.well(&"filter").is_some());
    }
}
