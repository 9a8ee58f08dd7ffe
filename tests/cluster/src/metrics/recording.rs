//! Requests, and what metrics-server 0.9.0 answered to them: `metrics-server/requests.txt` and `recorded.jsonl`.
//!
//! A request is a line: `METHOD PATH`, then ` | ` and headers, of which `token` says who asks. A recorded answer is a
//! line, too. What depends on the moment is masked, what is somebody's prose is left out, and what is long is a digest.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::shown::{self, Shown};
use crate::client::{Request, Server};
use crate::real::{ALICE, READER};

/// How often an answer is asked for whose order is chance, until it comes in the right one.
const TRIES: usize = 500;

#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    request: String,
    #[serde(flatten)]
    answer: Shown,
}

pub fn requests(folder: &Path) -> Result<Vec<String>> {
    let path = folder.join("requests.txt");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let lines = text.lines().map(str::to_owned);
    Ok(lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect())
}

/// Asks, and keeps what tags it was given for those that ask with one.
fn ask(server: &Server, line: &str, etag: &mut String) -> Result<Shown> {
    let mut parts = line.split(" | ");
    let first = parts.next().unwrap_or_default();
    let (method, path) = first
        .split_once(' ')
        .with_context(|| format!("{line:?} is no request"))?;
    let mut headers = Vec::new();
    let mut token = server.admin_token.as_str();
    for part in parts {
        let (name, value) = part.split_once(':').unwrap_or((part, ""));
        match (name, value.trim()) {
            ("token", "none") => token = "",
            ("token", "wrong") => token = "nonsense",
            ("token", "alice") => token = ALICE,
            ("token", "reader") => token = READER,
            ("token", other) => bail!("{line:?}: who is {other}?"),
            (name, value) => headers.push((name.to_owned(), value.replace("$etag", etag))),
        }
    }
    if !token.is_empty() {
        headers.push(("Authorization".to_owned(), format!("Bearer {token}")));
    }
    let request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        headers,
        body: None,
    };
    let exchange = server.send(&request)?;
    let (status, headers) = (exchange.status, exchange.headers.clone());
    if let Some((_, tag)) = headers.iter().find(|(name, _)| name == "etag") {
        etag.clone_from(tag);
    }
    let body = exchange.body()?;
    shown::shown(path, status, &headers, &body).with_context(|| line.to_owned())
}

/// Writes down what the server answers.
pub fn record(server: &Server, folder: &Path) -> Result<usize> {
    let mut etag = String::new();
    let mut text = String::new();
    let requests = requests(folder)?;
    for line in &requests {
        let mut answer = ask(server, line, &mut etag)?;
        let mut tries = 0;
        while !answer.in_order() && tries < TRIES {
            answer = ask(server, line, &mut etag)?;
            tries += 1;
        }
        let recorded = Recorded {
            request: line.clone(),
            answer: answer.shortened(),
        };
        text.push_str(&serde_json::to_string(&recorded)?);
        text.push('\n');
    }
    fs::write(folder.join("recorded.jsonl"), text)?;
    Ok(requests.len())
}

/// Every difference, in words.
pub fn compare(server: &Server, folder: &Path) -> Result<(usize, Vec<String>)> {
    let path = folder.join("recorded.jsonl");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let recorded: Vec<Recorded> = text
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()
        .context("read the recording")?;
    let known: HashMap<&str, &Shown> = recorded
        .iter()
        .map(|one| (one.request.as_str(), &one.answer))
        .collect();
    let open = open(folder)?;
    let mut etag = String::new();
    let mut differences = Vec::new();
    let requests = requests(folder)?;
    for line in &requests {
        let Some(expected) = known.get(line.as_str()) else {
            differences.push(format!("{line}: not recorded"));
            continue;
        };
        let answer = ask(server, line, &mut etag)?.shortened();
        if answer != **expected && !open.contains(line) {
            differences.push(format!("{line}\n  {}", expected.difference(&answer)));
        }
    }
    Ok((requests.len(), differences))
}

/// Requests that are answered differently on purpose, or not as they should be yet.
fn open(folder: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(folder.join("open.txt")).context("read open.txt")?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}
