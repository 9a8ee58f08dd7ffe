//! Arguments of plugins: read strictly, with defaults, and checked.

mod check;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use check::{check, check_fit};

use super::GoDuration;
use super::schema::{Schema, Type, mismatch};
use super::types::API_VERSION;

/// Plugins with arguments, in the order in which missing ones are added.
pub const WITH_ARGS: [&str; 8] = [
    "DefaultPreemption",
    "DynamicResources",
    "InterPodAffinity",
    "NodeAffinity",
    "NodeResourcesBalancedAllocation",
    "NodeResourcesFit",
    "PodTopologySpread",
    "VolumeBinding",
];

macro_rules! arguments {
    ($($name:ident { $($field:ident: $type:ty = $default:expr),* $(,)? })*) => {
        $(
            #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            pub struct $name {
                $(pub $field: $type,)*
            }

            impl Default for $name {
                fn default() -> Self {
                    Self { $($field: $default,)* }
                }
            }
        )*
    };
}

arguments! {
    PreemptionArgs {
        min_candidate_nodes_absolute: i32 = 100,
        min_candidate_nodes_percentage: i32 = 10,
    }

    DynamicResourcesArgs {
        binding_timeout: GoDuration = GoDuration::from_secs(600),
        filter_timeout: GoDuration = GoDuration::from_secs(10),
    }

    AffinityArgs {
        hard_pod_affinity_weight: i32 = 1,
        ignore_preferred_terms_of_existing_pods: bool = false,
    }

    ResourceSpec {
        name: String = String::new(),
        weight: i64 = 0,
    }

    BalancedArgs {
        resources: Vec<ResourceSpec> = cpu_and_memory(),
    }

    Point {
        utilization: i32 = 0,
        score: i32 = 0,
    }

    VolumeBindingArgs {
        bind_timeout_seconds: i64 = 600,
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinityArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_affinity: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FitArgs {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignored_resource_groups: Vec<String>,
    pub scoring_strategy: Option<Strategy>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    pub resources: Vec<ResourceSpec>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_to_capacity_ratio: Option<Shape>,
    pub r#type: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Shape {
    pub shape: Vec<Point>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SpreadArgs {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub default_constraints: Vec<Constraint>,
    pub defaulting_type: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Constraint {
    pub max_skew: i32,
    pub topology_key: String,
    pub when_unsatisfiable: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_domains: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_affinity_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_taints_policy: Option<String>,
}

fn cpu_and_memory() -> Vec<ResourceSpec> {
    let one = |name: &str| ResourceSpec {
        name: name.to_owned(),
        weight: 1,
    };
    vec![one("cpu"), one("memory")]
}

const RESOURCES: Type = Type::List(&Type::Object(&Schema {
    name: "ResourceSpec",
    fields: &[("name", Type::Text), ("weight", Type::Int64)],
}));

const POINTS: Type = Type::List(&Type::Object(&Schema {
    name: "UtilizationShapePoint",
    fields: &[("utilization", Type::Int32), ("score", Type::Int32)],
}));

/// The fields of a plugin's arguments; `None`: no plugin of the original's.
fn schema(plugin: &str) -> Option<&'static Schema> {
    Some(match plugin {
        "DefaultPreemption" => &Schema {
            name: "DefaultPreemptionArgs",
            fields: &[
                ("minCandidateNodesPercentage", Type::Int32),
                ("minCandidateNodesAbsolute", Type::Int32),
            ],
        },
        "DynamicResources" => &Schema {
            name: "DynamicResourcesArgs",
            fields: &[
                ("filterTimeout", Type::Duration),
                ("bindingTimeout", Type::Duration),
            ],
        },
        "InterPodAffinity" => &Schema {
            name: "InterPodAffinityArgs",
            fields: &[
                ("hardPodAffinityWeight", Type::Int32),
                ("ignorePreferredTermsOfExistingPods", Type::Bool),
            ],
        },
        "NodeAffinity" => &Schema {
            name: "NodeAffinityArgs",
            fields: &[("addedAffinity", Type::Anything)],
        },
        "NodeResourcesBalancedAllocation" => &Schema {
            name: "NodeResourcesBalancedAllocationArgs",
            fields: &[("resources", RESOURCES)],
        },
        "NodeResourcesFit" => &Schema {
            name: "NodeResourcesFitArgs",
            fields: &[
                ("ignoredResources", Type::List(&Type::Text)),
                ("ignoredResourceGroups", Type::List(&Type::Text)),
                (
                    "scoringStrategy",
                    Type::Object(&Schema {
                        name: "ScoringStrategy",
                        fields: &[
                            ("type", Type::Text),
                            ("resources", RESOURCES),
                            (
                                "requestedToCapacityRatio",
                                Type::Object(&Schema {
                                    name: "RequestedToCapacityRatioParam",
                                    fields: &[("shape", POINTS)],
                                }),
                            ),
                        ],
                    }),
                ),
            ],
        },
        "PodTopologySpread" => &Schema {
            name: "PodTopologySpreadArgs",
            fields: &[
                (
                    "defaultConstraints",
                    Type::List(&Type::Object(&Schema {
                        name: "TopologySpreadConstraint",
                        fields: &[
                            ("maxSkew", Type::Int32),
                            ("topologyKey", Type::Text),
                            ("whenUnsatisfiable", Type::Text),
                            ("labelSelector", Type::Anything),
                            ("minDomains", Type::Int32),
                            ("nodeAffinityPolicy", Type::Text),
                            ("nodeTaintsPolicy", Type::Text),
                            ("matchLabelKeys", Type::List(&Type::Text)),
                        ],
                    })),
                ),
                ("defaultingType", Type::Text),
            ],
        },
        "VolumeBinding" => &Schema {
            name: "VolumeBindingArgs",
            fields: &[("bindTimeoutSeconds", Type::Int64), ("shape", POINTS)],
        },
        _ => return None,
    })
}

/// Why arguments cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// They could be, but for fields that nobody knows.
    Strict(String),
    Plain(String),
}

/// Reads a plugin's arguments and fills in what is left out.
pub fn read(plugin: &str, args: &Value) -> Result<Value, Unreadable> {
    let Some(schema) = schema(plugin) else {
        return Ok(args.clone());
    };
    let empty = json!({});
    let args = if args.is_null() { &empty } else { args };
    if !args.is_object() {
        // The type that the original reads version and kind with has no name.
        let nameless = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        return Err(Unreadable::Plain(format!(
            "decoding args for plugin {plugin}: couldn't get version/kind; json parse error: {}",
            mismatch(args, "", "", nameless)
        )));
    }
    let text = |key: &str| args[key].as_str().unwrap_or_default();
    let wanted = format!("{plugin}Args");
    let group = "kubescheduler.config.k8s.io";
    // Each is filled in by itself.
    let version = match text("apiVersion") {
        "" => API_VERSION,
        given => given,
    };
    let kind = match text("kind") {
        "" => wanted.as_str(),
        given => given,
    };
    let unknown = |kind: &str| {
        Err(Unreadable::Plain(format!(
            "decoding args for plugin {plugin}: {}",
            super::no_kind(kind, version)
        )))
    };
    if version != API_VERSION {
        return unknown(kind);
    }
    if kind != wanted {
        let is_known = kind
            .strip_suffix("Args")
            .is_some_and(|name| self::schema(name).is_some());
        if !is_known {
            return unknown(kind);
        }
        return Err(Unreadable::Plain(format!(
            "args for plugin {plugin} were not of type {wanted}.{group}, got {kind}.{group}"
        )));
    }
    let strange = schema.check(args).map_err(|error| {
        Unreadable::Plain(format!("decoding args for plugin {plugin}: {error}"))
    })?;
    if !strange.is_empty() {
        let list: Vec<String> = strange
            .iter()
            .map(|field| format!("unknown field {field:?}"))
            .collect();
        return Err(Unreadable::Strict(format!(
            "decoding args for plugin {plugin}: strict decoding error: {}",
            list.join(", ")
        )));
    }
    let filled = filled(plugin, args).map_err(|error| {
        Unreadable::Plain(format!("decoding args for plugin {plugin}: {error}"))
    })?;
    Ok(filled)
}

/// A plugin's arguments as one of the types above.
pub fn typed<T: serde::de::DeserializeOwned>(args: &Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(super::without_nulls(args.clone()))
}

fn filled(plugin: &str, args: &Value) -> Result<Value, serde_json::Error> {
    let mut written = match plugin {
        "DefaultPreemption" => serde_json::to_value(typed::<PreemptionArgs>(args)?)?,
        "DynamicResources" => serde_json::to_value(typed::<DynamicResourcesArgs>(args)?)?,
        "InterPodAffinity" => serde_json::to_value(typed::<AffinityArgs>(args)?)?,
        "NodeAffinity" => serde_json::to_value(typed::<NodeAffinityArgs>(args)?)?,
        "NodeResourcesBalancedAllocation" => {
            let mut read: BalancedArgs = typed(args)?;
            if read.resources.is_empty() {
                read.resources = cpu_and_memory();
            }
            for resource in &mut read.resources {
                resource.weight = weight(resource.weight);
            }
            serde_json::to_value(read)?
        }
        "NodeResourcesFit" => {
            let mut read: FitArgs = typed(args)?;
            let strategy = read.scoring_strategy.get_or_insert_with(|| Strategy {
                r#type: "LeastAllocated".to_owned(),
                ..Strategy::default()
            });
            if strategy.resources.is_empty() {
                strategy.resources = cpu_and_memory();
            }
            for resource in &mut strategy.resources {
                resource.weight = weight(resource.weight);
            }
            serde_json::to_value(read)?
        }
        "PodTopologySpread" => {
            let mut read: SpreadArgs = typed(args)?;
            if read.defaulting_type.is_empty() {
                read.defaulting_type = "System".to_owned();
            }
            serde_json::to_value(read)?
        }
        _ => {
            let mut written = serde_json::to_value(typed::<VolumeBindingArgs>(args)?)?;
            if !args["shape"].is_null() {
                written["shape"] = args["shape"].clone();
            }
            written
        }
    };
    written["apiVersion"] = API_VERSION.into();
    written["kind"] = format!("{plugin}Args").into();
    Ok(written)
}

fn weight(given: i64) -> i64 {
    if given == 0 { 1 } else { given }
}
