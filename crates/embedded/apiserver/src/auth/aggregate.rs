//! ClusterRoles that gather the rules of others by label. In a real cluster a controller writes down what they gather;
//! here that is what counts, and is written down for people to see.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

use super::rules::Rule;
use crate::kinds::metadata::selects;

/// A ClusterRole, as far as anybody asks.
#[derive(Debug)]
pub struct ClusterRole {
    /// As they are written.
    pub rules: Arc<[Rule]>,
    labels: Value,
    /// `None`: it does not gather.
    selectors: Option<Vec<Value>>,
}

impl ClusterRole {
    pub fn of(object: &Value) -> Self {
        let aggregation = &object["aggregationRule"];
        let selectors = aggregation["clusterRoleSelectors"].as_array();
        Self {
            rules: Rule::all_of(object).into(),
            labels: object["metadata"]["labels"].clone(),
            selectors: aggregation
                .is_object()
                .then(|| selectors.cloned().unwrap_or_default()),
        }
    }
}

/// What each role that gathers ought to have. Roles may gather from others that do.
pub fn gathered(all: &FxHashMap<String, Arc<ClusterRole>>) -> FxHashMap<String, Arc<[Rule]>> {
    let by_name: BTreeMap<&str, &ClusterRole> = all
        .iter()
        .map(|(name, role)| (name.as_str(), role.as_ref()))
        .collect();
    let sources: Vec<(&str, Vec<&str>)> = by_name
        .iter()
        .filter_map(|(name, role)| {
            let selectors = role.selectors.as_ref()?;
            let selected = selectors.iter().flat_map(|selector| {
                let others = by_name.iter().filter(move |(other, _)| *other != name);
                others
                    .filter(move |(_, role)| selects(selector, &role.labels) == Some(true))
                    .map(|(other, _)| *other)
            });
            Some((*name, selected.collect()))
        })
        .collect();
    let mut gathered: FxHashMap<String, Arc<[Rule]>> = sources
        .iter()
        .map(|(name, _)| ((*name).to_owned(), Arc::default()))
        .collect();
    // What one gathers from another has come all the way after as many rounds as there are of them.
    for _ in 0..=sources.len() {
        let mut changed = false;
        for (name, selected) in &sources {
            let mut seen = FxHashSet::default();
            let rules: Vec<&Rule> = selected
                .iter()
                .flat_map(|other| gathered.get(*other).unwrap_or(&by_name[other].rules).iter())
                .filter(|rule| seen.insert(*rule))
                .collect();
            if rules.len() == gathered[*name].len()
                && rules
                    .iter()
                    .zip(gathered[*name].iter())
                    .all(|(one, other)| *one == other)
            {
                continue;
            }
            let rules = rules.into_iter().cloned().collect();
            gathered.insert((*name).to_owned(), rules);
            changed = true;
        }
        if !changed {
            break;
        }
    }
    gathered
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::auth::bootstrap;

    #[test]
    fn the_usual_roles() {
        let roles = bootstrap::objects(Timestamp::UNIX_EPOCH)
            .filter(|(resource, _)| resource.starts_with("clusterroles."))
            .map(|(_, role)| {
                let name = role["metadata"]["name"].as_str().unwrap().to_owned();
                (name, Arc::new(ClusterRole::of(&role)))
            });
        // `edit` gathers `view`, which gathers others.
        let gathered = gathered(&roles.collect());
        let (view, edit, admin) = (&gathered["view"], &gathered["edit"], &gathered["admin"]);
        assert!(view.len() > 5 && edit.len() > view.len() && admin.len() > edit.len());
        assert!(view.iter().all(|rule| edit.contains(rule)));
        assert!(edit.iter().all(|rule| admin.contains(rule)));
    }

    fn role(label: &str, gathers: Option<&str>, verb: &str) -> Arc<ClusterRole> {
        let mut object = json!({
            "metadata": {"labels": {label: "1"}},
            "rules": [{"verbs": [verb], "apiGroups": [""], "resources": ["pods"]}],
        });
        if let Some(label) = gathers {
            let selector = json!({"matchLabels": {label: "1"}});
            object["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
        }
        Arc::new(ClusterRole::of(&object))
    }

    #[test]
    fn what_is_written_does_not_count() {
        let mut all = FxHashMap::default();
        all.insert("a".to_owned(), role("x", Some("b"), "old"));
        all.insert("b".to_owned(), role("b", Some("c"), "old"));
        all.insert("c".to_owned(), role("c", None, "get"));
        let verbs = |all: &FxHashMap<String, Arc<ClusterRole>>| {
            let gathered = gathered(all);
            ["a", "b"].map(|name| {
                let rules = gathered[name].iter();
                rules.map(|rule| rule.verbs.concat()).collect::<String>()
            })
        };
        assert_eq!(verbs(&all), ["get", "get"]);
        all.remove("c");
        assert_eq!(verbs(&all), ["", ""]);
        // Two that gather each other keep nothing alive.
        all.insert("a".to_owned(), role("c", Some("b"), "old"));
        assert_eq!(verbs(&all), ["", ""]);
    }

    #[test]
    fn selectors() {
        let labels = json!({"a": "1", "b": "2"});
        let check = |selector: Value, expected: bool| {
            assert_eq!(
                selects(&selector, &labels) == Some(true),
                expected,
                "{selector}"
            );
        };
        check(json!({}), true);
        check(json!({"matchLabels": {"a": "1"}}), true);
        check(json!({"matchLabels": {"a": "1", "c": "3"}}), false);
        let one = |operator: &str, key: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(one("In", "a", json!(["0", "1"])), true);
        check(one("In", "c", json!(["0"])), false);
        check(one("NotIn", "a", json!(["1"])), false);
        check(one("NotIn", "c", json!(["1"])), true);
        check(one("Exists", "b", json!(null)), true);
        check(one("DoesNotExist", "b", json!(null)), false);
        check(one("Near", "b", json!(null)), false);
    }
}
