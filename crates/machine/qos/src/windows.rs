//! The last figures of some minutes, for averages. Bounded by time and by number.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::names::BATCH_CPU;

use crate::input::Input;

/// An hour of seconds; longer windows are cut.
const MOST: usize = 3600;

#[derive(Debug, Clone, Default)]
pub struct Window {
    samples: VecDeque<(Duration, f64)>,
}

impl Window {
    fn push(&mut self, at: Duration, value: f64, keep: Duration) {
        if self.samples.back().is_some_and(|(last, _)| *last >= at) {
            return;
        }
        self.samples.push_back((at, value));
        while self.samples.len() > MOST
            || self
                .samples
                .front()
                .is_some_and(|(first, _)| *first + keep < at)
        {
            self.samples.pop_front();
        }
    }

    /// The average since a time, and of how many samples it is.
    pub fn average(&self, since: Duration) -> Option<(f64, usize)> {
        let within = self.samples.iter().filter(|(at, _)| *at >= since);
        let (sum, count) = within.fold((0.0, 0_usize), |(sum, count), (_, value)| {
            (sum + value, count + 1)
        });
        (count > 0).then(|| (sum / count as f64, count))
    }

    /// The newest value since a time.
    pub fn last(&self, since: Duration) -> Option<f64> {
        let (at, value) = self.samples.back()?;
        (*at >= since).then_some(*value)
    }
}

/// Of the best-effort tier, in thousandths of a core.
#[derive(Debug, Clone, Default)]
pub struct Windows {
    pub node_cpu: Window,
    pub be_usage: Window,
    pub be_request: Window,
    pub be_real_limit: Window,
    pods: BTreeMap<Arc<str>, Window>,
}

/// Averages of pods are of the last ten seconds at most.
const PODS: Duration = Duration::from_secs(10);

impl Windows {
    /// Takes in the present figures. `keep`: how far back anybody will look.
    pub fn take(&mut self, input: &Input<'_>, keep: Duration) {
        let Some(usage) = input.usage else {
            return;
        };
        let (at, usage) = (usage.at, usage.value);
        let keep = keep.max(PODS);
        let push = |window: &mut Window, value: Option<f64>| {
            if let Some(value) = crate::input::finite(value) {
                window.push(at, value, keep);
            }
        };
        push(&mut self.node_cpu, usage.node_cpu);
        let milli = usage.best_effort_cpu.map(|cores| (cores * 1000.0).trunc());
        push(&mut self.be_usage, milli);
        push(&mut self.be_real_limit, usage.best_effort_real_limit);
        if input.pods.is_some() {
            let be = input.all_pods().iter().filter(|pod| pod.is_be());
            let main = be.flat_map(|pod| pod.main_containers());
            let requests = main.filter_map(|one| one.requests.get(BATCH_CPU));
            let requests = requests.fold(0_i64, |sum, one| sum.saturating_add(one.value().max(0)));
            push(&mut self.be_request, Some(requests as f64));
        }
        for uid in usage.pods.keys() {
            if let Some(cpu) = usage.pod_cpu(uid) {
                let window = self.pods.entry(uid.clone()).or_default();
                window.push(at, cpu, PODS);
            }
        }
        self.pods
            .retain(|_, window| window.last(at.saturating_sub(PODS)).is_some());
    }

    pub fn pod(&self, uid: &str, since: Duration) -> Option<f64> {
        Some(self.pods.get(uid)?.average(since)?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_of_what_is_recent() {
        let mut window = Window::default();
        for second in 0..100_u64 {
            window.push(
                Duration::from_secs(second),
                second as f64,
                Duration::from_secs(30),
            );
        }
        // A sample that has been seen does not count twice.
        window.push(Duration::from_secs(99), 1e9, Duration::from_secs(30));
        assert_eq!(window.average(Duration::from_secs(98)), Some((98.5, 2)));
        assert_eq!(window.average(Duration::from_secs(100)), None);
        assert_eq!(window.last(Duration::from_secs(99)), Some(99.0));
        assert_eq!(window.samples.len(), 31);
    }
}
