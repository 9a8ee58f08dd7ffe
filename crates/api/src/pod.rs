//! What a pod asks for, added up as the scheduler does it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::quantity::Quantity;

pub type Amounts = BTreeMap<Box<str>, Quantity>;

/// Requests and limits of a container or a pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    #[serde(deserialize_with = "amounts")]
    pub requests: Amounts,
    #[serde(deserialize_with = "amounts")]
    pub limits: Amounts,
}

/// A resource list. Amounts that are none are left out: whoever wrote them has been told by the API server.
pub fn amounts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Amounts, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Amount {
        Text(String),
        Number(serde_json::Number),
        Other(serde::de::IgnoredAny),
    }
    let given = Option::<BTreeMap<Box<str>, Amount>>::deserialize(deserializer)?;
    let parsed = given.unwrap_or_default().into_iter();
    let parsed = parsed.filter_map(|(name, amount)| {
        let text = match amount {
            Amount::Text(text) => text,
            Amount::Number(number) => number.to_string(),
            Amount::Other(_) => return None,
        };
        Some((name, text.parse().ok()?))
    });
    Ok(parsed.collect())
}

/// One of a pod's containers.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    pub amounts: &'a Amounts,
    /// An init container that goes on running beside the others.
    pub stays: bool,
}

/// What a pod keeps while it runs, or needs to start, whichever is more; amounts of the pod as a whole, where it names
/// them, come before those of its containers.
pub fn total<'a>(
    running: impl IntoIterator<Item = &'a Amounts>,
    starting: impl IntoIterator<Item = Part<'a>>,
    whole: &Amounts,
    overhead: &Amounts,
) -> Amounts {
    let mut kept = Amounts::new();
    for amounts in running {
        add(&mut kept, amounts);
    }
    let mut needed = Amounts::new();
    let mut beside = Amounts::new();
    for part in starting {
        // One that goes on running is there when the next one starts.
        if part.stays {
            add(&mut beside, part.amounts);
            raise(&mut needed, &beside);
        } else {
            let mut then = beside.clone();
            add(&mut then, part.amounts);
            raise(&mut needed, &then);
        }
    }
    add(&mut kept, &beside);
    raise(&mut kept, &needed);
    kept.extend(
        whole
            .iter()
            .map(|(name, amount)| (name.clone(), amount.clone())),
    );
    add(&mut kept, overhead);
    kept
}

fn add(sum: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        match sum.get_mut(name) {
            Some(sum) => *sum = &*sum + amount,
            None => drop(sum.insert(name.clone(), amount.clone())),
        }
    }
}

fn raise(most: &mut Amounts, amounts: &Amounts) {
    for (name, amount) in amounts {
        match most.get_mut(name) {
            Some(most) if *most >= *amount => {}
            Some(most) => *most = amount.clone(),
            None => drop(most.insert(name.clone(), amount.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn list(value: serde_json::Value) -> Amounts {
        let resources: Resources = serde_json::from_value(json!({"requests": value})).unwrap();
        resources.requests
    }

    #[test]
    fn what_starts_and_what_stays() {
        let list = |cpu: &str, memory: &str| list(json!({"cpu": cpu, "memory": memory}));
        let running = [list("1", "100"), list("500m", "50")];
        let starting = [list("100m", "10"), list("200m", "20"), list("3", "30")];
        let parts = starting.iter().zip([false, true, false]);
        let parts = parts.map(|(amounts, stays)| Part { amounts, stays });
        let found = total(&running, parts, &Amounts::new(), &list("10m", "1"));
        // CPU: the last init container beside the one that stays; memory: the containers beside it.
        assert_eq!((found["cpu"].milli(), found["memory"].value()), (3210, 171));
    }

    #[test]
    fn the_pod_as_a_whole_comes_first() {
        let running = [list(json!({"cpu": "1", "memory": "100"}))];
        let whole = list(json!({"cpu": "5"}));
        let found = total(&running, [], &whole, &Amounts::new());
        assert_eq!((found["cpu"].milli(), found["memory"].value()), (5000, 100));
    }

    #[test]
    fn numbers_and_nonsense_in_lists() {
        let found = list(json!({"cpu": 2, "memory": "much", "pods": null, "x/y": "3"}));
        let names: Vec<&str> = found.keys().map(|name| &**name).collect();
        assert_eq!(names, ["cpu", "x/y"]);
        let nothing: Resources = serde_json::from_value(json!({"requests": null})).unwrap();
        assert!(nothing.requests.is_empty());
    }
}
