//! A cgroup in each layout, read from a fixture tree: files in, figures out.

use std::path::{Path, PathBuf};

use expect_test::{Expect, expect};
use plimsoll_host::cgroup::{
    CgroupReader, Controller, Cpu, Hierarchies, Hugetlb, Io, Memory, SpecReader, Wanted,
};
use plimsoll_host::{Descriptors, HostRoot, ReadBuf};

const EVERYTHING: Wanted = Wanted {
    cpu: true,
    per_cpu: true,
    memory: true,
    io: true,
    pressure: true,
    pids: true,
    hugetlb: true,
    numa: true,
    cpuset: true,
};

fn write_tree(root: &Path, tree: &[(&str, &str)]) {
    for (path, text) in tree {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

fn v1(root: &Path) -> Hierarchies {
    use Controller::{Blkio, Cpu, Cpuacct, Hugetlb, Memory, Pids};
    let mounts: [(Controller, PathBuf); 6] =
        [Cpu, Cpuacct, Memory, Blkio, Pids, Hugetlb].map(|c| (c, root.join(c.name())));
    Hierarchies::v1(mounts)
}

fn render(hierarchies: &Hierarchies, root: &Path, cgroup: &str, wanted: Wanted) -> String {
    let mut buf = ReadBuf::default();
    let host = HostRoot::new(root);
    let mut reader = CgroupReader::new(
        hierarchies,
        &host,
        cgroup,
        wanted,
        &Descriptors::new(100),
        &mut buf,
    );
    let (mut cpu, mut memory, mut io, mut huge) = (
        Cpu::default(),
        Memory::default(),
        Io::default(),
        Vec::<Hugetlb>::new(),
    );
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(&text);
        out.push('\n');
    };
    if reader.cpu(&mut buf, &mut cpu).unwrap() {
        line(format!(
            "cpu total={} user={} system={} percpu={:?} periods={} throttled={}/{}ns burst={}/{}ns",
            cpu.total_ns,
            cpu.user_ns,
            cpu.system_ns,
            cpu.per_cpu_ns,
            cpu.cfs.periods,
            cpu.cfs.throttled_periods,
            cpu.cfs.throttled_ns,
            cpu.cfs.burst_periods,
            cpu.cfs.burst_ns,
        ));
    }
    if reader.memory(&mut buf, &mut memory).unwrap() {
        line(format!(
            "memory usage={} max={} cache={} rss={} swap={} working_set={} kernel={} failcnt={} high={} oom_kill={}",
            memory.usage,
            memory.max_usage,
            memory.cache,
            memory.rss,
            memory.swap,
            memory.working_set,
            memory.kernel,
            memory.failcnt,
            memory.events.high,
            memory.events.oom_kill,
        ));
    }
    if reader.io(&mut buf, &mut io).unwrap() {
        for row in &io.service_bytes {
            line(format!(
                "io {}:{} bytes {:?}",
                row.major, row.minor, row.values
            ));
        }
    }
    if let Some(pids) = reader.pids(&mut buf).unwrap() {
        line(format!("pids {} of {:?}", pids.current, pids.max));
    }
    reader.hugetlb(&mut buf, &mut huge).unwrap();
    for h in &huge {
        line(format!(
            "huge {} {} {} {}",
            h.size_name(),
            h.usage,
            h.max_usage,
            h.failcnt
        ));
    }
    let mut errors = Vec::new();
    let mut limits = SpecReader::new(hierarchies, cgroup, wanted, &Descriptors::new(64));
    let spec = limits.read(&mut buf, "0-1", &mut errors);
    assert!(errors.is_empty(), "{errors:?}");
    line(format!(
        "spec shares={} quota={}/{} mask={:?} memory={} min={} swap={} pids={}",
        spec.cpu_shares,
        spec.cpu_quota_us,
        spec.cpu_period_us,
        spec.cpu_mask,
        spec.memory_limit,
        spec.memory_reservation,
        spec.memory_swap_limit,
        spec.pids_limit,
    ));
    out
}

#[track_caller]
fn check(
    layout: impl Fn(&Path) -> Hierarchies,
    tree: &[(&str, &str)],
    cgroup: &str,
    wanted: Wanted,
    expected: Expect,
) {
    let temp = tempfile::tempdir().unwrap();
    write_tree(temp.path(), tree);
    expected.assert_eq(&render(&layout(temp.path()), temp.path(), cgroup, wanted));
}

#[test]
fn v1_container() {
    check(
        v1,
        &[
            ("cpuacct/c/cpuacct.usage_percpu", "100 250 \n"),
            ("cpuacct/c/cpuacct.stat", "user 3\nsystem 4\n"),
            (
                "cpu/c/cpu.stat",
                "nr_periods 9\nnr_throttled 2\nthrottled_time 77\nnr_bursts 1\nburst_time 5\n",
            ),
            ("cpu/c/cpu.shares", "512\n"),
            ("cpu/c/cpu.cfs_quota_us", "-1\n"),
            ("cpu/c/cpu.cfs_period_us", "100000\n"),
            ("memory/c/memory.usage_in_bytes", "4096\n"),
            ("memory/c/memory.max_usage_in_bytes", "8192\n"),
            ("memory/c/memory.failcnt", "3\n"),
            ("memory/c/memory.kmem.usage_in_bytes", "512\n"),
            (
                "memory/c/memory.stat",
                "cache 1\ntotal_cache 1000\ntotal_rss 2000\ntotal_inactive_file 5000\n",
            ),
            ("memory/c/memory.limit_in_bytes", "9223372036854771712\n"),
            ("blkio/c/blkio.bfq.io_serviced_recursive", "Total 0\n"),
            (
                "blkio/c/blkio.throttle.io_serviced_recursive",
                "8:0 Read 1\nTotal 1\n",
            ),
            (
                "blkio/c/blkio.throttle.io_service_bytes_recursive",
                "8:0 Read 4096\n8:0 Discard 7\nTotal 4103\n",
            ),
            ("pids/c/pids.current", "2\n"),
            ("pids/c/pids.max", "max\n"),
            ("hugetlb/c/hugetlb.2MB.usage_in_bytes", "2097152\n"),
            ("hugetlb/c/hugetlb.2MB.max_usage_in_bytes", "4194304\n"),
            ("hugetlb/c/hugetlb.2MB.failcnt", "1\n"),
        ],
        "/c",
        EVERYTHING,
        expect![[r#"
            cpu total=350 user=30000000 system=40000000 percpu=[100, 250] periods=9 throttled=2/77ns burst=1/5ns
            memory usage=4096 max=8192 cache=1000 rss=2000 swap=0 working_set=0 kernel=512 failcnt=3 high=0 oom_kill=0
            io 8:0 bytes [4096, 0, 0, 0, 7, 0, 0]
            pids 2 of None
            huge 2MB 2097152 4194304 1
            spec shares=512 quota=0/100000 mask=None memory=9223372036854771712 min=0 swap=0 pids=18446744073709551615
        "#]],
    );
}

#[test]
fn v2_container() {
    check(
        |root| Hierarchies::v2(root.join("cg")),
        &[
            (
                "cg/c/cpu.stat",
                "usage_usec 10\nuser_usec 6\nsystem_usec 4\nnr_periods 1\nnr_throttled 1\nthrottled_usec 2\n",
            ),
            ("cg/c/cpu.weight", "100\n"),
            ("cg/c/cpu.max", "20000 100000\n"),
            ("cg/c/cpuset.cpus.effective", "\n"),
            ("cg/c/memory.current", "9000\n"),
            ("cg/c/memory.peak", "9999\n"),
            ("cg/c/memory.swap.current", "11\n"),
            ("cg/c/memory.max", "max\n"),
            ("cg/c/memory.min", "24680\n"),
            ("cg/c/memory.swap.max", "13579\n"),
            (
                "cg/c/memory.stat",
                "anon 5000\nfile 4000\ninactive_file 1000\n",
            ),
            (
                "cg/c/memory.events",
                "low 0\nhigh 4\nmax 5\noom 1\noom_kill 1\n",
            ),
            (
                "cg/c/io.stat",
                "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n",
            ),
            ("cg/c/pids.current", "3\n"),
            ("cg/c/pids.max", "1027\n"),
        ],
        "/c",
        EVERYTHING,
        expect![[r#"
            cpu total=10000 user=6000 system=4000 percpu=[] periods=1 throttled=1/2000ns burst=0/0ns
            memory usage=9000 max=9999 cache=4000 rss=5000 swap=11 working_set=8000 kernel=0 failcnt=0 high=4 oom_kill=1
            io 8:0 bytes [1, 2, 0, 0, 5, 0, 0]
            pids 3 of Some(1027)
            spec shares=2597 quota=20000/100000 mask=Some("0-1") memory=18446744073709551615 min=24680 swap=13579 pids=1027
        "#]],
    );
}

#[test]
fn v2_root_takes_usage_and_swap_from_elsewhere() {
    check(
        |root| Hierarchies::v2(root.join("cg")),
        &[
            (
                "proc/meminfo",
                "MemTotal: 100 kB\nMemFree: 50 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
            ),
            ("cg/cpu.stat", "usage_usec 10\nuser_usec 6\nsystem_usec 4\n"),
            (
                "cg/memory.stat",
                "anon 5000\nfile 4000\ninactive_file 1000\n",
            ),
            ("cg/cgroup.procs", "1\n2\n3\n"),
        ],
        "/",
        EVERYTHING,
        expect![[r#"
            cpu total=10000 user=6000 system=4000 percpu=[] periods=0 throttled=0/0ns burst=0/0ns
            memory usage=9000 max=0 cache=4000 rss=5000 swap=6144 working_set=8000 kernel=0 failcnt=0 high=0 oom_kill=0
            pids 3 of None
            spec shares=0 quota=0/0 mask=Some("0-1") memory=0 min=0 swap=0 pids=0
        "#]],
    );
}

#[test]
fn what_is_not_wanted_is_not_read() {
    let temp = tempfile::tempdir().unwrap();
    write_tree(
        temp.path(),
        &[
            // Reading either of these would be an error, so a clean run proves that they were left alone.
            ("cg/c/memory.current", "garbage\n"),
            ("cg/c/io.stat", "8:0 rbytes=garbage\n"),
            ("cg/c/cpu.stat", "usage_usec 1\n"),
        ],
    );
    let wanted = Wanted {
        cpu: true,
        ..Wanted::default()
    };
    let mut buf = ReadBuf::default();
    let budget = Descriptors::new(10);
    let hierarchies = Hierarchies::v2(temp.path().join("cg"));
    let host = HostRoot::new(temp.path());
    let mut reader = CgroupReader::new(&hierarchies, &host, "/c", wanted, &budget, &mut buf);
    assert!(reader.cpu(&mut buf, &mut Cpu::default()).unwrap());
    assert!(!reader.memory(&mut buf, &mut Memory::default()).unwrap());
    assert!(!reader.io(&mut buf, &mut Io::default()).unwrap());
    assert_eq!(budget.free(), 9);
}
