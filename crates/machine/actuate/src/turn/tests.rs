//! What turns do, on a simulated kernel.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_host::Timestamp;
use plimsoll_plan::{Asker, Bases, Effect, Knob, Plan, Reason, Target, Value};
use rustix::io::Errno;

use crate::sim::Sim;
use crate::{
    Actuator, Applied, Config, Filter, Form, Line, Mode, Now, Outcome, State, TargetStatus,
};

/// An actuator on a simulated kernel, and a clock.
pub struct Rig {
    pub sim: Arc<Sim>,
    pub actuator: Actuator,
    at: Duration,
    journal: Option<tempfile::TempDir>,
}

pub const SECOND: Duration = Duration::from_secs(1);

impl Rig {
    pub fn new(form: Form, cgroups: &[&str]) -> Self {
        Self::start(Sim::new(form, cgroups), None, Mode::Enforce)
    }

    pub fn with_journal(form: Form, cgroups: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start(Sim::new(form, cgroups), Some(dir), Mode::Enforce)
    }

    pub fn start(sim: Arc<Sim>, journal: Option<tempfile::TempDir>, mode: Mode) -> Self {
        let mut config = Config::new(sim.machine());
        config.mode = mode;
        config.slow_thread = false;
        config.journal = journal.as_ref().map(|dir| dir.path().to_owned());
        let (actuator, _) = Actuator::with_files(config, sim.clone()).unwrap();
        Self {
            sim,
            actuator,
            at: Duration::from_secs(1000),
            journal,
        }
    }

    /// The process ends, and another one takes its place.
    pub fn restart(self) -> Self {
        let Self {
            sim,
            actuator,
            at,
            journal,
        } = self;
        drop(actuator);
        let mut rig = Self::start(sim, journal, Mode::Enforce);
        rig.at = at + SECOND;
        rig
    }

    pub fn journal_len(&self) -> u64 {
        let dir = self.journal.as_ref().unwrap().path();
        std::fs::metadata(dir.join("protection.journal"))
            .unwrap()
            .len()
    }

    pub fn now(&self) -> Now {
        Now {
            monotonic: self.at,
            wall: Timestamp(i64::try_from(self.at.as_nanos()).unwrap()),
        }
    }

    pub fn turn_with(&mut self, bases: &dyn Bases) -> Applied {
        let now = self.now();
        self.at += SECOND;
        self.actuator.turn(now, bases)
    }

    pub fn turn(&mut self) -> Applied {
        self.turn_with(&())
    }

    pub fn turns(&mut self, number: usize) -> Applied {
        let mut sum = crate::Counters::default();
        for _ in 0..number {
            sum.add(&self.turn());
        }
        Applied {
            reads: sum.reads,
            writes: sum.writes,
            refused: sum.refused,
            drifted: sum.drifted,
            repaired: sum.repaired,
            restored: sum.restored,
            ..Applied::default()
        }
    }

    pub fn restore(&mut self) -> Applied {
        let now = self.now();
        self.at += SECOND;
        self.actuator.restore(&Filter::All, now, &())
    }

    pub fn plan(&mut self, asker: Asker, effects: &[(&str, Knob, Value)]) {
        let mut plan = Plan::empty(asker);
        for (path, knob, value) in effects {
            plan.want(at(path, *knob), value.clone(), Reason::new("test"));
        }
        self.actuator.submit(plan);
    }

    pub fn status(&self, path: &str, knob: Knob) -> Option<TargetStatus> {
        let wanted = at(path, knob);
        let targets = self.actuator.status(&()).targets;
        targets.into_iter().find(|status| status.target == wanted)
    }

    #[track_caller]
    pub fn state(&self, path: &str, knob: Knob) -> State {
        self.status(path, knob).unwrap().state
    }

    pub fn told(&self, outcome: Outcome) -> Vec<Line> {
        let mut lines = self.actuator.journal(0, 10_000);
        lines.retain(|line| line.outcome == outcome);
        lines
    }

    #[track_caller]
    fn has(&self, files: &[(&str, &str)]) {
        for (file, text) in files {
            assert_eq!(self.sim.get(file), *text, "{file}");
        }
    }
}

pub fn at(path: &str, knob: Knob) -> Target {
    Target::cgroup(&path.into(), knob)
}

pub fn cpus(list: &str) -> Value {
    Value::Cpus(list.parse().unwrap())
}

pub fn quota(quota_us: u64) -> Value {
    Value::Quota {
        quota_us: Some(quota_us),
        period_us: None,
    }
}

fn bytes(bytes: u64) -> Value {
    Value::Bytes(Some(bytes))
}

use Knob::{CpuBurst, CpuQuota, CpuShares, Cpuset, MemoryHigh, MemoryMin};

#[test]
fn a_plan_is_applied_once_and_taken_back() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    let plan = [
        ("/a", CpuQuota, quota(50_000)),
        ("/a", MemoryMin, bytes(8192)),
    ];
    rig.plan(Asker::CpuSuppress, &plan);
    let applied = rig.turn();
    assert_eq!((applied.writes, applied.refused), (2, 0));
    rig.has(&[("/a/cpu.max", "50000 100000"), ("/a/memory.min", "8192")]);
    // Nothing is written in the steady state, and each file is read once in ten seconds.
    rig.turns(30);
    for _ in 0..3 {
        rig.plan(Asker::CpuSuppress, &plan);
        let steady = rig.turns(10);
        assert_eq!((steady.writes, steady.reads), (0, 2));
    }
    rig.plan(Asker::CpuSuppress, &plan[1..]);
    assert_eq!(rig.turn().restored, 1);
    rig.has(&[("/a/cpu.max", "max 100000"), ("/a/memory.min", "8192")]);
    rig.plan(Asker::CpuSuppress, &[]);
    rig.turn();
    rig.has(&[("/a/memory.min", "0")]);
    assert!(rig.actuator.status(&()).targets.is_empty());
    assert_eq!(rig.told(Outcome::Restored).len(), 2);
}

#[test]
fn shares_are_weights_on_v2_and_a_container_may_have_either() {
    let container = "/kubepods/pod1/c";
    let mut rig = Rig::new(Form::V2, &["/kubepods/pod1", container]);
    let plan = [
        ("/kubepods/pod1", CpuShares, Value::Shares(1024)),
        (container, CpuShares, Value::Shares(1024)),
    ];
    // 100 is what a newer runc writes for a container.
    rig.plan(Asker::BatchResource, &plan);
    assert_eq!(rig.turn().writes, 1);
    rig.has(&[
        ("/kubepods/pod1/cpu.weight", "39"),
        ("/kubepods/pod1/c/cpu.weight", "100"),
    ]);
    assert_eq!(rig.turns(30).writes, 0);
}

#[test]
fn a_computed_base_comes_first_and_what_was_found_is_right_in_its_unit() {
    let container = "/kubepods/pod1/c";
    let mut rig = Rig::new(Form::V2, &[container]);
    let computed = |target: &Target| match target {
        Target::Cgroup {
            knob: CpuShares, ..
        } => Some(Value::Shares(1024)),
        Target::Cgroup { knob: CpuQuota, .. } => Some(quota(70_000)),
        _ => None,
    };
    let plan = [
        (container, CpuShares, Value::Shares(2)),
        (container, CpuQuota, quota(5000)),
    ];
    rig.plan(Asker::BatchResource, &plan);
    rig.turn_with(&computed);
    rig.has(&[("/kubepods/pod1/c/cpu.weight", "1")]);
    rig.plan(Asker::BatchResource, &[]);
    rig.turn_with(&computed);
    // 100 was found and is right for 1024 shares; the found quota is not what the runtime would write now.
    rig.has(&[
        ("/kubepods/pod1/c/cpu.weight", "100"),
        ("/kubepods/pod1/c/cpu.max", "70000 100000"),
    ]);
}

#[test]
fn what_another_agent_left_is_not_the_base_where_the_base_is_known() {
    let mut rig = Rig::with_journal(Form::V2, &["/a"]);
    let computed = |_: &Target| Some(quota(70_000));
    // Koordinator's agent wrote what we want, too.
    rig.sim.set("/a/cpu.max", "5000 100000");
    rig.plan(Asker::BatchResource, &[("/a", CpuQuota, quota(5000))]);
    assert_eq!(rig.turn_with(&computed).writes, 0);
    // We are killed; whoever comes next knows.
    let mut rig = rig.restart();
    let now = rig.now();
    rig.actuator.restore(&Filter::All, now, &computed);
    rig.has(&[("/a/cpu.max", "70000 100000")]);
}

#[test]
fn a_change_behind_our_back_is_put_right_at_a_bounded_rate() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    let computed = |_: &Target| Some(quota(70_000));
    rig.plan(Asker::CpuBurst, &[("/a", CpuQuota, quota(50_000))]);
    rig.turn_with(&computed);
    let mut repairs = Vec::new();
    for second in 0..300 {
        // Somebody like systemd writes the base every two seconds.
        if second % 2 == 0 {
            rig.sim.set("/a/cpu.max", "70000 100000");
        }
        if rig.turn_with(&computed).repaired > 0 {
            repairs.push(second);
        }
    }
    assert!(rig.actuator.second_agent().is_none());
    assert!(repairs.len() >= 5, "never silence: {repairs:?}");
    let gaps: Vec<_> = repairs.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| *gap >= 10), "{gaps:?}");
    assert!(gaps.iter().all(|gap| *gap <= 75), "{gaps:?}");
    assert!(gaps.last() >= Some(&60), "{gaps:?}");
    assert!(rig.told(Outcome::Drifted).len() >= 5);
    // Peace: from the next look on it is right and stays.
    rig.turns(80);
    rig.has(&[("/a/cpu.max", "50000 100000")]);
}

#[test]
fn who_changes_back_at_once_is_a_second_agent() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    rig.plan(Asker::CpuSuppress, &[("/a", Cpuset, cpus("0-1"))]);
    let mut seconds = 0;
    while rig.actuator.second_agent().is_none() {
        rig.turn();
        rig.sim.set("/a/cpuset.cpus", "0-3");
        seconds += 1;
        assert!(seconds < 200);
    }
    assert_eq!(rig.actuator.effective_mode(), Mode::Observe);
    assert_eq!(rig.told(Outcome::SecondAgent).len(), 1);
    rig.sim.log();
    assert_eq!(rig.turns(100).writes, 0);
    rig.has(&[("/a/cpuset.cpus", "0-3")]);
    // An operator ended the other one.
    rig.actuator.forget_second_agent();
    rig.turns(70);
    rig.has(&[("/a/cpuset.cpus", "0-1")]);
}

#[test]
fn a_plan_that_changes_each_second_is_no_second_agent() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    for second in 0..100 {
        rig.plan(
            Asker::CpuSuppress,
            &[("/a", CpuQuota, quota(10_000 + second))],
        );
        assert_eq!(rig.turn().writes, 1);
    }
    assert!(rig.actuator.second_agent().is_none());
}

#[test]
fn the_value_that_somebody_else_wrote_last_is_given_back() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    rig.plan(Asker::CpuBurst, &[("/a", CpuQuota, quota(50_000))]);
    rig.turn();
    rig.turns(5);
    rig.sim.set("/a/cpu.max", "90000 100000");
    rig.turns(30);
    rig.has(&[("/a/cpu.max", "50000 100000")]);
    rig.plan(Asker::CpuBurst, &[]);
    rig.turn();
    rig.has(&[("/a/cpu.max", "90000 100000")]);
    // What somebody else wrote after us is left when we let go.
    rig.plan(Asker::CpuBurst, &[("/a", CpuQuota, quota(50_000))]);
    rig.turn();
    rig.sim.set("/a/cpu.max", "30000 100000");
    rig.plan(Asker::CpuBurst, &[]);
    rig.turn();
    rig.has(&[("/a/cpu.max", "30000 100000")]);
}

#[test]
fn a_cgroup_that_was_made_anew_gets_nothing_back() {
    let mut rig = Rig::with_journal(Form::V2, &["/a", "/b"]);
    let plan = [
        ("/a", CpuQuota, quota(50_000)),
        ("/b", CpuQuota, quota(50_000)),
    ];
    rig.plan(Asker::CpuBurst, &plan);
    rig.turn();
    let mut rig = rig.restart();
    rig.sim.make("/a");
    rig.sim.set("/a/cpu.max", "77000 100000");
    rig.sim.remove("/b");
    let applied = rig.restore();
    assert_eq!(
        (applied.writes, applied.restored, applied.forgotten),
        (0, 0, 2)
    );
    rig.has(&[("/a/cpu.max", "77000 100000"), ("/b/cpu.max", "gone")]);
}

#[test]
fn a_cgroup_that_comes_later_is_waited_for() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    rig.plan(Asker::CpuBurst, &[("/b", CpuQuota, quota(50_000))]);
    rig.turns(3);
    assert_eq!(rig.state("/b", CpuQuota), State::Absent);
    rig.sim.make("/b");
    rig.turns(20);
    rig.has(&[("/b/cpu.max", "50000 100000")]);
}

#[test]
fn a_file_that_this_kernel_lacks_is_said_once() {
    let mut rig = Rig::new(Form::V2, &["/a", "/b"]);
    let identity = Value::Number(2);
    let plan = [
        ("/a", Knob::GroupIdentity, identity.clone()),
        ("/b", Knob::GroupIdentity, identity),
        ("/b", MemoryMin, bytes(4096)),
    ];
    rig.plan(Asker::GroupIdentity, &plan);
    let applied = rig.turn();
    assert_eq!((applied.unsupported, applied.writes), (2, 1));
    rig.turns(50);
    assert_eq!(rig.told(Outcome::Unsupported).len(), 1);
    assert_eq!(rig.state("/a", Knob::GroupIdentity), State::Unsupported);
}

#[test]
fn a_refused_write_costs_only_itself_and_is_tried_again_seldom() {
    let mut rig = Rig::new(Form::V2, &["/a", "/b"]);
    rig.sim.refuse("/a/memory.min", Some(Errno::ROFS));
    let plan = [
        ("/a", MemoryMin, bytes(4096)),
        ("/b", MemoryMin, bytes(4096)),
    ];
    rig.plan(Asker::MemoryQos, &plan);
    let applied = rig.turn();
    assert_eq!(applied.refused, 1);
    rig.has(&[("/b/memory.min", "4096")]);
    let status = rig.status("/a", MemoryMin).unwrap();
    assert_eq!(status.state, State::Refused);
    let error = status.error.unwrap();
    assert!(
        error.contains("\"4096\" to /cg/a/memory.min: Read-only"),
        "{error}"
    );
    let refused = rig.turns(300).refused;
    assert!((4..15).contains(&refused), "{refused}");
    assert_eq!(rig.told(Outcome::Refused).len(), 1);
    rig.sim.refuse("/a/memory.min", None);
    rig.turns(70);
    rig.has(&[("/a/memory.min", "4096")]);
    rig.plan(Asker::MemoryQos, &[]);
    rig.turn();
    rig.has(&[("/a/memory.min", "0"), ("/b/memory.min", "0")]);
}

#[test]
fn values_that_make_no_sense_are_not_written() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    let plan = [
        ("/a", CpuQuota, quota(999)),
        ("/a", Cpuset, cpus("")),
        ("/a", MemoryMin, Value::Number(-7)),
        ("/a", CpuShares, Value::Shares(1)),
    ];
    rig.plan(Asker::CpuSuppress, &plan);
    let applied = rig.turn();
    assert_eq!((applied.writes, applied.refused), (0, 4));
    assert_eq!(rig.turns(50).refused, 0);
    assert_eq!(rig.state("/a", Cpuset), State::Refused);
}

#[test]
fn observing_tells_each_change_once_and_writes_nothing() {
    let mut rig = Rig::start(Sim::new(Form::V2, &["/a"]), None, Mode::Observe);
    for value in [50_000, 50_000, 60_000] {
        rig.plan(Asker::CpuBurst, &[("/a", CpuQuota, quota(value))]);
        rig.turns(20);
    }
    assert_eq!(rig.told(Outcome::Planned).len(), 2);
    assert_eq!(rig.state("/a", CpuQuota), State::Planned);
    assert!(rig.sim.log().is_empty());
    let now = rig.now();
    rig.actuator.set_mode(Mode::Enforce, now);
    rig.turn();
    rig.has(&[("/a/cpu.max", "60000 100000")]);
    rig.actuator.set_mode(Mode::Off, now);
    rig.plan(Asker::CpuBurst, &[]);
    let applied = rig.turns(20);
    assert_eq!((applied.writes, applied.reads), (0, 0));
    // Only an order gives it back.
    rig.restore();
    rig.has(&[("/a/cpu.max", "max 100000")]);
}

#[test]
fn a_held_cgroup_is_left_alone() {
    let mut rig = Rig::with_journal(Form::V2, &["/a", "/a/b", "/ab"]);
    let effects = |us| ["/a", "/a/b", "/ab"].map(|path| (path, CpuQuota, quota(us)));
    rig.plan(Asker::CpuBurst, &effects(50_000));
    rig.turn();
    let now = rig.now();
    rig.actuator
        .hold("/a", Some(now.wall.plus(SECOND * 100)), now);
    // An operator's own change, in an incident.
    rig.sim.set("/a/cpu.max", "99000 100000");
    rig.plan(Asker::CpuBurst, &effects(40_000));
    let mut rig = rig.restart();
    rig.plan(Asker::CpuBurst, &effects(40_000));
    rig.turns(50);
    rig.has(&[
        ("/a/cpu.max", "99000 100000"),
        ("/a/b/cpu.max", "50000 100000"),
        ("/ab/cpu.max", "40000 100000"),
    ]);
    assert_eq!(rig.state("/a", CpuQuota), State::Held);
    rig.turns(70);
    rig.has(&[("/a/cpu.max", "40000 100000")]);
    let now = rig.now();
    rig.actuator.hold("/cg/ab/cpu.max", None, now);
    rig.sim.set("/ab/cpu.max", "1000 100000");
    rig.turns(30);
    rig.has(&[("/ab/cpu.max", "1000 100000")]);
    assert!(rig.actuator.release_hold("/cg/ab/cpu.max", rig.now()));
    rig.turns(2);
    rig.has(&[("/ab/cpu.max", "40000 100000")]);
}

#[test]
fn what_is_wanted_for_a_time_goes_back_by_itself() {
    let mut rig = Rig::with_journal(Form::V2, &["/a"]);
    let frozen = || {
        let mut plan = Plan::empty(Asker::CpuSuppress);
        let mut effect = Effect::new(
            at("/a", Knob::Freeze),
            Value::Switch(true),
            Reason::new("freeze"),
        );
        effect.at_most = Some(SECOND * 2);
        plan.effects.push(effect);
        plan
    };
    rig.actuator.submit(frozen());
    rig.turn();
    rig.has(&[("/a/cgroup.freeze", "1")]);
    // Who asks for the same again does not get more time.
    for _ in 0..5 {
        rig.actuator.submit(frozen());
        rig.turn();
    }
    rig.has(&[("/a/cgroup.freeze", "0")]);
    // In every mode.
    for mode in [Mode::Off, Mode::Observe] {
        rig.actuator.submit(Plan::empty(Asker::CpuSuppress));
        rig.turn();
        rig.actuator.submit(frozen());
        rig.turn();
        rig.has(&[("/a/cgroup.freeze", "1")]);
        let now = rig.now();
        rig.actuator.set_mode(mode, now);
        rig.turns(3);
        rig.has(&[("/a/cgroup.freeze", "0")]);
        rig.actuator.set_mode(Mode::Enforce, now);
    }
    // Asked anew after it was taken back, it counts from then.
    rig.actuator.submit(Plan::empty(Asker::CpuSuppress));
    rig.turn();
    rig.actuator.submit(frozen());
    rig.turn();
    rig.has(&[("/a/cgroup.freeze", "1")]);
    // The process dies; the next one thaws although nobody asks it to.
    let mut rig = rig.restart();
    rig.turns(3);
    rig.has(&[("/a/cgroup.freeze", "0")]);
}

#[test]
fn a_burst_never_exceeds_its_quota() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    let both = |quota_us, burst| {
        [
            ("/a", CpuQuota, quota(quota_us)),
            ("/a", CpuBurst, Value::Number(burst)),
        ]
    };
    // Ten times the limit, as Koordinator's default asks for.
    rig.plan(Asker::CpuBurst, &both(50_000, 500_000));
    assert_eq!(rig.turn().refused, 0);
    rig.has(&[
        ("/a/cpu.max", "50000 100000"),
        ("/a/cpu.max.burst", "50000"),
    ]);
    rig.plan(Asker::CpuBurst, &both(20_000, 500_000));
    assert_eq!(rig.turn().refused, 0);
    rig.has(&[
        ("/a/cpu.max", "20000 100000"),
        ("/a/cpu.max.burst", "20000"),
    ]);
    rig.plan(Asker::CpuBurst, &both(80_000, 500_000));
    assert_eq!(rig.turn().refused, 0);
    rig.has(&[("/a/cpu.max.burst", "80000")]);
    assert_eq!(rig.turns(30).writes, 0);
    rig.plan(Asker::CpuBurst, &[]);
    assert_eq!(rig.turn().refused, 0);
    rig.has(&[("/a/cpu.max", "max 100000"), ("/a/cpu.max.burst", "0")]);
}

#[test]
fn a_burst_that_nobody_wants_makes_room_and_comes_back() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    rig.sim.set("/a/cpu.max.burst", "60000");
    rig.plan(Asker::CpuSuppress, &[("/a", CpuQuota, quota(50_000))]);
    assert_eq!(rig.turn().refused, 0);
    rig.has(&[
        ("/a/cpu.max", "50000 100000"),
        ("/a/cpu.max.burst", "50000"),
    ]);
    rig.plan(Asker::CpuSuppress, &[("/a", CpuQuota, quota(40_000))]);
    assert_eq!(rig.turn().refused, 0);
    rig.has(&[
        ("/a/cpu.max", "40000 100000"),
        ("/a/cpu.max.burst", "40000"),
    ]);
    assert_eq!(rig.turns(30).writes, 0);
    rig.plan(Asker::CpuSuppress, &[]);
    assert_eq!(rig.turn().refused, 0);
    rig.has(&[("/a/cpu.max", "max 100000"), ("/a/cpu.max.burst", "60000")]);
}

#[test]
fn the_loser_is_told_once_and_wins_when_the_winner_lets_go() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    rig.plan(Asker::CpuSuppress, &[("/a", Cpuset, cpus("0-1"))]);
    rig.plan(Asker::CpusetAllocator, &[("/a", Cpuset, cpus("4-5"))]);
    rig.turns(30);
    rig.has(&[("/a/cpuset.cpus", "4-5")]);
    let told = rig.told(Outcome::Overruled);
    assert_eq!(told.len(), 1);
    assert!(
        told[0]
            .text
            .contains("cpu-suppress wants CPUs 0-1 for /cg/a/cpuset.cpus")
    );
    let status = rig.status("/a", Cpuset).unwrap();
    assert_eq!(status.asker, Some(Asker::CpusetAllocator));
    assert_eq!(status.overruled[0].asker, Asker::CpuSuppress);
    rig.plan(Asker::CpusetAllocator, &[]);
    rig.turn();
    rig.has(&[("/a/cpuset.cpus", "0-1")]);
}

/// The kernel refuses to empty the cpuset of a cgroup with tasks; it gets what it would inherit.
#[test]
fn a_cpuset_that_was_empty_is_given_back_in_other_words() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    rig.sim.populate();
    rig.sim.set("/cpuset.cpus.effective", "0-7");
    rig.plan(Asker::CpuSuppress, &[("/a", Cpuset, cpus("0-1"))]);
    rig.turn();
    rig.plan(Asker::CpuSuppress, &[]);
    let applied = rig.turn();
    assert_eq!((applied.refused, applied.restored), (0, 1));
    rig.has(&[("/a/cpuset.cpus", "0-7")]);
    assert!(rig.actuator.status(&()).targets.is_empty());
}

#[test]
fn a_status_reads_back_as_written() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    rig.plan(
        Asker::CpuBurst,
        &[
            ("/a", CpuQuota, quota(5000)),
            ("/a", Knob::WmarkRatio, Value::Number(1)),
        ],
    );
    rig.turn();
    let now = rig.now();
    rig.actuator.hold("/a", None, now);
    let status = rig.actuator.status(&());
    let text = serde_json::to_string(&status).unwrap();
    assert!(text.contains(r#""state":"applied""#), "{text}");
    let back: crate::Status = serde_json::from_str(&text).unwrap();
    assert_eq!(back, status);
}

#[test]
fn an_order_is_kept_on_v1() {
    let tree = ["/a", "/a/b"];
    let mut rig = Rig::new(Form::V1, &tree);
    let sets = |top: &str, below: &str| [("/a", Cpuset, cpus(top)), ("/a/b", Cpuset, cpus(below))];
    rig.plan(Asker::CpuSuppress, &sets("0-1", "0"));
    assert_eq!(rig.turn().refused, 0);
    rig.sim.log();
    rig.plan(Asker::CpuSuppress, &sets("4-5", "4"));
    assert_eq!(rig.turn().refused, 0);
    assert_eq!(
        rig.sim.log_texts(),
        [
            "cpuset/a/cpuset.cpus = 0-1,4-5",
            "cpuset/a/b/cpuset.cpus = 0,4",
            "cpuset/a/b/cpuset.cpus = 4",
            "cpuset/a/cpuset.cpus = 4-5"
        ]
    );
}

#[test]
fn reclaim_is_an_order_and_no_value() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    let reclaim = [("/a", Knob::MemoryReclaim, bytes(1 << 20))];
    rig.plan(Asker::MemoryQos, &reclaim);
    assert_eq!(rig.turn().writes, 1);
    rig.plan(Asker::MemoryQos, &reclaim);
    assert_eq!(rig.turns(30).writes, 0);
    rig.plan(Asker::MemoryQos, &[]);
    assert_eq!(rig.turns(30).writes, 0);
}

#[test]
fn an_earlier_life_is_taken_over() {
    let mut rig = Rig::with_journal(Form::V2, &["/a", "/b", "/c"]);
    let effects = ["/a", "/b"].map(|path| (path, MemoryHigh, bytes(1 << 20)));
    rig.plan(Asker::MemoryQos, &effects);
    rig.plan(Asker::CpuBurst, &[("/c", CpuQuota, quota(50_000))]);
    rig.turn();
    let mut rig = rig.restart();
    // Nothing happens until somebody says what is wanted now.
    assert_eq!(rig.turns(20).writes, 0);
    rig.plan(Asker::MemoryQos, &effects[..1]);
    rig.turn();
    rig.has(&[
        ("/a/memory.high", "1048576"),
        ("/b/memory.high", "max"),
        ("/c/cpu.max", "50000 100000"),
    ]);
    // Nobody came for it.
    rig.actuator.release_unclaimed();
    rig.turn();
    rig.has(&[("/c/cpu.max", "max 100000")]);
}

#[test]
fn an_order_gives_back_what_it_names_and_nothing_else() {
    let mut rig = Rig::new(Form::V2, &["/a", "/a/b", "/c"]);
    let effects = ["/a", "/a/b", "/c"].map(|path| (path, CpuQuota, quota(5000)));
    rig.plan(Asker::CpuBurst, &effects);
    rig.plan(Asker::CpuSuppress, &[("/c", CpuQuota, quota(4000))]);
    rig.turn();
    let now = rig.now();
    rig.actuator.set_mode(Mode::Observe, now);
    // It would go back, were it not for the mode.
    rig.plan(Asker::CpuBurst, &effects[1..]);
    rig.actuator
        .restore(&Filter::Cgroup("/a/b".to_owned()), now, &());
    rig.has(&[
        ("/a/cpu.max", "5000 100000"),
        ("/a/b/cpu.max", "max 100000"),
        ("/c/cpu.max", "4000 100000"),
    ]);
    rig.actuator
        .restore(&Filter::Asker(Asker::CpuSuppress), now, &());
    rig.has(&[("/c/cpu.max", "5000 100000")]);
    rig.restore();
    rig.has(&[("/a/cpu.max", "max 100000"), ("/c/cpu.max", "max 100000")]);
    // The same plan again, in enforcing mode, is followed again.
    rig.actuator.set_mode(Mode::Enforce, now);
    rig.plan(Asker::CpuBurst, &effects);
    rig.turn();
    rig.has(&[("/a/cpu.max", "5000 100000")]);
}

#[test]
fn reasons_are_those_of_the_last_plan() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    for percent in [70.0, 80.0] {
        let mut plan = Plan::empty(Asker::CpuBurst);
        let why = Reason::new("x").with("percent", percent);
        plan.want(at("/a", CpuQuota), quota(5000), why);
        rig.actuator.submit(plan);
        rig.turn();
    }
    assert_eq!(rig.status("/a", CpuQuota).unwrap().why, "x (percent 80)");
}

#[test]
fn a_controller_that_vanishes_mid_plan_harms_nobody() {
    let mut rig = Rig::new(Form::V2, &["/a"]);
    rig.plan(Asker::MemoryQos, &[("/a", MemoryMin, bytes(4096))]);
    rig.turn();
    rig.sim.delete_file("/a/memory.min");
    rig.turns(20);
    assert_eq!(rig.state("/a", MemoryMin), State::Unsupported);
    rig.sim.remove("/a");
    rig.plan(Asker::MemoryQos, &[]);
    rig.turns(100);
    assert!(rig.actuator.status(&()).targets.is_empty());
}
