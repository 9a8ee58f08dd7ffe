//! What every runtime test stands on: a directory, a cgroup, daemons in it, and a janitor for all of them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::exposition::{Exposition, Sample};
use plimsoll_test_support::janitor::{self, Janitor};
use plimsoll_test_support::{log, poll, proc};
use rustix::process::Signal;

/// For what the agent shows to be as the runtime has it: the runtime has to answer, beside whatever else this machine does.
pub const NAMED: Duration = Duration::from_secs(60);
/// For a runtime to start, or to end.
pub const READY: Duration = Duration::from_secs(90);

#[derive(Debug)]
pub struct Scene {
    program: PathBuf,
    pub directory: PathBuf,
    /// The cgroup that holds everything, with a leading slash.
    pub cgroup: String,
    daemons: Group,
    janitor: Option<Janitor>,
}

impl Scene {
    pub fn new(program: PathBuf) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "container runtimes need root here"
        );
        let mut janitor = Janitor::start()?;
        let name = format!("plimsoll-runtime-{}", std::process::id());
        // Short, because a socket's path may have 107 bytes at most.
        let directory = std::env::temp_dir().join(&name);
        janitor.directory(&directory)?;
        fs::create_dir_all(&directory)?;
        let cgroup = format!("/{name}");
        janitor.cgroup(&cgroup)?;
        let daemons = Group::create(&Mounts::detect()?, &format!("{cgroup}/daemons"))?;
        Ok(Self {
            program,
            directory,
            cgroup,
            daemons,
            janitor: Some(janitor),
        })
    }

    pub fn janitor(&mut self) -> Result<&mut Janitor> {
        self.janitor.as_mut().context("the scene has ended")
    }

    /// Stops and removes everything that is left.
    pub fn end(&mut self) -> Result<()> {
        self.janitor.take().context("ended twice")?.finish()
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, contents).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    /// The agent, with sockets that only the given arguments can make real.
    pub fn agent(&self, arguments: &[&str]) -> Result<Agent> {
        let nowhere = self.path("nowhere.sock");
        let mut all = Vec::new();
        for flag in ["--docker", "--podman", "--containerd"] {
            if !arguments
                .iter()
                .any(|argument| argument.starts_with(&format!("{flag}=")))
            {
                let scheme = if flag == "--containerd" {
                    ""
                } else {
                    "unix://"
                };
                all.push(format!("{flag}={scheme}{}", nowhere.display()));
            }
        }
        let mut words: Vec<&str> = all.iter().map(String::as_str).collect();
        words.extend(arguments);
        let agent = Agent::start(
            &self.program,
            &words,
            Some(&self.daemons),
            &self.path("agent.log"),
        )?;
        Ok(agent)
    }

    /// Starts a daemon in the scene's cgroup, where its own children stay, too.
    pub fn daemon(&mut self, name: &str, command: &mut Command) -> Result<Daemon> {
        let log = self.path(&format!("{name}.log"));
        let output = File::options().create(true).append(true).open(&log)?;
        let mut wrapped = janitor::command_in(Some(&self.daemons), command.get_program());
        wrapped.args(command.get_args());
        for (key, value) in command.get_envs() {
            if let Some(value) = value {
                wrapped.env(key, value);
            }
        }
        let child = wrapped
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {name}"))?;
        self.janitor()?.process(child.id())?;
        Ok(Daemon {
            name: name.to_owned(),
            child,
            log,
        })
    }
}

/// A runtime's daemon.
#[derive(Debug)]
pub struct Daemon {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Daemon {
    /// Waits until `probe` succeeds; a daemon that ends before that is the error.
    pub fn wait_ready(
        &mut self,
        timeout: Duration,
        mut probe: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        let what = format!("{} is ready", self.name);
        let ready = poll::until(&what, timeout, || {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(Err(status)));
            }
            probe()?;
            Ok(Some(Ok(())))
        });
        match ready {
            Ok(Ok(())) => Ok(()),
            Ok(Err(status)) => bail!("{} ended with {status}: {}", self.name, self.log_tail()),
            Err(error) => bail!("{error:#}; {}'s log: {}", self.name, self.log_tail()),
        }
    }

    pub fn stop(&mut self) -> Result<()> {
        proc::signal(self.child.id(), Signal::TERM);
        poll::until(&format!("{} ends", self.name), READY, || {
            Ok(self.child.try_wait()?)
        })?;
        Ok(())
    }

    pub fn log_tail(&self) -> String {
        log::tail(&self.log, 8)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.stop();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs a command to its end and gives its standard output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?} ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// The row that stands for one container: every container has this series from its first sample on.
pub const ROW: &str = "container_memory_usage_bytes";

/// Waits until a page of the agent has the row of a cgroup, with these labels.
pub fn wait_row(agent: &Agent, page: &str, id: &str, labels: &[(&str, &str)]) -> Result<Sample> {
    poll::until(&format!("{page} names {id}"), NAMED, || {
        let found = agent.exposition(page)?;
        let sample = found
            .first(ROW, &[("id", id)])
            .with_context(|| format!("no {ROW} of {id}"))?;
        for (key, value) in labels {
            ensure!(
                sample.label(key) == *value,
                "label {key} is {:?} instead of {value:?}",
                sample.label(key)
            );
        }
        Ok(Some(sample.clone()))
    })
    .map_err(|error| anyhow!("{error:#}; agent's log: {}", agent.log_tail()))
}

/// Waits until nothing of a cgroup is left on the page.
pub fn wait_gone(agent: &Agent, id: &str) -> Result<()> {
    poll::until(&format!("{id} is gone"), NAMED, || {
        let page = agent.metrics()?;
        Ok(ids(&page).all(|seen| seen != id).then_some(()))
    })
}

fn ids(page: &Exposition) -> impl Iterator<Item = &str> {
    page.samples.iter().map(|sample| sample.label("id"))
}

/// Whether a program is in the usual places; daemons are not in every user's search path.
pub fn program(name: &str) -> Option<PathBuf> {
    ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin"]
        .iter()
        .map(|directory| Path::new(directory).join(name))
        .find(|path| path.is_file())
}
