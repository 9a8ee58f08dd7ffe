//! The process that is measured.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use plimsoll_test_support::proc::{self, CpuTime};
use plimsoll_test_support::{janitor, log, ports};

use crate::Options;
use crate::cluster::Cluster;
use crate::kubelets::PORT;

#[derive(Debug, Clone)]
pub enum Kind {
    Ours(PathBuf),
    Peer(PathBuf),
    /// Ours, without the API.
    Collector,
}

#[derive(Debug)]
pub struct Subject {
    child: Child,
    pub started: Instant,
    log: PathBuf,
    pub face: Face,
}

/// How it shows what it knows.
#[derive(Debug)]
pub enum Face {
    Api(SocketAddr),
    Output(BufReader<ChildStdout>),
}

impl Subject {
    pub fn start(kind: Kind, options: &Options, cluster: &Cluster) -> Result<Self> {
        let kubeconfig = cluster.kubeconfig();
        let (program, api) = match &kind {
            Kind::Ours(program) | Kind::Peer(program) => (program.clone(), true),
            Kind::Collector => (std::env::current_exe()?, false),
        };
        let mut command = janitor::command_in(None, &program);
        let address = ports::reserve_for_good()?;
        let dir = cluster.dir();
        if api {
            if matches!(kind, Kind::Ours(_)) {
                command.arg("metrics-server");
            }
            for flag in [
                "kubeconfig",
                "authentication-kubeconfig",
                "authorization-kubeconfig",
            ] {
                command.arg(format!("--{flag}={}", kubeconfig.display()));
            }
            command
                .arg(format!("--secure-port={}", address.port()))
                .arg(format!("--bind-address={}", address.ip()))
                .arg(format!("--cert-dir={}", dir.join("certificates").display()))
                .arg(format!("--metric-resolution={}s", options.resolution))
                .arg(format!("--kubelet-port={PORT}"))
                .args([
                    "--kubelet-preferred-address-types=InternalIP",
                    "--kubelet-insecure-tls",
                ]);
        } else {
            command
                .arg("--collector")
                .arg(&kubeconfig)
                .arg(format!("--nodes={}", options.nodes))
                .arg(format!("--resolution={}", options.resolution));
        }
        let log = dir.join("subject.log");
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stderr(output.try_clone()?);
        match api {
            true => command.stdout(output),
            false => command.stdout(Stdio::piped()),
        };
        let started = Instant::now();
        let mut child = command
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let face = match child.stdout.take() {
            Some(stdout) => Face::Output(BufReader::new(stdout)),
            None => Face::Api(address),
        };
        Ok(Self {
            child,
            started,
            log,
            face,
        })
    }

    /// Fails with its last words if it has ended.
    pub fn check(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("it ended with {status}: {}", log::tail(&self.log, 5));
        }
        Ok(())
    }

    /// Waits for the word that every node has figures.
    pub fn wait_for_word(&mut self) -> Result<Duration> {
        if let Face::Output(output) = &mut self.face {
            let mut line = String::new();
            output.read_line(&mut line)?;
        }
        self.check()?;
        Ok(self.started.elapsed())
    }

    pub fn cpu(&self) -> Result<CpuTime> {
        CpuTime::of(self.child.id())
    }

    pub fn rss_mib(&self) -> Result<f64> {
        Ok(proc::rss_kib(self.child.id())? as f64 / 1024.0)
    }

    pub fn stop(mut self) -> Result<()> {
        self.check()?;
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }
}
