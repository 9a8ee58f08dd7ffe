//! The data half of our metrics-server alone, in a process of its own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;

use plimsoll_apimachinery::selector::Selector;
use plimsoll_metrics_server::collector::Config;
use plimsoll_metrics_server::scrape::Trust;

use crate::Options;
use crate::kubelets::PORT;

/// Says when every node has figures, then scrapes on until it is ended.
pub async fn run(options: &Options, kubeconfig: &Path) -> Result<()> {
    let clients = plimsoll_client::Config::from_flag(Some(kubeconfig.to_owned()))
        .build()
        .await?;
    let mut config = Config {
        resolution: Duration::from_secs(options.resolution),
        ..Config::default()
    };
    config.scrape.rules.port = PORT;
    config.scrape.rules.address_types = vec!["InternalIP".to_owned()];
    config.scrape.trust = Trust {
        insecure: true,
        ..Trust::default()
    };
    let who = clients.clone();
    let collector = config.build(clients.client(), Arc::new(move || who.config()))?;
    let view = collector.view();
    let _running = collector.spawn()?;
    loop {
        let mut nodes = 0;
        view.visit_nodes(&Selector::default(), &mut |_| nodes += 1);
        if nodes >= options.nodes {
            println!("complete");
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    std::future::pending().await
}
