//! A kernel for tests: cgroup files in memory, with the rules by which the real one refuses values.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use plimsoll_api::cpus::CpuSet;
use plimsoll_host::HostRoot;
use plimsoll_host::cgroup::{Controller, Hierarchies};
use rustix::io::Errno;

use crate::files::{Files, KernelFile};
use crate::{Form, Machine};

const CPUS: u32 = 8;

#[derive(Debug)]
pub struct Sim {
    pub form: Form,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Directories with their inodes.
    dirs: BTreeMap<PathBuf, u64>,
    files: BTreeMap<PathBuf, String>,
    log: Vec<Written>,
    refuse: BTreeMap<PathBuf, Errno>,
    inodes: u64,
    /// The process is killed before it writes once more.
    writes_left: Option<usize>,
    journal: Option<PathBuf>,
    /// There are tasks in every cgroup.
    populated: bool,
}

/// One write that the kernel took.
#[derive(Debug, Clone, PartialEq)]
pub struct Written {
    pub file: String,
    pub text: String,
    /// How long the journal was at that time.
    pub journal: u64,
}

/// What a new cgroup has.
fn fresh(form: Form) -> &'static [(&'static str, &'static str)] {
    match form {
        Form::V2 => &[
            ("cpu.weight", "100"),
            ("cpu.max", "max 100000"),
            ("cpu.max.burst", "0"),
            ("cpu.idle", "0"),
            ("cpuset.cpus", ""),
            ("memory.min", "0"),
            ("memory.low", "0"),
            ("memory.high", "max"),
            ("memory.max", "max"),
            ("memory.oom.group", "0"),
            ("memory.reclaim", ""),
            ("io.max", ""),
            ("cgroup.freeze", "0"),
        ],
        Form::V1 => &[
            ("cpu.shares", "1024"),
            ("cpu.cfs_quota_us", "-1"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_burst_us", "0"),
            ("cpuset.cpus", "0-7"),
            ("memory.limit_in_bytes", "9223372036854771712"),
        ],
    }
}

impl Sim {
    pub fn new(form: Form, cgroups: &[&str]) -> Arc<Self> {
        let sim = Arc::new(Self {
            form,
            state: Mutex::default(),
        });
        for cgroup in cgroups {
            sim.make(cgroup);
        }
        sim
    }

    pub fn machine(&self) -> Machine {
        let hierarchies = match self.form {
            Form::V2 => Hierarchies::v2("/cg"),
            Form::V1 => Hierarchies::v1(
                [Controller::Cpu, Controller::Cpuset, Controller::Memory]
                    .map(|controller| (controller, PathBuf::from("/cg").join(controller.name()))),
            ),
        };
        Machine::new(HostRoot::new("/none"), hierarchies)
    }

    /// The directory of a file of a cgroup.
    fn dir(&self, cgroup: &str, file: &str) -> PathBuf {
        let below = cgroup.trim_start_matches('/');
        match self.form {
            Form::V2 => Path::new("/cg").join(below),
            Form::V1 => {
                let controller = file.split('.').next().unwrap_or("");
                Path::new("/cg").join(controller).join(below)
            }
        }
    }

    /// Makes a cgroup, anew if there is one.
    pub fn make(&self, cgroup: &str) {
        let mut state = self.state.lock().unwrap();
        for (file, text) in fresh(self.form) {
            let dir = self.dir(cgroup, file);
            state.inodes += 1;
            let inode = state.inodes;
            state.dirs.insert(dir.clone(), inode);
            state.files.insert(dir.join(file), (*text).to_owned());
        }
    }

    pub fn remove(&self, cgroup: &str) {
        let mut state = self.state.lock().unwrap();
        for (file, _) in fresh(self.form) {
            let dir = self.dir(cgroup, file);
            state.dirs.remove(&dir);
            state.files.retain(|path, _| !path.starts_with(&dir));
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        let (cgroup, name) = file.rsplit_once('/').unwrap_or(("", file));
        self.dir(cgroup, name).join(name)
    }

    /// `set("/a/cpu.max", …)`: somebody else writes it.
    pub fn set(&self, file: &str, text: &str) {
        let path = self.path(file);
        self.state
            .lock()
            .unwrap()
            .files
            .insert(path, text.to_owned());
    }

    pub fn get(&self, file: &str) -> String {
        let path = self.path(file);
        self.state
            .lock()
            .unwrap()
            .files
            .get(&path)
            .cloned()
            .unwrap_or_else(|| "gone".to_owned())
    }

    pub fn delete_file(&self, file: &str) {
        let path = self.path(file);
        self.state.lock().unwrap().files.remove(&path);
    }

    pub fn refuse(&self, file: &str, errno: Option<Errno>) {
        let path = self.path(file);
        let mut state = self.state.lock().unwrap();
        match errno {
            Some(errno) => state.refuse.insert(path, errno),
            None => state.refuse.remove(&path),
        };
    }

    pub fn die_after(&self, writes: Option<usize>, journal: Option<&Path>) {
        let mut state = self.state.lock().unwrap();
        state.writes_left = writes;
        state.journal = journal.map(|dir| dir.join("protection.journal"));
    }

    pub fn populate(&self) {
        self.state.lock().unwrap().populated = true;
    }

    /// All files with what they have.
    pub fn files(&self) -> BTreeMap<PathBuf, String> {
        self.state.lock().unwrap().files.clone()
    }

    pub fn set_files(&self, files: &BTreeMap<PathBuf, String>) {
        self.state.lock().unwrap().files.clone_from(files);
    }

    /// What was written since the last call.
    pub fn log(&self) -> Vec<Written> {
        std::mem::take(&mut self.state.lock().unwrap().log)
    }

    pub fn log_texts(&self) -> Vec<String> {
        let text = |written: Written| {
            let file = written.file.trim_start_matches("/cg/");
            format!("{file} = {}", written.text)
        };
        self.log().into_iter().map(text).collect()
    }
}

impl State {
    fn number(&self, path: &Path) -> Option<u64> {
        self.files.get(path)?.parse().ok()
    }

    fn cpus(&self, path: &Path) -> Option<CpuSet> {
        self.files.get(path)?.parse().ok()
    }

    fn children(&self, dir: &Path) -> Vec<PathBuf> {
        self.dirs
            .keys()
            .filter(|child| child.parent() == Some(dir))
            .cloned()
            .collect()
    }

    /// What the kernel keeps of a text, or why it refuses it.
    fn check(&self, form: Form, path: &Path, text: &str) -> Result<String, Errno> {
        let dir = path.parent().ok_or(Errno::NOENT)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let text = text.trim();
        match name.ok_or(Errno::NOENT)? {
            "cpu.weight" => match text.parse::<u64>() {
                Ok(1..=10_000) => Ok(text.to_owned()),
                Ok(_) => Err(Errno::RANGE),
                Err(_) => Err(Errno::INVAL),
            },
            "cpu.max" => {
                let (quota, period) = text.split_once(' ').ok_or(Errno::INVAL)?;
                let burst = self.number(&dir.join("cpu.max.burst")).unwrap_or(0);
                if quota != "max" {
                    let quota: u64 = quota.parse().map_err(|_| Errno::INVAL)?;
                    if quota < 1000 || burst > quota {
                        return Err(Errno::INVAL);
                    }
                }
                Ok(format!("{quota} {period}"))
            }
            "cpu.max.burst" => {
                let quota = self.files.get(&dir.join("cpu.max"));
                let quota = quota.and_then(|text| text.split(' ').next()?.parse::<u64>().ok());
                let burst: u64 = text.parse().map_err(|_| Errno::INVAL)?;
                match quota.is_some_and(|quota| burst > quota) {
                    true => Err(Errno::INVAL),
                    false => Ok(burst.to_string()),
                }
            }
            "cpu.cfs_quota_us" => {
                let quota: i64 = text.parse().map_err(|_| Errno::INVAL)?;
                let period = self.number(&dir.join("cpu.cfs_period_us"));
                self.check_quota(dir, quota, period.unwrap_or(100_000))?;
                Ok(quota.to_string())
            }
            "cpu.cfs_period_us" => {
                let period: u64 = text.parse().map_err(|_| Errno::INVAL)?;
                let quota = self.files.get(&dir.join("cpu.cfs_quota_us"));
                let quota = quota.and_then(|text| text.parse().ok()).unwrap_or(-1);
                self.check_quota(dir, quota, period)?;
                Ok(period.to_string())
            }
            "cpuset.cpus" => {
                let cpus: CpuSet = text.parse().map_err(|_| Errno::INVAL)?;
                if cpus.0.iter().any(|cpu| *cpu >= CPUS) {
                    return Err(Errno::INVAL);
                }
                if cpus.is_empty() && (form == Form::V1 || self.populated) {
                    return Err(Errno::NOSPC);
                }
                if form == Form::V1 {
                    let above = dir
                        .parent()
                        .and_then(|dir| self.cpus(&dir.join("cpuset.cpus")));
                    if above.is_some_and(|above| !cpus.0.is_subset(&above.0)) {
                        return Err(Errno::ACCESS);
                    }
                    for child in self.children(dir) {
                        let below = self.cpus(&child.join("cpuset.cpus"));
                        if below.is_some_and(|below| !below.0.is_subset(&cpus.0)) {
                            return Err(Errno::BUSY);
                        }
                    }
                }
                Ok(cpus.to_string())
            }
            name if name.starts_with("memory.") && name != "memory.oom.group" => {
                let none = if form == Form::V1 { "-1" } else { "max" };
                if text == none {
                    let none = if form == Form::V1 {
                        "9223372036854771712"
                    } else {
                        "max"
                    };
                    return Ok(none.to_owned());
                }
                let bytes: u64 = text.parse().map_err(|_| Errno::INVAL)?;
                Ok((bytes / 4096 * 4096).to_string())
            }
            _ => Ok(text.to_owned()),
        }
    }

    /// A child's share of time may not exceed that of whoever limits it.
    fn check_quota(&self, dir: &Path, quota: i64, period: u64) -> Result<(), Errno> {
        if (0..1000).contains(&quota) || !(1000..=1_000_000).contains(&period) {
            return Err(Errno::INVAL);
        }
        if quota >= 0 && self.number(&dir.join("cpu.cfs_burst_us")) > u64::try_from(quota).ok() {
            return Err(Errno::INVAL);
        }
        let ratio = |at: &Path| -> f64 {
            if at == dir {
                return if quota < 0 {
                    f64::INFINITY
                } else {
                    quota as f64 / period as f64
                };
            }
            let quota = self.number(&at.join("cpu.cfs_quota_us"));
            let period = self.number(&at.join("cpu.cfs_period_us"));
            quota.zip(period).map_or(f64::INFINITY, |(quota, period)| {
                quota as f64 / period as f64
            })
        };
        for child in self.dirs.keys() {
            let own = ratio(child);
            let mut above = child.parent();
            while let Some(parent) = above {
                if own.is_finite() && own > ratio(parent) * (1.0 + 1e-12) {
                    return Err(Errno::INVAL);
                }
                above = parent.parent();
            }
        }
        Ok(())
    }
}

impl Files for Sim {
    fn read(&self, file: &KernelFile) -> io::Result<Option<Vec<u8>>> {
        let state = self.state.lock().unwrap();
        let text = state.files.get(&file.path());
        Ok(text.map(|text| format!("{text}\n").into_bytes()))
    }

    fn write(&self, file: &KernelFile, text: &str) -> io::Result<()> {
        let mut state = self.state.lock().unwrap();
        let path = file.path();
        if state.writes_left == Some(0) {
            drop(state);
            // An unwinding without a message.
            std::panic::resume_unwind(Box::new("killed"));
        }
        if let Some(left) = &mut state.writes_left {
            *left -= 1;
        }
        if let Some(errno) = state.refuse.get(&path) {
            return Err((*errno).into());
        }
        if !state.files.contains_key(&path) {
            return Err(Errno::NOENT.into());
        }
        let kept = state.check(self.form, &path, text)?;
        let journal = state.journal.as_ref();
        let journal = journal.and_then(|path| std::fs::metadata(path).ok());
        let written = Written {
            file: path.display().to_string(),
            text: text.trim().to_owned(),
            journal: journal.map_or(0, |found| found.len()),
        };
        state.log.push(written);
        state.files.insert(path, kept);
        Ok(())
    }

    fn append(&self, file: &KernelFile, text: &str) -> io::Result<()> {
        self.write(file, text)
    }

    fn inode(&self, dir: &KernelFile) -> io::Result<Option<u64>> {
        Ok(self.state.lock().unwrap().dirs.get(&dir.path()).copied())
    }

    fn make_dir(&self, _: &KernelFile) -> io::Result<()> {
        Err(Errno::NOSYS.into())
    }

    fn remove_dir(&self, _: &KernelFile) -> io::Result<()> {
        Err(Errno::NOSYS.into())
    }
}
