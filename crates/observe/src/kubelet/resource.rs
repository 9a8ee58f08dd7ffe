//! `/metrics/resource`: what metrics-server reads.

use plimsoll_host::Timestamp;

use super::pods::{Pod, latest, pods, snapshot};
use super::swap_limit;
use crate::exposition::number::Number;
use crate::exposition::{Kind, Text};
use crate::rest::Snapshot;
use crate::{Group, Observer, Sample};

type Series<'a> = (Vec<(&'a str, &'a str)>, Number, Option<Timestamp>);

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
pub fn resource(observer: &Observer) -> Vec<u8> {
    let node = snapshot(&observer.store, "/");
    let pods = pods(&observer.store);
    let mut text = Text::default();
    for family in &OF_CONTAINERS {
        write(&mut text, family, of_containers(family, &pods));
    }
    for family in &OF_THE_NODE {
        let series = node.iter().filter_map(|node| one(family, Vec::new(), node));
        write(&mut text, family, series.collect());
    }
    for family in &OF_PODS {
        let series = pods.iter().filter_map(|pod| {
            let labels = vec![
                ("namespace", pod.key.namespace.as_str()),
                ("pod", &pod.key.name),
            ];
            one(family, labels, pod.cgroup.as_ref()?)
        });
        write(&mut text, family, series.collect());
    }
    // Without a sample of the machine itself the page is not what it should be.
    let failed = node.is_none_or(|node| node.samples.is_empty());
    text.single(
        "resource_scrape_error",
        Kind::Gauge,
        "1 if the figures for this page could not be put together.",
        Number::Whole(u64::from(failed)),
    );
    text.into_bytes()
}

fn of_containers<'a>(family: &Family, pods: &'a [Pod]) -> Vec<Series<'a>> {
    let mut series = Vec::new();
    for pod in pods {
        for (name, container) in &pod.containers {
            let labels = vec![
                ("container", name.as_str()),
                ("namespace", &pod.key.namespace),
                ("pod", &pod.key.name),
            ];
            series.extend(one(family, labels, container));
        }
    }
    series.sort_by(|a, b| a.0.cmp(&b.0));
    series
}

fn one<'a>(
    family: &Family,
    labels: Vec<(&'a str, &'a str)>,
    snapshot: &Snapshot,
) -> Option<Series<'a>> {
    let (sample, _) = latest(snapshot)?;
    let value = (family.value)(snapshot, sample)?;
    Some((labels, value, family.timed.then_some(sample.at)))
}

/// A family that nothing belongs to is not on the page.
fn write(text: &mut Text, family: &Family, series: Vec<Series<'_>>) {
    if series.is_empty() {
        return;
    }
    text.family(family.name, family.kind, family.help);
    for (labels, value, at) in series {
        text.series(&labels, value, at);
    }
}
