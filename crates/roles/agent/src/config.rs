//! What the agent is told to do.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_cadvisor::exposition::LabelPolicy;
use plimsoll_containers::Rules;
use plimsoll_containers::runtime::Endpoint;
use plimsoll_host::machine::IdFiles;
use plimsoll_observe::GroupSet;
use plimsoll_observe::events::Limits;
use plimsoll_observe::sampler;

use crate::protect;

#[derive(Debug, Clone)]
pub struct Config {
    pub sampling: sampler::Config,
    pub groups: GroupSet,
    /// How much history each container keeps.
    pub storage_duration: Duration,
    pub events: Limits,
    pub labels: LabelPolicy,
    pub rules: Rules,
    pub runtimes: Vec<Endpoint>,
    pub env_whitelist: Vec<String>,
    /// How often the whole cgroup tree is walked again.
    pub rescan: Duration,
    /// How often the machine's facts are read again.
    pub machine_refresh: Duration,
    pub id_files: IdFiles,
    /// Where the kubelet keeps pods' volumes.
    pub kubelet_dir: PathBuf,
    /// What the cluster calls this machine; `None`: its host name.
    pub node_name: Option<String>,
    /// Where counts live that outlast the process; `None`: in memory only.
    pub data_dir: Option<PathBuf>,
    /// `None`: no usage history is kept.
    pub usage_history: Option<plimsoll_history::Config>,
    /// Latency-sensitive pods are protected; `None`: they are not. It needs the usage history and a cluster.
    pub protect: Option<protect::Config>,
    /// koordlet's `/events`; `None`: there is no such page.
    pub audit: Option<protect::audit::Config>,
    /// Feature gates of Koordinator's agent that are switched on, and have nothing behind them here.
    pub unavailable_features: Vec<&'static str>,
}
