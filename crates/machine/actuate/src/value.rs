//! Which values are allowed, and which two values are the same. Pure.

use plimsoll_plan::{IoKnob, Knob, ProcFile, ResctrlKnob, Sysctl, Target, Value};

use crate::place::is_container;
use crate::text::{domains, is_switch};
use crate::weight::{self, WeightFormula};
use crate::{Form, Unfit};

const LEAST_QUOTA_US: u64 = 1000;
const PERIODS_US: std::ops::RangeInclusive<u64> = 1000..=1_000_000;
const MOST_BURST_V1_US: i64 = 100_000_000;

/// A wanted value in the form that the target has, or why it must not be written.
pub fn fit(target: &Target, form: Form, value: &Value) -> Result<Value, Unfit> {
    match target {
        Target::Cgroup { knob, .. } => fit_cgroup(*knob, form, value),
        Target::Resctrl { knob, .. } => match (knob, value) {
            (ResctrlKnob::Exists, Value::Switch(_)) | (ResctrlKnob::Tasks, Value::Ids(_)) => {
                Ok(value.clone())
            }
            (ResctrlKnob::L3 | ResctrlKnob::MemoryBandwidth, Value::Line(line)) => {
                let domains = domains(*knob, line).ok_or(Unfit::Kind)?;
                let fine = !domains.is_empty() && domains.values().all(|value| *value > 0);
                fine.then(|| value.clone()).ok_or(Unfit::Range)
            }
            _ => Err(Unfit::Kind),
        },
        Target::Process {
            file: ProcFile::OomScoreAdj,
            ..
        } => number(value, -1000, 1000),
        Target::Sysctl(sysctl) if is_switch(sysctl) => switch(value),
        Target::Sysctl(sysctl) => match sysctl {
            Sysctl::MinFreeKbytes => number(value, 10_240, 10_485_760),
            Sysctl::WatermarkScaleFactor => number(value, 10, 400),
            _ => number(value, 0, i64::MAX),
        },
    }
}

fn fit_cgroup(knob: Knob, form: Form, value: &Value) -> Result<Value, Unfit> {
    match knob {
        Knob::CpuShares => match value {
            Value::Shares(weight::LEAST_SHARES..=weight::MOST_SHARES)
            | Value::Weight(1..=weight::MOST_WEIGHT) => Ok(value.clone()),
            Value::Shares(_) | Value::Weight(_) => Err(Unfit::Range),
            _ => Err(Unfit::Kind),
        },
        Knob::CpuQuota => match value {
            Value::Quota {
                quota_us,
                period_us,
            } => {
                let fine = quota_us.is_none_or(|quota| quota >= LEAST_QUOTA_US)
                    && period_us.is_none_or(|period| PERIODS_US.contains(&period));
                fine.then(|| value.clone()).ok_or(Unfit::Range)
            }
            _ => Err(Unfit::Kind),
        },
        Knob::CpuBurst => match form {
            Form::V1 => number(value, 0, MOST_BURST_V1_US),
            Form::V2 => number(value, 0, i64::MAX),
        },
        Knob::Cpuset => match value {
            Value::Cpus(cpus) if cpus.is_empty() => Err(Unfit::Range),
            Value::Cpus(_) => Ok(value.clone()),
            _ => Err(Unfit::Kind),
        },
        Knob::GroupIdentity => number(value, -1, 2),
        Knob::WmarkRatio => number(value, 0, 100),
        Knob::WmarkScaleFactor => number(value, 1, 1000),
        Knob::WmarkMinAdj => number(value, -25, 50),
        Knob::MemoryPriority => number(value, 0, 12),
        Knob::NetClass => number(value, 0, i64::from(u32::MAX)),
        Knob::CpuIdle
        | Knob::OomGroup
        | Knob::UsePriorityOom
        | Knob::PageCacheLimitEnable
        | Knob::PageCacheLimitSync
        | Knob::Freeze => switch(value),
        Knob::MemoryMin
        | Knob::MemoryLow
        | Knob::MemoryHigh
        | Knob::MemoryMax
        | Knob::PageCacheLimitSize => bytes(value),
        Knob::MemoryReclaim => match bytes(value)? {
            Value::Bytes(None) => Err(Unfit::Range),
            bytes => Ok(bytes),
        },
        Knob::Io { knob, .. } => match knob {
            IoKnob::ReadBps | IoKnob::WriteBps | IoKnob::ReadIops | IoKnob::WriteIops => {
                // Koordinator says 0 for "no limit"; a limit of nothing would be the end of a pod.
                match bytes(value)? {
                    Value::Bytes(Some(0)) => Ok(Value::Bytes(None)),
                    bytes => Ok(bytes),
                }
            }
            IoKnob::Weight => match value {
                Value::Line(line) if &**line == "default" => Ok(value.clone()),
                value => number(value, 1, 10_000),
            },
            IoKnob::CostQos | IoKnob::CostModel => match value {
                Value::Line(line) if !line.contains('\n') && line.len() < 1000 => Ok(value.clone()),
                _ => Err(Unfit::Kind),
            },
        },
    }
}

fn number(value: &Value, least: i64, most: i64) -> Result<Value, Unfit> {
    let number = match value {
        Value::Number(number) => *number,
        Value::Switch(on) => i64::from(*on),
        Value::Bytes(Some(bytes)) => i64::try_from(*bytes).map_err(|_| Unfit::Range)?,
        _ => return Err(Unfit::Kind),
    };
    match (least..=most).contains(&number) {
        true => Ok(Value::Number(number)),
        false => Err(Unfit::Range),
    }
}

fn switch(value: &Value) -> Result<Value, Unfit> {
    match value {
        Value::Switch(on) => Ok(Value::Switch(*on)),
        Value::Number(number @ (0 | 1)) => Ok(Value::Switch(*number == 1)),
        Value::Number(_) => Err(Unfit::Range),
        _ => Err(Unfit::Kind),
    }
}

fn bytes(value: &Value) -> Result<Value, Unfit> {
    match value {
        // What is said as the largest number means no limit.
        Value::Bytes(Some(bytes)) if *bytes >= i64::MAX as u64 => Ok(Value::Bytes(None)),
        Value::Bytes(bytes) => Ok(Value::Bytes(*bytes)),
        Value::Number(-1 | i64::MAX) => Ok(Value::Bytes(None)),
        Value::Number(number) => match u64::try_from(*number) {
            Ok(bytes) => Ok(Value::Bytes(Some(bytes))),
            Err(_) => Err(Unfit::Range),
        },
        _ => Err(Unfit::Kind),
    }
}

/// A base may be what no plan may want: an empty cpuset, which inherits on v2, or a quota below a millisecond.
pub fn fit_base(target: &Target, form: Form, value: &Value) -> Option<Value> {
    match (target, value) {
        (
            Target::Cgroup {
                knob: Knob::Cpuset, ..
            },
            Value::Cpus(_),
        )
        | (
            Target::Cgroup {
                knob: Knob::CpuQuota,
                ..
            },
            Value::Quota { .. },
        ) => Some(value.clone()),
        _ => fit(target, form, value).ok(),
    }
}

/// Whether what the kernel has is what is wanted.
pub fn same(target: &Target, wanted: &Value, has: &Value) -> bool {
    match (wanted, has) {
        (Value::Shares(shares), Value::Weight(weight)) => {
            let container = target.cgroup_path().is_some_and(|path| is_container(path));
            weight::fits(*shares, *weight, container)
        }
        (
            Value::Quota {
                quota_us,
                period_us,
            },
            Value::Quota {
                quota_us: has_quota,
                period_us: has_period,
            },
        ) => quota_us == has_quota && (period_us.is_none() || period_us == has_period),
        (Value::Bytes(Some(wanted)), Value::Bytes(Some(has))) if !is_io(target) => {
            // The kernel keeps whole pages.
            let page = (rustix::param::page_size() as u64).max(1);
            wanted == has || wanted / page * page == *has
        }
        (Value::Line(wanted), Value::Line(has)) => same_line(target, wanted, has),
        (Value::Ids(wanted), Value::Ids(has)) => wanted.iter().all(|id| has.contains(id)),
        _ => wanted == has,
    }
}

fn is_io(target: &Target) -> bool {
    matches!(
        target,
        Target::Cgroup {
            knob: Knob::Io { .. },
            ..
        }
    )
}

fn same_line(target: &Target, wanted: &str, has: &str) -> bool {
    if let Target::Resctrl { knob, .. } = target {
        let parsed = domains(*knob, wanted).zip(domains(*knob, has));
        // Domains that are not named stay as they are.
        return parsed.is_some_and(|(wanted, has)| {
            wanted
                .iter()
                .all(|(domain, value)| has.get(domain) == Some(value))
        });
    }
    if wanted.is_empty() || has.is_empty() {
        let off =
            |line: &str| line.is_empty() || line.contains("enable=0") || line.contains("ctrl=auto");
        return off(wanted) && off(has);
    }
    // Settings: `rpct=95` and `rpct=95.00` are one.
    let setting = |line: &str, key: &str| {
        line.split_ascii_whitespace()
            .find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
    };
    wanted.split_ascii_whitespace().all(|word| {
        let Some((key, value)) = word.split_once('=') else {
            return has.split_ascii_whitespace().any(|found| found == word);
        };
        let Some(found) = setting(has, key) else {
            return false;
        };
        match (value.parse::<f64>(), found.parse::<f64>()) {
            (Ok(value), Ok(found)) => value == found,
            _ => value == found,
        }
    })
}

/// What is written for a wanted value: shares in the kernel's unit.
pub fn in_kernel_unit(form: Form, value: Value, formula: WeightFormula) -> Value {
    match (form, &value) {
        (Form::V2, Value::Shares(shares)) => Value::Weight(formula.weight(*shares)),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_plan::BlockDevice;

    fn at(knob: Knob) -> Target {
        Target::cgroup(&"/kubepods/pod1".into(), knob)
    }

    fn quota(quota_us: Option<u64>, period_us: Option<u64>) -> Value {
        Value::Quota {
            quota_us,
            period_us,
        }
    }

    #[test]
    fn ranges() {
        use Value::{Bytes, Number, Shares, Switch};
        let empty = Value::Cpus(Default::default());
        let rows = [
            (Knob::CpuShares, Shares(1), Err(Unfit::Range)),
            (Knob::CpuShares, Shares(2), Ok(Shares(2))),
            (Knob::CpuShares, Shares(262_145), Err(Unfit::Range)),
            (Knob::CpuShares, Number(5), Err(Unfit::Kind)),
            (
                Knob::CpuQuota,
                quota(Some(999), Some(100_000)),
                Err(Unfit::Range),
            ),
            (
                Knob::CpuQuota,
                quota(Some(1000), None),
                Ok(quota(Some(1000), None)),
            ),
            (
                Knob::CpuQuota,
                quota(None, Some(2_000_000)),
                Err(Unfit::Range),
            ),
            (Knob::Cpuset, empty, Err(Unfit::Range)),
            (Knob::GroupIdentity, Number(3), Err(Unfit::Range)),
            (Knob::GroupIdentity, Number(-1), Ok(Number(-1))),
            (Knob::MemoryMin, Number(-2), Err(Unfit::Range)),
            (Knob::MemoryHigh, Number(-1), Ok(Bytes(None))),
            (Knob::MemoryHigh, Number(i64::MAX), Ok(Bytes(None))),
            (Knob::OomGroup, Number(1), Ok(Switch(true))),
            (Knob::OomGroup, Number(2), Err(Unfit::Range)),
            (Knob::WmarkMinAdj, Number(-26), Err(Unfit::Range)),
            (Knob::MemoryPriority, Number(13), Err(Unfit::Range)),
            (Knob::MemoryReclaim, Bytes(None), Err(Unfit::Range)),
        ];
        for (knob, value, expected) in rows {
            assert_eq!(
                fit(&at(knob), Form::V2, &value),
                expected,
                "{knob:?} {value:?}"
            );
        }
        let device = BlockDevice { major: 8, minor: 0 };
        let bps = at(Knob::Io {
            device,
            knob: IoKnob::ReadBps,
        });
        assert_eq!(fit(&bps, Form::V2, &Number(0)), Ok(Bytes(None)));
        let burst = Number(MOST_BURST_V1_US + 1);
        assert_eq!(
            fit(&at(Knob::CpuBurst), Form::V1, &burst),
            Err(Unfit::Range)
        );
        assert_eq!(fit(&at(Knob::CpuBurst), Form::V2, &burst), Ok(burst));
    }

    #[test]
    fn meaning() {
        use Value::{Bytes, Shares, Weight};
        let container = Target::cgroup(&"/kubepods/pod1/abc".into(), Knob::CpuShares);
        let (pod, memory) = (at(Knob::CpuShares), at(Knob::MemoryHigh));
        let resctrl = Target::Resctrl {
            group: "BE".into(),
            knob: ResctrlKnob::L3,
        };
        let cost = at(Knob::Io {
            device: BlockDevice { major: 8, minor: 0 },
            knob: IoKnob::CostQos,
        });
        let line = |text: &str| Value::Line(text.into());
        for (target, wanted, has, expected) in [
            (&pod, Shares(1024), Weight(39), true),
            (&pod, Shares(1024), Weight(100), false),
            (&container, Shares(1024), Weight(100), true),
            (&container, Shares(1024), Weight(39), true),
            (
                &pod,
                quota(Some(5), None),
                quota(Some(5), Some(50_000)),
                true,
            ),
            (
                &pod,
                quota(Some(5), Some(1)),
                quota(Some(5), Some(50_000)),
                false,
            ),
            (&memory, Bytes(Some(5000)), Bytes(Some(4096)), true),
            (&memory, Bytes(Some(5000)), Bytes(Some(12_288)), false),
            (&memory, Bytes(Some(5000)), Bytes(Some(0)), false),
            (&memory, Bytes(None), Bytes(Some(4096)), false),
            (&resctrl, line("L3:0=0ff"), line("0=ff;1=f"), true),
            (&resctrl, line("0=f"), line("0=ff;1=f"), false),
            (
                &cost,
                line("enable=1 rpct=95"),
                line("enable=1 ctrl=user rpct=95.00"),
                true,
            ),
            (&cost, line("rpct=94"), line("rpct=95.00"), false),
            (&cost, line(""), line("enable=0 rpct=0.00"), true),
        ] {
            assert_eq!(same(target, &wanted, &has), expected, "{wanted} {has}");
        }
    }
}
