//! Servers as child processes, and the folder they live in.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plimsoll_test_support::janitor::Janitor;
pub use plimsoll_test_support::ports::reserve_for_good as free_address;
use plimsoll_test_support::{log, poll, proc};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::client::{Request, Server};

/// A healthy start takes seconds; a machine that compiles meanwhile gets more.
const READY: Duration = Duration::from_secs(90);

/// A folder that is gone afterwards with the processes that were told to it, even if this program is killed.
#[derive(Debug)]
pub struct Scratch {
    /// `None` once it has been let go.
    janitor: Option<Janitor>,
    folder: TempDir,
}

impl Scratch {
    pub fn make() -> Result<Self> {
        let mut janitor = Janitor::start()?;
        let folder = tempfile::Builder::new()
            .prefix("plimsoll-cluster-")
            .tempdir()
            .context("make a folder for the server")?;
        janitor.directory(folder.path())?;
        let janitor = Some(janitor);
        Ok(Self { janitor, folder })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// For what is neither in the folder nor a process.
    pub fn janitor(&mut self) -> Result<&mut Janitor> {
        self.janitor.as_mut().context("the janitor has ended")
    }

    pub fn process(&mut self, process: &Process) -> Result<()> {
        self.janitor()?.process(process.child.id())
    }
}

/// Waits until all is gone: whoever comes next may change the same kernel settings.
impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.janitor.take().map(Janitor::finish) {
            eprintln!("{error:#}");
        }
    }
}

/// A child that ends with this value.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Its output goes to the file `log`.
    pub fn start(name: &'static str, mut command: Command, log: &Path) -> Result<Self> {
        let output = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        Ok(Self {
            name,
            child,
            log: log.to_owned(),
        })
    }

    /// Asks until the probe gives a value; a process that ended gives none any more.
    pub fn wait<T>(
        &mut self,
        what: &str,
        mut probe: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let found = poll::until(what, READY, || {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(Err(status)));
            }
            Ok(probe()?.map(Ok))
        });
        let found = match found {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(status)) => format!("{} ended with {status}", self.name),
            Err(error) => format!("{error:#}"),
        };
        bail!("{found}; end of its log:\n{}", log::tail(&self.log, 15))
    }

    /// Reaches nobody once it has ended: its pid may be another's by then.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(5).collect();
        lines.join(" | ")
    }

    /// All that it has said.
    pub fn log(&self) -> Result<String> {
        let log = std::fs::read(&self.log);
        let log = log.with_context(|| format!("read {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    pub fn has_ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    pub fn signal(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            proc::signal(self.child.id(), signal);
        }
    }

    /// Waits until it has ended, by itself or by what it was sent.
    pub fn ended(&mut self, within: Duration) -> Result<ExitStatus> {
        let what = format!("{} ends", self.name);
        poll::until(&what, within, || Ok(self.child.try_wait()?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until an API server says that it is ready.
pub fn wait_ready(server: &Server, process: &mut Process) -> Result<()> {
    let request = Request {
        method: "GET".to_owned(),
        path: "/readyz".to_owned(),
        headers: vec![(
            "Authorization".to_owned(),
            format!("Bearer {}", server.admin_token),
        )],
        body: None,
    };
    process.wait("the API server is ready", || {
        let exchange = server.send(&request)?;
        let status = exchange.status;
        exchange.body()?;
        Ok((status == 200).then_some(()))
    })
}
