//! What a container costs does not depend on how many there are: system calls, counted by `strace`.
//!
//! Each size has an agent of its own, in a mount namespace where the table grows with the containers, as on nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::{poll, proc};
use rustix::process::Signal;

use crate::scene::{NAMED, READY, Scene};

const SIZES: [usize; 3] = [50, 100, 200];
/// As a kubelet has them: its own directory's, and the one that the runtime keeps for shared memory.
const MOUNTS_EACH: usize = 2;
/// Long beside the intervals at which limits are read, and file systems are asked.
const COUNTED: Duration = Duration::from_secs(30);
/// Containers that are new are read more often.
const SETTLED: u64 = 8;
/// One more container among many may cost so much more than among few.
const MOST: f64 = 1.1;

pub fn is_flat(scene: &Scene) -> Result<String> {
    let mut subjects = SIZES
        .iter()
        .map(|size| Subject::start(scene, *size))
        .collect::<Result<Vec<_>>>()?;
    for subject in &subjects {
        subject.wait_settled()?;
    }
    for subject in &mut subjects {
        subject.count()?;
    }
    // Nothing is waited for: this is how long is counted.
    std::thread::sleep(COUNTED);
    let mut counted = Vec::new();
    for subject in subjects {
        counted.push(subject.end()?);
    }
    let [few, some, many] = counted[..] else {
        unreachable!("there are three sizes")
    };
    // By reading: how many of them fall into the time hangs on chance.
    let more = |from: Counted, to: Counted| (to.calls - from.calls) / (to.readings - from.readings);
    // What is not of any container (other tests make cgroups, too) disturbs the difference of two small numbers. So the
    // larger half is compared with the whole: work that grows with the square makes it 1.2 times as much.
    let (first, second) = (more(few, many), more(some, many));
    let note = format!("{first:.3} and {second:.3} calls for each reading more, of {counted:?}");
    let all_read = few.readings < some.readings && some.readings < many.readings;
    ensure!(
        all_read && first > 0.0 && second > 0.0 && second <= first * MOST,
        "a container more between {SIZES:?} costs {note}"
    );
    Ok(note)
}

/// During the same time.
#[derive(Debug, Clone, Copy)]
struct Counted {
    calls: f64,
    /// Of one cgroup.
    readings: f64,
}

struct Subject {
    size: usize,
    agent: Agent,
    /// Where the counts go.
    counts: PathBuf,
    counter: Option<Child>,
    /// How many there were when counting began.
    readings: f64,
    _groups: Vec<Group>,
}

impl Subject {
    fn start(scene: &Scene, size: usize) -> Result<Self> {
        let mounts = Mounts::detect()?;
        let top = format!("{}/growth-{size}", scene.cgroup);
        let mut groups = Vec::new();
        for index in 0..size {
            let uid = format!("{index:08x}-0000-4000-8000-{size:012x}");
            let pod = format!("{top}/kubepods/burstable/pod{uid}");
            groups.push(Group::create(&mounts, &format!("{pod}/{index:064x}"))?);
        }
        let program = in_a_namespace(scene, size * MOUNTS_EACH)?;
        let log = scene.path(&format!("growth-{size}.log"));
        let nowhere = scene.path("nowhere.sock");
        let arguments = [
            "--cpu-budget=0".to_owned(),
            // Everything is read at one interval, so that all of it can be counted by one of its readings.
            "--housekeeping_interval=1s".to_owned(),
            "--global_housekeeping_interval=1h".to_owned(),
            // Each looks at its own only.
            format!("--raw_cgroup_prefix_whitelist={top}/"),
            format!("--docker=unix://{}", nowhere.display()),
            format!("--podman=unix://{}", nowhere.display()),
            format!("--containerd={}", nowhere.display()),
        ];
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        Ok(Self {
            size,
            agent: Agent::start(&program, &arguments, None, &log)?,
            counts: scene.path(&format!("growth-{size}.calls")),
            counter: None,
            readings: 0.0,
            _groups: groups,
        })
    }

    /// Until every container was noted for some seconds.
    fn wait_settled(&self) -> Result<()> {
        poll::until("all containers are noted", READY, || {
            let path = "/debug/history?metric=container_cpu_usage&window=60s";
            let noted = self.agent.json(path)?;
            let noted = noted.as_object().context("no object")?;
            let settled = noted
                .values()
                .filter(|series| series["count"].as_u64() >= Some(SETTLED));
            let settled = settled.count();
            ensure!(settled == self.size, "{settled} of {}", self.size);
            Ok(Some(()))
        })
    }

    fn count(&mut self) -> Result<()> {
        let counter = Command::new("strace")
            .args(["-f", "-c", "-o"])
            .arg(&self.counts)
            .args(["-p", &self.agent.pid().to_string()])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start strace")?;
        let counter = self.counter.insert(counter);
        let status = format!("/proc/{}/status", self.agent.pid());
        let tracer = format!("TracerPid:\t{}\n", counter.id());
        poll::until("strace counts", NAMED, || {
            Ok(fs::read_to_string(&status)?.contains(&tracer).then_some(()))
        })?;
        self.readings = self.read_so_far()?;
        Ok(())
    }

    fn read_so_far(&self) -> Result<f64> {
        let own = self.agent.exposition("/metrics/self")?;
        own.value("plimsoll_samples_total", &[])
    }

    fn end(mut self) -> Result<Counted> {
        let readings = self.read_so_far()? - self.readings;
        let mut counter = self.counter.take().context("nothing was counted")?;
        proc::signal(counter.id(), Signal::INT);
        poll::until("strace ends", NAMED, || Ok(counter.try_wait()?))?;
        let table = fs::read_to_string(&self.counts)?;
        self.agent.stop()?;
        let calls = total(&table).with_context(|| format!("no total in {table}"))?;
        Ok(Counted {
            calls: calls as f64,
            readings,
        })
    }
}

/// Of `% time, seconds, usecs/call, calls, errors, syscall`: the last line has the sums.
fn total(table: &str) -> Option<u64> {
    let line = table.lines().rev().find(|line| line.ends_with("total"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// A program that is the agent where so many more file systems are mounted.
fn in_a_namespace(scene: &Scene, mounts: usize) -> Result<PathBuf> {
    let script = "i=0; while [ $i -lt \"$MOUNTS\" ]; do \
        mkdir -p \"$PLACE/$i\" && mount -t tmpfs -o size=4k shm \"$PLACE/$i\" || exit 1; i=$((i+1)); done; \
        exec \"$PROGRAM\" \"$@\"";
    let place = scene.path(&format!("mounts-{mounts}"));
    let quoted = |path: &Path| format!("'{}'", path.display());
    let text = format!(
        "#!/bin/sh\nexport MOUNTS={mounts} PLACE={} PROGRAM={}\nexec unshare --mount sh -c '{script}' sh \"$@\"\n",
        quoted(&place),
        quoted(scene.program()),
    );
    let file = scene.write(&format!("growth-{mounts}.sh"), text)?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&file, mode)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_a_table() {
        let table = "% time     seconds  usecs/call     calls    errors syscall\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
             60.00    0.000010           1      1200         3 pread64\n\
            ------ ----------- ----------- --------- --------- ----------------\n\
            100.00    0.000016           0      1309        14 total\n";
        assert_eq!(total(table), Some(1309));
        assert_eq!(total(""), None);
    }
}
