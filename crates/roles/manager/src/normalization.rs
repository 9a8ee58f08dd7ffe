//! How much faster a node's cores are than those that requests were measured on: by the model of its CPUs, as the operator
//! has measured them.

use std::collections::BTreeMap;

use plimsoll_api::names;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::by_node::ByNode;

pub const KEY: &str = "cpu-normalization-config";
/// What is beyond is a mistake rather than a machine.
const BELIEVABLE: std::ops::RangeInclusive<f64> = 1.0..=5.0;

#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Strategy {
    enable: Option<bool>,
    /// Of models that are not listed.
    default_ratio: Option<f64>,
    ratio_model: BTreeMap<String, Ratios>,
}

/// Of a model, by what is switched on.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ratios {
    base_ratio: Option<f64>,
    hyper_thread_enabled_ratio: Option<f64>,
    turbo_enabled_ratio: Option<f64>,
    hyper_thread_turbo_enabled_ratio: Option<f64>,
}

/// As the node's agent tells it in the topology object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Cpus {
    cpu_model: String,
    hyper_thread_enabled: bool,
    turbo_enabled: bool,
}

/// For the cluster, and for kinds of nodes.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Normalization(ByNode<Strategy>);

impl Normalization {
    /// Refused as a whole if anything in it is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        ByNode::parse(text, json!({}), checked).map(Self)
    }

    /// A node's ratio; `cpus` is what its topology object says of them. The error says why nobody knows it.
    pub fn ratio(
        &self,
        labels: &BTreeMap<String, String>,
        cpus: Option<&String>,
    ) -> Result<f64, String> {
        let strategy = self.0.for_node(labels);
        let label = names::LABEL_NORMALIZATION_ENABLED;
        let enabled = match labels.get(label).map(String::as_str) {
            None => strategy.enable == Some(true),
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => true,
            Some("0" | "f" | "F" | "false" | "False" | "FALSE") => false,
            Some(other) => return Err(format!("label {label}: {other:?} is not true or false")),
        };
        if !enabled {
            return Ok(1.0);
        }
        let cpus = cpus.ok_or("the node's agent has not told its CPUs")?;
        let cpus: Cpus = serde_json::from_str(cpus)
            .map_err(|error| format!("{}: {error}", names::ANNOTATION_CPU_BASIC_INFO))?;
        let of_model = strategy.ratio_model.get(&cpus.cpu_model).and_then(|of| {
            match (cpus.hyper_thread_enabled, cpus.turbo_enabled) {
                (true, true) => of.hyper_thread_turbo_enabled_ratio,
                (true, false) => of.hyper_thread_enabled_ratio,
                (false, true) => of.turbo_enabled_ratio,
                (false, false) => of.base_ratio,
            }
        });
        let ratio = of_model.or(strategy.default_ratio);
        ratio.ok_or_else(|| format!("{KEY} has no ratio for CPUs like {:?}", cpus.cpu_model))
    }
}

fn checked(strategy: Value) -> Result<Strategy, String> {
    let strategy: Strategy = serde_json::from_value(strategy).map_err(|error| error.to_string())?;
    let of_models = strategy.ratio_model.iter().flat_map(|(model, of)| {
        let all = [
            of.base_ratio,
            of.hyper_thread_enabled_ratio,
            of.turbo_enabled_ratio,
            of.hyper_thread_turbo_enabled_ratio,
        ];
        all.map(|ratio| (model.as_str(), ratio))
    });
    for (of, ratio) in of_models.chain([("defaultRatio", strategy.default_ratio)]) {
        if let Some(ratio) = ratio.filter(|ratio| !BELIEVABLE.contains(ratio)) {
            let (from, to) = (BELIEVABLE.start(), BELIEVABLE.end());
            return Err(format!(
                "{of}: must be between {from} and {to}, and is {ratio}"
            ));
        }
    }
    Ok(strategy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Normalization {
        let text = json!({
            "enable": true,
            "ratioModel": {"Fast": {
                "baseRatio": 1.1, "hyperThreadEnabledRatio": 1.2,
                "turboEnabledRatio": 1.3, "hyperThreadTurboEnabledRatio": 1.4,
            }},
            "nodeConfigs": [
                {"nodeSelector": {"matchLabels": {"pool": "a"}}, "defaultRatio": 2},
                {"nodeSelector": {"matchLabels": {"pool": "b"}}, "enable": false},
            ]
        });
        Normalization::parse(&text.to_string()).unwrap()
    }

    #[track_caller]
    fn check(labels: &[(&str, &str)], cpus: &str, expected: Result<f64, &str>) {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let found = config().ratio(&labels.collect(), Some(&cpus.to_owned()));
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[test]
    fn by_model_and_by_what_is_on() {
        let fast = |on: &str| format!(r#"{{"cpuModel":"Fast"{on}}}"#);
        check(&[], &fast(""), Ok(1.1));
        check(&[], &fast(r#","hyperThreadEnabled":true"#), Ok(1.2));
        check(&[], &fast(r#","turboEnabled":true"#), Ok(1.3));
        let both = fast(r#","hyperThreadEnabled":true,"turboEnabled":true"#);
        check(&[], &both, Ok(1.4));
        let slow = r#"{"cpuModel":"Slow"}"#;
        let unknown = "cpu-normalization-config has no ratio for CPUs like \"Slow\"";
        check(&[], slow, Err(unknown));
        check(&[("pool", "a")], slow, Ok(2.0));
        check(&[("pool", "b")], &fast(""), Ok(1.0));
        // The node has the last word.
        let label = names::LABEL_NORMALIZATION_ENABLED;
        check(&[("pool", "b"), (label, "true")], &fast(""), Ok(1.1));
        check(&[(label, "false")], &fast(""), Ok(1.0));
        let odd =
            "label node.koordinator.sh/cpu-normalization-enabled: \"maybe\" is not true or false";
        check(&[(label, "maybe")], &fast(""), Err(odd));
    }

    #[test]
    fn without_a_word_all_cores_are_alike() {
        let nothing = BTreeMap::new();
        assert_eq!(Normalization::default().ratio(&nothing, None), Ok(1.0));
        assert!(config().ratio(&nothing, None).is_err());
    }

    #[test]
    fn what_is_no_machine_is_refused() {
        for (text, complaint) in [
            ("[]", "must be an object"),
            (
                r#"{"defaultRatio":0.5}"#,
                "defaultRatio: must be between 1 and 5, and is 0.5",
            ),
            (
                r#"{"nodeConfigs":[{"ratioModel":{"X":{"baseRatio":9}}}]}"#,
                "nodeConfigs[0]: X: must be between 1 and 5, and is 9",
            ),
        ] {
            assert_eq!(Normalization::parse(text).unwrap_err(), complaint);
        }
    }
}
