//! A candidate's process, and what it wrote down.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::{janitor, log};
use rustix::process::Signal;

use super::proxy::{Cut, Proxy};
use super::{LEASE, PATIENCE, RENEW, RETRY};
use crate::client::Server;
use crate::process::{Process, Scratch};

/// When a candidate led, by the clock that all processes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Term {
    pub acquired: Duration,
    /// When it last could have acted as the leader.
    pub active: Duration,
    /// When it had noticed that it does not lead any more.
    pub lost: Option<Duration>,
}

impl Term {
    /// `None`: it has not led. A last line that is not whole yet does not count.
    fn read(diary: &str) -> Result<Option<Self>> {
        let mut term: Option<Self> = None;
        let whole = diary.rsplit_once('\n').map_or("", |(whole, _)| whole);
        for line in whole.lines() {
            let (what, at) = line.split_once(' ').context("a line of one word")?;
            let at = Duration::from_nanos(at.parse().with_context(|| format!("line {line:?}"))?);
            match (what, &mut term) {
                ("acquired", None) => {
                    term = Some(Self {
                        acquired: at,
                        active: at,
                        lost: None,
                    });
                }
                ("active", Some(term)) if term.lost.is_none() => term.active = at,
                ("lost", Some(term)) if term.lost.is_none() => term.lost = Some(at),
                _ => bail!("{line:?} is out of order"),
            }
        }
        Ok(term)
    }
}

/// The first two that led at the same time, each with the time at which it ended. `terms` have the ends that count.
pub fn overlap<'a>(terms: &[(&'a str, Term, Duration)]) -> Option<(&'a str, &'a str)> {
    let mut terms = terms.to_vec();
    terms.sort_by_key(|(_, term, _)| term.acquired);
    terms.windows(2).find_map(|pair| match pair {
        [(one, _, end), (other, next, _)] if *end >= next.acquired => Some((*one, *other)),
        _ => None,
    })
}

/// Ends its process when dropped.
#[derive(Debug)]
pub struct Candidate {
    pub name: &'static str,
    process: Process,
    /// Between it and the server.
    network: Proxy,
    diary: PathBuf,
    log: PathBuf,
    /// It could not notice in time that it had lost.
    was_disturbed: bool,
}

impl Candidate {
    pub fn start(
        name: &'static str,
        program: &Path,
        server: &Server,
        namespace: &str,
        scratch: &mut Scratch,
    ) -> Result<Self> {
        let diary = scratch.path().join(format!("{name}.diary"));
        let log = scratch.path().join(format!("{name}.log"));
        fs::write(&diary, "").context("make a diary")?;
        let network = Proxy::start(server.address)?;
        let kubeconfig = scratch.path().join(format!("{name}.kubeconfig"));
        let config = server.kubeconfig(network.address, namespace);
        fs::write(&kubeconfig, config.to_string()).context("write a kubeconfig")?;
        let mut command = janitor::command_in(None, program);
        command
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .args(["--namespace", namespace])
            .args(["--lease", super::NAME])
            .args(["--identity", name])
            .arg("--diary")
            .arg(&diary);
        for (flag, duration) in [
            ("--lease-milliseconds", LEASE),
            ("--renew-milliseconds", RENEW),
            ("--retry-milliseconds", RETRY),
        ] {
            command.arg(flag).arg(duration.as_millis().to_string());
        }
        let process = Process::start(name, command, &log)?;
        scratch.process(&process)?;
        Ok(Self {
            name,
            process,
            network,
            diary,
            log,
            was_disturbed: false,
        })
    }

    pub fn term(&self) -> Result<Option<Term>> {
        let diary = fs::read_to_string(&self.diary).context("read a diary")?;
        Term::read(&diary).with_context(|| format!("diary of {}", self.name))
    }

    /// Its term, with the time from which on somebody else may lead: when it had noticed its loss, or, where something
    /// kept it from noticing or a busy machine may have, the last time it acted.
    pub fn reign(&self) -> Result<Option<(&'static str, Term, Duration)>> {
        Ok(self.term()?.map(|term| {
            let end = match term.lost {
                Some(lost) if !self.was_disturbed => lost,
                _ => term.active,
            };
            (self.name, term, end)
        }))
    }

    pub fn pause(&mut self) {
        self.was_disturbed = true;
        self.process.signal(Signal::STOP);
    }

    /// Takes the network from it.
    pub fn cut_off(&mut self, cut: Cut) {
        self.was_disturbed = true;
        self.network.cut(cut);
    }

    pub fn reconnect(&self) {
        self.network.cut(Cut::Nothing);
    }

    /// Whether everything that it and the server sent each other has arrived.
    pub fn is_idle(&self) -> bool {
        self.network.is_idle()
    }

    pub fn resume(&mut self) {
        self.process.signal(Signal::CONT);
    }

    pub fn ask_to_stop(&mut self) {
        self.process.signal(Signal::TERM);
    }

    /// Waits until it has ended with this code.
    pub fn ends_with(&mut self, code: i32) -> Result<()> {
        let status = self.process.ended(PATIENCE)?;
        ensure!(
            status.code() == Some(code),
            "{} ended with {status} instead of code {code}",
            self.name
        );
        Ok(())
    }

    /// The hard way; it is gone when this returns.
    pub fn kill(&mut self) -> Result<()> {
        self.process.signal(Signal::KILL);
        let status = self.process.ended(PATIENCE)?;
        ensure!(
            status.signal() == Some(Signal::KILL.as_raw()),
            "{} had ended with {status} before",
            self.name
        );
        Ok(())
    }

    /// The end of its log, for a failure's message.
    pub fn last_words(&self) -> String {
        format!("{}:\n{}", self.name, log::tail(&self.log, 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(nanos: u64) -> Duration {
        Duration::from_nanos(nanos)
    }

    #[test]
    fn diaries() {
        assert_eq!(Term::read("").unwrap(), None);
        let leads = "acquired 5\nactive 6\nactive 17\nactive 1";
        let mut term = Term {
            acquired: nanos(5),
            active: nanos(17),
            lost: None,
        };
        assert_eq!(Term::read(leads).unwrap(), Some(term));
        term.lost = Some(nanos(20));
        let lost = "acquired 5\nactive 17\nlost 20\n";
        assert_eq!(Term::read(lost).unwrap(), Some(term));
        let still_acts = "acquired 5\nlost 20\nactive 21\n";
        assert!(Term::read(still_acts).is_err());
        assert!(Term::read("active 21\n").is_err());
    }

    #[test]
    fn terms_that_overlap() {
        let term = |name, acquired, end| {
            let term = Term {
                acquired: nanos(acquired),
                active: nanos(end),
                lost: None,
            };
            (name, term, nanos(end))
        };
        let apart = [term("b", 30, 40), term("a", 10, 20)];
        assert_eq!(overlap(&apart), None);
        let both = [term("b", 30, 40), term("a", 10, 31)];
        assert_eq!(overlap(&both), Some(("a", "b")));
    }
}
