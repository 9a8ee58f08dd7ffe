//! Settings of the whole machine.

use plimsoll_plan::{Asker, Note, Plan, Reason, Sysctl, Target, Value};

use crate::input::{Input, NodeView};
use crate::strategy::Outcome;

/// More words than a kernel has features.
const MOST_FEATURES: usize = 256;

pub fn plan(input: &Input<'_>) -> Outcome {
    let Some(node) = input.node.filter(|node| node.memory() > 0) else {
        return Outcome::Keep(None);
    };
    let strategy = &input.policy.system;
    let mut plan = Plan::empty(Asker::SystemConfig);
    if let Some(factor) = strategy.min_free_kbytes_factor {
        let kbytes = min_free(node, factor);
        let why = Reason::new("min_free_kbytes")
            .by("systemStrategy.minFreeKbytesFactor")
            .with("factor", factor as f64)
            .with("memory_bytes", node.memory() as f64);
        number(
            &mut plan,
            Sysctl::MinFreeKbytes,
            kbytes,
            10_240..=10_485_760,
            why,
        );
    }
    let settings = [
        (
            strategy.watermark_scale_factor,
            Sysctl::WatermarkScaleFactor,
            10..=400,
            "systemStrategy.watermarkScaleFactor",
        ),
        (
            strategy.memcg_reap_background,
            Sysctl::MemcgReaper,
            0..=1,
            "systemStrategy.memcgReapBackGround",
        ),
        (
            strategy.group_identity_enabled,
            Sysctl::SchedGroupIdentityEnabled,
            0..=1,
            "systemStrategy.schedGroupIdentityEnabled",
        ),
        (
            strategy.idle_saver_wmark,
            Sysctl::SchedIdleSaverWmark,
            0..=i64::MAX,
            "systemStrategy.schedIdleSaverWmark",
        ),
    ];
    for (wanted, sysctl, range, policy) in settings {
        if let Some(wanted) = wanted {
            let why = Reason::new("system_config").by(policy);
            number(&mut plan, sysctl, wanted, range, why);
        }
    }
    let page_cache = strategy.page_cache_limit_enabled.as_ref();
    if let Some(on) = page_cache.and_then(|on| on.as_bool().or_else(|| Some(on.as_i64()? != 0))) {
        let why = Reason::new("system_config").by("systemStrategy.pageCacheLimitEnabled");
        plan.want(
            Target::Sysctl(Sysctl::PageCacheLimit),
            Value::Switch(on),
            why,
        );
    }
    let features = strategy.sched_features.iter().flatten();
    for (name, on) in features.take(MOST_FEATURES) {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            refuse(&mut plan, "systemStrategy.schedFeatures", name);
            continue;
        }
        let why = Reason::new("system_config").by("systemStrategy.schedFeatures");
        let target = Target::Sysctl(Sysctl::SchedFeature(name.clone()));
        plan.want(target, Value::Switch(*on), why);
    }
    Outcome::Plan(plan)
}

fn min_free(node: &NodeView, factor: i64) -> i64 {
    (node.memory() / 1024).saturating_mul(factor) / 10_000
}

/// What is out of range is left out, and the rest is done.
fn number(
    plan: &mut Plan,
    sysctl: Sysctl,
    wanted: i64,
    range: std::ops::RangeInclusive<i64>,
    why: Reason,
) {
    if range.contains(&wanted) {
        plan.want(Target::Sysctl(sysctl), Value::Number(wanted), why);
    } else {
        refuse(plan, why.policy.unwrap_or_default(), &wanted.to_string());
    }
}

fn refuse(plan: &mut Plan, field: &str, value: &str) {
    plan.notes.push(Note {
        code: "system_config_out_of_range",
        about: field.into(),
        text: format!("{value:?} is out of range. This setting is left as it is.").into(),
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::World;
    use serde_json::{Value as Json, json};

    #[track_caller]
    fn check(system: Json, expected: &[(Sysctl, Value)], notes: usize) {
        let world = World::new(4).policy(json!({"systemStrategy": system}));
        let Outcome::Plan(plan) = plan(&world.input()) else {
            panic!("no plan")
        };
        let found: Vec<(Sysctl, Value)> = plan
            .effects
            .into_iter()
            .filter_map(|one| match one.target {
                Target::Sysctl(sysctl) => Some((sysctl, one.value)),
                _ => None,
            })
            .collect();
        assert_eq!(found, expected);
        assert_eq!(plan.notes.len(), notes);
    }

    #[test]
    fn settings_and_their_ranges() {
        let number = Value::Number;
        check(json!({}), &[], 0);
        // One percent of 64 GiB.
        check(
            json!({"minFreeKbytesFactor": 100}),
            &[(Sysctl::MinFreeKbytes, number(671_088))],
            0,
        );
        check(
            json!({"minFreeKbytesFactor": 1, "watermarkScaleFactor": 401, "memcgReapBackGround": 1, "schedIdleSaverWmark": 5}),
            &[
                (Sysctl::MemcgReaper, number(1)),
                (Sysctl::SchedIdleSaverWmark, number(5)),
            ],
            2,
        );
        check(
            json!({"schedFeatures": {"ID_IDLE_AVG": false, "a b": true}, "pageCacheLimitEnabled": 1, "minFreeKbytesFactor": i64::MAX}),
            &[
                (Sysctl::PageCacheLimit, Value::Switch(true)),
                (
                    Sysctl::SchedFeature("ID_IDLE_AVG".into()),
                    Value::Switch(false),
                ),
            ],
            2,
        );
    }
}
