//! `NodeSLO` of `slo.koordinator.sh/v1alpha1`: how a node's agent is to treat its pods. One a node, of its name.
//!
//! The manager writes what the operator said over [`Section::defaults`]; the agent fills in the rest, so that nobody who
//! acts by it has to know any default ([`complete`]).

mod read;
mod sections;

use serde_json::{Map, Value, json};

use crate::json::merge;

pub use read::{Problem, Read, parse};
pub use sections::{
    BlkIoQos, Block, CgroupRoot, CpuBurst, CpuBurstStrategy, CpuQos, HostApplication, HostCgroup,
    IoSettings, MemoryQos, PodMemoryQos, Policies, ResctrlQos, ResourceQos, ResourceQosStrategy,
    SystemStrategy, ThresholdStrategy,
};

pub const KIND: &str = "NodeSLO";
pub const PLURAL: &str = "nodeslos";

/// The parts that the operator can set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Threshold,
    Qos,
    Burst,
    System,
}

impl Section {
    pub const ALL: [Self; 4] = [Self::Threshold, Self::Qos, Self::Burst, Self::System];

    /// Its key in the manager's config map.
    pub fn key(self) -> &'static str {
        match self {
            Self::Threshold => "resource-threshold-config",
            Self::Qos => "resource-qos-config",
            Self::Burst => "cpu-burst-config",
            Self::System => "system-config",
        }
    }

    /// Its field in the specification.
    pub fn field(self) -> &'static str {
        match self {
            Self::Threshold => "resourceUsedThresholdWithBE",
            Self::Qos => "resourceQOSStrategy",
            Self::Burst => "cpuBurstStrategy",
            Self::System => "systemStrategy",
        }
    }

    /// What the manager writes where the operator said nothing.
    pub fn defaults(self) -> Value {
        match self {
            Self::Threshold => json!({
                "enable": false,
                "cpuSuppressThresholdPercent": 65,
                "cpuSuppressPolicy": "cpuset",
                "memoryEvictThresholdPercent": 70,
                "cpuEvictPolicy": "evictByRealLimit",
            }),
            Self::Qos => json!({}),
            Self::Burst => json!({
                "policy": "none",
                "cpuBurstPercent": 1000,
                "cfsQuotaBurstPercent": 300,
                "cfsQuotaBurstPeriodSeconds": -1,
                "sharePoolThresholdPercent": 50,
            }),
            Self::System => json!({"totalNetworkBandwidth": "0"}),
        }
    }
}

/// A kind of pods that is treated alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Lsr,
    Ls,
    Be,
    System,
}

impl Class {
    pub const ALL: [Self; 4] = [Self::Lsr, Self::Ls, Self::Be, Self::System];

    pub fn field(self) -> &'static str {
        match self {
            Self::Lsr => "lsrClass",
            Self::Ls => "lsClass",
            Self::Be => "beClass",
            Self::System => "systemClass",
        }
    }

    /// What a class is given where the operator said nothing.
    pub fn defaults(self) -> Value {
        let (identity, expeller) = match self {
            Self::Lsr | Self::Ls => (2, true),
            Self::Be => (-1, false),
            Self::System => (0, false),
        };
        let cache_end = if self == Self::Be { 30 } else { 100 };
        let (ratio, scale, adjustment) = match self {
            Self::Lsr | Self::Ls => (95, 20, -25),
            Self::Be => (95, 20, 50),
            Self::System => (0, 50, 0),
        };
        json!({
            "cpuQOS": {"enable": false, "groupIdentity": identity, "schedIdle": 0, "coreExpeller": expeller},
            "resctrlQOS": {
                "enable": false, "catRangeStartPercent": 0, "catRangeEndPercent": cache_end, "mbaPercent": 100,
            },
            "memoryQOS": memory(ratio, scale, adjustment),
            "blkioQOS": {"enable": false},
            "networkQOS": {"enable": false},
        })
    }
}

fn memory(wmark_ratio: i64, wmark_scale_permill: i64, wmark_min_adj: i64) -> Value {
    json!({
        "enable": false,
        "minLimitPercent": 0,
        "lowLimitPercent": 0,
        "throttlingPercent": 0,
        "wmarkRatio": wmark_ratio,
        "wmarkScalePermill": wmark_scale_permill,
        "wmarkMinAdj": wmark_min_adj,
        "priorityEnable": 0,
        "priority": 0,
        "oomKillGroup": 0,
    })
}

/// What a class gets that is told not to be treated: values that change nothing.
pub fn none() -> Value {
    json!({
        "cpuQOS": {"groupIdentity": 0, "schedIdle": 0, "coreExpeller": false},
        "resctrlQOS": {"catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 100},
        "memoryQOS": memory(0, 50, 0),
    })
}

/// A specification with nothing left to be defaulted; `null` or an empty one is the built-in policy.
pub fn complete(spec: &Value) -> Value {
    let mut complete = Map::new();
    for section in Section::ALL {
        let mut value = match section {
            Section::Qos => qos_defaults(),
            section => section.defaults(),
        };
        merge(
            &mut value,
            spec.get(section.field()).unwrap_or(&Value::Null),
        );
        if section == Section::Qos {
            neutralize(&mut value);
        }
        complete.insert(section.field().into(), value);
    }
    for field in ["hostApplications", "extensions"] {
        if let Some(value) = spec.get(field).filter(|value| !value.is_null()) {
            complete.insert(field.into(), value.clone());
        }
    }
    complete.into()
}

fn qos_defaults() -> Value {
    let mut qos = json!({"policies": {"cpuPolicy": "groupIdentity", "netQOSPolicy": "tc"}});
    for class in Class::ALL {
        qos[class.field()] = class.defaults();
    }
    qos
}

/// Whatever is not enabled becomes what changes nothing, so that turning something off undoes it. What has another shape than
/// it should, as anybody who may write a NodeSLO can give it, becomes the default.
fn neutralize(qos: &mut Value) {
    let none = none();
    let defaults = qos_defaults();
    if !qos.is_object() {
        qos.clone_from(&defaults);
    }
    for class in Class::ALL {
        let own = &mut qos[class.field()];
        if !own.is_object() {
            own.clone_from(&defaults[class.field()]);
        }
        for (part, none) in none.as_object().into_iter().flatten() {
            let own = &mut own[part];
            if !own.is_object() {
                own.clone_from(&defaults[class.field()][part]);
            }
            if own["enable"] == false {
                merge(own, none);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_object_the_built_in_policy_holds() {
        let policy = complete(&Value::Null);
        assert_eq!(policy["resourceUsedThresholdWithBE"]["enable"], false);
        assert_eq!(
            policy["resourceUsedThresholdWithBE"]["cpuSuppressThresholdPercent"],
            65
        );
        assert_eq!(policy["cpuBurstStrategy"]["policy"], "none");
        assert_eq!(policy["cpuBurstStrategy"]["cfsQuotaBurstPercent"], 300);
        assert_eq!(
            policy["resourceQOSStrategy"]["policies"]["cpuPolicy"],
            "groupIdentity"
        );
        // Nothing is enabled, so nothing changes anything.
        let be = &policy["resourceQOSStrategy"]["beClass"];
        assert_eq!(be["cpuQOS"]["groupIdentity"], 0);
        assert_eq!(be["resctrlQOS"]["catRangeEndPercent"], 100);
        assert_eq!(be["memoryQOS"]["wmarkScalePermill"], 50);
        assert_eq!(policy.get("hostApplications"), None);
    }

    #[test]
    fn another_shape_is_the_default() {
        let whole = complete(&Value::Null);
        for odd in [json!(5), json!([]), json!("x"), json!(true)] {
            for spec in [
                json!({"resourceQOSStrategy": odd}),
                json!({"resourceQOSStrategy": {"beClass": odd}}),
                json!({"resourceQOSStrategy": {"beClass": {"cpuQOS": odd}}}),
            ] {
                let qos = &complete(&spec)["resourceQOSStrategy"]["beClass"];
                assert_eq!(qos, &whole["resourceQOSStrategy"]["beClass"], "{spec}");
            }
        }
    }

    #[test]
    fn what_is_enabled_has_its_defaults() {
        let policy = complete(&json!({
            "resourceQOSStrategy": {
                "beClass": {"cpuQOS": {"enable": true}, "memoryQOS": {"enable": true, "wmarkRatio": 80}},
                "lsClass": {"resctrlQOS": {"enable": true, "mbaPercent": 90}},
            },
            "resourceUsedThresholdWithBE": {"enable": true, "cpuSuppressMinPercent": 5},
            "hostApplications": [{"name": "nginx"}],
        }));
        let qos = &policy["resourceQOSStrategy"];
        assert_eq!(qos["beClass"]["cpuQOS"]["groupIdentity"], -1);
        assert_eq!(qos["beClass"]["memoryQOS"]["wmarkRatio"], 80);
        assert_eq!(qos["beClass"]["memoryQOS"]["wmarkMinAdj"], 50);
        assert_eq!(qos["beClass"]["resctrlQOS"]["catRangeEndPercent"], 100);
        assert_eq!(
            qos["lsClass"]["resctrlQOS"],
            json!({"enable": true, "catRangeStartPercent": 0, "catRangeEndPercent": 100, "mbaPercent": 90})
        );
        assert_eq!(qos["lsClass"]["cpuQOS"]["groupIdentity"], 0);
        let threshold = &policy["resourceUsedThresholdWithBE"];
        assert_eq!(threshold["cpuSuppressMinPercent"], 5);
        assert_eq!(threshold["memoryEvictThresholdPercent"], 70);
        assert_eq!(policy["hostApplications"][0]["name"], "nginx");
    }

    #[test]
    fn what_koordinators_manager_writes_is_taken() {
        let spec = json!({
            "cpuBurstStrategy": {"policy": "auto", "cpuBurstPercent": 1000},
            "extensions": {"Object": {}},
            "resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": false, "wmarkRatio": 80}}},
            "systemStrategy": {"totalNetworkBandwidth": "0"},
        });
        let policy = complete(&spec);
        assert_eq!(policy["cpuBurstStrategy"]["policy"], "auto");
        assert_eq!(policy["cpuBurstStrategy"]["sharePoolThresholdPercent"], 50);
        // A value beside `enable: false` is of no account.
        assert_eq!(
            policy["resourceQOSStrategy"]["beClass"]["memoryQOS"]["wmarkRatio"],
            0
        );
        assert_eq!(policy["systemStrategy"]["totalNetworkBandwidth"], "0");
    }
}
