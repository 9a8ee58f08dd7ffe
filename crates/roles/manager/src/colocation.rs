//! How much of a node may be lent: the operator's strategy, the node's own wishes on top.

use std::collections::BTreeMap;

use plimsoll_api::json;
use plimsoll_api::names;
use plimsoll_api::node_metric::{
    AggregatePolicy, CollectPolicy, MemoryCollectPolicy, NodeMetricSpec,
};
use plimsoll_golang::GoDuration;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::by_node::ByNode;

/// How a kind of resource is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Calculate {
    /// From what is used.
    Usage,
    /// From what is requested; memory only.
    Request,
    /// From whatever is more.
    MaxUsageRequest,
}

/// Where mid resources come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MidMode {
    /// From what production does not need.
    #[serde(alias = "")]
    Dynamic,
    /// A fixed share of the node.
    Static,
}

/// What holds for a node; `None` says nothing.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Strategy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub enable: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_aggregate_duration_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_report_interval_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_aggregate_policy: Option<AggregatePolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_memory_collect_policy: Option<MemoryCollectPolicy>,
    #[serde(
        rename = "cpuReclaimThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    pub cpu_reclaim_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_calculate_policy: Option<Calculate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_reclaim_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_calculate_policy: Option<Calculate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degrade_time_minutes: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time_threshold_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_diff_threshold: Option<f64>,
    #[serde(
        rename = "midCPUThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    pub mid_cpu_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_memory_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_unallocated_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_reclaim_mode: Option<MidMode>,
    #[serde(
        rename = "midStaticCPUReservedPercent",
        skip_serializing_if = "Option::is_none"
    )]
    pub mid_static_cpu_reserved_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mid_static_memory_reserved_percent: Option<i64>,
    #[serde(
        rename = "batchCPUThresholdPercent",
        skip_serializing_if = "Option::is_none"
    )]
    pub batch_cpu_threshold_percent: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_memory_threshold_percent: Option<i64>,
}

/// The operator's configuration: for the cluster, and for kinds of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Colocation(ByNode<Value>);

impl Default for Colocation {
    fn default() -> Self {
        Self(ByNode::everywhere(defaults()))
    }
}

fn defaults() -> Value {
    serde_json::json!({
        "enable": false,
        "metricAggregateDurationSeconds": 300,
        "metricReportIntervalSeconds": 60,
        "metricAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
        "metricMemoryCollectPolicy": "usageWithoutPageCache",
        "cpuReclaimThresholdPercent": 60,
        "cpuCalculatePolicy": "usage",
        "memoryReclaimThresholdPercent": 65,
        "memoryCalculatePolicy": "usage",
        "degradeTimeMinutes": 15,
        "updateTimeThresholdSeconds": 300,
        "resourceDiffThreshold": 0.1,
        "midCPUThresholdPercent": 100,
        "midMemoryThresholdPercent": 100,
        "midUnallocatedPercent": 0,
    })
}

impl Colocation {
    /// Reads and checks a configuration; a bad one is refused as a whole, with a reason that says where.
    pub fn parse(text: &str) -> Result<Self, String> {
        let valid = |merged: Value| checked(&merged).map(|_| merged);
        ByNode::parse(text, defaults(), valid).map(Self)
    }

    /// Whether a node lends anything by this strategy, which is this configuration's for it. Where the cluster's word is
    /// no, nobody else's counts.
    pub fn lends(&self, strategy: &Strategy) -> bool {
        self.0.cluster["enable"] == true && strategy.enable == Some(true)
    }

    /// What holds for a node: the cluster's word, that of the first entry that is for it, its own annotation, its own
    /// labels. What a node says about itself and makes no sense is passed over, and named.
    pub fn for_node(
        &self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> (Strategy, Vec<String>) {
        let base = self.0.for_node(labels);
        let mut problems = Vec::new();
        let mut merged = base.clone();
        if let Some(text) = annotations.get(names::ANNOTATION_COLOCATION_STRATEGY) {
            let own = serde_json::from_str::<Value>(text).map_err(|error| error.to_string());
            let tried = own.and_then(|own| {
                let mut tried = base.clone();
                json::merge(&mut tried, &own);
                checked(&tried).map(|_| tried)
            });
            match tried {
                Ok(tried) => merged = tried,
                Err(problem) => problems.push(format!(
                    "annotation {}: {problem}",
                    names::ANNOTATION_COLOCATION_STRATEGY
                )),
            }
        }
        let mut strategy = checked(&merged).unwrap_or_default();
        let mut ratio = |label: &str, threshold: &mut Option<i64>| {
            if let Some(text) = labels.get(label) {
                match text.parse::<f64>() {
                    Ok(ratio) if ratio >= 0.0 && ratio.is_finite() => {
                        *threshold = Some((ratio * 100.0).round() as i64)
                    }
                    _ => problems.push(format!("label {label}: {text:?} is no share like 0.6")),
                }
            }
        };
        ratio(
            names::LABEL_CPU_RECLAIM_RATIO,
            &mut strategy.cpu_reclaim_threshold_percent,
        );
        ratio(
            names::LABEL_MEMORY_RECLAIM_RATIO,
            &mut strategy.memory_reclaim_threshold_percent,
        );
        ratio(
            names::LABEL_MID_STATIC_CPU_RATIO,
            &mut strategy.mid_static_cpu_reserved_percent,
        );
        ratio(
            names::LABEL_MID_STATIC_MEMORY_RATIO,
            &mut strategy.mid_static_memory_reserved_percent,
        );
        (strategy, problems)
    }
}

fn checked(value: &Value) -> Result<Strategy, String> {
    let mut strategy: Strategy =
        serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
    let positive = |name: &str, value: Option<i64>| match value {
        Some(value) if value <= 0 => Err(format!("{name} must be more than 0, and is {value}")),
        _ => Ok(()),
    };
    let percent = |name: &str, value: Option<i64>| match value {
        Some(value) if !(0..=100).contains(&value) => {
            Err(format!("{name} must be between 0 and 100, and is {value}"))
        }
        _ => Ok(()),
    };
    // More than a hundred lends more than there is, which some want.
    let share = |name: &str, value: Option<i64>| match value {
        Some(value) if value < 0 => Err(format!("{name} must be at least 0, and is {value}")),
        _ => Ok(()),
    };
    positive(
        "metricAggregateDurationSeconds",
        strategy.metric_aggregate_duration_seconds,
    )?;
    positive(
        "metricReportIntervalSeconds",
        strategy.metric_report_interval_seconds,
    )?;
    let durations = strategy.metric_aggregate_policy.as_mut();
    for text in durations
        .into_iter()
        .flat_map(|policy| &mut policy.durations)
    {
        *text = duration(text).ok_or_else(|| {
            format!("metricAggregatePolicy.durations must be like 5m0s, and one is {text:?}")
        })?;
    }
    positive("degradeTimeMinutes", strategy.degrade_time_minutes)?;
    positive(
        "updateTimeThresholdSeconds",
        strategy.update_time_threshold_seconds,
    )?;
    share(
        "cpuReclaimThresholdPercent",
        strategy.cpu_reclaim_threshold_percent,
    )?;
    share(
        "memoryReclaimThresholdPercent",
        strategy.memory_reclaim_threshold_percent,
    )?;
    percent("midCPUThresholdPercent", strategy.mid_cpu_threshold_percent)?;
    percent(
        "midMemoryThresholdPercent",
        strategy.mid_memory_threshold_percent,
    )?;
    percent("midUnallocatedPercent", strategy.mid_unallocated_percent)?;
    share(
        "midStaticCPUReservedPercent",
        strategy.mid_static_cpu_reserved_percent,
    )?;
    share(
        "midStaticMemoryReservedPercent",
        strategy.mid_static_memory_reserved_percent,
    )?;
    share(
        "batchCPUThresholdPercent",
        strategy.batch_cpu_threshold_percent,
    )?;
    share(
        "batchMemoryThresholdPercent",
        strategy.batch_memory_threshold_percent,
    )?;
    if strategy.cpu_calculate_policy == Some(Calculate::Request) {
        return Err("cpuCalculatePolicy must be usage or maxUsageRequest".to_owned());
    }
    match strategy.resource_diff_threshold {
        Some(share) if share <= 0.0 || share.is_nan() => Err(format!(
            "resourceDiffThreshold must be more than 0, and is {share}"
        )),
        _ => Ok(strategy),
    }
}

/// A duration above zero, as Go writes it: agents and schedulers compare the texts.
fn duration(text: &str) -> Option<String> {
    let parsed = GoDuration::parse(text).ok()?;
    (parsed.nanos() > 0).then(|| parsed.to_string())
}

impl Strategy {
    /// What the node's agent is asked to report: where nothing is lent, the usual.
    pub fn node_metric(&self) -> NodeMetricSpec {
        let asked = match self.enable {
            Some(true) => self.clone(),
            _ => checked(&defaults()).unwrap_or_default(),
        };
        NodeMetricSpec {
            metric_collect_policy: Some(CollectPolicy {
                aggregate_duration_seconds: asked.metric_aggregate_duration_seconds,
                report_interval_seconds: asked.metric_report_interval_seconds,
                node_aggregate_policy: asked.metric_aggregate_policy,
                node_memory_collect_policy: asked.metric_memory_collect_policy,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    fn config() -> Colocation {
        let text = json!({
            "enable": true,
            "cpuReclaimThresholdPercent": 70,
            "nodeConfigs": [
                {"name": "a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "cpuReclaimThresholdPercent": 80},
                {"name": "also a", "nodeSelector": {"matchLabels": {"pool": "a"}}, "enable": false},
                {"name": "nobody", "enable": false}
            ]
        });
        Colocation::parse(&text.to_string()).unwrap()
    }

    #[track_caller]
    fn check(
        labels: &[(&str, &str)],
        annotations: &[(&str, &str)],
        expected: (bool, i64, i64),
        complaints: usize,
    ) {
        let (strategy, problems) = config().for_node(&map(labels), &map(annotations));
        let found = (
            strategy.enable.unwrap(),
            strategy.cpu_reclaim_threshold_percent.unwrap(),
            strategy.memory_reclaim_threshold_percent.unwrap(),
        );
        assert_eq!(found, expected);
        assert_eq!(problems.len(), complaints, "{problems:?}");
    }

    #[test]
    fn the_more_particular_wins() {
        let annotation = names::ANNOTATION_COLOCATION_STRATEGY;
        check(&[], &[], (true, 70, 65), 0);
        check(&[("pool", "a")], &[], (true, 80, 65), 0);
        check(
            &[("pool", "a")],
            &[(annotation, r#"{"cpuReclaimThresholdPercent":50}"#)],
            (true, 50, 65),
            0,
        );
        let ratios = [
            ("pool", "a"),
            (names::LABEL_CPU_RECLAIM_RATIO, "0.9"),
            // A hundred times this is a little less than 29.
            (names::LABEL_MEMORY_RECLAIM_RATIO, "0.29"),
        ];
        check(
            &ratios,
            &[(annotation, r#"{"cpuReclaimThresholdPercent":50}"#)],
            (true, 90, 29),
            0,
        );
        // What makes no sense changes nothing.
        check(
            &[(names::LABEL_CPU_RECLAIM_RATIO, "lots")],
            &[],
            (true, 70, 65),
            1,
        );
        check(
            &[],
            &[(annotation, r#"{"cpuReclaimThresholdPercent":-5}"#)],
            (true, 70, 65),
            1,
        );
        check(&[], &[(annotation, "{")], (true, 70, 65), 1);
    }

    #[test]
    fn a_bad_configuration_is_refused_with_its_place() {
        for (text, complaint) in [
            ("[]", "must be an object"),
            (r#"{"nodeConfigs":{}}"#, "nodeConfigs must be a list"),
            (
                r#"{"cpuReclaimThresholdPercent":-1}"#,
                "cpuReclaimThresholdPercent must be at least 0, and is -1",
            ),
            (
                r#"{"midUnallocatedPercent":101}"#,
                "midUnallocatedPercent must be between 0 and 100, and is 101",
            ),
            (
                r#"{"degradeTimeMinutes":0}"#,
                "degradeTimeMinutes must be more than 0, and is 0",
            ),
            (
                r#"{"metricAggregatePolicy":{"durations":["5m0s","soon"]}}"#,
                "metricAggregatePolicy.durations must be like 5m0s, and one is \"soon\"",
            ),
            (
                r#"{"metricAggregatePolicy":{"durations":["0s"]}}"#,
                "metricAggregatePolicy.durations must be like 5m0s, and one is \"0s\"",
            ),
            (
                r#"{"metricAggregatePolicy":{"durations":["PT5M"]}}"#,
                "metricAggregatePolicy.durations must be like 5m0s, and one is \"PT5M\"",
            ),
            (
                r#"{"cpuCalculatePolicy":"request"}"#,
                "cpuCalculatePolicy must be usage or maxUsageRequest",
            ),
            (
                r#"{"nodeConfigs":[{"nodeSelector":{"matchExpressions":[{"key":"a","operator":"In"}]}}]}"#,
                "nodeConfigs[0]: nodeSelector: In on a needs values",
            ),
            (
                r#"{"nodeConfigs":[{"memoryReclaimThresholdPercent":-1}]}"#,
                "nodeConfigs[0]: memoryReclaimThresholdPercent must be at least 0, and is -1",
            ),
        ] {
            assert_eq!(Colocation::parse(text).unwrap_err(), complaint);
        }
        assert!(Colocation::parse("{").is_err());
        let units =
            r#"{"metricAggregatePolicy":{"durations":["1h30m","1.5h","90s","500ms","5m0s"]}}"#;
        assert!(Colocation::parse(units).is_ok());
    }

    #[test]
    fn more_than_all_may_be_lent() {
        let labels = [
            (names::LABEL_CPU_RECLAIM_RATIO, "1.2"),
            (names::LABEL_MID_STATIC_CPU_RATIO, "0.25"),
            (names::LABEL_MID_STATIC_MEMORY_RATIO, "-1"),
        ];
        let text = r#"{"memoryReclaimThresholdPercent":150,"batchCPUThresholdPercent":130}"#;
        let config = Colocation::parse(text).unwrap();
        let (strategy, problems) = config.for_node(&map(&labels), &map(&[]));
        assert_eq!(strategy.cpu_reclaim_threshold_percent, Some(120));
        assert_eq!(strategy.memory_reclaim_threshold_percent, Some(150));
        assert_eq!(strategy.mid_static_cpu_reserved_percent, Some(25));
        assert_eq!(strategy.mid_static_memory_reserved_percent, None);
        assert_eq!(problems.len(), 1, "{problems:?}");
    }

    #[test]
    fn a_cluster_that_does_not_lend_has_no_node_that_does() {
        let lends = |cluster: bool, node: bool| {
            let text = json!({
                "enable": cluster,
                "nodeConfigs": [{"nodeSelector": {"matchLabels": {"pool": "a"}}, "enable": node}]
            });
            let config = Colocation::parse(&text.to_string()).unwrap();
            let (strategy, _) = config.for_node(&map(&[("pool", "a")]), &map(&[]));
            config.lends(&strategy)
        };
        assert_eq!(
            [(true, true), (true, false), (false, true), (false, false)]
                .map(|(cluster, node)| lends(cluster, node)),
            [true, false, false, false]
        );
    }

    #[test]
    fn the_agent_is_asked_for_what_the_strategy_says() {
        let asked = |enable: bool| {
            let text = json!({
                "enable": enable,
                "metricAggregateDurationSeconds": 120,
                "metricAggregatePolicy": {"durations": ["5m", "90s", "1h30m", "45s", "1.5h", "500ms"]}
            });
            let config = Colocation::parse(&text.to_string()).unwrap();
            let (strategy, _) = config.for_node(&map(&[]), &map(&[]));
            serde_json::to_value(strategy.node_metric()).unwrap()
        };
        let spec = |seconds: i64, durations: &[&str]| {
            json!({"metricCollectPolicy": {
                "aggregateDurationSeconds": seconds,
                "reportIntervalSeconds": 60,
                "nodeAggregatePolicy": {"durations": durations},
                "nodeMemoryCollectPolicy": "usageWithoutPageCache"
            }})
        };
        let durations = ["5m0s", "1m30s", "1h30m0s", "45s", "1h30m0s", "500ms"];
        assert_eq!(asked(true), spec(120, &durations));
        // Nobody is lent anything: what was configured for that is of no account.
        assert_eq!(asked(false), spec(300, &["5m0s", "10m0s", "30m0s"]));
    }
}
