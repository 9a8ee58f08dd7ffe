//! What the facts mean: which mechanism serves each protection, what is therefore off, and what to do.

use super::{Facts, Preemption};
use crate::cgroup::Mode;

const CAP_DAC_OVERRIDE: u32 = 1;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_SYS_RESOURCE: u32 = 24;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Ok,
    /// Something weaker does the work, or it is not needed here.
    Note,
    /// A protection is off.
    Warning,
    /// Protection cannot work at all.
    Error,
}

impl Severity {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is about, `CPU limits` for instance.
    pub about: &'static str,
    pub severity: Severity,
    /// What this machine has.
    pub found: String,
    /// What is off or weaker, and what a person can do; empty where nothing is wrong.
    pub advice: &'static str,
}

/// Everything that a person should know about a machine.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    let mut all = vec![
        cgroups(facts),
        kubelet(facts),
        writing(facts),
        own_limit(facts),
        preemption(facts),
        pressure(facts),
    ];
    all.extend(KNOBS.iter().map(|knob| knob.finding(facts)));
    all.extend([resctrl(facts), swap(facts), runtimes(facts), clock(facts)]);
    all.extend(sched_ext(facts));
    all
}

fn finding(
    about: &'static str,
    severity: Severity,
    found: impl Into<String>,
    advice: &'static str,
) -> Finding {
    Finding {
        about,
        severity,
        found: found.into(),
        advice,
    }
}

fn ok(about: &'static str, found: impl Into<String>) -> Finding {
    finding(about, Severity::Ok, found, "")
}

/// A protection and the files that serve it, the best one first.
struct Knob {
    about: &'static str,
    files: &'static [&'static str],
    /// Where none of them is there.
    severity: Severity,
    advice: &'static str,
}

impl Knob {
    fn finding(&self, facts: &Facts) -> Finding {
        match self.files.iter().find(|file| facts.has(file)) {
            Some(file) => ok(self.about, *file),
            None => finding(self.about, self.severity, "not available", self.advice),
        }
    }
}

const KNOBS: &[Knob] = &[
    Knob {
        about: "CPU shares",
        files: &["cpu.weight", "cpu.shares"],
        severity: Severity::Error,
        advice: "Batch pods cannot be given a lower CPU weight. Enable the cpu controller for the cgroups of pods.",
    },
    Knob {
        about: "CPU limits",
        files: &["cpu.max", "cpu.cfs_quota_us"],
        severity: Severity::Error,
        advice: "CPU suppression by quota and CPU burst are off. Use a kernel with CONFIG_CFS_BANDWIDTH.",
    },
    Knob {
        about: "CPU sets",
        files: &["cpuset.cpus"],
        severity: Severity::Warning,
        advice: "CPU suppression by cpuset and pinned CPUs are off. Enable the cpuset controller, or set cpuSuppressPolicy to cfsQuota.",
    },
    Knob {
        about: "CPU burst",
        files: &["cpu.max.burst", "cpu.cfs_burst_us"],
        severity: Severity::Note,
        advice: "Containers cannot save up unused quota. It needs Linux 5.14 or newer; scaling of quotas works without it.",
    },
    Knob {
        about: "idle CPU class",
        files: &["cpu.idle", "cpu.bvt_warp_ns"],
        severity: Severity::Note,
        advice: "Batch pods only have the smallest weight. It needs Linux 5.15 or newer, or an Anolis kernel.",
    },
    Knob {
        about: "memory limits",
        files: &["memory.max", "memory.limit_in_bytes"],
        severity: Severity::Error,
        advice: "Memory limits of batch pods are off. Boot without cgroup_disable=memory.",
    },
    Knob {
        about: "memory protection",
        files: &["memory.low", "memory.min"],
        severity: Severity::Warning,
        advice: "Memory QoS (min and low limits) is off, so the page cache of services can be reclaimed for batch pods. Use cgroup v2.",
    },
    Knob {
        about: "memory throttling",
        files: &["memory.high"],
        severity: Severity::Warning,
        advice: "Batch pods that leak memory are not slowed down before they are killed. Use cgroup v2.",
    },
    Knob {
        about: "memory reclaim on request",
        files: &["memory.reclaim", "memory.wmark_ratio"],
        severity: Severity::Note,
        advice: "It needs Linux 5.19 or newer with cgroup v2.",
    },
    Knob {
        about: "disk throttling",
        files: &["io.max", "blkio.throttle.read_bps_device"],
        severity: Severity::Warning,
        advice: "Disk limits of blkioQOS are off. Enable the io controller for the cgroups of pods.",
    },
    Knob {
        about: "disk weights",
        files: &["io.weight", "blkio.cost.weight"],
        severity: Severity::Note,
        advice: "ioWeightPercent of blkioQOS has no effect.",
    },
    Knob {
        about: "freeze",
        files: &["cgroup.freeze", "freezer.state"],
        severity: Severity::Note,
        advice: "Batch pods cannot be stopped at once when a service is short of memory.",
    },
    Knob {
        about: "kill of a whole cgroup",
        files: &["cgroup.kill"],
        severity: Severity::Note,
        advice: "Processes are killed one by one. It needs Linux 5.14 or newer and a cgroup2 mount.",
    },
];

fn cgroups(facts: &Facts) -> Finding {
    match (facts.mode, facts.unified) {
        (None, _) => finding(
            "cgroups",
            Severity::Error,
            "no cgroup file system is mounted",
            "Mount cgroup2 on /sys/fs/cgroup, or give the agent the host's /sys.",
        ),
        (Some(Mode::V2), _) => ok("cgroups", "v2"),
        (Some(_), true) => finding(
            "cgroups",
            Severity::Note,
            "v1, with a cgroup2 tree beside it",
            "Memory protection and pressure of cgroups need v2 controllers. Boot with systemd.unified_cgroup_hierarchy=1.",
        ),
        (Some(_), false) => finding(
            "cgroups",
            Severity::Note,
            "v1",
            "Memory protection, freezing and pressure of cgroups need cgroup v2. Boot with systemd.unified_cgroup_hierarchy=1.",
        ),
    }
}

fn kubelet(facts: &Facts) -> Finding {
    match facts.kubepods {
        Some("kubepods.slice") => ok("kubelet", "systemd driver, kubepods.slice"),
        Some(folder) => ok("kubelet", format!("cgroupfs driver, {folder}")),
        None => finding(
            "kubelet",
            Severity::Note,
            "no folder of pods in the cgroup tree",
            "There are no pods to protect here yet. Start the kubelet, or check its --cgroup-root.",
        ),
    }
}

fn writing(facts: &Facts) -> Finding {
    const ABOUT: &str = "cgroups writable";
    match facts.writable && facts.can(CAP_DAC_OVERRIDE) {
        true => ok(ABOUT, "yes"),
        false => finding(
            ABOUT,
            Severity::Error,
            "no",
            "Protection can only observe. Run as root, and mount /sys/fs/cgroup read-write into the agent's container.",
        ),
    }
}

fn own_limit(facts: &Facts) -> Finding {
    const ABOUT: &str = "CPU limit of this process";
    match facts.own_cpu_limit_milli {
        None => ok(ABOUT, "none"),
        Some(milli) => finding(
            ABOUT,
            Severity::Warning,
            format!("{milli}m"),
            "An agent that is throttled cannot protect in time. Remove the CPU limit of its container and use --cpu-budget.",
        ),
    }
}

fn preemption(facts: &Facts) -> Finding {
    const ABOUT: &str = "preemption";
    match facts.preemption {
        Some(Preemption::Lazy) => finding(
            ABOUT,
            Severity::Note,
            "lazy",
            "A service that wakes up may wait for the next tick behind batch work. Keep an idle CPU, or boot with preempt=full.",
        ),
        Some(model) => ok(ABOUT, model.as_str()),
        None => finding(
            ABOUT,
            Severity::Note,
            "not known",
            "Mount debugfs to see it. With lazy preemption (default since Linux 7.0) services may wait for a tick.",
        ),
    }
}

fn pressure(facts: &Facts) -> Finding {
    const ABOUT: &str = "pressure (PSI)";
    if !facts.pressure {
        return finding(
            ABOUT,
            Severity::Warning,
            "not available",
            "Stalls of services cannot be seen. Boot with psi=1, or use a kernel with CONFIG_PSI.",
        );
    }
    let of_cgroups = match facts.has("cpu.pressure") {
        true => "machine and cgroups",
        false => "machine only",
    };
    // Since 6.4, triggers with windows below two seconds ask for this capability.
    if facts.kernel() >= (6, 4) && !facts.can(CAP_SYS_RESOURCE) {
        return finding(
            ABOUT,
            Severity::Note,
            of_cgroups,
            "Without CAP_SYS_RESOURCE, pressure has to be polled. Add this capability to the agent.",
        );
    }
    ok(ABOUT, of_cgroups)
}

fn resctrl(facts: &Facts) -> Finding {
    const ABOUT: &str = "cache and memory bandwidth (resctrl)";
    let has = facts.resctrl;
    let found = match (has.cache, has.bandwidth) {
        (true, true) => "cache and bandwidth",
        (true, false) => "cache only",
        (false, true) => "bandwidth only",
        (false, false) => {
            return finding(
                ABOUT,
                Severity::Note,
                "the processor has none",
                "resctrlQOS has no effect. Virtual machines rarely have it.",
            );
        }
    };
    if !has.mounted && !facts.can(CAP_SYS_ADMIN) {
        return finding(
            ABOUT,
            Severity::Warning,
            format!("{found}, not mounted"),
            "Mount it (mount -t resctrl resctrl /sys/fs/resctrl), or give the agent CAP_SYS_ADMIN.",
        );
    }
    ok(ABOUT, found)
}

fn swap(facts: &Facts) -> Finding {
    const ABOUT: &str = "swap";
    match facts.swap_bytes {
        0 => finding(
            ABOUT,
            Severity::Note,
            "none",
            "Memory pressure rises only when it is nearly too late, so evictions go by levels of use.",
        ),
        bytes => ok(ABOUT, format!("{} MiB", bytes >> 20)),
    }
}

fn runtimes(facts: &Facts) -> Finding {
    const ABOUT: &str = "container runtime";
    match facts.runtimes.is_empty() {
        false => ok(ABOUT, facts.runtimes.join(", ")),
        true => finding(
            ABOUT,
            Severity::Note,
            "no socket found",
            "Containers have no names, and containers cannot be stopped. Give the agent the runtime's socket (--containerd, --docker, …).",
        ),
    }
}

fn clock(facts: &Facts) -> Finding {
    const ABOUT: &str = "clock source";
    match facts.clock_source.as_str() {
        slow @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies") => finding(
            ABOUT,
            Severity::Warning,
            slow,
            "Reading the time is slow, for all programs of this machine. See why the kernel gave up the tsc (dmesg).",
        ),
        "" => finding(ABOUT, Severity::Note, "not known", ""),
        fast => ok(ABOUT, fast),
    }
}

fn sched_ext(facts: &Facts) -> Option<Finding> {
    facts.sched_ext.then(|| {
        finding(
            "sched_ext",
            Severity::Warning,
            "enabled",
            "Another program schedules tasks. CPU weights, limits and the idle class may have no effect.",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(facts: &Facts, about: &str, severity: Severity, found: &str) {
        let all = findings(facts);
        let finding = all.iter().find(|one| one.about == about);
        let finding = finding.unwrap_or_else(|| panic!("nothing about {about}"));
        assert_eq!(
            (finding.severity, &*finding.found),
            (severity, found),
            "{about}"
        );
        let silent = finding.advice.is_empty();
        assert_eq!(
            silent,
            severity == Severity::Ok || found == "not known" && about == "clock source"
        );
    }

    /// A modern machine, on which nothing is missing.
    fn modern() -> Facts {
        Facts {
            release: "6.12.9".into(),
            mode: Some(Mode::V2),
            unified: true,
            kubepods: Some("kubepods.slice"),
            files: KNOBS.iter().flat_map(|knob| knob.files).copied().collect(),
            pressure: true,
            preemption: Some(Preemption::Full),
            resctrl: super::super::Resctrl {
                cache: true,
                bandwidth: true,
                mounted: true,
            },
            swap_bytes: 1 << 30,
            capabilities: Some(u64::MAX),
            writable: true,
            clock_source: "tsc".into(),
            runtimes: vec!["/run/containerd/containerd.sock"],
            ..Facts::default()
        }
    }

    #[test]
    fn nothing_is_wrong_with_a_modern_machine() {
        for finding in findings(&modern()) {
            assert_eq!(finding.severity, Severity::Ok, "{finding:?}");
        }
    }

    #[test]
    fn each_lack_is_named_with_advice() {
        let with = |change: fn(&mut Facts)| {
            let mut facts = modern();
            change(&mut facts);
            facts
        };
        use Severity::{Error, Note, Warning};
        check(
            &with(|f| f.writable = false),
            "cgroups writable",
            Error,
            "no",
        );
        check(
            &with(|f| f.capabilities = Some(0)),
            "cgroups writable",
            Error,
            "no",
        );
        check(
            &with(|f| f.capabilities = Some(1 << 1)),
            "pressure (PSI)",
            Note,
            "machine only",
        );
        check(
            &with(|f| f.pressure = false),
            "pressure (PSI)",
            Warning,
            "not available",
        );
        check(
            &with(|f| f.own_cpu_limit_milli = Some(500)),
            "CPU limit of this process",
            Warning,
            "500m",
        );
        check(
            &with(|f| f.preemption = Some(Preemption::Lazy)),
            "preemption",
            Note,
            "lazy",
        );
        check(
            &with(|f| f.files.clear()),
            "CPU limits",
            Error,
            "not available",
        );
        check(
            &with(|f| f.files.clear()),
            "memory throttling",
            Warning,
            "not available",
        );
        check(
            &with(|f| f.sched_ext = true),
            "sched_ext",
            Warning,
            "enabled",
        );
        check(
            &with(|f| f.clock_source = "hpet".into()),
            "clock source",
            Warning,
            "hpet",
        );
        check(
            &with(|f| f.kubepods = None),
            "kubelet",
            Note,
            "no folder of pods in the cgroup tree",
        );
        check(
            &with(|f| f.mode = None),
            "cgroups",
            Error,
            "no cgroup file system is mounted",
        );
        check(
            &with(|f| f.resctrl.cache = false),
            "cache and memory bandwidth (resctrl)",
            Severity::Ok,
            "bandwidth only",
        );
    }
}
