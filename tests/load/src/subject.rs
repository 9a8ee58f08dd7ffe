//! The process that is measured.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use plimsoll_test_support::proc::{self, CpuTime};
use rustix::process::Signal;

use crate::wire::Target;

const READY_WITHIN: Duration = Duration::from_secs(60);
const ENDS_WITHIN: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub struct Subject {
    child: Child,
    dir: PathBuf,
    /// From the start of the process to the line that says that it is ready.
    pub took: Duration,
}

impl Drop for Subject {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Subject {
    pub fn start(program: &Path, dir: &Path, flags: &[&str]) -> Result<Self> {
        let started = Instant::now();
        let mut child = Command::new(program)
            .args(["up", "--api-listen", "127.0.0.1:0", "--data-dir"])
            .arg(dir)
            .args(flags)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let stdout = child.stdout.take().context("no output")?;
        let mut subject = Self {
            child,
            dir: dir.to_owned(),
            took: Duration::ZERO,
        };
        let mut lines = BufReader::new(stdout).lines();
        loop {
            let Some(line) = lines.next() else {
                bail!("plimsoll up ended before it was ready");
            };
            if line?.starts_with("ready") {
                break;
            }
            if started.elapsed() > READY_WITHIN {
                bail!("not ready within {READY_WITHIN:?}");
            }
        }
        subject.took = started.elapsed();
        // What it says later must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(subject)
    }

    pub fn target(&self) -> Result<Target> {
        Target::from_kubeconfig(&self.dir.join("kubeconfig"))
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn rss_mib(&self) -> Result<f64> {
        Ok(proc::rss_kib(self.child.id())? as f64 / 1024.0)
    }

    pub fn cpu(&self) -> Result<CpuTime> {
        CpuTime::of(self.child.id())
    }

    /// CPU seconds since it was started.
    pub fn cpu_so_far(&self) -> Result<f64> {
        Ok(self.cpu()?.since(&CpuTime::default()).as_secs_f64())
    }

    /// CPU time of this process and of the one measured.
    pub fn cpu_of_both(&self) -> Result<Duration> {
        let both = [std::process::id(), self.child.id()];
        let mut used = Duration::ZERO;
        for pid in both {
            used += CpuTime::of(pid)?.since(&CpuTime::default());
        }
        Ok(used)
    }

    pub fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Ends it as a person would.
    pub fn stop(mut self) -> Result<()> {
        proc::signal(self.child.id(), Signal::TERM);
        let until = Instant::now() + ENDS_WITHIN;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                if status.success() {
                    return Ok(());
                }
                bail!("plimsoll up ended with {status}");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("plimsoll up does not end")
    }
}
