//! From the part of a KubeSchedulerConfiguration that a scenario has to the core's profiles.

use anyhow::Result;
use plimsoll_sched::model::Names;
use plimsoll_sched::queue::QueueConfig;
use plimsoll_sched::{Config, Features};
use plimsoll_scheduler::gates::Gates;
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

/// What the scenario's feature gates change.
pub fn features(setup: &Setup) -> Result<Features> {
    let flags: Vec<String> = setup
        .gates
        .iter()
        .map(|(name, on)| format!("{name}={on}"))
        .collect();
    Ok(Gates::parse(flags.iter().map(String::as_str))?.features())
}

pub fn config(setup: &Setup, names: &mut Names, seed: u64) -> Result<Config> {
    let file = whole(setup)?.to_string();
    let (profiles, _) = plimsoll_scheduler::config::parse(&file)?.build(names)?;
    Ok(Config {
        profiles,
        queue: QueueConfig::default(),
        seed,
    })
}
