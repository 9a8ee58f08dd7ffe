//! How busy the CPUs are that latency-sensitive pods share. It decides whether there is room for more than limits allow.

use std::time::Duration;

use plimsoll_api::priority::QosClass;
use plimsoll_api::quantity::Quantity;

use super::Step;
use crate::input::{Input, finite};
use crate::windows::Windows;

/// From this share of the threshold on, nothing more is given.
const COOLING: f64 = 0.9;
const MOST_WINDOW: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SharePool {
    /// Shares of the pool.
    Overloaded(f64),
    Cooling(f64),
    Idle(f64),
    Unknown,
}

impl SharePool {
    pub fn of(input: &Input<'_>, windows: &Windows, interval: Duration) -> Self {
        let window = interval.saturating_mul(5).min(MOST_WINDOW);
        let since = input.now.saturating_sub(window);
        let threshold = input.policy.burst.share_pool_percent;
        let (Some(node), Some(threshold)) = (input.node, threshold) else {
            return Self::Unknown;
        };
        let Some((mut used, _)) = windows.node_cpu.average(since) else {
            return Self::Unknown;
        };
        if node.cpus.is_empty() {
            return Self::Unknown;
        }
        let mut cores = node.cpus.len() as f64;
        for pod in input.all_pods() {
            let (own, others) = match pod.classes.qos {
                QosClass::Lse | QosClass::Lsr => (true, true),
                QosClass::Be => (false, true),
                _ => (false, false),
            };
            if own {
                let request = pod.requests.get("cpu").map_or(0, Quantity::milli);
                cores -= request as f64 / 1000.0;
            }
            if others && let Some(cpu) = finite(windows.pod(&pod.uid, since)) {
                used -= cpu;
            }
        }
        let share = if cores > 0.0 { used / cores } else { 1.0 };
        let threshold = threshold as f64 / 100.0;
        if share >= threshold {
            Self::Overloaded(share)
        } else if share >= threshold * COOLING {
            Self::Cooling(share)
        } else {
            Self::Idle(share)
        }
    }

    /// What the node makes of what a container would do.
    pub fn checked(self, step: Step) -> Step {
        match (self, step) {
            (Self::Overloaded(_), Step::Up | Step::Stay) => Step::Down,
            (Self::Cooling(_) | Self::Unknown, Step::Up) => Step::Stay,
            (_, step) => step,
        }
    }

    pub fn percent(self) -> f64 {
        match self {
            Self::Overloaded(share) | Self::Cooling(share) | Self::Idle(share) => share * 100.0,
            Self::Unknown => -1.0,
        }
    }
}
