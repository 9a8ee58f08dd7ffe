//! Runs a test program and takes its lines as they come.

use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plimsoll_test_support::report::Line;

use super::progress::Progress;
use crate::workspace;

/// Runs the program until it has ended. A program that says nothing for `silence` is killed: it hangs.
pub fn lines(
    command: &mut Command,
    silence: Duration,
    progress: &Progress,
    mut take: impl FnMut(&str),
) -> Result<ExitStatus> {
    let name = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", name.display()))?;
    let output = child.stdout.take().context("a program without output")?;
    let (sender, lines) = mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while matches!(output.read_until(b'\n', &mut line), Ok(1..)) {
            if sender
                .send(String::from_utf8_lossy(&line).into_owned())
                .is_err()
            {
                return;
            }
            line.clear();
        }
    });
    let mut hangs = false;
    loop {
        match lines.recv_timeout(silence) {
            Ok(line) => take(line.trim_end()),
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                hangs = true;
                child.kill()?;
                break;
            }
        }
    }
    drop(lines);
    let (status, cpu) = workspace::reap(&mut child)?;
    progress.add_cpu(cpu);
    if hangs {
        // Whoever still holds the pipe is not waited for.
        bail!(
            "it was killed: it had said nothing for {} s",
            silence.as_secs()
        );
    }
    let _ = reader.join();
    Ok(status)
}

/// A program that speaks the line protocol: without a verdict it has failed.
pub fn protocol(command: &mut Command, silence: Duration, progress: &Progress) -> Result<()> {
    let status = lines(command, silence, progress, |line| match Line::parse(line) {
        Some(parsed) => progress.line(&parsed),
        None => progress.say(line),
    })?;
    if !progress.has_verdict() {
        bail!("the program ended with {status} and without a verdict");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::rung::Rung;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_come_whole_and_cpu_time_is_counted() {
        let progress = Progress::new(Rung::Unit, None);
        let mut seen = Vec::new();
        let script = "echo one; i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; printf two";
        let silence = Duration::from_secs(300);
        let status = lines(&mut shell(script), silence, &progress, |line| {
            seen.push(line.to_owned());
        });
        assert!(status.unwrap().success());
        assert_eq!(seen, ["one", "two"]);
        assert!(progress.snapshot().cpu > Duration::ZERO);
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let progress = Progress::new(Rung::Unit, None);
        let silence = Duration::from_millis(50);
        let failed = lines(&mut shell("exec sleep 600"), silence, &progress, |_| {});
        assert!(failed.unwrap_err().to_string().contains("said nothing"));
    }

    #[test]
    fn without_a_verdict_it_has_failed() {
        let progress = Progress::new(Rung::Cluster, None);
        let silence = Duration::from_secs(300);
        let failed = protocol(&mut shell("echo TEST a ok"), silence, &progress);
        assert!(failed.unwrap_err().to_string().contains("verdict"));
        let good = "echo TEST a ok; echo VERDICT 1 passed 0 failed";
        let progress = Progress::new(Rung::Cluster, None);
        protocol(&mut shell(good), silence, &progress).unwrap();
    }
}
