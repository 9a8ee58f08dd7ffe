//! Plimsoll: one binary, one subcommand a role.

mod agent_args;
mod agent_doors;
mod check;
mod cluster_args;
mod explain;
mod folder_args;
mod front_args;
mod go;
mod inert;
mod koordlet_args;
mod logging;
mod manager;
mod metrics_server;
mod perf_config;
mod protect_args;
mod qos;
mod scheduler;
mod signals;
mod simulate;
mod up;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use futures::future::join_all;
use plimsoll_agent::World;
use plimsoll_host::Clock;
use tokio::signal::unix::{SignalKind, signal};

use agent_args::{AgentArgs, ReportSchedule};
use check::CheckArgs;
use cluster_args::Member;
use explain::ExplainArgs;
use logging::LogArgs;
use manager::ManagerArgs;
use metrics_server::MetricsServerArgs;
use qos::QosArgs;
use scheduler::SchedulerArgs;
use simulate::SimulateArgs;
use up::UpArgs;

/// Exit code for a command line or configuration that makes no sense (sysexits' EX_USAGE).
const BAD_USAGE: u8 = 64;
const METRICS_SERVER: &str = "metrics-server";
const SCHEDULER: &str = "kube-scheduler";

/// Lets Kubernetes nodes run fuller without hurting the services on them.
#[derive(Debug, Parser)]
#[command(
    version,
    about,
    propagate_version = true,
    disable_version_flag = true,
    args_override_self = true
)]
struct CommandLine {
    #[command(flatten)]
    logging: LogArgs,
    #[command(subcommand)]
    role: Role,
}

/// Started under the name `cadvisor`: its command line, its port.
#[derive(Debug, Parser)]
#[command(
    name = "cadvisor",
    version,
    about = "plimsoll agent, with cAdvisor's command line and default port",
    disable_version_flag = true,
    args_override_self = true
)]
struct CadvisorLine {
    #[command(flatten)]
    logging: LogArgs,
    #[command(flatten)]
    agent: AgentArgs,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Watch every container on this machine and serve what it sees (cAdvisor's job)
    #[command(args_override_self = true)]
    Agent(Box<AgentArgs>),
    #[command(args_override_self = true)]
    MetricsServer(Box<MetricsServerArgs>),
    #[command(args_override_self = true)]
    Scheduler(Box<SchedulerArgs>),
    #[command(args_override_self = true)]
    Manager(ManagerArgs),
    #[command(args_override_self = true)]
    Explain(ExplainArgs),
    #[command(args_override_self = true)]
    Up(UpArgs),
    #[command(args_override_self = true)]
    Simulate(SimulateArgs),
    #[command(args_override_self = true)]
    Check(CheckArgs),
    #[command(args_override_self = true)]
    Qos(QosArgs),
}

/// What the command line asks for.
#[derive(Debug)]
struct Asked {
    logging: LogArgs,
    role: Role,
    called: Called,
}

/// The name that the program was started under, which decides about defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Called {
    Plimsoll,
    Cadvisor,
    Koordlet,
}

fn main() -> ExitCode {
    let asked = match parse(std::env::args_os().collect()) {
        Ok(asked) => asked,
        Err(error) => {
            if error.kind() == ErrorKind::DisplayVersion && is_metrics_server(std::env::args_os()) {
                println!("{}", plimsoll_metrics_server::api::VERSION);
                return ExitCode::SUCCESS;
            }
            // Help and version come this way too, and are no failure.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { BAD_USAGE } else { 0 });
        }
    };
    let unless_told = match &asked.role {
        Role::Agent(agent) => logging::level(agent.verbosity()),
        Role::MetricsServer(server) => logging::level(server.verbosity()),
        Role::Scheduler(scheduler) => logging::level(scheduler.verbosity()),
        Role::Manager(_) => "info",
        // A person reads what it prints; the log is for trouble.
        Role::Up(_) | Role::Explain(_) | Role::Simulate(_) | Role::Check(_) | Role::Qos(_) => {
            "warn"
        }
    };
    let json = match &asked.role {
        Role::MetricsServer(server) => server.wants_json_log(),
        Role::Scheduler(scheduler) => scheduler.wants_json_log(),
        _ => false,
    };
    let log = asked.logging.start(unless_told, json);
    let outcome = match &asked.role {
        Role::Agent(agent) => run_agent(agent, asked.called),
        Role::MetricsServer(server) => metrics_server::run(server, log),
        Role::Scheduler(scheduler) => scheduler::run(scheduler),
        Role::Manager(manager) => manager::run(manager),
        Role::Explain(explain) => explain::run(explain),
        Role::Up(up) => up::run(up),
        Role::Simulate(simulate) => simulate::run(simulate),
        Role::Qos(args) => qos::run(args).map_err(Failure::Run),
        Role::Check(args) => match check::run(args) {
            true => Ok(()),
            false => return ExitCode::FAILURE,
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => {
            eprintln!("plimsoll: {error:#}");
            ExitCode::from(BAD_USAGE)
        }
        Err(Failure::Run(error)) => {
            eprintln!("plimsoll: {error:#}");
            ExitCode::FAILURE
        }
    }
}

enum Failure {
    Usage(anyhow::Error),
    Run(anyhow::Error),
}

fn is_called(given: &[OsString], name: &str) -> bool {
    let program = given.first().and_then(|path| Path::new(path).file_name());
    program.is_some_and(|program| program == name)
}

/// Started under that name, or with that role.
fn is_metrics_server(given: impl Iterator<Item = OsString>) -> bool {
    let given: Vec<OsString> = given.collect();
    is_called(&given, METRICS_SERVER) || given.iter().skip(1).any(|one| one == METRICS_SERVER)
}

/// Go's single dashes become double ones; under the names `cadvisor`, `koordlet`, `metrics-server` and `kube-scheduler`
/// the role goes without saying.
fn parse(mut given: Vec<OsString>) -> Result<Asked, clap::Error> {
    let called = match is_called(&given, "cadvisor") {
        true => Called::Cadvisor,
        false if is_called(&given, "koordlet") => Called::Koordlet,
        false => Called::Plimsoll,
    };
    // In a container of koordlet's manifest nothing else may be there to ask the agent with.
    let asks = given
        .get(1)
        .is_some_and(|first| first == "qos" || first == "check");
    if called == Called::Koordlet && !asks {
        given.insert(1, "agent".into());
    }
    if is_called(&given, METRICS_SERVER) {
        given.insert(1, METRICS_SERVER.into());
    }
    if is_called(&given, SCHEDULER) {
        given.insert(1, "scheduler".into());
    }
    // The original knows double dashes only, and short flags with their value behind them.
    let posix = is_metrics_server(given.iter().cloned());
    let arguments = given
        .into_iter()
        .enumerate()
        .map(|(index, argument)| match argument.into_string() {
            Ok(text) if index > 0 && !posix => go::double_dashes(text).into(),
            Ok(text) => text.into(),
            Err(raw) => raw,
        })
        .collect::<Vec<OsString>>();
    if called == Called::Cadvisor {
        let mut line = CadvisorLine::try_parse_from(arguments)?;
        line.agent.keep_pace(ReportSchedule::Original);
        return Ok(Asked {
            logging: line.logging,
            role: Role::Agent(Box::new(line.agent)),
            called,
        });
    }
    let of_cadvisor = arguments.iter().skip(1).any(is_flag_of_cadvisor);
    let mut line = CommandLine::try_parse_from(arguments)?;
    if let Role::Agent(agent) = &mut line.role
        && of_cadvisor
    {
        agent.keep_pace(ReportSchedule::Original);
        agent.keep_scrapes();
    }
    Ok(Asked {
        logging: line.logging,
        role: line.role,
        called,
    })
}

/// A command line written for cAdvisor: its flags have underscores, ours and koordlet's have dashes.
fn is_flag_of_cadvisor(argument: &OsString) -> bool {
    let flag = argument.to_str().and_then(|text| text.strip_prefix("--"));
    let name = flag.map(|flag| flag.split_once('=').map_or(flag, |(name, _)| name));
    name.is_some_and(|name| name.contains('_') || name == "port")
}

fn run_agent(args: &AgentArgs, called: Called) -> Result<(), Failure> {
    let mut config = args.config().map_err(Failure::Usage)?;
    config.protect = args.protection(called).map_err(Failure::Usage)?;
    if called == Called::Cadvisor && !args.wants_usage_history() {
        config.usage_history = None;
    }
    if called == Called::Koordlet
        && config.data_dir.is_none()
        && let Some(history) = &mut config.usage_history
    {
        koordlet_args::keep_where_mounted(history, Path::new("/"));
    }
    let cluster = match args.cluster().source(called) {
        Some(source) => {
            let name = args.node_name().map_err(Failure::Usage)?.to_owned();
            Some((source, name, args.gates().map_err(Failure::Usage)?))
        }
        None => None,
    };
    if cluster.is_none() || config.usage_history.is_none() {
        config.protect = None;
    }
    if let Some(history) = &mut config.usage_history {
        history.standalone = cluster.is_none();
    }
    let judge = args.cluster().judge(called);
    let in_cluster = cluster_args::is_in_pod() || judge.is_some();
    let situation = args.situation(called, in_cluster, judge.is_some());
    let doors = situation
        .and_then(|situation| situation.doors())
        .map_err(Failure::Usage)?;
    raise_descriptor_limit();
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match usize::try_from(args.machine().max_procs) {
        Ok(0) | Err(_) => 2,
        Ok(n) => n.min(cpus),
    };
    let runtime = runtime(threads).map_err(Failure::Run)?;
    let root = args.root().map_err(Failure::Usage)?;
    let world = World {
        clock: Clock::Real,
        root,
    };
    let drain = args.serving().drain_timeout;
    let outcome = runtime.block_on(async {
        let agent = config.build(world.clone())?;
        let mut servers = Vec::new();
        if let Some((listen, shown)) = doors.open {
            let mut http = args.http(listen);
            http.shown = shown;
            servers.push(http.bind().await?);
        }
        if let Some((listen, judge)) = doors.guarded.zip(judge) {
            let http = args.http(listen);
            let node = args.machine().node_name();
            let front = agent_doors::front(listen, &http, node, judge).await?;
            tracing::info!(address = %front.bound.local_addr(), "serving those whom the cluster lets in, by HTTPS");
            servers.push(http.behind(front));
        }
        let running = agent.spawn().context("cannot start the agent's threads")?;
        let serving: Vec<_> = servers
            .into_iter()
            .map(|server| server.spawn(running.view()))
            .collect();
        let member = match cluster {
            Some((source, name, gates)) => {
                let (args, view) = (args.cluster(), running.view());
                Some(Member::by_flags(args, source, &name, gates, &view, &world).await?)
            }
            None => None,
        };
        let member_failed = async {
            match &member {
                Some(member) => member.failure().await,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            failure = member_failed => Err(failure.into()),
            failure = running.failure() => Err(failure.into()),
            signal = wait_for_signal() => signal,
        };
        tracing::info!("stopping");
        if let Some(member) = member {
            member.drain(drain).await;
        }
        join_all(serving.into_iter().map(|one| one.drain(drain))).await;
        running.drain(drain).await;
        outcome
    });
    // Whatever still blocks (a mount that hangs) must not hold up the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.map_err(|error| {
        Failure::Run(match args.flag_behind(&error) {
            Some(flag) => error.context(flag),
            None => error,
        })
    })
}

/// By then a role has started, and runs in a small part of the program.
const SETTLED: Duration = Duration::from_secs(10);

fn runtime(threads: usize) -> Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(8)
        .thread_keep_alive(Duration::from_secs(2))
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    runtime.spawn(async {
        tokio::time::sleep(SETTLED).await;
        match plimsoll_host::program::give_back_mapped() {
            Ok(bytes) => tracing::debug!(bytes, "gave back what only starting needed"),
            Err(error) => tracing::debug!(%error, "cannot give back what only starting needed"),
        }
    });
    Ok(runtime)
}

/// Many containers mean many files; the hard limit is ours to use.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "cannot raise the open files limit");
    }
}

async fn wait_for_signal() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<Asked, clap::Error> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    impl Asked {
        fn agent(&self) -> &AgentArgs {
            match &self.role {
                Role::Agent(agent) => agent,
                _ => panic!("not the agent"),
            }
        }
    }

    #[track_caller]
    fn check_listen(line: &str, expected: &str) {
        let asked = asked(line).unwrap();
        let listen = asked.agent().listen(asked.called).unwrap();
        assert_eq!(listen.to_string(), expected);
    }

    #[test]
    fn where_to_listen() {
        check_listen("plimsoll agent", "127.0.0.1:9120");
        check_listen("plimsoll agent --listen 127.0.0.1:0", "127.0.0.1:0");
        check_listen("plimsoll agent -port=8081", "[::]:8081");
        check_listen("plimsoll agent --port=1 -port 2", "[::]:2");
        check_listen(
            "plimsoll agent --port 80 --listen_ip 10.0.0.1",
            "10.0.0.1:80",
        );
        check_listen("/usr/bin/cadvisor -logtostderr", "[::]:8080");
        check_listen("/koordlet --feature-gates=PSICollector=true", "[::]:9316");
        check_listen("/koordlet --addr=:9317", "[::]:9317");
        check_listen("koordlet --addr 127.0.0.1:1 -v=4", "127.0.0.1:1");
    }

    #[test]
    fn the_command_line_of_koordlets_manifest() {
        let temp = tempfile::tempdir().unwrap();
        let cgroup = temp.path().display();
        let asked = asked(&format!(
            "/koordlet -cgroup-root-dir={cgroup}/ -feature-gates=AllAlpha=true,AllBeta=true -runtime-hooks-network=unix \
             -runtime-hooks-addr=/host-var-run-koordlet/koordlet.sock \
             -runtime-hooks-host-endpoint=/var/run/koordlet//koordlet.sock --logtostderr=true --v=4",
        ))
        .unwrap();
        let agent = asked.agent();
        let root = agent.root().unwrap();
        assert_eq!(root.sys("fs/cgroup"), temp.path());
        let protect = agent.protection(asked.called).unwrap().unwrap();
        assert_eq!(protect.mode, plimsoll_actuate::Mode::Enforce);
        assert!(protect.settings.gates.be_cpu_evict && protect.settings.gates.cgroup_reconcile);
        assert!(agent.config().unwrap().usage_history.is_some());
    }

    #[test]
    fn koordlets_container_can_ask_the_agent() {
        let status = asked("/koordlet qos status").unwrap();
        assert!(matches!(status.role, Role::Qos(_)));
    }

    #[test]
    fn under_the_name_of_the_metrics_server() {
        for line in [
            "/metrics-server -lzone=1 --v=2",
            "plimsoll metrics-server -l zone=1",
        ] {
            assert!(
                matches!(asked(line).unwrap().role, Role::MetricsServer(_)),
                "{line}"
            );
        }
    }

    #[test]
    fn a_command_line_written_for_cadvisor() {
        let asked = asked(
            "cadvisor -logtostderr --housekeeping_interval=10s --docker_only=true -v=4 --max_housekeeping_interval=15s \
             --event_storage_event_limit=default=0 --disable_metrics=percpu,process,sched,tcp,udp,diskIO,disk,network \
             --store_container_labels=false --whitelisted_container_labels=io.kubernetes.container.name \
             --enable_load_reader --docker_root=/var/lib/docker --profiling --jitter_factor -1 --max_procs=-3",
        )
        .unwrap();
        let config = asked.agent().config().unwrap();
        assert_eq!(config.sampling.interval, Duration::from_secs(10));
        assert!(config.rules.docker_only && config.sampling.load_reader);
        assert!(!config.labels.store_all && config.labels.whitelist.len() == 1);
        assert_eq!(config.events.count, [0; 4]);
        assert_eq!(config.sampling.jitter, 1.0);
        assert_eq!(asked.agent().verbosity(), 4);
    }

    #[test]
    fn everything_is_read_at_the_pace_of_whoever_is_replaced() {
        for (line, every) in [
            ("plimsoll agent", 10),
            ("plimsoll agent --cpu-budget=0 --data-dir /tmp/nothing", 10),
            ("koordlet --psi-collector-interval=10s", 10),
            ("cadvisor", 1),
            ("plimsoll agent --docker_only", 1),
            ("plimsoll agent -port 8080", 1),
            ("plimsoll agent --housekeeping_interval 15s", 15),
            ("cadvisor --housekeeping_interval=5s", 5),
        ] {
            let config = asked(line).unwrap().agent().config().unwrap();
            let every = Duration::from_secs(every);
            assert_eq!(config.sampling.interval, every, "{line}");
            let is_ours = config.sampling.page_age.is_some();
            let asks_for_ours = ["plimsoll agent", "koordlet"].iter().any(|own| {
                let rest = line.strip_prefix(own);
                rest.is_some_and(|rest| !rest.contains('_') && !rest.contains("port"))
            });
            assert_eq!(is_ours, asks_for_ours, "{line}");
            let history = config.usage_history.map(|history| history.interval);
            assert_eq!(history, Some(Duration::from_secs(1)), "{line}");
        }
    }

    #[test]
    fn bad_values_are_named() {
        for (flags, expected) in [
            ("--enable_metrics=cpus", "unknown metric group \"cpus\""),
            ("--storage_driver=influxdb", "scrape /metrics"),
            (
                "--storage_driver=kafka --storage_driver_kafka_topic=t --storage_driver_kafka_ssl_verify=false -bq_id 1",
                "--storage_driver=kafka: this agent pushes to no store",
            ),
            ("--docker=tcp://127.0.0.1:2375", "unix socket"),
            ("--event_storage_age_limit=oomm=1h", "unknown event type"),
            ("--jitter_factor inf", "--jitter_factor"),
            ("--jitter_factor NaN", "--jitter_factor"),
            ("--prometheus_endpoint=/healthz", "would hide /healthz"),
            ("--prometheus_endpoint=/api/v1", "would hide /api"),
            ("--prometheus_endpoint=metrics", "like /metrics"),
            ("--cpu-budget -1", "--cpu-budget"),
            (
                "--global_housekeeping_interval 0s",
                "--global_housekeeping_interval",
            ),
            ("--housekeeping_interval=1us", "--housekeeping_interval"),
        ] {
            let asked = asked(&format!("plimsoll agent {flags}")).unwrap();
            let error = format!("{:#}", asked.agent().config().unwrap_err());
            assert!(error.contains(expected), "{error}");
        }
        for flags in [
            "--housekeeping_interval=10",
            "--housekeeping_interval -1s",
            "--storage_duration=x",
        ] {
            let error = asked(&format!("plimsoll agent {flags}"))
                .unwrap_err()
                .to_string();
            assert!(error.contains("10s, 500ms or 1m30s"), "{error}");
        }
    }

    #[test]
    fn files_are_named_with_their_flag() {
        let missing = "/no/such/file";
        for (flag, rest) in [
            ("--token-file", ""),
            ("--http_auth_file", ""),
            ("--tls-cert", "--tls-key /dev/null"),
            ("--client-ca", "--tls-cert /dev/null --tls-key /dev/null"),
            ("--data-dir", ""),
        ] {
            let asked = asked(&format!("plimsoll agent {flag} {missing} {rest}")).unwrap();
            let error = anyhow::anyhow!("read {missing}: gone");
            assert_eq!(asked.agent().flag_behind(&error), Some(flag));
            let other = anyhow::anyhow!("listen on 127.0.0.1:1");
            assert_eq!(asked.agent().flag_behind(&other), None);
        }
        let asked = asked(&format!("plimsoll agent --perf_events_config {missing}")).unwrap();
        let error = format!("{:#}", asked.agent().config().unwrap_err());
        assert!(
            error.contains("--perf_events_config") && error.contains(missing),
            "{error}"
        );
    }

    #[test]
    fn the_command_lines_are_consistent() {
        use clap::CommandFactory;
        CommandLine::command().debug_assert();
        CadvisorLine::command().debug_assert();
    }
}
