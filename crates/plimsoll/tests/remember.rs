//! `plimsoll agent` with a data directory, ended without warning again and again.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plimsoll_test_support::agent::free_address;
use plimsoll_test_support::exposition::Exposition;
use plimsoll_test_support::{http, poll};

const PATIENCE: Duration = Duration::from_secs(60);
/// The journal is written every five seconds; what came after it may be lost.
const TAIL: u64 = 8;

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

fn start(dir: &Path) -> Agent {
    start_with(dir, &[])
}

fn start_with(dir: &Path, flags: &[&str]) -> Agent {
    let address = free_address().unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(["agent", "--listen", &address.to_string(), "--cpu-budget=0"])
        // No runtime is asked: what is remembered of the node needs none.
        .args(["--docker=", "--podman=", "--containerd=", "--cri="])
        .arg("--data-dir")
        .arg(dir.join("data"))
        .args(flags)
        .env_remove("PLIMSOLL_LOG")
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let agent = Agent { child, address };
    let ready = poll::until("the agent is ready", PATIENCE, || {
        Ok((http::get(address, "/readyz")?.status == 200).then_some(()))
    });
    ready.unwrap();
    agent
}

/// How many samples of the node's CPU are remembered.
fn samples(agent: &Agent) -> u64 {
    let path = "/debug/memory?metric=node_cpu_usage&window=12h";
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

#[test]
fn kills_cost_the_last_seconds_and_broken_files_themselves() {
    let dir = tempfile::tempdir().unwrap();
    let mut noted = 0;
    for _ in 0..4 {
        let agent = start(dir.path());
        // At once: this is what the last process left.
        let begin = samples(&agent);
        assert!(begin + TAIL >= noted, "{begin} samples of {noted} are left");
        noted = wait_for(&agent, begin + 7);
        drop(agent);
    }
    assert!(noted > 10, "{noted} samples");

    // Half of every file is gone: what is whole counts, and the rest begins anew.
    for folder in ["metric-data", "prediction-checkpoints"] {
        let entries = std::fs::read_dir(dir.path().join("data").join(folder)).unwrap();
        for path in entries.map(|entry| entry.unwrap().path()) {
            let bytes = std::fs::read(&path).unwrap();
            std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
        }
    }
    let agent = start(dir.path());
    let begin = samples(&agent);
    wait_for(&agent, begin + 3);
    let page = http::get_ok(agent.address, "/internal-metrics").unwrap();
    let page = Exposition::parse(page.text().unwrap()).unwrap();
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
        let agent = start_with(dir.path(), &flags);
        let models = || {
            let page = http::get_ok(agent.address, "/metrics/self").unwrap();
            let page = Exposition::parse(page.text().unwrap()).unwrap();
            page.sum("plimsoll_memory_models", &[]).unwrap()
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
