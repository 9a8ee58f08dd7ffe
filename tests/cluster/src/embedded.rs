//! The embedded API server, as `plimsoll up` runs it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plimsoll_test_support::janitor;
use serde_json::Value;

use crate::client::Server;
use crate::process::{Process, Scratch, free_address, wait_ready};

/// Ends the program when dropped.
#[derive(Debug)]
pub struct EmbeddedCluster {
    pub server: Server,
    _process: Process,
    _scratch: Scratch,
}

impl EmbeddedCluster {
    /// `program` is the plimsoll binary.
    pub fn start(program: &Path) -> Result<Self> {
        // The cases want a control plane that nobody else writes to.
        Self::start_with(program, &["--no-controllers"])
    }

    /// Namespaces are emptied, and dependents follow their owners.
    pub fn with_controllers(program: &Path) -> Result<Self> {
        Self::start_with(program, &[])
    }

    fn start_with(program: &Path, flags: &[&str]) -> Result<Self> {
        let mut scratch = Scratch::make()?;
        let data = scratch.path().join("data");
        let address = free_address()?.to_string();
        let alone = ["--no-metrics-server", "--no-scheduler", "--no-manager"];
        let flags = [&alone, flags].concat();
        let (process, server) = up(program, &mut scratch, &data, &address, &flags)?;
        Ok(Self {
            server,
            _process: process,
            _scratch: scratch,
        })
    }
}

/// `plimsoll up` without the machine it runs on, once it is ready.
pub fn up(
    program: &Path,
    scratch: &mut Scratch,
    data: &Path,
    address: &str,
    flags: &[&str],
) -> Result<(Process, Server)> {
    let mut command = janitor::command_in(None, program);
    command.arg("up").arg("--data-dir").arg(data);
    command
        .args(["--api-listen", address, "--no-agent"])
        .args(flags);
    let mut process = Process::start("plimsoll up", command, &scratch.path().join("up.log"))?;
    scratch.process(&process)?;
    let kubeconfig = data.join("kubeconfig");
    let server = process.wait("plimsoll up writes its kubeconfig", || {
        if !kubeconfig.exists() {
            return Ok(None);
        }
        server_of(&kubeconfig).map(Some)
    })?;
    wait_ready(&server, &mut process)?;
    Ok((process, server))
}

/// The first cluster and user of a kubeconfig: address, authority, bearer token.
pub fn server_of(kubeconfig: &Path) -> Result<Server> {
    let text =
        fs::read_to_string(kubeconfig).with_context(|| format!("read {}", kubeconfig.display()))?;
    let config: Value = serde_saphyr::from_str(&text).context("read the kubeconfig")?;
    let entry = |pointer: &str| {
        let value = config.pointer(pointer).and_then(Value::as_str);
        value.with_context(|| format!("the kubeconfig has no {pointer}"))
    };
    let authority = BASE64_STANDARD
        .decode(entry("/clusters/0/cluster/certificate-authority-data")?)
        .context("certificate-authority-data")?;
    Server::new(
        entry("/clusters/0/cluster/server")?,
        &authority,
        entry("/users/0/user/token")?,
    )
}
