//! `plimsoll scheduler`: its flags, and the scheduler they describe.
//!
//! Flags that kube-scheduler has keep its names, defaults and meaning; those of ours are the last group of the help.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, anyhow};
use clap::Args;

use plimsoll_scheduler::config::{self, Configuration, GoDuration};
use plimsoll_scheduler::gates::Gates;
use plimsoll_scheduler::live::Options;
use plimsoll_serving::secure_serving;

use super::inert::InertArgs;
use crate::front_args::{AuthenticationArgs, AuthorizationArgs, ServingArgs};
use crate::go;

pub const PORT: u16 = 10259;

/// Give pods their nodes (kube-scheduler's job)
///
/// Same configuration file, flags, profiles, plugins, events, conditions, lease and metrics as kube-scheduler 1.36, an
/// order of magnitude less CPU a pod. Command lines written for kube-scheduler work as they are.
#[derive(Debug, Args)]
#[command(after_long_help = "\
In a cluster, instead of kube-scheduler or beside it under another schedulerName:

  kubectl apply -f deploy/scheduler/replace.yaml
  kubectl apply -f deploy/scheduler/beside.yaml

Outside, to try it on a cluster that you administer:

  plimsoll scheduler --kubeconfig ~/.kube/config --leader-elect=false --secure-port 0

Why is my pod pending?

  plimsoll explain pod NAMESPACE/NAME")]
pub struct SchedulerArgs {
    #[command(flatten)]
    misc: MiscArgs,
    #[command(flatten)]
    serving: ServingArgs,
    #[command(flatten)]
    authentication: AuthenticationArgs,
    #[command(flatten)]
    authorization: AuthorizationArgs,
    #[command(flatten)]
    deprecated: DeprecatedArgs,
    #[command(flatten)]
    election: ElectionArgs,
    #[command(flatten)]
    additions: AdditionArgs,
    #[command(flatten)]
    pub inert: InertArgs,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Configuration")]
struct MiscArgs {
    /// KubeSchedulerConfiguration to read; looked at again when it changes
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    config: String,
    /// Write the configuration with everything that holds to this file, and exit
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    write_config_to: String,
    /// Address of the API server, instead of the kubeconfig's
    #[arg(long, value_name = "URL")]
    master: Option<http::Uri>,
    /// Features to switch on or off: A=true,B=false
    #[arg(long, value_name = "GATES")]
    feature_gates: Vec<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Without --config")]
struct DeprecatedArgs {
    /// Kubeconfig for the API server; inside a cluster it goes without
    #[arg(
        long,
        value_name = "FILE",
        default_value = "",
        hide_default_value = true
    )]
    kubeconfig: String,
    /// Requests to the API server a second [default: as many as it takes]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    kube_api_qps: Option<f32>,
    /// Requests at once after a pause, with --kube-api-qps
    #[arg(
        long,
        value_name = "N",
        allow_hyphen_values = true,
        default_value_t = 100
    )]
    kube_api_burst: i32,
    #[arg(
        long,
        hide = true,
        default_value = "application/vnd.kubernetes.protobuf"
    )]
    kube_api_content_type: String,
    /// Longest time that a pod waits for something to happen before it is tried again
    #[arg(long, value_name = "DURATION", value_parser = go::duration, allow_hyphen_values = true, default_value = "5m0s")]
    pod_max_in_unschedulable_pods_duration: Duration,
}

/// Those that are given override the file.
#[derive(Debug, Args)]
#[command(next_help_heading = "Leader election")]
struct ElectionArgs {
    /// Let one of several processes decide [default: true]
    #[arg(long, value_name = "BOOL", value_parser = go::boolean, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    leader_elect: Option<bool>,
    /// How long others wait before they take over [default: 15s]
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true)]
    leader_elect_lease_duration: Option<GoDuration>,
    /// How long a leader tries to renew before it gives up [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true)]
    leader_elect_renew_deadline: Option<GoDuration>,
    /// Between two tries [default: 2s]
    #[arg(long, value_name = "DURATION", value_parser = go::signed_duration, allow_hyphen_values = true)]
    leader_elect_retry_period: Option<GoDuration>,
    /// Kind of the lock; there are only leases
    #[arg(long, value_name = "KIND")]
    leader_elect_resource_lock: Option<String>,
    /// Name of the lease [default: kube-scheduler]
    #[arg(long, value_name = "NAME")]
    leader_elect_resource_name: Option<String>,
    /// Namespace of the lease [default: kube-system]
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_resource_namespace: Option<String>,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "ExtraReads kube-scheduler")]
struct AdditionArgs {
    /// Scheduling cycles that are remembered for `plimsoll explain`
    #[arg(long, value_name = "N", default_value_t = 2048)]
    remember_cycles: usize,
    /// Decide between equally good nodes by this number instead of by chance
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl SchedulerArgs {
    /// The file with what flags override, or what flags say.
    pub fn options(&self) -> Result<Options> {
        let mut configuration = match self.misc.config.as_str() {
            "" => self.without_file(),
            file => {
                let text = std::fs::read_to_string(file).map_err(|error| match error.kind() {
                    ErrorKind::NotFound => anyhow!("open {file}: no such file or directory"),
                    _ => anyhow!("open {file}: {error}"),
                })?;
                // Checked again below: leader-election flags override what it says.
                config::parse(&text)?
            }
        };
        self.election.apply(&mut configuration);
        configuration.set_defaults();
        configuration.check()?;
        let mut options = Options::new(configuration);
        options.file = go::path(&self.misc.config);
        options.max_unschedulable = self.deprecated.pod_max_in_unschedulable_pods_duration;
        options.remember = self.additions.remember_cycles;
        options.seed = self.additions.seed;
        options.gates = Gates::parse(self.misc.feature_gates.iter().map(String::as_str))?;
        Ok(options)
    }

    fn without_file(&self) -> Configuration {
        let mut configuration = Configuration::default();
        let connection = &mut configuration.client_connection;
        connection
            .kubeconfig
            .clone_from(&self.deprecated.kubeconfig);
        connection
            .content_type
            .clone_from(&self.deprecated.kube_api_content_type);
        connection.burst = self.deprecated.kube_api_burst;
        if let Some(qps) = self.deprecated.kube_api_qps {
            connection.qps = qps;
        }
        configuration.enable_profiling = self.inert.profiling;
        configuration.enable_contention_profiling = self.inert.contention_profiling;
        configuration
    }

    /// The original's default rate is kept as a flag and in the file, not as a default.
    fn rate(&self, configuration: &Configuration) -> Option<(f64, u32)> {
        let connection = &configuration.client_connection;
        let standard = Configuration::default().client_connection;
        let asked = match self.misc.config.is_empty() {
            true => self.deprecated.kube_api_qps.is_some(),
            false => connection.qps != standard.qps,
        };
        let burst = u32::try_from(connection.burst).unwrap_or(0).max(1);
        (asked && connection.qps > 0.0).then(|| (f64::from(connection.qps), burst))
    }

    pub fn clients(&self, configuration: &Configuration) -> plimsoll_client::Config {
        let kubeconfig = go::path(&configuration.client_connection.kubeconfig);
        let mut config = match (&kubeconfig, &self.misc.master) {
            // Nobody says who we are: whoever listens there has to be content with that.
            (None, Some(server)) => {
                let given = kube::Config::new(server.clone());
                plimsoll_client::Config::new(plimsoll_client::Source::Given(Box::new(given)))
            }
            _ => plimsoll_client::Config::from_flag(kubeconfig),
        };
        config.server.clone_from(&self.misc.master);
        config.user_agent = "scheduler".to_owned();
        config.rate = self.rate(configuration);
        config
    }

    /// `None`: nothing is served.
    pub fn front(&self) -> Result<Option<secure_serving::Config>> {
        if self.serving.port() == Some(0) {
            return Ok(None);
        }
        let serving = self.serving.config(PORT, None)?;
        let mut front = secure_serving::Config::new(serving.listen);
        front.serving = serving;
        front.authentication = self.authentication.config(true);
        front.authorization = self.authorization.config();
        Ok(Some(front))
    }

    pub fn write_config_to(&self) -> Option<PathBuf> {
        go::path(&self.misc.write_config_to)
    }
}

impl ElectionArgs {
    fn apply(&self, configuration: &mut Configuration) {
        let election = &mut configuration.leader_election;
        if let Some(elect) = self.leader_elect {
            election.leader_elect = elect;
        }
        for (own, given) in [
            (
                &mut election.lease_duration,
                self.leader_elect_lease_duration,
            ),
            (
                &mut election.renew_deadline,
                self.leader_elect_renew_deadline,
            ),
            (&mut election.retry_period, self.leader_elect_retry_period),
        ] {
            if let Some(given) = given {
                *own = GoDuration(given.nanos());
            }
        }
        for (own, given) in [
            (
                &mut election.resource_lock,
                &self.leader_elect_resource_lock,
            ),
            (
                &mut election.resource_name,
                &self.leader_elect_resource_name,
            ),
            (
                &mut election.resource_namespace,
                &self.leader_elect_resource_namespace,
            ),
        ] {
            if let Some(given) = given {
                own.clone_from(given);
            }
        }
    }
}
