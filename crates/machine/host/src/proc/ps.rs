//! The process list, with the columns of `ps`.

use std::collections::HashMap;
use std::time::Duration;

use super::Procfs;
use super::stat::{ProcStat, read_uptime, ticks_per_second};
use crate::parse::{self, Malformed};
use crate::{HostError, HostRoot, ReadBuf, Result, Timestamp, read_file};

/// The fields of `/proc/PID/stat` that matter here. Times in clock ticks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PidStat {
    pub comm: String,
    pub state: u8,
    pub ppid: u32,
    pub group: i64,
    pub session: i64,
    /// The terminal's foreground process group, -1 without a terminal.
    pub foreground: i64,
    pub user_ticks: u64,
    pub system_ticks: u64,
    pub nice: i64,
    pub threads: u64,
    /// Since boot.
    pub start_ticks: u64,
    pub virtual_bytes: u64,
    pub rss_pages: u64,
    /// The CPU it last ran on.
    pub processor: u64,
}

pub fn parse_pid_stat(text: &[u8]) -> Result<PidStat, Malformed> {
    let text = parse::whole_lines(text)?;
    let bad = || Malformed::at(0, parse::trim(text));
    // The command may hold blanks and parentheses; the last `)` ends it.
    let open = memchr::memchr(b'(', text).ok_or_else(bad)?;
    let close = memchr::memrchr(b')', text).ok_or_else(bad)?;
    let comm = text.get(open + 1..close).ok_or_else(bad)?;
    // Numbered as in proc(5) less three: the state is the first.
    let mut fields = [&b""[..]; 37];
    let mut words = parse::words(&text[close + 1..]);
    for field in &mut fields {
        *field = words.next().ok_or_else(bad)?;
    }
    let [state] = fields[0] else {
        return Err(bad());
    };
    let unsigned = |at: usize| parse::u64(fields[at]).ok_or_else(bad);
    let signed = |at: usize| parse::i64(fields[at]).ok_or_else(bad);
    Ok(PidStat {
        comm: String::from_utf8_lossy(comm).into_owned(),
        state: *state,
        ppid: u32::try_from(unsigned(1)?).map_err(|_| bad())?,
        group: signed(2)?,
        session: signed(3)?,
        foreground: signed(5)?,
        user_ticks: unsigned(11)?,
        system_ticks: unsigned(12)?,
        nice: signed(16)?,
        threads: unsigned(17)?,
        start_ticks: unsigned(19)?,
        virtual_bytes: unsigned(20)?,
        // A kernel thread's count may be printed as a small negative.
        rss_pages: u64::try_from(signed(21)?).unwrap_or(0),
        processor: unsigned(36)?,
    })
}

/// The fields of `/proc/PID/status` that `stat` does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PidStatus {
    pub effective_uid: u32,
    pub locked_bytes: u64,
}

pub fn parse_pid_status(text: &[u8]) -> Result<PidStatus, Malformed> {
    let text = parse::whole_lines(text)?;
    let mut status = PidStatus::default();
    for (index, line) in parse::numbered(text) {
        let bad = || Malformed::at(index, line);
        if let Some(ids) = line.strip_prefix(b"Uid:") {
            let uid = parse::words(ids).nth(1).and_then(parse::u64);
            status.effective_uid = uid
                .and_then(|uid| u32::try_from(uid).ok())
                .ok_or_else(bad)?;
        } else if let Some(rest) = line.strip_prefix(b"VmLck:") {
            let kib = parse::words(rest).next().and_then(parse::u64);
            status.locked_bytes = kib.ok_or_else(bad)?.saturating_mul(1024);
        }
    }
    Ok(status)
}

/// The cgroup that reports file a process under: the unified one, or on v1 that of the cpu controller.
pub fn parse_pid_cgroup(text: &[u8]) -> Option<&[u8]> {
    let mut unified = None;
    let mut by_cpu = None;
    for line in parse::lines(text) {
        let mut parts = line.splitn(3, |&b| b == b':');
        let (Some(number), Some(controllers), Some(path)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if number == b"0" && controllers.is_empty() {
            unified = Some(path);
        } else if controllers.split(|&b| b == b',').any(|c| c == b"cpu") {
            by_cpu = Some(path);
        }
    }
    // On a hybrid machine the unified tree holds no figures.
    by_cpu.or(unified)
}

/// `/etc/passwd`: user names by number; the first entry of a number wins.
pub fn parse_passwd(text: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in parse::lines(text) {
        let mut parts = line.split(|&b| b == b':');
        let name = parts.next().unwrap_or(b"");
        let uid = parts.nth(1).and_then(parse::u64);
        if let Some(uid) = uid.and_then(|uid| u32::try_from(uid).ok())
            && !name.is_empty()
        {
            names
                .entry(uid)
                .or_insert_with(|| String::from_utf8_lossy(name).into_owned());
        }
    }
    names
}

/// One row of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// The name, or the number where `/etc/passwd` has none.
    pub user: String,
    pub pid: u32,
    pub ppid: u32,
    pub start_time: String,
    /// Of one CPU, over the process's life.
    pub percent_cpu_tenths: u64,
    pub percent_mem_tenths: u64,
    pub rss_bytes: u64,
    pub virtual_bytes: u64,
    pub status: String,
    pub running_time: String,
    pub command: String,
    pub processor: u64,
    pub cgroup: String,
}

/// What turns raw figures into a row.
#[derive(Debug, Clone, Copy)]
pub struct PsContext<'a> {
    pub now: Timestamp,
    pub boot: Timestamp,
    pub uptime: Duration,
    pub memory_total: u64,
    pub page_size: u64,
    pub ticks_per_second: u64,
    /// Of the local time zone, for start times.
    pub utc_offset_secs: i64,
    pub users: &'a HashMap<u32, String>,
}

impl PsContext<'_> {
    pub fn row(&self, pid: u32, stat: PidStat, status: PidStatus, cgroup: &[u8]) -> Process {
        let hz = self.ticks_per_second.max(1);
        let cpu_ticks = stat.user_ticks.saturating_add(stat.system_ticks);
        let lived = self.uptime.as_secs().saturating_sub(stat.start_ticks / hz);
        let cpu_tenths = (cpu_ticks.saturating_mul(1000) / hz).checked_div(lived);
        let rss_bytes = stat.rss_pages.saturating_mul(self.page_size);
        let mem_tenths = rss_bytes
            .saturating_mul(1000)
            .checked_div(self.memory_total);
        let started = Duration::from_secs(stat.start_ticks / hz);
        let user = self.users.get(&status.effective_uid).cloned();
        Process {
            user: user.unwrap_or_else(|| status.effective_uid.to_string()),
            pid,
            ppid: stat.ppid,
            start_time: start_text(self.boot.plus(started), self.now, self.utc_offset_secs),
            percent_cpu_tenths: cpu_tenths.unwrap_or(0),
            percent_mem_tenths: mem_tenths.unwrap_or(0).min(999),
            rss_bytes,
            virtual_bytes: stat.virtual_bytes,
            status: status_text(pid, &stat, &status),
            running_time: time_text(cpu_ticks / hz),
            processor: stat.processor,
            cgroup: String::from_utf8_lossy(cgroup).into_owned(),
            command: match stat.state {
                b'Z' => short(&stat.comm) + " <defunct>",
                _ => short(&stat.comm),
            },
        }
    }
}

/// Workers of the kernel have longer names than programs can have; `ps` shows as much as fits a program's.
fn short(comm: &str) -> String {
    comm.chars().take(15).collect()
}

/// Lists all processes. One that ends meanwhile is left out.
pub fn list_processes(
    root: &HostRoot,
    now: Timestamp,
    utc_offset_secs: i64,
    buf: &mut ReadBuf,
) -> Result<Vec<Process>> {
    let procfs = Procfs::open(root)?;
    let mut machine = ProcStat::default();
    machine.read(root, buf)?;
    let users = read_file(&root.path("/etc/passwd"), buf)?
        .map(parse_passwd)
        .unwrap_or_default();
    let memory = super::meminfo::read_meminfo(root, buf)?.unwrap_or_default();
    let context = PsContext {
        now,
        boot: machine.boot(),
        uptime: read_uptime(root, buf)?.unwrap_or_default(),
        memory_total: memory.total,
        page_size: rustix::param::page_size() as u64,
        ticks_per_second: ticks_per_second(),
        utc_offset_secs,
        users: &users,
    };
    let mut pids = Vec::new();
    procfs.pids(&mut pids)?;
    let mut list = Vec::with_capacity(pids.len());
    for pid in pids {
        let Some(stat) = absent_if_gone(procfs.parse(pid, "stat", buf, parse_pid_stat))? else {
            continue;
        };
        let Some(status) = absent_if_gone(procfs.parse(pid, "status", buf, parse_pid_status))?
        else {
            continue;
        };
        let cgroup = procfs.read(pid, "cgroup", buf)?.and_then(parse_pid_cgroup);
        list.push(context.row(pid, stat, status, cgroup.unwrap_or(b"")));
    }
    Ok(list)
}

/// A file that was cut off because its process ended reads as empty, not as an error.
fn absent_if_gone<T>(outcome: Result<Option<T>>) -> Result<Option<T>> {
    match outcome {
        Err(HostError::Malformed { text, .. }) if text.is_empty() => Ok(None),
        other => other,
    }
}

fn status_text(pid: u32, stat: &PidStat, status: &PidStatus) -> String {
    let mut text = String::from(char::from(stat.state));
    let pid = i64::from(pid);
    let marks = [
        (stat.nice < 0, '<'),
        (stat.nice > 0, 'N'),
        (status.locked_bytes > 0, 'L'),
        (stat.session == pid, 's'),
        (stat.threads > 1, 'l'),
        (stat.group == stat.foreground, '+'),
    ];
    text.extend(
        marks
            .iter()
            .filter(|(holds, _)| *holds)
            .map(|(_, mark)| mark),
    );
    text
}

/// `[D-]HH:MM:SS`.
pub fn time_text(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let clock = format!("{:02}:{:02}:{:02}", rest / 3600, rest / 60 % 60, rest % 60);
    match days {
        0 => clock,
        days => format!("{days}-{clock}"),
    }
}

/// `14:05` for today, `Nov15` for this year, `2025` for any other.
pub fn start_text(start: Timestamp, now: Timestamp, utc_offset_secs: i64) -> String {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let start_secs = start.secs().saturating_add(utc_offset_secs);
    let now_secs = now.secs().saturating_add(utc_offset_secs);
    let (year, month, day) = civil_date(start_secs.div_euclid(86_400));
    let (this_year, this_month, today) = civil_date(now_secs.div_euclid(86_400));
    if year != this_year {
        return year.to_string();
    }
    if (month, day) != (this_month, today) {
        return format!("{}{day:02}", MONTHS[month - 1]);
    }
    let second = start_secs.rem_euclid(86_400);
    format!("{:02}:{:02}", second / 3600, second / 60 % 60)
}

/// Year, month (from 1) and day of a day counted from the epoch, in the Gregorian calendar.
fn civil_date(day: i64) -> (i64, usize, i64) {
    // Years are taken to begin in March, so that the leap day is the last; an era is 400 of them.
    const ERA: i64 = 146_097;
    let day = day.saturating_add(719_468);
    let (era, of_era) = (day.div_euclid(ERA), day.rem_euclid(ERA));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 {
        from_march + 3
    } else {
        from_march - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month as usize, day_of_month)
}

#[cfg(test)]
#[path = "ps_tests.rs"]
mod tests;
