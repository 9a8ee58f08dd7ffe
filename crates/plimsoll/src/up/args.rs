//! The flags of `plimsoll up`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::go;

/// A control plane on this machine, with this machine as its node
///
/// Starts a Kubernetes-compatible API server and every role of plimsoll beside it, in one process. Nothing else is
/// needed: no cluster, no etcd, no container runtime. Objects are kept in the data folder and are there again after a
/// restart.
#[derive(Debug, Args)]
#[command(after_long_help = "\
What to do with it:

  plimsoll up                               in one terminal; in another:
  export KUBECONFIG=~/.plimsoll/kubeconfig
  kubectl get nodes -o wide                 this machine, with its true capacity
  kubectl apply -f app.yaml                 any kind, your own definitions too
  kubectl top nodes                         what is used, after half a minute
  kubectl get nodemetrics -o yaml           the same with pods, percentiles and forecasts
  kubectl describe node                     with batch-cpu and batch-memory: what may be lent
  curl 127.0.0.1:9120/metrics               what the agent sees on this machine

  plimsoll up --simulate-nodes 100          with a hundred nodes that cost nothing:
                                            pods get a node there, run, use CPU and
                                            memory, and end

Pods on this machine's own node stay Pending: plimsoll watches containers, it does not start them.
Without root the agent sees less, and says so; everything else works the same.
Ctrl-C stops everything cleanly; a second Ctrl-C stops at once.")]
pub struct UpArgs {
    /// Where objects, keys and the kubeconfig are kept [default: ~/.plimsoll]
    ///
    /// One `up` uses a folder at a time; a second one says who holds it. Delete the folder to start afresh.
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Start although the store is damaged, without the objects that cannot be vouched for
    ///
    /// Each object in the store has a checksum, and a second file (objects.roll) says what there must be. Both are
    /// verified at every start. What is found damaged is made anew from what can be vouched for, and the damaged file is
    /// kept beside it (objects.redb.damaged-1). A start that would drop something is refused and names it; with this
    /// flag it goes on. The flag does nothing to a store that is whole. To start afresh instead, delete the folder.
    #[arg(long)]
    pub restore: bool,
    /// Where the API server listens; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    pub api_listen: SocketAddr,
    /// How long events are kept after they were last written; 0s keeps them for ever
    ///
    /// As kube-apiserver's flag: whole seconds.
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = event_ttl)]
    pub event_ttl: Duration,
    /// What this machine's node is called [default: the host name]
    #[arg(long, value_name = "NAME")]
    node_name: Option<String>,
    /// Add this many nodes that exist only in the cluster's books
    ///
    /// They are called sim-0001 and so on, have 16 CPUs, 64 GiB and room for 110 pods each, and are spread over three
    /// zones. Pods bound to them run, use CPU and memory by a model that annotations can set, and end when they are
    /// told to. docs/up.md explains the annotations.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=9999))]
    pub simulate_nodes: u32,
    /// Leave out the agent: this machine is then no node of the cluster
    #[arg(long)]
    pub no_agent: bool,
    /// Leave out the metrics server: `kubectl top` and autoscalers have nobody to ask then
    #[arg(long)]
    pub no_metrics_server: bool,
    /// Leave out the scheduler: pods stay where they are, which is nowhere
    #[arg(long)]
    pub no_scheduler: bool,
    /// Leave out the manager: nodes' reports are not asked for, and nothing is lent to batch pods
    #[arg(long)]
    pub no_manager: bool,
    /// Leave out the controllers: namespaces are not emptied, dependents do not follow their owners
    #[arg(long)]
    pub no_controllers: bool,
}

impl UpArgs {
    pub fn data_dir(&self) -> Result<PathBuf> {
        if let Some(dir) = &self.data_dir {
            return std::path::absolute(dir).context("--data-dir");
        }
        let home = std::env::var_os("HOME")
            .filter(|home| !home.is_empty())
            .context("there is no home directory to keep data in: name a folder with --data-dir")?;
        Ok(PathBuf::from(home).join(".plimsoll"))
    }

    pub fn node_name(&self) -> Result<String> {
        if let Some(name) = &self.node_name {
            if !is_node_name(name) {
                bail!(
                    "--node-name {name:?} cannot be a node's name: use up to 253 small letters, digits, dashes and dots"
                );
            }
            return Ok(name.clone());
        }
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .to_lowercase();
        if !is_node_name(&host) {
            bail!("the host name {host:?} cannot be a node's name: choose one with --node-name");
        }
        Ok(host)
    }
}

/// A real server counts in whole seconds, and takes less than one for none at all.
fn event_ttl(text: &str) -> Result<Duration, String> {
    let wanted = go::duration(text)?;
    if !wanted.is_zero() && wanted.as_secs() == 0 {
        return Err("less than a second: use 1s or more, or 0s to keep events for ever".to_owned());
    }
    Ok(Duration::from_secs(wanted.as_secs()))
}

/// Names that DNS would take: dots between words, words of letters, digits and inner dashes.
fn is_node_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !word.is_empty()
            && word.bytes().all(inner)
            && !word.starts_with('-')
            && !word.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(is_word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_long_events_are_kept() {
        let seconds = |text| event_ttl(text).map(|ttl| ttl.as_secs()).ok();
        assert_eq!(seconds("1h0m0s"), Some(3600));
        assert_eq!(seconds("1m30.9s"), Some(90));
        assert_eq!(seconds("0s"), Some(0));
        for bad in ["900ms", "-1h", "60", "soon", ""] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }

    #[test]
    fn node_names() {
        for good in ["box", "box-1.example.com", "1"] {
            assert!(is_node_name(good), "{good}");
        }
        for bad in ["", "Box", "my_box", "-box", "box-", "a..b", "a.", "b x"] {
            assert!(!is_node_name(bad), "{bad}");
        }
        assert!(!is_node_name(&"a".repeat(254)));
    }
}
