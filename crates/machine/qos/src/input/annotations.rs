//! What annotations of a pod say, read once for each change of them. What makes no sense is kept as such.

use plimsoll_api::cpus::CpuSet;
use plimsoll_api::names;
use plimsoll_api::node_slo::{BlkIoQos, CpuBurst, PodMemoryQos, Read, parse};
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Default)]
pub enum Parsed<T> {
    #[default]
    Absent,
    Given(T),
    /// What is wrong with it.
    Bad(Box<str>),
}

impl<T> Parsed<T> {
    pub fn given(&self) -> Option<&T> {
        match self {
            Self::Given(given) => Some(given),
            _ => None,
        }
    }

    pub fn problem(&self) -> Option<&str> {
        match self {
            Self::Bad(problem) => Some(problem),
            _ => None,
        }
    }
}

/// Where the scheduler has put it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourceStatus {
    pub cpus: CpuSet,
    /// It has been given NUMA nodes.
    pub numa: bool,
}

impl ResourceStatus {
    /// It says where the pod is to run.
    pub fn is_placed(&self) -> bool {
        !self.cpus.is_empty() || self.numa
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Annotations {
    pub resource_status: Parsed<ResourceStatus>,
    pub cpu_burst: Parsed<CpuBurst>,
    pub memory_qos: Parsed<PodMemoryQos>,
    pub blkio_qos: Parsed<BlkIoQos>,
    /// It has a group of its own.
    pub resctrl: bool,
    /// The features that may evict it.
    pub eviction_policy: Parsed<Vec<Box<str>>>,
    pub eviction_priority: Parsed<i64>,
}

impl Annotations {
    pub fn read<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Self {
        Self {
            resource_status: status(annotation(names::ANNOTATION_RESOURCE_STATUS)),
            cpu_burst: typed(annotation(names::ANNOTATION_CPU_BURST)),
            memory_qos: typed(annotation(names::ANNOTATION_MEMORY_QOS)),
            blkio_qos: match annotation(names::ANNOTATION_BLKIO_QOS) {
                // Nothing is wanted.
                Some("") => Parsed::Given(BlkIoQos::default()),
                text => typed(text),
            },
            resctrl: annotation(names::ANNOTATION_RESCTRL).is_some(),
            eviction_policy: typed(annotation(names::ANNOTATION_EVICTION_POLICY)),
            eviction_priority: match annotation(names::ANNOTATION_EVICTION_PRIORITY) {
                None => Parsed::Absent,
                Some(text) => match text.parse() {
                    Ok(number) => Parsed::Given(number),
                    Err(_) => Parsed::Bad(format!("{text:?} is no number").into()),
                },
            },
        }
    }

    /// Names of annotations that make no sense, and why.
    pub fn problems(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            (
                names::ANNOTATION_RESOURCE_STATUS,
                self.resource_status.problem(),
            ),
            (names::ANNOTATION_CPU_BURST, self.cpu_burst.problem()),
            (names::ANNOTATION_MEMORY_QOS, self.memory_qos.problem()),
            (names::ANNOTATION_BLKIO_QOS, self.blkio_qos.problem()),
            (
                names::ANNOTATION_EVICTION_POLICY,
                self.eviction_policy.problem(),
            ),
            (
                names::ANNOTATION_EVICTION_PRIORITY,
                self.eviction_priority.problem(),
            ),
        ]
        .into_iter()
        .filter_map(|(name, problem)| Some((name, problem?)))
    }
}

fn typed<T: Read + Default>(text: Option<&str>) -> Parsed<T> {
    let Some(text) = text else {
        return Parsed::Absent;
    };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Parsed::Bad(error.to_string().into()),
    };
    match parse(&value, "") {
        Ok(typed) => Parsed::Given(typed),
        Err(problems) => {
            let first = problems.first().map(ToString::to_string);
            Parsed::Bad(first.unwrap_or_default().into())
        }
    }
}

fn status(text: Option<&str>) -> Parsed<ResourceStatus> {
    let Some(text) = text else {
        return Parsed::Absent;
    };
    let value: Value = match serde_json::from_str(text) {
        Ok(value) => value,
        Err(error) => return Parsed::Bad(error.to_string().into()),
    };
    let cpus = value["cpuset"].as_str().unwrap_or_default();
    match cpus.parse() {
        Ok(cpus) => Parsed::Given(ResourceStatus {
            cpus,
            numa: value["numaNodeResources"]
                .as_array()
                .is_some_and(|nodes| !nodes.is_empty()),
        }),
        Err(error) => Parsed::Bad(error.to_string().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_and_their_errors() {
        let read = Annotations::read(|name| match name {
            names::ANNOTATION_RESOURCE_STATUS => Some(r#"{"cpuset":"0-1,4"}"#),
            names::ANNOTATION_CPU_BURST => Some(r#"{"policy":"auto","cpuBurstPercent":200}"#),
            names::ANNOTATION_MEMORY_QOS => Some("no JSON"),
            names::ANNOTATION_BLKIO_QOS => Some(""),
            names::ANNOTATION_EVICTION_POLICY => Some(r#"["BECPUEvict"]"#),
            names::ANNOTATION_EVICTION_PRIORITY => Some("high"),
            _ => None,
        });
        let status = read.resource_status.given().unwrap();
        assert_eq!(status.cpus.to_string(), "0-1,4");
        assert_eq!(read.cpu_burst.given().unwrap().burst_percent, Some(200));
        assert_eq!(read.blkio_qos.given(), Some(&BlkIoQos::default()));
        assert_eq!(
            read.eviction_policy.given(),
            Some(&vec!["BECPUEvict".into()])
        );
        let problems: Vec<_> = read.problems().map(|(name, _)| name).collect();
        assert_eq!(
            problems,
            [
                "koordinator.sh/memoryQOS",
                "koordinator.sh/eviction-priority"
            ]
        );
    }
}
