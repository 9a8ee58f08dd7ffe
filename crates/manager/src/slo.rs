//! How a node's agent is to treat its pods: the sections of a `NodeSLO`, put together from the operator's words.

use std::collections::BTreeMap;

use plimsoll_api::json;
use plimsoll_api::label_selector::LabelSelector;
pub use plimsoll_api::node_slo::Section;
use serde_json::{Map, Value, json};

use crate::colocation::Profile;

/// A section for the cluster and for kinds of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Strategies {
    cluster: Value,
    nodes: Vec<(Profile, Value)>,
}

impl Strategies {
    pub fn defaults(section: Section) -> Self {
        Self {
            cluster: section.defaults(),
            nodes: Vec::new(),
        }
    }

    /// `{clusterStrategy, nodeStrategies}`; refused as a whole if anything in it is wrong.
    pub fn parse(section: Section, text: &str) -> Result<Self, String> {
        let document = object(text)?;
        let mut cluster = section.defaults();
        let stated = document.get("clusterStrategy").unwrap_or(&Value::Null);
        check(section, stated).map_err(|problem| format!("clusterStrategy{problem}"))?;
        json::merge(&mut cluster, stated);
        let mut nodes = Vec::new();
        for (position, entry) in list(&document, "nodeStrategies")?.iter().enumerate() {
            let at = |problem: String| format!("nodeStrategies[{position}]{problem}");
            let profile = profile(entry).map_err(at)?;
            let mut stated = entry.clone();
            if let Some(fields) = stated.as_object_mut() {
                fields.remove("name");
                fields.remove("nodeSelector");
            }
            check(section, &stated).map_err(at)?;
            let mut merged = cluster.clone();
            json::merge(&mut merged, &stated);
            nodes.push((profile, merged));
        }
        Ok(Self { cluster, nodes })
    }

    /// What holds for a node: the first entry that is for it, else what holds for all.
    pub fn for_node(&self, labels: &BTreeMap<String, String>) -> &Value {
        self.nodes
            .iter()
            .find(|(profile, _)| profile.matches(labels))
            .map_or(&self.cluster, |(_, merged)| merged)
    }
}

/// Programs on nodes that are no pods: `{applications, nodeConfigs}`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostApplications {
    cluster: Vec<Value>,
    nodes: Vec<(Profile, Vec<Value>)>,
}

impl HostApplications {
    pub const KEY: &'static str = "host-application-config";

    pub fn parse(text: &str) -> Result<Self, String> {
        let document = object(text)?;
        let cluster =
            applications(&document).map_err(|problem| format!("applications{problem}"))?;
        let mut nodes = Vec::new();
        for (position, entry) in list(&document, "nodeConfigs")?.iter().enumerate() {
            let at = |problem: String| format!("nodeConfigs[{position}]{problem}");
            let empty = Map::new();
            let fields = entry.as_object().unwrap_or(&empty);
            nodes.push((
                profile(entry).map_err(at)?,
                applications(fields).map_err(at)?,
            ));
        }
        Ok(Self { cluster, nodes })
    }

    fn for_node(&self, labels: &BTreeMap<String, String>) -> &[Value] {
        self.nodes
            .iter()
            .find(|(profile, _)| profile.matches(labels))
            .map_or(&self.cluster, |(_, applications)| applications)
    }
}

/// The whole specification for a node.
pub fn spec(
    sections: &[(Section, Strategies)],
    applications: &HostApplications,
    labels: &BTreeMap<String, String>,
) -> Value {
    let mut spec = Map::new();
    for (section, strategies) in sections {
        spec.insert(section.field().into(), strategies.for_node(labels).clone());
    }
    let applications = applications.for_node(labels);
    if !applications.is_empty() {
        spec.insert("hostApplications".into(), applications.to_vec().into());
    }
    spec.insert("extensions".into(), json!({"Object": {}}));
    spec.into()
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err("must be an object".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn list<'a>(document: &'a Map<String, Value>, name: &str) -> Result<&'a [Value], String> {
    match document.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(entries)) => Ok(entries),
        Some(_) => Err(format!("{name} must be a list")),
    }
}

fn profile(entry: &Value) -> Result<Profile, String> {
    let profile: Profile =
        serde_json::from_value(entry.clone()).map_err(|error| format!(": {error}"))?;
    match profile
        .node_selector
        .as_ref()
        .and_then(LabelSelector::problem)
    {
        Some(problem) => Err(format!(".nodeSelector: {problem}")),
        None => Ok(profile),
    }
}

fn applications(fields: &Map<String, Value>) -> Result<Vec<Value>, String> {
    let applications = list(fields, "applications").map_err(|problem| format!(": {problem}"))?;
    for (position, application) in applications.iter().enumerate() {
        if application
            .get("name")
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
        {
            return Err(format!("[{position}]: needs a name"));
        }
    }
    Ok(applications.to_vec())
}

/// What a field must be like, wherever in a section it stands.
enum Rule {
    Switch,
    Number(i64, i64),
    OneOf(&'static [&'static str]),
}

fn rule(section: Section, field: &str) -> Option<Rule> {
    Some(match (section, field) {
        (_, "enable") => Rule::Switch,
        (Section::Threshold, "cpuSuppressPolicy") => Rule::OneOf(&["cpuset", "cfsQuota"]),
        (Section::Threshold, "cpuEvictPolicy") => {
            Rule::OneOf(&["evictByRealLimit", "evictByAllocatable"])
        }
        (Section::Threshold, "cpuEvictTimeWindowSeconds") => Rule::Number(1, i64::MAX),
        (Section::Threshold, field) if field.ends_with("Percent") => Rule::Number(0, 100),
        (Section::Burst, "policy") => {
            Rule::OneOf(&["none", "auto", "cpuBurstOnly", "cfsQuotaBurstOnly"])
        }
        (Section::Burst, "cpuBurstPercent") => Rule::Number(1, 10_000),
        (Section::Burst, "cfsQuotaBurstPercent") => Rule::Number(100, i64::MAX),
        (Section::Burst, "cfsQuotaBurstPeriodSeconds") => Rule::Number(-1, i64::MAX),
        (Section::Burst, "sharePoolThresholdPercent") => Rule::Number(0, 100),
        (Section::System, "minFreeKbytesFactor") => Rule::Number(1, i64::MAX),
        (Section::System, "watermarkScaleFactor") => Rule::Number(10, 400),
        (Section::System, "memcgReapBackGround") => Rule::Number(0, 1),
        (Section::Qos, "cpuPolicy") => Rule::OneOf(&["groupIdentity", "coreSched"]),
        (Section::Qos, "netQOSPolicy") => Rule::OneOf(&["tc", "terway-qos"]),
        (Section::Qos, "groupIdentity") => Rule::Number(-1, 2),
        (Section::Qos, "schedIdle") => Rule::Number(0, 1),
        (Section::Qos, "coreExpeller") => Rule::Switch,
        (Section::Qos, "catRangeStartPercent" | "catRangeEndPercent" | "mbaPercent") => {
            Rule::Number(0, 100)
        }
        (
            Section::Qos,
            "minLimitPercent" | "lowLimitPercent" | "throttlingPercent" | "wmarkRatio",
        ) => Rule::Number(0, 100),
        (Section::Qos, "wmarkScalePermill") => Rule::Number(1, 1000),
        (Section::Qos, "wmarkMinAdj") => Rule::Number(-25, 50),
        (Section::Qos, "priorityEnable" | "oomKillGroup") => Rule::Number(0, 1),
        (Section::Qos, "priority") => Rule::Number(0, 12),
        _ => return None,
    })
}

/// Every field that has a rule, however deep. The complaint begins with the field's path.
fn check(section: Section, value: &Value) -> Result<(), String> {
    let fields = match value {
        Value::Null => return Ok(()),
        Value::Object(fields) => fields,
        _ => return Err(": must be an object".to_owned()),
    };
    for (name, value) in fields {
        let complaint = match (rule(section, name), value) {
            (_, Value::Null) => None,
            (Some(Rule::Switch), value) => {
                (!value.is_boolean()).then(|| "must be true or false".to_owned())
            }
            (Some(Rule::Number(from, to)), value) => (!value
                .as_i64()
                .is_some_and(|number| (from..=to).contains(&number)))
            .then(|| match to {
                i64::MAX => format!("must be a whole number of at least {from}"),
                to => format!("must be a whole number between {from} and {to}"),
            }),
            (Some(Rule::OneOf(words)), value) => {
                (!value.as_str().is_some_and(|word| words.contains(&word)))
                    .then(|| format!("must be one of {}", words.join(", ")))
            }
            (None, Value::Object(_)) => {
                check(section, value).map_err(|problem| format!(".{name}{problem}"))?;
                None
            }
            (None, _) => None,
        };
        if let Some(complaint) = complaint {
            return Err(format!(".{name}: {complaint}, and is {value}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn sections() -> Vec<(Section, Strategies)> {
        Section::ALL
            .map(|section| (section, Strategies::defaults(section)))
            .into()
    }

    #[test]
    fn without_a_word_from_anybody() {
        // As Koordinator's manager writes it.
        let found = spec(&sections(), &HostApplications::default(), &labels(&[]));
        assert_eq!(
            found,
            json!({
                "cpuBurstStrategy": {
                    "cfsQuotaBurstPercent": 300,
                    "cfsQuotaBurstPeriodSeconds": -1,
                    "cpuBurstPercent": 1000,
                    "policy": "none",
                    "sharePoolThresholdPercent": 50
                },
                "extensions": {"Object": {}},
                "resourceQOSStrategy": {},
                "resourceUsedThresholdWithBE": {
                    "cpuEvictPolicy": "evictByRealLimit",
                    "cpuSuppressPolicy": "cpuset",
                    "cpuSuppressThresholdPercent": 65,
                    "enable": false,
                    "memoryEvictThresholdPercent": 70
                },
                "systemStrategy": {"totalNetworkBandwidth": "0"}
            })
        );
    }

    #[test]
    fn the_first_entry_for_a_node_counts() {
        let text = json!({
            "clusterStrategy": {"enable": true, "cpuSuppressThresholdPercent": 60},
            "nodeStrategies": [
                {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuSuppressThresholdPercent": 40},
                {"name": "b", "nodeSelector": {"matchLabels": {"pool": "a"}}, "enable": false}
            ]
        });
        let strategies = Strategies::parse(Section::Threshold, &text.to_string()).unwrap();
        let of = |labels: &BTreeMap<String, String>| {
            let found = strategies.for_node(labels);
            (
                found["enable"].clone(),
                found["cpuSuppressThresholdPercent"].clone(),
                found["memoryEvictThresholdPercent"].clone(),
            )
        };
        assert_eq!(of(&labels(&[])), (json!(true), json!(60), json!(70)));
        assert_eq!(
            of(&labels(&[("pool", "a")])),
            (json!(true), json!(40), json!(70))
        );
        assert_eq!(
            strategies.for_node(&labels(&[("pool", "a")])).get("name"),
            None
        );
    }

    #[test]
    fn host_applications_by_node() {
        let text = json!({
            "applications": [{"name": "nginx", "qos": "LS"}],
            "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "a"}}, "applications": [{"name": "db"}]}]
        });
        let applications = HostApplications::parse(&text.to_string()).unwrap();
        let of = |pool: &str| {
            spec(&[], &applications, &labels(&[("pool", pool)]))["hostApplications"][0]["name"]
                .clone()
        };
        assert_eq!((of("a"), of("b")), (json!("db"), json!("nginx")));
    }

    #[test]
    fn complaints_say_where() {
        for (section, text, complaint) in [
            (Section::Threshold, "3", "must be an object"),
            (
                Section::Threshold,
                r#"{"clusterStrategy":{"cpuSuppressThresholdPercent":120}}"#,
                "clusterStrategy.cpuSuppressThresholdPercent: must be a whole number between 0 and 100, and is 120",
            ),
            (
                Section::Burst,
                r#"{"nodeStrategies":[{"policy":"sometimes"}]}"#,
                "nodeStrategies[0].policy: must be one of none, auto, cpuBurstOnly, cfsQuotaBurstOnly, and is \"sometimes\"",
            ),
            (
                Section::Qos,
                r#"{"clusterStrategy":{"beClass":{"cpuQOS":{"groupIdentity":7}}}}"#,
                "clusterStrategy.beClass.cpuQOS.groupIdentity: must be a whole number between -1 and 2, and is 7",
            ),
            (
                Section::System,
                r#"{"nodeStrategies":{}}"#,
                "nodeStrategies must be a list",
            ),
        ] {
            assert_eq!(Strategies::parse(section, text).unwrap_err(), complaint);
        }
        assert_eq!(
            HostApplications::parse(r#"{"applications":[{}]}"#).unwrap_err(),
            "applications[0]: needs a name"
        );
    }
}
