//! Parses OOM kills from the kernel log.
//!
//! A pure state machine: records in, kills out. Since 5.0 one line tells everything about the first victim; before,
//! the facts are spread over several lines, which logs of different tasks may part. A victim's number and name always
//! come from one line, so a kill is never put together from two.

use std::collections::VecDeque;
use std::time::Duration;

use crate::kmsg::{Part, Record};
use crate::{Timestamp, parse};

/// Which limit memory ran out under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Constraint {
    /// The whole machine.
    None,
    Cpuset,
    MemoryPolicy,
    Memcg,
    /// The kernel did not say.
    Unknown,
}

impl Constraint {
    /// As the kernel spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "CONSTRAINT_NONE",
            Self::Cpuset => "CONSTRAINT_CPUSET",
            Self::MemoryPolicy => "CONSTRAINT_MEMORY_POLICY",
            Self::Memcg => "CONSTRAINT_MEMCG",
            Self::Unknown => "",
        }
    }

    fn of(name: &str) -> Self {
        [Self::None, Self::Cpuset, Self::MemoryPolicy, Self::Memcg]
            .into_iter()
            .find(|constraint| constraint.name() == name)
            .unwrap_or(Self::Unknown)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OomKill {
    pub at: Timestamp,
    /// Of the record that told it: the same kill read again has the same number.
    pub sequence: u64,
    /// The killed task's cgroup.
    pub container: String,
    /// The cgroup whose limit was reached; `/` when the machine ran out.
    pub victim_cgroup: String,
    pub constraint: Constraint,
    pub pid: u32,
    pub process_name: String,
}

/// What a kill's lines have told so far.
#[derive(Debug, Clone)]
struct Instance {
    caller: Option<Box<str>>,
    /// Task's cgroup and limit's cgroup, once named.
    cgroups: Option<(String, String)>,
}

/// Everything below one cgroup is being killed (`memory.oom.group`).
#[derive(Debug, Clone)]
struct Group {
    container: String,
    victim_cgroup: String,
    constraint: Constraint,
}

/// Follows the log. Feed it every record, in order.
#[derive(Debug, Default)]
pub struct OomParser {
    /// Begun and not finished, oldest first.
    open: VecDeque<Instance>,
    /// Victims told already, and when: their `Killed process` line brings nothing new.
    told: VecDeque<(u32, Timestamp)>,
    last: Option<Group>,
    group: Option<Group>,
    /// Why the next `Killed process` line happens, where an old kernel says it on the line before.
    reason: Option<Reason>,
    /// The beginning of a line that came in pieces.
    pieces: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Memcg,
    Machine,
}

impl Reason {
    fn of(text: &str) -> Option<Self> {
        if text.contains("Memory cgroup out of memory:") {
            Some(Self::Memcg)
        } else if text.contains("Out of memory:") {
            Some(Self::Machine)
        } else {
            None
        }
    }
}

/// More unfinished kills than this are leftovers of lines that were lost.
const MOST_OPEN: usize = 64;
const MOST_TOLD: usize = 4096;
/// No line of the kernel is longer.
const MOST_PIECES: usize = 8192;
/// Process numbers are given again; all lines of one kill come within moments.
const TOLD_FOR: Duration = Duration::from_secs(60);

impl OomParser {
    pub fn observe(&mut self, at: Timestamp, record: &Record) -> Option<OomKill> {
        // Programs may write what they like into the log, but not as the kernel.
        if !record.is_kernel() {
            return None;
        }
        let text = self.whole_line(record)?;
        let line = Line { at, record };
        let found = self.line(&line, &text);
        self.pieces = text;
        if record.part == Part::Whole && !is_piece(&self.pieces) {
            self.pieces.clear();
        }
        found
    }

    /// The line as far as it is known. Takes the pieces before; `observe` puts them back.
    fn whole_line(&mut self, record: &Record) -> Option<String> {
        let mut pieces = std::mem::take(&mut self.pieces);
        let follows = record.part == Part::Following
            // Newer kernels do not mark a piece that another record parted from its beginning.
            || (record.part == Part::Whole && is_piece(&pieces) && record.text.starts_with(','));
        match (follows, is_piece(&pieces)) {
            (true, _) if pieces.len() < MOST_PIECES => {
                pieces.push_str(&record.text);
                Some(pieces)
            }
            (true, _) => None,
            (false, true) if !is_about_oom(&record.text) => {
                // Somebody else's line in between.
                self.pieces = pieces;
                None
            }
            (false, _) => Some(record.text.clone()),
        }
    }

    fn line(&mut self, line: &Line<'_>, text: &str) -> Option<OomKill> {
        if text.contains(" invoked oom-killer:") {
            self.group = None;
            if self.open.len() == MOST_OPEN {
                self.open.pop_front();
            }
            self.open.push_back(Instance {
                caller: line.record.caller.clone(),
                cgroups: None,
            });
            return None;
        }
        if let Some(at) = text.find("oom-kill:constraint=") {
            let told = parse_summary(&text[at + "oom-kill:".len()..])?;
            return Some(self.summary(line, told));
        }
        if let Some(cgroups) = parse_task_in(text) {
            let instance = self.oldest(line, |instance| instance.cgroups.is_none())?;
            self.open[instance].cgroups = Some(cgroups);
            return None;
        }
        if let Some(cgroup) = parse_group(text) {
            let known = self.last.take();
            self.group = Some(Group {
                // The further victims' lines do not say where they lived: most likely where the first one did.
                container: known
                    .as_ref()
                    .map_or_else(|| cgroup.to_owned(), |known| known.container.clone()),
                victim_cgroup: known
                    .as_ref()
                    .map_or_else(|| cgroup.to_owned(), |known| known.victim_cgroup.clone()),
                constraint: known.map_or(Constraint::Memcg, |known| known.constraint),
            });
            return None;
        }
        // Kernels before 5.0 say why on a line of its own: `Out of memory: Kill process 5 (x) score 9 or …`.
        if text.contains(": Kill process ") {
            self.reason = Reason::of(text);
            return None;
        }
        let (pid, name) = parse_killed(text)?;
        self.killed(line, text, pid, name)
    }

    fn summary(&mut self, line: &Line<'_>, told: Summary<'_>) -> OomKill {
        let instance = self.oldest(line, |_| true);
        instance.and_then(|at| self.open.remove(at));
        let group = Group {
            container: told.task_memcg.to_owned(),
            victim_cgroup: told.oom_memcg.unwrap_or("/").to_owned(),
            constraint: Constraint::of(told.constraint),
        };
        self.group = None;
        self.kill(line, group, told.pid, told.task)
    }

    fn killed(&mut self, line: &Line<'_>, text: &str, pid: u32, name: &str) -> Option<OomKill> {
        let recently =
            |(told, at): &(u32, Timestamp)| *told == pid && line.at.since(*at) < TOLD_FOR;
        if self.told.iter().any(recently) {
            return None;
        }
        if let Some(group) = self.group.clone() {
            return Some(self.kill(line, group, pid, name));
        }
        let reason = Reason::of(text).or(self.reason.take());
        let fits = |instance: &Instance| match instance.cgroups {
            Some(_) => reason != Some(Reason::Machine),
            None => reason != Some(Reason::Memcg),
        };
        let found = self
            .oldest(line, |instance| {
                instance.cgroups.is_some() && fits(instance)
            })
            .or_else(|| self.oldest(line, fits))
            .and_then(|at| self.open.remove(at));
        let group = match found.map(|instance| instance.cgroups) {
            Some(Some((container, victim_cgroup))) => Group {
                container,
                victim_cgroup,
                constraint: Constraint::Memcg,
            },
            // A machine that ran out, told by an old kernel, which does not name the victim's cgroup.
            Some(None) => everywhere(),
            // Reading began in the middle of it.
            None if reason.is_some() => everywhere(),
            None => return None,
        };
        Some(self.kill(line, group, pid, name))
    }

    fn kill(&mut self, line: &Line<'_>, group: Group, pid: u32, name: &str) -> OomKill {
        if self.told.len() == MOST_TOLD {
            self.told.pop_front();
        }
        self.told.push_back((pid, line.at));
        self.last = Some(group.clone());
        OomKill {
            at: line.at,
            sequence: line.record.sequence,
            container: group.container,
            victim_cgroup: group.victim_cgroup,
            constraint: group.constraint,
            pid,
            process_name: name.to_owned(),
        }
    }

    /// The oldest open instance that fits, of the same task where the kernel names tasks.
    fn oldest(&self, line: &Line<'_>, fits: impl Fn(&Instance) -> bool) -> Option<usize> {
        self.open
            .iter()
            .position(|instance| instance.caller == line.record.caller && fits(instance))
    }
}

struct Line<'a> {
    at: Timestamp,
    record: &'a Record,
}

fn everywhere() -> Group {
    Group {
        container: "/".to_owned(),
        victim_cgroup: "/".to_owned(),
        constraint: Constraint::Unknown,
    }
}

fn is_about_oom(text: &str) -> bool {
    [
        "oom",
        "Out of memory",
        "out of memory",
        "Killed process",
        "Task in ",
    ]
    .iter()
    .any(|word| text.contains(word))
}

/// A summary or a `Task in` line whose end is still to come.
fn is_piece(text: &str) -> bool {
    (text.contains("oom-kill:constraint=") && !text.contains(",uid="))
        || (text.starts_with("Task in ") && parse_task_in(text).is_none())
}

#[derive(Debug, PartialEq, Eq)]
struct Summary<'a> {
    constraint: &'a str,
    /// `None` for `global_oom`.
    oom_memcg: Option<&'a str>,
    task_memcg: &'a str,
    task: &'a str,
    pid: u32,
}

/// `constraint=C,nodemask=N,cpuset=S,mems_allowed=M,(oom_memcg=G|global_oom),task_memcg=T,task=P,pid=N,uid=U`
fn parse_summary(text: &str) -> Option<Summary<'_>> {
    // Names of cgroups and tasks may hold commas and equal signs, so fields are found from the end backwards.
    let (rest, _) = text.rsplit_once(",uid=")?;
    let (rest, pid) = rest.rsplit_once(",pid=")?;
    let (rest, task) = rest.rsplit_once(",task=")?;
    let (rest, task_memcg) = rest.rsplit_once(",task_memcg=")?;
    let oom_memcg = rest.split_once(",oom_memcg=").map(|(_, memcg)| memcg);
    let constraint = rest.strip_prefix("constraint=")?;
    Some(Summary {
        constraint: constraint.split(',').next().unwrap_or(""),
        oom_memcg,
        task_memcg,
        task,
        pid: pid.parse().ok()?,
    })
}

/// `Task in T killed as a result of limit of M`
fn parse_task_in(text: &str) -> Option<(String, String)> {
    let (_, rest) = text.split_once("Task in ")?;
    let (task, limit) = rest.split_once(" killed as a result of limit of ")?;
    (!limit.trim().is_empty()).then(|| (rooted(task), rooted(limit)))
}

fn rooted(path: &str) -> String {
    let path = path.trim();
    match path.starts_with('/') {
        true => path.to_owned(),
        false => format!("/{path}"),
    }
}

/// `Tasks in G are going to be killed due to memory.oom.group set`
fn parse_group(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("Tasks in ")?;
    let (group, _) = rest.split_once(" are going to be killed due to memory.oom.group set")?;
    Some(group.trim())
}

/// `Killed process N (P) total-vm:…`, since 5.0 after the reason, before 4.17 with a comma before `UID`.
fn parse_killed(text: &str) -> Option<(u32, &str)> {
    let (_, rest) = text.split_once("Killed process ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let pid = parse::u64(&rest.as_bytes()[..digits])?;
    let (_, rest) = rest.split_once('(')?;
    // A name may hold parentheses; what follows it never does.
    let end = rest.find(") total-vm").or_else(|| rest.rfind(')'))?;
    Some((u32::try_from(pid).ok()?, &rest[..end]))
}

#[cfg(test)]
#[path = "oom_tests.rs"]
mod tests;
