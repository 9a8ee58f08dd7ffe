//! `plimsoll agent` with a data directory, ended without warning again and again.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

use std::path::Path;
use std::time::Duration;

use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::poll;

const PATIENCE: Duration = Duration::from_secs(60);
/// The journal is written every five seconds; what came after it may be lost.
const TAIL: u64 = 8;

fn start(dir: &Path) -> Agent {
    let data = format!("--data-dir={}", dir.join("data").display());
    // No runtime is asked: what is remembered of the node needs none.
    let arguments = [
        &data,
        "--docker=",
        "--podman=",
        "--containerd=",
        "--cri=",
        "--cpu-budget=0",
    ];
    let program = Path::new(env!("CARGO_BIN_EXE_plimsoll"));
    Agent::start(program, &arguments, None, &dir.join("log")).unwrap()
}

/// How many samples of the node's CPU are remembered.
fn samples(agent: &Agent) -> u64 {
    let page = agent.json("/debug/memory?metric=node_cpu_usage&window=12h");
    let page = page.unwrap();
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
        agent.kill().unwrap();
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
    let page = agent.exposition("/internal-metrics").unwrap();
    assert!(page.sum("koordlet_node_used_cpu_cores", &[]).unwrap() >= 0.0);
    agent.stop().unwrap();
}
