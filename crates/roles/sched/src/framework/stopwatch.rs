//! How long things take, by a clock that is lent: the core has none, and nothing it decides depends on it.

use std::cell::RefCell;

use super::events::ClusterEvent;
use super::plugin::Plugin;
use super::status::{Code, Statuses};

/// Nanoseconds since some moment.
pub type Clock = fn() -> u64;

/// Of every so many cycles and wake-ups, one has its plugins timed one by one.
const SAMPLED: u64 = 10;

/// Where plugins are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Point {
    PreFilter,
    Filter,
    PostFilter,
    PreScore,
    Score,
    Reserve,
    Unreserve,
    Permit,
    PreBindPreFlight,
    PreBind,
    Bind,
    PostBind,
    PreEnqueue,
}

impl Point {
    pub fn name(self) -> &'static str {
        match self {
            Self::PreFilter => "PreFilter",
            Self::Filter => "Filter",
            Self::PostFilter => "PostFilter",
            Self::PreScore => "PreScore",
            Self::Score => "Score",
            Self::Reserve => "Reserve",
            Self::Unreserve => "Unreserve",
            Self::Permit => "Permit",
            Self::PreBindPreFlight => "PreBindPreFlight",
            Self::PreBind => "PreBind",
            Self::Bind => "Bind",
            Self::PostBind => "PostBind",
            Self::PreEnqueue => "PreEnqueue",
        }
    }
}

/// How it ended, in the words of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ending {
    Success,
    Skip,
    Wait,
    Unschedulable,
    Unresolvable,
    Pending,
    Error,
}

impl Ending {
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::Skip => "Skip",
            Self::Wait => "Wait",
            Self::Unschedulable => "Unschedulable",
            Self::Unresolvable => "UnschedulableAndUnresolvable",
            Self::Pending => "Pending",
            Self::Error => "Error",
        }
    }
}

impl From<Code> for Ending {
    fn from(code: Code) -> Self {
        match code {
            Code::Unschedulable => Self::Unschedulable,
            Code::Unresolvable => Self::Unresolvable,
            Code::Pending => Self::Pending,
            Code::Error => Self::Error,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointTime {
    pub point: Point,
    pub ending: Ending,
    pub profile: usize,
    pub nanos: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PluginTime {
    pub plugin: Plugin,
    pub point: Point,
    pub ending: Ending,
    pub nanos: u64,
}

/// What a plugin said about an event, when a pod that it refused was waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HintTime {
    pub plugin: Plugin,
    pub event: ClusterEvent,
    pub helps: bool,
    pub nanos: u64,
}

/// How often a plugin was asked about a pod or a node. Answers that were remembered count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluations {
    pub plugin: Plugin,
    pub point: Point,
    pub profile: usize,
    pub times: u64,
}

/// What has been measured since the last time somebody asked.
#[derive(Debug, Clone, Default)]
pub struct Measured {
    pub points: Vec<PointTime>,
    pub plugins: Vec<PluginTime>,
    pub hints: Vec<HintTime>,
    pub evaluations: Vec<Evaluations>,
    pub events: Vec<(ClusterEvent, u64)>,
    /// Of each preemption, how many had to go.
    pub victims: Vec<usize>,
}

#[derive(Debug, Default)]
pub struct Stopwatch {
    clock: Option<Clock>,
    /// Cycles and wake-ups so far.
    rounds: u64,
    is_sampled: bool,
    /// What the observation at hand was about.
    told: Vec<ClusterEvent>,
    measured: Measured,
    /// Of those that are held back, or not; whoever asks has the rest of the scheduler in his hands.
    gated: RefCell<Vec<PointTime>>,
}

impl Stopwatch {
    pub fn lend(&mut self, clock: Clock) {
        self.clock = Some(clock);
    }

    pub fn take(&mut self) -> Measured {
        self.measured.points.append(self.gated.get_mut());
        std::mem::take(&mut self.measured)
    }

    /// Whether a pod may be queued has been asked.
    pub fn gated(&self, ending: Ending, profile: usize, since: u64) {
        if self.is_on() {
            self.gated.borrow_mut().push(PointTime {
                point: Point::PreEnqueue,
                ending,
                profile,
                nanos: self.now().saturating_sub(since),
            });
        }
    }

    /// Measurements that wait to be taken.
    pub fn waiting(&self) -> usize {
        let measured = &self.measured;
        let gated = self.gated.borrow().len();
        measured.points.len() + measured.plugins.len() + measured.events.len() + gated
    }

    pub fn is_on(&self) -> bool {
        self.clock.is_some()
    }

    /// Whether plugins are timed one by one at the moment.
    pub fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// A cycle or a wake-up begins.
    pub fn begin(&mut self) {
        self.rounds += 1;
        self.is_sampled = self.is_on() && self.rounds.is_multiple_of(SAMPLED);
    }

    /// 0 without a clock.
    pub fn now(&self) -> u64 {
        self.clock.map_or(0, |clock| clock())
    }

    pub fn point(&mut self, point: Point, ending: Ending, profile: usize, since: u64) {
        if let Some(clock) = self.clock {
            let nanos = clock().saturating_sub(since);
            self.measured.points.push(PointTime {
                point,
                ending,
                profile,
                nanos,
            });
        }
    }

    pub fn plugin(&mut self, plugin: Plugin, point: Point, ending: Ending, since: u64) {
        if self.is_sampled {
            let nanos = self.now().saturating_sub(since);
            self.measured.plugins.push(PluginTime {
                plugin,
                point,
                ending,
                nanos,
            });
        }
    }

    pub fn hint(&mut self, hint: HintTime) {
        if self.is_on() {
            self.measured.hints.push(hint);
        }
    }

    pub fn asked(&mut self, plugin: Plugin, point: Point, profile: usize, times: u64) {
        if self.is_on() && times > 0 {
            self.measured.evaluations.push(Evaluations {
                plugin,
                point,
                profile,
                times,
            });
        }
    }

    /// Filters are asked one after the other until one refuses: with how many nodes refused by whom, and how many
    /// fit, that says how often each was asked.
    pub fn filtered(
        &mut self,
        filters: impl Iterator<Item = Plugin>,
        counts: &[usize],
        statuses: &Statuses,
        fitting: usize,
        profile: usize,
    ) {
        if !self.is_on() {
            return;
        }
        let refused = counts.iter().enumerate().filter(|(_, nodes)| **nodes > 0);
        let mut refused: Vec<(Plugin, usize)> = refused
            .filter_map(|(index, nodes)| {
                Some((statuses.get(Statuses::from_index(index))?.plugin, *nodes))
            })
            .collect();
        let mut left: usize = fitting + refused.iter().map(|(_, nodes)| nodes).sum::<usize>();
        for filter in filters {
            self.asked(filter, Point::Filter, profile, left as u64);
            refused.retain(|(plugin, nodes)| {
                if *plugin == filter {
                    left -= nodes;
                }
                *plugin != filter
            });
        }
    }

    pub fn victims(&mut self, number: usize) {
        if self.is_on() {
            self.measured.victims.push(number);
        }
    }

    /// What is being observed is of this kind.
    pub fn told(&mut self, event: ClusterEvent) {
        if self.is_on() && !self.told.contains(&event) {
            self.told.push(event);
        }
    }

    /// The observation is over.
    pub fn observed(&mut self, since: u64) {
        if self.is_on() {
            let nanos = self.now().saturating_sub(since);
            let told = self.told.drain(..);
            self.measured
                .events
                .extend(told.map(|event| (event, nanos)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framework::status::Refusal;

    #[test]
    fn without_a_clock_nothing_is_kept() {
        let mut watch = Stopwatch::default();
        for _ in 0..SAMPLED {
            watch.begin();
        }
        watch.point(Point::Filter, Ending::Success, 0, 0);
        watch.plugin(Plugin::NodeName, Point::Filter, Ending::Success, 0);
        watch.asked(Plugin::NodeName, Point::Filter, 0, 5);
        watch.told(ClusterEvent::ASSIGNED_POD_ADD);
        watch.observed(0);
        let measured = watch.take();
        assert!(measured.points.is_empty() && measured.plugins.is_empty());
        assert!(measured.evaluations.is_empty() && measured.events.is_empty());
    }

    #[test]
    fn one_cycle_in_ten_has_its_plugins_timed() {
        let mut watch = Stopwatch::default();
        watch.lend(|| 7);
        for _ in 0..30 {
            watch.begin();
            watch.plugin(Plugin::NodeName, Point::Filter, Ending::Success, 4);
        }
        let measured = watch.take();
        assert_eq!(measured.plugins.len(), 3);
        assert_eq!(measured.plugins[0].nanos, 3);
    }

    /// Ten nodes: three are refused by the first filter, two by the second, five fit.
    #[test]
    fn who_refuses_ends_the_questions() {
        let mut statuses = Statuses::default();
        let first = statuses.id(Plugin::NodeName, Refusal::unresolvable("x"));
        let second = statuses.id(Plugin::NodePorts, Refusal::unschedulable("y"));
        let mut counts = vec![0; 3];
        counts[Statuses::index(first)] = 3;
        counts[Statuses::index(second)] = 2;
        let mut watch = Stopwatch::default();
        watch.lend(|| 0);
        let filters = [Plugin::NodeName, Plugin::NodePorts, Plugin::VolumeZone];
        watch.filtered(filters.into_iter(), &counts, &statuses, 5, 0);
        let times: Vec<u64> = watch
            .take()
            .evaluations
            .iter()
            .map(|one| one.times)
            .collect();
        assert_eq!(times, [10, 7, 5]);
    }
}
