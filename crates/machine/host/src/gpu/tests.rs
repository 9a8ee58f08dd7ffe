//! Against a library of our own that answers like the driver's: two GPUs, three processes, one fatal error.

use std::path::PathBuf;

use super::*;
use crate::HostRoot;

const STAND_IN: &str = r#"
#include <string.h>
typedef unsigned int u32;
typedef unsigned long long u64;
struct memory { u64 total, free, used; };
struct pci { char legacy[16]; u32 domain, bus, device, id, sub; char bus_id[32]; };
struct process { u32 pid; u64 memory; u32 gi, ci; };
struct sample { u32 pid; u64 at; u32 sm, mem, enc, dec; };
struct event { void *device; u64 kind, data; u32 gi, ci; };
static char gpus[2];
static int errors;
static int index_of(void *d) { return (char *)d - gpus; }
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *at, u32 room) { strncpy(at, "550.54.15", room); return 0; }
int nvmlDeviceGetCount_v2(u32 *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **d) { *d = &gpus[i]; return 0; }
int nvmlDeviceGetUUID(void *d, char *at, u32 room) { strncpy(at, index_of(d) ? "GPU-b" : "GPU-a", room); return 0; }
int nvmlDeviceGetName(void *d, char *at, u32 room) { strncpy(at, "NVIDIA Stand In", room); return 0; }
int nvmlDeviceGetMinorNumber(void *d, u32 *n) { *n = index_of(d); return 0; }
int nvmlDeviceGetMemoryInfo(void *d, struct memory *m) { m->total = 1000 + index_of(d); return 0; }
int nvmlDeviceGetPciInfo_v3(void *d, struct pci *p) {
    strcpy(p->bus_id, index_of(d) ? "00000000:3C:00.0" : "00000000:3B:00.0");
    return 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, u32 *n, struct process *p) {
    if (index_of(d)) { p[0].pid = 11; p[0].memory = 700; *n = 1; return 0; }
    p[0].pid = 10; p[0].memory = 100; p[1].pid = 12; p[1].memory = 50; *n = 2;
    return 0;
}
int nvmlDeviceGetProcessUtilization(void *d, struct sample *s, u32 *n, u64 since) {
    if (index_of(d)) return 6;
    s[0].pid = 10; s[0].at = 1; s[0].sm = 90;
    s[1].pid = 10; s[1].at = 2; s[1].sm = 40;
    *n = 2;
    return 0;
}
int nvmlEventSetCreate(void **set) { *set = &errors; return 0; }
int nvmlDeviceRegisterEvents(void *d, u64 kinds, void *set) { return 0; }
int nvmlEventSetWait_v2(void *set, struct event *e, u32 ms) {
    if (errors == 2) return 10;
    e->device = &gpus[1]; e->kind = 8; e->data = errors ? 79 : 31;
    errors++;
    return 0;
}
"#;

/// Made anew for each test: what it keeps is a process's own.
fn stand_in(dir: &Path) -> PathBuf {
    let (source, library) = (dir.join("nvml.c"), dir.join("libnvml.so"));
    std::fs::write(&source, STAND_IN).unwrap();
    let built = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status()
        .expect("a C compiler is needed to build the stand-in");
    assert!(built.success());
    library
}

#[test]
fn devices_processes_and_errors() {
    let dir = tempfile::tempdir().unwrap();
    let root = HostRoot::new(dir.path());
    let pci = dir.path().join("sys/bus/pci/devices");
    let real = dir.path().join("sys/devices/pci0000:3a/0000:3b:00.0");
    std::fs::create_dir_all(&real).unwrap();
    std::fs::create_dir_all(&pci).unwrap();
    std::fs::write(real.join("numa_node"), "1\n").unwrap();
    std::os::unix::fs::symlink(
        "../../../devices/pci0000:3a/0000:3b:00.0",
        pci.join("0000:3b:00.0"),
    )
    .unwrap();

    let library = stand_in(dir.path());
    let mut gpus = Gpus::open(&root, &library).unwrap().unwrap();
    let first = Device {
        minor: 0,
        uuid: "GPU-a".into(),
        model: "NVIDIA Stand In".into(),
        driver: "550.54.15".into(),
        memory: 1000,
        numa_node: Some(1),
        pcie: "pci0000:3a".into(),
        bus: "0000:3b:00.0".into(),
        fault: None,
    };
    assert_eq!(gpus.devices()[0], first);
    assert_eq!(gpus.devices()[1].numa_node, None);

    // The newest figure counts; who has but one of two figures does not.
    let mut problems = Vec::new();
    let expected = [ProcessUse {
        pid: 10,
        device: 0,
        cores: 40,
        memory: 100,
    }];
    assert_eq!(gpus.processes(&mut problems), expected);
    assert!(problems.is_empty());

    // 31 is a program's fault, 79 the hardware's.
    assert!(gpus.poll_xid_events());
    assert_eq!(gpus.devices()[0].fault, None);
    assert_eq!(gpus.devices()[1].fault, Some(79));
    assert!(!gpus.poll_xid_events());
}

#[test]
fn without_a_library_there_are_no_gpus() {
    let root = HostRoot::new("/");
    let missing = Path::new("/nowhere/libnvidia-ml.so.1");
    assert!(Gpus::open(&root, missing).unwrap().is_none());
}

#[test]
fn addresses() {
    assert_eq!(sysfs_address("00000000:3B:00.0"), "0000:3b:00.0");
    assert_eq!(sysfs_address("0001:3b:00.0"), "0001:3b:00.0");
}
