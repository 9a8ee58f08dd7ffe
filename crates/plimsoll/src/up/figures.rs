//! The metrics server of `up`: beside the API server, which hands `metrics.k8s.io` on to it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{Api, Patch, PatchParams};

use plimsoll_metrics_server::collector;
use plimsoll_metrics_server::config::Config;
use serde_json::{Value, json};

use super::supervise::Role;
use crate::metrics_server::Roles;

const NAMESPACE: &str = "kube-system";
const NAME: &str = "metrics-server";
/// As the manifests have it; and short enough to see something soon.
const RESOLUTION: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct MetricsServer {
    roles: Roles,
}

impl MetricsServer {
    pub async fn start(
        data_dir: PathBuf,
        kubeconfig: PathBuf,
        client: kube::Client,
    ) -> Result<Self> {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut config = Config::new(listen);
        config.front.serving.cert_dir = Some(data_dir.join(NAME));
        config.front.serving.names = vec![format!("{NAME}.{NAMESPACE}.svc")];
        config.announced.v1 = true;
        let mut collector = collector::Config {
            resolution: RESOLUTION,
            ..collector::Config::default()
        };
        // All nodes that can be asked are on this machine, and say by which port.
        collector.scrape.request_timeout = REQUEST_TIMEOUT;
        collector.scrape.rules.plain = true;
        collector.scrape.trust.nothing = true;
        collector.scrape.rules.use_status_port = true;
        collector.scrape.rules.address_types = vec!["InternalDNS".to_owned()];
        let clients = plimsoll_client::Config::from_flag(Some(kubeconfig));
        let roles = Roles::start(config, collector, clients).await?;
        let address = roles.serving.local_addr();
        let authority = roles
            .serving
            .authority()
            .context("there is no certificate")?;
        register(&client, address.port(), &authority).await?;
        Ok(Self { roles })
    }

    pub fn address(&self) -> SocketAddr {
        self.roles.serving.local_addr()
    }
}

impl Role for MetricsServer {
    async fn failure(&mut self) -> String {
        self.roles.failure().await.to_string()
    }

    async fn drain(self, within: Duration) {
        self.roles.drain(within).await;
    }
}

/// Tells the API server who answers for the group, and by which certificate to know them.
async fn register(client: &kube::Client, port: u16, authority: &str) -> Result<()> {
    let services: Api<Service> = Api::namespaced(client.clone(), NAMESPACE);
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "labels": {"k8s-app": NAME}},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    });
    apply(&services, NAME, &service).await?;
    let registered: Api<APIService> = Api::all(client.clone());
    for (version, priority) in [("v1beta1", 100), ("v1", 200)] {
        let name = format!("{version}.metrics.k8s.io");
        let registration = json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": name, "labels": {"k8s-app": NAME}},
            "spec": {
                "group": "metrics.k8s.io",
                "version": version,
                "groupPriorityMinimum": 100,
                "versionPriority": priority,
                "caBundle": authority,
                "service": {"namespace": NAMESPACE, "name": NAME, "port": port},
            },
        });
        apply(&registered, &name, &registration).await?;
    }
    Ok(())
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> Result<()>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let params = PatchParams::apply("plimsoll").force();
    api.patch(name, &params, &Patch::Apply(object))
        .await
        .with_context(|| format!("register {name}"))?;
    Ok(())
}
