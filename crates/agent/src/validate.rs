//! `/validate/`: what this machine offers, and what is missing, in words.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use plimsoll_host::cgroup::{Controller, Mode};
use plimsoll_observe::exposition::Dialect;

use crate::View;

/// Without these there is little to see; the others cost single figures.
const REQUIRED: [Controller; 3] = [Controller::Cpu, Controller::Cpuacct, Controller::Memory];
const USEFUL: [Controller; 5] = [
    Controller::Blkio,
    Controller::Cpuset,
    Controller::Pids,
    Controller::Hugetlb,
    Controller::PerfEvent,
];

impl View {
    pub(crate) fn report(&self) -> String {
        let mut out = String::new();
        let version = self.version(Dialect::Cadvisor);
        // Writing to a String cannot fail.
        let mut line = |text: std::fmt::Arguments<'_>| {
            let _ = writeln!(out, "{text}");
        };
        line(format_args!("Version: {}", version.program));
        line(format_args!("OS: {}", version.os));
        line(format_args!("Kernel: {}\n", version.kernel));
        self.cgroups(&mut line);
        self.runtimes_report(&mut line);
        self.state(&mut line);
        out
    }

    fn cgroups(&self, line: &mut dyn FnMut(std::fmt::Arguments<'_>)) {
        match self.hierarchies.mode() {
            Mode::V2 => line(format_args!(
                "Cgroups: [good] version 2, one hierarchy at {}",
                self.hierarchies
                    .trees()
                    .first()
                    .map_or(String::new(), |p| p.display().to_string())
            )),
            Mode::V1 | Mode::Hybrid => {
                line(format_args!("Cgroups: version 1"));
                for (wanted, verdict) in [(&REQUIRED[..], "bad"), (&USEFUL[..], "fair")] {
                    for controller in wanted {
                        match self.hierarchies.dir(*controller, "/") {
                            Some(dir) => line(format_args!(
                                "\t{}: [good] mounted at {}",
                                controller.name(),
                                dir.display()
                            )),
                            None => line(format_args!(
                                "\t{}: [{verdict}] not mounted, its figures are missing",
                                controller.name()
                            )),
                        }
                    }
                }
            }
        }
        match &self.kernel_log {
            Some(_) => line(format_args!("Kernel log: [good] readable")),
            None => line(format_args!(
                "Kernel log: [bad] not readable, out of memory kills go unseen; give the agent /dev/kmsg"
            )),
        }
    }

    fn runtimes_report(&self, line: &mut dyn FnMut(std::fmt::Arguments<'_>)) {
        line(format_args!("\nRuntimes:"));
        for runtime in &self.containers.counters().runtimes {
            let state = if runtime.up.load(Ordering::Relaxed) {
                "[good] answers"
            } else {
                "[-] does not answer; its containers have no names until it does"
            };
            line(format_args!("\t{}: {state}", runtime.kind));
        }
    }

    fn state(&self, line: &mut dyn FnMut(std::fmt::Arguments<'_>)) {
        let discovery = &self.containers.counters().discovery;
        let unwatched = discovery.unwatched.load(Ordering::Relaxed);
        line(format_args!(
            "\nContainers: {} sampled, {} directories watched",
            self.observer.store.len(),
            discovery.watches.load(Ordering::Relaxed)
        ));
        if unwatched > 0 {
            line(format_args!(
                "Watches: [fair] the kernel refuses {unwatched} more; raise fs.inotify.max_user_watches to see changes there at once"
            ));
        }
        let stretch = self.sampling.stretch_milli.load(Ordering::Relaxed);
        if stretch > 1000 {
            line(format_args!(
                "Budget: [fair] intervals are stretched to {}.{:03} times; raise --cpu-budget for fresher figures",
                stretch / 1000,
                stretch % 1000
            ));
        }
        let groups: Vec<&str> = self.observer.groups.iter().map(|g| g.name()).collect();
        line(format_args!("Groups: {}", groups.join(", ")));
    }
}
