//! How much more of its resources a node counts for than it has: what the operator wants, and for CPU how much faster its
//! cores are besides.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::by_node::ByNode;

pub const KEY: &str = "resource-amplification-config";
const CPU: &str = "cpu";

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Strategy {
    enable: Option<bool>,
    #[serde(rename = "resourceAmplificationRatio")]
    ratios: BTreeMap<String, f64>,
}

/// For the cluster, and for kinds of nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Amplification(ByNode<Strategy>);

impl Amplification {
    /// Refused as a whole if anything in it is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        ByNode::parse(text, json!({}), checked).map(Self)
    }

    /// A node's ratios by resource, as its annotation has them; `None`: it counts for what it has. `cores` is how much
    /// faster its cores are than others.
    pub fn ratios(&self, labels: &BTreeMap<String, String>, cores: Option<f64>) -> Option<String> {
        let strategy = self.0.for_node(labels);
        let mut ratios = match strategy.enable {
            Some(true) => strategy.ratios.clone(),
            _ => BTreeMap::new(),
        };
        let wanted = ratios.get(CPU).copied().unwrap_or(1.0);
        let cpu = wanted * cores.unwrap_or(1.0);
        if cpu > 1.0 {
            ratios.insert(CPU.to_owned(), cpu);
        }
        let entries = ratios
            .into_iter()
            .map(|(resource, ratio)| format!("{}:{ratio:.2}", Value::from(resource)));
        let entries: Vec<String> = entries.collect();
        (!entries.is_empty()).then(|| format!("{{{}}}", entries.join(",")))
    }
}

fn checked(strategy: Value) -> Result<Strategy, String> {
    let strategy: Strategy = serde_json::from_value(strategy).map_err(|error| error.to_string())?;
    match strategy.ratios.iter().find(|(_, ratio)| **ratio < 1.0) {
        Some((resource, ratio)) => Err(format!("{resource}: must be at least 1, and is {ratio}")),
        None => Ok(strategy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pool: &str, cores: Option<f64>, expected: Option<&str>) {
        let text = json!({
            "enable": true,
            "resourceAmplificationRatio": {"memory": 1.2, "cpu": 1.5},
            "nodeConfigs": [
                {"nodeSelector": {"matchLabels": {"pool": "off"}}, "enable": false},
                {"nodeSelector": {"matchLabels": {"pool": "one"}}, "resourceAmplificationRatio": {"cpu": 1}},
            ]
        });
        let found = Amplification::parse(&text.to_string()).unwrap();
        let labels = BTreeMap::from([("pool".to_owned(), pool.to_owned())]);
        assert_eq!(found.ratios(&labels, cores).as_deref(), expected);
    }

    #[test]
    fn what_is_wanted_and_how_fast_cores_are() {
        check("", None, Some(r#"{"cpu":1.50,"memory":1.20}"#));
        check("", Some(1.1), Some(r#"{"cpu":1.65,"memory":1.20}"#));
        check("one", Some(1.0), Some(r#"{"cpu":1.00,"memory":1.20}"#));
        check("off", Some(1.0), None);
        check("off", Some(1.25), Some(r#"{"cpu":1.25}"#));
    }

    #[test]
    fn less_than_there_is_is_refused() {
        let text = r#"{"nodeConfigs":[{"resourceAmplificationRatio":{"cpu":0.5}}]}"#;
        let complaint = "nodeConfigs[0]: cpu: must be at least 1, and is 0.5";
        assert_eq!(Amplification::parse(text).unwrap_err(), complaint);
    }
}
