//! Flags of protection, and koordlet's flags of the same half.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use plimsoll_actuate::Mode;
use plimsoll_agent::protect;
use plimsoll_qos::{EvictBy, Gates, Settings};

use crate::{Called, go};

/// koordlet's manifest mounts this folder of the machine; the rest of that container's files end with the pod.
const KOORDLET_FOLDER: &str = "/host-var-run-koordlet";

/// Where the journal is if nobody says.
pub fn default_journal() -> PathBuf {
    journal_in(Path::new(KOORDLET_FOLDER))
}

fn journal_in(mounted: &Path) -> PathBuf {
    match mounted.is_dir() {
        true => mounted.join("protection"),
        false => "/var/lib/plimsoll/protection".into(),
    }
}

/// Where `plimsoll qos` reaches the agent.
pub const SOCKET: &str = "/run/plimsoll/protect.sock";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Protect {
    /// Nothing is planned
    Off,
    /// Changes are planned and kept in the journal, and nothing is written
    Observe,
    /// Changes are written
    Enforce,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Protection")]
pub struct ProtectArgs {
    /// What to do for latency-sensitive pods, as the node's NodeSLO says [default: observe; under the name koordlet: enforce]
    ///
    /// It needs a cluster and the usage history. See `plimsoll check` for what this machine can do, and `plimsoll qos` for
    /// what is planned and written, and why.
    #[arg(long, value_name = "MODE")]
    protect: Option<Protect>,
    /// Unix socket for `plimsoll qos`; only root can open it
    #[arg(long, value_name = "FILE", default_value = SOCKET)]
    protect_socket: PathBuf,
    /// Folder of the journal of changes [default: `protection` below --data-dir, else /host-var-run-koordlet/protection where
    /// koordlet's manifest mounts that, else /var/lib/plimsoll/protection]
    #[arg(long, value_name = "DIR")]
    protect_journal: Option<PathBuf>,
    /// Give all values back when the agent ends. Without it they stay, so that an upgrade does not unprotect the node
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_value = "false", default_missing_value = "true")]
    restore_on_exit: bool,
    /// The most pods that may be evicted in a minute; 0: no limit of our own [default: 10; under the name koordlet: 0]
    #[arg(long, value_name = "N")]
    evictions_per_minute: Option<u32>,
    /// Evict by the eviction API only, which respects disruption budgets [default: true; under the name koordlet: false,
    /// so that containers are stopped]
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    only_evict_by_api: Option<bool>,
    /// Ask the eviction API, and not the manager, which checks that the pod is on this node [default: false; under the
    /// name koordlet: true]. It needs the right to evict pods of the whole cluster
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    evict_directly: Option<bool>,
    /// CRI socket of the runtime that stops containers, where they are not evicted by the API
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/run/containerd/containerd.sock"
    )]
    evict_runtime_endpoint: PathBuf,
    /// Plan this often
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    reconcile_interval_seconds: i64,
    /// koordlet's interval of CPU suppression; 0 switches it off. All strategies have one pace here
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    cpu_suppress_interval_seconds: i64,
    /// koordlet's interval of evictions for CPU; 0 switches them off
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    cpu_evict_interval_seconds: i64,
    /// koordlet's interval of evictions for memory; 0 switches them off
    #[arg(long, value_name = "SECONDS", default_value_t = 1)]
    memory_evict_interval_seconds: i64,
    /// Between two evictions for CPU
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    cpu_evict_cool_time_seconds: i64,
    /// Between two evictions for memory
    #[arg(long, value_name = "SECONDS", default_value_t = 4)]
    memory_evict_cool_time_seconds: i64,
}

fn seconds(number: i64) -> Duration {
    Duration::from_secs(u64::try_from(number).unwrap_or(0))
}

impl ProtectArgs {
    /// `None`: protection is off. `gates` are koordlet's feature gates of this half.
    pub fn config(
        &self,
        called: Called,
        mut gates: Gates,
        usage_interval: Duration,
        data_dir: Option<&PathBuf>,
    ) -> Result<Option<protect::Config>> {
        let is_koordlet = called == Called::Koordlet;
        let default = match is_koordlet {
            true => Protect::Enforce,
            false => Protect::Observe,
        };
        let mode = match self.protect.unwrap_or(default) {
            Protect::Off => return Ok(None),
            Protect::Observe => Mode::Observe,
            Protect::Enforce => Mode::Enforce,
        };
        if self.reconcile_interval_seconds < 0 {
            bail!("--reconcile-interval-seconds must not be negative");
        }
        if self.reconcile_interval_seconds == 0 {
            return Ok(None);
        }
        gates.be_cpu_suppress &= self.cpu_suppress_interval_seconds > 0;
        if self.cpu_evict_interval_seconds <= 0 {
            (gates.be_cpu_evict, gates.cpu_evict) = (false, false);
            gates.cpu_allocatable_evict = false;
        }
        if self.memory_evict_interval_seconds <= 0 {
            (gates.be_memory_evict, gates.memory_evict) = (false, false);
            gates.memory_allocatable_evict = false;
        }
        let defaults = match is_koordlet {
            true => Settings::koordlet(),
            false => Settings::default(),
        };
        let evict_by = match self.only_evict_by_api.unwrap_or(!is_koordlet) {
            true => EvictBy::Api,
            false => EvictBy::Killing,
        };
        let settings = Settings {
            gates,
            interval: usage_interval,
            reconcile_interval: seconds(self.reconcile_interval_seconds),
            cpu_evict_cool_down: seconds(self.cpu_evict_cool_time_seconds),
            memory_evict_cool_down: seconds(self.memory_evict_cool_time_seconds),
            evict_by,
            evictions_per_minute: match self.evictions_per_minute {
                None => defaults.evictions_per_minute,
                Some(0) => None,
                some => some,
            },
            ..defaults
        };
        let journal = self.protect_journal.clone();
        let journal = journal.or_else(|| data_dir.map(|dir| dir.join("protection")));
        Ok(Some(protect::Config {
            mode,
            settings,
            journal: Some(journal.unwrap_or_else(default_journal)),
            socket: Some(self.protect_socket.clone()),
            restore_on_exit: self.restore_on_exit,
            ask_manager: !self.evict_directly.unwrap_or(is_koordlet),
            evict_socket: self.evict_runtime_endpoint.clone(),
            kubelet_within: Duration::ZERO,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(line: &[&str], called: Called) -> Option<protect::Config> {
        #[derive(Debug, clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: ProtectArgs,
        }
        let line = [&["agent"], line].concat();
        let args = <Line as clap::Parser>::try_parse_from(line).unwrap().args;
        let every = Duration::from_secs(1);
        args.config(called, Gates::default(), every, None).unwrap()
    }

    #[test]
    fn defaults_by_name() {
        let ours = config(&[], Called::Plimsoll).unwrap();
        assert_eq!(
            (ours.mode, ours.settings.evict_by),
            (Mode::Observe, EvictBy::Api)
        );
        assert_eq!(ours.settings.evictions_per_minute, Some(10));
        assert!(ours.ask_manager);
        let direct = config(&["--evict-directly"], Called::Plimsoll).unwrap();
        assert!(!direct.ask_manager);
        let original = config(&[], Called::Koordlet).unwrap();
        assert!(!original.ask_manager);
        assert_eq!(original.mode, Mode::Enforce);
        assert_eq!(original.settings, Settings::koordlet());
    }

    #[test]
    fn a_journal_outlasts_the_pod() {
        let temp = tempfile::tempdir().unwrap();
        let mounted = temp.path().join("mounted");
        assert!(journal_in(&mounted).starts_with("/var/lib/plimsoll"));
        std::fs::create_dir(&mounted).unwrap();
        assert_eq!(journal_in(&mounted), mounted.join("protection"));
    }

    #[test]
    fn intervals_of_zero_switch_off() {
        assert!(config(&["--protect=off"], Called::Koordlet).is_none());
        assert!(config(&["--reconcile-interval-seconds=0"], Called::Koordlet).is_none());
        let some = config(&["--cpu-suppress-interval-seconds=0"], Called::Koordlet).unwrap();
        assert!(!some.settings.gates.be_cpu_suppress && some.settings.gates.cpu_burst);
        let api = config(&["--only-evict-by-api"], Called::Koordlet).unwrap();
        assert_eq!(api.settings.evict_by, EvictBy::Api);
    }
}
