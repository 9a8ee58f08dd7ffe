//! KubeSchedulerConfiguration v1 as it is written, with its defaults.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::GoDuration;
use super::schema::{Schema, Type};

pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
pub const KIND: &str = "KubeSchedulerConfiguration";
const DEFAULT_SCHEDULER: &str = "default-scheduler";

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Configuration {
    pub parallelism: i32,
    pub leader_election: LeaderElection,
    pub client_connection: ClientConnection,
    pub enable_profiling: bool,
    pub enable_contention_profiling: bool,
    pub percentage_of_nodes_to_score: i32,
    pub pod_initial_backoff_seconds: i64,
    pub pod_max_backoff_seconds: i64,
    pub profiles: Vec<ProfileConfig>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extenders: Vec<ExtenderConfig>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub delay_cache_until_active: bool,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            parallelism: 16,
            leader_election: LeaderElection::default(),
            client_connection: ClientConnection::default(),
            enable_profiling: true,
            enable_contention_profiling: true,
            percentage_of_nodes_to_score: 0,
            pod_initial_backoff_seconds: 1,
            pod_max_backoff_seconds: 10,
            profiles: vec![ProfileConfig {
                scheduler_name: DEFAULT_SCHEDULER.to_owned(),
                ..ProfileConfig::default()
            }],
            extenders: Vec::new(),
            delay_cache_until_active: false,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderElection {
    pub leader_elect: bool,
    pub lease_duration: GoDuration,
    pub renew_deadline: GoDuration,
    pub resource_lock: String,
    pub resource_name: String,
    pub resource_namespace: String,
    pub retry_period: GoDuration,
}

impl Default for LeaderElection {
    fn default() -> Self {
        Self {
            leader_elect: true,
            lease_duration: GoDuration::from_secs(15),
            renew_deadline: GoDuration::from_secs(10),
            resource_lock: "leases".to_owned(),
            resource_name: "kube-scheduler".to_owned(),
            resource_namespace: "kube-system".to_owned(),
            retry_period: GoDuration::from_secs(2),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClientConnection {
    pub accept_content_types: String,
    pub burst: i32,
    pub content_type: String,
    pub kubeconfig: String,
    #[serde(serialize_with = "whole")]
    pub qps: f32,
}

/// Go writes 50, not 50.0.
fn whole<S: serde::Serializer>(rate: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    match rate.fract() == 0.0 {
        true => serializer.serialize_i64(*rate as i64),
        false => serializer.serialize_f32(*rate),
    }
}

impl Default for ClientConnection {
    fn default() -> Self {
        Self {
            accept_content_types: String::new(),
            burst: 100,
            content_type: "application/vnd.kubernetes.protobuf".to_owned(),
            kubeconfig: String::new(),
            qps: 50.0,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub percentage_of_nodes_to_score: Option<i32>,
    pub plugin_config: Vec<PluginConfig>,
    pub plugins: Plugins,
    pub scheduler_name: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginConfig {
    pub args: Value,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Plugins {
    pub pre_enqueue: PluginSet,
    pub queue_sort: PluginSet,
    pub pre_filter: PluginSet,
    pub filter: PluginSet,
    pub post_filter: PluginSet,
    pub pre_score: PluginSet,
    pub score: PluginSet,
    pub reserve: PluginSet,
    pub permit: PluginSet,
    pub pre_bind: PluginSet,
    pub bind: PluginSet,
    pub post_bind: PluginSet,
    pub placement_generate: PluginSet,
    pub placement_score: PluginSet,
    pub multi_point: PluginSet,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PluginSet {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<Enabled>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<Enabled>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Enabled {
    pub name: String,
    pub weight: i32,
}

/// Of what is left out only the address and the time are written down.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderConfig {
    pub url_prefix: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub filter_verb: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preempt_verb: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub prioritize_verb: String,
    #[serde(skip_serializing_if = "is_zero")]
    pub weight: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub bind_verb: String,
    #[serde(rename = "enableHTTPS", skip_serializing_if = "std::ops::Not::not")]
    pub enable_https: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_config: Option<ExtenderTls>,
    #[serde(rename = "httpTimeout")]
    pub http_timeout: GoDuration,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_cache_capable: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_resources: Vec<ManagedResource>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignorable: bool,
}

fn is_zero(number: &i64) -> bool {
    *number == 0
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExtenderTls {
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub insecure: bool,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cert_file: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_file: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_file: String,
    /// In base64, as bytes are in JSON.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cert_data: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_data: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ca_data: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedResource {
    pub name: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ignored_by_scheduler: bool,
}

impl Configuration {
    /// What is left out, or zero where zero makes no sense.
    pub fn set_defaults(&mut self) {
        let standard = Self::default();
        if self.profiles.is_empty() {
            self.profiles = standard.profiles;
        }
        if let [only] = self.profiles.as_mut_slice()
            && only.scheduler_name.is_empty()
        {
            only.scheduler_name = DEFAULT_SCHEDULER.to_owned();
        }
        let (own, standard_election) = (&mut self.leader_election, standard.leader_election);
        let or = |own: &mut GoDuration, standard: GoDuration| {
            if own.is_zero() {
                *own = standard;
            }
        };
        or(&mut own.lease_duration, standard_election.lease_duration);
        or(&mut own.renew_deadline, standard_election.renew_deadline);
        or(&mut own.retry_period, standard_election.retry_period);
        for (own, standard) in [
            (&mut own.resource_lock, standard_election.resource_lock),
            (&mut own.resource_name, standard_election.resource_name),
            (
                &mut own.resource_namespace,
                standard_election.resource_namespace,
            ),
        ] {
            if own.is_empty() {
                *own = standard;
            }
        }
        for extender in &mut self.extenders {
            or(&mut extender.http_timeout, GoDuration::from_secs(5));
        }
        let connection = &mut self.client_connection;
        if connection.content_type.is_empty() {
            connection.content_type = standard.client_connection.content_type;
        }
        if connection.qps == 0.0 {
            connection.qps = standard.client_connection.qps;
        }
        if connection.burst == 0 {
            connection.burst = standard.client_connection.burst;
        }
    }
}

impl Plugins {
    /// By the names of their fields, multiPoint last.
    pub fn sets(&self) -> [(&'static str, &PluginSet); 15] {
        [
            ("preEnqueue", &self.pre_enqueue),
            ("queueSort", &self.queue_sort),
            ("preFilter", &self.pre_filter),
            ("filter", &self.filter),
            ("postFilter", &self.post_filter),
            ("preScore", &self.pre_score),
            ("score", &self.score),
            ("reserve", &self.reserve),
            ("permit", &self.permit),
            ("preBind", &self.pre_bind),
            ("bind", &self.bind),
            ("postBind", &self.post_bind),
            ("placementGenerate", &self.placement_generate),
            ("placementScore", &self.placement_score),
            ("multiPoint", &self.multi_point),
        ]
    }
}

const PLUGIN: Schema = Schema {
    name: "Plugin",
    fields: &[("name", Type::Text), ("weight", Type::Int32)],
};

const PLUGIN_SET: Type = Type::Object(&Schema {
    name: "PluginSet",
    fields: &[
        ("enabled", Type::List(&Type::Object(&PLUGIN))),
        ("disabled", Type::List(&Type::Object(&PLUGIN))),
    ],
});

const PLUGINS: Schema = Schema {
    name: "Plugins",
    fields: &[
        ("preEnqueue", PLUGIN_SET),
        ("queueSort", PLUGIN_SET),
        ("preFilter", PLUGIN_SET),
        ("filter", PLUGIN_SET),
        ("postFilter", PLUGIN_SET),
        ("preScore", PLUGIN_SET),
        ("score", PLUGIN_SET),
        ("reserve", PLUGIN_SET),
        ("permit", PLUGIN_SET),
        ("preBind", PLUGIN_SET),
        ("bind", PLUGIN_SET),
        ("postBind", PLUGIN_SET),
        ("placementGenerate", PLUGIN_SET),
        ("placementScore", PLUGIN_SET),
        ("multiPoint", PLUGIN_SET),
    ],
};

const PROFILE: Schema = Schema {
    name: "KubeSchedulerProfile",
    fields: &[
        ("schedulerName", Type::Text),
        ("percentageOfNodesToScore", Type::Int32),
        ("plugins", Type::Object(&PLUGINS)),
        (
            "pluginConfig",
            Type::List(&Type::Object(&Schema {
                name: "PluginConfig",
                fields: &[("name", Type::Text), ("args", Type::Anything)],
            })),
        ),
    ],
};

const EXTENDER: Schema = Schema {
    name: "Extender",
    fields: &[
        ("urlPrefix", Type::Text),
        ("filterVerb", Type::Text),
        ("preemptVerb", Type::Text),
        ("prioritizeVerb", Type::Text),
        ("weight", Type::Int64),
        ("bindVerb", Type::Text),
        ("enableHTTPS", Type::Bool),
        (
            "tlsConfig",
            Type::Object(&Schema {
                name: "ExtenderTLSConfig",
                fields: &[
                    ("insecure", Type::Bool),
                    ("serverName", Type::Text),
                    ("certFile", Type::Text),
                    ("keyFile", Type::Text),
                    ("caFile", Type::Text),
                    ("certData", Type::Text),
                    ("keyData", Type::Text),
                    ("caData", Type::Text),
                ],
            }),
        ),
        ("httpTimeout", Type::Duration),
        ("nodeCacheCapable", Type::Bool),
        (
            "managedResources",
            Type::List(&Type::Object(&Schema {
                name: "ExtenderManagedResource",
                fields: &[("name", Type::Text), ("ignoredByScheduler", Type::Bool)],
            })),
        ),
        ("ignorable", Type::Bool),
    ],
};

pub const CONFIGURATION: Schema = Schema {
    name: KIND,
    fields: &[
        ("parallelism", Type::Int32),
        (
            "leaderElection",
            Type::Object(&Schema {
                name: "LeaderElectionConfiguration",
                fields: &[
                    ("leaderElect", Type::Bool),
                    ("leaseDuration", Type::Duration),
                    ("renewDeadline", Type::Duration),
                    ("retryPeriod", Type::Duration),
                    ("resourceLock", Type::Text),
                    ("resourceName", Type::Text),
                    ("resourceNamespace", Type::Text),
                ],
            }),
        ),
        (
            "clientConnection",
            Type::Object(&Schema {
                name: "ClientConnectionConfiguration",
                fields: &[
                    ("kubeconfig", Type::Text),
                    ("acceptContentTypes", Type::Text),
                    ("contentType", Type::Text),
                    ("qps", Type::Float),
                    ("burst", Type::Int32),
                ],
            }),
        ),
        ("enableProfiling", Type::Bool),
        ("enableContentionProfiling", Type::Bool),
        ("percentageOfNodesToScore", Type::Int32),
        ("podInitialBackoffSeconds", Type::Int64),
        ("podMaxBackoffSeconds", Type::Int64),
        ("profiles", Type::List(&Type::Object(&PROFILE))),
        ("extenders", Type::List(&Type::Object(&EXTENDER))),
        ("delayCacheUntilActive", Type::Bool),
    ],
};
