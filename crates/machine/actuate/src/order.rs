//! In which order changes are written. Pure.
//!
//! A child that gets more than its parent is refused by v1 and useless on v2. So whatever grows is written from the top
//! down, and then whatever shrinks from the bottom up. A cpuset that neither grows nor shrinks becomes the union of both
//! sets on the way down and gets its final value on the way up. At no point does a child exceed its parent that does not
//! exceed it before or in the end.
//!
//! The kernel refuses a burst above the quota. Of one cgroup, a burst that shrinks is written before the quota, and one that
//! grows after it.

use plimsoll_plan::{Knob, Target, Value};

use crate::Form;

/// A value that is to become another.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub target: Target,
    pub form: Form,
    /// What the kernel has.
    pub from: Option<Value>,
    /// In the kernel's unit.
    pub to: Value,
}

/// One value that is to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The index of the change.
    pub change: usize,
    pub value: Value,
    /// The change's final value; else one on the way.
    pub last: bool,
    /// The kernel may take long for it.
    pub slow: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Direction {
    Grow,
    Shrink,
    /// Through this value.
    Through(Value),
}

/// Within one cgroup and one way through the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A group is made before anything is written into it.
    Existence,
    BurstShrinks,
    Other,
    BurstGrows,
}

pub fn arrange(changes: &[Change]) -> Vec<Step> {
    let mut down = Vec::new();
    let mut up = Vec::new();
    for (index, change) in changes.iter().enumerate() {
        let step = |value: &Value, last, slow| Step {
            change: index,
            value: value.clone(),
            last,
            slow,
        };
        let (depth, rank) = (depth(&change.target), rank(change));
        let blocks = may_block(change);
        match direction(change) {
            Direction::Grow if rank == Rank::BurstGrows && quota_falls_later(changes, change) => {
                up.push((depth, rank, step(&change.to, true, blocks)));
            }
            Direction::Grow => down.push((depth, rank, step(&change.to, true, blocks))),
            // The quota may shrink on its way up only when the burst has.
            Direction::Shrink if rank == Rank::BurstShrinks => {
                down.push((depth, rank, step(&change.to, true, blocks)));
            }
            Direction::Shrink => up.push((depth, rank, step(&change.to, true, blocks))),
            Direction::Through(union) => {
                down.push((depth, rank, step(&union, false, false)));
                up.push((depth, rank, step(&change.to, true, blocks)));
            }
        }
    }
    down.sort_by_key(|(depth, rank, step)| (*depth, *rank, step.change));
    up.sort_by_key(|(depth, rank, step)| (std::cmp::Reverse(*depth), *rank, step.change));
    down.into_iter()
        .chain(up)
        .map(|(_, _, step)| step)
        .collect()
}

fn depth(target: &Target) -> usize {
    match target.cgroup_path() {
        Some(path) => path.split('/').filter(|name| !name.is_empty()).count(),
        None => 0,
    }
}

fn knob(target: &Target) -> Option<Knob> {
    match target {
        Target::Cgroup { knob, .. } => Some(*knob),
        _ => None,
    }
}

fn rank(change: &Change) -> Rank {
    match (&change.target, &change.to) {
        (
            Target::Resctrl {
                knob: plimsoll_plan::ResctrlKnob::Exists,
                ..
            },
            _,
        ) => Rank::Existence,
        (
            Target::Cgroup {
                knob: Knob::CpuBurst,
                ..
            },
            Value::Number(to),
        ) => match &change.from {
            Some(Value::Number(from)) if from > to => Rank::BurstShrinks,
            _ => Rank::BurstGrows,
        },
        _ => Rank::Other,
    }
}

/// Whether the quota of the same cgroup is written on the way up, and only then allows the burst.
fn quota_falls_later(changes: &[Change], burst: &Change) -> bool {
    let quota = changes.iter().find(|change| {
        knob(&change.target) == Some(Knob::CpuQuota)
            && change.target.cgroup_path() == burst.target.cgroup_path()
    });
    quota.is_some_and(|quota| direction(quota) != Direction::Grow)
}

fn direction(change: &Change) -> Direction {
    let Some(knob) = knob(&change.target) else {
        // A group ends after what is in it was given back.
        let ends = rank(change) == Rank::Existence && change.to == Value::Switch(false);
        return if ends {
            Direction::Shrink
        } else {
            Direction::Grow
        };
    };
    let Some(from) = &change.from else {
        return Direction::Grow;
    };
    match (knob, from, &change.to) {
        (Knob::Cpuset, Value::Cpus(from), Value::Cpus(to)) => {
            // On v2 an empty set is the parent's; on v1 it is nothing.
            let inherits = change.form == Form::V2;
            if inherits && to.is_empty() {
                return Direction::Grow;
            }
            if inherits && from.is_empty() || to.0.is_subset(&from.0) {
                return Direction::Shrink;
            }
            if from.0.is_subset(&to.0) {
                return Direction::Grow;
            }
            let mut union = from.clone();
            union.add(to);
            Direction::Through(Value::Cpus(union))
        }
        (
            Knob::CpuQuota,
            Value::Quota {
                quota_us: from,
                period_us: from_period,
            },
            Value::Quota {
                quota_us: to,
                period_us: to_period,
            },
        ) => {
            let ratio = |quota: &Option<u64>, period: Option<u64>| {
                quota.map_or(f64::INFINITY, |quota| {
                    quota as f64 / period.unwrap_or(100_000).max(1) as f64
                })
            };
            let to_period = to_period.or(*from_period);
            by_size(ratio(from, *from_period), ratio(to, to_period))
        }
        (
            Knob::MemoryMin | Knob::MemoryLow | Knob::MemoryHigh | Knob::MemoryMax,
            Value::Bytes(from),
            Value::Bytes(to),
        ) => by_size(from.unwrap_or(u64::MAX), to.unwrap_or(u64::MAX)),
        (Knob::CpuBurst, Value::Number(from), Value::Number(to)) => by_size(from, to),
        _ => Direction::Grow,
    }
}

fn by_size<T: PartialOrd>(from: T, to: T) -> Direction {
    match to < from {
        true => Direction::Shrink,
        false => Direction::Grow,
    }
}

/// The kernel reclaims memory, or moves tasks, within the write.
fn may_block(change: &Change) -> bool {
    match knob(&change.target) {
        Some(Knob::MemoryReclaim) => true,
        Some(Knob::MemoryHigh | Knob::MemoryMax) => direction(change) == Direction::Shrink,
        Some(Knob::Cpuset) => direction(change) != Direction::Grow,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
