//! A row of the table, played.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::{http, janitor, poll, ports};
use serde_json::{Value, json};

use super::load::Load;
use super::table::{Fault, Probe, Role, Row};
use super::{SAID_WITHIN, SLACK};
use crate::admin;
use crate::client::{Request, Server};
use crate::process::{Process, Scratch, free_address};
use crate::real;

/// For a process that has said why it cannot go on.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// What a row needs beside the process, for as long as that runs.
pub struct SetUp {
    pub scratch: Scratch,
    fault: Option<Fault>,
    /// Of leases.
    namespace: &'static str,
    kubeconfig: Value,
    api: SocketAddr,
    listen: SocketAddr,
    /// Somebody else's.
    _taken: Option<TcpListener>,
    _silent: Option<TcpListener>,
}

pub fn play(row: &Row, program: &Path, server: &Server) -> Result<()> {
    let mut set_up = SetUp::make(row.fault, server)?;
    let command = set_up.command(row.role, program, server)?;
    let log = set_up.scratch.path().join("log");
    let began = Instant::now();
    let load = Load::now();
    let mut process = Process::start("the role", command, &log)?;
    set_up.scratch.process(&process)?;
    let api = set_up.api.to_string();
    let wanted: Vec<String> = row
        .says
        .iter()
        .map(|s| s.replace("ADDRESS", &api))
        .collect();
    let said = poll::until(&format!("it says {wanted:?}"), SAID_WITHIN + SLACK, || {
        let text = fs::read_to_string(&log)?;
        let line = text.lines().find(|line| {
            let line = line.replace("\\\"", "\"");
            let has = |part: &String| line.contains(&part.replace("\\\"", "\""));
            wanted.iter().all(has)
        });
        Ok(line.map(str::to_owned))
    });
    said.with_context(|| format!("its log:\n{}", fs::read_to_string(&log).unwrap_or_default()))?;
    let took = began.elapsed();
    let is_quiet = load.was_low(took);
    if let Some(code) = row.exit {
        let status = process.ended(ENDS_WITHIN)?;
        ensure!(status.code() == Some(code), "it ended with {status}");
    }
    if let Some(probe) = row.probe {
        set_up.probe(row.role, probe, server)?;
    }
    let text = fs::read_to_string(&log)?;
    ensure!(
        !text.contains(row.never),
        "it says {:?}:\n{text}",
        row.never
    );
    // A busy machine is no fault of the role: there it has to be said, whenever that is.
    if took > SAID_WITHIN && is_quiet {
        let apart = said_after(&text, &wanted)?;
        ensure!(apart <= SAID_WITHIN, "said after {apart:?}:\n{text}");
    }
    Ok(())
}

/// Between the first line of a log and the first that says it, by the log's own clock.
fn said_after(log: &str, wanted: &[String]) -> Result<Duration> {
    let at =
        |line: &str| -> Option<jiff::Timestamp> { line.split_whitespace().next()?.parse().ok() };
    let first = log.lines().find_map(at);
    let says = |line: &&str| {
        let line = line.replace("\\\"", "\"");
        wanted
            .iter()
            .all(|part| line.contains(&part.replace("\\\"", "\"")))
    };
    let said = log.lines().filter(says).find_map(at);
    match (first, said) {
        (Some(first), Some(said)) => Ok(said.duration_since(first).unsigned_abs()),
        // What ends a process is said without a time, at once.
        _ => Ok(Duration::ZERO),
    }
}

impl SetUp {
    fn make(fault: Fault, server: &Server) -> Result<Self> {
        let scratch = Scratch::make()?;
        let silent = match fault {
            Fault::Silent => Some(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?),
            _ => None,
        };
        let api = match (fault, &silent) {
            (_, Some(silent)) => silent.local_addr()?,
            (Fault::Refused, _) => free_address()?,
            _ => server.address,
        };
        let mut kubeconfig = server.kubeconfig(api, "default");
        let token = match fault {
            Fault::Unauthorized => Some("nobody-knows-it"),
            Fault::Forbidden => Some(real::ALICE),
            _ => None,
        };
        if let Some(token) = token {
            kubeconfig["users"][0]["user"] = json!({"token": token});
        }
        if fault == Fault::NoContext {
            kubeconfig["current-context"] = "".into();
        }
        let (listen, taken) = match fault {
            Fault::PortTaken => {
                let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
                (taken.local_addr()?, Some(taken))
            }
            _ => (free_address()?, None),
        };
        Ok(Self {
            scratch,
            fault: Some(fault),
            namespace: match fault {
                Fault::NoNamespace => "no-such-namespace",
                _ => "default",
            },
            kubeconfig,
            api,
            listen,
            _taken: taken,
            _silent: silent,
        })
    }

    /// With a server that works, for somebody without all the rights.
    pub fn acting_as(user: &str, namespace: &'static str, server: &Server) -> Result<Self> {
        let mut kubeconfig = server.kubeconfig(server.address, "default");
        kubeconfig["users"][0]["user"]["as"] = user.into();
        Ok(Self {
            scratch: Scratch::make()?,
            fault: None,
            namespace,
            kubeconfig,
            api: server.address,
            listen: free_address()?,
            _taken: None,
            _silent: None,
        })
    }

    pub fn command(&self, role: Role, program: &Path, server: &Server) -> Result<Command> {
        let folder = self.scratch.path();
        let kubeconfig = folder.join("kubeconfig");
        match self.fault {
            Some(Fault::NoKubeconfig) => {}
            Some(Fault::EmptyKubeconfig) => fs::write(&kubeconfig, "")?,
            _ => fs::write(&kubeconfig, self.kubeconfig.to_string())?,
        }
        let mut command = janitor::command_in(None, program);
        let port = self.listen.port().to_string();
        let namespace = self.namespace;
        match role {
            Role::Agent => {
                command.args(["agent", "--listen", &self.listen.to_string()]);
                self.agent(&mut command, server)?;
            }
            Role::Manager => {
                command
                    .args(["manager", "--config-namespace", namespace])
                    .args(["--health-probe-bind-address", &self.listen.to_string()]);
            }
            Role::MetricsServer => {
                command
                    .args(["metrics-server", "--bind-address", "127.0.0.1"])
                    .args(["--secure-port", &port])
                    .arg("--cert-dir")
                    .arg(folder);
            }
            Role::Scheduler => {
                // A lease of its own: none of these is to be anybody's leader.
                command
                    .args(["scheduler", "--bind-address", "127.0.0.1"])
                    .args(["--secure-port", &port])
                    .args(["--leader-elect-resource-namespace", namespace])
                    .args(["--leader-elect-resource-name", "first-use"])
                    .arg("--cert-dir")
                    .arg(folder);
            }
        }
        command.arg("--kubeconfig").arg(&kubeconfig);
        Ok(command)
    }

    fn agent(&self, command: &mut Command, server: &Server) -> Result<()> {
        let folder = self.scratch.path();
        let name = match self.fault {
            Some(Fault::NoDefinitions | Fault::NoKubelet) => {
                let name = "first-use-node";
                let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
                admin::create(server, "/api/v1/nodes", &node)?;
                // Where nobody listens, whatever else runs on this machine.
                let port = ports::reserve_for_good()?.port();
                let kubelet = json!({"kubeletEndpoint": {"Port": port}});
                let change = json!({"status": {"daemonEndpoints": kubelet}});
                admin::patch(server, &format!("/api/v1/nodes/{name}/status"), &change)?;
                name
            }
            _ => "no-such-node",
        };
        let data = folder.join("data");
        if self.fault == Some(Fault::NoFolder) {
            // Where a folder should be, there is a file: root may write to any folder.
            fs::write(&data, "")?;
        }
        let socket = match self.fault {
            Some(Fault::NoRuntime) => folder.join("containerd.sock").display().to_string(),
            _ => String::new(),
        };
        let pods = match self.fault {
            Some(Fault::NoKubelet) => "kubelet",
            _ => "apiserver",
        };
        command
            // Its probes are plain.
            .args(["--open-to-all", "metrics", "--secure-listen", "127.0.0.1:0"])
            .args(["--node-name", name, "--pods-from", pods])
            .args(["--docker", "", "--podman", "", "--cri", ""])
            .args(["--containerd", &socket])
            .arg("--data-dir")
            .arg(data);
        Ok(())
    }

    fn probe(&self, role: Role, probe: Probe, server: &Server) -> Result<()> {
        let (path, status, says) = probe;
        poll::until(&format!("{path} answers {status} {says}"), SLACK, || {
            let (found, text) = match role {
                Role::Agent | Role::Manager => {
                    let answer = http::get(self.listen, path)?;
                    (answer.status, answer.text()?.to_owned())
                }
                Role::MetricsServer | Role::Scheduler => self.over_tls(path, server)?,
            };
            if found != status || !text.contains(says) {
                bail!("{found} {text}");
            }
            Ok(Some(()))
        })
    }

    fn over_tls(&self, path: &str, server: &Server) -> Result<(u16, String)> {
        let folder = fs::read_dir(self.scratch.path())?;
        let certificate = folder
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|kind| kind == "crt"));
        let authorities = fs::read(certificate.context("there is no certificate yet")?)?;
        let url = format!("https://{}", self.listen);
        let role = Server::new(&url, &authorities, &server.admin_token)?;
        let exchange = role.send(&Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: Vec::new(),
            body: None,
        })?;
        let status = exchange.status;
        let text = String::from_utf8_lossy(&exchange.body()?).into_owned();
        Ok((status, text))
    }
}
