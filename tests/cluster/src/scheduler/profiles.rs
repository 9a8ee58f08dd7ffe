//! From the part of a KubeSchedulerConfiguration that a scenario has to the core's profiles.

use anyhow::Result;
use plimsoll_sched::Config;
use plimsoll_sched::framework::Profile;
use plimsoll_sched::model::Names;
use plimsoll_sched::queue::QueueConfig;
use serde_json::{Value, json};

use super::scenario::Setup;
use super::stored::merge;

/// The whole of a configuration file that has only a part.
pub fn whole(setup: &Setup) -> Result<Value> {
    let mut config = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "parallelism": 1,
        "percentageOfNodesToScore": 100,
    });
    merge(&mut config, &serde_json::from_str(&setup.config)?);
    Ok(config)
}

pub fn config(setup: &Setup, names: &mut Names) -> Result<Config> {
    let file = whole(setup)?.to_string();
    let (mut profiles, _) = plimsoll_scheduler::config::parse(&file)?.build(names)?;
    if setup.gates.get("GangScheduling") == Some(&true) {
        profiles = profiles.into_iter().map(Profile::with_gangs).collect();
    }
    Ok(Config {
        profiles,
        queue: QueueConfig::default(),
        seed: 1,
    })
}
