//! Small kinds that say how others behave: disruption budgets, priorities, runtimes, leases.

use serde_json::Value;

use super::at::{At, Errors, field, text};
use super::names;
use super::names::NameRule;
use super::pod::warnings::deprecated_label;
use super::pod::{admission, resources, scheduling};
use super::rules::Rules;
use super::workloads::{at_most_all, int_or_percent};
use super::{Lookup, metadata, shown};
use crate::met::Met;
use crate::status::{StatusError, Subject};

pub(super) static KINDS: &[&Rules] = &[&BUDGET, &PRIORITY_CLASS, &RUNTIME_CLASS, &LEASE];

static BUDGET: Rules = Rules {
    kind: "PodDisruptionBudget",
    names: NameRule::PathSegment,
    own_metadata: false,
    status: true,
    generation: true,
    validate: budget,
    validate_status: |new, _, errors| {
        let status = new.get("status");
        metadata::conditions(&status.get("conditions"), errors);
        for name in [
            "disruptionsAllowed",
            "currentHealthy",
            "desiredHealthy",
            "expectedPods",
        ] {
            errors.non_negative(&status.get(name));
        }
    },
    ..Rules::namespaced("policy")
};

fn budget(budget: &At<'_>, errors: &mut Errors) {
    let spec = budget.get("spec");
    let [min, max, policy, selector] = [
        "minAvailable",
        "maxUnavailable",
        "unhealthyPodEvictionPolicy",
        "selector",
    ]
    .map(|name| spec.get(name));
    if min.is_set() && max.is_set() {
        let labels = shown::published(selector.value, shown::LABEL_SELECTOR);
        let shown = format!(
            "{{\"MinAvailable\":{},\"Selector\":{labels},\"MaxUnavailable\":{},\"UnhealthyPodEvictionPolicy\":{}}}",
            min.value, max.value, policy.value
        );
        errors.invalid_shown(
            &spec,
            &shown,
            "minAvailable and maxUnavailable cannot be both set",
        );
    }
    for amount in [&min, &max] {
        if amount.is_set() {
            int_or_percent(amount, errors);
            at_most_all(amount, errors);
        }
    }
    metadata::selector(&selector, errors);
    errors.optional_choice(&policy, &["AlwaysAllow", "IfHealthyBudget"]);
}

const HIGHEST_OF_USERS: i64 = 1_000_000_000;
/// Name, value.
const OF_THE_SYSTEM: &[(&str, i64)] = &[
    ("system-node-critical", 2 * HIGHEST_OF_USERS + 1000),
    ("system-cluster-critical", 2 * HIGHEST_OF_USERS),
];

static PRIORITY_CLASS: Rules = Rules {
    kind: "PriorityClass",
    prepare_create: |class| class["metadata"]["generation"] = 1.into(),
    validate: priority_class,
    validate_update: Some(|new, old, errors| {
        let value = new.get("value");
        if value.number() != old.get("value").number() {
            errors.forbidden(&value, "may not be changed in an update.");
        }
        errors.immutable(&new.get("preemptionPolicy"), &old.get("preemptionPolicy"));
    }),
    approve: only_default,
    ..Rules::cluster("scheduling.k8s.io")
};

fn priority_class(class: &At<'_>, errors: &mut Errors) {
    let name = class.dig(&["metadata", "name"]);
    let value = class.get("value");
    if name.text().starts_with("system-") {
        let known = OF_THE_SYSTEM
            .iter()
            .find(|(known, _)| *known == name.text());
        let why = match known {
            None => Some(format!(
                "{} is not a known system priority class",
                name.text()
            )),
            Some((known, expected)) if *expected != value.number() => {
                Some(format!("value of {known} PriorityClass must be {expected}"))
            }
            Some((known, _)) if class.get("globalDefault").flag() => Some(format!(
                "globalDefault of {known} PriorityClass must be false"
            )),
            Some(_) => None,
        };
        if let Some(why) = why {
            errors.forbidden(&name, format!("priority class names with 'system-' prefix are reserved for system use only. error: {why}"));
        }
    } else if value.number() > HIGHEST_OF_USERS {
        errors.forbidden(
            &value,
            format!("maximum allowed value of a user defined priority is {HIGHEST_OF_USERS}"),
        );
    }
    let policy = class.get("preemptionPolicy");
    if policy.is_set() {
        errors.choice(&policy, &["PreemptLowerPriority", "Never"]);
    }
}

/// There is at most one default.
fn only_default(class: &Value, old: Option<&Value>, world: &dyn Lookup) -> Result<(), StatusError> {
    if class["globalDefault"] != true {
        return Ok(());
    }
    let name = text(class, &["metadata", "name"]);
    match admission::default_class(world) {
        Some(other) if old.is_none() || text(&other, &["metadata", "name"]) != name => {
            let subject = Subject {
                group: "scheduling.k8s.io",
                kind: "priorityclasses",
            };
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                text(&other, &["metadata", "name"])
            );
            Err(StatusError::forbidden(subject, name, &why))
        }
        _ => Ok(()),
    }
}

static RUNTIME_CLASS: Rules = Rules {
    kind: "RuntimeClass",
    known_finalizers: false,
    update_checks_metadata: true,
    warnings: |class, _| {
        let selector = At::root(class).dig(&["scheduling", "nodeSelector"]);
        let keys = selector.entries().map(|(key, _)| key);
        keys.filter_map(deprecated_label)
            .map(|words| format!("{}: {words}", selector.path()))
            .collect()
    },
    validate: runtime_class,
    validate_update: Some(|new, old, errors| {
        let (meta, before) = (new.get("metadata"), old.get("metadata"));
        metadata::check(&meta, Some(false), NameRule::Subdomain, errors);
        runtime_class(new, errors);
        metadata::check_update(&meta, &before, errors);
        errors.immutable_text(&new.get("handler"), &old.get("handler"));
    }),
    ..Rules::cluster("node.k8s.io")
};

fn runtime_class(class: &At<'_>, errors: &mut Errors) {
    let handler = class.get("handler");
    if handler.is_empty() {
        errors.required(&handler, "");
    } else {
        errors.format(&handler, names::label);
    }
    for (name, amount) in class.dig(&["overhead", "podFixed"]).entries() {
        let place = class.dig(&["overhead", "limits"]).key(name);
        resources::limited_name(&amount.reported_at(&place), name, true, errors);
        resources::resource_amount(&amount.reported_at(&place), name, errors);
    }
    let rules = class.get("scheduling");
    metadata::labels(&rules.get("nodeSelector"), errors);
    scheduling::tolerations(&rules.get("tolerations"), errors);
    distinct_tolerations(&rules.get("tolerations"), errors);
}

/// The same toleration twice is one too many, whatever its seconds.
fn distinct_tolerations(tolerations: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    for toleration in tolerations.items() {
        let key = ["key", "operator", "value", "effect"].map(|part| toleration.get(part).text());
        if seen.contains(&key) {
            let [name, operator, value, effect] = key.map(Value::from);
            let shown = shown::fields(&[
                ("Key", &name),
                ("Operator", &operator),
                ("Value", &value),
                ("Effect", &effect),
                (
                    "TolerationSeconds",
                    toleration.get("tolerationSeconds").value,
                ),
            ]);
            errors.duplicate_shown(&toleration, &shown);
        }
        seen.push(key);
    }
}

static LEASE: Rules = Rules {
    kind: "Lease",
    known_finalizers: false,
    validate: |lease, errors| {
        let spec = lease.get("spec");
        let duration = spec.get("leaseDurationSeconds");
        if duration.is_set() && duration.number() <= 0 {
            errors.invalid(&duration, duration.number(), "must be greater than 0");
        }
        errors.non_negative(&spec.get("leaseTransitions"));
    },
    ..Rules::namespaced("coordination.k8s.io")
};

/// Whether a budget's selector picks a pod: one that is absent picks nothing, an empty one everything.
pub fn budget_covers(budget: &Value, pod: &Value) -> bool {
    let selector = field(budget, &["spec", "selector"]);
    !selector.is_null()
        && metadata::selects(selector, field(pod, &["metadata", "labels"])) == Some(true)
}
