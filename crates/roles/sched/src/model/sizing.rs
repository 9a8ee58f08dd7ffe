//! What a pod takes: init containers, sidecars, overhead, pod-level resources, resizes in place.

use super::amounts::{Amounts, Ask};
use super::pod::Charge;
use super::symbol::ResourceId;

/// A container, before a pod's amounts are summed up.
#[derive(Debug, Clone, Default)]
pub struct Container {
    pub ask: Ask,
    /// An init container that stays: a sidecar.
    pub restartable: bool,
    /// Requests as allocated and as in force, once the kubelet has told them.
    pub allocated: Option<Amounts>,
    pub actual: Option<Amounts>,
}

/// Everything of a pod that its amounts depend on.
#[derive(Debug, Clone, Default)]
pub struct Sizing {
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    pub overhead: Amounts,
    /// Pod-level resources.
    pub whole: Ask,
    pub whole_allocated: Option<Amounts>,
    pub whole_actual: Option<Amounts>,
    /// The kubelet cannot do the resize that was asked for.
    pub resize_infeasible: bool,
}

pub const DEFAULT_SCORED_CPU: i64 = 100;
pub const DEFAULT_SCORED_MEMORY: i64 = 200 * 1024 * 1024;

impl Sizing {
    fn asks_as_a_whole(&self, supported: &dyn Fn(ResourceId) -> bool) -> bool {
        self.whole.requests.iter().any(|(id, _)| supported(id))
    }

    /// Spec only: what a pod that is not placed yet asks for.
    pub fn requests(&self, supported: &dyn Fn(ResourceId) -> bool) -> Amounts {
        let mut sum = self.sum(&Amounts::default(), false);
        self.apply_whole(&mut sum, false, supported);
        sum.add(&self.overhead);
        sum
    }

    pub fn limits(&self, supported: &dyn Fn(ResourceId) -> bool) -> Amounts {
        let mut sum = sum_up(
            self.containers
                .iter()
                .map(|container| (container.ask.limits.clone(), false)),
            self.init_containers
                .iter()
                .map(|container| (container.ask.limits.clone(), container.restartable)),
        );
        for (id, amount) in self.whole.limits.iter().filter(|(id, _)| supported(*id)) {
            sum.set(id, amount);
        }
        for (id, amount) in self.overhead.iter() {
            if sum.get(id) != 0 {
                sum.set(id, sum.get(id).saturating_add(amount));
            }
        }
        sum
    }

    /// What `NodeResourcesFit` scores an unplaced pod by. It does not look at pod-level resources.
    pub fn scored(&self) -> Amounts {
        let mut sum = self.sum(&minimum(true, true), false);
        sum.add(&self.overhead);
        sum
    }

    /// What the pod takes on its node: the greatest of what is asked, allocated and in force.
    pub fn charge(&self, supported: &dyn Fn(ResourceId) -> bool) -> Charge {
        self.charge_from(supported, true)
    }

    /// The same without a look at the pod's status.
    pub fn spec_charge(&self, supported: &dyn Fn(ResourceId) -> bool) -> Charge {
        self.charge_from(supported, false)
    }

    fn charge_from(&self, supported: &dyn Fn(ResourceId) -> bool, status: bool) -> Charge {
        let total = |least: &Amounts| {
            let mut sum = self.sum(least, status);
            self.apply_whole(&mut sum, status, supported);
            sum.add(&self.overhead);
            sum
        };
        let requests = total(&Amounts::default());
        let whole = self.asks_as_a_whole(supported);
        let least = minimum(
            !whole || requests.get(ResourceId::CPU) == 0,
            !whole || requests.get(ResourceId::MEMORY) == 0,
        );
        let scored = total(&least);
        Charge {
            scored_cpu: scored.get(ResourceId::CPU),
            scored_memory: scored.get(ResourceId::MEMORY),
            requests,
        }
    }

    fn apply_whole(&self, sum: &mut Amounts, status: bool, supported: &dyn Fn(ResourceId) -> bool) {
        let known = status && self.whole_actual.is_some();
        let effective = self.effective(
            &self.whole.requests,
            &self.whole_allocated,
            &self.whole_actual,
        );
        for (id, amount) in self.whole.requests.iter().filter(|(id, _)| supported(*id)) {
            sum.set(id, if known { effective.get(id) } else { amount });
        }
    }

    fn sum(&self, least: &Amounts, status: bool) -> Amounts {
        let ask = |container: &Container, status: bool| {
            let mut ask = if status && container.actual.is_some() {
                self.effective(
                    &container.ask.requests,
                    &container.allocated,
                    &container.actual,
                )
            } else {
                container.ask.requests.clone()
            };
            for (id, amount) in least.iter() {
                if ask.find(id).is_none() {
                    ask.set(id, amount);
                }
            }
            ask
        };
        sum_up(
            self.containers
                .iter()
                .map(|container| (ask(container, status), false)),
            self.init_containers.iter().map(|container| {
                (
                    ask(container, status && container.restartable),
                    container.restartable,
                )
            }),
        )
    }

    fn effective(
        &self,
        asked: &Amounts,
        allocated: &Option<Amounts>,
        actual: &Option<Amounts>,
    ) -> Amounts {
        let mut effective = if self.resize_infeasible {
            Amounts::default()
        } else {
            asked.clone()
        };
        for amounts in [allocated, actual].into_iter().flatten() {
            effective.raise_to(amounts);
        }
        effective
    }
}

fn minimum(cpu: bool, memory: bool) -> Amounts {
    let mut least = Amounts::default();
    if cpu {
        least.set(ResourceId::CPU, DEFAULT_SCORED_CPU);
    }
    if memory {
        least.set(ResourceId::MEMORY, DEFAULT_SCORED_MEMORY);
    }
    least
}

/// Containers run together; init containers one after another, each beside the sidecars started before it.
fn sum_up(
    containers: impl Iterator<Item = (Amounts, bool)>,
    init_containers: impl Iterator<Item = (Amounts, bool)>,
) -> Amounts {
    let mut sum = Amounts::default();
    for (ask, _) in containers {
        sum.add(&ask);
    }
    let mut sidecars = Amounts::default();
    let mut peak = Amounts::default();
    for (ask, restartable) in init_containers {
        if restartable {
            sum.add(&ask);
            sidecars.add(&ask);
            peak.raise_to(&sidecars);
        } else {
            let mut step = ask;
            step.add(&sidecars);
            peak.raise_to(&step);
        }
    }
    sum.raise_to(&peak);
    sum
}
