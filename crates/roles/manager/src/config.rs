//! What the operator wrote: the config map, taken in key by key.
//!
//! A key that makes no sense changes nothing. Where this process has never read a good one, as after a restart, nobody
//! knows what held before: what is in the cluster then stays as it is.

use std::collections::BTreeMap;

use plimsoll_api::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::amplification::{self, Amplification};
use crate::colocation::Colocation;
use crate::normalization::{self, Normalization};
use crate::slo::{self, HostApplications, Section, Strategies};

pub const COLOCATION_KEY: &str = "colocation-config";

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    colocation: Held<Colocation>,
    sections: Vec<(Section, Held<Strategies>)>,
    applications: Held<HostApplications>,
    normalization: Held<Normalization>,
    amplification: Held<Amplification>,
}

/// What a key says.
#[derive(Debug, Clone, PartialEq)]
struct Held<T> {
    value: T,
    said: Said,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    /// There is no config map; the default holds.
    Nothing,
    Known,
    /// Something, but nothing that made sense, ever: the value is only a default.
    Unreadable,
}

impl<T> Held<T> {
    fn new(default: T) -> Self {
        Self {
            value: default,
            said: Said::Nothing,
        }
    }

    /// Says what is wrong with it, if anything is.
    fn take(&mut self, stated: Option<Result<T, String>>, default: T) -> Option<String> {
        match stated.unwrap_or(Ok(default)) {
            Ok(value) => {
                let said = Said::Known;
                *self = Self { value, said };
                None
            }
            Err(problem) => {
                if self.said == Said::Nothing {
                    self.said = Said::Unreadable;
                }
                Some(problem)
            }
        }
    }

    fn known(&self) -> Option<&T> {
        (self.said != Said::Unreadable).then_some(&self.value)
    }
}

/// A key whose value was not taken; what held before still does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    pub key: &'static str,
    pub problem: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            colocation: Held::new(Colocation::default()),
            sections: Section::ALL
                .map(|section| (section, Held::new(Strategies::defaults(section))))
                .into(),
            applications: Held::new(HostApplications::default()),
            normalization: Held::new(Normalization::default()),
            amplification: Held::new(Amplification::default()),
        }
    }
}

impl Config {
    /// Takes in the config map's data. A key that is gone goes back to its default; one that makes no sense changes
    /// nothing.
    pub fn update(&mut self, data: &BTreeMap<String, String>) -> Vec<Refused> {
        let mut refused = Vec::new();
        let mut note = |key: &'static str, problem: Option<String>| {
            refused.extend(problem.map(|problem| Refused { key, problem }));
        };
        let stated = |key: &str| data.get(key).filter(|text| !text.trim().is_empty());
        let colocation = stated(COLOCATION_KEY).map(|text| Colocation::parse(text));
        let problem = self.colocation.take(colocation, Colocation::default());
        note(COLOCATION_KEY, problem);
        for (section, strategies) in &mut self.sections {
            let parsed = stated(section.key()).map(|text| Strategies::parse(*section, text));
            let problem = strategies.take(parsed, Strategies::defaults(*section));
            note(section.key(), problem);
        }
        let key = HostApplications::KEY;
        let applications = stated(key).map(|text| HostApplications::parse(text));
        let problem = self
            .applications
            .take(applications, HostApplications::default());
        note(key, problem);
        let normalization = stated(normalization::KEY).map(|text| Normalization::parse(text));
        let problem = self
            .normalization
            .take(normalization, Normalization::default());
        note(normalization::KEY, problem);
        let amplification = stated(amplification::KEY).map(|text| Amplification::parse(text));
        let problem = self
            .amplification
            .take(amplification, Amplification::default());
        note(amplification::KEY, problem);
        refused
    }

    /// How much may be lent of nodes.
    pub fn colocation(&self) -> &Colocation {
        &self.colocation.value
    }

    /// Whether that is what the operator wants, as far as anybody knows. If not, what is lent stays as it is.
    pub fn is_colocation_known(&self) -> bool {
        self.colocation.known().is_some()
    }

    /// How much faster nodes' cores are; `None`: nobody can tell what the operator says of it.
    pub fn normalization(&self) -> Option<&Normalization> {
        self.normalization.known()
    }

    /// How much more nodes count for than they have; `None` likewise.
    pub fn amplification(&self) -> Option<&Amplification> {
        self.amplification.known()
    }

    /// A node's policy. `bandwidth` is what the node itself says of its network, which counts; `present` is the policy it
    /// has: of it stays what nobody can tell the operator's wish about.
    pub fn node_slo(
        &self,
        labels: &BTreeMap<String, String>,
        bandwidth: Option<&Quantity>,
        present: Option<&Value>,
    ) -> Value {
        let present = |field: &str| {
            let found = present.and_then(|spec| spec.get(field));
            found.filter(|value| !value.is_null()).cloned()
        };
        let mut spec = Map::new();
        for (section, strategies) in &self.sections {
            let value = match strategies.known() {
                Some(strategies) => strategies.for_node(labels).clone(),
                None => present(section.field()).unwrap_or_else(|| section.defaults()),
            };
            spec.insert(section.field().into(), value);
        }
        if let Some(bandwidth) = bandwidth {
            spec[Section::System.field()]["totalNetworkBandwidth"] = bandwidth.to_string().into();
        }
        let applications = match self.applications.known() {
            Some(applications) => Some(applications.for_node(labels))
                .filter(|applications| !applications.is_empty())
                .map(|applications| applications.to_vec().into()),
            None => present(slo::HOST_APPLICATIONS),
        };
        if let Some(applications) = applications {
            spec.insert(slo::HOST_APPLICATIONS.into(), applications);
        }
        // Others' to write.
        let extensions = present("extensions").unwrap_or_else(|| json!({"Object": {}}));
        spec.insert("extensions".into(), extensions);
        spec.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn enabled(config: &Config) -> (bool, bool) {
        let nothing = BTreeMap::new();
        let (strategy, _) = config.colocation().for_node(&nothing, &nothing);
        let slo = config.node_slo(&nothing, None, None);
        (
            strategy.enable == Some(true),
            slo["resourceUsedThresholdWithBE"]["enable"] == true,
        )
    }

    #[test]
    fn a_bad_key_keeps_what_held_and_the_others_are_taken() {
        let mut config = Config::default();
        let both = data(&[
            (COLOCATION_KEY, r#"{"enable":true}"#),
            (
                "resource-threshold-config",
                r#"{"clusterStrategy":{"enable":true}}"#,
            ),
        ]);
        assert_eq!(config.update(&both), []);
        assert_eq!(enabled(&config), (true, true));
        let bad = data(&[
            (COLOCATION_KEY, r#"{"enable":7}"#),
            ("resource-threshold-config", "{}"),
        ]);
        let refused = config.update(&bad);
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].key, COLOCATION_KEY);
        assert_eq!(enabled(&config), (true, false));
        assert_eq!(config.update(&data(&[])), []);
        assert_eq!(enabled(&config), (false, false));
        assert!(config.is_colocation_known());
    }

    #[test]
    fn what_was_never_understood_changes_nothing_in_the_cluster() {
        let mut config = Config::default();
        assert!(config.is_colocation_known());
        let bad = data(&[
            (COLOCATION_KEY, "{"),
            ("resource-threshold-config", "7"),
            (HostApplications::KEY, "[]"),
        ]);
        assert_eq!(config.update(&bad).len(), 3);
        assert!(!config.is_colocation_known());
        let present = json!({
            "resourceUsedThresholdWithBE": {"enable": true},
            "cpuBurstStrategy": {"policy": "auto"},
            "hostApplications": [{"name": "nginx"}],
            "extensions": {"theirs": 1},
        });
        let nothing = BTreeMap::new();
        let slo = config.node_slo(&nothing, None, Some(&present));
        assert_eq!(slo["resourceUsedThresholdWithBE"], json!({"enable": true}));
        assert_eq!(slo["hostApplications"], present["hostApplications"]);
        assert_eq!(slo["extensions"], present["extensions"]);
        // This one was left out, which is as good as a word.
        assert_eq!(slo["cpuBurstStrategy"]["policy"], "none");
        // A node that has nothing yet gets what is built in.
        let slo = config.node_slo(&nothing, None, None);
        assert_eq!(slo["resourceUsedThresholdWithBE"]["enable"], false);
        let good = data(&[(COLOCATION_KEY, r#"{"enable":true}"#)]);
        assert_eq!(config.update(&good), []);
        assert!(config.is_colocation_known());
        // From now on it is known what held before.
        assert_eq!(config.update(&bad).len(), 3);
        assert!(config.is_colocation_known());
        assert_eq!(enabled(&config), (true, false));
    }
}
