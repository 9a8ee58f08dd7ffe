//! An embedded API server with the manager's definitions, and a kubelet of a few lines.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Bytes;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use parking_lot::Mutex;
use plimsoll_agent::states::{ClusterState, ClusterStateCell};
use plimsoll_apiserver::embed;

use serde_json::{Value, json};
use tokio::net::TcpSocket;

pub const DEADLINE: Duration = Duration::from_secs(60);
pub const NODE: &str = "n1";
const CRDS: &str = include_str!("../../../../../deploy/manager/crds.yaml");

pub struct Cluster {
    pub api: embed::Running,
}

impl Cluster {
    pub async fn start() -> Self {
        let config = embed::Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: None,
        };
        Self {
            api: config.build().await.unwrap().spawn(),
        }
    }

    pub fn client(&self) -> Client {
        self.api.client()
    }

    pub async fn define(&self) {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client());
        let documents: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(CRDS).unwrap();
        for crd in documents {
            crds.create(&PostParams::default(), &crd).await.unwrap();
        }
    }

    pub fn objects(&self, group: &str, version: &str, kind: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk(group, version, kind);
        Api::all_with(self.client(), &ApiResource::from_gvk(&kind))
    }

    pub fn slo(&self, kind: &str) -> Api<DynamicObject> {
        self.objects("slo.koordinator.sh", "v1alpha1", kind)
    }

    /// Makes it, or makes it anew.
    pub async fn put(&self, api: &Api<DynamicObject>, object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        let params = PatchParams::apply("test").force();
        api.patch(&name, &params, &Patch::Apply(object))
            .await
            .unwrap();
    }

    pub async fn put_slo(&self, kind: &str, spec: Value) {
        let object = json!({
            "apiVersion": "slo.koordinator.sh/v1alpha1", "kind": kind,
            "metadata": {"name": NODE}, "spec": spec,
        });
        self.put(&self.slo(kind), object).await;
    }

    pub async fn put_node(&self, annotations: Value) {
        let nodes = self.objects("", "v1", "Node");
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "annotations": annotations}});
        self.put(&nodes, node).await;
        let resources = json!({"cpu": "10", "memory": "10Gi", "pods": "110"});
        let status = json!({"status": {"capacity": resources, "allocatable": resources}});
        nodes
            .patch_status(NODE, &PatchParams::default(), &Patch::Merge(status))
            .await
            .unwrap();
    }

    pub async fn drain(self) {
        self.api.drain(DEADLINE).await;
    }
}

/// The cluster_state, once it is as wanted.
pub async fn seen(
    cluster_state: &ClusterStateCell,
    what: &str,
    wanted: impl FnMut(&ClusterState) -> bool,
) -> ClusterState {
    let mut following = cluster_state.subscribe();
    let found = tokio::time::timeout(DEADLINE, following.wait_for(wanted)).await;
    let found = found.unwrap_or_else(|_| panic!("{what}: in vain; {:?}", cluster_state.current()));
    found.unwrap().clone()
}

/// A port that is ours, whether somebody listens there or not: a socket is bound to it, and does not listen.
pub struct Place {
    _bound: TcpSocket,
    address: SocketAddr,
}

impl Place {
    pub fn reserve() -> Self {
        let bound = TcpSocket::new_v4().unwrap();
        // So that a listener may share it.
        bound.set_reuseaddr(true).unwrap();
        bound
            .bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        let address = bound.local_addr().unwrap();
        Self {
            _bound: bound,
            address,
        }
    }
}

/// Answers `/pods/` and `/configz`; without pods it is not well.
pub struct FakeKubelet {
    pub pods: Arc<Mutex<Option<Value>>>,
    pub asked: Arc<Mutex<u64>>,
    serving: plimsoll_serving::Serving,
}

impl FakeKubelet {
    pub async fn start() -> Self {
        Self::on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
    }

    /// Where one was before, perhaps.
    pub async fn at(place: &Place) -> Self {
        Self::on(place.address).await
    }

    async fn on(listen: SocketAddr) -> Self {
        let bound = plimsoll_serving::Config::new(listen).bind().await.unwrap();
        let pods = Arc::new(Mutex::new(None::<Value>));
        let asked = Arc::new(Mutex::new(0));
        let (told, counted) = (Arc::clone(&pods), Arc::clone(&asked));
        let serving = bound.spawn(tower::service_fn(move |request: Request<_>| {
            let answer = answer(&request, told.lock().clone(), &counted);
            std::future::ready(Ok::<_, Infallible>(answer))
        }));
        Self {
            pods,
            asked,
            serving,
        }
    }

    /// Its port is closed from now on.
    pub async fn stop(self) {
        self.serving.drain(DEADLINE).await;
    }

    pub fn port(&self) -> u16 {
        self.serving.local_addr().port()
    }

    pub fn tell(&self, names: &[&str]) {
        let pods = names.iter().map(|name| {
            json!({
                "metadata": {"name": name, "namespace": "default", "uid": format!("uid-{name}")},
                "status": {"phase": "Running", "qosClass": "Burstable"},
            })
        });
        let list = json!({"kind": "PodList", "items": pods.collect::<Vec<_>>()});
        *self.pods.lock() = Some(list);
    }
}

fn answer<B>(
    request: &Request<B>,
    pods: Option<Value>,
    asked: &Mutex<u64>,
) -> Response<Full<Bytes>> {
    let body = match (request.uri().path(), pods) {
        ("/pods/", Some(pods)) => {
            *asked.lock() += 1;
            pods
        }
        ("/configz", Some(_)) => json!({"kubeletconfig": {
            "cgroupDriver": "cgroupfs", "cpuManagerPolicy": "static", "reservedSystemCPUs": "0",
        }}),
        _ => {
            let mut response = Response::new(Full::from("not now"));
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            return response;
        }
    };
    Response::new(Full::from(body.to_string()))
}
