//! A cluster in this process, with a scheduler.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use kube::Client;
use plimsoll_apiserver::embed;
use plimsoll_scheduler::config::{self, Configuration};
use plimsoll_scheduler::live::{Connections, Options, Running};
use serde_json::{Value, json};

/// On a machine that does much else.
const DEADLINE: Duration = Duration::from_secs(180);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

pub struct Cluster {
    pub api: embed::Running,
    pub scheduler: Running,
}

/// A pod with one container that asks for so much CPU.
pub fn pod(name: &str, cpu: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [
        {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]}})
}

pub async fn api_server() -> embed::Running {
    let config = embed::Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        data_dir: None,
    };
    config.build().await.unwrap().spawn()
}

pub fn start(client: Client, mut configuration: Configuration, file: Option<&Path>) -> Running {
    configuration.check().unwrap();
    let mut options = Options::new(configuration);
    options.file = file.map(Path::to_owned);
    options.build(Connections::one(client)).unwrap().spawn()
}

impl Cluster {
    pub async fn start() -> Self {
        Self::start_with(Configuration::default()).await
    }

    pub async fn start_with(mut configuration: Configuration) -> Self {
        configuration.leader_election.leader_elect = false;
        let api = api_server().await;
        let scheduler = start(api.client(), configuration, None);
        Self { api, scheduler }
    }

    pub async fn start_from(file: &Path) -> Self {
        let configuration = config::parse(&std::fs::read_to_string(file).unwrap()).unwrap();
        let api = api_server().await;
        let scheduler = start(api.client(), configuration, Some(file));
        Self { api, scheduler }
    }

    pub async fn stop(self) {
        self.scheduler.drain(Duration::from_secs(10)).await;
        self.api.drain(Duration::from_secs(1)).await;
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        kind: &str,
        body: Value,
    ) -> Result<Value, kube::Error> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", kind)
            .body(body.to_string().into_bytes())
            .unwrap();
        self.api.client().request(request).await
    }

    pub async fn create(&self, path: &str, object: Value) -> Value {
        self.send("POST", path, "application/json", object)
            .await
            .unwrap()
    }

    pub async fn patch(&self, path: &str, patch: Value) -> Value {
        let kind = "application/merge-patch+json";
        self.send("PATCH", path, kind, patch).await.unwrap()
    }

    pub async fn delete(&self, path: &str) -> Value {
        self.send("DELETE", path, "application/json", json!({}))
            .await
            .unwrap()
    }

    pub async fn get(&self, path: &str) -> Value {
        self.try_get(path).await.unwrap()
    }

    pub async fn try_get(&self, path: &str) -> Result<Value, kube::Error> {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        self.api.client().request(request).await
    }

    pub async fn node(&self, name: &str, cpu: &str, labels: Value) {
        let node = json!({"metadata": {"name": name, "labels": labels}});
        self.create("/api/v1/nodes", node).await;
        let status = json!({"status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"},
            "capacity": {"cpu": cpu, "memory": "16Gi", "pods": "110"}}});
        self.patch(&format!("/api/v1/nodes/{name}/status"), status)
            .await;
    }

    /// Nodes that the scheduler knows when this ends. They and pods come by different watches: without that, a pod may
    /// be decided about before a node that was made earlier.
    pub async fn nodes(&self, all: &[(&str, &str, Value)]) {
        for (name, cpu, labels) in all {
            self.node(name, cpu, labels.clone()).await;
        }
        // Changes of a kind come in order: whoever has seen this one come and go has seen all before.
        let before = self.get("/api/v1/nodes").await["items"]
            .as_array()
            .map_or(0, Vec::len);
        self.node("last", "1", json!({})).await;
        self.known_nodes(before + 1).await;
        self.delete("/api/v1/nodes/last").await;
        self.known_nodes(before).await;
    }

    async fn known_nodes(&self, nodes: usize) {
        let line = format!("scheduler_cache_size{{type=\"nodes\"}} {nodes}\n");
        self.eventually("the nodes are known", async |cluster| {
            let page = cluster.scheduler.shared().metrics().await;
            page.contains(&line).then_some(())
        })
        .await;
    }

    pub async fn pod(&self, pod: Value) -> Value {
        self.create("/api/v1/namespaces/default/pods", pod).await
    }

    pub async fn eventually<T>(
        &self,
        what: &str,
        mut look: impl AsyncFnMut(&Self) -> Option<T>,
    ) -> T {
        let looking = async {
            let mut pause = Duration::from_millis(10);
            loop {
                if let Some(found) = look(self).await {
                    return found;
                }
                tokio::time::sleep(pause).await;
                // Lists of thousands of pods are work for whom they wait for.
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        };
        let found = tokio::time::timeout(DEADLINE, looking).await;
        found.unwrap_or_else(|_| panic!("{what} did not happen"))
    }

    /// The pod, once it has a node.
    pub async fn bound(&self, name: &str) -> Value {
        let path = format!("/api/v1/namespaces/default/pods/{name}");
        self.eventually(&format!("{name} is bound"), async |cluster| {
            let pod = cluster.get(&path).await;
            pod["spec"]["nodeName"].is_string().then_some(pod)
        })
        .await
    }

    pub async fn event(&self, pod: &str, reason: &str) -> Value {
        self.eventually(&format!("an event {reason}"), async |cluster| {
            let list = cluster.get("/api/v1/namespaces/default/events").await;
            let events = list["items"].as_array()?;
            let found = events
                .iter()
                .find(|event| event["involvedObject"]["name"] == pod && event["reason"] == reason);
            found.cloned()
        })
        .await
    }
}
