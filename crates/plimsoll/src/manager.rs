//! `plimsoll manager`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use plimsoll_client::{leader_election, shutdown};
use plimsoll_manager::live;

use crate::front_args::all_addresses;
use crate::signals::Signals;
use crate::{Failure, runtime};

const DRAIN: Duration = Duration::from_secs(10);

/// Turn nodes' reports into batch capacity and node policy (the part of koord-manager that its agents need)
///
/// Makes a NodeMetric and a NodeSLO for every node, and writes batch-cpu, batch-memory, mid-cpu and mid-memory to nodes
/// whose agents report. What it may lend is said by the config map; without one nothing is lent. A key of it that makes
/// no sense is refused as a whole, with an event on the config map, and what it said before still holds.
#[derive(Debug, Args)]
#[command(after_long_help = "\
On a cluster:

  kubectl apply -f deploy/manager/crds.yaml -f deploy/manager/rbac.yaml
  kubectl -n koordinator-system create configmap slo-controller-config \\
      --from-literal=colocation-config='{\"enable\": true}'
  plimsoll manager --kubeconfig ~/.kube/config

Beside koord-manager it waits: both want the same lease, and only its holder is at work.")]
pub struct ManagerArgs {
    /// Which cluster [default: the one this runs in]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Where the config map and the lease are
    #[arg(long, value_name = "NAMESPACE", default_value = plimsoll_api::names::CONFIG_NAMESPACE)]
    config_namespace: String,
    /// What the config map is called
    #[arg(long, value_name = "NAME", default_value = plimsoll_api::names::CONFIG_NAME)]
    config_name: String,
    /// Work only while holding the lease, so that several can stand by
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
    enable_leader_election: bool,
    /// Serve /healthz, /readyz and /livez there, by plain HTTP, as in :8000; 0: nowhere
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    health_probe_bind_address: String,
}

impl ManagerArgs {
    fn probes(&self) -> Result<Option<SocketAddr>> {
        let text = self.health_probe_bind_address.as_str();
        if matches!(text, "" | "0") {
            return Ok(None);
        }
        // The kubelet probes by the pod's address, of whatever family that is.
        let address = match text.strip_prefix(':') {
            Some(port) => port
                .parse()
                .map(|port| SocketAddr::new(all_addresses(), port))
                .map_err(anyhow::Error::from),
            None => text.parse().map_err(anyhow::Error::from),
        };
        let address = address.with_context(|| {
            format!("--health-probe-bind-address {text} is no address; give one like :8000")
        });
        address.map(Some)
    }
}

pub fn run(args: &ManagerArgs) -> Result<(), Failure> {
    let probes = args.probes().map_err(Failure::Usage)?;
    let runtime = runtime(2).map_err(Failure::Run)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let clients = plimsoll_client::Config::from_flag(args.kubeconfig.clone())
            .build()
            .await?;
        let (stopper, shutdown) = shutdown::channel();
        clients.spawn_reload(shutdown);
        let election = args.enable_leader_election.then(|| {
            leader_election::Config::new(
                &args.config_namespace,
                live::LEASE,
                leader_election::new_identity(),
            )
        });
        let config = live::Config {
            namespace: args.config_namespace.clone(),
            config_map: args.config_name.clone(),
            election,
        };
        let manager = config.build_with(&clients)?;
        let probed = match probes {
            Some(address) => Some(live::serve(manager.health(), address).await?),
            None => None,
        };
        let mut manager = manager.spawn();
        let outcome = tokio::select! {
            ended = manager.finished() => ended.map_err(|trouble| anyhow!(trouble)),
            failure = stopper.failure() => Err(failure.into()),
            () = signals.next() => Ok(()),
        };
        tracing::info!("stopping");
        let drained = async {
            manager.drain(DRAIN).await;
            if let Some(probed) = probed {
                probed.drain(DRAIN).await;
            }
        };
        tokio::select! {
            () = drained => outcome,
            () = signals.next() => Err(anyhow!("stopped at once, by a second signal")),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.map_err(Failure::Run)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probes(text: &str) -> Result<Option<SocketAddr>> {
        let args = ManagerArgs {
            kubeconfig: None,
            config_namespace: String::new(),
            config_name: String::new(),
            enable_leader_election: false,
            health_probe_bind_address: text.to_owned(),
        };
        args.probes()
    }

    #[test]
    fn a_port_alone_is_at_all_addresses() {
        assert_eq!(probes("0").unwrap(), None);
        let all = probes(":8000").unwrap().unwrap();
        assert_eq!(all, SocketAddr::new(all_addresses(), 8000));
        let given = ["127.0.0.1:1", "[::1]:2"].map(|text| probes(text).unwrap().unwrap());
        assert_eq!(given.map(|one| one.to_string()), ["127.0.0.1:1", "[::1]:2"]);
        assert!(probes(":http").is_err() && probes("8000").is_err());
    }

    #[test]
    fn probes_of_both_families_are_answered() {
        let address = probes(":0").unwrap().unwrap();
        let bound = std::net::TcpListener::bind(address).unwrap();
        let port = bound.local_addr().unwrap().port();
        std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        // Containers may have IPv6 without an address of their own.
        if std::net::TcpListener::bind("[::1]:0").is_ok() {
            std::net::TcpStream::connect(("::1", port)).unwrap();
        }
    }
}
