//! A stock kubectl on a server: what people type, and what they see.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::client::Server;

/// Its home: kubeconfig and discovery cache of one case.
#[derive(Debug)]
pub struct Kubectl<'a> {
    program: &'a Path,
    home: TempDir,
}

impl<'a> Kubectl<'a> {
    pub fn new(program: &'a Path, server: &Server, namespace: &str) -> Result<Self> {
        let home = tempfile::Builder::new()
            .prefix("plimsoll-kubectl-")
            .tempdir()
            .context("make a home for kubectl")?;
        let config = server.kubeconfig(server.address, namespace);
        fs::write(home.path().join("config"), config.to_string())?;
        Ok(Self { program, home })
    }

    /// What a command line that succeeds puts out, as it is.
    pub fn text(&self, line: &str) -> Result<String> {
        let output = self.output(line, None)?;
        ensure!(
            output.status.success(),
            "kubectl {line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Runs one command line: exit code, output and error output.
    pub fn run(&self, line: &str, input: Option<&[u8]>) -> Result<Value> {
        let output = self.output(line, input)?;
        let mut errors = readable(&output.stderr);
        if !output.status.success() {
            // What follows the server's words is kubectl's advice.
            errors.truncate(1);
        }
        Ok(json!({
            "exit": output.status.code(),
            "text": readable(&output.stdout),
            "errors": errors,
        }))
    }

    fn output(&self, line: &str, input: Option<&[u8]>) -> Result<Output> {
        let mut child = Command::new(self.program)
            .args(words(line))
            .env_clear()
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .env("TZ", "UTC")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start kubectl")?;
        let mut pipe = child.stdin.take().context("no input of kubectl")?;
        // It may end without having read all of it.
        let _ = pipe.write_all(input.unwrap_or_default());
        drop(pipe);
        child.wait_with_output().context("run kubectl")
    }
}

/// Words of a command line; single quotes keep spaces.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut begun = false;
    for letter in line.chars() {
        match letter {
            '\'' => {
                quoted = !quoted;
                begun = true;
            }
            ' ' if !quoted => {
                if begun {
                    words.push(std::mem::take(&mut word));
                }
                begun = false;
            }
            _ => {
                word.push(letter);
                begun = true;
            }
        }
    }
    if begun {
        words.push(word);
    }
    words
}

/// A real server repairs addresses of services in the background. When it is busy, its own cache lags behind, and it
/// writes an event about a service that needs no repair.
const REPAIR: &str = "ipallocator-repair-controller";
const REPAIR_REASON: &str = "ClusterIPNotAllocated";

/// Without events of such repairs, and without the head of a table that has no other rows.
fn without_repairs(lines: Vec<String>) -> Vec<String> {
    let is_repair = |line: &String| line.contains(REPAIR) || line.contains(REPAIR_REASON);
    if !lines.iter().any(is_repair) {
        return lines;
    }
    let mut kept: Vec<String> = lines.into_iter().filter(|line| !is_repair(line)).collect();
    let head = kept.iter().position(|line| line == "Events:");
    if let Some(head) = head
        && kept.len() == head + 3
    {
        kept.truncate(head);
        kept.push("Events: <none>".to_owned());
    }
    kept
}

/// Lines whose columns do not depend on how long an age is, and ages that are the same in every run.
fn readable(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let lines = text
        .lines()
        .map(|line| {
            let indent = line.len() - line.trim_start().len();
            let words: Vec<&str> = line
                .split_whitespace()
                .map(|word| if is_age(word) { "(age)" } else { word })
                .collect();
            format!("{}{}", " ".repeat(indent), without_date(&words.join(" ")))
        })
        .collect();
    without_repairs(lines)
}

fn is_age(word: &str) -> bool {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    let units = word
        .chars()
        .filter(|letter| "smhdy".contains(*letter))
        .count();
    digits > 0
        && units > 0
        && digits + units == word.len()
        && word.ends_with(|letter: char| "smhdy".contains(letter))
}

/// `describe` writes times as `Mon, 02 Jan 2006 15:04:05 +0000`.
fn without_date(line: &str) -> String {
    const LENGTH: usize = 31;
    let days = [
        "Mon, ", "Tue, ", "Wed, ", "Thu, ", "Fri, ", "Sat, ", "Sun, ",
    ];
    let found = days.iter().find_map(|day| line.find(day));
    match found {
        Some(start)
            if line.is_char_boundary(start + LENGTH) && line[start..].contains(" +0000") =>
        {
            format!("{}(date){}", &line[..start], &line[start + LENGTH..])
        }
        _ => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_words_together() {
        assert_eq!(
            words("get pods  -o 'a b' ''"),
            ["get", "pods", "-o", "a b", ""]
        );
    }

    #[test]
    fn repairs_of_addresses_are_left_out() {
        let repair = "  Warning  ClusterIPNotAllocated  3s  ipallocator-repair-controller  Cluster IP [IPv4]: 10.0.0.1 is not allocated; repairing";
        let table = "Name: svc\nEvents:\n  Type  Reason  Age  From  Message\n  ----  ------  ----  ----  -------\n";
        let seen = readable(format!("{table}{repair}\n").as_bytes());
        assert_eq!(seen, ["Name: svc", "Events: <none>"]);
        let other = "  Normal  Made  3s  somebody  x";
        let seen = readable(format!("{table}{repair}\n{other}\n").as_bytes());
        assert_eq!(seen.last().unwrap(), "  Normal Made (age) somebody x");
        assert_eq!(seen.len(), 5);
    }

    #[test]
    fn ages_and_dates_are_the_same_in_every_run() {
        let seen = readable(
            b"NAME   AGE\na      3m2s\n  Time:  Mon, 16 Nov 2026 01:25:09 +0000\nb2     100m\n",
        );
        assert_eq!(seen, ["NAME AGE", "a (age)", "  Time: (date)", "b2 (age)"]);
    }
}
