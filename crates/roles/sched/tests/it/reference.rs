//! The rules by their definition: slow, with loops over everything, and nothing kept.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_sched::model::{
    AffinityTerm, Effect, Labels, Names, Node, Pod, ResourceId, Selector, SpreadConstraint, Symbol,
    Taint,
};

pub struct World<'a> {
    pub names: &'a Names,
    pub nodes: Vec<&'a Node>,
    /// With their nodes.
    pub pods: Vec<(&'a Pod, Symbol)>,
    pub namespaces: &'a BTreeMap<Symbol, Labels>,
    /// Selectors of services in the pod's namespace.
    pub services: &'a [Labels],
}

/// What there is to say about a pod.
pub enum Judgement {
    /// All nodes with the best total, and that total.
    Best(BTreeSet<Symbol>),
    /// Reasons and how many nodes each.
    Nowhere(BTreeMap<String, usize>),
}

impl World<'_> {
    fn on(&self, node: &Node) -> impl Iterator<Item = &Pod> {
        self.pods
            .iter()
            .filter(move |(_, place)| *place == node.name)
            .map(|(pod, _)| *pod)
    }

    pub fn judge(&self, pod: &Pod) -> Judgement {
        let mut reasons = BTreeMap::new();
        let mut feasible = Vec::new();
        for node in &self.nodes {
            match self.filter(pod, node) {
                None => feasible.push(*node),
                Some(texts) => {
                    for text in texts {
                        *reasons.entry(text).or_insert(0) += 1;
                    }
                }
            }
        }
        if feasible.is_empty() {
            return Judgement::Nowhere(reasons);
        }
        let mut totals = vec![0_i64; feasible.len()];
        let columns = [
            (3, self.taint_scores(pod, &feasible)),
            (2, self.node_affinity_scores(pod, &feasible)),
            (
                1,
                feasible
                    .iter()
                    .map(|node| self.least_allocated(pod, node))
                    .collect(),
            ),
            (2, self.spread_scores(pod, &feasible)),
            (2, self.affinity_scores(pod, &feasible)),
            (
                1,
                feasible
                    .iter()
                    .map(|node| self.balance(pod, node))
                    .collect(),
            ),
        ];
        for (weight, column) in columns {
            for (total, score) in totals.iter_mut().zip(column) {
                *total += weight * score;
            }
        }
        let best = totals.iter().copied().max().unwrap();
        let winners = feasible
            .iter()
            .zip(&totals)
            .filter(|(_, total)| **total == best);
        Judgement::Best(winners.map(|(node, _)| node.name).collect())
    }

    fn filter(&self, pod: &Pod, node: &Node) -> Option<Vec<String>> {
        let one = |text: &str| Some(vec![text.to_owned()]);
        let local = &pod.spec.local;
        let cordon = Taint {
            key: self.names.known.unschedulable,
            value: self.names.known.empty,
            effect: Effect::NoSchedule,
        };
        if node.unschedulable
            && !local
                .tolerations
                .iter()
                .any(|toleration| toleration.tolerates(&cordon))
        {
            return one("node(s) were unschedulable");
        }
        if self.is_tainted(pod, node) {
            return one("node(s) had untolerated taint(s)");
        }
        if !local.nodes.matches(node.name, &node.labels, self.names) {
            return one("node(s) didn't match Pod's node affinity/selector");
        }
        let taken = || {
            self.on(node)
                .flat_map(|other| other.spec.local.ports.iter())
        };
        if local
            .ports
            .iter()
            .any(|port| taken().any(|other| port.conflicts(other)))
        {
            return one("node(s) didn't have free ports for the requested pod ports");
        }
        let mut lacking = Vec::new();
        if self.on(node).count() as i64 + 1 > node.pods {
            lacking.push("Too many pods".to_owned());
        }
        for (resource, asked) in local.requests.iter() {
            let used: i64 = self
                .on(node)
                .map(|other| other.charge().requests.get(resource))
                .sum();
            if asked > 0 && asked > node.allocatable.get(resource) - used {
                lacking.push(format!(
                    "Insufficient {}",
                    self.names.resource_name(resource)
                ));
            }
        }
        if !lacking.is_empty() {
            return Some(lacking);
        }
        if let Some(text) = self.spread(pod, node) {
            return one(text);
        }
        self.affinity(pod, node).and_then(one)
    }

    fn is_tainted(&self, pod: &Pod, node: &Node) -> bool {
        node.taints.iter().any(|taint| {
            taint.effect != Effect::PreferNoSchedule
                && !pod
                    .spec
                    .local
                    .tolerations
                    .iter()
                    .any(|toleration| toleration.tolerates(taint))
        })
    }

    // === spread ===

    fn constraints(&self, pod: &Pod, required: bool) -> Vec<SpreadConstraint> {
        if !pod.spec.spread.is_empty() {
            let own = pod
                .spec
                .spread
                .iter()
                .filter(|constraint| constraint.required == required);
            return own.cloned().collect();
        }
        let mut pairs = Vec::new();
        for service in self.services {
            if service
                .iter()
                .all(|(key, value)| pod.spec.labels.get(key) == Some(value))
            {
                pairs.extend(service.iter());
            }
        }
        if required || pairs.is_empty() {
            return Vec::new();
        }
        let merged: Labels = pairs.into_iter().collect();
        let requirements = merged
            .iter()
            .map(|(key, value)| plimsoll_sched::model::Requirement::equals(key, value))
            .collect();
        let selector = Selector::All(requirements);
        [(self.names.known.hostname, 3), (self.names.known.zone, 5)]
            .map(|(key, max_skew)| SpreadConstraint {
                max_skew,
                key,
                required: false,
                selector: selector.clone(),
                min_domains: 1,
                honor_affinity: true,
                honor_taints: false,
            })
            .to_vec()
    }

    fn counts(&self, pod: &Pod, constraint: &SpreadConstraint, node: &Node) -> i64 {
        if constraint.selector.is_empty() {
            return 0;
        }
        let like = |other: &&Pod| {
            other.spec.namespace == pod.spec.namespace
                && !other.terminating
                && constraint.selector.matches(&other.spec.labels, self.names)
        };
        self.on(node).filter(like).count() as i64
    }

    fn eligible(&self, pod: &Pod, constraint: &SpreadConstraint, node: &Node) -> bool {
        let allowed = !constraint.honor_affinity
            || pod
                .spec
                .local
                .nodes
                .matches(node.name, &node.labels, self.names);
        allowed && !(constraint.honor_taints && self.is_tainted(pod, node))
    }

    fn spread(&self, pod: &Pod, node: &Node) -> Option<&'static str> {
        let constraints = self.constraints(pod, true);
        for constraint in &constraints {
            let Some(value) = node.labels.get(constraint.key) else {
                return Some(
                    "node(s) didn't match pod topology spread constraints (missing required label)",
                );
            };
            let mut domains: BTreeMap<Symbol, i64> = BTreeMap::new();
            for other in &self.nodes {
                let complete = constraints
                    .iter()
                    .all(|constraint| other.labels.get(constraint.key).is_some());
                if complete && self.eligible(pod, constraint, other) {
                    let value = other.labels.get(constraint.key).unwrap();
                    *domains.entry(value).or_default() += self.counts(pod, constraint, other);
                }
            }
            let mut least = domains.values().copied().min().unwrap_or(0);
            if (domains.len() as i64) < i64::from(constraint.min_domains) {
                least = 0;
            }
            let itself = i64::from(constraint.selector.matches(&pod.spec.labels, self.names));
            let there = domains.get(&value).copied().unwrap_or(0);
            if there + itself - least > i64::from(constraint.max_skew) {
                return Some("node(s) didn't match pod topology spread constraints");
            }
        }
        None
    }

    fn spread_scores(&self, pod: &Pod, feasible: &[&Node]) -> Vec<i64> {
        let constraints = self.constraints(pod, false);
        if constraints.is_empty() {
            return vec![0; feasible.len()];
        }
        let demanding = !pod.spec.spread.is_empty();
        let complete = |node: &Node| {
            constraints
                .iter()
                .all(|constraint| node.labels.get(constraint.key).is_some())
        };
        let ignored = |node: &Node| demanding && !complete(node);
        let considered: Vec<_> = feasible.iter().filter(|node| !ignored(node)).collect();
        let raw: Vec<Option<i64>> = feasible
            .iter()
            .map(|node| {
                if ignored(node) {
                    return None;
                }
                let mut sum = 0.0;
                for constraint in &constraints {
                    let Some(value) = node.labels.get(constraint.key) else {
                        continue;
                    };
                    let (size, count) = if constraint.key == self.names.known.hostname {
                        (considered.len(), self.counts(pod, constraint, node))
                    } else {
                        let values: BTreeSet<_> = considered
                            .iter()
                            .map(|node| node.labels.get(constraint.key))
                            .collect();
                        let there = self.nodes.iter().filter(|other| {
                            other.labels.get(constraint.key) == Some(value)
                                && (!demanding || complete(other))
                                && self.eligible(pod, constraint, other)
                        });
                        (
                            values.len(),
                            there.map(|other| self.counts(pod, constraint, other)).sum(),
                        )
                    };
                    sum += count as f64 * ((size + 2) as f64).ln()
                        + f64::from(constraint.max_skew - 1);
                }
                Some(sum.round() as i64)
            })
            .collect();
        let (least, most) = (raw.iter().flatten().min(), raw.iter().flatten().max());
        raw.iter()
            .map(|raw| match (raw, least, most) {
                (Some(_), _, Some(0)) => 100,
                (Some(raw), Some(least), Some(most)) => 100 * (most + least - raw) / most,
                _ => 0,
            })
            .collect()
    }

    // === affinity ===

    fn matches(&self, term: &AffinityTerm, pod: &Pod) -> bool {
        let none = Labels::default();
        let labels = self.namespaces.get(&pod.spec.namespace).unwrap_or(&none);
        let here = term.pods.namespaces.contains(&pod.spec.namespace)
            || term.pods.namespace_selector.matches(labels, self.names);
        here && term.pods.selector.matches(&pod.spec.labels, self.names)
    }

    /// Pods and the values that a key has on their nodes.
    fn by_value(&self, key: Symbol) -> impl Iterator<Item = (&Pod, Symbol)> {
        self.pods.iter().filter_map(move |(pod, place)| {
            let node = self.nodes.iter().find(|node| node.name == *place)?;
            Some((*pod, node.labels.get(key)?))
        })
    }

    fn affinity(&self, pod: &Pod, node: &Node) -> Option<&'static str> {
        let affinity = &pod.spec.affinity;
        let friend = |other: &Pod| {
            affinity
                .required
                .iter()
                .all(|term| self.matches(term, other))
        };
        let mut company = true;
        let mut anybody = false;
        for term in &affinity.required {
            let Some(value) = node.labels.get(term.key) else {
                return Some("node(s) didn't match pod affinity rules");
            };
            let friends: Vec<_> = self
                .by_value(term.key)
                .filter(|(other, _)| friend(other))
                .collect();
            anybody |= !friends.is_empty();
            company &= friends.iter().any(|(_, other)| *other == value);
        }
        if !company && (anybody || !friend(pod)) {
            return Some("node(s) didn't match pod affinity rules");
        }
        for term in &affinity.required_anti {
            let value = node.labels.get(term.key);
            if self
                .by_value(term.key)
                .any(|(other, there)| Some(there) == value && self.matches(term, other))
            {
                return Some("node(s) didn't match pod anti-affinity rules");
            }
        }
        for (other, place) in &self.pods {
            let Some(there) = self.nodes.iter().find(|node| node.name == *place) else {
                continue;
            };
            for term in &other.spec.affinity.required_anti {
                let value = there.labels.get(term.key);
                if value.is_some() && value == node.labels.get(term.key) && self.matches(term, pod)
                {
                    return Some("node(s) didn't satisfy existing pods anti-affinity rules");
                }
            }
        }
        None
    }

    fn affinity_scores(&self, pod: &Pod, feasible: &[&Node]) -> Vec<i64> {
        let mut sums = vec![0_i64; feasible.len()];
        let mut add = |key: Symbol, value: Symbol, weight: i64| {
            for (sum, node) in sums.iter_mut().zip(feasible) {
                if node.labels.get(key) == Some(value) {
                    *sum += weight;
                }
            }
        };
        for (weight, term) in &pod.spec.affinity.preferred {
            for (_, value) in self
                .by_value(term.key)
                .filter(|(other, _)| self.matches(term, other))
            {
                add(term.key, value, i64::from(*weight));
            }
        }
        for (other, place) in &self.pods {
            let Some(there) = self.nodes.iter().find(|node| node.name == *place) else {
                continue;
            };
            let hard = other.spec.affinity.required.iter().map(|term| (1, term));
            let soft = other
                .spec
                .affinity
                .preferred
                .iter()
                .map(|(weight, term)| (i64::from(*weight), term));
            for (weight, term) in hard.chain(soft) {
                if let Some(value) = there.labels.get(term.key)
                    && self.matches(term, pod)
                {
                    add(term.key, value, weight);
                }
            }
        }
        let (least, most) = (*sums.iter().min().unwrap(), *sums.iter().max().unwrap());
        let scale = |sum: i64| (100.0 * ((sum - least) as f64 / (most - least) as f64)) as i64;
        sums.into_iter()
            .map(|sum| if most == least { 0 } else { scale(sum) })
            .collect()
    }

    // === other scores ===

    fn taint_scores(&self, pod: &Pod, feasible: &[&Node]) -> Vec<i64> {
        let raw: Vec<i64> = feasible
            .iter()
            .map(|node| {
                let bothers = |taint: &&Taint| {
                    taint.effect == Effect::PreferNoSchedule
                        && !pod
                            .spec
                            .local
                            .tolerations
                            .iter()
                            .any(|toleration| toleration.tolerates(taint))
                };
                node.taints.iter().filter(bothers).count() as i64
            })
            .collect();
        let most = *raw.iter().max().unwrap();
        raw.iter()
            .map(|raw| {
                if most == 0 {
                    100
                } else {
                    100 - 100 * raw / most
                }
            })
            .collect()
    }

    fn node_affinity_scores(&self, pod: &Pod, feasible: &[&Node]) -> Vec<i64> {
        let raw: Vec<i64> = feasible
            .iter()
            .map(|node| {
                let liked = |(_, term): &&(i32, plimsoll_sched::model::NodeTerm)| {
                    term.matches(node.name, &node.labels, self.names)
                };
                let weights = pod.spec.local.preferred_nodes.iter().filter(liked);
                weights.map(|(weight, _)| i64::from(*weight)).sum()
            })
            .collect();
        let most = *raw.iter().max().unwrap();
        raw.iter()
            .map(|raw| if most == 0 { 0 } else { 100 * raw / most })
            .collect()
    }

    fn least_allocated(&self, pod: &Pod, node: &Node) -> i64 {
        let scored = &pod.spec.local.scored;
        let cpu: i64 = self.on(node).map(|other| other.charge().scored_cpu).sum();
        let memory: i64 = self
            .on(node)
            .map(|other| other.charge().scored_memory)
            .sum();
        let mut scores = Vec::new();
        for (resource, used) in [(ResourceId::CPU, cpu), (ResourceId::MEMORY, memory)] {
            let there = node.allocatable.get(resource);
            let taken = used + scored.get(resource);
            if there > 0 {
                scores.push(if taken > there {
                    0
                } else {
                    (there - taken) * 100 / there
                });
            }
        }
        scores.iter().sum::<i64>() / (scores.len().max(1) as i64)
    }

    fn balance(&self, pod: &Pod, node: &Node) -> i64 {
        let asked = &pod.spec.local.requests;
        if asked.get(ResourceId::CPU) == 0 && asked.get(ResourceId::MEMORY) == 0 {
            return 0;
        }
        let share = |resource: ResourceId, with: bool| {
            let used: i64 = self
                .on(node)
                .map(|other| other.charge().requests.get(resource))
                .sum();
            let taken = used + if with { asked.get(resource) } else { 0 };
            (taken as f64 / node.allocatable.get(resource) as f64).min(1.0)
        };
        let score = |with: bool| {
            let deviation =
                ((share(ResourceId::CPU, with) - share(ResourceId::MEMORY, with)) / 2.0).abs();
            ((1.0 - deviation) * 100.0) as i64
        };
        50 + (50 + score(true) - score(false)) / 2
    }
}
