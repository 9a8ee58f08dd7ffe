//! The parts of the Engine API's JSON that are used. Go writes `null` for an empty list or map.

use std::collections::BTreeMap;

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Info {
    pub name: String,
    pub driver: String,
    pub driver_status: Option<Vec<Vec<String>>>,
    pub docker_root_dir: String,
    pub kernel_version: String,
    pub operating_system: String,
    pub images: i64,
    pub containers: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Version {
    pub version: String,
    #[serde(default)]
    pub api_version: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Summary {
    pub id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Image {
    pub id: String,
    pub repo_tags: Option<Vec<String>>,
    #[serde(default)]
    pub created: i64,
    #[serde(default)]
    pub size: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Inspect {
    pub id: String,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub created: String,
    #[serde(default)]
    pub restart_count: i64,
    pub state: Option<State>,
    pub config: Option<Config>,
    pub host_config: Option<HostConfig>,
    pub graph_driver: Option<GraphDriver>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct State {
    pub running: bool,
    pub pid: i64,
    pub exit_code: i32,
    pub started_at: String,
    pub health: Option<Health>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Health {
    pub status: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct Config {
    pub image: String,
    pub env: Option<Vec<String>>,
    pub labels: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct HostConfig {
    pub network_mode: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(super) struct GraphDriver {
    pub data: Option<BTreeMap<String, String>>,
}

/// One event; Docker writes both cases of some keys, so only the one that both engines write is named.
#[derive(Debug, Deserialize)]
pub(super) struct Message {
    #[serde(rename = "Action", default)]
    pub action: String,
    #[serde(rename = "Actor")]
    pub actor: Option<Actor>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Actor {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(rename = "Attributes")]
    pub attributes: Option<BTreeMap<String, String>>,
}
