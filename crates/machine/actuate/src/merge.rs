//! Who wins where several want one value.
//!
//! A person comes first, always. Then:
//!
//! | value | rule | why |
//! |---|---|---|
//! | `memory.min`, `memory.low` | the largest | both are promises; the larger one keeps the smaller |
//! | `memory.high`, `memory.max`, io limits | the smallest | each is a bound that somebody relies on |
//! | freeze, `memory.oom.group`, a resctrl group exists | on, if anybody wants it | "off" only means "not because of me" |
//! | tasks of a resctrl group | all of them | tasks are only added |
//! | CPU quota | cpuset-allocator, cpu-suppress, cpu-burst, cpu-normalization, batch-resource, host-applications | a pod with CPUs of its own is bounded by them and must not be throttled as well. Suppression protects others and comes before what helps the pod itself. A burst is an answer to throttling that happens now, so it comes before the slower normalization. What a pod asked for comes last |
//! | cpuset | cpuset-allocator, cpu-suppress, host-applications | a best-effort pod that was given CPUs of its own keeps them; suppression governs the others (koordlet's two loops overwrite each other) |
//! | CPU shares | batch-resource, cpu-normalization, cpu-suppress, host-applications | batch requests are what the scheduler placed the pod by |
//! | `cpu.idle`, group identity | group-identity, cpu-suppress, host-applications | the class of a pod decides |
//! | a setting of the machine | system-config, then whose feature it is | what an administrator wrote comes before what a feature needs; except where the feature would not work: core scheduling and group identity keep their own switches, cold pages keep kidled's |
//! | everything else | one asker by design; else the order of [`Asker::ALL`] | |

use plimsoll_plan::{Asker, IoKnob, Knob, ResctrlKnob, Sysctl, Target, Value};

/// How a conflict over a target ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// The first of them that asks; those not named come after, in the order of [`Asker::ALL`].
    Rank(&'static [Asker]),
    Smallest,
    Largest,
    /// On, if anybody wants it on.
    Any,
    Union,
}

pub fn rule(target: &Target) -> Rule {
    use Asker::{
        BatchResource, ColdPages, CoreSched, CpuBurst, CpuNormalization, CpuSuppress,
        CpusetAllocator, GroupIdentity, HostApplications, SystemConfig,
    };
    match target {
        Target::Cgroup { knob, .. } => match knob {
            Knob::CpuQuota | Knob::CpuBurst => Rule::Rank(&[
                CpusetAllocator,
                CpuSuppress,
                CpuBurst,
                CpuNormalization,
                BatchResource,
                HostApplications,
            ]),
            Knob::Cpuset => Rule::Rank(&[CpusetAllocator, CpuSuppress, HostApplications]),
            Knob::CpuShares => Rule::Rank(&[
                BatchResource,
                CpuNormalization,
                CpuSuppress,
                HostApplications,
            ]),
            Knob::CpuIdle | Knob::GroupIdentity => {
                Rule::Rank(&[GroupIdentity, CpuSuppress, HostApplications])
            }
            Knob::MemoryMin | Knob::MemoryLow => Rule::Largest,
            Knob::MemoryHigh | Knob::MemoryMax => Rule::Smallest,
            Knob::Io {
                knob: IoKnob::ReadBps | IoKnob::WriteBps | IoKnob::ReadIops | IoKnob::WriteIops,
                ..
            } => Rule::Smallest,
            Knob::Freeze | Knob::OomGroup => Rule::Any,
            _ => Rule::Rank(&[]),
        },
        Target::Resctrl { knob, .. } => match knob {
            ResctrlKnob::Exists => Rule::Any,
            ResctrlKnob::Tasks => Rule::Union,
            ResctrlKnob::L3 | ResctrlKnob::MemoryBandwidth => Rule::Rank(&[]),
        },
        Target::Process { .. } => Rule::Rank(&[]),
        Target::Sysctl(sysctl) => match sysctl {
            Sysctl::SchedCore => Rule::Rank(&[CoreSched, SystemConfig]),
            Sysctl::SchedGroupIdentityEnabled => Rule::Rank(&[GroupIdentity, SystemConfig]),
            Sysctl::KidledScanPeriod | Sysctl::KidledUseHierarchy => {
                Rule::Rank(&[ColdPages, SystemConfig])
            }
            _ => Rule::Rank(&[SystemConfig]),
        },
    }
}

/// What comes of several claims on one target.
#[derive(Debug, Clone, PartialEq)]
pub struct Merged {
    /// The index of the claim that decides.
    pub winner: usize,
    pub value: Value,
    /// Those that wanted something else and do not get it.
    pub overruled: Vec<usize>,
}

/// `None`: nobody wants anything.
pub fn merge(target: &Target, claims: &[(Asker, &Value)]) -> Option<Merged> {
    let operator = claims
        .iter()
        .position(|(asker, _)| *asker == Asker::Operator);
    let rule = rule(target);
    let winner = match (operator, rule) {
        (Some(operator), _) => operator,
        (None, Rule::Rank(order)) => first(claims, |(asker, _)| rank(order, *asker))?,
        (None, Rule::Smallest) => first(claims, |(_, value)| size(value))?,
        (None, Rule::Largest) => first(claims, |(_, value)| u128::MAX - size(value))?,
        (None, Rule::Any) => first(claims, |(_, value)| **value != Value::Switch(true))?,
        (None, Rule::Union) => first(claims, |(asker, _)| *asker)?,
    };
    let value = match rule {
        Rule::Union => union(claims)?,
        _ => claims.get(winner)?.1.clone(),
    };
    let overruled = |(index, (_, wanted)): (usize, &(Asker, &Value))| {
        let lost = index != winner && **wanted != value && rule != Rule::Union;
        lost.then_some(index)
    };
    let overruled = claims.iter().enumerate().filter_map(overruled).collect();
    Some(Merged {
        winner,
        value,
        overruled,
    })
}

fn first<K: Ord>(claims: &[(Asker, &Value)], key: impl Fn(&(Asker, &Value)) -> K) -> Option<usize> {
    (0..claims.len()).min_by_key(|index| key(&claims[*index]))
}

fn rank(order: &[Asker], asker: Asker) -> usize {
    let named = order.iter().position(|named| *named == asker);
    named.unwrap_or_else(|| {
        let all = Asker::ALL.iter().position(|named| *named == asker);
        order.len() + all.unwrap_or(Asker::ALL.len())
    })
}

/// No limit is larger than any limit.
fn size(value: &Value) -> u128 {
    match value {
        Value::Bytes(Some(bytes)) => u128::from(*bytes),
        Value::Number(number) => u128::try_from(*number).unwrap_or(u128::MAX),
        _ => u128::MAX,
    }
}

fn union(claims: &[(Asker, &Value)]) -> Option<Value> {
    let mut all = Vec::new();
    for (_, value) in claims {
        match value {
            Value::Ids(ids) => all.extend_from_slice(ids),
            _ => return None,
        }
    }
    all.sort_unstable();
    all.dedup();
    Some(Value::Ids(all.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_plan::BlockDevice;

    fn at(knob: Knob) -> Target {
        Target::cgroup(&"/a".into(), knob)
    }

    fn io(knob: IoKnob) -> Target {
        let device = BlockDevice { major: 8, minor: 0 };
        at(Knob::Io { device, knob })
    }

    fn resctrl(knob: ResctrlKnob) -> Target {
        Target::Resctrl {
            group: "BE".into(),
            knob,
        }
    }

    /// The winner comes first in `expected`, then those overruled; the order of the claims does not matter.
    #[track_caller]
    fn check(target: &Target, claims: &[(Asker, Value)], value: &Value, expected: &[Asker]) {
        for turned in 0..claims.len() {
            let mut claims: Vec<_> = claims
                .iter()
                .map(|(asker, value)| (*asker, value))
                .collect();
            claims.rotate_left(turned);
            let merged = merge(target, &claims).unwrap();
            assert_eq!(&merged.value, value, "{target:?}");
            let mut overruled: Vec<_> = merged.overruled.iter().map(|i| claims[*i].0).collect();
            overruled.sort();
            let mut rest = expected[1..].to_vec();
            rest.sort();
            assert_eq!((claims[merged.winner].0, overruled), (expected[0], rest));
        }
    }

    /// Every asker of a row wants something else; the first in the row wins.
    #[track_caller]
    fn ranked(target: &Target, order: &[Asker]) {
        for from in 0..order.len() {
            let claims: Vec<_> = order[from..]
                .iter()
                .map(|asker| (*asker, Value::Number(*asker as i64 + 1)))
                .collect();
            check(target, &claims, &claims[0].1, &order[from..]);
        }
    }

    use Asker::*;

    #[test]
    fn rows_of_the_table_with_an_order() {
        for knob in [Knob::CpuQuota, Knob::CpuBurst] {
            ranked(
                &at(knob),
                &[
                    Operator,
                    CpusetAllocator,
                    CpuSuppress,
                    CpuBurst,
                    CpuNormalization,
                    BatchResource,
                    HostApplications,
                ],
            );
        }
        ranked(
            &at(Knob::Cpuset),
            &[Operator, CpusetAllocator, CpuSuppress, HostApplications],
        );
        ranked(
            &at(Knob::CpuShares),
            &[
                Operator,
                BatchResource,
                CpuNormalization,
                CpuSuppress,
                HostApplications,
            ],
        );
        for knob in [Knob::CpuIdle, Knob::GroupIdentity] {
            ranked(
                &at(knob),
                &[Operator, GroupIdentity, CpuSuppress, HostApplications],
            );
        }
        for (sysctl, order) in [
            (Sysctl::SchedCore, &[Operator, CoreSched, SystemConfig][..]),
            (
                Sysctl::SchedGroupIdentityEnabled,
                &[Operator, GroupIdentity, SystemConfig],
            ),
            (
                Sysctl::KidledScanPeriod,
                &[Operator, ColdPages, SystemConfig],
            ),
            (
                Sysctl::KidledUseHierarchy,
                &[Operator, ColdPages, SystemConfig],
            ),
            (
                Sysctl::MinFreeKbytes,
                &[Operator, SystemConfig, CpuSuppress],
            ),
        ] {
            ranked(&Target::Sysctl(sysctl), order);
        }
    }

    #[test]
    fn rows_with_no_order_follow_the_list_of_askers() {
        for target in [
            at(Knob::MemoryPriority),
            at(Knob::NetClass),
            io(IoKnob::Weight),
            resctrl(ResctrlKnob::L3),
            resctrl(ResctrlKnob::MemoryBandwidth),
        ] {
            ranked(&target, &[Operator, CpuSuppress, MemoryQos, BlkIo]);
        }
    }

    #[test]
    fn promises_are_the_largest_and_bounds_the_smallest() {
        let bytes = |bytes| Value::Bytes(Some(bytes));
        let none = Value::Bytes(None);
        let claims = [
            (MemoryQos, bytes(5)),
            (HostApplications, bytes(9)),
            (BatchResource, bytes(7)),
        ];
        for knob in [Knob::MemoryMin, Knob::MemoryLow] {
            check(
                &at(knob),
                &claims,
                &bytes(9),
                &[HostApplications, MemoryQos, BatchResource],
            );
        }
        let mut bounded = vec![
            at(Knob::MemoryHigh),
            at(Knob::MemoryMax),
            io(IoKnob::ReadBps),
        ];
        bounded.extend([IoKnob::WriteBps, IoKnob::ReadIops, IoKnob::WriteIops].map(io));
        for target in bounded {
            let claims = [(MemoryQos, none.clone()), (BatchResource, bytes(7))];
            check(&target, &claims, &bytes(7), &[BatchResource, MemoryQos]);
            let claims = [(MemoryQos, bytes(1)), (Operator, none.clone())];
            check(&target, &claims, &none, &[Operator, MemoryQos]);
        }
    }

    #[test]
    fn one_is_enough_for_a_switch() {
        for target in [
            at(Knob::Freeze),
            at(Knob::OomGroup),
            resctrl(ResctrlKnob::Exists),
        ] {
            let claims = [
                (MemoryQos, Value::Switch(false)),
                (CpuSuppress, Value::Switch(true)),
            ];
            check(
                &target,
                &claims,
                &Value::Switch(true),
                &[CpuSuppress, MemoryQos],
            );
        }
    }

    #[test]
    fn tasks_of_all_are_added() {
        let ids = |ids: &[u32]| Value::Ids(ids.into());
        let claims = [(Resctrl, ids(&[3, 1])), (SystemConfig, ids(&[2, 3]))];
        check(
            &resctrl(ResctrlKnob::Tasks),
            &claims,
            &ids(&[1, 2, 3]),
            &[Resctrl],
        );
    }

    #[test]
    fn who_wants_the_same_is_not_overruled() {
        let claims = [
            (CpuBurst, Value::Number(5)),
            (CpuNormalization, Value::Number(5)),
        ];
        check(&at(Knob::CpuQuota), &claims, &Value::Number(5), &[CpuBurst]);
        assert_eq!(merge(&at(Knob::CpuQuota), &[]), None);
    }
}
