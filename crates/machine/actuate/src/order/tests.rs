use std::collections::BTreeMap;

use super::*;
use proptest::prelude::*;

fn cpus(cpus: &[u32]) -> Value {
    Value::Cpus(cpus.iter().copied().collect())
}

fn bytes(bytes: u64) -> Value {
    Value::Bytes(Some(bytes))
}

fn quota(quota_us: Option<u64>, period_us: u64) -> Value {
    Value::Quota {
        quota_us,
        period_us: Some(period_us),
    }
}

fn change(path: &str, knob: Knob, from: Value, to: Value) -> Change {
    Change {
        target: Target::cgroup(&path.into(), knob),
        form: Form::V2,
        from: Some(from),
        to,
    }
}

#[track_caller]
fn check(changes: &[Change], expected: &[&str]) {
    let steps: Vec<_> = arrange(changes)
        .iter()
        .map(|step| {
            let change = &changes[step.change];
            let path = change.target.cgroup_path().unwrap();
            format!("{path} {}", step.value)
        })
        .collect();
    assert_eq!(steps, expected);
}

#[test]
fn what_grows_goes_down_and_what_shrinks_goes_up() {
    let knob = Knob::MemoryMin;
    let grow = |path| change(path, knob, bytes(1), bytes(2));
    let shrink = |path| change(path, knob, bytes(2), bytes(1));
    check(
        &[grow("/a/b"), grow("/a"), shrink("/c"), shrink("/c/d")],
        &["/a 2 bytes", "/a/b 2 bytes", "/c/d 1 bytes", "/c 1 bytes"],
    );
}

#[test]
fn cpusets_pass_through_their_union() {
    check(
        &[
            change("/a", Knob::Cpuset, cpus(&[0, 1]), cpus(&[2, 3])),
            change("/a/b", Knob::Cpuset, cpus(&[1]), cpus(&[3])),
        ],
        &["/a CPUs 0-3", "/a/b CPUs 1,3", "/a/b CPUs 3", "/a CPUs 2-3"],
    );
}

#[test]
fn an_empty_cpuset_is_everything_on_v2_and_nothing_on_v1() {
    let mut growing = change("/a", Knob::Cpuset, cpus(&[]), cpus(&[1]));
    assert_eq!(direction(&growing), Direction::Shrink);
    growing.form = Form::V1;
    assert_eq!(direction(&growing), Direction::Grow);
}

#[test]
fn a_burst_stays_below_its_quota() {
    let number = Value::Number;
    let both = |from: (u64, i64), to: (u64, i64)| {
        [
            change(
                "/a",
                Knob::CpuQuota,
                quota(Some(from.0), 100_000),
                quota(Some(to.0), 100_000),
            ),
            change("/a", Knob::CpuBurst, number(from.1), number(to.1)),
        ]
    };
    check(
        &both((9000, 9000), (5000, 5000)),
        &["/a 5000", "/a 5000us per 100000us"],
    );
    check(
        &both((5000, 5000), (9000, 9000)),
        &["/a 9000us per 100000us", "/a 9000"],
    );
}

#[test]
fn only_writes_that_reclaim_or_move_may_block() {
    let slow = |change: Change| {
        arrange(&[change])
            .iter()
            .map(|step| step.slow)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        slow(change("/a", Knob::MemoryMax, bytes(2), bytes(1))),
        [true]
    );
    assert_eq!(
        slow(change("/a", Knob::MemoryMax, bytes(1), bytes(2))),
        [false]
    );
    assert_eq!(
        slow(change("/a", Knob::MemoryMin, bytes(2), bytes(1))),
        [false]
    );
    assert_eq!(
        slow(change("/a", Knob::Cpuset, cpus(&[0]), cpus(&[1]))),
        [false, true]
    );
}

/// Parents of the cgroups `/0`, `/0/0`, `/0/1`, `/0/0/0` …
const TREE: [&str; 7] = ["/0", "/0/0", "/0/1", "/0/0/0", "/0/0/1", "/0/1/0", "/0/1/1"];

fn parent_of(index: usize) -> Option<usize> {
    index.checked_sub(1).map(|above| above / 2)
}

fn exceeds(child: &Value, parent: &Value) -> bool {
    match (child, parent) {
        (Value::Cpus(child), Value::Cpus(parent)) => {
            !child.is_empty() && !parent.is_empty() && !child.0.is_subset(&parent.0)
        }
        (Value::Bytes(child), Value::Bytes(parent)) => {
            child.unwrap_or(u64::MAX) > parent.unwrap_or(u64::MAX)
        }
        (
            Value::Quota {
                quota_us: Some(child),
                period_us: Some(child_period),
            },
            Value::Quota {
                quota_us: Some(parent),
                period_us: Some(parent_period),
            },
        ) => {
            u128::from(*child) * u128::from(*parent_period)
                > u128::from(*parent) * u128::from(*child_period)
        }
        _ => false,
    }
}

fn a_value(knob: Knob) -> BoxedStrategy<Value> {
    match knob {
        Knob::Cpuset => prop::collection::btree_set(0u32..5, 0..5)
            .prop_map(|cpus| cpus.into_iter().collect())
            .prop_map(Value::Cpus)
            .boxed(),
        Knob::CpuQuota => (
            prop::option::of(1u64..6),
            prop::sample::select(vec![50_000u64, 100_000]),
        )
            .prop_map(|(quota, period)| super::tests::quota(quota.map(|q| q * 10_000), period))
            .boxed(),
        _ => prop::option::of(0u64..5).prop_map(Value::Bytes).boxed(),
    }
}

fn a_plan(knob: Knob) -> impl Strategy<Value = Vec<(Value, Option<Value>)>> {
    let one = (a_value(knob), prop::option::weighted(0.8, a_value(knob)));
    prop::collection::vec(one, TREE.len())
}

fn never_exceeds(knob: Knob, plan: &[(Value, Option<Value>)]) -> Result<(), TestCaseError> {
    let mut now: BTreeMap<usize, Value> = plan
        .iter()
        .map(|(from, _)| from.clone())
        .enumerate()
        .collect();
    let before = now.clone();
    let wanted = |index: usize| plan[index].1.as_ref().unwrap_or(&plan[index].0);
    let changed: Vec<usize> = (0..TREE.len())
        .filter(|i| *wanted(*i) != plan[*i].0)
        .collect();
    let changes: Vec<_> = changed
        .iter()
        .map(|index| {
            change(
                TREE[*index],
                knob,
                plan[*index].0.clone(),
                wanted(*index).clone(),
            )
        })
        .collect();
    for step in arrange(&changes) {
        now.insert(changed[step.change], step.value);
        for (child, path) in TREE.iter().enumerate() {
            // Every cgroup above, not only the next: the one between may have no limit.
            let mut above = parent_of(child);
            while let Some(parent) = above {
                let fine =
                    |values: &dyn Fn(usize) -> Value| !exceeds(&values(child), &values(parent));
                if fine(&|i| before[&i].clone()) && fine(&|i| wanted(i).clone()) {
                    prop_assert!(fine(&|i| now[&i].clone()), "{path} above {}", TREE[parent]);
                }
                above = parent_of(parent);
            }
        }
    }
    for (index, value) in now {
        prop_assert_eq!(&value, wanted(index));
    }
    Ok(())
}

proptest! {
    #[test]
    fn cpusets_never_exceed(plan in a_plan(Knob::Cpuset)) {
        never_exceeds(Knob::Cpuset, &plan)?;
    }

    #[test]
    fn quotas_never_exceed(plan in a_plan(Knob::CpuQuota)) {
        never_exceeds(Knob::CpuQuota, &plan)?;
    }

    #[test]
    fn promises_never_exceed(plan in a_plan(Knob::MemoryMin)) {
        never_exceeds(Knob::MemoryMin, &plan)?;
    }

    #[test]
    fn bursts_never_exceed_quotas(
        from in (prop::option::of(1u64..9), 1u64..3, 0i64..9), to in (prop::option::of(1u64..9), 1u64..3, 0i64..9),
    ) {
        let fits = |(quota, _, burst): (Option<u64>, u64, i64)| quota.is_none_or(|quota| burst <= quota as i64);
        prop_assume!(fits(from) && fits(to));
        let quota = |(q, period, _): (Option<u64>, u64, i64)| quota(q.map(|q| q * 1000), period * 50_000);
        let burst = |(_, _, burst): (Option<u64>, u64, i64)| Value::Number(burst * 1000);
        let changes = [
            change("/a", Knob::CpuQuota, quota(from), quota(to)),
            change("/a", Knob::CpuBurst, burst(from), burst(to)),
        ];
        let mut now = [quota(from), burst(from)];
        for step in arrange(&changes) {
            now[step.change] = step.value;
            if let [Value::Quota { quota_us: Some(quota), .. }, Value::Number(burst)] = &now {
                prop_assert!(*burst <= *quota as i64, "{now:?}");
            }
        }
        prop_assert_eq!(now, [quota(to), burst(to)]);
    }
}
