//! How much of the node best-effort work may use.

use std::collections::BTreeMap;

use plimsoll_api::node_slo::HostApplication;
use plimsoll_api::priority::{KubeQos, QosClass};
use plimsoll_plan::Reason;

use crate::input::{Input, NodeView, PodView};

const POLICY: &str = "resourceUsedThresholdWithBE.cpuSuppressThresholdPercent";

/// Room for best effort.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub milli: i64,
    percent: i64,
    pub ls_cores: f64,
    node_cores: f64,
}

impl Room {
    pub fn why(&self) -> Reason {
        Reason::new("be_cpu_suppress")
            .by(POLICY)
            .with("room_cores", self.milli as f64 / 1000.0)
            .with("threshold_percent", self.percent as f64)
            .with("ls_cores", self.ls_cores)
            .with("node_cores", self.node_cores)
    }

    /// `None`: the node's usage is not known, or the policy has no threshold.
    pub fn of(input: &Input<'_>, node: &NodeView) -> Option<Self> {
        let usage = input.usage?.value;
        let node_cores = crate::input::finite(usage.node_cpu)?;
        let threshold = &input.policy.threshold;
        let percent = threshold.cpu_suppress_percent?;
        let pods: BTreeMap<&str, &PodView> = input
            .all_pods()
            .iter()
            .map(|pod| (&*pod.uid, pod))
            .collect();
        let (mut all, mut ls) = (0.0, 0.0);
        for uid in usage.pods.keys() {
            let Some(cores) = usage.pod_cpu(uid) else {
                continue;
            };
            all += cores;
            // A pod that nobody has told of is taken for one that matters.
            if pods.get(&**uid).is_none_or(|pod| !is_best_effort(pod)) {
                ls += cores;
            }
        }
        let (mut host_all, mut host_ls) = (0.0, 0.0);
        for application in &input.policy.host_applications {
            let name = application.name.as_deref().unwrap_or_default();
            let used = usage.host_applications.get(name).copied();
            let Some(cores) = crate::input::finite(used) else {
                continue;
            };
            host_all += cores;
            if !is_best_effort_application(application) {
                host_ls += cores;
            }
        }
        let kept = node.kept_milli() as f64 / 1000.0;
        let system = (node_cores - all - host_all).max(0.0).max(kept);
        let capacity = node.cpu_milli();
        let share = |percent: i64| capacity.saturating_mul(percent) / 100;
        let mut milli = share(percent)
            .saturating_sub(milli(ls))
            .saturating_sub(milli(host_ls))
            .saturating_sub(milli(system));
        if let Some(least) = threshold.cpu_suppress_min_percent {
            milli = milli.max(share(least));
        }
        Some(Self {
            milli,
            percent,
            ls_cores: ls,
            node_cores,
        })
    }
}

fn milli(cores: f64) -> i64 {
    (cores * 1000.0) as i64
}

fn is_best_effort(pod: &PodView) -> bool {
    pod.classes.qos == QosClass::Be || pod.classes.kube_qos == KubeQos::BestEffort
}

/// It is held back only where it is below the best-effort tier.
fn is_best_effort_application(application: &HostApplication) -> bool {
    let base = application.cgroup.as_ref();
    let base = base.and_then(|cgroup| cgroup.base.as_deref());
    application.class() == QosClass::Be && base == Some("KubepodsBesteffort")
}
