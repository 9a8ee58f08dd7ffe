//! `/metrics/resource`: what metrics-server reads.

use plimsoll_host::Timestamp;

use super::pods::{self, latest, snapshot};
use super::swap_limit;
use crate::exposition::number::Number;
use crate::exposition::{Kind, Text};
use crate::rest::Snapshot;
use plimsoll_observe::disk_usage::PodKey;
use plimsoll_observe::{Group, Observer, Sample};

struct Family {
    name: &'static str,
    kind: Kind,
    help: &'static str,
    value: fn(&Snapshot, &Sample) -> Option<Number>,
    timed: bool,
}

const CPU: fn(&Snapshot, &Sample) -> Option<Number> = |_, sample| {
    sample
        .has(Group::Cpu)
        .then_some(Number::Nanos(sample.cpu.total_ns))
};
const WORKING_SET: fn(&Snapshot, &Sample) -> Option<Number> = |_, sample| {
    sample
        .has(Group::Memory)
        .then_some(Number::Whole(sample.memory.working_set))
};
const SWAP: fn(&Snapshot, &Sample) -> Option<Number> = |_, sample| {
    sample
        .has(Group::Memory)
        .then_some(Number::Whole(sample.memory.swap))
};

const OF_CONTAINERS: [Family; 5] = [
    Family {
        name: "container_cpu_usage_seconds_total",
        kind: Kind::Counter,
        help: "CPU time the container has used.",
        value: CPU,
        timed: true,
    },
    Family {
        name: "container_memory_working_set_bytes",
        kind: Kind::Gauge,
        help: "Memory of the container that cannot easily be reclaimed.",
        value: WORKING_SET,
        timed: true,
    },
    Family {
        name: "container_start_time_seconds",
        kind: Kind::Gauge,
        help: "When the container was started, in Unix seconds.",
        value: |snapshot, _| {
            let created = snapshot.created;
            (created.secs() > 0).then(|| Number::Float(created.nanos() as f64 / 1e9))
        },
        timed: false,
    },
    Family {
        name: "container_swap_limit_bytes",
        kind: Kind::Gauge,
        help: "Swap the container may use.",
        value: |snapshot, sample| {
            let limit = swap_limit(snapshot.spec.memory_swap_limit)?;
            // The kubelet adds what is used to what is left.
            let limit = limit.max(sample.memory.swap);
            sample.has(Group::Memory).then_some(Number::Whole(limit))
        },
        timed: true,
    },
    Family {
        name: "container_swap_usage_bytes",
        kind: Kind::Gauge,
        help: "Swap the container uses.",
        value: SWAP,
        timed: true,
    },
];

const OF_THE_NODE: [Family; 3] = [
    Family {
        name: "node_cpu_usage_seconds_total",
        kind: Kind::Counter,
        help: "CPU time the machine has used.",
        value: CPU,
        timed: true,
    },
    Family {
        name: "node_memory_working_set_bytes",
        kind: Kind::Gauge,
        help: "Memory of the machine that cannot easily be reclaimed.",
        value: WORKING_SET,
        timed: true,
    },
    Family {
        name: "node_swap_usage_bytes",
        kind: Kind::Gauge,
        help: "Swap the machine uses.",
        value: SWAP,
        timed: true,
    },
];

const OF_PODS: [Family; 3] = [
    Family {
        name: "pod_cpu_usage_seconds_total",
        kind: Kind::Counter,
        help: "CPU time the pod has used.",
        value: CPU,
        timed: true,
    },
    Family {
        name: "pod_memory_working_set_bytes",
        kind: Kind::Gauge,
        help: "Memory of the pod that cannot easily be reclaimed.",
        value: WORKING_SET,
        timed: true,
    },
    Family {
        name: "pod_swap_usage_bytes",
        kind: Kind::Gauge,
        help: "Swap the pod uses.",
        value: SWAP,
        timed: true,
    },
];

/// The page. Pods and containers come from the runtimes' labels, a pod's totals from its own cgroup.
pub fn resource(observer: &Observer) -> Text {
    let node = snapshot(&observer.store, "/");
    let mut containers = Vec::new();
    let mut pods = Vec::new();
    for members in pods::pods(&observer.store) {
        let pod = members.take();
        for (name, container) in &pod.containers {
            containers.push(Row {
                container: name.clone(),
                key: pod.key.clone(),
                values: values(&OF_CONTAINERS, container),
            });
        }
        if let Some(cgroup) = &pod.cgroup {
            pods.push(Row {
                container: String::new(),
                values: values(&OF_PODS, cgroup),
                key: pod.key,
            });
        }
    }
    containers.sort_by(|a, b| a.labels().cmp(&b.labels()));
    let mut text = Text::default();
    for (index, family) in OF_CONTAINERS.iter().enumerate() {
        let series = containers
            .iter()
            .map(|row| (row.labels(), row.values[index]));
        write(&mut text, family, series);
    }
    if let Some(node) = &node {
        for (family, value) in OF_THE_NODE.iter().zip(values(&OF_THE_NODE, node)) {
            write(&mut text, family, [([], value)]);
        }
    }
    for (index, family) in OF_PODS.iter().enumerate() {
        let series = pods.iter().map(|row| {
            let [_, namespace, pod] = row.labels();
            ([namespace, pod], row.values[index])
        });
        write(&mut text, family, series);
    }
    // Without a sample of the machine itself the page is not what it should be.
    let failed = node.is_none_or(|node| node.samples.is_empty());
    text.single(
        "resource_scrape_error",
        Kind::Gauge,
        "1 if the figures for this page could not be put together.",
        Number::Whole(u64::from(failed)),
    );
    text
}

type Value = Option<(Number, Option<Timestamp>)>;

/// A container or a pod, with its figures in the order of the families.
struct Row<const N: usize> {
    container: String,
    key: PodKey,
    values: [Value; N],
}

impl<const N: usize> Row<N> {
    fn labels(&self) -> [(&str, &str); 3] {
        [
            ("container", &self.container),
            ("namespace", &self.key.namespace),
            ("pod", &self.key.name),
        ]
    }
}

fn values<const N: usize>(families: &[Family; N], snapshot: &Snapshot) -> [Value; N] {
    families.each_ref().map(|family| {
        let (sample, _) = latest(snapshot)?;
        let value = (family.value)(snapshot, sample)?;
        Some((value, family.timed.then_some(sample.at)))
    })
}

/// A family that nothing belongs to is not on the page.
fn write<'a, const L: usize>(
    text: &mut Text,
    family: &Family,
    series: impl IntoIterator<Item = ([(&'a str, &'a str); L], Value)>,
) {
    let mut is_new = true;
    for (labels, value) in series {
        let Some((value, at)) = value else { continue };
        if std::mem::take(&mut is_new) {
            text.family(family.name, family.kind, family.help);
        }
        text.series(&labels, value, at);
    }
}
