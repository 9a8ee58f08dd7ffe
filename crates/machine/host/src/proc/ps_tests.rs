use super::*;
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// 2026-11-15 12:00:00 UTC.
const NOW: Timestamp = Timestamp(1_794_744_000_000_000_000);

fn stat_line(pid: u32, comm: &str, state: char, fields: &[(usize, &str)]) -> String {
    let mut words = vec!["0"; 50];
    words[5] = "-1";
    words[17] = "1";
    for (at, text) in fields {
        words[*at] = text;
    }
    format!("{pid} ({comm}) {state} {}\n", words[1..].join(" "))
}

#[track_caller]
fn check(stat: &str, status: &str, cgroup: &str, expected: Expect) {
    let users = parse_passwd(b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:33::/:/bin/false\n");
    let context = PsContext {
        now: NOW,
        boot: NOW.minus(Duration::from_secs(3 * 86_400)),
        uptime: Duration::from_secs(3 * 86_400),
        memory_total: 1 << 30,
        page_size: 4096,
        ticks_per_second: 100,
        utc_offset_secs: 0,
        users: &users,
    };
    let cgroup = parse_pid_cgroup(cgroup.as_bytes()).unwrap_or(b"");
    let row = context.row(
        42,
        parse_pid_stat(stat.as_bytes()).unwrap(),
        parse_pid_status(status.as_bytes()).unwrap(),
        cgroup,
    );
    expected.assert_eq(&format!(
        "{} {} {} {} {} {} {} {} {} {} {:?} {} {}\n",
        row.user,
        row.pid,
        row.ppid,
        row.start_time,
        row.percent_cpu_tenths,
        row.percent_mem_tenths,
        row.rss_bytes,
        row.virtual_bytes,
        row.status,
        row.running_time,
        row.command,
        row.processor,
        row.cgroup
    ));
}

#[test]
fn a_service() {
    // Started two days after boot (a day ago), ran an hour and a minute.
    let stat = stat_line(
        42,
        "nginx: (w) ok",
        'S',
        &[
            (1, "7"),
            (2, "42"),
            (3, "42"),
            (11, "360000"),
            (12, "6000"),
            (17, "4"),
            (19, "17280000"),
            (20, "1048576"),
            (21, "26214"),
            (36, "3"),
        ],
    );
    check(
        &stat,
        "Name:\tnginx\nUid:\t0\t33\t33\t33\nVmLck:\t       0 kB\n",
        "0::/system.slice/nginx.service\n",
        expect![[r#"
            web 42 7 Nov14 42 99 107372544 1048576 Ssl 01:01:00 "nginx: (w) ok" 3 /system.slice/nginx.service
        "#]],
    );
}

#[test]
fn marks_of_the_status_column() {
    let stat = stat_line(
        42,
        "make",
        'R',
        &[
            (2, "42"),
            (5, "42"),
            (16, "-5"),
            (19, "25920000"),
            (21, "-1"),
        ],
    );
    check(
        &stat,
        "Uid:\t1001\t1001\t1001\t1001\nVmLck:\t 64 kB\n",
        "5:memory:/m\n4:cpu,cpuacct:/kubepods/pod1\n1:name=systemd:/x\n0::/y\n",
        expect![[r#"
            1001 42 0 12:00 0 0 0 0 R<L+ 00:00:00 "make" 0 /kubepods/pod1
        "#]],
    );
    let stat = stat_line(42, "old", 'Z', &[(16, "19")]);
    check(
        &stat,
        "Uid:\t0\t0\t0\t0\n",
        "",
        expect![[r#"
            root 42 0 Nov12 0 0 0 0 ZN 00:00:00 "old <defunct>" 0 
        "#]],
    );
}

#[test]
fn times_as_people_read_them() {
    assert_eq!(time_text(59), "00:00:59");
    assert_eq!(time_text(86_400 * 12 + 3661), "12-01:01:01");
    let at = |secs: i64| Timestamp::from_secs(secs);
    // 2024-02-29 23:30 UTC is already March in Berlin.
    let leap = at(1_709_249_400);
    assert_eq!(start_text(leap, at(1_709_300_000), 0), "Feb29");
    assert_eq!(start_text(leap, at(1_709_300_000), 3600), "00:30");
    assert_eq!(start_text(leap, NOW, 0), "2024");
    assert_eq!(start_text(at(0), at(60), 0), "00:00");
}

#[test]
fn a_fixture_tree() {
    let temp = tempfile::tempdir().unwrap();
    let files = [
        ("etc/passwd", "root:x:0:0::/:/bin/sh\n".to_owned()),
        ("proc/stat", "cpu 1 2 3 4\nbtime 1700000000\n".to_owned()),
        ("proc/uptime", "100.00 1.00\n".to_owned()),
        (
            "proc/meminfo",
            "MemTotal: 1024 kB\nMemFree: 512 kB\n".to_owned(),
        ),
        ("proc/9/stat", stat_line(9, "init", 'S', &[])),
        ("proc/9/status", "Uid:\t0\t0\t0\t0\n".to_owned()),
        ("proc/9/cgroup", "0::/init.scope\n".to_owned()),
        // Ended between two reads.
        ("proc/10/stat", stat_line(10, "gone", 'S', &[])),
        ("proc/11/stat", String::new()),
    ];
    for (path, text) in files {
        let path = temp.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let mut buf = ReadBuf::default();
    let list = list_processes(&HostRoot::new(temp.path()), NOW, 0, &mut buf).unwrap();
    assert_eq!(list.len(), 1);
    assert_eq!((&*list[0].user, &*list[0].start_time), ("root", "2023"));
    assert_eq!(list[0].cgroup, "/init.scope");
}

#[test]
fn this_machine_lists_this_process() {
    let now = crate::Clock::Real.now();
    let list = list_processes(&HostRoot::new("/"), now, 0, &mut ReadBuf::default()).unwrap();
    let own = list.iter().find(|p| p.pid == std::process::id()).unwrap();
    assert!(own.rss_bytes > 0 && !own.command.is_empty(), "{own:?}");
}

#[test]
fn bad_lines() {
    assert!(parse_pid_stat(b"1 (x) S 1 2\n").is_err());
    assert!(parse_pid_stat(b"1 )x( S 1 2\n").is_err());
    assert_eq!(parse_pid_status(b"Name: x\nUid:\t0\n").unwrap_err().line, 2);
}

proptest! {
    #[test]
    fn dates_go_forward_day_by_day(day in -800_000_i64..800_000) {
        let (year, month, date) = civil_date(day);
        let (next_year, next_month, next_date) = civil_date(day + 1);
        prop_assert!((1..=12).contains(&month) && (1..=31).contains(&date));
        let next = (next_year, next_month, next_date);
        prop_assert!(
            next == (year, month, date + 1)
                || next == (year, month + 1, 1)
                || next == (year + 1, 1, 1)
        );
    }

    #[test]
    fn any_command_survives(comm in "[ -~]{1,15}", ppid: u32, ticks in 0_u64..1 << 40) {
        let line = stat_line(1, &comm, 'S', &[(1, &ppid.to_string()), (19, &ticks.to_string())]);
        let stat = parse_pid_stat(line.as_bytes()).unwrap();
        prop_assert_eq!((&*stat.comm, stat.ppid, stat.start_ticks), (&*comm, ppid, ticks));
    }

    #[test]
    fn no_input_panics(text: Vec<u8>) {
        let _ = parse_pid_stat(&text);
        let _ = parse_pid_status(&text);
        let _ = parse_pid_cgroup(&text);
        let _ = parse_passwd(&text);
    }

    #[test]
    fn no_time_panics(start: i64, now: i64, offset in -86_400_i64..86_400) {
        let _ = start_text(Timestamp(start), Timestamp(now), offset);
    }
}
