//! The program under test as a child process.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::cgroup::Group;
use crate::exposition::Exposition;
use crate::ports::{self, Reserved};
use crate::{http, janitor, log, poll, proc};

/// Generous because the kernel tests run it under emulation; a healthy start takes a fraction of a second.
const READY: Duration = Duration::from_secs(120);
const STOP: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Agent {
    child: Child,
    pub address: SocketAddr,
    log: PathBuf,
    _port: Reserved,
}

impl Agent {
    /// Starts `plimsoll agent` on a free port and waits until it is ready. Its log goes to `log`.
    pub fn start(
        program: &Path,
        arguments: &[&str],
        group: Option<&Group>,
        log: &Path,
    ) -> Result<Self> {
        let port = ports::reserve()?;
        let address = port.address();
        let output = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let child = janitor::command_in(group, program)
            .args(["agent", "--listen", &address.to_string()])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut agent = Self {
            child,
            address,
            log: log.to_owned(),
            _port: port,
        };
        agent.wait_ready()?;
        Ok(agent)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn get(&self, path: &str) -> Result<http::Response> {
        http::get_ok(self.address, path)
    }

    pub fn json(&self, path: &str) -> Result<serde_json::Value> {
        self.get(path)?.json()
    }

    pub fn exposition(&self, path: &str) -> Result<Exposition> {
        Exposition::parse(self.get(path)?.text()?)
    }

    pub fn metrics(&self) -> Result<Exposition> {
        self.exposition("/metrics")
    }

    /// The end of its log, for a failure's message.
    pub fn log_tail(&self) -> String {
        log::tail(&self.log, 8)
    }

    /// Asks it to end; the exit status must be a success.
    pub fn stop(mut self) -> Result<()> {
        proc::signal(self.pid(), Signal::TERM);
        let status = poll::until("the agent ends after SIGTERM", STOP, || {
            Ok(self.child.try_wait()?)
        })?;
        if !status.success() {
            bail!("the agent ended with {status}: {}", self.log_tail());
        }
        Ok(())
    }

    /// Ends it without warning, as the kernel or a person might.
    pub fn kill(mut self) -> Result<ExitStatus> {
        self.child.kill()?;
        Ok(self.child.wait()?)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let address = self.address;
        let ready = poll::until("the agent is ready", READY, || {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(Err(status)));
            }
            let answer = http::get(address, "/readyz")?;
            Ok((answer.status == 200).then_some(Ok(())))
        });
        match ready {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => bail!("the agent ended with {status}: {}", self.log_tail()),
            Err(error) => bail!("{error:#}; agent's log: {}", self.log_tail()),
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // After `stop` and `kill` the child is reaped already, and this does nothing.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
