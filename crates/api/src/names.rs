//! Names that other programs know: labels, annotations, resources, config maps.

/// Labels of pods.
pub const LABEL_QOS: &str = "koordinator.sh/qosClass";
pub const LABEL_PRIORITY_CLASS: &str = "koordinator.sh/priority-class";

/// Labels of nodes: how much of them may be filled, as shares of 1.
pub const LABEL_CPU_RECLAIM_RATIO: &str = "node.koordinator.sh/cpu-reclaim-ratio";
pub const LABEL_MEMORY_RECLAIM_RATIO: &str = "node.koordinator.sh/memory-reclaim-ratio";

/// Annotations of nodes.
pub const ANNOTATION_COLOCATION_STRATEGY: &str = "node.koordinator.sh/colocation-strategy";
pub const ANNOTATION_RESERVATION: &str = "node.koordinator.sh/reservation";
pub const ANNOTATION_NORMALIZATION_RATIO: &str = "node.koordinator.sh/cpu-normalization-ratio";
pub const ANNOTATION_ORIGIN_EXTENDED: &str = "node.koordinator.sh/originExtendedAllocatable";
pub const ANNOTATION_THIRD_PARTY: &str = "node.koordinator.sh/thirdPartyAllocations";

/// Resources that are lent: CPU in thousandths of a core, memory in bytes.
pub const BATCH_CPU: &str = "kubernetes.io/batch-cpu";
pub const BATCH_MEMORY: &str = "kubernetes.io/batch-memory";
pub const MID_CPU: &str = "kubernetes.io/mid-cpu";
pub const MID_MEMORY: &str = "kubernetes.io/mid-memory";

/// The manager's configuration.
pub const CONFIG_NAMESPACE: &str = "koordinator-system";
pub const CONFIG_NAME: &str = "slo-controller-config";
