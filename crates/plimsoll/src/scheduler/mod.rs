//! `plimsoll scheduler`.

mod args;
mod inert;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use plimsoll_client::shutdown;
use plimsoll_sched::model::Names;
use plimsoll_scheduler::live::{self, Connections, Running};
use plimsoll_scheduler::server::{self, Serving};

pub use args::SchedulerArgs;

use crate::go;
use crate::signals::Signals;
use crate::{Failure, raise_descriptor_limit, runtime};

/// For writes under way to end after a signal.
const DRAIN: Duration = Duration::from_secs(5);

impl SchedulerArgs {
    pub fn wants_json_log(&self) -> bool {
        self.inert.logging_format == "json"
    }

    pub fn verbosity(&self) -> i32 {
        self.inert.verbosity.unwrap_or(0)
    }
}

pub fn run(args: &SchedulerArgs) -> Result<(), Failure> {
    // The original ends with 1 whatever is wrong.
    let options = args.options().map_err(Failure::Run)?;
    let front = args.front().map_err(Failure::Run)?;
    if let Some(file) = args.write_config_to() {
        // What could not be run is not written down as if it could.
        let profiles = options.configuration.build(&mut Names::default());
        profiles.map_err(|error| Failure::Run(error.into()))?;
        let written = std::fs::write(&file, options.configuration.to_yaml());
        return written
            .with_context(|| format!("write {}", file.display()))
            .map_err(Failure::Run);
    }
    let clients = args.clients(&options.configuration);
    raise_descriptor_limit();
    // One thread runs it all: what there is to do is short, and waking another costs more than it saves.
    let runtime = runtime(1).map_err(Failure::Run)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let clients = clients.build().await?;
        let (stopper, shutdown) = shutdown::channel();
        clients.spawn_reload(shutdown);
        let connections = Connections::of(&clients, &options.configuration.leader_election);
        let ready = options.build(connections)?;
        let serving = match front {
            Some(front) => {
                let front = front.build(&clients).await?;
                let flags = flags(std::env::args_os());
                Some(server::spawn(front, ready.shared(), flags))
            }
            None => None,
        };
        let mut running = ready.spawn();
        let outcome = tokio::select! {
            ended = running.finished() => ended.map_err(anyhow::Error::from),
            failure = stopper.failure() => Err(failure.into()),
            () = signals.next() => Ok(()),
        };
        // Who leads no more is gone at once.
        if matches!(&outcome, Err(error) if error.downcast_ref() == Some(&live::Failure::Lost)) {
            return outcome;
        }
        tracing::info!("stopping");
        tokio::select! {
            () = drain(running, serving) => outcome,
            () = signals.next() => Err(anyhow!("stopped at once, by a second signal")),
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.map_err(Failure::Run)
}

/// Flags without a default of their own, and what holds without them.
const UNSAID: [(&str, &str); 13] = [
    ("authentication-tolerate-lookup-failure", "true"),
    ("help", "false"),
    ("kube-api-qps", "50"),
    ("leader-elect", "true"),
    ("leader-elect-lease-duration", "15s"),
    ("leader-elect-renew-deadline", "10s"),
    ("leader-elect-resource-lock", "leases"),
    ("leader-elect-resource-name", "kube-scheduler"),
    ("leader-elect-resource-namespace", "kube-system"),
    ("leader-elect-retry-period", "2s"),
    ("secure-port", "10259"),
    ("v", "0"),
    ("version", "false"),
];

/// Flags that hold lists, which are written in brackets.
const LISTS: [&str; 13] = [
    "allow-metric-labels",
    "authorization-always-allow-paths",
    "disabled-metrics",
    "emulated-version",
    "min-compatibility-version",
    "requestheader-allowed-names",
    "requestheader-extra-headers-prefix",
    "requestheader-group-headers",
    "requestheader-uid-headers",
    "requestheader-username-headers",
    "tls-cipher-suites",
    "tls-curve-preferences",
    "tls-sni-cert-key",
];

/// The command line by flag, with what holds where nothing was said.
fn flags(line: impl IntoIterator<Item = OsString>) -> BTreeMap<String, String> {
    let command = SchedulerArgs::augment_args(clap::Command::new("kube-scheduler"))
        .args_override_self(true)
        .ignore_errors(true);
    let words = line
        .into_iter()
        .map(|word| go::double_dashes(word.to_string_lossy().into_owned()))
        .skip_while(|word| word != "scheduler");
    let matches = command.clone().get_matches_from(words);
    // What holds where it depends on more than the flag.
    let mut flags: BTreeMap<String, String> = UNSAID
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    for argument in command.get_arguments() {
        let Some(name) = argument.get_long() else {
            continue;
        };
        let values = matches.get_raw(argument.get_id().as_str());
        let values = values
            .into_iter()
            .flatten()
            .map(|value| value.to_string_lossy());
        let mut value = values.collect::<Vec<_>>().join(",");
        if LISTS.contains(&name) {
            value = format!("[{value}]");
        }
        if !value.is_empty() || !flags.contains_key(name) {
            flags.insert(name.to_owned(), value);
        }
    }
    flags
}

async fn drain(running: Running, serving: Option<Serving>) {
    running.drain(DRAIN).await;
    if let Some(serving) = serving {
        serving.drain(DRAIN).await;
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    #[command(args_override_self = true)]
    struct Line {
        #[command(flatten)]
        args: SchedulerArgs,
    }

    fn args(line: &str) -> SchedulerArgs {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).unwrap().args
    }

    #[test]
    fn defaults_are_the_originals() {
        let args = args("");
        let options = args.options().unwrap();
        let election = &options.configuration.leader_election;
        assert!(election.leader_elect);
        assert_eq!(election.resource_name, "kube-scheduler");
        assert_eq!(options.max_unschedulable, Duration::from_secs(300));
        let front = args.front().unwrap().unwrap();
        assert_eq!(front.serving.listen.port(), 10259);
        assert!(front.authentication.delegation.tolerate_lookup_failure);
        assert_eq!(args.clients(&options.configuration).rate, None);
    }

    #[test]
    fn a_command_line_written_for_kube_scheduler() {
        let args = args(
            "--authentication-kubeconfig=/k --authorization-kubeconfig=/k --bind-address=127.0.0.1 --kubeconfig=/k \
             --leader-elect=false --kube-api-qps=20 --kube-api-burst=30 --secure-port=0 --feature-gates=GenericWorkload=true,GangScheduling=true --master=https://k:6443 \
             --profiling=false -v=4 --leader-elect-lease-duration 30s",
        );
        let options = args.options().unwrap();
        let configuration = &options.configuration;
        assert!(!configuration.leader_election.leader_elect);
        assert_eq!(
            configuration.leader_election.lease_duration.to_string(),
            "30s"
        );
        assert_eq!(args.clients(configuration).rate, Some((20.0, 30)));
        assert!(args.front().unwrap().is_none());
        assert!(options.gates.features().gangs);
        let server = args.clients(configuration).server.unwrap();
        assert_eq!(server.to_string(), "https://k:6443/");
        assert_eq!(args.verbosity(), 4);
        assert!(!configuration.enable_profiling);
    }

    #[test]
    fn flags_for_those_who_ask() {
        let line = [
            "plimsoll",
            "scheduler",
            "-leader-elect=false",
            "--kube-api-qps",
            "20",
        ];
        let flags = flags(line.map(OsString::from));
        assert_eq!(flags["leader-elect"], "false");
        assert_eq!(flags["kube-api-qps"], "20");
        assert_eq!(flags["kube-api-burst"], "100");
        assert_eq!(flags["config"], "");
        assert_eq!(flags["profiling"], "true");
        assert_eq!(flags["tls-cipher-suites"], "[]");
        assert_eq!(
            flags["authorization-always-allow-paths"],
            "[/healthz,/readyz,/livez]"
        );
        assert_eq!(flags["leader-elect-retry-period"], "2s");
    }

    #[test]
    fn what_is_refused_and_in_which_words() {
        for (line, expected) in [
            (
                "--leader-elect-lease-duration=5s",
                "leaderElection.leaseDuration: Invalid value: \"10s\": must be greater than `RenewDeadline`",
            ),
            (
                "--leader-elect-resource-lock=endpoints",
                "leaderElection.resourceLock: Invalid value: \"endpoints\": resourceLock value must be \"leases\"",
            ),
            (
                "--feature-gates=Nonsense=true",
                "unrecognized feature gate: Nonsense",
            ),
            (
                "--kube-api-burst=-1",
                "clientConnection.burst: Invalid value: -1: must be non-negative",
            ),
        ] {
            assert_eq!(
                args(line).options().unwrap_err().to_string(),
                expected,
                "{line}"
            );
        }
    }
}
