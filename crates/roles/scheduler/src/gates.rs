//! Feature gates: which there are, which are on, and what that changes here.

use std::collections::BTreeMap;

use plimsoll_sched::Features;

/// A line each: name, stage, default, lock, needs.
const TABLE: &str = include_str!("../data/gates.txt");

/// What a gate may not be set to, in the original's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    #[error("missing bool value for {0}")]
    Missing(String),
    #[error(
        "invalid value of {gate}={value}, err: strconv.ParseBool: parsing {value:?}: invalid syntax"
    )]
    NotBoolean { gate: String, value: String },
    #[error("unrecognized feature gate: {0}")]
    Unknown(String),
    #[error("cannot set feature gate {gate} to {wanted}, feature is locked to {locked}")]
    Locked {
        gate: String,
        wanted: bool,
        locked: bool,
    },
    #[error("{}", aggregate(.0))]
    Dependencies(Vec<Dependency>),
}

/// A gate that is on although it needs what is off.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{gate} is enabled, but depends on features that are disabled: [{}]", missing.join(" "))]
pub struct Dependency {
    gate: &'static str,
    missing: Vec<&'static str>,
}

/// Several errors are bracketed, one is not.
fn aggregate(errors: &[Dependency]) -> String {
    let texts: Vec<String> = errors.iter().map(Dependency::to_string).collect();
    match texts.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Gate {
    stage: &'static str,
    default: bool,
    locked: bool,
    needs: Vec<&'static str>,
}

/// The gates with what was said about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gates {
    known: BTreeMap<&'static str, Gate>,
    said: BTreeMap<String, bool>,
}

impl Default for Gates {
    fn default() -> Self {
        let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
        let known = lines.filter_map(|line| {
            let mut words = line.split(' ');
            let (name, stage) = (words.next()?, words.next()?);
            let default = words.next()? == "on";
            let mut gate = Gate {
                stage,
                default,
                locked: false,
                needs: Vec::new(),
            };
            for word in words {
                gate.locked |= word == "locked";
                if let Some(needs) = word.strip_prefix("needs:") {
                    gate.needs = needs.split(',').collect();
                }
            }
            Some((name, gate))
        });
        Self {
            known: known.collect(),
            said: BTreeMap::new(),
        }
    }
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

impl Gates {
    /// Takes in what one flag says: `A=true,B=false`.
    pub fn parse<'a>(flags: impl IntoIterator<Item = &'a str>) -> Result<Self, GateError> {
        let mut gates = Self::default();
        for pair in flags.into_iter().flat_map(|flag| flag.split(',')) {
            let pair = pair.trim();
            if pair.is_empty() {
                continue;
            }
            // The component may be named: there is but one here.
            let pair = pair.strip_prefix("kube:").unwrap_or(pair);
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| GateError::Missing(pair.to_owned()))?;
            let (name, value) = (name.trim(), value.trim());
            let on = boolean(value).ok_or_else(|| GateError::NotBoolean {
                gate: name.to_owned(),
                value: value.to_owned(),
            })?;
            gates.said.insert(name.to_owned(), on);
        }
        gates.check()?;
        Ok(gates)
    }

    fn check(&self) -> Result<(), GateError> {
        for (name, on) in &self.said {
            if matches!(name.as_str(), "AllAlpha" | "AllBeta") {
                continue;
            }
            let Some(gate) = self.known.get(name.as_str()) else {
                return Err(GateError::Unknown(name.clone()));
            };
            if gate.locked && gate.default != *on {
                return Err(GateError::Locked {
                    gate: name.clone(),
                    wanted: *on,
                    locked: gate.default,
                });
            }
        }
        let on = self.known.iter().filter(|(name, _)| self.is_on(name));
        let broken = on.filter_map(|(name, gate)| {
            let needs = gate.needs.iter().copied();
            let needs = needs.filter(|need| self.known.contains_key(need));
            let missing: Vec<_> = needs.filter(|need| !self.is_on(need)).collect();
            (!missing.is_empty()).then_some(Dependency {
                gate: name,
                missing,
            })
        });
        let broken: Vec<Dependency> = broken.collect();
        match broken.is_empty() {
            true => Ok(()),
            false => Err(GateError::Dependencies(broken)),
        }
    }

    pub fn is_on(&self, name: &str) -> bool {
        let Some(gate) = self.known.get(name) else {
            return false;
        };
        if let Some(said) = self.said.get(name) {
            return *said;
        }
        let all = match gate.stage {
            "ALPHA" => self.said.get("AllAlpha"),
            "BETA" => self.said.get("AllBeta"),
            _ => None,
        };
        match all {
            Some(on) if !gate.locked => *on,
            _ => gate.default,
        }
    }

    /// Name, stage and whether it is on, for metrics.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &'static str, bool)> {
        let known = self.known.iter();
        known.map(|(name, gate)| (*name, gate.stage, self.is_on(name)))
    }

    /// What was said, as a flag.
    pub fn flag(&self) -> String {
        let said = self.said.iter().map(|(name, on)| format!("{name}={on}"));
        said.collect::<Vec<_>>().join(",")
    }

    /// What the core does otherwise because of it.
    pub fn features(&self) -> Features {
        Features {
            gangs: self.is_on("GenericWorkload") && self.is_on("GangScheduling"),
            declared_features: self.is_on("NodeDeclaredFeatures"),
            pop_from_backoff: self.is_on("SchedulerPopFromBackoffQ"),
            expected_node: self.is_on("NominatedNodeNameForExpectation"),
            extended_resources: self.is_on("DRAExtendedResource"),
            prioritized_list: self.is_on("DRAPrioritizedList"),
            device_taints: self.is_on("DRADeviceTaints"),
            taint_rules: self.is_on("DRADeviceTaintRules"),
            binding_conditions: self.is_on("DRADeviceBindingConditions")
                && self.is_on("DRAResourceClaimDeviceStatus"),
            shared_devices: self.is_on("DRAConsumableCapacity"),
            partitions: self.is_on("DRAPartitionableDevices"),
            pod_level_resources: self.is_on("PodLevelResources"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_core() {
        assert_eq!(Gates::default().features(), Features::default());
        assert!(Gates::default().known.len() > 150);
    }

    #[test]
    fn what_is_switched() {
        let gates = Gates::parse([
            "GenericWorkload=true,GangScheduling=T",
            " SchedulerPopFromBackoffQ=false",
            "",
        ])
        .unwrap();
        let features = gates.features();
        assert!(features.gangs && !features.pop_from_backoff);
        assert!(features.declared_features);
        assert_eq!(
            gates.flag(),
            "GangScheduling=true,GenericWorkload=true,SchedulerPopFromBackoffQ=false"
        );
        let gates = Gates::parse(["AllBeta=false,DRADeviceTaints=true"]).unwrap();
        assert!(!gates.features().pop_from_backoff && gates.features().device_taints);
    }

    #[test]
    fn what_is_refused_and_in_which_words() {
        for (flag, expected) in [
            ("Nonsense=true", "unrecognized feature gate: Nonsense"),
            (
                "SchedulerQueueingHints",
                "missing bool value for SchedulerQueueingHints",
            ),
            (
                "SchedulerQueueingHints=maybe",
                "invalid value of SchedulerQueueingHints=maybe, err: strconv.ParseBool: parsing \"maybe\": invalid syntax",
            ),
            (
                "SchedulerQueueingHints=false",
                "cannot set feature gate SchedulerQueueingHints to false, feature is locked to true",
            ),
            (
                "GangScheduling=true",
                "GangScheduling is enabled, but depends on features that are disabled: [GenericWorkload]",
            ),
            (
                "NodeDeclaredFeatures=false,ExtendWebSocketsToKubelet=false,RestartAllContainersOnContainerExits=false",
                "[InPlacePodLevelResourcesVerticalScaling is enabled, but depends on features that are disabled: \
                 [NodeDeclaredFeatures], InPlacePodVerticalScalingInitContainers is enabled, but depends on features \
                 that are disabled: [NodeDeclaredFeatures]]",
            ),
        ] {
            assert_eq!(
                Gates::parse([flag]).unwrap_err().to_string(),
                expected,
                "{flag}"
            );
        }
    }
}
