//! Hardware and kernel event counters of cgroups and of the whole machine (`perf_event_open`).

mod counters;
mod events;
mod pmu;
mod sys;

pub use counters::{
    CgroupCounters, GroupReading, Opened, Reading, Refused, UncoreCounters, UncoreReading,
    decode_group,
};
pub use events::{EventCode, generic_event};
pub use pmu::{Format, Pmu, parse_event_terms, parse_format, pmus};

/// What to count, as the caller read it from its configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PerfConfig {
    /// Counted for every cgroup.
    pub core: EventSet,
    /// Counted for the machine only, by units outside the cores.
    pub uncore: EventSet,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventSet {
    pub groups: Vec<EventGroup>,
    /// Events that have no name to the kernel, with the words that select them.
    pub custom: Vec<CustomEvent>,
}

/// Events that are counted at the same times, so that their ratios mean something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventGroup {
    pub events: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CustomEvent {
    /// `perf_event_attr.type`; uncore events may leave it zero and name their unit by prefix.
    pub kind: u32,
    /// `config`, and as far as given `config1` and `config2`.
    pub config: Vec<u64>,
    pub name: String,
}

impl EventSet {
    fn custom(&self, name: &str) -> Option<&CustomEvent> {
        self.custom.iter().find(|event| event.name == name)
    }
}

impl CustomEvent {
    fn code(&self, kind: u32) -> EventCode {
        let word = |at: usize| self.config.get(at).copied().unwrap_or(0);
        EventCode {
            kind,
            config: [word(0), word(1), word(2)],
        }
    }
}

#[cfg(test)]
mod tests;
