//! What is read every second must not allocate once its buffers have grown.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use plimsoll_host::fs::read_diskstats;
use plimsoll_host::proc::net::{AdvancedTcp, NetFiles};
use plimsoll_host::proc::stat::ProcStat;
use plimsoll_host::proc::taskstats::count_states;
use plimsoll_host::proc::{Procfs, SchedstatSum};
use plimsoll_host::{HostRoot, ReadBuf};

struct Counting;

thread_local! {
    // Only the thread under test counts; the harness allocates on others meanwhile.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system allocator unchanged; counting touches no memory of its own.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise about `layout` is the one that is asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, that is, from the system allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn tree() -> tempfile::TempDir {
    let temp = tempfile::tempdir().unwrap();
    let counters = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
    let files = [
        (
            "7/net/dev",
            format!("a\nb\n eth0: {counters}\n eth1: {counters}\n"),
        ),
        ("7/net/tcp", "heading\n 0: 0:0 0:0 0A 0:0 0\n".to_owned()),
        ("7/net/tcp6", "heading\n".to_owned()),
        (
            "7/net/udp",
            "heading\n 0: 0:0 0:0 07 1:2 0 0 0 0 1 2 ff 3\n".to_owned(),
        ),
        (
            "7/net/snmp",
            "Tcp: RtoMin MaxConn\nTcp: 200 -1\n".to_owned(),
        ),
        (
            "7/net/netstat",
            "TcpExt: TW PAWSEstab\nTcpExt: 1 2\n".to_owned(),
        ),
        ("7/schedstat", "1 2 3\n".to_owned()),
        ("7/stat", "7 (a b) S 1 1\n".to_owned()),
        ("7/limits", "Max open files 1024 2048 files\n".to_owned()),
        ("7/smaps_rollup", "Referenced: 4 kB\n".to_owned()),
        ("diskstats", "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n".to_owned()),
        ("stat", "cpu 1 2 3 4\ncpu0 1 2 3 4\nbtime 5\n".to_owned()),
    ];
    for (path, text) in files {
        let path = temp.path().join("proc").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let fds = temp.path().join("proc/7/fd");
    std::fs::create_dir(&fds).unwrap();
    std::os::unix::fs::symlink("socket:[1]", fds.join("0")).unwrap();
    temp
}

#[test]
fn nothing_is_allocated() {
    let temp = tree();
    let root = HostRoot::new(temp.path());
    let procfs = Procfs::open(&root).unwrap();
    let files = NetFiles::of(&root, 7);
    let mut buf = ReadBuf::default();
    let (mut interfaces, mut disks) = (Vec::new(), Vec::new());
    let mut advanced = AdvancedTcp::default();
    let mut sum = SchedstatSum::default();
    let mut round = || {
        assert!(files.interfaces(&mut buf, &mut interfaces).unwrap());
        assert_eq!(files.tcp(&mut buf).unwrap().unwrap().listen, 1);
        assert_eq!(files.udp(&mut buf).unwrap().unwrap().rx_queued, 2);
        assert!(files.advanced_tcp(&mut buf, &mut advanced).unwrap());
        assert_eq!(procfs.fd_count(7).unwrap().unwrap().sockets, 1);
        assert!(procfs.open_files_limit(7, &mut buf).unwrap().is_some());
        assert_eq!(procfs.referenced_bytes(7, &mut buf).unwrap(), Some(4096));
        assert_eq!(sum.read(&procfs, &[7], &mut buf).run_ns, 1);
        assert_eq!(count_states(&procfs, &[7], &mut buf).sleeping, 1);
    };
    round();
    let before = ALLOCATIONS.get();
    for _ in 0..3 {
        round();
    }
    assert_eq!(ALLOCATIONS.get() - before, 0);

    // These are read once for the whole machine, so a path may be built; more rows must not cost more.
    let mut stat = ProcStat::default();
    let mut cost = |rows: usize| {
        let disks_text = "8 0 sda 1 2 3 4 5 6 7 8 9 10 11\n".repeat(rows);
        std::fs::write(root.proc("diskstats"), disks_text).unwrap();
        std::fs::write(
            root.proc("stat"),
            "cpu 1 2 3 4\ncpu0 1 2 3 4\n".repeat(rows),
        )
        .unwrap();
        let mut before = 0;
        for _ in 0..2 {
            before = ALLOCATIONS.get();
            assert!(read_diskstats(&root, &mut buf, &mut disks).unwrap());
            assert!(stat.read(&root, &mut buf).unwrap());
        }
        ALLOCATIONS.get() - before
    };
    assert_eq!(cost(1), cost(500));
}
