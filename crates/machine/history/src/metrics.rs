//! All metrics of the history, with the names and labels of Koordinator's agent.
//!
//! CPU is in cores and kept to a hundredth of a thousandth, memory in bytes, ratios to a ten-thousandth.

use super::Metric;

const CPU: u32 = 100_000;
const BYTES: u32 = 1;
const RATIO: u32 = 10_000;
const PERCENT: u32 = 100;
const COUNT: u32 = 1;
const MILLI: u32 = 100;
const FLAG: u32 = 1;

const NONE: &[&str] = &[];
const POD: &[&str] = &["pod_uid"];
const CONTAINER: &[&str] = &["container_id"];
const GPU: &[&str] = &["gpu_minor", "gpu_device_uuid"];
const POD_GPU: &[&str] = &["pod_uid", "gpu_minor", "gpu_device_uuid"];
const CONTAINER_GPU: &[&str] = &["container_id", "gpu_minor", "gpu_device_uuid"];
const HOST_APP: &[&str] = &["host_app_name"];
const NUMA: &[&str] = &["numa_node_id"];

const fn metric(name: &'static str, resolution: u32, labels: &'static [&'static str]) -> Metric {
    Metric {
        name,
        resolution,
        labels,
    }
}

macro_rules! metrics {
    ($($constant:ident = $name:literal, $resolution:expr, $labels:expr;)*) => {
        $(pub const $constant: Metric = metric($name, $resolution, $labels);)*
        /// All of them.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    NODE_CPU_USAGE = "node_cpu_usage", CPU, NONE;
    NODE_MEMORY_USAGE = "node_memory_usage", BYTES, NONE;
    NODE_MEMORY_USAGE_WITH_PAGE_CACHE = "node_memory_usage_with_page_cache", BYTES, NONE;
    NODE_MEMORY_WITH_HOT_PAGE_USAGE = "node_memory_with_hot_page_usage", BYTES, NONE;
    NODE_MEMORY_COLD_PAGE_SIZE = "node_memory_cold_page_size", BYTES, NONE;
    SYS_CPU_USAGE = "sys_cpu_usage", CPU, NONE;
    SYS_MEMORY_USAGE = "sys_memory_usage", BYTES, NONE;
    NODE_NUMA_CPU_USAGE = "node_numa_cpu_usage", CPU, NUMA;
    NODE_NUMA_MEMORY_USAGE = "node_numa_memory_usage", BYTES, NUMA;
    SYS_NUMA_CPU_USAGE = "sys_numa_cpu_usage", CPU, NUMA;
    SYS_NUMA_MEMORY_USAGE = "sys_numa_memory_usage", BYTES, NUMA;
    NODE_GPU_CORE_USAGE = "node_gpu_core_usage", PERCENT, GPU;
    NODE_GPU_MEMORY_USAGE = "node_gpu_memory_usage", BYTES, GPU;
    NODE_GPU_MEMORY_TOTAL = "node_gpu_memory_total", BYTES, GPU;
    NODE_BE = "node_be", MILLI, &["be_resource", "be_allocation"];

    POD_CPU_USAGE = "pod_cpu_usage", CPU, POD;
    POD_MEMORY_USAGE = "pod_memory_usage", BYTES, POD;
    POD_MEMORY_USAGE_WITH_PAGE_CACHE = "pod_memory_usage_with_page_cache", BYTES, POD;
    POD_MEMORY_WITH_HOT_PAGE_USAGE = "pod_memory_with_hot_page_usage", BYTES, POD;
    POD_MEMORY_COLD_PAGE_SIZE = "pod_memory_cold_page_size", BYTES, POD;
    POD_CPU_THROTTLED = "pod_cpu_throttled", RATIO, POD;
    POD_PSI = "pod_psi", PERCENT, &["pod_uid", "psi_resource", "psi_precision", "psi_degree"];
    POD_PSI_CPU_FULL_SUPPORTED = "pod_psi_cpu_full_supported", FLAG, POD;
    POD_GPU_CORE_USAGE = "pod_gpu_core_usage", PERCENT, POD_GPU;
    POD_GPU_MEMORY_USAGE = "pod_gpu_memory_usage", BYTES, POD_GPU;

    CONTAINER_CPU_USAGE = "container_cpu_usage", CPU, CONTAINER;
    CONTAINER_MEMORY_USAGE = "container_memory_usage", BYTES, CONTAINER;
    CONTAINER_MEMORY_USAGE_WITH_PAGE_CACHE =
        "container_memory_usage_with_page_cache", BYTES, CONTAINER;
    CONTAINER_MEMORY_WITH_HOT_PAGE_USAGE =
        "container_memory_with_hot_page_usage", BYTES, CONTAINER;
    CONTAINER_MEMORY_COLD_PAGE_SIZE = "container_memory_cold_page_size", BYTES, CONTAINER;
    CONTAINER_CPU_THROTTLED = "container_cpu_throttled", RATIO, CONTAINER;
    CONTAINER_CPI = "container_cpi", COUNT, &["pod_uid", "container_id", "cpi_resource"];
    CONTAINER_PSI = "container_psi", PERCENT,
        &["container_id", "pod_uid", "psi_resource", "psi_precision", "psi_degree"];
    CONTAINER_PSI_CPU_FULL_SUPPORTED =
        "container_psi_cpu_full_supported", FLAG, &["pod_uid", "container_id"];
    CONTAINER_GPU_CORE_USAGE = "container_gpu_core_usage", PERCENT, CONTAINER_GPU;
    CONTAINER_GPU_MEMORY_USAGE = "container_gpu_memory_usage", BYTES, CONTAINER_GPU;

    HOST_APPLICATION_CPU_USAGE = "host_application_cpu_usage", CPU, HOST_APP;
    HOST_APPLICATION_MEMORY_USAGE = "host_application_memory_usage", BYTES, HOST_APP;
    HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE =
        "host_application_memory_usage_with_page_cache", BYTES, HOST_APP;
    HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE =
        "host_application_memory_with_hot_page_usage", BYTES, HOST_APP;
    HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE =
        "host_application_memory_cold_page_size", BYTES, HOST_APP;

    RESCTRL_RESOURCE_LLC = "resctrl_resource_llc", BYTES, &["qos", "cache_id"];
    RESCTRL_RESOURCE_MB = "resctrl_resource_mb", BYTES, &["qos", "cache_id", "resctrl_mb_type"];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_apart() {
        let mut names: Vec<&str> = ALL.iter().map(|metric| metric.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
