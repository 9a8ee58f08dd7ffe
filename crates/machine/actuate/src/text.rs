//! What kernel files say, as values, and values as what is written to them. Pure.

use std::collections::BTreeMap;

use plimsoll_host::parse;
use plimsoll_plan::{BlockDevice, IoKnob, Knob, ResctrlKnob, Sysctl, Target, Value};

use crate::Form;

/// v1 has no word for "no limit"; it says the largest number of pages.
const V1_NO_LIMIT: u64 = 0x7FFF_FFFF_FFFF_F000;
const DEFAULT_PERIOD_US: u64 = 100_000;

/// One `write(2)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    Main(String),
    Period(String),
    Append(String),
    MakeDir,
    RemoveDir,
}

/// The value that a file has; `None`: it makes no sense.
pub fn parse(target: &Target, form: Form, text: &[u8], period: Option<&[u8]>) -> Option<Value> {
    match target {
        Target::Cgroup { knob, .. } => cgroup(*knob, form, text, period),
        Target::Resctrl { knob, .. } => match knob {
            ResctrlKnob::Exists => Some(Value::Switch(true)),
            ResctrlKnob::L3 => schemata(text, "L3"),
            ResctrlKnob::MemoryBandwidth => schemata(text, "MB"),
            ResctrlKnob::Tasks => ids(text),
        },
        Target::Process { .. } => number(text),
        Target::Sysctl(Sysctl::SchedFeature(name)) => feature(text, name),
        Target::Sysctl(sysctl) => match is_switch(sysctl) {
            true => switch(text),
            false => number(text),
        },
    }
}

fn cgroup(knob: Knob, form: Form, text: &[u8], period: Option<&[u8]>) -> Option<Value> {
    let plain = parse::trim(text);
    match (knob, form) {
        (Knob::CpuShares, Form::V1) => parse::u64(plain).map(Value::Shares),
        (Knob::CpuShares, Form::V2) => parse::u64(plain).map(Value::Weight),
        (Knob::CpuQuota, Form::V1) => {
            let quota = parse::i64(plain)?;
            let period = match period {
                Some(text) => parse::u64(parse::trim(text))?,
                None => DEFAULT_PERIOD_US,
            };
            Some(quota_of(u64::try_from(quota).ok(), period))
        }
        (Knob::CpuQuota, Form::V2) => {
            let mut words = parse::words(text);
            let quota = match parse::limit(words.next()?)? {
                parse::Limit::Max => None,
                parse::Limit::At(quota) => Some(quota),
            };
            let period = match words.next() {
                Some(word) => parse::u64(word)?,
                None => DEFAULT_PERIOD_US,
            };
            Some(quota_of(quota, period))
        }
        (Knob::Cpuset, _) => {
            let cpus = std::str::from_utf8(plain).ok()?.parse().ok()?;
            Some(Value::Cpus(cpus))
        }
        (Knob::Freeze, Form::V1) => Some(Value::Switch(plain != b"THAWED")),
        (Knob::Io { device, knob }, _) => io(device, knob, form, text),
        // An action has no value.
        (Knob::MemoryReclaim, _) => Some(Value::Bytes(None)),
        (
            Knob::MemoryMin
            | Knob::MemoryLow
            | Knob::MemoryHigh
            | Knob::MemoryMax
            | Knob::PageCacheLimitSize,
            _,
        ) => bytes(plain),
        (
            Knob::CpuIdle
            | Knob::OomGroup
            | Knob::UsePriorityOom
            | Knob::PageCacheLimitEnable
            | Knob::PageCacheLimitSync
            | Knob::Freeze,
            _,
        ) => switch(text),
        (
            Knob::CpuBurst
            | Knob::GroupIdentity
            | Knob::WmarkRatio
            | Knob::WmarkScaleFactor
            | Knob::WmarkMinAdj
            | Knob::MemoryPriority
            | Knob::NetClass,
            _,
        ) => number(text),
    }
}

fn quota_of(quota_us: Option<u64>, period_us: u64) -> Value {
    Value::Quota {
        quota_us,
        period_us: Some(period_us),
    }
}

fn bytes(plain: &[u8]) -> Option<Value> {
    if plain == b"-1" {
        return Some(Value::Bytes(None));
    }
    Some(Value::Bytes(match parse::limit(plain)? {
        parse::Limit::Max => None,
        parse::Limit::At(bytes) => (bytes < V1_NO_LIMIT).then_some(bytes),
    }))
}

fn number(text: &[u8]) -> Option<Value> {
    parse::i64(parse::trim(text)).map(Value::Number)
}

fn switch(text: &[u8]) -> Option<Value> {
    match parse::trim(text) {
        b"0" | b"N" => Some(Value::Switch(false)),
        b"1" | b"Y" => Some(Value::Switch(true)),
        other => parse::i64(other).map(|number| Value::Switch(number != 0)),
    }
}

pub fn is_switch(sysctl: &Sysctl) -> bool {
    matches!(
        sysctl,
        Sysctl::SchedGroupIdentityEnabled
            | Sysctl::SchedCore
            | Sysctl::MemcgReaper
            | Sysctl::PageCacheLimit
            | Sysctl::KidledUseHierarchy
            | Sysctl::SchedFeature(_)
    )
}

/// `FEATURE` or `NO_FEATURE` in a line of them.
fn feature(text: &[u8], name: &str) -> Option<Value> {
    parse::words(text).find_map(|word| match word.strip_prefix(b"NO_") {
        Some(word) => (word == name.as_bytes()).then_some(Value::Switch(false)),
        None => (word == name.as_bytes()).then_some(Value::Switch(true)),
    })
}

fn ids(text: &[u8]) -> Option<Value> {
    let ids: Option<Vec<u32>> = parse::words(text)
        .map(|word| parse::u64(word).and_then(|id| u32::try_from(id).ok()))
        .collect();
    Some(Value::Ids(ids?.into()))
}

/// What follows the device's number in its line; `None`: no such line.
fn device_line(device: BlockDevice, text: &[u8]) -> Option<&str> {
    let name = device.to_string();
    parse::lines(text).find_map(|line| {
        let line = std::str::from_utf8(line).ok()?;
        let (found, rest) = line.trim().split_once([' ', '\t'])?;
        (found == name).then_some(rest.trim())
    })
}

fn io_max_key(knob: IoKnob) -> Option<&'static str> {
    match knob {
        IoKnob::ReadBps => Some("rbps"),
        IoKnob::WriteBps => Some("wbps"),
        IoKnob::ReadIops => Some("riops"),
        IoKnob::WriteIops => Some("wiops"),
        IoKnob::Weight | IoKnob::CostQos | IoKnob::CostModel => None,
    }
}

fn io(device: BlockDevice, knob: IoKnob, form: Form, text: &[u8]) -> Option<Value> {
    let line = device_line(device, text);
    match (io_max_key(knob), form) {
        (Some(key), Form::V2) => {
            let Some(line) = line else {
                return Some(Value::Bytes(None));
            };
            let value = line
                .split_ascii_whitespace()
                .find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            value.map_or(Some(Value::Bytes(None)), |value| bytes(value.as_bytes()))
        }
        (Some(_), Form::V1) => match line {
            None => Some(Value::Bytes(None)),
            Some(limit) => {
                let limit = parse::u64(limit.as_bytes())?;
                Some(Value::Bytes((limit > 0).then_some(limit)))
            }
        },
        (None, _) if knob == IoKnob::Weight => match line {
            None => Some(Value::Line("default".into())),
            Some(weight) => number(weight.as_bytes()),
        },
        (None, _) => Some(Value::Line(line.unwrap_or("").into())),
    }
}

fn schemata(text: &[u8], resource: &str) -> Option<Value> {
    let line = parse::lines(text).find_map(|line| {
        let line = std::str::from_utf8(line).ok()?.trim();
        line.strip_prefix(resource)?.strip_prefix(':')
    });
    // A machine may lack the resource; its line is then missing.
    Some(Value::Line(line?.trim().into()))
}

/// `0=ff;1=ff` by domain, with or without the resource's name before it.
pub fn domains(resource: ResctrlKnob, line: &str) -> Option<BTreeMap<u32, u64>> {
    let (name, radix) = match resource {
        ResctrlKnob::L3 => ("L3:", 16),
        _ => ("MB:", 10),
    };
    let line = line.trim();
    let line = line.strip_prefix(name).unwrap_or(line);
    let mut domains = BTreeMap::new();
    for part in line.split(';').filter(|part| !part.trim().is_empty()) {
        let (domain, value) = part.split_once('=')?;
        let value = u64::from_str_radix(value.trim(), radix).ok()?;
        domains.insert(domain.trim().parse().ok()?, value);
    }
    Some(domains)
}

/// What is to be written so that the file has the value. `has` is what it has now.
pub fn render(target: &Target, form: Form, value: &Value, has: Option<&Value>) -> Vec<Piece> {
    match (target, value) {
        (
            Target::Resctrl {
                knob: ResctrlKnob::Exists,
                ..
            },
            Value::Switch(on),
        ) => match on {
            true => vec![Piece::MakeDir],
            false => vec![Piece::RemoveDir],
        },
        (Target::Resctrl { knob, .. }, Value::Line(line)) => {
            let name = match knob {
                ResctrlKnob::L3 => "L3:",
                _ => "MB:",
            };
            let line = line.trim();
            let line = line.strip_prefix(name).unwrap_or(line);
            vec![Piece::Main(format!("{name}{line}\n"))]
        }
        (Target::Resctrl { .. }, Value::Ids(wanted)) => {
            let there: &[u32] = match has {
                Some(Value::Ids(ids)) => ids,
                _ => &[],
            };
            let missing = wanted.iter().filter(|id| !there.contains(id));
            missing.map(|id| Piece::Append(id.to_string())).collect()
        }
        (Target::Sysctl(Sysctl::SchedFeature(name)), Value::Switch(on)) => {
            let no = if *on { "" } else { "NO_" };
            vec![Piece::Main(format!("{no}{name}"))]
        }
        (
            Target::Cgroup {
                knob: Knob::Freeze, ..
            },
            Value::Switch(on),
        ) if form == Form::V1 => {
            let state = if *on { "FROZEN" } else { "THAWED" };
            vec![Piece::Main(state.to_owned())]
        }
        (
            Target::Cgroup {
                knob: Knob::Io { device, knob },
                ..
            },
            value,
        ) => vec![Piece::Main(render_io(*device, *knob, form, value))],
        (
            _,
            Value::Quota {
                quota_us,
                period_us,
            },
        ) => render_quota(form, *quota_us, *period_us, has),
        (_, value) => vec![Piece::Main(plain(form, value))],
    }
}

fn plain(form: Form, value: &Value) -> String {
    match value {
        Value::Shares(number) | Value::Weight(number) => number.to_string(),
        Value::Bytes(Some(bytes)) => bytes.to_string(),
        Value::Bytes(None) => match form {
            Form::V1 => "-1".to_owned(),
            Form::V2 => "max".to_owned(),
        },
        Value::Number(number) => number.to_string(),
        Value::Switch(on) => u8::from(*on).to_string(),
        // A write of nothing would not reach the kernel.
        Value::Cpus(cpus) if cpus.is_empty() => "\n".to_owned(),
        Value::Cpus(cpus) => cpus.to_string(),
        Value::Line(line) => line.to_string(),
        Value::Quota { .. } | Value::Ids(_) => String::new(),
    }
}

fn render_io(device: BlockDevice, knob: IoKnob, form: Form, value: &Value) -> String {
    match (io_max_key(knob), value) {
        (Some(key), Value::Bytes(limit)) => match (form, limit) {
            (Form::V2, Some(limit)) => format!("{device} {key}={limit}"),
            (Form::V2, None) => format!("{device} {key}=max"),
            (Form::V1, limit) => format!("{device} {}", limit.unwrap_or(0)),
        },
        (None, Value::Line(line)) if line.is_empty() => match knob {
            IoKnob::CostModel => format!("{device} ctrl=auto"),
            _ => format!("{device} enable=0"),
        },
        (_, value) => format!("{device} {}", plain(form, value)),
    }
}

/// Both fields are always written, so a period that we found stays. On v1 they are two files, and what both say in between
/// must be no stricter than both ends, or children would exceed their parent: where neither order does that, there is no
/// quota for a moment.
fn render_quota(
    form: Form,
    quota: Option<u64>,
    period: Option<u64>,
    has: Option<&Value>,
) -> Vec<Piece> {
    let (had_quota, had_period) = match has {
        Some(Value::Quota {
            quota_us,
            period_us,
        }) => (*quota_us, period_us.unwrap_or(DEFAULT_PERIOD_US)),
        _ => (None, DEFAULT_PERIOD_US),
    };
    let new_period = period.unwrap_or(had_period);
    if form == Form::V2 {
        let quota = quota.map_or("max".to_owned(), |quota| quota.to_string());
        return vec![Piece::Main(format!("{quota} {new_period}"))];
    }
    let none = || Piece::Main("-1".to_owned());
    let quota_piece = quota.map_or_else(none, |quota| Piece::Main(quota.to_string()));
    if new_period == had_period {
        return vec![quota_piece];
    }
    let period_piece = Piece::Period(new_period.to_string());
    let (Some(new), Some(had)) = (quota, had_quota) else {
        // One of both ends has no quota: the period changes while there is none.
        return match quota {
            None => vec![quota_piece, period_piece],
            Some(_) => vec![period_piece, quota_piece],
        };
    };
    let ratio = |quota: u64, period: u64| quota as f64 / period.max(1) as f64;
    let (from, to) = (ratio(had, had_period), ratio(new, new_period));
    let between = |ratio: f64| ratio >= from.min(to) && ratio <= from.max(to);
    if between(ratio(had, new_period)) {
        vec![period_piece, quota_piece]
    } else if between(ratio(new, had_period)) {
        vec![quota_piece, period_piece]
    } else {
        vec![none(), period_piece, quota_piece]
    }
}

/// What two files of a quota say between two of these writes.
pub fn between(pieces: &[Piece], has: Option<&Value>) -> Vec<Value> {
    let Some(Value::Quota {
        quota_us,
        period_us,
    }) = has
    else {
        return Vec::new();
    };
    let (mut quota, mut period) = (*quota_us, *period_us);
    let mut values = Vec::new();
    for piece in pieces.iter().take(pieces.len().saturating_sub(1)) {
        match piece {
            Piece::Main(text) => quota = text.parse().ok(),
            Piece::Period(text) => period = text.parse().ok(),
            _ => {}
        }
        values.push(Value::Quota {
            quota_us: quota,
            period_us: period,
        });
    }
    values
}

#[cfg(test)]
mod tests;
