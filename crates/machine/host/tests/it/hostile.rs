//! Kernel files that are cut off, garbled and extreme: every parser has an answer or an error.

use plimsoll_host::cgroup::{Hierarchies, unescape};
use plimsoll_host::fs::{
    overlay_upper_dir, parse_diskstats, parse_dm_status, parse_dm_table, parse_mountinfo,
    parse_zfs_list, vfs_directory,
};
use plimsoll_host::kmsg::parse_record;
use plimsoll_host::machine::{NodeCpuInfo, NodeNumaInfo, Topology, parse_cpuinfo};
use plimsoll_host::oom::OomParser;
use plimsoll_host::proc::meminfo::parse_meminfo;
use plimsoll_host::proc::net::{
    AdvancedTcp, parse_dev, parse_ip_octets, parse_netstat, parse_snmp, parse_tcp, parse_udp,
};
use plimsoll_host::proc::parse_schedstat;
use plimsoll_host::proc::process::{parse_limits, parse_pids, parse_referenced};
use plimsoll_host::proc::ps::{parse_passwd, parse_pid_cgroup, parse_pid_stat, parse_pid_status};
use plimsoll_host::proc::stat::{ProcStat, parse_uptime};
use plimsoll_host::{HostRoot, ReadBuf, Timestamp};
use plimsoll_test_support::hostile::{garbled, rounds};

const CPUINFO: &str = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu MHz\t\t: 2400.000\ncache size\t: 1024 KB\n\
    physical id\t: 0\ncore id\t: 0\nflags\t: fpu vme\n";
const MEMINFO: &str = "MemTotal:       16384000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\nBuffers: 1 kB\n\
    Cached: 5 kB\nSwapTotal: 0 kB\nHugePages_Total: 5\nHugepagesize: 2048 kB\n";
const MOUNTS: &str = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n\
    51 27 0:42 / / rw - overlay overlay rw,upperdir=/up\\040per/fs\n";

const SAMPLES: [&str; 22] = [
    CPUINFO,
    MEMINFO,
    MOUNTS,
    "cpu  100 5 50 1000 3 0 1 0 0 0\ncpu0 50 5 25 500 3 0 1 0 0 0\nctxt 5\nbtime 1795000000\nprocesses 5\nprocs_running 1\n",
    "Inter-|   Receive |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n  eth0: 1500 10 0 0 0 0 0 0 3000 20 0 0 0 0 0 0\n",
    "  sl  local_address rem_address   st tx_queue rx_queue\n   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0\n",
    "   sl  local_address rem_address   st\n  12: 00000000:0044 00000000:0000 07 00000001:00000002 00:00000000 00000000     0        0 1 2 0 3\n",
    "Ip: Forwarding DefaultTTL\nIp: 1 64\nTcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens\nTcp: 1 200 120000 -1 5\n",
    "IpExt: InOctets OutOctets\nIpExt: 1 2\nTcpExt: SyncookiesSent TW\nTcpExt: 0 9\n",
    "   8       0 sda 100 5 2000 30 50 5 1000 20 0 40 50 0 0 0 0\n 253       1 dm-1 1 2 3 4 5 6 7 8 9 10 11\n",
    "1234 (some) name) S 1 1234 1234 0 -1 4194560 100 0 0 0 10 5 0 0 20 0 1 0 1000 10000000 500 18446744073709551615 1 1 0\n",
    "Name:\tx\nUid:\t0\t0\t0\t0\nVmRSS:\t   1000 kB\nVmSize:\t 2000 kB\nThreads:\t5\n",
    "0::/kubepods/pod1\n5:cpu,cpuacct:/a\n1:name=systemd:/\n",
    "root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/:\n",
    "Limit                     Soft Limit           Hard Limit           Units     \nMax open files            1024                 524288               files     \n",
    "7f00-7f01 rw-p 00000000 00:00 0\nReferenced:            1024 kB\nReferenced:            4 kB\n",
    "1\n2\n4294967295\n",
    "12345.67 54321.00\n",
    "6,1234,5678901234,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a,task_memcg=/a/b,task=x,pid=5,uid=0",
    "6,1235,5678901235,-;Memory cgroup out of memory: Killed process 5 (x) total-vm:100kB, anon-rss:50kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:50kB oom_score_adj:0",
    "pool/data\t1000\t2000\t3000\t4000\n",
    "0 409600 thin-pool 0 100/4096 500/1600 - rw discard_passdown queue_if_no_space\n",
];

#[test]
fn every_parser_survives_every_text() {
    rounds(2000, |seed| {
        let random = &mut fastrand::Rng::with_seed(seed);
        let sample = SAMPLES[random.usize(..SAMPLES.len())].as_bytes();
        let text = &garbled(sample, random);
        let _ = ProcStat::default().parse(text);
        let _ = parse_meminfo(text);
        let _ = parse_dev(text, &mut Vec::new());
        let _ = parse_tcp(text);
        let _ = parse_udp(text);
        let _ = parse_ip_octets(text);
        let _ = parse_snmp(text, &mut AdvancedTcp::default());
        let _ = parse_netstat(text, &mut AdvancedTcp::default());
        if let Ok(mounts) = parse_mountinfo(text) {
            let _ = vfs_directory(text, &mounts);
        }
        let _ = overlay_upper_dir(text);
        let mut rows = Vec::new();
        let _ = parse_diskstats(text, &mut rows);
        let _ = parse_pid_stat(text);
        let _ = parse_pid_status(text);
        let _ = parse_pid_cgroup(text);
        let _ = parse_passwd(text);
        let _ = parse_limits(text);
        let _ = parse_referenced(text);
        let _ = parse_pids(text, &mut Vec::new());
        let _ = parse_schedstat(text);
        let _ = parse_uptime(text);
        let _ = parse_cpuinfo(text);
        let _ = parse_zfs_list(text);
        let _ = parse_dm_status(text);
        let _ = parse_dm_table(text);
        let _ = unescape(&String::from_utf8_lossy(text));
        let mut oom = OomParser::default();
        for line in text.split(|byte| *byte == b'\n') {
            if let Ok(record) = parse_record(line) {
                let _ = oom.observe(Timestamp::from_secs(1), &record);
            }
        }
    });
}

/// The files that describe a machine, in a tree of their own.
#[test]
fn a_machine_may_describe_itself_in_any_way() {
    const FILES: [(&str, &str); 14] = [
        ("proc/cpuinfo", CPUINFO),
        ("proc/meminfo", MEMINFO),
        ("proc/1/mountinfo", MOUNTS),
        ("proc/self/mountinfo", MOUNTS),
        (
            "proc/cgroups",
            "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t2\t5\t1\n",
        ),
        ("sys/devices/system/cpu/online", "0-1\n"),
        ("sys/devices/system/cpu/possible", "0-4095\n"),
        ("sys/devices/system/cpu/cpu0/topology/core_id", "0\n"),
        (
            "sys/devices/system/cpu/cpu0/topology/physical_package_id",
            "0\n",
        ),
        ("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n"),
        ("sys/devices/system/node/online", "0\n"),
        ("sys/devices/system/node/node0/cpulist", "0-1\n"),
        (
            "sys/devices/system/node/node0/meminfo",
            "Node 0 MemTotal:       16384000 kB\nNode 0 MemFree: 5 kB\n",
        ),
        ("sys/devices/system/node/node0/distance", "10 20\n"),
    ];
    rounds(150, |seed| {
        let random = &mut fastrand::Rng::with_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in FILES {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = match random.u8(..3) {
                0 => text.as_bytes().to_vec(),
                _ => garbled(text.as_bytes(), random),
            };
            std::fs::write(path, text).unwrap();
        }
        let root = HostRoot::new(dir.path());
        let mut buf = ReadBuf::default();
        let _ = Topology::read(&root, &mut buf);
        let _ = NodeCpuInfo::read(&root, &mut buf);
        let _ = NodeNumaInfo::read(&root, &mut buf);
        let _ = Hierarchies::detect(&root, &mut buf);
    });
}
