//! Names that other programs know: labels, annotations, resources, config maps.

/// Labels of pods.
pub const LABEL_QOS: &str = "koordinator.sh/qosClass";
pub const LABEL_PRIORITY_CLASS: &str = "koordinator.sh/priority-class";

/// Labels of nodes: how much of them may be filled, as shares of 1.
pub const LABEL_CPU_RECLAIM_RATIO: &str = "node.koordinator.sh/cpu-reclaim-ratio";
pub const LABEL_MEMORY_RECLAIM_RATIO: &str = "node.koordinator.sh/memory-reclaim-ratio";
/// How much of them is always there for mid-priority pods, likewise.
pub const LABEL_MID_STATIC_CPU_RATIO: &str = "node.koordinator.sh/mid-static-cpu-reserved-ratio";
pub const LABEL_MID_STATIC_MEMORY_RATIO: &str =
    "node.koordinator.sh/mid-static-memory-reserved-ratio";

/// Annotations of nodes.
pub const ANNOTATION_COLOCATION_STRATEGY: &str = "node.koordinator.sh/colocation-strategy";
/// What its network can carry, in bits a second.
pub const ANNOTATION_NETWORK_BANDWIDTH: &str = "node.koordinator.sh/network-bandwidth";
pub const ANNOTATION_RESERVATION: &str = "node.koordinator.sh/reservation";
pub const ANNOTATION_NORMALIZATION_RATIO: &str = "node.koordinator.sh/cpu-normalization-ratio";
pub const ANNOTATION_AMPLIFICATION_RATIO: &str = "node.koordinator.sh/resource-amplification-ratio";
pub const ANNOTATION_ORIGIN_EXTENDED: &str = "node.koordinator.sh/originExtendedAllocatable";
pub const ANNOTATION_THIRD_PARTY: &str = "node.koordinator.sh/thirdPartyAllocations";
pub const ANNOTATION_SYSTEM_QOS: &str = "node.koordinator.sh/system-qos-resource";
pub const ANNOTATION_RAW_ALLOCATABLE: &str = "node.koordinator.sh/raw-allocatable";
/// A label of nodes: whether fast cores count for more here.
pub const LABEL_NORMALIZATION_ENABLED: &str = "node.koordinator.sh/cpu-normalization-enabled";
/// A label of nodes: what the kubelet keeps is taken from the NUMA nodes, too.
pub const LABEL_NUMA_RESERVATION: &str = "node.koordinator.sh/enable-numa-reservation";

/// An annotation of pods: on which CPUs and NUMA nodes the scheduler has put them.
pub const ANNOTATION_RESOURCE_STATUS: &str = "scheduling.koordinator.sh/resource-status";

/// Annotations of a node's topology object.
pub const ANNOTATION_CPU_BASIC_INFO: &str = "node.koordinator.sh/cpu-basic-info";
pub const ANNOTATION_CPU_TOPOLOGY: &str = "node.koordinator.sh/cpu-topology";
pub const ANNOTATION_CPU_SHARED_POOLS: &str = "node.koordinator.sh/cpu-shared-pools";
pub const ANNOTATION_BE_CPU_SHARED_POOLS: &str = "node.koordinator.sh/be-cpu-shared-pools";
pub const ANNOTATION_CPU_MANAGER_POLICY: &str = "kubelet.koordinator.sh/cpu-manager-policy";
pub const ANNOTATION_POD_CPU_ALLOCS: &str = "node.koordinator.sh/pod-cpu-allocs";
/// The label of who writes it, and that value.
pub const LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
pub const MANAGED_BY: &str = "Koordinator";

/// Resources that are lent: CPU in thousandths of a core, memory in bytes.
pub const BATCH_CPU: &str = "kubernetes.io/batch-cpu";
pub const BATCH_MEMORY: &str = "kubernetes.io/batch-memory";
pub const MID_CPU: &str = "kubernetes.io/mid-cpu";
pub const MID_MEMORY: &str = "kubernetes.io/mid-memory";

/// The manager's configuration.
pub const CONFIG_NAMESPACE: &str = "koordinator-system";
pub const CONFIG_NAME: &str = "slo-controller-config";

/// Pods' own word on how they are treated.
pub const ANNOTATION_CPU_BURST: &str = "koordinator.sh/cpuBurst";
pub const ANNOTATION_MEMORY_QOS: &str = "koordinator.sh/memoryQOS";
pub const ANNOTATION_BLKIO_QOS: &str = "koordinator.sh/blkioQOS";
pub const ANNOTATION_RESCTRL: &str = "node.koordinator.sh/resctrl";
/// The features that may evict it, as a JSON list.
pub const ANNOTATION_EVICTION_POLICY: &str = "koordinator.sh/eviction-policy";
/// A number: the pods with the lower one go first.
pub const ANNOTATION_EVICTION_PRIORITY: &str = "koordinator.sh/eviction-priority";
/// Labels of pods: whether it may be evicted by priority, and its rank within its class.
pub const LABEL_EVICTION_ENABLED: &str = "koordinator.sh/eviction-enabled";
pub const LABEL_PRIORITY: &str = "koordinator.sh/priority";
