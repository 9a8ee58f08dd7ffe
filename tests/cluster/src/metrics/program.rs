//! A metrics server as a child process: ours, or the original.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use plimsoll_test_support::janitor;

use crate::client::{Request, Server};
use crate::process::{Process, Scratch, free_address};

/// Which program.
#[derive(Debug, Clone)]
pub enum Program {
    /// The plimsoll binary.
    Ours(PathBuf),
    Original(PathBuf),
}

#[derive(Debug)]
pub struct MetricsServer {
    pub server: Server,
    _process: Process,
}

impl MetricsServer {
    /// On an address of this machine, for the cluster of `api` and kubelets without TLS; waits until it has figures.
    pub fn start(
        program: &Program,
        api: &Server,
        ip: IpAddr,
        scratch: &mut Scratch,
    ) -> Result<Self> {
        let plain = "--deprecated-kubelet-completely-insecure".to_owned();
        Self::start_as(program, api, &api.admin_token, ip, &[plain], scratch)
    }

    /// With a token of its own, and told how to trust kubelets.
    pub fn start_as(
        program: &Program,
        api: &Server,
        token: &str,
        ip: IpAddr,
        trust: &[String],
        scratch: &mut Scratch,
    ) -> Result<Self> {
        let port = free_address()?.port();
        let folder = scratch.path().join(format!("metrics-server-{port}"));
        fs::create_dir_all(&folder)?;
        let kubeconfig = folder.join("kubeconfig");
        let mut itself = api.clone();
        itself.admin_token = token.to_owned();
        let config = itself.kubeconfig(api.address, "default").to_string();
        fs::write(&kubeconfig, config)?;
        let (name, mut command) = match program {
            Program::Ours(path) => {
                let mut command = janitor::command_in(None, path);
                command.arg("metrics-server");
                ("plimsoll metrics-server", command)
            }
            Program::Original(path) => ("metrics-server", janitor::command_in(None, path)),
        };
        for flag in [
            "kubeconfig",
            "authentication-kubeconfig",
            "authorization-kubeconfig",
        ] {
            command.arg(format!("--{flag}={}", kubeconfig.display()));
        }
        command
            .args(trust)
            .args([
                "--kubelet-use-node-status-port",
                "--kubelet-preferred-address-types=InternalIP",
                "--metric-resolution=10s",
                "--kubelet-request-timeout=3s",
            ])
            .arg(format!("--bind-address={ip}"))
            .arg(format!("--secure-port={port}"))
            .arg(format!("--cert-dir={}", folder.display()));
        let mut process = Process::start(name, command, &folder.join("log"))?;
        scratch.process(&process)?;
        let certificate = folder.join("apiserver.crt");
        let url = format!("https://{}", SocketAddr::new(ip, port));
        let server = process.wait("the metrics server has figures", || {
            if !certificate.exists() {
                return Ok(None);
            }
            let authorities = fs::read(&certificate)?;
            let server = Server::new(&url, &authorities, &api.admin_token)?;
            let exchange = server.send(&get("/readyz", &server))?;
            let ready = exchange.status == 200;
            exchange.body()?;
            Ok(ready.then_some(server))
        })?;
        Ok(Self {
            server,
            _process: process,
        })
    }
}

impl MetricsServer {
    /// What it answers the administrator.
    pub fn page(&self, path: &str) -> Result<String> {
        let exchange = self.server.send(&get(path, &self.server))?;
        Ok(String::from_utf8_lossy(&exchange.body()?).into_owned())
    }
}

fn get(path: &str, server: &Server) -> Request {
    Request {
        method: "GET".to_owned(),
        path: path.to_owned(),
        headers: vec![(
            "Authorization".to_owned(),
            format!("Bearer {}", server.admin_token),
        )],
        body: None,
    }
}

/// An address of this machine that an endpoint may have: not a loopback one.
pub fn own_address() -> Result<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // Nothing is sent: the kernel only says which address it would send from.
    socket
        .connect("192.0.2.1:9")
        .context("this machine has no route to anywhere")?;
    Ok(socket.local_addr()?.ip())
}

pub fn original(kube_bin: &Path) -> Option<Program> {
    let path = kube_bin.join("metrics-server");
    path.is_file().then_some(Program::Original(path))
}
