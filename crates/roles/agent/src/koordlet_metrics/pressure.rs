//! How long pods and containers wait for CPU, memory and disks.

use plimsoll_cadvisor::exposition::Kind::Gauge;
use plimsoll_cadvisor::exposition::Text;
use plimsoll_containers::names;
use plimsoll_host::cgroup::{Pressure, Psi};
use plimsoll_observe::store::Store;
use rustc_hash::FxHashMap;

use super::Page;
use crate::states::{Container, Pod};

/// A name, and which figure it is.
type Average = (&'static str, fn(&Pressure) -> u64);

impl Page<'_> {
    /// Pressure of pods and their containers, as the observer saw it last.
    pub fn pressure(&self, text: &mut Text, store: &Store) {
        if self.history.config().collect.pressure_every.is_none() {
            return;
        }
        let mut pods = Vec::new();
        let mut containers = Vec::new();
        let by_uid: FxHashMap<&str, &Pod> = self
            .cluster
            .pods
            .iter()
            .flat_map(|pods| pods.iter().map(|pod| (&*pod.uid, pod)))
            .collect();
        let by_id: FxHashMap<&str, (&Pod, &Container, &str)> = self
            .containers()
            .map(|(pod, container, [bare, id])| (bare, (pod, container, id)))
            .collect();
        for container in store.all() {
            let path = container.path();
            let Some(pod) = names::pod(path) else {
                continue;
            };
            let psi = container.lock().usage.psi;
            if pod.is_self {
                pods.extend(by_uid.get(&*pod.uid).map(|pod| (*pod, psi)));
            } else if let Some(id) = names::container_id(path) {
                let found = by_id.get(id);
                containers.extend(found.map(|(pod, one, id)| (*pod, *one, *id, psi)));
            }
        }
        self.family(
            text,
            "container_psi",
            Gauge,
            "Share of the time that a container waits, in percent.",
        );
        for (pod, container, id, psi) in &containers {
            each_pressure(psi, |labels, value| {
                let [full, degree, precision, resource] = labels;
                let labels = [
                    ("container_id", *id),
                    ("container_name", &*container.name),
                    full,
                    ("pod_name", &*pod.name),
                    ("pod_namespace", &*pod.namespace),
                    ("pod_uid", &*pod.uid),
                    degree,
                    precision,
                    resource,
                ];
                self.series(text, &labels, value);
            });
        }
        self.family(
            text,
            "pod_psi",
            Gauge,
            "Share of the time that a pod waits, in percent.",
        );
        for (pod, psi) in &pods {
            each_pressure(psi, |labels, value| {
                let [full, degree, precision, resource] = labels;
                let labels = [
                    full,
                    ("pod_name", &*pod.name),
                    ("pod_namespace", &*pod.namespace),
                    ("pod_uid", &*pod.uid),
                    degree,
                    precision,
                    resource,
                ];
                self.series(text, &labels, value);
            });
        }
    }
}

/// Every average of every resource, with the labels that tell them apart.
fn each_pressure(psi: &[Psi; 3], mut each: impl FnMut([(&'static str, &'static str); 4], f64)) {
    let averages: [Average; 3] = [
        ("avg10", |p| p.avg10_centi),
        ("avg60", |p| p.avg60_centi),
        ("avg300", |p| p.avg300_centi),
    ];
    for (resource, psi) in ["cpu", "mem", "io"].into_iter().zip(psi) {
        let supported = if psi.has_full { "true" } else { "false" };
        let full = psi.has_full.then_some(("full", &psi.full));
        for (degree, pressure) in [("some", &psi.some)].into_iter().chain(full) {
            for (precision, average) in averages {
                let labels = [
                    ("cpu_full_supported", supported),
                    ("psi_degree", degree),
                    ("psi_precision", precision),
                    ("psi_resource_type", resource),
                ];
                each(labels, average(pressure) as f64 / 100.0);
            }
        }
    }
}
