//! Cycles and instructions, by counters that stand in for the kernel's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use plimsoll_host::perf::Reading;
use plimsoll_observe::collect::cpi::Counts;

use super::super::collect::SampleBatch;
use super::super::cpi::CpiRecorder;
use super::super::{Config, Cpi, metrics as c};
use super::{ID, Rig, SANDBOX, UID, workloads};

const CONFIG: Cpi = Cpi {
    every: Duration::from_secs(60),
    window: Duration::from_secs(10),
};

/// Two CPUs that do so much a look: 300 cycles and 200 instructions.
#[derive(Debug)]
struct StandIn(Arc<AtomicU64>);

impl Counts for StandIn {
    fn read(&self, readings: &mut Vec<Reading>) -> bool {
        let looks = self.0.fetch_add(1, Ordering::Relaxed);
        readings.clear();
        for (event, cpu, each) in [(0, 0, 100), (1, 0, 150), (0, 1, 200), (1, 1, 50)] {
            readings.push(Reading {
                event,
                cpu,
                value: looks * each,
                scaling_ratio: 1.0,
            });
        }
        true
    }
}

#[test]
fn containers_are_counted_for_a_while_now_and_then() {
    let mut rig = Rig::new(Config::default());
    rig.workloads = workloads(rig.now());
    rig.run(3);
    let mut collector = CpiRecorder::new(CONFIG);
    let mut batch = SampleBatch::default();
    let (looks, mut opened) = (Arc::new(AtomicU64::new(0)), Vec::new());
    for second in 0..75 {
        let now = Duration::from_secs(second);
        collector.finish_windows(now, &mut batch, &rig.history);
        let cgroups = rig.recorder.cgroups();
        collector.start_windows(now, &rig.history, cgroups, |path| {
            opened.push((second, path.to_string()));
            Some(Box::new(StandIn(Arc::clone(&looks))))
        });
        batch.append(&rig.history, rig.clock.now());
        rig.clock.step(Duration::from_secs(1));
    }
    // Once a minute, and the sandbox never.
    let container = format!("/{}/{ID}", super::POD);
    assert_eq!(opened, [(0, container.clone()), (60, container)]);
    assert!(opened.iter().all(|(_, path)| !path.contains(SANDBOX)));
    // When its window began and when it was over.
    assert_eq!(looks.load(Ordering::Relaxed), 4);
    rig.check(c::CONTAINER_CPI, &[UID, ID, "cycle"], 300.0);
    rig.check(c::CONTAINER_CPI, &[UID, ID, "instruction"], 200.0);
    {
        let latest = rig.history.latest().lock();
        let [gauge] = &latest.cpi[..] else {
            panic!("{:?}", latest.cpi);
        };
        assert_eq!((gauge.cycles, gauge.instructions), (300, 200));
    }
    // Who has gone is not shown any more.
    let now = Duration::from_secs(120);
    collector.start_windows(now, &rig.history, std::iter::empty(), |_| None);
    assert!(rig.history.latest().lock().cpi.is_empty());
}

#[test]
fn a_kernel_that_does_not_count_costs_nothing_but_that() {
    let mut config = Config::default();
    config.collect.cpi = Some(CONFIG);
    let mut rig = Rig::new(config);
    rig.run(15);
    // The fixture's directories are no cgroups: the kernel refuses them.
    assert_eq!(rig.average(c::CONTAINER_CPI, &[UID, ID, "cycle"]), None);
    rig.check(c::POD_CPU_USAGE, &[UID], 1.5);
}
