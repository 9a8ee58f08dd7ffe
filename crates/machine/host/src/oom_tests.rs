use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;
use std::time::Duration;

fn record(sequence: u64, line: &str) -> Record {
    // A test line may begin with the task that printed it: `T7| text`.
    let (caller, text) = match line.split_once("| ") {
        Some((caller, text)) => (Some(caller.into()), text),
        None => (None, line),
    };
    let (part, text) = match text.split_at_checked(2) {
        Some(("c>", text)) => (Part::First, text),
        Some(("+>", text)) => (Part::Following, text),
        _ => (Part::Whole, text),
    };
    Record {
        level: 6,
        facility: 0,
        sequence,
        since_boot: Duration::ZERO,
        part,
        caller,
        text: text.to_owned(),
    }
}

#[track_caller]
fn check(log: &str, expected: Expect) {
    let mut parser = OomParser::default();
    let mut text = String::new();
    for (at, line) in log.lines().enumerate() {
        let record = record(at as u64, line);
        if let Some(kill) = parser.observe(Timestamp::from_secs(at as i64), &record) {
            assert_eq!(kill.at.secs(), at as i64);
            text += &format!(
                "{} {:?} pid={} in={} limit={} {}\n",
                kill.sequence,
                kill.process_name,
                kill.pid,
                kill.container,
                kill.victim_cgroup,
                kill.constraint.name()
            );
        }
    }
    expected.assert_eq(&text);
}

#[test]
fn kernel_3_13() {
    check(
        "ruby invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0
ruby cpuset=/ mems_allowed=0
CPU: 0 PID: 13536 Comm: ruby Tainted: G           O 3.13.0-27-generic #50-Ubuntu
Call Trace:
 [<ffffffff8171a214>] dump_stack+0x45/0x56
Task in /mem2 killed as a result of limit of /mem3
memory: usage 980kB, limit 980kB, failcnt 4152239
Memory cgroup stats for /mem2/: cache:0KB rss:980KB
[ pid ]   uid  tgid total_vm      rss nr_ptes swapents oom_score_adj name
[13536]  1000 13536     8694     1235      19        0             0 ruby
Memory cgroup out of memory: Kill process 4996 (memorymonster) score 160 or sacrifice child
Killed process 4996 (memorymonster) total-vm:2500kB, anon-rss:336kB, file-rss:0kB",
        expect![[r#"
            11 "memorymonster" pid=4996 in=/mem2 limit=/mem3 CONSTRAINT_MEMCG
        "#]],
    );
}

#[test]
fn kernel_4_x_machine_and_sacrificed_child() {
    check(
        "java invoked oom-killer: gfp_mask=0x14280ca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), nodemask=(null), order=0, oom_score_adj=0
java cpuset=/ mems_allowed=0
Mem-Info:
Out of memory: Kill process 19667 (evil (x) prog) score 500 or sacrifice child
Killed process 19670 (evil (x) prog) total-vm:1460016kB, anon-rss:1414008kB, file-rss:4kB, shmem-rss:0kB
oom_reaper: reaped process 19670 (evil (x) prog), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB",
        expect![[r#"
            4 "evil (x) prog" pid=19670 in=/ limit=/ 
        "#]],
    );
}

#[test]
fn kernel_5_and_6_under_a_limit() {
    check(
        "stress invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000
CPU: 1 PID: 3021 Comm: stress Not tainted 6.1.0-13-amd64 #1  Debian 6.1.55-1
memory: usage 262144kB, limit 262144kB, failcnt 52
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ctr.scope,mems_allowed=0,oom_memcg=/kubepods.slice/pod1.slice,task_memcg=/kubepods.slice/pod1.slice/ctr.scope,task=stress,pid=3021,uid=0
Memory cgroup out of memory: Killed process 3021 (stress) total-vm:395196kB, anon-rss:260892kB, file-rss:256kB, shmem-rss:0kB, UID:0 pgtables:560kB oom_score_adj:1000
oom_reaper: reaped process 3021 (stress), now anon-rss:0kB, file-rss:256kB, shmem-rss:0kB",
        expect![[r#"
            3 "stress" pid=3021 in=/kubepods.slice/pod1.slice/ctr.scope limit=/kubepods.slice/pod1.slice CONSTRAINT_MEMCG
        "#]],
    );
}

#[test]
fn a_machine_that_runs_out_names_the_cgroup_of_its_victim() {
    check(
        "systemd invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/system.slice/db.service,task=db, pid=3,pid=812,uid=999
Out of memory: Killed process 812 (db, pid=3) total-vm:9kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:999 pgtables:1kB oom_score_adj:0",
        expect![[r#"
            1 "db, pid=3" pid=812 in=/system.slice/db.service limit=/ CONSTRAINT_NONE
        "#]],
    );
}

#[test]
fn a_whole_group_is_killed() {
    check(
        "worker invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/pod,task_memcg=/pod/ctr,task=worker,pid=10,uid=0
Memory cgroup out of memory: Killed process 10 (worker) total-vm:1kB, anon-rss:1kB
Tasks in /pod/ctr are going to be killed due to memory.oom.group set
Memory cgroup out of memory: Killed process 10 (worker) total-vm:1kB, anon-rss:1kB
usb 1-1: new device
Memory cgroup out of memory: Killed process 11 (worker) total-vm:1kB, anon-rss:1kB
Memory cgroup out of memory: Killed process 12 (sh) total-vm:1kB, anon-rss:1kB
other invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/b,task_memcg=/b,task=other,pid=20,uid=0
Memory cgroup out of memory: Killed process 20 (other) total-vm:1kB",
        expect![[r#"
            1 "worker" pid=10 in=/pod/ctr limit=/pod CONSTRAINT_MEMCG
            6 "worker" pid=11 in=/pod/ctr limit=/pod CONSTRAINT_MEMCG
            7 "sh" pid=12 in=/pod/ctr limit=/pod CONSTRAINT_MEMCG
            9 "other" pid=20 in=/b limit=/b CONSTRAINT_MEMCG
        "#]],
    );
    // 4.19, where groups are new and the summary line is not there yet.
    check(
        "w invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), order=0, oom_score_adj=0
Task in /a/b killed as a result of limit of /a
Memory cgroup out of memory: Kill process 5 (w) score 9 or sacrifice child
Killed process 5 (w) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB
Tasks in /a are going to be killed due to memory.oom.group set
Killed process 6 (x) total-vm:1kB, anon-rss:1kB, file-rss:1kB, shmem-rss:0kB",
        expect![[r#"
            3 "w" pid=5 in=/a/b limit=/a CONSTRAINT_MEMCG
            5 "x" pid=6 in=/a/b limit=/a CONSTRAINT_MEMCG
        "#]],
    );
}

#[test]
fn logs_of_two_kills_in_one_another() {
    // Two limits reached at once on an old kernel.
    check(
        "a invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
b invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
Task in /a killed as a result of limit of /a
Task in /b killed as a result of limit of /b
Killed process 1 (a) total-vm:1kB
Killed process 2 (b) total-vm:1kB",
        expect![[r#"
            4 "a" pid=1 in=/a limit=/a CONSTRAINT_MEMCG
            5 "b" pid=2 in=/b limit=/b CONSTRAINT_MEMCG
        "#]],
    );
    // The kernel names the tasks, and they end in the other order.
    check(
        "T1| a invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
T2| b invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
T2| Task in /b killed as a result of limit of /b
T1| Task in /a killed as a result of limit of /a
T2| Killed process 2 (b) total-vm:1kB
T1| Killed process 1 (a) total-vm:1kB",
        expect![[r#"
            4 "b" pid=2 in=/b limit=/b CONSTRAINT_MEMCG
            5 "a" pid=1 in=/a limit=/a CONSTRAINT_MEMCG
        "#]],
    );
    // The machine and a limit together, on an old kernel.
    check(
        "a invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
b invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
Task in /b killed as a result of limit of /b
Out of memory: Kill process 7 (x) score 9 or sacrifice child
Killed process 7 (x) total-vm:1kB
Memory cgroup out of memory: Kill process 8 (b) score 9 or sacrifice child
Killed process 8 (b) total-vm:1kB",
        expect![[r#"
            4 "x" pid=7 in=/ limit=/ 
            6 "b" pid=8 in=/b limit=/b CONSTRAINT_MEMCG
        "#]],
    );
    // And on a newer one.
    check(
        "a invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
b invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/x,task=x,pid=7,uid=0
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/b,task_memcg=/b/c,task=b,pid=8,uid=0
Memory cgroup out of memory: Killed process 8 (b) total-vm:1kB
Out of memory: Killed process 7 (x) total-vm:1kB",
        expect![[r#"
            2 "x" pid=7 in=/x limit=/ CONSTRAINT_NONE
            3 "b" pid=8 in=/b/c limit=/b CONSTRAINT_MEMCG
        "#]],
    );
}

#[test]
fn lines_in_pieces() {
    check(
        "a invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0
c>Task in 
+>/a/b
+> killed as a result of limit of 
+>/a
Killed process 1 (a) total-vm:1kB",
        expect![[r#"
            5 "a" pid=1 in=/a/b limit=/a CONSTRAINT_MEMCG
        "#]],
    );
    check(
        "a invoked oom-killer: gfp_mask=0xcc0, order=0, oom_score_adj=0
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null)
eth0: link up
,cpuset=/,mems_allowed=0,oom_memcg=/a
,task_memcg=/a/b,task=a,pid=9,uid=0
Memory cgroup out of memory: Killed process 9 (a) total-vm:1kB",
        expect![[r#"
            4 "a" pid=9 in=/a/b limit=/a CONSTRAINT_MEMCG
        "#]],
    );
}

#[test]
fn reading_begins_in_the_middle() {
    check(
        "Memory cgroup out of memory: Killed process 9 (a) total-vm:1kB
Killed process 10 (not by memory)
Memory cgroup out of memory: Killed process 9 (a) total-vm:1kB",
        expect![[r#"
            0 "a" pid=9 in=/ limit=/ 
        "#]],
    );
}

#[test]
fn a_number_given_again_is_another_victim() {
    let mut parser = OomParser::default();
    let line = record(1, "Out of memory: Killed process 9 (a) total-vm:1kB");
    assert!(parser.observe(Timestamp::from_secs(0), &line).is_some());
    assert!(parser.observe(Timestamp::from_secs(1), &line).is_none());
    assert!(parser.observe(Timestamp::from_secs(99), &line).is_some());
}

#[test]
fn programs_cannot_invent_kills() {
    let mut parser = OomParser::default();
    let mut forged = record(1, "Out of memory: Killed process 1 (init) total-vm:1kB");
    forged.facility = 1;
    assert_eq!(parser.observe(Timestamp::ZERO, &forged), None);
}

proptest! {
    #[test]
    fn any_summary_survives(
        container in "/[a-z0-9=,./-]{0,20}", limit in "/[a-z0-9=./-]{0,20}", task in "[a-z(),= ]{1,15}", pid: u32,
    ) {
        let line = format!(
            "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={limit},task_memcg={container},task={task},pid={pid},uid=0"
        );
        let kill = OomParser::default().observe(Timestamp::ZERO, &record(1, &line)).unwrap();
        prop_assert_eq!((kill.container, kill.victim_cgroup), (container, limit));
        prop_assert_eq!((kill.process_name, kill.pid), (task, pid));
    }

    #[test]
    fn no_log_panics(lines in prop::collection::vec(
        prop_oneof![
            Just("a invoked oom-killer: x".to_owned()),
            Just("Task in /a killed as a result of limit of /b".to_owned()),
            Just("oom-kill:constraint=C".to_owned()),
            Just(",task_memcg=/a,task=b,pid=1,uid=0".to_owned()),
            Just("Tasks in /a are going to be killed due to memory.oom.group set".to_owned()),
            (0_u32..9).prop_map(|pid| format!("Killed process {pid} (x) total-vm")),
            ".*",
        ],
        0..40,
    )) {
        let mut parser = OomParser::default();
        for (at, line) in lines.iter().enumerate() {
            parser.observe(Timestamp::ZERO, &record(at as u64, line));
        }
    }
}
