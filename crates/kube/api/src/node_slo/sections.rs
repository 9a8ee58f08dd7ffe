//! The sections of a `NodeSLO`, typed. A field is absent where neither the operator nor the built-in policy says anything.

use std::collections::BTreeMap;

use serde_json::Value;

use super::read::settings;
use crate::priority::QosClass;

settings! {
    /// `resourceUsedThresholdWithBE`: when best-effort work is held back, and when pods are evicted.
    pub struct ThresholdStrategy {
        enable: bool = "enable",
        cpu_suppress_percent: i64 = "cpuSuppressThresholdPercent",
        cpu_suppress_min_percent: i64 = "cpuSuppressMinPercent",
        cpu_suppress_policy: Box<str> = "cpuSuppressPolicy",
        memory_evict_percent: i64 = "memoryEvictThresholdPercent",
        memory_evict_lower_percent: i64 = "memoryEvictLowerPercent",
        memory_allocatable_evict_percent: i64 = "memoryAllocatableEvictThresholdPercent",
        memory_allocatable_evict_lower_percent: i64 = "memoryAllocatableEvictLowerPercent",
        be_satisfaction_upper_percent: i64 = "cpuEvictBESatisfactionUpperPercent",
        be_satisfaction_lower_percent: i64 = "cpuEvictBESatisfactionLowerPercent",
        be_usage_percent: i64 = "cpuEvictBEUsageThresholdPercent",
        cpu_evict_window_seconds: i64 = "cpuEvictTimeWindowSeconds",
        cpu_evict_percent: i64 = "cpuEvictThresholdPercent",
        cpu_evict_lower_percent: i64 = "cpuEvictLowerPercent",
        cpu_allocatable_evict_percent: i64 = "cpuAllocatableEvictThresholdPercent",
        cpu_allocatable_evict_lower_percent: i64 = "cpuAllocatableEvictLowerPercent",
        cpu_evict_policy: Box<str> = "cpuEvictPolicy",
        evict_priority: i32 = "evictEnabledPriorityThreshold",
        allocatable_evict_priority: i32 = "allocatableEvictPriorityThreshold",
    }
}

settings! {
    /// What a pod's annotation can say about bursts, too.
    pub struct CpuBurst {
        policy: Box<str> = "policy",
        burst_percent: i64 = "cpuBurstPercent",
        quota_percent: i64 = "cfsQuotaBurstPercent",
        /// How long a container may use more than its limit; negative: as long as it likes.
        quota_period_seconds: i64 = "cfsQuotaBurstPeriodSeconds",
    }
}

settings! {
    pub struct SharePool {
        percent: i64 = "sharePoolThresholdPercent",
    }
}

/// `cpuBurstStrategy`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CpuBurstStrategy {
    pub burst: CpuBurst,
    pub share_pool_percent: Option<i64>,
}

impl super::Read for CpuBurstStrategy {
    fn read(value: &Value, at: &str, problems: &mut Vec<super::Problem>) -> Option<Self> {
        let burst = CpuBurst::read(value, at, problems)?;
        Some(Self {
            burst,
            share_pool_percent: SharePool::read(value, at, problems)?.percent,
        })
    }
}

settings! {
    /// `systemStrategy`.
    pub struct SystemStrategy {
        /// Ten-thousandths of the memory.
        min_free_kbytes_factor: i64 = "minFreeKbytesFactor",
        watermark_scale_factor: i64 = "watermarkScaleFactor",
        memcg_reap_background: i64 = "memcgReapBackGround",
        group_identity_enabled: i64 = "schedGroupIdentityEnabled",
        idle_saver_wmark: i64 = "schedIdleSaverWmark",
        sched_features: BTreeMap<Box<str>, bool> = "schedFeatures",
        page_cache_limit_enabled: Value = "pageCacheLimitEnabled",
    }
}

settings! {
    pub struct CpuQos {
        enable: bool = "enable",
        group_identity: i64 = "groupIdentity",
        sched_idle: i64 = "schedIdle",
        core_expeller: bool = "coreExpeller",
    }
}

settings! {
    pub struct ResctrlQos {
        enable: bool = "enable",
        cat_start_percent: i64 = "catRangeStartPercent",
        cat_end_percent: i64 = "catRangeEndPercent",
        mba_percent: i64 = "mbaPercent",
    }
}

settings! {
    pub struct MemoryQos {
        enable: bool = "enable",
        min_limit_percent: i64 = "minLimitPercent",
        low_limit_percent: i64 = "lowLimitPercent",
        throttling_percent: i64 = "throttlingPercent",
        wmark_ratio: i64 = "wmarkRatio",
        wmark_scale_permill: i64 = "wmarkScalePermill",
        wmark_min_adj: i64 = "wmarkMinAdj",
        priority_enable: i64 = "priorityEnable",
        priority: i64 = "priority",
        oom_kill_group: i64 = "oomKillGroup",
        page_cache_enable: Value = "pageCacheEnable",
        page_cache_limit_percent: i64 = "pageCacheLimitPercent",
        page_cache_limit_size: Value = "pageCacheLimitSize",
        page_cache_reclaim_sync: Value = "pageCacheReclaimSync",
    }
}

impl MemoryQos {
    /// What `over` says in place of what this says.
    #[must_use]
    pub fn with(&self, over: &Self) -> Self {
        let Self {
            enable,
            min_limit_percent,
            low_limit_percent,
            throttling_percent,
            wmark_ratio,
            wmark_scale_permill,
            wmark_min_adj,
            priority_enable,
            priority,
            oom_kill_group,
            page_cache_enable,
            page_cache_limit_percent,
            page_cache_limit_size,
            page_cache_reclaim_sync,
        } = over;
        let size = page_cache_limit_size.clone();
        let sync = page_cache_reclaim_sync.clone();
        let page_cache = page_cache_enable.clone();
        Self {
            enable: enable.or(self.enable),
            min_limit_percent: min_limit_percent.or(self.min_limit_percent),
            low_limit_percent: low_limit_percent.or(self.low_limit_percent),
            throttling_percent: throttling_percent.or(self.throttling_percent),
            wmark_ratio: wmark_ratio.or(self.wmark_ratio),
            wmark_scale_permill: wmark_scale_permill.or(self.wmark_scale_permill),
            wmark_min_adj: wmark_min_adj.or(self.wmark_min_adj),
            priority_enable: priority_enable.or(self.priority_enable),
            priority: priority.or(self.priority),
            oom_kill_group: oom_kill_group.or(self.oom_kill_group),
            page_cache_enable: page_cache.or_else(|| self.page_cache_enable.clone()),
            page_cache_limit_percent: page_cache_limit_percent.or(self.page_cache_limit_percent),
            page_cache_limit_size: size.or_else(|| self.page_cache_limit_size.clone()),
            page_cache_reclaim_sync: sync.or_else(|| self.page_cache_reclaim_sync.clone()),
        }
    }
}

/// A pod's own word on its memory, in an annotation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PodMemoryQos {
    /// `none`, `auto`, or the node's policy.
    pub policy: Option<Box<str>>,
    pub memory: MemoryQos,
}

impl super::Read for PodMemoryQos {
    fn read(value: &Value, at: &str, problems: &mut Vec<super::Problem>) -> Option<Self> {
        Some(Self {
            memory: MemoryQos::read(value, at, problems)?,
            policy: super::read::field(value, "policy", at, problems),
        })
    }
}

settings! {
    pub struct IoSettings {
        read_iops: i64 = "readIOPS",
        write_iops: i64 = "writeIOPS",
        read_bps: i64 = "readBPS",
        write_bps: i64 = "writeBPS",
        weight_percent: i64 = "ioWeightPercent",
        read_latency: i64 = "readLatency",
        write_latency: i64 = "writeLatency",
        read_latency_percent: i64 = "readLatencyPercent",
        write_latency_percent: i64 = "writeLatencyPercent",
        enable_user_model: bool = "enableUserModel",
        model_read_bps: i64 = "modelReadBPS",
        model_write_bps: i64 = "modelWriteBPS",
        model_read_seq_iops: i64 = "modelReadSeqIOPS",
        model_write_seq_iops: i64 = "modelWriteSeqIOPS",
        model_read_rand_iops: i64 = "modelReadRandIOPS",
        model_write_rand_iops: i64 = "modelWriteRandIOPS",
    }
}

settings! {
    pub struct Block {
        name: Box<str> = "name",
        /// `device`, `volumegroup` or `podvolume`.
        kind: Box<str> = "type",
        settings: IoSettings = "ioCfg",
    }
}

settings! {
    pub struct BlkIoQos {
        enable: bool = "enable",
        blocks: Vec<Block> = "blocks",
    }
}

settings! {
    /// How pods of a class are treated.
    pub struct ResourceQos {
        cpu: CpuQos = "cpuQOS",
        memory: MemoryQos = "memoryQOS",
        blkio: BlkIoQos = "blkioQOS",
        resctrl: ResctrlQos = "resctrlQOS",
        network: Value = "networkQOS",
    }
}

settings! {
    /// Settings of the root of the cgroup tree.
    pub struct CgroupRoot {
        blkio: BlkIoQos = "blkioQOS",
    }
}

settings! {
    pub struct Policies {
        /// `groupIdentity` or `coreSched`.
        cpu: Box<str> = "cpuPolicy",
        net: Box<str> = "netQOSPolicy",
    }
}

settings! {
    /// `resourceQOSStrategy`.
    pub struct ResourceQosStrategy {
        policies: Policies = "policies",
        lsr: ResourceQos = "lsrClass",
        ls: ResourceQos = "lsClass",
        be: ResourceQos = "beClass",
        system: ResourceQos = "systemClass",
        cgroup_root: CgroupRoot = "cgroupRoot",
    }
}

impl ResourceQosStrategy {
    /// The class that pods of a QoS are of. LSE pods are treated as LSR pods are.
    pub fn class(&self, qos: QosClass) -> Option<&ResourceQos> {
        match qos {
            QosClass::Lse | QosClass::Lsr => self.lsr.as_ref(),
            QosClass::Ls => self.ls.as_ref(),
            QosClass::Be => self.be.as_ref(),
            QosClass::System => self.system.as_ref(),
            QosClass::None => None,
        }
    }
}

settings! {
    /// Where a program of the host is in the cgroup tree.
    pub struct HostCgroup {
        /// `CgroupRoot`, `Kubepods`, `KubepodsBurstable` or `KubepodsBesteffort`.
        base: Box<str> = "base",
        parent_dir: Box<str> = "parentDir",
        relative_path: Box<str> = "relativePath",
    }
}

settings! {
    /// A program that runs beside the pods and is treated like one.
    pub struct HostApplication {
        name: Box<str> = "name",
        priority: Box<str> = "priority",
        qos: Box<str> = "qos",
        cgroup: HostCgroup = "cgroupPath",
    }
}

impl HostApplication {
    pub fn class(&self) -> QosClass {
        QosClass::of_label(self.qos.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Section, complete, parse};
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn the_built_in_policy_is_typed() {
        let policy = complete(&Value::Null);
        let threshold: ThresholdStrategy =
            parse(&policy[Section::Threshold.field()], "threshold").unwrap();
        assert_eq!(threshold.enable, Some(false));
        assert_eq!(threshold.cpu_suppress_percent, Some(65));
        assert_eq!(threshold.memory_evict_lower_percent, None);
        let burst: CpuBurstStrategy = parse(&policy[Section::Burst.field()], "").unwrap();
        assert_eq!(burst.burst.quota_period_seconds, Some(-1));
        assert_eq!(burst.share_pool_percent, Some(50));
        let qos: ResourceQosStrategy = parse(&policy[Section::Qos.field()], "").unwrap();
        let be = qos.class(QosClass::Be).unwrap();
        assert_eq!(be.memory.as_ref().unwrap().wmark_scale_permill, Some(50));
        assert_eq!(qos.class(QosClass::Lse), qos.lsr.as_ref());
    }

    #[test]
    fn values_of_the_wrong_kind_are_all_named() {
        let spec =
            json!({"beClass": 5, "lsClass": {"cpuQOS": {"enable": "yes", "groupIdentity": 1.5}}});
        let problems = parse::<ResourceQosStrategy>(&spec, "resourceQOSStrategy").unwrap_err();
        let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "resourceQOSStrategy.lsClass.cpuQOS.enable: must be true or false, and is \"yes\"",
                "resourceQOSStrategy.lsClass.cpuQOS.groupIdentity: must be a whole number, and is 1.5",
                "resourceQOSStrategy.beClass: must be an object, and is 5",
            ]
        );
        parse::<SystemStrategy>(&json!("x"), "systemStrategy").unwrap_err();
        parse::<Vec<HostApplication>>(&json!([{"name": 1}]), "hostApplications").unwrap_err();
    }

    fn anything() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[a-z]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            let names = prop_oneof![
                Just("beClass".to_owned()),
                Just("memoryQOS".to_owned()),
                Just("blocks".to_owned()),
                Just("enable".to_owned()),
                "[a-z]{1,3}",
            ];
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(names, inner, 0..4)
                    .prop_map(|map| map.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        #[test]
        fn anything_is_read_or_refused(value in anything()) {
            if let Err(problems) = parse::<ResourceQosStrategy>(&value, "") {
                prop_assert!(!problems.is_empty());
            }
            let _ = parse::<ThresholdStrategy>(&complete(&value)[Section::Threshold.field()], "");
        }
    }
}
