//! What outlasts crashes, broken files, folders in the way and clocks that are set back.

use std::path::Path;
use std::time::Duration;

use plimsoll_host::Timestamp;

use super::super::Config;
use super::super::metrics as c;
use super::{Rig, START, UID, old_pod};

/// A history that is on disk below `folder`.
fn on_disk(folder: &Path) -> Config {
    let mut config = Config::default();
    config.store.folder = Some(folder.join("metric-data"));
    config.forecast.checkpoints = Some(folder.join("prediction-checkpoints"));
    config
}

#[test]
fn a_crash_costs_the_last_seconds_at_most() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(on_disk(folder.path()));
    let workloads = old_pod(&rig);
    rig.workloads = workloads.clone();
    rig.run(130);
    let before = rig.forecast(&workloads);
    let counted = |rig: &Rig| {
        let series = c::POD_CPU_USAGE.of(&[UID]);
        let summary = rig
            .history
            .summary(&series, Duration::from_hours(1), rig.now());
        summary.map_or(0, |summary| summary.count)
    };
    let noted = counted(&rig);
    // Neither closed nor stopped: what is in memory only is gone.
    drop(rig);
    let dir = tempfile::tempdir().unwrap();
    let again = Rig::on(dir, on_disk(folder.path()), START + 130);
    assert!(
        counted(&again) + 6 >= noted,
        "{} of {noted}",
        counted(&again)
    );
    let models = again.history.models();
    assert!(models >= 8, "{models} models");
    // What was foreseen is foreseen again, before anything was learnt anew: a restart takes nothing back.
    assert!(before.amount.cpu > 0.5, "{before:?}");
    let at_once = again.forecast(&workloads);
    assert!(
        (at_once.amount.cpu - before.amount.cpu).abs() < 0.1,
        "{before:?} {at_once:?}"
    );
    let mut again = again;
    again.workloads = workloads.clone();
    again.run(62);
    let after = again.forecast(&workloads);
    assert!(
        (after.peak.cpu - before.peak.cpu).abs() < 0.3,
        "{before:?} {after:?}"
    );
}

#[test]
fn what_is_broken_on_disk_does_not_stop_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut rig = Rig::new(on_disk(folder.path()));
    rig.run(700);
    drop(rig);
    let mut spoiled = 0;
    for below in ["metric-data", "prediction-checkpoints"] {
        for entry in std::fs::read_dir(folder.path().join(below)).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            if bytes.len() > 2 {
                let half = &bytes[..bytes.len() / 2];
                std::fs::write(&path, half).unwrap();
                spoiled += 1;
            }
        }
    }
    assert!(spoiled >= 5, "{spoiled} files");
    let dir = tempfile::tempdir().unwrap();
    let mut again = Rig::on(dir, on_disk(folder.path()), START + 700);
    again.run(70);
    again.check(c::POD_CPU_USAGE, &[UID], 1.5);
    assert!(again.history.models() >= 8);
}

#[test]
fn a_process_on_its_way_out_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let config = on_disk(folder.path());
    let (store, _) = plimsoll_tsdb::Tsdb::open(config.store.clone(), 0).unwrap();
    // However long it takes, within reason: it is gone before or while the next one looks.
    let leaving = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(store);
    });
    let rig = Rig::new(config);
    leaving.join().unwrap();
    assert!(rig.history.config().store.folder.is_some());
}

#[test]
fn a_folder_that_cannot_be_used_costs_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "in the way").unwrap();
    let mut rig = Rig::new(on_disk(&file));
    rig.run(10);
    rig.check(c::POD_CPU_USAGE, &[UID], 1.5);
}

#[test]
fn a_clock_that_is_set_back_is_counted_and_lived_with() {
    let mut rig = Rig::new(Config::default());
    rig.run(30);
    let back = START - 3600;
    let millis = |rig: &mut Rig, n: i64| {
        rig.second();
        // The machine's clock goes on from an hour ago, the monotonic one as before.
        let workloads = rig.workloads.clone();
        rig.recorder.step(
            rig.clock.monotonic(),
            Timestamp::from_secs(back + n),
            &workloads,
        );
    };
    for n in 0..20 {
        millis(&mut rig, n);
    }
    let jumps = &rig.history.counters().clock_jumps;
    assert!(jumps.load(std::sync::atomic::Ordering::Relaxed) >= 1);
}
