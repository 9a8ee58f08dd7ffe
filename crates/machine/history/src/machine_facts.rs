//! Keys of the current facts of the machine, and the type of each value.

/// [`plimsoll_host::machine::NodeCpuInfo`]
pub const NODE_CPU_INFO: &str = "node_cpu_info";
/// [`plimsoll_host::machine::NodeNumaInfo`]
pub const NODE_NUMA_INFO: &str = "node_numa_info";
/// [`plimsoll_host::fs::LocalStorage`]
pub const NODE_LOCAL_STORAGE_INFO: &str = "node_local_storage_info";
/// `Vec<`[`plimsoll_host::gpu::Device`]`>`
pub const GPU_DEVICES: &str = "gpu";
