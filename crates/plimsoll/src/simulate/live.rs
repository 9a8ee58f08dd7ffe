//! Everything of a running cluster that scheduling looks at.

use std::path::Path;

use anyhow::Result;

use plimsoll_sched::Features;
use plimsoll_sched::model::Names;
use plimsoll_scheduler::config::Configuration;
use plimsoll_scheduler::snapshot;
use serde_json::Value;

use crate::runtime;

/// What the plugins of these configurations need.
pub fn read(kubeconfig: &Path, configurations: &[Configuration]) -> Result<Vec<Value>> {
    let mut profiles = Vec::new();
    for configuration in configurations {
        let mut configuration = configuration.clone();
        configuration.check()?;
        profiles.extend(configuration.build(&mut Names::default())?.0);
    }
    runtime(2)?.block_on(async {
        let clients = plimsoll_client::Config::from_flag(Some(kubeconfig.to_owned()))
            .build()
            .await?;
        let features = Features::default();
        Ok(snapshot::read(&clients.client(), &profiles, &features).await?)
    })
}
