//! ClusterRoles that gather the rules of others by label. A controller does this in a real cluster.

use serde_json::Value;

use super::rules::Rule;
use crate::kinds::metadata::selects;

/// The rules that an aggregated role ought to have given all ClusterRoles; `None` where it does not aggregate.
///
/// Roles may gather from aggregated roles: after a write, apply this to every aggregated role until nothing changes.
pub fn aggregated_rules(role: &Value, all: &[Value]) -> Option<Vec<Rule>> {
    let selectors = role
        .get("aggregationRule")
        .filter(|rule| rule.is_object())?;
    let selectors = selectors["clusterRoleSelectors"].as_array();
    let mut by_name: Vec<&Value> = all.iter().filter(|one| name(one) != name(role)).collect();
    by_name.sort_by_key(|one| name(one));
    let mut gathered: Vec<Rule> = Vec::new();
    for selector in selectors.into_iter().flatten() {
        let selected = by_name
            .iter()
            .filter(|one| selects(selector, &one["metadata"]["labels"]) == Some(true));
        for rule in selected.flat_map(|one| Rule::all_of(one)) {
            if !gathered.contains(&rule) {
                gathered.push(rule);
            }
        }
    }
    Some(gathered)
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::auth::bootstrap;

    #[test]
    fn the_usual_roles() {
        let mut roles: Vec<Value> = bootstrap::objects(Timestamp::UNIX_EPOCH)
            .filter(|(resource, _)| resource.starts_with("clusterroles."))
            .map(|(_, role)| role)
            .collect();
        // `edit` gathers `view`, which gathers others.
        for _ in 0..3 {
            let now: Vec<Option<Vec<Rule>>> = roles
                .iter()
                .map(|role| aggregated_rules(role, &roles))
                .collect();
            for (role, rules) in roles.iter_mut().zip(now) {
                if let Some(rules) = rules {
                    role["rules"] = serde_json::to_value(rules).unwrap();
                }
            }
        }
        let rules = |name: &str| {
            let mut all = roles.iter();
            let role = all.find(|role| role["metadata"]["name"] == name).unwrap();
            Rule::all_of(role)
        };
        let (view, edit, admin) = (rules("view"), rules("edit"), rules("admin"));
        assert!(view.len() > 5 && edit.len() > view.len() && admin.len() > edit.len());
        assert!(view.iter().all(|rule| edit.contains(rule)));
        assert!(edit.iter().all(|rule| admin.contains(rule)));
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
