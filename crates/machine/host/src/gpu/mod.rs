//! NVIDIA GPUs, through NVML.
//!
//! The library comes with the driver and is looked for when the agent starts: a machine without one has no GPUs.

#[cfg(feature = "gpu")]
mod devices;
#[cfg(feature = "gpu")]
mod library;

#[cfg(feature = "gpu")]
pub use devices::Gpus;
#[cfg(feature = "gpu")]
pub use library::LIBRARY;

/// A GPU and where it sits.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    pub minor: u32,
    pub uuid: String,
    /// `NVIDIA A100-SXM4-80GB`.
    pub model: String,
    pub driver: String,
    /// Bytes.
    pub memory: u64,
    /// `None`: the machine has no NUMA nodes.
    pub numa_node: Option<i32>,
    /// The root that it hangs below, `pci0000:3a`.
    pub pcie: String,
    /// Its address, `0000:3b:00.0`.
    pub bus: String,
    /// The number of the fatal error that it had, if it had one: it is not to be trusted until the next start.
    pub fault: Option<u64>,
}

/// What one process uses of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessUse {
    pub pid: u32,
    /// Place of the GPU among all.
    pub device: usize,
    /// Percent of its cores' time.
    pub cores: u32,
    /// Bytes.
    pub memory: u64,
}
