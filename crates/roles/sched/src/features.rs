//! What may be switched on and off, as the original has it at 1.36.

/// Parts of the scheduler that a feature gate decides about. Those of the original that are not here are always on, always
/// off, or change nothing that could be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// `GenericWorkload` and `GangScheduling`: pods of a group are scheduled together.
    pub gangs: bool,
    /// `NodeDeclaredFeatures`: what a pod needs, its node has to have declared.
    pub declared_features: bool,
    /// `SchedulerPopFromBackoffQ`: who backs off is tried early if there is nobody else.
    pub pop_from_backoff: bool,
    /// `NominatedNodeNameForExpectation`: the node is told while a pod is not bound yet.
    pub expected_node: bool,
    /// `DRAExtendedResource`: devices may stand for extended resources.
    pub extended_resources: bool,
    /// `DRAPrioritizedList`: requests may name alternatives.
    pub prioritized_list: bool,
    /// `DRADeviceTaints`
    pub device_taints: bool,
    /// `DRADeviceTaintRules`: administrators may put taints on devices.
    pub taint_rules: bool,
    /// `DRADeviceBindingConditions`: devices may have to become ready first.
    pub binding_conditions: bool,
    /// `DRAConsumableCapacity`: claims may share a device.
    pub shared_devices: bool,
    /// `DRAPartitionableDevices`: devices may take from counters that others take from as well.
    pub partitions: bool,
    /// `PodLevelResources`: pods may ask for resources as a whole.
    pub pod_level_resources: bool,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            gangs: false,
            declared_features: true,
            pop_from_backoff: true,
            expected_node: true,
            extended_resources: true,
            prioritized_list: true,
            device_taints: true,
            taint_rules: false,
            binding_conditions: true,
            shared_devices: true,
            partitions: true,
            pod_level_resources: true,
        }
    }
}
