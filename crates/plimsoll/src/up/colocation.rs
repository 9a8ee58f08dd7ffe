//! The manager of `up`, with what it needs in the cluster: definitions, a namespace, and a configuration that lends.

use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams, PostParams};
use plimsoll_api::names;
use plimsoll_manager::live;
use serde_json::json;

use super::supervise::Role;

const DEFINITIONS: &str = include_str!("../../../../deploy/manager/crds.yaml");

#[derive(Debug)]
pub struct Manager(live::Running);

impl Manager {
    pub async fn start(client: kube::Client) -> Result<Self> {
        define(&client).await?;
        configure(&client).await?;
        Ok(Self(live::Config::default().build(client)?.spawn()))
    }
}

impl Role for Manager {
    async fn failure(&mut self) -> String {
        match self.0.finished().await {
            Ok(()) => "it ended too early".to_owned(),
            Err(why) => why,
        }
    }

    async fn drain(self, within: Duration) {
        self.0.drain(within).await;
    }
}

async fn define(client: &kube::Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let wanted: Vec<serde_json::Value> =
        serde_saphyr::from_multiple(DEFINITIONS).context("the manager's definitions")?;
    for definition in wanted {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        let params = PatchParams::apply("plimsoll").force();
        definitions
            .patch(name, &params, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("define {name}"))?;
    }
    Ok(())
}

/// Whoever has changed the configuration keeps it so.
async fn configure(client: &kube::Client) -> Result<()> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": names::CONFIG_NAMESPACE}}))?;
    unless_there(namespaces.create(&PostParams::default(), &namespace).await)?;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), names::CONFIG_NAMESPACE);
    let map = serde_json::from_value(json!({
        "metadata": {"name": names::CONFIG_NAME},
        "data": {"colocation-config": json!({"enable": true}).to_string()},
    }))?;
    unless_there(maps.create(&PostParams::default(), &map).await)
}

fn unless_there<K>(created: Result<K, kube::Error>) -> Result<()> {
    match created {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop).context("configure the manager"),
    }
}
