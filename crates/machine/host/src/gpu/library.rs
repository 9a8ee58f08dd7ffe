//! NVML's functions, loaded at run time. The only unsafe code for GPUs.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::Path;

use crate::{HostError, Result};

/// What the driver installs; the dynamic linker knows where.
pub const LIBRARY: &str = "libnvidia-ml.so.1";

const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;
const TEXT_ROOM: usize = 96;
const XID_CRITICAL_ERROR: c_ulonglong = 8;

/// A GPU, as the library calls it. Valid as long as the library is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Handle(*mut c_void);

// SAFETY: the library's functions may be called from any thread, and handles are plain names to it.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

#[repr(C)]
#[derive(Default)]
struct MemoryInfo {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

#[repr(C)]
#[derive(Clone, Default)]
struct ProcessInfo {
    pid: c_uint,
    used_memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
#[derive(Clone, Default)]
struct UtilizationSample {
    pid: c_uint,
    at: c_ulonglong,
    sm: c_uint,
    memory: c_uint,
    encoder: c_uint,
    decoder: c_uint,
}

#[repr(C)]
struct EventData {
    device: *mut c_void,
    kind: c_ulonglong,
    data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

type Plain = unsafe extern "C" fn() -> c_int;
type SystemText = unsafe extern "C" fn(*mut c_char, c_uint) -> c_int;
type Count = unsafe extern "C" fn(*mut c_uint) -> c_int;
type ByIndex = unsafe extern "C" fn(c_uint, *mut *mut c_void) -> c_int;
type DeviceText = unsafe extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int;
type DeviceNumber = unsafe extern "C" fn(*mut c_void, *mut c_uint) -> c_int;
type DeviceMemory = unsafe extern "C" fn(*mut c_void, *mut MemoryInfo) -> c_int;
type DevicePci = unsafe extern "C" fn(*mut c_void, *mut PciInfo) -> c_int;
type Running = unsafe extern "C" fn(*mut c_void, *mut c_uint, *mut ProcessInfo) -> c_int;
type Utilization =
    unsafe extern "C" fn(*mut c_void, *mut UtilizationSample, *mut c_uint, c_ulonglong) -> c_int;
type EventSetCreate = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
type RegisterEvents = unsafe extern "C" fn(*mut c_void, c_ulonglong, *mut c_void) -> c_int;
type EventSetWait = unsafe extern "C" fn(*mut c_void, *mut EventData, c_uint) -> c_int;

/// The functions, as the library exports them.
#[derive(Debug)]
struct Functions {
    shutdown: Plain,
    driver_version: SystemText,
    count: Count,
    by_index: ByIndex,
    uuid: DeviceText,
    name: DeviceText,
    minor: DeviceNumber,
    memory: DeviceMemory,
    pci: DevicePci,
    running: Running,
    utilization: Utilization,
    events: Option<(EventSetCreate, RegisterEvents, EventSetWait)>,
}

#[derive(Debug)]
pub(super) struct Library {
    functions: Functions,
    event_set: Handle,
    /// Never closed: the library keeps threads of its own, which must not lose their code.
    name: Box<str>,
}

impl Library {
    /// `Ok(None)`: there is no such library.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let name = path.display().to_string().into_boxed_str();
        let Ok(file) = CString::new(name.as_bytes()) else {
            return Ok(None);
        };
        // SAFETY: the name is a C string; the library's initialisers are trusted as the driver is.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Ok(None);
        }
        let Some((init, functions)) = find_functions(library) else {
            let problem = format!("{name} lacks functions; the driver is too old");
            return Err(HostError::Unsupported(problem.into()));
        };
        let mut this = Self {
            functions,
            event_set: Handle(std::ptr::null_mut()),
            name,
        };
        // SAFETY: the function takes nothing and may be called once the library is loaded.
        this.check("init", unsafe { init() })?;
        if let Some((create, ..)) = this.functions.events {
            let mut set = std::ptr::null_mut();
            // SAFETY: the pointer is to a place for a handle.
            if unsafe { create(&mut set) } == SUCCESS {
                this.event_set = Handle(set);
            }
        }
        Ok(Some(this))
    }

    fn check(&self, what: &str, code: c_int) -> Result<()> {
        match code {
            SUCCESS => Ok(()),
            code => Err(HostError::Unsupported(
                format!("{}: {what} failed with code {code}", self.name).into(),
            )),
        }
    }

    fn text(&self, what: &str, call: impl FnOnce(*mut c_char, c_uint) -> c_int) -> Result<String> {
        let mut room = [0 as c_char; TEXT_ROOM];
        self.check(what, call(room.as_mut_ptr(), TEXT_ROOM as c_uint))?;
        Ok(read_text(&room))
    }

    pub fn driver_version(&self) -> Result<String> {
        // SAFETY: the pointer is to as much room as is said.
        self.text("driver version", |at, room| unsafe {
            (self.functions.driver_version)(at, room)
        })
    }

    pub fn count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: the pointer is to a number.
        self.check("count", unsafe { (self.functions.count)(&mut count) })?;
        Ok(count)
    }

    pub fn handle(&self, index: u32) -> Result<Handle> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the pointer is to a place for a handle.
        let code = unsafe { (self.functions.by_index)(index, &mut handle) };
        self.check("device", code)?;
        Ok(Handle(handle))
    }

    pub fn uuid(&self, device: &Handle) -> Result<String> {
        // SAFETY: the handle is the library's own, the pointer to as much room as is said.
        self.text("uuid", |at, room| unsafe {
            (self.functions.uuid)(device.0, at, room)
        })
    }

    pub fn name(&self, device: &Handle) -> Result<String> {
        // SAFETY: as above.
        self.text("name", |at, room| unsafe {
            (self.functions.name)(device.0, at, room)
        })
    }

    pub fn minor(&self, device: &Handle) -> Result<u32> {
        let mut minor = 0;
        // SAFETY: the handle is the library's own, the pointer to a number.
        let code = unsafe { (self.functions.minor)(device.0, &mut minor) };
        self.check("minor number", code)?;
        Ok(minor)
    }

    /// All there is, in bytes.
    pub fn memory(&self, device: &Handle) -> Result<u64> {
        let mut memory = MemoryInfo::default();
        // SAFETY: the handle is the library's own, the pointer to the structure that it fills.
        let code = unsafe { (self.functions.memory)(device.0, &mut memory) };
        self.check("memory", code)?;
        Ok(memory.total)
    }

    pub fn bus_id(&self, device: &Handle) -> Result<String> {
        let mut pci = PciInfo {
            bus_id_legacy: [0; 16],
            domain: 0,
            bus: 0,
            device: 0,
            device_id: 0,
            subsystem_id: 0,
            bus_id: [0; 32],
        };
        // SAFETY: as above.
        let code = unsafe { (self.functions.pci)(device.0, &mut pci) };
        self.check("pci", code)?;
        Ok(read_text(&pci.bus_id))
    }

    /// Processes that compute, with the bytes they hold.
    pub fn running(&self, device: &Handle) -> Result<Vec<(u32, u64)>> {
        let mut room = vec![ProcessInfo::default(); 64];
        loop {
            let mut count = room.len() as c_uint;
            // SAFETY: the pointer is to as many structures as is said.
            let code = unsafe { (self.functions.running)(device.0, &mut count, room.as_mut_ptr()) };
            if code == INSUFFICIENT_SIZE && room.len() < 1 << 16 {
                room.resize(room.len() * 2, ProcessInfo::default());
                continue;
            }
            self.check("running processes", code)?;
            room.truncate(count as usize);
            return Ok(room.iter().map(|one| (one.pid, one.used_memory)).collect());
        }
    }

    /// Processes with the share of the cores' time that they had of late, in percent: the newest figure of each.
    pub fn utilization(&self, device: &Handle) -> Result<Vec<(u32, u32)>> {
        let mut room = vec![UtilizationSample::default(); 128];
        loop {
            let mut count = room.len() as c_uint;
            // SAFETY: the pointer is to as many structures as is said.
            let code =
                unsafe { (self.functions.utilization)(device.0, room.as_mut_ptr(), &mut count, 0) };
            match code {
                INSUFFICIENT_SIZE if room.len() < 1 << 16 => {
                    room.resize(room.len() * 2, UtilizationSample::default());
                    continue;
                }
                // Nothing ran of late.
                NOT_FOUND | NOT_SUPPORTED => return Ok(Vec::new()),
                code => self.check("process utilization", code)?,
            }
            room.truncate(count as usize);
            room.sort_by_key(|one| (one.pid, std::cmp::Reverse(one.at)));
            room.dedup_by_key(|one| one.pid);
            return Ok(room.iter().map(|one| (one.pid, one.sm)).collect());
        }
    }

    /// Asks to be told of fatal errors; a GPU that cannot tell is taken for well.
    pub fn listen_for_errors(&self, devices: &[Handle]) {
        let Some((_, register, _)) = self.functions.events else {
            return;
        };
        if self.event_set.0.is_null() {
            return;
        }
        for device in devices {
            // SAFETY: both handles are the library's own.
            unsafe { register(device.0, XID_CRITICAL_ERROR, self.event_set.0) };
        }
    }

    /// The next fatal error that was reported: whose, and its number.
    pub fn next_error(&self) -> Option<(Handle, u64)> {
        let (.., wait) = self.functions.events?;
        if self.event_set.0.is_null() {
            return None;
        }
        let mut data = EventData {
            device: std::ptr::null_mut(),
            kind: 0,
            data: 0,
            gpu_instance: 0,
            compute_instance: 0,
        };
        // SAFETY: the handle is the library's own, the pointer to the structure that it fills; it does not wait.
        let code = unsafe { wait(self.event_set.0, &mut data, 0) };
        (code == SUCCESS && data.kind == XID_CRITICAL_ERROR)
            .then_some((Handle(data.device), data.data))
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the library was initialised, and no handle outlives this.
        unsafe { (self.functions.shutdown)() };
    }
}

fn read_text(room: &[c_char]) -> String {
    let bytes: Vec<u8> = room.iter().map(|c| *c as u8).collect();
    match CStr::from_bytes_until_nul(&bytes) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
    }
}

/// The first of some names that the library has, as a function of type `F`.
fn find<F: Copy>(library: *mut c_void, names: &[&CStr]) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    names.iter().find_map(|name| {
        // SAFETY: the library is open, the name a C string.
        let found = unsafe { libc::dlsym(library, name.as_ptr()) };
        // SAFETY: callers name the function's type as the library documents it, and its size was checked.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&found) })
    })
}

fn find_functions(library: *mut c_void) -> Option<(Plain, Functions)> {
    let init: Plain = find(library, &[c"nvmlInit_v2"])?;
    let events = find(library, &[c"nvmlEventSetCreate"])
        .zip(find(library, &[c"nvmlDeviceRegisterEvents"]))
        .zip(find(library, &[c"nvmlEventSetWait_v2"]));
    let functions = Functions {
        shutdown: find(library, &[c"nvmlShutdown"])?,
        driver_version: find(library, &[c"nvmlSystemGetDriverVersion"])?,
        count: find(library, &[c"nvmlDeviceGetCount_v2"])?,
        by_index: find(library, &[c"nvmlDeviceGetHandleByIndex_v2"])?,
        uuid: find(library, &[c"nvmlDeviceGetUUID"])?,
        name: find(library, &[c"nvmlDeviceGetName"])?,
        minor: find(library, &[c"nvmlDeviceGetMinorNumber"])?,
        memory: find(library, &[c"nvmlDeviceGetMemoryInfo"])?,
        pci: find(library, &[c"nvmlDeviceGetPciInfo_v3"])?,
        // Both have the same structure.
        running: find(
            library,
            &[
                c"nvmlDeviceGetComputeRunningProcesses_v3",
                c"nvmlDeviceGetComputeRunningProcesses_v2",
            ],
        )?,
        utilization: find(library, &[c"nvmlDeviceGetProcessUtilization"])?,
        events: events.map(|((create, register), wait)| (create, register, wait)),
    };
    Some((init, functions))
}
