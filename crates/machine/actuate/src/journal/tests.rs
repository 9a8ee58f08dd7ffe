//! What survives: crashes at any point, and programs of other versions.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use plimsoll_plan::{Asker, Knob, Plan, Reason, Value};
use proptest::prelude::*;

use super::record::{encode, frame, frames};
use super::*;
use crate::sim::Sim;
use crate::turn::tests::{Rig, at, cpus, quota};
use crate::{Actuator, Config, Filter, Form, Mode, Now, read_journal};

const FILE: &str = "protection.journal";
const TREE: [&str; 7] = ["/0", "/0/0", "/0/1", "/0/0/0", "/0/0/1", "/0/1/0", "/0/1/1"];

fn open(sim: &Arc<Sim>, dir: &Path) -> (Actuator, crate::Recovered) {
    let mut config = Config::new(sim.machine());
    config.mode = Mode::Enforce;
    config.slow_thread = false;
    config.journal = Some(dir.to_owned());
    Actuator::with_files(config, sim.clone()).unwrap()
}

fn now(second: u64) -> Now {
    Now {
        monotonic: std::time::Duration::from_secs(second),
        wall: plimsoll_host::Timestamp(i64::try_from(second * 1_000_000_000).unwrap()),
    }
}

fn plan(effects: &[(&str, Knob, Value)]) -> Plan {
    let mut plan = Plan::empty(Asker::CpuSuppress);
    for (path, knob, value) in effects {
        plan.want(at(path, *knob), value.clone(), Reason::new("test"));
    }
    plan
}

/// Some plans in a row, each of which changes something.
fn story() -> Vec<Plan> {
    vec![
        plan(&[
            ("/a", Knob::Cpuset, cpus("0-1")),
            ("/a/b", Knob::Cpuset, cpus("0")),
        ]),
        plan(&[
            ("/a", Knob::Cpuset, cpus("2-3")),
            ("/a/b", Knob::Cpuset, cpus("3")),
            ("/a", Knob::CpuQuota, quota(50_000)),
        ]),
        plan(&[("/a", Knob::CpuQuota, quota(20_000))]),
    ]
}

fn base_of(sim: &Sim) -> BTreeMap<PathBuf, String> {
    sim.set("/a/cpuset.cpus", "0-7");
    sim.set("/a/b/cpuset.cpus", "0-3");
    sim.set("/a/cpu.cfs_quota_us", "70000");
    sim.set("/a/cpu.max", "70000 100000");
    sim.files()
}

/// The process is killed before each of its writes in turn; then everything is given back.
#[test]
fn killed_before_any_write_all_can_be_given_back() {
    for form in [Form::V1, Form::V2] {
        for writes in 0..40 {
            let dir = tempfile::tempdir().unwrap();
            let sim = Sim::new(form, &["/a", "/a/b"]);
            let base = base_of(&sim);
            sim.die_after(Some(writes), None);
            let died = catch_unwind(AssertUnwindSafe(|| {
                let (mut actuator, _) = open(&sim, dir.path());
                for (second, plan) in (1..).zip(story()) {
                    actuator.submit(plan);
                    actuator.turn(now(second), &());
                }
            }));
            sim.die_after(None, None);
            let (mut actuator, _) = open(&sim, dir.path());
            let applied = actuator.restore(&Filter::All, now(100), &());
            assert_eq!(applied.refused, 0, "{writes}");
            assert_eq!(sim.files(), base, "killed after {writes} writes");
            if died.is_ok() {
                assert!(writes > 5);
                break;
            }
            assert!(writes < 39);
        }
    }
}

/// The journal ends after each of its bytes in turn, with as many of the writes done as can have been done by then.
#[test]
fn cut_off_after_any_byte_all_can_be_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let sim = Sim::new(Form::V1, &["/a", "/a/b"]);
    let base = base_of(&sim);
    sim.die_after(None, Some(dir.path()));
    let (mut actuator, _) = open(&sim, dir.path());
    for (second, plan) in (1..).zip(story()) {
        actuator.submit(plan);
        actuator.turn(now(second), &());
    }
    drop(actuator);
    let written = sim.log();
    sim.die_after(None, None);
    let journal = std::fs::read(dir.path().join(FILE)).unwrap();
    assert!(written.len() > 5 && journal.len() > 2000);
    // Opening for each byte takes long on a slow disk; between ends of records the outcome is that of the last one.
    let mut ends = vec![0];
    let mut rest = journal.as_slice();
    while let Some(payload) = frames(rest).0.first() {
        let length = payload.len() + 8;
        ends.push(ends[ends.len() - 1] + length);
        rest = &rest[length..];
    }
    for byte in 0..=journal.len() {
        let (_, whole) = frames(&journal[..byte]);
        assert!(ends.contains(&whole) && whole <= byte);
    }
    for (index, end) in ends.iter().enumerate() {
        for byte in [*end, end + 1, end + 9] {
            let next = ends.get(index + 1).copied().unwrap_or(journal.len());
            if byte >= next && byte != *end {
                continue;
            }
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join(FILE), &journal[..byte]).unwrap();
            sim.set_files(&base);
            let by_then = written
                .iter()
                .filter(|written| written.journal <= byte as u64);
            let mut files = base.clone();
            for written in by_then {
                files.insert(PathBuf::from(&written.file), written.text.clone());
            }
            sim.set_files(&files);
            let (mut actuator, recovered) = open(&sim, dir.path());
            assert_eq!(recovered.cut_off, byte != *end);
            actuator.restore(&Filter::All, now(100), &());
            assert_eq!(sim.files(), base, "cut off after {byte} bytes");
        }
    }
}

#[test]
fn a_first_write_waits_for_the_disk() {
    let mut rig = Rig::with_journal(Form::V2, &["/a"]);
    rig.actuator.journal.fail = true;
    rig.plan(Asker::CpuBurst, &[("/a", Knob::CpuQuota, quota(5000))]);
    let applied = rig.turn();
    assert_eq!((applied.writes, applied.refused), (0, 1));
    let status = rig.actuator.status(&());
    assert!(status.journal_error.unwrap().contains("journal"));
    rig.turns(20);
    assert!(rig.sim.log().is_empty());
    rig.actuator.journal.fail = false;
    rig.turns(70);
    assert_eq!(rig.sim.get("/a/cpu.max"), "5000 100000");
}

#[test]
fn values_of_an_earlier_boot_are_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let target = at("/a", Knob::CpuQuota);
    let (mut journal, _) = Journal::open(Some(dir.path()), "one".to_owned()).unwrap();
    journal.base(Base {
        at: 1,
        target,
        owner: 7,
        found: quota(5000),
        asker: "cpu-burst".to_owned(),
    });
    assert!(journal.flush());
    drop(journal);
    let (journal, replayed) = Journal::open(Some(dir.path()), "one".to_owned()).unwrap();
    assert_eq!((replayed.touched.len(), replayed.earlier_boot), (1, 0));
    drop(journal);
    let (journal, replayed) = Journal::open(Some(dir.path()), "two".to_owned()).unwrap();
    assert_eq!((replayed.touched.len(), replayed.earlier_boot), (0, 1));
    drop(journal);
    let (_, replayed) = Journal::open(Some(dir.path()), "two".to_owned()).unwrap();
    assert_eq!((replayed.touched.len(), replayed.earlier_boot), (0, 0));
}

/// A newer program wrote records and fields that this one does not know. This one reads what it knows, writes the file
/// anew, and the newer one finds everything that it had.
#[test]
fn a_newer_program_finds_its_records_again() {
    let dir = tempfile::tempdir().unwrap();
    let known = Record::Base(Base {
        at: 1,
        target: at("/a", Knob::CpuQuota),
        owner: 7,
        found: quota(5000),
        asker: "asker-of-tomorrow".to_owned(),
    });
    let mut known: serde_json::Value = serde_json::from_slice(&encode(&known)).unwrap();
    known["newField"] = serde_json::json!({"deep": [1, 2]});
    let texts = [
        r#"{"kind":"boot","boot":"one","newField":1}"#.to_owned(),
        known.to_string(),
        r#"{"kind":"freezerLease","until":5}"#.to_owned(),
        r#"{"kind":"base","at":1,"target":{"tc":{"dev":"eth0"}},"owner":1,"found":{"rate":1},"asker":"x"}"#.to_owned(),
        r#"{"kind":"line","seq":9,"at":1,"outcome":"teleported","text":"?"}"#.to_owned(),
    ];
    let content: Vec<u8> = texts
        .iter()
        .flat_map(|text| frame(text.as_bytes()))
        .collect();
    std::fs::write(dir.path().join(FILE), content).unwrap();
    // Twice: what is kept once must be kept again.
    for _ in 0..2 {
        let (mut journal, replayed) = Journal::open(Some(dir.path()), "one".to_owned()).unwrap();
        assert_eq!(replayed.unknown, 3);
        let touched = &replayed.touched[&at("/a", Knob::CpuQuota)];
        assert_eq!(touched.asker, "asker-of-tomorrow");
        assert_eq!(touched.found, quota(5000));
        journal.line(Actuator::line(now(1), Outcome::Noted, "hello".to_owned()));
        assert!(journal.flush());
    }
    let content = std::fs::read(dir.path().join(FILE)).unwrap();
    let found: Vec<_> = frames(&content)
        .0
        .into_iter()
        .map(|payload| String::from_utf8(payload.to_vec()).unwrap())
        .collect();
    for text in &texts[1..] {
        assert!(found.contains(text), "{text} is lost: {found:?}");
    }
}

#[test]
fn the_file_stays_small_and_nothing_that_matters_is_lost() {
    let mut rig = Rig::with_journal(Form::V2, &["/a", "/b"]);
    rig.sim.set("/b/cpu.max", "66000 100000");
    for second in 0..4000u64 {
        let effects = [
            ("/a", Knob::CpuQuota, quota(10_000 + second)),
            ("/b", Knob::CpuQuota, quota(5000)),
        ];
        rig.plan(Asker::CpuSuppress, &effects);
        rig.turn();
    }
    let len = rig.journal_len();
    assert!(len < 2 * COMPACT_AT, "{len}");
    let mut rig = rig.restart();
    assert_eq!(rig.restore().restored, 2);
    assert_eq!(rig.sim.get("/a/cpu.max"), "max 100000");
    assert_eq!(rig.sim.get("/b/cpu.max"), "66000 100000");
}

#[test]
fn two_programs_do_not_keep_one_journal() {
    let dir = tempfile::tempdir().unwrap();
    let first = Journal::open(Some(dir.path()), String::new()).unwrap();
    let second = Journal::open(Some(dir.path()), String::new());
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    drop(first);
    Journal::open(Some(dir.path()), String::new()).unwrap();
}

#[test]
fn the_story_can_be_read_without_the_agent() {
    let dir = tempfile::tempdir().unwrap();
    assert!(read_journal(dir.path(), 0, 100).unwrap().is_empty());
    let sim = Sim::new(Form::V1, &["/a", "/a/b"]);
    let (mut actuator, _) = open(&sim, dir.path());
    let mut plans = story().into_iter();
    actuator.submit(plans.next().unwrap());
    actuator.turn(now(1), &());
    let texts: Vec<_> = read_journal(dir.path(), 0, 100)
        .unwrap()
        .into_iter()
        .map(|line| line.text)
        .collect();
    assert_eq!(
        texts,
        [
            "cpu-suppress set /cg/cpuset/a/b/cpuset.cpus to CPUs 0 (it was CPUs 0-7), because of test",
            "cpu-suppress set /cg/cpuset/a/cpuset.cpus to CPUs 0-1 (it was CPUs 0-7), because of test",
        ]
    );
    let lines = actuator.journal(0, 100);
    assert_eq!(read_journal(dir.path(), 0, 100).unwrap(), lines);
    assert_eq!(read_journal(dir.path(), 0, 1).unwrap(), lines[1..]);
    assert_eq!(
        read_journal(dir.path(), lines[0].seq, 9).unwrap(),
        lines[1..]
    );
}

/// Values of a whole tree in which no child exceeds its parent.
fn a_tree() -> impl Strategy<Value = Vec<(u32, u64, u64, u64)>> {
    prop::collection::vec((0u32..256, 1u64..9, 0u64..5, 0u64..9), TREE.len()).prop_map(
        |mut tree| {
            tree[0].0 |= 1;
            for child in 1..tree.len() {
                let parent = tree[(child - 1) / 2];
                let (cpus, quota, min, _) = &mut tree[child];
                *cpus &= parent.0;
                if *cpus == 0 {
                    *cpus = 1 << parent.0.trailing_zeros();
                }
                *quota = (*quota).min(parent.1);
                *min = (*min).min(parent.2);
            }
            tree
        },
    )
}

type Values = [(Knob, Value); 4];

fn values(form: Form, (mask, quota_ms, min, burst): (u32, u64, u64, u64)) -> Values {
    let cpus: plimsoll_api::cpus::CpuSet = (0..8).filter(|cpu| mask & 1 << cpu != 0).collect();
    let memory = match form {
        Form::V1 => Knob::MemoryMax,
        Form::V2 => Knob::MemoryMin,
    };
    [
        (Knob::Cpuset, Value::Cpus(cpus)),
        (Knob::CpuQuota, quota(quota_ms * 10_000)),
        (memory, Value::Bytes(Some(min * 4096))),
        (
            Knob::CpuBurst,
            Value::Number(i64::try_from(burst * 10_000).unwrap()),
        ),
    ]
}

fn tree_plan(form: Form, tree: &[(u32, u64, u64, u64)], skip: u32) -> Plan {
    let mut plan = Plan::empty(Asker::CpuSuppress);
    for (index, (path, numbers)) in TREE.iter().zip(tree).enumerate() {
        for (knob, value) in values(form, *numbers) {
            if skip & 1 << index == 0 {
                plan.want(at(path, knob), value, Reason::new("test"));
            }
        }
    }
    plan
}

fn matches(actuator: &Actuator, plan: &Plan) -> bool {
    let status = actuator.status(&());
    plan.effects.iter().all(|effect| {
        let found = status
            .targets
            .iter()
            .find(|found| found.target == effect.target);
        let has = found.and_then(|found| found.has.clone());
        match (&effect.value, has) {
            // It may be cut down to the quota.
            (Value::Number(wanted), Some(Value::Number(has))) => has <= *wanted,
            (wanted, Some(has)) => crate::value::same(&effect.target, wanted, &has),
            _ => false,
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// A kernel that refuses children above their parents and bursts above their quotas refuses nothing; what is wanted
    /// is there after one turn and stays without writes; taken back, everything is as before.
    #[test]
    fn plans_are_applied_and_undone(
        v1 in any::<bool>(), before in a_tree(), first in a_tree(), second in a_tree(),
    ) {
        let form = if v1 { Form::V1 } else { Form::V2 };
        let mut rig = Rig::new(form, &TREE);
        let start = tree_plan(form, &before, 0);
        rig.actuator.submit(start.clone());
        // What is there before us, brought there by an actuator that then forgets.
        prop_assert_eq!(rig.turn().refused, 0);
        prop_assert!(matches(&rig.actuator, &start));
        let base = rig.sim.files();
        let mut rig = Rig::start(rig.sim.clone(), None, Mode::Enforce);
        for tree in [&first, &second] {
            let plan = tree_plan(form, tree, 0);
            rig.actuator.submit(plan.clone());
            prop_assert_eq!(rig.turn().refused, 0);
            prop_assert!(matches(&rig.actuator, &plan));
            rig.actuator.submit(plan);
            let steady = rig.turns(12);
            prop_assert_eq!((steady.writes, steady.drifted), (0, 0));
        }
        rig.actuator.submit(Plan::empty(Asker::CpuSuppress));
        prop_assert_eq!(rig.turn().refused, 0);
        prop_assert_eq!(rig.sim.files(), base);
        prop_assert!(rig.actuator.status(&()).targets.is_empty());
    }

    #[test]
    fn any_bytes_are_a_journal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let (payloads, whole) = frames(&bytes);
        prop_assert!(whole <= bytes.len());
        prop_assert!(payloads.len() <= bytes.len() / 8);
    }
}
