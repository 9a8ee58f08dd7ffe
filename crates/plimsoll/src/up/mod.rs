//! `plimsoll up`: the control plane and every role, on this machine, with one command.

mod args;
mod colocation;
mod figures;
mod lock;
mod machine;
mod scheduler;
mod supervise;

use std::future::ready;
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kube::config::{KubeConfigOptions, Kubeconfig};
use plimsoll_apiserver::store::{Rescue, Store};
use plimsoll_apiserver::{credentials, embed};

use plimsoll_simulate as simulate;

pub use args::UpArgs;
use colocation::Manager;
use figures::MetricsServer;
use lock::Lock;
use machine::Machine;
use scheduler::Scheduler;
use supervise::{Role, Roster, Supervised, supervise};

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
        let mut up = Up::start(args, node_name, &data_dir, &mut lock).await?;
        up.told.say(up.api.local_addr());
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
    /// In the order in which they are stopped.
    roles: Vec<Supervised>,
    /// What simulated nodes use.
    pages: Option<plimsoll_serving::Serving>,
    /// Ends when all nodes are Ready.
    nodes_ready: BoxFuture<'static, ()>,
    told: TopologyReport,
}

/// What a person is told about what runs.
#[derive(Debug, Default)]
struct TopologyReport {
    kubeconfig: PathBuf,
    data_dir: PathBuf,
    node_name: Option<String>,
    /// Where the agent's pages are.
    agent: Option<SocketAddr>,
    remarks: Vec<String>,
    /// The first and the last node.
    simulated: Option<(String, String)>,
    metrics_server: Option<SocketAddr>,
    scheduler: Option<SocketAddr>,
    has_manager: bool,
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
            restore: args.restore,
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
        let roster = Roster::default();
        let mut told = TopologyReport {
            kubeconfig: kubeconfig.clone(),
            data_dir: data_dir.to_owned(),
            remarks: about_the_store(api.server().store()),
            ..TopologyReport::default()
        };
        let mut roles = Vec::new();
        let mut nodes_ready = Vec::new();
        if !args.no_manager {
            let client = api.client();
            let start = move || Manager::start(client.clone());
            let manager = start().await;
            let manager = manager.context("the manager; leave it out with --no-manager")?;
            roles.push(supervise("manager", manager, start, &roster, DRAIN));
            told.has_manager = true;
        }
        if let Some(name) = node_name {
            told.node_name = Some(name.clone());
            let (client, dir) = (api.client(), data_dir.to_owned());
            let start = move || Machine::start(name.clone(), dir.clone(), client.clone());
            let machine = start().await?;
            nodes_ready.push(machine.node.ready().boxed());
            told.agent = machine.agent.as_ref().map(|agent| agent.pages);
            told.remarks.extend(machine.remarks.iter().cloned());
            roles.push(supervise("agent", machine, start, &roster, DRAIN));
        }
        // Without nodes, too: those of an earlier run are not ready any more.
        let mut simulation = simulate::Config {
            nodes: args.simulate_nodes,
            reports: !args.no_manager,
            ..simulate::Config::default()
        };
        let mut pages = None;
        if args.simulate_nodes > 0 && !(args.no_metrics_server && args.no_manager) {
            let (shown, bound) = simulate::Pages::bind(simulation.clock).await?;
            pages = Some(shown.spawn(bound));
            simulation.pages = Some(shown);
        }
        let client = api.client();
        let start = move || {
            let running = simulation.clone().build(client.clone()).spawn();
            async { anyhow::Ok(running) }
        };
        let simulation = start().await?;
        nodes_ready.push(simulation.ready().boxed());
        told.simulated = simulation.names();
        roles.push(supervise("simulation", simulation, start, &roster, DRAIN));
        if !args.no_metrics_server {
            let (client, kubeconfig) = (api.client(), kubeconfig.clone());
            let dir = data_dir.to_owned();
            let start =
                move || MetricsServer::start(dir.clone(), kubeconfig.clone(), client.clone());
            let server = start().await;
            let server =
                server.context("the metrics server; leave it out with --no-metrics-server")?;
            told.metrics_server = Some(server.address());
            roles.push(supervise("metrics-server", server, start, &roster, DRAIN));
        }
        if !args.no_scheduler {
            let client = api.client();
            let start = move || Scheduler::start(kubeconfig.clone(), client.clone());
            let scheduler = start().await;
            let scheduler = scheduler.context("the scheduler; leave it out with --no-scheduler")?;
            told.scheduler = Some(scheduler.address());
            roles.push(supervise("scheduler", scheduler, start, &roster, DRAIN));
        }
        // Who decides and measures stops before the nodes, and they before who lends of them.
        roles.reverse();
        api.server().add_metrics(move || roster.metrics());
        Ok(Self {
            api,
            roles,
            pages,
            nodes_ready: join_all(nodes_ready).map(drop).boxed(),
            told,
        })
    }

    /// Returns when everything is ready and has been said to be, or when that takes too long.
    async fn ready(&mut self, started: Instant) {
        let nodes = std::mem::replace(&mut self.nodes_ready, ready(()).boxed());
        let all = async {
            nodes.await;
            self.answers().await
        };
        let trouble = match tokio::time::timeout(READY_WITHIN, all).await {
            Ok(Ok(())) => {
                let took = started.elapsed().as_secs_f64();
                let nodes = match (&self.told.node_name, &self.told.simulated) {
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
        for role in self.roles {
            role.drain().await;
        }
        if let Some(pages) = self.pages {
            pages.drain(DRAIN).await;
        }
        self.api.drain(DRAIN).await;
    }
}

impl Role for simulate::Running {
    async fn failure(&mut self) -> String {
        simulate::Running::failure(self).await.to_string()
    }

    async fn drain(self, within: Duration) {
        simulate::Running::drain(self, within).await;
    }
}

impl TopologyReport {
    /// What runs where, and what to try.
    fn say(&self, api: SocketAddr) {
        let kubeconfig = self.kubeconfig.display();
        say(&format!("API server   https://{api}"));
        match (&self.node_name, self.agent) {
            (Some(name), Some(pages)) => say(&format!("node         {name}, agent http://{pages}")),
            (Some(name), None) => say(&format!("node         {name}, without its agent")),
            (None, _) => say("node         none, as asked (--no-agent)"),
        }
        if let Some((first, last)) = &self.simulated {
            say(&format!("simulated    {first} to {last}"));
        }
        if let Some(address) = self.metrics_server {
            say(&format!("metrics      https://{address}"));
        }
        if let Some(address) = self.scheduler {
            say(&format!("scheduler    https://{address}"));
        }
        say(&format!("data         {}", self.data_dir.display()));
        for remark in &self.remarks {
            say(&format!("note         {remark}"));
        }
        say(&format!(
            "try          kubectl --kubeconfig {kubeconfig} get nodes -o wide"
        ));
        if self.metrics_server.is_some() {
            say("             kubectl top nodes, in half a minute");
        }
        if self.has_manager && (self.node_name.is_some() || self.simulated.is_some()) {
            say("             kubectl get nodemetrics -o yaml, in a minute");
        }
        if let Some(pages) = self.agent {
            say(&format!("             curl http://{pages}/metrics"));
        }
    }
}

/// What was not well with what was kept.
fn about_the_store(store: &Store) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(Rescue {
        damage,
        aside,
        dropped,
    }) = store.rescue()
    {
        let aside = aside.display();
        remarks.push(format!(
            "the store was damaged ({damage}) and was made anew; the damaged file is {aside}"
        ));
        remarks.push(match dropped.names.is_empty() && !dropped.more {
            true => "nothing was lost by that".to_owned(),
            false => format!("these objects are gone: {dropped}; the log names all of them"),
        });
    }
    let unreadable = store.unreadable().iter();
    remarks.extend(unreadable.map(|what| format!("left out, as it cannot be read: {what}")));
    remarks
}

/// A closed pipe is no reason to stop.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// What went wrong, and what to do about it.
fn advise(error: embed::BuildError) -> anyhow::Error {
    let embed::BuildError::Bind(plimsoll_serving::BindError::Listen { address, source }) = &error
    else {
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
