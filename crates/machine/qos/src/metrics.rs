//! koordlet's figures of this half, as plain data. Names of the fields are those of the metrics, without their prefix.

use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Metrics {
    /// By type, `cpuset` or `cfsQuota`; absent until the policy has acted.
    pub be_suppress_cpu_cores: Vec<(&'static str, f64)>,
    pub be_suppress_ls_used_cpu_cores: Option<f64>,
    pub be_suppress_be_used_cpu_cores: Option<f64>,
    /// Made anew each time: a container that is gone has none.
    pub container_scaled_cfs_burst_us: Vec<ContainerFigure>,
    pub container_scaled_cfs_quota_us: Vec<ContainerFigure>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerFigure {
    pub pod_namespace: Box<str>,
    pub pod_name: Box<str>,
    pub container_id: Arc<str>,
    pub container_name: Box<str>,
    pub value: f64,
}
