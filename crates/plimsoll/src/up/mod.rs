//! `plimsoll up`: the control plane and every role, on this machine, with one command.

mod args;
mod colocation;
mod figures;
mod lock;
mod machine;
mod scheduler;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_apiserver::{credentials, embed};
use plimsoll_ground::serve;
use plimsoll_simulate as simulate;

pub use args::UpArgs;
use colocation::Manager;
use figures::MetricsServer;
use lock::Lock;
use machine::Machine;
use scheduler::Scheduler;

use crate::signals::Signals;
use crate::{Failure, raise_descriptor_limit, runtime};

/// How long requests may take to finish after a signal.
const DRAIN: Duration = Duration::from_secs(5);
/// Something is wrong if it takes longer; the roles go on trying.
const READY_WITHIN: Duration = Duration::from_secs(30);

pub fn run(args: &UpArgs) -> Result<(), Failure> {
    let started = Instant::now();
    let data_dir = args.data_dir().map_err(Failure::Usage)?;
    let node_name = match args.no_agent {
        true => None,
        false => Some(args.node_name().map_err(Failure::Usage)?),
    };
    raise_descriptor_limit();
    let runtime = runtime(2).map_err(Failure::Run)?;
    let outcome = runtime.block_on(async {
        let mut signals = Signals::listen()?;
        let mut lock = Lock::take(&data_dir)?;
        let up = Up::start(args, node_name, &data_dir, &mut lock).await?;
        up.introduce();
        tokio::select! {
            () = up.ready(started) => signals.next().await,
            () = signals.next() => {}
        }
        say("stopping; once more stops at once");
        tokio::select! {
            () = up.drain() => {}
            () = signals.next() => say("stopped at once"),
        }
        anyhow::Ok(())
    });
    // Whatever still blocks (a mount that hangs) must not hold up the exit.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.map_err(Failure::Run)
}

/// Everything that runs.
struct Up {
    api: embed::Running,
    kubeconfig: PathBuf,
    data_dir: PathBuf,
    node_name: Option<String>,
    machine: Option<Machine>,
    simulation: simulate::Running,
    /// What simulated nodes use.
    pages: Option<serve::Serving>,
    metrics_server: Option<MetricsServer>,
    scheduler: Option<Scheduler>,
    manager: Option<Manager>,
}

impl Up {
    async fn start(
        args: &UpArgs,
        node_name: Option<String>,
        data_dir: &Path,
        lock: &mut Lock,
    ) -> Result<Self> {
        let config = embed::Config {
            listen: args.api_listen,
            data_dir: Some(data_dir.to_owned()),
        };
        let options = embed::Options {
            event_ttl: args.event_ttl,
            ..embed::Options::default()
        };
        let plane = config.build_with(options).await.map_err(advise)?;
        let api = if args.no_controllers {
            plane.spawn_without_controllers()
        } else {
            plane.spawn()
        };
        lock.tell(&format!("https://{}", api.local_addr()))?;
        let kubeconfig = data_dir.join("kubeconfig");
        credentials::write(&kubeconfig, api.kubeconfig().as_bytes(), 0o600)?;
        let manager = match args.no_manager {
            true => None,
            false => {
                let started = Manager::start(api.client()).await;
                Some(started.context("the manager; leave it out with --no-manager")?)
            }
        };
        let machine = match node_name.clone() {
            Some(name) => Some(Machine::start(name, data_dir, api.client()).await?),
            None => None,
        };
        let mut simulation = simulate::Config {
            nodes: args.simulate_nodes,
            reports: !args.no_manager,
            ..simulate::Config::default()
        };
        let mut pages = None;
        if args.simulate_nodes > 0 && !(args.no_metrics_server && args.no_manager) {
            let (told, bound) = simulate::Pages::bind(simulation.clock).await?;
            pages = Some(told.spawn(bound));
            simulation.pages = Some(told);
        }
        let metrics_server = match args.no_metrics_server {
            true => None,
            false => {
                let client = api.client();
                let started = MetricsServer::start(data_dir, &kubeconfig, &client).await;
                Some(started.context("the metrics server; leave it out with --no-metrics-server")?)
            }
        };
        let scheduler = match args.no_scheduler {
            true => None,
            false => {
                let started = Scheduler::start(&kubeconfig, api.client()).await;
                Some(started.context("the scheduler; leave it out with --no-scheduler")?)
            }
        };
        Ok(Self {
            scheduler,
            simulation: simulation.build(api.client()).spawn(),
            pages,
            metrics_server,
            manager,
            api,
            kubeconfig,
            data_dir: data_dir.to_owned(),
            node_name,
            machine,
        })
    }

    /// What runs where, and what to try.
    fn introduce(&self) {
        let kubeconfig = self.kubeconfig.display();
        say(&format!("API server   https://{}", self.api.local_addr()));
        let pages = self.machine.as_ref().and_then(|machine| {
            let agent = machine.agent.as_ref()?;
            Some(agent.pages)
        });
        match (&self.node_name, pages) {
            (Some(name), Some(pages)) => say(&format!("node         {name}, agent http://{pages}")),
            (Some(name), None) => say(&format!("node         {name}, without its agent")),
            (None, _) => say("node         none, as asked (--no-agent)"),
        }
        if let Some((first, last)) = self.simulation.names() {
            say(&format!("simulated    {first} to {last}"));
        }
        if let Some(server) = &self.metrics_server {
            say(&format!("metrics      https://{}", server.address()));
        }
        if let Some(scheduler) = &self.scheduler {
            say(&format!("scheduler    https://{}", scheduler.address()));
        }
        say(&format!("data         {}", self.data_dir.display()));
        for remark in self.machine.iter().flat_map(|machine| &machine.remarks) {
            say(&format!("note         {remark}"));
        }
        say(&format!(
            "try          kubectl --kubeconfig {kubeconfig} get nodes -o wide"
        ));
        if self.metrics_server.is_some() {
            say("             kubectl top nodes, in half a minute");
        }
        if self.manager.is_some() && (self.machine.is_some() || self.simulation.names().is_some()) {
            say("             kubectl get nodemetrics -o yaml, in a minute");
        }
        if let Some(pages) = pages {
            say(&format!("             curl http://{pages}/metrics"));
        }
    }

    /// Returns when everything is ready and has been said to be, or when that takes too long.
    async fn ready(&self, started: Instant) {
        let all = async {
            if let Some(machine) = &self.machine {
                machine.node.ready().await;
            }
            self.simulation.ready().await;
            self.answers().await
        };
        let trouble = match tokio::time::timeout(READY_WITHIN, all).await {
            Ok(Ok(())) => {
                let took = started.elapsed().as_secs_f64();
                let nodes = match (&self.node_name, self.simulation.names()) {
                    (Some(name), None) => format!("node {name} is Ready"),
                    (Some(_), Some(_)) | (None, Some(_)) => "all nodes are Ready".to_owned(),
                    (None, None) => "without nodes".to_owned(),
                };
                say(&format!(
                    "ready        {nodes}, the API server answers ({took:.2} s)"
                ));
                return;
            }
            Ok(Err(error)) => format!("{error:#}"),
            Err(_) => format!("after {} s", READY_WITHIN.as_secs()),
        };
        tracing::error!(trouble, "not ready; the log says more with --log info");
    }

    /// Asks as any client would: through the kubeconfig, over TLS.
    async fn answers(&self) -> Result<()> {
        let kubeconfig = Kubeconfig::from_yaml(&self.api.kubeconfig())?;
        let config =
            kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client = kube::Client::try_from(config)?;
        let request = http::Request::get("/readyz").body(Vec::new())?;
        let answer = client.request_text(request).await;
        answer.context("the API server does not answer")?;
        Ok(())
    }

    async fn drain(self) {
        if let Some(scheduler) = self.scheduler {
            scheduler.drain(DRAIN).await;
        }
        if let Some(server) = self.metrics_server {
            server.drain(DRAIN).await;
        }
        self.simulation.drain(DRAIN).await;
        if let Some(pages) = self.pages {
            pages.drain(DRAIN).await;
        }
        if let Some(machine) = self.machine {
            machine.drain(DRAIN).await;
        }
        if let Some(manager) = self.manager {
            manager.drain(DRAIN).await;
        }
        self.api.drain(DRAIN).await;
    }
}

/// A closed pipe is no reason to stop.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// What went wrong, and what to do about it.
fn advise(error: embed::BuildError) -> anyhow::Error {
    let embed::BuildError::Bind(serve::BindError::Listen { address, source }) = &error else {
        return error.into();
    };
    let advice = match source.kind() {
        ErrorKind::AddrInUse => {
            let port = address.port();
            format!(
                "another program listens on {address}: stop it (ss -ltnp sport = :{port} shows which), or choose another \
                 address with --api-listen, 127.0.0.1:0 for any free port"
            )
        }
        ErrorKind::PermissionDenied => {
            format!("{address} is for root alone: choose a port above 1023 with --api-listen")
        }
        ErrorKind::AddrNotAvailable => {
            format!("{address} is no address of this machine: choose another with --api-listen")
        }
        _ => return error.into(),
    };
    anyhow!(advice)
}
