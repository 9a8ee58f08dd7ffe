//! Containers made up for tests.

use std::collections::BTreeMap;

use plimsoll_containers::{Health, Identity, Namespace};

pub fn identity(namespace: Namespace, aliases: &[&str]) -> Identity {
    Identity {
        namespace,
        id: aliases.last().copied().unwrap_or("").to_owned(),
        aliases: aliases.iter().map(|&alias| alias.to_owned()).collect(),
        image: String::new(),
        labels: BTreeMap::new(),
        envs: BTreeMap::new(),
        created: None,
        started: None,
        pid: Some(1),
        owns_network: false,
        health: Health::default(),
        writable_layer: None,
        log_dir: None,
    }
}
