//! How much of a device's capacity a request takes.

use std::collections::BTreeMap;

use plimsoll_api::quantity::{Notation, Quantity};

use crate::model::devices::{Capacity, CapacityPolicy, Device};

type Amounts = BTreeMap<Box<str>, Quantity>;

/// What a request would take of a device of which some is gone already. `None`: there is not so much, or it may not be
/// asked for like this.
pub fn consumed(
    device: &Device,
    asked: &Amounts,
    gone: Option<&BTreeMap<Box<str>, i64>>,
) -> Option<Amounts> {
    if asked.keys().any(|name| !device.capacity.contains_key(name)) {
        return None;
    }
    let mut consumed = Amounts::new();
    for (name, capacity) in &device.capacity {
        let amount = rounded(asked.get(name), capacity);
        if is_forbidden(&amount, &capacity.policy) {
            return None;
        }
        let gone = gone.and_then(|gone| gone.get(name)).copied().unwrap_or(0);
        if gone.saturating_add(amount.milli()) > capacity.value.milli() {
            return None;
        }
        consumed.insert(name.clone(), amount);
    }
    Some(consumed)
}

/// Without a wish it is the default, or all there is; a wish goes up to the next amount that is allowed.
fn rounded(asked: Option<&Quantity>, capacity: &Capacity) -> Quantity {
    let policy = &capacity.policy;
    let Some(asked) = asked else {
        return policy
            .default
            .clone()
            .unwrap_or_else(|| capacity.value.clone());
    };
    if let Some(min) = &policy.min {
        if asked.milli() < min.milli() {
            return min.clone();
        }
        let Some(step) = policy.step.as_ref().filter(|step| step.value() > 0) else {
            return asked.clone();
        };
        let [asked, min, step] = [asked, min, step].map(|amount| i128::from(amount.value()));
        let steps = (asked - min + step - 1) / step;
        let whole = min + steps * step;
        return Quantity::from_nanos(whole.saturating_mul(1_000_000_000), Notation::Binary);
    }
    let next = policy
        .values
        .iter()
        .find(|value| asked.milli() <= value.milli());
    next.unwrap_or(asked).clone()
}

fn is_forbidden(amount: &Quantity, policy: &CapacityPolicy) -> bool {
    if policy.default.as_ref() == Some(amount) {
        return false;
    }
    if policy
        .max
        .as_ref()
        .is_some_and(|max| amount.milli() > max.milli())
    {
        return true;
    }
    if let Some(step) = policy.step.as_ref().filter(|step| step.value() > 0) {
        let min = policy.min.as_ref().map_or(0, Quantity::value);
        let more = i128::from(amount.value()) - i128::from(min);
        return more % i128::from(step.value()) != 0;
    }
    !policy.values.is_empty()
        && policy
            .values
            .iter()
            .all(|value| value.milli() != amount.milli())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(policy: &[(&str, &str)], values: &[&str]) -> Capacity {
        let get = |name: &str| {
            let found = policy.iter().find(|(key, _)| *key == name);
            found.map(|(_, text)| text.parse().unwrap())
        };
        Capacity {
            value: "10Gi".parse().unwrap(),
            policy: CapacityPolicy {
                default: get("default"),
                min: get("min"),
                max: get("max"),
                step: get("step"),
                values: values.iter().map(|text| text.parse().unwrap()).collect(),
            },
        }
    }

    #[test]
    fn wishes_are_rounded_up() {
        let range = capacity(
            &[
                ("default", "1Gi"),
                ("min", "2Gi"),
                ("step", "2Gi"),
                ("max", "8Gi"),
            ],
            &[],
        );
        let list = capacity(&[("default", "1Gi")], &["1Gi", "4Gi"]);
        for (capacity, asked, expected, forbidden) in [
            (&capacity(&[], &[]), None, "10Gi", false),
            (&capacity(&[], &[]), Some("3Gi"), "3Gi", false),
            (&range, None, "1Gi", false),
            (&range, Some("1Gi"), "2Gi", false),
            (&range, Some("3Gi"), "4Gi", false),
            (&range, Some("9Gi"), "10Gi", true),
            (&list, Some("2Gi"), "4Gi", false),
            (&list, Some("5Gi"), "5Gi", true),
        ] {
            let asked: Option<Quantity> = asked.map(|text: &str| text.parse().unwrap());
            let found = rounded(asked.as_ref(), capacity);
            assert_eq!(found.to_string(), expected);
            assert_eq!(is_forbidden(&found, &capacity.policy), forbidden, "{found}");
        }
    }
}
