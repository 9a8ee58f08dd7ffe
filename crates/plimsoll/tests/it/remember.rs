//! `plimsoll agent` with a data directory, ended without warning again and again.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use plimsoll_test_support::exposition::Exposition;
use plimsoll_test_support::{http, log, poll};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running agent, killed when dropped.
struct Agent {
    child: Child,
    address: SocketAddr,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Agent {
    fn page(&self, path: &str) -> Exposition {
        let page = http::get_ok(self.address, path).unwrap();
        Exposition::parse(page.text().unwrap()).unwrap()
    }
}

fn start(dir: &Path, flags: &[&str]) -> Agent {
    let log = dir.join("log");
    let output = File::create(&log).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["agent", "--listen", "127.0.0.1:0", "--cpu-budget=0"])
        // No runtime is asked: what is remembered of the node needs none.
        .args(["--docker=", "--podman=", "--containerd=", "--cri="])
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(flags)
        .env_remove("PLIMSOLL_LOG")
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .spawn()
        .unwrap();
    let address = poll::until("the agent is ready", PATIENCE, || {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(Err(status)));
        }
        let Some(address) = address_in(&std::fs::read_to_string(&log)?) else {
            return Ok(None);
        };
        let ready = http::get(address, "/readyz")?.status == 200;
        Ok(ready.then_some(Ok(address)))
    });
    let address = match address {
        Ok(Ok(address)) => Ok(address),
        Ok(Err(status)) => Err(format!("the agent ended with {status}")),
        Err(error) => Err(format!("{error:#}")),
    };
    let address = address.unwrap_or_else(|error| panic!("{error}:\n{}", log::tail(&log, 15)));
    Agent { child, address }
}

/// Where it serves, as its log says.
fn address_in(log: &str) -> Option<SocketAddr> {
    let line = log.lines().find(|line| line.contains("serving"))?;
    let (_, address) = line.split_once("address=")?;
    address.split_whitespace().next()?.parse().ok()
}

/// How many samples of the node's CPU are remembered.
fn samples(agent: &Agent) -> u64 {
    let path = "/debug/history?metric=node_cpu_usage&window=12h";
    let page = http::get_ok(agent.address, path).unwrap();
    let page = page.json().unwrap();
    page["node_cpu_usage"]["count"].as_u64().unwrap_or(0)
}

fn wait_for(agent: &Agent, wanted: u64) -> u64 {
    let more = poll::until("more samples are remembered", PATIENCE, || {
        let found = samples(agent);
        Ok((found >= wanted).then_some(found))
    });
    more.unwrap()
}

/// The store's files, with how long they are and when they were last written to.
fn files(dir: &Path) -> Vec<(PathBuf, u64, SystemTime)> {
    let Ok(entries) = std::fs::read_dir(dir.join("data/metric-data")) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries
        // One that has just gone is as good as none.
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let facts = entry.metadata().ok()?;
            Some((entry.path(), facts.len(), facts.modified().ok()?))
        })
        .collect();
    files.sort();
    files
}

/// Waits until as many samples as there are now are on disk, and says how many those are.
fn saved(agent: &Agent, dir: &Path) -> u64 {
    let count = samples(agent);
    // Whatever is written from here on has all of those: one thread takes samples and writes, by turns.
    let before = files(dir);
    let written = poll::until("the journal is written", PATIENCE, || {
        Ok((files(dir) != before).then_some(()))
    });
    written.unwrap();
    // The next sample comes after all of it was written.
    wait_for(agent, samples(agent) + 1);
    count
}

#[test]
fn kills_cost_the_last_seconds_and_broken_files_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let mut noted = 0;
    for _ in 0..3 {
        let agent = start(dir.path(), &[]);
        // At once: this is what the last process left.
        let begin = samples(&agent);
        assert!(begin >= noted, "{begin} samples of {noted} are left");
        wait_for(&agent, begin + 2);
        noted = saved(&agent, dir.path());
        drop(agent);
    }

    // Half of every file is gone: what is whole counts, and the rest begins anew.
    for folder in ["metric-data", "prediction-checkpoints"] {
        let entries = std::fs::read_dir(dir.path().join("data").join(folder)).unwrap();
        for path in entries.map(|entry| entry.unwrap().path()) {
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
    }
    let agent = start(dir.path(), &[]);
    let begin = samples(&agent);
    wait_for(&agent, begin + 3);
    let page = agent.page("/internal-metrics");
    assert!(page.sum("koordlet_node_used_cpu_cores", &[]).unwrap() >= 0.0);
}

/// What the checkpoint of the node's model says: how much it has learnt, and until when. `None`: there is none yet.
fn learnt(dir: &Path) -> Option<(f64, String)> {
    let path = dir.join("data/prediction-checkpoints/__node__");
    let text = std::fs::read_to_string(path).ok()?;
    // Never half of one, whenever it is looked at.
    let page: serde_json::Value = serde_json::from_str(&text).unwrap();
    let weight = page["CPU"]["totalWeight"].as_f64().unwrap();
    Some((weight, page["LastUpdated"].as_str().unwrap().to_owned()))
}

#[test]
fn forecasts_go_on_from_their_last_checkpoint() {
    let dir = tempfile::tempdir().unwrap();
    // Everything that usually takes minutes.
    let flags = [
        "--prediction-training-interval=1s",
        "--prediction-model-checkpoint-interval=1s",
    ];
    let mut before: Option<(f64, String)> = None;
    for round in 0..6 {
        let agent = start(dir.path(), &flags);
        let models = || {
            let page = agent.page("/metrics/self");
            page.sum("plimsoll_history_models", &[]).unwrap()
        };
        if before.is_some() {
            assert!(
                models() >= 1.0,
                "models are there before anything is learnt"
            );
        }
        let found = poll::until("the model learns and is saved", PATIENCE, || {
            let found = learnt(dir.path());
            let last = before.as_ref().map(|(_, until)| until);
            Ok(found.filter(|(_, until)| Some(until) != last))
        });
        let found = found.unwrap();
        // One that had begun anew would have learnt less than what was saved.
        if let Some((weight, _)) = &before {
            assert!(found.0 > *weight, "{found:?} after {before:?}");
        }
        // At moments that have nothing to do with what it is just doing.
        std::thread::sleep(Duration::from_millis(130 * round));
        drop(agent);
        // What was saved last counts, be it later than what was seen.
        before = learnt(dir.path());
    }
    assert!(before.is_some_and(|(weight, _)| weight > 1.0));
}
