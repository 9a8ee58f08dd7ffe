//! Services and controllers, from which the default spreading derives whom a pod belongs with.

use rustc_hash::FxHashMap;

use crate::model::{
    ControllerKind, Labels, PodSpec, Requirement, Selector, Service, Symbol, Workload,
};

#[derive(Debug, Default)]
pub struct Owners {
    services: FxHashMap<Symbol, Vec<Service>>,
    workloads: FxHashMap<(ControllerKind, Symbol, Symbol), Selector>,
    /// Counts changes: what was derived before is to be derived again.
    epoch: u64,
}

impl Owners {
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn set_service(&mut self, service: Service) {
        self.remove_service(service.namespace, &service.name);
        self.services
            .entry(service.namespace)
            .or_default()
            .push(service);
    }

    pub fn remove_service(&mut self, namespace: Symbol, name: &str) {
        self.epoch += 1;
        if let Some(list) = self.services.get_mut(&namespace) {
            list.retain(|service| &*service.name != name);
        }
    }

    pub fn set_workload(&mut self, workload: Workload) {
        self.epoch += 1;
        let key = (workload.kind, workload.namespace, workload.name);
        self.workloads.insert(key, workload.selector);
    }

    pub fn remove_workload(&mut self, kind: ControllerKind, namespace: Symbol, name: Symbol) {
        self.epoch += 1;
        self.workloads.remove(&(kind, namespace, name));
    }

    /// Whom a pod belongs with: the selectors of its services and of its controller together.
    pub fn selector(&self, spec: &PodSpec) -> Selector {
        let mut pairs: Vec<(Symbol, Symbol)> = Vec::new();
        for service in self.services.get(&spec.namespace).into_iter().flatten() {
            let Some(selector) = &service.selector else {
                continue;
            };
            if selects(selector, &spec.labels) {
                pairs.extend(selector.iter());
            }
        }
        let labels: Labels = pairs.into_iter().collect();
        let mut all: Vec<_> = labels
            .iter()
            .map(|(key, value)| Requirement::equals(key, value))
            .collect();
        if let Some(owner) = &spec.controller {
            let key = (owner.kind, spec.namespace, owner.name);
            if let Some(Selector::All(requirements)) = self.workloads.get(&key) {
                all.extend(requirements.iter().cloned());
            }
        }
        Selector::All(all.into())
    }
}

fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value))
}
