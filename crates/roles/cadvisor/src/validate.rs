//! `/validate/`: what this machine offers, and what is missing, under the original's headings and with its verdicts:
//! support scripts search for those. The texts below are ours.

use std::fmt::Write;

use plimsoll_host::cgroup::{Controller, Mode};

/// Without these little is shown; each of the others costs only its own values.
const REQUIRED: [Controller; 2] = [Controller::Cpu, Controller::Cpuacct];
const USEFUL: [Controller; 4] = [
    Controller::Memory,
    Controller::Blkio,
    Controller::Cpuset,
    Controller::Pids,
];

const GOOD: &str = "[Supported and recommended]";
const FAIR: &str = "[Supported, but not recommended]";
const BAD: &str = "[Unsupported]";
const UNKNOWN: &str = "[Unknown]";

/// Everything the report is made of.
#[derive(Debug)]
pub struct ValidateInput {
    pub version: String,
    pub os: String,
    pub kernel: String,
    pub mode: Mode,
    /// What is mounted where.
    pub mounts: Vec<(Controller, String)>,
    pub has_kernel_log: bool,
    /// Each with whether it answers.
    pub runtimes: Vec<(&'static str, bool)>,
    /// Each with its scheduler.
    pub disks: Vec<(String, String)>,
    pub watches: u64,
    /// Directories the kernel refuses to watch.
    pub unwatched: u64,
    /// In thousandths of what was asked for.
    pub stretch: u64,
    pub groups: Vec<&'static str>,
    pub containers: Vec<ManagedContainer>,
}

#[derive(Debug, Default)]
pub struct ManagedContainer {
    pub path: String,
    pub namespace: Option<&'static str>,
    pub aliases: Vec<String>,
}

impl ValidateInput {
    pub fn report(&self) -> String {
        let mut report = Report::default();
        report.line(format_args!("cAdvisor version: {}\n", self.version));
        report.line(format_args!("OS version: {}\n", self.os));
        report.section("Kernel version", self.kernel_verdict(), [&self.kernel]);
        let (verdict, lines) = self.cgroups();
        report.section("Cgroup setup", verdict, lines);
        let (verdict, lines) = self.mount_points();
        report.section("Cgroup mount setup", verdict, lines);
        let (version, driver, said) = self.docker();
        report.section("Docker version", version, [said]);
        report.section("Docker driver setup", driver, [said]);
        let disks = self.disks.iter();
        let disks = disks.map(|(name, scheduler)| format!("{name}: scheduler {scheduler}"));
        report.section("Block device setup", self.disk_verdict(), disks);
        let (verdict, said) = match self.has_kernel_log {
            true => (GOOD, "readable"),
            false => (
                BAD,
                "not readable, out of memory kills go unseen; give the agent /dev/kmsg",
            ),
        };
        report.section("Kernel log", verdict, [said]);
        let runtimes = self.runtimes.iter().map(|(kind, up)| match up {
            true => format!("{kind}: answers"),
            false => format!("{kind}: does not answer; its containers have no names until it does"),
        });
        report.section("Runtimes", "", runtimes);
        report.section("Inotify watches", "", self.watching());
        report.section("Sampling", "", self.sampling());
        let mut managed = Vec::new();
        for container in &self.containers {
            managed.push(container.path.clone());
            managed.extend(container.namespace.map(|n| format!("\tNamespace: {n}")));
            if !container.aliases.is_empty() {
                managed.push("\tAliases:".to_owned());
                managed.extend(container.aliases.iter().map(|alias| format!("\t\t{alias}")));
            }
        }
        report.section("Managed containers", "", managed);
        report.out
    }

    fn kernel_verdict(&self) -> &'static str {
        let mut numbers = self.kernel.split(['.', '-']).map(str::parse::<u32>);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(3..)), Some(Ok(_))) => GOOD,
            (Some(Ok(2)), Some(Ok(6..))) => FAIR,
            (Some(Ok(_)), Some(Ok(_))) => BAD,
            _ => UNKNOWN,
        }
    }

    fn cgroups(&self) -> (&'static str, Vec<String>) {
        if self.mode == Mode::V2 {
            return (GOOD, vec!["version 2".to_owned()]);
        }
        let mut verdict = GOOD;
        let mut lines = vec!["version 1".to_owned()];
        for (wanted, without) in [(&REQUIRED[..], BAD), (&USEFUL[..], FAIR)] {
            for controller in wanted {
                if self.mounts.iter().any(|(mounted, _)| mounted == controller) {
                    continue;
                }
                if verdict != BAD {
                    verdict = without;
                }
                let name = controller.name();
                lines.push(format!("{name}: not mounted, its figures are missing"));
            }
        }
        (verdict, lines)
    }

    fn mount_points(&self) -> (&'static str, Vec<String>) {
        let usual = |at: &str| at.starts_with("/sys/fs/cgroup");
        let verdict = match self.mounts.iter().all(|(_, at)| usual(at)) {
            _ if self.mounts.is_empty() => UNKNOWN,
            true => GOOD,
            false => FAIR,
        };
        let lines = self.mounts.iter().map(|(controller, at)| match self.mode {
            Mode::V2 => format!("all: {at}"),
            Mode::V1 | Mode::Hybrid => format!("{}: {at}", controller.name()),
        });
        (verdict, lines.collect())
    }

    /// Verdicts on its version and its driver, and why.
    fn docker(&self) -> (&'static str, &'static str, &'static str) {
        match self.runtimes.contains(&("docker", true)) {
            // Which version it is changes nothing here: what is asked of it is in every one since 1.24 of its interface.
            true => (GOOD, GOOD, "docker answers"),
            false => (UNKNOWN, BAD, "docker does not answer"),
        }
    }

    /// A scheduler that keeps books for each cgroup tells more than the block layer does by itself.
    fn disk_verdict(&self) -> &'static str {
        let keeps_books = |scheduler: &str| matches!(scheduler, "bfq" | "cfq");
        match self
            .disks
            .iter()
            .any(|(_, scheduler)| keeps_books(scheduler))
        {
            true => GOOD,
            false => FAIR,
        }
    }

    fn watching(&self) -> Vec<String> {
        let mut lines = vec![format!("{} directories watched", self.watches)];
        if self.unwatched > 0 {
            lines.push(format!(
                "the kernel refuses {} more; raise fs.inotify.max_user_watches to see changes there at once",
                self.unwatched
            ));
        }
        lines
    }

    fn sampling(&self) -> Vec<String> {
        let mut lines = vec![
            format!("{} containers", self.containers.len()),
            format!("groups: {}", self.groups.join(", ")),
        ];
        if self.stretch > 1000 {
            lines.push(format!(
                "intervals are stretched to {}.{:03} times; raise --cpu-budget for fresher figures",
                self.stretch / 1000,
                self.stretch % 1000
            ));
        }
        lines
    }
}

#[derive(Debug, Default)]
struct Report {
    out: String,
}

impl Report {
    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "{text}");
    }

    fn section<L: AsRef<str>>(
        &mut self,
        title: &str,
        verdict: &str,
        lines: impl IntoIterator<Item = L>,
    ) {
        self.line(format_args!("{title}: {verdict}"));
        for line in lines {
            self.line(format_args!("\t{}", line.as_ref()));
        }
        self.out.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> ValidateInput {
        let all = REQUIRED.iter().chain(&USEFUL);
        let mount = |c: &Controller| (*c, format!("/sys/fs/cgroup/{}", c.name()));
        ValidateInput {
            version: "v1".to_owned(),
            os: "Debian".to_owned(),
            kernel: "6.18.44-x".to_owned(),
            mode: Mode::Hybrid,
            mounts: all.map(mount).collect(),
            has_kernel_log: true,
            runtimes: vec![("docker", false)],
            disks: vec![("vda".to_owned(), "mq-deadline".to_owned())],
            containers: vec![ManagedContainer {
                path: "/a".to_owned(),
                namespace: Some("containerd"),
                aliases: vec!["x".to_owned(), "/a".to_owned()],
            }],
            watches: 7,
            unwatched: 0,
            stretch: 1000,
            groups: vec!["cpu"],
        }
    }

    /// Title and verdict of each section.
    fn sections(facts: &ValidateInput) -> Vec<(String, String)> {
        let report = facts.report();
        let heads = report
            .lines()
            .filter(|l| !l.is_empty() && !l.starts_with('\t'));
        let parts = heads.filter_map(|head| head.split_once(": "));
        parts
            .map(|(title, verdict)| (title.to_owned(), verdict.to_owned()))
            .collect()
    }

    /// What a real cAdvisor 0.60.6 said of such a machine, and three sections of ours.
    #[test]
    fn under_the_originals_headings() {
        let told = sections(&machine());
        let told: Vec<_> = told.iter().map(|(t, v)| (t.as_str(), v.as_str())).collect();
        assert_eq!(
            told,
            [
                ("cAdvisor version", "v1"),
                ("OS version", "Debian"),
                ("Kernel version", GOOD),
                ("Cgroup setup", GOOD),
                ("Cgroup mount setup", GOOD),
                ("Docker version", UNKNOWN),
                ("Docker driver setup", BAD),
                ("Block device setup", FAIR),
                ("Kernel log", GOOD),
                ("Runtimes", ""),
                ("Inotify watches", ""),
                ("Sampling", ""),
                ("Managed containers", ""),
            ]
        );
        let report = machine().report();
        let end = "\nManaged containers: \n\t/a\n\t\tNamespace: containerd\n\t\tAliases:\n\t\t\tx\n\t\t\t/a\n\n";
        assert!(report.ends_with(end), "{report}");
    }

    #[test]
    fn what_is_missing() {
        let verdict = |facts: &ValidateInput, title: &str| {
            let told = sections(facts);
            let found = told.into_iter().find(|(known, _)| known == title);
            found.unwrap().1
        };
        let mut facts = machine();
        facts.mounts.retain(|(c, _)| *c != Controller::Memory);
        assert_eq!(verdict(&facts, "Cgroup setup"), FAIR);
        assert!(facts.report().contains("\tmemory: not mounted"));
        facts.mounts.retain(|(c, _)| *c != Controller::Cpu);
        assert_eq!(verdict(&facts, "Cgroup setup"), BAD);
        facts.mounts.clear();
        assert_eq!(verdict(&facts, "Cgroup mount setup"), UNKNOWN);
        facts.mode = Mode::V2;
        facts.mounts = vec![(Controller::Cpu, "/elsewhere".to_owned())];
        assert_eq!(verdict(&facts, "Cgroup setup"), GOOD);
        assert_eq!(verdict(&facts, "Cgroup mount setup"), FAIR);
        facts.has_kernel_log = false;
        assert_eq!(verdict(&facts, "Kernel log"), BAD);
        facts.disks[0].1 = "bfq".to_owned();
        assert_eq!(verdict(&facts, "Block device setup"), GOOD);
        facts.runtimes[0].1 = true;
        assert_eq!(verdict(&facts, "Docker driver setup"), GOOD);
        for (kernel, expected) in [
            ("2.6.32", FAIR),
            ("2.4.1", BAD),
            ("odd", UNKNOWN),
            ("5.10", GOOD),
        ] {
            facts.kernel = kernel.to_owned();
            assert_eq!(verdict(&facts, "Kernel version"), expected, "{kernel}");
        }
    }
}
