//! The node's policy, typed. A section that makes no sense is refused, and the last good one holds.

use plimsoll_api::node_slo::{
    CpuBurstStrategy, HostApplication, Problem, Read, ResourceQosStrategy, Section, SystemStrategy,
    ThresholdStrategy, complete, parse,
};
use plimsoll_plan::Note;
use serde_json::{Value, json};

const HOST_APPLICATIONS: &str = "hostApplications";

#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub threshold: ThresholdStrategy,
    pub qos: ResourceQosStrategy,
    pub burst: CpuBurstStrategy,
    pub system: SystemStrategy,
    pub host_applications: Vec<HostApplication>,
    /// What is wrong with the present object; the sections that it is about are older.
    pub notes: Vec<Note>,
}

impl Default for Policy {
    /// The built-in policy, in which nothing is enabled.
    fn default() -> Self {
        let mut policy = Self {
            threshold: ThresholdStrategy::default(),
            qos: ResourceQosStrategy::default(),
            burst: CpuBurstStrategy::default(),
            system: SystemStrategy::default(),
            host_applications: Vec::new(),
            notes: Vec::new(),
        };
        policy.update(&Value::Null);
        policy
    }
}

impl Policy {
    /// The specification of a `NodeSLO` as it is written, or with its defaults filled in; `null`: there is no such object.
    pub fn of(spec: &Value) -> Self {
        let mut policy = Self::default();
        policy.update(spec);
        policy
    }

    pub fn update(&mut self, spec: &Value) {
        self.notes.clear();
        if !spec.is_null() && !spec.is_object() {
            self.refuse(&[Problem {
                field: "spec".into(),
                text: "must be an object".into(),
            }]);
            return;
        }
        if let Some(read) = self.section(spec, Section::Threshold) {
            self.threshold = read;
        }
        if let Some(read) = self.section(spec, Section::Qos) {
            self.qos = read;
        }
        if let Some(read) = self.section(spec, Section::Burst) {
            self.burst = read;
        }
        if let Some(read) = self.section(spec, Section::System) {
            self.system = read;
        }
        match parse::<Vec<HostApplication>>(&spec[HOST_APPLICATIONS], HOST_APPLICATIONS) {
            Ok(read) => self.host_applications = read,
            Err(problems) => self.refuse(&problems),
        }
    }

    /// `None`: it is refused.
    fn section<T: Read + Default>(&mut self, spec: &Value, section: Section) -> Option<T> {
        let field = section.field();
        let given = &spec[field];
        // What is wrong is said of what was written, not of what it is completed to.
        let read = parse::<T>(given, field).and_then(|_| {
            let whole = complete(&json!({ field: given }));
            parse(&whole[field], field)
        });
        match read {
            Ok(read) => Some(read),
            Err(problems) => {
                self.refuse(&problems);
                None
            }
        }
    }

    fn refuse(&mut self, problems: &[Problem]) {
        let notes = problems.iter().map(|problem| Note {
            code: "policy_refused",
            about: problem.field.clone(),
            text: format!("{problem}. The last good settings of this section stay in force.")
                .into(),
        });
        self.notes.extend(notes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_good_section_holds() {
        let mut policy = Policy::of(&json!({
            "resourceUsedThresholdWithBE": {"enable": true, "cpuSuppressThresholdPercent": 150},
            "resourceQOSStrategy": {"beClass": {"memoryQOS": {"enable": true, "wmarkRatio": 80}}},
        }));
        // Out of range is for the strategy to judge.
        assert_eq!(policy.threshold.cpu_suppress_percent, Some(150));
        assert!(policy.notes.is_empty());
        policy.update(&json!({
            "resourceUsedThresholdWithBE": {"enable": false},
            "resourceQOSStrategy": {"beClass": 5},
        }));
        assert_eq!(policy.threshold.enable, Some(false));
        assert_eq!(policy.threshold.cpu_suppress_percent, Some(65));
        let be = policy.qos.be.as_ref().unwrap();
        assert_eq!(be.memory.as_ref().unwrap().wmark_ratio, Some(80));
        assert_eq!(policy.notes.len(), 1);
        assert_eq!(&*policy.notes[0].about, "resourceQOSStrategy.beClass");
        policy.update(&json!([]));
        assert_eq!(policy.notes.len(), 1);
    }

    #[test]
    fn completed_twice_is_the_same() {
        let spec = json!({"resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": true}}}});
        assert_eq!(Policy::of(&spec), Policy::of(&complete(&spec)));
        assert_eq!(Policy::default(), Policy::of(&json!({})));
    }
}
