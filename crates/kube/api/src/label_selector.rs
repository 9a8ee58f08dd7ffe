//! Kubernetes' `LabelSelector`, as objects carry it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All requirements must hold; none at all selects everything.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub match_labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<Expression>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Expression {
    pub key: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl LabelSelector {
    /// What is wrong with it, in a few words.
    pub fn problem(&self) -> Option<String> {
        self.match_expressions.iter().find_map(|one| {
            let needs_values = matches!(one.operator, Operator::In | Operator::NotIn);
            match (needs_values, one.values.is_empty()) {
                (true, true) => Some(format!("{:?} on {} needs values", one.operator, one.key)),
                (false, false) => {
                    Some(format!("{:?} on {} takes no values", one.operator, one.key))
                }
                _ => None,
            }
        })
    }

    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.match_labels
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|one| one.matches(labels))
    }
}

impl Expression {
    fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        let listed = value.is_some_and(|value| self.values.contains(value));
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(selector: &str, expected: bool) {
        let selector: LabelSelector = serde_json::from_str(selector).unwrap();
        let labels = [("a", "1"), ("b", "")].map(|(key, value)| (key.to_owned(), value.to_owned()));
        assert_eq!(selector.matches(&labels.into()), expected);
    }

    #[test]
    fn selectors() {
        check("{}", true);
        check(r#"{"matchLabels":{"a":"1"}}"#, true);
        check(r#"{"matchLabels":{"a":"1","b":"2"}}"#, false);
        check(
            r#"{"matchExpressions":[{"key":"a","operator":"In","values":["1","2"]}]}"#,
            true,
        );
        check(
            r#"{"matchExpressions":[{"key":"c","operator":"NotIn","values":["1"]}]}"#,
            true,
        );
        check(
            r#"{"matchExpressions":[{"key":"b","operator":"Exists"}]}"#,
            true,
        );
        check(
            r#"{"matchExpressions":[{"key":"b","operator":"DoesNotExist"}]}"#,
            false,
        );
    }

    #[test]
    fn problems_are_named() {
        let selector: LabelSelector =
            serde_json::from_str(r#"{"matchExpressions":[{"key":"a","operator":"In"}]}"#).unwrap();
        assert_eq!(selector.problem().as_deref(), Some("In on a needs values"));
        assert_eq!(LabelSelector::default().problem(), None);
    }
}
