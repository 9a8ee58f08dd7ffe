//! Protection end to end: the agent with `--protect=enforce`, a policy that changes while it runs, and what the kernel's
//! files have before, meanwhile and after.

mod place;

use std::cell::RefCell;
use std::io::Write;

use anyhow::{Context, Result, anyhow, ensure};
use plimsoll_test_support::cgroup::{Mode, Mounts};
use plimsoll_test_support::report::Runner;
use serde_json::{Value, json};

use place::{BATCH_TIER, LIMIT_US, Place, program, told};

const MIB: u64 = 1 << 20;
/// What the least share of the policy comes to on a node of two CPUs.
const QUARTER: &str = "50000";
const HALF: &str = "100000";
/// Steps in which nothing may be written.
const STEADY: u64 = 3;

type Case = fn(&mut Place) -> Result<String>;

pub fn cases(runner: &mut Runner<impl Write>, mounts: &Mounts) {
    let place = RefCell::new(None);
    let mut cases: Vec<(&str, Case)> = vec![
        ("protect_gate", gate),
        ("protect_suppress", suppress),
        ("protect_hold", hold),
        ("protect_drift", drift),
        ("protect_undo", undo),
        ("protect_burst", burst),
    ];
    if mounts.mode == Mode::V2 {
        cases.push(("protect_memory", memory));
    }
    cases.extend([
        ("protect_restore", restore as Case),
        ("protect_killed", killed),
        ("protect_check", check),
    ]);
    for (name, case) in cases {
        runner.case(name, || {
            let mut slot = place.borrow_mut();
            let place = match &mut *slot {
                Some(place) => place,
                empty => empty.insert(Place::set(mounts)?),
            };
            let outcome = case(place);
            if outcome.is_err() {
                // The next one begins anew.
                let log = place.log();
                *slot = None;
                return outcome.map_err(|error| anyhow!("{error:#}; agent's log: {log}"));
            }
            outcome
        });
    }
    drop(place);
    runner.case("protect_demo", || demo(mounts));
}

/// Batch work gets so much of the node, whatever else runs there.
fn share(percent: u64, policy: &str) -> Value {
    json!({"resourceUsedThresholdWithBE": {
        "enable": true, "cpuSuppressThresholdPercent": 1, "cpuSuppressMinPercent": percent,
        "cpuSuppressPolicy": policy,
    }})
}

/// Nobody says which pods there are: nothing is written.
fn gate(place: &mut Place) -> Result<String> {
    place.stop()?;
    let quiet = place.server_without_pods(&share(25, "cfsQuota"))?;
    place.start_at(&quiet)?;
    let status = place.wait_status("everything but the pods is known", |status| {
        let waiting = status["gate"]["waiting"].as_array()?;
        let names: Vec<_> = waiting.iter().map(|wait| &wait["for"]).collect();
        (names == ["pods"] && steps(status) >= STEADY).then_some(())
    })?;
    ensure!(status["gate"]["open"] == false, "{status}");
    ensure!(writes(&status) == 0, "{status}");
    let text = place.qos(&["status"])?;
    ensure!(
        text.contains("closed, nothing is changed: not known yet: pods"),
        "{text}"
    );
    place.as_before()?;
    place.stop()?;
    Ok(format!("{} steps", steps(&status)))
}

/// By a quota, then by CPUs, then not at all.
fn suppress(place: &mut Place) -> Result<String> {
    place.running()?;
    place.policy(&share(25, "cfsQuota"));
    place.wait_quota(BATCH_TIER, QUARTER)?;
    let writes = place.steady()?;
    place.policy(&share(0, "cpuset"));
    place.wait("batch has CPUs and no quota", |place| {
        let quota = place.quota(BATCH_TIER)?;
        let cpus = place.cpus(BATCH_TIER)?;
        // It never gets less than two CPUs, and this machine has no more.
        Ok((quota == place.unlimited() && cpus == "0-1").then_some(()))
    })?;
    let status = place.wait_status("who wants it is told", |status| {
        let mut targets = status["targets"].as_array()?.iter();
        let cpus = targets.find(|one| told(&one["file"]).ends_with("besteffort/cpuset.cpus"))?;
        told(&cpus["why"]).contains("be_cpu_suppress").then_some(())
    });
    status?;
    place.policy(&json!({}));
    place.wait_before()?;
    Ok(format!("{writes} writes before it was steady"))
}

/// An operator's own change stays, whatever is planned.
fn hold(place: &mut Place) -> Result<String> {
    place.running()?;
    place.policy(&share(25, "cfsQuota"));
    place.wait_quota(BATCH_TIER, QUARTER)?;
    place.qos(&["hold", BATCH_TIER, "--for", "1h"])?;
    place.set_quota(BATCH_TIER, 70_000)?;
    place.policy(&share(50, "cfsQuota"));
    let status = place.wait_status("more is wanted, and held", |status| {
        let target = target(status, BATCH_TIER, "cpu")?;
        let wanted = &target["wanted"]["quota"]["quota_us"];
        (target["state"] == "held" && wanted.as_u64()? > 70_000).then_some(())
    })?;
    ensure!(
        told(&status["holds"][0]["what"]) == BATCH_TIER,
        "{}",
        status["holds"]
    );
    place.steps(STEADY)?;
    let quota = place.quota(BATCH_TIER)?;
    ensure!(quota == "70000", "{quota} in spite of the hold");
    place.qos(&["release", BATCH_TIER])?;
    place.wait_quota(BATCH_TIER, HALF)?;
    place.policy(&json!({}));
    place.wait_before()?;
    Ok(String::new())
}

/// What somebody else writes is put right once, and told.
fn drift(place: &mut Place) -> Result<String> {
    place.running()?;
    place.policy(&share(25, "cfsQuota"));
    place.wait_quota(BATCH_TIER, QUARTER)?;
    // Who changes it at once, again and again, would be a second agent.
    place.steps(STEADY)?;
    let before = place.status()?;
    place.set_quota(BATCH_TIER, 80_000)?;
    place.wait_quota(BATCH_TIER, QUARTER)?;
    let after = place.wait_status("the repair is counted", |status| {
        let of = |status: &Value| status["counters"]["repaired"].as_u64();
        (of(status)? == of(&before)? + 1).then_some(())
    })?;
    let steps = steps(&after) - steps(&before);
    ensure!(steps <= 25, "put right after {steps} steps");
    place.steady()?;
    let journal = place.journal()?;
    let mut texts = journal.iter().rev().map(|line| told(&line["text"]));
    let line = texts.find(|text| text.contains("80000"));
    let line = line.context("the journal does not tell of it")?;
    place.policy(&json!({}));
    place.wait_before()?;
    Ok(format!("after {steps} steps: {line}"))
}

/// A part is given back, and left alone.
fn undo(place: &mut Place) -> Result<String> {
    place.running()?;
    place.policy(&share(25, "cfsQuota"));
    place.wait_quota(BATCH_TIER, QUARTER)?;
    let done = place.qos(&["undo", "cpuSuppress"])?;
    place.wait_before()?;
    place.steps(STEADY)?;
    place.as_before()?;
    let status = place.status()?;
    let holds = status["holds"].as_array().context("no holds")?;
    ensure!(!holds.is_empty(), "{status}");
    for hold in holds {
        place.qos(&["release", told(&hold["what"])])?;
    }
    place.wait_quota(BATCH_TIER, QUARTER)?;
    place.policy(&json!({}));
    place.wait_before()?;
    Ok(done.trim().to_owned())
}

/// A service that its limit holds back may use more for a while; a burst is never above the quota.
fn burst(place: &mut Place) -> Result<String> {
    place.running()?;
    let refused =
        |place: &Place| Ok::<_, anyhow::Error>(place.status()?["counters"]["refused"].clone());
    let before = refused(place)?;
    place.policy(&json!({"cpuBurstStrategy": {
        "policy": "auto", "cpuBurstPercent": 1000, "cfsQuotaBurstPercent": 300,
        "cfsQuotaBurstPeriodSeconds": -1, "sharePoolThresholdPercent": 100,
    }}));
    let container = &place.service.container;
    let mut most = (0, 0);
    place.wait("the service gets more", |place| {
        let quota = place.quota(container)?.parse::<u64>()?;
        most = (quota, place.burst(container)?);
        Ok((quota > LIMIT_US * 3 / 2 && most.1 >= LIMIT_US).then_some(()))
    })?;
    place.policy(&json!({}));
    place.wait_before()?;
    // The kernel refuses a burst above the quota at any time.
    ensure!(refused(place)? == before, "{}", place.qos(&["journal"])?);
    Ok(format!(
        "a quota of {} us and a burst of {} us",
        most.0, most.1
    ))
}

/// Requests are promised to pods, and what is above is throttled before the limit.
fn memory(place: &mut Place) -> Result<String> {
    place.running()?;
    place.policy(&json!({"resourceQOSStrategy": {"lsClass": {"memoryQOS": {
        "enable": true, "minLimitPercent": 50, "lowLimitPercent": 75, "throttlingPercent": 80,
    }}}}));
    // It asks for 32 MiB and may have 64 MiB.
    let high = (32 * MIB + 32 * MIB * 80 / 100) / 4096 * 4096;
    let container = place.service.container.clone();
    place.wait("memory is promised", |place| {
        let of = |path: &str, file| place.memory(path, file);
        for path in [&container, &place.service.pod, "/kubepods/burstable"] {
            let (min, low) = (of(path, "memory.min")?, of(path, "memory.low")?);
            let wanted = ((16 * MIB).to_string(), (24 * MIB).to_string());
            ensure!(
                (&min, &low) == (&wanted.0, &wanted.1),
                "{path}: {min} {low}"
            );
        }
        let found: u64 = of(&container, "memory.high")?.parse()?;
        ensure!(found.abs_diff(high) <= 4096, "{found} instead of {high}");
        Ok(Some(()))
    })?;
    place.policy(&json!({}));
    place.wait_before()?;
    Ok(format!("throttled at {high}"))
}

/// Everything goes back, and the agent only observes from then on.
fn restore(place: &mut Place) -> Result<String> {
    place.running()?;
    place.policy(&share(25, "cfsQuota"));
    place.wait_quota(BATCH_TIER, QUARTER)?;
    place.qos(&["restore"])?;
    place.wait_before()?;
    let status = place.wait_status("it observes", |status| {
        (status["mode"] == "observe").then_some(())
    })?;
    place.steps(STEADY)?;
    let later = place.status()?;
    ensure!(writes(&status) == writes(&later), "{later}");
    place.as_before()?;
    let journal = place.qos(&["journal"])?;
    ensure!(journal.contains("cpu"), "{journal}");
    place.qos(&["mode", "enforce"])?;
    place.wait_quota(BATCH_TIER, QUARTER)?;
    place.policy(&json!({}));
    place.wait_before()?;
    Ok(format!("{} lines", journal.lines().count()))
}

/// The agent is killed; its journal gives everything back.
fn killed(place: &mut Place) -> Result<String> {
    place.running()?;
    place.policy(&share(25, "cfsQuota"));
    place.wait_quota(BATCH_TIER, QUARTER)?;
    let lines = place.journal()?.len();
    place.kill()?;
    let quota = place.quota(BATCH_TIER)?;
    ensure!(quota == QUARTER, "{quota} after the end of the agent");
    let left = place.journal()?.len();
    ensure!(left >= lines, "{left} lines of {lines}");
    let said = place.qos(&["restore"])?;
    place.as_before()?;
    // Another agent takes over from there.
    place.running()?;
    place.wait_quota(BATCH_TIER, QUARTER)?;
    place.kill()?;
    place.running()?;
    place.policy(&json!({}));
    place.wait_before()?;
    place.stop()?;
    place.as_before()?;
    Ok(said.trim().to_owned())
}

/// On a machine that has pods.
fn check(_: &mut Place) -> Result<String> {
    let text = program(&["check"])?;
    ensure!(text.contains("cgroups"), "{text}");
    let json: Value = serde_json::from_str(&program(&["check", "-o", "json"])?)?;
    let findings = json["findings"].as_array().context("no findings")?;
    Ok(format!("{} findings", findings.len()))
}

/// It leaves nothing behind.
fn demo(mounts: &Mounts) -> Result<String> {
    place::install_shell()?;
    let text = program(&["qos", "demo"])?;
    ensure!(text.contains("values were given back"), "{text}");
    let left: Vec<_> = mounts
        .tree()?
        .into_iter()
        .filter(|path| path.contains("plimsoll-demo"))
        .collect();
    ensure!(left.is_empty(), "left behind: {left:?}");
    let suppressed = text.lines().find(|line| line.contains("cpu"));
    Ok(suppressed.unwrap_or_default().trim().to_owned())
}

fn writes(status: &Value) -> u64 {
    status["counters"]["writes"].as_u64().unwrap_or(u64::MAX)
}

fn steps(status: &Value) -> u64 {
    status["steps"].as_u64().unwrap_or(0)
}

/// What is told of a cgroup's files whose names begin so; of its quota if `cpu`.
fn target<'a>(status: &'a Value, cgroup: &str, controller: &str) -> Option<&'a Value> {
    let mut targets = status["targets"].as_array()?.iter();
    targets.find(|one| {
        let file = told(&one["file"]);
        let quota = file.ends_with("cpu.max") || file.ends_with("cpu.cfs_quota_us");
        file.contains(&format!("{cgroup}/{controller}")) && quota
    })
}
