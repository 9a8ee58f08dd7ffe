//! koordlet's audit: `GET /events` reads the journal of changes, the newest first, page by page.
//!
//! Names, codes and texts of refusals are the original's, since clients match on them. A reader is a token and the place
//! that it has reached; what happens after its first page is not in its pages.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use plimsoll_actuate::{Line, Outcome};
use plimsoll_plan::{Knob, Target};
use serde::Serialize;

use crate::states::Pod;

/// Events of one page if nobody says.
const USUAL: usize = 256;
/// Who does not ask for so long begins anew.
const PATIENCE: Duration = Duration::from_secs(600);
/// Changes of values have this level in the original, evictions have 0.
const LEVEL_OF_CHANGES: i64 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// Events are recorded. Without it pages are empty.
    pub recorded: bool,
    /// Below 3, only evictions are shown.
    pub verbose: i64,
    /// So many may read at the same time; then the oldest one has to begin anew.
    pub readers: usize,
    /// A page has at most so many events.
    pub most: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            recorded: true,
            verbose: 3,
            readers: 4,
            most: 2048,
        }
    }
}

/// One event in the original's form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    pub created_at: String,
    #[serde(rename = "type", skip_serializing_if = "str::is_empty")]
    pub kind: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub container: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("size({asked}) exceeds the limit({most})")]
    TooLarge { asked: i64, most: usize },
    #[error("invalid pageToken {0}")]
    UnknownToken(String),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Events {
    pub events: Vec<Event>,
    /// There may be more.
    pub next: Option<String>,
}

#[derive(Debug)]
struct Reader {
    token: String,
    asked: Duration,
    /// Lines from this number on were shown, or came later.
    before: u64,
}

/// Those who read at the moment.
#[derive(Debug)]
pub struct Readers {
    pub config: Config,
    active: Mutex<VecDeque<Reader>>,
}

impl Readers {
    pub fn new(config: Config) -> Self {
        Self {
            config,
            active: Mutex::default(),
        }
    }

    /// One page. `lines`: the journal, the oldest first; `fresh`: a token that nobody has.
    pub fn page(
        &self,
        lines: &[Line],
        pods: &[Pod],
        (size, token): (Option<&str>, Option<&str>),
        now: Duration,
        fresh: String,
    ) -> Result<Events, Refused> {
        let most = self.config.most;
        // What is no number is as if it were not there.
        let asked = size.and_then(|size| size.parse::<i64>().ok());
        let size = match asked {
            None => USUAL.min(most),
            Some(asked) => match usize::try_from(asked).unwrap_or(0) {
                size if size > most => return Err(Refused::TooLarge { asked, most }),
                size => size,
            },
        };
        let mut active = self.active.lock();
        active.retain(|reader| now.saturating_sub(reader.asked) <= PATIENCE);
        let token = token.filter(|token| !token.is_empty());
        if let Some(token) = token {
            let Some(reader) = active.iter_mut().find(|reader| reader.token == token) else {
                return Err(Refused::UnknownToken(token.to_owned()));
            };
            reader.asked = now;
            return Ok(self.read(reader, lines, pods, size));
        }
        let mut reader = Reader {
            token: fresh,
            asked: now,
            before: u64::MAX,
        };
        let page = self.read(&mut reader, lines, pods, size);
        while active.len() >= self.config.readers.max(1) {
            active.pop_front();
        }
        active.push_back(reader);
        Ok(page)
    }

    fn read(&self, reader: &mut Reader, lines: &[Line], pods: &[Pod], size: usize) -> Events {
        let older = lines.iter().rev().filter(|line| line.seq < reader.before);
        let shown: Vec<&Line> = older
            .filter(|line| self.config.shows(line))
            .take(size)
            .collect();
        if let Some(last) = shown.last() {
            reader.before = last.seq;
        } else if reader.before == u64::MAX {
            // What comes later is not in its pages.
            reader.before = lines.last().map_or(0, |line| line.seq.saturating_add(1));
        }
        // As the original: a full page may have been the last one.
        let full = shown.len() == size;
        Events {
            events: shown.iter().map(|line| event(line, pods)).collect(),
            next: full.then(|| reader.token.clone()),
        }
    }
}

impl Config {
    fn shows(&self, line: &Line) -> bool {
        let is_change = line.target.is_some();
        self.recorded
            && line.outcome != Outcome::Armed
            && (!is_change || self.verbose >= LEVEL_OF_CHANGES)
    }
}

fn event(line: &Line, pods: &[Pod]) -> Event {
    let at = Timestamp::from_nanosecond(i128::from(line.at)).unwrap_or_default();
    let mut event = Event {
        created_at: at.to_string(),
        kind: "node",
        namespace: String::new(),
        name: String::new(),
        container: String::new(),
        reason: reason(line).to_owned(),
        message: line.text.clone(),
    };
    match &line.target {
        Some(Target::Cgroup { path, .. }) => of_cgroup(path, pods, &mut event),
        Some(Target::Resctrl { group, .. }) => {
            event.kind = "group";
            event.name = group.to_string();
        }
        Some(Target::Process { .. } | Target::Sysctl(_)) => {}
        // Of an eviction, it is the pod.
        None => {
            if let Some((namespace, name)) = line.file.split_once('/')
                && !namespace.is_empty()
            {
                event.kind = "pod";
                event.namespace = namespace.to_owned();
                event.name = name.to_owned();
            }
        }
    }
    event
}

/// Whose cgroup it is, by the UID in its path.
fn of_cgroup(path: &str, pods: &[Pod], event: &mut Event) {
    let owner = pods.iter().find(|pod| {
        let uid: &str = &pod.uid;
        !uid.is_empty() && (path.contains(uid) || path.contains(&uid.replace('-', "_")))
    });
    let Some(pod) = owner else {
        event.kind = "group";
        event.name = path.to_owned();
        return;
    };
    event.kind = "pod";
    event.namespace = pod.namespace.to_string();
    event.name = pod.name.to_string();
    let mut containers = pod.containers.iter();
    let container = containers.find(|one| one.id.as_deref().is_some_and(|id| path.contains(id)));
    event.container = container.map_or_else(String::new, |one| one.name.to_string());
}

/// The original's name of the reason, where it has one.
fn reason(line: &Line) -> &str {
    let knob = match &line.target {
        Some(Target::Cgroup { knob, .. }) => Some(*knob),
        _ => None,
    };
    match line.asker.as_str() {
        "cpuSuppress" => "AdjustBEByNodeCPUUsage",
        "cpuBurst" if knob == Some(Knob::CpuBurst) => "CPUBurst",
        "cpuBurst" => "CFSQuotaBurst",
        "memoryQos" => "cgroup reconcile",
        "systemConfig" => "systemConfig reconcile",
        "blkIo" => "UpdateBlkIO",
        "resctrl" => "UpdateResctrlSchemata",
        "BECPUEvict" | "CPUEvict" => "EvictPodByBECPUSatisfaction",
        "BEMemoryEvict" | "MemoryEvict" => "EvictPodByNodeMemoryUsage",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(seq: u64) -> Line {
        let text = format!("change {seq}");
        let at = seq.saturating_mul(1_000_000_000);
        let target = Target::cgroup(&"/kubepods/besteffort".into(), Knob::CpuQuota);
        serde_json::from_value(serde_json::json!({
            "seq": seq, "at": at, "outcome": "applied", "asker": "cpuSuppress", "text": text, "target": target,
        }))
        .unwrap()
    }

    fn lines(numbers: std::ops::RangeInclusive<u64>) -> Vec<Line> {
        numbers.map(line).collect()
    }

    fn numbers(page: &Events) -> String {
        let texts = page.events.iter().map(|event| event.message.as_str());
        let texts: Vec<&str> = texts
            .map(|text| text.trim_start_matches("change "))
            .collect();
        texts.join(" ")
    }

    const AT: Duration = Duration::from_secs(1);

    #[test]
    fn pages_go_back_in_time() {
        let readers = Readers::new(Config::default());
        let page = |lines: &[Line], token| {
            let token = (Some("2"), token);
            readers.page(lines, &[], token, AT, "a".to_owned()).unwrap()
        };
        let first = page(&lines(1..=4), None);
        assert_eq!(
            (numbers(&first).as_str(), first.next.as_deref()),
            ("4 3", Some("a"))
        );
        // What came meanwhile is for the next reader.
        let second = page(&lines(1..=6), Some("a"));
        assert_eq!(
            (numbers(&second).as_str(), second.next.as_deref()),
            ("2 1", Some("a"))
        );
        let last = page(&lines(1..=6), Some("a"));
        assert_eq!((numbers(&last).as_str(), last.next), ("", None));
    }

    #[track_caller]
    fn check_size(size: Option<&str>, expected: Result<usize, &str>) {
        let config = Config {
            most: 300,
            ..Config::default()
        };
        let readers = Readers::new(config);
        let page = readers.page(&lines(1..=400), &[], (size, None), AT, "a".to_owned());
        let found = page.map(|page| page.events.len());
        assert_eq!(
            found.map_err(|error| error.to_string()),
            expected.map_err(str::to_owned)
        );
    }

    #[test]
    fn sizes() {
        check_size(None, Ok(256));
        check_size(Some("many"), Ok(256));
        check_size(Some("300"), Ok(300));
        check_size(Some("-1"), Ok(0));
        check_size(Some("301"), Err("size(301) exceeds the limit(300)"));
    }

    #[test]
    fn tokens_end() {
        let readers = Readers::new(Config::default());
        let ask = |token: Option<&str>, now, fresh: &str| {
            let asked = (Some("1"), token);
            readers.page(&lines(1..=9), &[], asked, now, fresh.to_owned())
        };
        let unknown = |token: &str| Err(Refused::UnknownToken(token.to_owned()));
        assert_eq!(ask(Some("x"), AT, ""), unknown("x"));
        for token in ["a", "b", "c", "d"] {
            ask(None, AT, token).unwrap();
        }
        assert!(ask(Some("a"), AT, "").is_ok());
        // The fifth one takes the place of the first.
        ask(None, AT, "e").unwrap();
        assert_eq!(ask(Some("a"), AT, ""), unknown("a"));
        let later = AT + PATIENCE;
        assert!(ask(Some("b"), later, "").is_ok());
        let much_later = later + Duration::from_secs(1);
        assert_eq!(ask(Some("c"), much_later, ""), unknown("c"));
        assert!(ask(Some("b"), much_later, "").is_ok());
    }

    #[test]
    fn an_event_in_the_originals_form() {
        let text = serde_json::to_string(&event(&line(1), &[])).unwrap();
        let expected = r#"{"createdAt":"1970-01-01T00:00:01Z","type":"group","name":"/kubepods/besteffort","reason":"AdjustBEByNodeCPUUsage","message":"change 1"}"#;
        assert_eq!(text, expected);
        let mut evicted = line(2);
        (evicted.target, evicted.file) = (None, "default/batch-1".to_owned());
        evicted.asker = "BEMemoryEvict".to_owned();
        let event = event(&evicted, &[]);
        assert_eq!(
            (event.kind, &*event.namespace, &*event.name),
            ("pod", "default", "batch-1")
        );
        assert_eq!(event.reason, "EvictPodByNodeMemoryUsage");
    }

    #[test]
    fn what_is_shown() {
        let mut eviction = line(2);
        eviction.target = None;
        let all = [line(1), eviction];
        for (recorded, verbose, expected) in [(true, 3, "2 1"), (true, 2, "2"), (false, 3, "")] {
            let config = Config {
                recorded,
                verbose,
                ..Config::default()
            };
            let readers = Readers::new(config);
            let page = readers.page(&all, &[], (None, None), AT, "a".to_owned());
            assert_eq!(numbers(&page.unwrap()), expected, "{recorded} {verbose}");
        }
    }
}
