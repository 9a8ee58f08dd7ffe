//! How a node's agent is to treat its pods: the sections of a `NodeSLO`, put together from the operator's words.

use std::collections::BTreeMap;

use plimsoll_api::json;
use plimsoll_api::label_selector::LabelSelector;
pub use plimsoll_api::node_slo::Section;
use serde_json::{Map, Value};

use crate::by_node::Profile;
use crate::shape;

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
        let shape = shape::of(section);
        let stated = document.get("clusterStrategy").unwrap_or(&Value::Null);
        let stated = shape.take(stated);
        let stated = stated.map_err(|problem| format!("clusterStrategy{problem}"))?;
        json::merge(&mut cluster, &stated);
        check_order(&cluster).map_err(|problem| format!("clusterStrategy{problem}"))?;
        let mut nodes = Vec::new();
        for (position, entry) in list(&document, "nodeStrategies")?.iter().enumerate() {
            let at = |problem: String| format!("nodeStrategies[{position}]{problem}");
            let profile = profile(entry).map_err(at)?;
            let stated = shape.take(entry).map_err(at)?;
            let mut merged = cluster.clone();
            json::merge(&mut merged, &stated);
            check_order(&merged).map_err(at)?;
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

/// Their field in the specification.
pub const HOST_APPLICATIONS: &str = "hostApplications";

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

    pub fn for_node(&self, labels: &BTreeMap<String, String>) -> &[Value] {
        self.nodes
            .iter()
            .find(|(profile, _)| profile.matches(labels))
            .map_or(&self.cluster, |(_, applications)| applications)
    }
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
    let mut taken = Vec::new();
    for (position, application) in applications.iter().enumerate() {
        if application
            .get("name")
            .and_then(Value::as_str)
            .is_none_or(str::is_empty)
        {
            return Err(format!("[{position}]: needs a name"));
        }
        application_problem(application)
            .map_or(Ok(()), |problem| Err(format!("[{position}].{problem}")))?;
        let application = shape::APPLICATION.take(application);
        taken.push(application.map_err(|problem| format!("[{position}]{problem}"))?);
    }
    Ok(taken)
}

/// Words that mean nothing would put the application's usage in the wrong place, or everybody's in its.
fn application_problem(application: &Value) -> Option<String> {
    const CLASSES: &[&str] = &["", "koord-prod", "koord-mid", "koord-batch", "koord-free"];
    const QOS: &[&str] = &["", "LSE", "LSR", "LS", "BE", "SYSTEM"];
    const BASES: &[&str] = &[
        "",
        "CgroupRoot",
        "Kubepods",
        "KubepodsBurstable",
        "KubepodsBesteffort",
    ];
    let path = application.get("cgroupPath").filter(|path| !path.is_null());
    let base = path.and_then(|path| path.get("base"));
    let words = [
        ("priority", application.get("priority"), CLASSES),
        ("qos", application.get("qos"), QOS),
        ("cgroupPath.base", base, BASES),
    ];
    for (field, value, words) in words {
        let Some(value) = value.filter(|value| !value.is_null()) else {
            continue;
        };
        if !value.as_str().is_some_and(|word| words.contains(&word)) {
            let words = words[1..].join(", ");
            return Some(format!("{field}: must be one of {words}, and is {value}"));
        }
    }
    let named = |field: &str| path.and_then(|path| path.get(field)?.as_str());
    let names = ["parentDir", "relativePath"].into_iter().filter_map(named);
    let somewhere = names
        .flat_map(|name| name.split('/'))
        .any(|part| !part.is_empty());
    (path.is_some() && !somewhere)
        .then(|| "cgroupPath: needs a parentDir or a relativePath".to_owned())
}

/// Fields of which the first must be less than the second where both are said, in whatever object they stand.
const ORDERED: [(&str, &str); 6] = [
    ("memoryEvictLowerPercent", "memoryEvictThresholdPercent"),
    (
        "cpuEvictBESatisfactionLowerPercent",
        "cpuEvictBESatisfactionUpperPercent",
    ),
    ("cpuEvictLowerPercent", "cpuEvictThresholdPercent"),
    (
        "memoryAllocatableEvictLowerPercent",
        "memoryAllocatableEvictThresholdPercent",
    ),
    (
        "cpuAllocatableEvictLowerPercent",
        "cpuAllocatableEvictThresholdPercent",
    ),
    ("catRangeStartPercent", "catRangeEndPercent"),
];

/// Of what holds in the end: the one may be of the cluster's strategy, the other of a node's.
fn check_order(value: &Value) -> Result<(), String> {
    let Value::Object(fields) = value else {
        return Ok(());
    };
    let number = |name: &str| fields.get(name).and_then(Value::as_i64);
    for (less, more) in ORDERED {
        if let (Some(low), Some(high)) = (number(less), number(more))
            && low >= high
        {
            return Err(format!(
                ".{less}: must be less than {more}, and they are {low} and {high}"
            ));
        }
    }
    for (name, value) in fields {
        check_order(value).map_err(|problem| format!(".{name}{problem}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn without_a_word_from_anybody() {
        // As Koordinator's manager writes it.
        let found = crate::config::Config::default().node_slo(&labels(&[]), None, None);
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
        let of = |pool: &str| applications.for_node(&labels(&[("pool", pool)]))[0]["name"].clone();
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
                Section::Threshold,
                r#"{"nodeStrategies":[{"memoryEvictLowerPercent":70}]}"#,
                "nodeStrategies[0].memoryEvictLowerPercent: must be less than memoryEvictThresholdPercent, and they are 70 and 70",
            ),
            (
                Section::Qos,
                r#"{"clusterStrategy":{"beClass":{"resctrlQOS":{"catRangeStartPercent":50,"catRangeEndPercent":30}}}}"#,
                "clusterStrategy.beClass.resctrlQOS.catRangeStartPercent: must be less than catRangeEndPercent, and they are 50 and 30",
            ),
            (
                Section::System,
                r#"{"nodeStrategies":{}}"#,
                "nodeStrategies must be a list",
            ),
        ] {
            assert_eq!(Strategies::parse(section, text).unwrap_err(), complaint);
        }
        for (applications, complaint) in [
            ("[{}]", "applications[0]: needs a name"),
            (
                r#"[{"name":"a"},{"name":"b","qos":"GOLD"}]"#,
                "applications[1].qos: must be one of LSE, LSR, LS, BE, SYSTEM, and is \"GOLD\"",
            ),
            (
                r#"[{"name":"a","priority":5}]"#,
                "applications[0].priority: must be one of koord-prod, koord-mid, koord-batch, koord-free, and is 5",
            ),
            (
                r#"[{"name":"a","cgroupPath":{"base":"Root","relativePath":"x"}}]"#,
                "applications[0].cgroupPath.base: must be one of CgroupRoot, Kubepods, KubepodsBurstable, KubepodsBesteffort, and is \"Root\"",
            ),
            (
                r#"[{"name":"a","cgroupPath":{"base":"CgroupRoot","relativePath":"/"}}]"#,
                "applications[0].cgroupPath: needs a parentDir or a relativePath",
            ),
        ] {
            let text = format!(r#"{{"applications":{applications}}}"#);
            assert_eq!(HostApplications::parse(&text).unwrap_err(), complaint);
        }
        let yarn = r#"{"applications":[{"name":"yarn","qos":"BE","priority":"koord-batch","cgroupPath":{"base":"KubepodsBesteffort","relativePath":"hadoop-yarn/"}}]}"#;
        assert!(HostApplications::parse(yarn).is_ok());
    }
}
