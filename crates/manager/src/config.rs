//! What the operator wrote: the config map, taken in key by key.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::colocation::Colocation;
use crate::slo::{self, HostApplications, Section, Strategies};

pub const COLOCATION_KEY: &str = "colocation-config";

#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub colocation: Colocation,
    sections: Vec<(Section, Strategies)>,
    applications: HostApplications,
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
            colocation: Colocation::default(),
            sections: Section::ALL
                .map(|section| (section, Strategies::defaults(section)))
                .into(),
            applications: HostApplications::default(),
        }
    }
}

impl Config {
    /// Takes in the config map's data. A key that is gone goes back to its default; one that makes no sense changes
    /// nothing.
    pub fn update(&mut self, data: &BTreeMap<String, String>) -> Vec<Refused> {
        let mut refused = Vec::new();
        let mut take = |key: &'static str, problem: String| refused.push(Refused { key, problem });
        let stated = |key: &str| data.get(key).filter(|text| !text.trim().is_empty());
        match stated(COLOCATION_KEY).map(|text| Colocation::parse(text)) {
            None => self.colocation = Colocation::default(),
            Some(Ok(colocation)) => self.colocation = colocation,
            Some(Err(problem)) => take(COLOCATION_KEY, problem),
        }
        for (section, strategies) in &mut self.sections {
            match stated(section.key()).map(|text| Strategies::parse(*section, text)) {
                None => *strategies = Strategies::defaults(*section),
                Some(Ok(parsed)) => *strategies = parsed,
                Some(Err(problem)) => take(section.key(), problem),
            }
        }
        match stated(HostApplications::KEY).map(|text| HostApplications::parse(text)) {
            None => self.applications = HostApplications::default(),
            Some(Ok(applications)) => self.applications = applications,
            Some(Err(problem)) => take(HostApplications::KEY, problem),
        }
        refused
    }

    pub fn node_slo(&self, labels: &BTreeMap<String, String>) -> Value {
        slo::spec(&self.sections, &self.applications, labels)
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
        let (strategy, _) = config.colocation.for_node(&nothing, &nothing);
        let slo = config.node_slo(&nothing);
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
        assert_eq!(config, Config::default());
    }
}
